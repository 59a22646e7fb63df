"""Canaries for tables: rows whose combination of values is not in the data, and their distance to synthetic rows.

Distances are Gower's: the mean over columns of |a − b|/range for numbers and of 0 or 1 for categories. A canary's score
is minus its distance to the nearest synthetic row, relative to its distance to the nearest row of the data: 0 for a row
that is repeated, about −1 for one that left no trace.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from cupel.accounting.arrays import Floats
from cupel.mechanisms.data.cells import as_number, decimals, is_missing

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Any]

MAX_CATEGORIES = 200
"""A column with more distinct words is treated as names or prose: canaries have a random word there."""
_CELLS = 4_000_000  # of a distance matrix
_LARGEST = 2.0**53  # above this, not every whole number is a float


@dataclass(frozen=True, slots=True)
class Column:
    """The type and the range of a column.

    Attributes:
        name: of the column.
        kind: ``number``, ``word``, or ``other`` if it is not compared.
        low, high: the smallest and largest number.
        decimals: number of decimals of its numbers.
        values: its distinct words, as they are in the file.
        quoted: whether its numbers are strings, as in CSV.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    values: tuple[Value, ...] = ()
    quoted: bool = False

    @property
    def distinct_values(self) -> float:
        """An upper bound on the number of distinct values that `draw` returns."""
        if self.kind == "other":
            return 2.0**48
        if self.kind == "word":
            return len(self.values)
        return (self.high - self.low) * 10.0**self.decimals + 2 if self.decimals <= 300 else math.inf

    def draw(self, count: int, rng: np.random.Generator) -> list[Value]:
        """Values drawn uniformly from the range of the column or from its words; random words for kind ``other``."""
        if self.kind == "word":
            return [self.values[place] for place in rng.integers(len(self.values), size=count)]
        if self.kind == "other":
            return [f"{number:012x}" for number in rng.integers(2**48, size=count)]
        if self.decimals == 0:
            numbers: list[float] = rng.integers(int(self.low), int(self.high), size=count, endpoint=True).tolist()
        else:
            drawn = rng.uniform(self.low, self.high, size=count).round(self.decimals)
            numbers = np.clip(drawn, self.low, self.high).tolist()
        return [f"{number:.{self.decimals}f}" for number in numbers] if self.quoted else list(numbers)


@dataclass(slots=True)
class ColumnReader:
    """Infers the type and range of a column, value by value."""

    name: str
    low: float = math.inf
    high: float = -math.inf
    decimals: int = 0
    numbers: bool = True
    quoted: bool = False
    flat: bool = True
    words: dict[str, Value] = field(default_factory=dict)

    def read(self, value: Any) -> None:
        """Adds one value; missing values are ignored."""
        if is_missing(value):
            return
        if not isinstance(value, str | int | float):
            self.flat = False
            return
        number = as_number(value)
        if number is None:
            self.numbers = False
        else:
            self.low, self.high = min(self.low, number), max(self.high, number)
            self.decimals = max(self.decimals, decimals(value))
            self.quoted |= isinstance(value, str)
        if len(self.words) <= MAX_CATEGORIES:
            self.words.setdefault(_canonical(value), value)

    @property
    def column(self) -> Column:
        """The inferred column."""
        if not self.flat or not self.words:
            return Column(self.name, "other")
        if self.numbers and max(-self.low, self.high) < _LARGEST:
            return Column(self.name, "number", self.low, self.high, self.decimals, quoted=self.quoted)
        if self.numbers or len(self.words) > MAX_CATEGORIES:
            return Column(self.name, "other")
        return Column(self.name, "word", values=tuple(self.words[key] for key in sorted(self.words)))


def comparable_columns(columns: Sequence[Column]) -> list[Column]:
    """The columns that distances use."""
    return [column for column in columns if column.kind != "other"]


