"""Rejection of synthetic texts by their quality: by perplexity, or by a judge. Both read synthetic texts only.

A rejected text is written again with another seed. What is rejected depends on released vectors and public models, so
it costs no privacy.

Source: "EPSVec", Algorithm 2, whose judge is a language model that rates a text from 1 to 10.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpassay.base.pieces import pieces
from dpassay.mechanisms.models.perplexity import perplexities

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
    from dpassay.mechanisms.models.writers import Writer

Accepts = Callable[[Sequence[str]], Sequence[bool]]
"""Which of some texts are good enough."""

Ask = Callable[[Sequence[int]], Iterable[tuple[str, bool]]]
"""One text for each seed, in order, and whether it ended by itself."""

REFERENCES = 20
"""The number of texts without vectors whose perplexities set the default threshold."""

QUANTILE = 0.95
"""The share of those texts that the default threshold would accept."""

MIN_RATING = 6.0
"""The default threshold of a judge."""

JUDGE = (
    "Rate how natural and coherent the following text is, from 1 (gibberish) to 10 (as a careful person writes).\n"
    "Answer with the number alone.\n\n{text}"
)

_AT_A_TIME = 16
_RATING = re.compile(r"\D*(\d+(?:\.\d+)?)(?:\s*/\s*10)?\D*")  # one number, or "8/10"


def accepted(ask: Ask, accepts: Accepts) -> Ask:
    """The same texts, empty where they are rejected."""

    def asked(seeds: Sequence[int]) -> Iterator[tuple[str, bool]]:
        for some in pieces(ask(seeds), _AT_A_TIME):
            good = accepts([text for text, _ in some])
            yield from ((text if fine else "", ended) for (text, ended), fine in zip(some, good, strict=True))

    return asked


def by_perplexity(writer: ShotWriter, prompt: Sequence[int], threshold: float) -> Accepts:
    """Accepts texts of a perplexity after a prompt, without vectors, of at most `threshold`."""
    return lambda texts: [bool(item <= threshold) for item in perplexities(writer.model, prompt, texts, writer.longest)]


def default_threshold(writer: ShotWriter, prompt: Sequence[int], references: Sequence[str]) -> float:
    """The perplexity that a share `QUANTILE` of texts without vectors has at most."""
    return float(np.quantile(perplexities(writer.model, prompt, references, writer.longest), QUANTILE))


def by_judge(judge: Writer, label: str | None, threshold: float = MIN_RATING) -> Accepts:
    """Accepts texts that `vary` of a judge rates at least `threshold`; an answer that is not one number counts as 0."""
    return lambda texts: [_rating(answer) >= threshold for answer in judge.vary(texts, label, [0] * len(texts))]


def _rating(answer: str | None) -> float:
    result = _RATING.fullmatch(answer or "")
    return float(result[1]) if result else 0.0
