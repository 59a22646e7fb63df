"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """Opens a temporary file beside `path` for writing, with permissions `mode` before the umask. When the block ends,
    it is on the disk and replaces `path`, whose folder must exist.

    If the block raises, `path` stays as it was and the temporary file is removed.

    Raises:
        OSError: if the file cannot be written.
    """
    with _temporary(path, mode, os.replace) as file:
        yield file


@contextlib.contextmanager
def creating(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """As `replacing`, but a file that exists when the block ends is kept: of two processes, the first wins."""
    with _temporary(path, mode, _link) as file:
        yield file


@contextlib.contextmanager
def _temporary(path: Path, mode: int, publish: Callable[[Path, Path], None]) -> Iterator[BinaryIO]:
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
    try:
        with open(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        publish(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _link(partial: Path, path: Path) -> None:
    with contextlib.suppress(FileExistsError):
        os.link(partial, path)
