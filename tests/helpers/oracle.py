"""Exact hockey-stick divergences in 60-digit arithmetic, from definitions: what certified intervals must contain.

A pair (P, Q) has δ_remove(ε) = sup_E P(E) − e^ε Q(E) and δ_add(ε) with P and Q exchanged. The set E of all x with
p(x) > e^ε q(x) attains the first (Neyman and Pearson), so an answer needs the point where the likelihood ratio crosses
e^ε and the two masses beyond it: no loss distribution, no lattice, no transform. Parameters are doubles taken at their
exact value, and so are δ, ε and p. `hockey_stick_by_quadrature` integrates densities and knows neither masses nor
crossing points; it holds the rest to account.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

import mpmath

Real = Any  # mpmath has no types
Direction = Literal["remove", "add"]
DIRECTIONS: tuple[Direction, Direction] = ("remove", "add")

DIGITS = 60
mp = mpmath.mp.clone()
mp.dps = DIGITS
INFINITY = mp.inf
ROOM = mp.mpf("1e-50")
"""Relative: truths are known to 50 digits, where an interval may end at the truth itself."""


def real(value: Any) -> Real:
    """The number at its exact value, or to 60 digits where it is a fraction."""
    if isinstance(value, Fraction):
        return mp.mpf(value.numerator) / value.denominator
    return mp.mpf(value)


class Exact:
    """A pair (P, Q) whose hockey-stick divergences are known."""

    def one_sided(self, epsilon: Real, direction: Direction) -> Real:
        """δ(ε) of one direction, ε of any sign."""
        raise NotImplementedError

    def one_sided_blowup(self, p: Real, direction: Direction) -> Real:
        """sup{P(E): Q(E) ≤ p} over randomised tests, P and Q exchanged for ``add``."""
        raise NotImplementedError

    def delta(self, epsilon: Any, direction: Direction | None = None) -> Real:
        """δ(ε); of the worse direction where none is given."""
        epsilon = real(epsilon)
        return min(1, max(self.one_sided(epsilon, way) for way in ((direction,) if direction else DIRECTIONS)))

    def blowup(self, p: Any, direction: Direction | None = None) -> Real:
        """B(p); of the worse direction where none is given."""
        p = real(p)
        if p == 1:
            return p
        return min(1, max(self.one_sided_blowup(p, way) for way in ((direction,) if direction else DIRECTIONS)))

    def epsilon(self, delta: Any, direction: Direction | None = None) -> Real:
        """The least ε ≥ 0 with δ(ε) ≤ δ, to 50 digits; inf where δ(2¹⁰) is not below δ."""
        target = real(delta)
        if self.delta(0, direction) <= target:
            return mp.mpf(0)
        limit = self.delta(1024, direction)
        if limit >= target:
            return INFINITY  # where the limit is δ itself, the least ε is not asked for

        def excess(epsilon: Real) -> Real:
            value = self.delta(epsilon, direction)
            return mp.log(target / value) if value else INFINITY

        return increasing_root(excess, mp.mpf(1), mp.mpf(1))

    def with_atoms(self, atoms: Atoms) -> Product:
        """The composition with a finite pair."""
        return Product(self, atoms)


@dataclass(frozen=True)
class Line(Exact):
    """Two laws on the line whose likelihood ratio p/q does not decrease.

    Attributes:
        crossing: level ↦ the point beyond which log p/q exceeds it; ±inf where it always or never does. Where the ratio
            crosses strictly, an error of the point is squared in δ, as p − e^ε q vanishes there.
        above: x ↦ (P, Q) of (x, ∞).
        below: x ↦ (P, Q) of (−∞, x].
        centre: a point near both laws, and `scale` a length of their size, for the search of quantiles.
    """

    crossing: Callable[[Real], Real]
    above: Callable[[Real], tuple[Real, Real]]
    below: Callable[[Real], tuple[Real, Real]]
    centre: Real = field(default_factory=lambda: mp.mpf(0))
    scale: Real = field(default_factory=lambda: mp.mpf(1))

    def one_sided(self, epsilon: Real, direction: Direction) -> Real:
        if direction == "remove":
            p, q = self.above(self.crossing(epsilon))
        else:
            q, p = self.below(self.crossing(-epsilon))
        return max(mp.mpf(0), p - mp.exp(epsilon) * q)

    def one_sided_blowup(self, p: Real, direction: Direction) -> Real:
        if p == 0:
            return self.one_sided(INFINITY, direction)
        masses, null, sign = (self.above, 1, -1) if direction == "remove" else (self.below, 0, 1)
        target = mp.log(p)

        def excess(x: Real) -> Real:
            mass = masses(x)[null]
            return sign * (mp.log(mass) - target) if mass else -sign * INFINITY

        return masses(increasing_root(excess, self.centre, self.scale))[1 - null]


def increasing_root(function: Callable[[Real], Real], centre: Real, scale: Real) -> Real:
    """Where an increasing function crosses 0, to the working precision: Ridders' method inside a bracket."""
    low, high = centre - scale, centre + scale
    while function(low) > 0:
        low, high = low - 2 * (high - low), low
    while function(high) <= 0:
        low, high = high, high + 2 * (high - low)
    f_low, f_high, last = function(low), function(high), None
    for _ in range(200):
        middle = (low + high) / 2
        f_middle = function(middle)
        new, f_new = middle, f_middle
        if f_middle and mp.isfinite(f_low) and mp.isfinite(f_high):
            root = mp.sqrt(f_middle**2 - f_low * f_high)
            new = min(max(middle - (middle - low) * f_middle / root, low), high)
            f_new = function(new)
        if not f_new or (last is not None and abs(new - last) <= mp.mpf(10) ** (4 - DIGITS) * (abs(new) + scale)):
            return new
        last = new
        for point, value in sorted(((middle, f_middle), (new, f_new))):
            if low < point < high:
                low, f_low, high, f_high = (point, value, high, f_high) if value <= 0 else (low, f_low, point, value)
    raise ArithmeticError("no root was found")


