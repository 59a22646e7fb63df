"""The audit of a claim of secret protection: a secret takes a random value, and an attacker guesses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.noise import lower_r_of_rounds
from dpassay.accounting.secret_protection.poisson_binomial_laws import occurrences
from dpassay.attacks.secrets.games import Variant
from dpassay.auditing.secrets.attack import MAX_VALUES, audit_secret
from dpassay.audits.result import AuditResult
from dpassay.base.arrays import Floats, Integers
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.base.progress import Progress
from dpassay.generators.audits import named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.secret_evolution.run import SecretEvolutionRun
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise

_RANKED = 1000  # secrets whose r is compared to choose the one to attack


def audit(run: SecretEvolutionRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names."""
    with input_errors("audits: "):
        return named_audits(run, claimed, confidence, {"secret_reconstruction": _of_run})


def _of_run(run: SecretEvolutionRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    assert isinstance(claimed.guarantee, SecretProtection)
    result = secret_reconstruction(
        run.claim.variant,
        run.claimed_incidence(),
        run.result.noise,
        claimed.guarantee,
        folder.parent,
        confidence,
        run.settings.progress,
        run.labels,
    )
    return [result]


def secret_reconstruction(
    variant: Variant,
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
        variant: of the release.
        incidence: where secrets occur.
        noise: of the claimed run, with the inclusion probabilities or the weights.
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
    if 1 / guarantee.p > MAX_VALUES:
        return _without_games(
            f"a secret would take 1/p = {format_number(1 / guarantee.p)} values, and at most {MAX_VALUES} are"
        )
    return audit_secret(
        drawn,
        noise.sigma,
        rounds=noise.rounds,
        variant=variant,
        inclusion=noise.inclusion,
        guarantee=guarantee,
        folder=folder,
        confidence=confidence,
        progress=progress,
    )


def weakest_secret(incidence: Incidence, noise: SecretNoise, p: float, labels: Integers | None = None) -> Floats | None:
    """The inclusion probabilities or weights of the records of the least protected secret at p, shape (m,).

    With `labels`, of its records of one label. None if no secret occurs in a record that may be drawn.

    Secrets are ranked by a lower bound on r, which depends on occurrences and inclusion probabilities, both public; or
    by the sum of the weights, of which r is an increasing function. The choice affects the power of the audit, not its
    validity.
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
    if noise.inclusion == "weights":
        return ranked[0]
    return max(ranked, key=lambda drawn: lower_r_of_rounds(occurrences(drawn, 1e-12 * p), noise.sigma, p, noise.rounds))


def _without_games(why: str) -> AuditResult:
    return AuditResult(
        name="secret_reconstruction",
        game="one of 1/p values is put into noisy releases; guess which",
        attack="none",
        statistics=(),
        conclusion=f"No game was played: {why}.",
        trials=0,
    )
