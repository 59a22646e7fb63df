"""Products of measures on one lattice, by FFT, with every error counted.

The masses of one mechanism are tilted to w_i ∝ p_i e^{λ a_i}, so that the losses that matter are the likely ones, and
normalised. Then Π F(w)^n is transformed back, and untilted. What is counted:

- rounding of the transforms: each output of an FFT of non-negative numbers that sum to 1 is off by at most
  8(log₂N + 1)u, since every output is a sum over all inputs along log₂N butterflies, each of which errs by less than 8u
  of the absolute values that enter it (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, Section 24.1,
  with u = 2⁻⁵³; a butterfly of radix r counts as log₂r of them);
- powers by repeated squaring: a complex product errs by √5u (Brent, Percival and Zimmermann 2007), so n of them by less
  than 2.3nu;
- what falls outside the window of N points: it wraps around, which only adds from above and is taken off from below,
  and on the right it counts as infinite from above. Its mass is bounded by Chernoff's inequality on the measures
  themselves, which holds for every exponent;
- rounding of the tilt, and the excess of each measure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.fft

from cupel.accounting.lattice_measure import LEAST, MOST_POINTS, Measure, TooFine, points
from cupel.accounting.laws import _EXP, UNIT, Floats

Counted = tuple[Measure, int]


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """Masses of a product of measures at start + k·step, tilted by e^{λ·loss} and normalised.

    Attributes:
        start, step: of the lattice; `start` is rounded, by at most `blur`.
        weights: float64 (N,), the tilted masses of the window as computed.
        error: each weight is off by at most this.
        outside: bound on the tilted mass outside the window, all of it wrapped into it.
        beyond: bound on the tilted mass to the right of the window.
        tilt: λ ≥ 0.
        log_total: log of what the weights were normalised by.
        certain: P-mass at infinity, a bound from the side that the product bounds from.
        excess: as for a measure.
        blur: how far losses may be off.
    """

    start: float
    step: float
    weights: Floats
    error: float
    outside: float
    beyond: float
    tilt: float
    log_total: float
    certain: float
    excess: float
    blur: float

    def losses(self) -> Floats:
        return points(self.start, self.step, self.weights.size)


def products(
    sides: Sequence[Sequence[Counted]], tilt: float, tail: float, slopes: tuple[float, float]
) -> list[Product]:
    """The product of each side's measures, all on windows of one size.

    Args:
        sides: for each side, measures with counts; all of its measures have the same step.
        tilt: λ ≥ 0.
        tail: the tilted mass that may lie outside the window.
        slopes: exponents, above 0, of Chernoff's bound to the left and to the right; any are valid.

    Raises:
        TooFine: where more than `MOST_POINTS` points would be needed.
    """
    tilted = [_tilted(side, tilt) for side in sides]
    windows = [_window(side, tail, slopes) for side in tilted]
    step = sides[0][0][0].step
    count = max(high - low for low, high, _, _ in windows) / step + 4
    if not count <= MOST_POINTS:
        raise TooFine(f"a product of {count:.3g} lattice points does not fit")
    size = scipy.fft.next_fast_len(max(int(count), 16), real=True)
    return [_product(side, tilt, window, size) for side, window in zip(tilted, windows, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class _Tilted:
    measure: Measure
    count: int
    losses: Floats
    weights: Floats
    log_mass: float
    excess: float


def _tilted(side: Sequence[Counted], tilt: float) -> list[_Tilted]:
    out = []
    for measure, count in side:
        some = np.flatnonzero(measure.masses)
        if not some.size:  # all of it is at infinity, from above; a little more changes nothing
            measure = replace(measure, masses=np.full(1, LEAST))
            some = np.zeros(1, dtype=np.intp)
        first, last = int(some[0]), int(some[-1]) + 1
        begin = measure.start + measure.step * first
        measure = Measure(begin, measure.step, measure.masses[first:last], measure.certain, measure.excess)
        losses = measure.losses()
        top = tilt * float(losses[-1])
        weights = measure.masses * np.exp(tilt * losses - top)
        total = float(weights.sum())
        if total < 1e-280:
            with np.errstate(divide="ignore"):
                logs = tilt * losses + np.log(measure.masses)
            top = float(logs.max())
            weights = np.exp(logs - top)
            total = float(weights.sum())
        far = max(abs(float(losses[0])), abs(float(losses[-1])))
        rounding = 8 * _EXP + 16 * UNIT * (tilt * far + abs(top) + 4)
        excess = rounding + measure.excess
        out.append(_Tilted(measure, count, losses, weights / total, math.log(total) + top, excess))
    return out


def _window(side: Sequence[_Tilted], tail: float, slopes: tuple[float, float]) -> tuple[float, float, float, float]:
    """Losses between which all but `tail` of the tilted product lies, and Chernoff bounds of the mass on each side."""
    ends = []
    # The sum of n copies cannot leave n times the support, so a product of few needs no wide window.
    low = sum(part.count * part.measure.start for part in side)
    high = sum(part.count * float(part.losses[-1]) for part in side)
    room = math.log(2 / tail)
    for sign, slope, last in ((-1, slopes[0], low), (1, slopes[1], high)):
        log_moment = _log_moment(side, sign * slope)
        end = sign * (log_moment + room) / slope
        if sign * (end - last) >= 0:
            ends.append((last, 0.0))
        else:
            # The rounding of the moments, each a sum of as many terms as there are weights.
            rounding = UNIT * sum(part.count * (part.weights.size + 64 + 8 * slope * _far(part)) for part in side)
            rounding += 8 * UNIT * slope * abs(end)
            ends.append((end, math.exp(min(0.0, rounding + 1e-9 - room))))
    return ends[0][0], ends[1][0], ends[0][1], ends[1][1]


def _far(part: _Tilted) -> float:
    return max(abs(float(part.losses[0])), abs(float(part.losses[-1])))


def _log_moment(side: Sequence[_Tilted], slope: float) -> float:
    """Σ n log E e^{slope·loss} of the tilted measures."""
    total = 0.0
    for part in side:
        heights = slope * part.losses
        top = max(float(heights[0]), float(heights[-1]))
        mean = float(part.weights @ np.exp(heights - top))
        if mean < 1e-280:  # or what underflows would count
            with np.errstate(divide="ignore"):
                heights = heights + np.log(part.weights)
            top = float(heights.max())
            mean = float(np.exp(heights - top).sum())
        total += part.count * (top + math.log(mean))
    return total


def _product(side: Sequence[_Tilted], tilt: float, window: tuple[float, float, float, float], size: int) -> Product:
    low, _, left, right = window
    step = side[0].measure.step
    start = math.fsum(part.count * part.measure.start for part in side)
    first = math.floor((low - start) / step) - 1  # so that the curve bends nowhere left of the first point but one
    weights, error = _convolved(side, size)
    total = sum(part.count for part in side)
    log_total = math.fsum(part.count * part.log_mass for part in side)
    log_excess = math.fsum(part.count * math.log1p(part.excess) for part in side) * (1 + 4 * UNIT)
    excess = math.expm1(log_excess) if log_excess < 600 else 1e300
    finite = math.fsum(part.count * math.log(float(part.measure.masses.sum())) for part in side)
    more = math.fsum(part.count * math.log1p(part.measure.certain / float(part.measure.masses.sum())) for part in side)
    excess += (4 * _EXP + 4 * UNIT * (total + sum(part.measure.masses.size for part in side))) * min(more, 1.0)
    return Product(
        start=start + first * step,
        step=step,
        weights=np.roll(weights, -(first % size)),
        error=error,
        outside=left + right,
        beyond=right,
        tilt=tilt,
        log_total=log_total,
        certain=math.exp(finite) * math.expm1(more) if max(more, finite) < 600 else math.inf,
        excess=excess,
        blur=8 * UNIT * (math.fsum(part.count * abs(part.measure.start) for part in side) + (abs(first) + size) * step),
    )


def _convolved(side: Sequence[_Tilted], size: int) -> tuple[Floats, float]:
    """The cyclic convolution of all weights with their counts, and a bound on the error of each element."""
    rows = max(-(-part.weights.size // size) for part in side)  # summed when the weights are folded
    if len(side) == 1 and side[0].count == 1:
        weights = _folded(side[0].weights, size)
        return weights, float(weights.max()) * rows * UNIT if rows > 1 else 0.0
    transform_error = (8 * (math.log2(size) + 1) + rows) * UNIT
    spectra = [scipy.fft.rfft(_folded(part.weights, size)) for part in side]
    sizes = [np.abs(spectrum) for spectrum in spectra]
    # Where one factor is below e^−70 so is the product, since no factor is above 1 by more than its error.
    keep = np.ones(size // 2 + 1, dtype=bool)
    for part, magnitude in zip(side, sizes, strict=True):
        keep &= magnitude > math.exp(-70 / part.count) - transform_error
    powered = np.zeros(keep.size, dtype=np.complex128)
    powered[keep] = 1
    growth = np.zeros(int(keep.sum()))
    for part, spectrum, magnitude in zip(side, spectra, sizes, strict=True):
        powered[keep] *= _power(spectrum[keep], part.count)
        growth += part.count * np.log1p(transform_error / magnitude[keep])
    count = sum(part.count for part in side)
    absolute = np.abs(powered)
    error = np.full(keep.size, math.exp(-70 + 2 * count * transform_error))
    with np.errstate(over="ignore"):
        error[keep] = absolute[keep] * (np.expm1(growth) + 2.3 * (count + len(side)) * UNIT)
    both = np.full(powered.size, 2.0)
    both[0] = 1.0
    if size % 2 == 0:
        both[-1] = 1.0
    mean_size, mean_error = float(both @ absolute) / size, float(both @ error) / size
    weights = scipy.fft.irfft(powered, size)
    return weights, (mean_error + transform_error * mean_size) * (1 + 2 * size * UNIT)


def _folded(weights: Floats, size: int) -> Floats:
    """`weights` modulo `size`."""
    if weights.size <= size:
        return np.append(weights, np.zeros(size - weights.size))
    pad = -weights.size % size
    return np.asarray(np.append(weights, np.zeros(pad)).reshape(-1, size).sum(axis=0))


def _power(base: np.ndarray, count: int) -> np.ndarray:
    result = None
    while True:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if not count:
            return base if result is None else result
        base = base * base
