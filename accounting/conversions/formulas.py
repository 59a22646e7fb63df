"""Formulas that convert between privacy parameters, every result rounded outward.

Each result is an upper bound in exact arithmetic too: the float64 error of its formula, bounded term by term, is added.
`numpy` and `math` logarithms and exponentials are assumed accurate to 4 units in the last place, and
`scipy.special.log_ndtr` to a relative 1e-13 below 20. Above 20 its value and its error are below 1e-88; every formula
here adds them, or their roots, to a number above 1/2, whose own error is counted and larger. A test compares both with
60-digit arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dpassay.base.arrays import Floats

UNIT = 2.0**-53
NDTR_ERROR = 1e-13
_ROOT_OF_HALF_PI = 1.2533141373155003
_TINY = 1e-320
"""More than underflow removes from a few products: a positive δ must not become 0, which would mean pure DP."""


def up(value: Fraction | float) -> float:
    """The smallest float that is at least `value`; inf beyond float64."""
    if isinstance(value, float):
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def epsilon_from_rdp(orders: Floats | float, divergence: Floats | float, delta: float) -> Floats:
    """ε(δ) from Rényi divergences of at most `divergence`, one ε per order, at least 0.

    ε = D + log(1 − 1/α) − log(αδ)/(α − 1); and 0 if δ ≥ √(1 − e^−D), since D bounds the KL divergence.

    Args:
        orders: α > 1, any shape.
        divergence: D ≥ 0, may be inf, the same shape.
        delta: in (0, 1).

    Source: Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Proposition 12; Balle
        et al., "Hypothesis Testing Interpretations and Rényi DP" (2020), Theorem 20. For the second case: Bretagnolle
        and Huber.
    """
    alpha, renyi = np.asarray(orders, dtype=np.float64), np.asarray(divergence, dtype=np.float64)
    log_order, log_excess = np.log(alpha), np.log(alpha - 1)
    tail = (math.log(delta) + log_order) / (alpha - 1)
    size = renyi + np.abs(log_excess) + 2 * log_order + (abs(math.log(delta)) + log_order) / (alpha - 1)
    epsilon = renyi + log_excess - log_order - tail + 16 * UNIT * size
    small = -np.expm1(-renyi) * (1 + 16 * UNIT) <= delta**2 * (1 - 4 * UNIT)
    return np.where(small, 0.0, np.maximum(epsilon, 0.0))


def log_delta_from_rdp(orders: Floats | float, divergence: Floats | float, epsilon: float) -> Floats:
    """log δ(ε), one per order, at most 0: δ = exp((α − 1)(D − ε + log(1 − 1/α)))/α.

    Source and arguments as for `epsilon_from_rdp`, with ε ≥ 0.
    """
    alpha, renyi = np.asarray(orders, dtype=np.float64), np.asarray(divergence, dtype=np.float64)
    log_order, log_excess = np.log(alpha), np.log(alpha - 1)
    size = (alpha - 1) * (renyi + epsilon + np.abs(log_excess) + log_order) + log_order
    log_delta = (alpha - 1) * (renyi - epsilon + log_excess - log_order) - log_order + 16 * UNIT * size
    return np.where(np.isinf(renyi), 0.0, np.minimum(log_delta, 0.0))


def epsilon_from_zcdp(rho: float, delta: float, xi: float = 0.0) -> float:
    """ε(δ) of (ξ, ρ)-zCDP: the least of `epsilon_from_rdp` over all orders α > 1, with D = ξ + ρα.

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
    return min(math.exp(log_delta) * (1 + 8 * UNIT) + _TINY, 1.0)


def _renyi_of_zcdp(rho: float, xi: float, order: Floats) -> Floats:
    with np.errstate(over="ignore"):  # an infinite divergence is an upper bound
        return np.asarray((xi + rho * order) * (1 + 4 * UNIT))


