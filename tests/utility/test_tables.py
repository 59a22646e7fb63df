"""Metrics of synthetic tables: tables counted by hand, loops over all cells, other libraries, printed values."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from property_settings import examples
from scipy.stats.contingency import association, crosstab

from dpassay.data.table_schema import MISSING, DateColumn, NumberColumn, Row, Schema
from dpassay.utility.tables import (
    Places,
    TableComparison,
    associations,
    compare_tables,
    correlation_ratio,
    cramers_v,
    level,
    pearson,
)


def schema(*columns: dict[str, Any]) -> Schema:
    return Schema.model_validate({"columns": columns})


def category(name: str, *values: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "category", "values": values, **more}


def number(name: str, low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "number", "low": low, "high": high, **more}


MIXED = schema(
    number("age", 0, 99),
    category("sex", "f", "m"),
    number("weight", -1.5, 7.25, decimals=2, missing=True),
    {"name": "seen", "type": "date", "low": "2019-12-01", "high": "2020-03-20", "missing": True},
    category("city", "a", "b", "c", missing=True),
)


def random_rows(seed: int, count: int, of: Schema = MIXED) -> list[Row]:
    rng = np.random.default_rng(seed)
    return [of.uniform(rng) for _ in range(count)]


tables = st.tuples(st.integers(0, 2**32), st.integers(2, 40)).map(lambda drawn: random_rows(*drawn))


@functools.cache
def words_of(index: int) -> list[str]:
    """All words of a column's domain, in order."""
    column = MIXED.columns[index]
    if isinstance(column, NumberColumn):
        scale = 10**column.decimals
        low, high = round(column.low * scale), round(column.high * scale)
        return [column.word(unit / scale) for unit in range(low, high + 1)]
    if isinstance(column, DateColumn):
        return [str(day.date()) for day in pd.date_range(column.low, column.high)]
    return list(column.longest)


@functools.cache
def bin_of(index: int, word: str, bins: int) -> object:
    """The bin of a word, by walking along the edges of the domain, as fractions."""
    domain = words_of(index)
    if word == MISSING or not isinstance(MIXED.columns[index], NumberColumn | DateColumn) or len(domain) <= bins:
        return word
    position = domain.index(word)
    return max(edge for edge in range(bins) if Fraction(edge * len(domain), bins) <= position)


def looped(made: Sequence[Row], real: Sequence[Row], columns: Sequence[int], bins: int) -> Fraction:
    """A histogram intersection by loops, as a fraction."""
    counts = [
        Counter(tuple(bin_of(index, row[index], bins) for index in columns) for row in rows) for rows in (made, real)
    ]
    cells = set(counts[0]) | set(counts[1])
    shares = ((Fraction(counts[0][cell], len(made)), Fraction(counts[1][cell], len(real))) for cell in cells)
    return sum((min(pair) for pair in shares), Fraction(0))


@settings(max_examples=10)
@given(tables, tables)
def test_intersections_are_those_of_loops_over_all_cells(made: list[Row], real: list[Row]) -> None:
    result, indices = compare_tables(MIXED, made, real), range(len(MIXED.columns))
    for bins, of_columns, of_pairs in (
        (20, result.histograms.bins_20, result.pairs and result.pairs.bins_20),
        (50, result.histograms.bins_50, result.pairs and result.pairs.bins_50),
    ):
        columns = [looped(made, real, (index,), bins) for index in indices]
        pairs = [looped(made, real, pair, bins) for pair in combinations(indices, 2)]
        assert of_columns == pytest.approx(float(sum(columns) / len(columns)), abs=1e-14)
        assert of_pairs == pytest.approx(float(sum(pairs) / len(pairs)), abs=1e-14)
        each = [getattr(column.intersection, f"bins_{bins}") for column in result.columns]
        assert each == pytest.approx([float(item) for item in columns], abs=1e-15)
    assert [column.name for column in result.columns] == list(MIXED.names)