@dataclass(frozen=True)
class Atoms(Exact):
    """Two laws on finitely many points."""

    p: tuple[Real, ...]
    q: tuple[Real, ...]

    def one_sided(self, epsilon: Real, direction: Direction) -> Real:
        p, q = (self.p, self.q) if direction == "remove" else (self.q, self.p)
        factor = mp.exp(epsilon)
        return mp.fsum(a - factor * b for a, b in zip(p, q, strict=True) if a > factor * b)

    def one_sided_blowup(self, p: Real, direction: Direction) -> Real:
        """The greedy test: outcomes in order of their ratio, the last one with a probability."""
        pairs = list(zip(self.p, self.q, strict=True) if direction == "remove" else zip(self.q, self.p, strict=True))
        total, left = mp.fsum(a for a, b in pairs if not b), p
        for a, b in sorted((pair for pair in pairs if pair[1]), key=lambda pair: pair[0] / pair[1], reverse=True):
            share = min(mp.mpf(1), left / b)
            total, left = total + share * a, left - share * b
        return total

    def power(self, count: int) -> Atoms:
        """`count` independent copies, outcome by outcome; equal pairs of masses are merged."""
        merged: dict[tuple[int, ...], int] = {}
        for outcome in itertools.product(range(len(self.p)), repeat=count):
            key = tuple(sorted(outcome))
            merged[key] = merged.get(key, 0) + 1
        products = [
            (times * mp.fprod(self.p[i] for i in key), times * mp.fprod(self.q[i] for i in key))
            for key, times in merged.items()
        ]
        return Atoms(*(tuple(side) for side in zip(*products, strict=True)))

    def times(self, other: Atoms) -> Atoms:
        """The composition with another finite pair."""
        return Atoms(
            tuple(a * b for a in self.p for b in other.p),
            tuple(a * b for a in self.q for b in other.q),
        )


@dataclass(frozen=True)
class Product(Exact):
    """Any pair composed with a finite one: δ(ε) = Σ p_i δ(ε − log p_i/q_i), the finite pair's outcome being known."""

    line: Exact
    atoms: Atoms

    def one_sided(self, epsilon: Real, direction: Direction) -> Real:
        p, q = (self.atoms.p, self.atoms.q) if direction == "remove" else (self.atoms.q, self.atoms.p)
        parts = (
            a * self.line.one_sided(epsilon - mp.log(a / b), direction) if b else a
            for a, b in zip(p, q, strict=True)
            if a
        )
        return mp.fsum(parts)


