"""Verdicts and releases follow the end of a run, in ledgers of both formats."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_forgery import make_format_1, rewrite_chain, stored_rows

from dpassay.accounting.ledger.entries import LedgerError, canonical
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run

VERDICTS = [{"verdict": "UNPROVEN", "audits": ["leave_one_out"]}, {"verdict": "SUPPORTED", "audits": []}]


def format_of(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as database:
        (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def recorded(run: Run) -> None:
    """Two equal verdicts, another one and a release."""
    for body in (VERDICTS[0], VERDICTS[0], VERDICTS[1]):
        run.record_verdict(body)
    run.record_release({"files": {"documents.jsonl": "ab" * 32}})


def test_verdicts_and_releases_come_back_in_order(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.run(ledger)
        charged, other = ledger.event(), little.run(ledger, "other")
        recorded(run)
        other.record_verdict(VERDICTS[1])
    with Ledger.open(path, read_only=True) as ledger:
        run = ledger.run("run")
        assert run.verdicts() == [VERDICTS[0], VERDICTS[0], VERDICTS[1]]
        assert run.releases() == [{"files": {"documents.jsonl": "ab" * 32}}]
        assert ledger.run("other").verdicts() == [VERDICTS[1]]
        assert ledger.event("run") == charged == little.plan
        ledger.verify()
    kinds = [row[2] for row in stored_rows(path)]
    assert kinds[-5:] == ["verdict", "verdict", "verdict", "release", "verdict"]


@pytest.mark.parametrize("record", [Run.record_verdict, Run.record_release])
def test_what_is_no_verdict_or_release_is_refused(little: Any, path: Path, record: Callable[..., None]) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        with pytest.raises(LedgerError, match=r"run 'run' is not finished; a (verdict|release) follows the end"):
            record(run, {})
        assert ledger.entries == 2
        done = little.run(ledger, "done")
        entries = ledger.entries
        for body in ({"key": "counts"}, ["SUPPORTED"], "SUPPORTED", None):
            with pytest.raises(LedgerError, match="must be a JSON object without the name 'key'"):
                record(done, body)
        with pytest.raises(LedgerError, match="convert it first"):
            record(done, {"bound": object()})
        assert ledger.entries == entries
        assert done.verdicts() == done.releases() == []


def test_a_ledger_of_format_1_is_resumed_and_becomes_one_of_format_2_when_it_must(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        run.step(charge=little.charge(0))
    assert format_of(path) == 2
    make_format_1(path)
    assert format_of(path) == 1
    with Ledger.open(path) as ledger:
        run = little.run(ledger)
        assert format_of(path) == 1
        with pytest.raises(LedgerError):
            run.record_verdict({"bound": object()})
        assert format_of(path) == 1
        recorded(run)
        ledger.verify()
    assert format_of(path) == 2
    with Ledger.open(path, read_only=True) as ledger:
        ledger.verify()
        assert len(ledger.run("run").verdicts()) == 3


@pytest.mark.parametrize("kind", ["verdict", "release"])
def test_the_chain_knows_where_verdicts_and_releases_belong(little: Any, path: Path, kind: str) -> None:
    numbers = itertools.count()

    def insert(place: int, kind: str, body: str) -> str:
        """What the chain says of a ledger where the entry at a place is such an entry in place of its own."""
        file = path.with_name(f"{next(numbers)}.sqlite")
        with Ledger.open(file) as ledger:
            run = little.run(ledger)
            run.record_verdict(VERDICTS[0])
        rewrite_chain(file, lambda seq, run, old, text: (run, kind, body) if seq == place else (run, old, text))
        try:
            with Ledger.open(file, read_only=True, anchor=False) as ledger:
                ledger.verify()
        except LedgerError as error:
            return str(error)
        return "verified"

    assert re.search(rf"entry 5: {kind} of a run that was not finished", insert(5, kind, "{}"))
    assert re.search(rf"entry 12: {kind} with a key", insert(12, kind, '{"key":"counts"}'))
    assert re.search(r"entry 12: its body is no canonical JSON object", insert(12, kind, "[]"))
    assert re.search(r"entry 12: opinion in a run that was finished", insert(12, "opinion", "{}"))
    assert re.search(r"entry 5: of unknown kind", insert(5, "opinion", "{}"))
    assert insert(12, kind, "{}") == "verified"


def test_what_a_claim_states_is_recorded_as_it_is_or_refused() -> None:
    """An infinity written as a word would be another value when the run is resumed."""
    assert Basis(stated={"x": [1, 0.5, "a"]}).to_json()["stated"] == {"x": [1, 0.5, "a"]}
    with pytest.raises(LedgerError):
        canonical(Basis(stated={"x": math.inf}).to_json())
