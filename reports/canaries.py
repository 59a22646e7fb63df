"""The document and the page of an audit by planted canaries: claim, plan, bound with its ceiling, controls, limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ConfigDict, Field

from dpassay.base.number_format import format_confidence
from dpassay.reports import audit_page, figures, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import ClaimedEpsilon
from dpassay.reports.html import BoundRow, date_in_words, environment, errors, how_it_was_done, too_low
from dpassay.reports.json_form import AuditResult
from dpassay.reports.svg import Figure

SCHEMA_VERSION: Final = 1


class CanaryPlan(DocumentPart):
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


class SyntheticFile(DocumentPart):
    """A synthetic file that was scored."""

    file: str
    sha256: str
    bytes: int
    rows: int
    checked: bool = Field(description="whether it was still there, unchanged, when the bound was computed")


class CanaryAudit(DocumentPart):
    """An audit of a generator by planted canaries (`report.json`)."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str = Field(description="ISO 8601, UTC")
    claim: ClaimedEpsilon | None
    guarantee: str = Field(description="the claim in words; empty for none")
    plan: CanaryPlan
    synthetic: list[SyntheticFile]
    unprotected: SyntheticFile | None = Field(
        default=None, description="of a run of the same generator with its protection off: the positive control"
    )
    refuted: bool | None = Field(
        description="whether the audit refutes the claim; None where nothing was claimed, or there is no conclusion"
    )
    audit: AuditResult
    limitations: list[str]
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)


@dataclass(frozen=True, slots=True)
class CanariesPage:
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
    rows: list[BoundRow]
    assumptions: list[str]
    too_low: str
    failures: tuple[str, ...]


def render(document: CanaryAudit) -> str:
    """The result as one self-contained HTML page.

    Args:
        document: what was planned and found.
    """
    plan, audit = document.plan, document.audit
    claim = audit_page.claim_of(document.claim, plan.unit, plan.adjacency)
    assumptions = audit_page.assumptions_of(audit)
    page = CanariesPage(
        document=document,
        headline=audit_page.headline(audit, refuted=document.refuted),
        created=date_in_words(document.created),
        facts=audit_page.facts(
            audit,
            claim,
            text.neighbours(plan.adjacency, plan.unit),
            nothing="a control failed",
            ceiling="had every guess been right; no sign of privacy",
        ),
        scale=figures.claim_and_bounds(audit.bounds, claim) if claim is not None else None,
        rates=figures.rates(audit, "rates"),
        plan_rows=_plan_rows(document),
        file_rows=_file_rows(document),
        how=how_it_was_done(audit, claim),
        rows=audit_page.rows_of(audit, claim, assumptions),
        assumptions=assumptions,
        too_low=too_low(audit, claim),
        failures=errors(audit),
    )
    return environment().get_template("canaries.html.j2").render(page=page)


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


def _file_rows(document: CanaryAudit) -> list[tuple[str, str]]:
    control = document.unprotected
    without = "none was scored, so it is not known whether this attack sees leaks of this generator"
    if control is not None:
        without = f"{control.file}: {_file(control)}"
    return [*((file.file, _file(file)) for file in document.synthetic), ("Run without protection", without)]


def _file(file: SyntheticFile) -> str:
    gone = "" if file.checked else "; it was missing when the bound was computed"
    return f"{text.plain(file.rows)} rows, {text.plain(file.bytes)} bytes, SHA-256 {file.sha256}{gone}"
