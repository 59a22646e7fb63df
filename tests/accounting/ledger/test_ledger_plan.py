"""What a run may charge of its plan, against a search through all ways to fit the charges into it."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import events
from dpassay.accounting.events import ParallelDpEvent
from dpassay.accounting.ledger.entries import Charge, LedgerError
from dpassay.accounting.ledger.plan import Allowance

A, B = dp_event.GaussianDpEvent(1.0), dp_event.LaplaceDpEvent(2.0)
EVENTS = {"a": A, "b": B}

Parts = tuple[Counter[str], ...]

counts = st.builds(lambda a, b: Counter(a=a, b=b), st.integers(0, 2), st.integers(0, 2)).filter(lambda c: c.total())
parallels = st.lists(st.tuples(st.lists(counts, min_size=1, max_size=3).map(tuple), st.booleans()), max_size=3)
steps = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["", "p", "q"]), st.sets(st.integers(0, 2), min_size=1)),
    max_size=7,
)


def event_of(planned: Counter[str]) -> DpEvent:
    return events.compose([(EVENTS[name], count) for name, count in planned.items()])


def fits(whole: Counter[str], parallel: list[tuple[Parts, bool]], charged: dict[str, dict[int, Counter[str]]]) -> bool:
    """Whether some injective choice of compositions for partitions, and of parts for parts, covers the charges."""
    if not charged.pop("", {0: Counter()})[0] <= whole:
        return False

    def inside(parts: list[Counter[str]], planned: Parts) -> bool:
        ways = itertools.permutations(planned, len(parts))
        return any(all(first <= second for first, second in zip(parts, way, strict=True)) for way in ways)

    public = {"p": False, "q": True}
    return any(
        all(
            public[name] == is_public and inside(list(parts.values()), planned)
            for (name, parts), (planned, is_public) in zip(charged.items(), chosen, strict=True)
        )
        for chosen in itertools.permutations(parallel, len(charged))
    )


@examples(100, 300)
@given(counts, parallels, steps)
def test_a_charge_is_taken_where_all_charges_fit_and_refused_otherwise(
    whole: Counter[str],
    parallel: list[tuple[Parts, bool]],
    charges: list[tuple[str, str, set[int]]],
) -> None:
    composed = [ParallelDpEvent([event_of(part) for part in parts], is_public) for parts, is_public in parallel]
    allowance = Allowance(events.compose([(event_of(whole), 1), *((event, 1) for event in composed)]))
    charged: dict[str, dict[int, Counter[str]]] = {}
    for number, (name, partition, chosen) in enumerate(charges):
        parts = sorted(chosen) if partition else [0]
        for part in parts:
            charged.setdefault(partition, {}).setdefault(part, Counter())[name] += 1
        expected = fits(whole, parallel, {where: dict(inside) for where, inside in charged.items()})
        charge = Charge(
            key=f"s/{number}",
            event=EVENTS[name],
            stage="s",
            partition=partition or None,
            parts=tuple(f"{partition}-{part}" for part in parts) if partition else (),
            partition_is_public=partition == "q",
        )
        if not expected:
            with pytest.raises(LedgerError, match=f"'s/{number}' charges .*more than was planned"):
                allowance.take(charge, charge.key)
            return
        allowance.take(charge, charge.key)


def test_a_parallel_composition_is_charged_as_a_whole_or_in_parts() -> None:
    """Two of them, of which one is charged as a whole: the other has room for one partition."""
    parallel = ParallelDpEvent([A, A], False)
    allowance = Allowance(events.compose([(parallel, 2)]))
    part = {"event": A, "stage": "s", "parts": ("x",)}
    allowance.take(Charge(key="s/0", partition="p", **part), "s/0")
    allowance.take(Charge(key="s/1", event=parallel, stage="s"), "s/1")
    with pytest.raises(LedgerError, match="'s/2' charges partition 'q' more than was planned"):
        allowance.take(Charge(key="s/2", partition="q", **part), "s/2")
    full = Allowance(events.compose([(parallel, 2)]))
    for key, partition in (("s/0", "p"), ("s/1", "q")):
        full.take(Charge(key=key, partition=partition, **part), key)
    with pytest.raises(LedgerError, match="'s/2' charges more than was planned: ParallelDpEvent"):
        full.take(Charge(key="s/2", event=parallel, stage="s"), "s/2")