def _least(function: Callable[[Floats], Floats]) -> float:
    """The least value of a function of α − 1 that is found on refining logarithmic grids."""
    low, high = math.log(1e-6), math.log(1e9)
    best = math.inf
    for _ in range(4):
        grid = np.linspace(low, high, 1001)
        excess = (1 + np.exp(grid)) - 1  # rounded like 1 + (α − 1), so that α and α − 1 agree
        values = function(excess)
        index = int(np.argmin(values))
        best = min(best, float(values[index]))
        low, high = grid[max(index - 1, 0)], grid[min(index + 1, 1000)]
    return best


def delta_from_rdp(order: float, divergence: float, epsilon: float) -> float:
    """The least δ(ε) that follows from one Rényi divergence of at most `divergence`, within a relative 1e-6; ε ≥ 0.

    It is never above the bound of Canonne, Kamath and Steinke, and far below it if (α − 1)D is small.

    Proof: docs/proofs/conversions-renyi-order.md, Theorems 1 and 2.

    Source: Asoodeh et al., "Three Variants of Differential Privacy: Lossless Conversion and Applications" (2021).
    """
    if divergence == 0:
        return 0.0
    if divergence > epsilon + math.log(order) - math.log(order - 1) + 1e-12 * (1 + divergence):
        return min(1.0, -math.expm1(epsilon - divergence) * (1 + 16 * UNIT))
    tail = math.exp(float(log_delta_from_rdp(order, divergence, epsilon))) * (1 + 8 * UNIT) + _TINY
    if (order - 1) * divergence > 700:
        return min(1.0, tail)
    points = np.linspace(-32.0, 32.0, 129)  # logit of 1 − x₁
    for _ in range(3):
        logs = _log_delta_of_tangents(order, divergence, epsilon, 1 / (1 + np.exp(-points)))
        best = int(np.argmin(logs))
        tail = min(tail, math.exp(min(float(logs[best]), 0.0)) * (1 + 8 * UNIT) + _TINY)
        points = np.linspace(points[max(best - 1, 0)], points[min(best + 1, points.size - 1)], 33)
    return min(1.0, tail)


def _log_delta_of_tangents(order: float, divergence: float, epsilon: float, distances: Floats) -> Floats:
    """log of the bound of `delta_from_rdp` for each 1 − x₁, rounded up; inf if the condition cannot be verified."""
    excess = order - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        log_x = np.log1p(-distances)
        log_t = log_x - epsilon  # t = x₁/γ; y = x₂/γ lies in [1, α/(α − 1)], and (α − 1)y^α − αy^{α−1} there rises
        at_t = excess * np.exp(order * log_t) - order * np.exp(excess * log_t)
        low, high = np.zeros(distances.shape), np.full(distances.shape, math.log(order) - math.log(excess))
        for _ in range(48):
            log_y = (low + high) / 2
            holds = np.exp(excess * log_y) * (excess * np.exp(log_y) - order) <= at_t
            low, high = np.where(holds, log_y, low), np.where(holds, high, log_y)
        log_y, valid, shift = low, np.zeros(distances.shape, dtype=bool), 1e-14
        for _ in range(10):  # decrease until the condition holds with its error
            log_y = np.where(valid, log_y, low - shift * (low + 1 / order))
            powers = np.exp(excess * log_y)
            size = powers * (excess * np.exp(log_y) + order) * (1 + order * np.abs(log_y))
            size += np.where(distances < 1, np.exp(excess * log_t) * 2 * order * (1 + order * (epsilon - log_x)), 0.0)
            valid = powers * (excess * np.exp(log_y) - order) + 32 * UNIT * size <= at_t
            shift *= 10
        # −log of (x₁/x₂)^{α−1}, rounded down; x₁ = 0 gives inf
        fall = excess * (log_y + epsilon) - excess * log_x
        fall = np.where(distances < 1, fall - 16 * UNIT * excess * (np.abs(log_y) + epsilon - log_x), math.inf)
        log_c = -math.log(order) - excess * (log_y + epsilon) - np.log(-np.expm1(-np.maximum(fall, 0.0)))
        exponent = np.where(distances < 1, excess * log_x + np.log1p(excess * distances), -math.inf)
        mean = math.expm1(excess * divergence) - np.expm1(exponent)
        blur = np.exp(exponent) * (np.log1p(excess * distances) - excess * log_x)
        mean += 16 * UNIT * ((1 + excess * divergence) * mean + np.where(distances < 1, blur, 0.0))
        error = 32 * UNIT * (2 + math.log(order) + excess * (np.abs(log_y) + epsilon) + np.abs(log_c))
        bound = log_c + np.log(mean) + error
    return np.where(valid & ~np.isnan(bound), bound, math.inf)


