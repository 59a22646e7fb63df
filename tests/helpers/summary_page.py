"""The page of several audits of one generator, built in code."""

from __future__ import annotations

from typing import Any

from dpassay.reports.summary import SummaryDocument


def summary_document(words: str = "words", counted: float = 0.975, **changes: Any) -> SummaryDocument:
    """Two audits, of which one has a bound, all of whose texts are `words`."""
    bound = {
        "direction": "lower", "value": 1.234567, "method": "one_run_tight", "rigor": "finite_sample",
        "adjacency": "add_remove", "unit": "record", "delta": 1e-5, "confidence": counted, "ceiling": 3.9876511,
        "assumptions": [words], "private": True,
    }  # fmt: skip
    audit = {
        "name": "summary", "game": words, "attack": words, "statistics": ["one_run_tight"], "conclusion": words,
        "trials": 9, "bounds": [bound], "multiplicity": [words], "details": {},
    }  # fmt: skip
    part = {"kind": words, "declared": 0.95, "counted": counted, "conclusions": [words]}
    given = {
        "schema": 1, "name": words, "created": "2026-01-02T03:04:05+00:00", "claim": {"epsilon": 2, "delta": 1e-5},
        "guarantee": words, "refuted": False, "audit": audit,
        "plan": {"adjacency": "add_remove", "unit": "record", "confidence": 0.95, "declared": 0.9, "joint": 0.95},
        "parts": [{**part, "name": f"{words} 1", "bound": 1.234567, "attacks": [words]},
                  {**part, "name": f"{words} 2", "bound": None, "attacks": []}],
        "limitations": [words], "versions": {"dpassay": words},
    }  # fmt: skip
    return SummaryDocument.model_validate({**given, **changes})
