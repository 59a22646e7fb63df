"""The ledger counts what was charged, keeps the first value of a step, and refuses what does not belong there."""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.events import ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.ledger.entries import AlreadyCommitted, Charge, Commit, LedgerError
from dpassay.accounting.ledger.ledger import Ledger

COUNTS = dp_event.DiscreteLaplaceDpEvent(0.1, 1)
SELECTION = ExPostSelectionDpEvent(33.333333333333336, 1e-12)


def test_a_run_of_private_inference_equals_its_plan(little: Any, path: Path) -> None:
    selection = ExPostSelectionDpEvent(33.3, 1e-12)
    plan = events.compose(
        [
            (dp_event.DiscreteLaplaceDpEvent(0.1, 1), 1),
            (ParallelDpEvent([dp_event.SelfComposedDpEvent(selection, 192)] * 65, False), 1),
        ]
    )
    parts = tuple(f"slot-{slot}" for slot in range(65))
    with Ledger.open(path) as ledger:
        run = little.begin(ledger, plan=plan)
        run.step(charge=Charge(key="counts", event=dp_event.DiscreteLaplaceDpEvent(0.1, 1), stage="counts"))
        for step in range(192):
            run.step(
                charge=Charge(key=f"tokens/{step}", event=selection, stage="tokens", partition="slots", parts=parts)
            )
            if step in (0, 190):
                charged = 65 * (step + 1)
                with pytest.raises(LedgerError, match=rf"it charged {charged} of {65 * 192} planned ExPostSelection"):
                    run.finish()
        run.finish()
        assert ledger.event() == plan
        assert ledger.event("run") == plan
        assert run.plan == plan
        assert [
            (event.event, event.count, event.native, event.stage, len(event.parts)) for event in ledger.events()
        ] == [
            (dp_event.DiscreteLaplaceDpEvent(0.1, 1), 1, True, "counts", 0),
            (selection, 192, False, "tokens", 65),
        ]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@examples(12, 30)
@given(JSON_VALUES)
def test_a_committed_value_comes_back_bit_for_bit(little: Any, value: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger"
        with Ledger.open(file) as ledger:
            run = little.begin(ledger)
            run.step(charge=Charge(key="s", event=COUNTS, stage="s"))
            assert run.charged("s")
            assert run.outcome("s") is None
            run.step(commit=Commit(key="s", value=value))
        with Ledger.open(file, read_only=True) as ledger:
            back = ledger.run("run").outcome("s")
            assert back is not None
            assert repr(back.value) == repr(json.loads(json.dumps(value, sort_keys=True)))
            ledger.verify()


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, [-math.inf], np.int64(3), np.float32(1), {"a": {1: 2}}, {1, 2}, b"x", object()]
)
def test_what_json_lacks_is_refused(little: Any, path: Path, value: Any) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        run.step(charge=Charge(key="s", event=COUNTS, stage="s"))
        head = ledger.head
        with pytest.raises(LedgerError, match="the ledger holds"):
            run.step(commit=Commit(key="s", value=value), charge=Charge(key="t", event=COUNTS, stage="t"))
        assert ledger.head == head
        assert run.outcome("s") is None
        assert not run.charged("t")


def test_a_second_commit_loses_and_takes_the_first_value(little: Any, path: Path) -> None:
    with Ledger.open(path) as item, Ledger.open(path) as two:
        first, second = little.begin(item), little.begin(two)
        first.step(charge=little.charge(0))
        second.step(charge=little.charge(0))  # the same charge: used again, not paid again
        assert item.entries == two.entries == 3
        first.step(commit=little.commit(0), charge=little.charge(1))
        with pytest.raises(AlreadyCommitted) as caught:
            second.step(commit=Commit(key="tokens/0", value="other"), charge=little.charge(1))
        assert caught.value.outcome.value == [0, 1, 2]
        assert caught.value.outcome == second.outcome("tokens/0") == first.outcome("tokens/0")
        with pytest.raises(AlreadyCommitted):
            first.step(commit=little.commit(0))
        # A lost step writes nothing, its charge neither.
        with pytest.raises(AlreadyCommitted):
            second.step(commit=little.commit(0), charge=little.charge(2))
        assert not first.charged("tokens/2")
        assert item.entries == 5
        second.step(charge=little.charge(1))
        second.step(commit=little.commit(1), charge=little.charge(2))
        assert first.last_committed("tokens") == 2
        item.verify()


