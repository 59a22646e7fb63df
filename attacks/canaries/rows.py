"""Canaries for tables: rows whose combination of values is not in the data, and their distance to synthetic rows.

Distances are Gower's: the mean over columns of |a − b|/range for numbers and of 0 or 1 for categories. A canary's score
is minus its distance to the nearest synthetic row, relative to its distance to the nearest row of the data: 0 for a row
that is repeated, about −1 for one that left no trace.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.base.pieces import pieces
from dpassay.data.cells import as_category, as_day, as_number, decimals, is_missing

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Any]

MAX_CATEGORIES = 200
"""A column with more distinct words is treated as names or prose: canaries have a random word there."""
CELLS = 4_000_000  # of a distance matrix
_WITHIN, _BEYOND = 0.02, 0.5  # shares of a range: how far from its ends extreme values are
_CONSONANTS, _VOWELS = "bdfghjklmnprstvwz", "aeiou"
_DAY = len("2013-05-31")  # longer words stay words, since drawn dates are written in this form
_LARGEST = 2.0**53  # above this, not every whole number is a float


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The type and the range of a column.

    Attributes:
        name: of the column.
        kind: ``number``, ``date``, ``word``, or ``other`` if it is not compared.
        low, high: the smallest and largest number; of dates as days from 0001-01-01.
        decimals: number of decimals of its numbers.
        values: its distinct words, as they are in the file. Of numbers and dates the distinct values if they are few
            and repeat; canaries then have no others, so that the column keeps its number of distinct values.
        quoted: whether its numbers are strings, as in CSV.
        missing: probability that a drawn cell is empty.
        unused: words of its public domain that the data do not have.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    values: tuple[Value, ...] = ()
    quoted: bool = False
    missing: float = 0.0
    unused: tuple[Value, ...] = ()

    @property
    def distinct_values(self) -> float:
        """An upper bound on the number of distinct values that `draw` returns."""
        empty = 1 if self.missing else 0
        if self.missing == 1:
            return 1
        if self.kind == "other":
            return 2.0**48
        if self.values or self.kind == "word":
            return len(self.values) + empty
        steps = (self.high - self.low) * 10.0**self.decimals + 2 if self.decimals <= 300 else math.inf
        return steps + empty

    def draw(self, count: int, rng: np.random.Generator) -> list[Value]:
        """Values drawn uniformly from the column's values, or else from its range; random words for kind ``other``."""
        if self.values or self.kind == "word":
            drawn = [self.values[index] for index in rng.integers(len(self.values), size=count)]
        elif self.kind == "other":
            drawn = [f"{number:012x}" for number in rng.integers(2**48, size=count)]
        elif self.decimals == 0:
            drawn = self._written(rng.integers(int(self.low), int(self.high), size=count, endpoint=True))
        else:
            drawn = self._written(
                np.clip(self._rounded(rng.uniform(self.low, self.high, size=count)), self.low, self.high)
            )
        return self._some_missing(drawn, rng)

    def draw_at_edges(self, count: int, rng: np.random.Generator, *, beyond: bool) -> list[Value]:
        """Numbers or dates at either end of the range: within 2% of it, or, if `beyond`, up to half the range outside.

        The sign stays that of the column: numbers that are not negative do not become so.
        """
        width = self.high - self.low
        away = rng.random(count) * (_BEYOND if beyond else -_WITHIN) * width
        at_top = rng.random(count) < 0.5
        numbers = self._rounded(np.where(at_top, self.high + away, self.low - away))
        if self.low >= 0:
            numbers = np.maximum(numbers, 0)
        if not beyond:
            numbers = np.clip(numbers, self.low, self.high)
        if self.kind == "date":
            numbers = np.clip(numbers, 1, datetime.date.max.toordinal())
        return self._some_missing(self._written(numbers), rng)

    def _rounded(self, numbers: Floats) -> Floats:
        return np.asarray(numbers.round(self.decimals), dtype=np.float64)

    def _written(self, numbers: Floats | Integers) -> list[Value]:
        """Numbers as they are in the file."""
        if self.kind == "date":
            return [datetime.date.fromordinal(int(number)).isoformat() for number in numbers]
        if self.quoted:
            return [f"{number:.{self.decimals}f}" for number in numbers.tolist()]
        return [int(number) if self.decimals == 0 else number for number in numbers.tolist()]

    def _some_missing(self, values: list[Value], rng: np.random.Generator) -> list[Value]:
        if not self.missing:
            return values
        return [
            None if empty else value
            for value, empty in zip(values, rng.random(len(values)) < self.missing, strict=True)
        ]


