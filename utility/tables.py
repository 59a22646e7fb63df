"""How far a synthetic table is from a real one: histograms of columns and of pairs of columns, and associations.

All tables are in the words of one public schema. Numbers and dates are cut into bins of equally many values of their
public domains, a category is a bin of its own, and so is the empty cell. Every number is computed from private rows
without noise, and is private.

Source: "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators", section C.2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base.arrays import Floats, Integers
from dpassay.data.table_schema import CategoryColumn, Row, Schema
from dpassay.utility.result import Result, Sides

LEVELS = (0.1, 0.3, 0.5)
"""Associations are low below the first, weak, medium, and strong from the last on."""

_ROUNDING = 1e-12
_MAX_CELLS = 2**20  # of the histogram of a pair, where codes are not made anew


@dataclass(frozen=True)
class Intersection(Result):
    """A histogram intersection in [0, 1], 1 for equal histograms, with numbers and dates in 20 and in 50 bins, and the
    mean of the two."""

    bins_20: float
    bins_50: float
    mean: float


@dataclass(frozen=True)
class ColumnIntersection(Result):
    """The histogram intersection of a column."""

    name: str
    intersection: Intersection


@dataclass(frozen=True)
class AssociationAgreement(Result):
    """CorAcc: how many pairs of different columns are associated as strongly in both tables, up to four levels.

    Attributes:
        share: fraction of the pairs whose levels agree, in [0, 1].
        pairs: number of pairs.
        levels: number of pairs by the level in the real table (row) and in the synthetic one (column), shape (4, 4).
    """

    share: float
    pairs: int
    levels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class TableComparison(Result):
    """A synthetic table beside a real one. Private.

    Attributes:
        rows: of the two tables.
        histograms: the mean intersection over all columns; one minus it is the mean total variation distance.
        columns: the intersection of each column.
        pairs: the mean intersection over all pairs of different columns; None for a single column.
        associations: of all pairs of different columns; None for a single column.
    """

    rows: Sides[int]
    histograms: Intersection
    columns: tuple[ColumnIntersection, ...]
    pairs: Intersection | None
    associations: AssociationAgreement | None


class Places:
    """The rows of a table as places of their values in the public domains: of each column, shape (n,); −1 for an empty
    cell.

    Raises:
        ValueError: one line without any value, if a row has other columns or a word is outside its domain.
    """

    def __init__(self, schema: Schema, rows: Sequence[Row]) -> None:
        self.schema, self.count = schema, len(rows)
        self.columns: list[Integers] = schema.indices(rows)

    def categories(self, index: int) -> tuple[Integers, int]:
        """The category of each row in a column of categories, and their number; the empty cell, if any, is the last."""
        column, indices = self.schema.columns[index], self.columns[index]
        return np.where(indices < 0, column.size, indices), column.size + column.missing

    def binned(self, index: int, bins: int) -> tuple[Integers, int]:
        """The bin of each row in a column, and the number of bins; the empty cell, if allowed, is the last.

        Of numbers and dates, bins have equally many values up to one; a domain of fewer values has one bin for each.
        Categories are bins themselves.
        """
        if self.is_category(index):
            return self.categories(index)
        column, indices = self.schema.columns[index], self.columns[index]
        count = min(bins, column.size)
        return np.where(indices < 0, count, indices * count // column.size), count + column.missing

    def is_category(self, index: int) -> bool:
        """Whether a column is of categories."""
        return isinstance(self.schema.columns[index], CategoryColumn)

    @cached_property
    def associations(self) -> list[float]:
        """The association of each pair of columns, in the order of `itertools.combinations`."""
        return [_association(self, first, second) for first, second in combinations(range(len(self.columns)), 2)]


def compare_tables(schema: Schema, synthetic: Sequence[Row], real: Sequence[Row]) -> TableComparison:
    """All comparisons of a synthetic table with a real one.

    Args:
        schema: public, of both.
        synthetic, real: rows in its words, at least two each.

    Raises:
        ValueError: one line, if a table has fewer than two rows, or words outside the public domains.
    """
    return compare_places(Places(schema, synthetic), Places(schema, real))


def compare_places(made: Places, real: Places) -> TableComparison:
    """As `compare_tables`, of tables whose words were read before."""
    if min(made.count, real.count) < 2:
        raise ValueError(f"a table has {min(made.count, real.count)} rows; at least 2 are compared on each side")
    (columns_20, pairs_20), (columns_50, pairs_50) = (_intersections(made, real, bins) for bins in (20, 50))
    by_column = [
        ColumnIntersection(name, _both(at_20, at_50))
        for name, at_20, at_50 in zip(made.schema.names, columns_20, columns_50, strict=True)
    ]
    return TableComparison(
        rows=Sides(made.count, real.count),
        histograms=_both(_mean(columns_20), _mean(columns_50)),
        columns=tuple(by_column),
        pairs=_both(_mean(pairs_20), _mean(pairs_50)) if pairs_20 else None,
        associations=_agreement(made.associations, real.associations) if pairs_20 else None,
    )


def _intersections(made: Places, real: Places, bins: int) -> tuple[list[float], list[float]]:
    """The histogram intersections of all columns, and of all pairs of different columns."""
    binned = []
    for index in range(len(made.columns)):
        codes, cells = made.binned(index, bins)
        binned.append((np.concatenate([codes, real.binned(index, bins)[0]]), cells))
    columns = [_intersection(codes, cells, made.count) for codes, cells in binned]
    pairs = [
        _intersection(first * many + second, few * many, made.count)
        for (first, few), (second, many) in combinations(binned, 2)
    ]
    return columns, pairs


def _intersection(codes: Integers, cells: int, count: int) -> float:
    """Σ_c min(p_c, q_c), equation 14, without rounding but that of the last division, from the bins of the rows of both
    tables, one after the other, `count` of the first.

    The paper's p_c and q_c are densities, divided by the size Δ of a bin. Both tables have the same bins, and their
    intersection is that of the probabilities p_c Δ and q_c Δ.
    """
    if cells > _MAX_CELLS:
        known, codes = np.unique(codes, return_inverse=True)
        cells = len(known)
    other = len(codes) - count
    item = np.bincount(codes[:count], minlength=cells)
    two = np.bincount(codes[count:], minlength=cells)
    return int(np.minimum(item * other, two * count).sum()) / (count * other)


def _both(at_20: float, at_50: float) -> Intersection:
    return Intersection(at_20, at_50, (at_20 + at_50) / 2)


def _mean(result: Sequence[float]) -> float:
    """Equation 15: the mean over columns, or over pairs of them."""
    return math.fsum(result) / len(result)


def associations(schema: Schema, rows: Sequence[Row]) -> Floats:
    """How strongly each two columns are associated, from 0 to 1, shape (d, d), symmetric with ones on its diagonal.

    Two columns of categories have `cramers_v`, one of categories and one of numbers `correlation_ratio`, and two of
    numbers |`pearson`|. Dates are numbers of days, and an empty cell is a category; rows with an empty number have no
    part in the pairs of that column. Where nothing varies, there is no association: 0.

    Args:
        schema: public.
        rows: in its words.

    Raises:
        ValueError: one line, if a word is outside the public domains.
    """
    result = np.eye(len(schema.columns))
    pairs = combinations(range(len(result)), 2)
    for (first, second), value in zip(pairs, Places(schema, rows).associations, strict=True):
        result[first, second] = result[second, first] = value
    return result


def _association(table: Places, item: int, two: int) -> float:
    """The association of two columns."""
    first, second = table.columns[item], table.columns[two]
    if table.is_category(item) and table.is_category(two):
        return cramers_v(first, second)
    kept = np.ones(table.count, dtype=np.bool_)
    for index in (item, two):
        if not table.is_category(index):
            kept &= table.columns[index] >= 0
    first, second = first[kept], second[kept]
    if table.is_category(item):
        return correlation_ratio(first, second)
    return correlation_ratio(second, first) if table.is_category(two) else abs(pearson(first, second))


def cramers_v(item: ArrayLike, two: ArrayLike) -> float:
    """Cramér's V of two columns of codes of categories, shape (n,), with bias correction, in [0, 1].

    r and k are the numbers of categories that occur. 0 where V is not defined: for a single category, or as many
    categories as rows.

    Source: Bergsma, "A bias-correction for Cramér's V and Tschuprow's T" (2013).
    """
    (rows, row), (columns, column) = (np.unique(np.asarray(codes), return_inverse=True) for codes in (item, two))
    n, r, k = len(row), len(rows), len(columns)
    if min(r, k) < 2:
        return 0.0
    most = min((r - 1) * (n - r), (k - 1) * (n - k)) / (n - 1)  # min(r̃ − 1, k̃ − 1)
    if most <= 0:
        return 0.0
    cells, counts = np.unique(row * k + column, return_counts=True)
    margins = np.bincount(row)[cells // k] * np.bincount(column)[cells % k].astype(np.float64)
    phi_squared = float((counts.astype(np.float64) ** 2 / margins).sum()) - 1  # χ²/n
    return min(1.0, math.sqrt(max(0.0, phi_squared - (r - 1) * (k - 1) / (n - 1)) / most))


def correlation_ratio(categories: ArrayLike, numbers: ArrayLike) -> float:
    """The correlation ratio η of numbers in categories, given by codes, both of shape (n,), in [0, 1]: η² is the share
    of the variance between categories. 0 where the numbers do not vary."""
    values = _from_least(numbers)
    if not values.any():
        return 0.0
    _, codes, counts = np.unique(np.asarray(categories), return_inverse=True, return_counts=True)
    values -= values.mean()
    between = float((np.bincount(codes, weights=values) ** 2 / counts).sum())
    return min(1.0, math.sqrt(between / float((values**2).sum())))


def pearson(item: ArrayLike, two: ArrayLike) -> float:
    """Pearson's correlation of two columns of n numbers, in [−1, 1]; 0 where one of them does not vary."""
    first, second = _from_least(item), _from_least(two)
    if not (first.any() and second.any()):
        return 0.0
    first, second = (values / values.max() for values in (first, second))
    first -= first.mean()
    second -= second.mean()
    result = float(first @ second) / math.sqrt(float(first @ first) * float(second @ second))
    return min(1.0, max(-1.0, result))


def _from_least(numbers: ArrayLike) -> Floats:
    """Numbers less the least of them: places in a large domain are subtracted before they are rounded."""
    values = np.asarray(numbers)
    return np.asarray(values - values.min() if len(values) else values, dtype=np.float64)


def _agreement(made: Sequence[float], real: Sequence[float]) -> AssociationAgreement:
    counts = np.zeros((len(LEVELS) + 1,) * 2, dtype=np.int64)
    for first, second in zip(made, real, strict=True):
        counts[level(second), level(first)] += 1
    pairs = int(counts.sum())
    rows = tuple(tuple(int(count) for count in row) for row in counts)
    return AssociationAgreement(int(np.trace(counts)) / pairs, pairs, rows)


def level(association: float) -> int:
    """The level of an association: 0 for [0, .1), 1 for [.1, .3), 2 for [.3, .5), 3 for [.5, 1].

    A value that is below a boundary by rounding alone is on it, so that the order of rows never decides.
    """
    return sum(association + _ROUNDING >= boundary for boundary in LEVELS)
