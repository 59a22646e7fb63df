"""Scores of the distinguishing game have the laws that accounting says; a release that leaks more is refuted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from dpassay.accounting import account
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import ApproxDP
from dpassay.attacks.dataset_vectors.games import ReleaseGame
from dpassay.audits.games import distinguishing_audit
from dpassay.mechanisms.dataset_vectors import release
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors
from dpassay.mechanisms.primitives.randomness import Recorded

REPLACE_ONE, ADD_REMOVE = Adjacency.REPLACE_ONE, Adjacency.ADD_REMOVE
GAMES = 8_000
FAR = math.sqrt(math.log(2e6) / (2 * GAMES))
"""An empirical distribution is that far from its law with probability at most 1e-6 (Massart 1990)."""


def game(blocks: int = 2, records: int = 40, **given: Any) -> ReleaseGame:
    return ReleaseGame(DatasetVectors(**{"noise_multiplier": 1.5, "records": records} | given), blocks, records)


def played(of: ReleaseGame, games: int = GAMES) -> tuple[np.ndarray, np.ndarray]:
    on_d, on_d_prime = (of.scores(games, on_d_prime=side, source=Recorded(7 + side)) for side in (False, True))
    return on_d, on_d_prime


@pytest.mark.grid
@pytest.mark.parametrize("adjacency", [REPLACE_ONE, ADD_REMOVE])
@pytest.mark.parametrize("votes", [0.0, 2.0])
@pytest.mark.parametrize("blocks", [1, 3])
def test_scores_have_the_law_of_one_gaussian(adjacency: Adjacency, votes: float, blocks: int) -> None:
    """The log-likelihood ratio of N(0, 1) and N(μ, 1) is N(∓μ²/2, μ²); the μ of both releases add up in squares."""
    shots = {"shots_noise_multiplier": votes} if votes else {"shots": 0}
    squared = 1 / 1.5**2 + (1 / votes**2 if votes else 0.0)
    for sign, scores in zip((-1, 1), played(game(blocks, adjacency=adjacency, **shots)), strict=True):
        law = stats.norm(sign * squared / 2, math.sqrt(squared))
        assert stats.kstest(scores, law.cdf).statistic < FAR


@pytest.mark.parametrize(("adjacency", "times"), [(REPLACE_ONE, 2), (ADD_REMOVE, 1)])
def test_the_published_noise_is_half_of_what_a_replacement_needs(adjacency: Adjacency, times: int) -> None:
    mu = times / 1.5
    for sign, scores in zip((-1, 1), played(game(shots=0, variant="as_published", adjacency=adjacency)), strict=True):
        assert stats.kstest(scores, stats.norm(sign * mu**2 / 2, mu).cdf).statistic < FAR


@pytest.mark.slow
def test_a_secret_sample_mixes_and_a_known_one_does_not() -> None:
    """δ(ε) of (1 − q)·N(0, s²) + q·N(±1, s²), by quadrature; and the accountant's bound is not below."""
    of = game(1, sample=10, shots=0, noise_multiplier=0.5)
    sigma, rate = 2 * 0.5, 10 / 40
    on_d, on_d_prime = played(of)
    assert np.exp(on_d).mean() == pytest.approx(1, abs=0.03), "a likelihood ratio has mean 1 on D"

    def density(x: float, end: int) -> float:
        return float((1 - rate) * stats.norm.pdf(x, 0, sigma) + rate * stats.norm.pdf(x, end, sigma))

    for epsilon in (0.2, 0.5):
        exact = integrate.quad(
            lambda x, e=epsilon: max(0.0, density(x, 1) - math.exp(e) * density(x, -1)), -10, 10, limit=400
        )[0]
        seen = (on_d_prime > epsilon).mean() - math.exp(epsilon) * (on_d > epsilon).mean()
        assert seen == pytest.approx(exact, abs=4 * (1 + math.exp(epsilon)) / math.sqrt(GAMES))
        assert account(of.mechanism.plan(), adjacency=REPLACE_ONE, delta=exact).value >= epsilon - 1e-9
    known = game(1, sample=10, shots=0, noise_multiplier=0.5, variant="as_published")
    assert known.rate == 1
    assert played(known, 2000)[1].mean() > 20 * on_d_prime.mean()


