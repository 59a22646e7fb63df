"""The test of the many-runs game, selected on training runs, and the largest ε that it can show."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.guarantees import ApproxDP, Guarantee, PrivacyProfile, PureDP
from dpassay.attacks.black_box.distinguishing import Outputs, OutputScore, fitted_scores, given_score
from dpassay.audits.implications import describe, implied_limit
from dpassay.audits.statistics.binomial import epsilons_clopper_pearson, upper_limit
from dpassay.audits.statistics.score_bets import most_shown
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats
from dpassay.base.number_format import format_number

Statistic: TypeAlias = Literal["clopper_pearson", "sequential", "score_bets"]

TRAINING = 0.3
"""The fraction of the runs on which scores and thresholds are selected."""
BETS_TRAINING = 0.1
"""The fraction of the runs that is not bet on, if there are many."""
DELTAS = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
"""Candidate δ at which ε is bounded if the claim is a whole curve (zCDP, GDP, RDP); training chooses one."""

_MIN_TRAINING = 4  # runs on each side: two to fit on, two to choose on
_FIRST_BETS = 10  # runs on each side before the first bet, if that is no more than `TRAINING` of them
_MAX_THRESHOLDS = 512
_TRAINING_TAIL = 0.1  # training estimates an error rate by its upper confidence limit at this tail


@dataclass(frozen=True, slots=True)
class DetectionLimit:
    """The largest ε that a number of runs can show, with a test that makes no error, and the ε that the claim allows,
    at the δ where the first exceeds the second by most."""

    delta: float
    ceiling: float
    limit: float

    @property
    def can_refute(self) -> bool:
        """Whether a test that makes no error refutes the claim."""
        return self.ceiling > self.limit


def detection_limit(
    guarantee: Guarantee,
    runs: int,
    *,
    confidence: float,
    training: float | None = None,
    statistic: Literal["clopper_pearson", "score_bets"] = "clopper_pearson",
) -> DetectionLimit:
    """The largest ε that `runs` runs on each side can show, compared with a claim.

    Args:
        guarantee: the claim.
        runs: number of runs on each data set, those for training included.
        confidence: of the bound.
        training: fraction of the runs that is used for training; None for that of the statistic.
        statistic: of `distinguishing_audit`.

    Raises:
        ValueError: if running the mechanism cannot test the claim (ex-post DP, secret protection), or if there are
            too few runs.
    """
    bets = statistic == "score_bets"
    tested = runs - (bets_training_runs(runs, training) if bets else training_runs(runs, training or TRAINING))
    results = []
    for delta, limit in epsilon_limits(guarantee):
        if bets:
            ceiling = most_shown(tested, delta=delta, confidence=confidence)
        else:
            ceiling = float(epsilons_clopper_pearson(tested, 0, 0, tested, delta=delta, confidence=confidence))
        results.append(DetectionLimit(delta, ceiling, limit))
    return max(results, key=lambda item: item.ceiling - item.limit)


def training_runs(runs: int, training: float = TRAINING) -> int:
    """The number of runs on one side that are used for training.

    Raises:
        ValueError: if there are too few runs.
    """
    validate.open_probability(training=training)
    first = math.ceil(validate.integer(runs=runs) * training)
    if first < _MIN_TRAINING or first >= runs:
        raise ValueError(
            f"{runs} runs on each side are too few: a fraction {training:g} of them is used for training, which needs "
            f"at least {_MIN_TRAINING} runs, and at least one run must remain for testing"
        )
    return first


def bets_training_runs(runs: int, training: float | None = None) -> int:
    """The number of runs on one side before the first bet: a tenth, and of few runs up to three tenths.

    Raises:
        ValueError: if there are too few runs.
    """
    if training is not None:
        return training_runs(runs, training)
    return max(math.ceil(BETS_TRAINING * runs), min(_FIRST_BETS, training_runs(runs)))


@functools.lru_cache(maxsize=64)
def epsilon_limits(guarantee: Guarantee) -> tuple[tuple[float, float], ...]:
    """The δ at which ε may be bounded to test a claim, each with the ε that the claim allows at it.

    Raises:
        ValueError: if the claim limits ε at none of them.
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
    results = [(delta, implied_limit(guarantee, _bound_at(delta))) for delta in deltas]
    results = [(delta, limit) for delta, limit in results if math.isfinite(limit)]
    if not results:
        raise ValueError(
            f"{describe(guarantee)} says nothing about how often outputs occur, so running the mechanism on two data "
            "sets cannot test it"
        )
    return tuple(results)


