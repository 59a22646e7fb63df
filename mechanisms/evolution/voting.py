"""Votes of records for candidates: each record votes for its nearest candidate.

A record casts one vote, which is a function of its own vector and the candidates (`nearest` is exact), so adding or
removing a record changes one count by 1.

Source: Xie et al., "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (2024), Algorithm 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Integers
from dpassay.mechanisms.primitives.nearest import nearest


def record_votes(vectors: NDArray[np.floating], candidates: NDArray[np.floating]) -> Integers:
    """The number of vectors of private records, shape (n, d), of length at most 1, that are nearest to each candidate,
    shape (M,). Not differentially private.

    Each vector, which may be memory-mapped, has exactly one vote.
    """
    return np.bincount(nearest_candidates(vectors, candidates), minlength=len(candidates)).astype(np.int64)


def nearest_candidates(vectors: NDArray[np.floating], candidates: NDArray[np.floating]) -> Integers:
    """The index of the candidate that is nearest to each vector, shape (n,).

    Raises:
        ValueError: if there are no candidates, or they have another number of columns.
    """
    if vectors.ndim != 2 or candidates.ndim != 2 or vectors.shape[1] != candidates.shape[1]:
        raise ValueError("vectors and candidates must be two tables of equally many columns")
    if not len(candidates):
        raise ValueError("there is no candidate to vote for")
    return nearest(vectors, candidates)
