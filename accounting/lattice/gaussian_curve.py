"""δ(ε), ε(δ) and the blow-up of N(μ, 1) against N(0, 1), enclosed: the closed forms of compositions of Gaussians.

δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), and sup{P(E): Q(E) ≤ p} = Φ(Φ⁻¹(p) + μ). μ itself may have a relative error of
8u, which every answer covers.

Source: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import log_ndtr, ndtri, ndtri_exp

from dpassay.accounting.bounds import Interval
from dpassay.accounting.conversions.formulas import NDTR_ERROR
from dpassay.accounting.lattice.laws import UNIT
from dpassay.base.arrays import Bools, Floats

_PARTS = np.arange(1, 128) / 128
_MIN_DELTA = 1e-305
"""The least upper bound: e^x underflows before δ is 0."""


@np.errstate(all="ignore")  # values outside float64 are handled below
def deltas(mu: Floats | float, epsilons: Floats | float) -> tuple[Floats, Floats]:
    """Lower and upper bounds on δ(ε), elementwise; μ > 0 and ε of either sign, float64 of shapes that broadcast."""
    mu, signed = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(epsilons, dtype=np.float64))
    size = np.abs(signed)
    near, far = -size / mu + mu / 2, -size / mu - mu / 2
    log_first, log_second = log_ndtr(near), log_ndtr(far)
    # An argument's error, 16u of its parts, moves log Φ by at most |x| + 1 times that (its hazard).
    width = 16 * UNIT * (size / mu + mu / 2)
    first_room = NDTR_ERROR * np.abs(log_first) + width * (np.abs(near) + 1)
    second_room = NDTR_ERROR * np.abs(log_second) + width * (np.abs(far) + 1)
    ratio = size + log_second - log_first
    slack = first_room + second_room + 4 * UNIT * (size + np.abs(log_second) + np.abs(log_first))
    ends = []
    for sign in (-1, 1):
        share = -np.expm1(np.minimum(ratio - sign * slack, 0.0))
        value = np.exp(log_first + sign * first_room) * share * (1 + sign * 16 * UNIT)
        # If a logarithm is beyond float64, the second term counts fully or not at all.
        value = np.where(np.isnan(value), np.where(log_first > -1e300, (1.0 + sign) / 2, 0.0), value)
        # Below 0 it is 1 − e^ε (1 − δ(−ε)): the curve is its own mirror image.
        mirrored = (-np.expm1(-size) + np.exp(-size) * value) * (1 + sign * 32 * UNIT)
        ends.append(np.clip(np.where(signed < 0, mirrored, value), 0.0, 1.0))
    return ends[0], np.maximum(ends[1], _MIN_DELTA)


def delta(mu: float, epsilon: float) -> Interval:
    """An enclosure of δ(ε) for any real ε."""
    if mu == 0:
        trivial = max(0.0, -math.expm1(epsilon))
        return Interval(trivial * (1 - 8 * UNIT), min(1.0, trivial * (1 + 8 * UNIT)))
    low, high = deltas(mu, epsilon)
    return Interval(float(low), float(high))


def mus(epsilons: Floats, targets: Floats, side: int) -> Floats:
    """μ with δ_μ(ε) certified to be at least the target (side 1), or at most it (side −1), to a relative 1e-9.

    ε ≥ 0 and targets in [0, 1], float64 (N,). For side 1 μ is infinite where float64 certifies none.
    """
    low, high = np.zeros(epsilons.size), np.ones(epsilons.size)

    def enough(mu: Floats) -> Bools:
        below, above = deltas(np.maximum(mu, 1e-300), epsilons)
        return (below >= targets) if side > 0 else (above > targets)

    for _ in range(60):
        short = ~enough(high)
        if not short.any():
            break
        low, high = np.where(short, high, low), np.where(short, 2 * high, high)
    beyond = ~enough(high)
    for _ in range(64):
        middle = (low + high) / 2
        met = enough(middle)
        low, high = np.where(met, low, middle), np.where(met, middle, high)
        if (high - low <= 1e-9 * high).all():
            break
    return np.where(targets <= 0, 0.0, np.where(beyond, math.inf, high) if side > 0 else low)


def epsilon(mu: float, target: float) -> Interval:
    """An enclosure of the least ε ≥ 0 with δ(ε) ≤ target, target in (0, 1)."""
    if delta(mu, 0.0).upper <= target:
        return Interval(0.0, 0.0)
    if mu > 1e150 or target <= _MIN_DELTA:
        return Interval(0.0, math.inf)
    low, high = 0.0, max(1.0, mu * mu)
    while delta(mu, high).upper > target:
        low, high = high, 2 * high
    while high - low > 4 * UNIT * high:
        points = low + (high - low) * _PARTS
        points = points[(points > low) & (points < high)]
        if not points.size:
            break
        enough = deltas(mu, points)[1] <= target
        first = int(np.argmax(enough)) if enough.any() else points.size
        low, high = (points[first - 1] if first else low), (points[first] if first < points.size else high)
    floors = high - np.append(0.0, 1e-15 * high * 2.0 ** np.arange(60))
    floors = floors[(floors > 0) & (deltas(mu, floors)[0] >= target)]
    return Interval(float(floors.max(initial=0.0)), float(high))


def blowup(mu: float, p: float) -> Interval:
    """An enclosure of Φ(Φ⁻¹(p) + μ) for p in [0, 1]."""
    if p in (0.0, 1.0):
        return Interval(p, p)
    quantile = float(ndtri(p)) if p > 1e-300 else float(ndtri_exp(math.log(p)))
    # The error of the computed quantile, widened until Φ encloses p.
    gap = 4 * UNIT * (1 + abs(quantile))
    while not (_tail(quantile - gap, 1) <= p <= _tail(quantile + gap, -1)):
        gap *= 2
        if gap > 100:  # p is too close to 1 for float64
            return Interval(p, 1.0)
    gap += 16 * UNIT * (abs(quantile) + mu)
    return Interval(max(p, _tail(quantile + mu - gap, -1)), min(1.0, _tail(quantile + mu + gap, 1)))


def _tail(argument: float, sign: int) -> float:
    """Φ of the argument, rounded up (1) or down (−1)."""
    if argument > 0:
        return 1 - _tail(-argument, -sign) + sign * 2 * UNIT
    value = float(log_ndtr(argument))
    return math.exp(value * (1 - sign * NDTR_ERROR)) * (1 + sign * 8 * UNIT)


@np.errstate(all="ignore")
def envelope(
    profile: Callable[[Floats], tuple[Floats, Floats]], top: float, delta: float, width: float
) -> tuple[float, float]:
    """Bounds on the least μ whose curve lies above a profile on [0, top], wherever the profile exceeds δ.

    δ decreases with ε. So a curve above the profile's value at the left end of a cell, at the right end of the cell, is
    above it in between. Cells that may hold the answer are split until they are narrow enough.
    """
    epsilons = np.linspace(0.0, top, 65)
    low, high = profile(epsilons)
    least, most = 0.0, math.inf
    for _ in range(7):
        known = low > delta
        if known.any():
            least = max(least, float(mus(epsilons[known], low[known], -1).max()))
        above = mus(epsilons[1:], high[:-1], 1)
        most = min(most, float(above.max()))
        wide = np.flatnonzero(above > least * (1 + width / 4))
        if (math.isfinite(most) and most - least <= width * most) or wide.size * 8 > 4000:
            break
        parts = [epsilons[wide] + (epsilons[wide + 1] - epsilons[wide]) * share / 8 for share in range(1, 8)]
        new = np.setdiff1d(np.concatenate(parts), epsilons)
        if not new.size:
            break
        result = profile(new)
        order = np.argsort(np.concatenate([epsilons, new]))
        epsilons, low, high = (
            np.concatenate(each)[order] for each in ((epsilons, new), (low, result[0]), (high, result[1]))
        )
    return min(least, most), most
