"""Table 8: what the strongest attacker sees of one record in each batch, beside what the batch cost.

    python docs/reproductions/private_inference/table_8.py [--seeds 3] [--quick] [--results FOLDER]

The loss of a record is log p(x) − log p′(x) of all tokens x of its batch, p′ without the record; a batch's is the
largest in absolute value.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from batch_costs import bootstrap, pooled
from runs import Results, arguments
from watched_runs import SETTINGS, watched


def row(results: Results, setting: str, label: str | None) -> dict[str, Any]:
    """All batches of a setting, or those of one label."""
    labels = pooled(results, setting, "label")
    chosen = np.ones(len(labels), dtype=bool) if label is None else labels == label
    loss, exact = pooled(results, setting, "loss")[chosen], pooled(results, setting, "epsilon")[chosen]
    ratio = loss / exact
    worst = int(exact.argmax())
    return {
        "setting": setting,
        "label": "all" if label is None else label,
        "batches": len(ratio),
        "size": float(pooled(results, setting, "size")[chosen].mean()),
        "ratio": bootstrap(lambda rows: float(np.median(ratio[rows])), len(ratio)),
        "range": f"{ratio.min():.2f} to {ratio.max():.2f}",
        "epsilon": float(exact[worst]),
        "loss": float(loss[worst]),
        "largest": float(loss.max()),
        "violated": int(pooled(results, setting, "violated")[chosen].sum()),
    }


def table(results: Results) -> dict[str, Any]:
    """One row a setting and label."""
    rows = []
    for setting in SETTINGS:
        found = pooled(results, setting, "label")
        labels = list(dict.fromkeys(label for label in found if label is not None))
        rows += [row(results, setting, label) for label in (None, *labels)]
    columns = [
        {"title": "batches of", "key": "setting"},
        {"title": "label", "key": "label"},
        {"title": "batches", "key": "batches"},
        {"title": "mean size", "key": "size", "digits": 0},
        {"title": "loss over ε*, median", "key": "ratio", "digits": 2},
        {"title": "smallest to largest", "key": "range"},
        {"title": "costliest batch, ε*", "key": "epsilon", "digits": 2},
        {"title": "its loss", "key": "loss", "digits": 2},
        {"title": "largest loss", "key": "largest", "digits": 2},
        {"title": "loss above ε*", "key": "violated"},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    options = arguments("Table 8: leave-one-out loss beside the cost of every batch.").parse_args()
    measured = watched(options.results, range(options.first, options.first + options.seeds), options.quick)
    results = Results(options.results / "table_8.json", measured.parameters)
    results.tables = {"table_8": table(measured)}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
