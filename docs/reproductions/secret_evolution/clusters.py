"""Table 7: how many clusters, at r/p = 10 and without protection.

python docs/reproductions/secret_evolution/clusters.py [--seeds 3] [--first 0] [--quick] [--results FOLDER]
"""

from __future__ import annotations

import sys
from typing import Any

from evolutions import corpus, secret_evolution, written
from shared import arguments, runs

import utility
from dpassay.mechanisms.models.language_model import LanguageModel

FULL = {key: value for key, value in utility.FULL.items() if key not in ("clusters", "ratios")} | {
    "clusters": [1, 4, 16, 64, 256],
    "ratios": [10, None],
}
QUICK = FULL | {"records": 300, "rounds": 2, "synthetic": 12, "variations": 2, "clusters": [2, 8], "ratios": [10]}


def settings(size: dict[str, Any]) -> list[tuple[str, int, float | None]]:
    """(name, K for each label, r/p)."""
    pairs = [(clusters, ratio) for ratio in size["ratios"] for clusters in size["clusters"]]
    return [(f"K = {clusters}, r/p = {utility.shown(ratio)}", clusters, ratio) for clusters, ratio in pairs]


def one(size: dict[str, Any], clusters: int, ratio: float | None, seed: int, model: LanguageModel) -> dict[str, Any]:
    """The numbers of one run."""
    texts = corpus(size["records"], seed, "scattered")
    r = 1.0 if ratio is None else ratio * size["p"]
    rows, _ = written(secret_evolution(size | {"clusters": clusters}, r), texts.records, model, seed)
    return utility.measured(rows, texts, size, seed)


def table(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    """One row a setting."""
    keys = [key for key in utility.KEYS if key not in ("sigma", "drawn")]
    rows = [
        {"clusters": clusters, "ratio": utility.shown(ratio)} | {key: results.of(name, key) for key in keys}
        for name, clusters, ratio in settings(size)
    ]
    columns = [column for column in utility.COLUMNS if column["key"] in keys]
    return {
        "columns": [{"title": "K a label", "key": "clusters"}, {"title": "r/p", "key": "ratio"}, *columns],
        "rows": rows,
    }


def main() -> int:
    options = arguments("Table 7: utility against the number of clusters.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "clusters.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        for name, clusters, ratio in settings(size):
            if results.missing(name, seed):
                results.add(name, seed, **one(size, clusters, ratio, seed, model))
        results.tables = {"clusters": table(results, size)}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
