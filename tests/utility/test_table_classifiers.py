"""Classifiers of tables, against scikit-learn and XGBoost on features made here, and against loops."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score

from dpassay.data.table_schema import MISSING, CategoryColumn, Row, Schema
from dpassay.utility.table_classifiers import (
    ClassifierScores,
    Efficacy,
    TargetScores,
    efficacy,
    held_out,
    target_scores,
)
from dpassay.utility.tables import Places

pytest.importorskip("xgboost")

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": 0, "high": 99},
            {"name": "sex", "type": "category", "values": ["f", "m"], "missing": True},
            {"name": "height", "type": "number", "low": 1.2, "high": 2.1, "decimals": 2, "missing": True},
            {"name": "ill", "type": "category", "values": ["no", "yes", "unknown"]},
        ]
    }
)


def rows(seed: int, count: int, *, signal: float = 1.0, classes: int = 2) -> list[Row]:
    """Rows whose class depends on age and sex, to a degree."""
    rng = np.random.default_rng(seed)
    results: list[Row] = []
    for _ in range(count):
        age, sex = int(rng.integers(100)), ["f", "m", MISSING][rng.choice(3, p=[0.5, 0.4, 0.1])]
        height = MISSING if rng.random() < 0.2 else f"{rng.integers(120, 211) / 100:.2f}"
        score = signal * ((age - 50) / 15 + (sex == "m")) + rng.logistic()
        ill = "unknown" if classes == 3 and rng.random() < 0.2 else "yes" if score > 1 else "no"
        results.append((str(age), sex, height, ill))
    return results


def by_hand(train: Sequence[Row], asked: Sequence[Row]) -> tuple[Any, Any]:
    """One-hot features of sex, standardised numbers and an indicator of an empty height, row by row."""
    ages = [float(row[0]) for row in train]
    heights = [float(row[2]) for row in train if row[2] != MISSING]

    def features(row: Row) -> list[float]:
        height = 0.0 if row[2] == MISSING else float((float(row[2]) - np.mean(heights)) / np.std(heights))
        age = float((float(row[0]) - np.mean(ages)) / np.std(ages))
        return [age, *(float(row[1] == item) for item in ("f", "m", MISSING)), height, float(row[2] == MISSING)]

    return np.array([features(row) for row in train]), np.array([features(row) for row in asked])


def expected(model: Any, train: Sequence[Row], test: Sequence[Row], rarer: str | None) -> TargetScores:
    made, asked = by_hand(train, test)
    if not isinstance(model, LogisticRegression):  # what is not stored is empty to XGBoost: indicators that are 0
        for some in (made, asked):
            some[:, [1, 2, 3, 5]] = np.where(some[:, [1, 2, 3, 5]] == 0, np.nan, 1.0)
    known = sorted({row[3] for row in train})
    model.fit(made, [known.index(row[3]) for row in train])
    chances = model.predict_proba(asked)
    true, predicted = [row[3] for row in test], [known[index] for index in chances.argmax(axis=1)]
    occurs = sorted(set(true))
    areas = [
        roc_auc_score([item == name for item in true], chances[:, known.index(name)]) if name in known else 0.5
        for name in occurs
    ]
    f1 = dict(zip(occurs, f1_score(true, predicted, labels=occurs, average=None, zero_division=0), strict=True))
    close: Any = pytest.approx
    return TargetScores(
        accuracy=close(accuracy_score(true, predicted)),
        macro_f1=close(np.mean(list(f1.values()))),
        rarer_f1=None if rarer is None else close(f1[rarer]),
        auc=close(np.mean(areas)),
    )


def scored(made: Sequence[Row], real: Sequence[Row], test: Sequence[Row], target: str = "ill", **more: Any) -> Efficacy:
    first, second, third = (Places(SCHEMA, some) for some in (made, real, test))
    return efficacy(first, second, third, target, **more)


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_those_of_the_libraries_on_features_made_by_hand(classes: int) -> None:
    from xgboost import XGBClassifier

    made, real, test = (rows(seed, 120, classes=classes) for seed in (4, 5, 6))
    result = scored(made, real, test, seed=5)
    rarer = "yes" if classes == 2 else None
    assert (result.classes, result.rarer, result.never_seen) == (classes, rarer, 0)
    models: dict[str, Callable[[], Any]] = {
        "logistic_regression": lambda: LogisticRegression(max_iter=1000),
        "xgboost": lambda: XGBClassifier(random_state=5),
    }
    for name, model in models.items():
        scores: ClassifierScores = getattr(result, name)
        assert scores.train_on_synthetic == expected(model(), made, test, rarer)
        assert scores.train_on_real == expected(model(), real, test, rarer)
    assert (result.rows.synthetic, result.rows.real_training, result.rows.real_test) == (120, 120, 120)


def test_a_class_that_no_synthetic_row_has_is_never_predicted() -> None:
    """The classifier knows no and unknown; every ill row is wrong, whatever the others are."""
    made = [row for row in rows(1, 120, classes=3) if row[3] != "yes"]
    real, test = rows(2, 120, classes=3), rows(3, 90, classes=3)
    result = scored(made, real, test)
    assert (result.classes, result.never_seen) == (3, 1)
    assert result.logistic_regression.train_on_synthetic == expected(
        LogisticRegression(max_iter=1000), made, test, None
    )
    share = np.mean([row[3] != "yes" for row in test])
    for scores in (result.logistic_regression, result.xgboost):
        assert scores.train_on_synthetic.accuracy <= share
        assert scores.train_on_real.macro_f1 > scores.train_on_synthetic.macro_f1


def test_synthetic_rows_of_one_class_are_scored_as_that_class_everywhere() -> None:
    test = [("1", "f", "1.50", "no")] * 6 + [("90", "m", "1.50", "yes")] * 2
    result = scored([("1", "f", "1.50", "yes")] * 4, test, test)
    everywhere = TargetScores(accuracy=2 / 8, macro_f1=(0 + 2 * 2 / (2 + 8)) / 2, rarer_f1=2 * 2 / (2 + 8), auc=0.5)
    assert result.logistic_regression.train_on_synthetic == result.xgboost.train_on_synthetic == everywhere
    floor = TargetScores(accuracy=6 / 8, macro_f1=(2 * 6 / (6 + 8) + 0) / 2, rarer_f1=0.0, auc=0.5)
    assert result.majority_class == floor
    assert (result.rarer, result.never_seen) == ("yes", 1)


def test_synthetic_rows_that_are_the_real_ones_reach_the_ceiling() -> None:
    real, test = rows(2, 100), rows(3, 100)
    result = scored(real, real, test)
    for scores in (result.logistic_regression, result.xgboost):
        assert scores.train_on_synthetic == scores.train_on_real
    assert result.logistic_regression.train_on_real.accuracy > result.majority_class.accuracy


def test_columns_that_do_not_vary_or_are_empty_are_scored() -> None:
    empty = [("7", MISSING, MISSING, ill) for ill in ("no", "yes", "no", "no")]
    result = scored(empty, rows(2, 60), rows(3, 40))
    assert result.logistic_regression.train_on_synthetic.rarer_f1 == 0
    assert result.logistic_regression.train_on_synthetic.auc is not None


def test_an_empty_target_is_a_class() -> None:
    test = [("1", MISSING, "1.50", "no"), ("1", "f", "1.50", "no"), ("1", "m", "1.50", "no")]
    result = scored(test[:1] * 3, test, test, "sex")
    assert (result.classes, result.never_seen, result.rarer) == (3, 2, None)
    assert result.xgboost.train_on_synthetic.accuracy == 1 / 3
    assert scored(test[:2], test[:2] + test[1:2], test[:2], "sex").rarer == MISSING


def test_test_rows_of_one_class_have_no_area() -> None:
    result = scored(rows(1, 40), rows(2, 40), [("5", "f", "1.50", "no")])
    assert result.xgboost.train_on_real.auc is None
    assert result.xgboost.train_on_real.rarer_f1 is None  # no test row is ill
    assert result.to_json()["majority_class"] == {"accuracy": 1.0, "macro_f1": 1.0, "rarer_f1": None, "auc": None}


def test_of_two_equally_frequent_classes_the_later_is_called_rarer() -> None:
    test = [("1", "f", "1.50", "no"), ("1", "f", "1.50", "yes")]
    assert scored(test, test, test).rarer == "yes"
    assert scored(test, [*test, test[1]], test).rarer == "no"


drawn_rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=30)


@settings(deadline=None)
@given(drawn_rows.map(np.array))
def test_scores_are_those_of_loops(drawn: Any) -> None:
    """The area is the share of pairs, one row of a class and one of the rest, ranked rightly; ties count one half."""
    true = drawn[:, 0]
    chances = np.column_stack([drawn[:, 1], drawn[:, 2], 10 - drawn[:, 1] - drawn[:, 2]]) / 10
    result = target_scores(true, chances, 0)
    predicted = [max(range(3), key=lambda one: (row[one], -one)) for row in chances.tolist()]
    assert result.accuracy == pytest.approx(sum(a == b for a, b in zip(true, predicted, strict=True)) / len(true))
    f1, areas = {}, []
    for one in sorted(set(true.tolist())):
        hits = sum(a == b == one for a, b in zip(true, predicted, strict=True))
        wrong = sum((a == one) != (b == one) for a, b in zip(true, predicted, strict=True))
        f1[one] = 2 * hits / (2 * hits + wrong)
        inside, outside = chances[true == one, one], chances[true != one, one]
        pairs = [(a, b) for a in inside for b in outside]
        areas += [np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs])] if pairs else []
    assert result.macro_f1 == pytest.approx(np.mean(list(f1.values())))
    assert result.rarer_f1 == (pytest.approx(f1[0]) if 0 in f1 else None)
    assert result.auc == (pytest.approx(np.mean(areas)) if areas else None)


def test_equal_rows_are_set_apart_together() -> None:
    some = rows(0, 400)
    apart = held_out([*some, *some], seed=3)
    assert apart[:400].tolist() == apart[400:].tolist()
    assert 80 <= apart[:400].sum() <= 160  # 30 % of them; the seed is fixed
    assert held_out(some, seed=4).tolist() != apart[:400].tolist()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("age", "column 'age' has numbers or dates; classifiers need a column of categories as target"),
        ("none", "the schema has no column 'none'"),
        ("many", "column 'many' has 101 categories; a target has at most 100"),
    ],
)
def test_targets_that_cannot_be_predicted(target: str, says: str) -> None:
    many = CategoryColumn(name="many", type="category", values=tuple(map(str, range(101))))
    table = Places(Schema(columns=(*SCHEMA.columns, many)), [("1", "f", "1.50", "no", "7")])
    with pytest.raises(ValueError, match=says):
        efficacy(table, table, table, target)


def test_a_single_column_predicts_nothing() -> None:
    table = Places(Schema(columns=SCHEMA.columns[3:]), [("no",), ("yes",)])
    with pytest.raises(ValueError, match="column 'ill' is the only one"):
        efficacy(table, table, table, "ill")


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="classifiers need real test rows; there is none"):
        scored(rows(0, 3), rows(1, 3), [])


def test_without_xgboost_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ValueError, match=r"^xgboost is not installed; .* pip install '\.\[tables\]'"):
        scored(rows(0, 20), rows(1, 20), rows(2, 20))
