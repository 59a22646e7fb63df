"""The private files of a run: checks, a lock against other processes, and atomic writes."""

from __future__ import annotations

import contextlib
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cupel.accounting.atomic_file import creating, replacing
from cupel.accounting.errors import naming
from cupel.errors import InputError, input_errors
from cupel.io.outputs import check_kind

if TYPE_CHECKING:  # it imports dp_accounting and SciPy's statistics, which take a second
    from cupel.accounting.ledger.ledger import Ledger

LEDGER = "ledger.sqlite"
PRIVATE = "private"
LOCK = "lock"

_FINISHED_RUN_FILES = (
    "synthetic.jsonl",
    "synthetic.parquet",
    "batching-key.txt",
    "cluster-counts.json",
    "vectors.safetensors",
    "assay.json",
    "report.html",
)
_RUN_FILES = (
    *_FINISHED_RUN_FILES,
    "candidates.jsonl",
    "texts.jsonl",
    "canaries.json",
    "control-canaries.json",
    "checkpoints",
    "audits",
)
_PARTIAL_FILE = re.compile(
    rf"({'|'.join(map(re.escape, (*_RUN_FILES, 'seed.txt')))})\.\d+-[0-9a-f]{{8}}\.partial"
    r"|(checkpoint|first)-\d+\.safetensors\.\d+-[0-9a-f]{8}\.partial"
    rf"|\.{re.escape(LEDGER)}\.\w{{8}}\.new(-wal|-shm|-journal)?"
)


def is_partial(path: Path) -> bool:
    """Whether a file is one that a process was writing when it was killed."""
    return _PARTIAL_FILE.fullmatch(path.name) is not None


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Locks a private folder against other processes. The operating system frees the lock when this process ends.

    Makes the folder, and removes partial files of killed processes. At the end, folders that were made here and are
    still empty are removed, so that a command that refuses its input leaves nothing. Without POSIX, nothing is locked.

    Args:
        folder: ``private/`` of a run.

    Raises:
        InputError: if another process holds the lock, or the folder cannot be made or written.
    """
    made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    try:
        with input_errors():
            lock = _acquire_lock(folder)
        try:
            with input_errors():
                for path in folder.rglob("*.*"):
                    if is_partial(path):
                        path.unlink(missing_ok=True)
            yield
        finally:
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink(missing_ok=True)  # before it is unlocked: see `_acquire_lock`
            _unlock(lock)
    finally:
        remove_empty(made)


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
"""The permissions of everyone but the owner."""


def make_private(folder: Path) -> None:
    """Makes a folder that only its owner may read. An existing one is tightened to that, with all that it holds.

    A link in its place is followed, but nothing behind a link is changed. Without POSIX, permissions are left as they
    are.

    Raises:
        InputError: if others could read what is written there: the folder or a part of it is another user's, it is a
            link to one that is open to others, or its disk keeps no permissions.
        OSError: if it cannot be made or tightened.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name != "posix":
        return
    _check_owner(folder, folder.stat())
    if not folder.is_symlink():
        _tighten(folder)
        for path in folder.rglob("*"):
            with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                _tighten(path)
    if folder.stat().st_mode & _OTHERS:
        why = "is a link to a folder that others may read" if folder.is_symlink() else "its disk keeps no permissions"
        raise InputError(
            f"{folder}: {why}, and what is written there is private; make that one private with chmod -R go-rwx, or "
            "name another folder"
        )


def _tighten(path: Path) -> None:
    """Takes the permissions of everyone but the owner away from a file or a folder; a link is left as it is."""
    found = path.lstat()
    _check_owner(path, found)
    if found.st_mode & _OTHERS and not stat.S_ISLNK(found.st_mode):
        with naming(path):
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise InputError(
            f"{path}: belongs to another user, who could read or change what is private; run this as that user, or "
            "name another folder"
        )


def _acquire_lock(folder: Path) -> int:
    """The descriptor of a folder's lock file, which this process now holds."""
    busy = InputError(f"another process is working in {folder.parent}; wait for it, or name another folder")
    path = folder / LOCK
    for _ in range(100):
        try:
            make_private(folder)
            lock = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileNotFoundError:
            continue  # another process has just removed the folder
        try:
            with naming(path):
                _lock(lock)
        except OSError as error:
            os.close(lock)
            raise busy if isinstance(error, BlockingIOError) else error from None
        if os.name != "posix" or os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # its last holder removed the file before unlocking it; another process would lock a new file
    raise busy


