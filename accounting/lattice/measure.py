"""Measures on a lattice of losses that bound a law from above and from below.

A measure has masses p_i ≥ 0 at losses start + i·step and a mass at infinity. Its curve is g(t) = p_∞ + Σ p_i
(1 − t e^{−a_i})₊. If g ≥ H for every t ≥ 0 it bounds the law from above, if g ≤ H from below, and so do products.
Masses are checked after they are computed; what rounding misses is charged to a relative `excess`.

Proof: docs/proofs/lattice.md, Theorems 2 to 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpassay.accounting.lattice.laws import _EXP, UNIT, Law, Remainder, Tails, threshold_set_values
from dpassay.base.arrays import Floats
from dpassay.base.errors import DpassayError

MAX_POINTS = 1 << 21
"""The most lattice points of a law or a product: 16 MiB per array, of which about a dozen are in memory at once."""


_NEAR_END = np.concatenate([np.arange(65) / 64, np.arange(2.0, 9.0)])
_BLOCK = 128
_WIDEST_LOG = 600.0  # e^{±300} times a mass of at least MIN_MASS does not underflow
MIN_MASS = 1e-150
"""Smaller masses are dropped in lower bounds and raised to this in upper bounds, so that none underflows."""


class TooManyPoints(DpassayError):
    """More than `MAX_POINTS` lattice points would be needed; use a larger step."""


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """Masses at start + i·step, and at infinity."""

    start: float  # start and step: floats such that start + i·step is exact for every i of the lattice
    step: float
    masses: Floats  # float64 (N,), at least 0
    infinity_mass: float  # the mass at infinity
    excess: float  # (1 + excess) times this measure bounds the law from above, or (1 − excess) times it from below

    def losses(self) -> Floats:
        """The losses of the masses, float64 (N,)."""
        return points(self.start, self.step, self.masses.size)


def points(start: float, step: float, count: int) -> Floats:
    """start + i·step for i below `count`."""
    return np.asarray(start + step * np.arange(count), dtype=np.float64)


def rounded_step(step: float, *, up: bool = False) -> float:
    """A little less than `step`, or a little more, with 30 significant bits, so that its first 2²³ multiples are exact.

    It differs by at least 2⁻³⁰ of the power of two above it, more than the rounding of a start.
    """
    mantissa, exponent = math.frexp(step)
    integer = math.floor(math.ldexp(mantissa, 30)) + 2 if up else math.ceil(math.ldexp(mantissa, 30)) - 2
    return math.ldexp(integer, exponent - 30)


def rounded_start(start: float, step: float, *, up: bool) -> float:
    """`start` rounded to a multiple of about 2⁻³⁰ of `step`, so that start + i·step is exact below 2²³·step."""
    grid = math.ldexp(1.0, math.frexp(step)[1] - 30)
    return (math.ceil(start / grid) if up else math.floor(start / grid)) * grid


def enclosing_measures(
    law: Law,
    step: float,
    upper_step: float,
    tail: float,
    low: float,
    high: float,
    delta: float = 1.0,
    *,
    upper_only: bool = False,
) -> tuple[Measure, Measure | None]:
    """Measures that bound a law from above and from below; the second is None if it is not wanted or not known.

    Args:
        law: the law.
        step: the distance of lattice points, from `rounded_step`.
        upper_step: that of the upper measure. It equals `step`, except for laws of atoms only: there it is a little
            larger than the atoms' spacing, and `step` a little smaller. An atom just below a point costs nothing from
            above, and one just above a point costs nothing from below.
        tail: mass that may be moved to infinity in the upper measure because of rounding.
        low, high: losses that the lattice should cover. Mass below `low` is merged into the first point. Finite mass
            above `high` is moved to infinity in the upper measure and merged into the last point in the lower one.
        delta: roughly the product's curve where it matters: what a relative error of 1 costs there.
        upper_only: only the upper measure is wanted.

    Raises:
        TooManyPoints: if the lattice is too fine.
    """
    high = max(high, low + step)
    anchor, up = (0.0, True) if upper_only and law.atom is None else _anchored_loss(law, step)
    begin = rounded_start(anchor - math.ceil((anchor - low) / step) * step, step, up=up)
    count = max(4, math.ceil((high - begin) / step) + 2)
    if count > MAX_POINTS:
        raise TooManyPoints(f"a law on {count:.3g} lattice points does not fit")
    if max(abs(begin), abs(begin + count * step)) > 2.0**22 * step:
        raise TooManyPoints(f"losses of {begin:.3g} are not exact in steps of {step:.3g}")
    if law.upper_only:
        return _upper_measure_of_curve(law, begin, step, count, tail), None
    lower_begin = begin - step / 2
    below = None
    if not upper_only or law.atom is None:
        _, curve, tails = law.hockey_stick(cell_ends(law, lower_begin, step, count + 1))
    if not upper_only:
        below = _lower_measure(law, tails, begin, step, tail, delta)
    if law.atom is None:
        return _upper_measure(law, tails, curve, lower_begin, step, tail), below
    # Atoms are points of both lattices, so the upper measure needs thresholds of its own.
    begin = rounded_start(begin, upper_step, up=True)
    _, curve, tails = law.hockey_stick(points(begin, upper_step, count))
    return _upper_measure(law, tails, curve, begin, upper_step, tail), below


def cell_ends(law: Law, begin: float, step: float, count: int) -> Floats:
    """The ends of the cells of the lower measure: halfway between its points, with own cells for atoms at finite ends.

    Otherwise the last atom's cell, with its neighbouring mass, would have a ratio P/Q below its point, and the whole
    cell would count one step lower.
    """
    ends = points(begin, step, count)
    if law.atom is None or law.discrete or law.highest - law.lowest < step:  # both ends may be in one cell
        return ends
    for end, side in ((law.lowest, 1), (law.highest, -1)):
        if not math.isfinite(end):
            continue
        margin = 1e-6 * step + 4 * law.end_error + 1e-12 * (1 + abs(end))
        index = round((end - begin) / step - 0.5)  # index of the lattice point at the atom
        if 0 <= index < count - 1 and margin < step / 4 and abs(begin + (index + 0.5) * step - end) < step / 8:
            ends[index + (side > 0)] = end + side * margin
    return ends


def _anchored_loss(law: Law, step: float) -> tuple[float, bool]:
    """A loss that should be a lattice point, and whether it should be rounded up rather than down.

    It is an atom, or the mean loss of the cell at a finite end of the law. Near such an end much of the mass may be in
    one cell; if the merged cell's ratio P/Q is a lattice point, merging is its only cost from below. The lower lattice
    needs its first point at or above the first cell's ratio, and its last point at or below the last cell's ratio.
    """
    if law.atom is not None:
        if law.lowest == law.highest:  # a single loss is also the last point, so it must be rounded down
            return law.atom - 64 * UNIT * (1 + abs(law.atom)), False
        return law.atom, True
    if math.isfinite(law.lowest) and (edge := _mean_loss_at_end(law, law.lowest, step, 1)) is not None:
        return edge, True
    if math.isfinite(law.highest) and (edge := _mean_loss_at_end(law, law.highest, step, -1)) is not None:
        return edge, False
    return 0.0, True


def _mean_loss_at_end(law: Law, end: float, step: float, side: int) -> float | None:
    """A loss a within a few steps of the end, with log P/Q = a for the losses between the end and a + side·step/2."""
    steps = _NEAR_END
    for _ in range(2):
        points = end + side * step * steps
        tails = law.tails(points + side * step / 2 if side > 0 else (points + side * step / 2)[::-1])
        p, q = (tails.p_below, tails.q_below) if side > 0 else (tails.p_above[::-1], tails.q_above[::-1])
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = side * (np.log(p) - np.log(q) - points)
        inside = np.flatnonzero(excess < 0)
        if not inside.size or inside[0] == 0:
            return None
        low, high = float(steps[inside[0] - 1]), float(steps[inside[0]])
        if high - low < 1 / 32:
            break
        steps = low + (high - low) * _NEAR_END[:65]
    return end + side * step * high


def _cells(tails: Tails) -> tuple[Floats, Floats]:
    """P and Q of (b_i, b_{i+1}]."""
    return _between(tails.p_above, tails.p_below), _between(tails.q_above, tails.q_below)


def _between(above: Floats, below: Floats) -> Floats:
    """The mass between neighbouring thresholds, as a difference on the side where the masses are smaller."""
    return np.maximum(np.where(above[:-1] <= below[1:], above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)


def _set_excess(
    remainder: Remainder | None, rest: Floats | None, p: Floats, q: Floats, scale: Floats, t_minus_w: Floats | None
) -> Floats:
    """P − tQ of sets, t = `scale`; from R of the same sets, `rest`, if one law is a mixture with the other."""
    if remainder is None or rest is None or t_minus_w is None:
        return p - q * scale
    return rest - t_minus_w * q if remainder.of_p else scale * (t_minus_w * p - rest)


def _upper_measure(law: Law, tails: Tails, curve: Floats, start: float, step: float, tail: float) -> Measure:
    """Connect the dots: each cell's mass goes to its two ends, such that the curve at the ends does not change.

    Source: Doroshenko et al., "Connect the Dots: Tighter Discrete Approximations of Privacy Loss Distributions" (2022).
    """
    p, q = _cells(tails)
    losses = points(start, step, curve.size)
    remainder = tails.remainder
    rest = None if remainder is None else _between(remainder.above, remainder.below)
    t_minus_w = None if remainder is None else remainder.t_minus_w(losses[:-1])[0]
    right = _set_excess(remainder, rest, p, q, np.exp(losses[:-1]), t_minus_w) / -math.expm1(-step)
    right = np.minimum(np.maximum(right, 0.0), p)
    masses = np.zeros(curve.size)
    masses[:-1] = p - right
    masses[1:] += right
    masses[0] += tails.p_below[0]
    return _certified_upper(law, masses, float(tails.p_above[-1]) + tails.p_slack, curve, start, step, tail)


def _upper_measure_of_curve(law: Law, start: float, step: float, count: int, tail: float) -> Measure:
    """The least convex curve through upper bounds at the lattice points; it bounds the convex H from above."""
    from scipy.optimize import isotonic_regression

    losses = points(start, step, count)
    curve = np.minimum.accumulate(law.hockey_stick_upper(losses))
    t = np.exp(np.minimum(losses - losses[0], 690.0))
    gaps = np.maximum(np.diff(t, prepend=0.0), 1e-290)
    slopes = -np.diff(curve, prepend=1.0) / gaps
    slopes = np.append(isotonic_regression(slopes, weights=gaps, increasing=False).x, 0.0)
    masses = np.maximum(-np.diff(slopes), 0.0) * t
    # Between two points with mass the measure's curve is a chord, so it has to be checked at such points only.
    kinks = (masses > 0) | (np.arange(count) == count - 1)
    return _certified_upper(law, masses, float(curve[-1]), np.where(kinks, curve, 0.0), start, step, tail)


def _certified_upper(
    law: Law, masses: Floats, infinity_mass: float, curve: Floats, start: float, step: float, tail: float
) -> Measure:
    """The measure whose mass at infinity, last mass and excess cover what rounding left below `curve`."""
    values, error = hockey_stick_of_masses(masses, start, step)
    values = values * (1 - error)
    missing = curve - values
    # First, a small part of what is missing is added at infinity.
    small = (missing <= tail / 8) | (curve <= 1e5 * tail)
    infinity_mass = max(infinity_mass, float(curve[-1]), float(np.where(small, missing, 0.0).max()))
    # The error of sums in which products with e^{±300} underflow to multiples of 5e-324.
    infinity_mass += masses.size * 1e-322 * math.exp(min(masses.size * step, _WIDEST_LOG) / 2)
    missing = missing - infinity_mass
    # Second, near a finite end, where the curve is as small as its rounding, a little mass is added at the last point.
    bad = np.flatnonzero(missing > 1e-11 * curve)
    if bad.size and math.isfinite(law.highest):
        lifts = -np.expm1(step * (bad - (masses.size - 1.0)))
        mass = float((missing[bad] / np.maximum(lifts, 1e-3 * step)).max())
        if mass < min(1e-6, float((missing[bad] / curve[bad]).max())):
            masses = masses.copy()
            masses[-1] += mass
            values = hockey_stick_of_masses(masses, start, step)[0] * (1 - error)
    # Third, what is still missing becomes a relative excess.
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(curve == 0, 0.0, curve / (values + infinity_mass))
    total = (block_sum(masses) + infinity_mass) * (1 - (_BLOCK + 4) * UNIT)
    worst = float(ratio.max())
    excess = math.inf if math.isnan(worst) else max(0.0, worst - 1, 1 / total - 1) + 8 * UNIT
    return Measure(start, step, masses, infinity_mass, excess)


def hockey_stick_of_masses(masses: Floats, start: float, step: float) -> tuple[Floats, float]:
    """Σ_{j>i} p_j (1 − e^{−(j−i)·step}) for every i, and a bound on its relative error.

    With C_i = Σ_{j>i} p_j e^{−(j−i)·step} it is the sum of (e^step − 1)·C_k over k ≥ i. All terms are positive, so the
    errors of the two running sums add up.
    """
    count = masses.size
    if count * step < _WIDEST_LOG:
        losses = step * (np.arange(count) - count / 2)
        sums, error = suffix_sums(masses * np.exp(-losses))
        inner = np.append(sums[1:], 0.0) * np.exp(losses)
    else:
        from scipy.signal import lfilter

        decay, error = math.exp(-step), (7 * count + 96) * UNIT
        inner = lfilter([decay], [1.0, -decay], np.append(masses[1:], 0.0)[::-1])[::-1]
    values, more = suffix_sums(inner * math.expm1(step))
    return values, error + more + 32 * UNIT


def suffix_sums(terms: Floats) -> tuple[Floats, float]:
    """Σ_{j≥i} x_j of terms x ≥ 0 for every i, and a bound on its relative error.

    Summed within blocks, then over the blocks' totals: a sum of 10⁶ terms goes through some 400 additions, not 10⁶.
    """
    rising, error = _prefix_sums(terms[::-1])
    return rising[::-1], error


def _prefix_sums(terms: Floats) -> tuple[Floats, float]:
    if terms.size <= 2 * _BLOCK:
        return np.cumsum(terms), terms.size * UNIT
    blocks = np.append(terms, np.zeros(-terms.size % _BLOCK)).reshape(-1, _BLOCK)
    inside = np.cumsum(blocks, axis=1)
    before, error = _prefix_sums(inside[:, -1])
    inside[1:] += before[:-1, None]
    return inside.ravel()[: terms.size], error + (_BLOCK + 1) * UNIT


def block_sum(terms: Floats) -> float:
    """The sum of terms, to (_BLOCK + 2)u of their absolute values: only sums within blocks are rounded."""
    blocks = np.append(terms, np.zeros(-terms.size % _BLOCK)).reshape(-1, _BLOCK)
    return math.fsum(blocks.sum(axis=1))


def _lower_measure(law: Law, tails: Tails, start: float, step: float, tail: float, delta: float) -> Measure:
    """Two tangents per cell: the curve at t_i = e^{a_i} is the smaller of the lines of the two ends of a_i's cell.

    If a mass is negative the curve is not convex, and its greatest convex minorant is taken.

    Proof: docs/proofs/lattice.md, Theorem 4, with e_i, α and β as there.
    """
    p, q = _cells(tails)
    count = p.size
    losses = points(start, step, count)
    scale, remainder = np.exp(losses), tails.remainder
    rest = None if remainder is None else _between(remainder.above, remainder.below)
    # Merge cells on the left until the merged ratio is at most its point, and on the right until it is at least that.
    q_below = np.maximum(tails.q_below - law.minus_infinity_mass, 0.0)
    p_above = tails.p_above - law.infinity_mass
    fits = np.flatnonzero((p_above[:-1] > 0) & (p_above[:-1] >= scale * tails.q_above[:-1]))
    last = int(fits[-1]) if fits.size else count - 1
    fits = np.flatnonzero((tails.p_below[1:] > 0) & (tails.p_below[1:] <= scale * q_below[1:]))
    first = min(int(fits[0]), last) if fits.size else 0
    # What is merged on the left may have losses so far below the first point that it costs more than it holds.
    merged_p, merged_q = (
        (1 - law.infinity_mass, 1 - law.minus_infinity_mass)
        if first == last
        else (tails.p_below[first + 1], q_below[first + 1])
    )
    dropped = bool(merged_q * scale[first] > 2 * merged_p)
    if not dropped:
        p[first], q[first] = merged_p, merged_q
    if dropped or first < last:
        p[last], q[last] = p_above[last], tails.q_above[last]
    if remainder is not None and rest is not None:
        # Only finite losses of the remainder are merged.
        infinity_mass, minus_infinity_mass = (
            (law.infinity_mass, 0.0) if remainder.of_p else (0.0, law.minus_infinity_mass)
        )
        rest[last] = remainder.above[last] - infinity_mass
        if not dropped:
            rest[first] = (
                remainder.mass - infinity_mass - minus_infinity_mass
                if first == last
                else remainder.below[first + 1] - minus_infinity_mass
            )
    inside = slice(first, last + 1)
    p, q, losses, scale = p[inside], q[inside], losses[inside], scale[inside]
    t_minus_w = None if remainder is None else remainder.t_minus_w(losses)
    excess = _set_excess(
        remainder, None if rest is None else rest[inside], p, q, scale, None if t_minus_w is None else t_minus_w[0]
    )
    over, under = np.maximum(excess, 0.0), np.maximum(-excess, 0.0)
    masses = p + (np.append(0.0, over[1:]) - np.append(over[1:], 0.0)) / math.expm1(step)
    masses += (under - np.append(0.0, under[:-1])) / -math.expm1(-step)
    if float(np.minimum(masses, 0.0).sum()) < -1e-3 * tail:
        masses = convex_minorant(masses, losses)
    else:
        masses = np.maximum(masses, 0.0)
    return _certified_lower(law, masses, tails[first : last + 2], losses, t_minus_w, step, tail, delta, dropped=dropped)


def convex_minorant(masses: Floats, losses: Floats) -> Floats:
    """The masses of the greatest convex minorant of a curve whose masses may be negative.

    Negative masses are mostly among the last cells, so a suffix of the curve is tried first. If its first piece keeps
    its slope, nothing to the left changes; otherwise the suffix is doubled.
    """
    from scipy.optimize import isotonic_regression

    first = max(int(np.argmax(masses < 0)) - 64, 0)
    while True:
        t = np.exp(np.minimum(losses[first:] - losses[first], 690.0))
        slopes = np.cumsum((masses[first:] / t)[::-1])[::-1]  # on the piece left of each point
        level = isotonic_regression(slopes, weights=np.maximum(np.diff(t, prepend=0.0), 1e-290), increasing=False).x
        changed = level != slopes
        if not first or not changed[:2].any():
            break
        first = max(2 * first - masses.size, 0)
    new = np.maximum(level - np.append(level[1:], 0.0), 0.0) * t
    kept = np.maximum(masses[first:], 0.0)
    return np.append(masses[:first], np.where(changed | np.append(changed[1:], False), new, kept))


def _certified_lower(
    law: Law,
    masses: Floats,
    lines: Tails,
    losses: Floats,
    t_minus_w: tuple[Floats, Floats] | None,
    step: float,
    tail: float,
    delta: float,
    *,
    dropped: bool,
) -> Measure:
    """The measure whose excess puts every piece of its curve under a line.

    Far to the right, where lines are as small as their rounding, masses are dropped instead. If `dropped`, losses below
    the first cell are left out of the masses, not merged into it.
    """
    allowed = np.full(losses.size, math.inf)
    for index in (slice(0, -1), slice(1, None)):  # the lines of both ends of a point's cell
        middle, room, _ = threshold_set_values(lines[index], losses, t_minus_w)
        if index.start == 0 and not dropped:  # left of the first point it is the line of the set where P is positive
            minus_infinity_mass = law.minus_infinity_mass * math.exp(losses[0])
            middle[0] = minus_infinity_mass - math.expm1(losses[0])
            room[0] = 64 * UNIT * minus_infinity_mass + 4 * _EXP * abs(math.expm1(losses[0]))
        else:  # right of the last point the curve is constant
            middle[-1], room[-1] = math.inf, 0.0
        allowed = np.minimum(allowed, middle - room)
    infinity_mass = law.infinity_mass * (1 - law.infinity_mass_error)
    # The curve at t = 0 is the sum of all masses, and the first line is there the probability of its set.
    whole = float(lines.p_above[0] * (1 - lines.error[0])) if dropped else 1.0
    masses = np.where(masses < MIN_MASS, 0.0, masses)
    excess = 1.0
    for _ in range(5):
        values, error = hockey_stick_of_masses(masses, float(losses[0]), step)
        values = (values + infinity_mass) * (1 + error)
        with np.errstate(divide="ignore", invalid="ignore"):
            missing = np.where(values > 0, 1 - allowed / values, np.where(allowed < 0, math.inf, 0.0))
            missing[np.isnan(missing)] = math.inf
        total = block_sum(masses) + infinity_mass
        excess = max(0.0, float(missing.max()), 1 - whole / total if total > whole else 0.0) + (_BLOCK + 8) * UNIT
        bad = np.flatnonzero(missing > 1e-12)
        if not bad.size:
            break
        worst, last = float(missing.max()), int(np.flatnonzero(masses)[-1]) if masses.any() else 0
        masses = masses.copy()
        with np.errstate(divide="ignore", invalid="ignore"):
            less = float(((values - allowed)[bad] / -np.expm1(step * (bad - float(last)))).max()) * (1 + 1e-9)
        if math.isfinite(law.highest) and worst < 1 and int(bad[-1]) < last and less < min(worst, float(masses[last])):
            masses[last] -= less  # near a finite end, a little less mass at the last point is enough
            continue
        # Otherwise masses are dropped from the point on where they are less than what keeping them costs the others.
        beyond = np.append(np.cumsum(masses[::-1])[::-1][1:], 0.0)
        kept = delta * np.maximum.accumulate(missing)
        cost = kept + np.where(allowed >= infinity_mass, beyond, math.inf)
        cut = int(np.argmin(np.where(beyond <= tail, kept + 1e-3 * beyond, cost)))
        if not masses[cut + 1 :].any():
            break
        masses[cut + 1 :] = 0.0
    return Measure(float(losses[0]), step, masses, infinity_mass, min(excess, 1.0))
