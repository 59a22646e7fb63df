"""The release of clusters: how far records that hold a secret move it, and what its noise and its results are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples

from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution import clustering
from dpassay.mechanisms.secret_evolution.clustering import (
    MAX_RECORDS,
    NoisyClusters,
    PublicClusters,
    exact_sums,
    joint_scale,
    release,
    release_as_published,
    running_sums,
    shrink_to_public,
)

Floats = NDArray[np.float64]
Sums = Callable[[PublicClusters, Floats, NDArray[np.bool_]], tuple[NDArray[np.int64], NDArray[np.int64]]]
LINE = PublicClusters(np.array([[-0.6], [0.6]]), np.array([1, 1]), 1.0)
POINTS = np.full((1000, 1), 0.01)
ONE_MORE = np.concatenate([[[-1.0]], POINTS])


class Watched(Recorded):
    """Draws all records, or those of a pattern, and answers with noisy values that were fixed before."""

    def __init__(self, answer: Floats | None = None, drawn: NDArray[np.bool_] | None = None) -> None:
        super().__init__(0)
        self.answer, self.drawn = answer, drawn
        self.asked: list[tuple[Floats, float]] = []

    def add_gaussian(self, values: object, scale: float) -> Floats:
        exact = np.array(values, dtype=np.float64)
        self.asked.append((exact, scale))
        return exact if self.answer is None else self.answer

    def bernoulli(self, probabilities: object) -> NDArray[np.bool_]:
        chances = np.asarray(probabilities)
        return chances > 0 if self.drawn is None else self.drawn


def layout(seed: int, count: int, centres: int, dimension: int) -> tuple[PublicClusters, Floats]:
    """Public clusters and private vectors: opposite to centres, between them, too long, zero, not finite."""
    generator = np.random.default_rng(seed)
    radius = float(generator.choice([1.0, 0.3, 7.0]))
    points = unit_rows(generator.normal(size=(centres, dimension))) * radius * generator.uniform(0, 1, (centres, 1))
    clusters = PublicClusters(points.astype(np.float32), generator.integers(1, 50, centres), radius)
    kinds = [
        -points[generator.integers(centres, size=count)] * 1e3,
        points[generator.integers(centres, size=(2, count))].mean(axis=0),
        unit_rows(generator.normal(size=(count, dimension))) * radius,
        generator.normal(size=(count, dimension)) * 10.0 ** generator.integers(-12, 200, (count, 1)),
        np.zeros((count, dimension)),
        generator.choice([np.nan, np.inf, -np.inf, 0.5], (count, dimension)),
    ]
    return clusters, np.array(kinds, dtype=np.float64)[generator.integers(len(kinds), size=count), np.arange(count)]


def squared_change(with_secret: tuple[NDArray[np.int64], ...], without: tuple[NDArray[np.int64], ...]) -> int:
    """The squared length of the change of counts and sums, in units of 2⁻⁶⁰; whole numbers, exact."""
    counts, sums = (a - b for a, b in zip(with_secret, without, strict=True))
    return sum(int(n) ** 2 for n in counts) + sum(int(n) ** 2 for n in sums.ravel())


def largest_ratio(
    clusters: PublicClusters, vectors: Floats, secret: list[int], others: NDArray[np.bool_], sums: Sums = exact_sums
) -> Fraction:
    """The largest squared change over 2j², for every choice of j of the secret's records, all others as drawn."""
    results = [Fraction(0)]
    without = sums(clusters, vectors, others)
    for size in range(1, len(secret) + 1):
        for chosen in itertools.combinations(secret, size):
            drawn = others.copy()
            drawn[list(chosen)] = True
            change = squared_change(sums(clusters, vectors, drawn), without)
            results.append(Fraction(change, 2 * size**2 * 2**60))
    return max(results)


@examples(20, 60)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), centres=st.integers(1, 5), dimension=st.integers(1, 7))
def test_records_of_a_secret_move_the_release_by_at_most_root_two_each(
    seed: int, count: int, centres: int, dimension: int
) -> None:
    """Brute force, in whole numbers: any records that hold the secret, any of them drawn, any others drawn."""
    clusters, vectors = layout(seed, count, centres, dimension)
    generator = np.random.default_rng(seed)
    secret = generator.choice(count, size=min(count, 4), replace=False).tolist()
    others = generator.random(count) < 0.5
    others[secret] = False
    assert largest_ratio(clusters, vectors, secret, others) <= 1


