"""What the documents and the pages of audits of other people's generators share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import ConfigDict, Field

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound
from dpassay.audits import result
from dpassay.base.number_format import format_number, format_percent, format_upper
from dpassay.reports import figures, text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.claim import ClaimedValue
from dpassay.reports.html import BoundRow, date_in_words, environment, how_it_was_done, too_low
from dpassay.reports.json_form import AuditResult

SCHEMA_VERSION: Final = 1
DETECTABLE = "Detectable at 50 % power"


class ClaimedEpsilon(DocumentPart):
    """What is claimed of neighbouring data."""

    epsilon: float
    delta: float


class AuditPlan(DocumentPart):
    """What was fixed before the first run."""

    adjacency: str
    unit: str
    confidence: float


class AuditDocument(DocumentPart):
    """A planned audit of a generator (`report.json`)."""

    schema_: Literal[1] = Field(default=SCHEMA_VERSION, alias="schema")
    name: str
    created: str = Field(description="ISO 8601, UTC")
    claim: ClaimedEpsilon | None
    guarantee: str = Field(description="the claim in words; empty for none")
    plan: AuditPlan
    refuted: bool | None = Field(
        description="whether the audit refutes the claim; None where nothing was claimed, or there is no conclusion"
    )
    audit: AuditResult
    limitations: list[str]
    versions: dict[str, str]

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def claimed(self) -> ClaimedValue | None:
        """The claim in the form that figures and tables take; None for none."""
        claim = self.claim
        if claim is None:
            return None
        kind, unit = "approx_dp" if claim.delta else "pure_dp", Unit.parse(self.plan.unit)
        return ClaimedValue(kind, "epsilon", claim.epsilon, claim.delta or None, unit, self.plan.adjacency)


def render(
    template: str,
    document: AuditDocument,
    *,
    nothing: str,
    ceiling: str,
    attacks: Sequence[str] | None = None,
    **more: object,
) -> str:
    """The result as one self-contained HTML page.

    Args:
        template: name of the file.
        document: what was planned and found.
        nothing: why there is no bound, where there is none.
        ceiling: when the ceiling would have been reached.
        attacks: the name of the attack behind each bound, where there are several; None for one.
        more: what else the template prints, or prints instead.
    """
    audit, claim = document.audit, document.claimed
    assumptions = list(dict.fromkeys(words for bound in audit.bounds for words in bound.assumptions))
    best = max(audit.bounds, key=lambda bound: bound.value, default=None)
    page = {
        "document": document,
        "headline": _headline(best if audit.concluded else None, document.refuted),
        "created": date_in_words(document.created),
        "facts": _facts(document, best, nothing, ceiling),
        "scale": figures.claim_and_bounds(audit.bounds, claim, attacks) if claim is not None else None,
        "rates": figures.rates(audit, "rates"),
        "how": how_it_was_done(audit, claim),
        "rows": [
            BoundRow(
                bound,
                bound == best,
                claim is None or claim.on_scale(bound),
                "–",
                "",
                tuple(assumptions.index(words) + 1 for words in bound.assumptions),
                attack,
            )
            for bound, attack in zip(audit.bounds, attacks or [""] * len(audit.bounds), strict=True)
        ],
        "assumptions": assumptions,
        "too_low": too_low(audit, claim),
    }
    return environment().get_template(template).render(page=page | more)


def _headline(best: Bound | None, refuted: bool | None) -> str:
    """The result in a few words; `refuted` is None where nothing was claimed."""
    if best is None:
        return "No conclusion"
    if refuted:
        return "REFUTED"
    if best.value == 0:
        return "No leak shown"
    return "A leak is shown" + ("" if refuted is None else ", not above the claim")


def _facts(document: AuditDocument, best: Bound | None, nothing: str, ceiling: str) -> list[tuple[str, str, str]]:
    """Claimed, shown, detectable at 50 % power, and the most that could be shown: a label, a value and a note each."""
    rows, claim, plan = [], document.claimed, document.plan
    if claim is not None:
        at = f"at δ = {format_number(claim.delta)}, " if claim.delta is not None else ""
        rows.append(("Claimed", f"ε ≤ {format_number(claim.value)}", at + text.neighbours(plan.adjacency, plan.unit)))
    if best is None:
        return [*rows, ("Shown by the audit", "nothing", nothing)]
    rows.append(("Shown by the audit", text.bound(best), text.rigor(best)))
    return [*rows, *_half(document.audit), ("Ceiling", text.ceiling(best), ceiling)]


def _half(audit: result.AuditResult) -> list[tuple[str, str, str]]:
    """The leak that the audit detects with 50 % power, if it is known (`dpassay.audits.detection`)."""
    limit = audit.details.get("detectable") or {}
    if limit.get("epsilon") is not None:
        how = "by the best attack" if limit.get("fixed") else "for randomised response"
        return [(DETECTABLE, f"ε = {format_upper(limit['epsilon'], 3)}", how)]
    if limit.get("share") is not None:
        share = format_percent(limit["share"], "up")
        return [(DETECTABLE, share, "of the planted records, if disclosed")]
    return []
