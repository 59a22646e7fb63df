"""The data of the reproduction: rows of the RAND Health Insurance Experiment, and files of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, randhie_rows

DELTA = 1e-5
TARGET = "limitation"
MARGINALS = ("AIM", "MST")
RECORDS = 16_000

SIZE: dict[str, Any] = {"records": RECORDS, "rows": 1000, "epsilons": [1.0, 8.0]}
"""Private rows; synthetic rows of each run; claims."""

QUICK = SIZE | {"records": 1000, "rows": 20, "epsilons": [8.0]}


def split(size: dict[str, Any], seed: int) -> tuple[list[Row], list[Row]]:
    """Private rows, and the rows that no run sees; at random, although a person may have rows in both."""
    rows = [RANDHIE.row(cells) for cells in np.random.default_rng(seed).permutation(np.array(randhie_rows()))]
    return rows[: size["records"]], rows[size["records"] :]


def shown(epsilon: float | None) -> str:
    """ε as tables show it; None is without noise."""
    return "∞" if epsilon is None else f"{epsilon:g}"


def setting(arm: str, epsilon: float | None) -> str:
    """The name of a run in results."""
    return f"{arm}, ε = {shown(epsilon)}"


def path_of(tables: Path, seed: int, arm: str, epsilon: float | None) -> Path:
    """The file of a synthetic table."""
    return tables / str(seed) / f"{arm}-{shown(epsilon)}.jsonl"


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = (dict(zip(RANDHIE.names, RANDHIE.cells(row), strict=True)) for row in rows)
    path.write_text("".join(json.dumps(of) + "\n" for of in cells), encoding="utf-8")


def read(path: Path) -> list[Row]:
    """The rows of a file that `write` wrote."""
    return [RANDHIE.row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
