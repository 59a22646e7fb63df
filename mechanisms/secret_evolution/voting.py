"""Votes of noisy clusters for candidates, weighted by their sizes: a function of what was released.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 3.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.evolution.voting import nearest_candidates
from dpassay.mechanisms.secret_evolution.clustering import NoisyClusters


def centre_votes(noisy: NoisyClusters, candidates: NDArray[np.floating]) -> Floats:
    """The total released size of the clusters whose noisy centre is nearest to each candidate, shape (M,); sizes below
    0 count as 0."""
    result = nearest_candidates(noisy.centres, candidates)
    weights = np.maximum(noisy.sizes, 0.0)
    return np.bincount(result, weights, minlength=len(candidates)).astype(np.float64)


def kept_by_centres(noisy: NoisyClusters, candidates: NDArray[np.floating], count: int) -> Integers:
    """The distinct candidates, shape (count,), that the released clusters select, best first; negative sizes count as
    0.

    Candidates with votes come first, most votes first, as in Algorithm 3. There are at most as many as clusters, and
    the paper does not say how to fill up the selection. Here every centre keeps further candidates, the nearest first,
    so that centres keep candidates in proportion to their sizes (Webster's method: the next candidate is kept for the
    centre with the largest ñ_k/(2m + 1), with m the number it already has). Taking the globally nearest candidates
    instead would favour the densest clusters.

    Raises:
        ValueError: if there are fewer candidates.
    """
    if validate.integer(minimum=1, count=count) > len(candidates):
        raise ValueError(f"count must be at most the number of candidates, {len(candidates)}, not {count}")
    votes = centre_votes(noisy, candidates)
    order = np.argsort(-votes, kind="stable")
    kept: list[int] = order[: min(count, int((votes > 0).sum()))].tolist()
    if len(kept) < count:
        kept += _filled(noisy, np.asarray(candidates, dtype=np.float64), kept, count - len(kept))
    return np.array(kept, dtype=np.int64)


def _filled(noisy: NoisyClusters, candidates: Floats, kept: list[int], count: int) -> list[int]:
    """Further candidates for the centres, one at a time; each centre has one already."""
    taken = np.zeros(len(candidates), dtype=np.bool_)
    filled: list[int] = []
    taken[kept] = True
    squares = np.square(candidates).sum(axis=1)
    near: dict[int, Iterator[int]] = {}
    sizes = np.maximum(noisy.sizes, 0.0).tolist() if (noisy.sizes > 0).any() else [1.0] * len(noisy.sizes)
    queue = [(-size / 3, centre, 1) for centre, size in enumerate(sizes)]
    heapq.heapify(queue)
    while len(filled) < count:
        _, centre, has = heapq.heappop(queue)
        if centre not in near:
            near[centre] = iter(np.argsort(squares - 2 * (candidates @ noisy.centres[centre]), kind="stable").tolist())
        result = next(index for index in near[centre] if not taken[index])
        taken[result] = True
        filled.append(result)
        heapq.heappush(queue, (-sizes[centre] / (2 * has + 3), centre, has + 1))
    return filled
