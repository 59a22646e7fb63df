"""The token sampler: weights against rational arithmetic, the draw against counting, the bound against mpmath."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from dpassay.mechanisms.primitives.token_sampler import (
    BITS,
    check_range,
    draw,
    draw_weighted,
    floored,
    log_probability,
    selection_rounding,
    weights,
)


class Fixed(Recorded):
    """Answers every `below` with one number."""

    def __init__(self, point: int) -> None:
        super().__init__(0)
        self.point = point
        self.bound = 0

    def below(self, bound: int) -> int:
        self.bound = bound
        assert 0 <= self.point < bound
        return self.point


GRID_SCORES = st.lists(st.integers(-10 * 2**24, 10 * 2**24).map(lambda k: k / 2**24), min_size=1, max_size=40)


@given(scores=GRID_SCORES, temperature=st.floats(0.5, 10))
def test_rounding_bound_holds_for_every_token(scores: list[float], temperature: float) -> None:
    """|log p̃/p| ≤ the bound for all tokens: p̃ as a ratio of integers, p by mpmath with 60 digits."""
    clip = 10.0
    integers = [int(w) for w in weights(scores, clip=clip, temperature=temperature)]
    with mpmath.workdps(60):
        exact = [mpmath.exp(mpmath.mpf(s) / mpmath.mpf(temperature)) for s in scores]
        total, whole = mpmath.fsum(exact), sum(integers)
        worst = max(
            abs(mpmath.log(mpmath.mpf(w) / whole) - mpmath.log(e / total)) for w, e in zip(integers, exact, strict=True)
        )
    assert worst <= selection_rounding(clip, temperature)


@pytest.mark.parametrize(("clip", "temperature"), [(9.0, 1.5), (6.0, 1.5), (10.0, 1.0), (20.0, 1.0)])
def test_the_bound_is_what_it_says_and_close(clip: float, temperature: float) -> None:
    """Never below the design's 2·log1p(2⁻⁶²·e^{2c/τ}), and within the stated float error above it."""
    spread = 2 * clip / temperature
    core = 2 * math.log1p(2.0**-BITS * math.exp(spread))
    bound = selection_rounding(clip, temperature)
    assert core < bound < core * (1 + 1e-9) + 2.0**-50 * (2.1 * spread + 9)


def test_the_smallest_weight_rounds_as_much_as_the_bound_allows() -> None:
    """The bound is attained up to a factor of 3, at the largest range: 2⁶²·e^−39.885 = 21.99 becomes 21."""
    temperature, clip = 1.0, 20.0
    integers = weights([0.0, -39.885], clip=clip, temperature=temperature)
    with mpmath.workdps(50):
        error = abs(
            mpmath.log(mpmath.mpf(int(integers[1])) / (int(integers[0]) + int(integers[1])))
            - (-mpmath.mpf(39.885) - mpmath.log1p(mpmath.exp(-mpmath.mpf(39.885))))
        )
    assert selection_rounding(clip, temperature) / 3 < error <= selection_rounding(clip, temperature)


@given(scores=GRID_SCORES)
def test_weights_are_the_floor_of_the_scaled_float_weights(scores: list[float]) -> None:
    got = weights(scores, clip=10.0, temperature=1.2)
    exponents = (np.array(scores) - max(scores)) / 1.2
    expected = [max(1, math.floor(Fraction(float(f)) * 2**BITS)) for f in np.exp(exponents)]
    assert [int(w) for w in got] == expected
    assert max(expected) == 2**BITS


@given(integers=st.lists(st.integers(1, 2**BITS), min_size=1, max_size=30), data=st.data())
def test_every_point_is_found_in_the_exact_partial_sums(integers: list[int], data: st.DataObject) -> None:
    """Including both sides of every border between two tokens."""
    ends = np.cumsum(np.array(integers, dtype=object)).tolist()
    array = np.array(integers, dtype=np.uint64)
    point = data.draw(st.integers(0, ends[-1] - 1))
    borders = [p for end in ends for p in (end - 1, end) if p < ends[-1]]
    for p in [point, 0, *borders]:
        source = Fixed(p)
        assert draw_weighted(array, source) == next(i for i, end in enumerate(ends) if p < end)
        assert source.bound == ends[-1]


