"""Canaries of tables: rows of values that stand together in no row of the data, and how near synthetic rows come.

Distances are Gower's: the mean over columns of |a − b|/range for numbers and of 0 or 1 for words. A canary's score is
minus the distance to the nearest synthetic row, as a share of the distance to the nearest row of the data: 0 for a row
that is repeated, about −1 for one that left no trace.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = Mapping[str, Any]

MOST_WORDS = 200
"""A column of more different words than this is taken for names or prose: canaries have a made-up word there."""
_CELLS = 4_000_000  # of a distance matrix
_DIGITS = 12
_LARGEST = 2.0**53  # beyond, not every whole number is a float


@dataclass(frozen=True, slots=True)
class Column:
    """What the values of a column look like.

    Attributes:
        name: of the column.
        kind: ``number``, ``word``, or ``other`` for one that is not compared.
        low, high: the smallest and largest number.
        decimals: of its numbers.
        values: its different words, as they are in the file.
        quoted: whether its numbers are strings, as they are in CSV.
    """

    name: str
    kind: str
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    values: tuple[Value, ...] = ()
    quoted: bool = False

    @property
    def different(self) -> float:
        """How many different values `draw` gives, at most."""
        if self.kind == "other":
            return 2.0**48
        if self.kind == "word":
            return len(self.values)
        return (self.high - self.low) * 10.0**self.decimals + 2 if self.decimals <= 300 else math.inf

    def draw(self, count: int, rng: np.random.Generator) -> list[Value]:
        """Values drawn evenly from the range of the column or from its words; made-up words for one of neither."""
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
    """Finds out what a column is like, value by value."""

    name: str
    low: float = math.inf
    high: float = -math.inf
    decimals: int = 0
    numbers: bool = True
    quoted: bool = False
    flat: bool = True
    words: dict[str, Value] = field(default_factory=dict)

    def read(self, value: Any) -> None:
        """Takes in one value; a missing one says nothing."""
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
            self.decimals = max(self.decimals, _decimals(value))
            self.quoted |= isinstance(value, str)
        if len(self.words) <= MOST_WORDS:
            self.words.setdefault(_canonical(value), value)

    @property
    def column(self) -> Column:
        """What was found."""
        if not self.flat or not self.words:
            return Column(self.name, "other")
        if self.numbers and max(-self.low, self.high) < _LARGEST:
            return Column(self.name, "number", self.low, self.high, self.decimals, quoted=self.quoted)
        if self.numbers or len(self.words) > MOST_WORDS:
            return Column(self.name, "other")
        return Column(self.name, "word", values=tuple(self.words[key] for key in sorted(self.words)))


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: null, an empty string or NaN."""
    return value is None or value == "" or value != value


def as_number(value: Any) -> float | None:
    """The finite number that a cell holds; None for anything else. True and false are words."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def compared(columns: Sequence[Column]) -> list[Column]:
    """The columns that distances look at."""
    return [column for column in columns if column.kind != "other"]


def draw_rows(count: int, columns: Sequence[Column], rng: np.random.Generator) -> list[dict[str, Value]]:
    """Rows with every column drawn by itself, which is what makes them unusual."""
    drawn = {column.name: column.draw(count, rng) for column in columns}
    return [{name: values[place] for name, values in drawn.items()} for place in range(count)]


def draw_unusual_rows(
    count: int, columns: Sequence[Column], known: Sequence[Row], rng: np.random.Generator
) -> tuple[list[dict[str, Value]], Floats]:
    """Distinct rows that are in no row of the data: of twice as many, those that lie furthest from it.

    Args:
        count: how many.
        columns: of the data.
        known: rows of the data, all or evenly drawn.
        rng: of the draw.

    Returns:
        The rows in random order, and the distance of each to the nearest known row, shape (count,), above 0.

    Raises:
        ValueError: for columns that allow too few different rows.
    """
    if not compared(columns):
        raise ValueError("no column holds numbers or at most 200 different words, so rows cannot be compared")
    few = f"the columns allow too few different rows that are not in the data, {count} are needed; plan fewer canaries"
    if math.prod(column.different for column in compared(columns)) < count:
        raise ValueError(few)
    pool: dict[tuple[str, ...], dict[str, Value]] = {}
    for _ in range(20):
        before = len(pool)
        for row in draw_rows(2 * count, columns, rng):
            pool.setdefault(tuple(_canonical(row[column.name]) for column in compared(columns)), row)
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
    """The distance of each row to the nearest of the others, which are read piece by piece.

    A cell that is missing or of another kind is at distance 1 from any other.

    Args:
        rows: m rows.
        columns: what is compared, and with which ranges.
        others: rows with at least these columns; an iterator will do.

    Returns:
        Shape (m,), in [0, 1], 1 where there are no others; and how many others there were.
    """
    used = compared(columns)
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
    """The share of a column in Gower's distance; NaN stands for a cell that is like no other."""
    if column.kind == "number" and column.high > column.low:
        gap = np.minimum(np.abs(one - other) / (column.high - column.low), 1.0)
        return np.asarray(np.where(np.isnan(gap), 1.0, gap), dtype=np.float64)
    return np.asarray(one != other, dtype=np.float64)


def _coded(rows: Sequence[Row], columns: Sequence[Column]) -> Floats:
    """Shape (rows, columns): numbers as they are, words by their place in the column, NaN for anything else."""
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


def _decimals(value: Any) -> int:
    """Digits after the point, as they are written; whole numbers have none, also where they are floats."""
    number = float(value)
    if number.is_integer() and abs(number) < 2**53:
        return 0
    written = repr(number)
    if "e" in written:
        return _DIGITS
    return min(_DIGITS, len(written.partition(".")[2]))


def _pieces(rows: Iterable[Row], size: int) -> Iterator[list[Row]]:
    piece: list[Row] = []
    for row in rows:
        piece.append(row)
        if len(piece) == size:
            yield piece
            piece = []
    if piece:
        yield piece
