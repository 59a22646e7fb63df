"""The membership audit: do scores of candidates tell members of the data from non-members?

*With coins.* Each of m candidates was included in the data by its own fair coin. Scores are functions of the release
and of the attacker's own randomness, never of the coins. The highest r/2 are guessed "in" and the lowest r/2 "out" (or
the highest r "in"), with r fixed in advance; ties are broken by a seeded random order. So the guesses are a function
of the output with a fixed r, as the `tight` rule of `audits.one_run` requires.

Each of A attacks with each of R numbers of guesses is one attempt, with a bound at confidence 1 − β/(A·R). If the
claim is true, each bound exceeds it with probability at most β/(A·R), so the largest does with probability at most β.

*Without coins* (a chosen training set and holdout), members and non-members can differ in more than membership. Areas
under the curve and rates describe how well scores separate them; no ε follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy import special

from dpassay.accounting.bounds import Bound
from dpassay.audits.detection import Detectable, detectable, epsilon_shown
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores, right_guesses, unfair_coins
from dpassay.audits.result import AuditResult, Rate, no_conclusion
from dpassay.audits.statistics.ceilings import OneRun
from dpassay.audits.statistics.one_run import epsilon_one_run
from dpassay.audits.statistics.one_run_gaussian import GaussianModel
from dpassay.audits.statistics.roc import Area, area_under_curve, positives_at
from dpassay.audits.verdict import REFUTING_CONFIDENCE, may_refute
from dpassay.base.number_format import (
    format_ceiling,
    format_confidence,
    format_interval,
    format_number,
    format_percent,
)

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
_COPIES_ONLY = (
    "That it finds copies of all members does not show that it sees leaks of this generator; output of the same "
    "generator without protection would."
)
_BLIND = "scores are functions of what was released, not of the coins"
_ALONE = "each candidate is all that its user has in the data"


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attack with one number of guesses."""

    attack: str
    guesses: int
    correct: int
    bound: Bound


def membership_audit(
    scores: MembershipScores, design: MembershipDesign, *, control: MembershipScores | None = None, copies: bool = False
) -> AuditResult:
    """Bounds ε from membership scores, and describes how well they separate members from non-members.

    Args:
        scores: of all attacks that were tried on the release.
        design: the parameters that were fixed before the scores were seen.
        control: scores of the same attacks where the leak is known, such as on a model that memorised its records. If
            no attack separates members there (area under the curve above ½ with confidence), no conclusion is drawn.
            None: an audit that finds nothing then says nothing about what other attacks might find.
        copies: whether the control is copies of all members. That checks the search; it does not show that the attack
            sees leaks of the audited generator, as a run of it without protection would.

    Returns:
        The audit. With fair coins it has one bound, the largest of all attempts, at the confidence of the design.

    Raises:
        ValueError: if there are more guesses than candidates.
    """
    m, confidence = len(scores.included), design.confidence
    areas = _areas(scores, confidence)
    attempts = _attempts(scores, design) if design.fair_coins else []
    best = max(attempts, key=lambda attempt: attempt.bound.value, default=None)
    failures = unfair_coins(scores) if design.fair_coins else []
    known = "check of the search" if copies else "positive control"
    failures += [] if control is None else _blind(_areas(control, confidence), known)
    bound = None if best is None or failures else _together(best, attempts, design)
    limit = None if best is None else _detectable(m, best, design)
    gaussian = None if best is None or failures else _gaussian(m, best, design)
    return AuditResult(
        name="membership",
        game=_game(design),
        attack=", ".join(scores.by_attack),
        statistics=(*(("one_run_tight",) if design.fair_coins else ()), "area under the curve", "clopper_pearson"),
        conclusion=_conclusion(design, areas, best, bound, control, failures, limit, copies),
        trials=m,
        bounds=() if bound is None else (bound,),
        rates=_rates(scores, confidence),
        controls=() if control is None else _rates(control, confidence, f"{known}: "),
        controls_passed=not failures if failures or control is not None else None,
        p_value=_p_value(attempts) if attempts and not failures else None,
        multiplicity=_multiplicity(scores, design, attempts),
        details={
            "candidates": m,
            "included": int(scores.included.sum()),
            "fair_coins": design.fair_coins,
            "side": design.side,
            "failures": failures,
            "areas": _described(areas),
            "detectable": None if limit is None else limit.to_json(),
            "gaussian": None if gaussian is None else gaussian.to_json(),
            "control_areas": {} if control is None else _described(_areas(control, confidence)),
            "attempts": [
                {
                    "attack": attempt.attack,
                    "guesses": attempt.guesses,
                    "correct": attempt.correct,
                    "epsilon": None if failures else attempt.bound.value,
                    "ceiling": attempt.bound.ceiling,
                    "confidence": attempt.bound.confidence,
                }
                for attempt in attempts
            ],
        },
    )


