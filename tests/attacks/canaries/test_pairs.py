"""Scores by pairs of columns: counts by brute force, what they find that the nearest row misses, and false alarms."""

from __future__ import annotations

import datetime
import itertools
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpassay.attacks.canaries import pairs as by_pairs
from dpassay.attacks.canaries.pairs import (
    BINS,
    MAX_PAIRS,
    column_pairs,
    draw_rare_rows,
    pair_counts,
    pair_scores,
)
from dpassay.attacks.canaries.rows import ColumnRange, RangeReader, Row, draw_rows, draw_unusual_rows, nearest
from dpassay.audits.statistics.one_run import epsilons_one_run

COLUMNS = [
    ColumnRange("id", "other"),
    ColumnRange("age", "number", 18, 90, missing=0.2),
    ColumnRange("day", "date", 737000, 737400),
    ColumnRange("city", "word", values=("Bergen", "Delft", "Ghent")),
]


def bin_by_hand(column: ColumnRange, value: Any) -> Any:
    """What two cells must share to agree; None agrees with nothing."""
    if value in (None, ""):
        return "empty"
    if column.kind == "word":
        known = [str(item).casefold() for item in column.values]
        return str(value).casefold() if str(value).casefold() in known else None
    if column.kind == "date":
        value = datetime.date.fromisoformat(value).toordinal()
    if isinstance(value, str):
        return None
    return min(BINS - 1, max(0, math.floor((value - column.low) / (column.high - column.low) * BINS)))


@pytest.mark.parametrize("piece", [1, 7, 4096])
def test_counts_are_those_of_brute_force_whatever_the_pieces(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_pairs, "PIECE", piece)
    rng = np.random.default_rng(0)
    canaries, others = draw_rows(30, COLUMNS, rng), draw_rows(200, COLUMNS, rng)
    others[3]["city"] = "oslo"
    others[4]["age"], others[5]["age"], others[6]["city"] = 500, -3, " GHENT".strip()
    result = pair_counts(canaries, COLUMNS, iter(others))
    assert result.rows == 200
    used = COLUMNS[1:]
    for index, canary in enumerate(canaries):
        mine = [bin_by_hand(column, canary[column.name]) for column in used]
        theirs = [[bin_by_hand(column, row[column.name]) for column in used] for row in others]
        assert result.columns[index].tolist() == [sum(row[j] == mine[j] for row in theirs) for j in range(3)]
        expected = [sum((row[i], row[j]) == (mine[i], mine[j]) for row in theirs) for i, j in column_pairs(3)]
        assert result.pairs[index].tolist() == expected


@pytest.mark.parametrize(("columns", "pairs"), [(2, 1), (3, 3), (8, 28), (25, 300), (60, MAX_PAIRS)])
def test_all_pairs_are_compared_or_as_many_with_each_column(columns: int, pairs: int) -> None:
    result = column_pairs(columns)
    assert len(set(result)) == len(result) == pairs
    assert all(0 <= first < second < columns for first, second in result)
    often = Counter(column for pair in result for column in pair)
    assert max(often.values()) - min(often.values()) <= 1
    assert len(often) == columns


