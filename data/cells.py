"""Cells of tables, whose types depend on the format of the file: empty ones, numbers, and dates."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

_DIGITS = 12
_DAY = len("2013-05-31")


def is_missing(value: Any) -> bool:
    """Whether a cell is empty: null, an empty string or NaN."""
    return value is None or value == "" or value != value


def as_number(value: Any) -> float | None:
    """The finite number in a cell; None for anything else. True and false are words, and so is 1_000."""
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        return None
    if isinstance(value, str) and "_" in value:
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def as_day(value: Any) -> float | None:
    """The date in a cell, such as 2013-05-31 or 2013-05-31T00:00:00, as days from 0001-01-01.

    A time must be midnight, in its own time zone if it has one. None for anything else, such as other times of day.
    """
    if isinstance(value, str) and len(value) >= _DAY:
        try:
            date = datetime.date.fromisoformat(value[:_DAY])
            value = datetime.datetime.fromisoformat(value) if len(value) > _DAY else date
        except ValueError:
            return None
    if isinstance(value, datetime.datetime):
        value = value.date() if value.time() == datetime.time() else None
    return float(value.toordinal()) if isinstance(value, datetime.date) else None


def as_category(value: Any) -> str:
    """The word of a cell; that of 1, 1.0 and "1" is one, since formats and libraries write them differently."""
    if isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        value = int(value)
    if isinstance(value, float):
        if not value.is_integer():
            return str(value)
        value = int(value)
    try:
        text = str(value).strip()
    except ValueError:  # an integer of more digits than Python writes in decimal
        text = hex(value)
    return text[:-2] if text.endswith(".0") and text[:-2].lstrip("-").isdigit() else text


def decimals(value: Any) -> int:
    """The number of digits after the point, as written; 0 for whole numbers, including whole floats."""
    number = float(value)
    if number.is_integer() and abs(number) < 2**53:
        return 0
    written = repr(number)
    if "e" in written:
        return _DIGITS
    return min(_DIGITS, len(written.partition(".")[2]))
