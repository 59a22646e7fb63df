"""Attacks on tables: codes and distances against their definitions, and what each attack finds in small tables."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy import stats

from dpassay.attacks.released.attribute_inference import attribute_inference
from dpassay.attacks.released.nearest_record import area_under_curve, closest_records, exact_matches
from dpassay.attacks.released.singling_out import ColumnCondition, multivariate, singling_out, univariate
from dpassay.attacks.released.tables import EncodedTable, Tables, encode, nearest, nearest_without
from dpassay.data.columns import Kind, Rules

Row = dict[str, Any]

cells = st.tuples(
    st.one_of(st.none(), st.integers(0, 8)), st.one_of(st.none(), st.sampled_from(["x", "y", "z"])), st.integers(0, 2)
)
tables = st.lists(cells, min_size=1, max_size=6)


def rows(cells: list[tuple[Any, ...]]) -> list[Row]:
    return [dict(zip(("a", "b", "c"), cell, strict=True)) for cell in cells]


def gower(first: Row, second: Row, ranges: dict[str, float]) -> float:
    """By definition."""
    total = 0.0
    for column, a in first.items():
        b = second[column]
        if a is None or b is None:
            total += (a is None) != (b is None)
        elif column in ranges:
            total += min(1.0, abs(a - b) / ranges[column]) if ranges[column] else a != b
        else:
            total += a != b
    return total / len(first)


@examples(14, 40)
@given(tables, tables, tables)
def test_distances_are_those_of_the_definition(
    synthetic: list[tuple[Any, ...]], source: list[tuple[Any, ...]], holdout: list[tuple[Any, ...]]
) -> None:
    coded = encode(rows(synthetic), rows(source), rows(holdout), rules=Rules({"c": Kind.CATEGORY}))
    numbers = [row["a"] for row in rows(source + holdout) if row["a"] is not None]
    ranges = {"a": float(max(numbers) - min(numbers))} if numbers else {}
    distances, index = nearest(coded.source, coded.synthetic)
    for row, distance, i in zip(rows(source), distances, index, strict=True):
        every = [gower(row, other, ranges) for other in rows(synthetic)]
        assert distance == pytest.approx(min(every), abs=1e-6)  # three numbers of float32 are added
        assert every[i] == pytest.approx(min(every), abs=1e-6)
        assert (distance == 0) == (min(every) == 0)


def test_columns_left_out_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against tables that lack the column; numbers are quarters, so that sums are exact."""
    monkeypatch.setattr("dpassay.attacks.released.tables.ROWS", 7)
    monkeypatch.setattr("dpassay.attacks.released.tables.OTHERS", 11)
    rng = np.random.default_rng(0)
    sides = []
    for n in (40, 30, 30):
        numbers = rng.integers(0, 5, (n, 3)) / 4.0
        numbers[rng.random((n, 3)) < 0.1] = np.nan
        numbers[0, 1] = np.inf if n == 40 else 0.0
        sides.append(EncodedTable(numbers, rng.integers(-1, 3, (n, 2)).astype(np.int32)))
    tables = Tables(("x", "y", "z"), ("p", "q"), sides[0], sides[1], sides[2])
    names = ["y", "q", "x"]
    found = nearest_without(tables.source, tables.synthetic, [tables.locate(name) for name in names])
    for tables_of, result in zip([tables, *map(tables.without, names)], found, strict=True):
        for a, b in zip(result, nearest(tables_of.source, tables_of.synthetic), strict=True):
            assert np.array_equal(a, b)


def test_blocks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    first, second = (EncodedTable(rng.random((n, 3)), rng.integers(0, 4, (n, 2)).astype(np.int32)) for n in (50, 70))
    whole = nearest(first, second)
    monkeypatch.setattr("dpassay.attacks.released.tables.ROWS", 7)
    monkeypatch.setattr("dpassay.attacks.released.tables.OTHERS", 11)
    for a, b in zip(nearest(first, second), whole, strict=True):
        assert np.array_equal(a, b)


def test_of_rows_that_are_equally_near_the_first_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpassay.attacks.released.tables.OTHERS", 3)
    same = EncodedTable(np.empty((10, 0)), np.array([1, 0, 0, 0, 1, 0, 0, 1, 2, 1], dtype=np.int32)[:, None])
    assert nearest(same, same)[1].tolist() == [0, 1, 1, 1, 0, 1, 1, 0, 8, 0]


