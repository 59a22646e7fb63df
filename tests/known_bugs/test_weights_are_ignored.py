"""Records that hold a secret count with 1 where noise is for their weights, or get half of the noise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.groups import releases_of_lengths
from dpassay.attacks.secrets.games import SecretGame
from dpassay.audits.games.secret_reconstruction import secret_reconstruction_audit
from dpassay.audits.verdict import decide
from dpassay.mechanisms.secret_evolution import clustering

CLAIM = SecretProtection(0.01, 0.1)
WEIGHTS = np.linspace(0.1, 1.0, 10)
"""Of ten records that hold the secret, together 5.5."""

SIGMA = releases_of_lengths([WEIGHTS.sum()], [CLAIM])[0]
GAMES = 600
VALUES = 100


def ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustering, "rounded_weights", np.ones_like)


def half_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    joint = clustering.joint_scale
    monkeypatch.setattr(clustering, "joint_scale", lambda sigma: joint(sigma) / 2)


def no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    del monkeypatch


def success(mu: float) -> float:
    """∫ φ(x − μ) Φ(x)^(V−1) dx: the largest of V numbers with noise 1 is that of the value, which is moved by μ."""
    x = np.linspace(-10, 20, 20_001)
    return float(np.trapezoid(stats.norm.pdf(x - mu) * stats.norm.cdf(x) ** (VALUES - 1), x))


@pytest.mark.parametrize(
    ("plant", "factor", "verdict"),
    [(no_fault, 1.0, "UNPROVEN"), (ignored, 10 / 5.5, "REFUTED"), (half_noise, 2.0, "REFUTED")],
    ids=["no fault", "weights are ignored", "half of the noise"],
)
def test_guesses_of_the_secret_refute_the_faults(
    plant: Callable[[pytest.MonkeyPatch], None], factor: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault multiplies μ = Φ⁻¹(r) − Φ⁻¹(p), and with it guesses: the verdicts are wrong with probability below 1e-6,
    without a fault below 0.05 by the audit's confidence, and with this seed they are not."""
    rate = success(factor * float(special.ndtri(CLAIM.r) - special.ndtri(CLAIM.p)) * 0.998)
    needed = next(n for n in range(GAMES) if stats.beta.ppf(0.05, n, GAMES - n + 1) > CLAIM.r)
    if verdict == "REFUTED":
        assert stats.binom.cdf(needed, GAMES, rate) < 1e-6
    game = SecretGame.worst_case(VALUES, WEIGHTS, SIGMA, inclusion="weights")
    plant(monkeypatch)
    played = game.play("recorded", GAMES, seed=1)
    assert abs(played.right - GAMES * rate) < 4.9 * np.sqrt(GAMES * rate * (1 - rate))
    bounds = secret_reconstruction_audit(played, guarantee=CLAIM).bounds
    assert decide(CLAIM, adjacency="secret", unit=Unit("secret"), bounds=bounds).name == verdict
