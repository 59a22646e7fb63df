"""Votes of records and of noisy clusters, and what is kept of the candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples

from dpassay.mechanisms.embedding.embedder import unit_rows
from dpassay.mechanisms.evolution import voting
from dpassay.mechanisms.evolution.voting import record_votes
from dpassay.mechanisms.primitives import nearest as nearest_module
from dpassay.mechanisms.secret_evolution.clustering import NoisyClusters
from dpassay.mechanisms.secret_evolution.voting import centre_votes, kept_by_centres


def near_ties(seed: int, count: int, dimension: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Records, and candidates in pairs that differ by a few units of float32 and thirds that are equal to the first."""
    generator = np.random.default_rng(seed)
    candidates = unit_rows(generator.normal(size=(3, dimension)))
    twins = (candidates * (1 + generator.integers(-2, 3, size=candidates.shape) * 2.0**-24)).astype(np.float32)
    return unit_rows(generator.normal(size=(count, dimension))), np.concatenate([candidates, twins, candidates])


@examples(12, 25)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 12), block=st.integers(1, 13))
def test_a_record_less_moves_one_vote(seed: int, count: int, block: int) -> None:
    """Brute force over neighbours: without any one record, one number is smaller by 1 and no other moves."""
    vectors, candidates = near_ties(seed, count)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(nearest_module, "BLOCK_BYTES", 4 * block * (6 + 6 * 65))
        whole = record_votes(vectors, candidates)
        assert whole.sum() == count
        assert whole[6:].tolist() == [0, 0, 0]  # equal candidates: the first one gets the votes
        for index in range(count):
            change = whole - record_votes(np.delete(vectors, index, axis=0), candidates)
            assert sorted(change.tolist()) == [0] * 8 + [1]


def test_another_value_of_a_record_moves_at_most_one_vote() -> None:
    vectors, candidates = near_ties(1, 10)
    whole = record_votes(vectors, candidates)
    for index in range(10):
        other = vectors.copy()
        other[index] = -vectors[index]
        change = (record_votes(other, candidates) - whole).tolist()
        assert sorted(change) in ([-1, *[0] * 7, 1], [0] * 9)


def test_products_that_depend_on_the_block_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums in float32 in another order for another number of rows, as libraries have it for one row: 3 votes move."""

    def blockwise(vectors: NDArray[np.float32], candidates: NDArray[np.float32]) -> NDArray[np.int64]:
        order = slice(None, None, -1 if len(vectors) % 2 else 1)
        terms = vectors[:, None, order] * candidates[:, order] - np.square(candidates[:, order]) / 2
        return np.asarray(np.cumsum(terms, axis=2, dtype=np.float32)[:, :, -1].argmax(axis=1))

    def largest_change(seed: int) -> int:
        vectors, candidates = near_ties(seed, 2)
        return int(np.abs(record_votes(vectors, candidates) - record_votes(vectors[1:], candidates)).sum())

    assert {largest_change(seed) for seed in range(60)} == {1}
    monkeypatch.setattr(voting, "nearest", blockwise)
    assert {largest_change(seed) for seed in range(60)} == {1, 3}


def test_clusters_vote_with_their_sizes() -> None:
    candidates = np.eye(3, dtype=np.float32)
    noisy = NoisyClusters(np.array([[5.0, 1, 0], [0, 0.2, 0.1], [0.1, 0.3, 0], [0, -1, -2]]), np.array([2.5, 4, 1, -7]))
    # The last centre is nearest to the first candidate; its size is negative and counts as 0.
    assert centre_votes(noisy, candidates).tolist() == [2.5, 5.0, 0.0]


def test_the_most_voted_are_kept_first() -> None:
    candidates = np.eye(4, dtype=np.float32)
    noisy = NoisyClusters(np.array([[0, 1, 0, 0], [0, 0, 0, 1], [0, 0.9, 0.1, 0]]), np.array([2.0, 5, 1]))
    assert kept_by_centres(noisy, candidates, 1).tolist() == [3]
    assert kept_by_centres(noisy, candidates, 2).tolist() == [3, 1]


@examples(17, 50)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 40), min_size=2, max_size=4), count=st.integers(1, 60))
def test_centres_keep_in_proportion_to_their_sizes(seed: int, sizes: list[int], count: int) -> None:
    """Centres far apart with 60 candidates each: shares are those of the divisor method, by searching all rounds."""
    generator = np.random.default_rng(seed)
    centres = 100.0 * np.eye(len(sizes))
    candidates = np.concatenate([centre + generator.normal(size=(60, len(sizes))) for centre in centres])
    order = generator.permutation(len(candidates))
    kept = kept_by_centres(NoisyClusters(centres, np.array(sizes)), candidates[order], count)
    assert len(set(kept.tolist())) == count
    by_centre = [[int(index) for index in kept if order[index] // 60 == position] for position in range(len(sizes))]
    for own, centre in zip(by_centre, centres, strict=True):  # the nearest ones
        away = np.linalg.norm(candidates[order] - centre, axis=1)
        assert sorted(own) == sorted(np.argsort(away)[: len(own)].tolist())
    if count >= len(sizes):  # no candidate more for one centre would have been due before one that another has
        held = [len(own) for own in by_centre]
        for last, size in zip(held, sizes, strict=True):
            for more, other in zip(held, sizes, strict=True):
                assert last <= 1 or size * (2 * more + 1) >= other * (2 * last - 1)


def test_without_a_positive_size_centres_keep_equally() -> None:
    candidates = np.array([[0.0], [0.1], [0.2], [10.0], [10.1], [10.2]])
    kept = kept_by_centres(NoisyClusters(np.array([[0.0], [10.0]]), np.array([-3.0, 0.0])), candidates, 4)
    assert sorted(kept.tolist()) == [0, 1, 3, 4]


def test_bad_input_is_refused_in_one_line() -> None:
    noisy = NoisyClusters(np.zeros((1, 2)), np.ones(1))
    with pytest.raises(ValueError, match=r"^count must be at most the number of candidates, 2, not 3$"):
        kept_by_centres(noisy, np.eye(2), 3)
    with pytest.raises(ValueError, match="count must be"):
        kept_by_centres(noisy, np.eye(2), 0)
    with pytest.raises(ValueError, match="no candidate"):
        record_votes(np.zeros((3, 2)), np.zeros((0, 2)))
    with pytest.raises(ValueError, match="equally many columns"):
        record_votes(np.zeros((3, 2)), np.zeros((1, 3)))
