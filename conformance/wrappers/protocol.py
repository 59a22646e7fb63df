"""What every wrapper answers (README.md, *The protocol*). It imports nothing but the standard library.

A wrapper is a file with a `TOOL`, which ends with ``sys.exit(main(TOOL))``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ACCEPTED, REJECTED, UNSUPPORTED, BROKEN = 0, 1, 3, 70
"""Exit codes. Every code but the first three says that the program failed, and agrees with no case."""


LIMIT = 20
"""Seconds of processor time for an answer."""


class Rejected(Exception):
    """The program refuses its input; one line that says why."""


class Unsupported(Exception):
    """The program does not do this; one line that says what."""


@dataclass(frozen=True)
class Tool:
    """A program.

    Attributes:
        versions: its name and version, and those of what its answers depend on.
        verify: checks a release: its folder, the public key, the exported ledger; each but the first may be empty.
        epsilon: bounds an ε: the file, δ and the neighbouring relation, both as they were given; "LOWER UPPER" or
            "UPPER".
    """

    versions: Callable[[], str]
    verify: Callable[[Path, str, str], str] | None = None
    epsilon: Callable[[Path, str, str], str] | None = None


def python() -> str:
    """The version of Python."""
    return f"Python {platform.python_version()}"


def answer(tool: Tool, arguments: Sequence[str]) -> tuple[int, str]:
    """The exit code and the line of a command."""
    given = _parser().parse_args(list(arguments))
    try:
        with _limited():
            return _answered(tool, given)
    except Rejected as error:
        return REJECTED, _line(str(error))
    except Unsupported as error:
        return UNSUPPORTED, _line(str(error))
    except Exception as error:
        return BROKEN, _line(f"{type(error).__name__}: {error}")


def _answered(tool: Tool, given: argparse.Namespace) -> tuple[int, str]:
    if given.command == "version":
        return ACCEPTED, tool.versions()
    if given.command == "verify" and tool.verify is not None:
        return ACCEPTED, _line(tool.verify(Path(given.folder), given.key, given.ledger))
    if given.command == "epsilon" and tool.epsilon is not None:
        return ACCEPTED, _line(tool.epsilon(Path(given.file), given.delta, given.adjacency))
    return UNSUPPORTED, str(given.command)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    """Raises a `TimeoutError` in a block that takes longer than `LIMIT`; without POSIX, nothing is limited."""

    def stop(number: int, frame: object) -> None:
        raise TimeoutError(f"no answer in {LIMIT} s of processor time")

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def main(tool: Tool) -> int:
    """Runs the command of a wrapper; its exit code."""
    if sys.argv[1:] != ["batch"]:
        code, line = answer(tool, sys.argv[1:])
        print(line)
        return code
    for command in sys.stdin:
        print(json.dumps(answer(tool, json.loads(command))), flush=True)
    return ACCEPTED


def _line(text: str) -> str:
    return " ".join(text.split())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("version")
    verify = commands.add_parser("verify")
    verify.add_argument("folder")
    verify.add_argument("--key", default="")
    verify.add_argument("--ledger", default="")
    epsilon = commands.add_parser("epsilon")
    epsilon.add_argument("file")
    epsilon.add_argument("--delta", required=True)
    epsilon.add_argument("--adjacency", required=True)
    return parser