def test_a_table_that_is_counted_by_hand() -> None:
    """Ages 0 to 99 in 20 bins of five and 50 bins of two; the empty cell is a category."""
    of = schema(number("age", 0, 99), category("sex", "f", "m", missing=True))
    made = [("0", "f"), ("4", "f"), ("5", "m"), ("99", MISSING)]
    real = [("1", "f"), ("3", "m"), ("6", "m"), ("94", MISSING), ("98", MISSING)]
    result = compare_tables(of, made, real)
    # Of age, 20 bins: {0-4}: 2/4 and 2/5, {5-9}: 1/4 and 1/5, {95-99}: 1/4 and 1/5. 50 bins: {0, 1}: 1/4 and 1/5,
    # {4, 5}: 2/4 and none, {98, 99}: 1/4 and 1/5.
    assert result.columns[0].intersection.bins_20 == pytest.approx(4 / 5)
    assert result.columns[0].intersection.bins_50 == pytest.approx(2 / 5)
    # Of sex: f: 2/4 and 1/5, m: 1/4 and 2/5, empty: 1/4 and 2/5.
    assert result.columns[1].intersection.bins_20 == result.columns[1].intersection.bins_50 == pytest.approx(7 / 10)
    assert result.histograms.mean == pytest.approx((4 / 5 + 2 / 5 + 7 / 10 + 7 / 10) / 4)
    # Pairs: ({0-4}, f): 2/4 and 1/5, ({5-9}, m): 1/4 and 1/5, ({95-99}, empty): 1/4 and 1/5; then ({0, 1}, f) and
    # ({98, 99}, empty): 1/4 and 1/5 each.
    assert result.pairs is not None
    assert (result.pairs.bins_20, result.pairs.bins_50) == pytest.approx((3 / 5, 2 / 5))
    assert (result.rows.synthetic, result.rows.real) == (4, 5)


@pytest.mark.parametrize("bins", [20, 50])
def test_bins_of_numbers_are_those_of_numpy_over_the_public_domain(bins: int) -> None:
    of = schema(number("x", -100, 899))
    drawn = np.random.default_rng(0).integers(-100, 900, size=300)
    result, count = Places(of, [(str(item),) for item in drawn]).binned(0, bins)
    assert count == bins
    expected, _ = np.histogram(drawn, bins=bins, range=(-100, 900))
    assert np.bincount(result, minlength=bins).tolist() == expected.tolist()


def test_values_that_nobody_has_make_no_difference_to_bins() -> None:
    """Bins are of the public domain: a row far away moves none of the others."""
    of = schema(number("x", 0, 10**6))
    near = [(str(item),) for item in range(0, 400, 7)]
    before, _ = Places(of, near).binned(0, 50)
    after, _ = Places(of, [*near, ("1000000",)]).binned(0, 50)
    assert after[:-1].tolist() == before.tolist()
    assert after[-1] == 49


@examples(12, 25)
@given(tables, tables, st.integers(2, 3), st.randoms())
def test_what_every_comparison_has(made: list[Row], real: list[Row], copies: int, shuffled: Any) -> None:
    result, back = compare_tables(MIXED, made, real), compare_tables(MIXED, real, made)
    assert (result.histograms, result.pairs) == (back.histograms, back.pairs)
    assert result.associations is not None
    assert back.associations is not None
    assert np.array_equal(np.transpose(result.associations.levels), back.associations.levels)
    assert result.pairs is not None
    assert 0 <= result.pairs.bins_20 <= result.histograms.bins_20 + 1e-12 <= 1 + 1e-12  # a cell is in two bins
    order = list(real)
    shuffled.shuffle(order)
    assert compare_tables(MIXED, made, order) == result
    repeated = compare_tables(MIXED, made, real * copies)
    assert repeated.histograms.mean == pytest.approx(result.histograms.mean, abs=1e-14)
    assert np.sum(result.associations.levels) == result.associations.pairs == math.comb(len(MIXED.columns), 2)


@given(tables)
@examples(12, 25)
def test_identical_tables_score_exactly_one(rows: list[Row]) -> None:
    result = compare_tables(MIXED, rows, rows)
    assert result.histograms.mean == result.histograms.bins_20 == result.histograms.bins_50 == 1
    assert result.pairs is not None
    assert result.associations is not None
    assert result.pairs.mean == result.associations.share == 1


def test_tables_without_a_common_value_score_zero() -> None:
    of = schema(number("x", 0, 99), category("y", "a", "b"))
    result = compare_tables(of, [("0", "a")] * 3, [("99", "b")] * 4)
    assert result.pairs is not None
    assert result.histograms.mean == result.pairs.mean == 0


def test_a_single_column_has_no_pairs() -> None:
    result = compare_tables(schema(number("x", 0, 9)), [("1",), ("2",)], [("1",), ("3",)])
    assert result == TableComparison(result.rows, result.histograms, result.columns, None, None)
    assert result.histograms.mean == 0.5
    assert result.to_json()["pairs"] is None