@dataclass(frozen=True)
class Curve(Exact):
    """A pair known by its curve for ε ≥ 0 alone, the same in both directions.

    δ_{P‖Q}(−ε) = 1 − e^{−ε} + e^{−ε} δ_{Q‖P}(ε), from the complement of the best set.
    """

    positive: Callable[[Real], Real]

    def one_sided(self, epsilon: Real, direction: Direction) -> Real:
        if epsilon >= 0:
            return self.positive(epsilon)
        return -mp.expm1(epsilon) + mp.exp(epsilon) * self.positive(-epsilon)


def gaussian(noise_multiplier: Any, sensitivity: Any = 1) -> Line:
    """N(Δ, σ²) against N(0, σ²)."""
    return gaussian_mixture([1], [sensitivity], noise_multiplier)


def gaussians(noise_multipliers: Sequence[Any], counts: Sequence[int] | None = None) -> Line:
    """Composed Gaussians of sensitivity 1: the likelihood ratio depends on Σ x_i/σ_i² alone, one Gaussian with
    μ² = Σ n_i/σ_i²."""
    counts = counts or [1] * len(noise_multipliers)
    mu = mp.sqrt(mp.fsum(n / real(sigma) ** 2 for sigma, n in zip(noise_multipliers, counts, strict=True)))
    return gaussian(1 / mu)


def normal_cdf(x: Real) -> Real:
    """Φ(x); 0 or 1 beyond 10⁹, where mpmath gives up and the tail is below 10^(−10^17)."""
    return mp.ncdf(x) if abs(x) < 1e9 else mp.mpf(x > 0)


def gaussian_mixture(
    weights: Sequence[Any],
    means: Sequence[Any],
    deviation: Any,
    reference_weights: Sequence[Any] = (1,),
    reference_means: Sequence[Any] = (0,),
) -> Line:
    """Σ w_k N(s_k, σ²) against Σ v_j N(t_j, σ²), every s_k ≥ 0 ≥ t_j: then p/q does not decrease."""
    sigma = real(deviation)
    first = [(real(w), real(s)) for w, s in zip(weights, means, strict=True) if w]
    second = [(real(v), real(t)) for v, t in zip(reference_weights, reference_means, strict=True) if v]
    if any(s < 0 for _, s in first) or any(t > 0 for _, t in second):
        raise ValueError("the ratio of this mixture need not be monotone")

    def log_ratio(x: Real) -> Real:
        top = mp.fsum(w * mp.exp(s * (x - s / 2) / sigma**2) for w, s in first)
        bottom = mp.fsum(v * mp.exp(t * (x - t / 2) / sigma**2) for v, t in second)
        return mp.log(top / bottom)

    low = mp.log(mp.fsum(w for w, s in first if not s) or mp.mpf(0)) if all(not t for _, t in second) else -INFINITY
    high = -mp.log(mp.fsum(v for v, t in second if not t) or mp.mpf(0)) if all(not s for _, s in first) else INFINITY
    scale = 4 * sigma + max(abs(value) for _, value in first + second)

    def crossing(level: Real) -> Real:
        if level <= low or level >= high:
            return -INFINITY if level <= low else INFINITY
        if len(first) == len(second) == 1:
            s, t = first[0][1], second[0][1]
            return level * sigma**2 / (s - t) + (s + t) / 2
        return increasing_root(lambda x: log_ratio(x) - level, mp.mpf(0), scale)

    def masses(x: Real, side: int) -> tuple[Real, Real]:
        def mass(parts: list[tuple[Real, Real]]) -> Real:
            return mp.fsum(w * normal_cdf(side * (x - m) / sigma) for w, m in parts)

        return mass(first), mass(second)

    return Line(crossing, lambda x: masses(x, -1), lambda x: masses(x, 1), scale=scale)


