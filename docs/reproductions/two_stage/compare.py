"""Tables 3, 7, 8, 9 and 10: all synthetic tables beside rows that no run saw, after `train.py` and `marginals.py`.

    python docs/reproductions/two_stage/compare.py [--seeds 3] [--first 0] [--quick] [--results F] [--tables F]

Two rows bound what can be reached: rows drawn uniformly from the public domains, and real rows.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from households import MARGINALS, QUICK, SIZE, TARGET, path_of, read, setting, shown, split
from shared import arguments, runs
from table_measures import measured

from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE

ARMS = ("DP-Standard", "DP-2Stage-U", "DP-2Stage-O", *MARGINALS)
UNIFORM, REAL = "uniform rows", "real rows"


def order(size: dict[str, Any]) -> list[tuple[str, float | None]]:
    """(arm, ε) in the order of the table."""
    private = [(arm, epsilon) for epsilon in size["epsilons"] for arm in ARMS]
    return [(UNIFORM, 0.0), *private, ("DP-Standard", None), (REAL, None)]


def rows_of(arm: str, epsilon: float | None, size: dict[str, Any], seed: int, tables: Path) -> Sequence[Row]:
    """The rows of an arm, as many for each."""
    if arm == UNIFORM:
        rng = np.random.default_rng(seed)
        return [RANDHIE.uniform(rng) for _ in range(size["rows"])]
    if arm == REAL:
        return split(size, seed)[0][: size["rows"]]
    return read(path_of(tables, seed, arm, epsilon))


_ARM = {"arm": "rows", "epsilon": "ε"}
_MEANS = {
    "histograms": "histograms",
    "pairs": "pairs",
    "associations": "CorAcc",
    "f1": "F1",
    "auc": "AUC",
    "accuracy": "accuracy",
}
_SINGLE = {
    "xgb_f1": "F1, XGBoost",
    "xgb_auc": "AUC",
    "xgb_accuracy": "accuracy",
    "lr_f1": "F1, logistic regression",
    "lr_auc": "AUC",
    "lr_accuracy": "accuracy",
    "histograms_50": "histograms, 50 bins",
    "histograms_20": "20 bins",
}


def tables(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    """The means that the paper shows first, and each measure by itself."""
    found = {}
    for name, titles in (("utility", _MEANS), ("measures", _SINGLE)):
        rows = [
            {"arm": arm, "epsilon": shown(epsilon)} | {key: results.of(setting(arm, epsilon), key) for key in titles}
            for arm, epsilon in order(size)
        ]
        columns = [{"title": title, "key": key} for key, title in (_ARM | titles).items()]
        found[name] = {"columns": columns, "rows": rows}
    return found


def main() -> int:
    options = arguments("Tables 3, 7 to 10: utility.").parse_args()
    size = QUICK if options.quick else SIZE
    results = runs.Results(options.results / "utility.json", size)
    for seed in range(options.first, options.first + options.seeds):
        private, unseen = split(size, seed)
        for arm, epsilon in order(size):
            if results.missing(setting(arm, epsilon), seed):
                rows = rows_of(arm, epsilon, size, seed, options.tables)
                results.add(setting(arm, epsilon), seed, **measured(RANDHIE, TARGET, rows, private, unseen, seed))
    results.tables = tables(results, size)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
