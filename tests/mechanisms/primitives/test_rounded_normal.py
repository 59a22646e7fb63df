"""Normal noise on a grid: its law against mpmath, and its decisions where floating point cannot decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpassay.mechanisms.primitives import rounded_normal
from dpassay.mechanisms.primitives.randomness import OsEntropy, Recorded
from dpassay.mechanisms.primitives.rounded_normal import is_below, rounded_normals

Words = NDArray[np.uint64]


def scripted(*pieces: list[int]) -> Callable[[int], Words]:
    """A source that gives these words, and then ordinary ones."""
    waiting, rng = [list(piece) for piece in pieces], np.random.default_rng(0)

    def words(size: int) -> Words:
        if waiting:
            piece = waiting.pop(0)
            assert len(piece) == size
            return np.array(piece, dtype=np.uint64)
        return rng.integers(0, 2**64, size=size, dtype=np.uint64)

    return words


def test_whole_parts_have_the_law_of_a_discrete_half_normal() -> None:
    """The limits are ⌊2¹²⁸·P(k ≤ j)⌋ to one unit, by mpmath; what lies above the last one is below 2⁻¹²⁰."""
    with mpmath.workdps(80):
        total = mpmath.nsum(lambda k: mpmath.exp(-k * k / 2), [0, mpmath.inf])
        for j, limit in enumerate(rounded_normal.LIMITS):
            exact = mpmath.nsum(lambda k: mpmath.exp(-k * k / 2), [0, j]) / total * 2**128
            assert abs(limit - exact) <= 1
        assert 2**128 - rounded_normal.LIMITS[-1] < 2


@pytest.mark.parametrize("bits", [0, 1, 3])
def test_the_law_is_that_of_a_normal_rounded_down(bits: int) -> None:
    """χ² of 10⁶ draws against Φ((v + 1)/2ᵇ) − Φ(v/2ᵇ); above its bound with probability 1e-6."""
    drawn = OsEntropy().rounded_normals(1_000_000, bits)
    values = np.arange(math.floor(-4 * 2**bits), math.ceil(4 * 2**bits))
    law = np.diff(stats.norm.cdf(np.append(values, values[-1] + 1) / 2**bits))
    seen = np.array([(drawn == value).sum() for value in values])
    rest, seen_rest = 1 - law.sum(), drawn.size - seen.sum()
    law, seen = np.append(law, rest), np.append(seen, seen_rest)
    statistic = ((seen - drawn.size * law) ** 2 / (drawn.size * law)).sum()
    assert statistic < stats.chi2.isf(1e-6, len(law) - 1)


def test_fine_draws_are_normal_and_independent_of_threads() -> None:
    """Kolmogorov and Smirnov's distance of 2·10⁵ draws exceeds 2.8/√n with probability below 1e-6, and neighbours in
    the output are correlated by less than 5/√n, except with probability 1e-6."""
    drawn = OsEntropy().rounded_normals(200_000, 40) / 2.0**40
    assert stats.kstest(drawn, "norm").statistic < 2.8 / math.sqrt(drawn.size)
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / math.sqrt(drawn.size)
    assert len(set(drawn.tolist())) == drawn.size


def test_negative_values_are_rounded_down_too() -> None:
    """⌊2ᵇZ⌋ and ⌊−2ᵇZ⌋ add up to −1: a scripted pair of draws with the same fraction and either sign."""
    fraction, zero = 3 << 60, 0  # x = 3/16, accepted, since the uniform number is 0
    words = scripted([zero] * 2, [fraction] * 2, [zero] * 2, [0b10])
    first, second = rounded_normals(words, 2, 4).tolist()
    assert {first, second} == {3, -4}


def test_a_tie_of_whole_parts_is_decided_by_the_next_word() -> None:
    """The first word is that of the limit between 0 and 1; the second is one below the limit's, or equal."""
    high, low = rounded_normal.LIMITS[0] >> 64, rounded_normal.LIMITS[0] & (2**64 - 1)
    for second, expected in ((low - 1, 0), (low, 1)):
        result = rounded_normals(scripted([high], [second], [1 << 60], [0], [0]), 1, 4)
        assert abs(int(result[0]) + 0.5) // 16 == expected


@pytest.mark.parametrize("whole", [0, 1, 5])
@pytest.mark.parametrize("fraction", [1, 2**64 + 17, 2**127, 2**128 - 1])
def test_close_decisions_agree_with_mpmath(whole: int, fraction: int) -> None:
    with mpmath.workdps(120):
        x = mpmath.mpf(fraction) / 2**128
        exact = mpmath.exp(-x * (2 * whole + x) / 2) * 2**128
        nearest = int(mpmath.floor(exact))
        assert is_below(fraction, nearest - 2**10, whole)
        assert not is_below(fraction, nearest + 2**10, whole)


def test_a_close_decision_asks_for_more_words() -> None:
    """A uniform number that agrees with the probability to 2⁻⁶⁴: floats cannot tell, and two more words decide."""
    fraction = 1 << 63
    with mpmath.workdps(80):
        exact = int(mpmath.floor(mpmath.exp(-((mpmath.mpf(1) / 2) ** 2) / 2) * 2**64))
    asked: list[int] = []

    def words(size: int) -> Words:
        asked.append(size)
        return np.full(size, 0 if len(asked) > 3 else [0, fraction, exact][len(asked) - 1], dtype=np.uint64)

    rounded_normals(words, 1, 4)
    assert asked == [1, 1, 1, 2, 1]  # whole part, fraction, uniform number, two more words, signs


def test_recorded_noise_is_repeatable_and_has_the_same_scale() -> None:
    first, second = (Recorded(3).rounded_normals(10_000, 20) for _ in range(2))
    assert (first == second).all()
    assert np.std(first / 2**20) == pytest.approx(1, abs=0.05)


def test_bits_are_in_range() -> None:
    with pytest.raises(ValueError, match="from 0 to 48, not 49"):
        OsEntropy().rounded_normals(1, 49)
    assert Fraction(rounded_normal.MARGIN) == Fraction(1, 2**40)
