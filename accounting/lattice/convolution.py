"""Products of measures on one lattice, by FFT, with every error counted.

The masses of one mechanism are tilted to w_i ∝ p_i e^{λ a_i}, so that the losses that matter are the likely ones, and
normalised. Then Π F(w)^n is transformed back and untilted. Counted are the rounding of the transforms, of the powers
and of the tilt, the mass outside the window of N points, and the excess of each measure. If the error of powers by
repeated squaring is too large, powers are taken of F relative to the likeliest cell (`convolved_by_logarithm`).

Proof: docs/proofs/lattice.md, Theorems 2, 5 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.fft

from dpassay.accounting.lattice.laws import _EXP, UNIT
from dpassay.accounting.lattice.measure import (
    MAX_POINTS,
    MIN_MASS,
    Measure,
    TooManyPoints,
    block_sum,
    points,
    suffix_sums,
)
from dpassay.base.arrays import Bools, Complexes, Floats

Counted = tuple[Measure, int]

_MANY = 64
"""From this many copies on, a power may be taken by log F: wherever F^n matters, |F| is then above 1/3."""


@dataclass(frozen=True, slots=True, eq=False)
class LatticeProduct:
    """Masses of a product of measures at start + k·step, tilted by e^{λ·loss} and normalised."""

    start: float  # start and step: of the lattice; `start` is rounded by at most `blur`
    step: float
    weights: Floats  # float64 (N,), the tilted masses of the window as computed
    error: float  # absolute error of each weight
    outside: float  # bound on the tilted mass outside the window, all of which wraps into it
    beyond: float  # bound on the tilted mass to the right of the window
    tilt: float  # λ ≥ 0
    log_total: float  # log of the normalising constant of the weights
    infinity_mass: float  # P-mass at infinity, a bound from the product's side
    excess: float  # as for a measure
    blur: float  # error of the losses
    floor: float = -math.inf  # the loss from which on the weights hold
    missing: float = 0.0  # bound on the tilted mass above `floor` that the weights do not contain

    def losses(self) -> Floats:
        """The losses of the weights, float64 (N,)."""
        return points(self.start, self.step, self.weights.size)


def products(
    sides: Sequence[Sequence[Counted]],
    tilt: float,
    tail: float,
    slopes: tuple[float, float],
    focus: float = -math.inf,
) -> list[LatticeProduct]:
    """The product of each side's measures, all on windows of one size.

    Args:
        sides: for each side, measures with counts; all of its measures have the same step.
        tilt: λ ≥ 0.
        tail: the tilted mass that may lie outside the window.
        slopes: exponents, above 0, of Chernoff's bound to the left and to the right; any are valid.
        focus: the loss from which on the product is wanted.
    """
    tilted = [_tilted(side, tilt) for side in sides]
    windows = [_window(side, tail, slopes) for side in tilted]
    step = sides[0][0][0].step
    count = max(high - low for low, high, _, _ in windows) / step + 4
    if not count <= MAX_POINTS:
        raise TooManyPoints(f"a product of {count:.3g} lattice points does not fit")
    size = scipy.fft.next_fast_len(max(int(count), 16), real=True)
    return [_product(side, tilt, tail, window, size, focus) for side, window in zip(tilted, windows, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class Tilted:
    measure: Measure
    count: int
    losses: Floats
    weights: Floats
    log_mass: float
    excess: float


def _tilted(side: Sequence[Counted], tilt: float) -> list[Tilted]:
    out = []
    for measure, count in side:
        some = np.flatnonzero(measure.masses)
        if not some.size:  # an upper measure with all mass at infinity; add a negligible finite mass
            measure = replace(measure, masses=np.full(1, MIN_MASS))
            some = np.zeros(1, dtype=np.intp)
        first, last = int(some[0]), int(some[-1]) + 1
        begin = measure.start + measure.step * first
        measure = Measure(begin, measure.step, measure.masses[first:last], measure.infinity_mass, measure.excess)
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
        out.append(Tilted(measure, count, losses, weights / total, math.log(total) + top, excess))
    return out


def _window(side: Sequence[Tilted], tail: float, slopes: tuple[float, float]) -> tuple[float, float, float, float]:
    """Losses between which all but `tail` of the tilted product lies, and Chernoff bounds on the mass on each side."""
    ends = []
    # The sum of n copies stays within n times the support, so a product of few copies needs no wide window.
    low = sum(part.count * part.measure.start for part in side)
    high = sum(part.count * float(part.losses[-1]) for part in side)
    room = math.log(2 / tail)
    for sign, slope, last in ((-1, slopes[0], low), (1, slopes[1], high)):
        log_moment = _log_moment(side, sign * slope)
        end = sign * (log_moment + room) / slope
        if sign * (end - last) >= 0:
            ends.append((last, 0.0))
        else:
            # The rounding of the moments, each a sum with one term per weight.
            rounding = UNIT * sum(part.count * (part.weights.size + 64 + 8 * slope * _far(part)) for part in side)
            rounding += 8 * UNIT * slope * abs(end)
            ends.append((end, math.exp(min(0.0, rounding + 1e-9 - room))))
    return ends[0][0], ends[1][0], ends[0][1], ends[1][1]


def _far(part: Tilted) -> float:
    return max(abs(float(part.losses[0])), abs(float(part.losses[-1])))


def _log_moment(side: Sequence[Tilted], slope: float) -> float:
    """Σ n log E e^{slope·loss} of the tilted measures."""
    total = 0.0
    for part in side:
        heights = slope * part.losses
        top = max(float(heights[0]), float(heights[-1]))
        mean = float(part.weights @ np.exp(heights - top))
        if mean < 1e-280:  # underflow would matter
            with np.errstate(divide="ignore"):
                heights = heights + np.log(part.weights)
            top = float(heights.max())
            mean = float(np.exp(heights - top).sum())
        total += part.count * (top + math.log(mean))
    return total


def _product(
    side: Sequence[Tilted],
    tilt: float,
    tail: float,
    window: tuple[float, float, float, float],
    size: int,
    focus: float,
) -> LatticeProduct:
    low, _, left, right = window
    step = side[0].measure.step
    start = math.fsum(part.count * part.measure.start for part in side)
    first = math.floor((low - start) / step) - 1  # the curve has no kink left of the second point
    weights, error = convolved(side, size)
    floor, missing, scale_error = -math.inf, 0.0, 0.0
    # After untilting, the errors of about 1/(λ·step) elements add up.
    if error * min(size, 1 / max(tilt * step, 1e-9)) > tail and max(part.count for part in side) >= _MANY:
        by_logarithm = convolved_by_logarithm(side, size, focus - 2 * step, tail)
        if by_logarithm.error < error:
            weights, error, scale_error, floor, missing = by_logarithm
    total = sum(part.count for part in side)
    log_total = math.fsum(part.count * part.log_mass for part in side)
    log_excess = math.fsum(part.count * math.log1p(part.excess) for part in side) * (1 + 4 * UNIT)
    log_excess += scale_error
    excess = math.expm1(log_excess) if log_excess < 600 else 1e300
    finite = math.fsum(part.count * math.log(float(part.measure.masses.sum())) for part in side)
    more = math.fsum(
        part.count * math.log1p(part.measure.infinity_mass / float(part.measure.masses.sum())) for part in side
    )
    excess += (4 * _EXP + 4 * UNIT * (total + sum(part.measure.masses.size for part in side))) * min(more, 1.0)
    return LatticeProduct(
        start=start + first * step,
        step=step,
        weights=np.roll(weights, -(first % size)),
        error=error,
        outside=left + right,
        beyond=right,
        tilt=tilt,
        log_total=log_total,
        infinity_mass=math.exp(finite) * math.expm1(more) if max(more, finite) < 600 else math.inf,
        excess=excess,
        blur=8 * UNIT * (math.fsum(part.count * abs(part.measure.start) for part in side) + (abs(first) + size) * step),
        floor=floor,
        missing=missing,
    )


def convolved(side: Sequence[Tilted], size: int) -> tuple[Floats, float]:
    """The cyclic convolution of all weights with their counts, and a bound on the error of each element."""
    rows = max(-(-part.weights.size // size) for part in side)  # rows that are summed when weights are folded
    if len(side) == 1 and side[0].count == 1:
        weights = _folded(side[0].weights, size)
        return weights, float(weights.max()) * rows * UNIT if rows > 1 else 0.0
    transform_error = _transform_error(size, rows)
    spectra = [scipy.fft.rfft(_folded(part.weights, size)) for part in side]
    sizes = [np.abs(spectrum) for spectrum in spectra]
    # If one factor is below e^−70, so is the product, since no factor exceeds 1 by more than its error.
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
    return _transformed_back(powered, error, size)


def _transform_error(size: int, rows: int) -> float:
    """The error of an output of a transform of non-negative numbers that sum to 1."""
    return (8 * (math.log2(size) + 1) + rows) * UNIT


def _transformed_back(powered: Complexes, error: Floats, size: int) -> tuple[Floats, float]:
    """The inverse transform, and a bound on the error of each element."""
    both = np.full(powered.size, 2.0)
    both[0] = 1.0
    if size % 2 == 0:
        both[-1] = 1.0
    mean_size, mean_error = float(both @ np.abs(powered)) / size, float(both @ error) / size
    weights = scipy.fft.irfft(powered, size)
    return weights, (mean_error + _transform_error(size, 0) * mean_size) * (1 + 2 * size * UNIT)


class _LogConvolution(NamedTuple):
    """A product of tilted measures from some loss on; see `LatticeProduct`.

    All weights together may have a relative error of `scale_error`, besides `error` each.
    """

    weights: Floats
    error: float
    scale_error: float
    floor: float
    missing: float


def convolved_by_logarithm(side: Sequence[Tilted], size: int, focus: float, tail: float) -> _LogConvolution:
    """As `convolved`, with an error that does not grow with the count if losses are rare or cells are many.

    F is taken relative to the likeliest cell c, and F^n = e^{n log F}. If no sum of losses below a threshold reaches
    the focus, only the part of the product that contains a rarer loss is transformed back. Its errors are as small as
    rare losses are. `missing` bounds the mass above the focus of sums without a rare loss.

    Proof: docs/proofs/lattice.md, Theorem 6.
    """
    split = _rare_loss_split(side, focus, tail)
    spectra = [
        _log_spectrum(part, size, None if split is None else last)
        for part, last in zip(side, split[0] if split else [0] * len(side), strict=True)
        if part.count >= _MANY
    ]
    real, imaginary, room = (np.sum([each[k] for each in (s.log for s in spectra)], axis=0) for k in range(3))
    room = room + len(spectra) * UNIT * (np.abs(real) + np.abs(imaginary))
    magnitude = np.exp(np.minimum(real, 1.0))
    powered = magnitude * (np.cos(imaginary) + 1j * np.sin(imaginary))
    error = magnitude * (np.expm1(np.minimum(room, 600.0)) + 16 * UNIT)
    if split is not None:
        grown = [np.sum([each[k] for each in (s.rare for s in spectra)], axis=0) for k in range(3)]
        factor, factor_error = _expm1(*grown)
        error = np.abs(powered) * factor_error + np.abs(factor) * error + error * factor_error
        powered = powered * factor
        error += 4 * UNIT * np.abs(powered)
    for part in side:
        if part.count < _MANY:
            plain = scipy.fft.rfft(_folded(part.weights, size))
            off = _transform_error(size, -(-part.weights.size // size))
            power, sizes = _power(plain, part.count), np.abs(plain)
            growth = np.expm1(part.count * np.log1p(off / np.maximum(sizes, 1e-300)))
            power_error = np.abs(power) * (growth + 3 * part.count * UNIT)
            # If |F| is below its own error, the power is at most (2·error)^n.
            power_error = np.where(sizes > off, power_error, (3 * off) ** part.count)
            error = np.abs(powered) * power_error + np.abs(power) * error + error * power_error
            powered = powered * power
            error += 4 * UNIT * np.abs(powered)
    dropped = np.logical_or.reduce([each.dropped for each in spectra])
    powered = np.where(dropped, 0.0, powered)
    error = np.where(dropped, 4 * math.exp(-70), error)
    weights, off = _transformed_back(powered, error, size)
    scale = math.exp(math.fsum(each.log_scale for each in spectra))
    shift = sum(part.count * int(np.argmax(part.weights)) for part in side if part.count >= _MANY)
    scale_error = sum(part.count for part in side) * 256 * UNIT
    floor, missing = (focus, split[1]) if split else (-math.inf, 0.0)
    return _LogConvolution(
        np.roll(weights * scale, shift % size), off * scale * (1 + 8 * UNIT), scale_error, floor, missing
    )


def _rare_loss_split(side: Sequence[Tilted], focus: float, tail: float) -> tuple[list[int], float] | None:
    """The largest threshold such that sums of losses below it reach the focus with mass at most `tail`.

    As the first rare cell of each part, and the tilted mass that sums without a rare loss have above the focus.
    """
    step = side[0].measure.step
    centres = [int(np.argmax(part.weights)) for part in side]
    middle = sum(part.count * float(part.losses[centre]) for part, centre in zip(side, centres, strict=True))
    gap = focus - middle - 64 * UNIT * sum(part.count * _far(part) for part in side)
    if not step < gap < math.inf:
        return None
    for share in (1.0, 0.7, 0.5, 0.35, 0.25, 0.17, 0.12, 0.08, 0.06, 0.04):
        last = [
            min(part.weights.size, centre + 1 + int(share * gap / step)) if part.count >= _MANY else part.weights.size
            for part, centre in zip(side, centres, strict=True)
        ]
        rare = sum(part.count * float(part.weights[end:].sum()) for part, end in zip(side, last, strict=True))
        if rare > 0.5:
            return None
        for slope in math.log(1 / tail) / gap * np.array([1.0, 1.4, 2.0, 3.0, 5.0, 8.0]):
            exponent, rounding = -slope * gap, 1e-9
            for part, centre, end in zip(side, centres, last, strict=True):
                heights = slope * step * (np.arange(end) - float(centre))
                if heights.max() > 600:
                    exponent = math.inf
                    break
                # Relative to the centre, since a rounding of e^height would count n times.
                mass = block_sum(part.weights[:end]) + block_sum(part.weights[:end] * np.expm1(heights))
                exponent += part.count * math.log(mass)
                rounding += part.count * (256 + 8 * float(np.abs(heights).max())) * UNIT * (1 + 2 / mass)
            if exponent + rounding <= math.log(tail):
                return last, math.exp(exponent + rounding)
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _LogSpectrum:
    """n·log of a part's spectrum relative to its likeliest cell, and what rare losses add to it."""

    log: tuple[Floats, Floats, Floats]  # real and imaginary part of n·log(B/S), and a bound on their joint error
    rare: tuple[Floats, Floats, Floats]  # the same of n·log(F/B)
    log_scale: float  # n·log S, S the sum of B's weights
    dropped: Bools  # the frequencies at which |F|^n is below e^−70