def least_epsilon_from_rdp(order: float, divergence: float, delta: float) -> float:
    """The least ε ≥ 0, within a relative 1e-9, at which `delta_from_rdp` is at most δ."""
    high = float(epsilon_from_rdp(order, divergence, delta))

    def meets(epsilon: float) -> bool:
        return delta_from_rdp(order, divergence, epsilon) <= delta

    if high == 0 or math.isinf(high) or meets(0.0):
        return high if math.isinf(high) else 0.0
    return _least_true(meets, 0.0, high, 1e-9) if meets(high) else high


def delta_from_pure(total: float, epsilon: float) -> float:
    """δ(ε) of pure ε₀-DP, ε₀ = `total`: (e^{ε₀} − e^ε)/(1 + e^{ε₀}) for ε < ε₀, else 0; attained by randomised
    response.

    Source: Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015), Theorem 3.3.
    """
    if math.isinf(total):
        return 1.0
    exact = -math.expm1(min(epsilon - total, 0.0)) / (1 + math.exp(-total))
    # x = ε − ε₀ ≤ 0 has relative error u, which e^x − 1 multiplies by |x|e^x/(1 − e^x) ≤ 1.
    return min(1.0, abs(exact) * (1 + 2.0**-49))


def blowup_at(p: float, at: float, r: float) -> float:
    """sup{P(E): Q(E) ≤ p}, given that it is at most `r` at `at`, rounded up.

    The blow-up is concave, at least 0 at 0 and 1 at 1. So to the right of `at` it lies below the line through 0 and
    (at, r), and to the left below the line through (at, r) and (1, 1).
    """
    if p == at or r == 1:
        return r
    line = r * (p / at) if p > at else p + (1 - p) / (1 - at) * (r - at)
    return max(p, min(1.0, line * (1 + 16 * UNIT)))


def blowup_of_rdp(orders: Floats | float, divergence: Floats | float, p: float) -> float:
    """sup{P(E): Q(E) ≤ p}, p in (0, 1), if both Rényi divergences of each order are at most `divergence`, rounded up.

    (r, 1 − r) against (p, 1 − p) is a post-processing, so its divergences obey the same bounds; both increase with
    r ≥ p. The largest such r is found by bisection. That pair attains it.
    """
    alpha = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    budget = (alpha - 1) * np.asarray(divergence, dtype=np.float64) * (1 + 4 * UNIT)

    def exceeds(r: float) -> bool:
        logs = np.array([math.log(r), math.log1p(-r)]), np.array([math.log(p), math.log1p(-p)])
        error = 32 * UNIT * (1 + alpha * sum(float(np.abs(part).sum()) for part in logs))
        there, back = (
            np.logaddexp(alpha * a[0] + (1 - alpha) * b[0], alpha * a[1] + (1 - alpha) * b[1])
            for a, b in (logs, logs[::-1])
        )
        return bool((np.maximum(there, back) - error > budget).any())

    largest = math.nextafter(1.0, 0.0)
    return _least_true(exceeds, p, largest) if exceeds(largest) else 1.0


