"""Exact binomial intervals, and the ε that the error rates of a distinguishing test show.

The functions take counts only; attacks produce the counts.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Interval, Rigor
from dpassay.audits.statistics.counts import counts, ordered
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers

_INDEPENDENT = "each run of the mechanism is independent of the others, with its data set chosen before the test"


def clopper_pearson(hits: int, trials: int, *, confidence: float) -> Interval:
    """The two-sided Clopper–Pearson interval of a probability.

    Args:
        hits: number of successes, 0 to `trials`.
        trials: number of independent trials; 0 gives [0, 1].
        confidence: coverage in (0, 1); each end is missed with probability at most (1 − confidence)/2.

    Raises:
        ValueError: if a count is negative, not a whole number, or larger than the number of trials.

    Source: Clopper and Pearson 1934.
    """
    lower, upper = clopper_pearson_limits(hits, trials, confidence=confidence)
    return Interval(float(lower), float(upper))


def clopper_pearson_limits(hits: ArrayLike, trials: ArrayLike, *, confidence: float) -> tuple[Floats, Floats]:
    """`clopper_pearson` for arrays of counts that broadcast together: the lower and the upper ends."""
    validate.open_probability(confidence=confidence)
    tail = (1 - confidence) / 2
    hits, trials = _checked(hits, trials)
    return lower_limit(hits, trials, tail), upper_limit(hits, trials, tail)


def upper_limit(hits: ArrayLike, trials: ArrayLike, tail: float) -> Floats:
    """The one-sided upper limit: the x at which P[Bin(trials, x) ≤ hits] = `tail`, U(k, n, a) = Beta⁻¹(1 − a; k + 1, n
    − k), for counts that broadcast; 1 if every trial is a hit. It is below the true probability with probability at
    most `tail`, in (0, 1)."""
    validate.open_probability(tail=tail)
    hits, trials = _checked(hits, trials)
    misses = np.maximum(trials - hits, 1)  # the quantile needs a positive parameter; hits == trials is handled below
    limit = special.betainccinv(hits + 1.0, misses, tail)
    return np.where(hits == trials, 1.0, limit)


def lower_limit(hits: ArrayLike, trials: ArrayLike, tail: float) -> Floats:
    """The one-sided lower limit: the x at which P[Bin(trials, x) ≥ hits] = `tail`; 0 if there is no hit.

    It equals 1 − U(n − k, n, a), but is computed without the cancellation. Arguments as for `upper_limit`.
    """
    validate.open_probability(tail=tail)
    hits, trials = _checked(hits, trials)
    limit = special.betaincinv(np.maximum(hits, 1), trials - hits + 1.0, tail)
    return np.where(hits == 0, 0.0, limit)


def epsilon_clopper_pearson(
    tp: int,
    fn: int,
    fp: int,
    tn: int,
    *,
    delta: float,
    confidence: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on ε from the error counts of one fixed test between a data set D′ (positive) and its neighbour D.

    With FP̄ and FN̄ the one-sided upper limits of the two error rates at (1 − confidence)/2 each, (ε, δ)-DP needs
    1 − FN̄ ≤ e^ε FP̄ + δ and 1 − FP̄ ≤ e^ε FN̄ + δ.

    Args:
        tp, fn: number of runs on D′ that the test called positive and negative.
        fp, tn: number of runs on D that the test called positive and negative.
        delta: δ in [0, 1) at which ε is bounded.
        confidence: joint coverage of both error rates.
        adjacency: the relation of D and D′.
        unit: the unit in which they differ; a record by default.

    Returns:
        A finite-sample lower bound; its ceiling is the bound of a test without errors in as many runs.

    Raises:
        ValueError: if a count or probability is out of range.

    Source: Jagielski, Ullman and Oprea 2020, section 3; Zanella-Béguelin et al. 2023.
    """
    value = epsilons_clopper_pearson(tp, fn, fp, tn, delta=delta, confidence=confidence)
    ceiling = epsilons_clopper_pearson(tp + fn, 0, 0, fp + tn, delta=delta, confidence=confidence)
    return Bound(
        direction=Direction.LOWER,
        value=float(value),
        method="clopper_pearson",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=float(ceiling),
        null_family=ANY_MECHANISM,
        assumptions=(_INDEPENDENT, "the test was fixed before these runs"),
    )


def mu_clopper_pearson(
    tp: int,
    fn: int,
    fp: int,
    tn: int,
    *,
    confidence: float,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    unit: Unit | None = None,
) -> Bound:
    """A lower bound on the μ of a mechanism that is *assumed* to be Gaussian: μ = Φ⁻¹(1 − FP̄) − Φ⁻¹(FN̄).

    μ-GDP allows no error rates below the Gaussian trade-off curve, so the bound on μ holds for any μ-GDP mechanism.
    An ε that is derived from this μ holds for Gaussian mechanisms only: on randomised response with ε = 1 it is far
    above 1. Arguments and errors as for `epsilon_clopper_pearson`.

    Returns:
        A bound on ``mu`` of rigor `model_conditional`.

    Source: Nasr et al., "Tight Auditing of Differentially Private Machine Learning" (2023), section 4; Dong, Roth and
        Su 2019, Definition 2.6.
    """
    value, ceiling = (
        float(_mus(*table, confidence=confidence)) for table in ((tp, fn, fp, tn), (tp + fn, 0, 0, fp + tn))
    )
    return Bound(
        direction=Direction.LOWER,
        value=value,
        method="mu_clopper_pearson",
        rigor=Rigor.MODEL_CONDITIONAL,
        adjacency=Adjacency(adjacency),
        quantity="mu",
        unit=unit or Unit(),
        confidence=confidence,
        ceiling=ceiling,
        null_family="every μ-GDP mechanism",
        assumptions=(_INDEPENDENT, "the test was fixed before these runs", "the mechanism is Gaussian"),
    )


