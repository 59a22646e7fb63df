"""Which of several events names the cause: the plainest that tells two data sets apart as well as the best one.

A plainer event takes the place of the best one if, on the runs that were seen,

- its cautious estimate of ε is at least as large, at one error probability for both, and
- the hypergeometric tail of its numbers of hits, times the number of plainer features, is at most `CHANCE`: with few
  runs one of many features is bound to fit.

The rule names an event after all rounds, which were bet on by others, so it costs no confidence. Plans of version 0.2
bet on the named event, too; there it uses earlier runs only (docs/proofs/many-runs.md, theorem 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dpassay.attacks.black_box.feature_words import plainness
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.audits.statistics.one_run import hypergeometric_tail

CHANCE: Final = 0.05
"""Probability with which a plainer feature may tell equal sides apart as well as the best event."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The best event of one feature.

    Attributes:
        event: the event.
        value: the cautious estimate of the ε that it shows.
        gap: the difference of its rates on D′ and on D.
        hits: number of runs on D and on D′ in which it happened.
    """

    event: Event
    value: float
    gap: float
    hits: tuple[int, int]


def plainest(
    candidates: Sequence[Candidate],
    best: Candidate,
    runs: tuple[int, int],
    estimate: Callable[[Candidate], float],
    copied: Callable[[str], bool],
) -> Candidate:
    """The plainest candidate that is as good as the best one.

    Args:
        candidates: of all features.
        best: the one that would be tested.
        runs: number of runs on D and on D′.
        estimate: of the ε that a candidate shows, at one error probability for all.
        copied: whether a feature is, in all runs, what it is of the data.
    """

    def rank(candidate: Candidate) -> tuple[float, int]:
        return plainness(candidate.event, copied(candidate.event.feature))

    plainer = [candidate for candidate in candidates if rank(candidate) < rank(best)]
    least, features = estimate(best), len({candidate.event.feature for candidate in plainer})
    good = [
        candidate
        for candidate in plainer
        if estimate(candidate) >= least and features * by_chance(candidate.hits, runs) <= CHANCE
    ]
    return min([*good, best], key=lambda candidate: (rank(candidate), -candidate.value))


def by_chance(hits: tuple[int, int], runs: tuple[int, int]) -> float:
    """The two-sided p-value of these numbers of hits, if D and D′ are alike."""
    both, every = sum(hits), sum(runs)
    tails = (hypergeometric_tail(hits[side], every, both, runs[side]) for side in (0, 1))
    return min(1.0, 2 * min(tails))


def is_copied(feature: str, sides: Sequence[Sequence[Features]], held: tuple[Features, Features] | None) -> bool:
    """Whether a feature is, in all runs on D and on D′ that wrote an output, what it is of the data set."""
    if held is None:
        return False
    for side, own in zip(sides, held, strict=True):
        values = [features[feature] for features in side if feature in features]
        if not values or feature not in own:
            return False
        if not all(math.isclose(value, own[feature], rel_tol=1e-9, abs_tol=1e-9) for value in values):
            return False
    return True
