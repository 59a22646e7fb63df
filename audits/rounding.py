"""Numbers in text that stay on the right side of what they stand for: upper bounds rounded up, lower bounds down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

DIGITS = 6


def above(value: float, digits: int = DIGITS) -> str:
    """The value in at most this many significant digits, not below it."""
    return _rounded(value, digits, ROUND_CEILING)


def below(value: float, digits: int = DIGITS) -> str:
    """The value in at most this many significant digits, not above it."""
    return _rounded(value, digits, ROUND_FLOOR)


def sure(confidence: float) -> str:
    """A confidence below 1 in four digits, or in as many as keep it from looking like certainty."""
    return next(text for digits in range(4, 18) if float(text := f"{confidence:.{digits}g}") < 1)


def _rounded(value: float, digits: int, direction: str) -> str:
    """A float is a decimal of finitely many digits, so it is rounded exactly; up to 15 digits survive a float."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimal = Context(prec=digits, rounding=direction).create_decimal(Decimal(value))
    return f"{float(decimal):.{digits}g}"
