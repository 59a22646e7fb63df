"""The secret reconstruction audit of a run: which secret it attacks, how it resumes, what it says of both variants."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.secrets.games import SecretGame, Variant
from dpassay.auditing.secrets import attack
from dpassay.auditing.secrets.attack import number_of_games, number_of_values
from dpassay.audits.result import AuditResult
from dpassay.base.progress import Progress
from dpassay.generators.secret_evolution.audits import secret_reconstruction, weakest_secret
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise

CLAIM = SecretProtection(0.1, 0.3)


def places(*secrets: list[int], records: int = 12) -> Incidence:
    matrix = np.zeros((len(secrets), records), dtype=bool)
    for row, where in zip(matrix, secrets, strict=True):
        row[where] = True
    return Incidence(csr_array(matrix), (CLAIM,), np.zeros(len(secrets), dtype=np.int64))


def noise(chances: list[float], sigma: float, rounds: int) -> SecretNoise:
    return SecretNoise(np.array(chances), sigma, rounds, (), ())


def play(
    folder: Path, made: SecretNoise, result: Incidence, *, variant: Variant = "sound", claim: SecretProtection = CLAIM
) -> AuditResult:
    return secret_reconstruction(variant, result, made, claim, folder, 0.95, Progress())


@pytest.fixture(autouse=True)
def _few_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "_MAX_GAMES", 300)
    monkeypatch.setattr(attack, "_MAX_ENTROPY_GAMES", 30)


@pytest.mark.parametrize("rounds", [1, 3])
def test_the_secret_with_the_largest_r_is_attacked(rounds: int) -> None:
    """Against the certified r of each. It is not the secret with most occurrences on average."""
    chances = [1.0, 0.0, 0.3, 0.3, 0.3, 0.3, 0.05, 0.05, 0.05, 0.05, 0.9, 0.0]
    result = places([2, 3, 4, 5], [0], [6, 7, 8, 9], [1, 11], [0, 6], [])
    made = noise(chances, 0.4, rounds)
    rows = [np.sort(np.array(chances)[where]) for where in ([2, 3, 4, 5], [0], [6, 7, 8, 9], [0, 6])]
    r = [blowup(poisson_binomial(row), 0.4, 0.1, rounds=rounds).upper for row in rows]
    chosen = weakest_secret(result, made, 0.1)
    assert chosen is not None
    assert chosen.tolist() == rows[int(np.argmax(r))].tolist()
    assert weakest_secret(places([1, 11], []), made, 0.1) is None
    quiet = weakest_secret(result, noise(chances, 0.0, rounds), 0.1)
    assert quiet is not None
    assert 1.0 in quiet.tolist()  # without noise, what always occurs is known


def test_records_of_other_labels_are_not_added_up(tmp_path: Path) -> None:
    """One secret in two records of two labels, drawn for certain, with noise for one of them: no game of both shows it.

    r of one occurrence is 0.3 by the noise; of two in one cluster it would be 0.57, which is not what is released.
    """
    result, made = places([0, 1, 2], records=3), noise([1.0, 1.0, 0.0], noise_for([0.0, 1.0], 0.1, 0.3), 1)
    both = weakest_secret(result, made, 0.1)
    assert both is not None
    assert both.tolist() == [1.0, 1.0]
    item = weakest_secret(result, made, 0.1, np.array([0, 1, 0]))
    assert item is not None
    assert item.tolist() == [1.0]
    assert blowup([0.0, 0.0, 1.0], made.sigma, 0.1).lower > 0.55
    played = secret_reconstruction("sound", result, made, CLAIM, tmp_path, 0.95, Progress(), np.array([0, 1, 0]))
    assert played.details["best_guess"][0] < CLAIM.r


def test_a_secret_takes_so_many_values_that_p_is_not_exceeded() -> None:
    assert [number_of_values(p) for p in (0.5, 0.3, 0.1, 0.01, 1e-4, 0.99, 1e-5)] == [2, 4, 10, 100, 10_000, 2, 100_000]
    with pytest.raises(ValueError, match="p = 1e-06 is too small"):
        number_of_values(1e-6)


def test_the_number_of_games_is_known_before() -> None:
    assert number_of_games(SecretGame.worst_case(10, np.ones(1), 1.0)) == (300, 30)
    many = SecretGame.worst_case(10_000, np.ones(1), 1.0, rounds=40)
    assert number_of_games(many)[0] < 300
    assert number_of_games(many)[1] == 0  # half a minute a game


def test_a_sound_run_and_its_resumption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = places(list(range(12)), [3])
    fitted = SecretNoise.fit(result, rounds=2)
    made = dataclasses.replace(fitted, sigma=4 * fitted.sigma)  # 15 of 30 are right with probability below 1e-5
    first = play(tmp_path, made, result)
    assert first.controls_passed is True
    assert [rate.trials for rate in first.rates] == [300, 30]
    assert [(bound.at, bound.confidence) for bound in first.bounds] == [(0.1, 0.975), (0.1, 0.975)]
    assert max(bound.value for bound in first.bounds) < CLAIM.r
    assert min(bound.ceiling or 0 for bound in first.bounds) > CLAIM.r
    assert (
        "the recorded source, which is fast, has the same distribution as the operating system's"
        in first.bounds[0].assumptions
    )
    assert first.details["rounds"] == 2
    kept = [len((tmp_path / name / "repetitions.jsonl").read_text().splitlines()) for name in ("recorded", "entropy")]
    assert kept == [7, 7]
    json.dumps(first.to_json())

    def no_release(*_: object) -> None:
        raise AssertionError("a game was played again")

    monkeypatch.setattr("dpassay.attacks.secrets.games.release", no_release)
    assert play(tmp_path, made, result) == first


def test_a_run_with_weights(tmp_path: Path) -> None:
    """The secret whose records weigh most is attacked; a quarter of the noise is refuted, four times as much is not."""
    result = places(list(range(11)), [3], [11])
    fitted = SecretNoise.fit(result, rounds=2, inclusion="weights")
    chosen = weakest_secret(result, fitted, CLAIM.p)
    assert chosen is not None
    assert chosen.sum() == max(fitted.probabilities[where].sum() for where in (list(range(11)), [3], [11]))
    quiet = play(tmp_path / "quiet", dataclasses.replace(fitted, sigma=4 * fitted.sigma), result)
    assert quiet.controls_passed is True
    assert max(bound.value for bound in quiet.bounds) < CLAIM.r
    loud = play(tmp_path / "loud", dataclasses.replace(fitted, sigma=fitted.sigma / 4), result)
    best = loud.details["best_guess"][0]
    assert abs(loud.rates[0].hits - 300 * best) < 4.9 * np.sqrt(300 * best * (1 - best)) + 1
    assert loud.bounds[0].value > CLAIM.r


def test_a_run_as_published_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Published steps and noise. 3000 games of the best guess miss it with probability below 1e-6."""
    monkeypatch.setattr(attack, "_MAX_GAMES", 3000)
    result = places(list(range(11)), [11])
    made = SecretNoise.as_published(result, rounds=1)
    assert 0 < made.probabilities.max() < 1  # occurrences vary, and one Gaussian stands for them
    audit = play(tmp_path, made, result, variant="as_published")
    assert stats.beta.ppf(0.025, 960, 2041) > CLAIM.r  # so many hits refute
    assert stats.binom.cdf(959, 3000, audit.details["best_guess"][0]) < 1e-6
    assert audit.bounds[0].value > CLAIM.r
    assert "above the claimed 0.3" in audit.conclusion


def test_where_there_is_nothing_to_play(tmp_path: Path) -> None:
    result = places([])
    made = noise([0.0] * 12, 1.0, 1)
    nothing = play(tmp_path, made, result)
    assert (nothing.bounds, nothing.trials) == ((), 0)
    assert nothing.conclusion == "No game was played: no secret of the claim occurs in a record that may be drawn."
    tiny = play(tmp_path, noise([1.0] * 12, 1.0, 1), places([0]), claim=SecretProtection(1e-7, 1e-6))
    assert tiny.conclusion.startswith("No game was played: a secret would take 1/p = 1 × 10⁷ values")
    assert not list(tmp_path.iterdir())
