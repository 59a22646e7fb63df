"""The games of the audit of secret protection: a secret takes a random value, and an attacker guesses it."""

from __future__ import annotations

import secrets
from pathlib import Path

from dpassay.accounting.guarantees import SecretProtection
from dpassay.attacks.secrets.games import Noise, SecretGame, Variant
from dpassay.attacks.secrets.reconstruction import SecretGuesses
from dpassay.audits.games.secret_reconstruction import secret_reconstruction_audit
from dpassay.audits.result import AuditResult
from dpassay.base import defaults
from dpassay.base.arrays import Floats
from dpassay.base.private_files import create_once
from dpassay.base.progress import Progress
from dpassay.mechanisms.secret_evolution.clustering import Inclusion

MAX_VALUES = 100_000
"""The most values of a secret in a game."""

_MAX_GAMES, _MIN_GAMES, _RECORDED_WORK = 5000, 50, 15.0  # seconds on one slow core, about
_MAX_ENTROPY_GAMES, _ENTROPY_WORK = 500, 10.0
_CONTROL_GAMES = 100


def audit_secret(
    drawn: Floats,
    sigma: float,
    *,
    rounds: int,
    variant: Variant,
    inclusion: Inclusion = "coins",
    guarantee: SecretProtection,
    folder: Path | None = None,
    confidence: float = defaults.CONFIDENCE,
    progress: Progress | None = None,
) -> AuditResult:
    """Guesses one secret from releases of the mechanism's own code, in the worst case of the guarantee.

    The number of games depends on the arguments alone, so it is fixed before the first is played.

    Args:
        drawn: the probability that each record with the secret takes part, or its weight, shape (m,).
        sigma: σ₁ of the release.
        rounds: releases.
        variant: ``sound`` or ``as_published``.
        inclusion: ``coins``, or ``weights`` if `drawn` are weights.
        guarantee: the claim; the secret has ⌈1/p⌉ values.
        folder: keeps the games; private. None to keep none.
        confidence: of the audit.
        progress: where to show the games.
    """
    show = progress or Progress()
    values = number_of_values(guarantee.p)
    game = SecretGame.worst_case(values, drawn, sigma, rounds=rounds, variant=variant, inclusion=inclusion)
    seed = _saved_seed(folder)

    def play(of: SecretGame, noise: Noise, games: int, name: str, title: str) -> SecretGuesses:
        with show.stage(title) as step:
            return of.play(noise, games, seed=seed, folder=folder and folder / name, progress=step)

    control = play(game.without_noise(), "recorded", _CONTROL_GAMES, "control", "Guessing a secret: control")
    fast, slow = number_of_games(game)
    played = [play(game, "recorded", fast, "recorded", "Guessing a secret")]
    if slow:
        played.append(play(game, "os", slow, "entropy", "Guessing a secret: entropy of the system"))
    return secret_reconstruction_audit(*played, guarantee=guarantee, confidence=confidence, control=control)


def number_of_values(p: float) -> int:
    """⌈1/p⌉, so that each of equally likely values is guessed with probability at most p.

    Raises:
        ValueError: if p < 1e-5, which would need too many clusters.
    """
    if p * MAX_VALUES < 1:
        raise ValueError(f"secret_reconstruction plays with 1/p values, at most {MAX_VALUES}; p = {p:g} is too small")
    values = round(1 / p)
    return values if values * p >= 1 - 1e-12 else values + 1


def number_of_games(game: SecretGame) -> tuple[int, int]:
    """The number of games with recorded noise, and with the operating system's entropy; 0 if they are too slow.

    A release takes about a millisecond, and its V(d + 1) numbers, guess included, some 150 ns each with recorded noise
    and 60 µs with entropy.
    """
    numbers = len(game.vectors) * (game.vectors.shape[1] + 1)
    fast = _RECORDED_WORK / (game.rounds * (1e-3 + 1.5e-7 * numbers))
    slow = _ENTROPY_WORK / (game.rounds * (1e-3 + 6e-5 * numbers))
    few = 20
    return min(_MAX_GAMES, max(_MIN_GAMES, int(fast))), (0 if slow < few else min(_MAX_ENTROPY_GAMES, int(slow)))


def _saved_seed(folder: Path | None) -> int:
    if folder is None:
        return secrets.randbits(62)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "seed.txt"
    if not path.exists():
        create_once(path, f"{secrets.randbits(62)}\n")
    return int(path.read_text())
