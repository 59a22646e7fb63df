"""Verifies a ledger, or its export, by its hash chain."""

from __future__ import annotations

from pathlib import Path

from cupel.accounting.ledger.chain import verify_export
from cupel.accounting.ledger.ledger import open_ledgers
from cupel.errors import InputError, input_errors
from cupel.jobs.account import LedgerState


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
            with file.open(encoding="utf-8") as lines:
                return LedgerState(file, head, sum(1 for _ in lines), False, ())
        with open_ledgers([file], anchor=None if anchor is None else Path(anchor)) as (ledger,):
            ledger.verify(expected_head=expect)
            return LedgerState.of(ledger)