@pytest.mark.parametrize("bare", ["noise_multiplier", "shots_noise_multiplier"])
@pytest.mark.parametrize("adjacency", [REPLACE_ONE, ADD_REMOVE])
def test_a_release_without_noise_decides_every_game(bare: str, adjacency: Adjacency) -> None:
    """Whatever the noise of the other one."""
    given: dict[str, Any] = {"noise_multiplier": 1.0, "shots_noise_multiplier": 1.0} | {bare: 0.0}
    on_d, on_d_prime = played(game(adjacency=adjacency, **given), 300)
    assert on_d.max() < on_d_prime.min()


def test_one_candidate_has_no_vote_to_move() -> None:
    of = game(1, shots=1, candidates=1, shots_noise_multiplier=0.2, noise_multiplier=50.0)
    on_d, on_d_prime = played(of, 2000)
    assert on_d_prime.mean() - on_d.mean() == pytest.approx(1 / 50**2, abs=0.01)


def test_a_record_that_leaves_its_label_shifts_the_rows_of_both() -> None:
    """Under replace_one, too; not if a sample fixes how many records a label has."""
    given: dict[str, Any] = {"records": 20, "records_by_label": (10, 10), "labels": ("a", "b"), "negatives": 10}
    mechanism = DatasetVectors(noise_multiplier=1.4, shots=0, pairing="rows", variant="as_published", **given)
    assert account(mechanism.plan(), adjacency=REPLACE_ONE, delta=1e-5).value == math.inf
    on_d, on_d_prime = played(ReleaseGame(mechanism, 1, 10), 100)
    assert on_d.max() < on_d_prime.min()
    sampled = DatasetVectors(noise_multiplier=1.4, shots=0, pairing="rows", variant="as_published", sample=5, **given)
    assert math.isfinite(account(sampled.plan(), adjacency=REPLACE_ONE, delta=1e-5).value)


def test_pairs_by_row_reveal_everything() -> None:
    of = game(1, shots=0, negatives=40, pairing="rows", variant="as_published", adjacency=ADD_REMOVE)
    on_d, on_d_prime = played(of, 100)
    assert on_d.max() < on_d_prime.min()
    assert account(of.mechanism.plan(), adjacency=ADD_REMOVE, delta=1e-5).value == math.inf


def audit(of: ReleaseGame, claimed: float) -> Any:
    on_d, on_d_prime = played(of)
    guarantee = ApproxDP(claimed, 1e-5)
    return distinguishing_audit(
        list(on_d), list(on_d_prime), guarantee=guarantee, adjacency=of.mechanism.adjacency, score=float
    )


@pytest.mark.slow
def test_a_sound_release_stays_below_its_claim_and_leaks_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the noise, and no clip."""
    of = game(shots=0)
    claimed = account(of.mechanism.plan(), adjacency=REPLACE_ONE, delta=1e-5).value
    sound = audit(of, claimed).bounds[0].value
    assert 0.3 * claimed < sound < claimed
    faults: dict[str, Any] = {
        "noise_scale": lambda *given, plain=release.noise_scale, **kept: plain(*given, **kept) / 3,
        "clipped": lambda rows, clips: np.asarray(np.asarray(rows) * 3 * release.RADIUS, dtype=np.int64),
    }
    for name, fault in faults.items():
        with monkeypatch.context() as patch:
            patch.setattr(release, name, fault)  # which the attacker uses, too
            assert audit(of, claimed).bounds[0].value > claimed, name


def test_what_half_of_the_noise_gives_away_at_five() -> None:
    """(5, 1e-5) by one Gaussian of μ = 1.121242; with half of its noise, by the ROC curve of two normal laws."""
    multiplier = 0.891868  # Balle and Wang's σ/Δ for (5, 1e-5)
    of = game(4, noise_multiplier=multiplier, shots=0, variant="as_published")
    on_d, on_d_prime = played(of)
    threshold = np.quantile(on_d, 0.99)
    exact, allowed = (stats.norm.sf(stats.norm.isf(0.01) - times / multiplier) for times in (2, 1))
    assert (round(exact, 4), round(allowed, 4)) == (0.4666, 0.1141)
    assert (on_d_prime > threshold).mean() == pytest.approx(exact, abs=0.04)
    area = stats.mannwhitneyu(on_d_prime, on_d).statistic / GAMES**2
    areas = [float(stats.norm.cdf(times / multiplier / math.sqrt(2))) for times in (2, 1)]
    assert [round(item, 4) for item in areas] == [0.9436, 0.7861]
    assert area == pytest.approx(areas[0], abs=0.01)
    assert account(of.mechanism.plan(), adjacency=REPLACE_ONE, delta=1e-5).value == pytest.approx(11.5211, abs=1e-3)
