"""The release of marginals in its ledger: what is charged when, what is resumed, and what is refused."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from marginal_tables import SCHEMA, Pretended, neighbours, pretend, table

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.mechanisms.marginals.generator import RELEASE, MarginalRelease, Marginals, ReleaseError
from dpassay.mechanisms.marginals.tables import check_sizes
from dpassay.mechanisms.primitives.charged import RunMismatchError

SMALL = Marginals(rho=0.5, rows=20)


def released(folder: Path, mechanism: Marginals, rows: Table, *, finish: bool = True) -> MarginalRelease:
    """A release in a folder's ledger."""
    folder.mkdir(exist_ok=True)
    with Ledger.open(folder / "ledger.sqlite", anchor=folder / "anchor") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        result = mechanism.generate(rows, run)
        if finish:
            run.finish()
    return result


def charged(folder: Path) -> Any:
    with Ledger.open(folder / "ledger.sqlite", anchor=folder / "anchor") as ledger:
        return ledger.run("run").event()


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_a_run_costs_one_event_of_rho(adjacency: Adjacency, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    mechanism = Marginals(rho=0.25, bins=40, rows=5, adjacency=adjacency)
    result = released(tmp_path, mechanism, table())
    assert len(result.rows) == 5
    assert set(result.rows) <= set(table().rows)
    assert charged(tmp_path) == mechanism.plan() == dp_event.ZCDpEvent(0.25)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE])
def test_neighbours_differ_in_as_many_rows_as_opendp_is_told(adjacency: Adjacency) -> None:
    """The size of the symmetric difference of two multisets of rows, over all neighbours."""
    rows = Counter(table(6).rows)
    others = [Counter(other) for other in neighbours(table(6).rows, adjacency.value)]
    assert (
        max(((rows - other) + (other - rows)).total() for other in others)
        == Marginals(rho=1.0, adjacency=adjacency).contributions
    )


def test_a_release_is_charged_before_it_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Watched(Pretended):
        def release(self) -> Any:
            seen.append(charged(tmp_path))
            return super().release()

    pretend(monkeypatch, Watched)
    released(tmp_path, SMALL, table())
    assert seen == [dp_event.ZCDpEvent(0.5)]


def test_what_is_committed_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    first = released(tmp_path, SMALL, table(), finish=False)

    class Never(Pretended):
        def __init__(self, *args: Any) -> None:
            raise AssertionError("a committed release is not drawn again")

    pretend(monkeypatch, Never)
    again = released(tmp_path, SMALL, table())
    assert again.rows == first.rows
    assert again.marginals == first.marginals
    assert charged(tmp_path) == dp_event.ZCDpEvent(0.5)


def test_an_interrupted_release_is_drawn_anew_under_one_charge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Pretended):
        def release(self) -> Any:
            raise KeyboardInterrupt

    pretend(monkeypatch, Interrupted)
    with pytest.raises(KeyboardInterrupt):
        released(tmp_path, SMALL, table())
    assert charged(tmp_path) == dp_event.ZCDpEvent(0.5)
    pretend(monkeypatch)
    released(tmp_path, SMALL, table())
    assert charged(tmp_path) == dp_event.ZCDpEvent(0.5)


def test_an_error_is_the_outcome_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the message of the error nor anything else of the table is shown, and no second draw is made."""

    class Failing(Pretended):
        def release(self) -> Any:
            raise ArithmeticError("of secret-7 there are 3")

    pretend(monkeypatch, Failing)
    with pytest.raises(
        ReleaseError, match=r"ended with an error of OpenDP or mbi \(ArithmeticError\), and is"
    ) as first:
        released(tmp_path, SMALL, table())
    assert "secret" not in str(first.value)
    pretend(monkeypatch)
    with pytest.raises(ReleaseError) as again:
        released(tmp_path, SMALL, table())
    assert str(again.value) == str(first.value)
    assert charged(tmp_path) == dp_event.ZCDpEvent(0.5)
    with Ledger.open(tmp_path / "ledger.sqlite", anchor=tmp_path / "anchor") as ledger:
        assert not ledger.run("run").finished


@pytest.mark.parametrize("change", ["rows", "schema", "ids"])
def test_a_run_over_another_table_is_not_resumed(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    rows = table()
    released(tmp_path, SMALL, rows, finish=False)
    body = SCHEMA.model_dump(mode="json")
    body["columns"][0]["high"] = 60
    other = {
        "rows": Table(SCHEMA, rows.rows[1:], rows.ids[1:]),
        "schema": Table(Schema.model_validate(body), rows.rows, rows.ids),
        "ids": Table(SCHEMA, rows.rows, rows.ids[::-1]),
    }[change]
    with pytest.raises(RunMismatchError, match="other rows, another schema or parameters"):
        released(tmp_path, SMALL, other)


def test_recorded_noise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenDP draws from the operating system's entropy, whatever a run says."""
    pretend(monkeypatch)
    with Ledger.open(tmp_path / "ledger.sqlite", anchor=tmp_path / "anchor") as ledger:
        about = {"noise": "recorded"}
        run = ledger.begin("run", plan=SMALL.plan(), adjacency=SMALL.adjacency, unit=SMALL.unit, about=about)
        with pytest.raises(ValueError, match="noise 'recorded'"):
            SMALL.generate(table(), run)
        assert not run.charged(RELEASE)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rho": 0.0}, "rho must be above 0"),
        ({"rho": 1e-7}, "rho must be from 1e-06 to 1e"),
        ({"rho": 1e7}, "rho must be from 1e-06 to 1e"),
        ({"method": "mwem"}, "method must be"),
        ({"bins": 1}, "bins must be"),
        ({"degree": 0}, "degree must be"),
        ({"rounds": 0}, "rounds must be"),
        ({"rounds": 1001}, "rounds must be at most 1000, not 1001"),
        ({"rows": 0}, "rows must be"),
        ({"model_megabytes": 0.0}, "model_megabytes must be above 0"),
        ({"seed": -1}, "seed must be"),
        ({"adjacency": Adjacency.ZERO_OUT}, "adjacency must be add_remove or replace_one"),
        ({"unit": Unit("user")}, "unit must be record for marginals"),
    ],
)
def test_bad_parameters_are_named(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Marginals(**({"rho": 1.0} | change))


@pytest.mark.parametrize(
    ("change", "sizes", "says"),
    [
        ({"method": "mst"}, (7, 1), "method mst needs at least 2 columns with two values or more; the schema has 1"),
        ({}, (1, 1), "method aim needs at least 1 columns"),
        (
            {},
            (2000, 3, 2000),
            "the largest marginal has 4000000 cells, and at most 1048576 are allowed; give fewer bins",
        ),
        ({"degree": 3}, (200, 200, 200), "the largest marginal has 8000000 cells"),
        ({}, (1000,) * 20, "all marginals together have 190020000 cells"),
        ({"method": "mst"}, (1000,) * 20, "all marginals together have 190000000 cells"),
    ],
)
def test_schemas_of_the_wrong_size_are_refused(change: dict[str, Any], sizes: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_sizes(Marginals(**({"rho": 1.0} | change)), sizes)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jax", "mbi", "polars"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, name, None)
            with pytest.raises(ValueError, match=rf"{name} is not installed; mechanism marginals needs pip install"):
                SMALL.check(SCHEMA)
