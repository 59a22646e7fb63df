"""The document and the page of an audit by planted canaries: claim, plan, bound with its ceiling, controls, limits."""

from __future__ import annotations

from pydantic import Field

from dpassay.base.number_format import format_confidence
from dpassay.data.column_summary import ColumnSummary
from dpassay.reports import audit_page, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import AuditDocument, AuditPlan
from dpassay.reports.html import errors


class CanaryPlan(AuditPlan):
    """What was fixed before the run; no coin and no canary."""

    kind: str
    candidates: int
    copies: int
    guesses: int | None = Field(description="None: every canary that is printed")
    scorings: int = Field(description="synthetic files that might have been scored; each is paid for")
    confidence: float = Field(description="jointly for all files that might be scored")
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


class UnderstoodFile(DocumentPart):
    """How a file was read, and what its columns were taken for."""

    file: str = Field(description="its name; data for the file that canaries were made like")
    written: str = Field(description="how it is written, in words")
    columns: list[ColumnSummary] = Field(description="in the order of the file; of texts none, but for the data")


class CanaryAudit(AuditDocument):
    """An audit of a generator by planted canaries (`report.json`)."""

    plan: CanaryPlan
    synthetic: list[SyntheticFile]
    unprotected: SyntheticFile | None = Field(
        default=None, description="of a run of the same generator with its protection off: the positive control"
    )
    understood: list[UnderstoodFile] = Field(
        default=[], description="the data and the synthetic files; private, since counts are of private rows"
    )


def render(document: CanaryAudit) -> str:
    """The result as one self-contained HTML page."""
    return audit_page.render(
        "canaries.html.j2",
        document,
        nothing="a control failed",
        ceiling="had every guess been right; no sign of privacy",
        plan_rows=_plan_rows(document),
        file_rows=_file_rows(document),
        column_header=_COLUMN_HEADER,
        failures=errors(document.audit),
        understood=[_understood(file) for file in document.understood],
    )


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


_COLUMN_HEADER = ("Column", "Holds", "Written", "Missing", "Distinct", "Use")


def _understood(file: UnderstoodFile) -> dict[str, object]:
    """A file as a heading, its columns as a table, and warnings."""

    def row(column: ColumnSummary) -> tuple[str, ...]:
        counts = (" / ".join(text.plain(count) for count in of.values()) for of in (column.missing, column.distinct))
        use = column.why if column.used else f"left alone: {column.why}"
        return column.name, column.kind, column.form or "–", *counts, use

    return {
        "title": f"{file.file}: {file.written}",
        "rows": [row(column) for column in file.columns],
        "warnings": [f"Column {column.name!r}: {words}." for column in file.columns for words in column.warnings],
    }


def _file(file: SyntheticFile) -> str:
    gone = "" if file.checked else "; it was missing when the bound was computed"
    return f"{text.plain(file.rows)} rows, {text.plain(file.bytes)} bytes, SHA-256 {file.sha256}{gone}"
