"""Verbatim and near-verbatim extraction: which records does a released text reproduce?

Words are compared regardless of case and spacing. The lengths and fractions are fixed in the call, before any data are
read: a threshold that is chosen by its result gives no valid test.

Source: Carlini et al., "Extracting Training Data from Large Language Models" (2021); Lee et al., "Deduplicating
    Training Data Makes Language Models Better" (2022), for runs of words; Ippolito et al., "Preventing Verbatim
    Memorization in Language Models Gives a False Sense of Privacy" (2023), for why near-verbatim counts as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.attacks.released.holdout import Hits, Units
from dpassay.attacks.released.longest_runs import longest_runs
from dpassay.base import defaults, validate
from dpassay.base.arrays import Bools, Integers
from dpassay.base.number_format import format_percent
from dpassay.data.text_overlap import Overlap, overlap
from dpassay.data.word_runs import Words

_QUANTILES = (0.5, 0.95, 0.99, 1.0)
_GAME = "some records were given to the generator and others held out; tell them apart by the synthetic texts"


@dataclass(frozen=True, slots=True)
class Criteria:
    """When a record counts as reproduced.

    Attributes:
        words: verbatim, if a run of this many of its words occurs in a synthetic text; shorter records, if all their
            words do.
        near_words: length in words of the runs for near-verbatim.
        near_share: near-verbatim, if at least this fraction of its runs of `near_words` words occurs in synthetic
            texts, in any order and in any number of them; in (0, 1].
        longest_share: the fraction of all units that the third attack may guess: those with the longest runs of at
            least `words` words; in (0, 1).
    """

    words: int = defaults.VERBATIM_WORDS
    near_words: int = defaults.NEAR_WORDS
    near_share: float = defaults.NEAR_SHARE
    longest_share: float = 0.1

    def __post_init__(self) -> None:
        validate.integer(minimum=1, words=self.words)
        validate.integer(minimum=1, near_words=self.near_words)
        validate.positive(near_share=self.near_share)
        validate.probability(near_share=self.near_share)
        validate.open_probability(longest_share=self.longest_share)


def extraction(
    synthetic: Words, source: Words, holdout: Words, units: Units, criteria: Criteria | None = None
) -> tuple[Hits, Hits, Hits]:
    """Searches synthetic texts for the words of source and holdout records.

    Args:
        synthetic: the released texts.
        source, holdout: the records of each side.
        units: the unit of each record.
        criteria: when a record counts as reproduced.

    Returns:
        Three attacks. Verbatim and near-verbatim: a unit is hit if one of its records is reproduced. Longest runs: the
        units with the longest runs, of at least `criteria.words` words; their number is limited to a fixed fraction,
        so this attack is more sensitive if records have many words in common anyway.

    Raises:
        ValueError: if a side has no records.
    """
    rule = criteria or Criteria()
    if not len(source) or not len(holdout):
        raise ValueError("extraction needs at least one record in the source and one in the holdout")
    sides = [ExtractionSide.of(records, synthetic, rule) for records in (source, holdout)]
    about = {"records": {"synthetic": len(synthetic), "source": len(source), "holdout": len(holdout)}, **units.about()}
    longest = {name: _quantiles(of.longest, rule.words) for name, of in zip(("source", "holdout"), sides, strict=True)}
    verbatim = f"{rule.words} consecutive words (or all, if it has fewer) occur in a synthetic text"
    near = f"at least {format_percent(rule.near_share)} of the runs of {rule.near_words} words occur in synthetic texts"
    return (
        _hits("verbatim_extraction", verbatim, units.hit(*(of.verbatim for of in sides)), about),
        _hits("near_verbatim_extraction", near, units.hit(*(of.near for of in sides)), about),
        Hits(
            "longest_runs",
            _GAME,
            f"the {format_percent(rule.longest_share)} of all units with the longest runs in common with a synthetic "
            f"text, of at least {rule.words} words",
            "among those with the longest runs",
            *_longest_units(units, sides[0].longest, sides[1].longest, rule.longest_share),
            {"longest_run": longest},
        ),
    )


def _longest_units(units: Units, source: Integers, holdout: Integers, share: float) -> tuple[Bools, Bools]:
    """The units with the longest runs; ties are broken by content, so hits depend on the split only via the texts."""
    longest = np.zeros(units.source_count + units.holdout_count, dtype=np.int64)
    for index, runs, begin in ((units.source, source, 0), (units.holdout, holdout, units.source_count)):
        np.maximum.at(longest, index[index >= 0] + begin, runs[index >= 0])
    order = np.lexsort((units.order, -longest))
    guessed = np.zeros(len(longest), dtype=np.bool_)
    guessed[order[: math.ceil(share * len(longest))]] = True
    guessed &= longest > 0
    return guessed[: units.source_count], guessed[units.source_count :]


def _hits(name: str, attack: str, flags: tuple[Bools, Bools], details: dict[str, Any]) -> Hits:
    return Hits(name, _GAME, f"a record of which {attack}", "reproduced", *flags, details)


@dataclass(frozen=True, slots=True, eq=False)
class ExtractionSide:
    """What of the records of one side occurs in the synthetic texts, each field of shape (n,)."""

    verbatim: Bools
    near: Bools
    longest: Integers

    @classmethod
    def of(cls, records: Words, synthetic: Words, rule: Criteria) -> ExtractionSide:
        runs = overlap(records, synthetic.pieces(), rule.words)
        verbatim = runs.longest > 0
        near: Overlap = overlap(records, synthetic.pieces(), rule.near_words)
        return cls(verbatim, near.share >= rule.near_share, _longest(records, synthetic, verbatim, rule.words))


def _longest(records: Words, synthetic: Words, result: Bools, least: int) -> Integers:
    """The longest common run of each record that was found; 0 for the others."""
    out = np.where(result, records.lengths, 0)  # of a shorter record, all words were found
    long = result & (records.lengths >= least)
    out[long] = longest_runs(_chosen(records, long), synthetic, least=least)
    return out


def _chosen(words: Words, chosen: Bools) -> Words:
    starts = np.concatenate([[0], np.cumsum(words.lengths[chosen])])
    return Words(words.hashes[np.repeat(chosen, words.lengths)], starts)


def _quantiles(longest: Integers, least: int) -> dict[str, Any]:
    """Quantiles in words; null if the record was not found, that is, its longest run is shorter than `least`."""
    values = {f"{q:g}": int(np.quantile(longest, q, method="higher")) for q in _QUANTILES}
    return {"looked_for": least, "quantiles": {q: value or None for q, value in values.items()}}
