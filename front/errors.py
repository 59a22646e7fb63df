"""A user's own mistake, or what a disk refuses, told apart from a fault of the tool."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from cupel.accounting.errors import CupelError


class InputError(CupelError):
    """Bad input. The message is one line: what was given, what is allowed, what to do. The command exits 2."""


@contextmanager
def input_errors(where: str = "") -> Iterator[None]:
    """Turns what validation and reading raise inside the block into an `InputError`.

    Only code whose errors are the user's to mend belongs inside: a `ValueError` elsewhere is a fault of the tool and
    must show its traceback.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        raise InputError(f"{where}{path}{(error.strerror or str(error)).lower()}") from error
    except ValueError as error:
        said = str(error)
        raise InputError(said if said.startswith(where) else f"{where}{said}") from error


_OF_A_FILE = frozenset(
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
"""What the operating system says of a full or broken disk, of rights, and of a path where another thing lies."""


def file_error(error: Exception) -> str | None:
    """What a command says of an error that the disk, or the rights of a file, are the reason of.

    Returns:
        One line that names the file and the reason; None for any other error, which is a fault of the tool.
    """
    from cupel.accounting.ledger.entries import LedgerFileError  # too slow for a command that ends well

    if isinstance(error, LedgerFileError):
        return str(error)
    if not isinstance(error, OSError) or error.errno not in _OF_A_FILE:
        return None
    where = f"{error.filename}: " if error.filename else "a file cannot be written: "
    return f"{where}{(error.strerror or str(error)).lower()}; mend that and give the same command again"
