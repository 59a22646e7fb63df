"""Validators of counts, whose messages name the argument; they accept Python and NumPy integers."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base.arrays import Integers


def count(minimum: int = 0, **named: object) -> int:
    """One whole number of at least `minimum`, given as exactly one keyword argument.

    Raises:
        ValueError: one line with the name, the given value and what is allowed.
    """
    ((name, value),) = named.items()
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {value}")
    return int(value)


def counts(**named: ArrayLike) -> tuple[Integers, ...]:
    """Arrays of whole numbers of at least 0, broadcast together, in the order of the arguments.

    Raises:
        ValueError: one line with the name and the first invalid value, or with shapes that do not broadcast.
    """
    arrays = []
    for name, given in named.items():
        values = np.asarray(given)
        if not np.issubdtype(values.dtype, np.integer):
            what = repr(given) if values.ndim == 0 else f"an array of {values.dtype}"
            raise ValueError(f"{name} must be whole numbers of at least 0, not {what}")
        if np.any(values < 0):
            raise ValueError(f"{name} must be whole numbers of at least 0, not {values[values < 0].flat[0]}")
        arrays.append(values.astype(np.int64))
    try:
        return tuple(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(named, arrays, strict=True))
        raise ValueError(f"counts must have shapes that broadcast together, not {shapes}") from None


def ordered(**named: Integers) -> None:
    """Raises a `ValueError` unless the counts are in this order, for example correct ≤ guesses ≤ m."""
    for (item, small), (other, large) in itertools.pairwise(named.items()):
        if np.any(small > large):
            index = np.flatnonzero(small > large)[0]
            raise ValueError(
                f"counts must satisfy 0 ≤ {' ≤ '.join(named)}, "
                f"not {item} = {small.flat[index]} and {other} = {large.flat[index]}"
            )
