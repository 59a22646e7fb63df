"""The anchor shows a restored, cut or rewritten ledger, whose chain is whole."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_forgery import rewrite_chain, stored_rows, tamper

from dpassay.accounting.events import ExPostSelectionDpEvent
from dpassay.accounting.ledger.anchor import Anchor
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.ledger import Ledger, open_ledgers


def state() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "dpassay" / "anchors"


def test_a_run_may_end_while_its_ledger_is_opened(little: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process anchors between the verification of the chain and the look at the anchor."""
    read = Anchor.read
    with Ledger.open(path) as writer:

        def read_later(anchor: Anchor, **options: Any) -> Any:
            little.run(writer)
            return read(anchor, **options)

        with monkeypatch.context() as patch:
            patch.setattr(Anchor, "read", read_later)
            with Ledger.open(path, read_only=True) as ledger:
                assert ledger.anchored
                assert ledger.head == writer.head
                assert ledger.entries == 11


@pytest.fixture
def finished(little: Any, path: Path) -> Path:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    return path


def refused(path: Path, **options: Any) -> str:
    messages = set()
    for read_only in (True, False):
        with pytest.raises(LedgerError) as caught:
            Ledger.open(path, read_only=read_only, **options)
        messages.add(str(caught.value))
    (message,) = messages
    assert len(message.splitlines()) == 1
    return message


def event_of(path: Path, **options: Any) -> str:
    with Ledger.open(path, read_only=True, **options) as ledger:
        return repr(ledger.event())


def is_anchored(ledger: Ledger) -> bool:
    """Anew at each call, where mypy takes an attribute to stay as it was."""
    return ledger.anchored


def test_the_end_of_a_run_verdicts_and_releases_are_anchored(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        file = state() / f"{ledger.identity}.json"
        run = little.begin(ledger)
        assert not file.exists()
        assert not is_anchored(ledger)
        ends: list[Callable[[], object]] = [
            lambda: little.run(ledger),
            lambda: run.record_verdict({}),
            lambda: run.record_release({}),
        ]
        for end in ends:
            end()
            assert is_anchored(ledger)
            expected = {ledger.identity: {"entries": ledger.entries, "head": ledger.head}}
            assert json.loads(file.read_text()) == expected
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [stored[0] for stored in stored_rows(path)][-1] == expected[next(iter(expected))]["entries"]
    with Ledger.open(path, read_only=True) as ledger:
        assert ledger.anchored
    with Ledger.open(path, read_only=True, anchor=False) as ledger:
        assert not ledger.anchored
    file.unlink()
    with Ledger.open(path) as ledger:
        assert not is_anchored(ledger)
        little.begin(ledger).finish()  # finished already: nothing is written but the anchor
        assert ledger.anchored
        assert json.loads(file.read_text()) == expected


ETA = repr(ExPostSelectionDpEvent(33.333333333333336).eta)


def smaller(seq: int, run: str, kind: str, body: str) -> tuple[str, str, str]:
    return run, kind, body.replace(ETA, "0.0023").replace("[0.1", "[0.0001").replace(",0.2,0.7]", ",0.0002,0.0007]")


def test_an_edited_event_is_refused_whatever_else_was_edited(finished: Path) -> None:
    """With stale hashes and with new ones in the charges alone by the chain, in plan and charges by the anchor only."""
    rows, original = stored_rows(finished), event_of(finished)
    for row in rows:
        if row[2] in ("begin", "charge") and ETA in row[3]:
            tamper(finished, ("UPDATE entries SET body = ? WHERE seq = ?", (smaller(*row[:4])[2], row[0])))
    assert "entry 2: was changed, its hash is another" in refused(finished)
    assert "entry 2: was changed, its hash is another" in refused(finished, anchor=False)

    restore(finished, rows)
    assert event_of(finished) == original
    for kinds in (("charge",), ("charge", "commit", "finish")):
        rewrite_chain(finished, lambda *row, kinds=kinds: smaller(*row) if row[2] in kinds else row[1:])
        assert "charges partition 'slots' more than was planned" in refused(finished, anchor=False)
        restore(finished, rows)

    rewrite_chain(finished, smaller)
    assert "0.0023" in event_of(finished, anchor=False), "nothing but an anchor shows it"
    message = refused(finished)
    assert "this ledger was rewritten: 11 entries were anchored in" in message
    assert str(state()) in message


def restore(path: Path, rows: list[Any]) -> None:
    rewrite_chain(path, lambda seq, *_: rows[seq - 1][1:4])
    assert stored_rows(path) == rows


def test_an_unfinished_run_that_charged_another_event_than_planned_is_refused(little: Any, path: Path) -> None:
    """Before the end of a run nothing is anchored, and nothing else compares its charges with its plan."""
    with Ledger.open(path) as ledger:
        run = little.begin(ledger)
        run.step(charge=little.charge(0))
        run.step(charge=little.charge(1))
    rewrite_chain(path, lambda *row: smaller(*row) if row[2] == "charge" else row[1:])
    assert "entry 3: 'tokens/0' charges partition 'slots' more than was planned" in refused(path)


def test_a_restored_backup_and_a_cut_end_are_refused(little: Any, finished: Path, tmp_path: Path) -> None:
    backup = tmp_path / "backup.sqlite"
    shutil.copy(finished, backup)
    with Ledger.open(backup) as ledger:
        little.begin(ledger, "unfinished")  # further on than the anchor
        assert ledger.anchored
    shutil.copy(finished, backup)
    with Ledger.open(finished) as ledger:
        little.run(ledger, "second")
        assert ledger.entries == 21
        identity = ledger.identity
    said = refused(backup)
    assert f"this ledger had more entries before: 21 entries were anchored in {state()}" in said
    assert said.endswith(f"{identity}.json, and 11 are here; restore the newer file")
    with Ledger.open(backup, read_only=True, anchor=False) as ledger:
        assert ledger.runs() == ["run"]
    tamper(finished, ("DELETE FROM entries WHERE seq > 19", ()))
    assert "21 entries were anchored" in refused(finished)


def test_one_file_holds_the_anchors_of_several_ledgers(little: Any, tmp_path: Path) -> None:
    file, paths = tmp_path / "anchors.json", [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        with pytest.raises(LedgerError, match="there is no anchor file here"):
            Ledger.open(path, anchor=tmp_path / "nowhere" / "anchors.json")
        with Ledger.open(path, anchor=file) as ledger:
            little.run(ledger)
            assert not (state() / f"{ledger.identity}.json").exists()
    assert len(json.loads(file.read_text())) == 2
    with open_ledgers(paths, anchor=file) as ledgers:
        assert [ledger.anchored for ledger in ledgers] == [True, True]
    with open_ledgers(paths) as ledgers:
        assert [ledger.anchored for ledger in ledgers] == [False, False]
    with pytest.raises(LedgerError, match="there is no anchor file here"):
        Ledger.open(paths[0], read_only=True, anchor=tmp_path / "other.json")
    rewrite_chain(paths[1], smaller)
    Ledger.open(paths[0], anchor=file).close()
    assert "rewritten" in refused(paths[1], anchor=file)


def test_an_anchor_never_moves_backwards(little: Any, path: Path, tmp_path: Path) -> None:
    """A second process may be further on when the first one anchors."""
    file = tmp_path / "anchors.json"
    with Ledger.open(path, anchor=file) as ledger:
        run = little.run(ledger)
        identity = ledger.identity
        further = {identity: {"entries": 99, "head": "ab" * 32}, "cd" * 32: {"entries": 1, "head": "cd" * 32}}
        file.write_text(json.dumps(further))
        run.record_verdict({})
        assert json.loads(file.read_text()) == further
    assert "99 entries were anchored" in refused(path, anchor=file)


HASH = "a" * 64


@pytest.mark.grid
@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{", "null", "7"),
        *map(
            json.dumps,
            (
                {"a": {"entries": 1, "head": HASH}},
                {HASH: 1},
                {HASH: {"entries": 1}},
                {HASH: {"entries": 0, "head": HASH}},
                {HASH: {"entries": True, "head": HASH}},
                {HASH: {"entries": 1, "head": HASH[1:]}},
                {HASH: {"entries": 1, "head": HASH, "more": 1}},
            ),
        ),
    ],
)
def test_a_damaged_anchor_is_refused_and_left_alone(little: Any, path: Path, tmp_path: Path, text: str) -> None:
    file = tmp_path / "anchors.json"
    with Ledger.open(path, anchor=file) as ledger:
        run = little.run(ledger)
        file.write_text(text)
        run.record_verdict({})  # the run is not lost for it
        assert not ledger.anchored
        assert run.verdicts() == [{}]
    assert file.read_text() == text
    assert f"{file}: this file is damaged or holds no anchors of ledgers" in refused(path, anchor=file)


def test_a_home_that_cannot_be_written_loses_no_run(
    little: Any, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("a file, so that no folder can be made in it")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    with Ledger.open(path) as ledger:
        run = little.run(ledger)
        assert run.finished
        assert not ledger.anchored
    with Ledger.open(path, read_only=True) as ledger:
        assert not ledger.anchored
        assert ledger.event() == little.plan


def test_without_a_home_there_is_no_anchor(little: Any, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setattr(Path, "home", staticmethod(no_home))
    with Ledger.open(path) as ledger:
        little.run(ledger)
        assert not ledger.anchored
