"""`dpassay audit secrets`: guesses a secret from releases with given occurrences and noise; no data are needed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from dpassay import __version__
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.noise import blowup, noise_for
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.secrets.games import VARIANTS, Variant
from dpassay.auditing.secrets.attack import audit_secret, number_of_values
from dpassay.audits.result import AuditResult, refuted_where_concluded
from dpassay.base import defaults, validate
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number, format_upper
from dpassay.base.outputs import check_output_folder
from dpassay.base.private_files import write_private
from dpassay.base.progress import Progress

NAME = "secret-audit.json"
MAX_OCCURRENCES, MAX_ROUNDS = 10**6, 10_000


@dataclass(frozen=True, kw_only=True)
class SecretAudit:
    """The result of an audit of secret protection.

    Attributes:
        p, r: the claim: a secret with prior guessing probability at most p has posterior one at most r.
        release: what was attacked: the other arguments of `audit_secrets`, with σ₁.
        certified_r: proven upper bound on r; None for the published variant, which has none below 1.
        audit: games, and lower bounds on r.
    """

    p: float
    r: float
    release: AttackedRelease
    certified_r: float | None
    audit: AuditResult

    @property
    def refuted(self) -> bool | None:
        """Whether a lower bound on r is above the claimed r; None if there is no conclusion."""
        return refuted_where_concluded(any(bound.value > self.r for bound in self.audit.bounds), self.concluded)

    @property
    def concluded(self) -> bool:
        """Whether a conclusion is drawn."""
        return self.audit.concluded

    def to_json(self) -> dict[str, Any]:
        """The audit as plain JSON types."""
        return {
            "schema": 1,
            "dpassay": __version__,
            "claim": {"p": self.p, "r": self.r},
            "release": dict(self.release),
            "certified_r": self.certified_r,
            "refuted": self.refuted,
            "audit": self.audit.to_json(),
        }

    def in_words(self) -> list[str]:
        """The result in sentences: the release, its proven bound, and what the games show."""
        of = self.release
        records = "1 record" if of["occurrences"] == 1 else f"{of['occurrences']} records"
        release = (
            f"A secret in {records}, each drawn with probability {format_number(of['sampling_probability'])}; "
            f"σ₁ = {format_number(of['sigma'])}, releases: {of['rounds']}, {of['variant'].replace('_', ' ')}."
        )
        proof = "Published steps: no r below 1 is certified."
        if self.certified_r is not None:
            proof = f"Certified: r is at most {format_upper(self.certified_r)} at p = {format_number(self.p)}."
        return [release, proof, self.audit.conclusion]


class AttackedRelease(TypedDict):
    """A release that is attacked, as the result prints it."""

    occurrences: int
    sampling_probability: float
    rounds: int
    sigma: float
    variant: Variant
    confidence: float


def audit_secrets(
    p: float,
    r: float,
    *,
    occurrences: int,
    sampling_probability: float,
    rounds: int = 1,
    sigma: float | None = None,
    variant: Variant = "sound",
    confidence: float = defaults.CONFIDENCE,
    output: str | Path | None = None,
    progress: Progress | None = None,
) -> SecretAudit:
    """Guesses a secret from the noisy clusters of secret-protected evolution by the best attack; no data are needed.

    Args:
        p, r: the claim: a secret with prior guessing probability at most p has posterior one at most r.
        occurrences: number of records that hold the secret.
        sampling_probability: of each of them in a release.
        rounds: number of releases, each with fresh noise and sampling.
        sigma: σ₁, the noise; None for the least that is certified to meet the claim.
        variant: of the release: ``sound`` or ``as_published``.
        confidence: of the audit.
        output: folder for ``secret-audit.json`` and the games, from which an interrupted audit resumes; None to write
            nothing.
        progress: where to show progress.

    Returns:
        The certified r, and lower bounds on r from the games.

    Raises:
        InputError: if an argument is out of range, or the folder cannot be made.
    """
    folder = None if output is None else Path(output)
    check_output_folder(folder, ())
    with input_errors():
        guarantee = SecretProtection(p, r)
        validate.open_probability(confidence=confidence)
        validate.one_of(VARIANTS, variant=variant)
        validate.integer(minimum=1, maximum=MAX_OCCURRENCES, occurrences=occurrences)
        validate.integer(minimum=1, maximum=MAX_ROUNDS, rounds=rounds)
        validate.probability(sampling_probability=sampling_probability)
        number_of_values(p)
        drawn = np.full(occurrences, sampling_probability)
        weights = poisson_binomial(drawn)
        if sigma is None:
            sigma = noise_for(weights, p, r, rounds)
        validate.non_negative(sigma=sigma)
        if folder is not None:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    release = AttackedRelease(
        occurrences=occurrences,
        sampling_probability=sampling_probability,
        rounds=rounds,
        sigma=sigma,
        variant=variant,
        confidence=confidence,
    )
    digest = hashlib.sha256(json.dumps({"p": p, "r": r, **release}).encode()).hexdigest()
    outcome = audit_secret(
        drawn,
        sigma,
        rounds=rounds,
        variant=variant,
        guarantee=guarantee,
        folder=folder and folder / f"games-{digest[:12]}",
        confidence=confidence,
        progress=progress,
    )
    certified = blowup(weights, sigma, p, rounds).upper if variant == "sound" else None
    result = SecretAudit(p=p, r=r, release=release, certified_r=certified, audit=outcome)
    if folder is not None:
        write_private(folder / NAME, json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return result
