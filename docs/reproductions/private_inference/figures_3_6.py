"""Figures 3 to 6: how the median's cost spreads over batches, and how it falls along a document.

python docs/reproductions/private_inference/figures_3_6.py [--seeds 3] [--quick] [--results FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import figures
import numpy as np
from batch_costs import QUARTERS, bootstrap, pooled
from matplotlib.figure import Figure
from numpy.typing import NDArray
from runs import Results, arguments
from watched_runs import FULL_BATCHES, SETTINGS, watched

MIN_TOKENS = 30
"""Positions with fewer tokens than this, over all seeds, are not drawn."""
_STYLES = dict(zip(SETTINGS, ("-", "--", "-.", ":", (0, (5, 1)), (0, (5, 1, 1, 1))), strict=True))


def spread_table(results: Results) -> dict[str, Any]:
    """Figures 3 and 4: one row a setting; quantiles of all batches, the rest of each run by itself."""
    rows = []
    for setting in SETTINGS:
        exact = pooled(results, setting, "epsilon")
        each = [np.array(batches["epsilon"]) for batches in results.of(setting, "batches")]
        rows.append(
            {
                "setting": setting,
                "batches": len(exact),
                **{f"q{share}": float(np.quantile(exact, share / 100)) for share in (10, 50, 90)},
                "largest": [float(run.max()) for run in each],
                "second": [float(np.sort(run)[-2]) for run in each],
                "over_mean": [float(run.max() / run.mean()) for run in each],
                "below_half": [float(np.mean(run < run.max() / 2)) for run in each],
            }
        )
    columns = [
        {"title": "batches of", "key": "setting"},
        {"title": "batches", "key": "batches"},
        {"title": "10 %", "key": "q10", "digits": 2},
        {"title": "50 %", "key": "q50", "digits": 2},
        {"title": "90 %", "key": "q90", "digits": 2},
        {"title": "largest of a run", "key": "largest", "digits": 2},
        {"title": "second largest", "key": "second", "digits": 2},
        {"title": "largest over mean", "key": "over_mean", "digits": 2},
        {"title": "share below half of the largest", "key": "below_half", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def decay_table(results: Results) -> dict[str, Any]:
    """Figures 5 and 6: one row a setting without small batches; mean γ* of a token in each quarter of its document."""
    rows = []
    for setting in FULL_BATCHES:
        names = [f"quarter {quarter + 1}" for quarter in range(QUARTERS)]
        sums = np.array([pooled(results, setting, name) for name in names])
        counts = np.array([pooled(results, setting, f"tokens in {name}") for name in names])

        def means(rows: NDArray[np.int64], sums: Any = sums, counts: Any = counts) -> NDArray[np.float64]:
            return np.asarray(sums[:, rows].sum(axis=1) / counts[:, rows].sum(axis=1))

        batches = sums.shape[1]
        rows.append(
            {
                "setting": setting,
                **dict(zip(names, means(np.arange(batches)).tolist(), strict=True)),
                "ratio": bootstrap(lambda rows, means=means: float(means(rows)[-1] / means(rows)[0]), batches),
            }
        )
    columns = [
        {"title": "batches of", "key": "setting"},
        *({"title": name, "key": name, "digits": 4} for name in names),
        {"title": "last over first quarter", "key": "ratio", "digits": 3},
    ]
    return {"columns": columns, "rows": rows}


def draw_spread(results: Results, path: Path) -> None:
    """The share of batches whose ε* is at most a value, all seeds together."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for setting in SETTINGS:
        axes.ecdf(pooled(results, setting, "epsilon"), label=setting, linestyle=_STYLES[setting])
    axes.set_xscale("log")
    axes.set_xlabel("ε* of a batch")
    axes.set_ylabel("share of batches")
    _finish(figure, axes, path)


def draw_decay(results: Results, path: Path) -> None:
    """The mean γ* of a token by its position in the document, all seeds together."""
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    for setting in FULL_BATCHES:
        counts, means = along_documents(results, setting)
        shown = counts >= MIN_TOKENS
        axes.plot(np.flatnonzero(shown) + 1, means[shown], label=setting, linestyle=_STYLES[setting])
    axes.set_yscale("log")
    axes.set_xlabel("position of the token in its document")
    axes.set_ylabel("mean γ* of a token")
    _finish(figure, axes, path)


def along_documents(results: Results, setting: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Number of tokens at each position, and their mean γ*, over all seeds."""
    runs = results.of(setting, "positions")
    length = max(len(run["count"]) for run in runs)
    counts, sums = np.zeros(length), np.zeros(length)
    for run in runs:
        count = np.array(run["count"], dtype=np.float64)
        counts[: len(count)] += count
        sums[: len(count)] += count * np.array(run["mean"])
    return counts, sums / counts


def _finish(figure: Figure, axes: Any, path: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)
    figures.save(figure, path)


def main() -> int:
    options = arguments("Figures 3 to 6: the median's cost over batches and along documents.").parse_args()
    measured = watched(options.results, range(options.first, options.first + options.seeds), options.quick)
    results = Results(options.results / "figures_3_6.json", measured.parameters)
    results.tables = {"figures_3_4": spread_table(measured), "figures_5_6": decay_table(measured)}
    results.save()
    draw_spread(measured, options.results / "figures_3_4.svg")
    draw_decay(measured, options.results / "figures_5_6.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
