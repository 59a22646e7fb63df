"""Mean differences of hidden states with Gaussian noise: the one release of dataset vectors.

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
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.arrays import Floats, Integers
from cupel.mechanisms.primitives.whole_vectors import whole_vectors

RADIUS = 2**20
"""The largest length of a record's difference in a block, in integer units."""


def moved_by(adjacency: Adjacency) -> int:
    """k: the largest change of a block's sum between neighbours, in units of the clip."""
    return 2 if adjacency is Adjacency.REPLACE_ONE else 1


def clipped(differences: ArrayLike, clips: Sequence[float]) -> Integers:
    """A record's differences in integer units, clipped in each block.

    Args:
        differences: shape (blocks, d); what is not finite counts as 0.
        clips: C of each block, above 0.

    Returns:
        Shape (blocks, d), each row of length at most `RADIUS`.
    """
    rows = np.asarray(differences, dtype=np.float64)
    return whole_vectors(rows / np.asarray(clips, dtype=np.float64)[:, None], RADIUS)


def noise_scale(noise_multiplier: float, blocks: int, adjacency: Adjacency, *, as_published: bool = False) -> float:
    """σ of the noise in units: the least float64 with L·(k·2²⁰)²/σ² ≤ 1/noise_multiplier², compared exactly.

    Args:
        noise_multiplier: at least 0.
        blocks: L.
        adjacency: add_remove or replace_one.
        as_published: whether k = 1 under replace_one, too, which is half of what is needed.
    """
    validate.non_negative(noise_multiplier=noise_multiplier)
    validate.integer(minimum=1, blocks=blocks)
    steps = 1 if as_published else moved_by(adjacency)
    squared = Fraction(noise_multiplier) ** 2 * blocks * (steps * RADIUS) ** 2
    scale = math.sqrt(blocks) * noise_multiplier * steps * RADIUS * (1 - 2.0**-50)
    while Fraction(scale) ** 2 < squared:
        scale = math.nextafter(scale, math.inf)
    return scale


def means(sums: ArrayLike, clips: Sequence[float], records: int) -> Floats:
    """Released sums as means of differences, shape (blocks, d).

    Args:
        sums: shape (blocks, d), in units.
        clips: C of each block.
        records: the public divisor.
    """
    validate.integer(minimum=1, records=records)
    return np.asarray(sums, dtype=np.float64) * (np.asarray(clips, dtype=np.float64)[:, None] / RADIUS / records)


def directions(vectors: ArrayLike) -> Floats:
    """Released means scaled to length 1 in each block, shape (blocks, d); a row of zeros stays."""
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0), dtype=np.float64)
