"""The nearest of some centres to each of many vectors, exactly: one vector's answer depends on no other vector.

A matrix product in floating point sums in an order that depends on the shapes of its blocks. Where two centres are
nearly equally near, a vector more or less in the block could change which one another vector is given to, and one
record would move more than its own vote.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

BLOCK_BYTES = 2**25
"""About what `nearest` holds at once, beside its arguments, copies of the centres and its answer."""

_GRID = 2.0**24


def nearest(vectors: NDArray[np.floating], centres: NDArray[np.floating]) -> NDArray[np.int64]:
    """The nearest centre of each vector by Euclidean distance, the first of several that are equally near.

    The answer is `exactly_nearest`, bit by bit, so that a vector's depends on no other vector, and neither on the block
    that it is in nor on the machine. A product in float32 comes first. It is a sum of d + 1 products in an order that
    the library chooses, so it differs from the exact score by at most `_score_error`; where the best score is ahead of
    the second by more than twice that, it is the best. All other vectors are decided exactly.

    Args:
        vectors: shape (N, d), finite.
        centres: shape (K, d), finite.

    Returns:
        Shape (N,). Beside it and its arguments this holds about `BLOCK_BYTES`, and copies of the centres.
    """
    first = _first_of_equals(centres)
    points = np.asarray(centres[first], dtype=np.float64)
    if len(points) == 1:
        return np.full(len(vectors), first[0], dtype=np.int64)
    found, undecided = _decided_in_float32(vectors, points)
    rest, size = np.flatnonzero(undecided), max(1, BLOCK_BYTES // (16 * (len(points) + points.shape[1])))
    for start in range(0, len(rest), size):
        part = rest[start : start + size]
        found[part] = exactly_nearest(vectors[part], points)
    return first[found]


def exactly_nearest(vectors: NDArray[np.floating], centres: NDArray[np.floating]) -> NDArray[np.int64]:
    """The same in float64, without a bound on memory.

    Vectors and centres are rounded to multiples of 2⁻²⁴, and distances are compared exactly: 2x·c − |c|² is a whole
    multiple of 2⁻⁴⁸, and with |x|, |c| ≤ 1 every partial sum is below 2⁵¹ of them, so float64 holds it in whatever
    order a matrix product adds up. Longer centres are all divided by one power of two first; a longer vector then by
    one of its own, t, and 2t·x·c − |c|² is rounded once.
    """
    points = np.asarray(centres, dtype=np.float64)
    unit, grid = _on_grid(points)
    rows = np.asarray(vectors, dtype=np.float64) / unit
    powers = _power_above(_lengths(rows))[:, None]
    scores = np.rint(rows / powers * _GRID) @ grid.T
    scores *= 2 * powers
    scores -= np.square(grid).sum(axis=1)
    return np.asarray(scores.argmax(axis=1), dtype=np.int64)


def _first_of_equals(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """The indices of rows that equal no earlier one, byte by byte, in order."""
    table = np.ascontiguousarray(rows)
    whole = table.view(np.dtype((np.void, table.itemsize * table.shape[1]))).ravel()
    return np.sort(np.unique(whole, return_index=True)[1]).astype(np.int64)


def _decided_in_float32(
    vectors: NDArray[np.floating], points: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The centre with the best product of each vector, and whether it may be another; both of shape (N,)."""
    unit, grid = _on_grid(points)
    table = np.empty((len(points), points.shape[1] + 1), dtype=np.float32)
    np.divide(grid, _GRID, out=table[:, :-1], casting="same_kind")
    table[:, -1] = np.square(grid, out=grid).sum(axis=1) / (-2 * _GRID**2)
    margin = 2 * _score_error(points.shape[1])
    found, undecided = np.zeros(len(vectors), dtype=np.int64), np.ones(len(vectors), dtype=np.bool_)
    size = max(1, min(len(vectors), BLOCK_BYTES // (4 * (len(points) + 6 * table.shape[1]))))
    blocks, products = np.ones((size, table.shape[1]), dtype=np.float32), np.empty((size, len(points)), np.float32)
    for start in range(0, len(vectors), size):
        rows = np.arange(min(size, len(vectors) - start))
        block, scores = blocks[: len(rows)], products[: len(rows)]
        np.divide(vectors[start : start + size], unit, out=block[:, :-1], dtype=np.float32, casting="same_kind")
        np.matmul(block, table.T, out=scores)
        best = scores.argmax(axis=1)
        top = scores[rows, best].astype(np.float64)
        scores[rows, best] = -np.inf
        squares = np.square(block[:, :-1]).sum(axis=1)
        spread = np.where(squares <= 1.001, 1.0, 2.01 * np.sqrt(squares))  # at least the power t of `exactly_nearest`
        found[start : start + size] = best
        undecided[start : start + size] = ~(top - scores.max(axis=1) > margin * spread)
    return found, undecided


def _on_grid(points: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
    """The power of two that divides the centres, and whole numbers of 2⁻²⁴."""
    unit = float(_power_above(_lengths(points).max()))
    grid = points * (_GRID / unit)
    return unit, np.rint(grid, out=grid)


def _lengths(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sqrt(np.square(rows).sum(axis=1)), dtype=np.float64)


def _power_above(lengths: ArrayLike) -> NDArray[np.float64]:
    """The least power of two above 0.999·length, at least 1."""
    exponents = np.frexp(0.999 * np.asarray(lengths, dtype=np.float64))[1]
    return np.ldexp(1.0, np.maximum(exponents, 0))


def _score_error(dimension: int) -> float:
    """How far x·c − |c|²/2 in float32 is from its value on the grid, for |c| ≤ 1.002 and |x| ≤ 1.002; for |x| ≤ 1.002t
    it is t times that at most.

    Σ|x_i c_i| + |c|²/2 ≤ 1.51t, so any order of summing d + 1 products of float32 numbers errs by at most
    1.52(d + 1)tu, u = 2⁻²⁴, for d ≤ 2¹⁶ (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1).
    Rounding to float32 moves x and c by at most u of their lengths, |c|²/2 by u/2, and rounding x to the grid moves
    each coordinate by tu/2.
    """
    return 2.0**-24 * (1.52 * (dimension + 1) + 0.6 * math.sqrt(dimension) + 3)
