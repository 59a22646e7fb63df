"""Canonical JSON (RFC 8785): one value has one text, so that it can be hashed and signed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_LAST_WITHOUT_EXPONENT = 21  # digits before the point, as ECMAScript writes numbers


def canonical_json(value: Any) -> str:
    """The canonical text of JSON types. Numbers are binary64, written as ECMAScript does.

    Raises:
        ValueError: for an infinity, NaN, an integer that is no binary64 number, half of a surrogate pair, a name that
            is not a text, or another type.
    """
    match value:
        case None | bool():
            return json.dumps(value)
        case int() | float():
            text = _number(value)
            if isinstance(value, int) and text != str(value):
                raise ValueError("a whole number in canonical JSON must be a binary64 number")
            return text
        case str():
            value.encode("utf-8")
            return json.dumps(value, ensure_ascii=False)
        case Mapping():
            if not all(isinstance(name, str) for name in value):
                raise ValueError("a name in a JSON object must be a text")
            names = sorted(value, key=lambda name: name.encode("utf-16-be"))
            return "{" + ",".join(f"{canonical_json(name)}:{canonical_json(value[name])}" for name in names) + "}"
        case list() | tuple():
            return "[" + ",".join(map(canonical_json, value)) + "]"
        case _:
            raise ValueError(f"{type(value).__name__} is no type of JSON")


def _number(value: float) -> str:
    """A number as ECMAScript writes it: the shortest digits that read back as the same binary64 number.

    Source: RFC 8785, section 3.2.2.3; ECMA-262, Number::toString.
    """
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("a number in canonical JSON must be finite")
    if number == 0:
        return "0"
    sign, shortest, exponent = Decimal(repr(number)).normalize().as_tuple()
    digits, minus = "".join(map(str, shortest)), "-" * sign
    point = len(digits) + int(exponent)
    if len(digits) <= point <= _LAST_WITHOUT_EXPONENT:
        return minus + digits.ljust(point, "0")
    if 0 < point <= _LAST_WITHOUT_EXPONENT:
        return f"{minus}{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"{minus}0.{digits.rjust(len(digits) - point, '0')}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{minus}{digits[0]}{fraction}e{point - 1:+d}"
