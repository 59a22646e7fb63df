"""`dpassay audit secrets`: what it prints and keeps, its exit codes, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Result, run

from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.auditing.secrets import attack


def audit(*arguments: object) -> Result:
    """A secret with ten values that occurs once or not at all, as likely."""
    claim = ("--p", 0.1, "--r", 0.3, "--occurrences", 1, "--sampling-probability", 0.5)
    return run("audit", "secrets", *claim, *arguments)


@pytest.fixture(autouse=True)
def _few_games(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attack, "_MAX_GAMES", 300)
    monkeypatch.setattr(attack, "_MAX_ENTROPY_GAMES", 30)


def test_the_least_noise_is_taken(tmp_path: Path) -> None:
    done = audit("-o", tmp_path / "audit", "--json")
    result = json.loads(done.stdout)
    sigma = noise_for([0.5, 0.5], 0.1, 0.3)
    assert result["release"] == {
        "occurrences": 1,
        "sampling_probability": 0.5,
        "rounds": 1,
        "sigma": sigma,
        "variant": "sound",
        "confidence": 0.95,
    }
    assert result["certified_r"] == blowup(poisson_binomial([0.5]), sigma, 0.1).upper
    assert done.returncode == int(result["refuted"])  # 0, but for one time in 200: some of these noises are unseeded
    assert [rate["trials"] for rate in result["audit"]["rates"]] == [300, 30]
    assert result["audit"]["controls_passed"] is True
    assert json.loads((tmp_path / "audit" / "secret-audit.json").read_text()) == result
    rates = [rate["hits"] for rate in result["audit"]["rates"]]
    again = json.loads(audit("-o", tmp_path / "audit", "--json").stdout)  # resumed: nothing is played again
    assert [rate["hits"] for rate in again["audit"]["rates"]] == rates
    audit("-o", tmp_path / "audit", "--sigma", 2 * sigma)
    assert len(list((tmp_path / "audit").glob("games-*"))) == 2


def test_enough_noise_is_not_refuted() -> None:
    """The best guess is right with 0.13: that 15 of 30 are, or 107 of 300, has a probability below 1e-5."""
    done = audit("--sigma", 3)
    assert done.returncode == 0
    assert done.stdout.count("no leak beyond the claim found") == 2


def test_too_little_noise_is_refuted() -> None:
    """Every secret that occurs is guessed, 0.55 of all: that 300 games miss it has a probability below 1e-9."""
    done = audit("--sigma", 0.05)
    assert done.returncode == 1
    first, second, third = done.stdout.splitlines()
    assert first == "A secret in 1 record, each drawn with probability 0.5; σ₁ = 0.05, releases: 1, sound."
    assert second == "Certified: r is at most 0.550001 at p = 0.1."
    assert "above the claimed 0.3" in third
    quiet = audit("--sigma", 0.05, "--variant", "as_published", "-q")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--p", 1e-6), "p = 1e-06 is too small"),
        (("--r", 0.05), "r must be"),
        (("--occurrences", 0), "occurrences must be"),
        (("--sampling-probability", 1.5), "sampling_probability must be"),
        (("--rounds", 0), "rounds must be"),
        (("--sigma", -1), "sigma must be"),
        (("--variant", "sond"), "variant must be"),
        (("--confidence", 1), "confidence must be"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[object, ...], said: str, tmp_path: Path) -> None:
    done = audit(*arguments, "-o", tmp_path / "audit")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "audit").exists()
