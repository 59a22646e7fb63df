"""The document and the page of an audit of a library's function: what was declared, what was found, limits."""

from __future__ import annotations

from pydantic import Field

from dpassay.base.number_format import format_number
from dpassay.reports import audit_page, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import AuditDocument, AuditPlan
from dpassay.reports.html import how_it_was_done


class DeclaredDraw(DocumentPart):
    """A draw of noise, as the manifest declares it, and how many values it drew."""

    draw: str
    query: str
    law: str
    scale: float | None
    scale_argument: str | None = Field(
        default=None, description="that holds the scale; the sensitivity is in multiples of it"
    )
    sensitivity: float
    values: int = Field(description="in the first recorded run")


class MechanismPlan(AuditPlan):
    """What the manifest says."""

    call: str
    library: str
    version: str
    arguments: str = Field(description="as the manifest has them")
    object: str = Field(default="", description="with which the object was made whose method it is; empty for none")
    records: int
    neighbors: int
    runs: int
    draws: list[DeclaredDraw]
    manifest_sha256: str


class MechanismReport(AuditDocument):
    """An audit of a function of a library by record and replay (`report.json`)."""

    plan: MechanismPlan
    findings: list[str] = Field(description="what does not hold, a sentence each")


def render(document: MechanismReport) -> str:
    """The result as one self-contained HTML page."""
    plan, found = document.plan, document.findings
    neighbours = f"{plan.neighbors} neighbour{'s' * (plan.neighbors != 1)}"
    return audit_page.render(
        "mechanism.html.j2",
        document,
        nothing="",
        ceiling="",
        headline="REFUTED: a declaration does not hold" if found else "Nothing contradicted",
        facts=[
            ("Audited", plan.call, f"{plan.library} {plan.version}"),
            ("Declarations that do not hold", str(len(found)), f"{plan.runs} runs, {neighbours}"),
        ],
        how=how_it_was_done(document.audit, None),
        plan_rows=[
            ("Function", plan.call),
            ("Library", f"{plan.library} {plan.version}"),
            *((("Object made with", plan.object),) if plan.object else ()),
            ("Arguments", "none" if plan.arguments == "{}" else plan.arguments),
            ("Data", f"{plan.records} record{'s' * (plan.records != 1)}, compared with {neighbours}"),
            ("Neighbouring data", text.adjacency(plan.adjacency, plan.unit)),
            ("Recorded runs", str(plan.runs)),
        ],
        draw_rows=[
            (
                draw.draw,
                draw.query,
                draw.law.replace("_", " "),
                f"argument {draw.scale_argument}" if draw.scale is None else format_number(draw.scale),
                format_number(draw.sensitivity) + " scales" * (draw.scale is None),
                str(draw.values),
            )
            for draw in plan.draws
        ],
    )
