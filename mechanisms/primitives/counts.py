"""Noisy counts by the discrete Laplace mechanism, with the event that they charge.

The mechanism is pure DP, because an ex-post ε composes with pure ε only.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting import dp_event
from numpy.typing import ArrayLike

from dpassay.accounting.adjacency import Adjacency
from dpassay.base import validate
from dpassay.base.arrays import Integers
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source


def count_sensitivity(adjacency: Adjacency) -> int:
    """The L1 sensitivity of counts of units in disjoint cells: 1 under add_remove, 2 under replace_one.

    Raises:
        ValueError: if the adjacency is another one.
    """
    validate.one_of((Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE), adjacency=adjacency)
    return 1 if adjacency is Adjacency.ADD_REMOVE else 2


def count_scale(epsilon: float, adjacency: Adjacency) -> float:
    """The noise scale b of P(k) ∝ exp(−|k|/b) for counts at ε, one float64 step above sensitivity/ε."""
    return math.nextafter(count_sensitivity(adjacency) / validate.positive(epsilon=epsilon), math.inf)


def count_event(epsilon: float, adjacency: Adjacency) -> dp_event.DiscreteLaplaceDpEvent:
    """The event of `noisy_counts`: its noise parameter is at least 1/scale, so the charge covers rounding.

    The event's sensitivity is the norm of one unit's contribution, which is 1. Accountants double it under replace_one,
    where one unit's contribution is removed and another's added.
    """
    rate = validate.positive(epsilon=epsilon) / count_sensitivity(adjacency)
    return dp_event.DiscreteLaplaceDpEvent(rate, 1)


def noisy_counts(counts: ArrayLike, *, epsilon: float, adjacency: Adjacency, source: Source = OS_ENTROPY) -> Integers:
    """Counts of disjoint cells with discrete Laplace noise; ε-DP for all cells together.

    Args:
        counts: shape (cells,), whole numbers.
        epsilon: ε > 0, for the whole vector.
        adjacency: add_remove or replace_one.
        source: of the noise.

    Returns:
        Shape (cells,); may be negative.
    """
    exact = np.asarray(counts, dtype=np.int64)
    return exact + source.discrete_laplace(exact.size, count_scale(epsilon, adjacency))


def log_probability(released: ArrayLike, counts: ArrayLike, *, epsilon: float, adjacency: Adjacency) -> float:
    """log P of released noisy counts given exact counts: log tanh(a/2) − a|k − n| per cell, a = 1/scale."""
    rate = 1 / count_scale(epsilon, adjacency)
    distance = np.abs(np.asarray(released, dtype=np.int64) - np.asarray(counts, dtype=np.int64))
    return float(distance.size * math.log(math.tanh(rate / 2)) - rate * float(distance.sum()))