def test_a_charge_without_its_commit_is_used_again(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.begin(ledger).step(charge=little.charge(0))
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        assert run.charged("tokens/0")
        assert run.outcome("tokens/0") is None
        assert run.last_committed("tokens") == 0
        run.step(charge=little.charge(0))
        assert [event.count for event in ledger.events()] == [1]
        with pytest.raises(LedgerError, match="'tokens/0' was charged with another event"):
            run.step(charge=Charge(key="tokens/0", event=COUNTS, stage="tokens"))


def test_replay_stops_at_the_first_gap(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        for step in (0, 1, 3):
            run.step(charge=little.charge(step))
            run.step(commit=little.commit(step))
        assert run.last_committed("tokens") == 2
        assert run.last_committed("other") == 0


def test_a_finished_run_takes_nothing_more_and_replays(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
        head, entries = ledger.head, ledger.entries
        run = little.begin(ledger)
        run.step(charge=little.charge(1))
        run.finish()
        assert run.finished
        assert (ledger.head, ledger.entries) == (head, entries)
        assert run.outcome("tokens/2").value == [2, 3, 4]
        with pytest.raises(LedgerError, match="run 'run' is finished"):
            run.step(charge=little.charge(little.steps))
        with pytest.raises(AlreadyCommitted):
            run.step(commit=little.commit(1))


def test_a_run_off_its_plan_cannot_finish(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger, plan=events.compose([(COUNTS, 2)]))
        with pytest.raises(LedgerError, match=r"off its plan: it charged 0 of 2 planned DiscreteLaplaceDpEvent"):
            run.finish()
        for step in range(2):
            with pytest.raises(LedgerError, match=rf"it charged {step} of 2 planned DiscreteLaplaceDpEvent"):
                run.finish()
            run.step(charge=Charge(key=f"c/{step}", event=COUNTS, stage="c"))
        with pytest.raises(LedgerError, match=r"'c/2' charges more than was planned: DiscreteLaplaceDpEvent"):
            run.step(charge=Charge(key="c/2", event=COUNTS, stage="c"))
        assert not run.charged("c/2"), "what is not charged must not be sampled"
        assert not run.finished
        run.finish()


def test_begin_resumes_an_equal_run_and_refuses_another(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger, about={"records": 4096, "labels": ("key",)})
        assert little.begin(ledger, about={"labels": ["key"], "records": 4096}).name == run.name
        assert run.about == {"records": 4096, "labels": ["key"]}
        assert (run.adjacency, run.unit, run.plan) == (Adjacency.ADD_REMOVE, Unit(), little.plan)
        assert ledger.entries == 2
        for changes, says in (
            ({"about": {"records": 4097, "labels": ["key"]}}, "'records'"),
            ({"about": {"labels": ["key"]}}, "'records'"),
            ({"adjacency": Adjacency.REPLACE_ONE}, "adjacency"),
            ({"unit": Unit("user")}, "unit"),
            ({"plan": events.compose([(COUNTS, 1)])}, "plan"),
        ):
            fields: dict[str, Any] = {"about": {"records": 4096, "labels": ["key"]}, **changes}
            with pytest.raises(ValueError, match=f"run 'run' began with another {says}"):
                little.begin(ledger, **fields)
        little.begin(ledger, "second")
        assert ledger.runs() == ["run", "second"]
        assert ledger.run("second").name == "second"
        with pytest.raises(LedgerError, match="no run 'third'; it holds 'run', 'second'"):
            ledger.run("third")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Charge(key="", event=COUNTS, stage="s"), "a key must be"),
        (lambda: Charge(key="s/0", event=COUNTS, stage=""), "a stage must be"),
        (lambda: Charge(key="s/0\n", event=COUNTS, stage="s"), "a key must be"),
        (lambda: Charge(key="x" * 201, event=COUNTS, stage="x"), "a key must be"),
        (lambda: Charge(key="t/0", event=COUNTS, stage="s"), "key 't/0' is of no known stage: it must be 's' or 's/…'"),
        (lambda: Charge(key="s", event=0.1, stage="s"), "a charge needs a DpEvent, not a float"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", parts=("a",)), "must name its partition"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", partition_is_public=True), "must name its partition"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", partition="p"), "must list its parts"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", partition="p", parts=("a", "a")), "must list its parts"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", partition="p", parts=("",)), "a part must be"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", counts=(1, 2)), "one count per part, not 2 for 0"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", counts=(0,)), "whole numbers of at least 1"),
        (lambda: Charge(key="s", event=COUNTS, stage="s", counts=(True,)), "whole numbers of at least 1"),
        (lambda: Commit(key="", value=1), "a key must be"),
        (lambda: Commit(key="s", value=1, realised={"a": [1.0, 2.0]}), "not 2 numbers"),
        (lambda: Commit(key="s", value=1, realised={"a": [1.0, 2.0, -1e-9]}), "finite and at least 0"),
        (lambda: Commit(key="s", value=1, realised={"a": [math.inf, 2.0, 1.0]}), "finite and at least 0"),
        (lambda: Commit(key="s", value=1, realised={"a": [math.nan, 2.0, 1.0]}), "finite and at least 0"),
        (lambda: Commit(key="s", value=1, realised={"a": [np.float32(1), 2.0, 1.0]}), "must be a float, not a float32"),  # type: ignore[list-item]
    ],
)
def test_impossible_entries_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(LedgerError, match=re.escape(says)):
        make()


