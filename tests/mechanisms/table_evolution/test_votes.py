"""Votes of rows for candidates: who votes for what, by brute force, and the exact size of a vote beside its noise."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from little_tables import PEOPLE, people

from dpassay.data.table_schema import MISSING
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.table_evolution import candidates as cells
from dpassay.mechanisms.table_evolution.candidates import ColumnCandidates, ColumnDomain
from dpassay.mechanisms.table_evolution.votes import (
    TableView,
    VotesGrid,
    exact_votes,
    noisy_votes,
    votes_grids,
)

domains = st.builds(
    ColumnDomain, size=st.integers(1, 3000), missing=st.booleans(), is_category=st.just(False)
) | st.builds(ColumnDomain, size=st.integers(1, 30), missing=st.booleans(), is_category=st.just(True))


@given(
    noise=st.floats(2.0**-22, 2.0**22),
    sizes=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40),
)
def test_a_row_moves_a_round_by_at_most_what_its_event_says(noise: float, sizes: list[float]) -> None:
    """Exact fractions: the squared votes of one row over the variance of their noise add up to at most 1/σ², and to
    hardly less, in all views together: a vote is rounded down by less than two units."""
    weights = [size / sum(sizes) / (1 + 1e-14) for size in sizes]
    grids = votes_grids(noise, weights)
    total = sum(Fraction(grid.units, 2 ** (grid.bits or 0)) ** 2 for grid in grids)
    assert all(grid.bits is not None and grid.units >= 1 for grid in grids)
    least = min(grid.units for grid in grids)
    assert 1 - Fraction(5, least) <= total * Fraction(noise) ** 2 <= 1
    for grid, weight in zip(grids, weights, strict=True):
        assert grid.deviation == pytest.approx(noise / weight**0.5, rel=2 / grid.units)


@pytest.mark.parametrize("weights", [[0.6, 0.6], [0.0, 0.5], [-0.1], [float("nan")]])
def test_weights_are_shares(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights of views must be above 0 and add up to at most 1"):
        votes_grids(1.0, weights)


def test_noise_is_a_normal_variable_on_the_grid() -> None:
    """100,000 votes of 7 with a deviation of 3: mean, deviation and multiples of the unit. The mean deviates by .0095,
    the deviation by .0067: five of each are allowed, a false alarm in 10⁻⁶."""
    (grid,) = votes_grids(3.0, [1.0])
    noisy = noisy_votes(np.full(100_000, 7), grid, Recorded(1))
    assert abs(noisy.mean() - 7) < 5 * 3 / 100_000**0.5
    assert abs(noisy.std() - 3) < 5 * 3 / 200_000**0.5
    units = noisy[:100] * grid.units
    assert np.abs(units - np.rint(units)).max() < 1e-6
    assert noisy_votes(np.arange(3), VotesGrid(1, None), Recorded(1)).tolist() == [0, 1, 2]


@given(domain=domains, seed=st.integers(0, 10**6))
def test_every_value_is_in_one_cell_however_cells_are_divided(domain: ColumnDomain, seed: int) -> None:
    """Three rounds of random divisions; the cells are those of before, or parts of them, of nearly equal sizes."""
    rng = np.random.default_rng(seed)
    starts = cells.first_cells(domain, cells.FIRST_CELLS)
    for _ in range(3):
        assert starts[0] == 0
        assert (np.diff(starts) > 0).all()
        assert starts[-1] < domain.length
        assert cells.widths(domain, starts).sum() == domain.length
        if domain.missing:
            assert starts[-1] == domain.size
        if domain.is_category:
            assert len(starts) == domain.length
        counts = rng.exponential(size=len(starts))
        new = cells.divided(domain, starts, counts, 1.0)
        assert set(starts.tolist()) <= set(new.tolist())
        assert len(new) <= max(cells.MAX_CELLS, len(starts))
        small = counts <= 1
        assert np.isin(np.append(starts, domain.length)[1:][small], np.append(new, domain.length)).all()
        starts = new


@given(domain=domains, seed=st.integers(0, 10**6), least=st.floats(0.1, 100))
def test_joined_cells_have_enough_rows_where_possible(domain: ColumnDomain, seed: int, least: float) -> None:
    rng = np.random.default_rng(seed)
    starts = cells.first_cells(domain, cells.FIRST_CELLS)
    counts = rng.exponential(scale=3.0, size=len(starts))
    joined = cells.joined(domain, starts, counts, least)
    assert sorted(set(joined.levels.tolist())) == list(range(joined.count))
    rows = np.bincount(joined.levels, counts)
    filled = joined.count - domain.missing
    if domain.missing:
        assert (joined.levels == joined.count - 1).sum() == 1, "the empty cell is a candidate of its own"
    if domain.is_category:
        assert (rows[:filled] < least).sum() <= 1, "one candidate of rare categories"
    else:
        assert (np.diff(joined.levels) >= 0).all(), "only neighbours are joined"
        small = np.flatnonzero(rows[:filled] < least)
        frequent = [level for level in range(filled) if counts[joined.levels == level].max() >= least]
        assert all(level + 1 in frequent or level == filled - 1 for level in small), "beside a frequent cell, or last"


def test_votes_are_those_of_a_count_by_hand() -> None:
    """Single columns and pairs of a table with numbers, dates, categories and empty cells, against counted words."""
    rows = people(300)
    domains = cells.domains_of(PEOPLE)
    places = cells.positions(PEOPLE, rows)
    candidates = [ColumnCandidates.of_cells(cells.first_cells(domain, cells.FIRST_CELLS)) for domain in domains]
    by_sex = exact_votes(candidates, TableView((0,), 1.0), places)
    assert by_sex.tolist() == [sum(row[0] == sex for row in rows) for sex in "fm"]
    ages = exact_votes(candidates, TableView((1,), 1.0), places)
    assert ages[-1] == sum(row[1] == MISSING for row in rows)
    bounds = [index * 401 // 128 for index in range(129)]
    numbers = [int(row[1]) for row in rows if row[1] != MISSING]
    counted = [sum(low <= number < high for number in numbers) for low, high in pairwise(bounds)]
    assert ages[:-1].tolist() == counted
    both = exact_votes(candidates, TableView((0, 3), 1.0), places).reshape(2, 5)
    pairs = Counter((row[0], row[3]) for row in rows)
    assert both.tolist() == [[pairs[sex, city] for city in ("a", "b", "c", "d", MISSING)] for sex in "fm"]


def test_a_wide_domain_is_divided_without_overflow() -> None:
    domain = ColumnDomain(2**54, True, False)
    starts = cells.first_cells(domain, cells.FIRST_CELLS)
    for _ in range(4):
        starts = cells.divided(domain, starts, np.ones(len(starts)), 0.5)
    assert (np.diff(starts) > 0).all()
    assert starts[-1] == 2**54
