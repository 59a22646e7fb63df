"""Random allocation: a unit takes part in one of t steps, chosen uniformly.

Of a Gaussian, P is the mean of N(μe_i, 1) over the t coordinates, Q = N(0, 1). Their ratio is S/t, where S is a sum of
t independent lognormals of mean 1 under Q; of any other mechanism, of its ratios dP/dQ. δ(ε) of both directions is the
mean of a convex function of S, so a law of S that is larger in convex order bounds both from above, and a smaller one
from below. Sums of independent variables keep the order. Laws live on a geometric grid. From above each sum is split
between its two neighbours on the grid such that its mean stays; from below the sums near a point are merged into their
mean.

Proof: docs/proofs/allocation.md, Theorems 1 to 3 and 6.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtr

from dpassay.accounting.lattice.laws import UNIT, Atoms, Law
from dpassay.accounting.lattice.measure import Measure, enclosing_measures, points, rounded_step
from dpassay.base.arrays import Bools, Floats

LARGEST_MU = 25.0
"""The largest μ whose lognormals fit into float64."""
MAX_STEPS = 10**6
"""The most steps whose law is computed. Fewer steps never cost less."""

_TAIL = 1e-20  # Q- or P-mass on each side that is moved to 0 and infinity from above, and merged from below
_FINENESS = 80  # points in a standard deviation of log S
_MAX_POINTS = 10000
_REACH = 9.4  # standard deviations that a lognormal's grid covers; Φ(−9.4) < 1e-20
_MOST_POINTS = 1 << 18  # of any law; beyond, there is no bound by sums
_RARE = 1e-14  # a mass at 0 that may be moved
_ROUNDED = 1e-13  # a mass at 0 that a sum of masses may lack of 1 by rounding
_FINEST = 1 << 16  # how much finer the grid of a sum may be than that of its parts
_LARGEST_LOSS = 300.0
_UNSURE = 1e-8  # relative error of a mass that is left out from below


@dataclass(frozen=True, slots=True, eq=False)
class _SumLaw:
    """Masses under Q of a sum of ratios, at x_k = e^{origin + k·spacing} for k from `first`.

    Attributes:
        zero: mass at 0.
        infinity: a first moment at infinity: the sum is worth this much more, with a probability of 0.
        moments: from below, the first moment of each point's mass, over e^origin. The mass is at its mean, not at x_k.
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
    origin: float = 0.0

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


@dataclass(frozen=True, slots=True)
class LawOfStep:
    """What runs in a step: the law of its loss, told apart by a label."""

    label: str
    law: Law = field(compare=False)


@functools.lru_cache(maxsize=8)
def upper_law(mu: float, steps: int) -> tuple[Atoms, float]:
    """A law of the loss of P over Q, and η: 1 + η times its curve bounds the exact one, in both directions.

    Args:
        mu: sensitivity over the standard deviation of the noise, in (0, `LARGEST_MU`].
        steps: t, from 2 to `MAX_STEPS`.
    """
    return _upper(_split_lognormal(mu, _first_spacing(mu)), steps, mu)


@functools.lru_cache(maxsize=8)
def lower_law(mu: float, steps: int) -> tuple[Atoms, float]:
    """A law of the loss of P over Q, and η: the exact curve is at least 1 − η times that of the law."""
    return _lower(_merged_lognormal(mu, _first_spacing(mu)), steps, mu)


@functools.lru_cache(maxsize=16)
def upper_law_of(step: LawOfStep, steps: int, side: int) -> tuple[Atoms, float]:
    """As `upper_law`, of any mechanism, and for one direction.

    Args:
        step: of one step, in that direction.
        steps: t, from 2 to `MAX_STEPS`.
        side: 1 for the direction P over Q, −1 for that of Q over P.

    Raises:
        ValueError: if losses of one step are too large.
    """
    return _upper(_split(step.law, side), steps, step.law.dominating_mu, side)


@functools.lru_cache(maxsize=8)
def lower_law_of(step: LawOfStep, steps: int) -> tuple[Atoms, float]:
    """As `lower_law`, of any mechanism of which more than upper bounds are known."""
    return _lower(_merged(step.law), steps, step.law.dominating_mu)


