"""The document and the page of several audits of one generator: what was asked of each, and what they show jointly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from dpassay.base.number_format import format_confidence, format_lower, format_number
from dpassay.reports import audit_page
from dpassay.reports.assay import DocumentPart
from dpassay.reports.audit_page import AuditDocument, AuditPlan


class SummaryPlan(AuditPlan):
    """What was asked of all audits together."""

    confidence: float = Field(description="with which all bounds were to hold jointly")
    declared: float = Field(description="with which they hold at what was declared of each; 0 if the errors exceed 1")
    joint: float = Field(description="with which they hold as they are counted")


class AuditPart(DocumentPart):
    """One of the audits."""

    name: str
    kind: str
    declared: float = Field(description="its confidence, as it was declared before its results")
    counted: float = Field(description="the confidence at which it counts here")
    bound: float | None = Field(description="the largest of its bounds on ε at that confidence; None if it has none")
    attacks: list[str] = Field(
        description="behind each of its bounds, which `audit` has in this order, part after part"
    )
    conclusions: list[str] = Field(description="what it said by itself, at the confidence that was declared")


class SummaryDocument(AuditDocument):
    """Several audits of one generator (`summary.json`)."""

    plan: SummaryPlan
    parts: list[AuditPart]

    @property
    def widened(self) -> bool:
        """Whether the audits count at other confidences than were declared."""
        return any(part.declared != part.counted for part in self.parts)

    @property
    def asked(self) -> str:
        """Whether what was asked of each adds up, in words."""
        plan, one = self.plan, len(self.parts) == 1
        which = "one audit" if one else f"{len(self.parts)} audits"
        error = _error(*(part.declared for part in self.parts))
        if not self.widened:
            return (
                f"The errors that were declared for {which} add up to {error}, so their bounds hold jointly with "
                f"confidence {format_confidence(plan.joint)}."
            )
        return (
            f"The errors that were declared for {which} add up to {error}, more than the "
            f"{_error(plan.confidence)} of confidence {format_confidence(plan.confidence)}. So each counts at its "
            "share of that, in proportion to what was declared, and its bounds were computed again: they are lower "
            "than its own page says."
        )


def _error(*confidences: float) -> str:
    """The sum of 1 − confidence, without the rounding of floats: 0.05, not 0.0500001."""
    return format_number(round(sum(1 - confidence for confidence in confidences), 12), "up")


def _attacks(parts: Sequence[AuditPart]) -> list[str]:
    """The attack behind each bound, with the name of its file or folder if others made the same attack."""
    times = Counter(attack for part in parts for attack in set(part.attacks))
    return [
        attack if times[attack] == 1 else f"{attack} ({Path(part.name).name})"
        for part in parts
        for attack in part.attacks
    ]


def render(document: SummaryDocument) -> str:
    """The result as one self-contained HTML page."""
    return audit_page.render(
        "summary.html.j2",
        document,
        nothing="no audit bounds ε",
        ceiling="of that audit, had every guess been right; no sign of privacy",
        attacks=_attacks(document.parts),
        parts=[
            (
                part.name,
                part.kind,
                format_confidence(part.declared),
                format_confidence(part.counted),
                "–" if part.bound is None else f"ε ≥ {format_lower(part.bound)}",
            )
            for part in document.parts
        ],
        part_header=("Audit", "Kind", "Declared confidence", "Counted confidence", "Shows here"),
    )
