"""Canaries of tables: columns are understood, rows are unusual, distances are Gower's."""

from __future__ import annotations

import datetime
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dpassay.attacks.canaries import rows as planted_rows
from dpassay.attacks.canaries.rows import ColumnRange, RangeReader, draw_rows, draw_unusual_rows, nearest
from dpassay.attacks.canaries.spelling import PLAIN, Spelling
from dpassay.base.pieces import pieces

COLUMNS = [
    ColumnRange("id", "other"),
    ColumnRange("age", "number", 18, 90),
    ColumnRange("spent", "number", 0, 50, decimals=2, quoted=True, spelling=Spelling(places=2)),
    ColumnRange("city", "word", values=("Bergen", "Delft", "Ghent")),
    ColumnRange("flag", "number", 7, 7),
]


def read(*values: Any) -> ColumnRange:
    reader = RangeReader("x")
    for value in values:
        reader.read(value)
    return reader.column


@pytest.mark.parametrize(
    ("values", "column"),
    [
        ((3, None, 1, ""), ColumnRange("x", "number", 1, 3, missing=0.5)),
        ((3, 1, 3, 1), ColumnRange("x", "number", 1, 3, values=(1, 3))),
        (("2020-02-28", "2020-03-01"), ColumnRange("x", "date", 737483, 737485, quoted=True)),
        ((datetime.date(2020, 2, 28),) * 2, ColumnRange("x", "date", 737483, 737483, values=("2020-02-28",))),
        (("28/02/2020", "01/03/2020"), ColumnRange("x", "date", 737483, 737485, quoted=True)),
        (("2020-02-28 06:00", "2020-03-01 12:00"), ColumnRange("x", "time", 737483.25, 737485.5, quoted=True)),
        (("2020-02-28", "later"), ColumnRange("x", "word", values=("2020-02-28", "later"))),
        ((3.0, 1.25), ColumnRange("x", "number", 1.25, 3, decimals=2)),
        (("10", "-2.5"), ColumnRange("x", "number", -2.5, 10, decimals=1, quoted=True)),
        (("yes", "no", "Yes "), ColumnRange("x", "word", values=("no", "yes"))),
        ((True, False), ColumnRange("x", "number", 0, 1, values=(False, True))),
        (("TRUE", "true "), ColumnRange("x", "number", 1, 1, values=("TRUE",), quoted=True)),
        (("1,200", "950"), ColumnRange("x", "number", 950, 1200, quoted=True)),
        (("1.200,50", "9,25"), ColumnRange("x", "number", 9.25, 1200.5, decimals=2, quoted=True)),
        (("1", "one"), ColumnRange("x", "word", values=("1", "one"))),
        (tuple(f"name {i}" for i in range(201)), ColumnRange("x", "other")),
        (([1],), ColumnRange("x", "other")),
        ((None, float("nan")), ColumnRange("x", "other", missing=1.0)),
        (("inf", "nan"), ColumnRange("x", "word", values=("inf", "nan"))),
        ((10**20, 1), ColumnRange("x", "other")),
    ],
)
def test_what_a_column_is_like(values: tuple[Any, ...], column: ColumnRange) -> None:
    result = read(*values)
    assert replace(result, form="", spelling=PLAIN) == column


def test_drawn_values_look_like_the_column() -> None:
    rows = draw_rows(2000, COLUMNS, np.random.default_rng(0))
    assert {row["age"] for row in rows} == set(range(18, 91))  # 2000 draws miss one of 73 with probability below 1e-10
    assert {row["city"] for row in rows} == {"Bergen", "Delft", "Ghent"}
    assert len({row["id"] for row in rows}) == 2000
    assert {row["flag"] for row in rows} == {7}
    spent = [str(row["spent"]) for row in rows]
    assert all(0 <= float(value) <= 50 and len(value.partition(".")[2]) == 2 for value in spent)


def by_hand(item: dict[str, Any], other: dict[str, Any]) -> float:
    """Gower's distance, written out."""
    total = 0.0
    total += min(abs(item["age"] - other["age"]) / 72, 1) if isinstance(other.get("age"), int) else 1
    total += min(abs(float(item["spent"]) - float(other["spent"])) / 50, 1) if other.get("spent") else 1
    total += item["city"].strip().casefold() != str(other.get("city")).strip().casefold()
    total += other.get("flag") != 7
    return float(total / 4)


