"""Numbers that describe the order of the rows of an output, for generators that keep the order of their input, or sort
by counts that have no noise."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from dpassay.base.arrays import Floats

CHANGES: Final = "share of cells that differ from those of the row before"
DESCENTS: Final = "share of numbers that are smaller than those of the row before"
FIRST: Final = "cells of the first row equal to the target's"
LAST: Final = "cells of the last row equal to the target's"
PLACE: Final = "share of rows before the first that is most like the target"

ORDERED: Final = frozenset([CHANGES, DESCENTS, FIRST, LAST, PLACE])
"""The features that depend on the order of rows."""


class SuccessiveRows:
    """Compares each row of an output with the one before, over the pieces of the output."""

    def __init__(self) -> None:
        self._before: dict[str, Hashable] = {}
        self._differ, self._compared, self._smaller, self._numbers = 0, 0, 0, 0

    def add(self, name: str, values: Sequence[Hashable], numbers: Floats) -> None:
        """Adds the cells of one column in the next piece: what each means, and numbers, NaN where there is none; no
        numbers at all if the column has words."""
        if not values:
            return
        known = [self._before[name], *values] if name in self._before else list(values)
        self._before[name] = known[-1]
        self._differ += sum(first != second for first, second in pairwise(known))
        self._compared += len(known) - 1
        if numbers.size:
            first = [value for value in known[:1] if len(known) > len(values)]
            joined = np.array([*(value if isinstance(value, float) else np.nan for value in first), *numbers])
            self._smaller += int((joined[1:] < joined[:-1]).sum())
            self._numbers += int((~np.isnan(joined[1:]) & ~np.isnan(joined[:-1])).sum())

    def features(self) -> dict[str, float]:
        """How often neighbouring rows differ, and numbers descend; nothing if there is no second row."""
        results = {CHANGES: self._differ / self._compared} if self._compared else {}
        return {**results, DESCENTS: self._smaller / self._numbers} if self._numbers else results


class TargetPlace:
    """Where the target shows among the rows of an output, over its pieces."""

    def __init__(self) -> None:
        self._rows, self._most, self._place = 0, -1, 0
        self._first, self._last = 0, 0

    def add(self, equal: Sequence[int]) -> None:
        """Adds the rows of the next piece: how many cells of each are those of the target."""
        if not self._rows:
            self._first = equal[0]
        most = max(equal)
        if most > self._most:
            self._most, self._place = most, self._rows + equal.index(most)
        self._rows += len(equal)
        self._last = equal[-1]

    def features(self) -> dict[str, float]:
        """Where it shows; nothing if there are no rows."""
        if not self._rows:
            return {}
        return {FIRST: float(self._first), LAST: float(self._last), PLACE: self._place / self._rows}
