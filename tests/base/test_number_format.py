"""Printed numbers: one form each, bounds never on the wrong side, no further off than a unit of the last digit."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpassay.base.number_format import (
    digits_apart,
    format_ceiling,
    format_confidence,
    format_difference,
    format_interval,
    format_lower,
    format_number,
    format_p_value,
    format_percent,
    format_upper,
)

SUPERSCRIPTS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def read(text: str) -> Decimal:
    """What a printed number says."""
    mantissa, _, power = text.replace("−", "-").partition(" × 10")
    return Decimal(mantissa).scaleb(int(power.translate(SUPERSCRIPTS) or 0))


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([1, 2, 4, 6]), st.sampled_from([-1, 1]))
def test_a_printed_number_is_on_its_side_and_close(size: float, digits: int, sign: int) -> None:
    value = sign * size
    low, near, high = (read(f(value, digits=digits)) for f in (format_lower, format_number, format_upper))
    assert float(low) <= value <= float(high)
    assert low <= near <= high
    # A unit of the last of `digits` digits is at most 10^(1 − digits) of the number, or of the power of ten above it.
    assert high - low <= Decimal(10) ** (1 - digits) * max(abs(low), abs(high))


@pytest.mark.parametrize(
    ("value", "down", "up"),
    [
        (1.23456789, "1.23456", "1.23457"),
        (0.99999999, "0.999999", "1"),
        (2.5, "2.5", "2.5"),
        (0.1, "0.1", "0.1"),
        (3200.0000000028863, "3200", "3200.01"),
        (1.0629312e-4, "1.06293 × 10⁻⁴", "1.06294 × 10⁻⁴"),
        (9.9999999e-8, "9.99999 × 10⁻⁸", "1 × 10⁻⁷"),
    ],
)
def test_examples(value: float, down: str, up: str) -> None:
    assert (format_lower(value), format_upper(value)) == (down, up)
    assert (format_upper(-value), format_lower(-value)) == ("−" + down, "−" + up)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        ("inf", "∞"),
        (math.nan, "not a number"),
        (None, "–"),
    ],
)
def test_what_has_no_digits(value: float | str | None, text: str) -> None:
    assert {f(value) for f in (format_lower, format_number, format_upper)} == {text}


def test_a_p_value_is_rounded_up_and_never_0() -> None:
    assert format_p_value(0.54171) == "0.542"
    assert format_p_value(1.0) == "1"
    assert format_p_value(0.0) == format_p_value(3e-310) == "< 10⁻³⁰⁰"


@pytest.mark.parametrize(
    ("confidence", "text"),
    [
        (0.95, "0.95"),
        (1 - 0.05 / 3, "0.9833"),
        (0.99999, "0.99999"),
        (0.9999996, "0.9999996"),
        (1 - 1e-9, "0.999999999"),
        (1 - 0.05 / 6, "0.9916"),
        (1 - 1e-6 / 3, "0.9999996"),
        (0.9499999999999998, "0.95"),
    ],
)
def test_a_confidence_is_rounded_down_and_never_looks_like_certainty(confidence: float, text: str) -> None:
    assert format_confidence(confidence) == text


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_every_confidence_has_a_text_below_1(confidence: float) -> None:
    assert float(format_confidence(confidence)) < 1


@given(st.floats(min_value=1e-3, max_value=1, exclude_max=True))
def test_a_printed_confidence_is_one(confidence: float) -> None:
    assert float(format_confidence(confidence)) <= confidence * (1 + 1e-15)


@pytest.mark.parametrize(
    ("low", "high", "printed"),
    [
        (1.28098999, 1.28154001, "[1.28098, 1.28155]"),
        (0.5, 0.5, "[0.5, 0.5]"),
        (1.2345678e-9, "inf", "[1.23456 × 10⁻⁹, ∞]"),
        (-0.00123456789, -1e-12, "[−0.00123457, −1 × 10⁻¹²]"),
    ],
)
def test_an_enclosure_is_rounded_outward(low: float | str, high: float | str, printed: str) -> None:
    assert format_interval(low, high) == printed


def test_a_rate_is_never_rounded_to_certainty() -> None:
    assert format_percent(0.99999, "down") == "99.9 %"
    assert format_percent(0.99999) == "99.999 %"
    assert format_percent(0.99999, "up") == "99.999 %"
    assert format_percent(1 - 2**-53) == "99.99999999999999 %"
    assert format_percent(1e-9) == "1 × 10⁻⁷ %"
    assert format_percent(1.0) == "100 %"
    assert format_percent(0.0) == "0 %"


def test_a_difference_of_rates_is_rounded_outward() -> None:
    assert format_difference(-0.012345, 0.07) == "between −1.24 and +7 percentage points"
    assert format_difference(0.8, 1.0) == "between +80 and +100 percentage points"


def test_a_ceiling_is_rounded_up_but_for_one_that_is_reached() -> None:
    assert format_ceiling(3.1234567, 1.0) == "3.12346"
    assert format_ceiling(3.1234567, 3.1234567) == "3.12345"


@pytest.mark.parametrize(
    ("one", "other", "digits"), [(1.0, 2.0, 6), (3.0, 3.0, 6), (0.123456789, 0.12345678, 9), (1.0, 1 + 2**-52, 17)]
)
def test_close_numbers_get_the_digits_that_tell_them_apart(one: float, other: float, digits: int) -> None:
    assert digits_apart(one, other) == digits_apart(other, one) == digits
    if one != other:
        assert read(format_upper(min(one, other), digits)) < read(format_lower(max(one, other), digits))


@given(st.floats(min_value=1e-300, max_value=1e300), st.floats(min_value=1e-300, max_value=1e300))
def test_different_numbers_are_printed_as_different(one: float, other: float) -> None:
    digits = digits_apart(one, other)
    if one != other:
        assert read(format_upper(min(one, other), digits)) < read(format_lower(max(one, other), digits))
