"""The chain of a ledger: what it shows, and what only a printed head shows."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from ledger_forgery import append_forged, rewrite_chain, stored_rows, tamper

from dpassay.accounting.ledger.chain import verify_export
from dpassay.accounting.ledger.entries import LedgerError, canonical
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.store import table_statements

COUNTS = dp_event.DiscreteLaplaceDpEvent(0.1, 1)


def is_json(text: str) -> bool:
    try:
        return bool(json.loads(text)) or True
    except ValueError:
        return False


def refused(path: Path, says: str) -> None:
    """That a ledger is not opened, whether or not it would be written and whether or not it was anchored."""
    ways: list[dict[str, Any]] = [{"read_only": True}, {"read_only": False}, {"read_only": True, "anchor": False}]
    for options in ways:
        with pytest.raises(LedgerError, match=says) as caught:
            Ledger.open(path, **options)
        assert len(str(caught.value).splitlines()) == 1


def test_the_chain_is_what_the_documentation_says(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
        head, entries = ledger.verify(), ledger.entries
        assert head == ledger.head
    previous = "0" * 64
    rows = stored_rows(path)
    for seq, (number, run, kind, body, before, digest) in enumerate(rows, 1):
        assert (number, before) == (seq, previous)
        previous = hashlib.sha256("\n".join([str(seq), run, kind, before, body]).encode()).hexdigest()
        assert digest == previous
        assert canonical(json.loads(body)) == body
    assert (previous, len(rows)) == (head, entries)
    kinds = [row[2] for row in rows]
    assert kinds == ["open", "begin", "charge"] + ["commit", "charge"] * little.steps + ["commit", "finish"]


def test_the_head_is_hidden_by_a_salt(little: Any, tmp_path: Path) -> None:
    """Two ledgers of equal runs have different heads, so that a printed head confirms no guess of the data."""
    salts, heads = set(), set()
    for name in "ab":
        with Ledger.open(tmp_path / name) as ledger:
            little.run(ledger)
            heads.add(ledger.head)
        salts.add(json.loads(stored_rows(tmp_path / name)[0][3])["salt"])
    assert len(heads) == len(salts) == 2
    assert all(len(bytes.fromhex(salt)) == 32 for salt in salts)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = '{}' WHERE seq = 3",
        "DELETE FROM entries WHERE seq = 3",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 3",
        "REPLACE INTO entries VALUES (1, '', 'open', '{}', '', '')",
        "INSERT INTO entries VALUES (99, '', 'open', '{}', '', '')",
        "INSERT INTO entries VALUES (NULL, '', 'open', '{}', '', '')",
    ],
)
def test_the_table_is_append_only(little: Any, path: Path, statement: str) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    before = stored_rows(path)
    with sqlite3.connect(path) as database, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        database.execute(statement)
    assert stored_rows(path) == before


def test_a_changed_byte_anywhere_is_found(little: Any, path: Path, tmp_path: Path) -> None:
    """First, middle and last character of every column of every row; what SQLite would refuse, in the export."""
    copy, export = tmp_path / "copy.sqlite", tmp_path / "export.jsonl"
    with Ledger.open(path) as ledger:
        little.run(ledger)
        ledger.export(export)
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    tried = 0
    for row in stored_rows(path):
        for column, text in zip(("run", "kind", "body", "previous", "hash"), row[1:], strict=True):
            for position in {0, len(text) // 2, max(0, len(text) - 1)}:
                changed = (
                    text[:position] + ("1" if text[position : position + 1] != "1" else "2") + text[position + 1 :]
                )
                forged = [{**line, column: changed} if line["seq"] == row[0] else line for line in lines]
                copy.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in forged))
                with pytest.raises(LedgerError, match=f"entry {row[0]}: "):
                    verify_export(copy.with_suffix(".jsonl"))
                shutil.copy(path, copy)
                update = (f"UPDATE entries SET {column} = ? WHERE seq = ?", (changed, row[0]))
                if column == "body" and not is_json(changed):
                    with pytest.raises(sqlite3.OperationalError, match="malformed JSON"):  # the index reads it
                        tamper(copy, update)
                    continue
                tamper(copy, update)
                tried += 1
                refused(copy, f"entry {row[0]}: ")
    assert tried > 100


def test_a_byte_changed_behind_the_back_of_sqlite_is_found(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    whole = path.read_bytes()
    result = 0
    for row in stored_rows(path):
        start = whole.find(row[3].encode())
        if start < 0:
            continue  # it spans two pages
        result += 1
        for offset in (0, len(row[3]) // 2, len(row[3]) - 1):
            content = bytearray(whole)
            content[start + offset] ^= 1
            path.write_bytes(content)
            refused(path, f"entry {row[0]}: ")
    assert result >= 5


def test_bytes_that_are_no_text_are_found(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    tamper(path, ("UPDATE entries SET run = CAST(x'ff00' AS TEXT) WHERE seq = 5", ()))
    refused(path, "entry 5: ")


def test_a_missing_or_moved_entry_is_found(little: Any, path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
        last = ledger.entries
    copy = tmp_path / "copy.sqlite"
    columns = "run = o.run, kind = o.kind, body = o.body, previous = o.previous, hash = o.hash"
    for seq in range(1, last):  # the last one is another matter, see below
        shutil.copy(path, copy)
        tamper(copy, ("DELETE FROM entries WHERE seq = ?", (seq,)))
        refused(copy, f"entry {seq}: missing")
        shutil.copy(path, copy)
        tamper(
            copy,
            ("DELETE FROM entries WHERE seq = ?", (seq,)),
            ("UPDATE entries SET seq = seq - 1 WHERE seq > ?", (seq,)),
        )
        refused(copy, f"entry {seq}: does not")
        shutil.copy(path, copy)
        tamper(
            copy,
            ("DROP INDEX entries_by_key", ()),
            ("CREATE TEMP TABLE o AS SELECT * FROM entries WHERE seq IN (?, ?)", (seq, seq + 1)),
            (
                f"UPDATE entries SET {columns} FROM o WHERE entries.seq + o.seq = ? AND o.seq != entries.seq",
                (2 * seq + 1,),
            ),
            (next(s for s in table_statements() if "INDEX" in s), ()),
        )
        refused(copy, f"entry {seq}: does not")


def test_a_cut_end_shows_against_a_known_head_only(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger, "first")
        middle = ledger.head
        little.run(ledger, "second")
        head = ledger.head
        # Every head that was ever printed stays in the chain.
        assert ledger.verify(expected_head=middle) == ledger.verify(expected_head=head) == head
        with pytest.raises(LedgerError, match="cut off or rewritten"):
            ledger.verify(expected_head="ab" * 32)
    rows = stored_rows(path)
    tamper(path, ("DELETE FROM entries WHERE seq > ?", (len(rows) - 2,)))
    with Ledger.open(path, anchor=False) as ledger:
        assert ledger.verify() == rows[-3][5]
        assert ledger.verify(expected_head=middle) == rows[-3][5]
        with pytest.raises(LedgerError, match="cut off or rewritten"):
            ledger.verify(expected_head=head)


def test_a_rewritten_chain_shows_against_a_known_head_only(little: Any, path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
        head = ledger.head
    rewrite_chain(path, lambda seq, run, kind, body: (run, kind, body.replace("[5,7,6]", "[5,7,7]")))
    with Ledger.open(path, anchor=False) as ledger:
        result = ledger.run("run").outcome("counts")
        assert result is not None
        assert result.value == [5, 7, 7]
        ledger.verify()
        with pytest.raises(LedgerError, match="cut off or rewritten"):
            ledger.verify(expected_head=head)


def at(number: int, change: Callable[[str, str, str], tuple[str, str, str] | None]) -> Any:
    """A change of one entry alone."""
    return lambda seq, run, kind, body: change(run, kind, body) if seq == number else (run, kind, body)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (at(1, lambda *_: None), "entry 1: the first entry must be of kind open"),
        (at(1, lambda r, k, b: (r, k, b.replace('"format":2', '"format":3'))), "entry 1: an entry of kind open must"),
        (at(2, lambda *_: None), "entry 2: charge in a run that never began"),
        (at(2, lambda r, k, b: (r, "open", b)), "entry 2: an entry of kind open must be the first"),
        (at(2, lambda r, k, b: (r, k, b.replace("add_remove", "add_some"))), "entry 2: not the beginning of a run"),
        (at(3, lambda r, k, b: (r, k, b.replace('"key":"counts"', '"key":"count"'))), "entry 3: not a charge: key"),
        (at(3, lambda r, k, b: (r, "changed", b)), "entry 3: of unknown kind"),
        (at(3, lambda *_: None), "entry 3: commit of 'counts', which was not charged before"),
        (
            at(4, lambda r, k, b: (r, k, b.replace("counts", "tokens/9"))),
            "entry 4: commit of 'tokens/9', which was not",
        ),
        (at(4, lambda r, k, b: (r, k, b.replace(":[", ": ["))), "entry 4: its body is no canonical JSON object"),
        (at(4, lambda r, k, b: (r, k, "[]")), "entry 4: its body is no canonical JSON object"),
        (at(4, lambda r, k, b: (r, k, '{"key":"counts"}')), "entry 4: not a commit"),
        (at(4, lambda r, k, b: ("other", k, b)), "entry 4: commit in a run that never began"),
        (at(6, lambda r, k, b: (r, k, b.replace("[0.1,", "[-0.1,"))), "entry 6: a realised cost"),
        (at(6, lambda r, k, b: (r, k, b.replace("[0.1,", "[66.7,"))), "entry 6: commit 'tokens/0' has a realised cost"),
        (
            at(6, lambda r, k, b: (r, k, b.replace("slot-2", "slot-3"))),
            "entry 6: commit 'tokens/0' has a realised cost for",
        ),
        (
            at(7, lambda r, k, b: (r, k, b.replace('"slot-2"]', '"slot-3"]'))),
            "entry 7: 'tokens/1' charges partition 'slots' more than was planned",
        ),
        (at(11, lambda r, k, b: (r, "begin", b)), "entry 11: a run that began before"),
        (lambda seq, r, k, b: None if seq in (9, 10) else (r, k, b), "entry 9: finish of a run whose charges differ"),
    ],
)
def test_a_well_chained_forgery_must_make_sense_too(little: Any, path: Path, change: Any, says: str) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    rewrite_chain(path, change)
    refused(path, re.escape(says))


def test_entries_after_the_end_of_a_run_and_doubles_are_found(little: Any, path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    rows = stored_rows(path)
    for body, kind, says in (
        (rows[4][3].replace("tokens/0", "tokens/9"), "charge", "charge in a run that was finished"),
        (rows[3][3].replace("counts", "count"), "commit", "commit in a run that was finished"),
    ):
        copy = tmp_path / "copy.sqlite"
        shutil.copy(path, copy)
        with Ledger.open(copy) as ledger:
            with pytest.raises(LedgerError, match=f"entry {len(rows) + 1}: {says}"), ledger._store.transaction():
                ledger._store.append("run", kind, json.loads(body))
            assert ledger.verify() == ledger.head == rows[-1][5], "nothing was written"
        append_forged(copy, "run", kind, body)
        refused(copy, f"entry {len(rows) + 1}: {says}")
    # The index refuses a second charge or commit of a key, so a double needs a file without it: an exported one.
    with Ledger.open(path) as ledger:
        ledger.export(tmp_path / "export.jsonl")
    for number, says in ((5, "'tokens/0' is charged a second time"), (6, "is committed already")):
        lines = [json.loads(line) for line in (tmp_path / "export.jsonl").read_text().splitlines()]
        doubled = [*lines[:number], dict(lines[number - 1])]
        entry = doubled[-1]
        entry["seq"], entry["previous"] = number + 1, lines[number - 1]["hash"]
        text = "\n".join(str(entry[name]) for name in ("seq", "run", "kind", "previous", "body"))
        entry["hash"] = hashlib.sha256(text.encode()).hexdigest()
        (tmp_path / "forged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in doubled))
        with pytest.raises(LedgerError, match=f"entry {number + 1}: .*{says}"):
            verify_export(tmp_path / "forged.jsonl")


def test_an_export_verifies_without_the_ledger(little: Any, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        little.run(ledger)
        ledger.export(target)
        head, entries = ledger.head, ledger.entries
        with pytest.raises(LedgerError, match="this is the ledger itself"):
            ledger.export(path)
        with pytest.raises(LedgerError, match="no such file or directory"):
            ledger.export(tmp_path / "nowhere" / "ledger.jsonl")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    path.unlink()
    assert verify_export(target) == verify_export(target, expected_head=head) == head
    lines = target.read_text().splitlines(keepends=True)
    assert len(lines) == entries
    for text, says in (
        (lines[:3] + lines[4:], "entry 4: missing"),
        ([*lines[:4], lines[4].replace("tokens", "tokenz"), *lines[5:]], "entry 5: was changed"),
        ([*lines[:4], lines[4][:-9] + "\n"], "line 5 is no entry"),
        ([*lines[:4], lines[4].replace('"seq":5', '"seq":"5"')], "line 5 is no entry"),
        ([], "entry 1: missing"),
    ):
        target.write_text("".join(text))
        with pytest.raises(LedgerError, match=says):
            verify_export(target)
    target.write_text("".join(lines[:-1]))
    verify_export(target)
    with pytest.raises(LedgerError, match="cut off or rewritten"):
        verify_export(target, expected_head=head)
    with pytest.raises(LedgerError, match=r"absent\.jsonl: No such file"):
        verify_export(tmp_path / "absent.jsonl")
    target.write_bytes(b"\xff\xfe")
    with pytest.raises(LedgerError, match="not a text in UTF-8"):
        verify_export(target)


def test_a_broken_ledger_is_not_exported(little: Any, path: Path, tmp_path: Path) -> None:
    with Ledger.open(path) as ledger:
        little.run(ledger)
    with Ledger.open(path) as ledger:
        tamper(path, ("DELETE FROM entries WHERE seq = 4", ()))
        with pytest.raises(LedgerError, match="entry 4: missing"):
            ledger.export(tmp_path / "out.jsonl")
    assert sorted(file.suffix for file in tmp_path.iterdir()) == [".sqlite"]
