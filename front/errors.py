"""Errors of users and of disks, which are one line, and not bugs of cupel, which show their traceback."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from cupel.accounting.errors import CupelError


class InputError(CupelError):
    """Bad input. The message is one line: what was given, what is allowed, what to do. The command exits 2."""


@contextmanager
def input_errors(where: str = "") -> Iterator[None]:
    """Raises an `InputError` for each `ValueError` and `OSError` inside the block.

    Use it only around code whose errors the user can correct. A `ValueError` elsewhere is a bug of cupel and must show
    its traceback.

    Args:
        where: beginning of the message, such as ``"data: "``.
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
        One line that names the file and the cause; None for any other error, which is a bug of cupel.
    """
    from cupel.accounting.ledger.entries import LedgerFileError  # slow to import, and needed after an error only

    if isinstance(error, LedgerFileError):
        return str(error)
    if not isinstance(error, OSError) or error.errno not in _FILE_ERRORS:
        return None
    where = f"{error.filename}: " if error.filename else "a file cannot be written: "
    return f"{where}{(error.strerror or str(error)).lower()}; correct this and run the same command again"
