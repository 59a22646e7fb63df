"""Scores of canaries of which fair coins chose, by the released votes of all rounds.

The adversary knows every other row and all canaries. So it knows for which candidate each canary would have voted in
each view of each round, and what released votes are without canaries. What is left of them is a sum of coins and of
noise of known deviation. It solves for all coins from all rounds at once (`attacks.coin_sums`). In one round, canaries
with one candidate hide each other; in other rounds and views they have different ones.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dpassay.attacks.coin_sums import CoinSums, best_linear_guess
from dpassay.base.arrays import Floats
from dpassay.data.tables import Table
from dpassay.mechanisms.table_evolution.candidates import positions
from dpassay.mechanisms.table_evolution.generator import ReleasedRound
from dpassay.mechanisms.table_evolution.votes import chosen_candidates

LINEAR = "best linear guess of coins from the released votes of all rounds"

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
    sums = []
    for released in rounds:
        asked = released.asked
        for view, votes, grid in zip(asked.views, released.votes, asked.grids(), strict=True):
            sides = [chosen_candidates(asked.candidates, view, item) for item in places]
            sums.append(CoinSums.of(votes, grid.deviation**2, *sides))
    noise = _noise_scale(sums)
    sums = [dataclasses.replace(item, variance=item.variance * noise**2) for item in sums]
    return best_linear_guess(sums, len(canaries.rows))


def _noise_scale(sums: Sequence[CoinSums]) -> float:
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
