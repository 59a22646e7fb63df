"""Canaries for tables: rows whose combination of values is not in the data, and their distance to synthetic rows.

Distances are Gower's: the mean over columns of |a − b|/range for numbers and of 0 or 1 for categories. A canary's score
is minus its distance to the nearest synthetic row, relative to its distance to the nearest row of the data: 0 for a row
that is repeated, about −1 for one that left no trace.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np

from dpassay.attacks.canaries.spelling import MAX_DECIMALS, PLAIN, Spelling, SpellingReader, Value
from dpassay.base.arrays import Floats, Integers
from dpassay.base.pieces import pieces
from dpassay.data.cells import as_day, as_number, is_missing
from dpassay.data.columns import (
    MARKS,
    MAX_CATEGORIES,
    NO_RULES,
    Column,
    ColumnReader,
    Form,
    Kind,
    Rules,
    meanings,
    word_of,
)

Row: TypeAlias = Mapping[str, Any]

CELLS = 4_000_000  # of a distance matrix
_WITHIN, _BEYOND = 0.02, 0.5  # shares of a range: how far from its ends extreme values are
_CONSONANTS, _VOWELS = "bdfghjklmnprstvwz", "aeiou"
_LARGEST = 2.0**53  # above this, not every whole number is a float
_PLAIN_FORMS = {"number": Form.POINT, "date": Form.DAY, "time": Form.TIME}
_SECONDS = 86_400

MEASURED = ("number", "date", "time")
"""The kinds of columns whose cells have a distance; words are equal or not."""


@dataclass(frozen=True, slots=True)
class ColumnRange:
    """The type and the range of a column.

    Attributes:
        name: of the column.
        kind: ``number``, ``date``, ``time``, ``word``, or ``other`` if it is not compared.
        low, high: the smallest and largest number; of dates and times as days from 0001-01-01.
        decimals: number of decimals of its numbers.
        values: its distinct words, as they are in the file. Of numbers, dates and times the distinct values if they are
            few and repeat; canaries then have no others, so that the column keeps its number of distinct values.
        quoted: whether its numbers are strings, as in CSV.
        missing: probability that a drawn cell is empty.
        unused: words of its public domain that the data do not have.
        form: in which its cells are numbers, dates or times (`dpassay.data.columns.Form`); empty in plans of earlier
            versions, whose numbers have a point and whose dates are written as in 2013-05-31.
        marks: words that were stated to mean that a cell is missing.
        spelling: how its cells are written.
        compared: whether distances use it, unless its kind is ``other``.
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
    form: str = ""
    marks: tuple[str, ...] = ()
    spelling: Spelling = PLAIN
    compared: bool = True

    @property
    def is_measured(self) -> bool:
        """Whether its cells have a distance."""
        return self.kind in MEASURED

    @property
    def has_edges(self) -> bool:
        """Whether values can lie at the ends of its range, and beyond."""
        return self.is_measured and self.form != Form.TRUTH

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
        if self.kind == "time":
            return (self.high - self.low) * _SECONDS * 1e6 / self.spelling.step + 2 + empty
        steps = (self.high - self.low) * 10.0**self.decimals + 2 if self.decimals <= 300 else math.inf
        return steps + empty

    def draw(self, count: int, rng: np.random.Generator) -> list[Value]:
        """Values drawn uniformly from the column's values, or else from its range; random words for kind ``other``."""
        if self.values or self.kind == "word":
            drawn = [self.values[index] for index in rng.integers(len(self.values), size=count)]
        elif self.kind == "other":
            drawn = [f"{number:012x}" for number in rng.integers(2**48, size=count)]
        elif self.decimals == 0 and self.kind != "time":
            drawn = self._written(rng.integers(int(self.low), int(self.high), size=count, endpoint=True))
        else:
            drawn = self._written(
                np.clip(self._rounded(rng.uniform(self.low, self.high, size=count)), self.low, self.high)
            )
        return self._some_missing(drawn, rng)

    def draw_at_edges(self, count: int, rng: np.random.Generator, *, beyond: bool) -> list[Value]:
        """Values at either end of the range: within 2% of it, or, if `beyond`, up to half the range outside.

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
        if self.kind != "number":
            numbers = np.clip(numbers, 2, datetime.date.max.toordinal() - 1)
        return self._some_missing(self._written(numbers), rng)

    def _rounded(self, numbers: Floats) -> Floats:
        if self.kind == "time" or self.decimals >= MAX_DECIMALS:
            return numbers
        return np.asarray(numbers.round(self.decimals), dtype=np.float64)

    def _written(self, numbers: Floats | Integers) -> list[Value]:
        """Numbers as they are in the file."""
        if self.kind != "number":
            return [self.spelling.moment(float(number)) for number in numbers]
        return [
            self.spelling.number(number, self.decimals, Form(self.form or Form.POINT), quoted=self.quoted)
            for number in numbers.tolist()
        ]

    def _some_missing(self, values: list[Value], rng: np.random.Generator) -> list[Value]:
        if not self.missing:
            return values
        return [
            self.spelling.missing if empty else value
            for value, empty in zip(values, rng.random(len(values)) < self.missing, strict=True)
        ]

    def is_empty(self, cell: Any) -> bool:
        """Whether a cell is missing: empty, marked as missing, or a number that is not finite."""
        if is_empty(cell):
            return True
        if not isinstance(cell, str) or not (self.marks or (self.form and self.is_measured)):
            return False
        word = word_of(cell)
        return word in self.marks or (bool(self.form) and self.is_measured and word in MARKS)

    def number(self, cell: Any) -> float | None:
        """The number that a cell means in the form of the column; None if it is missing, or not of that form."""
        form = Form(self.form) if self.form else _PLAIN_FORMS[self.kind]
        if form is Form.POINT:
            return as_number(cell)
        if form is Form.DAY:
            return as_day(cell.strip() if isinstance(cell, str) else cell)
        if is_empty(cell):
            return None
        forms, numbers = meanings(cell)
        return numbers[forms.index(form)] if form in forms else None


def range_of(column: Column, written: SpellingReader, marks: Collection[str] = ()) -> ColumnRange:
    """What canaries are drawn from, from what a column holds and how it is written.

    Args:
        column: what it holds.
        written: after it has read the same cells.
        marks: words that were stated to mean that a cell is missing.
    """
    missing = column.missing / column.rows if column.rows else 0.0
    spelling, stated = written.spelling(column.form), tuple(sorted(map(word_of, marks)))
    other = ColumnRange(column.name, "other", missing=missing, marks=stated, spelling=spelling)
    if column.form is not None and column.low <= column.high:
        kind, low, high = str(column.form.kind), column.low, column.high
        if kind == "number" and max(-low, high) >= _LARGEST:
            return other
        return ColumnRange(
            column.name,
            kind,
            low,
            high,
            written.digits(column.form) if kind == "number" else 0,
            _few_values(column, written),
            written.quoted,
            missing,
            form=str(column.form),
            marks=stated,
            spelling=spelling,
        )
    words = tuple(value for word, value in sorted(written.values.items()) if word not in stated)
    if column.form is not None or column.kind is Kind.NESTED or not words or len(words) > MAX_CATEGORIES:
        return other
    return replace(other, kind="word", values=words)


def _few_values(column: Column, written: SpellingReader) -> tuple[Value, ...]:
    """The values of a column of numbers, dates or times, if there are few, and they repeat; those of truth always."""
    values: dict[float, Value] = {}
    for _, value in sorted(written.values.items()):
        number = None if column.is_missing(value) else column.number(value)
        if number is not None:
            values.setdefault(number, value)
    filled = column.rows - column.missing - column.odd
    few = len(written.values) <= MAX_CATEGORIES and filled >= 2 * len(values)
    return tuple(values.values()) if few or column.form is Form.TRUTH else ()


class RangeReader:
    """Infers the type and range of a column, cell by cell.

    Attributes:
        cells: what it holds (`dpassay.data.columns`).
        written: how it is written.
    """

    def __init__(self, name: str, rules: Rules = NO_RULES) -> None:
        self.cells, self.written, self._rules = ColumnReader(name, rules), SpellingReader(rules.missing), rules

    def read(self, cell: Any) -> None:
        """Adds one cell."""
        cell = None if isinstance(cell, float | Decimal) and not math.isfinite(cell) else cell
        self.cells.read(cell)
        if cell is None or isinstance(cell, str | int | float | Decimal | datetime.date):
            self.written.read(cell)

    @property
    def column(self) -> ColumnRange:
        """The inferred column."""
        return range_of(self.cells.column(), self.written, self._rules.missing)


def comparable_columns(columns: Sequence[ColumnRange]) -> list[ColumnRange]:
    """The columns that distances use."""
    return [column for column in columns if column.kind != "other" and column.compared]


def as_written(columns: Sequence[ColumnRange], written: Sequence[ColumnRange] | None) -> list[ColumnRange]:
    """The columns that distances use, as other rows are written; None for alike."""
    used = comparable_columns(columns)
    return used if written is None else [other for other in written if other.name in {column.name for column in used}]


def draw_rows(count: int, columns: Sequence[ColumnRange], rng: np.random.Generator) -> list[dict[str, Value]]:
    """Rows whose columns are drawn independently, which makes them unusual."""
    return _joined(count, {column.name: column.draw(count, rng) for column in columns})


def draw_edge_rows(
    count: int, columns: Sequence[ColumnRange], rng: np.random.Generator, *, beyond: bool
) -> list[dict[str, Value]]:
    """Rows whose numbers and dates lie at the ends of their ranges, or `beyond` them (`ColumnRange.draw_at_edges`),
    each by a fair coin."""
    drawn = {
        column.name: column.draw_at_edges(count, rng, beyond=beyond) if column.has_edges else column.draw(count, rng)
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
    known = {word_of(value) for value in held}
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
            pool.setdefault(tuple(word_of(row[column.name]) for column in used), row)
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


def nearest(
    rows: Sequence[Row],
    columns: Sequence[ColumnRange],
    others: Iterable[Row],
    written: Sequence[ColumnRange] | None = None,
) -> tuple[Floats, int]:
    """The distance of each of m rows to the nearest of `others`, shape (m,), in [0, 1], and the number of others, which
    may be an iterator and are read in pieces; 1 if there are none.

    A cell of another type is at distance 1 from any other; so is an empty one, but for another empty one.

    Args:
        rows: m rows.
        columns: as the m rows are written.
        others: other rows.
        written: the same columns as the other rows are written (`ColumnRange.form`, `ColumnRange.marks`); None for
            alike.
    """
    used = comparable_columns(columns)
    theirs_written = as_written(columns, written)
    mine = coded(rows, used)
    best, count = np.ones(len(rows)), 0
    for piece in pieces(others, max(1, CELLS // max(1, len(rows)))):
        theirs = coded(piece, theirs_written)
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
    """The cells of n rows in the columns to compare, shape (n, columns): numbers as they are, dates and times as days,
    words by their index in the column, ∞ for an empty cell, NaN for anything else."""
    out = np.full((len(rows), len(columns)), np.nan)
    for position, column in enumerate(columns):
        codes = {word_of(value): float(code) for code, value in enumerate(column.values)}
        for index, row in enumerate(rows):
            value = row.get(column.name)
            if column.is_empty(value):
                out[index, position] = np.inf
                continue
            code = column.number(value) if column.is_measured else codes.get(word_of(value))
            if code is not None:
                out[index, position] = code
    return out


def is_empty(value: Any) -> bool:
    """Whether a cell is missing; numbers that are not finite are."""
    return is_missing(value) or (isinstance(value, float | Decimal) and not math.isfinite(value))