@dataclass(frozen=True, slots=True)
class Test:
    """A threshold test, chosen among `tried` pairs of score and threshold to bound ε at δ: an output is attributed to
    D′ if its score is at least the threshold."""

    score: OutputScore
    threshold: float
    delta: float
    tried: int

    def classify(self, outputs: Outputs) -> Bools:
        """Whether each output is attributed to D′, shape (number of outputs,)."""
        return np.asarray(self.score.of(outputs) >= self.threshold)

    @property
    def event(self) -> str:
        """The condition under which an output is attributed to D′, as text."""
        return f"{self.score.name} ≥ {format_number(self.threshold)}"


def select_test(
    on_d: Outputs,
    on_d_prime: Outputs,
    score: Callable[[Any], float] | None,
    guarantee: Guarantee,
    *,
    tested: int,
    confidence: float,
) -> Test:
    """The score, threshold and δ with the largest expected excess of the bound over the claim, if `tested` runs on each
    side will be tested at this confidence.

    Outputs are those of the training runs. Without a score, scores are fitted on the first half of them, and the test
    is selected on the other half.
    """
    if score is None:
        fitted = len(on_d) // 2
        scores = fitted_scores(on_d[:fitted], on_d_prime[:fitted])
        on_d, on_d_prime = on_d[fitted:], on_d_prime[fitted:]
    else:
        scores = [given_score(score)]
    best: tuple[float, Test] | None = None
    tried, rates = 0, _expected_rates(len(on_d), tested, confidence)
    for item in scores:
        out, inside = np.sort(item.of(on_d)), np.sort(item.of(on_d_prime))
        between = thresholds(np.concatenate([out, inside]))
        tried += between.size
        fp, tp = (side.size - np.searchsorted(side, between) for side in (out, inside))
        for delta, limit in epsilon_limits(guarantee):
            excess = _epsilon_shown(rates[fp], rates[inside.size - tp], delta) - limit
            index = int(np.argmax(excess))
            if best is None or excess[index] > best[0]:
                best = float(excess[index]), Test(item, float(between[index]), delta, 0)
    assert best is not None
    return dataclasses.replace(best[1], tried=tried)


def thresholds(scores: Floats) -> Floats:
    """The smallest score, then midpoints between neighbouring scores, since new scores fall between them."""
    values = np.unique(scores)
    if values.size > _MAX_THRESHOLDS:
        values = values[np.linspace(0, values.size - 1, _MAX_THRESHOLDS).round().astype(np.int64)]
    with np.errstate(invalid="ignore"):
        middles = values[:-1] / 2 + values[1:] / 2
    apart = np.isfinite(middles) & (middles > values[:-1])
    return np.concatenate([values[:1], np.where(apart, middles, values[1:])])


@functools.lru_cache(maxsize=8)
def _expected_rates(runs: int, tested: int, confidence: float) -> Floats:
    """For 0, …, `runs` errors in training, a conservative estimate of the error rate's upper limit after testing."""
    errors = upper_limit(np.arange(runs + 1), runs, _TRAINING_TAIL)
    return upper_limit(np.ceil(errors * tested).astype(np.int64), tested, (1 - confidence) / 2)


def _epsilon_shown(false: Floats, miss: Floats, delta: float) -> Floats:
    """The ε that these upper limits of both error rates show, in either direction; −inf if they show none."""
    with np.errstate(divide="ignore"):
        first = np.log(np.maximum(1 - miss - delta, 0.0)) - np.log(false)
        second = np.log(np.maximum(1 - false - delta, 0.0)) - np.log(miss)
    return np.asarray(np.maximum(first, second))


def _bound_at(delta: float) -> Bound:
    """A lower bound of 0 on ε at δ, used to look up what a claim allows at this δ."""
    return Bound(
        direction=Direction.LOWER,
        value=0.0,
        method="clopper_pearson",
        rigor=Rigor.ESTIMATE,
        adjacency=Adjacency.ADD_REMOVE,
        delta=delta or None,
    )
