"""How the value of a parameter is searched. The command line reads this module at once, so it imports nothing slow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from dpassay.base.number_format import DIGITS

_MAX_TRIES = 4


@dataclass(frozen=True)
class ParameterSearch:
    """How the value of a parameter is searched.

    Attributes:
        parameter: the field.
        bracket: the smallest and the largest value that are tried.
        start: where the search begins.
        decreasing: whether a larger value means less privacy loss.
        integer: whether only whole numbers are tried.
    """

    parameter: str
    bracket: tuple[float, float]
    start: float
    decreasing: bool = False
    integer: bool = False

    def rounded(self, value: float, tolerance: float) -> Iterator[float]:
        """Values as they are printed and given to other commands: each of few digits and more private than the last.

        Args:
            value: meets a target. A whole number is the only one.
            tolerance: relative, of which rounding costs little.
        """
        if self.integer:
            yield value
            return
        least = math.ceil(-math.log10(tolerance)) + 3
        digits = Context(prec=max(least, DIGITS), rounding=ROUND_CEILING if self.decreasing else ROUND_FLOOR)
        exact = digits.plus(Decimal(repr(value)))
        for _ in range(_MAX_TRIES):
            yield float(exact)
            exact = digits.next_plus(exact) if self.decreasing else digits.next_minus(exact)