def draw_rows(count: int, columns: Sequence[Column], rng: np.random.Generator) -> list[dict[str, Value]]:
    """Rows whose columns are drawn independently, which makes them unusual."""
    drawn = {column.name: column.draw(count, rng) for column in columns}
    return [{name: values[place] for name, values in drawn.items()} for place in range(count)]


def draw_unusual_rows(
    count: int, columns: Sequence[Column], known: Sequence[Row], rng: np.random.Generator
) -> tuple[list[dict[str, Value]], Floats]:
    """Distinct rows that do not occur in the data: of twice as many, those that are furthest from it.

    Args:
        count: number of rows.
        columns: of the data.
        known: rows of the data, all or a uniform sample.
        rng: of the draw.

    Returns:
        The rows in random order, and the distance of each to the nearest known row, shape (count,), above 0.

    Raises:
        ValueError: if the columns allow too few distinct rows.
    """
    used = comparable_columns(columns)
    if not used:
        raise ValueError("no column holds numbers or at most 200 distinct words, so rows cannot be compared")
    few = f"the columns allow fewer than {count} distinct rows that are not in the data; plan fewer canaries"
    if math.prod(column.distinct_values for column in used) < count:
        raise ValueError(few)
    pool: dict[tuple[str, ...], dict[str, Value]] = {}
    for _ in range(20):
        before = len(pool)
        for row in draw_rows(2 * count, columns, rng):
            pool.setdefault(tuple(_canonical(row[column.name]) for column in used), row)
        if len(pool) >= 2 * count or len(pool) < 1.01 * before:
            break
    rows = list(pool.values())
    distances, _ = nearest(rows, columns, known)
    order = np.argsort(-distances, kind="stable")[:count]
    if len(order) < count or distances[order[-1]] <= 0:
        raise ValueError(few)
    order = rng.permutation(order)
    return [rows[place] for place in order], distances[order]


def nearest(rows: Sequence[Row], columns: Sequence[Column], others: Iterable[Row]) -> tuple[Floats, int]:
    """The distance of each row to the nearest of `others`, which are read in pieces.

    A cell that is missing or of another type is at distance 1 from any other.

    Args:
        rows: m rows.
        columns: the columns to compare, with their ranges.
        others: rows with at least these columns; may be an iterator.

    Returns:
        Distances of shape (m,), in [0, 1], 1 if there are no others; and the number of others.
    """
    used = comparable_columns(columns)
    mine = _coded(rows, used)
    best, count = np.ones(len(rows)), 0
    for piece in _pieces(others, max(1, _CELLS // max(1, len(rows)))):
        theirs = _coded(piece, used)
        total = np.zeros((len(rows), len(piece)))
        for place, column in enumerate(used):
            total += _distance(column, mine[:, place, None], theirs[None, :, place])
        best = np.minimum(best, total.min(axis=1) / len(used))
        count += len(piece)
    return best, count


def _distance(column: Column, one: Floats, other: Floats) -> Floats:
    """The term of one column in Gower's distance; NaN is at distance 1 from everything."""
    if column.kind == "number" and column.high > column.low:
        gap = np.minimum(np.abs(one - other) / (column.high - column.low), 1.0)
        return np.asarray(np.where(np.isnan(gap), 1.0, gap), dtype=np.float64)
    return np.asarray(one != other, dtype=np.float64)


def _coded(rows: Sequence[Row], columns: Sequence[Column]) -> Floats:
    """Shape (rows, columns): numbers as they are, words by their index in the column, NaN for anything else."""
    out = np.full((len(rows), len(columns)), np.nan)
    for place, column in enumerate(columns):
        codes = {_canonical(value): float(code) for code, value in enumerate(column.values)}
        for index, row in enumerate(rows):
            value = row.get(column.name)
            code = as_number(value) if column.kind == "number" else codes.get(_canonical(value))
            if code is not None and not is_missing(value):
                out[index, place] = code
    return out


def _canonical(value: Any) -> str:
    return str(value).strip().casefold()


def _pieces(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece
