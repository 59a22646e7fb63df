"""A population of rows that evolves until its votes are those that were released: post-processing.

Rows begin with independent columns. In each generation, a share of the rows have a column resampled: the row takes the
candidate with which the population's votes come nearest to the wanted ones, where that is nearer than before. The share
becomes smaller from generation to generation, because rows that change at once do not see each other's changes.

Source: Liu et al., "Generating Private Synthetic Data with Genetic Algorithms" (2023), for rows that evolve to fit
noisy counts; Zhang et al., "PrivSyn: Differentially Private Data Synthesis" (2021), for rates that become smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, pairwise

import numpy as np

from dpassay.base.arrays import Floats, Integers

FIRST_SHARE, LAST_SHARE = 0.3, 0.01
"""The share of rows that may change in the first and in the last generation."""

MAX_ROWS = 2**16
"""The largest number of rows that change at once, which bounds the memory of a generation."""

Pair = tuple[int, int]


def first_population(shares: Sequence[Floats], count: int, rng: np.random.Generator) -> list[Integers]:
    """Rows with independent columns, as near to given shares of candidates as whole numbers are.

    Args:
        shares: of each column, shape (candidates,), which add up to 1.
        count: number of rows.
        rng: public.

    Returns:
        The candidate of each row in each column, each of shape (count,).
    """
    return [rng.permutation(_apportioned(item, count, rng)) for item in shares]


def _apportioned(shares: Floats, count: int, rng: np.random.Generator) -> Integers:
    """`count` numbers of candidates, each as often as its share says, up to one; shape (count,)."""
    ends = np.minimum(np.floor(np.cumsum(shares) / shares.sum() * count + rng.random()), count).astype(np.int64)
    ends[-1] = count
    return np.repeat(np.arange(len(shares)), np.diff(np.append(0, ends)))


class Population:
    """Rows, and how many of them vote for each candidate of each pair of columns.

    Args:
        rows: the candidate of each row in each column, each of shape (N,); changed in place.
        counts: the number of candidates of each column.
    """

    def __init__(self, rows: list[Integers], counts: Sequence[int]) -> None:
        self.rows, self.counts = rows, list(counts)
        self.votes: dict[Pair, Floats] = {pair: self._voted(pair) for pair in combinations(range(len(rows)), 2)}

    @property
    def size(self) -> int:
        """The number of rows."""
        return len(self.rows[0])

    def _voted(self, pair: Pair) -> Floats:
        first, second = pair
        codes = self.rows[first] * self.counts[second] + self.rows[second]
        shape = (self.counts[first], self.counts[second])
        return np.bincount(codes, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)

    def evolve(
        self,
        wanted: Mapping[Pair, Floats],
        generations: int,
        rng: np.random.Generator,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Changes rows so that their votes come near to the wanted ones, by squares over expected counts.

        Args:
            wanted: of each pair of columns, shape (candidates, candidates); they add up to the population's rows.
            generations: their number.
            rng: public.
            progress: called after each generation with its number and that of all.
        """
        weights = {pair: 1 / (counts + 1.0) for pair, counts in wanted.items()}
        shares = np.geomspace(FIRST_SHARE, LAST_SHARE, generations)
        for number, share in enumerate(shares.tolist(), 1):
            for column in rng.permutation(len(self.rows)).tolist():
                chosen = np.flatnonzero(rng.random(self.size) < share)
                for start in range(0, len(chosen), MAX_ROWS):
                    self._resample(column, chosen[start : start + MAX_ROWS], wanted, weights)
            if progress is not None:
                progress(number, generations)

    def _resample(
        self, column: int, chosen: Integers, wanted: Mapping[Pair, Floats], weights: Mapping[Pair, Floats]
    ) -> None:
        """Gives chosen rows the candidates of a column with which the votes are nearest to the wanted ones."""
        old, each = self.rows[column][chosen], np.arange(len(chosen))
        loss = np.zeros((len(chosen), self.counts[column]))
        for other in range(len(self.rows)):
            if other != column:
                pair = (min(column, other), max(column, other))
                excess, weight = (self.votes[pair] - wanted[pair]) * weights[pair], weights[pair]
                if column < other:
                    excess, weight = excess.T, weight.T
                beside = self.rows[other][chosen]
                loss += (excess + weight / 2)[beside]
                loss[each, old] -= weight[beside, old]  # a row that stays adds no vote to its own
        new = loss.argmin(axis=1)
        moved = loss[each, new] < loss[each, old]
        self._move(column, chosen[moved], old[moved], new[moved])

    def _move(self, column: int, chosen: Integers, old: Integers, new: Integers) -> None:
        for other in range(len(self.rows)):
            if other != column:
                beside = self.rows[other][chosen]
                votes = self.votes[min(column, other), max(column, other)]
                seen = votes if column < other else votes.T
                np.add.at(seen, (new, beside), 1.0)
                np.add.at(seen, (old, beside), -1.0)
        self.rows[column][chosen] = new


def values_of(
    levels: Integers, cells: Integers, shares: Floats, starts: Integers, sizes: Integers, rng: np.random.Generator
) -> Integers:
    """A position of the domain for each row's candidate, shape (N,): a cell by its share, and any value in it.

    Args:
        levels: the candidate of each row, shape (N,).
        cells: the candidate of each cell, shape (cells,).
        shares: how likely a cell is among those of its candidate, shape (cells,), at least 0.
        starts, sizes: the first position of each cell, and their number, shape (cells,).
        rng: public.
    """
    result = np.empty(len(levels), dtype=np.int64)
    order = np.argsort(levels, kind="stable")
    ends = np.searchsorted(levels[order], np.arange(int(cells.max()) + 2))
    for level, (start, end) in enumerate(pairwise(ends)):
        among = np.flatnonzero(cells == level)
        likely = shares[among] + 1e-9 * sizes[among]
        picked = among[rng.permutation(_apportioned(likely, int(end - start), rng))]
        result[order[start:end]] = starts[picked] + rng.integers(0, sizes[picked])
    return result