def test_pairs_of_columns_with_many_categories() -> None:
    words = [str(item) for item in range(1500)]
    of = schema(category("x", *words), category("y", *words))
    real = random_rows(0, 90, of)
    assert len(set(real)) == 90
    result = compare_tables(of, real[:60], real)
    assert result.pairs is not None
    assert result.pairs.bins_20 == 60 / 90


# Associations.


def test_cramers_v_of_a_published_example() -> None:
    """The example of `cramersVBiasCorrected` in the manual of ClickHouse: number % 10, number % 4 of numbers(150)."""
    numbers = np.arange(150)
    assert cramers_v(numbers % 10, numbers % 4) == pytest.approx(0.5305112825189074, rel=1e-14)


def test_correlation_ratio_of_a_published_example() -> None:
    """Scores in algebra, geometry and statistics, of Wikipedia's "Correlation ratio": η² = 6780/9640."""
    scores = [45, 70, 29, 15, 21, 40, 20, 30, 42, 65, 95, 80, 70, 85, 73]
    assert correlation_ratio([0] * 5 + [1] * 4 + [2] * 6, scores) == pytest.approx(math.sqrt(6780 / 9640), rel=1e-14)


pairs_of_codes = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=60).map(np.array)


@settings(deadline=None)
@given(pairs_of_codes)
def test_cramers_v_is_that_of_scipy_corrected_in_fractions(codes: Any) -> None:
    """SciPy gives V² = φ²/min(r − 1, k − 1) without correction."""
    table = crosstab(codes[:, 0], codes[:, 1]).count
    n, (r, k) = len(codes), table.shape
    result = cramers_v(codes[:, 0], codes[:, 1])
    assert result**2 == pytest.approx(cramers_v(codes[:, 1], codes[:, 0]) ** 2, abs=1e-12)
    least = min(r - Fraction((r - 1) ** 2, n - 1), k - Fraction((k - 1) ** 2, n - 1)) - 1
    if least == 0:
        assert result == 0
        return
    phi_squared = association(table, method="cramer") ** 2 * (min(r, k) - 1)
    corrected = max(0.0, phi_squared - float(Fraction((r - 1) * (k - 1), n - 1)))
    assert result**2 == pytest.approx(corrected / float(least), abs=1e-12)


@pytest.mark.slow
def test_the_correction_is_the_mean_of_all_tables_with_the_same_margins() -> None:
    """Over all orders of a column, φ² is (r − 1)(k − 1)/(n − 1) on average: what V is corrected by."""
    first, second = (0, 0, 0, 1, 1, 2, 2), (0, 0, 1, 1, 1, 2, 3)
    results = []
    for order in permutations(second):
        table = crosstab(list(first), list(order)).count
        results.append(association(table, method="cramer") ** 2 * 2)
    assert np.mean(results) == pytest.approx(2 * 3 / 6, rel=1e-12)


def test_a_column_that_names_another_is_associated_fully() -> None:
    codes = np.array([0, 0, 1, 1, 2, 3])
    assert cramers_v(codes, 7 - 2 * codes) == pytest.approx(1, abs=1e-15)
    assert cramers_v(codes, np.zeros(6)) == cramers_v(np.zeros(6), np.zeros(6)) == 0
    # As many categories as rows: nothing is left after the correction.
    assert cramers_v(np.arange(6), np.arange(6)) == cramers_v(codes, np.arange(6)) == 0
    assert cramers_v([0], [1]) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50)), min_size=1, max_size=40).map(np.array))
def test_the_correlation_ratio_is_that_of_loops(rows: Any) -> None:
    mean = Fraction(int(rows[:, 1].sum()), len(rows))
    total = sum(((Fraction(int(value)) - mean) ** 2 for value in rows[:, 1]), Fraction(0))
    within = Fraction(0)
    for item in set(rows[:, 0].tolist()):
        some = [Fraction(int(value)) for other, value in rows if other == item]
        middle = sum(some, Fraction(0)) / len(some)
        within += sum(((value - middle) ** 2 for value in some), Fraction(0))
    expected = float(1 - within / total) if total else 0.0
    assert correlation_ratio(rows[:, 0], rows[:, 1]) ** 2 == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-9, 9)), min_size=2, max_size=40).map(np.array))
def test_pearson_is_that_of_pandas(rows: Any) -> None:
    frame = pd.DataFrame(rows)
    expected = frame[0].corr(frame[1])
    assert pearson(rows[:, 0], rows[:, 1]) == pytest.approx(0 if np.isnan(expected) else expected, abs=1e-12)


