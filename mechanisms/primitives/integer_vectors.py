"""Vectors in integer units, so that their sums are exact and one of them moves a sum by at most a known length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Integers


def integer_vectors(vectors: NDArray[np.floating], radius: int) -> Integers:
    """Rows of shape (N, d) in units of 1/`radius`, at most 2³⁰ so that squares of lengths are exact, each of length at
    most `radius`: longer ones are clipped to length 1, then rounded toward zero, and shortened if necessary.

    A row depends on its own vector only. Values that are not finite become 0.
    """
    rows = np.nan_to_num(np.asarray(vectors, dtype=np.float64), posinf=0.0, neginf=0.0)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    rows = np.where(np.isinf(lengths), 0.0, rows)  # a square that overflows is as good as infinite
    integers: Integers = np.trunc(rows / np.maximum(lengths, 1.0) * radius).astype(np.int64)
    long = np.square(integers).sum(axis=1) > radius**2  # because `lengths` is rounded; compared exactly in integers
    integers[long] = np.trunc(integers[long] * (1 - 2.0**-20)).astype(np.int64)
    assert (np.square(integers).sum(axis=1) <= radius**2).all()
    return integers
