"""Bounds: a number is never apart from what it means."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpassay.accounting import Adjacency, Bound, Direction, Interval, Rigor, Unit
from dpassay.accounting.bounds import json_number


def bound(**changes: object) -> Bound:
    values: dict[str, object] = {
        "direction": Direction.UPPER,
        "value": 1.5,
        "method": "rdp",
        "rigor": Rigor.CERTIFIED,
        "adjacency": Adjacency.ADD_REMOVE,
    }
    return Bound(**(values | changes))  # type: ignore[arg-type]


def test_rigor_says_what_a_bound_may_do() -> None:
    assert [rigor for rigor in Rigor if rigor.may_support] == [Rigor.CERTIFIED]
    assert [rigor for rigor in Rigor if rigor.may_refute] == [Rigor.CERTIFIED, Rigor.FINITE_SAMPLE]


def test_json_has_no_infinities() -> None:
    plain = bound(value=math.inf, delta=1e-5, interval=Interval(1.0, math.inf), assumptions=("One.",)).to_json()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["value"] == "inf"
    assert plain["interval"] == [1.0, "inf"]
    assert plain["unit"] == "record"
    assert plain["assumptions"] == ["One."]
    assert (json_number(-math.inf), json_number(None), json_number(2.0)) == ("-inf", None, 2.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": math.nan}, "NaN"),
        ({"rigor": Rigor.FINITE_SAMPLE}, "confidence"),
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1"),
        ({"interval": Interval(0.0, 1.0)}, "end of its interval"),
        ({"quantity": "delta"}, "a bound on delta needs `at`, the ε at which it holds"),
        ({"quantity": "renyi_epsilon"}, "needs `at`, the order"),
        ({"quantity": "beta"}, "needs `at`, the α"),
        ({"quantity": "r"}, "needs `at`, the p"),
        ({"quantity": "delta", "at": math.inf}, "at must be finite"),
        ({"quantity": "renyi_epsilon", "at": 1.0}, "order of a Rényi divergence must be above 1"),
        ({"quantity": "beta", "at": 1.5}, "at must be between 0 and 1"),
        ({"quantity": "r", "at": -0.1}, "at must be between 0 and 1"),
        ({"at": 1e-5}, "epsilon takes no `at`"),
        ({"quantity": "mu", "at": 0.1}, "mu takes no `at`"),
    ],
)
def test_meaningless_bounds_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bound(**change)


@pytest.mark.parametrize(
    ("quantity", "at", "argument"),
    [("delta", -0.5, "ε"), ("renyi_epsilon", 8.0, "order"), ("beta", 0.0, "α"), ("r", 1.0, "p")],
)
def test_a_function_says_its_argument(quantity: str, at: float, argument: str) -> None:
    made = bound(quantity=quantity, at=at)
    assert (made.argument, made.to_json()["at"]) == (argument, at)
    assert bound().argument is None


def test_intervals() -> None:
    interval = Interval(1.0, 3.0)
    assert interval.width == 2
    assert 1.0 in interval
    assert 3.5 not in interval
    for ends in ((2.0, 1.0), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="lower ≤ upper"):
            Interval(*ends)


def test_units_are_read_and_written() -> None:
    for text in ("record", "user", "user(3)", "secret", "group(4)"):
        assert str(Unit.parse(text)) == text
    assert Unit.parse("group(4)") == Unit("group", 4)
    for text in ("group", "group(x)", "row", ""):
        with pytest.raises(ValueError, match="unit must be record, user, user\\(k\\), group"):
            Unit.parse(text)
    with pytest.raises(ValueError, match="size must be at least 1"):
        Unit.parse("group(0)")
    with pytest.raises(ValueError, match="only a group or a user has a size"):
        Unit("record", 2)
    with pytest.raises(ValueError, match="unit must be one of"):
        Unit("row")


numbers = st.floats(allow_nan=False)
arguments = st.one_of(
    st.tuples(st.sampled_from(["epsilon", "ex_post_epsilon", "rho", "mu"]), st.none()),
    st.tuples(st.just("delta"), st.floats(allow_nan=False, allow_infinity=False)),
    st.tuples(st.just("renyi_epsilon"), st.floats(1, exclude_min=True, allow_infinity=False)),
    st.tuples(st.sampled_from(["beta", "r"]), st.floats(0, 1)),
)


@given(
    direction=st.sampled_from(Direction),
    rigor=st.sampled_from(Rigor),
    adjacency=st.sampled_from(Adjacency),
    unit=st.sampled_from([Unit(), Unit("user"), Unit("secret"), Unit.parse("group(3)")]),
    ends=st.tuples(numbers, numbers).map(sorted),
    enclosed=st.booleans(),
    argument=arguments,
    delta=st.none() | st.floats(0, 1),
    ceiling=st.none() | numbers,
    confidence=st.floats(0, 1, exclude_min=True, exclude_max=True),
    words=st.tuples(st.none() | st.text(max_size=9), st.lists(st.text(max_size=9), max_size=3)),
    private=st.booleans(),
)
def test_a_bound_comes_back_from_json_as_it_was(
    ends: list[float], enclosed: bool, argument: tuple[str, float | None], words: Any, **fields: Any
) -> None:
    interval = Interval(*ends) if enclosed else None
    made = Bound(
        value=ends[1],
        method="some method",
        interval=interval,
        quantity=argument[0],
        at=argument[1],
        null_family=words[0],
        assumptions=tuple(words[1]),
        **fields,
    )
    text = json.dumps(made.to_json(), allow_nan=False)
    again = Bound.from_json(json.loads(text))
    assert again == made
    assert [type(value) for value in dataclasses.astuple(again)] == [type(value) for value in dataclasses.astuple(made)]
    assert json.dumps(again.to_json(), allow_nan=False) == text


@pytest.mark.parametrize(
    "change",
    [
        {"value": "much"},
        {"value": True},
        {"direction": "sideways"},
        {"unit": "planet"},
        {"interval": [2.0, 1.0]},
        {"interval": [1.0]},
        {"surprise": 1},
        {"assumptions": None},
        {"confidence": 2.0},
    ],
)
def test_what_is_no_bound_is_one_line(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^not a bound: [^\n]+$"):
        Bound.from_json(bound().to_json() | change)
    with pytest.raises(ValueError, match=r"^not a bound: 'value'$"):
        Bound.from_json({key: value for key, value in bound().to_json().items() if key != "value"})
