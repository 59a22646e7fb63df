"""Guesses of secrets: success against closed forms, integrals and sums over all outcomes."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpassay.attacks.secrets.reconstruction import SecretGuesses, SecretModel, gaussian_release, guess_secrets

FIVE_SIGMA = 5.0
"""A binomial count of some hundreds is so far off with probability below 1e-6."""


def check(result: SecretGuesses, wanted: float) -> None:
    margin = FIVE_SIGMA * math.sqrt(result.games * wanted * (1 - wanted)) + 1
    assert abs(result.right - result.games * wanted) < margin


def orthogonal_success(values: int, mu: float) -> float:
    """P[x_v > all others] for x_v ~ N(μ, 1) among K − 1 of N(0, 1): ∫ φ(x − μ) Φ(x)^(K−1) dx, with 20 digits."""
    with mpmath.workdps(20):
        value = mpmath.quad(
            lambda x: mpmath.npdf(x - mu) * mpmath.ncdf(x) ** (values - 1), [-10, 0, 2, 4, 6, 8, 10, 14 + mu]
        )
    return float(value)


def test_published_success_against_orthogonal_gaussians() -> None:
    """Ten thousand values, μ = 1: one release, and the two that "r adds up" is said of."""
    assert orthogonal_success(10_000, 1.0) == pytest.approx(3.003753e-3, rel=1e-6)
    assert orthogonal_success(10_000, math.sqrt(2)) == pytest.approx(9.493692e-3, rel=1e-6)


@pytest.mark.parametrize(("prior", "distance"), [(0.5, 1.0), (0.7, 1.3), (0.9, 2.0)])
def test_two_values_have_a_closed_form(prior: float, distance: float) -> None:
    """The likelihood ratio test with threshold ln(prior odds)."""
    odds = math.log(prior / (1 - prior)) / distance
    wanted = prior * stats.norm.cdf(distance / 2 + odds) + (1 - prior) * stats.norm.cdf(distance / 2 - odds)
    model = SecretModel(np.array([prior, 1 - prior]), np.array([0.0, 1.0]), np.array([[0.0], [distance]]), 1.0)
    check(guess_secrets(gaussian_release(model), model, 40_000, seed=1), wanted)
    assert model.p == prior


@pytest.mark.parametrize(("rounds", "sigma"), [(1, 0.7), (3, 1.5)])
def test_orthogonal_values(rounds: int, sigma: float) -> None:
    """T rounds are one whose mean is √T/σ."""
    model = SecretModel.uniform(50, sigma, rounds=rounds)
    check(
        guess_secrets(gaussian_release(model), model, 20_000, seed=2), orthogonal_success(50, math.sqrt(rounds) / sigma)
    )


def test_counts_and_centres_are_one_vector_of_length_root_two() -> None:
    both = np.concatenate([np.eye(50), np.eye(50)], axis=1)
    model = SecretModel.uniform(50, 1.0, directions=both)
    check(guess_secrets(gaussian_release(model), model, 20_000, seed=3), orthogonal_success(50, math.sqrt(2)))


def test_occurrences_at_random() -> None:
    """Given that it occurs k times, the secret has the largest coordinate with the success at μ = k/σ."""
    weights = np.array([0.3, 0.5, 0.2])
    model = SecretModel.uniform(20, 0.8, weights=weights)
    wanted = sum(w * orthogonal_success(20, k / 0.8) for k, w in enumerate(weights))
    check(guess_secrets(gaussian_release(model), model, 20_000, seed=4), wanted)


def test_the_posterior_is_that_of_bayes() -> None:
    """Against densities written out: all counts of all rounds, all values."""
    rng = np.random.default_rng(5)
    prior, weights, directions = np.array([0.5, 0.3, 0.2]), np.array([0.25, 0.5, 0.25]), rng.normal(size=(3, 2))
    model = SecretModel(prior, weights, directions, 0.9, rounds=2)
    released = rng.normal(size=(4, 2, 2))
    for outcome, row in zip(released, model.log_posterior(released), strict=True):
        wanted = np.array([
            prior[v] * math.prod(
                sum(weights[k] * stats.norm.pdf(y, k * directions[v], 0.9).prod() for k in range(3)) for y in outcome
            )
            for v in range(3)
        ])  # fmt: skip
        got = np.exp(row - row.max())
        assert got / got.sum() == pytest.approx(wanted / wanted.sum(), rel=1e-10)


def test_discrete_noise_has_the_same_posterior() -> None:
    """Whole directions and discrete Gaussian noise: success against the sum over all outcomes."""
    sigma, directions = 1.2, np.array([[1.0], [-1.0], [2.0]])
    model = SecretModel(np.full(3, 1 / 3), np.array([0.2, 0.8]), directions, sigma)
    lattice = np.arange(-30, 31)
    noise = np.exp(-(lattice**2) / (2 * sigma**2))
    noise /= noise.sum()
    outcomes = np.arange(-20, 21)
    laws = np.array([
        [0.2 * noise[y + 30] + 0.8 * noise[y - int(u) + 30] for y in outcomes] for (u,) in directions
    ])  # fmt: skip
    wanted = float((laws / 3).max(axis=0).sum())  # what lies outside has a probability below 1e-40

    def release(values: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
        counts = rng.choice(2, size=len(values), p=model.weights)
        drawn = counts * directions[values, 0] + rng.choice(lattice, size=len(values), p=noise)
        return np.asarray(drawn[:, None, None], dtype=np.float64)

    check(guess_secrets(release, model, 40_000, seed=7), wanted)


def test_a_game_can_be_played_again() -> None:
    model = SecretModel.uniform(5, 1.0)
    first, again, other = (guess_secrets(gaussian_release(model), model, 500, seed=seed) for seed in (1, 1, 2))
    assert first == again != other


def test_the_noise_that_is_known_to_the_attacker_may_be_wrong() -> None:
    """With orthogonal values and a uniform prior the largest coordinate is the best guess whatever σ is."""
    model = SecretModel.uniform(30, 5.0)
    check(guess_secrets(gaussian_release(model, 0.5), model, 20_000, seed=8), orthogonal_success(30, 2.0))


def test_impossible_models() -> None:
    with pytest.raises(ValueError, match="prior must be a 1-D array of probabilities"):
        SecretModel(np.array([0.5, 0.6]), np.array([1.0]), None, 1.0)
    with pytest.raises(ValueError, match="weights must be a 1-D array of probabilities"):
        SecretModel.uniform(3, 1.0, weights=[0.5, 0.4])
    with pytest.raises(ValueError, match="one finite vector for each of 3 values"):
        SecretModel.uniform(3, 1.0, directions=np.eye(2))
    with pytest.raises(ValueError, match="sigma must be above 0"):
        SecretModel.uniform(3, 0.0)
    with pytest.raises(ValueError, match=r"shape \(n, 1, 3\)"):
        SecretModel.uniform(3, 1.0).log_posterior(np.zeros((2, 1, 4)))
    with pytest.raises(ValueError, match="number of games, 3, not 4"):
        SecretGuesses(3, 4, 0.5, 2, 1)
