"""The data of the reproduction: rows of the RAND Health Insurance Experiment, files of them, and their measures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cupel.mechanisms.data.table_schema import Row
from cupel.mechanisms.data.tables import RANDHIE, randhie_rows
from cupel.utility.table_classifiers import efficacy
from cupel.utility.tables import Places, compare_places

DELTA = 1e-5
TARGET = "limitation"
RECORDS = 16_000

SIZE: dict[str, Any] = {"records": RECORDS, "rows": 1000, "epsilons": [1.0, 8.0]}
"""Private rows; synthetic rows of each run; claims."""

QUICK = SIZE | {"records": 1000, "rows": 20, "epsilons": [8.0]}


def split(size: dict[str, Any], seed: int) -> tuple[list[Row], list[Row]]:
    """Private rows, and the rows that no run sees; at random, although a person may have rows in both."""
    rows = [RANDHIE.row(cells) for cells in np.random.default_rng(seed).permutation(np.array(randhie_rows()))]
    return rows[: size["records"]], rows[size["records"] :]


def measured(made: Sequence[Row], private: Sequence[Row], unseen: Sequence[Row], seed: int) -> dict[str, Any]:
    """All measures of synthetic rows beside unseen ones; classifiers are trained on synthetic rows only."""
    written, known, other = (Places(RANDHIE, rows) for rows in (made, private, unseen))
    found = compare_places(written, other)
    if found.pairs is None or found.associations is None:
        raise AssertionError("the table has more than one column")
    scores = efficacy(written, known, other, TARGET, seed=seed)
    measures: dict[str, Any] = {
        "histograms": found.histograms.mean,
        "histograms_20": found.histograms.bins_20,
        "histograms_50": found.histograms.bins_50,
        "pairs": found.pairs.mean,
        "associations": found.associations.share,
    }
    for name, of in (("lr", scores.logistic_regression), ("xgb", scores.xgboost)):
        trained = of.train_on_synthetic
        measures |= {
            f"{name}_f1": trained.rarer_f1,
            f"{name}_auc": trained.auc,
            f"{name}_accuracy": trained.accuracy,
        }
    return measures


MEASURES = [
    {"title": "histograms", "key": "histograms"},
    {"title": "pairs", "key": "pairs"},
    {"title": "CorAcc", "key": "associations"},
    {"title": "F1", "key": "f1"},
    {"title": "AUC", "key": "auc"},
    {"title": "accuracy", "key": "accuracy"},
]
"""Columns of tables; the last three are the mean of both classifiers, as in the paper."""


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cells = (dict(zip(RANDHIE.names, RANDHIE.cells(row), strict=True)) for row in rows)
    path.write_text("".join(json.dumps(of) + "\n" for of in cells), encoding="utf-8")


def read(path: Path) -> list[Row]:
    """The rows of a file that `write` wrote."""
    return [RANDHIE.row(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