def sampled_gaussian(noise_multiplier: Any, rate: Any, *, replace: bool = False) -> Line:
    """(1 − q)N(0, σ²) + qN(1, σ²) against N(0, σ²); where a unit is exchanged, against (1 − q)N(0, σ²) + qN(−1, σ²)."""
    q = real(rate)
    if replace:
        return gaussian_mixture([1 - q, q], [0, 1], noise_multiplier, [1 - q, q], [0, -1])
    line = gaussian_mixture([1 - q, q], [0, 1], noise_multiplier)
    sigma = real(noise_multiplier)

    def crossing(level: Real) -> Real:  # 1 − q + q e^{(x − 1/2)/σ²} = e^level
        excess = mp.exp(level) - (1 - q)
        return mp.mpf(1) / 2 + sigma**2 * mp.log(excess / q) if excess > 0 else -INFINITY

    return Line(crossing, line.above, line.below, scale=line.scale)


def sampled_laplace(noise_multiplier: Any, rate: Any = 1, sensitivity: Any = 1) -> Line:
    """(1 − q)Lap(0, b) + qLap(Δ, b) against Lap(0, b); q = 1 is Laplace noise without sampling."""
    b, q, shift = real(noise_multiplier), real(rate), real(sensitivity)

    def tail(x: Real) -> Real:
        return mp.exp(-x / b) / 2 if x > 0 else 1 - mp.exp(x / b) / 2

    def crossing(level: Real) -> Real:
        """Of 1 − q + q e^{(2x − Δ)/b} on [0, Δ]; constant outside."""
        excess = (mp.exp(level) - (1 - q)) / q
        if excess < mp.exp(-shift / b):
            return -INFINITY
        if excess >= mp.exp(shift / b):
            return INFINITY
        return (shift + b * mp.log(excess)) / 2

    def above(x: Real) -> tuple[Real, Real]:
        return (1 - q) * tail(x) + q * tail(x - shift), tail(x)

    def below(x: Real) -> tuple[Real, Real]:
        return (1 - q) * tail(-x) + q * tail(shift - x), tail(-x)

    return Line(crossing, above, below, centre=shift / 2, scale=4 * b + shift)


def discrete_gaussian(sigma: Any, sensitivity: int = 1) -> Atoms:
    """Integers with p(k) ∝ e^{−k²/(2σ²)}, shifted by Δ; what lies beyond e^{−700} of the top is left out."""
    s = real(sigma)
    reach = math.ceil(38 * float(s)) + sensitivity + 1
    weights = {k: mp.exp(-(mp.mpf(k) ** 2) / (2 * s * s)) for k in range(-reach - sensitivity, reach + sensitivity + 1)}
    total = mp.fsum(weights.values())
    inside = range(-reach, reach + 1)
    return Atoms(tuple(weights[k - sensitivity] / total for k in inside), tuple(weights[k] / total for k in inside))


def discrete_laplace(parameter: Any, sensitivity: int = 1) -> Atoms:
    """Integers with p(k) ∝ e^{−a|k|}, shifted by Δ: the loss is −aΔ below 0, aΔ from Δ on, and Δ − 1 values between."""
    a = real(parameter)
    norm = mp.tanh(a / 2)
    tail = norm / -mp.expm1(-a)  # of the points 0, 1, 2, …
    inner = [norm * mp.exp(-a * k) for k in range(1, sensitivity)]
    q = [tail, *inner, tail * mp.exp(-a * sensitivity)]
    return Atoms(tuple(reversed(q)), tuple(q))


def randomised_response(uniform: Any, buckets: int, *, null: bool = False) -> Atoms:
    """One of k answers, with probability `uniform` a uniform one; against another input, or (`null`) a uniform
    answer."""
    other = real(uniform) / buckets
    truth = 1 - real(uniform) + other
    if null:
        share = mp.mpf(1) / buckets
        return Atoms((truth, *[other] * (buckets - 1)), (share,) * buckets)
    return Atoms((truth, other, *[other] * (buckets - 2)), (other, truth, *[other] * (buckets - 2)))


def approx_dp(epsilon: Any, delta: Any = 0) -> Atoms:
    """The pair that is worst among (ε, δ)-DP ones (Kairouz, Oh and Viswanath 2015, Section 2)."""
    lost, factor = real(delta), mp.exp(real(epsilon))
    p = (lost, (1 - lost) * factor / (1 + factor), (1 - lost) / (1 + factor), mp.mpf(0))
    return Atoms(p, tuple(reversed(p)))


