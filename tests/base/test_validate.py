"""Validators: they return what they were given, or say in one line what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dpassay.base import validate


def test_values_pass_through() -> None:
    assert validate.finite(x=-2.5) == -2.5
    assert validate.positive(x=3) == 3
    assert validate.non_negative(x=0) == 0
    assert validate.probability(x=1) == 1
    assert validate.open_probability(x=0.5) == 0.5
    assert validate.probability_below_one(x=0) == 0
    assert validate.integer(x=0) == 0
    assert validate.integer(minimum=-3, x=-3) == -3
    assert validate.one_of(("a", "b"), x="b") == "b"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: validate.finite(sigma=math.inf), "sigma must be finite, not inf"),
        (lambda: validate.finite(sigma=math.nan), "sigma must be a number, not nan"),
        (lambda: validate.finite(sigma="1"), "sigma must be a number, not '1'"),  # type: ignore[type-var]
        (lambda: validate.finite(sigma=True), "sigma must be a number, not True"),
        (lambda: validate.positive(sigma=0), "sigma must be above 0, not 0"),
        (lambda: validate.non_negative(sigma=-1), "sigma must be at least 0, not -1"),
        (lambda: validate.probability(p=1.1), "p must be between 0 and 1, not 1.1"),
        (lambda: validate.probability_below_one(delta=1), "delta must be below 1, not 1"),
        (lambda: validate.probability_below_one(delta=-1), "delta must be between 0 and 1, not -1"),
        (lambda: validate.open_probability(p=0), "p must be strictly between 0 and 1, not 0"),
        (lambda: validate.integer(n=1.0), "n must be a whole number, not 1.0"),  # type: ignore[arg-type]
        (lambda: validate.integer(n=True), "n must be a whole number, not True"),
        (lambda: validate.integer(minimum=1, n=0), "n must be at least 1, not 0"),
        (lambda: validate.one_of(("a", "b"), mode="c"), "mode must be one of a, b, not 'c'$"),
        (lambda: validate.one_of(("key", "echo"), kind="keys"), "not 'keys'; did you mean 'key'\\?$"),
    ],
)
def test_messages_name_the_argument(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_one_argument_at_a_time() -> None:
    with pytest.raises(TypeError, match="exactly one keyword argument, not 2"):
        validate.positive(a=1, b=2)
    with pytest.raises(TypeError, match="exactly one keyword argument, not 0"):
        validate.positive()