@dataclass(slots=True)
class RangeReader:
    """Infers the type and range of a column, value by value."""

    name: str
    low: float = math.inf
    high: float = -math.inf
    decimals: int = 0
    numbers: bool = True
    dates: bool = True
    quoted: bool = False
    flat: bool = True
    count: int = 0
    filled: int = 0
    words: dict[str, Value] = field(default_factory=dict)

    def read(self, value: Any) -> None:
        """Adds one value."""
        self.count += 1
        if is_empty(value):
            return
        self.filled += 1
        if isinstance(value, Decimal):
            value = int(value) if value == value.to_integral_value() else float(value)
        day = as_day(value) if self.dates and not (isinstance(value, str) and len(value) > _DAY) else None
        if day is None and not isinstance(value, str | int | float):
            self.flat = False
            return
        number = as_number(value) if self.numbers else None
        self.numbers &= number is not None
        self.dates &= day is not None
        result = number if number is not None else day
        if result is not None:
            self.low, self.high = min(self.low, result), max(self.high, result)
        if number is not None:
            self.decimals = max(self.decimals, decimals(value))
            self.quoted |= isinstance(value, str)
        if len(self.words) <= MAX_CATEGORIES:
            written = value.isoformat()[:10] if isinstance(value, datetime.date) else value
            self.words.setdefault(canonical(written), written)

    @property
    def column(self) -> ColumnRange:
        """The inferred column."""
        missing = 1 - self.filled / self.count if self.count else 0.0
        if not self.flat or not self.words:
            return ColumnRange(self.name, "other", missing=missing)
        few = len(self.words) <= MAX_CATEGORIES
        words = tuple(self.words[key] for key in sorted(self.words))
        values = words if few and self.filled >= 2 * len(words) else ()
        if self.numbers and max(-self.low, self.high) < _LARGEST:
            return ColumnRange(self.name, "number", self.low, self.high, self.decimals, values, self.quoted, missing)
        if self.dates:
            return ColumnRange(self.name, "date", self.low, self.high, values=values, missing=missing)
        if self.numbers or not few:
            return ColumnRange(self.name, "other", missing=missing)
        return ColumnRange(self.name, "word", values=words, missing=missing)


def comparable_columns(columns: Sequence[ColumnRange]) -> list[ColumnRange]:
    """The columns that distances use."""
    return [column for column in columns if column.kind != "other"]


def draw_rows(count: int, columns: Sequence[ColumnRange], rng: np.random.Generator) -> list[dict[str, Value]]:
    """Rows whose columns are drawn independently, which makes them unusual."""
    return _joined(count, {column.name: column.draw(count, rng) for column in columns})


def draw_edge_rows(
    count: int, columns: Sequence[ColumnRange], rng: np.random.Generator, *, beyond: bool
) -> list[dict[str, Value]]:
    """Rows whose numbers and dates lie at the ends of their ranges, or `beyond` them (`ColumnRange.draw_at_edges`),
    each by a fair coin."""
    drawn = {
        column.name: column.draw_at_edges(count, rng, beyond=beyond)
        if column.kind in ("number", "date")
        else column.draw(count, rng)
        for column in columns
    }
    return _joined(count, drawn)


