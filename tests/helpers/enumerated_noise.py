"""Discrete Laplace noise in tests: its law, summed term by term, and a stand-in that draws what a test says."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from typing import Any

import numpy as np


@functools.cache
def pmf(scale: float, reach: int) -> dict[int, float]:
    """The law of a difference of two geometric variables, summed term by term; the tails are put on ±`reach`.

    Terms beyond 400 are left out; at scale 4 they weigh less than e^-100.
    """
    stop = math.exp(-1 / scale)
    geometric = [(1 - stop) * stop**k for k in range(400)]
    law: dict[int, float] = defaultdict(float)
    for first, item in enumerate(geometric):
        for second, other in enumerate(geometric):
            law[max(-reach, min(reach, first - second))] += item * other
    return dict(law)


class Enumerated:
    """In place of the noise: what `values` says, by the place of the count, and 0 for all others."""

    def __init__(self) -> None:
        self.values: dict[int, int] = {}
        self.scale, self._place = 0.0, 0

    def __call__(self, size: int, scale: float, rng: np.random.Generator) -> Any:
        results = [self.values.get(self._place + index, 0) for index in range(size)]
        self.scale, self._place = scale, self._place + size
        return np.array(results)

    def start(self, values: dict[int, int]) -> None:
        self.values, self._place = values, 0
