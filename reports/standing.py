"""The box on top of a report: what is proven, tested and assumed, and what may be said of it elsewhere.

What may be said is made from the releasable part of an assay alone, on the private page too, so that nothing private
leaves with a sentence that somebody pastes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound, Direction
from dpassay.audits import verdict_wording as wording
from dpassay.audits.result import AuditResult
from dpassay.base.number_format import format_number, format_upper
from dpassay.claims.lints import LARGE_EPSILON
from dpassay.reports import text
from dpassay.reports.assay import Assay, PastAudit
from dpassay.reports.claim import ClaimedValue, Rows, claimed, meaning, output_rows
from dpassay.reports.release import Release, is_ex_post, releasable

_KINDS = {"ex_post_epsilon": "ex_post", "rho": "zcdp", "mu": "gdp", "renyi_epsilon": "rdp", "r": "secret_protection"}
"""Quantity of a bound → the type of guarantee in a claim file that says the same."""

_OWNERS = (("contact", "Answers for it"), ("purpose", "Purpose"), ("period", "Period"))


@dataclass(frozen=True, slots=True)
class Point:
    """One line of the box.

    Attributes:
        words: a sentence.
        assumption: the number of the paragraph that says it in full; None if there is none.
    """

    words: str
    assumption: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """What the box holds.

    Attributes:
        proven, tested, assumed: a line each.
        said: sentences to paste; empty if nothing is proven.
        unsaid: what does not follow.
        facts: number, length and completeness of the documents, and who answers for them.
        refutable: whether an audit is known to have had the means to refute the claim; None on the releasable page.
    """

    proven: tuple[str, ...]
    tested: tuple[Point, ...]
    assumed: tuple[Point, ...]
    said: tuple[str, ...]
    unsaid: tuple[str, ...]
    facts: Rows
    refutable: bool | None


def standing(assay: Assay | Release, upper: Bound | None, numbers: Mapping[str, int]) -> Standing:
    """The box of a page.

    Args:
        assay: what the page shows.
        upper: the certified upper bound that the page names.
        numbers: sentence → number of its paragraph on the page.
    """
    claim = claimed(assay.claim)
    private = assay if isinstance(assay, Assay) else None
    page = assay if isinstance(assay, Release) else releasable(assay)
    assumptions = upper.assumptions if upper is not None else ()
    checks = [Point(words, numbers.get(words)) for words in assay.tested]
    taken = [Point(_first_sentence(words), numbers.get(words)) for words in assumptions if words not in assay.tested]
    if private is not None and not private.ledger.anchored:
        taken.append(Point("The ledger was neither rolled back nor rewritten."))
    return Standing(
        proven=tuple(_proven(assay, claim, upper)),
        tested=(*checks, *(_audits(private, claim) if private else _audited(page))),
        assumed=tuple(taken),
        said=_said(page) if not _withdrawn(private) else (),
        unsaid=tuple(_unsaid(page, private)),
        facts=[
            *output_rows(assay.output, assay.unfinished),
            *((label, str(assay.claim.get(key, "not stated"))) for key, label in _OWNERS),
        ],
        refutable=None if private is None else could_refute(private, claim),
    )


def could_refute(assay: Assay, claim: ClaimedValue | None) -> bool:
    """Whether some audit of the run, earlier ones included, is known to have had the means to refute the claim: its
    controls did not fail, and its ceiling is above the claim. False for a claim that is not one number."""
    every: list[AuditResult | PastAudit] = [*assay.audits, *(audit for past in assay.history for audit in past.audits)]
    rows = [row for audit in every if audit.controls_passed is not False for row in audit.bounds]
    return claim is not None and any(_has_means(row, claim) for row in rows)


def _has_means(row: Bound, claim: ClaimedValue) -> bool:
    most = row.value if row.ceiling is None else row.ceiling
    return row.direction is Direction.LOWER and claim.counts(row) and most > claim.value


def _withdrawn(private: Assay | None) -> bool:
    """Whether evidence says that the proof, or the claim, is wrong."""
    return private is not None and (private.verdict == "REFUTED" or bool(private.contradictions))


def _proven(assay: Assay | Release, claim: ClaimedValue | None, upper: Bound | None) -> Iterable[str]:
    if isinstance(assay, Assay) and assay.contradictions:
        yield f"Nothing: {wording.CONTRADICTED}."
        return
    if not assay.ledger.planned and isinstance(assay, Release):
        yield "Nothing that may be shown: the events charged differ from the plan."
        return
    if upper is None or math.isinf(upper.value):
        yield "Nothing: no finite certified bound is known."
    else:
        method = text.method_within(upper.method)
        yield f"{text.bound_where(upper)}, {_scope(upper, assay.ledger.planned)} ({method}). {_means(upper)}".rstrip()
    if isinstance(assay, Assay) and claim is not None and claim.kind == "ex_post":
        best = releasable(assay).best_upper
        if best is None or math.isinf(best.value):
            yield "Before the run, for every output: nothing."
        else:
            method = text.method_within(best.method)
            yield f"{text.bound_where(best)}, {_scope(best)} ({method}). {_means(best)}".rstrip()


def _means(row: Bound) -> str:
    """What a bound says, in a sentence."""
    if row.quantity in ("epsilon", "ex_post_epsilon") and row.value > LARGE_EPSILON:
        return "Such an ε is so large that it limits hardly anything."
    kind = _KINDS.get(row.quantity, "approx_dp" if row.delta else "pure_dp")
    return meaning(kind, row.value, row.delta, row.at, str(row.adjacency), row.unit)


def _scope(row: Bound, planned: bool = True) -> str:
    """What a bound is about; events that nobody planned may follow from the data, and so may their bound."""
    if row.quantity == "ex_post_epsilon":
        return "for this output only"
    return "before the run, for every output" if planned else "for the events that were charged, which nobody planned"


def _first_sentence(words: str) -> str:
    """Up to the first full stop after a word of small letters, so that no number or name is cut."""
    ends = re.search(r"(?<=[a-z)])\.(?= [A-Z])", words)
    return text.in_words(words[: ends.end()] if ends else words)


def _audits(assay: Assay, claim: ClaimedValue | None) -> list[Point]:
    """Which audits were made, and whether each could have refuted the claim. Private."""
    points = [Point(_audit(audit, claim)) for audit in assay.audits]
    if before := sum(len(past.audits) for past in assay.history[:-1]):
        points.append(Point(f"Audits of earlier verdicts on this run, which count too: {before}."))
    return points or [Point("No audit was made.")]


def _audit(audit: AuditResult, claim: ClaimedValue | None) -> str:
    name = text.method(audit.name)
    if audit.controls_passed is False:
        return f"{name}: a control failed, so nothing follows from it."
    rows = [row for row in audit.bounds if claim is None or (row.direction is Direction.LOWER and claim.counts(row))]
    if not rows:
        other = audit.bounds and all(row.quantity != "ex_post_epsilon" for row in audit.bounds)
        if claim is not None and claim.kind == "ex_post" and other:
            return f"{name}: it could not have refuted the claim, which is about this output; it is about all outputs."
        return f"{name}: no bound that can be compared with the claim."
    best = max(rows, key=lambda row: row.value)
    shown = f"{name} shows {text.bound(best)}"
    if claim is None:
        return f"{shown}."
    able = [row for row in rows if _has_means(row, claim)]
    if not able:
        return f"{shown}; it could not have refuted the claim."
    return f"{shown}; it could have refuted the claim."


def _audited(page: Release) -> list[Point]:
    names = _names(page)
    if not names:
        return [Point("No audit was made.")]
    return [Point(f"Audits were made ({names}); what they found is not released.")]


def _names(page: Release) -> str:
    """The audits that were made, each once."""
    return ", ".join(dict.fromkeys(text.method_within(audit.name) for audit in page.audits))


def _said(page: Release) -> tuple[str, ...]:
    """Sentences to paste, from what is proven before the run."""
    best, groups = page.best_upper, page.secrets.groups if page.secrets is not None else []
    if best is None or math.isinf(best.value):
        return ()
    unit, relation = best.unit, str(best.adjacency)
    number = len(best.assumptions)
    held = f"the {number} assumptions in its report hold" if number > 1 else "the assumption in its report holds"
    whatever = "every value of the secrets" if page.secrets is not None else "every data set"
    first = (
        f"“{page.name}” was made by a mechanism that satisfies {_guarantee(best)} for "
        f"{text.neighbours(relation, unit)}: this is proven before the run, for {whatever} and every "
        f"output{f', if {held}' if number else ''}."
    )
    if len(groups) > 1:
        first += f" It is about the {groups[0].secrets} secrets of one budget; other budgets have their own bounds."
    return first, f"{_means(best)} {_audits_said(page)}"


def _audits_said(page: Release) -> str:
    """What may be said of audits, which are of the claim, and not of what is proven."""
    names = _names(page)
    if not names:
        return "No audit was made."
    if is_ex_post(page.claim):
        return f"Audits ({names}) were made of the claim about this output only, not of this ε."
    return f"It was audited ({names}), which can refute a claim and never proves one."


def _guarantee(best: Bound) -> str:
    """What a bound guarantees, in words, rounded up."""
    value = format_upper(best.value)
    match best.quantity:
        case "epsilon" if best.delta:
            return f"(ε, δ)-differential privacy with ε = {value} and δ = {format_number(best.delta)}"
        case "epsilon":
            return f"ε-differential privacy with ε = {value}"
        case "rho":
            return f"ρ-zero-concentrated differential privacy with ρ = {value}"
        case "mu":
            return f"μ-Gaussian differential privacy with μ = {value}"
        case "renyi_epsilon":
            return f"Rényi differential privacy of order {format_number(best.at)} with ε = {value}"
        case "r":
            return f"(p, r)-secret protection with p = {format_number(best.at)} and r = {value}"
        case _:
            return f"{text.symbol(best)} ≤ {value}"


def _unsaid(page: Release, private: Assay | None) -> Iterable[str]:
    """What does not follow, and what may not leave."""
    best, what, unit = page.best_upper, claimed(page.claim), Unit.parse(str(page.claim.get("unit", "record")))
    finite = best is not None and math.isfinite(best.value)
    if _withdrawn(private):
        yield "That it is differentially private: an audit refuted the claim, or contradicts the proof."
    elif not finite:
        yield "That it is differentially private: nothing is proven that holds before the run."
    elif what is not None and not is_ex_post(page.claim) and best is not None and best.value > what.value:
        yield f"That {what.symbol} is at most {format_number(what.value)}, as claimed: more is not excluded."
    if is_ex_post(page.claim):
        yield (
            "The ex-post ε that was proven: it is computed from the private data, and is about one output only. What "
            "was claimed may be said."
        )
    if private is not None:
        yield "The verdict, or what an audit found: both depend on the private data."
    if str(unit) == "record":
        yield "That a person is protected: one record is, and somebody with several records is protected less."
    yield (
        "That it is anonymous, or that nothing in it is true of anybody: what many have in common is meant to appear, "
        "and all that is released of the same data adds up."
    )


def unaudited(refutable: bool | None, audits: Sequence[object]) -> str:
    """What stands beside SUPPORTED where no audit could have refuted the claim; empty where one could."""
    if refutable or refutable is None:
        return ""
    return wording.UNTESTED if audits else wording.UNAUDITED
