"""Scores of canaries of which fair coins chose, by the noisy marginals of a table that holds the chosen ones.

The adversary knows every other row and all canaries. So it knows each released count up to noise of known scale and the
canaries in its cell, and solves for all coins at once.

Source: Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run" (2023), for many canaries; the scores
are linear least squares with a prior, the best linear guess of coins from sums of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse.linalg import LinearOperator, cg

from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.marginals.tables import NoisyMarginal

LEAST_SQUARES = "least squares of the released marginals, given all other rows"

_VARIANCE = 0.25  # of a fair coin
_STEPS = 300


def coin_scores(
    marginals: Sequence[NoisyMarginal],
    sizes: Sequence[int],
    known: Sequence[Integers],
    canaries: Sequence[Integers],
    others: Sequence[Integers] | None = None,
) -> Floats:
    """How much more likely each coin is 1 than 0, shape (m,); larger for 1.

    Args:
        marginals: released.
        sizes: number of levels of each column.
        known: levels of all rows but canaries; of each column, shape (n,).
        canaries: levels of the rows that are in the table if a coin is 1; of each column, shape (m,).
        others: of the rows that are in the table if a coin is 0; None if then there is none.
    """
    views = [_View(item, sizes, known, canaries, others) for item in marginals]
    count = len(canaries[0])

    def normal(coins: Floats) -> Floats:
        total = coins / _VARIANCE
        for view in views:
            total = total + view.weight * view.back(view.forth(coins))
        return np.asarray(total, dtype=np.float64)

    right = np.zeros(count)
    for view in views:
        right += view.weight * view.back(view.rest)
    solved, _ = cg(LinearOperator((count, count), matvec=normal, dtype=np.float64), right, maxiter=_STEPS)
    return np.asarray(solved, dtype=np.float64)


class _View:
    """A marginal as sums of coins, each less ½, and noise."""

    def __init__(
        self,
        marginal: NoisyMarginal,
        sizes: Sequence[int],
        known: Sequence[Integers],
        canaries: Sequence[Integers],
        others: Sequence[Integers] | None,
    ) -> None:
        shape = [sizes[column] for column in marginal.columns]
        self._cells = int(np.prod(shape))

        def cells(levels: Sequence[Integers]) -> Integers:
            own = tuple(levels[column] for column in marginal.columns)
            return np.asarray(np.ravel_multi_index(own, shape), dtype=np.int64)

        self.weight = marginal.sigma**-2
        self._one, self._zero = cells(canaries), None if others is None else cells(others)
        half = 0.5 * np.bincount(self._one, minlength=self._cells)
        if self._zero is not None:
            half = half + 0.5 * np.bincount(self._zero, minlength=self._cells)
        self.rest = np.array(marginal.counts) - np.bincount(cells(known), minlength=self._cells) - half

    def forth(self, coins: Floats) -> Floats:
        """What coins add to each cell."""
        total = np.bincount(self._one, coins, self._cells)
        if self._zero is not None:
            total = total - np.bincount(self._zero, coins, self._cells)
        return np.asarray(total, dtype=np.float64)

    def back(self, cells: Floats) -> Floats:
        """The transpose of `forth`."""
        total = cells[self._one]
        return np.asarray(total if self._zero is None else total - cells[self._zero], dtype=np.float64)
