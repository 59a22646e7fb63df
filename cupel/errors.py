"""A user's own mistake, told apart from a fault of the tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
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
        raise InputError(f"{where}{error}") from error
