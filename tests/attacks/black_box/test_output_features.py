"""Features of outputs: against a computation that is slow and obvious, on outputs of any kind, in any pieces."""

from __future__ import annotations

import datetime
import decimal
import itertools
import json
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box import output_features
from dpassay.attacks.black_box.column_facts import ColumnFacts, describe_columns
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample
from dpassay.attacks.black_box.output_events import EXCHANGED
from dpassay.attacks.black_box.output_features import FAILED, LESS, MORE, Features, OutputFeatures, failed
from dpassay.attacks.black_box.row_order import CHANGES, DESCENTS, FIRST, LAST, ORDERED, PLACE
from dpassay.attacks.black_box.worst_cases import STRATEGIES, neighboring_data
from dpassay.data.columns import Kind, Rules

ROWS: list[dict[str, Any]] = [
    {
        "age": 20 + 3 * place % 47,
        "paid": round(1.25 * place**1.5, 2),
        "city": "Ulm" if place == 3 else ("Bonn", "Kiel", "Jena")[place % 3],
        "plan": place % 2,
        "note": f"rain and sun and number {place % 4} of snow",
    }
    for place in range(24)
]
COLUMNS = describe_columns(ROWS, rules=Rules({"note": Kind.TEXT}))
PAIRS = (
    *neighboring_data(Sample(tuple(ROWS), COLUMNS, Adjacency.ADD_REMOVE), np.random.default_rng(1), list(STRATEGIES)),
    *neighboring_data(
        Sample(tuple(ROWS), COLUMNS, Adjacency.REPLACE_ONE), np.random.default_rng(1), ["opposite_outliers"]
    ),
)
NAMES = [pair.name for pair in PAIRS]
FEATURES = OutputFeatures(COLUMNS, PAIRS)
FEATURES_TARGET = next(pair.target for pair in PAIRS if pair.name == "ordinary")


NUMBERS = ("age", "paid", "plan")
"""Columns of numbers; a plan is 0 or 1."""


def missing(name: str, value: Any) -> bool:
    if value is None or value == "" or value != value:
        return True
    marks = ("na", "n/a", "#n/a", "nan", "null", "none", "-", "?", ".", "\\n")
    return name in NUMBERS and isinstance(value, str) and value.strip().casefold() in marks


def number(name: str, value: Any) -> float | None:
    if name not in NUMBERS or (isinstance(value, bool) and name != "plan"):
        return None
    if name == "plan" and isinstance(value, str) and value.strip().casefold() in ("true", "false"):
        return float(value.strip().casefold() == "true")
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(result) or (isinstance(value, int) and result != value):  # a float does not hold it
        return None
    return result


def word(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value):
        return str(int(value))
    text = str(value).strip() if not isinstance(value, int) or abs(value) < 10**4000 else hex(value)
    return (text[:-2] if text.endswith(".0") and text[:-2].lstrip("-").isdigit() else text).casefold()


def meaning(name: str, value: Any) -> float | str | None:
    """What a cell means in a column; None if it is missing."""
    if missing(name, value):
        return None
    result = number(name, value)
    return word(value) if result is None else result


def words(value: Any) -> list[str]:
    if not isinstance(value, str):
        return []
    spaced = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in value.casefold())
    return spaced.split()


def slow_whole(rows: Sequence[dict[str, Any]]) -> Features:
    """What `OutputFeatures` says of an output alone, row by row."""
    names = [column.name for column in COLUMNS]
    results: Features = {
        FAILED: 0.0,
        "rows": len(rows),
        "distinct rows": len({tuple(meaning(name, row.get(name)) for name in names) for row in rows}),
        "empty cells": sum(missing(name, row.get(name)) for row in rows for name in names),
        "other columns": len({name for row in rows for name in {*row, *names} if name not in row or name not in names}),
    }
    neighbours = [(first, second) for first, second in itertools.pairwise(rows)]
    if neighbours:
        differ = [
            meaning(name, first.get(name)) != meaning(name, second.get(name))
            for first, second in neighbours
            for name in names
        ]
        results[CHANGES] = sum(differ) / len(differ)
    numeric = [column.name for column in COLUMNS if column.name in NUMBERS]
    steps = [
        (number(name, first.get(name)), number(name, second.get(name)))
        for first, second in neighbours
        for name in numeric
    ]
    known = [(first, second) for first, second in steps if first is not None and second is not None]
    if known:
        results[DESCENTS] = sum(second < first for first, second in known) / len(known)
    for column in COLUMNS:
        cells = [row.get(column.name) for row in rows]
        results[f"{column.name}: empty cells"] = sum(missing(column.name, cell) for cell in cells)
        results[f"{column.name}: distinct values"] = len({meaning(column.name, cell) for cell in cells})
        numbers = [item for cell in cells if (item := number(column.name, cell)) is not None]
        if column.kind == "number" and numbers:
            mean = math.fsum(item / len(numbers) for item in numbers)
            results[f"{column.name}: smallest"], results[f"{column.name}: largest"] = min(numbers), max(numbers)
            results[f"{column.name}: mean"] = mean
            spread = math.fsum((item - mean) ** 2 / len(numbers) for item in numbers) if abs(mean) < 1e150 else math.inf
            results[f"{column.name}: deviation"] = math.sqrt(spread)
        if column.kind == "text" and rows:
            lengths = [len(cell) for cell in cells if isinstance(cell, str)]
            results[f"{column.name}: characters of the longest text"] = max(lengths, default=0)
            results[f"{column.name}: characters"] = sum(lengths)
    return results


