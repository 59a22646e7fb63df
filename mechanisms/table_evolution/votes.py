"""Votes of private rows in views, and the noise that they get.

A view is one column, or a pair of columns. In each view every row votes for one candidate: the cell, or the pair of
cells, that its values are in. So adding or removing a row changes the votes of a view by 1 in one place, and replacing
it by 1 in each of two places or not at all. The votes of all views of a round are one release: views share the noise of
the round by public weights.

Votes are whole numbers of units of a view's own grid, and noise is a normal variable rounded down on that grid, which
is post-processing (`rounded_normal`). Units are chosen, and compared exactly, so that a row's votes in all views
together are at most 1/σ standard deviations of the noise.

Proof: docs/proofs/table-evolution.md, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.primitives.randomness import Source
from dpassay.mechanisms.primitives.rounded_normal import MAX_BITS
from dpassay.mechanisms.table_evolution.candidates import ColumnCandidates

_UNITS = 24  # a vote has about 2²⁴ units


@dataclass(frozen=True, slots=True)
class TableView:
    """One column, or two different columns in their order, and the weight of their votes: the share of a round's
    precision, above 0; the weights of a round add up to at most 1."""

    columns: tuple[int, ...]
    weight: float


@dataclass(frozen=True, slots=True)
class VotesGrid:
    """The grid of a view's votes: a vote has so many units, and the noise a standard deviation of 2^bits units; None
    for no noise."""

    units: int
    bits: int | None

    @property
    def deviation(self) -> float:
        """The standard deviation of the noise in votes, up to rounding; without noise a small number, by which
        estimates may divide."""
        return 2.0**-10 if self.bits is None else 2.0**self.bits / self.units


def votes_grids(noise_multiplier: float, weights: Sequence[float]) -> list[VotesGrid]:
    """The grids of a round's views: Σ units²/4^bits, over all views, is at most 1/noise_multiplier², compared exactly.

    Raises:
        ValueError: if the weights are invalid, or the noise is too large for the grid.
    """
    if not all(0 < weight <= 1 for weight in weights) or math.fsum(weights) > 1 + 2.0**-40:
        raise ValueError("weights of views must be above 0 and add up to at most 1")
    if noise_multiplier == 0:
        return [VotesGrid(1, None) for _ in weights]
    units, bits = [], []
    for weight in weights:
        deviation = noise_multiplier / math.sqrt(weight)
        bits.append(min(MAX_BITS, max(0, _UNITS + math.frexp(deviation)[1])))
        units.append(math.floor(2.0 ** bits[-1] / deviation))
    limit = 1 / Fraction(noise_multiplier) ** 2
    while min(units) >= 1 and sum(Fraction(item**2, 4**bit) for item, bit in zip(units, bits, strict=True)) > limit:
        units = [item - 1 for item in units]
    if min(units) < 1:
        raise ValueError(f"noise_multiplier is too large for the grid of votes: {noise_multiplier!r}")
    return [VotesGrid(item, bit) for item, bit in zip(units, bits, strict=True)]


def chosen_candidates(
    candidates: Sequence[ColumnCandidates], view: TableView, positions: Sequence[Integers]
) -> Integers:
    """The candidate of a view that each row votes for, shape (n,).

    Args:
        candidates: of each column.
        view: in a pair, the candidate (a, b) is number a · (candidates of the second column) + b.
        positions: of the rows' values in each column's domain, each of shape (n,).
    """
    chosen = candidates[view.columns[0]].chosen_by(positions[view.columns[0]])
    for column in view.columns[1:]:
        chosen = chosen * candidates[column].count + candidates[column].chosen_by(positions[column])
    return chosen


def exact_votes(candidates: Sequence[ColumnCandidates], view: TableView, positions: Sequence[Integers]) -> Integers:
    """The number of rows that vote for each candidate of a view, shape (candidates,). Not differentially private.

    Arguments are those of `chosen_candidates`.
    """
    count = math.prod(candidates[column].count for column in view.columns)
    return np.bincount(chosen_candidates(candidates, view, positions), minlength=count).astype(np.int64)


def noisy_votes(exact: Integers, grid: VotesGrid, source: Source) -> Floats:
    """Votes with noise; without noise they must not be released."""
    if grid.bits is None:
        return exact.astype(np.float64)
    return np.asarray((exact * grid.units + source.rounded_normals(exact.size, grid.bits)) / grid.units)
