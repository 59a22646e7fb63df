"""The document and the page of an audit by planted canaries: claim, plan, bound with its ceiling, controls, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ConfigDict, Field

from cupel.accounting.adjacency import Unit
from cupel.accounting.number_format import format_confidence, format_number
from cupel.reports import figures, text
from cupel.reports.assay import Part
from cupel.reports.claim import Claimed
from cupel.reports.html import Row, date_in_words, environment, errors, how_it_was_done, too_low
from cupel.reports.json_form import AuditResult, Bound
from cupel.reports.svg import Figure

SCHEMA_VERSION: Final = 1


class Planned(Part):
    """What was fixed before the run; no coin and no canary."""

    kind: str
    candidates: int
    unit: str
    copies: int
    adjacency: str
    guesses: int | None = Field(description="None: every canary that is printed")
    scorings: int = Field(description="synthetic files that might have been scored; each is paid for")
    confidence: float = Field(description="jointly for all of them")
    statistic: str
    manifest_sha256: str
    manifest_expected: bool = Field(description="whether the hash was given from outside, not only from the folder")


class Synthetic(Part):
    """A synthetic file that was scored."""

    file: str
    sha256: str
    bytes: int
    rows: int
    checked: bool = Field(description="whether it was still there, unchanged, when the bound was computed")


class ClaimedEpsilon(Part):
    """What is claimed of adding or removing one unit."""

    epsilon: float
    delta: float


class CanaryAudit(Part):
    """An audit of a generator by planted canaries (`report.json`)."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str = Field(description="ISO 8601, UTC")
    claim: ClaimedEpsilon | None
    guarantee: str = Field(description="the claim in words; empty for none")
    plan: Planned
    synthetic: list[Synthetic]
    refuted: bool | None = Field(description="whether the audit refutes the claim; None where nothing was claimed")
    audit: AuditResult
    limitations: list[str]
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


@dataclass(frozen=True, slots=True)
class Page:
    """Everything the template prints."""

    document: CanaryAudit
    headline: str
    created: str
    facts: list[tuple[str, str, str]]
    scale: Figure | None
    rates: Figure | None
    plan_rows: list[tuple[str, str]]
    file_rows: list[tuple[str, str]]
    how: list[tuple[str, str]]
    rows: list[Row]
    assumptions: list[str]
    too_low: str
    failures: tuple[str, ...]


def render(document: CanaryAudit) -> str:
    """The result as one self-contained HTML page.

    Args:
        document: what was planned and found.
    """
    claim = _claimed(document)
    audit = document.audit
    assumptions = list(dict.fromkeys(words for bound in audit.bounds for words in bound.assumptions))
    best = _best(document)
    page = Page(
        document=document,
        headline=_headline(document),
        created=date_in_words(document.created),
        facts=_facts(document, claim, best),
        scale=figures.claim_and_bounds(audit.bounds, claim) if claim is not None else None,
        rates=figures.rates(audit, "rates"),
        plan_rows=_plan_rows(document),
        file_rows=[(file.file, _file(file)) for file in document.synthetic],
        how=how_it_was_done(audit, claim),
        rows=[_row(bound, best, claim, assumptions) for bound in audit.bounds],
        assumptions=assumptions,
        too_low=too_low(audit, claim),
        failures=errors(audit),
    )
    return environment().get_template("canaries.html.j2").render(page=page)


def _claimed(document: CanaryAudit) -> Claimed | None:
    if document.claim is None:
        return None
    kind = "approx_dp" if document.claim.delta else "pure_dp"
    delta = document.claim.delta or None
    return Claimed(
        kind, "epsilon", document.claim.epsilon, delta, Unit.parse(document.plan.unit), document.plan.adjacency
    )


def _best(document: CanaryAudit) -> Bound | None:
    return max(document.audit.bounds, key=lambda bound: bound.value, default=None)


def _headline(document: CanaryAudit) -> str:
    best = _best(document)
    if best is None:
        return "No conclusion"
    if document.refuted:
        return "REFUTED"
    return (
        "No leak shown"
        if best.value == 0
        else "A leak is shown" + ("" if document.claim is None else ", not above the claim")
    )


def _facts(document: CanaryAudit, claim: Claimed | None, best: Bound | None) -> list[tuple[str, str, str]]:
    """The numbers of the first screen: claimed, shown, and the most that could have been shown."""
    neighbours = text.neighbours(document.plan.adjacency, document.plan.unit)
    facts = []
    if claim is not None:
        at = f"at δ = {format_number(claim.delta)}, " if claim.delta is not None else ""
        facts.append(("Claimed", f"ε ≤ {format_number(claim.value)}", at + neighbours))
    if best is None:
        return [*facts, ("Shown by the audit", "nothing", "a control failed")]
    facts.append(("Shown by the audit", text.bound(best), text.rigor(best)))
    facts.append(("Ceiling", text.ceiling(best), "had every guess been right"))
    return facts


def _plan_rows(document: CanaryAudit) -> list[tuple[str, str]]:
    plan = document.plan
    each = "one record each" if plan.copies == 1 else f"{plan.copies} records each"
    kept = "the one that was kept outside" if plan.manifest_expected else "compared with the folder’s own record only"
    return [
        ("Canaries", f"{text.plain(plan.candidates)} of kind {plan.kind}, {each}; about half were planted"),
        ("Unit", plan.unit),
        ("Neighbouring data", text.adjacency(plan.adjacency, plan.unit)),
        ("Guesses", "every canary that is printed" if plan.guesses is None else text.plain(plan.guesses)),
        ("Statistic", text.method(plan.statistic)),
        ("Confidence", format_confidence(plan.confidence)),
        ("Synthetic files that might be scored", text.plain(plan.scorings)),
        ("SHA-256 of the manifest", plan.manifest_sha256),
        ("That hash is", kept),
    ]


def _file(file: Synthetic) -> str:
    gone = "" if file.checked else "; it was missing when the bound was computed"
    return f"{text.plain(file.rows)} rows, {text.plain(file.bytes)} bytes, SHA-256 {file.sha256}{gone}"


def _row(bound: Bound, best: Bound | None, claim: Claimed | None, assumptions: list[str]) -> Row:
    numbers = tuple(assumptions.index(words) + 1 for words in bound.assumptions)
    return Row(bound, bound == best, claim is None or claim.on_scale(bound), "–", "", numbers)
