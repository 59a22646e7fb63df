"""The base class of cupel's errors, and errors of the operating system that name the file they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Adds the path to every `OSError` raised inside, since a failed write to an open file has none.

    Args:
        path: reported in the error, also if the error names another file, such as a partial file beside it.
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
