"""A little mechanism that writes a whole run into a ledger: noisy counts, then a few tokens for each of three slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.events import ExPostSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run


class LittleMechanism:
    selection = ExPostSelectionDpEvent(33.333333333333336, 1e-12)
    counts = dp_event.DiscreteLaplaceDpEvent(0.1, 1)
    slots = ("slot-0", "slot-1", "slot-2")
    steps = 3
    plan = events.compose([(counts, 1), (ParallelDpEvent([dp_event.SelfComposedDpEvent(selection, 3)] * 3, False), 1)])

    def begin(self, ledger: Ledger, name: str = "run", **changes: Any) -> Run:
        fields = {"plan": self.plan, "adjacency": Adjacency.ADD_REMOVE, "unit": Unit(), "about": {"records": 4096}}
        return ledger.begin(name, **{**fields, **changes})

    def charge(self, step: int, event: DpEvent = selection) -> Charge:
        return Charge(key=f"tokens/{step}", event=event, stage="tokens", partition="slots", parts=self.slots)

    def commit(self, step: int) -> Commit:
        costs = {slot: [0.1 + step / 1024, 0.2, 0.7] for slot in self.slots}
        return Commit(key=f"tokens/{step}", value=[step, step + 1, step + 2], realised=costs)

    def run(self, ledger: Ledger, name: str = "run") -> Run:
        run = self.begin(ledger, name)
        run.step(charge=Charge(key="counts", event=self.counts, stage="counts"))
        commit = Commit(key="counts", value=[5, 7, 6])
        for step in range(self.steps):
            run.step(commit=commit, charge=self.charge(step))
            commit = self.commit(step)
        run.step(commit=commit)
        run.finish()
        return run


@pytest.fixture(scope="session")
def little() -> LittleMechanism:
    return LittleMechanism()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"