def test_large_numbers_that_are_close_together() -> None:
    far = np.array([0, 1, 2, 3], dtype=np.int64) + 9 * 10**15
    assert pearson(far, [2, 4, 6, 8]) == pytest.approx(1, abs=1e-15)
    assert correlation_ratio([0, 0, 1, 1], far) == pytest.approx(math.sqrt(4 / 5), abs=1e-15)


def test_associations_of_a_table_skip_rows_without_a_number() -> None:
    of = schema(number("x", 0, 9, missing=True), number("y", 0, 9), category("z", "a", "b", missing=True))
    rows = [("1", "2", "a"), ("2", "4", "a"), ("3", "5", "b"), (MISSING, "9", MISSING), ("9", "0", MISSING)]
    frame = pd.DataFrame([[1, 2], [2, 4], [3, 5], [np.nan, 9], [9, 0]])
    result = associations(of, rows)
    assert result[0, 1] == pytest.approx(abs(frame[0].corr(frame[1])))
    assert result[0, 2] == pytest.approx(correlation_ratio([0, 0, 1, 2], [1, 2, 3, 9]))
    assert result[1, 2] == pytest.approx(correlation_ratio([0, 0, 1, 2, 2], [2, 4, 5, 9, 0]))
    assert np.array_equal(result, result.T)
    assert np.diagonal(result).tolist() == [1, 1, 1]
    empty = [(MISSING, "1", MISSING), (MISSING, "2", MISSING)]
    assert associations(of, empty)[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (0.0999, 0), (0.1, 1), (0.3 - 1e-15, 2), (0.2999, 1), (0.3, 2), (0.4999, 2), (0.5, 3), (1, 3)],
)
def test_levels_include_their_lower_end(value: float, expected: int) -> None:
    assert level(value) == expected


KNOWN = schema(number("x", 0, 3), number("y", 0, 3), category("z", "a", "b"), category("w", "c", "d"))


def test_independent_columns_are_associated_at_the_lowest_level() -> None:
    """Each combination once: every association is 0, up to rounding."""
    rows = list(product("0123", "0123", "ab", "cd"))
    assert associations(KNOWN, rows) == pytest.approx(np.eye(4), abs=1e-7)
    result = compare_tables(KNOWN, rows, rows).associations
    assert result is not None
    assert result.levels[0] == (6, 0, 0, 0)


def test_agreement_counts_the_pairs_that_keep_their_level() -> None:
    """In the real table x decides y and z, and w is independent of all; the synthetic one keeps w and x-z alone."""
    real = [(x, str(3 - int(x)), "ab"[int(x) // 2], w) for x in "0123" for w in "cd"] * 4
    made = [(x, y, "ab"[int(x) // 2], w) for x in "0123" for y in "0123" for w in "cd"]
    result = compare_tables(KNOWN, made, real).associations
    assert result is not None
    # Pairs x-y, x-z and y-z are strong in the real table; of them x-z is strong in the synthetic one, too.
    assert result.levels == ((3, 0, 0, 0), (0, 0, 0, 0), (0, 0, 0, 0), (2, 0, 0, 1))
    assert (result.share, result.pairs) == (4 / 6, 6)


def test_columns_permuted_one_by_one_keep_their_histograms_and_lose_their_associations() -> None:
    """False alarm: with 4000 rows |r| ≥ .1 has a probability below 10⁻⁹ for independent columns; the seed is fixed."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 4, size=4000)
    real = [(str(item), str(item), "ab"[item // 2], "cd"[item % 2]) for item in x]
    columns = [rng.permutation([row[index] for row in real]).tolist() for index in range(4)]
    result = compare_tables(KNOWN, list(zip(*columns, strict=True)), real)
    assert result.histograms.mean == 1
    assert result.associations is not None
    assert [sum(column) for column in zip(*result.associations.levels, strict=True)] == [6, 0, 0, 0]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([("1", "2", "a", "c")], "a table has 1 rows; at least 2 are compared"),
        ([], "a table has 0 rows"),
        ([("1", "2", "a")] * 2, "a row has other columns than the schema, which has 4"),
        ([("1", "secret", "a", "c")] * 2, "a word of column 'y' is outside the public domain"),
        ([("1", MISSING, "a", "c")] * 2, "a word of column 'y' is outside the public domain"),
    ],
)
def test_tables_that_cannot_be_compared(made: list[Row], says: str) -> None:
    with pytest.raises(ValueError, match=says) as error:
        compare_tables(KNOWN, made, [("1", "2", "a", "c")] * 2)
    assert "secret" not in str(error.value)
