"""ε from error rates by intervals that are *not* valid for every mechanism and sample size.

Other tools report them, so they are here for comparison. Neither may support or refute a claim: a Bayesian interval
holds on average over a prior, an asymptotic one in the limit of many runs. `binomial` has intervals that hold exactly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from scipy import optimize, special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.audits.statistics.counts import counts
from dpassay.base import validate
from dpassay.base.arrays import Integers

_SHARES = 4096
_LARGEST = 60.0  # upper bound on ε for the posterior of any test with fewer than e⁶⁰ runs


def epsilon_jeffreys(
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
    """The ε that the posterior exceeds with this probability, for independent Jeffreys priors on both error rates.

    With rates x (false positives) ~ Beta(fp + ½, tn + ½) and y (false negatives) ~ Beta(fn + ½, tp + ½), the value is
    the largest ε with P[(x, y) is possible under (ε, δ)-DP] ≤ 1 − confidence. Possible means that none of four tests
    (this one, its complement, and both with D and D′ exchanged) contradicts (ε, δ)-DP.

    Args:
        tp, fn: number of runs on D′ that the test called positive and negative.
        fp, tn: number of runs on D that the test called positive and negative.
        delta: δ in [0, 1).
        confidence: posterior probability.
        adjacency, unit: of D and D′.

    Returns:
        A bound of rigor `credible`: it has no coverage guarantee for a fixed mechanism.

    Source: Zanella-Béguelin et al., "Bayesian Estimation of Differential Privacy" (2023), section 4.
    """
    value, ceiling = (
        _posterior_quantile(
            c, validate.probability_below_one(delta=delta), validate.open_probability(confidence=confidence)
        )
        for c in (counts(tp=tp, fn=fn, fp=fp, tn=tn), (tp + fn, 0, 0, fp + tn))
    )
    return _bound("jeffreys", Rigor.CREDIBLE, value, ceiling, delta, confidence, adjacency, unit)


def epsilon_katz_log(
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
    """ε from the normal interval of the logarithm of a ratio of rates (Katz), the larger of both directions.

    For a = tp/n₁ and b = fp/n₀, ln((a − δ)/b) has approximately the variance a(1 − a)/(n₁(a − δ)²) + (1 − b)/(n₀b).
    Each direction gets half of the error probability. A ratio with a zero count has no such interval and shows nothing.

    Arguments as for `epsilon_jeffreys`.

    Returns:
        A bound of rigor `asymptotic`.

    Source: Katz, Baptista, Azen and Pike, "Obtaining Confidence Intervals for the Risk Ratio in Cohort Studies" (1978);
        the δ by the delta method.
    """
    counts(tp=tp, fn=fn, fp=fp, tn=tn)
    quantile = -float(special.ndtri((1 - validate.open_probability(confidence=confidence)) / 2))
    values = [
        _katz(tp, fn, fp, tn, validate.probability_below_one(delta=delta), quantile),
        _katz(tn, fp, fn, tp, delta, quantile),
    ]
    ceiling = max(_most_katz(tp + fn, fp + tn, delta, quantile), _most_katz(fp + tn, tp + fn, delta, quantile))
    return _bound("katz_log", Rigor.ASYMPTOTIC, max(0.0, *values), ceiling, delta, confidence, adjacency, unit)


def _katz(hits: int, misses: int, false: int, true: int, delta: float, quantile: float) -> float:
    if not (hits and false and hits + misses and false + true > 0 and true >= 0):
        return 0.0
    a, b = hits / (hits + misses), false / (false + true)
    if a <= delta:
        return 0.0
    variance = a * (1 - a) / ((hits + misses) * (a - delta) ** 2) + (1 - b) / ((false + true) * b)
    return math.log((a - delta) / b) - quantile * math.sqrt(variance)


def _most_katz(hits: int, others: int, delta: float, quantile: float) -> float:
    """The largest ε that these numbers of runs can show: all hits, and the number f of false ones that maximises it.

    −ln f − z/√f rises up to f = z²/4 and falls after it, so the maximum is near that f.
    """
    last = min(others, math.ceil(quantile**2 / 4) + 2)
    return max([0.0, *(_katz(hits, 0, false, others - false, delta, quantile) for false in range(1, last + 1))])


def _posterior_quantile(table: Iterable[int] | tuple[Integers, ...], delta: float, confidence: float) -> float:
    tp, fn, fp, tn = (float(count) + 0.5 for count in table)
    # The midpoints of _SHARES equal shares of the posterior; the error of the probability is at most one share.
    x = special.betaincinv(fp, tn, (np.arange(_SHARES) + 0.5) / _SHARES)

    def possible(epsilon: float) -> float:
        """The posterior probability of error rates that (ε, δ)-DP allows."""
        grow = math.exp(epsilon)
        # 1 − y ≤ e^ε x + δ, 1 − x ≤ e^ε y + δ, and the same with x and y replaced by 1 − x and 1 − y.
        lowest = np.maximum(0.0, np.maximum(1 - delta - grow * x, (1 - delta - x) / grow))
        highest = np.minimum(1.0, np.minimum(delta + grow * (1 - x), 1 - (x - delta) / grow))
        inside = special.betainc(fn, tp, np.maximum(highest, lowest)) - special.betainc(fn, tp, lowest)
        return float(inside.mean())

    miss = 1 - confidence
    if possible(0.0) > miss:
        return 0.0
    return float(optimize.brentq(lambda e: possible(e) - miss, 0.0, _LARGEST, xtol=1e-9))


def _bound(
    method: str,
    rigor: Rigor,
    value: float,
    ceiling: float,
    delta: float,
    confidence: float,
    adjacency: Adjacency | str,
    unit: Unit | None,
) -> Bound:
    return Bound(
        direction=Direction.LOWER,
        value=value,
        method=method,
        rigor=rigor,
        adjacency=Adjacency(adjacency),
        unit=unit or Unit(),
        delta=delta or None,
        confidence=confidence,
        ceiling=ceiling,
        null_family=ANY_MECHANISM,
        assumptions=("each run is independent of the others", "the test was fixed before these runs"),
    )
