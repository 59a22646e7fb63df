"""From one currency of privacy to another, every result rounded outward.

Each function returns a number that is an upper bound in exact arithmetic too: the float64 error of its formula, bounded
term by term, is added. `numpy` and `math` logarithms and exponentials are taken to be accurate to 4 units in the last
place, `scipy.special.log_ndtr` to a relative 1e-13 (a test holds both against 40-digit arithmetic).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_NDTR_ERROR = 1e-13


def up(value: Fraction | float) -> float:
    """The smallest float that is at least `value`."""
    if isinstance(value, float):
        return value
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def epsilon_from_rdp(orders: Floats | float, divergence: Floats | float, delta: float) -> Floats:
    """ε(δ) of a mechanism whose Rényi divergence of each order is at most `divergence`, one ε an order, at least 0.

    ε = D + log(1 − 1/α) − log(αδ)/(α − 1); and 0 where δ ≥ √(1 − e^−D), since D bounds the KL divergence.

    Args:
        orders: α > 1, any shape.
        divergence: D ≥ 0, may be inf, the same shape.
        delta: in (0, 1).

    Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12; Balle
    et al., "Hypothesis Testing Interpretations and Rényi DP" (2020), Theorem 20. For the second: Bretagnolle and Huber.
    """
    alpha, renyi = np.asarray(orders, dtype=np.float64), np.asarray(divergence, dtype=np.float64)
    log_order, log_excess = np.log(alpha), np.log(alpha - 1)
    tail = (math.log(delta) + log_order) / (alpha - 1)
    size = renyi + np.abs(log_excess) + 2 * log_order + (abs(math.log(delta)) + log_order) / (alpha - 1)
    epsilon = renyi + log_excess - log_order - tail + 16 * _UNIT * size
    small = -np.expm1(-renyi) * (1 + 16 * _UNIT) <= delta**2 * (1 - 4 * _UNIT)
    return np.where(small, 0.0, np.maximum(epsilon, 0.0))


def log_delta_from_rdp(orders: Floats | float, divergence: Floats | float, epsilon: float) -> Floats:
    """log δ(ε), one an order, at most 0: δ = exp((α − 1)(D − ε + log(1 − 1/α)))/α.

    Source and arguments as for `epsilon_from_rdp`, with ε ≥ 0.
    """
    alpha, renyi = np.asarray(orders, dtype=np.float64), np.asarray(divergence, dtype=np.float64)
    log_order, log_excess = np.log(alpha), np.log(alpha - 1)
    size = (alpha - 1) * (renyi + epsilon + np.abs(log_excess) + log_order) + log_order
    log_delta = (alpha - 1) * (renyi - epsilon + log_excess - log_order) - log_order + 16 * _UNIT * size
    return np.where(np.isinf(renyi), 0.0, np.minimum(log_delta, 0.0))


def epsilon_from_zcdp(rho: float, delta: float, xi: float = 0.0) -> float:
    """ε(δ) of (ξ, ρ)-zCDP: the least of `epsilon_from_rdp` over all orders α > 1, where D = ξ + ρα.

    Every order gives a valid ε, so the search need not be exact; it is to a relative 1e-9.
    """
    if rho == 0 and xi == 0:
        return 0.0
    if math.isinf(rho + xi):
        return math.inf
    return _least(lambda excess: epsilon_from_rdp(1 + excess, _renyi_of_zcdp(rho, xi, 1 + excess), delta))


def delta_from_zcdp(rho: float, epsilon: float, xi: float = 0.0) -> float:
    """δ(ε) of (ξ, ρ)-zCDP: the least over all orders α > 1."""
    if rho == 0 and xi == 0:
        return 0.0
    if math.isinf(rho + xi):
        return 1.0
    log_delta = _least(lambda excess: log_delta_from_rdp(1 + excess, _renyi_of_zcdp(rho, xi, 1 + excess), epsilon))
    return min(math.exp(log_delta) * (1 + 8 * _UNIT), 1.0)


def _renyi_of_zcdp(rho: float, xi: float, order: Floats) -> Floats:
    return np.asarray((xi + rho * order) * (1 + 4 * _UNIT))


def _least(function: Callable[[Floats], Floats]) -> float:
    """The least value found of a function of α − 1 on refining logarithmic grids."""
    low, high = math.log(1e-6), math.log(1e9)
    best = math.inf
    for _ in range(4):
        grid = np.linspace(low, high, 1001)
        excess = (1 + np.exp(grid)) - 1  # what is left of α − 1 in float64, so that α and α − 1 agree
        values = function(excess)
        index = int(np.argmin(values))
        best = min(best, float(values[index]))
        low, high = grid[max(index - 1, 0)], grid[min(index + 1, 1000)]
    return best


def delta_from_rdp(order: float, divergence: float, epsilon: float) -> float:
    """δ(ε) of a mechanism whose Rényi divergence of one order is at most `divergence`, at most √(1 − e^−D).

    Source and arguments as for `epsilon_from_rdp`, with ε ≥ 0.
    """
    if divergence == 0:
        return 0.0
    tail = math.exp(float(log_delta_from_rdp(order, divergence, epsilon))) * (1 + 8 * _UNIT)
    return min(1.0, tail, math.sqrt(-math.expm1(-divergence) * (1 + 16 * _UNIT)) * (1 + 2 * _UNIT))


def delta_from_pure(total: float, epsilon: float) -> float:
    """δ(ε) of pure `total`-DP: (e^{ε₀} − e^ε)/(1 + e^{ε₀}) for ε below ε₀ = `total`, else 0; attained by randomised
    response.

    Source: Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem 3.3.
    """
    if math.isinf(total):
        return 1.0
    exact = -math.expm1(min(epsilon - total, 0.0)) / (1 + math.exp(-total))
    # x = ε − ε₀ ≤ 0 has relative error u, which e^x − 1 passes on times |x|e^x/(1 − e^x) ≤ 1.
    return min(1.0, abs(exact) * (1 + 2.0**-49))


def rdp_of_pure(epsilon: float, orders: Floats) -> Floats:
    """The largest Rényi divergence, at each order, of any ε-DP mechanism: that of randomised response.

    D = log[(e^{αε} + e^{(1−α)ε})/(1 + e^ε)]/(α − 1). Every ε-DP pair is a post-processing of randomised response.

    Source: Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015).
    """
    alpha = np.asarray(orders, dtype=np.float64)
    if math.isinf(epsilon):
        return np.full(alpha.shape, math.inf)
    # log of the sum is (α − 1)ε + log1p(e^{(1 − 2α)ε}) − log1p(e^{−ε}): no overflow.
    head, tail = np.log1p(np.exp((1 - 2 * alpha) * epsilon)), math.log1p(math.exp(-epsilon))
    exact = epsilon + (head - tail) / (alpha - 1)
    error = 16 * _UNIT * (epsilon + (head + tail) / (alpha - 1))
    return np.asarray(np.clip(exact + error, 0.0, epsilon))


def gdp_of_pure(epsilon: float) -> float:
    """The μ of the weakest Gaussian guarantee that every ε-DP mechanism has: −2Φ⁻¹(1/(1 + e^ε)), rounded up.

    The trade-off curve of ε-DP is two chords that meet at (a, a), a = 1/(1 + e^ε); the convex curve of μ-GDP through
    (0, 1), (a, a) and (1, 0) lies below them.

    Source: Dong, Roth and Su, "Gaussian Differential Privacy" (2022), Section 2, for both curves.
    """
    from scipy.special import log_ndtr, ndtri_exp

    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    target = -(epsilon + math.log1p(math.exp(-epsilon)))
    mu = float(-2 * ndtri_exp(target))
    step = 1e-12 * mu
    # Φ(−μ/2) ≤ 1/(1 + e^ε) is what is needed; checked with the error of both sides charged.
    while log_ndtr(-mu / 2) * (1 - _NDTR_ERROR) > target * (1 + 16 * _UNIT):
        mu += step
        step *= 2
    return mu


def delta_from_gdp(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) of μ-GDP, rounded up.

    Source: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8.
    """
    from scipy.special import log_ndtr

    if mu == 0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    near, far = -epsilon / mu + mu / 2, -epsilon / mu - mu / 2
    log_first, log_second = float(log_ndtr(near)), float(log_ndtr(far))
    # An argument's rounding, 4u(ε/μ + μ/2), moves log Φ by that times the hazard, which is at most |x| + 1.
    width = epsilon / mu + mu / 2

    def error(argument: float, value: float) -> float:
        return _NDTR_ERROR * abs(value) + 4 * _UNIT * width * (abs(argument) + 1)

    ratio = epsilon + log_second - log_first
    room = error(near, log_first) + error(far, log_second) + 4 * _UNIT * (epsilon + abs(log_second) + abs(log_first))
    share = -math.expm1(min(ratio - room, 0.0))
    return min(1.0, math.exp(log_first + error(near, log_first)) * share * (1 + 16 * _UNIT))


def epsilon_from_gdp(mu: float, delta: float) -> float:
    """ε(δ) of μ-GDP: the least ε, to a relative 1e-13, at which `delta_from_gdp` is at most δ."""
    if delta_from_gdp(mu, 0.0) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    low, high = 0.0, 1.0
    while delta_from_gdp(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if delta_from_gdp(mu, middle) <= delta else (middle, high)
    return high
