"""Games against the release's own code: how often its secrets are guessed, against integrals of the best guess."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.secrets.games import SecretGame
from dpassay.attacks.secrets.reconstruction import SecretModel
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution.clustering import release

P, R = 0.01, 0.1
DRAWN = np.full(80, float(stats.norm.ppf(R) - stats.norm.ppf(P)) / 80)
"""80 records hold the secret, so many of them on average in a round that one Gaussian would need σ = 1."""

SIGMA = noise_for(poisson_binomial(DRAWN), P, R)
LENGTH = math.sqrt(1 + math.cos(0.1) ** 2)
"""Of an occurrence: 1 in the count, and the offset of two points 0.1 from opposite poles over the diameter."""

ALARM = 4.9
"""A binomial rate is off by so many standard deviations with probability about 1e-6."""


def best_of_one(noise: float, values: int) -> float:
    """Σ_k w_k ∫ φ(x − k/s) Φ(x)^(V−1) dx, where s is the noise of an occurrence of length 1: the largest count wins."""
    x = np.linspace(-12, 90, 20_001)
    others = stats.norm.cdf(x) ** (values - 1)
    weights = stats.binom.pmf(np.arange(25), len(DRAWN), DRAWN[0])  # more occurrences are rarer than 1e-20
    shifts = np.arange(25) * LENGTH / noise
    wins = [float(np.trapezoid(stats.norm.pdf(x - shift) * others, x)) for shift in shifts]
    return float(weights @ wins)


def best_of_two(noise: float, values: int) -> float:
    """The double integral over both rounds of the true value's densities times P[another value's ratio is less]^(V−1).

    The ratio of a pair is ℓ(x) + ℓ(y), and P[it is less | nobody's value] is integrated over one round for each of
    2000 levels.
    """
    s = noise / LENGTH
    weights = stats.binom.pmf(np.arange(25), len(DRAWN), DRAWN[0])
    counts = np.arange(25)
    x = np.linspace(-8 * s, 12 + 8 * s, 801)
    with np.errstate(under="ignore"):
        density = stats.norm.pdf(x[:, None], counts, s) @ weights
        ratio = np.log(density) - stats.norm.logpdf(x, 0, s)
    levels = np.linspace(2 * ratio[0], 2 * ratio[-1], 2001)
    needed = np.interp(levels[:, None] - ratio, ratio, x, left=-np.inf, right=np.inf)
    less = np.trapezoid(stats.norm.pdf(x, 0, s) * stats.norm.cdf(needed / s), x, axis=1)
    wins = np.interp(ratio[:, None] + ratio, levels, less) ** (values - 1)
    return float(np.trapezoid(np.trapezoid(density * wins, x, axis=1) * density, x))


def check(right: int, games: int, wanted: float) -> None:
    assert abs(right - games * wanted) < ALARM * math.sqrt(games * wanted * (1 - wanted)) + 1


def test_the_worst_case_is_almost_as_long_as_occurrences_can_be() -> None:
    game = SecretGame.worst_case(100, DRAWN, SIGMA)
    noise = SIGMA * math.sqrt(2) / game.model.sigma
    assert noise == pytest.approx(LENGTH, rel=1e-6)
    assert 0.997 < LENGTH / math.sqrt(2) < 1


@pytest.mark.parametrize("values", [2, 10, 11, 1000])
def test_every_value_has_a_cluster_of_its_own(values: int) -> None:
    game = SecretGame.worst_case(values, [1.0], 1.0)
    assert game.clusters.assign(game.vectors).tolist() == list(range(values))
    assert game.model.p == 1 / values
    for value in (0, values - 1):
        seen = game.against("recorded")(np.array([value]), np.random.default_rng(1))
        assert seen.shape == (1, 1, values)


@pytest.mark.parametrize("variant", ["sound", "as_published"])
def test_without_noise_the_attacker_sees_the_count(variant: str) -> None:
    """Seven certain occurrences. The published centre is divided by the released size: 7 in 1000 less of the offset."""
    game = SecretGame.worst_case(30, np.ones(7), 0.0, variant=variant)  # type: ignore[arg-type]
    seen = game.against("recorded")(np.array([4]), np.random.default_rng(1))[0, 0]
    lost = 0.0 if variant == "sound" else 7 / 1007 * (1 - 1 / LENGTH**2)
    assert seen[4] == pytest.approx(7 * (1 - lost), rel=1e-6)
    assert np.abs(np.delete(seen, 4)).max() < 1e-6


def test_the_published_numbers_are_those_of_the_release() -> None:
    """The y_v written out from centres and sizes of one release with noise."""
    game = SecretGame.worst_case(5, np.ones(3), 2.0)
    rng = np.random.default_rng(7)
    got = game.against("recorded")(np.array([2]), np.random.default_rng(7))[0, 0]
    noisy = release(
        game.clusters,
        np.repeat(game.vectors[2:3], 3, axis=0),
        np.ones(3),
        2.0,
        Recorded(int(rng.integers(1 << 62))),
    )
    for v in range(5):
        e, record = game.clusters.vectors[v].astype(float), game.vectors[v].astype(float)
        record *= game.clusters.radius / np.linalg.norm(record)  # it lies beyond the radius, and is clipped
        occurrence = (record - e) / (2 * game.clusters.radius)
        moved = (noisy.centres[v] - e) * max(1000, noisy.sizes[v]) / (2 * game.clusters.radius)
        inner = (noisy.sizes[v] - 1000) + moved @ occurrence
        assert got[v] == pytest.approx(inner / (1 + occurrence @ occurrence), abs=1e-6)


def test_the_best_guess_is_known_without_a_game() -> None:
    """The grid of `SecretModel.success` against integrals, for one round and for two."""
    for values, noise in ((2, 2.0), (100, SIGMA * math.sqrt(2)), (10_000, 1.0)):
        model = SecretModel.uniform(values, noise / LENGTH, weights=poisson_binomial(DRAWN))
        assert model.success() == pytest.approx(best_of_one(noise, values), rel=1e-4)
    model = SecretModel.uniform(100, 2.0 / LENGTH, weights=poisson_binomial(DRAWN), rounds=2)
    assert model.success() == pytest.approx(best_of_two(2.0, 100), rel=1e-3)
    sure = SecretModel.uniform(100, 1e-3, weights=[0.5, 0.5], rounds=2)
    assert sure.success() == pytest.approx(0.75 + 0.25 / 100, rel=1e-9)
    assert SecretModel.uniform(8, 1.0, weights=[1.0]).success() == 1 / 8
    with pytest.raises(ValueError, match="equally likely values with orthogonal directions"):
        SecretModel.uniform(3, 1.0, directions=np.ones((3, 1))).success()


def test_secrets_are_guessed_as_often_as_the_best_guess_would() -> None:
    """The release's own code, one round: neither less noise than it says nor a guess worse than the best."""
    result = SecretGame.worst_case(100, DRAWN, SIGMA).play("recorded", 1500, seed=1)
    wanted = best_of_one(SIGMA * math.sqrt(2), 100)
    check(result.right, result.games, wanted)
    assert result.best == pytest.approx(wanted, rel=1e-3)
    assert result.best is not None
    assert 0.85 * R < result.best < R  # the guarantee is nearly tight here


def test_one_sigma_for_counts_and_centres_is_guessed_as_often_as_predicted() -> None:
    result = SecretGame.worst_case(100, DRAWN, SIGMA, variant="as_published").play("recorded", 1500, seed=2)
    wanted = best_of_one(SIGMA, 100)
    check(result.right, result.games, wanted)
    assert wanted > 1.5 * R


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["sound", "as_published"])
def test_two_rounds(variant: str) -> None:
    sigma = noise_for(poisson_binomial(DRAWN), P, R, rounds=2)
    game = SecretGame.worst_case(100, DRAWN, sigma, rounds=2, variant=variant)  # type: ignore[arg-type]
    result = game.play("recorded", 5000, seed=3)
    wanted = best_of_two(sigma * (math.sqrt(2) if variant == "sound" else 1), 100)
    check(result.right, result.games, wanted)
    shrunk = sigma if variant == "sound" else sigma / math.sqrt(2)
    assert wanted < blowup(poisson_binomial(DRAWN), shrunk, P, rounds=2).upper
    assert (wanted > R) == (variant == "as_published")


@pytest.mark.slow
def test_entropy_of_the_system_protects_as_much() -> None:
    """Few games with little noise, where every guess is right, and with much, where most are wrong."""
    loud = SecretGame.worst_case(10, np.ones(1), 0.1).play("os", 40, seed=1)
    assert best_of_one_sure(0.1 * math.sqrt(2), 10) == pytest.approx(1, abs=1e-9)
    assert loud.right == 40
    quiet = SecretGame.worst_case(10, np.ones(1), 1.0).play("os", 200, seed=2)
    check(quiet.right, 200, best_of_one_sure(math.sqrt(2), 10))


def best_of_one_sure(noise: float, values: int) -> float:
    x = np.linspace(-12, 90, 20_001)
    return float(np.trapezoid(stats.norm.pdf(x - LENGTH / noise) * stats.norm.cdf(x) ** (values - 1), x))


def test_records_with_weights_are_one_occurrence() -> None:
    """Without noise the attacker sees 1; with noise the best guess is that of the sum of the weights."""
    weights = np.array([1.0, 0.5, 0.25])
    clear = SecretGame.worst_case(10, weights, 0.0, inclusion="weights")
    seen = clear.against("recorded")(np.array([4]), np.random.default_rng(1))[0, 0]
    assert seen[4] == pytest.approx(1, rel=1e-6)
    assert np.abs(np.delete(seen, 4)).max() < 1e-6
    game = SecretGame.worst_case(10, weights, 1.75, inclusion="weights")
    assert game.model.success() == pytest.approx(best_of_one_sure(math.sqrt(2), 10), rel=1e-4)
    result = game.play("recorded", 1000, seed=3)
    check(result.right, result.games, best_of_one_sure(math.sqrt(2), 10))
    assert game.without_noise().play("recorded", 50, seed=1).right == 50
    for wrong in ({"weights": np.zeros(3)}, {"variant": "as_published"}):
        with pytest.raises(ValueError, match="weights need a sound release and at least one record"):
            SecretGame.worst_case(10, wrong.pop("weights", weights), 1.0, inclusion="weights", **wrong)


