"""Sums of clipped differences move by at most what the noise is made for, and the noise is what the event says."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.gaussian import analytic_noise_multiplier, joint_mu, mean_sensitivity, sum_sensitivity
from dpassay.mechanisms.dataset_vectors.release import RADIUS, clipped, directions, means, noise_scale

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=2, max_size=2)


@given(first=rows, second=rows, clips=st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)))
def test_any_record_moves_a_sum_by_at_most_its_clip(
    first: list[list[float]], second: list[list[float]], clips: tuple[float, float]
) -> None:
    """Integers, compared exactly; also for numbers that are not finite."""
    left, right = clipped(first, clips), clipped(second, clips)
    for change, k in ((left, sum_sensitivity(ADD_REMOVE)), (left - right, sum_sensitivity(REPLACE_ONE))):
        assert all(int((row.astype(object) ** 2).sum()) <= (k * RADIUS) ** 2 for row in change)


def test_the_largest_change_is_attained() -> None:
    """Cu exchanged for −Cu in every block: the exact joint norm is √L·2·2²⁰."""
    blocks, clips = 4, (1.0, 5.5, 0.25, 7.0)
    record = np.zeros((blocks, 8))
    record[:, 3] = 100.0
    moved = clipped(record, clips) - clipped(-record, clips)
    assert int(np.square(moved).sum()) == blocks * (2 * RADIUS) ** 2


@pytest.mark.grid("multiplier", "blocks", "adjacency")
@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize("blocks", [1, 3, 4])
@pytest.mark.parametrize("multiplier", [0.1, 1 / 3, 1.0, 4.7, 123.4])
def test_the_noise_gives_the_joint_mu_and_not_more_than_that(
    multiplier: float, blocks: int, adjacency: Adjacency
) -> None:
    """Against the exact sensitivities of means, which know nothing of units: σ of a mean is σ·C/2²⁰/n."""
    scale, records, clips = noise_scale(multiplier, blocks, adjacency), 500, [2.0**e for e in range(blocks)]
    total = Fraction(0)
    for clip in clips:
        deviation = Fraction(scale) * Fraction(clip) / RADIUS / records
        total += (mean_sensitivity(clip, records, adjacency) / deviation) ** 2
    assert total <= 1 / Fraction(multiplier) ** 2
    assert float(total) == pytest.approx(1 / multiplier**2, rel=1e-14)
    deviations = [scale * clip / RADIUS / records for clip in clips]
    assert joint_mu(clips, deviations, records=records, adjacency=adjacency) == pytest.approx(1 / multiplier, rel=1e-14)


def test_four_blocks_of_ten_records() -> None:
    """L = 4, n = 10, C = 1 and (5, 1e-5) by replace_one: every σ_ℓ is .356747, by the analytic mechanism."""
    scale = noise_scale(analytic_noise_multiplier(5.0, 1e-5), 4, REPLACE_ONE)
    assert scale / RADIUS / 10 == pytest.approx(0.356747, abs=5e-7)


def test_the_published_noise_is_half_of_it() -> None:
    assert noise_scale(1.5, 4, REPLACE_ONE, as_published=True) == pytest.approx(noise_scale(1.5, 4, REPLACE_ONE) / 2)
    assert noise_scale(1.5, 4, ADD_REMOVE, as_published=True) == noise_scale(1.5, 4, ADD_REMOVE)
    assert noise_scale(0.0, 4, REPLACE_ONE) == 0


def test_means_and_directions() -> None:
    differences, clips = np.array([[3.0, 4.0], [0.3, 0.4]]), (10.0, 0.25)
    total = 5 * clipped(differences, clips)
    result = means(total, clips, 5)
    np.testing.assert_allclose(result[0], [3, 4], rtol=0, atol=10 / RADIUS)
    np.testing.assert_allclose(result[1], [0.15, 0.2], rtol=0, atol=0.25 / RADIUS)
    np.testing.assert_allclose(directions(result), [[0.6, 0.8], [0.6, 0.8]], rtol=0, atol=1e-5)
    assert directions([[0.0, 0.0]]).tolist() == [[0.0, 0.0]]
    assert math.isfinite(directions([[1e-320, 0.0]]).sum())


def test_how_near_a_noisy_direction_is() -> None:
    """E cos ≈ ‖v‖/√(‖v‖² + σ²d) in 4096 dimensions: .8090, with a standard deviation of .0042."""
    chance, clean = np.random.default_rng(0), np.zeros((1, 4096))
    clean[0, 0] = 2.0
    results = [directions(clean + 0.0227037 * chance.normal(size=clean.shape))[0, 0] for _ in range(400)]
    assert np.mean(results) == pytest.approx(0.8090, abs=4 * 0.0042 / 20)
    assert np.std(results) == pytest.approx(0.0042, rel=0.2)


def test_a_guessed_number_of_records_changes_no_direction() -> None:
    """It divides sums, and the noise of sums does not depend on it."""
    sums = np.random.default_rng(0).normal(scale=RADIUS, size=(3, 5))
    clips = (0.5, 2.0, 1.0)
    np.testing.assert_allclose(directions(means(sums, clips, 8)), directions(means(sums, clips, 5000)), rtol=1e-12)
