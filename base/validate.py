"""Validators whose messages name the argument: ``positive(noise_multiplier=x)``.

Each takes exactly one keyword argument and returns its value. Each raises `ValueError` with one line that names the
argument, the given value and what is allowed.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterable
from typing import TypeVar

T = TypeVar("T", int, float)
S = TypeVar("S")


def _single(named: dict[str, S]) -> tuple[str, S]:
    if len(named) != 1:
        raise TypeError(f"give exactly one keyword argument, not {len(named)}")
    return next(iter(named.items()))


LARGEST_INTEGER = 2**128
"""Larger than any count or seed; much larger integers exceed float64."""


def _number(name: str, value: object) -> None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or (isinstance(value, float) and math.isnan(value))
    ):
        raise ValueError(f"{name} must be a number, not {value!r}")
    if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
        raise ValueError(f"{name} must be within ±2¹²⁸")


def finite(**named: T) -> T:
    """A finite number."""
    name, value = _single(named)
    _number(name, value)
    if math.isinf(value):
        raise ValueError(f"{name} must be finite, not {value!r}")
    return value


def positive(**named: T) -> T:
    """A finite number above 0."""
    name, value = _single(named)
    finite(**named)
    if value <= 0:
        raise ValueError(f"{name} must be above 0, not {value!r}")
    return value


def non_negative(**named: T) -> T:
    """A finite number of at least 0."""
    name, value = _single(named)
    finite(**named)
    if value < 0:
        raise ValueError(f"{name} must be at least 0, not {value!r}")
    return value


def probability(**named: T) -> T:
    """A number in [0, 1]."""
    name, value = _single(named)
    _number(name, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1, not {value!r}")
    return value


def probability_below_one(**named: T) -> T:
    """A number in [0, 1), such as the δ of an ε."""
    name, value = _single(named)
    if probability(**named) == 1:
        raise ValueError(f"{name} must be below 1, not {value!r}")
    return value


def open_probability(**named: T) -> T:
    """A number in (0, 1)."""
    name, value = _single(named)
    _number(name, value)
    if not 0 < value < 1:
        raise ValueError(f"{name} must be strictly between 0 and 1, not {value!r}")
    return value


def integer(minimum: int = 0, maximum: int = LARGEST_INTEGER, **named: int) -> int:
    """A whole number of at least `minimum` and at most `maximum`."""
    name, value = _single(named)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {value}")
    if value > maximum:
        raise ValueError(f"{name} must be at most {maximum}, not {value if value < 10**40 else 'far above'}")
    return value


def one_of(allowed: Collection[S], **named: S) -> S:
    """A member of `allowed`."""
    name, value = _single(named)
    if value not in allowed:
        near = did_you_mean(value, map(str, allowed)) if isinstance(value, str) else ""
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, not {value!r}{near}")
    return value


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """``; did you mean 'note'?``, with the known word that is closest to the given one; empty if none is close."""
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
