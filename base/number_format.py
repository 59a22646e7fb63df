"""Numbers as text, in the same form everywhere: upper bounds rounded up, lower bounds rounded down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import Literal

Rounding = Literal["nearest", "up", "down"]

DIGITS = 6
"""Significant digits of a number, the same in sentences, tables and figures."""

_ROUNDING = {"nearest": ROUND_HALF_EVEN, "up": ROUND_CEILING, "down": ROUND_FLOOR}
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def format_number(value: float | str | None, rounding: Rounding = "nearest", digits: int = DIGITS) -> str:
    """A number for a reader, in at most `digits` significant digits; an infinity is ∞ and None is a dash.

    The shortest decimal that reads back as the float is rounded, so that 0.1 stays 0.1.
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
        indices = max(digits - 1 - exact.adjusted(), 0)
        return _plain_decimal(exact.quantize(Decimal(1).scaleb(-indices), rounding=_ROUNDING[rounding]))
    power = exact.adjusted()
    scaled = exact.scaleb(-power).quantize(Decimal(1).scaleb(1 - digits), rounding=_ROUNDING[rounding])
    if abs(scaled) >= 10:
        scaled, power = scaled.scaleb(-1), power + 1
    return f"{_plain_decimal(scaled)} × {power_of_ten(power)}"


def format_upper(value: float | str | None, digits: int = DIGITS) -> str:
    """An upper bound, rounded up, so that the printed number is an upper bound too."""
    return format_number(value, "up", digits)


def format_lower(value: float | str | None, digits: int = DIGITS) -> str:
    """A lower bound, rounded down, so that the printed number is a lower bound too."""
    return format_number(value, "down", digits)


def format_interval(low: float | str, high: float | str) -> str:
    """An interval, rounded outward: ``[1.28098, 1.28155]``."""
    return f"[{format_lower(low)}, {format_upper(high)}]"


def format_ceiling(ceiling: float | str | None, value: float | str | None) -> str:
    """The largest value that a test could have shown, rounded up; if it equals `value`, it is printed like `value`."""
    return format_lower(ceiling) if ceiling == value else format_upper(ceiling)


def format_confidence(confidence: float) -> str:
    """A confidence below 1, rounded down, in four digits, or in as many as keep it below 1.

    The rounding error in the last digit of floats such as 1 − 0.05 is not printed.
    """
    digits = next(digits for digits in range(4, 18) if float(f"{confidence:.{digits}g}") < 1)
    exact = Decimal(f"{confidence:.{max(digits, 15)}g}")
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).plus(exact)):.{digits}g}"


def format_p_value(value: float) -> str:
    """A p-value, rounded up; one that underflowed is printed as an upper bound."""
    return f"< {power_of_ten(-300)}" if value < 1e-300 else format_upper(value, 3)


def format_percent(value: float, rounding: Rounding = "nearest") -> str:
    """A rate in [0, 1] as a percentage with three significant digits, or more: never 100 % or 0 % by rounding."""
    value = min(max(value, 0.0), 1.0)
    hundredths = _hundredths(value)
    if not 0 < value < 1:
        return f"{format_number(hundredths)} %"
    every = (format_number(hundredths, rounding, digits) for digits in range(3, 18))
    return f"{next((shown for shown in every if shown != '100'), '99.99999999999999')} %"


def format_points(value: float, rounding: Rounding = "nearest") -> str:
    """A difference of two rates in percentage points, with its sign."""
    return ("+" if value > 0 else "") + format_number(_hundredths(value), rounding, 3)


def format_difference(low: float, high: float) -> str:
    """The interval of a difference of two rates, rounded outward."""
    return f"between {format_points(low, 'down')} and {format_points(high, 'up')} percentage points"


def digits_apart(item: float, other: float) -> int:
    """`DIGITS`, or as many digits as keep two numbers apart when the smaller is rounded up and the larger down."""
    if math.isnan(item) or math.isnan(other):
        return DIGITS
    small, large = sorted((Decimal(repr(float(item))), Decimal(repr(float(other)))))
    for digits in range(DIGITS, 17):
        up, down = (Context(prec=digits, rounding=way) for way in (ROUND_CEILING, ROUND_FLOOR))
        if up.plus(small) < down.plus(large):
            return digits
    return DIGITS if small == large else 17


def format_duration(seconds: float) -> str:
    """A time with its unit: milliseconds, seconds, and from two minutes on minutes, hours or days."""
    if seconds < 0.9995:
        return f"{max(seconds * 1000, 0.1):.3g} ms"
    for unit, size, end in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < end:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"


def power_of_ten(power: int) -> str:
    """A power of ten: ``10⁻⁵``."""
    return f"10{str(power).translate(_SUPERSCRIPTS)}"


def _hundredths(value: float) -> float:
    """100 times the value, exactly: a product of floats would add digits."""
    return float(Decimal(repr(float(value))) * 100)


def _plain_decimal(value: Decimal) -> str:
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text.replace("-", "−")
