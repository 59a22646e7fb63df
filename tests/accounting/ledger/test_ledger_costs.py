"""What a ledger says that a run was charged and cost: composition over parts, realised costs, sums rounded up."""

from __future__ import annotations

import math
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import events
from dpassay.accounting.events import ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.ledger.entries import WHOLE, Charge, Commit, UpwardSum
from dpassay.accounting.ledger.ledger import Ledger

COUNTS = dp_event.DiscreteLaplaceDpEvent(0.1, 1)
SELECTION = ExPostSelectionDpEvent(33.333333333333336, 1e-12)
EVENTS = st.sampled_from([COUNTS, SELECTION, dp_event.GaussianDpEvent(2.0), dp_event.LaplaceDpEvent(3.0)])


@st.composite
def charges(draw: st.DrawFn) -> list[tuple[str, DpEvent, str | None, dict[str, int]]]:
    """(run, event, partition, part → count) of several charges."""
    results = []
    for _ in range(draw(st.integers(0, 8))):
        run, event = draw(st.sampled_from("ab")), draw(EVENTS)
        partition = draw(st.sampled_from([None, "slots", "labels"]))
        names = [""] if partition is None else [f"{partition}-{part}" for part in range(3)]
        parts = draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), min_size=1))
        results.append((run, event, partition, parts))
    return results


def composed_by_hand(own: list[tuple[str, DpEvent, str | None, dict[str, int]]]) -> DpEvent:
    """What the charges of one run compose to: parallel over parts, in sequence otherwise."""
    expected = [(event, parts[""]) for _, event, partition, parts in own if partition is None]
    for partition in ("slots", "labels"):
        inside = [
            events.compose([(event, parts.get(part, 0)) for _, event, where, parts in own if where == partition])
            for part in sorted({part for _, _, where, parts in own if where == partition for part in parts})
        ]
        if inside:
            expected.append((ParallelDpEvent(inside, partition == "labels"), 1))
    return events.compose(expected)


@examples(12, 30)
@given(charges())
def test_charges_compose_in_parallel_over_parts_and_in_sequence_otherwise(
    little: Any,
    drawn: list[tuple[str, DpEvent, str | None, dict[str, int]]],
) -> None:
    plans = {name: composed_by_hand([charge for charge in drawn if charge[0] == name]) for name in "ab"}
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger") as ledger:
        for index, (name, event, partition, parts) in enumerate(drawn):
            listed = () if partition is None else tuple(parts)
            little.begin(ledger, name, about={}, plan=plans[name]).step(
                charge=Charge(
                    key=f"s/{index}",
                    event=event,
                    stage="s",
                    partition=partition,
                    parts=listed,
                    counts=tuple(parts.values()),
                    partition_is_public=partition == "labels",
                )
            )
        assert ledger.event() == events.compose([(plan, 1) for plan in plans.values()])
        total = sum(count for _, _, _, parts in drawn for count in parts.values())
        assert sum(event.count * max(1, len(event.parts)) for event in ledger.events()) == total
        ledger.verify()


def test_realised_costs_are_summed_by_part_and_rounded_up(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.run(ledger)
        costs = run.realised()
        assert set(costs) == set(little.slots)
        exact = sum(Fraction(0.1 + step / 1024) for step in range(little.steps))
        for cost in costs.values():
            assert cost.count == little.steps
            assert Fraction(math.nextafter(cost.u_minus, 0)) < exact <= Fraction(cost.u_minus)
            assert Fraction(cost.published) >= little.steps * Fraction(0.7)
            assert cost.epsilon == max(cost.u_minus, cost.u_plus)


def test_a_missing_realised_cost_counts_at_its_worst_case(little: Any, path: Path) -> None:
    charge = Charge(
        key="tokens/1", event=SELECTION, stage="tokens", partition="slots", parts=little.slots, counts=(1, 2, 5)
    )
    with Ledger.open(path) as ledger:
        planned = [events.compose([(SELECTION, 2 + count)]) for count in (1, 2, 5)]
        run = little.begin(ledger, plan=ParallelDpEvent(planned, False))
        for step in (0, 2):
            run.step(charge=little.charge(step))
        run.step(charge=charge)
        assert run.realised() == {}, "a step that was not committed released nothing"
        run.step(commit=Commit(key="tokens/2", value=None))  # nothing was sampled
        assert run.realised() == {}
        run.step(commit=little.commit(0))
        run.step(commit=Commit(key="tokens/1", value=[1, 2, 3], realised={"slot-0": [0.5, 0.5, 0.5]}))
        costs = run.realised()
        for slot, own in zip(
            little.slots, (Fraction(0.5), *(n * Fraction(SELECTION.range) for n in (2, 5))), strict=True
        ):
            # One rounding of the product and one of the sum, each up by at most two steps of the result.
            slack = Fraction(2.0**-50) * (own + 1)
            assert own + Fraction(0.1) <= Fraction(costs[slot].u_minus) <= own + Fraction(0.1) + slack
            assert costs[slot].count == 2
        assert run.event() == ledger.event("run") == ledger.event()


@examples(67, 200)
@given(st.lists(st.floats(-1e12, 1e12), max_size=300))
def test_the_sum_of_costs_is_the_smallest_float_that_is_no_less(values: list[float]) -> None:
    total = UpwardSum()
    for value in values:
        total.add(value)
    exact = sum(map(Fraction, values), Fraction(0))
    assert Fraction(math.nextafter(total.value(), -math.inf)) < exact <= Fraction(total.value())


def test_costs_of_the_whole_data_have_the_empty_part(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger, plan=dp_event.SelfComposedDpEvent(SELECTION, 2))
        run.step(charge=Charge(key="pick", event=SELECTION, stage="pick", counts=(2,)))
        run.step(commit=Commit(key="pick", value=1, realised={WHOLE: [40.0, 1.0, 2.0]}))
        assert run.realised()[WHOLE].u_minus == 40.0
        assert run.outcome("pick").realised == {WHOLE: (40.0, 1.0, 2.0)}