def blowup_of_zcdp(rho: float, p: float) -> float:
    """sup{P(E): Q(E) ≤ p} of ρ-zCDP, rounded up: `blowup_of_rdp` at a grid of orders, D = ρα."""
    if rho == 0:
        return p
    excess = np.geomspace(1e-6, 1e9, 3001)
    orders = 1 + excess
    return blowup_of_rdp(orders, rho * orders * (1 + 2 * UNIT), p)


def rdp_of_pure(epsilon: float, orders: Floats) -> Floats:
    """The largest Rényi divergence, at each order, of any ε-DP mechanism: that of randomised response.

    D = log[(e^{αε} + e^{(1−α)ε})/(1 + e^ε)]/(α − 1). Every ε-DP pair is a post-processing of randomised response.

    Source: Kairouz, Oh and Viswanath, "The Composition Theorem for Differential Privacy" (2015).
    """
    alpha = np.asarray(orders, dtype=np.float64)
    if math.isinf(epsilon):
        return np.full(alpha.shape, math.inf)
    # log of the sum is (α − 1)ε + log1p(e^{(1 − 2α)ε}) − log1p(e^{−ε}): no overflow.
    with np.errstate(over="ignore"):  # e to minus infinity is 0
        head, tail = np.log1p(np.exp((1 - 2 * alpha) * epsilon)), math.log1p(math.exp(-epsilon))
    exact = epsilon + (head - tail) / (alpha - 1)
    error = 16 * UNIT * (epsilon + (head + tail) / (alpha - 1))
    return np.asarray(np.clip(exact + error, 0.0, epsilon))


def zcdp_of_pure(epsilon: float) -> float:
    """The least ρ such that every ε-DP mechanism is ρ-zCDP: ε tanh(ε/2), rounded up.

    Proof: docs/proofs/conversions-pure-dp.md, Theorem 1.
    """
    tanh = -math.expm1(-epsilon) / (1 + math.exp(-epsilon))
    return up(Fraction(epsilon) * min(Fraction(epsilon) / 2, Fraction(min(tanh * (1 + 32 * UNIT) + _TINY, 1.0))))


def gdp_of_zcdp(rho: float) -> float:
    """A μ such that every ρ-zCDP mechanism is μ-GDP: √(−log Φ(−μ/2)) − √(−log Φ(μ/2)) = √ρ, rounded up.

    Proof: docs/proofs/conversions-zcdp-gdp.md, Theorem 1.
    """
    from scipy.special import log_ndtr

    def falls(mu: float) -> float:
        """A lower bound on the difference of the two roots; each has a relative error below 2e-13."""
        left, right = -float(log_ndtr(-mu / 2)), -float(log_ndtr(mu / 2))
        return math.sqrt(left) * (1 - 2 * NDTR_ERROR) - math.sqrt(right) * (1 + 2 * NDTR_ERROR)

    if rho == 0 or math.isinf(rho):
        return rho
    target = math.sqrt(rho) * (1 + 4 * UNIT)
    low, high = 0.0, 1.0
    while falls(high) < target:
        low, high = high, 2 * high
    return _least_true(lambda mu: falls(mu) >= target, low, high)


