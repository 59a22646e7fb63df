"""Classifiers trained on a synthetic table and tested on real rows, beside the same ones trained on real rows.

Every number is computed from private rows, and is private.

Source: "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators", section C.2.1.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.base.extras import install
from dpassay.data.table_schema import MISSING, CategoryColumn, Row, Schema
from dpassay.utility import text_classifiers
from dpassay.utility.result import Result
from dpassay.utility.tables import Places
from dpassay.utility.text_classifiers import MAX_LABELS, TestedOn

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_ITERATIONS = 1000

Kind = Literal["logistic_regression", "xgboost"]


@dataclass(frozen=True)
class TargetScores(Result):
    """Scores of one classifier on the test rows, in [0, 1].

    Attributes:
        accuracy: fraction of the rows whose class was predicted.
        macro_f1: mean over the classes of the test rows of 2TP/(2TP + FP + FN).
        rarer_f1: F1 of the rarer of two classes; None if there are more or fewer, or no test row is of it.
        auc: mean over the classes of the test rows of the area under the ROC curve of one class against the rest; None
            if all test rows are of one class.
    """

    accuracy: float
    macro_f1: float
    rarer_f1: float | None
    auc: float | None


@dataclass(frozen=True)
class ClassifierScores(Result):
    """Scores of a classifier that was trained on synthetic rows, and of one trained on real rows, the ceiling."""

    train_on_synthetic: TargetScores
    train_on_real: TargetScores


@dataclass(frozen=True)
class TrainingRows(Result):
    """The numbers of rows that classifiers were trained and tested on."""

    synthetic: int
    real_training: int
    real_test: int


@dataclass(frozen=True)
class Efficacy(Result):
    """How well a column can be predicted after training on synthetic rows. Private.

    Attributes:
        target: the column.
        classes: number of classes that occur in real rows.
        rarer: the rarer of two classes in the real training rows; None if real rows have another number of classes.
        never_seen: number of classes of the test rows that no synthetic row has; they are never predicted.
        logistic_regression, xgboost: scores of the two classifiers.
        majority_class: scores of the most frequent class of the real training rows everywhere, the floor.
        rows: sizes of the training and test sets.
        tested_on: ``held_out`` for rows that the generator never saw, ``real`` for rows set apart of those it saw.
    """

    target: str
    classes: int
    rarer: str | None
    never_seen: int
    logistic_regression: ClassifierScores
    xgboost: ClassifierScores
    majority_class: TargetScores
    rows: TrainingRows
    tested_on: TestedOn


def xgboost_classifier() -> Callable[..., Any]:
    """The classifier of the package.

    Raises:
        ValueError: one line, where the package is missing.
    """
    try:
        result: Callable[..., Any] = importlib.import_module("xgboost").XGBClassifier
    except (ImportError, AttributeError):
        raise ValueError(
            f"xgboost is not installed; classifiers of tables need {install('tables')}, or name no target"
        ) from None
    return result


def held_out(rows: Sequence[Row], *, seed: int = 0) -> Bools:
    """Which rows are set apart for tests, by a keyed hash, so that equal rows stay together; shape (n,)."""
    return text_classifiers.held_out([json.dumps(row) for row in rows], seed=seed)


def efficacy(
    synthetic: Places, real: Places, test: Places, target: str, *, seed: int = 0, tested_on: TestedOn = "held_out"
) -> Efficacy:
    """Scores of logistic regression and XGBoost on real test rows.

    Each classifier sees all other columns: categories as one indicator for each, numbers and dates in units of their
    standard deviation in the training rows, where an empty cell is their mean, with an indicator. An empty cell of the
    target is a class of its own.

    Args:
        synthetic: to train on.
        real: to train the ceiling on, none of its rows a test row.
        test: real rows to test on.
        target: a column of categories.
        seed: of XGBoost.
        tested_on: where the test rows are from.

    Raises:
        ValueError: one line, if a table is empty, the column is not one of categories or has too many, or a package is
            missing.
    """
    index = check_target(real.schema, target)
    for name, table in {"synthetic": synthetic, "real training": real, "real test": test}.items():
        if not table.count:
            raise ValueError(f"classifiers need {name} rows; there is none")
    (made, _), (known, count), (true, _) = (table.categories(index) for table in (synthetic, real, test))
    frequency = np.bincount(known, minlength=count)
    occurs = np.flatnonzero(frequency + np.bincount(true, minlength=count))
    rarer = int(occurs[::-1][frequency[occurs[::-1]].argmin()]) if len(occurs) == 2 else None

    def trained(kind: Kind) -> ClassifierScores:
        results = []
        for table, classes in ((synthetic, made), (real, known)):
            of_table, of_test = _features(table, test, index)
            results.append(_probabilities(kind, of_table, classes, of_test, count, seed))
        return ClassifierScores(*(target_scores(true, of, rarer) for of in results))

    floor = np.zeros((test.count, count))
    floor[:, frequency.argmax()] = 1
    return Efficacy(
        target=target,
        classes=len(occurs),
        rarer=None if rarer is None else (*real.schema.columns[index].longest, MISSING)[rarer],
        never_seen=len(np.setdiff1d(true, made)),
        logistic_regression=trained("logistic_regression"),
        xgboost=trained("xgboost"),
        majority_class=target_scores(true, floor, rarer),
        rows=TrainingRows(synthetic.count, real.count, test.count),
        tested_on=tested_on,
    )


def check_target(schema: Schema, target: str) -> int:
    """The place of a target column in a schema.

    Raises:
        ValueError: one line, if there is no such column, it is not one of categories, has too many, or is the only one.
    """
    index = schema.index(target)
    column = schema.columns[index]
    if not isinstance(column, CategoryColumn):
        raise ValueError(f"column {target!r} has numbers or dates; classifiers need a column of categories as target")
    if column.size + column.missing > MAX_LABELS:
        raise ValueError(f"column {target!r} has {column.size} categories; a target has at most {MAX_LABELS}")
    if len(schema.columns) == 1:
        raise ValueError(f"column {target!r} is the only one; classifiers need others to predict it from")
    return index


def target_scores(true: Integers, result: Floats, rarer: int | None) -> TargetScores:
    """Scores of the probabilities, shape (n, classes), that a classifier gives to the classes of n ≥ 1 test rows, 0 for
    a class that was never seen; the likeliest class is predicted. `rarer` is the rarer of two classes, if there are
    two."""
    from sklearn.metrics import roc_auc_score

    occurs, predicted = np.unique(true), result.argmax(axis=1)
    f1 = {int(item): _f1(true == item, predicted == item) for item in occurs}
    auc = [float(roc_auc_score(true == item, result[:, item])) for item in occurs] if len(occurs) > 1 else []
    return TargetScores(
        accuracy=float((predicted == true).mean()),
        macro_f1=float(np.mean(list(f1.values()))),
        rarer_f1=None if rarer is None else f1.get(rarer),
        auc=float(np.mean(auc)) if auc else None,
    )


def _f1(true: Bools, predicted: Bools) -> float:
    """2TP/(2TP + FP + FN) of a class that occurs."""
    return float(2 * (true & predicted).sum() / (true.sum() + predicted.sum()))


def _probabilities(
    kind: Kind, train: csr_matrix, classes: Integers, asked: csr_matrix, count: int, seed: int
) -> Floats:
    """The probability of each class in the asked rows, shape (n, count), by a classifier trained on others."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known, coded = np.unique(classes, return_inverse=True)
    result = np.zeros((asked.shape[0], count))
    if len(known) == 1:
        result[:, known[0]] = 1
        return result
    if kind == "xgboost":
        model = xgboost_classifier()(random_state=seed, verbosity=0)
    else:
        model = LogisticRegression(max_iter=_ITERATIONS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(train, coded)
    result[:, known] = model.predict_proba(asked)
    return result


def _features(train: Places, asked: Places, target: int) -> tuple[csr_matrix, csr_matrix]:
    """The features of the training rows and of the asked rows, shapes (n, features), without the target.

    Zeros of numbers are stored, since XGBoost takes entries that are not stored as empty.
    """
    from scipy.sparse import csr_matrix, hstack

    sides: tuple[list[csr_matrix], list[csr_matrix]] = ([], [])
    for index, column in enumerate(train.schema.columns):
        if index == target:
            continue
        for side, table in zip(sides, (train, asked), strict=True):
            rows = np.arange(table.count + 1)
            if isinstance(column, CategoryColumn):
                codes, count = table.categories(index)
                side.append(csr_matrix((np.ones(table.count), codes, rows), shape=(table.count, count)))
                continue
            values = _standardised(train.columns[index], table.columns[index])
            side.append(csr_matrix((values, np.zeros(table.count, dtype=np.int64), rows), shape=(table.count, 1)))
            if column.missing:
                side.append(csr_matrix((table.columns[index] < 0).astype(np.float64)[:, None]))
    made, given = (hstack(side, format="csr") for side in sides)
    return made, given


def _standardised(known: Integers, indices: Integers) -> Floats:
    """Places less the mean of the known ones, over their standard deviation; 0 for an empty cell."""
    filled = known[known >= 0]
    if not len(filled):
        return np.zeros(len(indices))
    least = filled.min()
    mean, deviation = (filled - least).mean(), (filled - least).std()
    return np.where(indices < 0, 0.0, (indices - least - mean) / (deviation or 1.0))
