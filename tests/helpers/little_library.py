"""A little library of private means and counts, right and wrong, as other people's libraries are built."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

_RANDOM = random.SystemRandom()


def secure_normal(scale: float, size: int) -> Any:
    """Gaussian noise, without the value that it is for."""
    return np.random.default_rng().normal(0.0, scale, size)


class Laplace:
    """The Laplace mechanism."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def randomise(self, value: float) -> float:
        """The value with noise."""
        return value + self.scale * math.log((1 - _RANDOM.random()) / (1 - _RANDOM.random()))


class Geometric(Laplace):
    """The same for whole numbers."""

    def randomise(self, value: float) -> float:
        """The value with noise: a difference of two geometric variables."""
        p = -math.expm1(-1 / self.scale)
        first, second = (math.floor(math.log1p(-_RANDOM.random()) / math.log1p(-p)) for _ in range(2))
        return value + first - second


def mean(values: Any, epsilon: float, low: float = 0.0, high: float = 1.0) -> float:
    """A mean, for one record replaced."""
    clipped = np.clip(values, low, high)
    noisy = Laplace((high - low) / len(clipped) / epsilon).randomise(float(clipped.mean()))
    return min(high, max(low, noisy))


def mean_without_a_clip(values: Any, epsilon: float) -> float:
    """Noise as if values were in [0, 1]."""
    return Laplace(1 / len(values) / epsilon).randomise(float(np.mean(values)))


def half_noise(values: Any, epsilon: float) -> float:
    """A mean with half of the noise."""
    return Laplace(0.5 / len(values) / epsilon).randomise(float(np.clip(values, 0, 1).mean()))


def counts(values: Any, epsilon: float) -> list[float]:
    """Counts of 0, 1 and 2, one record more or less."""
    return [Geometric(1 / epsilon).randomise(int(np.sum(values == k))) for k in range(3)]


def counts_of_those_there(values: Any, epsilon: float) -> list[float]:
    """Only what occurs is counted."""
    return [Geometric(1 / epsilon).randomise(int(np.sum(values == k))) for k in np.unique(values)]


def rows_beside(values: Any, epsilon: float) -> tuple[float, int]:
    """A private sum, and the number of rows as it is."""
    return Laplace(1 / epsilon).randomise(float(np.sum(values))), len(values)


def sums(values: Any, scale: float) -> Any:
    """Sums of columns with Gaussian noise."""
    total = np.asarray(values, dtype=float).sum(axis=0)
    return total + secure_normal(scale, total.size)


def fails(values: Any) -> float:
    """Does not work."""
    raise KeyError("no column")
