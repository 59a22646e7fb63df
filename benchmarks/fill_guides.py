"""Fills the tables of the guides from the results of benchmarks, so that nobody types a number.

    python benchmarks/fill_guides.py [--check]

Between ``<!-- table NAME -->`` and ``<!-- end -->`` of a guide stands the table NAME of a results file beside this
script. With --check nothing is written, and the exit code is 1 where a table of a guide differs.
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
    "scale.md": "many_records",
    "measurements/canary-scorers.md": "canary_scorers",
}
"""Page of docs → results file of which it shows tables."""


def tables_of(name: str) -> dict[str, Any]:
    """The tables of a results file, by name."""
    made: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))["tables"]
    return made


if __name__ == "__main__":
    sys.exit(max([tables.fill(DOCS / page, tables_of(name)) for page, name in GUIDES.items()]))
