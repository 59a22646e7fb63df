"""Fills the tables of the guides from the results of benchmarks, and draws their figures; nobody types a number.

    python benchmarks/fill_guides.py [--check]

Between ``<!-- table NAME -->`` and ``<!-- end -->`` of a guide stands the table NAME of a results file beside this
script. With --check nothing is written, and the exit code is 1 where a table or a figure differs.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DOCS = HERE.parent / "docs"
sys.path.append(str(DOCS / "reproductions" / "private_inference"))

tables = importlib.import_module("tables")

GUIDES = {
    "measurements/table-evolution.md": "table_evolution",
    "measurements/marginals.md": "marginals_beside_opendp",
    "measurements/centred-logits.md": "centred",
    "measurements/beside-anonymeter.md": "beside_anonymeter",
    "measurements/many-runs-power.md": "leak_power",
    "measurements/other-bounds.md": "other_audits",
    "measurements/many-records.md": "many_records",
    "measurements/workers.md": "cluster_speed",
    "measurements/coordinator.md": "coordinator",
    "measurements/canary-scorers.md": "canary_scorers",
    "conformance.md": "../conformance/results",
}
"""Page of docs → results file of which it shows tables."""

FIGURES = {"scale.svg": "many_records"}
"""Figure of docs → benchmark whose function `figure` draws it from its results file."""


def tables_of(name: str) -> dict[str, Any]:
    """The tables of a results file, by name."""
    made: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))["tables"]
    return made


def drawn(name: str) -> str:
    """The figure of a benchmark, as SVG."""
    results = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
    return str(importlib.import_module(name).figure(results))


def draw(figure: Path, svg: str) -> int:
    """Writes a figure, or checks it, as the command line says; the exit code."""
    if "--check" not in sys.argv:
        figure.write_text(svg, encoding="utf-8")
    elif figure.read_text(encoding="utf-8") != svg:
        print(f"{figure.name}: differs from the results; run this without --check", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    codes = [tables.fill(DOCS / page, tables_of(name)) for page, name in GUIDES.items()]
    sys.exit(max(codes + [draw(DOCS / figure, drawn(name)) for figure, name in FIGURES.items()]))