def _upper(single: _SumLaw, steps: int, mu: float, side: int = 0) -> tuple[Atoms, float]:
    """The law of S/t from above: for both directions, or for one `side`.

    For an increasing function a mass at 0 counts nothing, and for a decreasing one a first moment at infinity: they are
    what both laws lack of 1.
    """
    law = _sum_law(single, steps)
    known = law.masses > 0
    losses, q = (law.log_points() + (law.origin - math.log(steps)))[known], law.masses[known]
    ratios, zero, infinity = np.exp(losses), law.zero, law.infinity * math.exp(law.origin) / steps * (1 + 1e-9)
    change = 0.0
    if side:
        total = float(q @ ratios) if side > 0 else float(q.sum())
        factor = (1 - (infinity if side > 0 else zero)) / total if total else 0.0
        if factor <= 0:
            raise ValueError("nearly everything is revealed in one step")
        q, change = q * factor, max(factor, 1 / factor) - 1 + 2 * UNIT
        if side > 0:
            zero = max(0.0, 1 - math.fsum(q))
        else:
            infinity = max(0.0, 1 - math.fsum(q * ratios))
    if not side or (zero if side > 0 else infinity) == 0:
        q, more = _normalized(q, ratios, 1 - zero, 1 - infinity)
        change += more
    shift = 2 * law.shift + 64 * UNIT * (1 + float(np.abs(losses).max()))
    p, q = np.concatenate([[0.0], ratios * q, [infinity]]), np.concatenate([[zero], q, [0.0]])
    return _dense(p, q, shift, losses, mu), (law.error + change) * (1 + 1e-6)


def _lower(single: _SumLaw, steps: int, mu: float) -> tuple[Atoms, float]:
    law = _sum_law(single, steps)
    assert law.moments is not None
    known = (law.masses > 0) & (law.moments > 0)
    q, places = law.masses[known], law.moments[known] / law.masses[known] * (math.exp(law.origin) / steps)
    infinity = law.infinity * math.exp(law.origin) / steps
    q, change = _normalized(q, places, 1 - law.zero, 1 - infinity)
    change += 4 * UNIT * (abs(law.origin) + 64)  # of infinity, two exponentials and a sum for each doubling
    p, losses = np.concatenate([[0.0], q * places, [infinity]]), np.log(places)
    q = np.concatenate([[law.zero], q, [0.0]])
    return _dense(p, q, 2 * law.shift + 64 * UNIT, losses, mu), (law.error + change) * (1 + 1e-6)


def _normalized(q: Floats, ratios: Floats, q_total: float = 1.0, p_total: float = 1.0) -> tuple[Floats, float]:
    """Masses q with Σ q and Σ q·ratios as given, up to the rounding of sums, and the largest relative change of one."""
    high = ratios > 1
    inside = np.array([[q[~high].sum(), q[high].sum()], [q[~high] @ ratios[~high], q[high] @ ratios[high]]])
    if not inside[0].all():  # all on one side: one factor, and what it leaves of the other sum
        factor = q_total / float(q.sum())
        return q * factor, max(abs(factor - 1), abs(p_total / (factor * float(q @ ratios)) - 1)) + 2 * UNIT
    factors = np.linalg.solve(inside, np.array([q_total, p_total]))
    return q * np.where(high, factors[1], factors[0]), float(np.abs(factors - 1).max()) + 2 * UNIT


def _dense(p: Floats, q: Floats, error: float, losses: Floats, mu: float) -> Atoms:
    law = Atoms(p, q, error=error, losses=losses)
    # Its atoms are dense and its ends rare, so a lattice treats it as a law with a density on the whole line.
    law.discrete, law.atom, law.spacing, law.lowest, law.highest = False, None, 0.0, -math.inf, math.inf
    law.dominating_mu = mu
    return law


def _split(law: Law, side: int) -> _SumLaw:
    """The law from above of the ratio dP/dQ of one step, for the mean of an increasing (side 1) or decreasing convex
    function: that of the measure from above of the loss in one direction."""
    low, high, step = _grid(law)
    measure, _ = enclosing_measures(law, step, step, _TAIL, low, high, upper_only=True)
    losses, masses = measure.losses(), measure.masses
    other = masses * np.exp(-losses)
    rest = max(0.0, 1 - math.fsum(other))
    error = measure.excess + 16 * UNIT * (1 + float(np.abs(losses).max()))
    if side > 0:
        if rest <= _ROUNDED:  # it moves to all other points in proportion, where an increasing function is larger
            error, rest = error + rest * (1 + 1e-6), 0.0
        return _on_grid(measure, float(losses[0]), other, error, zero=rest, infinity=measure.infinity_mass)
    return _on_grid(measure, -float(losses[-1]), masses[::-1], error, zero=measure.infinity_mass, infinity=rest)