@given(
    above=st.dictionaries(st.integers(0, 39), st.sampled_from([-2.0, 0.0, 1.5, 4.0]), max_size=9),
    lowest=st.sampled_from([-40.0, -3.0]),
    data=st.data(),
)
def test_every_point_is_found_where_most_tokens_are_equally_unlikely(
    above: dict[int, float], lowest: float, data: st.DataObject
) -> None:
    """A draw that counts the least likely tokens finds what the partial sums over all of them say."""
    scores = np.full(40, lowest)
    scores[list(above)] = list(above.values())
    ends = np.cumsum(weights(scores, clip=5.0, temperature=1.0).astype(object)).tolist()
    point = data.draw(st.integers(0, ends[-1] - 1))
    for p in [point, 0, *(p for end in ends for p in (end - 1, end) if p < ends[-1])]:
        source = Fixed(p)
        assert draw(scores, clip=5.0, temperature=1.0, source=source) == next(i for i, e in enumerate(ends) if p < e)
        assert source.bound == ends[-1]


def chi_square_p(counts: NDArray[np.int64], probabilities: Sequence[float]) -> float:
    return float(stats.chisquare(counts, np.array(probabilities) * counts.sum()).pvalue)


@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(7)], ids=["os", "recorded"])
def test_draws_follow_the_softmax(source: Source) -> None:
    """Chi-square on 20,000 draws. False alarm: once in 10⁶ runs for fresh entropy, never for the recorded source."""
    scores = np.array([2.0, 1.0, 0.0, -1.0, 1.5])
    probabilities = np.exp(scores / 1.3) / np.exp(scores / 1.3).sum()
    drawn = [draw(scores, clip=2.0, temperature=1.3, source=source) for _ in range(20_000)]
    assert chi_square_p(np.bincount(drawn, minlength=5), probabilities) > 1e-6


def test_the_chi_square_test_would_notice_another_temperature() -> None:
    scores = np.array([2.0, 1.0, 0.0, -1.0, 1.5])
    wrong = np.exp(scores / 1.2) / np.exp(scores / 1.2).sum()
    source = Recorded(7)
    drawn = [draw(scores, clip=2.0, temperature=1.3, source=source) for _ in range(20_000)]
    assert chi_square_p(np.bincount(drawn, minlength=5), wrong) < 1e-6


def test_scores_far_below_the_largest_are_raised() -> None:
    scores = np.array([30.0, 0.0, 11.0, 9.0])
    assert floored(scores, 10.0).tolist() == [30.0, 10.0, 11.0, 10.0]
    assert log_probability(scores, 1, clip=10.0, temperature=1.0) == log_probability(
        scores, 3, clip=10.0, temperature=1.0
    )
    integers = weights(scores, clip=10.0, temperature=1.0)
    assert int(integers[1]) == int(integers[3]) > 2**BITS * math.exp(-20.001)


@given(
    scores=st.lists(st.floats(-50, 50), min_size=2, max_size=6),
    moves=st.lists(st.floats(-1, 1), min_size=6, max_size=6),
)
def test_raising_keeps_the_selection_bounded_range(scores: list[float], moves: list[float]) -> None:
    """max_y − min_y of log p(y)/p′(y) is at most (max Δ − min Δ)/τ although far scores are raised. Tolerance: 1e-12,
    rounding of numbers up to 100."""
    before = np.array(scores)
    after = before + moves[: len(scores)]
    move = after - before
    ratios = [
        log_probability(before, y, clip=10.0, temperature=1.5) - log_probability(after, y, clip=10.0, temperature=1.5)
        for y in range(len(scores))
    ]
    assert max(ratios) - min(ratios) <= (move.max() - move.min()) / 1.5 + 1e-12


def test_log_probabilities_are_those_of_the_softmax() -> None:
    scores = np.array([3.0, -2.0, 1.0])
    with mpmath.workdps(30):
        total = mpmath.log(mpmath.fsum(mpmath.exp(mpmath.mpf(s) / mpmath.mpf(1.5)) for s in scores))
        for token, score in enumerate(scores):
            exact = float(mpmath.mpf(score) / mpmath.mpf(1.5) - total)
            # Four roundings of numbers up to 10.
            assert log_probability(scores, token, clip=9.0, temperature=1.5) == pytest.approx(exact, abs=1e-14)


def test_rounding_takes_no_range_of_40_away() -> None:
    """Means multiply clip and temperature by their denominator, and unclipped laws make the clip from a temperature."""
    for hundredths in range(1, 1001):
        temperature = hundredths / 100
        for factor in (1, 3, 7):
            assert check_range(20 * temperature * factor, temperature * factor) == pytest.approx(40, rel=1e-15)
    with pytest.raises(ValueError, match="at most 40"):
        check_range(20.0 * (1 + 1e-14), 1.0)


def test_a_range_that_cannot_be_sampled_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 40"):
        selection_rounding(9.0, 0.4)
    with pytest.raises(ValueError, match="temperature must be above 0"):
        draw([1.0, 2.0], clip=1.0, temperature=0.0)
