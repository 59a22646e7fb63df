"""Named pipes in the place of files, for whose other end a command would wait for ever."""

from __future__ import annotations

import functools
import os
import stat
import sys

from dpassay.base.errors import InputError


@functools.cache
def refuse_named_pipes() -> None:
    """Makes every later `open` of a named pipe in this process an `InputError`, whichever library opens it.

    Pipes that the shell or the system names (``/dev/stdin``, ``/dev/fd/63``) are open already, and are read.
    """
    sys.addaudithook(_refuse)


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event != "open" or not isinstance(path := arguments[0], str | bytes | os.PathLike):
        return
    name = os.fsdecode(path)
    if name.startswith(("/dev/", "/proc/")):
        return
    try:
        pipe = stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):  # it does not exist, or opening it fails with a message
        return
    if pipe:
        raise InputError(f"{name}: is a named pipe; name a regular file")
