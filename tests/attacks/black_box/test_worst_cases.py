"""Worst cases are neighbours, whatever the table: compared by brute force, on tables that are drawn at random."""

from __future__ import annotations

import datetime
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import Row, describe_columns
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample
from dpassay.attacks.black_box.output_events import EXCHANGED, NEARER, SHARE
from dpassay.attacks.black_box.worst_cases import FINDS, OWN, STRATEGIES, neighboring_data
from dpassay.data.columns import Kind, Rules
from dpassay.data.table_schema import Schema

Rows = tuple[Row, ...]
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def key(row: Row) -> str:
    """A row as one string: equal for equal rows; NaN equals NaN, and types differ."""
    return json.dumps([[name, type(value).__name__, repr(value)] for name, value in row.items()])


def difference(pair: NeighboringData) -> tuple[int, int]:
    """How many records D has and D′ lacks, and the other way round, as multisets."""
    first, second = (Counter(map(key, rows)) for rows in (pair.data, pair.neighbor))
    return (first - second).total(), (second - first).total()


def stated(**names: Sequence[str]) -> Rules:
    """Rules by the names of columns: categorical, texts, number, id."""
    kinds = {"categorical": Kind.CATEGORY, "texts": Kind.TEXT, "number": Kind.NUMBER, "id": Kind.IDENTIFIER}
    return Rules({name: kinds[kind] for kind, every in names.items() for name in every})


def pairs_of(
    rows: Sequence[Row],
    adjacency: str = "add_remove",
    copies: int = 1,
    label: str | None = None,
    schema: Schema | None = None,
    most: dict[str, float] | None = None,
    **names: Sequence[str],
) -> dict[str, NeighboringData]:
    """The pairs of all strategies that apply; none if none does."""
    columns = describe_columns(rows, schema=schema, rules=stated(**names), most=most)
    sample = Sample(tuple(rows), columns, Adjacency(adjacency), copies, label)
    try:
        result = neighboring_data(sample, np.random.default_rng(0), list(STRATEGIES))
    except ValueError as error:
        if not str(error).startswith("none of the strategies"):
            raise
        return {}
    return {pair.name: pair for pair in result}


def word(value: Any) -> str | None:
    """A cell as a reader of a table sees it: 1, 1.0, "1" and " 1" are one, and all empty cells are one."""
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, float) and math.isfinite(value) and value == math.floor(value):
        return str(int(value))
    text = str(value).strip()
    return text.removesuffix(".0") if text.removesuffix(".0").lstrip("-").isdigit() else text


def check(pairs: dict[str, NeighboringData], adjacency: str, copies: int, schema: Schema | None = None) -> None:
    for name, pair in pairs.items():
        assert difference(pair) == ((0 if adjacency == "add_remove" else copies), copies), name
        blank = {column: None for column, cell in pair.target.items() if UUID.fullmatch(str(cell))}  # each has its own
        target = key({**pair.target, **blank})
        assert sum(key({**row, **blank}) == target for row in pair.neighbor) >= copies
        assert all(row.keys() == pair.target.keys() for row in (*pair.data, *pair.neighbor))
        others = [row for row in pair.data if key({**row, **blank}) != target]
        for column in pair.novel:
            assert word(pair.target[column]) not in {word(row[column]) for row in others}, (name, column)
        for event in pair.events:
            assert math.isfinite(event.threshold)
        if schema is not None:
            for row in (*pair.data, *pair.neighbor):
                schema.row(row)


