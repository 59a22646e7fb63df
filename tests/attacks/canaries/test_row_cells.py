"""Cells of canary rows are recognised however a generator writes them, and numbers that are not finite are empty."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from dpassay.attacks.canaries.pairs import pair_counts
from dpassay.attacks.canaries.rows import ColumnRange, RangeReader, nearest
from dpassay.attacks.canaries.texts import check_template
from dpassay.data.columns import Form, Rules, word_of

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


def read(*cells: Any) -> ColumnRange:
    reader = RangeReader("x")
    for cell in cells:
        reader.read(cell)
    return reader.column


@pytest.mark.parametrize("cell", [math.inf, -math.inf, math.nan, None, ""])
def test_numbers_that_are_not_finite_are_empty(cell: Any) -> None:
    numbers = read(3, cell, 1, cell)
    assert (numbers.kind, numbers.low, numbers.high, numbers.missing) == ("number", 1, 3, 0.5)
    words = read("one", cell)
    assert (words.kind, words.values, words.missing) == ("word", ("one",), 0.5)
    distances, _ = nearest([{**CANARY, "age": None}], COLUMNS, [{**CANARY, "age": cell}])
    assert distances.tolist() == [0]


def test_decimals_are_read_as_numbers() -> None:
    column = read(Decimal("1.50"), Decimal("3.00"))
    assert (column.kind, column.low, column.high, column.decimals) == ("number", 1.5, 3, 1)


def test_marks_of_missing_cells_among_numbers_and_odd_cells() -> None:
    """Of 41 cells, two are marked as missing, and one of the others, fewer than one in twenty, is no number."""
    column = read(*map(str, range(38)), "NA", "NA", "many")
    assert (column.kind, column.low, column.high) == ("number", 0, 37)
    assert column.missing == pytest.approx(2 / 41)
    assert column.is_empty("na")
    assert column.spelling.missing == "NA"
    assert "NA" in set(column.draw(1000, np.random.default_rng(0)))


@pytest.mark.parametrize(("stated", "missing", "values"), [((), 0.25, 3), (("NA", "unknown"), 0.75, 1)])
def test_marks_of_missing_cells_among_words_are_those_that_are_stated(
    stated: tuple[str, ...], missing: float, values: int
) -> None:
    reader = RangeReader("x", Rules(missing=stated))
    for cell in ("red", "NA", "", "Unknown ", "red", "NA", "", "NA"):
        reader.read(cell)
    column = reader.column
    assert (column.kind, column.missing, len(column.values)) == ("word", missing, values)
    assert column.spelling.missing == ("NA" if stated else "")
    assert column.is_empty(" unknown") == bool(stated)


@pytest.mark.parametrize(
    ("cells", "form", "shape"),
    [
        (["1,200", "950", "3,400,000"], Form.THOUSANDS, r"\d{1,3}(,\d{3})*"),
        (["1.200,50", "950,25", "12,00"], Form.COMMA, r"\d{1,3}(\.\d{3})*,\d\d"),
        (["1.234.567", "18.533", "950"], Form.COMMA, r"\d{1,3}(\.\d{3})*"),
        (["1200,5", "950,25", "12,75"], Form.COMMA, r"\d{2,4},\d{1,2}"),
        (["1200.0", "950.0", "12.0"], Form.POINT, r"\d{2,4}\.0"),
        (["1200.50", "950.25", "12.00"], Form.POINT, r"\d{2,4}\.\d\d"),
        (["007", "123", "045"], Form.POINT, r"\d{3}"),
        (["31/05/2013", "01/12/2019"], Form.DAY_FIRST, r"\d\d/\d\d/201\d"),
        (["5/31/2013", "12/1/2019"], Form.MONTH_FIRST, r"[1-9]\d?/[1-9]\d?/201\d"),
        (["31.05.2013", "01.12.2019"], Form.DOTTED, r"\d\d\.\d\d\.201\d"),
        (["2013/05/31", "2019/12/01"], Form.YEAR_FIRST, r"201\d/\d\d/\d\d"),
        (["2013-05-31 00:00:00", "2019-12-01 00:00:00"], Form.DAY, r"201\d-\d\d-\d\d 00:00:00"),
        (["2013-05-31T00:00:00Z", "2019-12-01T00:00:00Z"], Form.DAY, r"201\d-\d\d-\d\dT00:00:00Z"),
        (["2013-05-31 12:30", "2019-12-01 07:15"], Form.TIME, r"201\d-\d\d-\d\d \d\d:\d\d"),
        (["2013-05-31T12:30:00+02:00", "2019-12-01T07:15:00+02:00"], Form.TIME, r"201\d-.*T\d\d:\d\d:00\+02:00"),
        (["2013-05-31T12:30:01.25Z", "2019-12-01T07:15:59.50Z"], Form.TIME, r"201\d-.*T\d\d:\d\d:\d\d\.\d\dZ"),
    ],
)
def test_drawn_cells_are_written_as_in_the_file_and_are_read_again(cells: list[str], form: Form, shape: str) -> None:
    column, rng = read(*cells), np.random.default_rng(0)
    assert column.form == form
    for cell in (*column.draw(200, rng), *column.draw_at_edges(200, rng, beyond=False)):
        assert isinstance(cell, str)
        assert re.fullmatch(shape, cell), cell
        number = column.number(cell)
        assert number is not None
        assert column.low - 1 <= number <= column.high + 1
    assert column.draw_at_edges(1, rng, beyond=True)


@pytest.mark.parametrize("words", [("False", "True"), ("false", "true"), ("FALSE", "TRUE"), (False, True)])
def test_truth_values_are_drawn_as_they_are_written(words: tuple[Any, Any]) -> None:
    column = read(*words)
    assert (column.kind, column.form, column.has_edges) == ("number", Form.TRUTH, False)
    assert set(column.draw(100, np.random.default_rng(0))) == set(words)


def test_numbers_of_json_are_written_in_their_type() -> None:
    rng = np.random.default_rng(0)
    assert {type(cell) for cell in read(1, 2000).draw(50, rng)} == {int}
    assert {type(cell) for cell in read(1.0, 2000.0).draw(50, rng)} == {float}
    assert {type(cell) for cell in read("1.0", "2000.0").draw(50, rng)} == {str}


def test_whole_numbers_are_compared_alike() -> None:
    assert {word_of(value) for value in (367, 367.0, "367", "367.0", Decimal("367.00"))} == {"367"}
    assert word_of(" Oslo") == word_of("oslo")


def test_a_template_without_half_a_character() -> None:
    with pytest.raises(ValueError, match=r"^template has an unpaired surrogate, which is not a valid character$"):
        check_template("Order \ud800 {key}")