def test_columns_are_numbers_if_nearly_all_values_are() -> None:
    some = [{"a": "1", "b": "1", "c": "", "d": "2", "e": True, "f": "7"}]
    more = [{"a": 2.5, "b": "x", "c": None, "d": "nan", "e": False, "f": 7.0}]
    other = [{"a": 4, "b": 3, "c": "", "d": "2", "e": None, "f": 7}]
    coded = encode(some, more, other, rules=Rules({"f": Kind.CATEGORY}))
    assert coded.numeric == ("a", "d", "e")
    assert coded.categorical == ("b", "c", "f")
    assert coded.synthetic.numbers.tolist() == [[-1.0, 0.0, math.inf]]
    assert coded.source.numbers[0, [0, 2]].tolist() == [0.0, 0.0]
    assert np.isnan(coded.source.numbers[0, 1])
    assert coded.holdout.codes.tolist() == [[0, -1, 0]]  # in the order of spellings, those of the synthetic table last
    assert coded.without("a").numeric == ("d", "e")
    assert coded.without("c").categorical == ("b", "f")


def test_dates_are_the_same_in_all_formats() -> None:
    """Parquet has dates, or times at midnight; CSV has text. Decimals are numbers."""
    first, last = datetime.date(2013, 5, 1), datetime.date(2013, 5, 31)
    night = datetime.datetime(2013, 5, 31)
    some = [{"d": "2013-05-01", "n": "1.5"}, {"d": "2013-05-31T00:00:00", "n": "2"}]
    more = [{"d": first, "n": decimal.Decimal("1.5")}, {"d": last, "n": decimal.Decimal(2)}]
    coded = encode(some, more, [{"d": night, "n": 1.5}, {"d": None, "n": decimal.Decimal("NaN")}])
    assert (coded.numeric, coded.categorical) == (("d", "n"), ())
    assert coded.synthetic.numbers.tolist() == coded.source.numbers.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert coded.holdout.numbers[0].tolist() == [1.0, 0.0]
    assert np.isnan(coded.holdout.numbers[1]).all()


@pytest.mark.parametrize("odd", [1e300, -1e12, "n/a", "inf", "nan"])
def test_no_synthetic_row_hides_what_the_others_are_near_to(leaking: Tables, odd: Any) -> None:
    """One odd number, or word among the numbers, moves no distance and no guess of the others."""
    people = table(600, 1)
    hidden = encode(
        [*people[:40], *people[400:], people[400] | {"age": odd, "income": odd}], people[:200], people[200:400]
    )
    assert hidden.numeric == leaking.numeric
    assert (
        nearest(hidden.source, hidden.synthetic)[0].tolist() == nearest(leaking.source, leaking.synthetic)[0].tolist()
    )
    guesses = [attribute_inference(some, "income") for some in (hidden, leaking)]
    assert guesses[0].source.tolist() == guesses[1].source.tolist()
    assert singling_out(hidden, seed=0, attempts=50).source[:40].any()


