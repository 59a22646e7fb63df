"""The report of an audit by planted canaries, built in code."""

from __future__ import annotations

from typing import Any

from dpassay.reports.canaries import CanaryAudit


def document(words: str = "words", **changes: Any) -> CanaryAudit:
    """An audit with one bound and one control, all of whose texts are `words`."""
    bound = {
        "direction": "lower", "value": 1.234567, "method": "one_run_tight", "rigor": "finite_sample",
        "adjacency": "add_remove", "unit": "record", "delta": 1e-5, "confidence": 0.95, "ceiling": 3.9876511,
        "assumptions": [words], "private": True,
    }  # fmt: skip
    rate = {"name": words, "hits": 3, "trials": 9, "rate": 1 / 3, "interval": [0.07, 0.71], "confidence": 0.95}
    audit = {
        "name": "third_party", "game": words, "attack": words, "statistics": ["one_run_tight"], "conclusion": words,
        "trials": 9, "bounds": [bound], "rates": [rate], "controls": [rate], "controls_passed": True,
        "difference": [-0.1, 0.9], "p_value": 0.01, "multiplicity": [words], "details": {"failures": []},
    }  # fmt: skip
    plan = {
        "kind": "echo", "candidates": 9, "unit": "record", "copies": 1, "adjacency": "add_remove", "guesses": 4,
        "scorings": 1, "confidence": 0.95, "statistic": "one_run_tight", "manifest_sha256": "ab" * 32,
        "manifest_expected": False,
    }  # fmt: skip
    synthetic = {"file": words, "sha256": "cd" * 32, "bytes": 10, "rows": 2, "checked": True}
    column = {
        "name": words, "kind": words, "form": words, "missing": {"data": 3}, "distinct": {"data": 9}, "used": True,
        "why": words, "warnings": [words],
    }  # fmt: skip
    given = {
        "schema": 1, "name": words, "created": "2026-01-02T03:04:05+00:00", "claim": {"epsilon": 2, "delta": 1e-5},
        "guarantee": words, "plan": plan, "synthetic": [synthetic], "refuted": False, "audit": audit,
        "understood": [{"file": words, "written": words, "columns": [column]}],
        "limitations": [words], "versions": {"dpassay": words},
    }  # fmt: skip
    return CanaryAudit.model_validate({**given, **changes})
