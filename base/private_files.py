"""Private files: folders that only their owner may read, a lock against other processes, and atomic writes."""

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
from typing import Any

from dpassay.base.atomic_file import creating, replacing
from dpassay.base.errors import InputError, input_errors, naming
from dpassay.base.outputs import check_kind

PRIVATE = "private"
LOCK = "lock"

_PARTIAL_FILE = re.compile(r"[\w.-]+\.\d+-[0-9a-f]{8}\.partial|\.ledger\.sqlite\.\w{8}\.new(-wal|-shm|-journal)?")


def is_partial(path: Path) -> bool:
    """Whether a file is one that a process was writing when it was killed."""
    return _PARTIAL_FILE.fullmatch(path.name) is not None


@contextmanager
def one_process(folder: Path) -> Iterator[None]:
    """Locks ``private/`` of a run against other processes. The operating system frees the lock when this process ends.

    Makes the folder, and removes partial files of killed processes. At the end, folders that were made here and are
    still empty are removed, so that a command that refuses its input leaves nothing. Without POSIX, nothing is locked.

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
    result = path.lstat()
    _check_owner(path, result)
    if result.st_mode & _OTHERS and not stat.S_ISLNK(result.st_mode):
        with naming(path):
            path.chmod(stat.S_IMODE(result.st_mode) & ~_OTHERS)


def _check_owner(path: Path, result: os.stat_result) -> None:
    if result.st_uid != os.geteuid():
        raise InputError(
            f"{path}: belongs to another user, who could read or change what is private; run this as that user, or "
            "name another folder"
        )


def _acquire_lock(folder: Path) -> int:
    """The descriptor of a folder's lock file, which this process now holds."""
    busy = InputError(f"another process is working in {folder.parent}; wait for it, or name another folder")
    path, missing = folder / LOCK, None
    for _ in range(100):
        try:
            make_private(folder)
            lock = os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), 0o600)
        except FileNotFoundError as error:
            missing = error
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
    raise busy if missing is None or folder.parent.is_dir() else missing  # some file systems have no new folders


def _lock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock(descriptor: int) -> None:
    if os.name == "posix":
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_UN)  # also if a child of this process still holds the descriptor
    os.close(descriptor)


def name_instead(given: Path | str) -> str:
    """``; name FOLDER``, if what was given in place of a run's folder is in its folder ``private/``; else nothing."""
    path = Path(given)
    for folder in (path, path.parent):
        if folder.name == PRIVATE and folder.is_dir():
            return f"; name {folder.parent}"
    return ""


def remove_empty(folders: Iterable[Path]) -> None:
    """Removes those of some folders, given innermost first, that are empty."""
    for path in folders:
        with contextlib.suppress(OSError):
            path.rmdir()


def write_parquet(path: Path, rows: Iterable[Sequence[Any]], columns: Mapping[str, str], mode: int = 0o600) -> None:
    """Writes rows as Parquet, atomically; `columns` gives the type of each, such as ``string``, by its name."""
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
