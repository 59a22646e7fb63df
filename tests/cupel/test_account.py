"""What ledgers cost together: every accountant's row, the certified enclosure, and what is asked of one only."""

from __future__ import annotations

from pathlib import Path

import pytest
from dp_accounting import DpEvent, dp_event

from cupel.account import account_ledgers, print_table
from cupel.accounting import Adjacency, Rigor, Unit, conversions, events
from cupel.accounting.events import BoundedRangeSelectionDpEvent, ParallelDpEvent
from cupel.accounting.ledger import Charge, Commit, Ledger
from cupel.errors import InputError


def ledger(path: Path, *charged: DpEvent) -> Path:
    """A ledger of one run that charged these events."""
    with Ledger.open(path) as kept:
        plan = events.compose([(event, 1) for event in charged])
        run = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        for place, event in enumerate(charged):
            run.step(charge=Charge(key=f"releases/{place}", event=event, stage="releases"))
            run.step(commit=Commit(key=f"releases/{place}", value=place))
        run.finish()
    return path


def test_the_lattice_is_listed_first_and_encloses_the_exact_value(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """σ = 2 twice and σ = 1 in another ledger are μ² = 1/4 + 1/4 + 1, whose ε(δ) is a closed form."""
    one = ledger(tmp_path / "one.sqlite", *[dp_event.GaussianDpEvent(2.0)] * 2)
    other = ledger(tmp_path / "other.sqlite", dp_event.GaussianDpEvent(1.0))
    found = account_ledgers([one, other], delta=1e-5, method=None)
    exact = conversions.epsilon_from_gdp(1.5**0.5, 1e-5)
    lattice = next(bound for bound in found.bounds if bound.method == "lattice")
    assert lattice.rigor is Rigor.CERTIFIED
    assert lattice.interval is not None
    assert lattice.interval.lower <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= lattice.interval.upper <= exact * (1 + 1e-3)
    assert {bound.method for bound in found.bounds} == {"lattice", "gdp", "zcdp", "rdp", "pld", "prv"}
    print_table(found)
    printed = capsys.readouterr().out
    assert "at least" in printed
    assert "at most" in printed


def test_selections_have_a_bound_without_a_lower_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst case of selections need not be reached by a mechanism, so nothing is enclosed and no column says so."""
    selections = ParallelDpEvent([dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(0.125), 16)] * 3)
    path = ledger(tmp_path / "one.sqlite", selections)
    found = account_ledgers([path], delta=1e-5, method=None)
    at_delta = [bound for bound in found.bounds if bound.delta is not None and bound.rigor is Rigor.CERTIFIED]
    assert min(at_delta, key=lambda bound: bound.value).method == "lattice"
    assert all(bound.interval is None for bound in found.bounds)
    print_table(found)
    assert "at least" not in capsys.readouterr().out


def test_one_method_is_asked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ledger(tmp_path / "one.sqlite", dp_event.LaplaceDpEvent(4.0))
    asked: list[list[str] | None] = []
    from cupel import account

    everything = account.upper_bounds
    monkeypatch.setattr(account, "upper_bounds", lambda *a, **k: asked.append(k["methods"]) or everything(*a, **k))
    found = account_ledgers([path], delta=1e-5, method="basic")
    assert [(bound.method, bound.value) for bound in found.bounds] == [("basic", 0.25)] * 2
    assert asked == [["basic"]] * 2
    with pytest.raises(InputError, match="zcdp has no bound here: give --delta"):
        account_ledgers([path], delta=None, method="zcdp")
    with pytest.raises(InputError, match="secret_protection has no bound here: secret_protection has no bound for"):
        account_ledgers([path], delta=1e-5, method="secret_protection")