def _attempts(scores: MembershipScores, design: MembershipDesign) -> list[_Attempt]:
    m = len(scores.included)
    numbers = design.numbers(m)
    each = 1 - (1 - design.confidence) / (len(numbers) * len(scores.by_attack))
    attempts = []
    for name, values in scores.by_attack.items():
        for r in numbers:
            correct = right_guesses(values, scores.included, r, side=design.side, seed=design.seed)
            bound = epsilon_one_run(
                m,
                r,
                correct,
                delta=design.delta,
                confidence=each,
                rule="tight",
                adjacency=design.adjacency,
                unit=design.unit,
            )
            attempts.append(_Attempt(name, r, correct, bound))
    return attempts


def _detectable(m: int, best: _Attempt, design: MembershipDesign) -> Detectable:
    """What the attempt with the largest bound detects with 50 % power."""
    size, confidence = OneRun(m, best.guesses, "tight"), best.bound.confidence or design.confidence
    return detectable(size, design.claimed_epsilon, confidence=confidence, delta=design.delta, share=False)


def _gaussian(m: int, best: _Attempt, design: MembershipDesign) -> GaussianModel:
    """What the attempt with the largest bound shows if the noise of each candidate is an independent Gaussian."""
    return GaussianModel.of(
        m,
        best.guesses,
        best.correct,
        delta=design.delta,
        each=best.bound.confidence or design.confidence,
        confidence=design.confidence,
        adjacency=design.adjacency,
        unit=design.unit,
    )


def _together(best: _Attempt, attempts: Sequence[_Attempt], design: MembershipDesign) -> Bound:
    """The largest bound, with the confidence at which all bounds hold jointly."""
    return dataclasses.replace(
        best.bound,
        confidence=design.confidence,
        ceiling=max(attempt.bound.ceiling or 0.0 for attempt in attempts),
        assumptions=(*best.bound.assumptions, _BLIND, *((_ALONE,) if design.unit.needs_user else ())),
        private=True,
    )


def _p_value(attempts: Sequence[_Attempt]) -> float:
    """The p-value of the hypothesis that the output does not depend on the coins (each guess is right w.p. ½).

    The smallest P[Bin(r, ½) ≥ v] of all attempts, times their number.
    """
    tails = [float(special.bdtrc(a.correct - 1, a.guesses, 0.5)) if a.correct else 1.0 for a in attempts]
    return min(1.0, len(attempts) * min(tails))


def _areas(scores: MembershipScores, confidence: float) -> dict[str, Area]:
    inside = scores.included
    return {
        name: area_under_curve(values[inside], values[~inside], confidence=confidence)
        for name, values in scores.by_attack.items()
    }


def _described(areas: Mapping[str, Area]) -> dict[str, Any]:
    return {
        name: {"value": area.value, "interval": [area.interval.lower, area.interval.upper]}
        for name, area in areas.items()
    }


def _rates(scores: MembershipScores, confidence: float, before: str = "") -> tuple[Rate, ...]:
    rates = []
    inside = scores.included
    members, others = int(inside.sum()), int((~inside).sum())
    for name, values in scores.by_attack.items():
        for share in FALSE_POSITIVE_RATES:
            hits, false = positives_at(values[inside], values[~inside], false_positive_rate=share)
            where = f"{before}{name}, FPR ≤ {format_percent(share)}"
            rates.append(Rate(f"{where}: members found", hits, members, confidence))
            rates.append(Rate(f"{where}: others taken for members", false, others, confidence))
    return tuple(rates)


