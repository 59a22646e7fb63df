"""Random allocation of a Gaussian: a unit takes part in one of t steps, chosen uniformly.

P is the mean of N(μe_i, 1) over the t coordinates, Q = N(0, 1). Their ratio is S/t, where S is a sum of t independent
lognormals of mean 1 under Q. δ(ε) of both directions is the mean of a convex function of S, so a law of S that is
larger in convex order bounds both from above, and a smaller one from below. Sums of independent variables keep the
order. Laws live on a geometric grid. From above each sum is split between its two neighbours on the grid such that its
mean stays; from below the sums near a point are merged into their mean.

Proof: docs/proofs/allocation.md, Theorems 1 to 3.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from dpassay.accounting.lattice.laws import UNIT, Atoms
from dpassay.base.arrays import Floats

LARGEST_MU = 25.0
"""The largest μ whose lognormals fit into float64."""
MAX_STEPS = 10**6
"""The most steps whose law is computed. Fewer steps never cost less."""

_TAIL = 1e-20  # Q- or P-mass on each side that is moved to 0 and infinity from above, and merged from below
_FINENESS = 80  # points in a standard deviation of log S
_MAX_POINTS = 10000
_REACH = 9.4  # standard deviations that a lognormal's grid covers; Φ(−9.4) < 1e-20


@dataclass(frozen=True, slots=True, eq=False)
class _SumLaw:
    """Masses under Q of a sum of lognormals, at x_k = e^{k·spacing} for k from `first`.

    Attributes:
        zero: mass at 0. Only from above, as `infinity`.
        infinity: a first moment at infinity: the sum is worth this much more, with a probability of 0.
        moments: from below, the first moment of each point's mass. The mass is at its mean, not at x_k.
        error: relative error of all masses.
        shift: relative error of the places of the masses.
    """

    first: int
    spacing: float
    masses: Floats
    error: float
    shift: float
    zero: float = 0.0
    infinity: float = 0.0
    moments: Floats | None = None

    @property
    def last(self) -> int:
        return self.first + self.masses.size - 1

    def log_points(self) -> Floats:
        return self.spacing * np.arange(self.first, self.last + 1, dtype=np.float64)

    def deviation(self) -> float:
        """From below: the largest distance of the log of a place from its point."""
        assert self.moments is not None
        known = (self.masses > 0) & (self.moments > 0)
        return float(np.abs(np.log(self.moments[known] / self.masses[known]) - self.log_points()[known]).max())

    def spread(self) -> float:
        """The standard deviation of log S under Q, roughly."""
        points = np.arange(self.masses.size, dtype=np.float64)
        mean = float(self.masses @ points)
        return self.spacing * math.sqrt(float(self.masses @ (points - mean) ** 2))


@functools.lru_cache(maxsize=8)
def upper_law(mu: float, steps: int) -> tuple[Atoms, float]:
    """A law of the loss of P over Q, and η: 1 + η times its curve bounds the exact one, in both directions.

    Args:
        mu: sensitivity over the standard deviation of the noise, in (0, `LARGEST_MU`].
        steps: t, from 2 to `MAX_STEPS`.
    """
    law = _sum_law(_split_lognormal(mu, _first_spacing(mu)), steps)
    known = law.masses > 0
    losses, q = (law.log_points() - math.log(steps))[known], law.masses[known]
    q, change = _normalized(q, np.exp(losses))
    p = np.exp(losses) * q
    shift = 2 * law.shift + 64 * UNIT * (1 + float(np.abs(losses).max()))
    q = np.concatenate([[law.zero], q, [0.0]])
    p = np.concatenate([[0.0], p, [law.infinity / steps * (1 + 1e-9)]])
    return _dense(p, q, shift, losses, mu), (law.error + change) * (1 + 1e-6)


@functools.lru_cache(maxsize=8)
def lower_law(mu: float, steps: int) -> tuple[Atoms, float]:
    """A law of the loss of P over Q, and η: the exact curve is at least 1 − η times that of the law."""
    law = _sum_law(_merged_lognormal(mu, _first_spacing(mu)), steps)
    assert law.moments is not None
    known = (law.masses > 0) & (law.moments > 0)
    q, places = law.masses[known], law.moments[known] / law.masses[known] / steps
    q, change = _normalized(q, places)
    return _dense(q * places, q, 2 * law.shift + 64 * UNIT, np.log(places), mu), (law.error + change) * (1 + 1e-6)


def _normalized(q: Floats, ratios: Floats) -> tuple[Floats, float]:
    """Masses q with Σ q = Σ q·ratios = 1, up to the rounding of sums, and the largest relative change of one."""
    high = ratios > 1
    inside = np.array([[q[~high].sum(), q[high].sum()], [q[~high] @ ratios[~high], q[high] @ ratios[high]]])
    factors = np.linalg.solve(inside, np.ones(2))
    return q * np.where(high, factors[1], factors[0]), float(np.abs(factors - 1).max()) + 2 * UNIT


def _dense(p: Floats, q: Floats, error: float, losses: Floats, mu: float) -> Atoms:
    law = Atoms(p, q, error=error, losses=losses)
    # Its atoms are dense and its ends rare, so a lattice treats it as a law with a density on the whole line.
    law.discrete, law.atom, law.spacing, law.lowest, law.highest = False, None, 0.0, -math.inf, math.inf
    law.dominating_mu = mu
    return law


def _first_spacing(mu: float) -> float:
    return max(min(mu, 2.0) / _FINENESS, mu * (2 * _REACH + mu) / _MAX_POINTS)


def _cells(mu: float, spacing: float, offset: float) -> tuple[int, Floats, Floats, Floats, Floats, float]:
    """Q-masses and first moments of log W between (k + offset)·spacing, and below and above them; with their error."""
    first = math.floor((-mu * mu / 2 - _REACH * mu) / spacing)
    last = math.ceil((mu * mu / 2 + _REACH * mu) / spacing)
    ends = spacing * (np.arange(first, last + 2) + offset)
    sides, error = [], 0.0
    for centre in (-mu / 2, mu / 2):
        z = ends / mu - centre
        below, above = ndtr(z), ndtr(-z)
        inside = np.where(z[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1])
        size = np.where(z[:-1] > 0, above[:-1], below[1:])
        reach = np.maximum(np.abs(z[:-1]), np.abs(z[1:]))
        each = 8 * UNIT * (1 + reach**2) + 8 * UNIT * (np.abs(ends[:-1]) / mu + mu + 1) * (reach + 1)
        error = max(error, float((2 * each * size / inside).max()) + 4 * UNIT)
        sides.append((inside, np.array([below[0], above[-1]]) * (1 + 1e-11)))
    (q, q_outside), (p, p_outside) = sides
    return first, q, p, q_outside, p_outside, error


def _split_lognormal(mu: float, spacing: float) -> _SumLaw:
    """The law from above of one lognormal: the mass between two points is split between them."""
    first, q, p, q_outside, p_outside, error = _cells(mu, spacing, 0.0)
    points = spacing * np.arange(first, first + q.size)
    right = np.clip((p * np.exp(-points) - q) / math.expm1(spacing), 0.0, q)
    masses = np.append(q - right, 0.0)
    masses[1:] += right
    masses[-1] += q_outside[1]
    shift = 2 * error + 64 * UNIT * (1 + float(np.abs(points).max()))
    infinity = float(p_outside.sum()) * (1 + 1e-11)
    return _SumLaw(first, spacing, masses, error + 8 * UNIT, shift, float(q_outside[0]), infinity)


def _merged_lognormal(mu: float, spacing: float) -> _SumLaw:
    """The law from below of one lognormal: the mass around each point is merged, and that outside is left out."""
    first, q, p, _, _, error = _cells(mu, spacing, -0.5)
    return _SumLaw(first, spacing, q, error, 2 * error, moments=p)


def _sum_law(single: _SumLaw, steps: int) -> _SumLaw:
    """The law of a sum of `steps` copies, by doubling."""
    total: _SumLaw | None = None
    power = single
    while steps > 1:
        if steps & 1:
            total = power if total is None else _added(total, power)
        power, steps = _added(power, power), steps // 2
    return power if total is None else _added(total, power)


def _finer(law: _SumLaw, factor: int) -> _SumLaw:
    """The same law on a grid `factor` times as fine."""
    if factor == 1:
        return law

    def spread_out(values: Floats) -> Floats:
        result = np.zeros(factor * (values.size - 1) + 1)
        result[::factor] = values
        return result

    moments = None if law.moments is None else spread_out(law.moments)
    return replace(
        law,
        first=law.first * factor,
        spacing=law.spacing / factor,
        masses=spread_out(law.masses),
        moments=moments,
    )


def _added(a: _SumLaw, b: _SumLaw) -> _SumLaw:
    """The law of the sum of two independent sums."""
    spacing = min(a.spacing, b.spacing)
    spread = math.sqrt(_sum_variance(a, b))
    factor = 1
    length = max(a.last * a.spacing, b.last * b.spacing) - min(a.first * a.spacing, b.first * b.spacing)
    while spacing / factor > spread / _FINENESS and length / spacing * 2 * factor <= _MAX_POINTS:
        factor *= 2
    same = a is b
    a = _finer(a, round(a.spacing / spacing))
    b = a if same else _finer(b, round(b.spacing / spacing))
    return _trimmed(_paired(a, b, factor, same=same))


def _sum_variance(a: _SumLaw, b: _SumLaw) -> float:
    """A guess of the variance of log(A + B): that of the sum relative to its mean, for a body without tails."""
    sizes = [float(law.masses @ np.exp(law.log_points())) for law in (a, b)]
    total = sum(sizes)
    return sum((size / total * law.spread()) ** 2 for size, law in zip(sizes, (a, b), strict=True))


def _paired(a: _SumLaw, b: _SumLaw, factor: int, *, same: bool) -> _SumLaw:
    """All pairs of points, on a grid `factor` times as fine as that of a and b.

    x_i + x_j with |i − j| = d is x_{max(i, j)} times 1 + e^{−d·spacing}, so the place of a sum relative to the larger
    point depends on d alone, and all pairs of one d are added at once.
    """
    spacing, fine = a.spacing, a.spacing / factor
    differences = np.arange(0 if same else b.first - a.last, b.last - a.first + 1)
    log_sums = np.log1p(np.exp(-np.abs(differences) * spacing))
    nearest = a.moments is not None
    offsets = np.rint(log_sums / fine) if nearest else np.floor(log_sums / fine)
    shares = np.clip(np.expm1(log_sums - offsets * fine) / math.expm1(fine), 0.0, 1.0)
    offsets = offsets.astype(np.int64)
    first = factor * max(a.first, b.first) + int(offsets.min())
    size = factor * max(a.last, b.last) + int(offsets.max()) + 2 - first
    masses, moments = np.zeros(size), (np.zeros(size) if nearest else None)
    for difference, offset, share in zip(differences.tolist(), offsets.tolist(), shares.tolist(), strict=True):
        begin, end = max(a.first, b.first - difference), min(a.last, b.last - difference) + 1
        left = slice(begin - a.first, end - a.first)
        right = slice(begin + difference - b.first, end + difference - b.first)
        start = factor * (begin + max(difference, 0)) + offset - first
        to = slice(start, start + factor * (end - begin - 1) + 1, factor)
        both = a.masses[left] * b.masses[right]
        if same and difference:
            both *= 2
        if moments is not None:
            assert a.moments is not None
            assert b.moments is not None
            masses[to] += both
            first_moments = a.moments[left] * b.masses[right] + a.masses[left] * b.moments[right]
            moments[to] += 2 * first_moments if same and difference else first_moments
            continue
        upper = both * share
        masses[to] += both - upper
        masses[start + 1 : start + factor * (end - begin - 1) + 2 : factor] += upper
    zero, infinity = a.zero * b.zero, a.infinity + b.infinity
    for at_zero, law in ((a.zero, b), (b.zero, a)):
        if at_zero:
            below = max(0, min(-(-first // factor) - law.first, law.masses.size))  # points below all sums, moved to 0
            zero += at_zero * float(law.masses[:below].sum())
            infinity += at_zero * float(law.masses[:below] @ np.exp(law.log_points()[:below])) * (1 + 1e-9)
            start = factor * (law.first + below) - first
            kept = at_zero * law.masses[below:]
            if kept.size:
                masses[start : start + factor * (kept.size - 1) + 1 : factor] += kept
    rounding = (2 * differences.size + 16) * UNIT
    error = a.error + b.error + rounding
    shift = max(a.shift, b.shift) + 64 * UNIT
    if nearest:  # a mean moves by the errors of its weights times the distance of the places that it is taken of
        shift += 2 * rounding + 2 * error * math.expm1(fine + 2 * (max(a.deviation(), b.deviation()) + shift))
    return _SumLaw(first, fine, masses, error, shift, zero, infinity, moments)


def _trimmed(law: _SumLaw) -> _SumLaw:
    """The law without the points in its tails, which are moved to 0 and infinity from above, left out from below."""
    points = np.exp(law.log_points())
    sizes = law.masses * points if law.moments is None else law.moments
    total = float(sizes.sum())
    start = int(np.count_nonzero(np.cumsum(law.masses) <= _TAIL))
    end = law.masses.size - int(np.count_nonzero(np.cumsum(sizes[::-1]) <= _TAIL * total))
    masses = law.masses[start:end].copy()
    error = law.error + (2 * law.masses.size + 64) * UNIT
    before, after = float(law.masses[:start].sum()), float(law.masses[end:].sum())
    if law.moments is not None:
        return replace(law, first=law.first + start, masses=masses, moments=law.moments[start:end])
    masses[-1] += after
    lost = float(sizes[:start].sum() + sizes[end:].sum()) * (1 + 1e-9)
    return replace(
        law,
        first=law.first + start,
        masses=masses,
        error=error,
        zero=law.zero + before,
        infinity=law.infinity + lost,
    )
