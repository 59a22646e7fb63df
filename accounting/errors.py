"""The base of cupel's errors, and errors of the operating system that say which file they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Names a file in every `OSError` that is raised inside: a failed write to an open file names none.

    Args:
        path: of the file, also where the error names another one, such as a partial file beside it.
    """
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


class CupelError(ValueError):
    """What cupel raises of its own accord: bad input, a ledger that does not verify, a budget that is spent.

    It is a `ValueError`, so that code which catches that catches it, too.
    """
