"""What a column holds is one decision, whatever the file writes it like."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.data.column_summary import summarised
from dpassay.data.columns import Column, ColumnReader, Form, Kind, Rules, readers_of


def column_of(cells: list[Any], decimal: str | None = None) -> Column:
    reader = ColumnReader("x", Rules(decimal=decimal))
    for cell in cells:
        reader.read(cell)
    return reader.column()


@pytest.mark.parametrize(
    ("cells", "kind", "low", "high", "missing", "odd"),
    [
        (["1", "2.5", ""], "number", 1, 2.5, 1, 0),
        (["1", "2", "NA", " null "], "number", 1, 2, 2, 0),
        (["1,200", "950", "1,000,000"], "number", 950, 1e6, 0, 0),
        (["1.200,5", "3,25"], "number", 3.25, 1200.5, 0, 0),
        ([1, 2, None, float("nan")], "number", 1, 2, 2, 0),
        (["True", "false", "TRUE"], "number", 0, 1, 0, 0),
        ([True, False, None], "number", 0, 1, 1, 0),
        ([*map(str, range(99)), "170 cm"], "number", 0, 98, 0, 1),
        (["2013-05-01", "2013-05-31T00:00:00"], "date", 734989, 735019, 0, 0),
        ([datetime.date(2013, 5, 1), datetime.datetime(2013, 5, 31)], "date", 734989, 735019, 0, 0),
        (["01/05/2013", "31/05/2013"], "date", 734989, 735019, 0, 0),
        (["05/01/2013", "05/31/2013"], "date", 734989, 735019, 0, 0),
        (["1.5.2013", "31.5.2013"], "date", 734989, 735019, 0, 0),
        (["2013/05/01", "2013/05/31"], "date", 734989, 735019, 0, 0),
        (["2013-05-01 12:00", "2013-05-31"], "time", 734989.5, 735019, 0, 0),
    ],
)
def test_numbers_and_dates(cells: list[Any], kind: str, low: float, high: float, missing: int, odd: int) -> None:
    column = column_of(cells)
    assert (column.kind, column.low, column.high, column.missing, column.odd) == (kind, low, high, missing, odd)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (["a", "b"] * 20, "category"),
        (["a"] * 9, "constant"),
        (["7"] * 9, "constant"),
        ([f"id-{number}" for number in range(50)], "identifier"),
        ([f"this is sentence number {number}" for number in range(500)], "text"),
        ([["a"], ["b"]], "nested"),
        (["170 cm", "180 cm"], "category"),
        (["NA", "none", "x"], "category"),
        ([str(10**17 + number) for number in range(50)], "identifier"),
        ([10**17 + number % 5 for number in range(50)], "category"),
        ([f"-{10**17 + number % 5}" for number in range(50)], "category"),
        ([str(2**53 - number) for number in range(50)], "number"),
        ([str(2.0**60 * number) for number in range(50)], "number"),
    ],
)
def test_words(cells: list[Any], kind: str) -> None:
    assert column_of(cells).kind == kind


def test_a_guess_is_known_as_one() -> None:
    assert column_of(["01/02/2020", "03/04/2021"]).also == (Form.MONTH_FIRST,)
    assert column_of(["01/02/2020", "31/04/2021"]).also == ()
    assert column_of(["1.200", "35.500", "950"]).also == (Form.COMMA,)
    assert column_of(["1.200", "35.500", "950", "0.5"]).also == ()
    assert column_of(["1.200", "35.500"]).also == ()  # another unit of all
    assert column_of(["1.200", "35.500", "950,5"]).value("1.200") == 1200
    assert column_of(["1.200", "1.000.000"]).value("1.200") == 1200
    assert column_of(["1.200", "35.500"], decimal=",").value("1.200") == 1200


def test_words_are_alike_whatever_the_file_writes() -> None:
    column = column_of(["True", "False"])
    assert column.value(True) == column.value(" true ") == column.value("TRUE") == 1
    assert column_of(["a", "1", "2"]).value(1.0) == column_of(["a", "1", "2"]).value("1")


@pytest.mark.parametrize("cells", [["", ""], ["0", "1e307"], [0.0, 1.7e308]])
def test_columns_without_a_number_or_with_a_huge_one_are_read(cells: list[Any]) -> None:
    reader = ColumnReader("x", Rules({"x": Kind.NUMBER}))
    for cell in cells:
        reader.read(cell)
    assert reader.column().kind == "number"


def test_midnights_elsewhere_are_days_and_among_times_moments() -> None:
    midnight, later = "2020-06-01T00:00:00+02:00", "2020-06-01T02:00:00+02:00"
    times, days = column_of([midnight, later]), column_of([midnight, "2020-06-02T00:00:00+02:00"])
    assert times.high - times.low == pytest.approx(2 / 24)
    assert (days.form, days.low, days.also) == (Form.DAY, datetime.date(2020, 6, 1).toordinal(), ())


@pytest.mark.parametrize(
    ("cells", "warned"),
    [
        (["12.5%", "7%"], True),
        (["$1,200", "$7"], True),
        (["1\u00a0200", "2\u00a0000"], True),
        (["(1,200)", "\u22125"], True),
        (["170 cm", "1.8 m"], True),
        (["01.05.99", "31.05.99"], True),
        (["5-Jan-1990", "Feb 7, 1991"], True),
        (["a1", "b2"], False),
        (["2019-Q1", "2019-Q2"], False),
        (["0x1f", "0x2f"], False),
        (["12 High Street", "3 Low Road"], False),
    ],
)
def test_words_that_look_like_numbers_or_dates_are_warned_of(cells: list[str], warned: bool) -> None:
    readers = readers_of({"x": cell} for cell in cells)
    summary = summarised(readers["x"].column(), {"data": readers["x"]})
    assert any("look like numbers or dates" in said for said in summary.warnings) is warned
    assert not any(cell in said for cell in cells for said in summary.warnings)


def test_keys_of_many_digits_stay_apart() -> None:
    column = column_of([str(10**17 + number % 30) for number in range(99)])
    assert len({column.value(str(10**17 + number)) for number in range(30)}) == 30


CELLS = [
    "1",
    "-2.5",
    " 7 ",
    "1e3",
    "1e400",
    "nan",
    "NA",
    "",
    "1_0",
    "0x1",
    "٣",
    "1,200",
    "1.200",
    "9007199254740993",
    "inf",
]


@examples(200, 2000)
@given(
    st.lists(st.one_of(st.sampled_from(CELLS), st.floats().map(str), st.none(), st.floats()), min_size=1, max_size=3)
)
def test_many_cells_at_once_are_read_as_one_by_one(cells: list[Any]) -> None:
    for form in (Form.POINT, Form.THOUSANDS, Form.COMMA, None):
        column = Column("x", Kind.NUMBER if form else Kind.TEXT, form, 1, 0, 0, 1)
        together = column.plain_numbers(cells)
        assert together is None or together == [column.number(cell) for cell in cells]
    assert Column("x", Kind.NUMBER, Form.POINT, 2, 0, 0, 2).plain_numbers(["1", "-2.5e-3"]) == [1.0, -0.0025]
