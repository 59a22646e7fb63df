"""Scores of canaries in noisy marginals, against a dense solution of the same equations, and what they separate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpassay.attacks.marginals.membership import coin_scores
from dpassay.mechanisms.marginals.tables import NoisyMarginal

SIZES = (6, 4, 3)
CLIQUES = ((0,), (1,), (0, 2), (2, 1), (0,))
COINS = 25


def levels(rng: np.random.Generator, count: int) -> list[Any]:
    return [rng.integers(size, size=count) for size in SIZES]


def counts(columns: tuple[int, ...], rows: list[Any], weights: Any = None) -> Any:
    """Counts of all cells, in row-major order, one row after the other."""
    shape = [SIZES[column] for column in columns]
    total = np.zeros(shape)
    for index in range(len(rows[0])):
        total[tuple(rows[column][index] for column in columns)] += 1 if weights is None else weights[index]
    return total.ravel()


def released(sigmas: list[float], swapped: bool, seed: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    known, ones, zeros = levels(rng, 40), levels(rng, COINS), levels(rng, COINS)
    coins = rng.integers(2, size=COINS)
    marginals = []
    for columns, sigma in zip(CLIQUES, sigmas, strict=True):
        exact = counts(columns, known) + counts(columns, ones, coins)
        exact += counts(columns, zeros, 1 - coins) if swapped else 0
        noise = np.rint(rng.normal(scale=sigma, size=exact.size)) if sigma > 0.1 else np.zeros(exact.size)
        marginals.append(NoisyMarginal(columns, sigma, tuple((exact + noise).astype(int).tolist())))
    return marginals, known, ones, zeros if swapped else None, coins


@pytest.mark.parametrize("swapped", [False, True])
def test_scores_solve_the_normal_equations(swapped: bool) -> None:
    """(Σ AᵀA/σ² + 4)x = Σ Aᵀ(y − known − ½)/σ², with matrices that are written out; CG is exact to about 1e-5."""
    sigmas = [1.0, 2.0, 0.5, 3.0, 1e8]
    marginals, known, ones, zeros, _ = released(sigmas, swapped, 0)
    left, right = 4.0 * np.eye(COINS), np.zeros(COINS)
    for item in marginals:
        matrix = np.stack([counts(item.columns, ones, row) for row in np.eye(COINS)], axis=1)
        middle = matrix.sum(axis=1) / 2
        if zeros is not None:
            absent = np.stack([counts(item.columns, zeros, row) for row in np.eye(COINS)], axis=1)
            middle = middle + absent.sum(axis=1) / 2
            matrix = matrix - absent
        left += matrix.T @ matrix / item.sigma**2
        right += matrix.T @ (np.array(item.counts) - counts(item.columns, known) - middle) / item.sigma**2
    expected = np.linalg.solve(left, right)
    assert coin_scores(marginals, SIZES, known, ones, zeros) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("swapped", [False, True])
def test_exact_counts_of_distinct_cells_give_the_coins(swapped: bool) -> None:
    rng = np.random.default_rng(1)
    sizes, cells = (60,), rng.permutation(60)
    ones, zeros, coins = [cells[:25]], [cells[25:50]] if swapped else None, rng.integers(2, size=COINS)
    exact = np.zeros(60)
    np.add.at(exact, ones[0], coins)
    if zeros is not None:
        np.add.at(exact, zeros[0], 1 - coins)
    item = NoisyMarginal((0,), 1e-3, tuple(exact.astype(int).tolist()))
    scores = coin_scores([item], sizes, [np.zeros(0, dtype=np.int64)], ones, zeros)
    assert scores == pytest.approx(coins - 0.5, abs=1e-4)


def test_noise_without_coins_gives_nothing() -> None:
    """Scores shrink to 0 as the noise grows."""
    marginals, known, ones, zeros, _ = released([1e8] * 5, False, 2)
    assert np.abs(coin_scores(marginals, SIZES, known, ones, zeros)).max() < 1e-6
