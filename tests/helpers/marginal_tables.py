"""Small tables for tests of marginals, their neighbours, and a call of OpenDP that is only pretended."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.data.table_schema import Row, Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.marginals import generator
from dpassay.mechanisms.marginals.tables import NoisyMarginal, ReleasedTable

SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "age", "type": "number", "low": 0, "high": 39},
            {"name": "sex", "type": "category", "values": ["f", "m"]},
            {"name": "country", "type": "category", "values": ["only"]},
            {"name": "size", "type": "category", "values": ["s", "m", "l"]},
        ]
    }
)
SIZES = (40, 2, 1, 3)
CELLS = [tuple(row) for row in itertools.product(*(range(size) for size in SIZES))]
"""Levels of all possible rows."""


def table(count: int = 30, seed: int = 0) -> Table:
    rng = np.random.default_rng(seed)
    return Table(SCHEMA, [SCHEMA.uniform(rng) for _ in range(count)], [f"secret-{index}" for index in range(count)])


def words(cells: Sequence[int]) -> Row:
    return tuple(column.word_at(cell) for column, cell in zip(SCHEMA.columns, cells, strict=True))


def neighbours(rows: Sequence[Row], adjacency: str) -> Iterator[list[Row]]:
    """All tables that differ in one row."""
    for cells in CELLS:
        if adjacency == "add_remove":
            yield [*rows, words(cells)]
        else:
            yield from ([*rows[:index], words(cells), *rows[index + 1 :]] for index in range(len(rows)))
    if adjacency == "add_remove":
        yield from ([*rows[:index], *rows[index + 1 :]] for index in range(len(rows)))


def counted(rows: Sequence[Row], columns: Sequence[int]) -> Any:
    """A marginal, counted row by row, shape of the columns' levels."""
    counts = np.zeros([SIZES[column] for column in columns], dtype=np.int64)
    for row in rows:
        counts[tuple(SCHEMA.columns[column].index(row[column]) for column in columns)] += 1
    return counts


class Pretended:
    """A release without noise and without OpenDP, for tests of what surrounds it."""

    def __init__(self, mechanism: Any, sizes: Sequence[int], levels: Sequence[Any]) -> None:
        self._rows, self._seed, self._sizes, self._levels = mechanism.rows, mechanism.seed, sizes, levels

    def release(self) -> ReleasedTable:
        measured = [
            NoisyMarginal((index,), 1.0, tuple(np.bincount(own, minlength=size).tolist()))
            for index, (size, own) in enumerate(zip(self._sizes, self._levels, strict=True))
        ]
        drawn = np.random.default_rng(self._seed).integers(len(self._levels[0]), size=self._rows)
        return ReleasedTable(tuple(measured), tuple(own[drawn] for own in self._levels), {"opendp": "0", "mbi": "0"})


def pretend(monkeypatch: pytest.MonkeyPatch, query: type[Pretended] = Pretended) -> None:
    monkeypatch.setattr(generator, "TableQuery", query)
    monkeypatch.setattr(generator, "check_libraries", lambda: None)
