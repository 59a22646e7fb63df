"""The figures of the page: small SVG files with text as text, the same bytes for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "dpassay", "font.size": 10, "font.family": "sans-serif"}
BLUE = "#2b6cb0"


def save(figure: Figure, path: Path) -> None:
    """Writes a figure without a date."""
    with matplotlib.rc_context(_STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def sorted_sizes(sizes: Mapping[str, Sequence[int]], line: int, path: Path) -> None:
    """One panel for each way of clustering: the sizes of its clusters, largest first.

    Args:
        sizes: title → sizes of the clusters, empty ones as 0.
        line: a size at which a line is drawn.
        path: of the SVG.
    """
    columns, rows = 3, -(-len(sizes) // 3)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(9.5, 2.3 * rows), layout="constrained")
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        largest = max(max(of) for of in sizes.values())
        for panel in panels.flat[len(sizes) :]:
            panel.set_visible(False)
        for panel, (title, of) in zip(panels.flat, sizes.items(), strict=False):
            ordered = sorted(of, reverse=True)
            panel.stairs(ordered, range(len(ordered) + 1), fill=True, color=BLUE)
            panel.axhline(line, color="black", linewidth=0.8, linestyle=":")
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(0, largest * 1.5)
            panel.set_yticks([0, *(10**power for power in range(len(str(largest))))], minor=False)
            panel.yaxis.set_minor_locator(NullLocator())
            panel.set_title(title, fontsize=10)
            panel.spines[["top", "right"]].set_visible(False)
        figure.supxlabel("cluster, largest first", fontsize=10)
        figure.supylabel("records", fontsize=10)
        save(figure, path)