def finite(p: Sequence[Any], q: Sequence[Any]) -> Atoms:
    """Two probability vectors as given: they need not sum to exactly 1."""
    return Atoms(tuple(real(value) for value in p), tuple(real(value) for value in q))


def sampled_without_replacement(noise_multiplier: Any, sample: int, size: int) -> Curve:
    """One Gaussian release on m of n records, one record exchanged: q·δ_{2/σ}(log(1 + (e^ε − 1)/q)), q = m/n
    (Balle, Barthe and Gaboardi 2018, Theorem 9 with the total-variation couplings of Section 4)."""
    q, base = mp.mpf(sample) / size, gaussian(noise_multiplier, 2)
    return Curve(lambda epsilon: q * base.delta(mp.log1p(mp.expm1(epsilon) / q), "remove"))


def randomised_response_power(uniform: Any, count: int, *, null: bool = False) -> Atoms:
    """`count` binary answers: the number of true ones is binomial on both sides."""
    item = randomised_response(uniform, 2, null=null)

    def binomial(success: Real, failure: Real) -> tuple[Real, ...]:
        logs = mp.log(success), mp.log(failure)
        choose = log_binomials(count)
        return tuple(mp.exp(choose[k] + k * logs[0] + (count - k) * logs[1]) for k in range(count + 1))

    return Atoms(binomial(*item.p), binomial(*item.q))


@functools.cache
def log_binomials(count: int) -> tuple[Real, ...]:
    """log C(n, k) for k = 0, …, n, from the exact integers."""
    values, current = [], 1
    for k in range(count + 1):
        values.append(mp.log(current))
        current = current * (count - k) // (k + 1)
    return tuple(values)


def discrete_laplace_power(parameter: Any, sensitivity: int, count: int) -> Atoms:
    """`count` discrete Laplace releases: losses are −aΔ, a(2 − Δ), …, aΔ, so the masses are a power of a polynomial."""
    item = discrete_laplace(parameter, sensitivity)
    masses = polynomial_power(item.p, count)
    top = len(masses) - 1
    # A mass far below 1 has few digits, so of p_j and q_j = p_{top − j} the smaller one is had from their ratio.
    losses = [real(parameter) * (2 * j - top) for j in range(top + 1)]
    p = tuple(masses[j] if loss >= 0 else masses[top - j] * mp.exp(loss) for j, loss in enumerate(losses))
    return Atoms(p, tuple(reversed(p)))


def polynomial_power(coefficients: Sequence[Real], count: int, bits: int = 512) -> tuple[Real, ...]:
    """Σ c_i x^i to the power `count`, in whole numbers of 2^{−bits}: the absolute error is below (terms)·2^{−500}."""
    unit = mp.mpf(2) ** bits
    power, base, left = [1 << bits], [int(mp.floor(c * unit)) for c in coefficients], count
    while left:
        if left & 1:
            power = _multiply(power, base, bits)
        base = _multiply(base, base, bits) if left > 1 else base
        left >>= 1
    return tuple(mp.mpf(value) / unit for value in power)


def _multiply(first: list[int], second: list[int], bits: int) -> list[int]:
    """Product of polynomials with coefficients below 2^(bits + 1), by evaluation at a power of 2."""
    length = len(first) + len(second) - 1
    room = -(-(2 * bits + 4 + length.bit_length()) // 8)
    a, b = (int.from_bytes(b"".join(c.to_bytes(room, "little") for c in side), "little") for side in (first, second))
    packed = (a * b).to_bytes(room * (length + 1), "little")
    return [int.from_bytes(packed[i * room : (i + 1) * room], "little") >> bits for i in range(length)]


def hockey_stick_by_quadrature(
    p: Callable[[Real], Real], q: Callable[[Real], Real], points: Sequence[Any], epsilon: Any
) -> Real:
    """∫ max(0, p − e^ε q) over the range of `points`, between which the integrand is smooth: the kinks of the densities
    and the places where they cross."""
    factor = mp.exp(real(epsilon))
    return mp.quad(lambda x: max(mp.mpf(0), p(x) - factor * q(x)), [real(point) for point in points])
