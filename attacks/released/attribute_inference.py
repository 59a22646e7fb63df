"""Attribute inference: guesses a secret column from the other columns, by the synthetic row that is nearest in them.

Correct guesses in the holdout follow from correlations between columns and leak nothing about individuals; only a
higher rate in the source is a leak.

Source: Giomi et al., "A Unified Framework for Quantifying Privacy Risk in Synthetic Data" (2023), section 4.3.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpassay.attacks.released.holdout import Hits
from dpassay.attacks.released.tables import EncodedTable, Step, Tables, nearest
from dpassay.base import validate
from dpassay.base.arrays import Bools, Integers
from dpassay.base.number_format import format_percent

TOLERANCE = 0.05
"""A guess of a number is right if its error is at most this fraction of the column's range."""


def attribute_inference(
    tables: Tables,
    secret: str,
    *,
    name: str = "attribute_inference",
    tolerance: float = TOLERANCE,
    index: Integers | None = None,
    progress: Step | None = None,
) -> Hits:
    """Guesses a column of every row as that of the synthetic row that is nearest in the other columns.

    Args:
        tables: the rows, and the units whose rows they are.
        secret: the column to guess.
        name: of the attack, if several columns are guessed.
        tolerance: for numbers, as a fraction of the range in source and holdout, in [0, 1).
        index: of the synthetic row that is nearest in the other columns to each row of source and holdout, if it is
            known (`nearest_without`).
        progress: called with the number of rows done and the total.

    Returns:
        A unit is hit if the guess of a row of it is right. For comparison, `beside` has the hits of one constant guess:
        the most common category, or the median, of the synthetic rows.

    Raises:
        ValueError: if there is no such column, or no other column.
    """
    validate.probability_below_one(tolerance=tolerance)
    numeric, position = tables.locate(secret)
    known = tables.without(secret)
    if not known.numeric and not known.categorical:
        raise ValueError(f"column {secret!r} cannot be guessed: there is no other column to guess it from")
    if index is None:
        _, index = nearest(EncodedTable.joined(known.source, known.holdout), known.synthetic, progress)
    truth = _column(EncodedTable.joined(tables.source, tables.holdout), numeric, position)
    given = _column(tables.synthetic, numeric, position)
    right = _right(given[index], truth, numeric, tolerance)
    same = _right(np.full(len(truth), _commonest(given, numeric)), truth, numeric, tolerance)
    (source, holdout), constant = tables.hits(right), tables.hits(same)
    off = f"within {format_percent(tolerance)} of the range" if numeric else "the same category"
    return Hits(
        name,
        f"the column {secret!r} of a row is unknown and the others are known; guess it from the synthetic table",
        f"the value of the synthetic row that is nearest in the other columns; right if {off}",
        "guessed right",
        source,
        holdout,
        {"column": secret},
        (
            ("source units guessed right by one constant value", int(constant[0].sum()), len(source)),
            ("holdout units guessed right by one constant value", int(constant[1].sum()), len(holdout)),
        ),
        int(constant[0].sum()),
    )


def _column(table: EncodedTable, numeric: bool, index: int) -> NDArray[Any]:
    return table.numbers[:, index] if numeric else table.codes[:, index]


def _right(guess: NDArray[Any], truth: NDArray[Any], numeric: bool, tolerance: float) -> Bools:
    if not numeric:
        return np.asarray(guess == truth)
    near = np.abs(guess - truth) <= tolerance * (1 + 1e-9)  # values are divided by the range, hence rounded
    return np.asarray(near | (np.isnan(guess) & np.isnan(truth)))


def _commonest(given: NDArray[Any], numeric: bool) -> Any:
    if numeric:
        there = given[~np.isnan(given)]
        return float(np.median(there)) if len(there) else float("nan")
    values, counts = np.unique(given, return_counts=True)
    return values[counts.argmax()]
