"""The best of a random number of runs: how its privacy follows from that of one run.

A mechanism runs K times, K drawn before and independently of the data; the output that is best in a fixed order is
released. Only that output is: neither the others nor K.

Proof: docs/proofs/tuning.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpassay.accounting.conversions import formulas
from dpassay.base import validate
from dpassay.base.arrays import Floats

Curve = Callable[[Floats], Floats]
"""Vectorised: ε ≥ 0 ↦ an upper bound on δ(ε) of one run, for both directions."""

_UNIT = 2.0**-53
_TINY_SHAPE = 1e-12
_LARGEST_MEAN = 1e100
_POINTS = np.concatenate([np.geomspace(1e-4, 0.1, 60, endpoint=False), np.geomspace(0.1, 500.0, 180)])
"""ε at which the curve of one run bounds how much likelier a better output is; each gives a bound by itself."""


@dataclass(frozen=True)
class NumberOfRuns:
    """The law of the number of runs.

    Poisson for an infinite shape, else negative binomial on 1, 2, …: geometric for shape 1, logarithmic for shape 0.
    Its generating function has the derivative f′(1 − v) = m·e^{−mv} for Poisson, and m(1 + uv)^{−(1 + shape)} else, m
    the mean and u > 0 the `odds`. A Poisson number may be 0; then nothing is released.

    Attributes:
        mean: the expected number of runs: above 0 for Poisson, else at least 1.
        shape: at least 0, may be inf.
    """

    mean: float
    shape: float

    def __post_init__(self) -> None:
        validate.positive(mean=self.mean)
        if self.shape != math.inf:
            validate.non_negative(shape=self.shape)
        if not self.is_poisson and self.mean < 1:
            raise ValueError(f"mean must be at least 1, as there is at least one run, not {self.mean!r}")
        if self.mean > _LARGEST_MEAN:
            raise ValueError(f"mean must be at most {_LARGEST_MEAN:g}, not {self.mean!r}")

    @property
    def is_poisson(self) -> bool:
        return math.isinf(self.shape)

    @property
    def is_one(self) -> bool:
        """Whether there is always one run."""
        return not self.is_poisson and self.mean == 1

    @functools.cached_property
    def odds(self) -> float:
        """u = (1 − γ)/γ of the negative binomial with this mean, rounded up by at most a relative 1e-12.

        The mean shape·u/(1 − (1 + u)^{−shape}) increases with u. All bounds increase with u, too.
        """
        if self.is_one:
            return 0.0
        high = 1.0
        while self._least_mean(high) < self.mean:
            high *= 2
        low = high / 2
        while low > 1e-290 and self._least_mean(low) >= self.mean:
            high, low = low, low / 2
        while high - low > 1e-13 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._least_mean(middle) >= self.mean else (middle, high)
        return high

    def _least_mean(self, odds: float) -> float:
        """The mean at some odds, rounded down; for a tiny shape that of the logarithmic law, which is smaller."""
        log = math.log1p(odds)
        if self.shape < _TINY_SHAPE:
            return odds / log * (1 - 32 * _UNIT)
        return self.shape * odds / -math.expm1(-self.shape * log) * (1 - 32 * _UNIT)

    def fall(self, mass: Floats) -> Floats:
        """−log of f′(1 − v)/f′(1) at each v in [0, 1], to a relative 32u; for `odds` it is rounded up."""
        if self.is_poisson:
            return np.asarray(self.mean * mass)
        return np.asarray((1 + self.shape) * np.log1p(self.odds * mass))

    @property
    def log_mean(self) -> float:
        """log of the mean, rounded up."""
        log = math.log(self.mean)
        return log + 8 * _UNIT * abs(log)


def pure_extra(runs: NumberOfRuns, epsilon: float) -> float:
    """What tuning adds to a pure ε of one run, rounded up: the least number that holds for every ε-DP run.

    Proof: docs/proofs/tuning.md, Theorem 2.
    """
    if epsilon == 0 or runs.is_one:
        return 0.0
    if math.isinf(epsilon):
        return math.inf
    less = math.exp(-epsilon)
    if runs.is_poisson:
        return runs.mean * -math.expm1(-epsilon) / (1 + less) * (1 + 32 * _UNIT)
    ratio = runs.odds * -math.expm1(-epsilon) / ((1 + runs.odds) * less + 1)
    return (1 + runs.shape) * math.log1p(ratio * (1 + 32 * _UNIT)) * (1 + 32 * _UNIT)


def divergences(runs: NumberOfRuns, orders: Floats, single: Floats, curve: Curve) -> Floats:
    """Upper bounds on the Rényi divergences of the best output.

    Args:
        runs: the law of the number of runs.
        orders: each above 1, one dimension.
        single: upper bounds on the divergences of one run in both directions, may be inf; as many.
        curve: of one run.

    Proof: docs/proofs/tuning.md, Theorems 1 and 3.
    """
    if runs.is_one:
        return single
    excess = orders - 1
    factors = _poisson_factors(runs, excess, curve) if runs.is_poisson else _factors(runs, orders, single, curve)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        moved = excess * single * (1 + 2 * _UNIT)
        below = np.log(-np.expm1(-moved))
        logs = factors + moved + below
        logs = logs + 16 * _UNIT * (np.abs(factors) + moved + np.abs(below))
        results = np.logaddexp(0.0, logs) / excess * (1 + 16 * _UNIT)
    results = np.where(single == 0, 0.0, np.where(np.isinf(single), math.inf, results))
    # A divergence is at most that of any larger order.
    order = np.argsort(orders)
    results[order] = np.minimum.accumulate(results[order][::-1])[::-1]
    return results


def _poisson_factors(runs: NumberOfRuns, excess: Floats, curve: Curve) -> Floats:
    """log m + m(α − 1)δ(log(α/(α − 1))), rounded up."""
    deltas = curve(np.log1p(1 / excess) * (1 - 16 * _UNIT))
    return np.asarray(runs.log_mean + runs.mean * excess * deltas * (1 + 8 * _UNIT))


def _factors(runs: NumberOfRuns, orders: Floats, single: Floats, curve: Curve) -> Floats:
    """log m + (1 + shape)·sup[(α − 1)log(1 + uw) − α log(1 + uv)], rounded up, at each order α.

    v and w are masses of one set under the two laws. What bounds w: some order's divergence, as Papernot and Steinke
    have it; w ≤ e^ε v + δ(ε) at some ε; w ≤ 1.
    """
    excess, log_odds = orders - 1, math.log1p(runs.odds) * (1 + 8 * _UNIT)
    known = (1 - 1 / orders) * single + log_odds / orders
    best = excess * min(log_odds, float(np.min(known)) * (1 + 16 * _UNIT))
    ratio = (1 + runs.odds * curve(_POINTS)) * np.exp(-_POINTS) * (1 + 16 * _UNIT * (1 + _POINTS))
    alpha, less, epsilon, share = orders[None, :], excess[None, :], _POINTS[:, None], ratio[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rest = 1 - share
        log_rest = np.log(np.maximum(rest, 1e-300))
        parts = less * epsilon, less * np.log(less), -alpha * np.log(alpha), -log_rest
        inside = sum(parts) + 16 * _UNIT * sum(np.abs(part) for part in parts)
        at_zero = less * (epsilon + np.log(share))
        at_zero = at_zero + 16 * _UNIT * less * (epsilon + np.abs(np.log(share)))
    lines = np.where(alpha * rest > 1, inside, at_zero)
    best = np.minimum(best, lines.min(axis=0))
    return np.asarray(runs.log_mean + (1 + runs.shape) * np.maximum(best, 0.0) * (1 + 8 * _UNIT))


def curve_of_divergences(orders: Floats, single: Floats, pure: float = math.inf) -> Curve:
    """δ(ε) of one run from its divergences, and from its pure ε if it has one."""

    def curve(epsilons: Floats) -> Floats:
        deltas = np.ones(epsilons.shape)
        if orders.size:
            logs = formulas.log_delta_from_rdp(orders[:, None], single[:, None], epsilons[None, :])  # type: ignore[arg-type]
            deltas = np.minimum(np.exp(logs.min(axis=0)) * (1 + 8 * _UNIT) + 1e-320, 1.0)
        if math.isinf(pure):
            return deltas
        return np.minimum(deltas, [formulas.delta_from_pure(pure, float(epsilon)) for epsilon in epsilons])

    return curve
