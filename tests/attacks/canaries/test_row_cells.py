"""Cells of canary rows are recognised however a generator writes them, and numbers that are not finite are empty."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pytest

from dpassay.attacks.canaries.pairs import pair_counts
from dpassay.attacks.canaries.rows import ColumnRange, RangeReader, canonical, nearest
from dpassay.attacks.canaries.texts import check_template

DAY = datetime.date(1955, 1, 28)
COLUMNS = [
    ColumnRange("age", "number", 18, 90),
    ColumnRange("born", "date", DAY.toordinal() - 100, DAY.toordinal() + 100),
    ColumnRange("code", "word", values=("366", "367")),
]
CANARY = {"age": 41, "born": "1955-01-28", "code": "367"}


@pytest.mark.parametrize(
    "row",
    [
        {"age": Decimal("41.00"), "born": datetime.datetime(1955, 1, 28, tzinfo=datetime.UTC), "code": 367.0},
        {"age": "41.0", "born": "1955-01-28T00:00:00", "code": "367.0"},
        {"age": 41, "born": "1955-01-28 00:00:00", "code": Decimal("367.0")},
    ],
)
def test_a_copy_in_other_types_is_a_copy(row: dict[str, Any]) -> None:
    distances, _ = nearest([CANARY], COLUMNS, [row])
    assert distances.tolist() == [0]
    assert pair_counts([CANARY], COLUMNS, [row]).columns.tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("cell", [math.inf, -math.inf, math.nan, None, ""])
def test_numbers_that_are_not_finite_are_empty(cell: Any) -> None:
    reader = RangeReader("x")
    for value in (3, cell, 1, cell):
        reader.read(value)
    assert reader.column == ColumnRange("x", "number", 1, 3, missing=0.5)
    words = RangeReader("x")
    for value in ("one", cell):
        words.read(value)
    assert words.column == ColumnRange("x", "word", values=("one",), missing=0.5)
    distances, _ = nearest([{**CANARY, "age": None}], COLUMNS, [{**CANARY, "age": cell}])
    assert distances.tolist() == [0]


def test_decimals_are_read_as_numbers() -> None:
    reader = RangeReader("x")
    for value in (Decimal("1.50"), Decimal("3.00")):
        reader.read(value)
    assert reader.column == ColumnRange("x", "number", 1.5, 3, decimals=1)


def test_texts_of_midnight_stay_words_of_the_data() -> None:
    """Canaries are drawn in the form of the words; dates would be drawn without a time."""
    reader = RangeReader("x")
    for value in ("1955-01-28 00:00:00", "1955-01-29 00:00:00"):
        reader.read(value)
    assert reader.column.kind == "word"


def test_whole_numbers_are_compared_alike() -> None:
    assert {canonical(value) for value in (367, 367.0, "367", "367.0", Decimal("367.00"))} == {"367"}
    assert canonical(" Oslo") == canonical("oslo")


def test_a_template_without_half_a_character() -> None:
    with pytest.raises(ValueError, match=r"^template has an unpaired surrogate, which is not a valid character$"):
        check_template("Order \ud800 {key}")
