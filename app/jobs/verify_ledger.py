"""Verifies a ledger, or its export, by its hash chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpassay.accounting.ledger.chain import verify_export
from dpassay.accounting.ledger.entries import Outcome
from dpassay.accounting.ledger.evidence import basis_of_ledger, basis_of_runs
from dpassay.accounting.ledger.ledger import open_ledgers
from dpassay.base.errors import InputError, input_errors
from dpassay.jobs.account import LedgerState


def verify_ledger(path: str | Path, *, expect: str | None = None, anchor: str | Path | None = None) -> LedgerState:
    """Verifies a ledger and returns its state.

    Args:
        path: a ledger (``.sqlite``), or its export (``.jsonl``).
        expect: a head that was printed earlier; it must be the hash of an entry.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.

    Returns:
        The state of the ledger. An export has no anchor, and its unfinished runs are not listed.

    Raises:
        InputError: naming the first bad entry, or the missing head.
    """
    file = Path(path)
    with input_errors():
        if file.suffix == ".jsonl":
            if anchor is not None:
                raise InputError(f"{file}: is an export, which has no anchor; give --expect instead of --anchor")
            head = verify_export(file, expected_head=expect)
            runs, entries = _exported(file)
            basis = basis_of_runs(runs, file.name)
            return LedgerState(file, head, entries, False, (), basis.assumptions, basis.estimates)
        with open_ledgers([file], anchor=None if anchor is None else Path(anchor)) as (ledger,):
            ledger.verify(expected_head=expect)
            return LedgerState.of(ledger, basis_of_ledger(ledger))


def recorded_releases(path: str | Path, *, expect: str, anchor: str | Path | None = None) -> list[dict[str, str]]:
    """The files, name → SHA-256, of every release that a ledger records, or its export; arguments and errors are those
    of `verify_ledger`.
    """
    verify_ledger(path, expect=expect, anchor=anchor)
    file = Path(path)
    with input_errors():
        if file.suffix == ".jsonl":
            bodies = [body for kind, _, body in _entries(file) if kind == "release"]
        else:
            with open_ledgers([file], anchor=None if anchor is None else Path(anchor)) as (ledger,):
                bodies = [body for name in ledger.runs() for body in ledger.run(name).releases()]
    return [dict(body.get("files") or {}) for body in bodies]


@dataclass
class _ExportedRun:
    """A run in an export, as far as its assumptions go."""

    name: str
    about: dict[str, Any]
    _outcomes: dict[str, Outcome] = field(default_factory=dict)
    _verdicts: list[dict[str, Any]] = field(default_factory=list)

    def outcome(self, key: str) -> Outcome | None:
        return self._outcomes.get(key)

    def verdicts(self) -> list[dict[str, Any]]:
        return self._verdicts

    def add(self, kind: str, body: dict[str, Any]) -> None:
        if kind == "commit":
            self._outcomes[body["key"]] = Outcome.from_json(body)
        if kind == "verdict":
            self._verdicts.append(body)


def _exported(file: Path) -> tuple[Sequence[_ExportedRun], int]:
    """The runs of an export that was verified, and its number of entries."""
    runs: dict[str, _ExportedRun] = {}
    entries = 0
    for kind, run, body in _entries(file):
        entries += 1
        if kind == "begin":
            runs[run] = _ExportedRun(run, body["about"])
        elif run in runs:
            runs[run].add(kind, body)
    return list(runs.values()), entries


def _entries(file: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Kind, run and body of every entry of an export."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            yield row["kind"], row["run"], json.loads(row["body"])