def test_games_go_on_where_they_were_interrupted(tmp_path: Path) -> None:
    game = SecretGame.worst_case(10, np.ones(1), 1.0)
    whole = game.play("recorded", 120, seed=5)
    seen: list[tuple[int, int]] = []

    def stop(done: int, total: int) -> None:
        seen.append((done, total))
        if done == 50:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        game.play("recorded", 120, seed=5, folder=tmp_path, progress=stop)
    assert seen == [(0, 120), (50, 120)]
    seen.clear()
    assert game.play("recorded", 120, seed=5, folder=tmp_path, progress=lambda *step: seen.append(step)) == whole
    assert seen == [(50, 120), (100, 120), (120, 120)]
    rows = [json.loads(line) for line in (tmp_path / "repetitions.jsonl").read_text().splitlines()]
    assert [row["index"] for row in rows[1:]] == [0, 1, 2]
    with pytest.raises(ValueError, match="other settings"):
        SecretGame.worst_case(10, np.ones(1), 1.1).play("recorded", 120, seed=5, folder=tmp_path)
    nearer = dataclasses.replace(game, vectors=game.vectors / np.float32(8))  # within the radius: all else is as before
    with pytest.raises(ValueError, match="other settings"):
        nearer.play("recorded", 120, seed=5, folder=tmp_path)


def test_impossible_games() -> None:
    game = SecretGame.worst_case(10, np.ones(1), 1.0)
    with pytest.raises(ValueError, match="nearest to cluster v"):
        SecretGame(game.clusters, game.vectors[::-1], game.probabilities, 1.0, 1)
    with pytest.raises(ValueError, match="sigma must be at least 0"):
        SecretGame.worst_case(10, np.ones(1), -1.0)
    with pytest.raises(ValueError, match="variant must be"):
        SecretGame.worst_case(10, np.ones(1), 1.0, variant="other")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="values must be"):
        SecretGame.worst_case(1, np.ones(1), 1.0)
