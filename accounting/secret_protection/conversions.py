"""Secret protection from other guarantees and from points of curves; every result is rounded outward."""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtri

from dpassay.accounting.guarantees import SecretProtection
from dpassay.base import validate
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_NDTR_ERROR = 1.01e-13  # log_ndtr is taken to be accurate to a relative 1e-13; the rest covers products with it


def r_of_approx_dp(epsilon: float, delta: float, p: float) -> float:
    """r of an (ε, δ)-DP mechanism against a reference without the secret: min{1, e^ε p + δ, 1 − e^{−ε}(1 − δ − p)},
    rounded up.

    Proof: docs/proofs/secret-protection.md, Theorem 4.

    Args:
        epsilon: ≥ 0, for adding or removing all occurrences of the secret.
        delta: in [0, 1].
        p: the largest probability of a guess before, in (0, 1).
    """
    validate.non_negative(epsilon=epsilon)
    validate.probability(delta=delta)
    validate.open_probability(p=p)
    grown = (math.exp(epsilon) * p + delta) * (1 + 16 * _UNIT) if epsilon < 700 else math.inf
    left = math.exp(-epsilon) * max(1 - delta - p - 4 * _UNIT, 0.0) * (1 - 16 * _UNIT)
    return max(p, min(1.0, grown, math.nextafter(1 - left, 2.0)))


def r_between_secrets(epsilon: float, delta: float, p: float) -> float:
    """r of a mechanism that is (ε, δ)-indistinguishable between any two values of the secret, rounded up.

    r = δ + (1 − δ)ρ with ρ = pe^ε/(pe^ε + 1 − p). Tight for the uniform prior if 1/p is a whole number. Arguments as
    for `r_of_approx_dp`, but for exchanging the value of the secret wherever it occurs.

    Proof: docs/proofs/secret-protection.md, Theorem 4.
    """
    validate.non_negative(epsilon=epsilon)
    validate.probability(delta=delta)
    validate.open_probability(p=p)
    posterior = p / (p + (1 - p) * (math.exp(-epsilon) * (1 - 8 * _UNIT)))
    return max(p, min(1.0, math.nextafter((delta + (1 - delta) * posterior) * (1 + 16 * _UNIT), 2.0)))


def r_of_gdp(mu: float, p: float) -> float:
    """r = Φ(Φ⁻¹(p) + μ) of a μ-GDP mechanism (Dong, Roth and Su 2022) against a reference, rounded up.

    p in (0, 1), and μ ≥ 0 for adding or removing all occurrences of the secret.
    """
    validate.non_negative(mu=mu)
    validate.open_probability(p=p)
    return p if mu == 0 else float(guess_bounds(np.array([[mu]]), np.array([p]))[1][0, 0])


def mu_for(p: float, r: float) -> float:
    """The largest μ whose `r_of_gdp` at p is at most r: Φ⁻¹(r) − Φ⁻¹(p), rounded down; inf for r = 1."""
    SecretProtection(p, r)
    if r == 1 or p == r:
        return math.inf if r == 1 else 0.0
    low, high = upper_quantile(np.array([p, r]))
    mu, step = max(math.nextafter(low[0] - high[1], -math.inf), 0.0), 1e-14
    while mu > 0 and r_of_gdp(mu, p) > r:
        mu, step = max(mu - step, 0.0), 2 * step
    return mu


# Composition of curves


