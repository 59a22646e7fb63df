"""Guesses of a secret in its own texts: the posterior written out, and success where it is known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.secrets.games import SecretGame
from dpassay.attacks.secrets.texts import TextGame
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded
from dpassay.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters, release


def scattered(values: int, records: int, seed: int, dimension: int = 3) -> tuple[PublicClusters, np.ndarray]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(3, dimension)).astype(np.float32)
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1)
    clusters = PublicClusters(centres, np.array([2, 5, 11]), 1.0)
    return clusters, rng.normal(size=(values, records, dimension)).astype(np.float32)


def test_the_posterior_is_that_of_bayes() -> None:
    """All sets of three records, one of them certain, with densities of all 3·(1 + 3) numbers; vectors are clipped."""
    clusters, vectors = scattered(4, 3, seed=1)
    chances, sigma = np.array([0.3, 1.0, 0.8]), 0.7
    game = TextGame(clusters, vectors, chances, sigma)
    noisy = release(clusters, vectors[2], chances, sigma, Recorded(3))
    counts = noisy.sizes - clusters.sizes
    sums = (noisy.centres - clusters.vectors) * np.maximum(clusters.sizes, noisy.sizes)[:, None] / 2
    wanted = []
    for rows in vectors.astype(float):
        total = 0.0
        for drawn in itertools.product([0, 1], repeat=3):
            weight = math.prod(q if z else 1 - q for q, z in zip(chances, drawn, strict=True))
            mean_counts, mean_sums = np.zeros(3), np.zeros((3, 3))
            for row in rows[np.array(drawn, dtype=bool)]:
                clipped = row / max(1.0, float(np.linalg.norm(row)))
                k = int(np.argmin(((clusters.vectors - clipped) ** 2).sum(axis=1)))
                mean_counts[k] += 1
                mean_sums[k] += (clipped - clusters.vectors[k]) / 2
            scale = sigma * math.sqrt(2)
            density = stats.norm.pdf(counts, mean_counts, scale).prod() * stats.norm.pdf(sums, mean_sums, scale).prod()
            total += weight * density
        wanted.append(total)
    got = np.exp(game.log_likelihood(noisy) - game.log_likelihood(noisy).max())
    assert got / got.sum() == pytest.approx(np.array(wanted) / sum(wanted), rel=1e-5)


def test_the_posterior_of_weights_is_that_of_one_gaussian() -> None:
    """Twelve records with weights: squared distances to what each value adds, which the release without noise shows."""
    clusters, vectors = scattered(3, 12, seed=2)
    weights = np.linspace(0.0, 1.0, 12)
    game = TextGame(clusters, vectors, weights, 1.3, inclusion="weights")
    source, clear = Recorded(5), Recorded(0)
    noisy = release(clusters, vectors[0], weights, 1.3, source, inclusion="weights")
    means = [release(clusters, rows, weights, 0.0, clear, inclusion="weights") for rows in vectors]

    def numbers(of: NoisyClusters) -> np.ndarray:
        moved = (of.centres - clusters.vectors) * np.maximum(clusters.sizes, of.sizes)[:, None] / 2
        return np.concatenate([of.sizes - clusters.sizes, moved.ravel()])

    wanted = np.array([-((numbers(noisy) - numbers(mean)) ** 2).sum() / (4 * 1.3**2) for mean in means])
    got = game.log_likelihood(noisy)
    assert got - got[0] == pytest.approx(wanted - wanted[0], abs=1e-5)


def test_certain_records_need_no_sum() -> None:
    """Twelve records that are always drawn, of which two are beyond the ten that sets are made of."""
    clusters, vectors = scattered(3, 12, seed=2)
    game = TextGame(clusters, vectors, np.ones(12), 1.3)
    noisy = release(clusters, vectors[0], np.ones(12), 1.3, Recorded(5))
    means = [release(clusters, rows, np.ones(12), 0.0, Recorded(0)) for rows in vectors]

    def numbers(of: object) -> np.ndarray:
        moved = (of.centres - clusters.vectors) * np.maximum(clusters.sizes, of.sizes)[:, None] / 2  # type: ignore[attr-defined]
        return np.concatenate([of.sizes - clusters.sizes, moved.ravel()])  # type: ignore[attr-defined]

    wanted = np.array([-((numbers(noisy) - numbers(mean)) ** 2).sum() / (4 * 1.3**2) for mean in means])
    got = game.log_likelihood(noisy)
    assert got - got[0] == pytest.approx(wanted - wanted[0], abs=1e-5)


@pytest.mark.slow
def test_in_the_worst_case_it_is_the_other_game() -> None:
    """Six records in the places of `SecretGame.worst_case`: the best guess is as often right."""
    chances, sigma = np.full(6, 0.4), 1.5
    worst = SecretGame.worst_case(10, chances, sigma)
    game = TextGame(worst.clusters, np.repeat(worst.vectors[:, None], 6, axis=1), chances, sigma)
    result, best = game.play(1000, seed=3), worst.model.success()
    assert abs(result.right - 1000 * best) < 4.9 * math.sqrt(1000 * best * (1 - best))


TEXTS = ["the parcel for 48213 is late again", "please call 48213 about the bill", "48213"]
PUBLIC = ["the parcel is late", "please call about the bill", "the bill is late", "a parcel", "12345 and 67890"]


@pytest.mark.slow
def test_values_are_written_into_texts() -> None:
    """Less is guessed than the guarantee allows, and more than nothing without noise to speak of."""
    embedder = HashedNgrams(dimension=32)
    clusters = PublicClusters.fit(embedder.embed(PUBLIC), 3)
    values = [f"{10007 * k:05d}" for k in range(1, 9)]
    loud = TextGame.of_texts(embedder, clusters, TEXTS, "48213", values, np.ones(3), 1e-3)
    assert loud.vectors[4, 2] == pytest.approx(embedder.embed([values[4]])[0])
    assert loud.play(40, seed=1).right == 40
    chances = np.full(3, 0.5)
    sigma = noise_for(poisson_binomial(chances), 1 / 8, 0.4, rounds=2)
    quiet = TextGame.of_texts(embedder, clusters, TEXTS, "48213", values, chances, sigma, rounds=2).play(400, seed=2)
    assert blowup(poisson_binomial(chances), sigma, 1 / 8, rounds=2).upper <= 0.4
    assert quiet.right < stats.binom.ppf(1 - 1e-6, 400, 0.4)
    assert (quiet.p, quiet.values, quiet.rounds, quiet.best) == (1 / 8, 8, 2, None)
    assert quiet.assumed == ("the recorded source, which is fast, has the same distribution as the operating system's",)
    assert loud.play(5, seed=1, source=OS_ENTROPY).assumed == ()


def test_impossible_games() -> None:
    clusters, vectors = scattered(3, 2, seed=4)
    embedder = HashedNgrams(dimension=3)
    with pytest.raises(ValueError, match="one probability for each of m records"):
        TextGame(clusters, vectors, np.ones(3), 1.0)
    with pytest.raises(ValueError, match="sigma must be above 0"):
        TextGame(clusters, vectors, np.ones(2), 0.0)
    with pytest.raises(ValueError, match="must hold the secret"):
        TextGame.of_texts(embedder, clusters, TEXTS, "48214", ["1", "2"], np.ones(3), 1.0)
    with pytest.raises(ValueError, match="at least two distinct texts"):
        TextGame.of_texts(embedder, clusters, TEXTS, "48213", ["1", "1"], np.ones(3), 1.0)
