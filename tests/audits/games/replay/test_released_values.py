"""Values that were seen outside against the ledger."""

from __future__ import annotations

import math
from pathlib import Path

from dp_accounting import dp_event

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.audits.games.replay.released_values import ReleasedValue, released_findings

EVENT = dp_event.DiscreteLaplaceDpEvent(0.1, 1)


def run_of(ledger: Ledger) -> Run:
    """Two counts committed, a third charged."""
    plan = dp_event.SelfComposedDpEvent(EVENT, 3)
    run = ledger.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
    charges = [Charge(key=f"counts/{step}", event=EVENT, stage="counts") for step in range(3)]
    for step in range(2):
        run.step(charge=charges[step])
        run.step(commit=Commit(key=f"counts/{step}", value=[step, 7]))
    run.step(charge=charges[2])
    return run


def test_committed_values_are_paid_for_however_often_they_are_seen(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        seen = [ReleasedValue("counts/0", [0, 7]), ReleasedValue("counts/1", (1, 7)), ReleasedValue("counts/0", [0, 7])]
        assert released_findings(run_of(ledger), seen) == []


def test_everything_else_is_found(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        seen = [
            ReleasedValue("counts/1", [1, 7]),
            ReleasedValue("counts/0", [0, 8]),
            ReleasedValue("counts/2", [2, 7]),
            ReleasedValue("counts/3", 1),
            ReleasedValue("counts/0", math.nan),
        ]
        result = released_findings(run_of(ledger), seen)
        assert [(finding.kind, finding.step, finding.measured) for finding in result] == [
            ("charges", 1, "another value, drawn again"),
            ("charges", 2, "a value that was charged and not committed"),
            ("charges", 3, "a value without a charge"),
            ("charges", 4, "a value that no ledger can hold"),
        ]
        assert str(result[0]) == (
            "charges, step 1: declared the committed value of 'counts/0', found another value, drawn again"
        )