def _on_grid(measure: Measure, start: float, masses: Floats, error: float, *, zero: float, infinity: float) -> _SumLaw:
    shift = 64 * UNIT * (1 + max(abs(start), abs(start + measure.step * masses.size)))
    first = round(start / measure.step)
    origin = start - first * measure.step
    return _SumLaw(
        first, measure.step, masses, error, shift, zero, infinity * math.exp(-origin) * (1 + 1e-15), None, origin
    )


def _merged(law: Law) -> _SumLaw:
    """The law from below of the ratio of one step: what lies around each point is merged, and the rest is left out."""
    low, high, step = _grid(law)
    count = max(4, math.ceil((high - low) / step) + 2)
    tails = law.tails(points(low - step / 2, step, count + 1))
    sides, errors = [], []
    for above, below, slack in (
        (tails.q_above, tails.q_below, tails.q_slack),
        (tails.p_above, tails.p_below, tails.p_slack),
    ):
        upper = above[:-1] <= below[1:]
        inside = np.maximum(np.where(upper, above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)
        size = np.where(upper, above[:-1], below[1:])
        with np.errstate(divide="ignore", invalid="ignore"):
            errors.append(((tails.error[:-1] + tails.error[1:] + 4 * UNIT) * size + slack) / inside)
        sides.append(inside)
    kept: Bools = (sides[0] > 0) & (sides[1] > 0) & (errors[0] < _UNSURE) & (errors[1] < _UNSURE)
    if not kept.any():
        raise ValueError("no mass of one step is known to enough digits")
    error = float(max(each[kept].max(initial=0.0) for each in errors)) + 16 * UNIT
    masses, moments = (np.where(kept, side, 0.0) for side in sides)
    first = round(low / step)
    origin = low - first * step
    ends = [mass * (1 - law.infinity_mass_error) for mass in (law.minus_infinity_mass, law.infinity_mass)]
    zero, infinity = ends[0], ends[1] * math.exp(-origin) * (1 - 1e-15)
    return _SumLaw(first, step, masses, error, 2 * error, zero, infinity, moments * math.exp(-origin), origin)


def _grid(law: Law) -> tuple[float, float, float]:
    """The ends of the losses of one step, beyond which P and Q have hardly any mass, and the distance of points."""
    low, high = law.support(_TAIL, _TAIL)
    middle = law.support(0.16, 0.16)
    if not law.upper_only:
        ends = law.swapped().support(_TAIL, _TAIL)
        low, high = min(low, -ends[1]), max(high, -ends[0])
    if max(-low, high) > _LARGEST_LOSS:
        raise ValueError(f"losses up to {max(-low, high):.4g} in one step are too large for random steps")
    spread = min((middle[1] - middle[0]) / 2, 2.0)
    least = max((high - low) / _MAX_POINTS, max(-low, high) / 1e5, 1e-9)
    if law.infinity_mass or law.minus_infinity_mass:  # sums with 0 stay where they are, beside others at log 2 and more
        least = max(least, 1 / _MAX_POINTS)
    return low, high, rounded_step(max(spread / _FINENESS, least))


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
    if factor * law.masses.size > _MOST_POINTS:
        raise ValueError("the losses of one step are too far from each other for random steps")

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
    if max(a.zero, b.zero) > _RARE:  # sums with 0 stay, others are log 2 further on
        length += math.log(2)
    while factor < _FINEST and spacing / factor > spread / _FINENESS and length / spacing * 2 * factor <= _MAX_POINTS:
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
    if max(a.zero, b.zero) > (0 if nearest else _RARE):  # where one sum is 0, the other stays where it is
        first = min(first, factor * min(a.first, b.first))
    size = factor * max(a.last, b.last) + int(offsets.max()) + 2 - first
    if size > _MOST_POINTS or differences.size > _MOST_POINTS:
        raise ValueError("the losses of one step are too close to each other for random steps")
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
        if at_zero and moments is not None:
            assert law.moments is not None
            start = factor * law.first - first
            to = slice(start, start + factor * (law.masses.size - 1) + 1, factor)
            masses[to] += at_zero * law.masses
            moments[to] += at_zero * law.moments
        elif at_zero:
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
    return _SumLaw(first, fine, masses, error, shift, zero, infinity, moments, a.origin)


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
