"""Areas and rates against counting every pair, and the coverage of the interval of an area."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from dpassay.audits.statistics.roc import area_under_curve, positives_at


@pytest.mark.parametrize("seed", range(4))
def test_areas_and_positives_are_those_of_counting(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside, outside = rng.integers(0, 8, size=23).astype(float), rng.integers(0, 7, size=31).astype(float)
    wins = sum((a > b) + 0.5 * (a == b) for a in inside for b in outside)
    assert area_under_curve(inside, outside, confidence=0.9).value == pytest.approx(wins / (23 * 31), abs=1e-15)
    for rate in (0.0, 0.001, 0.1, 0.5, 0.99):
        best = (0, 0)  # the lowest threshold among outside scores that respects the rate
        for threshold in sorted(set(outside), reverse=True):
            false = int((outside > threshold).sum())
            if false <= rate * 31:
                best = (int((inside > threshold).sum()), false)
        assert positives_at(inside, outside, false_positive_rate=rate) == best


def test_a_rate_of_a_tenth_of_ten_allows_one() -> None:
    assert positives_at([1.0, 8.5, 9.5], np.arange(10.0), false_positive_rate=0.1) == (2, 1)
    assert positives_at([1.0, 8.5, 9.5], np.arange(10.0), false_positive_rate=0.09) == (1, 0)


def test_the_interval_of_an_area_covers_it() -> None:
    """Gaussians one apart: Φ(1/√2). More than 5% + 5 standard deviations of 2000 misses have probability < 10⁻⁶."""
    rng = np.random.default_rng(5)
    truth = special.ndtr(1 / np.sqrt(2))
    missed = 0
    for _ in range(2000):
        area = area_under_curve(rng.normal(1, 1, 40), rng.normal(0, 1, 60), confidence=0.95)
        missed += truth not in area.interval
    assert missed <= 2000 * 0.05 + 5 * (2000 * 0.05 * 0.95) ** 0.5
    margin = np.sqrt(np.log(2 / 0.05) / (2 * 40))
    assert area.interval.lower == pytest.approx(area.value - margin)
    assert area.interval.upper == pytest.approx(min(1.0, area.value + margin))


def test_perfect_scores_have_an_interval_that_is_no_point() -> None:
    area = area_under_curve([2.0, 3.0], [0.0, 1.0], confidence=0.95)
    assert area.value == 1
    assert area.interval.lower < 0.5


def test_bad_arguments_are_refused() -> None:
    for inside, outside in (([], [1.0]), ([1.0], []), ([np.nan], [1.0]), ([[1.0]], [1.0])):
        with pytest.raises(ValueError, match="at least one score"):
            area_under_curve(inside, outside, confidence=0.95)
    with pytest.raises(ValueError, match="false_positive_rate must be below 1"):
        positives_at([1.0], [1.0], false_positive_rate=1.0)