def test_impossible_steps_are_refused(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        with pytest.raises(LedgerError, match="the name of a run must be"):
            little.begin(ledger, "")
        run = little.begin(ledger)
        with pytest.raises(LedgerError, match="needs a commit, a charge or both"):
            run.step()
        with pytest.raises(LedgerError, match="commit of 'tokens/0' without a charge"):
            run.step(commit=little.commit(0), charge=little.charge(0))
        assert not run.charged("tokens/0")
        run.step(charge=little.charge(0))
        with pytest.raises(LedgerError, match="part 'slot-9', which was not charged"):
            run.step(commit=Commit(key="tokens/0", value=1, realised={"slot-9": [0.1, 0.1, 0.1]}))
        with pytest.raises(LedgerError, match="above the range that was charged"):
            run.step(commit=Commit(key="tokens/0", value=1, realised={"slot-0": [0.1, 33.334, 0.1]}))
        run.step(commit=Commit(key="tokens/0", value=1, realised={"slot-0": [0.1, SELECTION.range, 0.1]}))

        class Unknown(DpEvent):  # type: ignore[misc]
            pass

        with pytest.raises(ValueError, match="the ledger cannot hold a Unknown"):
            run.step(charge=Charge(key="s", event=Unknown(), stage="s"))
        with pytest.raises(LedgerError, match="not Fraction; convert it first"):
            run.step(charge=Charge(key="s", event=dp_event.DiscreteLaplaceDpEvent(Fraction(1, 10), 1), stage="s"))


def test_numbers_of_numpy_are_charged_as_numbers(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        run.step(charge=Charge(key="s", event=dp_event.DiscreteLaplaceDpEvent(0.1, np.int64(1)), stage="s"))
    with Ledger.open(path) as ledger:
        assert ledger.event() == dp_event.DiscreteLaplaceDpEvent(0.1, 1)


def test_a_part_belongs_to_one_partition(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger, plan=events.compose([(ParallelDpEvent([COUNTS, COUNTS], False), 2)]))
        run.step(charge=Charge(key="s/0", event=COUNTS, stage="s", partition="slots", parts=("a", "b")))
        with pytest.raises(LedgerError, match="entry 4: part 'b' of run 'run' belongs to two partitions"):
            run.step(charge=Charge(key="s/1", event=COUNTS, stage="s", partition="labels", parts=("b",)))
        run.step(charge=Charge(key="s/1", event=COUNTS, stage="s", partition="labels", parts=("c", "d")))
        run.finish()


def test_a_partition_is_public_or_not(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        twice = dp_event.SelfComposedDpEvent(COUNTS, 2)
        run = little.begin(ledger, plan=ParallelDpEvent([twice], True))

        def charge(step: int, public: bool) -> Charge:
            own: dict[str, Any] = {"partition": "p", "parts": ("a",), "partition_is_public": public}
            return Charge(key=f"s/{step}", event=COUNTS, stage="s", **own)

        run.step(charge=charge(0, True))
        with pytest.raises(LedgerError, match="entry 4: partition 'p' of run 'run' is public in one charge only"):
            run.step(charge=charge(1, False))
        run.step(charge=charge(1, True))
        run.finish()


def test_the_example_of_the_guide_runs() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "ledger.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    assert len(examples) == 1
    names: dict[str, Any] = {}
    exec(examples[0], names)  # noqa: S102  # our own text
    assert len(names["head"]) == 64
