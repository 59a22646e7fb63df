"""Votes of records for candidates: each record votes for its nearest candidate.

A record casts one vote, which is a function of its own vector and the candidates (`nearest` is exact), so adding or
removing a record changes one count by 1.

Source: Xie et al., "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (2024), Algorithm 1.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import NDArray

from dpassay.accounting.adjacency import Adjacency
from dpassay.base.arrays import Integers
from dpassay.mechanisms.embedding.stored_vectors import StoredVectors
from dpassay.mechanisms.primitives.nearest import nearest


def record_votes(vectors: NDArray[np.floating] | StoredVectors, candidates: NDArray[np.floating]) -> Integers:
    """The number of vectors of private records, shape (n, d), of length at most 1, that are nearest to each candidate,
    shape (M,). Not differentially private.

    Each vector has exactly one vote.
    """
    return np.bincount(nearest_candidates(vectors, candidates), minlength=len(candidates)).astype(np.int64)


def nearest_candidates(vectors: NDArray[np.floating] | StoredVectors, candidates: NDArray[np.floating]) -> Integers:
    """The index of the candidate that is nearest to each vector, shape (n,).

    Raises:
        ValueError: if there are no candidates, or they have another number of columns.
    """
    if vectors.ndim != 2 or candidates.ndim != 2 or vectors.shape[1] != candidates.shape[1]:
        raise ValueError("vectors and candidates must be two tables of equally many columns")
    if not len(candidates):
        raise ValueError("there is no candidate to vote for")
    return nearest(vectors, candidates)


def votes_event(noise_multiplier: float, adjacency: Adjacency) -> DpEvent:
    """The event of votes with Gaussian noise of a standard deviation of `noise_multiplier` times one unit's votes.

    Accountants assume a contribution of norm 1 for each unit and double it under replace_one. The votes of replaced
    units differ by √2, not 2, so the noise multiplier is then √2 times as large, rounded down.

    Args:
        noise_multiplier: at least 0, which is no protection.
        adjacency: add_remove or replace_one.
    """
    if noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    if adjacency is Adjacency.ADD_REMOVE:
        return dp_event.GaussianDpEvent(noise_multiplier)
    return dp_event.GaussianDpEvent(_root_two_times(noise_multiplier))


def _root_two_times(sigma: float) -> float:
    """√2·σ, rounded down: its square is at most 2σ²."""
    product = math.nextafter(math.sqrt(2.0) * sigma, math.inf)
    while Fraction(product) ** 2 > 2 * Fraction(sigma) ** 2:
        product = math.nextafter(product, 0.0)
    return product
