"""The report of an audit by many runs: a page and a JSON file, from the result of `dpassay audit runs bound`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpassay.auditing.files import report_header, write_report
from dpassay.auditing.many_runs.bound import read_bound
from dpassay.auditing.many_runs.files import PlannedRuns, read_plan
from dpassay.audits.games.many_runs_design import ManyRunsDesign
from dpassay.reports import text
from dpassay.reports.runs import RunsAudit, render

_POINTS = 20  # at which the ceiling is drawn, at most


def report(folder: str | Path) -> RunsAudit:
    """Writes ``report.html`` and ``report.json``.

    Args:
        folder: of the plan, with a bound.

    Returns:
        The content of ``report.json``.

    Raises:
        InputError: if a file is missing, was changed, or is not what the runs show.
    """
    planned = read_plan(Path(folder))
    return write_report(planned.folder, RunsAudit, _document(planned, read_bound(planned)), render)


def _document(planned: PlannedRuns, result: dict[str, Any]) -> dict[str, Any]:
    plan = planned.plan
    claim, design = plan.claim, plan.design()
    return {
        **report_header(planned.folder, claim),
        **({"name": plan.title} if plan.title else {}),
        "plan": {
            "pairs": _pairs(planned, result),
            "own": plan.own is not None,
            "runs": plan.runs,
            "pilots": design.pilots,
            "most_rounds": design.most_rounds,
            "usual_rounds": design.usual_rounds,
            "halving": design.halving,
            "confidence": plan.confidence,
            "adjacency": plan.adjacency,
            "unit": plan.unit,
            "failures": plan.failures,
            "plan_sha256": planned.sha256,
            **_understood(planned),
        },
        "audited": result.get("audited"),
        "explanation": result.get("explanation"),
        "power": result.get("power"),
        "detectable": result.get("detectable"),
        "ceilings": _ceilings(design, result),
        "refuted": result.get("refuted"),
        "audit": result.get("audit"),
        "generator_seconds": result.get("generator_seconds"),
        "control": result.get("control"),
        "unprotected": result.get("unprotected"),
        "limitations": _limitations(planned),
    }


def _pairs(planned: PlannedRuns, result: dict[str, Any]) -> list[dict[str, str]]:
    """The pairs of the plan, and those that a probe added."""
    design = planned.design
    compared = {item["pair"] for item in result["audit"]["details"].get("search", [])}
    pairs = [pair for pair in design.possible_pairs if pair in design.pairs or pair.name in compared]
    return [{"name": pair.name, "differs": pair.differs, "finds": pair.finds} for pair in pairs]


def _understood(planned: PlannedRuns) -> dict[str, Any]:
    """How the data are written, and what their columns hold; nothing for plans of earlier versions."""
    understood = planned.plan.understood
    if understood is None:
        return {}
    columns = [
        {**column.to_json(), "missing": sum(column.missing.values()), "distinct": sum(column.distinct.values())}
        for column in understood.summaries
    ]
    return {"written": understood.written, "columns": columns}


def _ceilings(design: ManyRunsDesign, result: dict[str, Any]) -> list[tuple[int, float]]:
    """The most that can have been shown after some of the rounds that were planned."""
    details = result["audit"]["details"]
    most = int(details.get("most_rounds", design.most_rounds))
    state, points = design.state(details.get("pilots_each", design.pilots // 2)), min(most, _POINTS)
    return [(rounds, state.ceiling(rounds)) for rounds in (most * (item + 1) // points for item in range(points))]


def _limitations(planned: PlannedRuns) -> list[str]:
    plan = planned.plan
    lines = [
        "The result is about the command that was run, on data sets of this size. A release by another version, with "
        "other settings or from other data is not covered.",
        "It assumes that each run draws its noise anew. A generator with a fixed seed is refuted, and one that keeps "
        "state from run to run may be, whatever its claim is worth.",
        f"It is about {text.neighbours(plan.adjacency, plan.unit)}; nothing is converted to another adjacency.",
        "It is a lower bound: other neighbours and other events may show more. A bound of 0 is no evidence of privacy.",
    ]
    if not plan.failures:
        lines.append(
            "Pairs on whose D′ every run failed were not tested. Where somebody can see that it fails, that "
            "is a leak, too; plan with --failures."
        )
    return lines