def _least_true(holds: Callable[[float], bool], low: float, high: float, width: float = 1e-13) -> float:
    """A number at which `holds`, within that relative width of the least in (low, high]; it holds at `high`."""
    while high - low > width * high:
        middle = math.sqrt(low) * math.sqrt(high) if 0 < 4 * low < high else (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def gdp_of_pure(epsilon: float) -> float:
    """The least μ such that every ε-DP mechanism is μ-GDP: −2Φ⁻¹(1/(1 + e^ε)), rounded up.

    Proof: docs/proofs/conversions-pure-dp.md, Theorem 2.

    Source: Dong, Roth and Su, "Gaussian Differential Privacy" (2022), Section 2.
    """
    from scipy.special import log_ndtr, ndtri_exp

    if epsilon == 0 or math.isinf(epsilon):
        return epsilon
    if epsilon < 2.0**-14:
        return up(Fraction(epsilon) * Fraction(_ROOT_OF_HALF_PI * (1 + epsilon**2 / 4 + 8 * UNIT)))
    target = -(epsilon + math.log1p(math.exp(-epsilon)))
    mu = float(-2 * ndtri_exp(target))
    step = 1e-12 * mu
    # The condition is Φ(−μ/2) ≤ 1/(1 + e^ε), checked with the errors of both sides.
    while log_ndtr(-mu / 2) * (1 - NDTR_ERROR) > target * (1 + 16 * UNIT):
        mu += step
        step *= 2
    return mu


def delta_from_gdp(mu: float, epsilon: float) -> float:
    """δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2) of μ-GDP, rounded up; ε ≥ 0.

    Source: Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8.
    """
    from scipy.special import log_ndtr

    if mu == 0 or math.isinf(mu):
        return 0.0 if mu == 0 else 1.0
    near, width = mu / 2 - epsilon / mu, epsilon / mu + mu / 2
    log_first, log_second = float(log_ndtr(near)), float(log_ndtr(-width))
    # An argument's rounding, 4u(ε/μ + μ/2), moves log Φ by at most |x| + 1 times that (its hazard).
    first_error = NDTR_ERROR * abs(log_first) + 4 * UNIT * width * (abs(near) + 1)
    second_error = NDTR_ERROR * abs(log_second) + 4 * UNIT * width * (width + 1)
    room = first_error + second_error + 4 * UNIT * (epsilon + abs(log_second) + abs(log_first))
    ratio = epsilon + log_second - log_first - room
    if math.isnan(ratio):  # both are −inf: Φ(−ε/μ + μ/2) alone underflows
        return _TINY
    return min(
        math.exp(min(log_first + first_error, 0.0)) * -math.expm1(min(ratio, 0.0)) * (1 + 16 * UNIT) + _TINY, 1.0
    )


def deltas_from_gdp(mu: Floats | float, epsilon: Floats | float) -> Floats:
    """`delta_from_gdp` for arrays of μ and ε that broadcast together, by the same formulas."""
    from scipy.special import log_ndtr

    mean, point = np.broadcast_arrays(np.asarray(mu, dtype=np.float64), np.asarray(epsilon, dtype=np.float64))
    inside = np.where((mean > 0) & np.isfinite(mean), mean, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        width = point / inside + inside / 2
        near, far = inside / 2 - point / inside, -width
        log_first, log_second = log_ndtr(near), log_ndtr(far)
        first_error = NDTR_ERROR * np.abs(log_first) + 4 * UNIT * width * (np.abs(near) + 1)
        second_error = NDTR_ERROR * np.abs(log_second) + 4 * UNIT * width * (width + 1)
        room = first_error + second_error + 4 * UNIT * (point + np.abs(log_second) + np.abs(log_first))
        share = -np.expm1(np.minimum(point + log_second - log_first - room, 0.0))
        delta = np.minimum(np.exp(np.minimum(log_first + first_error, 0.0)) * share * (1 + 16 * UNIT) + _TINY, 1.0)
    delta = np.where(np.isnan(delta), _TINY, delta)
    return np.where(mean == 0, 0.0, np.where(np.isinf(mean), 1.0, delta))


def epsilon_from_gdp(mu: float, delta: float) -> float:
    """ε(δ) of μ-GDP: the least ε, to a relative 1e-13, at which `delta_from_gdp` is at most δ."""
    if delta_from_gdp(mu, 0.0) <= delta:
        return 0.0
    if math.isinf(mu):
        return math.inf
    low, high = 0.0, 1.0
    while delta_from_gdp(mu, high) > delta:
        low, high = high, 2 * high
        if math.isinf(high):
            return high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if delta_from_gdp(mu, middle) <= delta else (middle, high)
    return high
