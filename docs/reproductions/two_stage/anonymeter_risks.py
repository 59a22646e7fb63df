"""Anonymeter's risks of a synthetic table as JSON, in an environment that has ``anonymeter`` and not dpassay.

python anonymeter_risks.py SYNTHETIC.csv PRIVATE.csv UNSEEN.csv TARGET ATTACKS
"""

from __future__ import annotations

import json
import sys
import warnings

import pandas as pd
from anonymeter.evaluators import InferenceEvaluator, LinkabilityEvaluator, SinglingOutEvaluator


def main() -> None:
    made, private, unseen = (pd.read_csv(path) for path in sys.argv[1:4])
    target, attacks = sys.argv[4], int(sys.argv[5])
    known = [name for name in private.columns if name != target]
    given = {"ori": private, "syn": made, "control": unseen, "n_attacks": attacks}
    linked = (known[::2], known[1::2])
    evaluators = {
        "singling out, one column": (SinglingOutEvaluator(**given, seed=0), {"mode": "univariate"}),
        "singling out, several": (SinglingOutEvaluator(**given, seed=0), {"mode": "multivariate"}),
        "linkability": (LinkabilityEvaluator(**given, aux_cols=linked), {"n_jobs": 1}),
        "inference": (InferenceEvaluator(**given, aux_cols=known, secret=target), {"n_jobs": 1}),
    }
    found = {}
    for name, (evaluator, options) in evaluators.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator.evaluate(**options)
            risk, rates = evaluator.risk(confidence_level=0.95), evaluator.results(confidence_level=0.95)
        found[name] = {
            "private": rates.attack_rate.value,
            "unseen": rates.control_rate.value,
            "risk": risk.value,
            "interval": list(risk.ci),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