def compose_curves(first_r: float, second_curve: ArrayLike) -> float:
    """r of a mechanism followed by another, from r₁ of the first and points (p, r) of the second's curve, rounded up.

    It uses only that the second's blow-up is concave, at least 0 at 0, 1 at 1, and below the points. Products of
    dominating pairs are tighter, if the pairs are known.

    Proof: docs/proofs/secret-protection.md, Theorem 5.

    Args:
        first_r: certified r of the first mechanism, in [0, 1].
        second_curve: certified points of the second: p in [0, 1], r in [p, 1], float64 of shape (n, 2), at least one.

    Raises:
        ValueError: if an argument is invalid.
    """
    validate.probability(first_r=first_r)
    points = np.asarray(second_curve, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2 or not points.size:
        raise ValueError(f"second_curve must have rows (p, r), not shape {points.shape}")
    p, r = points[np.argsort(points[:, 0], kind="stable")].T
    if not ((p >= 0) & (p <= r) & (r <= 1)).all():
        raise ValueError("second_curve must have 0 ≤ p ≤ r ≤ 1 in every row")
    x, y = _bends(p, r)
    low, high = 0.0, 1e17
    for _ in range(200):  # the height is convex in the slope
        third = (high - low) / 3
        here, there = (_height(first_r, x, y, slope) for slope in (low + third, high - third))
        low, high = (low, high - third) if here <= there else (low + third, high)
    return max(first_r, min(1.0, _height(first_r, x, y, low), _height(first_r, x, y, high)))


def _bends(p: Floats, r: Floats) -> tuple[Floats, Floats]:
    """Ends and bends of the least of all lines of Theorem 4, in each cell between 0, the p_i and 1; heights rounded up.

    The lines of a point are x(1 + h) and x + g(1 − x), with h = (r − p)/p and g = (r − p)/(1 − p): no cancellation.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rise, gap = np.where(p > 0, (r - p) / p, np.inf), np.where(p < 1, (r - p) / (1 - p), 1.0)
        h = np.minimum.accumulate(np.concatenate([[np.inf], rise]))
        g = np.minimum.accumulate(np.concatenate([gap, [1.0]])[::-1])[::-1]
        left, right = np.concatenate([[0.0], p]), np.concatenate([p, [1.0]])
        bend = np.where(np.isinf(h) | (h + g == 0), left, g / (h + g))
        x = np.concatenate([left, np.clip(bend, left, right), right])
        g, h = np.tile(g, 3), np.tile(h, 3)
        y = np.minimum(np.where(np.isinf(h), np.inf, x * (1 + h)), x + g * (1 - x))
    return x, y * (1 + 32 * _UNIT)


def _height(at: float, x: Floats, y: Floats, slope: float) -> float:
    """Height at `at` of the lowest line of that slope above all (x, y), rounded up."""
    return float((y + slope * (at - x) + 8 * _UNIT * (slope * (at + x) + y)).max())


def compose_naive(first: tuple[float, float], second: tuple[float, float]) -> NoReturn:
    """Always raises: "(p₁, r₁) followed by (p₂, r₂) is (max p, r₁ + r₂)-secret-protected" is false.

    Raises:
        ValueError: always, with a counterexample.

    Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Theorem 3.
    """
    raise ValueError(
        f"r values do not add up: {first[1]!r} + {second[1]!r} is no bound. Two mechanisms that reveal one digit each "
        "of a uniform two-digit secret are (0.01, 0.1)-protected, and together they reveal it: r is 1, not 0.2. "
        "Compose the releases (SecretProtectionAccountant), or use compose_curves with the whole curve of the second"
    )


# Enclosures


def guess_bounds(shifts: Floats, ps: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds on Φ̄(Φ̄⁻¹(p) − s), shape (n, K), for shifts s ≥ 0 of shape (n, K) and p of shape (n,).

    An argument is rounded three times, by less than 4u(s + |z|) in all. log Φ has relative error `_NDTR_ERROR`, the
    exponential 4 units in the last place, and underflow costs at most 1e-320.
    """
    inside = (ps > 0) & (ps < 1)
    low_z, high_z = upper_quantile(np.where(inside, ps, 0.5))
    p = ps[:, None]
    near = shifts * (1 + 4 * _UNIT) + (4 * _UNIT * np.abs(low_z) - low_z)[:, None]
    far = np.minimum(shifts, 1e100) * (1 - 4 * _UNIT) - (4 * _UNIT * np.abs(high_z) + high_z)[:, None]
    upper = np.minimum(np.exp(log_ndtr(near) * (1 - _NDTR_ERROR)) * (1 + 16 * _UNIT) + 1e-320, 1.0)
    lower = np.exp(log_ndtr(far) * (1 + _NDTR_ERROR)) * (1 - 16 * _UNIT) - 1e-320
    edge = np.where(np.isinf(shifts), 1.0, p)
    known = (shifts == 0) | np.isinf(shifts) | ~inside[:, None]
    return np.where(known, edge, np.maximum(lower, p)), np.where(known, edge, upper)


def upper_quantile(ps: Floats) -> tuple[Floats, Floats]:
    """Lower and upper bounds on Φ̄⁻¹(p) for p in (0, 1), each checked against log Φ̄ with the errors of both sides."""
    middle, log_p = -ndtri(ps), np.log(ps)
    step = 4e-13 * (1 + np.abs(middle))
    low, high = middle - step, middle + step
    for _ in range(64):
        wrong = log_ndtr(-low) * (1 + _NDTR_ERROR) < log_p * (1 - 8 * _UNIT)
        false = log_ndtr(-high) * (1 - _NDTR_ERROR) > log_p * (1 + 8 * _UNIT)
        if not (wrong.any() or false.any()):
            break
        step = 2 * step
        low, high = np.where(wrong, low - step, low), np.where(false, high + step, high)
    return low, high