def _mus(tp: ArrayLike, fn: ArrayLike, fp: ArrayLike, tn: ArrayLike, *, confidence: float) -> Floats:
    tail = (1 - validate.open_probability(confidence=confidence)) / 2
    tp, fn, fp, tn = counts(tp=tp, fn=fn, fp=fp, tn=tn)
    false_positive, false_negative = upper_limit(fp, fp + tn, tail), upper_limit(fn, fn + tp, tail)
    # A limit of 1 shows nothing: its term is −∞, so the sum is −∞, or undefined if the other term is +∞.
    first, second = -special.ndtri(false_positive), -special.ndtri(false_negative)
    return np.maximum(0.0, np.where(np.isneginf(first) | np.isneginf(second), 0.0, first + second))


def epsilons_clopper_pearson(
    tp: ArrayLike, fn: ArrayLike, fp: ArrayLike, tn: ArrayLike, *, delta: float, confidence: float
) -> Floats:
    """The values of `epsilon_clopper_pearson` for arrays of counts that broadcast together."""
    validate.open_probability(confidence=confidence)
    validate.probability_below_one(delta=delta)
    tail = (1 - confidence) / 2
    tp, fn, fp, tn = counts(tp=tp, fn=fn, fp=fp, tn=tn)
    return epsilons_from_limits(
        lower_limit(tp, fn + tp, tail),
        upper_limit(fn, fn + tp, tail),
        upper_limit(fp, fp + tn, tail),
        lower_limit(tn, fp + tn, tail),
        delta,
    )


def epsilons_from_limits(
    true_positive: Floats, false_negative: Floats, false_positive: Floats, true_negative: Floats, delta: float
) -> Floats:
    """The ε of lower limits of the rates of right answers and upper limits of those of wrong ones; they broadcast."""
    with np.errstate(divide="ignore"):  # a rate of at most δ shows nothing: ln 0 = −∞
        first = np.log(np.maximum(true_positive - delta, 0.0)) - np.log(false_positive)
        second = np.log(np.maximum(true_negative - delta, 0.0)) - np.log(false_negative)
    return np.asarray(np.maximum(0.0, np.maximum(first, second)))


def difference_interval(hits_a: int, trials_a: int, hits_b: int, trials_b: int, *, confidence: float) -> Interval:
    """An interval for the difference a − b of two probabilities, with at least the stated coverage at any sample size.

    The two Clopper–Pearson intervals, each at 1 − (1 − confidence)/2, hold jointly with the stated confidence, and so
    does [lower_a − upper_b, upper_a − lower_b]. The interval is conservative: the two samples need not be independent,
    and it is wider than intervals that assume independence.

    Args:
        hits_a, trials_a: counts of the first sample.
        hits_b, trials_b: counts of the second.
        confidence: coverage in (0, 1).

    Raises:
        ValueError: if a count is invalid, as for `clopper_pearson`.
    """
    each = 1 - (1 - validate.open_probability(confidence=confidence)) / 2
    a = clopper_pearson(hits_a, trials_a, confidence=each)
    b = clopper_pearson(hits_b, trials_b, confidence=each)
    return Interval(a.lower - b.upper, a.upper - b.lower)


def risk_interval(hits_a: int, trials_a: int, hits_b: int, trials_b: int, *, confidence: float) -> Interval:
    """An interval for (a − b)/(1 − b), the share that an attack on a gains of what it misses in the control b.

    It follows from the two intervals of `difference_interval`, and holds whenever these do, so it costs no confidence
    beside that one. (a − b)/(1 − b) = 1 − (1 − a)/(1 − b) increases with a and decreases with b. It is not cut off at
    0: a negative value means that the control is hit more often. If b may be 1, there is no lower end: −∞.

    Args:
        hits_a, trials_a: counts of the attack.
        hits_b, trials_b: counts of the control.
        confidence: coverage in (0, 1).

    Raises:
        ValueError: if a count is invalid, as for `clopper_pearson`.

    Source: Giomi et al., "A Unified Framework for Quantifying Privacy Risk in Synthetic Data" (2023), section 3.2, for
        the risk; they propagate errors of Wilson's intervals, and cut it off at 0 and 1.
    """
    each = 1 - (1 - validate.open_probability(confidence=confidence)) / 2
    a = clopper_pearson(hits_a, trials_a, confidence=each)
    b = clopper_pearson(hits_b, trials_b, confidence=each)

    def risk(attack: float, control: float) -> float:
        return 1 - (1 - attack) / (1 - control) if control < 1 else 1.0 if attack == 1 else -math.inf

    return Interval(risk(a.lower, b.upper), risk(a.upper, b.lower))


def _checked(hits: ArrayLike, trials: ArrayLike) -> tuple[Integers, Integers]:
    k, n = counts(hits=hits, trials=trials)
    ordered(hits=k, trials=n)
    return k, n
