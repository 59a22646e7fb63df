"""The nearest centre of each vector, computed exactly, so that each result depends on its own vector only.

A floating-point matrix product sums in an order that depends on the shapes of its blocks. If two centres are almost
equally near, adding or removing a vector of the block could change the result for another vector, and one record would
change more than its own vote.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.base.arrays import Bools, Floats, Integers

BLOCK_BYTES = 2**25
"""Approximate memory that `nearest` uses, in addition to its arguments, copies of the centres and its result."""

_GRID = 2.0**24
_NEAR = 0.7  # distance from the middle to the furthest centre up to which differences from the middle are more accurate
_WORTH_PAIRS = 32  # computing one score separately takes as long as about this many in a matrix product


class ManyRows(Protocol):
    """Vectors that are read by slices, or by places: an array, or a file of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> NDArray[np.floating]: ...


def nearest(vectors: ManyRows, centres: NDArray[np.floating]) -> Integers:
    """The nearest of K centres to each of N vectors, all finite, by Euclidean distance, the first one in case of ties;
    shape (N,).

    The result is that of `exactly_nearest`, bit by bit: it depends neither on the other vectors, nor on the blocks, nor
    on the machine. A float32 product is computed first. It is a sum of d + 1 products in an order that the library
    chooses, so it differs from the exact score by at most `score_error`; a centre whose score is below the best by more
    than twice that is not the nearest. If several centres remain, exact scores decide. About `BLOCK_BYTES` and copies
    of the centres are held in memory.
    """
    first = _first_of_equals(centres)
    points = np.asarray(centres[first], dtype=np.float64)
    count, width = len(points), points.shape[1] + 1
    if count == 1:
        return np.full(len(vectors), first[0], dtype=np.int64)
    scores, result = CentreScores.of(points), np.zeros(len(vectors), dtype=np.int64)
    size = max(1, min(len(vectors), BLOCK_BYTES // (8 * count + 40 * width)))
    blocks, products = np.ones((size, width), dtype=np.float32), np.empty((size, count), np.float32)
    left = [np.zeros(0, dtype=np.int64)]
    for start in range(0, len(vectors), size):
        here = vectors[start : start + size]
        close = scores.close(here, blocks[: len(here)], products[: len(here)])
        if np.count_nonzero(close) > max(2, count // _WORTH_PAIRS) * len(here):
            many = np.flatnonzero(close.sum(axis=1) > max(2, count // _WORTH_PAIRS))
            close[many] = False
            left.append(start + many)
        result[start : start + size] = scores.best(here, close)
    rest, size = np.concatenate(left), max(1, BLOCK_BYTES // (16 * (count + width)))
    for start in range(0, len(rest), size):
        part = rest[start : start + size]
        result[part] = exactly_nearest(vectors[part], points)
    return first[result]


def exactly_nearest(vectors: NDArray[np.floating], centres: NDArray[np.floating]) -> Integers:
    """The same result in float64, with unbounded memory.

    Vectors and centres are rounded to multiples of 2⁻²⁴, and distances are compared exactly: 2x·c − |c|² is an integer
    multiple of 2⁻⁴⁸, and with |x|, |c| ≤ 1 every partial sum is below 2⁵¹ of them, so float64 represents it in any
    order of summation. Longer centres are first divided by a common power of two; a longer vector then by its own power
    t, and 2t·x·c − |c|² is rounded once.
    """
    points = np.asarray(centres, dtype=np.float64)
    unit, grid = _on_grid(points)
    rows, powers = rows_on_grid(vectors, unit)
    scores = rows @ grid.T
    scores *= 2 * powers[:, None]
    scores -= np.square(grid).sum(axis=1)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def _first_of_equals(rows: NDArray[np.floating]) -> Integers:
    """The indices of rows that equal no earlier row, byte by byte, in order."""
    table = np.ascontiguousarray(rows)
    rows_as_bytes = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    return np.sort(np.unique(rows_as_bytes, return_index=True)[1]).astype(np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class CentreScores:
    """Scores of centres, 2x·c − |c|², in float32 and exactly.

    If all centres are near to each other, float32 holds their differences from a point o in the middle: the scores
    x·(c − o) − (|c|² − |o|²)/2 have the same order, and their errors are proportional to |c − o|.

    Attributes:
        unit: the power of two that divides centres.
        grid: shape (K, d), centres in whole multiples of 2⁻²⁴.
        squares: shape (K,), their squared lengths.
        table: shape (K, d + 1), c − o and −(|c|² − |o|²)/2.
        margin: twice the error of a score in float32, for vectors of length 1.
    """

    unit: float
    grid: Floats
    squares: Floats
    table: NDArray[np.float32]
    margin: float

    @classmethod
    def of(cls, points: Floats) -> CentreScores:
        unit, grid = _on_grid(points)
        middle = np.rint(grid.mean(axis=0))
        reach: float | None = float(_lengths(grid - middle).max() / _GRID)
        if reach is not None and reach > _NEAR:
            middle, reach = np.zeros_like(middle), None
        squares = np.square(grid).sum(axis=1)
        table = np.empty((len(grid), grid.shape[1] + 1), dtype=np.float32)
        np.divide(grid - middle, _GRID, out=table[:, :-1], casting="same_kind")
        table[:, -1] = (squares - np.square(middle).sum()) / (-2 * _GRID**2)
        return cls(unit, grid, squares, table, 2 * score_error(grid.shape[1], reach))

    def close(self, vectors: NDArray[np.floating], rows: NDArray[np.float32], products: NDArray[np.float32]) -> Bools:
        """Which centres may be the nearest of each of n vectors, by float32, shape (n, K); the vectors are written to
        `rows`, shape (n, d + 1), whose last column is 1, and the scores to `products`, shape (n, K)."""
        np.divide(vectors, self.unit, out=rows[:, :-1], dtype=np.float32, casting="same_kind")
        np.matmul(rows, self.table.T, out=products)
        squares = np.square(rows[:, :-1]).sum(axis=1)
        spread = np.where(squares <= 1.001, 1.0, 2.01 * np.sqrt(squares))  # at least the power t of `exactly_nearest`
        least = (products.max(axis=1) - self.margin * spread).astype(np.float32)
        return np.asarray(products >= np.nextafter(least, np.float32(-np.inf))[:, None], dtype=np.bool_)

    def best(self, vectors: NDArray[np.floating], close: Bools) -> Integers:
        """The first centre with the best exact score among the close ones; shape (n,), 0 if none is close."""
        of, centres = np.divmod(np.flatnonzero(close), close.shape[1])
        out, counts = np.zeros(len(close), dtype=np.int64), np.bincount(of, minlength=len(close))
        alone = counts[of] == 1
        out[of[alone]] = centres[alone]
        of, centres = of[~alone], centres[~alone]
        if len(of):
            asked = np.flatnonzero(counts > 1)
            pairs = self._exactly(vectors[asked], np.repeat(np.arange(len(asked)), counts[asked]), centres)
            begins = np.cumsum(counts[asked]) - counts[asked]
            is_best = np.flatnonzero(pairs == np.repeat(np.maximum.reduceat(pairs, begins), counts[asked]))
            out[of[is_best[::-1]]] = centres[is_best[::-1]]  # reversed, so that the first one is written last
        return out

    def _exactly(self, vectors: NDArray[np.floating], of: Integers, centres: Integers) -> Floats:
        """The scores of pairs of a vector and a centre, as in `exactly_nearest`."""
        rows, powers = rows_on_grid(vectors, self.unit)
        products, size = np.empty(len(of)), max(1, BLOCK_BYTES // (128 * rows.shape[1]))
        for start in range(0, len(of), size):
            part = slice(start, start + size)
            np.einsum("ij,ij->i", rows[of[part]], self.grid[centres[part]], out=products[part])
        return np.asarray(products * (2 * powers[of]) - self.squares[centres], dtype=np.float64)


def _on_grid(points: Floats) -> tuple[float, Floats]:
    """The power of two that divides the centres, and the centres as integers in units of 2⁻²⁴."""
    unit = float(_power_above(_lengths(points).max()))
    grid = points * (_GRID / unit)
    return unit, np.rint(grid, out=grid)


def rows_on_grid(vectors: NDArray[np.floating], unit: float) -> tuple[Floats, Floats]:
    """Vectors as integers in units of 2⁻²⁴t, and the power of two t of each."""
    rows = np.asarray(vectors, dtype=np.float64) / unit
    powers = _power_above(_lengths(rows))
    rows *= _GRID / powers[:, None]
    return np.rint(rows, out=rows), powers


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.sqrt(np.square(rows).sum(axis=1)), dtype=np.float64)


def _power_above(lengths: ArrayLike) -> Floats:
    """The smallest power of two above 0.999·length, at least 1."""
    exponents = np.frexp(0.999 * np.asarray(lengths, dtype=np.float64))[1]
    return np.ldexp(1.0, np.maximum(exponents, 0))


def score_error(dimension: int, reach: float | None = None) -> float:
    """A bound on the difference of a float32 score from x·c − |c|²/2 on the grid, for |c| ≤ 1.002 and |x| ≤ 1.002.

    For |x| ≤ 1.002t the bound is t times as large.

    Σ|x_i c_i| + |c|²/2 ≤ 1.51t, so any order of summing d + 1 products of float32 numbers errs by at most
    1.52(d + 1)tu, u = 2⁻²⁴, for d ≤ 2¹⁶ (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1).
    Rounding to float32 moves x and c by at most u of their lengths, |c|²/2 by u/2, and rounding x to the grid moves
    each coordinate by tu/2.

    With c − o in place of c, |c − o| ≤ R = `reach` and |o| ≤ 1.002, (|c|² − |o|²)/2 = (c − o)·(c + o)/2 ≤ 1.002R, and
    the sum is at most 2.01tR: every term above is multiplied by R, the first also by 4/3. A score of `exactly_nearest`
    is rounded to float64 once, which changes it by less than 2⁻⁵⁰t.
    """
    rounding = 0.6 * math.sqrt(dimension) + 3
    if reach is None:
        return 2.0**-24 * (1.52 * (dimension + 1) + rounding)
    return 2.0**-24 * reach * (2.03 * (dimension + 1) + rounding + 1) + 2.0**-50
