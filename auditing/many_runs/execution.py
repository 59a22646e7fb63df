"""Runs one command in a folder, until it ends, its time is over, or nobody wants its output any more."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

LOG = "log"
"""The file of what a command prints."""

_POLL = 0.2  # seconds between looks at whether a run is still wanted


def placed(words: Sequence[str], given: Path, made: Path) -> list[str]:
    """The words of a command, with the paths of its input and its output."""
    places = {"{input}": str(given), "{output}": str(made)}
    results = list(words)
    for index, path in places.items():
        results = [word.replace(index, path) for word in results]
    return results


def execute(words: Sequence[str], folder: Path, timeout: float, wanted: Callable[[], bool]) -> str:
    """Runs a command in ``run``, a new folder in another one, where ``log`` gets what it prints, and ends it with all
    that it started.

    Returns:
        Why it failed, or nothing.

    Raises:
        OSError: if it cannot be started.
    """
    (folder / "run").mkdir(mode=0o700)
    with (folder / LOG).open("wb") as log:
        if not wanted():
            return "interrupted"
        process = subprocess.Popen(
            words, cwd=folder / "run", stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return _waited(process, timeout, wanted)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _waited(process: subprocess.Popen[bytes], timeout: float, wanted: Callable[[], bool]) -> str:
    left = timeout
    while wanted():
        part = min(_POLL, left)
        try:
            code = process.wait(part)
        except subprocess.TimeoutExpired:
            left -= part
            if left <= 0:
                return f"it was stopped after {timeout:g} s"
        else:
            return f"exit code {code}" if code else ""
    return "interrupted"
