"""Votes of records and of noisy clusters, and what is kept of the candidates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cupel.mechanisms import nearest as nearest_module
from cupel.mechanisms import voting
from cupel.mechanisms.embedders import unit_rows
from cupel.mechanisms.secret_clustering import NoisyClusters
from cupel.mechanisms.voting import centre_votes, nearest_candidates, record_votes, select


def near_ties(seed: int, count: int, dimension: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Records, and candidates in pairs that differ by a few units of float32 and thirds that are equal to the first."""
    generator = np.random.default_rng(seed)
    candidates = unit_rows(generator.normal(size=(3, dimension)))
    twins = (candidates * (1 + generator.integers(-2, 3, size=candidates.shape) * 2.0**-24)).astype(np.float32)
    return unit_rows(generator.normal(size=(count, dimension))), np.concatenate([candidates, twins, candidates])


@settings(max_examples=25, deadline=None)
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
        return np.cumsum(terms, axis=2, dtype=np.float32)[:, :, -1].argmax(axis=1)

    def largest_change(seed: int) -> int:
        vectors, candidates = near_ties(seed, 2)
        return int(np.abs(record_votes(vectors, candidates) - record_votes(vectors[1:], candidates)).sum())

    assert {largest_change(seed) for seed in range(60)} == {1}
    monkeypatch.setattr(voting, "nearest", blockwise)
    assert {largest_change(seed) for seed in range(60)} == {1, 3}


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(0, 30), long=st.floats(0.1, 50))
def test_distances_are_those_of_all_pairs(seed: int, count: int, long: float) -> None:
    """Against all differences. 2⁻²⁰ covers the grid: 8√6·2⁻²⁴·(length of the longer, squared, doubled) is 5·10⁻⁶."""
    generator = np.random.default_rng(seed)
    vectors, candidates = generator.normal(size=(count, 6)), unit_rows(generator.normal(size=(9, 6)))
    vectors *= long
    indices, distances = nearest_candidates(vectors, candidates)
    pairs = np.square(vectors[:, None] - candidates.astype(np.float64)).sum(axis=2)
    assert np.allclose(distances, pairs[np.arange(count), indices], rtol=1e-12)
    assert (distances <= pairs.min(axis=1, initial=np.inf) + 2.0**-20 * max(1, 20 * long)).all()
    assert indices.dtype == np.int64
    assert distances.shape == (count,)


def test_clusters_vote_with_their_sizes() -> None:
    candidates = np.eye(3, dtype=np.float32)
    noisy = NoisyClusters(np.array([[5.0, 1, 0], [0, 0.2, 0.1], [0.1, 0.3, 0], [0, -1, -2]]), np.array([2.5, 4, 1, -7]))
    # The last centre is nearest to the first candidate; its size is negative and counts as 0.
    assert centre_votes(noisy, candidates).tolist() == [2.5, 5.0, 0.0]


def test_the_most_voted_are_kept_and_the_nearest_fill_up() -> None:
    votes, distances = [0.0, 3.0, -2.0, 3.0, 5.0, 0.0], [0.3, 0.9, 0.1, 0.2, 0.8, 0.1]
    assert select(votes, distances, 1).tolist() == [4]
    assert select(votes, distances, 3).tolist() == [4, 3, 1]
    # Without a positive vote: by distance, equal distances by index. A negative number is no worse than none.
    assert select(votes, distances, 6).tolist() == [4, 3, 1, 2, 5, 0]


@settings(max_examples=50, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(-2, 4), st.integers(0, 3)), min_size=1, max_size=12),
    data=st.data(),
)
def test_selection_is_an_order_of_all(pairs: list[tuple[int, int]], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(pairs)))
    votes, distances = zip(*pairs, strict=True)
    order = sorted(range(len(pairs)), key=lambda i: (-max(votes[i], 0), distances[i], i))
    assert select(votes, distances, count).tolist() == order[:count]


def test_bad_input_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"^count must be at most the number of candidates, 2, not 3$"):
        select([1, 2], [0.0, 0.0], 3)
    with pytest.raises(ValueError, match="count must be"):
        select([1, 2], [0.0, 0.0], 0)
    for votes, distances in (([1, np.nan], [0, 0]), ([1, 2], [0, np.inf]), ([1, 2], [0]), ([[1, 2]], [[1, 2]])):
        with pytest.raises(ValueError, match="two equally long lists of finite numbers"):
            select(votes, distances, 1)
    with pytest.raises(ValueError, match="no candidate"):
        record_votes(np.zeros((3, 2)), np.zeros((0, 2)))
    with pytest.raises(ValueError, match="equally many columns"):
        nearest_candidates(np.zeros((3, 2)), np.zeros((1, 3)))
