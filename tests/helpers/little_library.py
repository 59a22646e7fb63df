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


def noise_of(scale: float, size: int) -> Any:
    """Gaussian noise, whose scale is given with each draw."""
    return np.random.default_rng().normal(0.0, scale, size)


def half_noise_of(scale: float, size: int) -> Any:
    """The same with half of the noise."""
    return noise_of(scale / 2, size)


class Table:
    """Rows of two whole numbers below 3."""

    def __init__(self, rows: Any) -> None:
        self.rows = np.asarray(rows, dtype=int).reshape(-1, 2)

    def counts(self, column: int) -> Any:
        """How often each number occurs in a column."""
        return np.bincount(self.rows[:, column], minlength=3).astype(float)


class Marginals:
    """Noisy counts of two columns, by an object that is made first and keeps them.

    Args:
        scale: of the noise of the first column; the second one has twice as much.
        of_rows: whether the scale is divided by the number of rows.
        half: whether half of the noise is drawn.
        needed: the noisy count of 0 in the first column from which on the second one is measured.
        chosen: whether the columns are chosen at random, as a private choice would.
    """

    def __init__(
        self,
        scale: float,
        of_rows: bool = False,
        half: bool = False,
        needed: float = -math.inf,
        chosen: bool = False,
    ) -> None:
        self.scale, self.of_rows, self.half, self.needed, self.chosen = scale, of_rows, half, needed, chosen
        self.measured: list[Any] = []

    def select(self, rows: Any) -> list[int]:
        """The columns to measure."""
        return [_RANDOM.randrange(2) for _ in range(2)] if self.chosen else [0, 1]

    def fit(self, rows: Any) -> None:
        """Measures the columns."""
        for number, column in enumerate(self.select(rows), 1):
            if number > 1 and self.measured[0][0] < self.needed:
                return
            exact = Table(rows).counts(column)
            scale = number * self.scale / (len(rows) if self.of_rows else 1)
            draw = half_noise_of if self.half else noise_of
            self.measured.append(exact + draw(scale, size=exact.size))


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
