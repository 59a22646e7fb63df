"""Coins are found in vectors without noise, and the regression is the best linear estimate."""

from __future__ import annotations

import numpy as np
import pytest

from dpassay.attacks.dataset_vectors.membership import PROJECTION, REGRESSION, coin_scores


def setting(m: int, d: int, scale: float, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    chance = np.random.default_rng(seed)
    changes = chance.normal(size=(m, 2, d)) + chance.normal(size=(2, d))  # with a part that all share
    coins, known = chance.integers(0, 2, m).astype(bool), chance.normal(size=(2, d))
    released = known + changes[coins].sum(axis=0) + scale * chance.normal(size=(2, d))
    return coins, coin_scores(released, known, changes, scale)


def test_without_noise_every_coin_is_found() -> None:
    coins, scores = setting(30, 40, 0.0)
    np.testing.assert_allclose(scores[REGRESSION], coins - 0.5, atol=1e-4)


def test_noise_hides_the_coins() -> None:
    agree = []
    for seed in range(20):
        coins, scores = setting(30, 40, 1e4, seed)
        agree.append(((scores[REGRESSION] > 0) == coins).mean())
    assert np.mean(agree) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(600))


def test_the_regression_is_the_best_linear_estimate() -> None:
    """By the joint covariance of coins of variance ¼ and the sum, as in any textbook."""
    chance = np.random.default_rng(3)
    changes, known, released = chance.normal(size=(7, 2, 3)), chance.normal(size=(2, 3)), chance.normal(size=(2, 3))
    rows, scale = changes.reshape(7, -1), 0.8
    covariance = rows.T @ rows / 4 + scale**2 * np.eye(6)
    expected = (rows / 4) @ np.linalg.inv(covariance) @ ((released - known).ravel() - rows.sum(axis=0) / 2)
    scores = coin_scores(released, known, changes, scale)
    np.testing.assert_allclose(scores[REGRESSION], expected, rtol=1e-10)
    assert set(scores) == {REGRESSION, PROJECTION}


def test_records_that_change_nothing_have_no_score() -> None:
    scores = coin_scores(np.ones((1, 2)), np.zeros((1, 2)), np.zeros((3, 1, 2)), 1.0)
    assert all((values == 0).all() for values in scores.values())
