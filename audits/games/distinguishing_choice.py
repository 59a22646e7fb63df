"""The test of the many-runs game: found on training runs, with what it can show known before anything is run."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import Bound, Direction, Rigor
from cupel.accounting.guarantees import ApproxDP, Guarantee, PrivacyProfile, PureDP
from cupel.accounting.number_format import format_number
from cupel.attacks.black_box.distinguishing import Score, fitted_scores
from cupel.audits.implications import describe, implied_limit
from cupel.audits.statistics.binomial import epsilons_clopper_pearson, upper_limit

Floats = NDArray[np.float64]

TRAINING = 0.3
"""The share of the runs that scores and thresholds are found on."""
DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Where ε may be bounded if the claim is a whole curve (zCDP, GDP, RDP); training chooses one."""

_LEAST_TRAINING = 4  # runs on each side: two to fit on, two to choose on
_MOST_THRESHOLDS = 512
_CAUTION = 0.1  # training takes an error rate for its upper limit at this tail


@dataclass(frozen=True, slots=True)
class Reach:
    """What a number of runs can show, whatever the mechanism does.

    Attributes:
        delta: the δ at which the test reaches furthest beyond the claim.
        ceiling: the bound of a test without an error there.
        limit: the ε that the claim allows there.
    """

    delta: float
    ceiling: float
    limit: float

    @property
    def can_refute(self) -> bool:
        """Whether a test without an error refutes the claim."""
        return self.ceiling > self.limit


def reach(guarantee: Guarantee, runs: int, *, confidence: float, training: float = TRAINING) -> Reach:
    """What so many runs on each side can show of a claim.

    Raises:
        ValueError: for a claim that outputs of many runs say nothing of (ex-post DP, secret protection).
    """
    tested = runs - training_runs(runs, training)
    found = []
    for delta, limit in limits(guarantee):
        ceiling = epsilons_clopper_pearson(tested, 0, 0, tested, delta=delta, confidence=confidence)
        found.append(Reach(delta, float(ceiling), limit))
    return max(found, key=lambda one: one.ceiling - one.limit)


def training_runs(runs: int, training: float = TRAINING) -> int:
    """How many of the runs on one side are for training.

    Raises:
        ValueError: for too few runs.
    """
    validate.open_probability(training=training)
    first = math.ceil(validate.integer(runs=runs) * training)
    if first < _LEAST_TRAINING or first >= runs:
        raise ValueError(
            f"{runs} runs on each side are too few: a share of {training:g} of them is for training, which needs "
            f"{_LEAST_TRAINING} runs, and some must be left to test"
        )
    return first