@pytest.mark.parametrize(
    ("tables", "options", "message"),
    [
        (([], [{"a": 1}], [{"a": 1}]), {}, "the synthetic table has no rows"),
        (
            ([{"a": 1, "b": 1}], [{"a": 1}], [{"a": 1, "b": 2}]),
            {},
            "source table lacks a column of the synthetic table: there is no column 'b'; the",
        ),
        (([{"a": 1}], [{"a": 1}], [{"a": 1}]), {"ignore": ["a"]}, "no column that is not ignored"),
        (([{"a": 1}], [{"a": 1}], [{"a": 1}]), {"ignore": ["z"]}, "no column 'z'"),
        (([{"a": 1}], [{"a": [7123]}], [{"a": 1}]), {}, "column 'a' must hold text, numbers or dates"),
    ],
)
def test_tables_that_do_not_do(tables: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        encode(*tables, **options)
    assert "7123" not in str(caught.value)


def table(count: int, seed: int) -> list[Row]:
    """Income follows from age and job, and is otherwise a person's own."""
    rng = np.random.default_rng(seed)
    job = rng.integers(0, 5, count)
    age = rng.integers(18, 80, count)
    income = np.round(20_000 + 300 * age + 5000 * job + rng.normal(0, 9000, count), 2)
    city = rng.integers(0, 50, count)
    return [
        {"age": int(a), "income": float(i), "job": f"j{j}", "city": f"c{c}"}
        for a, i, j, c in zip(age, income, job, city, strict=True)
    ]


@pytest.fixture(scope="module")
def leaking() -> Tables:
    """The synthetic table repeats 40 of 200 source rows, among 200 rows of its own."""
    people = table(600, 1)
    return encode(people[:40] + people[400:], people[:200], people[200:400])


def test_exact_matches(leaking: Tables) -> None:
    result = exact_matches(leaking)
    assert result.source.tolist() == [True] * 40 + [False] * 160
    assert not result.holdout.any()


def test_the_nearest_rows_are_guessed(leaking: Tables) -> None:
    result = closest_records(leaking, seed=0, share=0.1)
    assert result.source[:40].sum() == 40  # the 40 at distance 0 are the nearest tenth of 400
    assert result.source.sum() + result.holdout.sum() == 40
    described = result.details["synthetic_rows"]
    assert described["rows"] == 240
    assert described["nearer_to_source"] >= 40
    # 200 rows of the same law on either side and ties to none: the standard deviation of their share is .035.
    assert described["share_nearer_to_source"] == pytest.approx((40 + 100) / 240, abs=0.15)
    assert result.details["area_under_curve"] > 0.55


def test_ties_are_broken_without_looking_at_the_side() -> None:
    """All rows are equally near: of 400 guesses source rows are hypergeometric."""
    rows = [{"a": "x"}] * 1000
    result = closest_records(encode([{"a": "y"}], rows, rows), seed=1, share=0.2)
    assert result.source.sum() + result.holdout.sum() == 400
    low, high = stats.hypergeom.ppf(np.array([5e-7, 1 - 5e-7]), 2000, 1000, 400)
    assert low <= result.source.sum() <= high  # false alarm 1e-6


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.lists(st.integers(0, 4), min_size=1, max_size=6))
def test_area_under_the_curve(source: list[int], holdout: list[int]) -> None:
    pairs = [(a < b) + (a == b) / 2 for a in source for b in holdout]
    assert area_under_curve(np.array(source, float), np.array(holdout, float)) == pytest.approx(sum(pairs) / len(pairs))


def test_a_secret_column_is_guessed_from_the_nearest_row(leaking: Tables) -> None:
    """A row that is repeated has itself as its nearest: guessed right. By definition, row by row, for the others."""
    result = attribute_inference(leaking, "income", tolerance=0.05)
    assert result.source[:40].all()
    assert result.source.mean() > result.holdout.mean() + 0.1
    every = leaking.source.numbers[:, 1], leaking.synthetic.numbers[:, 1]
    _, index = nearest(leaking.without("income").source, leaking.without("income").synthetic)
    assert result.source.tolist() == [abs(every[0][i] - every[1][j]) <= 0.05 for i, j in enumerate(index)]
    assert [trials for _, _, trials in result.beside] == [200, 200]


def test_a_secret_category() -> None:
    synthetic = [{"a": 0, "s": "x"}, {"a": 10, "s": "y"}, {"a": 11, "s": "y"}]
    source, holdout = [{"a": 1, "s": "x"}, {"a": 9, "s": "z"}], [{"a": 2, "s": "y"}, {"a": 8, "s": ""}]
    result = attribute_inference(encode(synthetic, source, holdout), "s")
    assert result.source.tolist() == [True, False]
    assert result.holdout.tolist() == [False, False]
    assert [hits for _, hits, _ in result.beside] == [0, 1]  # "y" for all


def test_a_secret_without_other_columns() -> None:
    only = encode([{"s": 1}], [{"s": 2}], [{"s": 3}])
    with pytest.raises(ValueError, match="there is no other column"):
        attribute_inference(only, "s")
    with pytest.raises(ValueError, match="there is no column 'q'; the columns are 's'"):
        attribute_inference(only, "q")


