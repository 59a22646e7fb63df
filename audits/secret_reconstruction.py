"""The secret reconstruction audit: a lower bound on r of secret protection, from how often a secret's value is guessed.

If a mechanism is (p, r)-secret-protected, whoever guesses a value of largest prior probability p is right with
probability at most r. Games are independent, each with a value drawn from the prior and a run of its own, so right
guesses are binomial, and the Clopper–Pearson lower limit is a lower bound on r, whatever the guesses are.
"""

from __future__ import annotations

import numpy as np

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency, Unit
from cupel.accounting.bounds import Bound, Direction, Rigor
from cupel.accounting.guarantees import SecretProtection
from cupel.attacks.secret_reconstruction import SecretGuesses
from cupel.audits.clopper_pearson import lower_limit
from cupel.audits.result import AuditResult, Rate
from cupel.audits.rounding import above, below, sure

_GAMES = "every game has a value drawn from the prior, and a run of the mechanism, of its own"
_REST = "the attacker knows everything but the value and the noise, the places where the secret occurs included"


def r_clopper_pearson(right: int, games: int, *, p: float, confidence: float) -> Bound:
    """A lower bound on r at p: the probability of a right guess, with one-sided coverage.

    Args:
        right: games in which the value was guessed, 0 to `games`.
        games: independent games.
        p: the largest probability of a guess before, in (0, 1).
        confidence: of the bound.

    Returns:
        A finite-sample lower bound on ``r``, at least p, which r is by definition; its ceiling is the value of all
        games won.

    Raises:
        ValueError: for counts or probabilities out of range.
    """
    validate.open_probability(p=p)
    validate.open_probability(confidence=confidence)
    counts = np.array([right, games])
    value, ceiling = lower_limit(counts, np.array([games, games]), 1 - confidence)
    return Bound(
        direction=Direction.LOWER,
        value=max(p, float(value)),
        method="secret_reconstruction",
        rigor=Rigor.FINITE_SAMPLE,
        adjacency=Adjacency.SECRET,
        quantity="r",
        unit=Unit("secret"),
        at=p,
        confidence=confidence,
        ceiling=max(p, float(ceiling)),
        null_family="every (p, r)-secret-protected mechanism",
        assumptions=(_GAMES,),
    )


def secret_reconstruction_audit(
    result: SecretGuesses, *, guarantee: SecretProtection, confidence: float = 0.95
) -> AuditResult:
    """Compares how often a secret was guessed with what a claim of secret protection allows.

    Args:
        result: of games against the mechanism.
        guarantee: what is claimed.
        confidence: of the bound and of the interval; with k audits give each 1 − β/k.

    Raises:
        ValueError: for games at a p above that of the claim, of which it says nothing.
    """
    if result.p > guarantee.p * (1 + 1e-12):
        raise ValueError(
            f"the claim is for secrets that are guessed with probability at most {guarantee.p:g} before, and in these "
            f"games the largest is {result.p:g}: use a prior with p at most that"
        )
    # A guess from a smaller p is covered by the claim as well; 1/K is rounded.
    bound = r_clopper_pearson(result.right, result.games, p=guarantee.p, confidence=confidence)
    return AuditResult(
        name="secret_reconstruction",
        game=f"one of {result.values} values is put into {result.rounds} noisy releases; guess which",
        attack="the value with the largest posterior probability",
        statistics=("clopper_pearson",),
        conclusion=_conclusion(result, bound, guarantee),
        trials=result.games,
        bounds=(bound,),
        rates=(Rate("secrets guessed", result.right, result.games, confidence),),
        multiplicity=("one attack without a threshold, and one bound on r",),
        details={"p": result.p, "values": result.values, "rounds": result.rounds, "assumed": _REST},
    )


def _conclusion(result: SecretGuesses, bound: Bound, guarantee: SecretProtection) -> str:
    counts = f"{result.right} of {result.games} secrets are guessed ({result.p:.3g} of them would be without a release)"
    shown = (
        f"with confidence {sure(bound.confidence or 0.0)} r is at least {below(bound.value, 4)} at p = {guarantee.p:g}"
    )
    if bound.value > guarantee.r:
        return f"{counts}: {shown}, above the claimed {guarantee.r:g}."
    ceiling = bound.ceiling or 0.0
    if ceiling <= guarantee.r:
        return f"{counts}: {shown}; so few games could have shown at most {above(ceiling, 4)}, no more than the claim."
    return f"{counts}: {shown}, not above the claimed {guarantee.r:g}: no leak beyond the claim found."
