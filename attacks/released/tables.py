"""Tables of numbers and categories in a common encoding, and the distances between their rows.

The type and range of a column are determined from source and holdout together, so that nothing depends on which row is
on which side. Synthetic rows do not affect the range: one synthetic value of 1e300 would make all other values equal.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpassay.attacks.released.holdout import Units, content_key
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.data.column_names import no_column
from dpassay.data.columns import NO_RULES, Column, ColumnReader, Kind, Rules, joined, readers_of, word_of

Step = Callable[[int, int], None]

_CELLS = 256  # of a column that are read at once, if all of them are plain numbers
ROWS, OTHERS = 128, 2048  # rows of each side in a block of distances


@dataclass(frozen=True, slots=True, eq=False)
class EncodedTable:
    """n rows in a common encoding: numbers, each column shifted and divided by its range, NaN for a missing value,
    shape (n, a); and the codes of categories, int32, −1 for a missing value, shape (n, b)."""

    numbers: Floats
    codes: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[Any]) -> EncodedTable:
        """Some of the rows, by index or mask."""
        return EncodedTable(self.numbers[rows], self.codes[rows])

    def keys(self) -> list[str]:
        """One key for each row, equal for rows with equal values."""
        values = np.nan_to_num(self.numbers, nan=np.inf) + 0.0  # turns −0 into 0
        return [content_key(a.tobytes(), b.tobytes()) for a, b in zip(values, self.codes, strict=True)]

    @staticmethod
    def joined(*parts: EncodedTable) -> EncodedTable:
        """The concatenated rows of several tables."""
        return EncodedTable(np.concatenate([p.numbers for p in parts]), np.concatenate([p.codes for p in parts]))


@dataclass(frozen=True, slots=True, eq=False)
class Tables:
    """Released, source and holdout rows in a common encoding.

    Attributes:
        numeric, categorical: names of its columns of numbers and of codes.
        synthetic, source, holdout: the rows.
        columns: what the columns that are compared hold, on source and holdout together.
        read: what was read on each side, by the name of the side and of the column.
        units: the users whose rows they are; None if each row is one unit.
    """

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    synthetic: EncodedTable
    source: EncodedTable
    holdout: EncodedTable
    columns: tuple[Column, ...] = ()
    read: Mapping[str, Mapping[str, ColumnReader]] = field(default_factory=dict)
    units: Units | None = None

    @property
    def owners(self) -> Integers:
        """The unit of each row of source and holdout, from 0, those of the source first."""
        if self.units is None:
            return np.arange(len(self.source) + len(self.holdout))
        return np.concatenate([self.units.source, self.units.source_count + self.units.holdout])

    @property
    def counts(self) -> tuple[int, int]:
        """The number of units of source and holdout."""
        if self.units is None:
            return len(self.source), len(self.holdout)
        return self.units.source_count, self.units.holdout_count

    def hits(self, rows: Bools) -> tuple[Bools, Bools]:
        """Which units of source and holdout have a row that is marked, given the marks of all their rows."""
        marked = np.zeros(sum(self.counts), dtype=np.bool_)
        marked[self.owners[rows]] = True
        return marked[: self.counts[0]], marked[self.counts[0] :]

    def locate(self, column: str) -> tuple[bool, int]:
        """Whether a column is numeric, and its index among its kind.

        Raises:
            ValueError: if there is no such column.
        """
        for numeric, names in ((True, self.numeric), (False, self.categorical)):
            if column in names:
                return numeric, names.index(column)
        raise ValueError(no_column(column, self.numeric + self.categorical))

    def without(self, column: str) -> Tables:
        """The same tables without one column.

        Raises:
            ValueError: if there is no such column.
        """
        self.locate(column)
        return self.only([name for names in self._names for name in names if name != column])

    def only(self, columns: Collection[str]) -> Tables:
        """The same tables with some of the columns, in the order of the tables."""
        kept = [[index for index, name in enumerate(names) if name in columns] for names in self._names]
        numeric, categorical = (
            tuple(names[index] for index in chosen) for names, chosen in zip(self._names, kept, strict=True)
        )
        sides = [
            EncodedTable(side.numbers[:, kept[0]], side.codes[:, kept[1]])
            for side in (self.synthetic, self.source, self.holdout)
        ]
        return replace(
            self, numeric=numeric, categorical=categorical, synthetic=sides[0], source=sides[1], holdout=sides[2]
        )

    @property
    def _names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.numeric, self.categorical


def encode(
    synthetic: Sequence[Mapping[str, Any]],
    source: Sequence[Mapping[str, Any]],
    holdout: Sequence[Mapping[str, Any]],
    *,
    ignore: Collection[str] = (),
    rules: Rules = NO_RULES,
) -> Tables:
    """Encodes the rows of three tables together.

    What a column holds is found out from source and holdout (`dpassay.data.columns`). Numbers, dates and times are
    measured; synthetic cells that are none of these are infinite there, at the largest distance from all. All other
    columns are of categories.

    Args:
        synthetic, source, holdout: rows by column; a column that a row lacks is a missing value.
        ignore: columns to leave out, such as ids.
        rules: what is known of columns.

    Raises:
        ValueError: if a side has no rows, a column is not on all sides, or a value is no text, number or date.
            Messages contain no values.
    """
    sides = {"synthetic": synthetic, "source": source, "holdout": holdout}
    for name, rows in sides.items():
        if not rows:
            raise ValueError(f"the {name} table has no rows")
    columns = _columns(sides, ignore)
    of_sides = {name: readers_of(rows, rules) for name, rows in sides.items()}
    unknown = [name for name in (*ignore, *rules.kinds) if not any(name in readers for readers in of_sides.values())]
    if unknown:
        raise ValueError(no_column(unknown[0], columns))
    ends = np.cumsum([len(rows) for rows in sides.values()])[:-1]
    known = {name: joined(of_sides["source"][name], of_sides["holdout"][name]) for name in columns}
    numbers: dict[str, Floats] = {}
    codes: dict[str, NDArray[np.int32]] = {}
    for name, column in known.items():
        if column.kind is Kind.NESTED:
            raise ValueError(
                f"column {name!r} must hold text, numbers or dates; ignore it, or write its values as text"
            )
        if column.form is not None and column.low > column.high:
            raise ValueError(f"column {name!r} is stated to hold numbers or dates, but no cell of it does")
        cells = [row.get(name) for rows in sides.values() for row in rows]
        if column.form is not None and column.high - column.low < math.inf:
            numbers[name] = _shares(column, cells, len(synthetic))
        else:
            words = [None if column.is_missing(cell) else word_of(cell) for cell in cells]
            codes[name] = _as_codes(words, len(synthetic))
    size = sum(len(rows) for rows in sides.values())
    all_numbers = np.stack(list(numbers.values()), axis=1) if numbers else np.empty((size, 0))
    all_codes = np.stack(list(codes.values()), axis=1) if codes else np.empty((size, 0), dtype=np.int32)
    parts = zip(np.split(all_numbers, ends), np.split(all_codes, ends), strict=True)
    first, second, third = (EncodedTable(*part) for part in parts)
    return Tables(tuple(numbers), tuple(codes), first, second, third, tuple(known.values()), of_sides)


def _columns(sides: Mapping[str, Iterable[Mapping[str, Any]]], ignore: Collection[str]) -> list[str]:
    named = {name: dict.fromkeys(column for row in rows for column in row) for name, rows in sides.items()}
    columns = [column for column in named["synthetic"] if column not in ignore]
    for name in ("source", "holdout"):
        missing = [column for column in columns if column not in named[name]]
        if missing:
            raise ValueError(
                f"the {name} table lacks a column of the synthetic table: {no_column(missing[0], named[name])}; rename "
                "it, or leave it out with --ignore"
            )
    if not columns:
        raise ValueError("the synthetic table has no column that is not ignored")
    return columns


def _shares(column: Column, cells: Sequence[Any], synthetic: int) -> Floats:
    """The numbers of a column over the range of source and holdout, NaN for a missing one.

    Of the first `synthetic` cells those that are no such number are infinite, at the largest distance from all.
    """
    numbers = np.full(len(cells), math.nan)
    for begin in range(0, len(cells), _CELLS):
        part = cells[begin : begin + _CELLS]
        plain = column.plain_numbers(part)
        if plain is not None:
            numbers[begin : begin + _CELLS] = plain
            continue
        for index, cell in enumerate(part, begin):
            number = column.number(cell)
            if number is not None:
                numbers[index] = number
            elif index < synthetic and not column.is_missing(cell):
                numbers[index] = math.inf
    width = column.high - column.low
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        shares = (numbers - column.low) / width
    return shares if width else np.where(np.isnan(numbers) | (numbers == column.low), numbers - column.low, math.inf)


def _as_codes(words: Sequence[str | None], synthetic: int) -> NDArray[np.int32]:
    """Codes of categories in the order of their spelling, so that they do not depend on the split; −1 if missing.

    Those of source and holdout come first, so that they do not depend on the first `synthetic` words.
    """
    known = {name for name in words[synthetic:] if name is not None}
    others = {name for name in words[:synthetic] if name is not None} - known
    numbers = {name: number for number, name in enumerate((*sorted(known), *sorted(others)))}
    return np.array([-1 if name is None else numbers[name] for name in words], dtype=np.int32)


def nearest(rows: EncodedTable, others: EncodedTable, progress: Step | None = None) -> tuple[Floats, Integers]:
    """The nearest of `others` to each row, by the mean over columns of |a − b| for numbers and [a ≠ b] for categories.

    Differences of numbers are clipped to 1. Two missing values are at distance 0; a missing value is at distance 1 from
    any other. Sums are in float32; a distance of 0 is exact.

    Args:
        rows: n rows.
        others: at least one row, with the same columns, at least one.
        progress: called with the number of rows done and n.

    Returns:
        Distances in [0, 1], shape (n,), and the index of the first nearest row, shape (n,).
    """
    return nearest_without(rows, others, (), progress)[0]


def nearest_without(
    rows: EncodedTable, others: EncodedTable, left_out: Sequence[tuple[bool, int]], progress: Step | None = None
) -> list[tuple[Floats, Integers]]:
    """As `nearest`: by all columns, and then with each of some columns left out, in one pass over the pairs of rows.

    Args:
        rows: n rows.
        others: at least one row, with the same columns.
        left_out: columns as `Tables.locate` gives them; there must be another one beside each.
        progress: called with the number of rows done and n.
    """
    found = [
        (np.full(len(rows), np.inf, dtype=np.float32), np.zeros(len(rows), dtype=np.int64))
        for _ in range(1 + len(left_out))
    ]
    columns = rows.numbers.shape[1] + rows.codes.shape[1]
    a, b = (np.clip(table.numbers, -9, 9).astype(np.float32) for table in (rows, others))
    blocks = [
        _Columns(b[start : start + OTHERS], others.codes[start : start + OTHERS])
        for start in range(0, len(others), OTHERS)
    ]
    for begin in range(0, len(rows), ROWS):
        here = slice(begin, begin + ROWS)
        block, start = _Columns(a[here], rows.codes[here]), 0
        for there in blocks:
            for (distance, index), apart in zip(found, _apart(block, there, left_out), strict=True):
                best = apart.argmin(axis=1)
                least = apart[np.arange(len(apart)), best]
                nearer = least < distance[here]
                distance[here] = np.where(nearer, least, distance[here])
                index[here] = np.where(nearer, best + start, index[here])
            start += len(there)
        if progress is not None:
            progress(min(begin + ROWS, len(rows)), len(rows))
    return [
        (distance.astype(np.float64) / (columns if number == 0 else columns - 1), index)
        for number, (distance, index) in enumerate(found)
    ]


class _Columns:
    """A block of rows, column by column, with what is known of each: its ends, and which cells are missing."""

    def __init__(self, numbers: NDArray[np.float32], codes: NDArray[np.int32]) -> None:
        self._rows = len(numbers)
        self.numbers, self.codes = np.ascontiguousarray(numbers.T), np.ascontiguousarray(codes.T)
        self.missing = np.isnan(self.numbers)
        self.lacks: Bools = np.asarray(self.missing.any(axis=1))
        self.ends = [(column.min(), column.max()) for column in self.numbers]  # NaN if a cell is missing

    def __len__(self) -> int:
        return self._rows


def _apart(rows: _Columns, others: _Columns, left_out: Sequence[tuple[bool, int]]) -> Iterator[NDArray[np.float32]]:
    """Sums over columns, shape (rows, others): over all, and over all but each one that is left out."""
    out = np.zeros((len(rows), len(others)), dtype=np.float32)
    item = np.empty_like(out)
    for j in range(len(rows.numbers)):
        if (True, j) not in left_out:
            out += _of_numbers(rows, others, j, item)
    codes = [j for j in range(len(rows.codes)) if (False, j) not in left_out]
    for begin in range(0, len(codes), 255):
        differing = np.zeros(out.shape, dtype=np.uint8)
        for j in codes[begin : begin + 255]:
            differing += (rows.codes[j, :, None] != others.codes[j]).view(np.uint8)
        out += differing
    if not left_out:
        yield out
        return
    items = [
        _of_numbers(rows, others, j, np.empty_like(out)) if numeric else rows.codes[j, :, None] != others.codes[j]
        for numeric, j in left_out
    ]
    yield functools.reduce(np.add, items, out)
    for number in range(len(items)):
        yield functools.reduce(np.add, items[:number] + items[number + 1 :], out)


def _of_numbers(rows: _Columns, others: _Columns, j: int, item: NDArray[np.float32]) -> NDArray[np.float32]:
    """The differences of a column of numbers, written into `item`."""
    np.subtract(rows.numbers[j, :, None], others.numbers[j], out=item)
    np.abs(item, out=item)
    (low, high), (least, most) = rows.ends[j], others.ends[j]
    if not (high - least <= 1 and most - low <= 1):
        np.minimum(item, np.float32(1), out=item)
    if rows.lacks[j] or others.lacks[j]:
        missing, gone = rows.missing[j, :, None], others.missing[j]
        np.copyto(item, np.float32(1), where=missing ^ gone)
        np.copyto(item, np.float32(0), where=missing & gone)
    return item
