"""Votes for candidates: of records, each for its nearest candidate, or of noisy clusters with their sizes.

A record casts one vote, which is a function of its own vector and of the candidates (`nearest` is exact), so one record
more or less moves one number by 1. The votes of noisy clusters are a function of what was released.

Sources: Xie et al., "Differentially Private Synthetic Data via Foundation Model APIs 2: Text" (2024), Algorithm 1, for
votes of records; "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 3, for
those of clusters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.mechanisms.nearest import BLOCK_BYTES, nearest
from cupel.mechanisms.secret_clustering import NoisyClusters


def nearest_candidates(
    vectors: NDArray[np.floating], candidates: NDArray[np.floating]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The nearest candidate of each vector, the first of several, and the squared distance to it.

    Args:
        vectors: shape (n, d), finite; for private ones the distances are private too.
        candidates: shape (M, d), finite, at least one.

    Returns:
        Indices and squared distances, both of shape (n,). About `BLOCK_BYTES` more are held meanwhile.
    """
    found = _nearest(vectors, candidates)
    distances = np.empty(len(vectors))
    size = max(1, BLOCK_BYTES // (16 * candidates.shape[1]))
    for start in range(0, len(vectors), size):
        part = slice(start, start + size)
        apart = np.asarray(vectors[part], dtype=np.float64) - candidates[found[part]]
        distances[part] = np.square(apart, out=apart).sum(axis=1)
    return found, distances


def record_votes(vectors: NDArray[np.floating], candidates: NDArray[np.floating]) -> NDArray[np.int64]:
    """How many vectors are nearest to each candidate; shape (M,), private. Each vector has exactly one vote.

    Args:
        vectors: shape (n, d), of private records, of length at most 1; may be an array in a file.
        candidates: shape (M, d).
    """
    return np.bincount(_nearest(vectors, candidates), minlength=len(candidates)).astype(np.int64)


def centre_votes(noisy: NoisyClusters, candidates: NDArray[np.floating]) -> NDArray[np.float64]:
    """The sizes of the clusters whose noisy centres are nearest to each candidate; shape (M,). A negative size is 0.

    Args:
        noisy: released clusters.
        candidates: shape (M, d).
    """
    found = _nearest(noisy.centres, candidates)
    weights = np.maximum(noisy.sizes, 0.0)
    return np.bincount(found, weights, minlength=len(candidates)).astype(np.float64)


def select(votes: ArrayLike, distances: ArrayLike, count: int) -> NDArray[np.int64]:
    """The candidates with the most votes; those without a positive vote come last, the least distant first.

    Equal votes are ordered by distance too, and equal distances by index. Votes and distances must be released or
    public: what is selected is published.

    Args:
        votes: shape (M,), finite.
        distances: shape (M,), finite; smaller is better.
        count: how many are kept.

    Returns:
        Shape (count,), best first.

    Raises:
        ValueError: for more than there are, or numbers that are not finite.
    """
    held, far = np.asarray(votes, dtype=np.float64), np.asarray(distances, dtype=np.float64)
    if held.ndim != 1 or held.shape != far.shape or not (np.isfinite(held).all() and np.isfinite(far).all()):
        raise ValueError("votes and distances must be two equally long lists of finite numbers")
    if validate.integer(minimum=1, count=count) > len(held):
        raise ValueError(f"count must be at most the number of candidates, {len(held)}, not {count}")
    return np.lexsort((far, -np.maximum(held, 0.0)))[:count].astype(np.int64)


def _nearest(vectors: NDArray[np.floating], candidates: NDArray[np.floating]) -> NDArray[np.int64]:
    if vectors.ndim != 2 or candidates.ndim != 2 or vectors.shape[1] != candidates.shape[1]:
        raise ValueError("vectors and candidates must be two tables of equally many columns")
    if not len(candidates):
        raise ValueError("there is no candidate to vote for")
    return nearest(vectors, candidates)
