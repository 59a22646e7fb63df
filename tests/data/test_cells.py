"""Cells of tables mean the same whatever library or format wrote them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from dpassay.data.cells import as_category, as_day, as_number

DAY = datetime.date(1955, 1, 28)
EAST = datetime.timezone(datetime.timedelta(hours=2))


@pytest.mark.parametrize(
    "cell",
    [
        DAY,
        "1955-01-28",
        "1955-01-28 00:00:00",
        "1955-01-28T00:00:00",
        "1955-01-28T00:00:00.000Z",
        "1955-01-28 00:00:00+02:00",
        datetime.datetime(1955, 1, 28),
        datetime.datetime(1955, 1, 28, tzinfo=datetime.UTC),
        datetime.datetime(1955, 1, 28, tzinfo=EAST),
    ],
)
def test_midnight_is_a_date(cell: Any) -> None:
    assert as_day(cell) == DAY.toordinal()


@pytest.mark.parametrize(
    "cell",
    [
        "1955-01-28 00:00:01",
        "1955-01-28 at noon",
        "28.01.1955",
        "1955-02-30 00:00:00",
        1955,
        None,
        "1955-01-28T25:00:00",
        datetime.datetime(1955, 1, 28, 7, tzinfo=EAST),
    ],
)
def test_other_times_are_no_dates(cell: Any) -> None:
    assert as_day(cell) is None


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        (Decimal("12.50"), 12.5),
        (Decimal(7), 7.0),
        (Decimal("Infinity"), None),
        (Decimal("NaN"), None),
        ("12,124", None),
    ],
)
def test_decimals_are_numbers(cell: Any, number: float | None) -> None:
    assert as_number(cell) == number


@pytest.mark.parametrize("cell", [367, 367.0, "367", "367.0", " 367 ", Decimal("367.00"), Decimal(367)])
def test_whole_numbers_are_one_category(cell: Any) -> None:
    assert as_category(cell) == "367"
