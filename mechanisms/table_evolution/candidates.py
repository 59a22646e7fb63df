"""Candidates of a column: parts of its public domain, so that every value votes for exactly one of them.

A *cell* is an interval of a number's or a date's domain, or one category, or the empty cell. The nearest cell of a
value is the one that it is in, so that no distance has to be computed and there are no ties. A *candidate* is a cell,
or several cells that are voted for together. Which value is in which candidate is a function of public numbers and of
released votes alone, and the vote of a row depends on that row alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import CategoryColumn, Row, Schema

FIRST_CELLS = 128
"""The largest number of cells of numbers and dates before the first round, where votes have little noise."""

FEWEST_FIRST_CELLS = 8
"""The same where they have much noise."""

MAX_CELLS = 1024
"""The largest number of cells of numbers and dates in any round."""

PARTS = 16
"""The largest number of parts into which a cell is divided after a round."""


@dataclass(frozen=True, slots=True)
class ColumnDomain:
    """The public domain of a column.

    Attributes:
        size: the number of values; their positions are 0 to size − 1.
        missing: whether the cell may be empty; its position is then `size`.
        is_category: whether values are categories, without an order.
    """

    size: int
    missing: bool
    is_category: bool

    @property
    def length(self) -> int:
        """The number of positions."""
        return self.size + self.missing


def domains_of(schema: Schema) -> list[ColumnDomain]:
    """The domains of all columns."""
    return [ColumnDomain(item.size, item.missing, isinstance(item, CategoryColumn)) for item in schema.columns]


def positions(schema: Schema, rows: Sequence[Row]) -> list[Integers]:
    """The position of each row's value in the domain of each column, each of shape (n,).

    Raises:
        ValueError: one line without any value, if a word is outside its public domain.
    """
    indices = schema.indices(rows)
    return [np.where(item < 0, column.size, item) for item, column in zip(indices, schema.columns, strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnCandidates:
    """The candidates of a column.

    Attributes:
        starts: the first position of each cell, increasing from 0, shape (cells,).
        levels: the candidate that each cell belongs to, 0 to `count` − 1, each of which has a cell; shape (cells,).
        count: the number of candidates.
    """

    starts: Integers
    levels: Integers
    count: int

    @classmethod
    def of_cells(cls, starts: Integers) -> ColumnCandidates:
        """Every cell as a candidate."""
        return cls(starts, np.arange(len(starts)), len(starts))

    def chosen_by(self, values: Integers) -> Integers:
        """The candidate of each position of the domain, shape (n,)."""
        return self.levels[np.searchsorted(self.starts, values, side="right") - 1]


def most_first_cells(records: int, deviation: float) -> int:
    """The largest number of cells of numbers and dates before the first round: the less, the more noise votes have.

    Cells of equal widths lose what is within a cell, about 1/count, and votes for them lose what noise hides, which
    grows with count·deviation/records. The sum is least at a count in proportion to the root of records/deviation; the
    factor was chosen on public tables.

    Args:
        records: the public number of rows.
        deviation: of the noise of a column's last votes.
    """
    if deviation == 0:
        return FIRST_CELLS
    return int(min(FIRST_CELLS, max(FEWEST_FIRST_CELLS, 6 * math.sqrt(records / deviation))))


def first_cells(domain: ColumnDomain, most: int) -> Integers:
    """The cells of a column before any votes: a cell for each category, or at most so many of equally many values."""
    count = domain.size if domain.is_category else min(domain.size, most)
    starts = [index * domain.size // count for index in range(count)]
    return np.array(starts + [domain.size] * domain.missing, dtype=np.int64)


def widths(domain: ColumnDomain, starts: Integers) -> Integers:
    """The number of positions in each cell, shape (cells,)."""
    return np.diff(np.append(starts, domain.length))


def divided(domain: ColumnDomain, starts: Integers, counts: Floats, least: float, most: int = MAX_CELLS) -> Integers:
    """Cells of which those with more than `least` rows are divided into up to `PARTS` parts of equally many values,
    those with most rows first.

    Args:
        domain: of the column.
        starts: of the cells, shape (cells,).
        counts: estimated numbers of rows, shape (cells,).
        least: the number of rows.
        most: the largest number of cells afterwards.
    """
    sizes = widths(domain, starts).tolist()
    room, parts = most - len(starts), [1] * len(sizes)
    for cell in np.argsort(-counts, kind="stable").tolist():
        if counts[cell] > least and room > 0:
            parts[cell] = min(PARTS, sizes[cell], room + 1)
            room -= parts[cell] - 1
    return np.array(
        [
            start + index * size // count
            for start, size, count in zip(starts.tolist(), sizes, parts, strict=True)
            for index in range(count)
        ],
        dtype=np.int64,
    )


def joined(domain: ColumnDomain, starts: Integers, counts: Floats, least: float) -> ColumnCandidates:
    """Candidates of at least `least` expected rows each, where possible: of neighbouring cells, or of categories.

    A cell of as many rows stands alone, and so does the empty cell. Categories with fewer are one candidate.

    Args:
        domain: of the column.
        starts: of the cells, shape (cells,).
        counts: estimated numbers of rows, shape (cells,).
        least: the number of rows.
    """
    filled = len(starts) - domain.missing
    if domain.is_category:
        alone = counts[:filled] >= least
        levels = np.where(alone, np.cumsum(alone) - 1, alone.sum())
    else:
        levels = _neighbours(counts[:filled].tolist(), least)
    count = int(levels.max()) + 1
    if domain.missing:
        levels, count = np.append(levels, count), count + 1
    return ColumnCandidates(starts, levels.astype(np.int64), count)


def _neighbours(counts: Sequence[float], least: float) -> Integers:
    """The candidate of each cell in an order; the last one is joined to the one before it if it has too few rows."""
    levels, level, rows = [], 0, 0.0
    for index, count in enumerate(counts):
        if index and rows > 0 and (rows >= least or count >= least):
            level, rows = level + 1, 0.0
        levels.append(level)
        rows += count
    if level and rows < least / 2:
        levels = [min(item, level - 1) for item in levels]
    return np.array(levels, dtype=np.int64)
