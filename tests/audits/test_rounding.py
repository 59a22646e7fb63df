"""Printed bounds: never on the wrong side of the number, and no further off than a unit of the last digit."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupel.audits.rounding import above, below, sure


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([1, 2, 4, 6]), st.sampled_from([-1, 1]))
def test_a_printed_number_is_on_its_side_and_close(size: float, digits: int, sign: int) -> None:
    value = sign * size
    low, high = Fraction(below(value, digits)), Fraction(above(value, digits))
    assert low <= Fraction(value) <= high
    # A unit of the last of `digits` digits is at most 10^(1 − digits) of the number, or of the power of ten above it.
    assert high - low <= Fraction(10, 10**digits) * max(abs(low), abs(high))


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [(1.23456789, "1.23456", "1.23457"), (0.99999999, "0.999999", "1"), (2.5, "2.5", "2.5"), (0.0, "0", "0")],
)
def test_examples(value: float, down: str, up: str) -> None:
    assert (below(value), above(value)) == (down, up)
    assert (above(-value), below(-value)) == (("-" + down, "-" + up) if value else ("-0", "-0"))


def test_infinity_stays() -> None:
    assert (below(math.inf), above(math.inf)) == ("inf", "inf")


@pytest.mark.parametrize(
    ("confidence", "text"),
    [
        (0.95, "0.95"),
        (1 - 0.05 / 3, "0.9833"),
        (0.99999, "0.99999"),
        (0.9999996, "0.9999996"),
        (1 - 1e-9, "0.999999999"),
    ],
)
def test_no_confidence_looks_like_certainty(confidence: float, text: str) -> None:
    assert sure(confidence) == text


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_every_confidence_has_a_text_below_1(confidence: float) -> None:
    assert float(sure(confidence)) < 1
