"""Batches of clipped logits in whole grid steps, restricted to the columns that medians and sums need.

In a large vocabulary most tokens are at the bottom of the clip in most rows. Their median and its neighbours are −c,
and nothing needs to be clipped or sorted there. These columns are found by comparing raw logits; the others are called
live.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers

Steps = NDArray[np.int32]

GRID = 2.0**-24
"""Clipped logits are multiples of this, so that medians, midpoints and sums of a batch are exact in float64."""

NOT_NUMBERS = "logits must be numbers, with at least one finite entry per row and none at +inf"
MANY_COLUMNS = 1 / 2  # if more columns are live, all are treated as live: gathering them would cost more
MANY_ENTRIES = 1 / 4  # if more entries of a row are above the bottom, the whole row is summed

MAX_TAIL = 32.0
"""The largest clip of public logits, so that a median of centred rows and they together are below 2⁸."""
_MAX_CLIP = 64.0  # so that a clipped logit is an int32 number of grid steps: 64/GRID = 2^30
BLOCK = 2**17  # entries, 1 MiB of float64
_COLUMNS, _ROWS = 1024, 8
MIN_SPARSE = 2**14  # columns; shorter rows are summed all at once, because each NumPy call costs more than it does
CACHED = 2**14  # numbers that any way to read them finds in the cache


class Rows(Protocol):
    """A batch of B rows of V clipped logits, in memory or on a device."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, V)."""

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        """Order statistics of each column: the batch sorted along its first axis, at some consecutive ranks.

        The value is −c before rank 0, and c after rank B − 1. Returns the live columns, shape (A,), ascending, and
        their values, shape (len(ranks), A). In all other columns every value is −c.
        """

    def live_steps(self, part: slice) -> Steps:
        """Shape (B, columns): entries of some of the live columns of the last call of `middle`."""


def clip_logits(logits: ArrayLike, clip: float) -> Floats:
    """Clipped logits max(−c, z − max z + c), rounded to `GRID`, along the last axis.

    The result is a fixed function of each row by itself, so neither the clip nor the rounding costs privacy. If c is
    not a multiple of GRID, it is first rounded down to one, so that no entry leaves [−c, c].

    Args:
        logits: shape (…, V); −inf is allowed if another entry of the row is finite.
        clip: c > 0, at most 64.

    Returns:
        Shape (…, V), float64.

    Raises:
        ValueError: if a row has NaN, +inf or no finite entry, or the clip is invalid.
    """
    return np.asarray(clip_steps(logits, clip) * GRID, dtype=np.float64)


def clip_steps(logits: ArrayLike, clip: float) -> Steps:
    """The result of `clip_logits` in whole steps of `GRID`, int32. Arguments and errors are the same."""
    limit = integer_clip(clip)
    raw = np.asarray(logits)
    if raw.ndim == 0 or raw.shape[-1] == 0:
        raise ValueError(f"logits must have a last axis over the vocabulary, not shape {raw.shape}")
    flat = raw.reshape(-1, raw.shape[-1])
    return _clipped(flat, _tops(flat), limit).reshape(raw.shape)


def centred_steps(logits: ArrayLike, public: Steps, clip: float, tail: float) -> Steps:
    """Rows of logits less public ones, clipped to [−c, c], in whole steps of `GRID`; a function of each row by itself.

    With z a row and f the public one, both from `clip_steps` with `tail`, the differences are z − f − t, where
    t = ⌊(max(2z − f) + min(z − 2f))/2⌋ puts them evenly about 0: the offset of a row's logits does not matter, and
    tokens that neither the row nor the public logits make likely count little. Everything is exact in whole steps, so
    the result is the same wherever it is computed.

    Args:
        logits: raw, shape (B, V).
        public: f, shape (V,), in steps.
        clip: c.
        tail: at most `MAX_TAIL`.

    Returns:
        Shape (B, V), int32.

    Proof: docs/proofs/centred.md, Assumptions.
    """
    limit, raw = integer_clip(clip), np.asarray(logits)
    if raw.ndim != 2 or raw.shape[1:] != public.shape:
        raise ValueError(f"logits must have shape (records, {len(public)}), not {raw.shape}")
    tops, bottom = _tops(raw), integer_clip(tail)
    centred, wide = np.empty(raw.shape, dtype=np.int32), public.astype(np.int64)
    for rows in _blocks(*raw.shape):
        row = _clipped(raw[rows], tops[rows], bottom).astype(np.int64)
        shift = ((2 * row - wide).max(axis=1) + (row - 2 * wide).min(axis=1)) >> 1
        centred[rows] = np.clip(row - wide - shift[:, None], -limit, limit)
    return centred


