"""The audit of a claim of secret protection: a secret takes a random value, and an attacker guesses it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cupel.accounting.arrays import Floats, Integers
from cupel.accounting.guarantees import SecretProtection
from cupel.accounting.number_format import format_number
from cupel.accounting.secret_protection.noise import lower_r_of_rounds
from cupel.accounting.secret_protection.poisson_binomial_laws import occurrences
from cupel.attacks.secrets.games import Noise, SecretGame, Variant
from cupel.attacks.secrets.reconstruction import SecretGuesses
from cupel.audits.games.secret_reconstruction import secret_reconstruction_audit
from cupel.audits.result import AuditResult
from cupel.io.run_files import create_once
from cupel.progress import Progress

if TYPE_CHECKING:
    from cupel.mechanisms.secret_evolution.incidence import Incidence
    from cupel.mechanisms.secret_evolution.inclusion import SecretNoise

MOST_VALUES = 100_000
"""The most values of a secret in a game."""

_RANKED = 1000  # secrets whose r is compared to choose the one to attack
_MOST_GAMES, _FEWEST_GAMES, _RECORDED_WORK = 5000, 50, 15.0  # seconds on one slow core, about
_MOST_ENTROPY_GAMES, _ENTROPY_WORK = 500, 10.0
_CONTROL_GAMES = 100


class Releasing(Protocol):
    """The part of a mechanism that the audit uses."""

    @property
    def variant(self) -> str:
        """``sound`` or ``as_published``."""


def secret_reconstruction(
    mechanism: Releasing,
    incidence: Incidence,
    noise: SecretNoise,
    guarantee: SecretProtection,
    folder: Path,
    confidence: float,
    progress: Progress,
    labels: Integers | None = None,
) -> AuditResult:
    """The secret reconstruction audit of a claim, on the secret with the largest r.

    Args:
        mechanism: its variant decides the release.
        incidence: where secrets occur.
        noise: of the claimed run, with the inclusion probabilities.
        guarantee: the claim, for every secret.
        folder: keeps the games; private.
        confidence: of the audit.
        progress: where to show the games.
        labels: shape (n,), the label of each record if each label has its own clusters. Then the records of one label
            are attacked, since only they share clusters.

    Returns:
        The audit. If no game can be played, it has no bound and says why.
    """
    drawn = weakest_secret(incidence, noise, guarantee.p, labels)
    if drawn is None:
        return _without_games("no secret of the claim occurs in a record that may be drawn")
    if 1 / guarantee.p > MOST_VALUES:
        return _without_games(
            f"a secret would take 1/p = {format_number(1 / guarantee.p)} values, and at most {MOST_VALUES} are"
        )
    variant: Variant = "as_published" if mechanism.variant == "as_published" else "sound"
    return audit_secret(
        drawn,
        noise.sigma,
        rounds=noise.rounds,
        variant=variant,
        guarantee=guarantee,
        folder=folder,
        confidence=confidence,
        progress=progress,
    )


def weakest_secret(incidence: Incidence, noise: SecretNoise, p: float, labels: Integers | None = None) -> Floats | None:
    """The inclusion probabilities of the records of the least protected secret at p, shape (m,).

    With `labels`, of its records of one label. None if no secret occurs in a record that may be drawn.

    Secrets are ranked by a lower bound on r, which depends on occurrences and inclusion probabilities, both public. The
    choice affects the power of the audit, not its validity.
    """
    matrix, chances = incidence.matrix, np.asarray(noise.probabilities, dtype=np.float64)
    by_law: dict[bytes, Floats] = {}
    for start, stop in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True):
        where = matrix.indices[start:stop]
        of = np.zeros_like(where) if labels is None else labels[where]
        for label in np.unique(of):
            drawn = np.sort(chances[where[of == label]])
            drawn = drawn[drawn > 0]
            if drawn.size:
                by_law.setdefault(drawn.tobytes(), drawn)
    if not by_law:
        return None
    ranked = sorted(by_law.values(), key=lambda drawn: -float(drawn.sum()))[:_RANKED]
    return max(ranked, key=lambda drawn: _lower_r(drawn, noise.sigma, p, noise.rounds))


def _lower_r(drawn: Floats, sigma: float, p: float, rounds: int) -> float:
    return lower_r_of_rounds(occurrences(drawn, 1e-12 * p), sigma, p, rounds)


def _without_games(why: str) -> AuditResult:
    return AuditResult(
        name="secret_reconstruction",
        game="one of 1/p values is put into noisy releases; guess which",
        attack="none",
        statistics=(),
        conclusion=f"No game was played: {why}.",
        trials=0,
    )


def audit_secret(
    drawn: Floats,
    sigma: float,
    *,
    rounds: int,
    variant: Variant,
    guarantee: SecretProtection,
    folder: Path | None = None,
    confidence: float = 0.95,
    progress: Progress | None = None,
) -> AuditResult:
    """Guesses one secret from releases of the mechanism's own code, in the worst case of the guarantee.

    The number of games depends on the arguments alone, so it is fixed before the first is played.

    Args:
        drawn: the probability that each record with the secret takes part, shape (m,).
        sigma: σ₁ of the release.
        rounds: releases.
        variant: ``sound`` or ``as_published``.
        guarantee: the claim; the secret has ⌈1/p⌉ values.
        folder: keeps the games; private. None to keep none.
        confidence: of the audit.
        progress: where to show the games.
    """
    show = progress or Progress()
    game = SecretGame.worst_case(number_of_values(guarantee.p), drawn, sigma, rounds=rounds, variant=variant)
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
    if p * MOST_VALUES < 1:
        raise ValueError(f"secret_reconstruction plays with 1/p values, at most {MOST_VALUES}; p = {p:g} is too small")
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
    return min(_MOST_GAMES, max(_FEWEST_GAMES, int(fast))), (0 if slow < few else min(_MOST_ENTROPY_GAMES, int(slow)))


def _saved_seed(folder: Path | None) -> int:
    if folder is None:
        return secrets.randbits(62)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / "seed.txt"
    if not path.exists():
        create_once(path, f"{secrets.randbits(62)}\n")
    return int(path.read_text())