def _log_spectrum(part: Tilted, size: int, last: int | None) -> _LogSpectrum:
    count, centre = part.count, int(np.argmax(part.weights))
    likely = part.weights if last is None else part.weights[:last]
    rows = -(-part.weights.size // size)
    transform_error = _transform_error(size, rows)
    scale = block_sum(likely)
    missing, error = _one_minus(likely, centre, size)
    missing, error = missing / scale, error / scale * (1 + 1e-9) + 256 * UNIT * np.abs(missing)
    changed = -2 * missing.real + np.abs(missing) ** 2
    magnitude = np.sqrt(np.maximum(1 + changed, 0.0))
    rare_mass = 0.0 if last is None else float(part.weights[last:].sum()) * (1 + 1e-9) / scale
    dropped = magnitude <= math.exp(-70 / count) - error - rare_mass - 8 * UNIT
    safe = np.where(dropped, 0.0, changed)
    log = _log1p(safe, np.where(dropped, 0.0, missing), error * (1 + 1e-9) / np.where(dropped, 1.0, magnitude))
    none = np.zeros(missing.size)
    rare = (none, none, none)
    if last is not None and last < part.weights.size:
        spectrum = scipy.fft.rfft(np.roll(_folded(np.append(np.zeros(last), part.weights[last:]), size), -centre))
        lifted = np.where(dropped, 0.0, spectrum / scale / np.where(dropped, 1.0, 1 - missing))
        off = np.where(dropped, 0.0, (transform_error + 4 * UNIT) * rare_mass / np.where(dropped, 1.0, magnitude))
        # With a rare mass of at most 0.5/64 and |B/S| above 0.3, |F/B − 1| is below 0.03.
        off += np.abs(lifted) * (2 * np.expm1(log[2]) + 256 * UNIT)
        rare = _log1p(2 * lifted.real + np.abs(lifted) ** 2, -lifted, off / (1 - np.abs(lifted)))
    times = [
        tuple(np.asarray(x) for x in (count * a, count * b, count * (e + 16 * UNIT * (np.abs(a) + np.abs(b)))))
        for a, b, e in (log, rare)
    ]
    return _LogSpectrum(times[0], times[1], count * math.log(scale), dropped)  # type: ignore[arg-type]


def _one_minus(weights: Floats, centre: int, size: int) -> tuple[Complexes, Floats]:
    """Σ w_k (1 − z^{k − centre}) at every frequency, and a bound on its error."""
    rows = -(-weights.size // size)
    others = weights.copy()
    others[centre] = 0.0
    moved = block_sum(others)
    direct = moved - scipy.fft.rfft(np.roll(_folded(others, size), -centre))
    error = (_transform_error(size, rows) + 256 * UNIT) * moved
    # By parts: Σ_m w_{c+m} (1 − z^m) = (1 − z) Σ_i z^i W_i, W_i the weight beyond c + i, with its sign.
    beyond = np.zeros(weights.size)
    right, sums_error = suffix_sums(others[centre:])
    left, other_error = suffix_sums(others[:centre][::-1])
    beyond[centre:-1], beyond[:centre] = right[1:], -left[::-1]
    angles = 2 * math.pi / size * np.arange(size // 2 + 1)
    turn = 2 * np.sin(angles / 2) ** 2 + 1j * np.sin(angles)
    parts = turn * scipy.fft.rfft(np.roll(_folded(beyond, size), -centre))
    weight = block_sum(np.abs(beyond)) * (1 + 512 * UNIT)
    parts_error = np.abs(turn) * (_transform_error(size, rows) + sums_error + other_error + 32 * UNIT) * weight
    better = parts_error < error
    return np.where(better, parts, direct), np.where(better, parts_error, error)


def _log1p(changed: Floats, missing: Complexes, error: Floats) -> tuple[Floats, Floats, Floats]:
    """log(1 − D) of complex D, as real and imaginary part, and a bound on their joint error.

    `changed` is |1 − D|² − 1, and `error` that of D, divided by |1 − D|.
    """
    real = np.log1p(changed) / 2
    imaginary = np.arctan2(-missing.imag, 1 - missing.real)
    absolute = np.abs(missing)
    rounding = 8 * UNIT * (absolute * (2 + absolute) / (1 + changed) + np.abs(real) + np.abs(imaginary))
    with np.errstate(divide="ignore", invalid="ignore"):
        return real, imaginary, np.where(error < 0.5, -np.log1p(-np.minimum(error, 0.5)), math.inf) + rounding


def _expm1(real: Floats, imaginary: Floats, error: Floats) -> tuple[Complexes, Floats]:
    """e^z − 1 of complex z, and a bound on its error."""
    grown, half = np.expm1(real), np.sin(imaginary / 2) ** 2
    value = grown * np.cos(imaginary) - 2 * half + 1j * (1 + grown) * np.sin(imaginary)
    rounding = 16 * UNIT * (np.abs(grown) + 2 * half + (1 + grown) * np.abs(np.sin(imaginary)))
    return value, (1 + grown) * np.expm1(np.minimum(error, 600.0)) + rounding


def _folded(weights: Floats, size: int) -> Floats:
    """`weights` summed modulo `size`."""
    if weights.size <= size:
        return np.append(weights, np.zeros(size - weights.size))
    pad = -weights.size % size
    return np.asarray(np.append(weights, np.zeros(pad)).reshape(-1, size).sum(axis=0))


def _power(base: np.ndarray, count: int) -> np.ndarray:
    """`base` to the power `count`, by repeated squaring."""
    result = None
    while True:
        if count & 1:
            result = base if result is None else result * base
        count >>= 1
        if not count:
            return base if result is None else result
        base = base * base
