"""Small mechanisms, right and wrong, that worker processes can import. Data are lists of whole numbers."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from typing import Any

import numpy as np

from dpassay.testing.assertions import SeededSource


def count(data: list[int], source: SeededSource) -> int:
    """1-DP for one record more or less."""
    return len(data) + int(source.discrete_laplace(1, 1.0)[0])


def loud_count(data: list[int], source: SeededSource) -> int:
    """Half the noise: 2-DP."""
    return len(data) + int(source.discrete_laplace(1, 0.5)[0])


def scaled_count(data: list[int], source: SeededSource, *, scale: float) -> int:
    """1/scale-DP for one record more or less."""
    return len(data) + int(source.discrete_laplace(1, scale)[0])


class ScaledCount:
    """The same, as an object."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, data: list[int], source: SeededSource) -> int:
        return scaled_count(data, source, scale=self._scale)


def coin(data: list[int], source: SeededSource) -> bool:
    """Whether there are more than 2 records, told truly with probability 3/4, by the operating system: ln 3."""
    return (len(data) > 2) == (secrets.randbelow(4) < 3)


def numpy_sum(data: list[int], *, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """A Gaussian sum of two columns, for one record of length 1: 1-GDP."""
    return np.array([sum(data), 0.0]) + rng.normal(size=2)


def fixed_seed(data: list[int], source: SeededSource) -> float:
    """Noise that everybody can draw again."""
    return sum(data) + float(np.random.default_rng(7).laplace())


def only_those_there(data: list[int], source: SeededSource) -> dict[int, int]:
    """Noisy counts of the values that occur, and of no others."""
    return {value: n + int(source.discrete_laplace(1, 1.0)[0]) for value, n in Counter(data).items()}


def object_of(data: list[int], source: SeededSource) -> Any:
    """An output that is no JSON value."""
    return np.datetime64("2020-01-01") if len(data) > 2 else object()


def fails(data: list[int], source: SeededSource) -> Any:
    """A mechanism with a fault of its own."""
    raise KeyError("no column")


def stop_at(limit: int, path: str, data: list[int], source: SeededSource) -> int:
    """As `count`, and counts its runs in a file; interrupts at one of them, once."""
    with open(path, "a+") as file:
        file.write("x")
        file.flush()
        if os.path.getsize(path) == limit:
            raise KeyboardInterrupt
    return count(data, source)