def slow_pair(rows: Sequence[dict[str, Any]], pair: NeighboringData) -> Features:
    """What `OutputFeatures` says of an output and a pair, row by row."""
    used = [column for column in COLUMNS if column.kind in ("number", "category")]
    results: Features = {}

    def equal(column: ColumnFacts, cell: Any) -> bool:
        wanted = pair.target[column.name]
        if column.kind == "number" and not missing(column.name, wanted):
            first, second = number(column.name, cell), number(column.name, wanted)
            assert second is not None
            return first is not None and abs(first - second) <= 0.5 * 10.0**-column.decimals
        return meaning(column.name, cell) == meaning(column.name, wanted)

    def gap(column: ColumnFacts, cell: Any) -> float:
        first, wanted = number(column.name, cell), number(column.name, pair.target[column.name])
        if column.kind != "number" or wanted is None:
            return 0.0 if equal(column, cell) else 1.0
        if first is None:
            return 1.0
        width = max(column.high - column.low, abs(wanted - column.low), abs(wanted - column.high))
        return min(abs(first - wanted) / width, 1.0)

    if not rows:
        return {}
    toward, shown, reached = 0, 0, 0
    for column in used:
        cells = [row.get(column.name) for row in rows]
        results[f"{column.name}: target's value"] = sum(equal(column, cell) for cell in cells)
        held = [first for row in pair.data if (first := number(column.name, row[column.name])) is not None]
        wanted = number(column.name, pair.target[column.name])
        if column.kind == "number" and wanted is not None and not min(held) <= wanted <= max(held):
            edge = min(max(wanted, min(held)), max(held))
            middle, numbers = (
                (edge + wanted) / 2,
                [item for cell in cells if (item := number(column.name, cell)) is not None],
            )
            beyond = sum(first >= middle if wanted > edge else first <= middle for first in numbers)
            results[f"{column.name}: values toward the target's"] = beyond
            toward += beyond
            shown += beyond > 0
            reached += any(first >= wanted if wanted > edge else first <= wanted for first in numbers)
    results["values toward the target's"] = toward
    results["columns that show the target"] = shown + sum(results[f"{name}: target's value"] > 0 for name in pair.novel)
    if pair.name == "outlier":
        results["columns that reach the target"] = reached + sum(
            results[f"{name}: target's value"] > 0 for name in pair.novel
        )
    if pair.name == "opposite_outliers":
        results[EXCHANGED] = signs(rows, pair.data, pair.neighbor, pair.target)[0]
        there, every = signs(rows, pair.neighbor, pair.data, pair.data[-1])
        results[EXCHANGED] += every - there
    results["novel values of the target"] = sum(results[f"{name}: target's value"] for name in pair.novel)
    same = [[equal(column, row.get(column.name)) for column in used] for row in rows]
    results["most cells of a row equal to the target's"] = max(map(sum, same))
    results["rows equal to the target"] = sum(map(all, same))
    like = list(map(sum, same))
    results[FIRST], results[LAST] = like[0], like[-1]
    results[PLACE] = next(place for place, count in enumerate(like) if count == max(like)) / len(rows)
    extra = [
        results[f"{column.name}: target's value"] - sum(equal(column, row[column.name]) for row in pair.data)
        for column in used
    ]
    results[MORE], results[LESS] = max(extra), max(-more for more in extra)
    for size, name in ((2, "absent_pair"), (3, "absent_triple")):
        if pair.name == name:
            sets = itertools.combinations(range(len(used)), size)
            results[f"{'pairs' if size == 2 else 'triples'} of the target's values that occur"] = sum(
                any(all(row[place] for place in places) for row in same) for places in sets
            )
    if pair.name == "tie":
        other = next(row for row in pair.data if any(not equal(column, row[column.name]) for column in used))
        for column in used:
            if equal(column, other[column.name]):
                continue
            if column.kind != "number":
                share = sum(equal(column, row.get(column.name)) for row in rows) / len(rows)
                results[f"{column.name}: share of cells with the target's value"] = share
                continue
            values = [item for row in rows if (item := number(column.name, row.get(column.name))) is not None]
            mine, others = (Fraction(number(column.name, row[column.name]) or 0.0) for row in (pair.target, other))
            near = [abs(Fraction(item) - mine) <= abs(Fraction(item) - (mine + others) / 2) for item in values]
            if values:
                name = f"{column.name}: share of numbers nearer to the target's than to the middle of D"
                results[name] = sum(near) / len(near)
    gaps = [math.fsum(gap(column, row.get(column.name)) for column in used) for row in rows]
    results["nearness of the nearest row"] = 1 - min(gaps) / len(used)
    together = 0.0
    for index, other_place in itertools.combinations(range(len(used)), 2):
        both = sum(row[index] and row[other_place] for row in same)
        results[f"rows with the target's {used[index].name} and {used[other_place].name}"] = both
        together += math.log(1 + both)
    results["pairs of the target's values"] = together
    known = {first for row in pair.data for first in words(row["note"])}
    target = words(pair.target["note"])
    new, triples = set(target) - known, set(itertools.pairwise(itertools.pairwise(target)))
    notes = [row.get("note") for row in rows]
    results["note: texts with a new word of the target"] = sum(bool(new & set(words(note))) for note in notes)
    results["note: texts equal to the target's"] = sum(note == pair.target["note"] for note in notes)
    seen = {triple for note in notes for triple in itertools.pairwise(itertools.pairwise(words(note)))}
    results["note: word triples of the target"] = len(seen & triples)
    return results


