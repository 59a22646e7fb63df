"""Samples one token from softmax(scores/τ), with integer weights and the operating system's entropy.

The exact softmax is approximated by the integers w_y = max(1, ⌊2⁶²·p_y/p_max⌋), and sampling from the w is exact: one
uniform integer below Σ w is looked up among their exact partial sums. `selection_rounding` bounds |log p̃(y)/p(y)| for
every token y; the bound is part of every charged event.

Scores more than 2c below the largest are raised to that: with M the largest, y ↦ max(y, M − 2c). For scores in [−c, c]
(a median, or a mean over at most as many vectors as the denominator) this changes nothing. For a mean whose batch is
larger than its public denominator it keeps every weight at least 2⁶²·e^{−2c/τ}. It has no privacy cost: if every score
changes by an amount in [l, h] between neighbours, so does M, and so does the maximum of the two, and the selection
remains (h − l)/τ-bounded-range.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

BITS = 62
"""The largest weight is 2^BITS."""

_DENSE = 4  # if more than one token in this many is above the least likely ones, each token gets its own weight
_LARGEST_RANGE = 40.0  # of 2c/τ: the smallest weight is then 2^62·e^−40 = 19.6
_ROUNDING = 1 + 2.0**-50  # of 2c/τ if both are first multiplied by the same number: four operations, 2^−53 each


def check_range(clip: float, temperature: float) -> float:
    """2·clip/temperature, the largest difference of two exponents.

    Raises:
        ValueError: if it is above 40 by more than rounding; 62-bit weights could then not represent the smallest
            probability.
    """
    spread = 2 * validate.positive(clip=clip) / validate.positive(temperature=temperature)
    if spread > _LARGEST_RANGE * _ROUNDING:
        raise ValueError(
            f"2·clip/temperature must be at most {_LARGEST_RANGE:g}, not {spread:g}: smaller probabilities cannot be "
            "sampled exactly; lower clip or raise temperature"
        )
    return spread


def selection_rounding(clip: float, temperature: float) -> float:
    """An upper bound on |log p̃(y)/p(y)|, with p̃ the distribution of `draw` and p the exact softmax of its scores.

    With r = 2c/τ, u = 2⁻⁵³ and e_y the exact weight relative to the largest: the exponent (s_y − M)/τ has two
    roundings, an absolute error of at most 2.01·r·u; `numpy.exp` is assumed accurate to 4 units in the last place,
    The scaling by 2⁶² is exact. x = 2⁶²·f_y ≥ X = 2⁶²·e^{−r−κ} > 19, so the maximum with 1 is never needed and
    ⌊x⌋/x is in (1 − 1/X, 1]. Numerator and normaliser move by at most κ − log(1 − 1/X) together in one direction or κ
    in the other: |log p̃/p| ≤ 2κ − log(1 − 1/X) ≤ 2κ + 2·log1p(1/X), the last step for X ≥ 1.62.
    """
    spread = check_range(clip, temperature)
    kappa = (2.01 * spread + 8.01) * 2.0**-53
    bound = 2 * math.log1p(2.0**-BITS * math.exp(spread + kappa)) + 2 * kappa
    return bound * (1 + 1e-12)  # covers the rounding of this expression itself


def floored(scores: ArrayLike, clip: float) -> Floats:
    """Scores raised to at least 2·clip below the largest of their row, shape (…, V)."""
    values = np.asarray(scores, dtype=np.float64)
    return np.asarray(np.maximum(values, values.max(axis=-1, keepdims=True) - 2 * clip))


def weights(scores: ArrayLike, *, clip: float, temperature: float) -> NDArray[np.uint64]:
    """The integer weights max(1, ⌊2⁶²·p_y/p_max⌋), shape (…, V), each between 1 and 2⁶²."""
    check_range(clip, temperature)
    values = floored(scores, clip)
    return _integers(values - values.max(axis=-1, keepdims=True), temperature)


def _integers(exponents: Floats, temperature: float) -> NDArray[np.uint64]:
    """The weights of scores less the largest, at most 2·clip below it, which are overwritten."""
    exponents /= temperature
    # uint64 holds the integer part of a float64 of at most 2^62 exactly; the cast drops the fraction.
    return np.asarray(np.maximum((np.exp(exponents) * 2.0**BITS).astype(np.uint64), np.uint64(1)), dtype=np.uint64)


def draw(scores: ArrayLike, *, clip: float, temperature: float, source: Source = OS_ENTROPY) -> int:
    """One token from softmax(scores/τ) with the integer weights above, for finite scores of shape (V,).

    Scores more than 2c below the largest are raised to that; 2c/τ is at most 40.

    Raises:
        ValueError: if a parameter is out of range.
    """
    values = np.asarray(scores, dtype=np.float64)
    top = values.max()
    lowest = max(values.min(), top - 2 * clip)  # of `floored` scores
    above = (values > lowest).nonzero()[0]
    if len(above) * _DENSE > len(values):
        return draw_weighted(weights(values, clip=clip, temperature=temperature), source)
    check_range(clip, temperature)
    exponents = np.full(len(above) + 1, lowest)
    exponents[:-1] = values[above]
    exponents -= top
    integers = _integers(exponents, temperature)
    return _draw_above(above, integers[:-1], int(integers[-1]), len(values), source)


def draw_weighted(integers: NDArray[np.uint64], source: Source = OS_ENTROPY) -> int:
    """An index with probability proportional to its weight, below 2⁶³, exactly; shape (V,), V at most 2³¹."""
    return _draw_above(np.arange(len(integers)), integers, 0, len(integers), source)


def _draw_above(above: Integers, integers: NDArray[np.uint64], rest: int, count: int, source: Source) -> int:
    """An index below `count`: those in `above` have the weights `integers`, all others the same weight, `rest`.

    Partial sums exceed 64 bits, so they are kept as two halves of 32 bits, each exact.
    """
    mask = np.uint64(0xFFFFFFFF)
    high = np.cumsum(integers >> np.uint64(32), dtype=np.uint64)
    low = np.cumsum(integers & mask, dtype=np.uint64)
    if rest:
        others = (above - np.arange(len(above))).astype(np.uint64)  # number of other indices before each of them
        high += others * np.uint64(rest >> 32)
        low += others * (np.uint64(rest) & mask)
    high += low >> np.uint64(32)
    low &= mask

    def partial_sum(index: int) -> int:
        return (int(high[index]) << 32) + int(low[index]) if index >= 0 else 0

    last = int(above[-1]) if len(above) else -1
    point = source.below(partial_sum(len(above) - 1) + (count - 1 - last) * rest)
    point_high, point_low = np.uint64(point >> 32), np.uint64(point & 0xFFFFFFFF)
    # The first of `above` whose partial sum exceeds `point`: by high half, then by low half among equals.
    first, end = (int(np.searchsorted(high, point_high, side=side)) for side in ("left", "right"))
    index = first + int(np.searchsorted(low[first:end], point_low, side="right"))
    # The point falls on this index, or on one of the other indices between it and the previous one.
    start = int(above[index - 1]) + 1 if index else 0
    stop = int(above[index]) if index < len(above) else count
    between = (point - partial_sum(index - 1)) // rest if stop > start else 0
    return min(start + between, stop)


def log_probability(scores: ArrayLike, token: int, *, clip: float, temperature: float) -> float:
    """log softmax(scores/τ) of `token`, for the exact distribution that `draw` approximates."""
    values = floored(scores, clip)
    exponents = (values - values.max()) / temperature
    return float(exponents[token] - math.log(float(np.exp(exponents).sum())))