def people(count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rows of four numbers and four categories, which hang together."""
    common = rng.normal(size=count)
    numbers = np.rint(50 + 15 * (0.7 * common[:, None] + 0.7 * rng.normal(size=(count, 4)))).astype(int)
    words = np.clip(np.floor(0.6 * common[:, None] + 0.8 * rng.normal(size=(count, 4)) + 2.5), 0, 5).astype(int)
    return [
        {f"n{j}": int(row[j]) for j in range(4)} | {f"w{j}": f"word {other[j]}" for j in range(4)}
        for row, other in zip(numbers, words, strict=True)
    ]


def columns_of(rows: list[dict[str, Any]]) -> list[ColumnRange]:
    readers = {name: RangeReader(name) for name in rows[0]}
    for row in rows:
        for name, value in row.items():
            readers[name].read(value)
    return [reader.column for reader in readers.values()]


def chain_of_pairs(
    rows: list[Row], columns: list[ColumnRange], rng: np.random.Generator, scale: float, count: int
) -> list[dict[str, Any]]:
    """Rows from the counts of neighbouring columns in a random order, with Laplace noise: the pairs of a tree, as in
    MST, but unprotected if the scale is small."""
    order = [columns[index] for index in rng.permutation(len(columns))]
    tables: list[Counter[tuple[Any, Any]]] = []
    for left, right in itertools.pairwise(order):
        tables.append(Counter((bin_by_hand(left, row[left.name]), bin_by_hand(right, row[right.name])) for row in rows))
    first = Counter(bin_by_hand(order[0], row[order[0].name]) for row in rows)
    cells = [list(first)]
    out = [[cells[0][i]] for i in rng.choice(len(first), p=weights(first.values(), rng, scale), size=count)]
    for table, right in zip(tables, order[1:], strict=True):
        domain = range(BINS) if right.kind == "number" else [str(value) for value in right.values]
        laws = {
            begun: weights([table[begun, end] for end in domain], rng, scale).cumsum()
            for begun in {row[-1] for row in out}
        }
        for row, share in zip(out, rng.random(count).tolist(), strict=True):
            row.append(domain[min(int(np.searchsorted(laws[row[-1]], share)), len(domain) - 1)])
    return [{column.name: value_of(column, cell, rng) for column, cell in zip(order, row, strict=True)} for row in out]


def weights(counts: Any, rng: np.random.Generator, scale: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    noisy = np.maximum(np.array(list(counts), dtype=np.float64) + rng.laplace(scale=scale, size=len(counts)), 1e-9)
    return np.asarray(noisy / noisy.sum())


def value_of(column: ColumnRange, cell: Any, rng: np.random.Generator) -> Any:
    if column.kind == "word":
        return cell
    return round(column.low + (cell + rng.random()) / BINS * (column.high - column.low))


def interpolated(
    rows: list[Row], columns: list[ColumnRange], rng: np.random.Generator, count: int
) -> list[dict[str, Any]]:
    """Rows between a row and one of its five nearest, as SMOTE has it."""
    numbers = [column.name for column in columns if column.kind == "number"]
    points = np.array([[row[name] for name in numbers] for row in rows], dtype=np.float64)
    out = []
    for index in rng.integers(len(rows), size=count):
        near = np.argpartition(((points - points[index]) ** 2).sum(axis=1), 6)[:6]
        near = near[near != index]
        other, share = int(rng.choice(near)), rng.random()
        between = points[index] + share * (points[other] - points[index])
        row = dict(rows[index] if rng.random() < 0.5 else rows[other])
        out.append(row | {name: round(value) for name, value in zip(numbers, between.tolist(), strict=True)})
    return out


CANDIDATES, GUESSES = 400, 40


def right_guesses(generator: str, score: str, seed: int) -> int:
    """How many of 40 guesses among 400 candidates in 2000 rows are right."""
    rng = np.random.default_rng(seed)
    data = people(2000, rng)
    columns = columns_of(data)
    if score == "pairs":
        canaries, expected = draw_rare_rows(2 * CANDIDATES, columns, data, len(data), rng)
    else:
        canaries, distances = draw_unusual_rows(2 * CANDIDATES, columns, data, rng)
    coins = rng.random(CANDIDATES) < 0.5
    rows: list[Row] = [*data, *(canaries[index] for index in np.flatnonzero(coins))]
    if generator == "chain":
        synthetic = chain_of_pairs(rows, columns, rng, 0.1, len(rows))
    else:
        synthetic = interpolated(rows, columns, rng, len(rows))
    if score == "pairs":
        scores = pair_scores(pair_counts(canaries, columns, synthetic), expected)
    else:
        scores = -nearest(canaries, columns, synthetic)[0] / distances
    highest = np.argsort(-scores[:CANDIDATES], kind="stable")[:GUESSES]
    return int(coins[highest].sum())


@pytest.mark.slow
def test_a_generator_that_remembers_pairs_is_found_by_pairs_and_not_by_the_nearest_row() -> None:
    """Of 80 guesses in two runs, by chance 58 or more are right with probability below 1e-4; seeded."""
    assert stats.binom.sf(57, 80, 0.5) < 1e-4
    assert sum(right_guesses("chain", "pairs", seed) for seed in range(2)) >= 64
    assert sum(right_guesses("chain", "nearest", seed) for seed in range(2)) < 58


@pytest.mark.slow
def test_a_generator_that_interpolates_is_found_by_both_and_best_by_the_nearest_row() -> None:
    """Of 40 guesses, by chance 32 or more are right with probability below 2e-4; seeded."""
    assert stats.binom.sf(31, 40, 0.5) < 2e-4
    assert 32 <= right_guesses("between", "pairs", 0) <= right_guesses("between", "nearest", 0)


@pytest.mark.slow
def test_false_alarms_on_an_exact_mechanism() -> None:
    """Counts of one pair with Laplace noise of scale 1/ε have ε = 1 in each row: correct guesses are at most as many as
    with randomised response. If the bound exceeded 1 with probability 5%, it would in more than 30 of 300 runs with
    probability below 1e-3; seeded."""
    assert stats.binom.sf(30, 300, 0.05) < 1e-3
    rng, columns = np.random.default_rng(5), [ColumnRange(name, "number", 0, 2000) for name in "ab"]
    alarms = 0
    for _ in range(300):
        cells = [(i, j) for i in range(BINS) for j in range(BINS)]
        rng.shuffle(cells)
        canaries: list[Row] = [{"a": 100 * i + 50, "b": 100 * j + 50} for i, j in cells[:200]]
        expected = np.zeros((200, 1))
        coins = rng.random(100) < 0.5
        noisy = np.maximum(
            0,
            np.rint(
                10 * (np.concatenate([coins.astype(np.float64), np.zeros(100)]) + rng.laplace(scale=1.0, size=200))
            ),
        ).astype(int)
        synthetic = [row for row, count in zip(canaries, noisy, strict=True) for _ in range(count)]
        scores = pair_scores(pair_counts(canaries, columns, synthetic), expected)[:100]
        right = int(coins[np.argsort(-scores, kind="stable")[:40]].sum())
        alarms += float(epsilons_one_run(100, 40, right, delta=0.0, confidence=0.95)) > 1
    assert alarms <= 30


def test_rare_rows_treat_candidates_and_controls_alike() -> None:
    """The expected counts of a canary do not change if the rows are given in another order."""
    data = people(300, np.random.default_rng(1))
    columns = columns_of(data)
    rows, expected = draw_rare_rows(50, columns, data, len(data), np.random.default_rng(2))
    assert expected.shape == (50, 28)
    seen, beside = pair_counts(rows, columns, data), pair_counts(rows, columns, rows)
    np.testing.assert_allclose(expected, seen.pairs + (beside.pairs - 1) / 4)
    order = random.Random(3).sample(range(50), 50)
    synthetic = people(400, np.random.default_rng(4))
    item = pair_scores(pair_counts(rows, columns, synthetic), expected)
    other = pair_scores(pair_counts([rows[index] for index in order], columns, synthetic), expected[order])
    np.testing.assert_allclose(other, item[order])


def test_one_column_has_no_pairs() -> None:
    with pytest.raises(ValueError, match="fewer than two columns hold"):
        draw_rare_rows(5, [ColumnRange("a", "number", 0, 9)], [{"a": 1}], 1, np.random.default_rng(0))