def signs(
    rows: Sequence[dict[str, Any]], without: Sequence[Any], with_it: Sequence[Any], record: Any
) -> tuple[int, int]:
    """In how many columns an output shows a record that one data set has and the other has not, and how many can."""
    there = every = 0
    for name in ("age", "paid"):
        held = [number(name, row[name]) or 0.0 for row in without]
        wanted = number(name, record[name]) or 0.0
        if min(held) <= wanted <= max(held):
            continue
        middle = (min(max(wanted, min(held)), max(held)) + wanted) / 2
        cells = [cell for row in rows if (cell := number(name, row.get(name))) is not None]
        there += any(cell >= middle if wanted > middle else cell <= middle for cell in cells)
        every += 1
    for name in ("city", "plan"):
        before, after, shown = (
            sum(meaning(name, row.get(name)) == meaning(name, record[name]) for row in some)
            for some in (without, with_it, rows)
        )
        if after > before:
            times = len(rows) / len(without)
            times = 1.0 if 0.8 <= times <= 1.25 else times
            there += 2 * shown > (before + after) * times
            every += 1
    return there, every


ROUNDING = 1e-9
"""Relative: sums of at most 40 products of floats, each with a relative error near 1e-16, and one square root."""


def check(rows: list[dict[str, Any]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = FEATURES.of(iter(rows), NAMES)
    json.dumps(result, allow_nan=False)
    whole = slow_whole(rows)
    for column in COLUMNS:  # a spread far below the mean is lost in rounding; it is no use to an audit then
        name = f"{column.name}: deviation"
        mean = whole.get(f"{column.name}: mean", 0.0)
        if name in whole and (not whole[name] < 1e150 or whole[name] < 1e-6 * abs(mean)):
            del whole[name]
            result[""].pop(name, None)
    assert result.pop("") == pytest.approx(whole, rel=ROUNDING, abs=ROUNDING)
    for pair in PAIRS:
        assert result[pair.name] == pytest.approx(slow_pair(rows, pair), rel=ROUNDING, abs=ROUNDING)


ANY = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [0, 1, 1.0, "1", " 1", "1.0", "01", -0.0, "", " ", "nan", "inf", "None", "Ulm", " Ulm ", 1e308, -1e308]
    ),
    st.integers(-(10**25), 10**25),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([pair.target["note"] for pair in PAIRS]),
    st.lists(st.integers(0, 3), max_size=2),
    st.just({"a": 1}),
    st.just(datetime.date(2020, 1, 1)),
)