SMALL = st.integers(-5, 5)
WORDS = st.sampled_from(["north", "éöß", "日本", "a b", "", "None", "nan", "1", "x" * 50])
CELLS: dict[str, st.SearchStrategy[Any]] = {
    "floats": st.floats(-1e6, 1e6).map(lambda value: round(value, 2)),
    "any floats": st.floats(allow_nan=True, allow_infinity=True),
    "few whole numbers": SMALL,
    "many whole numbers": st.integers(-(10**30), 10**30),
    "whole floats": SMALL.map(float),
    "words": WORDS,
    "missing words": st.one_of(st.none(), WORDS),
    "missing numbers": st.one_of(st.none(), SMALL, st.just(math.nan)),
    "numbers as text": st.integers(0, 10**6).map(str),
    "decimals as text": st.floats(-100, 100).map(lambda value: f"{value:.3f}"),
    "codes": st.integers(0, 5).map(lambda value: f"0{value}"),
    "numbers with spaces": SMALL.map(lambda value: f" {value}"),
    "truth": st.booleans(),
    "one truth": st.just(True),
    "constant": st.just("same"),
    "empty": st.just(""),
    "ids": st.uuids().map(str),
    "dates": st.dates(datetime.date(2000, 1, 1), datetime.date(2000, 1, 9)),
    "last dates": st.just(datetime.date.max),
    "dates as text": st.dates(datetime.date(2000, 1, 1), datetime.date(2000, 1, 4)).map(str),
    "prose": st.lists(WORDS, min_size=5, max_size=9).map(" ".join),
    "one, in all types": st.sampled_from([1, 1.0, "1", " 1", "1.0", True]),
    "all types": st.one_of(st.none(), SMALL, st.floats(), WORDS, st.booleans(), st.lists(SMALL), st.just({"a": 1})),
    "lists": st.lists(SMALL, max_size=3),
}


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    kinds = draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=5))
    size = draw(st.integers(5, 24))
    return [{f"{kind} {index}": draw(CELLS[kind]) for index, kind in enumerate(kinds)} for _ in range(size)]


def test_a_record_that_is_in_d_but_for_its_id_is_a_copy() -> None:
    rows = [{"name": None, "id": str(uuid.uuid5(uuid.NAMESPACE_DNS, str(index)))} for index in range(19)] + [
        {"name": 0, "id": str(uuid.uuid5(uuid.NAMESPACE_DNS, "19"))}
    ]
    pairs = pairs_of(rows, "add_remove", 1, categorical=("name",))
    pair = pairs["repeated_category"]
    assert pair.novel == ("name",)
    assert [row["name"] for row in pair.data].count(pair.target["name"]) == 1
    assert len({row["id"] for row in pair.neighbor}) == len(pair.neighbor)
    check(pairs, "add_remove", 1)


@given(tables(), st.sampled_from(["add_remove", "replace_one"]), st.integers(1, 3), st.data())
@examples(34, 100, suppress_health_check=list(HealthCheck))
def test_pairs_of_any_table_are_neighbours(
    rows: list[dict[str, Any]], adjacency: str, copies: int, data: st.DataObject
) -> None:
    if len(rows) < copies + 4:
        rows = (rows * 2)[: copies + 4]
    before = [key(row) for row in rows]
    named = data.draw(st.lists(st.sampled_from(list(rows[0])), unique=True))
    facts: dict[str, Any] = {data.draw(st.sampled_from(["categorical", "texts"])): tuple(named)}
    check(pairs_of(rows, adjacency, copies, **facts), adjacency, copies)
    assert [key(row) for row in rows] == before


@pytest.mark.grid("kind", "adjacency")
@pytest.mark.parametrize("kind", sorted(CELLS))
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@given(data=st.data(), copies=st.integers(1, 3))
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
def test_pairs_of_one_column_are_neighbours(kind: str, adjacency: str, data: st.DataObject, copies: int) -> None:
    rows = [{"x": data.draw(CELLS[kind])} for _ in range(data.draw(st.integers(7, 20)))]
    check(pairs_of(rows, adjacency, copies), adjacency, copies)


COLUMNS: dict[str, dict[str, Any]] = {
    "age": {"type": "number", "low": -0.5, "high": 99.5, "decimals": 0},
    "share": {"type": "number", "low": 0.05, "high": 0.999, "decimals": 1, "missing": True},
    "city": {"type": "category", "values": ["north", "éöß", "日本", "a b"], "missing": True},
    "code": {"type": "category", "values": ["1", "2", "3", "none"]},
    "truth": {"type": "category", "values": ["True", "False"]},
    "day": {"type": "date", "low": "2000-01-01", "high": "2000-02-29"},
}