@functools.lru_cache(maxsize=64)
def limits(guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
    """The δ at which ε may be bounded against a claim, with the ε that it allows there.

    Raises:
        ValueError: for a claim that says nothing of ε at any of them.
    """
    match guarantee:
        case PureDP():
            deltas: tuple[float, ...] = (0.0,)
        case ApproxDP(_, delta):
            deltas = (delta,)
        case PrivacyProfile(_, points):
            deltas = tuple(sorted({delta for delta in points if 0 <= delta < 1}))
        case _:
            deltas = DELTAS
    found = [(delta, implied_limit(guarantee, _epsilon(delta))) for delta in deltas]
    found = [(delta, limit) for delta, limit in found if math.isfinite(limit)]
    if not found:
        raise ValueError(
            f"{describe(guarantee)} says nothing of how often outputs occur, so running the mechanism on two data sets "
            "cannot test it"
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Test:
    """An output is said to come from D′ where its score reaches a threshold.

    Attributes:
        score: of outputs.
        threshold: of the score.
        delta: at which ε is to be bounded.
        tried: pairs of score and threshold that were compared.
    """

    score: Score
    threshold: float
    delta: float
    tried: int

    def says(self, outputs: Sequence[Any]) -> NDArray[np.bool_]:
        """Whether each output is said to come from D′."""
        return np.asarray(self.score.of(outputs) >= self.threshold)

    @property
    def event(self) -> str:
        """What must hold for that."""
        return f"{self.score.name} ≥ {format_number(self.threshold)}"


def found_test(
    on_d: Sequence[Any],
    on_d_prime: Sequence[Any],
    score: Callable[[Any], float] | None,
    guarantee: Guarantee,
    *,
    tested: int,
    confidence: float,
) -> Test:
    """Of all scores, thresholds and δ, those that promise the largest excess over the claim.

    Args:
        on_d, on_d_prime: outputs of the training runs.
        score: of one output; None fits scores on the first half of them, and chooses on the other.
        guarantee: the claim.
        tested: how many runs on each side will be tested.
        confidence: at which they will be.
    """
    if score is None:
        fitted = len(on_d) // 2
        scores = fitted_scores(on_d[:fitted], on_d_prime[:fitted])
        on_d, on_d_prime = on_d[fitted:], on_d_prime[fitted:]
    else:
        scores = [_given(score)]
    best: tuple[float, Test] | None = None
    tried, rates = 0, _promised_rates(len(on_d), tested, confidence)
    for one in scores:
        out, inside = np.sort(one.of(on_d)), np.sort(one.of(on_d_prime))
        thresholds = _thresholds(np.concatenate([out, inside]))
        tried += thresholds.size
        fp, tp = (side.size - np.searchsorted(side, thresholds) for side in (out, inside))
        for delta, limit in limits(guarantee):
            excess = _shown(rates[fp], rates[inside.size - tp], delta) - limit
            index = int(np.argmax(excess))
            if best is None or excess[index] > best[0]:
                best = float(excess[index]), Test(one, float(thresholds[index]), delta, 0)
    assert best is not None
    return dataclasses.replace(best[1], tried=tried)


def _given(score: Callable[[Any], float]) -> Score:
    """A user's own score of one output, for many."""

    def of(outputs: Sequence[Any]) -> Floats:
        scores = np.array([float(score(output)) for output in outputs], dtype=np.float64)
        if np.isnan(scores).any():
            raise ValueError("the score of an output is NaN; it must be a number, larger for D′")
        return scores

    return Score("the given score", of)


def _thresholds(scores: Floats) -> Floats:
    """Between neighbouring scores, since new ones lie there; and the least one."""
    values = np.unique(scores)
    if values.size > _MOST_THRESHOLDS:
        values = values[np.linspace(0, values.size - 1, _MOST_THRESHOLDS).round().astype(np.int64)]
    with np.errstate(invalid="ignore"):
        middles = values[:-1] / 2 + values[1:] / 2
    apart = np.isfinite(middles) & (middles > values[:-1])
    return np.concatenate([values[:1], np.where(apart, middles, values[1:])])


@functools.lru_cache(maxsize=8)
def _promised_rates(runs: int, tested: int, confidence: float) -> Floats:
    """For 0, …, `runs` errors in training, the upper limit of the rate that tested runs would show, by caution."""
    cautious = upper_limit(np.arange(runs + 1), runs, _CAUTION)
    return upper_limit(np.ceil(cautious * tested).astype(np.int64), tested, (1 - confidence) / 2)


def _shown(false: Floats, miss: Floats, delta: float) -> Floats:
    """The ε that these upper limits of both error rates show, in either direction; −inf for nothing."""
    with np.errstate(divide="ignore"):
        first = np.log(np.maximum(1 - miss - delta, 0.0)) - np.log(false)
        second = np.log(np.maximum(1 - false - delta, 0.0)) - np.log(miss)
    return np.asarray(np.maximum(first, second))


def _epsilon(delta: float) -> Bound:
    """A lower bound on ε at δ that says nothing, to ask what a claim allows."""
    return Bound(
        direction=Direction.LOWER,
        value=0.0,
        method="clopper_pearson",
        rigor=Rigor.ESTIMATE,
        adjacency=Adjacency.ADD_REMOVE,
        delta=delta or None,
    )
