"""The file of a ledger: an append-only SQLite table, safe against kills and concurrent writers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import secrets
import sqlite3
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dpassay.accounting.ledger.chain import ChainCheck
from dpassay.accounting.ledger.entries import (
    FORMAT,
    FORMATS,
    GENESIS,
    KINDS_AFTER_FINISH,
    LedgerError,
    LedgerFileError,
    LedgerRow,
    canonical,
)

_APPLICATION = int.from_bytes(b"cupl", "big")

# Triggers keep the table append-only for every SQLite client, including `INSERT OR REPLACE`: a replacement needs an
# existing seq. The index finds the charge and the commit of a key.
_SCHEMA = """
CREATE TABLE entries(
    seq INTEGER PRIMARY KEY,
    run TEXT NOT NULL,
    kind TEXT NOT NULL,
    body TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE UNIQUE INDEX entries_by_key ON entries(run, kind, json_extract(body, '$.key'));
CREATE TRIGGER entries_never_change BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER entries_never_go BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
CREATE TRIGGER entries_follow_the_last BEFORE INSERT ON entries
WHEN NEW.seq IS NOT (SELECT coalesce(max(seq), 0) + 1 FROM entries)
BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END;
"""

_NO_RIGHTS = "the ledger cannot be written or opened here; check the rights of the file and its folder"
_INSERT = f"INSERT INTO entries VALUES ({', '.join('?' * len(LedgerRow._fields))})"


class Store:
    """An open ledger file, made by `Store.open`. Every read and every append of a ledger goes through it.

    Opening verifies all entries and stores their hashes, 32 bytes each. Whatever is read later is hashed again and
    compared. Entries of other processes are verified when they are first read, and those of this process before they
    are written.
    """

    def __init__(self, path: Path, database: sqlite3.Connection, *, read_only: bool, timeout: float) -> None:
        self.path = path
        self.read_only = read_only
        self._database: sqlite3.Connection | None = database
        self._timeout = timeout
        self._process = os.getpid()
        self._forget()

    @classmethod
    def open(cls, path: Path, *, create: bool, read_only: bool, timeout: float) -> Store:
        """Opens and verifies the file, or creates it; see `Ledger.open`."""
        with _plain_errors(path, timeout):
            if not path.exists():
                if read_only or not create:
                    raise LedgerError(f"{path}: there is no ledger here")
                _create(path)
            if not path.is_file():
                raise LedgerError(f"{path}: a ledger is a file, such as private/ledger.sqlite in the folder of a run")
            database = _connect(path, read_only=read_only, timeout=timeout)
            store = cls(path, database, read_only=read_only, timeout=timeout)
            try:
                store._check()
                store._verify()
                if not read_only:
                    store._check_writable()
            except BaseException:
                database.close()
                raise
            return store

    @property
    def database(self) -> sqlite3.Connection:
        """The connection. Only the process that opened it may use it: SQLite connections do not survive a fork."""
        if self._database is None:
            raise LedgerError(f"{self.path}: the ledger is closed")
        if os.getpid() != self._process:
            raise LedgerError(f"{self.path}: each process must open the ledger for itself")
        return self._database

    def close(self) -> None:
        """Closes the file. Does nothing if it is closed."""
        if self._database is not None and os.getpid() == self._process:
            self._database.close()
        self._database = None

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything appended inside becomes durable together, or not at all. No other process writes meanwhile."""
        if self.read_only:
            raise LedgerError(f"{self.path}: the ledger is open for reading only")
        database = self.database
        with self.plain_errors():
            database.execute("BEGIN IMMEDIATE")
            try:
                self._catch_up()
                before = self._chain.entries
                try:
                    yield
                    database.execute("COMMIT")
                except BaseException:
                    if self._chain.entries != before:
                        self._forget()  # the appended entries are rolled back; the next read verifies the file again
                    raise
            except BaseException:
                if database.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        database.execute("ROLLBACK")
                raise

    def append(self, run: str, kind: str, body: dict[str, Any]) -> None:
        """Appends one entry inside a `transaction`, to be left if the entry does not follow from the earlier ones."""
        row = LedgerRow.hashed(self._chain.entries + 1, run, kind, canonical(body), self._chain.head)
        try:
            self._append_verified(row)
        except LedgerError as error:
            self._forget()
            raise LedgerError(f"{self.path}: {error}") from None
        self.database.execute(_INSERT, row)
        if kind in KINDS_AFTER_FINISH and (needed := KINDS_AFTER_FINISH[kind]) > self._format():
            self.database.execute(f"PRAGMA user_version = {needed}")  # undone with the entry if it is not committed

    def tip(self) -> tuple[int, str]:
        """The seq and the hash of the last entry."""
        row = self._first("ORDER BY seq DESC LIMIT 1")
        if row is None:
            raise LedgerFileError(f"{self.path}: the entries are gone")
        return row.seq, row.hash

    def hash_of(self, seq: int) -> str | None:
        """The verified hash of the entry with this number; None if there is none."""
        return self._hashes[32 * (seq - 1) : 32 * seq].hex() or None

    def find(self, run: str, kind: str, key: str | None = None) -> dict[str, Any] | None:
        """The body of a run's entry with this kind and key; `key` is None for kinds without one."""
        query = "WHERE run = ? AND kind = ? AND json_extract(body, '$.key') IS ?"
        row = self._first(query, run, kind, key)
        return None if row is None else json.loads(row.body)

    def bodies(self, kind: str, run: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """(run, body) of all entries of a kind, in order, one row at a time; of one run, or of all."""
        for row in self._entries((kind,), run):
            yield row.run, json.loads(row.body)

    def steps(self, run: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kind, body) of the charges and commits of a run, in order, one row at a time."""
        for row in self._entries(("charge", "commit"), run):
            yield row.kind, json.loads(row.body)

    def rows(self) -> Generator[LedgerRow, None, None]:
        """All rows in order, one at a time, unverified; invalid UTF-8 is kept byte by byte."""
        return self._select("ORDER BY seq")

    def _entries(self, kinds: Sequence[str], run: str | None) -> Iterator[LedgerRow]:
        """The verified entries of some kinds, of one run or of all, complete."""
        where = f"WHERE kind IN ({', '.join('?' * len(kinds))})" + ("" if run is None else " AND run = ?")
        result = 0
        for row in self._select(f"{where} ORDER BY seq", *kinds, *([] if run is None else [run])):
            self._verify_row(row)
            result += 1
            yield row
        if result < sum(
            count for (name, kind), count in self._chain.counts.items() if kind in kinds and run in (None, name)
        ):
            raise LedgerFileError(f"{self.path}: entries were taken out while the ledger was open; open it again")

    def _select(self, query: str, *arguments: object) -> Generator[LedgerRow, None, None]:
        columns = ", ".join(f"CAST({name} AS BLOB)" for name in LedgerRow._fields[1:])
        selected = f"SELECT seq, {columns} FROM entries {query}"
        with self.plain_errors(), contextlib.closing(self.database.execute(selected, arguments)) as result:
            for seq, *texts in result:
                yield LedgerRow(seq, *(bytes(text or b"").decode("utf-8", "surrogateescape") for text in texts))

    def _first(self, query: str, *arguments: object) -> LedgerRow | None:
        """The first entry that a query finds, verified."""
        with contextlib.closing(self._select(query, *arguments)) as rows:
            row = next(rows, None)
            if row is not None:
                self._verify_row(row)
            return row

    def _verify_row(self, row: LedgerRow) -> None:
        """Compares a row with its verified hash; a new row is verified now."""
        if row.seq > self._chain.entries:
            self._catch_up()
        if self.hash_of(row.seq) != row.computed_hash():
            raise LedgerFileError(f"{self.path}: entry {row.seq} was changed while the ledger was open; open it again")

    def _catch_up(self) -> None:
        """Verifies the entries that are new since the last read."""
        try:
            first = self._chain.entries + 1 if self._chain.entries else -(2**63)  # a forged entry may have any number
            with contextlib.closing(self._select("WHERE seq >= ? ORDER BY seq", first)) as rows:
                for row in rows:
                    self._append_verified(row)
            self._chain.finish()
        except LedgerError as error:
            self._forget()  # nothing of this file is trusted any more
            raise LedgerError(f"{self.path}: {error}") from None

    def _append_verified(self, row: LedgerRow) -> None:
        self._chain.read(row)
        self._hashes += bytes.fromhex(row.hash)

    def _forget(self) -> None:
        self._chain, self._hashes = ChainCheck(), bytearray()

    def check_file(self) -> None:
        """SQLite's own check of pages and index."""
        with self.plain_errors():
            (answer,) = self.database.execute("PRAGMA integrity_check(1)").fetchone()
        if answer != "ok":
            raise LedgerError(f"{self.path}: the file is damaged: {str(answer).splitlines()[0]}")

    def plain_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turns SQLite's errors into one-line messages."""
        return _plain_errors(self.path, self._timeout)

    def _format(self) -> int:
        (version,) = self.database.execute("PRAGMA user_version").fetchone()
        return int(version)

    def _check(self) -> None:
        """Checks that the file is a ledger of a known format."""
        database = self.database
        (application,) = database.execute("PRAGMA application_id").fetchone()
        if application != _APPLICATION:
            raise LedgerError(f"{self.path}: this file is not a ledger of dpassay")
        if (version := self._format()) not in FORMATS:
            known = " and ".join(map(str, FORMATS))
            raise LedgerError(
                f"{self.path}: a ledger of format {version}; this dpassay reads formats {known}, update it"
            )
        if _schema(database) != _expected_schema():
            raise LedgerError(f"{self.path}: the ledger's tables or triggers were changed")

    def _verify(self) -> None:
        """Verifies the whole file, as it is at one moment."""
        with self.plain_errors():
            self.database.execute("BEGIN")
            self._catch_up()
            self.check_file()
            self.database.execute("COMMIT")

    def _check_writable(self) -> None:
        _make_durable(self.database)
        with self.transaction():
            pass  # fails early if the file cannot be written


def _create(path: Path) -> None:
    """Creates a new ledger under a temporary name and renames it when it is complete, so that a kill leaves no partial
    file.

    Only the owner may read it. Its first entry is a salt, so that the hashes are not a function of the data alone.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
    os.close(descriptor)
    try:
        with contextlib.closing(sqlite3.connect(name, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = WAL")
            _make_durable(database)
            database.execute("BEGIN IMMEDIATE")
            for statement in table_statements():
                database.execute(statement)
            database.execute(f"PRAGMA application_id = {_APPLICATION}")
            database.execute(f"PRAGMA user_version = {FORMAT}")
            database.execute(_INSERT, first_entry())
            database.execute("COMMIT")
        try:
            os.link(name, path)  # unlike a rename, it never replaces another process's ledger
        except OSError:
            if not path.exists():  # a file system without hard links
                os.replace(name, path)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):  # SQLite leaves these if the disk is full
            Path(name + suffix).unlink(missing_ok=True)
    if os.name == "posix":  # the file name must survive a power failure too
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def first_entry() -> LedgerRow:
    body = canonical({"format": FORMAT, "salt": secrets.token_hex(32)})
    return LedgerRow.hashed(1, "", "open", body, GENESIS)


def _make_durable(database: sqlite3.Connection) -> None:
    """A transaction is on disk when COMMIT returns; fullfsync ensures it on macOS."""
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA fullfsync = ON")


def _connect(path: Path, *, read_only: bool, timeout: float) -> sqlite3.Connection:
    """A connection to the file.

    SQLite opens it for writing even for a reader, so that the last process to close the file removes the log and its
    index. If the file or its folder cannot be written and there is no log, no other process writes either, and the file
    is opened as immutable: SQLite would otherwise have to create a log and its index.
    """
    path = path.resolve()
    where = f"file:{quote(str(path))}"
    if not read_only:
        if not os.access(path, os.W_OK):  # SQLite would open it and leave a log that cannot be written
            raise LedgerFileError(f"{path}: {_NO_RIGHTS}")
        return _connected(f"{where}?mode=rw", timeout)
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        database = _connected(f"{where}?mode=rw", timeout)
        database.execute("PRAGMA query_only = ON")
        return database
    log = Path(f"{path}-wal").exists()
    return _connected(f"{where}?mode=ro{'' if log else '&immutable=1'}", timeout)


def _connected(where: str, timeout: float) -> sqlite3.Connection:
    database = sqlite3.connect(where, uri=True, timeout=timeout, isolation_level=None)
    try:
        database.execute("PRAGMA schema_version").fetchone()
    except BaseException:
        database.close()
        raise
    return database


def table_statements() -> list[str]:
    """The statements of the schema; a trigger ends in ``END;``."""
    parts, statement = [], ""
    for line in _SCHEMA.strip().splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            parts.append(statement.strip())
            statement = ""
    return parts


def _schema(database: sqlite3.Connection) -> list[tuple[str, str]]:
    query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
    return [(name, sql) for name, sql in database.execute(query)]


@functools.cache
def _expected_schema() -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        for statement in table_statements():
            database.execute(statement)
        return _schema(database)


@contextlib.contextmanager
def _plain_errors(path: Path, timeout: float) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            message = f"locked by another process for more than {timeout:g} s; end it, or wait and start again"
        elif name.startswith("SQLITE_NOTADB"):
            message = "this file is not a ledger; that of a run is private/ledger.sqlite in its folder"
        elif name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            message = _NO_RIGHTS
        elif name.startswith("SQLITE_FULL"):
            message = "the disk is full; what was committed is kept, make room and start again"
        else:
            what, _, _ = str(error).partition(" with text ")  # what follows is the content of the file
            message = f"the ledger cannot be read or written: {' '.join(what.split())}"
        of_the_file = type(error) in (sqlite3.OperationalError, sqlite3.DatabaseError)  # else a wrong call
        raise (LedgerFileError if of_the_file else LedgerError)(f"{path}: {message}") from error
    except OSError as error:
        raise LedgerFileError(f"{path}: {(error.strerror or str(error)).lower()}") from error
