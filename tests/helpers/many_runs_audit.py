"""The report of an audit by many runs, built in code."""

from __future__ import annotations

from typing import Any

from dpassay.reports.runs import RunsAudit

HALF = {"claim": 0.5, "epsilon": 1.234, "share": 0.456, "by_chance": 0.0, "fixed": False, "chance": 0.5}
STEPS = [0.0] * 7 + [0.21, 0.39, 0.53, 0.66, 0.77]


def audit_of_runs(words: str, **changes: Any) -> dict[str, Any]:
    """One arm of the audit as `bound.json` holds it, all of whose texts are `words`."""
    bound = {
        "direction": "lower", "value": 0.77, "method": "sequential", "rigor": "finite_sample",
        "adjacency": "add_remove", "unit": "record", "delta": None, "confidence": 0.95, "ceiling": 1.12,
        "assumptions": [words], "private": True,
    }  # fmt: skip
    rates = [
        {"name": f"{words} {side}", "hits": hits, "trials": 12, "rate": hits / 12, "interval": [0, 1],
         "confidence": 0.95}
        for side, hits in (("D′", 12), ("D", 0))
    ]  # fmt: skip
    compared = {
        "runs_on_data": 9,
        "runs_on_neighbor": 9,
        "estimate": 1.2345,
        "feature": words,
        "threshold": 3.0,
        "event": words,
    }
    failing = {
        "runs_on_data": 2,
        "runs_on_neighbor": 2,
        "estimate": None,
        "feature": None,
        "threshold": None,
        "event": "",
        "failing_on": "D′",
    }
    details = {
        "runs": 40, "most_runs": 60, "limit": 0.5, "failing": ["failing"], "untried": ["untried"],
        "search": [
            {**compared, "pair": "second", "runs_on_data": 4, "runs_on_neighbor": 4, "estimate": 0.5},
            {**failing, "pair": "failing"}, {**compared, "pair": "tested"},
        ],
        "tested": {"pair": "tested", "finds": words, "differs": words}, "cause": words,
        "rounds": 12, "most_rounds": 18, "refuted": True,
        "events": [
            {"from_round": 0, "feature": words, "threshold": 3.0, "event": f"{words} first"},
            {"from_round": 8, "feature": words, "threshold": 3.0, "event": f"{words} first"},
            {"from_round": 10, "feature": words, "threshold": 4.5, "event": f"{words} later"},
        ],
        "stopped": "all planned runs were made", "failures": {"on_data": 0, "on_neighbor": 1},
        "bounds_by_round": STEPS, "detectable": HALF, "notes": [],
    }  # fmt: skip
    return {
        "name": "many_runs", "game": words, "attack": words, "statistics": ["sequential"], "conclusion": words,
        "trials": 24, "bounds": [bound], "rates": rates, "multiplicity": [words], "details": details, **changes,
    }  # fmt: skip


def runs_document(words: str = "words", **changes: Any) -> RunsAudit:
    """An audit of four pairs: one was tested, one lost, one always failed, one was not tried."""
    names = ("untried", "second", "failing", "tested")
    column = {
        "name": words, "kind": words, "form": "2013-05-31", "missing": 3, "distinct": 7, "used": True, "why": words,
        "warnings": [words],
    }  # fmt: skip
    plan = {
        "pairs": [{"name": name, "differs": words, "finds": words} for name in names],
        "runs": 60, "pilots": 24, "most_rounds": 18,
        "confidence": 0.95, "adjacency": "add_remove", "unit": "record", "failures": False, "plan_sha256": "ab" * 32,
        "written": words, "columns": [column, {**column, "used": False, "form": "", "warnings": []}],
    }  # fmt: skip
    generator = {
        "command": words, "files": [{"file": words, "sha256": "cd" * 32}], "takes_seed": False,
        "versions": {"dpassay": words}, "machine": words, "workers": 2, "timeout": 3600.0,
        "started": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    failures = {"pilot": {"made": 18, "failed": 2}, "test": {"made": 24, "failed": 1}}
    arm = {"generators": [generator, generator], "failures": failures}
    audited = {"seed": 7, "ended": "2026-01-02T04:04:05+00:00", "arms": {"claimed": arm, "unprotected": arm}}
    given = {
        "audited": audited,
        "schema": 1, "name": words, "created": "2026-01-02T03:04:05+00:00", "claim": {"epsilon": 0.5, "delta": 0.0},
        "guarantee": words, "plan": plan, "power": [{"leak": words, "chance": 0.12, "median": 0.3}],
        "detectable": HALF,
        "ceilings": [(6, 0.0), (12, 1.12), (18, 1.5)], "refuted": True, "audit": audit_of_runs(words),
        "generator_seconds": 12.3, "control": words, "unprotected": audit_of_runs(words), "limitations": [words],
        "versions": {"dpassay": words},
    }  # fmt: skip
    return RunsAudit.model_validate({**given, **changes})
