"""What the pages of audits of other people's generators share: the claim, the headline and the lines of bounds."""

from __future__ import annotations

from collections.abc import Sequence

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound
from dpassay.audits.result import AuditResult
from dpassay.base.number_format import format_number, format_percent, format_upper
from dpassay.reports import text
from dpassay.reports.assay import DocumentPart
from dpassay.reports.claim import ClaimedValue
from dpassay.reports.html import BoundRow

DETECTABLE = "Detectable at 50 % power"


class ClaimedEpsilon(DocumentPart):
    """What is claimed of neighbouring data."""

    epsilon: float
    delta: float


def claim_of(claim: ClaimedEpsilon | None, unit: str, adjacency: str) -> ClaimedValue | None:
    """The claim in the form that figures and tables take; None for none."""
    if claim is None:
        return None
    kind = "approx_dp" if claim.delta else "pure_dp"
    return ClaimedValue(kind, "epsilon", claim.epsilon, claim.delta or None, Unit.parse(unit), adjacency)


def best(audit: AuditResult) -> Bound | None:
    """The largest bound of an audit; None if it has none."""
    return max(audit.bounds, key=lambda bound: bound.value, default=None)


def headline(audit: AuditResult, *, refuted: bool | None) -> str:
    """The result in a few words; `refuted` is None where nothing was claimed."""
    result = best(audit)
    if result is None:
        return "No conclusion"
    if refuted:
        return "REFUTED"
    if result.value == 0:
        return "No leak shown"
    return "A leak is shown" + ("" if refuted is None else ", not above the claim")


def facts(
    audit: AuditResult, claim: ClaimedValue | None, neighbours: str, *, nothing: str, ceiling: str
) -> list[tuple[str, str, str]]:
    """The numbers of the first screen: claimed, shown, detectable at 50 % power, and the most that could be shown.

    Args:
        audit: with its bounds.
        claim: None for none.
        neighbours: the neighbouring relation in a few words.
        nothing: why there is no bound, where there is none.
        ceiling: when the ceiling would have been reached.

    Returns:
        A label, a value and a note each.
    """
    rows = []
    if claim is not None:
        at = f"at δ = {format_number(claim.delta)}, " if claim.delta is not None else ""
        rows.append(("Claimed", f"ε ≤ {format_number(claim.value)}", at + neighbours))
    result = best(audit)
    if result is None:
        return [*rows, ("Shown by the audit", "nothing", nothing)]
    rows.append(("Shown by the audit", text.bound(result), text.rigor(result)))
    return [*rows, *_half(audit), ("Ceiling", text.ceiling(result), ceiling)]


def _half(audit: AuditResult) -> list[tuple[str, str, str]]:
    """The leak that the audit detects with 50 % power, if it is known (`dpassay.audits.detection`)."""
    limit = audit.details.get("detectable") or {}
    if limit.get("epsilon") is not None:
        how = "by the best attack" if limit.get("fixed") else "for randomised response"
        return [(DETECTABLE, f"ε = {format_upper(limit['epsilon'], 3)}", how)]
    if limit.get("share") is not None:
        share = format_percent(limit["share"], "up")
        return [(DETECTABLE, share, "of the planted records, if disclosed")]
    return []


def assumptions_of(audit: AuditResult) -> list[str]:
    """What the bounds assume, each once."""
    return list(dict.fromkeys(words for bound in audit.bounds for words in bound.assumptions))


def rows_of(audit: AuditResult, claim: ClaimedValue | None, assumptions: Sequence[str]) -> list[BoundRow]:
    """The bounds as lines of a table, with the numbers of their assumptions in the list."""
    result = best(audit)
    return [
        BoundRow(
            bound,
            bound == result,
            claim is None or claim.on_scale(bound),
            "–",
            "",
            tuple(assumptions.index(words) + 1 for words in bound.assumptions),
        )
        for bound in audit.bounds
    ]