def _blind(areas: Mapping[str, Area], known: str) -> list[str]:
    if any(area.interval.lower > 0.5 for area in areas.values()):
        return []
    best = max(areas.values(), key=lambda area: area.value)
    return [
        f"in the {known} no attack separates members from non-members: the largest area under the curve is "
        f"{format_number(best.value)}, in {_ends(best)}"
    ]


def _game(design: MembershipDesign) -> str:
    if design.swapped:
        return "a fair coin decides which of two candidates is in the data; find which from the release"
    if design.fair_coins:
        return "each candidate enters the data by its own fair coin; find which did from the release"
    return "some candidates were in the data and some were not; tell them apart by the release"


def _multiplicity(scores: MembershipScores, design: MembershipDesign, attempts: Sequence[_Attempt]) -> tuple[str, ...]:
    each = f" for each of {len(scores.by_attack)} attacks" if len(scores.by_attack) > 1 else ""
    rates = (
        "areas under the curve and rates at "
        f"{len(FALSE_POSITIVE_RATES)} false-positive rates{each}; each "
        "interval holds by itself and treats records as independent: they are descriptive, and no ε follows"
    )
    if not attempts:
        return (rates,)
    numbers = dict.fromkeys(attempt.guesses for attempt in attempts)
    tried = (
        f"{len(scores.by_attack)} attacks ({', '.join(scores.by_attack)}) × {len(numbers)} numbers of guesses "
        f"({', '.join(map(str, numbers))}, {'highest in and lowest out' if design.side == 'both' else 'highest in'}): "
        f"each attempt at confidence {format_confidence(attempts[0].bound.confidence or 0.0)}, so that the largest "
        f"bound holds with {format_confidence(design.confidence)}"
    )
    return (tried, "one p-value, times the number of attempts", rates)


def _conclusion(
    design: MembershipDesign,
    areas: Mapping[str, Area],
    best: _Attempt | None,
    bound: Bound | None,
    control: MembershipScores | None,
    failures: Sequence[str],
    limit: Detectable | None,
    copies: bool,
) -> str:
    if failures:
        return no_conclusion(*failures)
    name = max(areas, key=lambda attack: areas[attack].value)
    area = areas[name]
    summary = f"largest area under the curve is {format_number(area.value)} ({name}, in {_ends(area)})"
    if best is None or bound is None:
        return f"The {summary}; members were not chosen by fair coins, so no ε follows."
    counts = f"{best.correct} of {best.guesses} guesses of {best.attack} are right, and the {summary}"
    claim = design.claimed_epsilon
    if bound.value > 0:
        shown = f"{counts}: a leak that shows {epsilon_shown(bound)}"
        if claim is not None and bound.value > claim:
            if may_refute(design.confidence):
                return f"{shown}, which refutes the claim of ε = {format_number(claim)}."
            above = f"that is above the claim of ε = {format_number(claim)}"
            return f"{shown}; {above}, but refuting it takes confidence {REFUTING_CONFIDENCE} or more."
    else:
        shown = f"{counts}: no leak is shown"
        if control is None:
            shown += ", and without a positive control nothing follows from that"
    ceiling = format_ceiling(bound.ceiling, bound.value)
    if claim is None and bound.value > 0:
        return f"{shown}; even perfect guesses would have shown only ε = {ceiling}."
    refuted = "" if claim is None else f", and the claim of ε = {format_number(claim)} is not refuted"
    half = "" if limit is None else limit.sentence()
    if claim is not None and (bound.ceiling or 0.0) <= claim:
        return (
            f"{shown}{refuted}. It could not have been, since as many guesses, all right, show at most ε = {ceiling}: "
            "the result says nothing about the claim."
        )
    said = f"{shown}{refuted}. {half} Even perfect guesses would have shown only ε = {ceiling}."
    return f"{said} {_COPIES_ONLY}" if copies else said


def _ends(area: Area) -> str:
    return format_interval(area.interval.lower, area.interval.upper)