def _lock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also if a child of this process still holds the descriptor
    os.close(descriptor)


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes those of some folders, given innermost first, that are empty."""
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def prepare(folder: Path, anchor: Path | None = None, name: str | None = None) -> Path:
    """Makes a private folder, which only its owner may read, with a ledger in it.

    Args:
        folder: ``private/`` of a run, or a folder inside it for the runs of audits.
        anchor: as for `Ledger.open`.
        name: of the run whose files the folder will hold; None for a folder of several runs.

    Returns:
        The path of the ledger.

    Raises:
        InputError: if the folder holds files of a run without its ledger, or of a run with another name, or cannot be
            made.
    """
    check_ledger_is_there(folder)
    ledger = folder / LEDGER
    new = not os.path.lexists(ledger)
    with input_errors():
        make_private(folder)
    try:
        with open_ledger(ledger, anchor) as opened:
            runs = opened.runs()
            finished = any(opened.run(run).finished for run in runs)
    except InputError:
        if new:
            for suffix in ("", "-wal", "-shm"):
                Path(f"{ledger}{suffix}").unlink(missing_ok=True)
        raise
    left = _first_existing(folder, _FINISHED_RUN_FILES)
    if left is not None and not finished:
        raise InputError(f"{left}: {_wrong_ledger(ledger)}")
    shared = ledger.is_symlink()  # with other folders, so it holds their runs, too
    if name is not None and runs and name not in runs and (left is not None or not shared):
        raise InputError(
            f"{folder.parent}: holds the run {runs[0]!r}, whose documents those of {name!r} would replace; name "
            "another folder with -o"
        )
    return ledger


def check_ledger_is_there(folder: Path) -> None:
    """Checks that neither a private folder, nor a released one beside it, holds files of a run without its ledger.

    Raises:
        InputError: if one does; a new ledger would forget the privacy cost of that run.
    """
    ledger = folder / LEDGER
    if ledger.exists():
        return
    left = _first_existing(folder, _RUN_FILES)
    if left is None and folder.name == PRIVATE:
        left = _first_existing(folder.parent / "release", (*_FINISHED_RUN_FILES,))
    if left is not None:
        raise InputError(
            f"{left}: exists without its ledger, {ledger}, so the privacy cost of its run is unknown; restore the "
            "ledger, or start a new run in a new folder"
        )


def _wrong_ledger(ledger: Path) -> str:
    return (
        f"is from a finished run, but {ledger} holds no finished run: it is another ledger, or an older copy; restore "
        "the ledger of that run, or start a new run in a new folder"
    )


def _first_existing(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).exists()), None)


def open_ledger(path: Path, anchor: Path | None = None) -> Ledger:
    """Opens and verifies a ledger; makes one if there is none.

    Args:
        path: the file.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.

    Raises:
        InputError: if the ledger cannot be verified or opened.
    """
    from cupel.accounting.ledger.ledger import Ledger

    with input_errors():
        return Ledger.open(path, anchor=anchor)


@contextmanager
def removed_if_unused(path: Path, anchor: Path | None = None) -> Iterator[None]:
    """Removes a ledger after bad input if it holds no more than the beginning of a run, and nothing lies beside it.

    Nothing was charged or committed then, and a corrected claim can begin in the same folder. Whatever a run has
    written beside its ledger, such as a journal, needs it.
    """
    try:
        yield
    except InputError:
        with contextlib.suppress(InputError, OSError):
            with open_ledger(path, anchor) as ledger:
                unused = ledger.entries <= 2 and not path.is_symlink()  # its salt, and the beginning of a run
            own = [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm")]
            if unused and not set(path.parent.iterdir()) - {*own, path.with_name(LOCK)}:
                for file in own:
                    file.unlink(missing_ok=True)
        raise


def write_parquet(path: Path, rows: Iterable[Sequence[Any]], columns: Mapping[str, str], mode: int = 0o600) -> None:
    """Writes rows as Parquet, atomically.

    Args:
        path: of the file.
        rows: each with a value for every column.
        columns: name → type of Parquet, such as ``string``.
        mode: permissions of the file.
    """
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([(name, pyarrow.type_for_alias(kind)) for name, kind in columns.items()])
    table = pyarrow.Table.from_pylist([dict(zip(columns, row, strict=True)) for row in rows], schema=schema)
    content = io.BytesIO()
    pyarrow.parquet.write_table(table, content)
    write_atomically(path, content.getvalue(), mode)


def write_atomically(path: Path, content: str | bytes, mode: int = 0o600) -> None:
    """Writes a file atomically: to a temporary file beside it, which is synced and then renamed.

    Raises:
        OSError: if it cannot be written; the error names the file.
        InputError: if `path` is a device or a pipe.
    """
    check_kind(path)
    with naming(path), replacing(path, mode) as file:
        file.write(_encoded(content))


def write_private(path: Path, content: str | bytes) -> None:
    """Writes a file atomically that only its owner may read. If it lies in a folder ``private/``, so is this one.

    Raises:
        InputError: if it cannot be written, or others could read the folder (`make_private`).
    """
    with input_errors():
        if path.parent.name == PRIVATE:
            make_private(path.parent)
        write_atomically(path, content)


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder with an empty ``private/``, which becomes `folder` if the block ends well, and goes if not.

    Only its owner may read it. Errors inside the block that a user can correct become an `InputError`.
    """
    partial = folder.with_name(f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}")
    with input_errors():
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.mkdir(mode=0o700)
            (partial / PRIVATE).mkdir(mode=0o700)
            yield partial
            os.replace(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def create_once(path: Path, text: str) -> None:
    """Writes a file atomically unless it exists; of two processes, the first one's file is kept."""
    with naming(path), creating(path) as file:
        file.write(_encoded(text))


def _encoded(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def sync(path: Path) -> None:
    """Waits until the content of a file, or the entries of a folder, are on the disk."""
    folder = path.is_dir()
    if folder and os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY if folder else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
