"""How near synthetic rows are to real ones, in one row of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpassay.data.table_schema import Row, Schema
from dpassay.utility.table_classifiers import efficacy
from dpassay.utility.tables import Places, compare_places


def measured(
    schema: Schema, target: str, made: Sequence[Row], private: Sequence[Row], unseen: Sequence[Row], seed: int
) -> dict[str, Any]:
    """All measures of synthetic rows beside unseen ones; classifiers are trained on synthetic rows only."""
    written, known, other = (Places(schema, rows) for rows in (made, private, unseen))
    found = compare_places(written, other)
    assert found.pairs is not None
    assert found.associations is not None
    scores = efficacy(written, known, other, target, seed=seed)
    measures: dict[str, Any] = {
        "histograms": found.histograms.mean,
        "histograms_20": found.histograms.bins_20,
        "histograms_50": found.histograms.bins_50,
        "pairs": found.pairs.mean,
        "associations": found.associations.share,
    }
    classifiers = {"lr": scores.logistic_regression, "xgb": scores.xgboost}
    trained = {name: of.train_on_synthetic for name, of in classifiers.items()}
    for name, of in trained.items():
        measures |= {f"{name}_f1": of.rarer_f1, f"{name}_auc": of.auc, f"{name}_accuracy": of.accuracy}
    for key in ("f1", "auc", "accuracy"):
        values = [measures[f"{name}_{key}"] for name in trained]
        measures[key] = None if None in values else sum(values) / len(values)
    return measures
