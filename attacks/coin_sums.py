"""Coins behind released counts: the best linear guess of fair coins from noisy sums of them, all solved at once.

Whoever knows every other row and all canaries knows in which cell of a released histogram each canary counts. What is
left of a count is then a sum of coins, and noise of known deviation. In one histogram canaries of one cell hide each
other; in others they are in different cells.

Source: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), for many canaries; the guess
is linear least squares with a prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from dpassay.base.arrays import Floats, Integers

_VARIANCE = 0.25  # of a fair coin
_STEPS = 500


@dataclass(frozen=True, slots=True, eq=False)
class CoinSums:
    """A noisy histogram as sums of coins, each less ½, and noise.

    Attributes:
        rest: counts less those of known rows and of half of each canary, shape (cells,).
        variance: of their noise.
        ones: the cell of the row that is in the table if a coin is 1, for each coin, shape (m,).
        zeros: the same if a coin is 0; None if there is no row then.
    """

    rest: Floats
    variance: float
    ones: Integers
    zeros: Integers | None

    @classmethod
    def of(
        cls, counts: Floats, variance: float, known: Integers, ones: Integers, zeros: Integers | None = None
    ) -> CoinSums:
        """Of released counts, given the cells of known rows, of canaries, and of others if there are any."""
        rest = counts - np.bincount(known, minlength=len(counts))
        for side in (ones, zeros):
            if side is not None:
                rest = rest - 0.5 * np.bincount(side, minlength=len(counts))
        return cls(np.asarray(rest, dtype=np.float64), variance, ones, zeros)

    def added(self, coins: Floats) -> Floats:
        """What coins add to each cell, shape (cells,)."""
        total = np.bincount(self.ones, coins, len(self.rest))
        if self.zeros is not None:
            total = total - np.bincount(self.zeros, coins, len(self.rest))
        return np.asarray(total, dtype=np.float64)

    def spread(self, counts: Floats) -> Floats:
        """The transpose of `added`, shape (m,)."""
        total = counts[self.ones]
        return np.asarray(total if self.zeros is None else total - counts[self.zeros], dtype=np.float64)


def best_linear_guess(sums: Sequence[CoinSums], count: int) -> Floats:
    """How much more likely each of `count` coins is 1 than 0, from −½ to ½ or nearly so, shape (m,)."""

    def normal(coins: Floats) -> Floats:
        total = coins / _VARIANCE
        for item in sums:
            total = total + item.spread(item.added(coins)) / item.variance
        return np.asarray(total, dtype=np.float64)

    right, scale = np.zeros(count), np.full(count, 1 / _VARIANCE)
    for item in sums:
        right += item.spread(item.rest) / item.variance
        scale += (1.0 if item.zeros is None else 2.0) / item.variance  # of the diagonal, by which it is preconditioned
    solved, _ = cg(
        LinearOperator((count, count), matvec=normal, dtype=np.float64),
        right,
        maxiter=_STEPS,
        M=LinearOperator((count, count), matvec=lambda coins: coins / scale, dtype=np.float64),
    )
    return np.asarray(solved, dtype=np.float64)
