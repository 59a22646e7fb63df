"""What somebody who owns a ledger's file can do to it."""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

from dpassay.accounting.ledger.store import table_statements


def stored_rows(path: Path) -> list[tuple[int, str, str, str, str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT seq, run, kind, body, previous, hash FROM entries ORDER BY seq").fetchall()


def tamper(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    """Changes a closed ledger as somebody who owns the file can, and puts its triggers back."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN")
        for statement in table_statements():
            if name := re.match(r"CREATE TRIGGER (\w+)", statement):
                database.execute(f"DROP TRIGGER {name[1]}")
        for sql, arguments in statements:
            database.execute(sql, arguments)
        for statement in table_statements():
            if statement.startswith("CREATE TRIGGER"):
                database.execute(statement)
        database.execute("COMMIT")


def rewrite_chain(path: Path, change: Callable[[int, str, str, str], tuple[str, str, str] | None]) -> None:
    """Writes the file anew with a valid chain; `change` gives (run, kind, body), or None to leave an entry out."""
    changed = (change(*row[:4]) for row in stored_rows(path))
    statements: list[tuple[str, tuple[object, ...]]] = [("DELETE FROM entries", ())]
    previous = "0" * 64
    for seq, (run, kind, body) in enumerate((entry for entry in changed if entry is not None), 1):
        digest = hashlib.sha256(f"{seq}\n{run}\n{kind}\n{previous}\n{body}".encode()).hexdigest()
        statements.append(("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (seq, run, kind, body, previous, digest)))
        previous = digest
    tamper(path, *statements)


def append_forged(path: Path, run: str, kind: str, body: str) -> None:
    """Appends an entry that is well chained, whatever it says."""
    seq, *_, previous = stored_rows(path)[-1]
    digest = hashlib.sha256(f"{seq + 1}\n{run}\n{kind}\n{previous}\n{body}".encode()).hexdigest()
    tamper(path, ("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", (seq + 1, run, kind, body, previous, digest)))


def make_format_1(path: Path) -> None:
    """Turns a closed ledger into what the releases before format 2 wrote."""
    rewrite_chain(path, lambda seq, run, kind, body: (run, kind, body.replace('"format":2', '"format":1')))
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 1")