@st.composite
def inside(draw: st.DrawFn) -> tuple[Schema, list[dict[str, Any]]]:
    """A schema, and rows inside of it, in the types of JSON or of CSV."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, unique=True))
    schema = Schema.model_validate({"columns": [{"name": name, **COLUMNS[name]} for name in names]})
    cells = {
        "age": st.integers(0, 99),
        "share": st.one_of(st.none(), st.sampled_from([0.1, 0.4, 0.8, 0.9])),
        "city": st.one_of(st.none(), st.sampled_from(COLUMNS["city"]["values"])),
        "code": st.sampled_from([1, 2, 3]),
        "truth": st.booleans(),
        "day": st.dates(datetime.date(2000, 1, 1), datetime.date(2000, 1, 5)).map(str),
    }
    size = draw(st.integers(5, 20))
    rows = [{name: draw(cells[name]) for name in names} for _ in range(size)]
    if draw(st.booleans()):
        rows = [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]
    return schema, rows


@given(inside(), st.sampled_from(["add_remove", "replace_one"]), st.data())
@examples(27, 80, suppress_health_check=list(HealthCheck))
def test_with_a_schema_all_values_are_inside_of_it(
    drawn: tuple[Schema, list[dict[str, Any]]], adjacency: str, data: st.DataObject
) -> None:
    schema, rows = drawn
    categorical = tuple(data.draw(st.lists(st.sampled_from(schema.names), unique=True)))
    check(pairs_of(rows, adjacency, schema=schema, categorical=categorical), adjacency, 1, schema)


def people(count: int = 60) -> list[dict[str, Any]]:
    """Six cities, the last of which is rare; ages; a class; prose."""
    rng = np.random.default_rng(5)
    return [
        {
            "age": int(rng.integers(20, 80)),
            "paid": round(float(rng.lognormal(6, 1)), 2),
            "city": "Ulm" if index == 7 else ("Bonn", "Kiel", "Jena")[index % 3],
            "plan": "basic" if index % 3 else "large",
            "note": " ".join(rng.choice(["rain", "sun", "snow", "wind"], 6)),
        }
        for index in range(count)
    ]


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("copies", [1, 10])
def test_all_strategies_apply_to_a_mixed_table_and_each_says_what_it_finds(adjacency: str, copies: int) -> None:
    results = pairs_of(people(), adjacency, copies)
    assert list(results) == [name for name in STRATEGIES if name in applying(adjacency)]
    assert FINDS.keys() == {*STRATEGIES, OWN}
    check(results, adjacency, copies)


def test_each_strategy_does_what_its_name_says() -> None:
    rows, result = people(), pairs_of(people())
    largest = {name: max(row[name] for row in rows) for name in ("age", "paid")}
    for name, most in largest.items():
        assert result["extreme_value"].target[name] > most + 5 * (most - min(row[name] for row in rows))
    assert set(result["new_category"].novel) == {"city", "plan"}
    assert result["rare_category"].target == rows[7]
    assert [row for row in rows if row["city"] != "Ulm"] == list(result["rare_category"].data)
    assert {row["plan"] for row in result["empty_class"].data} == {"basic"}
    assert result["empty_class"].target["plan"] == "large"
    assert len(result["longest_text"].target["note"]) >= 10 * max(len(row["note"]) for row in rows)
    known = {word for row in rows for word in row["note"].split()}
    assert set(result["new_token"].target["note"].split()) - known
    combined = result["new_combination"].target
    assert not any(row["city"] == combined["city"] and row["plan"] == combined["plan"] for row in rows)
    assert {combined["city"], combined["plan"]} <= {row[name] for row in rows for name in ("city", "plan")}
    empty = [name for name, value in result["missing_value"].target.items() if value in (None, "")]
    assert empty == ["age", "paid", "city"]  # the class and prose stay
    assert len({key(row) for row in result["duplicates"].data}) == 1
    edge = result["cluster_edge"]
    ages = {row["age"] for row in edge.data}
    assert not any(20 + 60 * 0.45 < age < 20 + 60 * 0.55 for age in ages) or edge.target["paid"] not in ages
    assert result["ordinary"].target in rows


def test_pairs_of_absence_lack_what_independent_columns_make() -> None:
    """Counted over all cells: no record of D is the target, or has two of its values, though each of its values is in
    the share of the records that columns drawn on their own need."""
    result, names = pairs_of(people()), ("age", "paid", "city", "plan")
    for name, agree in (("absent_row", 3), ("absent_pair", 1), ("absent_triple", 2)):
        pair = result[name]
        equal = [[row[column] == pair.target[column] for column in names] for row in pair.data]
        assert {sum(cells) for cells in equal} == {agree}
        shares = [sum(cells[place] for cells in equal) / len(equal) for place in range(4)]
        assert shares == pytest.approx([agree / 4] * 4)
        assert pair.target == pair.neighbor[-1]
        assert len(pair.data) == 60
    events = {name: [(event.feature, event.threshold) for event in pair.events] for name, pair in result.items()}
    assert events["absent_pair"] == [("pairs of the target's values that occur", 6)]
    assert events["absent_triple"] == [("triples of the target's values that occur", 4)]
    assert "absent_row" not in pairs_of([{"x": "ab"[index % 2]} for index in range(9)]), "one column has no combination"


def test_all_strategies_apply_by_default() -> None:
    sample = Sample(tuple(people()), describe_columns(people()), Adjacency.ADD_REMOVE)
    pairs = neighboring_data(sample, np.random.default_rng(0))
    assert [pair.name for pair in pairs] == [name for name in STRATEGIES if name in applying("add_remove")]


@pytest.mark.parametrize("copies", [1, 3])
def test_opposite_outliers_differ_in_all_columns_and_from_all_others(copies: int) -> None:
    rows = [{**row, "paid": row["paid"] - 5000} for row in people()]
    pair = pairs_of(rows, "replace_one", copies)["opposite_outliers"]
    first, target = pair.data[-1], pair.target
    others = pair.data[:-copies]
    assert others == pair.neighbor[:-copies]
    assert all(row == first for row in pair.data[-copies:])
    assert all(row == target for row in pair.neighbor[-copies:])
    for name in ("age", "paid"):
        low, high = (end(row[name] for row in others) for end in (min, max))
        most, least = (end(row[name] for row in rows) for end in (max, min))
        assert target[name] == pytest.approx(most + 2 * (most - least))
        assert first[name] == pytest.approx(0 if name == "age" else least - 2 * (most - least))
        assert first[name] < low < high < target[name]
    assert target["city"] == "Ulm" not in {row["city"] for row in others}
    held = Counter(row["city"] for row in others)
    assert held[first["city"]] == min(held.values())
    (event,) = pair.events
    assert (event.feature, event.threshold) == (EXCHANGED, 6.0)


def test_opposite_outliers_of_a_column_that_is_empty_without_its_rarest() -> None:
    rows = [
        {
            "x": f"x{place + 1}" if place < 3 else "",
            **{name: "rare" if place == at else "usual" for at, name in enumerate("wyz")},
            "age": 20 + place,
        }
        for place in range(30)
    ]
    pair = pairs_of(rows, "replace_one", categorical=list("wxyz"))["opposite_outliers"]
    check({"opposite_outliers": pair}, "replace_one", 1)


def test_opposite_outliers_have_dates_that_libraries_hold() -> None:
    first, cities = datetime.date(1900, 1, 1), ["Ulm", *["Bonn", "Kiel"] * 22]
    rows = [{"born": str(first + datetime.timedelta(days=1000 * place)), "city": cities[place]} for place in range(44)]
    pair = pairs_of(rows, "replace_one")["opposite_outliers"]
    assert pair.data[-1]["born"] == "1677-09-22"
    assert rows[-1]["born"] < pair.target["born"] <= "2261-12-31"


def applying(adjacency: str) -> set[str]:
    """The strategies that apply to a mixed table."""
    return set(STRATEGIES) - ({"opposite_outliers"} if adjacency == "add_remove" else set())


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("size", [60, 61])
def test_a_tie_is_broken_by_one_record(adjacency: str, size: int) -> None:
    pair = pairs_of(people(size), adjacency)["tie"]
    held, after = (Counter(map(key, rows)) for rows in (pair.data, pair.neighbor))
    assert sorted(held.values()) == [30, 30]
    assert after[key(pair.target)] == 31
    assert len(set(map(key, pair.neighbor))) == 2
    different = [name for name in ("age", "paid", "city", "plan") if pair.data[0][name] != pair.target[name]]
    assert pair.events[0].threshold == 4 - len(different) + 1
    ends = {"age": NEARER, "paid": NEARER, "city": SHARE, "plan": SHARE}
    assert [(event.feature, event.threshold) for event in pair.events[1:]] == [
        (f"{name}: {ends[name]}", 0.5) for name in different
    ]


def test_types_and_ways_of_writing_are_kept() -> None:
    csv = [{name: str(value) for name, value in row.items()} for row in people()]
    for rows in (people(), csv):
        for name, pair in pairs_of(rows).items():
            for column, value in pair.target.items():
                if name == "missing_value" and value in (None, ""):
                    continue
                assert type(value) is type(rows[0][column]), (name, column)
    target = pairs_of(csv)["extreme_value"].target
    assert "." not in target["age"]
    assert len(target["paid"].partition(".")[2]) == 2


def test_a_new_category_has_the_type_of_the_others() -> None:
    """Codes stay codes, days stay days, and of two truth values the other one is new."""
    rows = [
        {
            "code": f"{index % 3}",
            "whole": index % 3,
            "day": f"2020-01-0{index % 3 + 1}",
            "when": datetime.date(2020, 1, index % 3 + 1),
            "truth": True,
            "both": bool(index % 2),
        }
        for index in range(12)
    ]
    pair = pairs_of(rows, categorical=("code", "whole", "day", "when"))["new_category"]
    assert pair.target == {
        "code": "3",
        "whole": 3,
        "day": "2020-01-04",
        "when": datetime.date(2020, 1, 4),
        "truth": False,
        "both": pair.target["both"],
    }
    assert set(pair.novel) == {"code", "whole", "day", "when", "truth"}


def test_a_category_of_the_schema_in_another_type_is_not_new() -> None:
    """JSON has 1 where the schema has "1"."""
    schema = Schema.model_validate({"columns": [{"name": "x", "type": "category", "values": ["1", "2", "3"]}]})
    rows = [{"x": index % 2 + 1} for index in range(10)]
    assert pairs_of(rows, schema=schema)["new_category"].target == {"x": 3}
    rows[0]["x"] = 3
    assert "new_category" not in pairs_of(rows, schema=schema)


def test_numbers_of_a_type_stay_inside_of_it() -> None:
    rows = [{"x": 2 * index} for index in range(100)]
    assert pairs_of(rows)["extreme_value"].target["x"] > 255
    assert pairs_of(rows, most={"x": 255})["extreme_value"].target["x"] == 255
    rows.append({"x": 255})
    assert "extreme_value" not in pairs_of(rows, most={"x": 255})


def test_records_that_equal_the_target_are_not_the_ones_that_are_exchanged() -> None:
    """Else D and D′ would be the same."""
    rows = [{"x": "b"}, *({"x": "a"} for _ in range(9))]
    pair = pairs_of(rows, "replace_one")["ordinary"]
    assert pair.target == {"x": "a"}
    assert difference(pair) == (1, 1)
    assert "ordinary" not in pairs_of([{"x": "a"}] * 10, "replace_one")
    assert "ordinary" not in pairs_of(rows, "replace_one", copies=2)


@pytest.mark.parametrize(
    ("rows", "facts", "says"),
    [
        ([], {}, "there are no records"),
        ([{"a": 1}, {"b": 1}], {}, "the records have different columns"),
        ([{"a": 1}], {"categorical": ("b",)}, "there is no column 'b'"),
        ([{"a": 1}], {"texts": ("b",)}, "there is no column 'b'"),
        (
            [{"code": "1"}],
            {
                "texts": ("code",),
                "schema": Schema.model_validate({"columns": [{"name": "code", **COLUMNS["code"]}]}),
            },
            "has a public domain",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused_in_one_line(rows: list[Row], facts: dict[str, Any], says: str) -> None:
    names = {name: facts.pop(name) for name in ("categorical", "texts", "number") if name in (facts := dict(facts))}
    with pytest.raises(ValueError, match=says) as error:
        describe_columns(rows, **facts, rules=stated(**names))
    assert "\n" not in str(error.value)


def test_samples_that_do_not_fit_are_refused_in_one_line() -> None:
    rows = tuple(people(10))
    columns = describe_columns(rows)
    for wrong, says in (
        ({"adjacency": Adjacency.ZERO_OUT}, "add_remove and replace_one"),
        ({"copies": 0}, "copies"),
        ({"copies": 7}, "from 11 records or more, and there are 10"),
        ({"label": "age"}, "'age', is no column of categories"),
        ({"label": "nothing"}, "'nothing', is no column of categories"),
    ):
        given: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE, **wrong}
        with pytest.raises(ValueError, match=says):
            Sample(rows, columns, **given)
    sample = Sample(rows, columns, Adjacency.ADD_REMOVE)
    with pytest.raises(ValueError, match="neighbors must be one of"):
        neighboring_data(sample, np.random.default_rng(0), ["worst"])


WRITTEN: dict[str, tuple[list[Any], Any]] = {
    "a point": (["1.5", "2.5", "4.5"], "34.5"),
    "thousands": (["1,200.5", "950.0", "1,000.0"], "3,705.5"),
    "a comma": (["1,5", "2,5", "4,5"], "34,5"),
    "thousands and a comma": (["1.200,5", "950,0", "1.000,0"], "3.705,5"),
    "floats": ([1.5, 2.5, 4.5], 34.5),
    "days": (["2020-01-01", "2020-01-05", "2020-01-11"], "2020-04-20"),
    "midnights": (["2020-01-01T00:00:00", "2020-01-05T00:00:00", "2020-01-11T00:00:00"], "2020-04-20T00:00:00"),
    "dots": (["31.01.2020", "05.02.2020", "10.02.2020"], "20.05.2020"),
    "no zeros": (["31/1/2020", "5/2/2020", "10/2/2020"], "20/5/2020"),
    "month first": (["01/31/2020", "02/05/2020", "02/10/2020"], "05/20/2020"),
    "year first": (["2020/01/31", "2020/02/05", "2020/02/10"], "2020/05/20"),
    "times": (["2020-01-01 12:30", "2020-01-02 12:30", "2020-01-03 12:30"], "2020-01-23 12:30"),
    "times in a zone": (
        ["2020-01-01T01:00:00+02:00", "2020-01-02T01:00:00+02:00", "2020-01-03T01:00:00+02:00"],
        "2020-01-23T01:00:00+02:00",
    ),
    "dates": ([datetime.date(2020, 1, day) for day in (1, 5, 11)], datetime.date(2020, 4, 20)),
    "datetimes": (
        [datetime.datetime(2020, 1, day, 12, 30) for day in (1, 2, 3)],
        datetime.datetime(2020, 1, 23, 12, 30),
    ),
}
"""Cells, and the one ten ranges beyond the largest."""


@pytest.mark.parametrize("name", WRITTEN)
def test_an_extreme_value_is_written_as_the_others_are(name: str) -> None:
    cells, extreme = WRITTEN[name]
    rows = [{"x": cells[index % 3], "y": index} for index in range(12)]
    target = pairs_of(rows)["extreme_value"].target
    assert target["x"] == extreme
    assert type(target["x"]) is type(extreme)


def test_made_up_dates_are_not_beyond_what_libraries_hold() -> None:
    rows = [{"x": f"{year}-06-30"} for year in range(1900, 2020)]
    assert pairs_of(rows)["extreme_value"].target["x"] == "2261-12-31"


@pytest.mark.parametrize("mark", ["NA", "?", "-", "\\N", "unknown"])
def test_a_missing_value_is_one_of_the_file(mark: str) -> None:
    """In columns of words only the empty cell, or what is stated, is missing."""
    rows = [{"age": mark if index == 3 else str(20 + index), "city": "ab"[index % 2]} for index in range(20)]
    rules = Rules(missing=(mark,) if mark == "unknown" else ())
    columns = describe_columns(rows, rules=rules)
    pairs = neighboring_data(Sample(tuple(rows), columns, Adjacency.ADD_REMOVE), np.random.default_rng(0))
    (pair,) = (pair for pair in pairs if pair.name == "missing_value")
    assert pair.target["age"] == mark
    assert len(pair.data) == 19
    assert all(row["age"] != mark for row in pair.data)


def test_a_column_with_an_odd_cell_is_one_of_numbers() -> None:
    rows = [{"height": "about 2 m" if index == 30 else f"{150 + index}"} for index in range(60)]
    (column,) = describe_columns(rows)
    assert (column.kind, column.low, column.high) == ("number", 150, 209)
    assert pairs_of(rows)["extreme_value"].target == {"height": "799"}


@pytest.mark.parametrize("words", [("0", "1"), ("False", "True"), ("FALSE", "TRUE"), (0, 1), (False, True)])
def test_zero_and_one_are_truth_values_whatever_the_file_calls_them(words: tuple[Any, Any]) -> None:
    """No third value is made up unless the column is said to hold categories."""
    rows = [{"x": words[index % 2], "y": index} for index in range(20)]
    pairs = pairs_of(rows)
    assert "new_category" not in pairs
    assert {cell for pair in pairs.values() for row in pair.neighbor if (cell := row["x"]) not in (None, "")} <= {
        *words
    }
    one = pairs_of([{"x": words[1], "y": index} for index in range(20)])["new_category"]
    assert one.target["x"] == words[0]
    assert type(one.target["x"]) is type(words[0])
    assert "new_category" in pairs_of(rows, categorical=["x"]) or words == (False, True)


def test_few_whole_numbers_are_numbers_and_categories() -> None:
    rows = [{"children": index % 4, "paid": index / 8, "age": 20 + index} for index in range(40)]
    columns = {column.name: column for column in describe_columns(rows)}
    assert {name: (column.kind, column.is_category) for name, column in columns.items()} == {
        "children": ("number", True),
        "paid": ("number", False),
        "age": ("number", False),
    }
    pairs = pairs_of(rows, label="children")
    assert pairs["extreme_value"].target["children"] == 33
    assert all(row["children"] != pairs["empty_class"].target["children"] for row in pairs["empty_class"].data)
    with pytest.raises(ValueError, match="'children', is no column of categories"):
        pairs_of(rows, label="children", number=["children"])


IDS: dict[str, list[Any]] = {
    "numbers": list(range(100, 140)),
    "numbers as text": [f"{index:04d}" for index in range(40)],
    "words": [f"p-{index:02d}-{'ab'[index % 2]}" for index in range(40)],
    "hashes": [f"{(index + 1) * 7919 * 104729 % 2**32:08x}" for index in range(40)],
}


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("copies", [1, 3])
def test_records_that_are_added_or_repeated_have_ids_of_their_own(name: str, adjacency: str, copies: int) -> None:
    rows = [{"id": cell, "city": "abc"[index % 3], "age": index % 17} for index, cell in enumerate(IDS[name])]
    pairs = pairs_of(rows, adjacency, copies, id=["id"])
    assert {"ordinary", "duplicates", "repeated_category"} <= pairs.keys()
    for pair in pairs.values():
        for data in (pair.data, pair.neighbor):
            ids = [row["id"] for row in data]
            assert len(set(ids)) == len(ids)
            assert {type(cell) for cell in ids} == {type(IDS[name][0])}
            assert name == "numbers" or {len(cell) for cell in ids} == {len(IDS[name][0])}
        assert difference(pair) == ((0 if adjacency == "add_remove" else copies), copies)
        assert "id" not in pair.novel
        assert pair.target["id"] not in {row["id"] for row in pair.data}


def test_ids_that_records_share_are_left_as_they_are() -> None:
    rows = [{"user": f"u-{index // 2}", "age": index % 17, "city": "ab"[index % 2]} for index in range(40)]
    for pair in pairs_of(rows, id=["user"]).values():
        assert {row["user"] for row in pair.neighbor} <= {row["user"] for row in rows}


@pytest.mark.parametrize(("name", "kind"), [("Unnamed: 0", "id"), ("number", "number")])
def test_row_numbers_without_a_name_are_ids(name: str, kind: str) -> None:
    rows = [{name: str(5 + index), "age": str(index % 17)} for index in range(40)]
    assert [column.kind for column in describe_columns(rows)] == [kind, "number"]
