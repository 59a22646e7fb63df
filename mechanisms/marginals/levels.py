"""The finite public domains over which marginals are counted: categories, and bins of numbers and dates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.base.arrays import Integers
from dpassay.data.table_schema import MISSING, AnyColumn, CategoryColumn, Row, Schema


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels of each column of a public schema.

    A category is a level. The domain of numbers and dates is cut into `bins` consecutive levels, whose sizes differ by
    at most one value, or into its single values if it has no more. Missing cells, where the schema allows them, are a
    level of their own, the last one.

    Attributes:
        schema: public.
        bins: the largest number of levels of numbers and dates, without the missing cells.
    """

    schema: Schema
    bins: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of levels of each column."""
        return tuple(self._present(column) + column.missing for column in self.schema.columns)

    def of(self, rows: Sequence[Row]) -> list[Integers]:
        """The levels of rows: of each column, shape (n,).

        Raises:
            ValueError: one line without any value, if a row is not of the schema.
        """
        columns = zip(self.schema.columns, self.schema.indices(rows), strict=True)
        return [self._levels(column, indices) for column, indices in columns]

    def rows(self, levels: Sequence[Integers], rng: np.random.Generator) -> list[Row]:
        """Rows of given levels, each value drawn uniformly among those of its level; of each column, shape (n,)."""
        words = [self._words(column, own, rng) for column, own in zip(self.schema.columns, levels, strict=True)]
        return list(zip(*words, strict=True))

    def described(self) -> list[list[str]]:
        """The levels of each column in words: a value, the first and the last of a run of values, or missing cells."""
        results = []
        for column in self.schema.columns:
            own = [
                column.word_at(first) if last - first == 1 else f"{column.word_at(first)} to {column.word_at(last - 1)}"
                for first, last in itertools.pairwise(self._ends(column))
            ]
            results.append(own + [MISSING] * column.missing)
        return results

    def _present(self, column: AnyColumn) -> int:
        """The number of levels, without that of missing cells."""
        return column.size if isinstance(column, CategoryColumn) else min(column.size, self.bins)

    def _ends(self, column: AnyColumn) -> list[int]:
        """The index of the first value of each level, and of the value after the last."""
        present = self._present(column)
        return [-(-level * column.size // present) for level in range(present + 1)]

    def _levels(self, column: AnyColumn, indices: Integers) -> Integers:
        present = self._present(column)
        values, inverse = np.unique(indices, return_inverse=True)  # whole numbers of Python do not overflow
        known = [present if value < 0 else value * present // column.size for value in values.tolist()]
        return np.array(known, dtype=np.int64)[inverse]

    def _words(self, column: AnyColumn, levels: Integers, rng: np.random.Generator) -> list[str]:
        present = self._present(column)
        ends = self._ends(column)
        first = np.array(ends + ends[-1:], dtype=np.int64)  # of the level of missing cells: any value, not used
        indices = rng.integers(first[levels], np.maximum(first[levels + 1], first[levels] + 1))
        return [
            MISSING if level == present else column.word_at(index)
            for level, index in zip(levels.tolist(), indices.tolist(), strict=True)
        ]
