"""`dpassay audit secrets`: guesses a secret from releases with given occurrences and noise; no data are needed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dpassay import __version__
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.secrets.games import Variant
from dpassay.auditing.secrets.games import audit_secret, number_of_values
from dpassay.audits.result import AuditResult
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.base.private_files import write_private
from dpassay.base.progress import Progress

NAME = "secret-audit.json"
MOST_OCCURRENCES, MOST_ROUNDS = 10**6, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretAuditSettings:
    """A claim of (p, r)-secret protection, and the release that is audited.

    Attributes:
        p, r: the claim: a secret with prior guessing probability at most p has posterior one at most r.
        occurrences: number of records that hold the secret.
        sampling_probability: of each of them in a release.
        rounds: number of releases.
        sigma: σ₁, the noise; None for the least noise that is certified to meet the claim.
        variant: ``sound`` or ``as_published``.
        confidence: of the audit.
    """

    p: float
    r: float
    occurrences: int
    sampling_probability: float
    rounds: int = 1
    sigma: float | None = None
    variant: Variant = "sound"
    confidence: float = defaults.CONFIDENCE


@dataclass(frozen=True, kw_only=True)
class SecretAudit:
    """The result of an audit of secret protection.

    Attributes:
        settings: claim and release.
        sigma: σ₁ of the release.
        certified_r: proven upper bound on r; None for the published variant, which has none below 1.
        audit: games, and lower bounds on r.
    """

    settings: SecretAuditSettings
    sigma: float
    certified_r: float | None
    audit: AuditResult

    @property
    def refuted(self) -> bool:
        """Whether a lower bound on r is above the claimed r."""
        return any(bound.value > self.settings.r for bound in self.audit.bounds)

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        release = {**asdict(self.settings), "sigma": self.sigma}
        return {
            "schema": 1,
            "dpassay": __version__,
            "claim": {"p": release.pop("p"), "r": release.pop("r")},
            "release": release,
            "certified_r": self.certified_r,
            "refuted": self.refuted,
            "audit": self.audit.to_json(),
        }


def audit(
    settings: SecretAuditSettings, output: Path | None = None, *, progress: Progress | None = None
) -> SecretAudit:
    """Plays the games and writes ``secret-audit.json``.

    Args:
        settings: claim and release.
        output: folder for the result and the games, from which an interrupted audit resumes; None to write nothing.
        progress: where to show progress.

    Raises:
        InputError: if a parameter is out of range, or the folder cannot be made.
    """
    with input_errors():
        guarantee = SecretProtection(settings.p, settings.r)
        validate.open_probability(confidence=settings.confidence)
        validate.one_of(get_args(Variant), variant=settings.variant)
        validate.integer(minimum=1, maximum=MOST_OCCURRENCES, occurrences=settings.occurrences)
        validate.integer(minimum=1, maximum=MOST_ROUNDS, rounds=settings.rounds)
        validate.probability(sampling_probability=settings.sampling_probability)
        number_of_values(settings.p)
        drawn = np.full(settings.occurrences, settings.sampling_probability)
        weights = poisson_binomial(drawn)
        sigma = settings.sigma
        if sigma is None:
            sigma = noise_for(weights, settings.p, settings.r, settings.rounds)
        validate.non_negative(sigma=sigma)
        if output is not None:
            output.mkdir(mode=0o700, parents=True, exist_ok=True)
    release = json.dumps({**asdict(settings), "sigma": sigma})
    found = audit_secret(
        drawn,
        sigma,
        rounds=settings.rounds,
        variant=settings.variant,
        guarantee=guarantee,
        folder=output and output / f"games-{hashlib.sha256(release.encode()).hexdigest()[:12]}",
        confidence=settings.confidence,
        progress=progress,
    )
    certified = blowup(weights, sigma, settings.p, settings.rounds).upper if settings.variant == "sound" else None
    result = SecretAudit(settings=settings, sigma=sigma, certified_r=certified, audit=found)
    if output is not None:
        write_private(output / NAME, json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return result


def in_words(found: SecretAudit) -> list[str]:
    """The result in sentences: the release, its proven bound, and what the games show."""
    settings = found.settings
    records = "1 record" if settings.occurrences == 1 else f"{settings.occurrences} records"
    release = (
        f"A secret in {records}, each drawn with probability {format_number(settings.sampling_probability)}; "
        f"σ₁ = {format_number(found.sigma)}, releases: {settings.rounds}, {settings.variant.replace('_', ' ')}."
    )
    proof = "Published steps: no r below 1 is certified."
    if found.certified_r is not None:
        proof = f"Certified: r is at most {format_upper(found.certified_r)} at p = {format_number(settings.p)}."
    return [release, proof, found.audit.conclusion]
