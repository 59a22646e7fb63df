"""Domains of tables: which words they have, what begins one, and messages that show no value."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from written_tables import Writing, people, writings

from dpassay.base.errors import InputError
from dpassay.data.columns import MARKS, Rules
from dpassay.data.proposed_schema import proposed_schema
from dpassay.data.records import read_rows
from dpassay.data.table_schema import MISSING, CategoryColumn, DateColumn, NumberColumn, Schema, read_schema


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
    assert [column.word_at(index) for index in range(size)] == [column.word(value) for value in values]


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
    assert [words.word_at(index) for index in range(3)] == ["b", "a", "c"]
    assert [days.word_at(index) for index in (0, 61)] == ["2019-12-31", "2020-03-01"]
    for column, index in ((words, 3), (days, -1), (number(low=0, high=9), 10)):
        with pytest.raises(ValueError, match=f"index must be from 0 to {column.size - 1} in column"):
            column.word_at(index)


def test_indices_of_rows() -> None:
    words = CategoryColumn(name="w", type="category", values=("b", "a"), missing=True)
    schema = Schema(columns=(words, number(low=-1, high=1, decimals=1)))
    indices = schema.indices([("a", "-1.0"), (MISSING, "0.3"), ("b", "1.0")])
    assert [column.tolist() for column in indices] == [[1, -1, 0], [0, 13, 20]]
    for row, message in ((("a",), "has other columns"), (("secret", "0.0"), "outside the public domain")):
        with pytest.raises(ValueError, match=message) as error:
            schema.indices([row])
        assert "secret" not in str(error.value)


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


@pytest.mark.parametrize("cell", ["secret", 3.2, "1e400", float("inf"), True, [], {}, b"x", "٣x"])
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


def date(**given: Any) -> DateColumn:
    return DateColumn(name="x", type="date", low=datetime.date(2019, 12, 28), high=datetime.date(2030, 1, 1), **given)


def test_marks_of_missing_cells_are_empty_among_numbers_and_dates_and_words_elsewhere() -> None:
    for mark in [*MARKS, "NA", "NaN", " N/A ", "\\N"]:
        assert number(low=0, high=9, missing=True).word(mark) == MISSING
        assert date(missing=True).word(mark) == MISSING
        for column in (number(low=0, high=9), date()):
            with pytest.raises(ValueError, match="is marked as missing, but the schema does not allow missing values"):
                column.word(mark)
    words = CategoryColumn(name="x", type="category", values=("NA", "a"), missing=True)
    assert words.word("NA") == "NA"
    assert words.word("NA", Rules(missing=["na"])) == MISSING


def test_words_that_are_stated_to_be_missing() -> None:
    rules = Rules(missing=["-9", "Unknown"])
    for column in (number(low=-9, high=9, missing=True), date(missing=True)):
        assert {column.word(cell, rules) for cell in ("-9", " unknown", "NA", "", None)} == {MISSING}
    assert number(low=-9, high=9).word("-9") == "-9"
    assert number(low=-9, high=9).word("-8", rules) == "-8"
    with pytest.raises(ValueError, match="is marked as missing"):
        number(low=-9, high=9).word("-9", rules)


@pytest.mark.parametrize(
    ("cell", "decimal", "word"),
    [
        ("1200.5", None, "1200.5"),
        ("1200.5", ".", "1200.5"),
        ("1,200.5", ".", "1200.5"),
        ("1,200", ".", "1200.0"),
        ("1.200,5", ",", "1200.5"),
        ("1200,5", ",", "1200.5"),
        ("12", ",", "12.0"),
        ("-0,25", ",", "-0.2"),  # to even in decimal
        (12.5, ",", "12.5"),
        ("1,200.5", None, "written as in 1,200.5, but no decimal is stated; state decimal ('.')"),
        ("1,200", None, "written as in 1,200.5 or 1.200,5, but no decimal is stated; state decimal (',', '.')"),
        ("1200,5", ".", "written as in 1.200,5, but decimal is stated as '.'"),
        ("1200.5", ",", "written as in 1200.5 or 1,200.5, but decimal is stated as ','"),
        ("12 cm", ",", "is outside the public domain"),
    ],
)
def test_decimals_are_read_as_stated_or_refused(cell: Any, decimal: str | None, word: str) -> None:
    column, rules = number(low=-9, high=2000, decimals=1), Rules(decimal=decimal)
    if word[:1].isdigit() or word[:1] == "-":
        assert column.word(cell, rules) == word
    else:
        with pytest.raises(ValueError, match="is ") as error:
            column.word(cell, rules)
        assert word in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "cell",
    [
        "2020-05-31",
        " 2020-05-31",
        "20200531",
        "2020-05-31 00:00:00",
        "2020-05-31T00:00:00",
        datetime.date(2020, 5, 31),
        datetime.datetime(2020, 5, 31),
    ],
)
def test_dates_are_read_as_in_iso_8601(cell: Any) -> None:
    assert date().word(cell) == "2020-05-31"


@pytest.mark.parametrize(
    ("cell", "form"),
    [
        ("31.05.2020", "31.05.2013"),
        ("31/05/2020", "31/05/2013"),
        ("05/31/2020", "05/31/2013"),
        ("05/04/2020", "31/05/2013 or 05/31/2013"),
        ("2020/05/31", "2013/05/31"),
        ("2020-05-31 12:30", "2013-05-31 12:30"),
        (datetime.datetime(2020, 5, 31, 12, 30), "2013-05-31 12:30"),
    ],
)
def test_other_dates_are_refused_with_the_form_that_is_read(cell: Any, form: str) -> None:
    with pytest.raises(ValueError, match="dates are read as in 2013-05-31 only") as error:
        date().word(cell)
    assert f"is written as in {form}, but" in str(error.value)
    assert "2020" not in str(error.value)


PEOPLE = [{name: row[name] for name in ("height", "income", "visit", "city")} for row in people(60, 1)]
DOMAINS = [
    {"name": "height", "type": "number", "low": 100, "high": 250, "decimals": 1, "missing": True},
    {"name": "income", "type": "number", "low": 0, "high": 10**6, "missing": True},
    {"name": "visit", "type": "date", "low": "2020-01-01", "high": "2024-12-31", "missing": True},
    {"name": "city", "type": "category", "values": ["Kiel", "Ulm", "Bonn", "Köln"]},
]
WRITINGS = list(dict.fromkeys(replace(written, truth=("False", "True")) for written in writings()))


def read(written: Writing, folder: Path) -> list[Any]:
    """The rows of `PEOPLE`, written so; a latin-1 file is not read as UTF-8, which the tests of the reader hold."""
    if written.encoding == "latin-1" or (written.encoding == "utf-16" and written.packed):
        written = replace(written, encoding="utf-8")
    rows = (dict(row) for _, row in read_rows(written.write(PEOPLE, folder / "people")))
    return [{name: cell for name, cell in row.items() if name != "Unnamed: 0"} for row in rows]


@pytest.mark.grid
@pytest.mark.parametrize("written", WRITINGS, ids=range(len(WRITINGS)))
def test_however_a_table_is_written_its_words_are_the_same_or_it_is_refused(written: Writing, tmp_path: Path) -> None:
    """Numbers need their sign where they are not plain, and dates are read in one form."""
    schema = Schema.model_validate({"columns": DOMAINS})
    plain = [tuple(MISSING if cell is None else str(cell) for cell in row.values()) for row in PEOPLE]
    rows = read(written, tmp_path)
    is_plain = written.decimal == "." and not written.thousands
    is_iso = written.dates.startswith("%Y-")
    for decimal in (None, ".", ","):
        if is_iso and (is_plain if decimal is None else decimal == written.decimal):
            assert [schema.row(row, Rules(decimal=decimal)) for row in rows] == plain
        else:
            with pytest.raises(ValueError, match=r"column '.*': is written as in .*, but ") as error:
                [schema.row(row, Rules(decimal=decimal)) for row in rows]
            assert "\n" not in str(error.value)


@pytest.mark.grid
@pytest.mark.parametrize("written", WRITINGS, ids=range(len(WRITINGS)))
def test_however_a_sample_is_written_its_schema_is_the_same(written: Writing, tmp_path: Path) -> None:
    plain = proposed_schema(PEOPLE)
    assert [column["type"] for column in plain.columns] == ["number", "number", "date", "category"]
    rows = read(written, tmp_path)
    assert proposed_schema(rows, rules=Rules(decimal=written.decimal)).columns == plain.columns
    result = proposed_schema(rows)
    for column, right, summary in zip(result.columns, plain.columns, result.understood, strict=True):
        is_guess = summary.warnings[:1] == ("read as in 1200.5; it could also be 1.200,5",)
        assert is_guess == (written.decimal == "," and written.thousands and column["name"] == "income")
        assert (column == right) is not is_guess


SCHEMA_FILES = {
    "columns: 1": "columns: must be a list of columns",
    "columns: []": "columns: must not be empty",
    "colums: []": "colums: unknown key; known are columns, made_from; did you mean 'columns'?",
    "rows: []": "columns: is missing, so this is no schema; `dpassay table schema` writes one from a table",
    "columns: [1]": "column 1: must be a mapping with the keys name and type",
    "columns: [{name: x}]": "column 'x': type: is missing",
    "columns: [{name: x, type: numbr, low: 1, high: 2}]": (
        "column 'x': type: must be category, number or date; did you mean 'number'?"
    ),
    "columns: [{name: x, type: 5}]": "column 'x': type: must be category, number or date",
    "columns: [{type: number, low: 1, high: 2}]": "column 1: name: is missing",
    "columns: [{name: 5, type: number, low: 1, high: 2}]": (
        "column 1: name: must be a word of at most 200 characters; put it between quotes"
    ),
    "columns: [{name: x, type: number, low: 1}]": "column 'x': high: is missing",
    "columns: [{name: x, type: number, low: 1, hihg: 2}]": (
        "column 'x': hihg: unknown key; known are name, missing, type, low, high, decimals; did you mean 'high'?"
    ),
    "columns: [{name: x, type: number, low: a, high: 2}]": "column 'x': low: must be a number",
    "columns: [{name: x, type: number, low: 3, high: 2}]": (
        "column 'x': low and high: must be finite numbers, low at most high"
    ),
    "columns: [{name: x, type: number, low: 1, high: 2, decimals: 1.5}]": (
        "column 'x': decimals: must be a whole number from 0 to 9"
    ),
    "columns: [{name: x, type: number, low: 1, high: 2, decimals: 12}]": (
        "column 'x': decimals: must be a whole number from 0 to 9"
    ),
    "columns: [{name: x, type: number, low: 1, high: 2, missing: 1}]": "column 'x': missing: must be true or false",
    "columns: [{name: x, type: date, low: soon, high: 2020-01-01}]": (
        "column 'x': low: must be a date as in 2013-05-31"
    ),
    "columns: [{name: x, type: category, values: a}]": "column 'x': values: must be a list of words",
    "columns: [{name: x, type: category, values: []}]": "column 'x': values: must not be empty",
    "columns: [{name: x, type: category, values: [no]}]": (
        'column \'x\': values: must be words; put numbers and truth values between quotes, such as "1" or "no"'
    ),
    "columns: [{name: x, type: category, values: [a, a]}]": "column 'x': values: must name each category once",
    "columns: [{1: 2, name: x, type: category, values: [a]}]": (
        "column 'x': 1: unknown key; known are name, missing, type, values"
    ),
    "columns: [{name: x, type: category, values: [a]}, {name: x, type: category, values: [a]}]": (
        "columns: two have the same name"
    ),
}


@pytest.mark.parametrize("content", SCHEMA_FILES)
def test_a_schema_file_is_refused_in_words_of_our_own(content: str, tmp_path: Path) -> None:
    path = tmp_path / "schema.yaml"
    path.write_text(content)
    with pytest.raises(InputError) as error:
        read_schema(path)
    assert str(error.value) == f"{path}: {SCHEMA_FILES[content]}"


@pytest.mark.parametrize(("count", "is_read"), [(5000, True), (5001, False)])
def test_a_schema_has_up_to_5000_columns(count: int, is_read: bool, tmp_path: Path) -> None:
    columns = "".join(f"- {{name: x{number}, type: category, values: [a]}}\n" for number in range(count))
    (tmp_path / "schema.yaml").write_text(f"columns:\n{columns}")
    if is_read:
        assert len(read_schema(tmp_path / "schema.yaml")[0].columns) == count
    else:
        with pytest.raises(InputError, match="columns: has 5001 entries, and at most 5000 are allowed"):
            read_schema(tmp_path / "schema.yaml")
