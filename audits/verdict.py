"""The verdict on a claim (SUPPORTED, REFUTED or UNPROVEN) and the bounds that justify it; its words are in
`dpassay.audits.verdict_wording`.

A claim is refuted if a certified or finite-sample lower bound exceeds it. It is supported if nothing refutes it and a
certified upper bound is at most the claim, unless a lower bound exceeds either of them and does not count only because
several do not hold jointly. Otherwise it is unproven. A bound counts only at the claim's unit and adjacency, and only
through implications that hold for every mechanism (`dpassay.audits.implications`).

All upper bounds rest on the same description of the mechanism. Evidence that contradicts one of them therefore turns
all of them into estimates: the run did not do what is described, or the accounting or the audit is wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor, json_number
from dpassay.accounting.guarantees import ExPostDP, Guarantee, PrivacyProfile
from dpassay.audits import implications
from dpassay.audits import verdict_wording as wording
from dpassay.audits.implications import describe, describe_limit, implied_limit, implied_upper
from dpassay.audits.verdict_wording import Name
from dpassay.base.number_format import format_confidence

ALLOWED_ERROR = 0.05
"""Finite-sample bounds may refute a claim only if they hold jointly with confidence 1 − this value."""

REFUTING_CONFIDENCE = format_confidence(1 - ALLOWED_ERROR)
"""That confidence, as text."""

_ROUNDING = 1e-12  # absolute float error of a sum of a few terms 1 − confidence


def may_refute(confidence: float) -> bool:
    """Whether finite-sample bounds that hold jointly with this confidence may refute a claim."""
    return 1 - confidence <= ALLOWED_ERROR + _ROUNDING


def check_confidence(confidence: float, claim: object | None) -> None:
    """Raises `ValueError` if a claim, if there is one, is planned to be tested at a joint confidence at which none is
    refuted."""
    if claim is not None and not may_refute(confidence):
        raise ValueError(
            f"a claim is refuted at confidence {REFUTING_CONFIDENCE} or more, not at {format_confidence(confidence)}; "
            f"give --confidence {REFUTING_CONFIDENCE}, or plan without --epsilon"
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """The proof that an UNPROVEN claim lacks.

    Attributes:
        statement: one sentence.
        best_upper: the smallest certified upper bound on the claimed quantity; None if there is none.
        claimed: the claimed value of that quantity.
    """

    statement: str
    best_upper: float | None
    claimed: float

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types."""
        return {
            "statement": self.statement,
            "best_upper": json_number(self.best_upper),
            "claimed": json_number(self.claimed),
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a claim.

    Attributes:
        name: SUPPORTED, REFUTED or UNPROVEN.
        sentence: the verdict in one sentence.
        reasons: the assumptions of the proof, and which bounds do not count and why.
        best_upper: the certified upper bound that is closest to the claim; None if evidence contradicts the proof.
        best_lower: the lower bound that refutes the claim; if none does, the strongest one that counts against it.
        missing: what an UNPROVEN claim lacks; None for other verdicts.
        is_private: whether the verdict depends on the private data and must not be released. True for every verdict
            on an ex-post claim, for a refutation by a private bound, and if evidence contradicts the proof.
        contradictions: one sentence for each contradiction of a certified upper bound.
    """

    name: Name
    sentence: str
    reasons: tuple[str, ...]
    best_upper: Bound | None
    best_lower: Bound | None
    missing: Missing | None
    is_private: bool
    contradictions: tuple[str, ...] = ()


def decide(
    guarantee: Guarantee,
    *,
    adjacency: Adjacency | str,
    unit: Unit,
    bounds: Sequence[Bound],
    contradictions: Sequence[str] = (),
) -> Verdict:
    """The verdict on a claim, given all upper and lower bounds on the mechanism.

    Args:
        guarantee: the claim.
        adjacency, unit: of the claim.
        bounds: upper bounds of accountants and lower bounds of audits. Several finite-sample bounds count only if
            they hold jointly: k audits need confidence 1 − 0.05/k each.
        contradictions: observations of audits that contradict a certified statement about the mechanism
            (`AuditResult.contradictions`), one sentence each. A lower bound above a certified upper bound is detected
            here and need not be listed.

    Raises:
        ValueError: if a bound has another unit or adjacency than the claim.
    """
    _check_comparable(bounds, Adjacency(adjacency), unit)
    uppers = [bound for bound in bounds if bound.direction is Direction.UPPER]
    lowers = [bound for bound in bounds if bound.direction is Direction.LOWER]
    above = _contradictions(uppers, lowers, _that_may_refute(guarantee, lowers)[0])
    contradicted = tuple(dict.fromkeys((*contradictions, *above)))
    if contradicted:
        uppers = [dataclasses.replace(upper, rigor=Rigor.ESTIMATE) for upper in uppers]
    verdict = _weigh(guarantee, uppers, lowers, contradicted)
    return dataclasses.replace(
        verdict,
        reasons=(*map(wording.reason_contradicted, contradicted), *verdict.reasons),
        is_private=verdict.is_private or bool(contradicted),
        contradictions=contradicted,
    )


def _weigh(
    guarantee: Guarantee, uppers: Sequence[Bound], lowers: Sequence[Bound], contradicted: Sequence[str]
) -> Verdict:
    parts = _parts(guarantee)
    counted, reasons = _that_may_refute(guarantee, lowers)
    reasons += _ceilings(guarantee, lowers)
    refuting = [bound for bound in counted if _excess(guarantee, bound) > 0]
    best_lower = max(refuting or counted, key=lambda bound: _excess(guarantee, bound), default=None)
    results = [_best_upper(part, uppers) for part in parts]
    worst = max(range(len(parts)), key=lambda index: results[index][1] - results[index][0])
    claimed, value, best_upper = results[worst]
    part = parts[worst]
    what = wording.point(part.epsilons[0]) if isinstance(part, PrivacyProfile) else ""
    if refuting and best_lower is not None:
        reasons += wording.reasons_assumed(best_lower)
        limit = describe_limit(guarantee, implied_limit(guarantee, best_lower))
        sentence = wording.refuted(best_lower, describe(guarantee), limit)
        return _verdict("REFUTED", guarantee, sentence, reasons, best_upper, best_lower)
    unheard = _unheard(guarantee, uppers, lowers, counted)
    if best_upper is not None and value <= claimed and unheard:
        statement = wording.unheard(max(unheard, key=lambda bound: bound.value), len(lowers))
        sentence = wording.unproven(describe(guarantee), statement)
        missing = Missing(statement, value, claimed)
        return _verdict("UNPROVEN", guarantee, sentence, reasons, best_upper, best_lower, missing)
    if best_upper is not None and value <= claimed:
        reasons += wording.reasons_assumed(best_upper)
        sentence = wording.supported(value, what, best_upper.method, describe(guarantee))
        return _verdict("SUPPORTED", guarantee, sentence, reasons, best_upper, best_lower)
    statement = wording.missing(value, claimed, best_upper, what, contradicted)
    missing = Missing(statement, None if contradicted or best_upper is None else value, claimed)
    sentence = wording.unproven(describe(guarantee), statement)
    return _verdict("UNPROVEN", guarantee, sentence, reasons, best_upper, best_lower, missing)


def _unheard(
    claim: Guarantee, uppers: Sequence[Bound], lowers: Sequence[Bound], counted: Sequence[Bound]
) -> list[Bound]:
    """Finite-sample bounds above the claim, or above a certified upper bound, that do not count only because too many
    were made. They refute nothing; what stands beside them is not supported either."""
    proven = [
        of for upper in uppers if upper.rigor.may_support and (of := implications.as_guarantee(upper)) is not None
    ]
    return [
        bound
        for bound in lowers
        if bound.rigor is Rigor.FINITE_SAMPLE
        and bound not in counted
        and any(bound.value > implied_limit(of, bound) for of in (claim, *proven))
    ]


def _verdict(
    name: Name,
    guarantee: Guarantee,
    sentence: str,
    reasons: Sequence[str],
    best_upper: Bound | None,
    best_lower: Bound | None,
    missing: Missing | None = None,
) -> Verdict:
    private = isinstance(guarantee, ExPostDP) or (name == "REFUTED" and best_lower is not None and best_lower.private)
    return Verdict(name, wording.named(name, sentence), tuple(reasons), best_upper, best_lower, missing, private)


def _check_comparable(bounds: Sequence[Bound], adjacency: Adjacency, unit: Unit) -> None:
    for bound in bounds:
        if bound.adjacency is not adjacency or bound.unit != unit:
            raise ValueError(
                f"the claim is at {adjacency} and unit {unit}, but bound {bound.method} is at {bound.adjacency} and "
                f"unit {bound.unit}: convert the bound or leave it out"
            )


def _contradictions(uppers: Sequence[Bound], lowers: Sequence[Bound], counted: Sequence[Bound]) -> list[str]:
    """One sentence for each lower bound that exceeds a certified upper bound; it names the tightest upper bound.

    As against a claim, several finite-sample bounds count only if they hold jointly. Bounds in `counted`, which count
    against the claim, count here too.
    """
    proven = [(upper, implications.as_guarantee(upper)) for upper in uppers if upper.rigor is Rigor.CERTIFIED]
    compared = []
    for lower in lowers:
        limits = [(implied_limit(of, lower), upper.method) for upper, of in proven if of is not None]
        limit, method = min(limits, default=(math.inf, ""))
        if lower.rigor.may_refute and not math.isinf(limit):
            compared.append((lower, limit, method))
    jointly = may_refute(1 - _joint_error([lower for lower, *_ in compared]))
    return [
        wording.contradiction(lower, limit, method, sampled=lower.rigor is Rigor.FINITE_SAMPLE)
        for lower, limit, method in compared
        if lower.value > limit and (jointly or lower.rigor is Rigor.CERTIFIED or lower in counted)
    ]


def _joint_error(bounds: Sequence[Bound]) -> float:
    """An upper bound on the probability that any of the finite-sample bounds is wrong (union bound)."""
    return sum(1 - (bound.confidence or 0.0) for bound in bounds if bound.rigor is Rigor.FINITE_SAMPLE)


def _parts(guarantee: Guarantee) -> list[Guarantee]:
    """The separate claims of a guarantee: one per point of a privacy profile, else the guarantee itself."""
    if not isinstance(guarantee, PrivacyProfile):
        return [guarantee]
    points = [(e, d) for e, d in zip(guarantee.epsilons, guarantee.deltas, strict=True) if d < 1]
    if not points:
        raise ValueError("a privacy profile with every δ = 1 claims nothing")
    return [PrivacyProfile((epsilon,), (delta,)) for epsilon, delta in points]


def _excess(claim: Guarantee, bound: Bound) -> float:
    """By how much a lower bound exceeds what the claim allows; −inf if the claim does not limit the quantity."""
    limit = implied_limit(claim, bound)
    return -math.inf if math.isinf(limit) else bound.value - limit


def _that_may_refute(claim: Guarantee, lowers: Sequence[Bound]) -> tuple[list[Bound], list[str]]:
    """The lower bounds that count against the claim, and the reasons why the others do not."""
    reasons = []
    counted = []
    for bound in lowers:
        if not bound.rigor.may_refute:
            reasons.append(wording.reason_rigor(bound))
        elif math.isinf(implied_limit(claim, bound)):
            reasons.append(wording.reason_unlimited(bound))
        else:
            counted.append(bound)
    sampled = [bound for bound in counted if bound.rigor is Rigor.FINITE_SAMPLE]
    error = _joint_error(sampled)
    if not may_refute(1 - error):
        counted = [bound for bound in counted if bound.rigor is not Rigor.FINITE_SAMPLE]
        joint = max(0.0, 1 - error)
        reasons.append(wording.reason_jointly(len(sampled), joint, 1 - ALLOWED_ERROR, ALLOWED_ERROR))
    return counted, reasons


def _ceilings(claim: Guarantee, lowers: Sequence[Bound]) -> list[str]:
    """One sentence for each test that could not have refuted the claim, whatever it found."""
    reasons = []
    for bound in lowers:
        limit = implied_limit(claim, bound)
        if bound.ceiling is not None and not math.isinf(limit) and bound.ceiling <= limit:
            reasons.append(wording.reason_ceiling(bound))
    return reasons


def _best_upper(part: Guarantee, uppers: Sequence[Bound]) -> tuple[float, float, Bound | None]:
    """The claimed value, the smallest certified upper bound on it (inf if none), and the bound it comes from."""
    claimed = implications.parameter(part)
    certified = [(implied_upper(part, bound), index) for index, bound in enumerate(uppers) if bound.rigor.may_support]
    value, index = min(certified, default=(math.inf, -1))
    return claimed, value, uppers[index] if math.isfinite(value) else None