def likely_tokens(public: Steps, top_k: int, clip: float) -> Integers:
    """The tokens whose public logit is at most 2c below the k-th largest, ascending; all of V tokens if k is V or more.

    Where a median of rows in [−c, c], or a mean of no more rows than its denominator, is added to the public logits,
    its k likeliest tokens are among them: each score moves by at most c.

    Args:
        public: shape (V,), in steps of `GRID`.
        top_k: k, at least 1.
        clip: c.

    Proof: docs/proofs/centred.md, Theorem 5.
    """
    steps = public.astype(np.int64)
    kth = np.partition(steps, max(0, len(steps) - top_k))[max(0, len(steps) - top_k)]
    return np.flatnonzero(steps >= kth - 2 * integer_clip(clip))


def check_clip(clip: float) -> None:
    """Checks that the grid of logits can represent a clip: it is from 2⁻²⁴ to 64."""
    validate.positive(clip=clip)
    if not GRID <= clip <= _MAX_CLIP:
        raise ValueError(f"clip must be between {GRID:.3g} and {_MAX_CLIP:g}, not {clip!r}")


def integer_clip(clip: float) -> int:
    """c in grid steps, rounded down."""
    check_clip(clip)
    return math.floor(clip / GRID)


class StepRows:
    """A batch that is already clipped with c, shape (B, V), from `clip_steps`. Every column counts as live."""

    def __init__(self, steps: Steps, clip: float) -> None:
        self.shape: tuple[int, int] = (steps.shape[0], steps.shape[1])
        self._steps = steps
        self._limit = integer_clip(clip)

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        return np.arange(self.shape[1]), sorted_rows(self._steps, ranks, self._limit)

    def live_steps(self, part: slice) -> Steps:
        return self._steps[:, part]

    def steps(self) -> Steps:
        """The whole batch, shape (B, V)."""
        return self._steps

    def sums(self) -> Integers:
        """The sum over the rows, shape (V,), in grid steps."""
        return np.asarray(self._steps.sum(axis=0, dtype=np.int64))


