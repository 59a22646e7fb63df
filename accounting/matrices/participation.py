"""In which steps one record may take part."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers


@dataclass(frozen=True, slots=True)
class Separated:
    """A record takes part in at most `participations` steps, any two of which are at least `separation` apart.

    ``Separated(1)`` is a single participation, and ``Separated(k)`` any k steps.

    Attributes:
        participations: at least 1; None for as many as there is room for.
        separation: at least 1; 1 allows neighbouring steps.
    """

    participations: int | None = None
    separation: int = 1

    def __post_init__(self) -> None:
        if self.participations is not None:
            validate.integer(minimum=1, participations=self.participations)
        validate.integer(minimum=1, separation=self.separation)

    def most(self, steps: int) -> int:
        """The largest number of participations within so many steps."""
        room = -(-steps // self.separation)
        return room if self.participations is None else min(room, self.participations)

    def are_few(self, steps: int, limit: int) -> bool:
        """Whether the sets of steps that are allowed are at most so many."""
        total = 0
        for size in range(1, self.most(steps) + 1):
            total += math.comb(self._free(steps, size), size)
            if total > limit:
                return False
        return True

    def patterns(self, steps: int) -> Iterator[Integers]:
        """All of these sets, an array of shape (sets, size) for each size."""
        for size in range(1, self.most(steps) + 1):
            chosen = np.array(list(itertools.combinations(range(self._free(steps, size)), size)), dtype=np.int64)
            yield chosen + (self.separation - 1) * np.arange(size)

    def _free(self, steps: int, size: int) -> int:
        """Sets of `size` steps correspond to any sets of so many, by closing the gaps."""
        return steps - (size - 1) * (self.separation - 1)

    def heaviest(self, weights: Floats) -> tuple[Floats, Integers]:
        """The largest sum of weights over an allowed set of steps, for each row, and such a set for the last row.

        Args:
            weights: at least 0, shape (rows, steps).
        """
        rows, steps = weights.shape
        gap, most = self.separation, self.most(steps)
        if gap == 1:  # the largest ones
            order = np.argpartition(-weights, most - 1, axis=1)[:, :most]
            return np.take_along_axis(weights, order, axis=1).sum(axis=1), np.sort(order[-1])
        best = np.zeros((rows, steps + gap))  # from each step on; Algorithm 3 of Choquette-Choo et al. (2023)
        kept = np.zeros((most + 1, steps + gap))
        for round_ in range(most):
            taken = weights + best[:, gap:]
            best[:, :steps] = np.maximum.accumulate(taken[:, ::-1], axis=1)[:, ::-1]
            kept[round_ + 1] = best[-1]
        pattern, step = [], 0
        for left in range(most, 0, -1):
            while step < steps and kept[left, step] == kept[left, step + 1] and kept[left, step] > 0:
                step += 1
            if step >= steps or kept[left, step] == 0:
                break
            pattern.append(step)
            step += gap
        return best[:, 0], np.array(pattern, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Cyclic:
    """A record takes part every `period` steps, as in epochs of so many batches in the same order.

    Attributes:
        period: at least 1.
    """

    period: int

    def __post_init__(self) -> None:
        validate.integer(minimum=1, period=self.period)


Participation = Separated | Cyclic