def test_the_bound_is_reached() -> None:
    """Records opposite to the only centre: each has an offset of length 1 but for 2⁻²⁹."""
    centre = unit_rows(np.array([[3.0, 4.0, -12.0]]))
    clusters = PublicClusters(centre, np.array([7]), 1.0)
    vectors = np.repeat(-centre, 3, axis=0).astype(np.float64)
    ratio = largest_ratio(clusters, vectors, [0, 1, 2], np.zeros(3, dtype=np.bool_))
    assert 1 - 2.0**-27 < ratio <= 1


def test_the_published_sums_move_by_far_more() -> None:
    """One record of −1 before a thousand of .01: counts go from (560, 440) to (611, 390), 71 times the bound of 1.

    The release that is sound moves by one count and one offset.
    """
    everyone = np.ones(1001, dtype=np.bool_)
    before, after = running_sums(LINE, POINTS, everyone[1:])[0], running_sums(LINE, ONE_MORE, everyone)[0]
    assert (before.tolist(), after.tolist()) == ([560, 440], [611, 390])
    assert np.square(after - before).sum() == 51**2 + 50**2 > 2
    sound = exact_sums(LINE, ONE_MORE, everyone), exact_sums(LINE, POINTS, everyone[1:])
    assert squared_change(*sound) <= 2 * 2**60
    assert (sound[0][0] - sound[1][0]).tolist() == [2**30, 0]


