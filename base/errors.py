"""Errors: of users and of disks, which are one line, and the base class of all that dpassay itself raises."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Adds the path to every `OSError` raised inside, since a failed write to an open file has none; also if the error
    names another file, such as a partial file beside it."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


class DpassayError(ValueError):
    """What dpassay raises of its own accord: bad input, a ledger that does not verify, a budget that is spent.

    It is a `ValueError`, so that code which catches that catches it, too.
    """


class FileError(DpassayError):
    """A file cannot be accessed or written, or is damaged, as on a full disk. Everything committed is kept."""


class InputError(DpassayError):
    """Bad input. The message is one line: what was given, what is allowed, what to do. The command exits 2."""


@contextmanager
def input_errors(where: str = "") -> Iterator[None]:
    """Raises an `InputError`, whose message begins with `where`, for each `ValueError` and `OSError` inside the block.

    Use it only around code whose errors the user can correct. A `ValueError` elsewhere is a bug of dpassay and must
    show its traceback.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise InputError(f"{where}{path}{(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}{message}") from error


_FILE_ERRORS = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""Errors of a full or broken disk, of permissions, and of paths that are not what they should be."""


def file_error(error: Exception) -> str | None:
    """The message for an error whose cause is a disk, the permissions of a file or a path.

    Returns:
        One line that names the file and the cause; None for any other error, which is a bug of dpassay.
    """
    if isinstance(error, FileError):
        return str(error)
    if not isinstance(error, OSError) or error.errno not in _FILE_ERRORS:
        return None
    where = f"{error.filename}: " if error.filename else "a file cannot be written: "
    return f"{where}{(error.strerror or str(error)).lower()}; correct this and run the same command again"
