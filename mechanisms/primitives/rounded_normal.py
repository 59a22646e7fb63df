"""Normal noise on a grid, drawn from uniform bits without rounding errors.

For whole numbers X, ⌊X + 2ᵇZ⌋ = X + ⌊2ᵇZ⌋. So adding ⌊2ᵇZ⌋ to X is the Gaussian mechanism with standard deviation 2ᵇ,
followed by rounding down, which is post-processing: the guarantee is that of continuous Gaussian noise, exactly.

A normal variable is drawn by rejection (Karney, Algorithm N, in another order): a whole part k with probability
proportional to exp(−k²/2), a uniform fraction x, accepted with probability exp(−x(2k + x)/2), and a sign. Both
decisions compare a uniform number of 128 bits with a probability that is known to more than 2⁻¹¹⁰; the second one is
first tried in floating point, and decided with integers if it is closer than 2⁻⁴⁰. So the law of one draw differs from
the exact one by less than 2⁻¹⁰⁰ in total variation, and that of 2⁴⁰ draws by less than 2⁻⁶⁰.

Source: Karney, "Sampling Exactly from the Normal Distribution" (2016), Algorithm N.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Integers

Words = NDArray[np.uint64]

MAX_BITS = 48
"""The largest b: a draw is then below 2⁵³ in absolute value."""

_DIGITS = Context(prec=60)
_WORD, _MASK = 2**64, 2**64 - 1
MARGIN = 2.0**-40  # floats err by less than 2⁻⁴⁸ in the probability, and so does the uniform number
_LARGEST = 14  # of k; a larger one has probability below exp(−15²/2) < 2⁻¹⁶²


def _limits() -> list[int]:
    """⌊2¹²⁸·P(k ≤ j)⌋ for j = 0, …, `_LARGEST` − 1, where P(k) is proportional to exp(−k²/2)."""
    with localcontext(_DIGITS):
        weights = [(Decimal(-k * k) / 2).exp() for k in range(_LARGEST + 1)]
        return [int(sum(weights[: j + 1]) / sum(weights) * 2**128) for j in range(_LARGEST)]


LIMITS = _limits()
_HIGH = np.array([limit >> 64 for limit in LIMITS], dtype=np.uint64)


def rounded_normals(words: Callable[[int], Words], size: int, bits: int) -> Integers:
    """⌊2ᵇZ⌋ for independent standard normal Z, b from 0 to `MAX_BITS`, shape (size,); `words` gives n independent
    uniform words of 64 bits."""
    if not 0 <= bits <= MAX_BITS:
        raise ValueError(f"bits must be from 0 to {MAX_BITS}, not {bits}")
    result = np.empty(size, dtype=np.int64)
    left = np.arange(size)
    while left.size:
        integer, fraction = _integer_parts(words, left.size), words(left.size)
        accepted = _accepted(words, integer, fraction)
        part = np.zeros(left.size, dtype=np.uint64) if bits == 0 else fraction >> np.uint64(64 - bits)
        values = (integer << bits) + part.astype(np.int64)
        negative = np.unpackbits(words(-(-left.size // 64)).view(np.uint8), count=left.size, bitorder="little")
        values = np.where(negative == 1, -values - 1, values)  # ⌊−v⌋ where v is no whole number, which it never is
        result[left[accepted]] = values[accepted]
        left = left[~accepted]
    return result


def _integer_parts(words: Callable[[int], Words], size: int) -> Integers:
    """k with probability proportional to exp(−k²/2)."""
    drawn = words(size)
    parts = np.searchsorted(_HIGH, drawn, side="right").astype(np.int64)
    for index in np.flatnonzero(np.isin(drawn, _HIGH)):  # the first words agree: the second ones decide
        uniform = int(drawn[index]) << 64 | int(words(1)[0])
        parts[index] = sum(uniform >= limit for limit in LIMITS)
    return parts


def _accepted(words: Callable[[int], Words], integer: Integers, fraction: Words) -> NDArray[np.bool_]:
    """Whether a fraction x is accepted: with probability exp(−x(2k + x)/2)."""
    uniform = words(integer.size)
    x = np.ldexp(fraction.astype(np.float64), -64)
    margin = np.exp(-0.5 * x * (2.0 * integer + x)) - np.ldexp(uniform.astype(np.float64), -64)
    accepted = margin > 0
    for index in np.flatnonzero(np.abs(margin) <= MARGIN):
        second, third = (int(word) for word in words(2))
        fine = (int(fraction[index]) << 64 | second, int(uniform[index]) << 64 | third)
        accepted[index] = is_below(*fine, int(integer[index]))
    return np.asarray(accepted, dtype=np.bool_)


def is_below(fraction: int, uniform: int, integer: int) -> bool:
    """Whether a uniform number is below exp(−x(2k + x)/2) for a fraction x and an integer k, number and fraction in
    units of 2⁻¹²⁸, to 60 decimal digits."""
    with localcontext(_DIGITS):
        x = Decimal(fraction) / 2**128
        return Decimal(uniform) / 2**128 < (-x * (2 * integer + x) / 2).exp()
