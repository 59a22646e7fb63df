"""The many-runs game by bets on estimated likelihood ratios (`dpassay.audits.statistics.score_bets`).

The first runs are for training: δ is chosen on them, and likelihood ratios are estimated. All other runs are bet on, in
blocks; before each block the ratios are estimated anew from all runs before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import Guarantee
from dpassay.attacks.black_box.distinguishing import Outputs
from dpassay.attacks.black_box.likelihood_ratios import LikelihoodRatio, fitted_likelihood_ratios
from dpassay.audits.games.distinguishing_choice import bets_training_runs, epsilon_limits
from dpassay.audits.statistics.score_bets import Counted, ScoreWealth, grid, log_gains

_GROWTH = 1.4  # of the runs before a block, from block to block


@dataclass(frozen=True, slots=True)
class BetResult:
    """What the bets showed.

    Attributes:
        bound: the lower bound on ε.
        limit: the ε that the claim allows at the bound's δ.
        trained: number of runs on each side that were not bet on.
        score: the name of the estimate that gained most against the claim.
        on_d, on_d_prime: the number of runs on either side, among those that were bet on, whose output seemed likelier
            on D′.
        tried: number of estimates that were bet on in parallel.
    """

    bound: Bound
    limit: float
    trained: int
    score: str
    on_d: int
    on_d_prime: int
    tried: int


def bet(
    on_d: Outputs,
    on_d_prime: Outputs,
    guarantee: Guarantee,
    *,
    confidence: float,
    adjacency: Adjacency,
    unit: Unit,
    score: Callable[[Any], float] | None,
    training: float | None = None,
) -> BetResult:
    """Bets on outputs, as many of each data set, in the form of `plain`; errors as for `distinguishing_audit`."""
    runs = len(on_d)
    first = bets_training_runs(runs, training)
    delta, limit = _chosen_limit(on_d[:first], on_d_prime[:first], guarantee, score)
    wealth = ScoreWealth(grid(delta=delta, confidence=confidence, runs=runs - first, claimed=limit), delta)
    told: dict[str, tuple[int, int]] = {}
    for start, end in _blocks(first, runs):
        bets = {}
        for item in fitted_likelihood_ratios(on_d[:start], on_d_prime[:start], score):
            seen, new = (_counted(item, on_d[part], on_d_prime[part]) for part in (slice(start), slice(start, end)))
            bets[item.name] = (seen, new)
            above = new.ratios > 0
            hits = told.get(item.name, (0, 0))
            told[item.name] = (hits[0] + int(new.on_d[above].sum()), hits[1] + int(new.on_d_prime[above].sum()))
        wealth.update(bets)
    best = wealth.leading(limit)
    bound = wealth.bound(confidence, runs - first, adjacency, unit)
    return BetResult(bound, limit, first, best, *told[best], len(told))


def _blocks(first: int, runs: int) -> Iterator[tuple[int, int]]:
    while first < runs:
        end = min(runs, math.ceil(first * _GROWTH))
        yield first, end
        first = end


def _counted(item: LikelihoodRatio, on_d: Outputs, on_d_prime: Outputs) -> Counted:
    return Counted.of(item.of(on_d), item.of(on_d_prime), item.least, item.most)


def _chosen_limit(
    on_d: Outputs, on_d_prime: Outputs, guarantee: Guarantee, score: Callable[[Any], float] | None
) -> tuple[float, float]:
    """The δ, and the ε that the claim allows at it, against which bets on the second half of the training runs would
    have gained most, had they been made on estimates from the first half."""
    limits = epsilon_limits(guarantee)
    if len(limits) == 1 or len(on_d) < 8:
        return limits[0]
    half = len(on_d) // 2
    gains = np.full(len(limits), -np.inf)
    for item in fitted_likelihood_ratios(on_d[:half], on_d_prime[:half], score):
        seen, new = (_counted(item, on_d[part], on_d_prime[part]) for part in (slice(half), slice(half, None)))
        for index, (delta, limit) in enumerate(limits):
            gained = log_gains(seen, new, np.array([limit]), delta)
            gains[index] = max(gains[index], float(gained[0]))
    return limits[int(gains.argmax())]
