"""Anonymeter's attacks on a synthetic table as JSON, in an environment that has ``anonymeter`` and not dpassay.

    python beside_anonymeter_worker.py FOLDER

The folder has ``synthetic.csv``, ``source.csv`` and ``holdout.csv``, and ``settings.json``: the secrets, the columns
that one party of linkability knows, how many predicates to make and of how many columns, and counts of other attacks,
to which Anonymeter's formulas of the risk are applied as well. Every row is attacked.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator
from anonymeter.stats.confidence import EvaluationResults

CONFIDENCE = 0.95


def risk_of(hits: int, source: int, other: int, holdout: int) -> dict[str, Any]:
    """The risk that Anonymeter's formulas give for counts, with its interval."""
    results = EvaluationResults(
        n_attacks=(source, source, holdout), n_success=hits, n_baseline=0, n_control=other, confidence_level=CONFIDENCE
    )
    risk = results.risk()
    return {"risk": risk.value, "interval": list(risk.ci)}


def main() -> None:
    folder = Path(sys.argv[1])
    settings = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    synthetic, source, holdout = (pd.read_csv(folder / f"{name}.csv") for name in ("synthetic", "source", "holdout"))
    tables = {"ori": source, "syn": synthetic, "control": holdout}
    given = {**tables, "n_attacks": len(source)}
    predicates = {**tables, "n_attacks": settings["predicates"], "seed": 0}
    every = list(source.columns)
    parts = settings["link"], [name for name in every if name not in settings["link"]]
    made: dict[str, tuple[Any, dict[str, Any]]] = {
        "linkability": (LinkabilityEvaluator(**given, aux_cols=parts, n_neighbors=1), {"n_jobs": 1}),
        "singling out, one column": (SinglingOutEvaluator(**predicates), {"mode": "univariate"}),
        "singling out, several": (
            SinglingOutEvaluator(**predicates, n_cols=settings["columns"]),
            {"mode": "multivariate"},
        ),
    }
    for secret in settings["secrets"]:
        known = [name for name in every if name != secret]
        made[f"inference of {secret}"] = InferenceEvaluator(**given, aux_cols=known, secret=secret), {"n_jobs": 1}
    found: dict[str, Any] = {}
    for name, (evaluator, options) in made.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator.evaluate(**options)
            results, risk = evaluator.results(confidence_level=CONFIDENCE), evaluator.risk(confidence_level=CONFIDENCE)
        found[name] = {
            "source": results.n_success / results.n_attacks_ori,
            "holdout": results.n_control / results.n_attacks_control,
            "risk": risk.value,
            "interval": list(risk.ci),
        }
    for name, counts in settings["counts"].items():
        found[name]["of_counts"] = risk_of(*counts)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
