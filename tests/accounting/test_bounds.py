"""Bounds: a number is never apart from what it means."""

from __future__ import annotations

import json
import math

import pytest

from cupel.accounting import Adjacency, Bound, Direction, Interval, Rigor, Unit
from cupel.accounting.bounds import json_number


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


def test_bounds_compare_only_at_the_same_meaning() -> None:
    assert bound(delta=1e-5).comparable(bound(delta=1e-5, value=9.0, method="pld", rigor=Rigor.ESTIMATE))
    assert not bound(quantity="delta", at=1.0).comparable(bound(quantity="delta", at=2.0))
    assert bound(quantity="r", at=0.1, value=0.2).comparable(bound(quantity="r", at=0.1, value=0.3))
    for change in ({"delta": 1e-6}, {"adjacency": Adjacency.REPLACE_ONE}, {"unit": Unit("user")}, {"quantity": "rho"}):
        assert not bound(delta=1e-5).comparable(bound(**({"delta": 1e-5} | change)))


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
        ({"quantity": "delta"}, "a bound on delta must say `at` which ε it holds"),
        ({"quantity": "renyi_epsilon"}, "`at` which order"),
        ({"quantity": "beta"}, "`at` which α"),
        ({"quantity": "r"}, "`at` which p"),
        ({"quantity": "delta", "at": math.inf}, "at must be finite"),
        ({"quantity": "renyi_epsilon", "at": 1.0}, "order of a Rényi divergence must be above 1"),
        ({"quantity": "beta", "at": 1.5}, "at must be between 0 and 1"),
        ({"quantity": "r", "at": -0.1}, "at must be between 0 and 1"),
        ({"at": 1e-5}, "epsilon takes no argument"),
        ({"quantity": "mu", "at": 0.1}, "mu takes no argument"),
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
    for text in ("record", "user", "secret", "group(4)"):
        assert str(Unit.parse(text)) == text
    assert Unit.parse("group(4)") == Unit("group", 4)
    for text in ("group", "group(x)", "row", ""):
        with pytest.raises(ValueError, match="unit must be record, user, group"):
            Unit.parse(text)
    with pytest.raises(ValueError, match="size must be at least 1"):
        Unit.parse("group(0)")
    with pytest.raises(ValueError, match="only a group has a size"):
        Unit("record", 2)
    with pytest.raises(ValueError, match="unit must be one of"):
        Unit("row")
