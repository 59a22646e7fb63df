"""Scores of canaries of which fair coins chose, by the released votes of all rounds.

The adversary knows every other row and all canaries. So it knows for which candidate each canary would have voted in
each view of each round, and what released votes are without canaries. What is left of them is a sum of coins and of
noise of known deviation. It solves for all coins from all rounds at once: the best linear guess of fair coins from such
sums. In one round, canaries with one candidate hide each other; in other rounds and views they have different ones.

Source: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), for many canaries.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from dpassay.base.arrays import Floats, Integers
from dpassay.data.tables import Table
from dpassay.mechanisms.table_evolution.candidates import positions
from dpassay.mechanisms.table_evolution.evolution import TableRound
from dpassay.mechanisms.table_evolution.generator import ReleasedRound
from dpassay.mechanisms.table_evolution.votes import TableView, chosen_candidates

LINEAR = "best linear guess of coins from the released votes of all rounds"

_VARIANCE = 0.25  # of a fair coin
_STEPS = 500
_LEAST_NOISE = 2.0**-7
_FEWEST_BARE = 100


def coin_scores(rounds: Sequence[ReleasedRound], known: Table, canaries: Table, others: Table | None = None) -> Floats:
    """How much more likely each coin is 1 than 0, from −½ to ½ or nearly so, shape (m,).

    Args:
        rounds: released.
        known: all rows but canaries.
        canaries: the row that is in the table if a coin is 1, for each coin.
        others: the row that is in the table if a coin is 0; None if then there is none.
    """
    tables = [known, canaries] + ([] if others is None else [others])
    places = [positions(table.schema, table.rows) for table in tables]
    sums = [
        _CoinSums.of(released.asked, view, votes, grid.deviation, places)
        for released in rounds
        for view, votes, grid in zip(released.asked.views, released.votes, released.asked.grids(), strict=True)
    ]
    count, noise = len(canaries.rows), _noise_scale(sums)
    sums = [dataclasses.replace(item, variance=item.variance * noise**2) for item in sums]

    def normal(coins: Floats) -> Floats:
        total = coins / _VARIANCE
        for item in sums:
            total = total + item.spread(item.added(coins)) / item.variance
        return np.asarray(total, dtype=np.float64)

    right = np.zeros(count)
    for item in sums:
        right += item.spread(item.rest) / item.variance
    scale = np.full(count, 1 / _VARIANCE)  # the largest part of the diagonal, by which the system is preconditioned
    for item in sums:
        scale += (1.0 if item.zeros is None else 2.0) / item.variance
    solved, _ = cg(
        LinearOperator((count, count), matvec=normal, dtype=np.float64),
        right,
        maxiter=_STEPS,
        M=LinearOperator((count, count), matvec=lambda coins: coins / scale, dtype=np.float64),
    )
    return np.asarray(solved, dtype=np.float64)


def _noise_scale(sums: Sequence[_CoinSums]) -> float:
    """How large the noise is beside what it should be, from candidates for which no canary votes, at most 1.

    Where a generator has less noise than it states, coins are then weighed by the noise that it has.
    """
    squares, count = 0.0, 0
    for item in sums:
        bare = np.ones(len(item.rest), dtype=np.bool_)
        for side in (item.ones, item.zeros):
            if side is not None:
                bare[side] = False
        squares += float(np.square(item.rest[bare]).sum()) / item.variance
        count += int(bare.sum())
    return min(1.0, max(_LEAST_NOISE, math.sqrt(squares / count))) if count >= _FEWEST_BARE else 1.0


@dataclass(frozen=True, slots=True, eq=False)
class _CoinSums:
    """The released votes of a view as sums of coins, each less ½, and noise.

    Attributes:
        rest: votes less those of known rows and of half of each canary, shape (candidates,).
        variance: of their noise.
        ones: the candidate of the canary of each coin that is 1, shape (m,).
        zeros: the same of each coin that is 0; None if there is no row then.
    """

    rest: Floats
    variance: float
    ones: Integers
    zeros: Integers | None

    @classmethod
    def of(
        cls,
        asked: TableRound,
        view: TableView,
        votes: Floats,
        deviation: float,
        places: Sequence[Sequence[Integers]],
    ) -> _CoinSums:
        """Of a view, given the positions of known rows, of canaries, and of others if there are any."""
        known, ones, *zeros = (chosen_candidates(asked.candidates, view, item) for item in places)
        sides = [ones, *zeros]
        rest = votes - np.bincount(known, minlength=len(votes))
        for side in sides:
            rest = rest - 0.5 * np.bincount(side, minlength=len(votes))
        return cls(rest, deviation**2, ones, zeros[0] if zeros else None)

    def added(self, coins: Floats) -> Floats:
        """What coins add to each candidate's votes, shape (candidates,)."""
        total = np.bincount(self.ones, coins, len(self.rest))
        if self.zeros is not None:
            total = total - np.bincount(self.zeros, coins, len(self.rest))
        return np.asarray(total, dtype=np.float64)

    def spread(self, votes: Floats) -> Floats:
        """The transpose of `added`, shape (m,)."""
        total = votes[self.ones]
        return np.asarray(total if self.zeros is None else total - votes[self.zeros], dtype=np.float64)