def others() -> list[dict[str, Any]]:
    draw = random.Random(5)
    out: list[dict[str, Any]] = [
        {"age": draw.randint(0, 120), "spent": f"{draw.uniform(-9, 60):.1f}", "city": draw.choice(["ghent ", "Oslo"])}
        for _ in range(40)
    ]
    return [*out, {"age": None, "spent": "", "city": None, "flag": 7}, {"age": "old", "city": "DELFT", "flag": 7.0}]


@pytest.mark.parametrize("cells", [1, 130, 4_000_000])
def test_distances_are_those_by_hand_whatever_the_pieces(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_rows, "CELLS", cells)
    rows = draw_rows(30, COLUMNS, np.random.default_rng(1))
    result, count = nearest(rows, COLUMNS, iter(others()))
    assert count == len(others())
    np.testing.assert_allclose(result, [min(by_hand(row, other) for other in others()) for row in rows], atol=1e-12)


def test_no_more_than_a_piece_of_the_others_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_rows, "CELLS", 300)
    rows = draw_rows(30, COLUMNS, np.random.default_rng(1))
    taken = itertools.count(1)

    def endless() -> Iterator[dict[str, Any]]:
        while next(taken):
            yield others()[0]

    lengths = [len(piece) for piece in itertools.islice(pieces(endless(), 300 // len(rows)), 5)]
    assert (lengths, next(taken)) == ([10] * 5, 51)


def test_a_repeated_row_is_at_distance_zero_and_nothing_at_distance_one() -> None:
    rows = draw_rows(5, COLUMNS, np.random.default_rng(1))
    assert nearest(rows, COLUMNS, [rows[3]])[0][3] == 0
    assert nearest(rows, COLUMNS, [])[0].tolist() == [1] * 5


def test_unusual_rows_are_distinct_far_from_the_data_and_in_its_ranges() -> None:
    draw = random.Random(2)
    known = [
        {"id": i, "age": a, "spent": f"{a / 2:.2f}", "city": "Delft", "flag": 7}
        for i in range(300)
        if (a := draw.randint(18, 90))
    ]
    rows, distances = draw_unusual_rows(100, COLUMNS, known, np.random.default_rng(3))
    assert len({(row["age"], row["spent"], row["city"]) for row in rows}) == 100
    np.testing.assert_array_equal(nearest(rows, COLUMNS, known)[0], distances)
    random_rows = draw_rows(100, COLUMNS, np.random.default_rng(4))
    assert distances.min() > np.quantile(nearest(random_rows, COLUMNS, known)[0], 0.3)  # about the median of a pool
    assert {row["city"] for row in rows} <= {"Bergen", "Delft", "Ghent"}


def test_rows_that_the_columns_allow_are_found_whatever_is_drawn_first() -> None:
    """Twenty of forty rows are in the data, so eight others can be had; a pool of sixteen may hold fewer."""
    columns = [
        ColumnRange("name", "word", values=tuple(f"C-{number}" for number in range(20))),
        ColumnRange("place", "word", values=("Delft", "Oslo")),
    ]
    known = [{"name": f"C-{number}", "place": ("Oslo", "Delft")[number % 2]} for number in range(20)]
    for seed in range(1000):
        rows, distances = draw_unusual_rows(8, columns, known, np.random.default_rng(seed))
        assert len({(row["name"], row["place"]) for row in rows}) == 8
        assert distances.min() > 0


def test_too_few_different_rows_are_refused() -> None:
    few = [ColumnRange("a", "word", values=("x", "y")), ColumnRange("b", "word", values=("x", "y"))]
    with pytest.raises(ValueError, match="fewer than 4 distinct rows that are not in the data; plan fewer"):
        draw_unusual_rows(4, few, [{"a": "x", "b": "x"}], np.random.default_rng(0))
    with pytest.raises(ValueError, match="no column holds numbers, dates or at most 200 distinct words"):
        draw_unusual_rows(4, [ColumnRange("a", "other")], [], np.random.default_rng(0))
