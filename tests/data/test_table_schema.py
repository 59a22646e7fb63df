"""Domains of tables: which words they have, what begins one, and messages that show no value."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dpassay.data.table_schema import MISSING, CategoryColumn, DateColumn, NumberColumn, Schema


def number(**given: Any) -> NumberColumn:
    return NumberColumn(name="x", type="number", **given)


@pytest.mark.slow
@given(low=st.integers(-1200, 1200), size=st.integers(0, 1500), decimals=st.integers(0, 2))
def test_what_begins_a_number_is_what_some_number_begins_with(low: int, size: int, decimals: int) -> None:
    """Against all words of the domain, listed."""
    scale = 10**decimals
    column = number(low=low / scale, high=(low + size) / scale, decimals=decimals)
    words = {f"{Decimal(unit) / scale:.{decimals}f}".replace("-0.00", "0.00") for unit in range(low, low + size + 1)}
    words = {word if Decimal(word) else f"{0:.{decimals}f}" for word in words}
    beginnings = {word[:length] for word in words for length in range(len(word) + 1)}
    assert all(column.begins(start) for start in beginnings)
    assert all(column.is_complete(word) for word in words)
    for start in beginnings:
        for character in column.characters:
            assert column.begins(start + character) == (start + character in beginnings), start + character
            assert column.is_complete(start + character) == (start + character in words), start + character


def test_what_begins_a_date_is_what_some_date_begins_with() -> None:
    first, last = datetime.date(2019, 12, 28), datetime.date(2020, 3, 2)
    column = DateColumn(name="day", type="date", low=first, high=last)
    words = {str(first + datetime.timedelta(days)) for days in range((last - first).days + 1)}
    beginnings = {word[:length] for word in words for length in range(len(word) + 1)}
    for start in beginnings:
        for character in column.characters:
            assert column.begins(start + character) == (start + character in beginnings)
            assert column.is_complete(start + character) == (start + character in words)


@given(low=st.integers(-1200, 1200), size=st.integers(1, 300), decimals=st.integers(0, 2))
def test_places_count_the_values_of_a_domain_in_order(low: int, size: int, decimals: int) -> None:
    """Against all values of the domain, listed as decimals."""
    scale = Decimal(10) ** decimals
    values = [Decimal(unit) / scale for unit in range(low, low + size)]
    column = number(low=float(values[0]), high=float(values[-1]), decimals=decimals)
    assert column.size == size
    assert [column.index(column.word(value)) for value in values] == list(range(size))


def test_places_of_categories_and_dates() -> None:
    words = CategoryColumn(name="x", type="category", values=("b", "a", "c"), missing=True)
    assert (words.size, [words.index(word) for word in ("b", "a", "c")]) == (3, [0, 1, 2])
    days = DateColumn(name="day", type="date", low=datetime.date(2019, 12, 31), high=datetime.date(2020, 3, 1))
    assert (days.size, days.index("2019-12-31"), days.index("2020-03-01")) == (62, 0, 61)
    for column, word in (
        (words, "d"),
        (words, MISSING),
        (days, "2020-03-02"),
        (days, "x"),
        (number(low=0, high=9), "10"),
    ):
        with pytest.raises(ValueError, match=f"a word of column '{column.name}' is outside the public domain"):
            column.index(word)


@pytest.mark.parametrize(
    ("cell", "word"),
    [
        (3, "3.0"),
        ("3", "3.0"),
        (" 2.94 ", "2.9"),
        (2.95, "3.0"),  # to even in decimal
        (-1, "-1.0"),
        (np.float64(0.04), "0.0"),
        (-0.04, "0.0"),
        (Decimal("1.5"), "1.5"),
    ],
)
def test_cells_of_numbers_are_rounded_to_the_decimals(cell: Any, word: str) -> None:
    column = number(low=-1, high=3, decimals=1)
    assert column.word(cell) == word
    assert column.cell(word) == float(word)


@pytest.mark.parametrize("cell", ["secret", 3.2, "1e400", "nan", float("inf"), True, [], {}, b"x", "٣x"])
def test_a_value_outside_the_domain_is_never_shown(cell: Any) -> None:
    columns = [
        number(low=-1, high=3, decimals=1),
        CategoryColumn(name="x", type="category", values=("yes", "no")),
        DateColumn(name="x", type="date", low=datetime.date(2000, 1, 1), high=datetime.date(2000, 2, 1)),
    ]
    for column in columns:
        with pytest.raises(
            ValueError, match=r"is outside the public domain of the schema \((a number|one of 2|a date)"
        ) as error:
            column.word(cell)
        assert "secret" not in str(error.value)


def test_missing_cells() -> None:
    column = number(low=0, high=9, missing=True)
    for cell in (None, "", float("nan")):
        assert column.word(cell) == MISSING
        with pytest.raises(ValueError, match="is empty, but the schema does not allow missing values"):
            number(low=0, high=9).word(cell)
    assert column.cell(MISSING) is None


def test_whole_numbers_of_a_column_with_empty_cells_are_still_categories() -> None:
    """Parquet and pandas read such a column as floats."""
    column = CategoryColumn(name="x", type="category", values=("1", "2"), missing=True)
    assert column.word(1.0) == "1"
    assert column.word(2) == "2"


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"type": "number", "low": 2, "high": 1}, "low at most high"),
        ({"type": "number", "low": 0.2, "high": 0.4}, "no number with this number of decimals"),
        ({"type": "number", "low": 0, "high": 1e12, "decimals": 9}, "too large for this number of decimals"),
        ({"type": "number", "low": float("nan"), "high": 1}, "must be finite"),
        ({"type": "category", "values": []}, "at least 1 item"),
        ({"type": "category", "values": [True, False]}, "put numbers and truth values between quotes"),
        ({"type": "category", "values": ["a", "a"]}, "name each category once"),
        ({"type": "category", "values": [" a"]}, "without spaces at their ends"),
        ({"type": "category", "values": ["missing"]}, "stands for an empty cell"),
        ({"type": "date", "low": "2000-01-02", "high": "2000-01-01"}, "low must not be after high"),
        ({"type": "text"}, "does not match any of the expected tags"),
    ],
)
def test_invalid_columns_are_refused(column: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Schema.model_validate({"columns": [{"name": "x", **column}]})


def test_names_are_distinct_and_printable() -> None:
    item = {"type": "category", "values": ["a"]}
    for names, message in ((("x", "x"), "same name"), (("x\n",), "printable"), ((" x",), "without spaces")):
        with pytest.raises(ValidationError, match=message):
            Schema.model_validate({"columns": [{"name": name, **item} for name in names]})


def test_uniform_rows_are_in_the_domain_and_reach_all_of_it() -> None:
    schema = Schema.model_validate(
        {
            "columns": [
                {"name": "a", "type": "number", "low": -1, "high": 1, "missing": True},
                {"name": "b", "type": "category", "values": ["x", "y"], "missing": True},
                {"name": "c", "type": "date", "low": "2000-02-28", "high": "2000-03-01"},
            ]
        }
    )
    rng = np.random.default_rng(0)
    rows = [schema.uniform(rng) for _ in range(500)]
    assert {row[0] for row in rows} == {"-1", "0", "1", MISSING}
    assert {row[1] for row in rows} == {"x", "y", MISSING}
    assert {row[2] for row in rows} == {"2000-02-28", "2000-02-29", "2000-03-01"}
    for row in rows[:50]:
        cells = dict(zip(schema.names, schema.cells(row), strict=True))
        assert schema.row(cells) == row


@pytest.mark.parametrize("cell", ["1e9999999", "-1e9999999", "1e-9999999", "9" * 5000])
def test_numbers_beyond_all_bounds_are_outside_or_0(cell: str) -> None:
    column = NumberColumn(name="x", type="number", low=0, high=9)
    if cell == "1e-9999999":
        assert column.word(cell) == "0"
    else:
        with pytest.raises(ValueError, match="outside the public domain"):
            column.word(cell)
