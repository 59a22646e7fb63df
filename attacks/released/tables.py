"""Tables of numbers and categories in a common encoding, and the distances between their rows.

The type and range of a column are determined from source and holdout together, so that nothing depends on which row is
on which side. Synthetic rows do not affect the range: one synthetic value of 1e300 would make all other values equal.

Source: Gower, "A General Coefficient of Similarity and Some of Its Properties" (1971).
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpassay.attacks.released.holdout import content_key
from dpassay.base.arrays import Floats, Integers
from dpassay.data.cells import as_day
from dpassay.data.columns import no_column

Step = Callable[[int, int], None]

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
    """Released, source and holdout rows in a common encoding, with the names of its columns of numbers and of codes."""

    numeric: tuple[str, ...]
    categorical: tuple[str, ...]
    synthetic: EncodedTable
    source: EncodedTable
    holdout: EncodedTable

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
        """The same tables without one column."""
        numeric, index = self.locate(column)
        names = [list(self.numeric), list(self.categorical)]
        del names[0 if numeric else 1][index]
        sides = []
        for side in (self.synthetic, self.source, self.holdout):
            numbers = np.delete(side.numbers, index, axis=1) if numeric else side.numbers
            codes = side.codes if numeric else np.delete(side.codes, index, axis=1)
            sides.append(EncodedTable(numbers, codes))
        return Tables(tuple(names[0]), tuple(names[1]), *sides)


def encode(
    synthetic: Sequence[Mapping[str, Any]],
    source: Sequence[Mapping[str, Any]],
    holdout: Sequence[Mapping[str, Any]],
    *,
    ignore: Collection[str] = (),
    categorical: Collection[str] = (),
) -> Tables:
    """Encodes the rows of three tables together.

    A column is numeric if all its values in source and holdout are finite numbers or text of finite numbers; other
    synthetic values are then infinite, at the largest distance from all. Empty strings, null and NaN are missing. Dates
    are categories, the same as their text (2013-05-31); so are times at midnight, as which some formats store dates.

    Args:
        synthetic, source, holdout: rows by column; a column that a row lacks is a missing value.
        ignore: columns to leave out, such as ids.
        categorical: columns to treat as categories even if all their values are numbers.

    Raises:
        ValueError: if a side has no rows, a column is not on all sides, or a value is no text, number or date.
            Messages contain no values.
    """
    sides = {"synthetic": synthetic, "source": source, "holdout": holdout}
    for name, rows in sides.items():
        if not rows:
            raise ValueError(f"the {name} table has no rows")
    columns = _columns(sides, ignore)
    known = {column for rows in sides.values() for row in rows for column in row}
    unknown = [name for name in (*ignore, *categorical) if name not in known]
    if unknown:
        raise ValueError(no_column(unknown[0], columns))
    ends = np.cumsum([len(rows) for rows in sides.values()])[:-1]
    numbers: dict[str, Floats] = {}
    codes: dict[str, NDArray[np.int32]] = {}
    for column in columns:
        values = [_value(row.get(column), column) for rows in sides.values() for row in rows]
        column_numbers = None if column in categorical else _as_numbers(values, len(synthetic))
        if column_numbers is None:
            codes[column] = _as_codes(values)
        else:
            numbers[column] = column_numbers
    size = sum(len(rows) for rows in sides.values())
    all_numbers = np.stack(list(numbers.values()), axis=1) if numbers else np.empty((size, 0))
    all_codes = np.stack(list(codes.values()), axis=1) if codes else np.empty((size, 0), dtype=np.int32)
    parts = [EncodedTable(a, b) for a, b in zip(np.split(all_numbers, ends), np.split(all_codes, ends), strict=True)]
    return Tables(tuple(numbers), tuple(codes), *parts)


def _columns(sides: Mapping[str, Iterable[Mapping[str, Any]]], ignore: Collection[str]) -> list[str]:
    named = {name: dict.fromkeys(column for row in rows for column in row) for name, rows in sides.items()}
    columns = [column for column in named["synthetic"] if column not in ignore]
    for name in ("source", "holdout"):
        missing = [column for column in columns if column not in named[name]]
        if missing:
            raise ValueError(f"the {name} table lacks column {missing[0]!r} of the synthetic table; ignore that column")
    if not columns:
        raise ValueError("the synthetic table has no column that is not ignored")
    return columns


def _value(value: Any, column: str) -> str | float | None:
    if isinstance(value, bool):
        return str(value)
    if value is None or value == "" or value != value:
        return None
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, datetime.date):
        day = as_day(value)  # of a time of day it is None
        return str(value if day is None else datetime.date.fromordinal(int(day)))
    if isinstance(value, decimal.Decimal):
        return float(value)
    raise ValueError(f"column {column!r} must hold text, numbers or dates; ignore it, or write its values as text")


def _as_numbers(values: list[str | float | None], synthetic: int) -> Floats | None:
    """Numbers divided by the range of the known ones (all but the first `synthetic`); None if these are not numeric."""
    numbers = np.array([math.nan if value is None else _number(value) for value in values])
    known = numbers[synthetic:]
    there = ~np.isnan(known)
    if np.isinf(known).any() or not there.any():
        return None
    low, high = float(known[there].min()), float(known[there].max())
    width = high - low
    if width == math.inf:
        return None
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        shares = (numbers - low) / width
    return shares if width else np.where(np.isnan(numbers) | (numbers == low), numbers - low, math.inf)


def _number(value: str | float) -> float:
    """The finite number in a value, or infinity if there is none."""
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return math.inf
    return number if math.isfinite(number) else math.inf


def _as_codes(values: list[str | float | None]) -> NDArray[np.int32]:
    """Category codes in the order of their spelling, so that they do not depend on the split."""
    spelled = [None if value is None else _spelled(value) for value in values]
    numbers = {name: number for number, name in enumerate(sorted({name for name in spelled if name is not None}))}
    return np.array([-1 if name is None else numbers[name] for name in spelled], dtype=np.int32)


def _spelled(value: str | float) -> str:
    """The spelling of a category; whole numbers are equal whether a file has them as text, integer or float."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


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
    distance = np.full(len(rows), np.inf, dtype=np.float32)
    index = np.zeros(len(rows), dtype=np.int64)
    a, b = (np.clip(table.numbers, -9, 9).astype(np.float32) for table in (rows, others))
    empty = [bool(np.isnan(a[:, j]).any() or np.isnan(b[:, j]).any()) for j in range(a.shape[1])]
    for begin in range(0, len(rows), ROWS):
        here = slice(begin, begin + ROWS)
        for start in range(0, len(others), OTHERS):
            there = slice(start, start + OTHERS)
            apart = _apart(a[here], b[there], rows.codes[here], others.codes[there], empty)
            best = apart.argmin(axis=1)
            least = apart[np.arange(len(apart)), best]
            nearer = least < distance[here]
            distance[here] = np.where(nearer, least, distance[here])
            index[here] = np.where(nearer, best + start, index[here])
        if progress is not None:
            progress(min(begin + ROWS, len(rows)), len(rows))
    return distance.astype(np.float64) / (a.shape[1] + rows.codes.shape[1]), index


def _apart(
    a: NDArray[np.float32], b: NDArray[np.float32], x: NDArray[np.int32], y: NDArray[np.int32], empty: list[bool]
) -> NDArray[np.float32]:
    """Sums over columns, shape (rows, others)."""
    out = np.zeros((len(a), len(b)), dtype=np.float32)
    item = np.empty_like(out)
    for j in range(a.shape[1]):
        np.subtract(a[:, j, None], b[None, :, j], out=item)
        np.abs(item, out=item)
        np.minimum(item, np.float32(1), out=item)
        if empty[j]:
            missing, gone = np.isnan(a[:, j])[:, None], np.isnan(b[:, j])[None, :]
            np.copyto(item, np.float32(1), where=missing ^ gone)
            np.copyto(item, np.float32(0), where=missing & gone)
        out += item
    for j in range(x.shape[1]):
        out += x[:, j, None] != y[None, :, j]
    return out
