"""Scores of canary rows by pairs of columns, for generators that know the data by counts of pairs only.

A generator that is fitted to the counts of pairs of columns repeats no row, but a row that was in the data raises the
counts of its pairs. Numbers and dates are put into 20 bins of equal width. For a canary and a pair of columns, let N be
the number of synthetic rows that agree with it in both, and B the number that is expected in the data without it: that
of the data's own rows, and a quarter of the other canaries, since half of all are candidates and half of those are
planted. Under Poisson counts the log-likelihood ratio of "one more row" is N·log(1 + 1/B) plus a constant.

A generator keeps some pairs and not others. A pair is used if the counts N of all canaries, candidates or not, are
likelier with means B (one more for a quarter of the canaries) than with those of independent columns, both scaled to
the synthetic rows; all pairs if there is none. The score is the sum over these pairs. It is the best one if counts were
independent and Poisson, and valid whatever they are, since it depends on synthetic rows, data and candidates only.

Source: Neyman and Pearson (1933), for the ratio as the best test of two simple hypotheses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from scipy import special

from dpassay.attacks.canaries.rows import (
    ColumnRange,
    Row,
    as_written,
    coded,
    comparable_columns,
    draw_rows,
    draw_unusual_rows,
)
from dpassay.attacks.canaries.spelling import Value
from dpassay.base.arrays import Floats, Integers
from dpassay.base.pieces import pieces

BINS = 20
MAX_PAIRS = 300
"""The most pairs of columns that are compared: all pairs of up to 25 columns."""

PIECE = 4096  # rows that are counted at once
_PSEUDO_COUNT = 0.5  # added to the expected counts, which may be 0
_PRIOR = 0.25
_UNKNOWN = -1


def column_pairs(columns: int) -> list[tuple[int, int]]:
    """The pairs of columns that are compared, by index: all, or, of many columns, as many pairs with each column."""
    steps = ((item, (item + step) % columns) for step in range(1, columns // 2 + 1) for item in range(columns))
    every = dict.fromkeys((min(pair), max(pair)) for pair in steps)
    return list(islice(every, MAX_PAIRS))


@dataclass(frozen=True, slots=True, eq=False)
class PairCounts:
    """How many of some rows agree with each of m canaries: in both columns of each pair of `column_pairs`, shape (m,
    pairs), and in each column, shape (m, columns)."""

    pairs: Integers
    columns: Integers
    rows: int

    def plus(self, other: PairCounts, times: int) -> PairCounts:
        """The counts with further rows, each `times` times."""
        return PairCounts(
            self.pairs + times * other.pairs, self.columns + times * other.columns, self.rows + times * other.rows
        )


def pair_counts(
    canaries: Sequence[Row],
    columns: Sequence[ColumnRange],
    rows: Iterable[Row],
    written: Sequence[ColumnRange] | None = None,
) -> PairCounts:
    """Counts rows that agree with each of m canaries; they may be an iterator, which is read once, in pieces. Columns
    of kind ``other`` are left out. `written` is as for `nearest`."""
    used, others = comparable_columns(columns), as_written(columns, written)
    sizes = [max(BINS, len(column.values)) + 2 for column in used]
    cells = [(item,) for item in range(len(used))] + [*column_pairs(len(used))]
    mine = _binned(canaries, used)
    known = [np.unique(_numbered(mine, cell, sizes), return_inverse=True) for cell in cells]
    counts = [np.zeros(len(numbers), dtype=np.int64) for numbers, _ in known]
    read = 0
    for piece in pieces(rows, PIECE):
        theirs = _binned(piece, others)
        for cell, (numbers, _), count in zip(cells, known, counts, strict=True):
            here = _numbered(theirs, cell, sizes)
            indices = np.minimum(np.searchsorted(numbers, here), len(numbers) - 1)
            count += np.bincount(indices[numbers[indices] == here], minlength=len(numbers))
        read += len(piece)
    every = np.array([count[index] for count, (_, index) in zip(counts, known, strict=True)], dtype=np.int64).T
    return PairCounts(every[:, len(used) :], every[:, : len(used)], read)


def draw_rare_rows(
    count: int,
    columns: Sequence[ColumnRange],
    known: Sequence[Row],
    total: int,
    rng: np.random.Generator,
    draw: Callable[[int, Sequence[ColumnRange], np.random.Generator], list[dict[str, Value]]] = draw_rows,
) -> tuple[list[dict[str, Value]], Floats]:
    """Distinct rows whose pairs of values are rare in the data: of four times as many, the rarest.

    Args:
        count: number of rows, half of which will be candidates.
        known: rows of the data, all or a uniform sample.
        total: number of rows of the data.
        draw: draws rows, of which the rare ones are kept.

    Returns:
        The rows in random order, and B for each of them and each pair, shape (count, pairs). Candidates and control
            candidates are treated alike, so that these stay exchangeable.

    Raises:
        ValueError: if the columns allow too few distinct rows, or fewer than two columns can be compared.
    """
    if len(comparable_columns(columns)) < 2:
        raise ValueError("fewer than two columns hold numbers, dates or at most 200 distinct words; score by nearest")
    pool, _ = draw_unusual_rows(2 * count, columns, known[:: max(1, len(known) // 1000)], rng, draw)
    seen = pair_counts(pool, columns, known)
    expected = seen.pairs * (total / max(1, seen.rows))
    rarest = np.argsort(-np.log1p(1 / (expected + _PSEUDO_COUNT)).sum(axis=1), kind="stable")[:count]
    rarest = rng.permutation(rarest)
    rows = [pool[index] for index in rarest]
    beside = pair_counts(rows, columns, rows).pairs - 1
    return rows, np.asarray(expected[rarest] + np.maximum(beside, 0) / 4, dtype=np.float64)


def pair_scores(counts: PairCounts, expected: Floats, left: Sequence[bool] = ()) -> Floats:
    """The score of each canary, shape (m,), larger for "in the data".

    Args:
        counts: of the synthetic rows.
        expected: B, shape (m, pairs).
        left: of each column, whether it is left out; empty for none.
    """
    result, pairs = counts.pairs, np.array(column_pairs(counts.columns.shape[1]))
    scale = (result.sum(axis=0) + 1) / (expected + _PSEUDO_COUNT).sum(axis=0)
    product = counts.columns[:, pairs[:, 0]] * counts.columns[:, pairs[:, 1]]
    independent = _log_poisson(result, product / max(1, counts.rows) + _PSEUDO_COUNT * scale)
    measured = np.logaddexp(
        math.log(3 / 4) + _log_poisson(result, scale * (expected + _PRIOR)),
        math.log(1 / 4) + _log_poisson(result, scale * (expected + 1 + _PRIOR)),
    )
    kept = measured.sum(axis=0) > independent.sum(axis=0)
    ratios = result * np.log1p(1 / (expected + _PSEUDO_COUNT))
    there = ~np.isin(pairs, np.flatnonzero(left)).any(axis=1)
    kept &= there
    return np.asarray(ratios[:, kept if kept.any() else there].sum(axis=1), dtype=np.float64)


def _log_poisson(counts: Integers, means: Floats) -> Floats:
    """The log-probability of counts, but for a term that does not depend on the means."""
    return np.asarray(special.xlogy(counts, means) - means, dtype=np.float64)


def _numbered(binned: Integers, cell: tuple[int, ...], sizes: Sequence[int]) -> Integers:
    """One number for each combination of bins in the columns of a cell; −1 where one of them is unknown."""
    number = np.zeros(len(binned), dtype=np.int64)
    for column in cell:
        number = number * sizes[column] + binned[:, column]
    return np.where((binned[:, list(cell)] == _UNKNOWN).any(axis=1), -1, number)


def _binned(rows: Sequence[Row], columns: Sequence[ColumnRange]) -> Integers:
    """Shape (rows, columns): the bin of each number and date, with those outside the range in the first and the last,
    and the index of each word; beyond them, one for empty cells.
    """
    result = coded(rows, columns)
    for index, column in enumerate(columns):
        empty = np.isinf(result[:, index])
        if column.kind != "word":
            share = (result[:, index] - column.low) / ((column.high - column.low) or 1.0)
            result[:, index] = np.floor(np.clip(share * BINS, 0, BINS - 1))
        result[empty, index] = max(BINS, len(column.values)) + 1
    result[np.isnan(result)] = _UNKNOWN
    return result.astype(np.int64)