class LogitRows:
    """A batch of raw logits, shape (B, V), B ≥ 0, clipped only in the columns that are needed."""

    def __init__(self, logits: ArrayLike, clip: float) -> None:
        self._limit = integer_clip(clip)
        raw = np.asarray(logits)
        if raw.ndim != 2 or raw.shape[1] == 0:
            raise ValueError(f"a batch must have shape (records, vocabulary), not {raw.shape}")
        self._raw = raw if raw.dtype in (np.float16, np.float32, np.float64) else raw.astype(np.float64)
        self.shape: tuple[int, int] = (raw.shape[0], raw.shape[1])
        self._tops = _tops(self._raw)
        # An entry above the bottom is more than half a step above top − 2c. Rounding top − 2c to float64 and to the
        # type of the logits raises it by less than one step of that type, which `nextafter` undoes.
        least = (self._tops - 2 * self._limit * GRID).astype(self._raw.dtype)
        self._least = np.nextafter(least, np.array(-np.inf, dtype=self._raw.dtype))
        self._live: Steps = np.empty((0, 0), dtype=np.int32)

    def steps(self) -> Steps:
        """The whole batch, shape (B, V)."""
        return _clipped(self._raw, self._tops, self._limit)

    def middle(self, ranks: range) -> tuple[Integers, Steps]:
        live = self._columns(ranks[-1])
        dense = len(live) == self.shape[1]
        self._live = _clipped(self._raw if dense else self._raw.take(live, axis=1), self._tops, self._limit)
        return live, sorted_rows(self._live, ranks, self._limit)

    def live_steps(self, part: slice) -> Steps:
        return self._live[:, part]

    def sums(self) -> Integers:
        """The sum over the rows, shape (V,), in grid steps."""
        size, vocabulary = self.shape
        if vocabulary < MIN_SPARSE:
            return self._sums_at_once()
        total = np.full(vocabulary, -size * self._limit, dtype=np.int64)
        for row, top, least in zip(self._raw, self._tops, self._least, strict=True):
            above = np.flatnonzero(row >= least)
            columns = above if len(above) <= MANY_ENTRIES * vocabulary else slice(None)
            # How far above −c: up to 2^31, more than int32 holds.
            total[columns] += _clipped(row[None, columns], top[None], self._limit)[0].astype(np.int64) + self._limit
        return total

    def _sums_at_once(self) -> Integers:
        size, vocabulary = self.shape
        above = np.flatnonzero(self._raw >= self._least[:, None])
        if len(above) > MANY_ENTRIES * self._raw.size:
            return np.asarray(self.steps().sum(axis=0, dtype=np.int64))
        row = above // vocabulary
        steps = _clipped(self._raw.reshape(-1)[above][:, None], self._tops[row], self._limit)[:, 0]
        # How far above −c: whole numbers, whose sums float64 holds up to 2²² rows.
        total = np.bincount(above - row * vocabulary, steps.astype(np.float64) + self._limit, minlength=vocabulary)
        return np.asarray(total.astype(np.int64) - size * self._limit)

    def _columns(self, last: int) -> Integers:
        """Columns that may have an entry above the bottom at rank `last`; all columns, if there are many."""
        size, vocabulary = self.shape
        if last < size:
            live = np.flatnonzero(self._counts_above() >= size - last)
            if len(live) <= MANY_COLUMNS * vocabulary:
                return live
        return np.arange(vocabulary)

    def _counts_above(self) -> NDArray[np.int32]:
        """Shape (V,): an upper bound on the number of rows with an entry above the bottom."""
        counts = np.zeros(self.shape[1], dtype=np.int32)
        height = max(1, min(255, 2 * BLOCK // self.shape[1]))
        for start in range(0, self.shape[0], 255):  # as many as one byte counts
            count = np.zeros(self.shape[1], dtype=np.uint8)
            for first in range(start, min(start + 255, self.shape[0]), height):
                rows = slice(first, min(first + height, start + 255))
                above = self._raw[rows] >= self._least[rows, None]
                count += np.add.reduce(above.view(np.uint8), axis=0, dtype=np.uint8)
            counts += count
        return counts


def sorted_rows(steps: Steps, wanted: range, limit: int) -> Steps:
    """The wanted rows of the batch sorted along its first axis, −limit before the first row and limit after the last.

    Sorting short contiguous columns is three times as fast as sorting along the first axis. They are transposed a few
    rows at a time, because rows that lie a power of two apart evict each other from the cache.
    """
    size, vocabulary = steps.shape
    ranks = np.empty((len(wanted), vocabulary), dtype=np.int32)
    inside = [rank for rank in wanted if 0 <= rank < size]
    for start in range(0, vocabulary if inside else 0, _COLUMNS):
        columns = slice(start, start + _COLUMNS)
        wide = steps[:, columns]
        block = np.empty(wide.shape[::-1], dtype=np.int32)
        height = size if steps.size <= CACHED else _ROWS
        for row in range(0, size, height):
            block[:, row : row + height] = wide[row : row + height].T
        block.sort(axis=1)
        ranks[inside[0] - wanted[0] : inside[-1] - wanted[0] + 1, columns] = block[:, inside[0] : inside[-1] + 1].T
    fill_outside(ranks, wanted, size, limit)
    return ranks


def fill_outside(ranks: Steps, wanted: range, size: int, limit: int) -> None:
    """Writes −limit before rank 0 and limit after rank `size` − 1 into values of shape (len(wanted), columns)."""
    for index, rank in enumerate(wanted):
        if not 0 <= rank < size:
            ranks[index] = -limit if rank < 0 else limit


def _tops(raw: NDArray[np.generic]) -> Floats:
    """The largest entry of each row, shape (B,)."""
    tops = raw.max(axis=1).astype(np.float64) if len(raw) else np.empty(0)
    if not np.isfinite(tops).all():
        raise ValueError(NOT_NUMBERS)
    return np.asarray(tops)


def _clipped(raw: NDArray[np.generic], tops: Floats, limit: int) -> Steps:
    """max(−c, z − top + c) in grid steps, shape (B, columns), for rows whose largest entries are `tops`."""
    clipped = np.empty(raw.shape, dtype=np.int32)
    for rows in _blocks(*raw.shape):
        block = raw[rows].astype(np.float64)
        block -= tops[rows, None]
        block *= 1 / GRID
        np.rint(block, out=block)
        block += limit
        np.maximum(block, -limit, out=block)
        clipped[rows] = block
    return clipped


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows that fit into the processor's cache while several operations pass over them."""
    height = max(1, BLOCK // max(1, columns))
    return (slice(start, min(start + height, rows)) for start in range(0, rows, height))
