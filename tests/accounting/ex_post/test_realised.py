"""The ex-post ε of a run: which parts are compared, and what it refuses to be added to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import Rigor, Unit, account, accountant, ex_post
from dpassay.accounting.bounds import Bound
from dpassay.accounting.events import ExPostSelectionDpEvent, ParallelDpEvent, compose

UP = 1e-12  # a few roundings upward of numbers below 20


@dataclass
class Cost:
    u_minus: float
    u_plus: float


def plan(parts: int = 3, *, public: bool = False, count: int = 10, noise: float = 0.1) -> DpEvent:
    """Discrete Laplace counts, then `count` tokens in each of disjoint parts."""
    tokens = dp_event.SelfComposedDpEvent(ExPostSelectionDpEvent(4.0), count)
    return compose([(dp_event.DiscreteLaplaceDpEvent(noise, 1), 1), (ParallelDpEvent([tokens] * parts, public), 1)])


COSTS = {"a": Cost(1.0, 0.25), "b": Cost(0.5, 2.0), "c": Cost(0.75, 0.5)}
MOVED = {"a": Cost(3.0, 0.5), "b": Cost(1.5, 0.5), "c": Cost(0.5, 1.0)}


def test_the_worst_part_and_the_pure_rest() -> None:
    bound = ex_post.of_run(COSTS, plan(), adjacency="add_remove")
    assert 2.1 <= bound.value <= 2.1 + UP
    assert (bound.quantity, bound.rigor, bound.private, bound.delta) == (
        "ex_post_epsilon",
        Rigor.CERTIFIED,
        True,
        None,
    )


def test_replacement_within_a_part_or_between_two() -> None:
    """Within: max(1, 2, 0.75) = 2. Between: the two largest of one sign, max(3 + 1.5, 1 + 0.5) = 4.5; counts of both
    parts' sensitivity: a unit that is exchanged moves the sum by twice its norm, 0.2."""
    bound = ex_post.of_run(COSTS, plan(), adjacency="replace_one", moved=MOVED)
    assert 4.7 <= bound.value <= 4.7 + UP


def test_a_public_partition_keeps_a_unit_in_its_part() -> None:
    bound = ex_post.of_run(COSTS, plan(public=True), adjacency="replace_one")
    assert 2.2 <= bound.value <= 2.2 + UP


def test_a_unit_that_may_move_needs_the_costs_of_moving() -> None:
    with pytest.raises(ValueError, match="may move to another part"):
        ex_post.of_run(COSTS, plan(), adjacency="replace_one")
    with pytest.raises(ValueError, match="may move to another part"):
        ex_post.of_run(COSTS, plan(), adjacency="replace_one", moved={"a": Cost(1, 1)})


def test_a_single_part_cannot_be_left() -> None:
    bound = ex_post.of_run({"a": COSTS["a"]}, plan(1), adjacency="replace_one")
    assert 1.2 <= bound.value <= 1.2 + UP


def test_costs_of_two_signs_are_never_mixed() -> None:
    """Parts (2, 0) and (0, 2): moving between them costs 2, not 4."""
    costs = {"a": Cost(2.0, 0.0), "b": Cost(0.0, 2.0)}
    bound = ex_post.of_run(costs, plan(2, noise=1e-9), adjacency="replace_one", moved=costs)
    assert bound.value == pytest.approx(2.0, abs=1e-8)


def test_an_ex_post_epsilon_adds_to_pure_epsilon_only() -> None:
    with pytest.raises(ValueError, match="pure ε only"):
        ex_post.of_run(COSTS, compose([(plan(), 1), (dp_event.GaussianDpEvent(1.0), 1)]), adjacency="add_remove")


def test_an_ex_post_epsilon_never_converts() -> None:
    with pytest.raises(ValueError, match="does not convert"):
        ex_post.of_run(COSTS, plan(), adjacency="add_remove", unit=Unit("group", 2))
    with pytest.raises(ValueError, match="add_remove and replace_one"):
        ex_post.of_run(COSTS, plan(), adjacency="zero_out")
    acc = accountant("ex_post", "add_remove").compose(plan())
    questions: list[Callable[[], Bound]] = [
        lambda: acc.delta(1.0),
        lambda: acc.beta(0.1),
        lambda: acc.blowup(0.1),
        acc.epsilon,
    ]
    for question in questions:
        with pytest.raises(ValueError, match=r"ex-post|ex_post"):
            question()


def test_a_non_private_event_beside_it_is_infinite() -> None:
    event = compose([(plan(), 1), (dp_event.NonPrivateDpEvent(), 1)])
    assert math.isinf(ex_post.of_run(COSTS, event, adjacency="add_remove").value)


def test_negative_costs_are_refused() -> None:
    with pytest.raises(ValueError, match="u_minus must be at least 0"):
        ex_post.of_run({"a": Cost(-1.0, 0.0)}, plan(1), adjacency="add_remove")


def test_a_run_can_be_accounted_by_name() -> None:
    class Run:
        plan = plan()

        def realised(self) -> dict[str, Cost]:
            return COSTS

    assert account(Run(), adjacency="add_remove", method="ex_post") == ex_post.of_run(
        COSTS, plan(), adjacency="add_remove"
    )
    replaced = account(Run(), adjacency="replace_one", method="ex_post")
    assert replaced.value == ex_post.of_run(COSTS, plan(), adjacency="replace_one", moved=COSTS).value
    assert any("the larger of replacing a row" in assumption for assumption in replaced.assumptions)
    with pytest.raises(ValueError, match="realised costs"):
        account(plan(), adjacency="add_remove", method="ex_post")


def test_sums_of_token_costs_are_what_a_part_costs() -> None:
    """From logits to a run's ε: two parts, three tokens each."""
    rows = [(6, 2, -1), (5, 6, 0), (6, 3, 1), (4, 6, -3)]
    costs = {
        name: ex_post.token_costs(rows, tokens, clip=6.0, temperature=1.5)
        for name, tokens in {"a": [0, 0, 1], "b": [2, 2, 2]}.items()
    }
    parts = {name: Cost(ex_post.upward_sum(c.u_minus), ex_post.upward_sum(c.u_plus)) for name, c in costs.items()}
    bound = ex_post.of_run(parts, plan(2), adjacency="add_remove")
    expected = max(cost.epsilon for cost in costs.values()) + 0.1
    assert expected <= bound.value <= expected + UP
