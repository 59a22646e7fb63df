"""Guesses a secret in the release that protects secrets, for given places and noise: no data is needed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np

from cupel import __version__
from cupel.accounting import validate
from cupel.accounting.guarantees import SecretProtection
from cupel.accounting.secret_protection.noise import blowup, noise_for
from cupel.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from cupel.attacks.secrets.games import Variant
from cupel.audit_jobs.canaries.files import write_whole
from cupel.errors import input_errors
from cupel.generators.secret_evolution.audits import audit_secret, values_of
from cupel.progress import Progress

NAME = "secret-audit.json"
MOST_OCCURRENCES, MOST_ROUNDS = 10**6, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """What is claimed, and what is released.

    Attributes:
        p, r: the claim.
        occurrences: how many records hold the secret.
        sampling_probability: of each of them in a release.
        rounds: releases.
        sigma: σ₁; None for the least that is certified to meet the claim.
        variant: sound or as_published.
        confidence: of the audit.
    """

    p: float
    r: float
    occurrences: int
    sampling_probability: float
    rounds: int = 1
    sigma: float | None = None
    variant: Variant = "sound"
    confidence: float = 0.95


def audit(secret: Secret, output: Path | None = None, *, progress: Progress | None = None) -> dict[str, Any]:
    """Plays the games and writes ``secret-audit.json``.

    Args:
        secret: claim and release.
        output: folder for the result, and for games that were played, so that an interrupted audit goes on; None
            writes nothing.
        progress: where to show progress.

    Returns:
        The audit, whether it refutes the claim, and what is certified of the release, in JSON types.

    Raises:
        InputError: for parameters out of range, or a folder that cannot be made.
    """
    with input_errors():
        guarantee = SecretProtection(secret.p, secret.r)
        validate.open_probability(confidence=secret.confidence)
        validate.one_of(get_args(Variant), variant=secret.variant)
        validate.integer(minimum=1, maximum=MOST_OCCURRENCES, occurrences=secret.occurrences)
        validate.integer(minimum=1, maximum=MOST_ROUNDS, rounds=secret.rounds)
        validate.probability(sampling_probability=secret.sampling_probability)
        values_of(secret.p)
        drawn = np.full(secret.occurrences, secret.sampling_probability)
        weights = poisson_binomial(drawn)
        sigma = secret.sigma
        if sigma is None:
            sigma = noise_for(weights, secret.p, secret.r, secret.rounds)
        validate.non_negative(sigma=sigma)
        if output is not None:
            output.mkdir(mode=0o700, parents=True, exist_ok=True)
    release = {**asdict(secret), "sigma": sigma}
    found = audit_secret(
        drawn,
        sigma,
        rounds=secret.rounds,
        variant=secret.variant,
        guarantee=guarantee,
        folder=output and output / f"games-{hashlib.sha256(json.dumps(release).encode()).hexdigest()[:12]}",
        confidence=secret.confidence,
        progress=progress,
    )
    certified = blowup(weights, sigma, secret.p, secret.rounds).upper if secret.variant == "sound" else None
    body = {
        "schema": 1,
        "cupel": __version__,
        "claim": {"p": release.pop("p"), "r": release.pop("r")},
        "release": release,
        "certified_r": certified,
        "refuted": any(bound.value > secret.r for bound in found.bounds),
        "audit": found.to_json(),
    }
    if output is not None:
        write_whole(output / NAME, json.dumps(body, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return body


def in_words(found: dict[str, Any]) -> list[str]:
    """What was found, in lines for a person."""
    from cupel.accounting.number_format import format_number, format_upper

    release, certified = found["release"], found["certified_r"]
    records = "1 record" if release["occurrences"] == 1 else f"{release['occurrences']} records"
    about = (
        f"A secret in {records}, each drawn with probability {format_number(release['sampling_probability'])}; "
        f"σ₁ = {format_number(release['sigma'])}, releases: {release['rounds']}, "
        f"{release['variant'].replace('_', ' ')}."
    )
    proof = "Published steps: no r is certified but that of a release of the secret."
    if certified is not None:
        proof = f"Certified: r is at most {format_upper(certified)} at p = {format_number(found['claim']['p'])}."
    return [about, proof, found["audit"]["conclusion"]]
