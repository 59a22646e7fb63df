"""The private files of a run: whose they are, who works on them, and how files are written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cupel.accounting.atomic_file import creating, replacing
from cupel.accounting.errors import naming
from cupel.accounting.ledger.ledger import Ledger
from cupel.errors import InputError, input_errors
from cupel.io.outputs import check_kind

LEDGER = "ledger.sqlite"
PRIVATE = "private"
LOCK = "lock"

_OF_A_FINISHED_RUN = (
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "assay.json",
    "report.html",
)
_OF_A_RUN = (*_OF_A_FINISHED_RUN, "candidates.jsonl", "canaries.json", "control-canaries.json", "audits")
_LEFT_BY_A_KILL = re.compile(
    rf"({'|'.join(map(re.escape, (*_OF_A_RUN, 'seed.txt')))})\.\d+-[0-9a-f]{{8}}\.partial"
    rf"|\.{re.escape(LEDGER)}\.\w{{8}}\.new(-wal|-shm|-journal)?"
)


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Keeps other processes out of a private folder: a lock of the operating system, which ends with this process.

    The folder is made. What a killed process left half-written is removed. Afterwards a folder that was made here and
    stayed empty is removed, so that a command that refuses its input leaves nothing. Without locks of POSIX nobody is
    kept out.

    Args:
        folder: ``private/`` of a run.

    Raises:
        InputError: where another process works there, or the folder cannot be made or written.
    """
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        with input_errors():
            lock = _locked(folder)
        try:
            with input_errors():
                for path in folder.rglob("*.*"):
                    if _LEFT_BY_A_KILL.fullmatch(path.name):
                        path.unlink(missing_ok=True)
            yield
        finally:
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink(missing_ok=True)  # before it is free: see `_locked`
            _unlock(lock)
    finally:
        remove_empty(made)


def _locked(folder: Path) -> int:
    """The descriptor of the lock file of a folder, locked."""
    busy = InputError(f"another process is working in {folder.parent}; wait for it, or name another folder")
    path = folder / LOCK
    for _ in range(100):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileNotFoundError:
            continue  # whoever worked here removed the folder just now
        try:
            with naming(path):
                _lock(lock)
        except OSError as error:
            os.close(lock)
            raise busy if isinstance(error, BlockingIOError) else error from None
        if os.name != "posix" or os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # whoever worked here removed the file before it was free, so that others would lock a new one
    raise busy


def _lock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also where a child of this process holds the descriptor still
    os.close(descriptor)


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes folders, the innermost first, as far as nothing is in them."""
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def prepare(folder: Path, anchor: Path | None = None, name: str | None = None) -> Path:
    """Makes a private folder with a ledger in it, into which only the owner may look.

    Args:
        folder: ``private/`` of a run, or a folder inside it where audits play runs of their own.
        anchor: as for `Ledger.open`.
        name: of the run whose files the folder will hold; None for a folder of several runs.

    Returns:
        The path of the ledger.

    Raises:
        InputError: where files of a run are there without its ledger, or those of a run with another name, or a folder
            cannot be made.
    """
    check_ledger_is_there(folder)
    ledger = folder / LEDGER
    new = not os.path.lexists(ledger)
    with input_errors():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # also where the folder was there before
    try:
        with open_ledger(ledger, anchor) as opened:
            runs = opened.runs()
            finished = any(opened.run(run).finished for run in runs)
    except InputError:
        if new:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{ledger}{suffix}").unlink(missing_ok=True)
        raise
    left = _first(folder, _OF_A_FINISHED_RUN)
    if left is not None and not finished:
        raise InputError(f"{left}: {_of_another_run(ledger)}")
    shared = ledger.is_symlink()  # with other folders, whose runs it holds, too
    if name is not None and runs and name not in runs and (left is not None or not shared):
        raise InputError(
            f"{folder.parent}: holds the run {runs[0]!r}, whose documents those of {name!r} would replace; name "
            "another folder with -o"
        )
    return ledger


def check_ledger_is_there(folder: Path) -> None:
    """That no file of a run lies in a private folder, or in a released one beside it, without the run's ledger.

    Raises:
        InputError: where one does; a new ledger would forget what that run was charged.
    """
    ledger = folder / LEDGER
    if ledger.exists():
        return
    left = _first(folder, _OF_A_RUN)
    if left is None and folder.name == PRIVATE:
        left = _first(folder.parent / "release", (*_OF_A_FINISHED_RUN,))
    if left is not None:
        raise InputError(
            f"{left}: is there without its ledger, {ledger}, so what its run was charged is not known; put the ledger "
            "back, or start a new run in a new folder"
        )


def _of_another_run(ledger: Path) -> str:
    return (
        f"is of a finished run, and {ledger} holds none: it is not the ledger of that run, or an older copy of it; put "
        "the right one back, or start a new run in a new folder"
    )


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def open_ledger(path: Path, anchor: Path | None = None) -> Ledger:
    """Opens a ledger, which verifies it, or makes one.

    Args:
        path: the file.
        anchor: the file that keeps the heads of ledgers; None for the one in the user's state folder.

    Raises:
        InputError: for a ledger that cannot be believed, or cannot be opened.
    """
    with input_errors():
        return Ledger.open(path, anchor=anchor)


def write_parquet(path: Path, rows: Iterable[Sequence[Any]], columns: Mapping[str, str], mode: int = 0o600) -> None:
    """Writes rows as Parquet, the whole file or none.

    Args:
        path: of the file.
        rows: a value for every column each.
        columns: name → type of Parquet, such as ``string``.
        mode: of the file.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    table = pyarrow.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    write_atomically(path, content.getvalue(), mode)


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Writes a whole file or none: to a temporary file beside it, which replaces it when it is on the disk.

    Raises:
        OSError: that names the file.
        InputError: if `path` is a device or a pipe.
    """
    check_kind(path)
    with naming(path), replacing(path, mode) as file:
        file.write(_encoded(content))


def create_once(path: Path, text: str) -> None:
    """Writes a whole file unless one exists; of two processes, the first one's file is kept."""
    with naming(path), creating(path) as file:
        file.write(_encoded(text))


def _encoded(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    folder = path.is_dir()
    if folder and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
