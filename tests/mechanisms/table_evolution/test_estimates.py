"""Estimates from released votes: least squares and a nearest point by other solvers, and the limits of little noise and
much noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.table_evolution.estimates import (
    ColumnVotes,
    column_counts,
    margins,
    pair_counts,
    shrunk,
)


def nested(rng: np.random.Generator) -> list[Integers]:
    """Cells of 0 to 63 in three rounds, some of which are divided in two."""
    rounds = [np.arange(0, 64, 8)]
    for _ in range(2):
        old = rounds[-1]
        sizes = np.diff(np.append(old, 64))
        new = [
            [start, start + size // 2] if rng.random() < 0.5 else [start]
            for start, size in zip(old, sizes, strict=True)
        ]
        rounds.append(np.array([start for pieces in new for start in pieces]))
    return rounds


@given(seed=st.integers(0, 10**6))
def test_votes_of_all_rounds_are_used_as_in_least_squares(seed: int) -> None:
    """With so little noise beside what is expected that nothing is shrunk, the counts are those of weighted least
    squares over all rounds, solved by NumPy, scaled to the public total."""
    rng = np.random.default_rng(seed)
    rounds = nested(rng)
    exact = rng.integers(4000, 8000, 64).astype(np.float64)
    votes, rows, seen = [], [], []
    for starts, deviation in zip(rounds, (9.0, 2.0, 5.0), strict=True):
        noisy = np.add.reduceat(exact, starts) + rng.normal(scale=deviation, size=len(starts))
        votes.append(ColumnVotes(starts, noisy, deviation))
        part = np.searchsorted(starts, rounds[-1], side="right") - 1
        rows.append((part[None] == np.arange(len(starts))[:, None]) / deviation)
        seen.append(noisy / deviation)
    wanted = np.linalg.lstsq(np.vstack(rows), np.concatenate(seen), rcond=None)[0]
    sizes = [np.diff(np.append(starts, 64)).astype(np.float64) for starts in rounds]
    found = column_counts(votes, sizes, exact.sum())
    wanted *= exact.sum() / wanted.sum()
    # Shrinkage moves a count by less than its noise; cells have 4000 rows or more, and noise of 9 or less.
    assert np.abs(found - wanted).max() < 9
    assert found.sum() == pytest.approx(exact.sum(), rel=1e-12)


@given(seed=st.integers(0, 10**6), scale=st.sampled_from([1e-6, 1.0, 30.0, 1e5]))
def test_counts_follow_the_votes_or_what_is_expected(seed: int, scale: float) -> None:
    """Without noise they are the votes; where noise is larger than all counts, they are near what is expected."""
    rng = np.random.default_rng(seed)
    expected = rng.exponential(200, size=(8, 9))
    exact = np.where(rng.random((8, 9)) < 0.5, 0.0, 2 * expected)
    found = shrunk(exact + rng.normal(scale=scale, size=(8, 9)), expected, np.asarray(scale))
    assert found.shape == (8, 9)
    assert (found >= 0).all()
    if scale < 1e-3:
        assert np.abs(found - exact).max() < 1e-3
    if scale > 1e3:
        assert np.abs(found / found.sum() - expected / expected.sum()).sum() / 2 < 0.05


def test_shrunk_counts_are_nearer_than_released_ones() -> None:
    """1000 counts, most of them as expected and one in ten five times as many, with noise of their size."""
    rng = np.random.default_rng(1)
    expected = np.full(1000, 20.0)
    exact = np.where(rng.random(1000) < 0.1, 100.0, 20.0)
    noisy = exact + rng.normal(scale=20, size=1000)
    found = shrunk(noisy, expected, np.asarray(20.0))
    assert np.square(found - exact).mean() < 0.4 * np.square(noisy - exact).mean()


@given(seed=st.integers(0, 10**6))
def test_shares_are_the_nearest_point_that_adds_up_to_one(seed: int) -> None:
    """Against a constrained minimiser, for votes of two pairs."""
    rng = np.random.default_rng(seed)
    own = rng.normal(100, 80, 5)
    others = [(rng.normal(30, 30, (5, 3)), 4.0), (rng.normal(20, 30, (5, 4)), 7.0)]
    sums = [(own, 6.0**2)] + [(noisy.sum(axis=1), noisy.shape[1] * deviation**2) for noisy, deviation in others]
    precision = sum(1 / variance for _, variance in sums)
    mean = sum(item / variance for item, variance in sums) / precision

    def distance(shares: Floats) -> float:
        return float(np.square(500 * shares - mean).sum()) / 500**2

    wanted: dict[str, Any] = {
        "bounds": [(0, 1)] * 5,
        "constraints": {"type": "eq", "fun": lambda shares: shares.sum() - 1},
        "options": {"ftol": 1e-14, "maxiter": 500},
    }
    best = minimize(distance, np.full(5, 0.2), **wanted)
    found = margins(own, 36.0, others, 500.0)
    assert found.sum() == pytest.approx(1, rel=1e-12)
    assert (found >= 0).all()
    assert distance(found) <= distance(best.x) + 1e-9


def test_pairs_have_the_sums_of_their_columns() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.exponential(size=6), rng.exponential(size=7)
    first, second = 1000 * first / first.sum(), 1000 * second / second.sum()
    noisy = np.outer(first, second) / 1000 + rng.normal(scale=5, size=(6, 7))
    found = pair_counts(noisy, 5.0, np.outer(first, second) / 1000, first, second)
    assert found.sum(axis=0) == pytest.approx(second, rel=1e-9)
    assert found.sum(axis=1) == pytest.approx(first, rel=1e-2)


@given(seed=st.integers(0, 10**6), noise=st.sampled_from([3.0, 30.0, 300.0]))
def test_first_cells_have_the_most_likely_counts(seed: int, noise: float) -> None:
    """By another solver: votes of a second round make some cells surer than others, and counts are at least 0."""
    rng = np.random.default_rng(seed)
    exact = np.where(rng.random(8) < 0.5, 0.0, rng.integers(0, 60, 8)).astype(np.float64)
    first, second = np.arange(0, 16, 2), np.array([0, 1, 2, 3, 4, 6, 8, 10, 12, 14])
    parts = np.concatenate([np.repeat(exact[:2] / 2, 2), exact[2:]])
    votes = [
        ColumnVotes(starts, counts + rng.normal(scale=deviation, size=len(counts)), deviation)
        for starts, counts, deviation in ((first, exact, noise), (second, parts, noise / 2))
    ]
    sizes = [np.diff(np.append(starts, 16)).astype(np.float64) for starts in (first, second)]
    found = np.add.reduceat(column_counts(votes, sizes, exact.sum() + 1.0), np.searchsorted(second, first))
    sums = np.add.reduceat(votes[1].noisy, np.searchsorted(second, first))
    others = np.array([2, 2, 1, 1, 1, 1, 1, 1]) * (noise / 2) ** 2
    variances = 1 / (1 / noise**2 + 1 / others)
    wanted = variances * (votes[0].noisy / noise**2 + sums / others)

    def loss(counts: Floats) -> float:
        return float((np.square(counts - wanted) / variances).sum())

    total = exact.sum() + 1.0
    given: dict[str, Any] = {
        "bounds": [(0, None)] * 8,
        "constraints": {"type": "eq", "fun": lambda counts: counts.sum() - total},
        "options": {"ftol": 1e-14, "maxiter": 500},
    }
    solved = minimize(loss, np.full(8, total / 8), **given)
    assert found.sum() == pytest.approx(total, rel=1e-9)
    assert (found >= 0).all()
    assert loss(found) <= loss(np.asarray(solved.x)) + 1e-6 * (1 + loss(found))
