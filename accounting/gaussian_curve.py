"""The exact curves of N(μ, 1) against N(0, 1), enclosed: the closed forms that compositions of Gaussians have.

δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018, Theorem 8), and sup{P(E): Q(E) ≤ p} = Φ(Φ⁻¹(p) + μ). μ may
itself be off by a relative 8u, which every answer covers.
"""

from __future__ import annotations

import math

from scipy.special import log_ndtr, ndtri, ndtri_exp

from cupel.accounting.bounds import Interval
from cupel.accounting.conversions import _NDTR_ERROR
from cupel.accounting.laws import UNIT


def delta(mu: float, epsilon: float) -> Interval:
    """δ(ε) for any real ε."""
    if mu == 0:
        trivial = max(0.0, -math.expm1(epsilon))
        return Interval(trivial * (1 - 8 * UNIT), min(1.0, trivial * (1 + 8 * UNIT)))
    if epsilon < 0:  # 1 − e^ε (1 − δ(−ε)): the curve is its own mirror image
        other = delta(mu, -epsilon)
        scale = math.exp(epsilon)
        low, high = (-math.expm1(epsilon) + scale * end for end in (other.lower, other.upper))
        return Interval(max(0.0, low * (1 - 32 * UNIT)), min(1.0, high * (1 + 32 * UNIT)))
    near, far = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    log_first, log_second = float(log_ndtr(near)), float(log_ndtr(far))
    width = epsilon / mu + mu / 2

    def room(argument: float, value: float) -> float:
        # An argument's error, 16u of its parts, moves log Φ by the hazard, at most |x| + 1, times that.
        return _NDTR_ERROR * abs(value) + 16 * UNIT * width * (abs(argument) + 1)

    ratio = epsilon + log_second - log_first
    slack = room(near, log_first) + room(far, log_second) + 4 * UNIT * (epsilon + abs(log_second) + abs(log_first))
    ends = []
    for sign in (-1, 1):
        share = -math.expm1(min(ratio - sign * slack, 0.0))
        ends.append(math.exp(log_first + sign * room(near, log_first)) * share * (1 + sign * 16 * UNIT))
    return Interval(max(0.0, ends[0]), min(1.0, ends[1]))


def epsilon(mu: float, target: float) -> Interval:
    """The least ε ≥ 0 with δ(ε) ≤ target, target in (0, 1)."""
    if delta(mu, 0.0).upper <= target:
        return Interval(0.0, 0.0)
    low, high = 0.0, max(1.0, mu * mu)
    while delta(mu, high).upper > target:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-15 * high:
            break
        low, high = (middle, high) if delta(mu, middle).upper > target else (low, middle)
    floor, step = low, 1e-15 * high
    while floor > 0 and delta(mu, floor).lower < target:
        floor, step = max(0.0, floor - step), 2 * step
    return Interval(floor, high)


def blowup(mu: float, p: float) -> Interval:
    """Φ(Φ⁻¹(p) + μ) for p in [0, 1]."""
    if p in (0.0, 1.0):
        return Interval(p, p)
    quantile = float(ndtri(p)) if p > 1e-300 else float(ndtri_exp(math.log(p)))
    # How far the computed quantile may be off: widened until Φ encloses p.
    gap = 4 * UNIT * (1 + abs(quantile))
    while not (_tail(quantile - gap, 1) <= p <= _tail(quantile + gap, -1)):
        gap *= 2
    gap += 16 * UNIT * (abs(quantile) + mu)
    return Interval(max(p, _tail(quantile + mu - gap, -1)), min(1.0, _tail(quantile + mu + gap, 1)))


def _tail(argument: float, sign: int) -> float:
    """Φ of the argument, rounded up (1) or down (−1)."""
    if argument > 0:
        return 1 - _tail(-argument, -sign) + sign * 2 * UNIT
    value = float(log_ndtr(argument))
    return math.exp(value * (1 - sign * _NDTR_ERROR)) * (1 + sign * 8 * UNIT)