def test_conditions() -> None:
    some = EncodedTable(np.array([[0.0], [0.5], [np.nan], [1.0]]), np.array([[0], [1], [-1], [1]], dtype=np.int32))
    for relation, true in (("=", [0, 1, 0, 0]), ("<=", [1, 1, 0, 0]), (">=", [0, 1, 0, 1])):
        assert ColumnCondition(True, 0, relation, 0.5).holds(some).tolist() == [bool(x) for x in true]
    assert ColumnCondition(False, 0, "=", 1).holds(some).tolist() == [False, True, False, True]


def test_properties_of_one_column() -> None:
    """Values that occur once, and beyond either end."""
    some = EncodedTable(
        np.array([[0.0], [0.25], [0.25], [1.0], [np.nan]]), np.array([[0], [1], [1], [-1], [2]], dtype=np.int32)
    )
    result = univariate(some, np.random.default_rng(0), 100)
    shown = sorted((condition.numeric, condition.relation, condition.value) for (condition,) in result)
    assert shown == [
        (False, "=", 0), (False, "=", 2), (True, "<=", 0.0), (True, "=", 0.0), (True, "=", 1.0), (True, ">=", 1.0)
    ]  # fmt: skip
    assert len(univariate(some, np.random.default_rng(0), 2)) == 2


def test_rows_are_singled_out(leaking: Tables) -> None:
    result = singling_out(leaking, seed=0, attempts=300)
    assert result.source[:40].sum() >= 30  # an income that is repeated to the cent
    assert result.source[40:].mean() < 0.2
    assert result.holdout.mean() < 0.2
    counts = {name: (hits, trials) for name, hits, trials in result.beside}
    assert len(counts) == 6
    source, holdout = (
        counts[f"one column: predicates true of one of 200 {side} units"] for side in ("source", "holdout")
    )
    assert source[0] >= 30
    assert holdout[0] <= 15
    assert source[1] == holdout[1] <= 300


def test_predicates_of_several_columns_single_out_a_synthetic_row() -> None:
    """Counted cell by cell; and if the source is the synthetic table, each of them singles out one of its rows."""
    made = table(120, 5)
    coded = encode(made, made, table(120, 6), rules=Rules({"city": Kind.CATEGORY}))
    predicates = multivariate(coded.synthetic, np.random.default_rng(0), 80, 3)
    assert len(predicates) == len(set(predicates)) == 80
    for predicate in predicates:
        assert sum(all(_is_true(condition, coded.synthetic, row) for condition in predicate) for row in range(120)) == 1
    counts = {name: (hits, tried) for name, hits, tried in singling_out(coded, seed=0, attempts=80).beside}
    hits, tried = counts["several columns: predicates true of one of 120 source units"]
    assert hits == tried == 80
    assert counts["several columns: predicates true of one of 120 holdout units"][0] < 60


def _is_true(condition: ColumnCondition, of: EncodedTable, row: int) -> bool:
    cell = float(of.numbers[row, condition.index] if condition.numeric else of.codes[row, condition.index])
    return {"=": cell == condition.value, "<=": cell <= condition.value, ">=": cell >= condition.value}[
        condition.relation
    ]


def test_one_of_n_by_chance_is_37_percent() -> None:
    """A property of weight 1/n is true of exactly one of n rows with probability (1 − 1/n)^(n−1), about 1/e."""
    rng = np.random.default_rng(3)
    n, trials = 100, 100
    source, holdout = (
        [{f"q{j}": int(x) for j, x in enumerate(row)} for row in rng.integers(0, n, (n, trials))] for _ in range(2)
    )
    synthetic = [{f"q{j}": int(x) for j, x in enumerate(row)} for row in rng.integers(0, n, (2, trials))]
    coded = encode(synthetic, source, holdout, rules=Rules({f"q{j}": Kind.CATEGORY for j in range(trials)}))
    result = singling_out(coded, seed=0, attempts=trials, columns=1)
    share = (1 - 1 / n) ** (n - 1)
    for name, hits, tried in result.beside[:2]:
        assert "one column" in name
        assert tried == trials
        assert abs(hits / tried - share) < 5 * math.sqrt(share * (1 - share) / tried)  # false alarm 6e-7
