"""What dataset vectors release: mean differences of hidden states, and votes for candidates, with Gaussian noise.

A record's difference in a block is clipped to length C and rounded toward zero to a grid of C/2²⁰. Sums over records
are then exact integers, whatever their order. Adding or removing a record moves the sum of a block by at most 2²⁰
units, replacing one by twice that; the divisor is public. All blocks are one vector, so with noise of standard
deviation ``noise_multiplier · √L · k · 2²⁰`` units on every coordinate (L blocks; k = 1 under add_remove, 2 under
replace_one) the release is Gaussian with μ = 1/noise_multiplier, jointly and exactly.

Proof: docs/proofs/dataset-vectors.md, Theorem 1.

Source: "EPSVec", Algorithm 1, whose public code takes k = 1 under replace_one (`noise_scale` with ``as_published``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.gaussian import sum_sensitivity
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.evolution.voting import record_votes
from dpassay.mechanisms.primitives.integer_vectors import integer_vectors
from dpassay.mechanisms.primitives.randomness import Source

RADIUS = 2**20
"""The largest length of a record's difference in a block, in integer units."""


def clipped(differences: ArrayLike, clips: Sequence[float]) -> Integers:
    """A record's differences, shape (blocks, d), in integer units, each row clipped to C > 0 of its block, so of length
    at most `RADIUS`; what is not finite counts as 0."""
    rows = np.asarray(differences, dtype=np.float64)
    with np.errstate(over="ignore"):  # a quotient beyond the floats is not finite, either
        return integer_vectors(rows / np.asarray(clips, dtype=np.float64)[:, None], RADIUS)


def noise_scale(noise_multiplier: float, blocks: int, adjacency: Adjacency, *, as_published: bool = False) -> float:
    """σ of the noise in units: the least float64 with L·(k·2²⁰)²/σ² ≤ 1/noise_multiplier², compared exactly. As
    published, k = 1 under replace_one, too, which is half of what is needed."""
    validate.non_negative(noise_multiplier=noise_multiplier)
    validate.integer(minimum=1, blocks=blocks)
    steps = 1 if as_published else sum_sensitivity(adjacency)
    squared = Fraction(noise_multiplier) ** 2 * blocks * (steps * RADIUS) ** 2
    scale = math.sqrt(blocks) * noise_multiplier * steps * RADIUS * (1 - 2.0**-50)
    while Fraction(scale) ** 2 < squared:
        scale = math.nextafter(scale, math.inf)
    return scale


def noisy_sum(
    differences: Iterable[ArrayLike], clips: Sequence[float], width: int, scale: float, source: Source
) -> Floats:
    """The sum of records' differences, each of shape (blocks, d = `width`) and clipped to C of each block, with noise
    of `noise_scale`, shape (blocks, d), in units; at scale 0 the exact sum, which must not be released."""
    total = np.zeros((len(clips), width), dtype=np.int64)
    for difference in differences:
        total += clipped(difference, clips)
    return with_noise(total, scale, source)


def noisy_votes(
    vectors: Iterable[NDArray[np.floating]], candidates: NDArray[np.floating], scale: float, source: Source
) -> Floats:
    """The votes of records, in pieces of shape (n, d), for their nearest candidates, shape (M, d), with noise of
    standard deviation `scale`, shape (M,); at 0 the exact votes, which must not be released."""
    counts = np.zeros(len(candidates), dtype=np.int64)
    for piece in vectors:
        counts += record_votes(piece, candidates)
    return with_noise(counts, scale, source)


def with_noise(exact: Integers, scale: float, source: Source) -> Floats:
    values = exact.astype(np.float64)
    return source.add_gaussian(values.ravel(), scale).reshape(values.shape) if scale else values


def drawn_sample(records: int, sample: int, source: Source) -> Integers:
    """The indices of a uniform sample of m ≤ n without replacement, in order: the first of a permutation (Fisher and
    Yates). The draw must stay secret for the sample to amplify."""
    order = np.arange(records)
    for index in range(sample):
        other = index + source.below(records - index)
        order[[index, other]] = order[[other, index]]
    return np.sort(order[:sample])


def means(sums: ArrayLike, clips: Sequence[float], records: int) -> Floats:
    """Released sums, in units, as means of differences over the public divisor `records`; both of shape (blocks, d)."""
    validate.integer(minimum=1, records=records)
    return np.asarray(sums, dtype=np.float64) * (np.asarray(clips, dtype=np.float64)[:, None] / RADIUS / records)


def directions(vectors: ArrayLike) -> Floats:
    """Released means scaled to length 1 in each block, shape (blocks, d); a row of zeros stays."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0), dtype=np.float64)
