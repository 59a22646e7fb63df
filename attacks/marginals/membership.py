"""Scores of canaries of which fair coins chose, by the noisy marginals of a table that holds the chosen ones.

The adversary knows every other row and all canaries. So it knows each released count up to noise of known scale and the
canaries in its cell, and solves for all coins at once (`attacks.coin_sums`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpassay.attacks.coin_sums import CoinSums, best_linear_guess
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.marginals.tables import NoisyMarginal

LEAST_SQUARES = "least squares of the released marginals, given all other rows"


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
    sums = []
    for marginal in marginals:
        shape = [sizes[column] for column in marginal.columns]
        sides = [
            np.ravel_multi_index(tuple(side[column] for column in marginal.columns), shape)
            for side in (known, canaries, others)
            if side is not None
        ]
        sums.append(CoinSums.of(np.array(marginal.counts, dtype=np.float64), marginal.sigma**2, *sides))
    return best_linear_guess(sums, len(canaries[0]))
