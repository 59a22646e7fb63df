"""Rows that evolve: their votes are counted right after any number of changes, and come to those that were wanted."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.table_evolution.population import Population, first_population, values_of

COUNTS = (4, 3, 5)


def voted(rows: list[Integers], counts: tuple[int, ...] = COUNTS) -> dict[tuple[int, int], Floats]:
    """The votes of rows, counted one by one."""
    result = {pair: np.zeros((counts[pair[0]], counts[pair[1]])) for pair in combinations(range(len(counts)), 2)}
    for row in zip(*rows, strict=True):
        for (first, second), votes in result.items():
            votes[row[first], row[second]] += 1
    return result


def dependent(count: int, seed: int) -> list[Integers]:
    """Rows whose columns follow each other."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 4, count)
    second = np.where(rng.random(count) < 0.8, first % 3, rng.integers(0, 3, count))
    return [first, second, (first + second + (rng.random(count) < 0.2)) % 5]


@given(seed=st.integers(0, 10**6), generations=st.integers(1, 6))
def test_votes_are_counted_right_after_every_change(seed: int, generations: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, count, 60) for count in COUNTS]
    population = Population(rows, COUNTS)
    population.evolve(voted(dependent(60, seed)), generations, rng)
    assert {pair: votes.tolist() for pair, votes in population.votes.items()} == {
        pair: votes.tolist() for pair, votes in voted(population.rows).items()
    }
    assert all(((row >= 0) & (row < count)).all() for row, count in zip(population.rows, COUNTS, strict=True))


def test_rows_come_to_the_votes_of_other_rows() -> None:
    """From independent columns, a total variation of .3, to less than .01 in each pair, for 2000 rows."""
    wanted = voted(dependent(2000, 1))
    shares = [np.bincount(row, minlength=count) / 2000 for row, count in zip(dependent(2000, 1), COUNTS, strict=True)]
    rng = np.random.default_rng(0)
    population = Population(first_population(shares, 2000, rng), COUNTS)

    def apart() -> float:
        return max(float(np.abs(population.votes[pair] - wanted[pair]).sum()) for pair in wanted) / 4000

    assert apart() > 0.2
    seen: list[tuple[int, int]] = []
    population.evolve(wanted, 100, rng, lambda done, total: seen.append((done, total)))
    assert apart() < 0.01
    assert seen == [(number, 100) for number in range(1, 101)]


@given(seed=st.integers(0, 10**6), count=st.integers(1, 200))
def test_the_first_rows_have_the_shares_of_each_column_up_to_one_row(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    shares = [rng.dirichlet(np.full(size, 0.3)) for size in COUNTS]
    for row, share in zip(first_population(shares, count, rng), shares, strict=True):
        assert row.shape == (count,)
        assert np.abs(np.bincount(row, minlength=len(share)) - count * share).max() < 1 + 1e-9


def test_values_are_in_the_cells_of_their_candidates() -> None:
    rng = np.random.default_rng(3)
    starts, sizes = np.array([0, 10, 11, 40]), np.array([10, 1, 29, 1])
    cells, shares = np.array([0, 1, 0, 2]), np.array([90.0, 5.0, 0.0, 7.0])
    levels = rng.integers(0, 3, 3000)
    found = values_of(levels, cells, shares, starts, sizes, rng)
    assert (found[levels == 1] == 10).all()
    assert (found[levels == 2] == 40).all()
    assert (found[levels == 0] < 10).all(), "a cell without rows is not taken"
    # about 1000 values, each of ten with probability .1: all occur, up to 10·.9¹⁰⁰⁰ < 10⁻⁴⁴
    assert set(found[levels == 0].tolist()) == set(range(10))


@pytest.mark.parametrize("size", [1, 2])
def test_an_absent_candidate_gets_no_values(size: int) -> None:
    found = values_of(
        np.zeros(4, dtype=np.int64),
        np.arange(size),
        np.ones(size),
        np.arange(size),
        np.ones(size, dtype=np.int64),
        np.random.default_rng(0),
    )
    assert found.tolist() == [0, 0, 0, 0]
