"""The secret reconstruction audit: a lower bound on r of secret protection, from how often a secret's value is guessed.

If a mechanism is (p, r)-secret-protected and the largest prior probability of a value is p, any guess is right with
probability at most r. Games are independent, each with its own run and a value drawn from the prior. So the number of
right guesses is binomial, and the Clopper–Pearson lower limit is a lower bound on r, whatever the attack.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.special import betaincinv

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.guarantees import SecretProtection
from dpassay.attacks.secrets.reconstruction import SecretGuesses
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.audits.statistics.binomial import lower_limit
from dpassay.base import defaults, validate
from dpassay.base.number_format import format_ceiling, format_confidence, format_lower, format_number, format_upper

MIN_CONTROL_SUCCESS = 0.99
"""The smallest rate of right guesses that the control without noise must have.

Without noise the probability of a wrong guess is far below 1e-9.
"""

_GAMES = "every game draws its own value from the prior and has its own run of the mechanism"
_REST = "the attacker knows everything but the value and the noise, including where the secret occurs"


def r_clopper_pearson(right: int, games: int, *, p: float, confidence: float) -> Bound:
    """A lower bound on r at p in (0, 1): the one-sided lower limit of the probability of a right guess in independent
    games.

    It is at least p, since r ≥ p by definition; its ceiling is the bound if all games are won.

    Raises:
        ValueError: if a count or probability is out of range.
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


def detectable_success_rate(games: int, *, r: float, confidence: float) -> float:
    """The smallest probability of a right guess at which this many games refute a claim of r with probability ½; 1 if
    even winning all of them would not."""
    hits = np.arange(games + 1)
    limits = lower_limit(hits, np.full(games + 1, games), 1 - confidence)
    enough = np.flatnonzero(limits > r)
    # P[hits ≥ k] = ½ at the median of a beta variable.
    return float(betaincinv(enough[0], games - enough[0] + 1, 0.5)) if enough.size else 1.0


def secret_reconstruction_audit(
    result: SecretGuesses,
    *more: SecretGuesses,
    guarantee: SecretProtection,
    confidence: float = defaults.CONFIDENCE,
    control: SecretGuesses | None = None,
) -> AuditResult:
    """Compares how often a secret was guessed with what a claim of secret protection allows.

    Args:
        result: of games against the mechanism; their number was fixed in advance.
        more: of other games against it, for example with another source of noise. Each has its own bound, and all
            bounds hold jointly.
        guarantee: the claim.
        confidence: of all bounds jointly, and of each interval; with k audits pass 1 − β/k to each.
        control: of games without noise, in which nearly every guess must be right; otherwise no conclusion is drawn.

    Raises:
        ValueError: if games have a p above that of the claim, which then does not limit them.
    """
    results = (result, *more)
    largest = max(played.p for played in results)
    if largest > guarantee.p * (1 + 1e-12):
        raise ValueError(
            f"the claim is for secrets of prior probability at most {guarantee.p:g}, but these games have a prior "
            f"probability of {largest:g}: use a prior with p at most {guarantee.p:g}"
        )
    each = 1 - (1 - confidence) / len(results)
    # The claim covers games at a smaller p as well; the tolerance is for the rounding of 1/K.
    bounds = tuple(
        dataclasses.replace(bound, assumptions=(*bound.assumptions, *played.assumed))
        for played in results
        for bound in (r_clopper_pearson(played.right, played.games, p=guarantee.p, confidence=each),)
    )
    passed = None if control is None else control.right >= MIN_CONTROL_SUCCESS * control.games
    said = [_conclusion(played, bound, guarantee) for played, bound in zip(results, bounds, strict=True)]
    return AuditResult(
        name="secret_reconstruction",
        game=f"one of {result.values} values is put into {_releases(result.rounds)}; guess which",
        attack="the value with the largest posterior probability",
        statistics=("clopper_pearson",),
        conclusion=" ".join(said) if passed is not False else _no_conclusion(control),
        trials=sum(played.games for played in results),
        bounds=bounds if passed is not False else (),
        rates=tuple(Rate(_name(played), played.right, played.games, confidence) for played in results),
        controls=() if control is None else (Rate(_name(control), control.right, control.games, confidence),),
        controls_passed=passed,
        multiplicity=(
            f"one attack without a threshold, and {len(results)} bounds on r, each at confidence "
            f"{format_confidence(each)}"
            if more
            else "one attack without a threshold, and one bound on r",
        ),
        details={
            "p": result.p,
            "values": result.values,
            "rounds": result.rounds,
            "assumed": _REST,
            "best_guess": [played.best for played in results],
            "detectable": [detectable_success_rate(played.games, r=guarantee.r, confidence=each) for played in results],
        },
    )


def _name(result: SecretGuesses) -> str:
    return "secrets guessed" + (f", {result.setting}" if result.setting else "")


def _releases(rounds: int) -> str:
    return "one noisy release" if rounds == 1 else f"{rounds} noisy releases"


def _no_conclusion(control: SecretGuesses | None) -> str:
    assert control is not None
    return no_conclusion(
        f"without noise only {control.right} of {control.games} secrets are guessed, but nearly all should be, so the "
        "game does not detect what is released"
    )


def _conclusion(result: SecretGuesses, bound: Bound, guarantee: SecretProtection) -> str:
    best = "" if result.best is None else f", and about {format_number(result.best)} by the best guess"
    counts = (
        f"{result.right} of {result.games} secrets are guessed{f', {result.setting}' if result.setting else ''} "
        f"({format_number(result.p)} of them would be without a release{best})"
    )
    shown = (
        f"with confidence {format_confidence(bound.confidence or 0.0)} r is at least {format_lower(bound.value)} "
        f"at p = {format_number(guarantee.p)}"
    )
    if bound.value > guarantee.r:
        return f"{counts}: {shown}, above the claimed {format_number(guarantee.r)}."
    if (bound.ceiling or 0.0) <= guarantee.r:
        ceiling = format_ceiling(bound.ceiling, bound.value)
        return f"{counts}: {shown}; this many games could have shown at most {ceiling}, no more than the claim."
    seen = detectable_success_rate(result.games, r=guarantee.r, confidence=bound.confidence or 0.0)
    return (
        f"{counts}: {shown}, not above the claimed {format_number(guarantee.r)}: no leak beyond the claim found. This "
        f"many games have 50 % power to find one if guesses are right with probability {format_upper(seen, 2)}."
    )
