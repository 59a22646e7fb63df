"""Audits of released data: are units of the source hit more often than units of a holdout?

Let the units be split at random into source and holdout, so that given the size of the source every choice of it is
equally likely. Let hits depend on the split only through the released data. If the released data do not depend on the
split, the number of source hits is hypergeometric, so the p-value is exact. It tests ε = 0, and no ε follows from it.
If each unit was put into the source by its own fair coin, hits are guesses "in", and the one-run statistic bounds ε.

The intervals of rates treat units as independent trials, which units of one run are not quite: they are descriptive.
Each of n rates has an interval at confidence 1 − β/n, so all of them hold jointly at 1 − β; the intervals of the
difference and of the risk follow from those of source and holdout, and hold whenever they do.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.attacks.released.holdout import Hits
from dpassay.audits.detection import Detectable, detectable, epsilon_shown
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.audits.statistics.binomial import difference_interval, risk_interval
from dpassay.audits.statistics.one_run import disclosures_with_holdout, hypergeometric_tail
from dpassay.audits.statistics.power import AsPrinted, SourceAndHoldout
from dpassay.base import validate
from dpassay.base.number_format import (
    format_ceiling,
    format_number,
    format_p_value,
)

REVERSED_LEVEL = 0.001
"""The probability, at most, with which the control fails by chance that holdout units are not hit more often."""

NO_COINS = "nothing follows for ε, since units are not known to be put into the source by independent fair coins"


def holdout_audit(
    result: Hits,
    *,
    coins: bool,
    confidence: float,
    delta: float = 0.0,
    unit: Unit | None = None,
    claim: PureDP | ApproxDP | None = None,
    tried: tuple[str, ...] = (),
    needs: str = "",
) -> AuditResult:
    """Compares how often units of source and holdout were hit.

    Args:
        result: what an attack found.
        coins: whether each unit was put into source or holdout by its own fair coin. Only then ε is bounded.
        confidence: of the bound, and of all intervals jointly; if k audits must hold jointly, pass 1 − β/k to each.
        delta: δ in [0, 1) at which ε is bounded.
        unit: what a unit is; a record by default.
        claim: the claim that bounds are compared with, at this δ; None for no claim. Only all audits of the same data
            together may refute it (`dpassay.audits.verdict.decide`).
        tried: the names of all audits of the same data, this one included.
        needs: what is missing for the attack to find anything; empty if nothing is. If it found nothing, no conclusion
            is drawn.

    Returns:
        The audit; without bounds if there were no coins or a control failed.

    Raises:
        ValueError: if a number is out of range.
    """
    validate.open_probability(confidence=confidence)
    validate.probability_below_one(delta=delta)
    hits, other = int(result.source.sum()), int(result.holdout.sum())
    source, holdout = len(result.source), len(result.holdout)
    p_value = hypergeometric_tail(hits, source + holdout, source, hits + other)
    least = hypergeometric_tail(min(source, hits + other), source + holdout, source, hits + other)
    failures = _failures(other, source, holdout, hits + other)
    bound = None
    if coins:
        shown = disclosures_with_holdout(
            hits + other,
            hits,
            source + holdout,
            source=source,
            delta=delta,
            confidence=confidence,
            adjacency=Adjacency.ADD_REMOVE,
            unit=unit,
        )
        bound = dataclasses.replace(shown.epsilon, private=True)
    size = AsPrinted(source + holdout) if coins else SourceAndHoldout(source, holdout)
    limit = None
    if not failures and not (bound is not None and bound.value > (0.0 if claim is None else claim.epsilon)):
        claimed = None if claim is None or not coins else float(claim.epsilon)
        limit = detectable(size, claimed, confidence=confidence, delta=delta, by_chance=other / holdout)
    share = (1 - confidence) / (2 + len(result.beside))
    rates = (
        Rate(f"source units {result.hit}", hits, source, 1 - share),
        Rate(f"holdout units {result.hit}", other, holdout, 1 - share),
    )
    counts = (hits, source, other, holdout)
    naive = None if result.naive is None or result.naive < hits else result.naive
    return AuditResult(
        name=result.name,
        game=result.game,
        attack=result.attack,
        statistics=("hypergeometric tail", "clopper_pearson", *(("one_run",) if coins else ())),
        conclusion=_conclusion(result.hit, rates, p_value, least, bound, failures, 1 - confidence, claim, limit, needs)
        + ("" if naive is None or failures else _no_better(naive, source)),
        trials=source + holdout,
        bounds=() if failures or bound is None else (bound,),
        rates=rates + tuple(Rate(*beside, 1 - share) for beside in result.beside),
        controls=(rates[1],),
        controls_passed=not failures if source and holdout else None,
        difference=difference_interval(*counts, confidence=1 - 2 * share),
        p_value=p_value,
        multiplicity=_multiplicity(tried or (result.name,)),
        details={
            **result.details,
            "coins": coins,
            "failures": failures,
            "least_p_value": least,
            "risk": _risk(counts, 1 - 2 * share),
            "detectable": None if limit is None else limit.to_json(),
        },
    )


def _risk(counts: tuple[int, int, int, int], confidence: float) -> dict[str, Any]:
    """(a − b)/(1 − b) for the rates a of the source and b of the holdout, with its interval; None where it has no value
    or no lower end."""
    hits, source, other, holdout = counts
    risk = risk_interval(*counts, confidence=confidence)
    measured = bool(source) and other < holdout
    return {
        "value": 1 - (1 - hits / source) / (1 - other / holdout) if measured else None,
        "interval": [
            risk.lower if math.isfinite(risk.lower) else None,
            risk.upper if math.isfinite(risk.upper) else None,
        ],
        "confidence": confidence,
    }


def _no_better(naive: int, source: int) -> str:
    return (
        f" A guess that is the same for all hits {naive} of {source} source units, so this attack is no better than "
        "one that looks at no unit."
    )


def _failures(other: int, source: int, holdout: int, hits: int) -> list[str]:
    if not source or not holdout:
        return [f"there are {source} units in the source and {holdout} in the holdout; both need at least one"]
    if hypergeometric_tail(other, source + holdout, holdout, hits) > REVERSED_LEVEL:
        return []
    return [
        "holdout units are hit more often than source units, which happens by chance at most once in a thousand times: "
        "the holdout has leaked, or source and holdout differ in kind or were swapped"
    ]


def _conclusion(
    hit: str,
    rates: tuple[Rate, Rate],
    p_value: float,
    least: float,
    bound: Bound | None,
    failures: list[str],
    beta: float,
    claim: PureDP | ApproxDP | None,
    limit: Detectable | None,
    needs: str,
) -> str:
    if failures:
        return no_conclusion(*failures)
    source, holdout = rates
    counts = (
        f"{source.hits} of {source.trials} source units and {holdout.hits} of {holdout.trials} holdout units are {hit} "
        f"(p-value {format_p_value(p_value)})"
    )
    half = "" if limit is None else " " + limit.sentence(f"of the source units are {hit}")
    against = "" if claim is None else f" the claim of ε = {format_number(claim.epsilon)}"
    if bound is not None and bound.value > 0:
        shown = epsilon_shown(bound)
        if claim is None:
            return f"{counts}: a leak that shows {shown}."
        above = bound.value > claim.epsilon
        return f"{counts}: a leak that shows {shown}, {'above' if above else 'not above'}{against}.{half}"
    if p_value > beta and (needs or (limit is not None and limit.is_blind)):
        does = "show a leak" if claim is None else "refute the claim"
        blind = f"a test of this size has less than 50 % power to {does}, even if all source units are {hit}"
        why = needs or f"{blind}; give more units"
        return no_conclusion(f"{counts}, but {why}")
    leak = (
        "more source units than chance explains, if the sides were split at random"
        if p_value <= beta
        else "no leak found by this attack, which does not mean that there is none"
    )
    if least > beta:
        leak = "this many hits could not have shown a leak, whichever units were hit"
    if bound is None:
        return f"{counts}: {leak}; {NO_COINS}.{half if p_value > beta else ''}"
    could_show = format_ceiling(bound.ceiling, bound.value)
    return f"{counts}: {leak}.{half} As many hits, all in the source, would have shown only ε = {could_show}."


def _multiplicity(tried: tuple[str, ...]) -> tuple[str, ...]:
    together = (
        f"one of {len(tried)} tests of the same data ({', '.join(tried)}): all bounds and p-values hold jointly at "
        f"1 − β/{len(tried)} each"
    )
    return (
        "one score and one threshold, fixed before the released data were read",
        *((together,) if len(tried) > 1 else ()),
    )
