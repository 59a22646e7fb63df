"""Exposure in bits: ranks counted by hand, ties, and the fitted tail against the law it was drawn from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpassay.audits.statistics.exposure import exposure_extrapolated, exposure_interpolated


def test_ranks_are_counted_with_ties_for_the_references() -> None:
    references = [1.0, 2.0, 2.0, 5.0, 0.0, 4.0, 3.0]
    result = exposure_interpolated([6.0, 5.0, 2.0, -1.0], references)
    # Before all; behind the equal one; behind 5, 4, 3 and both 2s; behind all seven.
    assert result.tolist() == pytest.approx([3 - math.log2(rank) for rank in (1, 2, 6, 8)])


def test_agrees_with_the_definition_on_random_scores() -> None:
    generator = np.random.default_rng(0)
    references, canaries = generator.normal(size=400).round(1), generator.normal(size=30).round(1)
    ranks = [1 + sum(reference >= canary for reference in references.tolist()) for canary in canaries.tolist()]
    expected = [math.log2(401) - math.log2(rank) for rank in ranks]
    assert exposure_interpolated(canaries, references).tolist() == pytest.approx(expected)


def test_a_canary_like_the_references_has_exposure_one_in_the_mean_or_so() -> None:
    """−log₂ of a uniform rank has mean 1/ln 2 in the limit; 4000 canaries, false alarm below 1e-6 (5 deviations of
    1/(ln 2·√4000)), and ranks among 2000 references are off by their own sampling, which the tolerance includes."""
    generator = np.random.default_rng(5)
    result = exposure_interpolated(generator.normal(size=4000), generator.normal(size=2000))
    assert abs(result.mean() - 1 / math.log(2)) < 5 / (math.log(2) * math.sqrt(4000)) + 5 / math.sqrt(2000)


def test_the_extrapolated_tail_is_that_of_the_law() -> None:
    """References from a known skew-normal law: exposures of 2 to 12 bits come out within a bit at n = 20000."""
    law = stats.skewnorm(3.0, loc=-10.0, scale=2.0)
    references = law.rvs(20_000, random_state=1)
    canaries = law.isf(2.0 ** -np.arange(2, 13))
    assert exposure_extrapolated(canaries, references) == pytest.approx(np.arange(2.0, 13.0), abs=1.0)


def test_beyond_all_references_only_the_extrapolated_grows() -> None:
    references = np.random.default_rng(2).normal(size=300)
    interpolated, extrapolated = (f([6.0, 9.0], references) for f in (exposure_interpolated, exposure_extrapolated))
    assert interpolated.tolist() == [math.log2(301)] * 2
    assert extrapolated[1] > extrapolated[0] > math.log2(301)


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        exposure_interpolated([float("nan")], [1.0])
    with pytest.raises(ValueError, match="at least 1 scores"):
        exposure_interpolated([1.0], [])
    with pytest.raises(ValueError, match="all have the same score"):
        exposure_extrapolated([1.0], [2.0, 2.0, 2.0])
