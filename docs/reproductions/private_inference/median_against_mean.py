"""The median's ex-post ε beside the published γ of the same tokens and the mean's ε at equal tokens and batch size.

    python docs/reproductions/private_inference/median_against_mean.py [--seeds 3] [--quick] [--results FOLDER]

The two ε do not mean the same: the mean's is an (ε, n^−1.1) guarantee known before the run, the median's is a pure ε of
this data set and this output.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from batch_costs import bootstrap, pooled
from runs import Results, arguments
from watched_runs import FULL_BATCHES, SETTINGS, watched


def run_table(results: Results) -> dict[str, Any]:
    """One row a setting: what whole runs cost."""
    rows = []
    for setting in SETTINGS:
        batches = results.of(setting, "batches")
        exact = np.array([max(columns["epsilon"]) for columns in batches])
        published = np.array([max(columns["published"]) for columns in batches])
        total, mean = np.array(results.of(setting, "ex_post_epsilon")), np.array(results.of(setting, "mean_epsilon"))
        rows.append(
            {
                "setting": setting,
                "tokens": results.of(setting, "tokens"),
                "epsilon": total.tolist(),
                "published": published.tolist(),
                "over_exact": (published / exact).tolist(),
                "mean": mean.tolist(),
                "mean_zcdp": results.of(setting, "mean_zcdp"),
                "against_mean": (total / mean).tolist(),
                "published_against_mean": (published / np.array(results.of(setting, "mean_zcdp"))).tolist(),
            }
        )
    columns = [
        {"title": "batches of", "key": "setting"},
        {"title": "tokens", "key": "tokens"},
        {"title": "median, ε*", "key": "epsilon", "digits": 2},
        {"title": "Σγ of its costliest batch", "key": "published", "digits": 2},
        {"title": "Σγ over ε*", "key": "over_exact", "digits": 2},
        {"title": "mean, ε", "key": "mean", "digits": 2},
        {"title": "mean, ε by zCDP", "key": "mean_zcdp", "digits": 2},
        {"title": "ε* over mean's ε", "key": "against_mean", "digits": 2},
        {"title": "Σγ over mean's ε by zCDP", "key": "published_against_mean", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def parity_table(results: Results) -> dict[str, Any]:
    """One row a setting and parity of the batch size: published over exact cost, batch by batch."""
    rows = []
    for setting in FULL_BATCHES:
        exact, published = pooled(results, setting, "epsilon"), pooled(results, setting, "published")
        odd = pooled(results, setting, "size") % 2 == 1
        for name, chosen in (("odd", odd), ("even", ~odd)):
            ratio, cost = published[chosen] / exact[chosen], exact[chosen]
            if not len(ratio):
                continue
            rows.append(
                {
                    "setting": setting,
                    "size": name,
                    "batches": len(ratio),
                    "ratio": bootstrap(lambda rows, ratio=ratio: float(np.median(ratio[rows])), len(ratio)),
                    "range": f"{ratio.min():.2f} to {ratio.max():.2f}",
                    "epsilon": bootstrap(lambda rows, cost=cost: float(np.median(cost[rows])), len(cost)),
                    "published": bootstrap(lambda rows, both=ratio * cost: float(np.median(both[rows])), len(cost)),
                }
            )
    columns = [
        {"title": "batches of", "key": "setting"},
        {"title": "size", "key": "size"},
        {"title": "batches", "key": "batches"},
        {"title": "Σγ over ε*, median", "key": "ratio", "digits": 2},
        {"title": "smallest to largest", "key": "range"},
        {"title": "ε*, median", "key": "epsilon", "digits": 2},
        {"title": "Σγ, median", "key": "published", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    options = arguments("The median's realised cost beside its published cost and the mean's.").parse_args()
    measured = watched(options.results, range(options.first, options.first + options.seeds), options.quick)
    results = Results(options.results / "median_against_mean.json", measured.parameters)
    results.tables = {"median_against_mean": run_table(measured), "odd_and_even_batches": parity_table(measured)}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