def test_running_sums_fail_the_sweep() -> None:
    def published(
        clusters: PublicClusters, vectors: Floats, drawn: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        counts, sums = running_sums(clusters, vectors, drawn)
        return counts << 30, np.rint(sums / (2 * clusters.radius) * 2**30).astype(np.int64)

    vectors = np.concatenate([[[-1.0]], np.full((40, 1), 0.01)])
    others = np.arange(41) > 0
    assert largest_ratio(LINE, vectors, [0], others) <= 1
    assert largest_ratio(LINE, vectors, [0], others, published) > 2


@examples(14, 40)
@given(
    seed=st.integers(0, 10**6), dimension=st.integers(1, 400), radius=st.sampled_from([1.0, 0.1, 3.0, 1e-30, 2.0**99])
)
def test_positions_are_whole_numbers_within_the_radius(seed: int, dimension: int, radius: float) -> None:
    """Exact, for vectors as long as R, a float or two longer, or far too long; and close to the vector."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(6, dimension))
    rows /= np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    rows[0] = np.eye(1, dimension)[0]
    rows[1] = np.round(rows[1])
    scaled = rows * radius * np.array([[1.0], [1], [1], [1 + 2.0**-52], [1 - 2.0**-53], [50]])
    result = clustering.positions_of(scaled, radius)
    assert max(sum(int(n) ** 2 for n in row) for row in result) <= 2**58
    lengths = np.sqrt(np.square(scaled).sum(axis=1, keepdims=True))
    # One unit by rounding toward 0, and half a unit by the margin of 2⁻³⁰ of a coordinate of at most 2²⁹ units.
    assert np.abs(result - scaled / np.maximum(lengths, radius) * 2**29).max() <= 1.5 + 1e-6


def test_a_vector_that_is_too_long_by_less_than_floats_can_tell() -> None:
    """The length of (1, 2⁻²⁹) rounds to 1; without the margin of 2⁻³⁰ its position would be longer than the radius."""
    (result,) = clustering.positions_of(np.array([[1.0, 2.0**-29]]), 1.0)
    assert sum(int(n) ** 2 for n in result) <= 2**58


def test_a_vector_is_put_by_itself() -> None:
    """Positions and assignments of rows are the same alone, in any company, and in any order of memory."""
    clusters, vectors = layout(5, 60, 4, 7)
    positions, assigned = clustering.positions_of(vectors, clusters.radius), clusters.assign(vectors)
    for index in range(60):
        alone = vectors[index : index + 1]
        assert np.array_equal(clustering.positions_of(alone, clusters.radius)[0], positions[index])
        assert clusters.assign(alone)[0] == assigned[index]
    turned = np.asfortranarray(vectors[::-1])
    assert np.array_equal(clustering.positions_of(turned, clusters.radius)[::-1], positions)
    assert np.array_equal(clusters.assign(turned)[::-1], assigned)


def test_strange_vectors_and_ties() -> None:
    """Zeros and numbers that are not finite count as 0, a longer vector as one of length R; ties go to the first."""
    clusters = PublicClusters(np.array([[0.5, 0], [-0.5, 0], [0, 0.25]]), np.array([3, 3, 3]), 0.5)
    vectors = np.array([[0, 0], [np.nan, np.inf], [1e30, 0], [-1e-300, 0], [0, -9.0], [-3.0, 0]])
    assert clusters.assign(vectors).tolist() == [2, 2, 0, 2, 0, 1]
    twins = PublicClusters(np.array([[0.0, 1], [1, 0], [1, 0]]), np.array([1, 1, 1]), 1.0)
    assert twins.assign(np.array([[1.0, 0], [2, 2], [0, -1]])).tolist() == [1, 0, 1]
    counts, sums = exact_sums(clusters, vectors, np.ones(6, dtype=np.bool_))
    assert counts.tolist() == [2 << 30, 1 << 30, 3 << 30]
    # Offsets in units of 2R: (.5, 0) − (.5, 0) and (0, −.5) − (.5, 0) for the first; 2⁻²⁸ for three roundings.
    assert np.allclose(sums / 2**30, [[-0.5, -0.5], [0.0, 0.0], [0.0, -0.75]], rtol=0, atol=2.0**-28)


def test_blocks_and_known_assignments_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clusters, vectors = layout(8, 50, 4, 3)
    drawn = np.random.default_rng(0).random(50) < 0.7
    whole = exact_sums(clusters, vectors, drawn)
    known = exact_sums(clusters, vectors, drawn, clusters.assign(vectors))
    monkeypatch.setattr(clustering, "BLOCK", 3 * 4)
    for counts, sums in (known, exact_sums(clusters, vectors, drawn)):
        assert np.array_equal(counts, whole[0])
        assert np.array_equal(sums, whole[1])


def test_all_numbers_get_noise_once_and_enough() -> None:
    """One call for K(1 + d) numbers, exact, with a scale s of s² ≥ 2σ₁², and less than 2⁻⁵⁰ above that."""
    clusters, vectors = layout(3, 40, 4, 5)
    source = Watched()
    release(clusters, vectors, np.ones(40), 1.7, source)
    ((values, scale),) = source.asked
    counts, sums = exact_sums(clusters, vectors, np.ones(40, dtype=np.bool_))
    assert values.tolist() == [Fraction(int(n), 2**30) for n in (*counts, *sums.ravel())]
    assert scale == joint_scale(1.7)
    for sigma in (0.1, 1.0, 1.7, 123.456, 1e-6):
        ratio = Fraction(joint_scale(sigma)) ** 2 / Fraction(sigma) ** 2
        assert 2 <= ratio < 2 * (1 + Fraction(1, 2**50))
    assert joint_scale(0.0) == 0.0


def test_the_largest_sums_are_exact() -> None:
    """2²² offsets of length 1 stay below 2⁵³ units; one record more is refused before anything is drawn."""
    assert MAX_RECORDS * 2**30 < 2**53
    clusters = PublicClusters(np.array([[1.0, 0]]), np.array([1]), 1.0)
    many = np.broadcast_to(np.zeros((1, 2)), (MAX_RECORDS + 1, 2))
    with pytest.raises(ValueError, match=rf"^one release takes at most {MAX_RECORDS} private records, not"):
        release(clusters, many, np.broadcast_to(np.float64(0.5), MAX_RECORDS + 1), 1.0)


def test_what_is_released_is_a_function_of_noisy_and_public_numbers() -> None:
    """Two data sets, the same noisy values: the same release, bit by bit."""
    clusters, first = layout(1, 30, 4, 5)
    second = layout(2, 25, 4, 5)[1]
    answer = np.random.default_rng(0).normal(scale=20, size=4 * 6)
    noisy, other = (
        release(clusters, vectors, np.ones(len(vectors)), 2.0, Watched(answer)) for vectors in (first, second)
    )
    assert np.array_equal(noisy.centres, other.centres)
    assert np.array_equal(noisy.sizes, other.sizes)
    assert noisy.sizes.tolist() == (clusters.sizes + answer[:4]).tolist()
    below = np.maximum(clusters.sizes, clusters.sizes + answer[:4])
    assert below.min() >= 1
    shifts = answer[4:].reshape(4, 5) * 2 * clusters.radius / below[:, None]
    assert np.allclose(noisy.centres, clusters.vectors + shifts, rtol=1e-14)


def test_without_noise_centres_are_means_of_public_and_private_vectors() -> None:
    """(n_k e_k + Σ x)/(n_k + m_k), for clipped x; each of 40 offsets is off by at most √d units of 2⁻²⁹."""
    generator = np.random.default_rng(0)
    public, private = unit_rows(generator.normal(size=(200, 5))), generator.normal(size=(40, 5))
    clusters = PublicClusters.fit(public, 4, seed=1)
    noisy = release(clusters, private, np.ones(40), 0.0, Watched())
    clipped = private / np.maximum(1, np.sqrt(np.square(private).sum(axis=1, keepdims=True)))
    assigned = clusters.assign(private)
    for k in range(4):
        total = clusters.sizes[k] * clusters.vectors[k] + clipped[assigned == k].sum(axis=0)
        size = clusters.sizes[k] + (assigned == k).sum()
        assert noisy.sizes[k] == size
        assert np.allclose(noisy.centres[k], total / size, rtol=0, atol=40 * 3 * 2.0**-29)


def test_the_published_release_is_as_printed() -> None:
    """Sums n_k·e_k + Σ x over n_k + m_k, noise σ on counts and 2Rσ/n_k on centres."""
    clusters = PublicClusters(np.array([[-0.6], [0.6]]), np.array([2, 4]), 1.0)
    noise = np.array([0.5, -0.5, 3.0, -7.0])
    noisy = release_as_published(clusters, np.array([[2.0], [-0.5]]), np.ones(2), 1.5, Watched(noise))
    # Sums are −1.2 and 2.4; 2.0 is clipped to 1.0 and goes to 2.4, −0.5 to −1.2.
    assert noisy.sizes.tolist() == [3.5, 4.5]
    assert np.allclose(noisy.centres.ravel(), [(-1.2 - 0.5) / 3 + 3.0, (2.4 + 1) / 5 - 7 / 2], rtol=1e-7)
    source = Watched()
    release_as_published(clusters, np.array([[2.0]]), np.ones(1), 1.5, source)
    assert [(values.tolist(), scale) for values, scale in source.asked] == [([0.0] * 4, 1.5)]


def test_records_are_drawn_with_their_own_probabilities() -> None:
    """4000 records at each of three centres; a binomial number within 5 standard deviations, seeded."""
    clusters = PublicClusters(np.eye(3, dtype=np.float32), np.array([1, 1, 1]), 1.0)
    vectors, chances = np.repeat(np.eye(3), 4000, axis=0), np.repeat([0.25, 1.0, 0.0], 4000)
    drawn = release(clusters, vectors, chances, 0.0, Recorded(4)).sizes - 1
    assert drawn[1:].tolist() == [4000.0, 0.0]
    assert abs(drawn[0] - 1000) < 5 * math.sqrt(4000 * 0.25 * 0.75)


def test_no_private_record_is_a_release_too() -> None:
    noisy = release(LINE, np.empty((0, 1)), [], 1.0, Recorded(1))
    assert noisy.sizes.shape == (2,)
    assert LINE.assign(np.empty((0, 1))).shape == (0,)
    assert release(LINE, np.empty((0, 1)), [], 0.0, Recorded(1)).centres.tolist() == LINE.vectors.tolist()


def test_public_clusters_are_means_of_clipped_vectors_with_their_numbers() -> None:
    generator = np.random.default_rng(2)
    topics = np.repeat(np.eye(4) * 3, 25, axis=0) + 0.01 * generator.normal(size=(100, 4))
    clusters = PublicClusters.fit(topics, 4, radius=0.5, seed=0)
    assert sorted(clusters.sizes.tolist()) == [25] * 4
    assert np.allclose(np.sort(clusters.vectors.max(axis=1)), 0.5, atol=1e-3)
    again, other = (PublicClusters.fit(topics, 4, radius=0.5, seed=seed) for seed in (0, 1))
    assert clusters.fingerprint == again.fingerprint != other.fingerprint
    assert clusters.count == 4


def test_noisy_clusters_are_finite_and_of_one_shape() -> None:
    with pytest.raises(ValueError, match="noisy clusters must be finite"):
        NoisyClusters(np.array([[math.nan]]), np.array([1.0]))
    with pytest.raises(ValueError, match="one size for each"):
        NoisyClusters(np.array([[1.0]]), np.array([1.0, 2.0]))


def test_bad_input_is_refused_in_one_line() -> None:
    for vectors, sizes, radius, message in (
        ([[1.0]], [1], 0.0, "radius must be from"),
        ([[1.0]], [1], math.nan, "radius must be from"),
        ([[2.0]], [1], 1.0, "must not be longer than the radius"),
        ([[math.nan]], [1], 1.0, "finite numbers"),
        (np.zeros((0, 1)), [], 1.0, "at least one row"),
        ([[1.0]], [0], 1.0, "size of at least 1"),
        ([[1.0]], [1, 1], 1.0, "size of at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            PublicClusters(np.array(vectors), np.array(sizes), radius)
    with pytest.raises(ValueError, match="2 centres need at least as many distinct"):
        PublicClusters.fit(np.ones((9, 3)), 2)
    with pytest.raises(ValueError, match="finite numbers"):
        PublicClusters.fit(np.array([[math.inf], [1.0]]), 1)
    with pytest.raises(ValueError, match="must have 1 columns"):
        release(LINE, np.ones((2, 3)), [0.5, 0.5], 1.0)
    with pytest.raises(ValueError, match="each of 2 private records needs one probability"):
        release(LINE, np.ones((2, 1)), [0.5], 1.0)
    with pytest.raises(ValueError, match="one cluster for each of 2 private records"):
        release(LINE, np.ones((2, 1)), [0.5, 0.5], 1.0, assigned=np.array([0]))
    with pytest.raises(ValueError, match="numbers from 0 to 1"):
        release(LINE, np.ones((1, 1)), [1.5], 1.0)
    with pytest.raises(ValueError, match="sigma must be"):
        release(LINE, np.ones((1, 1)), [0.5], -1.0)


def test_drawing_back_lowers_the_squared_error_and_leaves_what_is_clear() -> None:
    """A thousand draws at d = 40 with shifts of half the noise's length: by James and Stein's theorem, less error.

    With shifts drawn from N(0, τ²/4) the rule without its positive part has a risk of 1 − (d − 2)/(1.25·d) = .24 of the
    noise's, and the positive part lowers it; 40 000 squares leave a relative standard error of about .01.
    """
    generator = np.random.default_rng(5)
    public = PublicClusters(np.zeros((1000, 40), dtype=np.float32), np.full(1000, 3), 1.0)
    noise = 2 * clustering.joint_scale(0.01) / 3
    true = 0.5 * noise * generator.normal(size=(1000, 40))
    sizes = 3 + clustering.joint_scale(0.01) * 0.9 * generator.normal(size=1000)
    drawn = NoisyClusters(true + noise * generator.normal(size=true.shape), sizes)
    back = shrink_to_public(drawn, public, 0.01)
    before, after = (np.square(some.centres - true).sum() for some in (drawn, back))
    assert 0.2 < after / before < 0.25
    assert np.array_equal(back.sizes, public.sizes)  # a thousand sizes that did not change, and noise on them
    counts = NoisyClusters(true, 3.0 + 100 * (np.arange(1000) % 7 == 0))
    assert np.allclose(shrink_to_public(counts, public, 0.01).sizes, counts.sizes, rtol=1e-5)
    far = NoisyClusters(np.ones((1000, 40)), np.full(1000, 3.0))
    assert np.allclose(shrink_to_public(far, public, 1e-4).centres, 1.0, atol=1e-5)
    assert np.array_equal(shrink_to_public(far, public, 0.0).centres, far.centres)
    assert shrink_to_public(drawn, public, 100.0).centres.max() == 0.0