def draw_categories(count: int, column: ColumnRange, rng: np.random.Generator) -> list[Value]:
    """Distinct categories that neither a column nor its public domain has.

    They are whole numbers if it has only those, or else made-up words.
    """
    held = (*column.values, *column.unused)
    numbers = [as_number(value) for value in held]
    if all(number is not None and number.is_integer() for number in numbers):
        top = int(max(number or 0.0 for number in numbers))
        drawn = (top + 1 + rng.permutation(4 * count)[:count]).tolist()
        return [str(number) for number in drawn] if isinstance(column.values[0], str) else drawn
    known = {canonical(value) for value in held}
    capital = all(str(value)[:1].isupper() for value in column.values)
    words: dict[str, None] = {}
    while len(words) < count:
        letters = rng.integers(len(_CONSONANTS) * len(_VOWELS), size=4)
        word = "".join(_CONSONANTS[item // len(_VOWELS)] + _VOWELS[item % len(_VOWELS)] for item in letters)
        if word not in known:
            words.setdefault(word.capitalize() if capital else word)
    return list(words)


def _joined(count: int, columns: Mapping[str, Sequence[Value]]) -> list[dict[str, Value]]:
    return [{name: values[index] for name, values in columns.items()} for index in range(count)]


def draw_unusual_rows(
    count: int,
    columns: Sequence[ColumnRange],
    known: Sequence[Row],
    rng: np.random.Generator,
    draw: Callable[[int, Sequence[ColumnRange], np.random.Generator], list[dict[str, Value]]] = draw_rows,
) -> tuple[list[dict[str, Value]], Floats]:
    """Distinct rows that do not occur in the data: of twice as many that `draw` gives, those that are furthest from it.

    `known` are rows of the data, all or a uniform sample; there may be none. Returns the rows in random order, and the
    distance of each to the nearest known row, shape (count,), above 0; 1 if no row is known.

    Raises:
        ValueError: if the columns allow too few distinct rows.
    """
    used = comparable_columns(columns)
    if not used:
        raise ValueError("no column holds numbers, dates or at most 200 distinct words, so rows cannot be compared")
    few = f"the columns allow fewer than {count} distinct rows that are not in the data; plan fewer canaries"
    if draw is draw_rows and math.prod(column.distinct_values for column in used) < count:
        raise ValueError(few)
    pool: dict[tuple[str, ...], dict[str, Value]] = {}
    rows: list[dict[str, Value]] = []
    distances = np.empty(0)
    for attempts_left in reversed(range(20)):
        before = len(pool)
        for row in draw(2 * count, columns, rng):
            pool.setdefault(tuple(canonical(row[column.name]) for column in used), row)
        exhausted = len(pool) < 1.01 * before
        if len(pool) < 2 * count and not exhausted and attempts_left:
            continue
        rows = list(pool.values())
        distances, _ = nearest(rows, columns, known)
        if exhausted or np.count_nonzero(distances > 0) >= count:
            break
    order = np.argsort(-distances, kind="stable")[:count]
    if len(order) < count or distances[order[-1]] <= 0:
        raise ValueError(few)
    order = rng.permutation(order)
    return [rows[index] for index in order], distances[order]


def nearest(rows: Sequence[Row], columns: Sequence[ColumnRange], others: Iterable[Row]) -> tuple[Floats, int]:
    """The distance of each of m rows to the nearest of `others`, shape (m,), in [0, 1], and the number of others, which
    may be an iterator and are read in pieces; 1 if there are none.

    A cell of another type is at distance 1 from any other; so is an empty one, but for another empty one.
    """
    used = comparable_columns(columns)
    mine = coded(rows, used)
    best, count = np.ones(len(rows)), 0
    for piece in pieces(others, max(1, CELLS // max(1, len(rows)))):
        theirs = coded(piece, used)
        total = np.zeros((len(rows), len(piece)))
        for index, column in enumerate(used):
            total += _distance(column, mine[:, index, None], theirs[None, :, index])
        best = np.minimum(best, total.min(axis=1) / len(used))
        count += len(piece)
    return best, count


def _distance(column: ColumnRange, item: Floats, other: Floats) -> Floats:
    """The term of one column in Gower's distance; NaN is at distance 1 from everything."""
    apart = np.asarray(item != other, dtype=np.float64)  # True for NaN
    if column.kind == "word" or column.high <= column.low:
        return apart
    with np.errstate(invalid="ignore"):  # two empty cells: ∞ − ∞
        gap = np.minimum(np.abs(item - other) / (column.high - column.low), 1.0)
    return np.asarray(np.where(np.isnan(gap), apart, gap), dtype=np.float64)


def coded(rows: Sequence[Row], columns: Sequence[ColumnRange]) -> Floats:
    """The cells of n rows in the columns to compare, shape (n, columns): numbers as they are, dates as days, words by
    their index in the column, ∞ for an empty cell, NaN for anything else."""
    out = np.full((len(rows), len(columns)), np.nan)
    for position, column in enumerate(columns):
        codes = {canonical(value): float(code) for code, value in enumerate(column.values)}
        for index, row in enumerate(rows):
            value = row.get(column.name)
            if is_empty(value):
                out[index, position] = np.inf
                continue
            read = READERS.get(column.kind)
            code = codes.get(canonical(value)) if read is None else read(value)
            if code is not None:
                out[index, position] = code
    return out


READERS: Mapping[str, Callable[[Any], float | None]] = {"number": as_number, "date": as_day}
"""How the cells of a kind of column are read; all other cells are words."""


def is_empty(value: Any) -> bool:
    """Whether a cell is missing; numbers that are not finite are."""
    return is_missing(value) or (isinstance(value, float | Decimal) and not math.isfinite(value))


def canonical(value: Any) -> str:
    """How values are compared: as text, without case and spaces at the ends, and with whole numbers alike."""
    return as_category(value).casefold()
