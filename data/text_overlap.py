"""Verbatim overlap of synthetic texts with real ones: a descriptive, private measure of memorisation.

It proves nothing by itself. Overlap may be common wording: for comparison, compute it against real texts that the
generator never saw. And a text can reveal a record without having a run in common with it.

Source: runs of words as in Lee et al., "Deduplicating Training Data Makes Language Models Better" (2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.data.word_runs import HashSet, Words

RUN_WORDS = 8
NEAR = 0.5
"""A text is a near duplicate if at least this fraction of its runs occurs in real texts."""

QUANTILES = (0.5, 0.95, 1.0)
_WHOLE = 0  # stands for whole texts in place of a number of words


@dataclass(frozen=True, slots=True, eq=False)
class Overlap:
    """The overlap of each synthetic text with real texts.

    Attributes:
        run_words: n, the number of words in a run. A text of fewer words is a single run.
        exact: shape (N,), whether a real text has the same words and punctuation, ignoring case and spacing.
        share: shape (N,), the fraction of the text's runs that occur in some real text; 0 for a text without words.
        longest: shape (N,), number of words in the longest stretch all of whose runs occur in some real text; 0 if no
            run does. It is an upper bound on any common stretch of at least n words with one real text.
    """

    run_words: int
    exact: Bools
    share: Floats
    longest: Integers

    @property
    def exact_share(self) -> float:
        """Fraction of synthetic texts that equal a real one, ignoring case and spacing."""
        return float(self.exact.mean())

    @property
    def near_share(self) -> float:
        """Fraction of synthetic texts of which at least `NEAR` of the runs occur in real texts."""
        return float((self.share >= NEAR).mean())

    @property
    def mean_overlap(self) -> float:
        """Mean of `share`, in [0, 1]."""
        return float(self.share.mean())

    @property
    def longest_stretch_words(self) -> dict[float, float]:
        """Quantiles of `longest`, in words, for each probability in `QUANTILES`."""
        return {q: float(np.quantile(self.longest, q)) for q in QUANTILES}

    def summary(self) -> dict[str, Any]:
        """Fractions of texts and quantiles, as JSON types."""
        return {
            "run_words": self.run_words,
            "exact_share": self.exact_share,
            "near_share": self.near_share,
            "near_from": NEAR,
            "mean_overlap": self.mean_overlap,
            "longest_stretch_words": {f"{q:g}": words for q, words in self.longest_stretch_words.items()},
        }


def overlap(synthetic: Words, real: Iterable[Words], run_words: int = RUN_WORDS) -> Overlap:
    """Searches real texts for the words of synthetic texts.

    Args:
        synthetic: at least one text.
        real: in pieces, of which one is in memory at a time.
        run_words: n, at least 1.

    Raises:
        ValueError: if there is no synthetic text.
    """
    validate.integer(minimum=1, run_words=run_words)
    if not len(synthetic):
        raise ValueError("synthetic must have at least one text")
    whole, lengths = synthetic.whole(), synthetic.lengths
    wanted = {_WHOLE: HashSet(whole.copy()), run_words: HashSet(synthetic.runs(run_words))}
    for n in np.unique(lengths[(lengths > 0) & (lengths < run_words)]).tolist():
        wanted[n] = HashSet(whole[lengths == n])
    results = {n: np.zeros(len(hashes), dtype=np.bool_) for n, hashes in wanted.items()}
    for piece in real:
        for n, hashes in wanted.items():
            results[n][hashes.indices(piece.whole() if n == _WHOLE else piece.runs(n))] = True
    occur = {n: HashSet(wanted.pop(n).hashes[results.pop(n)]) for n in list(wanted)}
    exact = occur[_WHOLE].contains(whole) & (lengths > 0)
    parts = [_of_piece(piece, occur, run_words) for piece in synthetic.pieces()]
    share, longest = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Overlap(run_words, exact, share, longest.astype(np.int64))


def _of_piece(words: Words, occur: dict[int, HashSet], run_words: int) -> tuple[Floats, Floats]:
    """Share and longest stretch of each text."""
    lengths = words.lengths
    share, longest = np.zeros(len(words)), np.zeros(len(words))
    whole = words.whole()
    for n in np.unique(lengths[(lengths > 0) & (lengths < run_words)]).tolist():
        texts = lengths == n
        share[texts] = occur[n].contains(whole[texts])
        longest[texts] = n * share[texts]
    texts = lengths >= run_words
    if texts.any():
        result = occur[run_words].contains(words.runs(run_words))
        runs = lengths[texts] - run_words + 1
        begins = np.cumsum(runs) - runs
        share[texts] = np.add.reduceat(result.astype(np.float64), begins) / runs
        stretch = np.maximum.reduceat(_streaks(result, begins), begins)
        longest[texts] = np.where(stretch > 0, stretch + run_words - 1, 0)
    return share, longest


def _streaks(result: Bools, begins: Integers) -> Integers:
    """The number of consecutive found entries up to each index, restarting at each of `begins`."""
    indices = np.arange(len(result))
    last = np.where(result, -1, indices)  # index of the last entry that was not found, or the end of the previous text
    last[begins] = np.maximum(last[begins], begins - 1)
    return indices - np.maximum.accumulate(last)
