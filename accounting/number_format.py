"""Numbers in text, everywhere in one form: upper bounds rounded up, lower bounds rounded down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import Literal

Rounding = Literal["nearest", "up", "down"]

DIGITS = 6
"""Significant digits of a number in a sentence, a table or a figure, so that it looks alike in all of them."""

_ROUNDING = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | str | None, rounding: Rounding = "nearest", digits: int = DIGITS) -> str:
    """A number for a reader, in at most `digits` significant digits; an infinity as ∞, None as a dash.

    What is rounded is the shortest decimal that reads back as the float, so that 0.1 stays 0.1.
    """
    if value is None:
        return "–"
    value = float(value)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    exact = Decimal(repr(value))
    if Decimal("0.001") <= abs(exact) < 10**7:
        places = max(digits - 1 - exact.adjusted(), 0)
        return _plain_decimal(exact.quantize(Decimal(1).scaleb(-places), rounding=_ROUNDING[rounding]))
    power = exact.adjusted()
    scaled = exact.scaleb(-power).quantize(Decimal(1).scaleb(1 - digits), rounding=_ROUNDING[rounding])
    if abs(scaled) >= 10:
        scaled, power = scaled.scaleb(-1), power + 1
    return f"{_plain_decimal(scaled)} × {power_of_ten(power)}"


def format_upper(value: float | str | None, digits: int = DIGITS) -> str:
    """An upper bound, rounded up: what is printed is still one."""
    return format_number(value, "up", digits)


def format_lower(value: float | str | None, digits: int = DIGITS) -> str:
    """A lower bound, rounded down: what is printed is still one."""
    return format_number(value, "down", digits)


def format_confidence(confidence: float) -> str:
    """A confidence below 1 in four digits, or in as many as keep it from looking like certainty."""
    return next(text for digits in range(4, 18) if float(text := f"{confidence:.{digits}g}") < 1)


def format_p_value(value: float) -> str:
    """A p-value, rounded up; one that underflowed is not 0."""
    return f"< {power_of_ten(-300)}" if value < 1e-300 else format_upper(value, 3)


def power_of_ten(power: int) -> str:
    """``10⁻⁵``."""
    return f"10{str(power).translate(_SUPERSCRIPTS)}"


def _plain_decimal(value: Decimal) -> str:
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")
