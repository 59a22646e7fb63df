"""The report of a planned audit: a page and a JSON file, from the result of `dpassay audit bound`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpassay.auditing.canaries.bound import read_bound
from dpassay.auditing.canaries.files import CanariesPlan, PlannedCanaries, read_plan, read_scores
from dpassay.auditing.data import DATA
from dpassay.auditing.files import report_header, write_report
from dpassay.base.errors import input_errors
from dpassay.base.private_files import make_private
from dpassay.reports.canaries import CanaryAudit, render


def report(folder: str | Path, *, expect: str | None = None) -> CanaryAudit:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: of the plan, with a bound.
        expect: the hash of the manifest that was kept outside.

    Returns:
        The content of ``report.json``.

    Raises:
        InputError: if a file is missing or was changed, or the bound is not what the scores show.
    """
    planned = read_plan(Path(folder), expect)
    result = read_bound(planned)
    with input_errors():
        make_private(planned.private)
    return write_report(planned.folder, CanaryAudit, _document(planned, result, expected=expect is not None), render)


def _document(planned: PlannedCanaries, result: dict[str, Any], *, expected: bool) -> dict[str, Any]:
    plan = planned.plan
    scores = read_scores(planned)
    files = [(DATA, plan.written, plan.understood)] if plan.written else []
    files += [(file.file, file.written, file.understood) for file in scores.every if file.written]
    return {
        **report_header(planned.folder, plan.claim),
        "plan": {
            "kind": plan.kind,
            "candidates": len(plan.candidates),
            "unit": plan.unit,
            "copies": plan.copies,
            "adjacency": "add_remove",
            "guesses": plan.guesses,
            "scorings": plan.scorings,
            "confidence": plan.confidence,
            "statistic": plan.statistic,
            "manifest_sha256": planned.manifest_sha256,
            "manifest_expected": expected,
        },
        "synthetic": result.get("synthetic"),
        "unprotected": result.get("unprotected"),
        "understood": [
            {"file": name, "written": written, "columns": list(columns)} for name, written, columns in files
        ],
        "refuted": result.get("refuted"),
        "audit": result.get("audit"),
        "limitations": _limitations(plan),
    }


def _limitations(plan: CanariesPlan) -> list[str]:
    lines = [
        "The result is about the run that read the planted canaries. A release that was made by another run, or with "
        "other settings, is not covered.",
        "It says nothing if somebody took canaries out, treated them otherwise than records, or knew the coins.",
        f"It is about adding or removing one unit ({plan.unit}), not about exchanging one.",
        "It is a lower bound: the attack reads what was scored and nothing else; a better attack may find more.",
    ]
    if plan.canary_kind.like_data:
        lines.append(
            "Canaries are made up from what the data look like; the rarest records may leak more than they do."
        )
    return lines