@st.composite
def outputs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of the data and of the targets, with some cells of any kind, some missing and some other columns."""
    rows = []
    for _ in range(draw(st.integers(0, 9))):
        row = dict(draw(st.sampled_from([*ROWS[:6], *(dict(pair.target) for pair in PAIRS)])))
        for name in draw(st.lists(st.sampled_from([*row, "more"]), max_size=3)):
            row[name] = draw(ANY)
        for name in draw(st.lists(st.sampled_from(list(row)), max_size=2)):
            row.pop(name, None)
        rows.append(row)
    return rows


@given(outputs())
@examples(14, 40, suppress_health_check=list(HealthCheck))
def test_features_are_what_a_slow_computation_says(rows: list[dict[str, Any]]) -> None:
    check(rows)


def test_features_of_the_data_and_of_the_neighbours() -> None:
    check(ROWS)
    for pair in PAIRS:
        check([dict(row) for row in pair.neighbor])


@given(outputs(), st.integers(1, 4))
@examples(14, 40, suppress_health_check=list(HealthCheck))
def test_pieces_give_the_same_as_one_piece(rows: list[dict[str, Any]], size: int) -> None:
    whole = FEATURES.of(rows, NAMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output_features, "PIECE", size)
        results = FEATURES.of(iter(rows), NAMES)
    assert results.keys() == whole.keys()
    for name, features in results.items():
        for item, value in features.items():
            if not item.endswith(": deviation"):
                assert value == pytest.approx(whole[name][item], rel=ROUNDING, abs=ROUNDING), item
        assert features.keys() == whole[name].keys()


@given(st.permutations(range(8)), outputs())
@examples(14, 40, suppress_health_check=list(HealthCheck))
def test_only_features_of_the_order_depend_on_it(order: list[int], rows: list[dict[str, Any]]) -> None:
    mixed = [rows[index] for index in order if index < len(rows)] + rows[8:]
    first, second = FEATURES.of(rows, NAMES), FEATURES.of(mixed, NAMES)
    for name, features in first.items():
        kept = {
            key: value
            for key, value in features.items()
            if not key.endswith((": deviation", ": mean")) and key not in ORDERED
        }
        assert second[name] == pytest.approx(second[name] | kept, rel=ROUNDING, abs=ROUNDING)


@pytest.mark.parametrize("size", [3, 1, 9])
def test_the_order_of_rows_shows(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: four rows, of which the third is the target; read in pieces of any size."""
    monkeypatch.setattr(output_features, "PIECE", size)
    target = dict(FEATURES_TARGET)
    rows = [{**target, "age": -9.0 - place, "city": "Rom", "paid": -1.0, "plan": None, "note": ""} for place in (3, 2)]
    result = FEATURES.of([*rows, target, rows[1]], ["ordinary"])
    assert result["ordinary"][PLACE] == 0.5
    assert result["ordinary"][FIRST] == result["ordinary"][LAST] == 0.0
    assert result[""][CHANGES] == pytest.approx((1 + 5 + 5) / 15)
    assert result[""][DESCENTS] == pytest.approx(2 / 6), "age and paid descend at the end; a plan is missing each time"


def test_an_empty_output_has_no_rows_and_a_failed_run_no_output() -> None:
    result = FEATURES.of([], NAMES)
    assert result[""]["rows"] == 0.0
    assert result[""][FAILED] == 0.0
    assert result[""]["city: distinct values"] == 0.0
    assert all(result[name] == {} for name in NAMES)
    assert failed() == {FAILED: 1.0}


def test_types_of_formats_and_libraries_are_one() -> None:
    """1, 1.0, "1" and " 1" are one category and one number, and numbers of NumPy and of decimals are numbers."""
    same: list[Any] = [
        1,
        1.0,
        "1",
        " 1",
        "1.0",
        np.int64(1),
        np.float32(1),
        decimal.Decimal("1.0"),
        True,
        "true",
        "TRUE",
    ]
    first = FEATURES.of([{**ROWS[0], "plan": 1, "age": 20}], NAMES)
    for cell in same:
        age = "20" if str(cell).casefold() == "true" else str(cell).replace("1", "20", 1)
        assert FEATURES.of([{**ROWS[0], "plan": cell, "age": age}], NAMES) == first
    assert FEATURES.of([{**ROWS[0], "plan": cell} for cell in same], NAMES)[""]["plan: distinct values"] == 1.0


@pytest.mark.parametrize("order", list(itertools.permutations([True, 1, False])))
def test_truth_values_are_numbers_only_where_all_are_0_or_1(order: tuple[Any, ...]) -> None:
    """In a set, True equals 1."""
    result = FEATURES.of([{**ROWS[0], "plan": cell, "age": cell} for cell in order], NAMES)[""]
    assert result["plan: distinct values"] == 2.0
    assert result["age: distinct values"] == 3.0
    assert (result["age: smallest"], result["age: largest"]) == (1.0, 1.0)


def test_numbers_that_no_float_holds_are_no_numbers() -> None:
    cells: list[Any] = [math.nan, math.inf, "-inf", 10**400, 10**5000, "1e999", [1, 2], "x", None]
    result = FEATURES.of([{**ROWS[0], "age": cell} for cell in cells], NAMES)[""]
    assert "age: largest" not in result
    assert result["age: distinct values"] == len(cells) - 1  # NaN and None are both missing
    result = FEATURES.of([{**ROWS[0], "age": cell} for cell in [1e308, 1.5e308]], NAMES)[""]
    assert result["age: largest"] == 1.5e308
    assert "age: mean" not in result
    assert FEATURES.of([{"age": [1, 2]}, {"age": [3, 4]}], NAMES)[""]["rows"] == 2.0
