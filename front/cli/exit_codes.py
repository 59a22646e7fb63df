"""How a command ends: the exit codes, and what is said where one was interrupted or failed.

Only the standard library is imported, so that this also works while everything else is still being imported.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    REFUTED = 1
    BAD_INPUT = 2
    FAULT = 3
    UNPROVEN = 4
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.DONE: "SUPPORTED; nothing refuted; done",
    ExitCode.REFUTED: "REFUTED (`assay`, `audit`)",
    ExitCode.BAD_INPUT: "bad input, or a file that cannot be written: one line says what to do",
    ExitCode.FAULT: "a fault of cupel's own",
    ExitCode.UNPROVEN: "UNPROVEN (`assay`)",
    ExitCode.INTERRUPTED: "interrupted: one line says whether the same command resumes",
}

IN_HELP = "Exit codes: " + "; ".join(
    f"{code:d} {meaning.replace('; ', ', ').replace('`', '')}" for code, meaning in MEANINGS.items()
)
"""The table in one line, for `--help`."""


def of_verdict(verdict: str) -> ExitCode:
    """The exit code of SUPPORTED, REFUTED or UNPROVEN."""
    codes = {"SUPPORTED": ExitCode.DONE, "REFUTED": ExitCode.REFUTED, "UNPROVEN": ExitCode.UNPROVEN}
    return codes[verdict]


def of_audit(refuted: bool) -> ExitCode:
    """The exit code of an audit, which supports no claim: it refutes one or does not."""
    return ExitCode.REFUTED if refuted else ExitCode.DONE


def interrupted(arguments: Sequence[str]) -> ExitCode:
    """Says in one line that a command was interrupted, and whether it resumes."""
    what = "run the same command again to resume"
    if not _resumes(arguments):
        what = "this command does not resume; run it again from the start"
    exec("")  # noqa: S102 - an interruption inside of `exec` makes CPython exit by the signal, unless another one ends well
    end_of_progress = "\n" if sys.stderr.isatty() else ""
    print(f"{end_of_progress}cupel: interrupted; {what}", file=sys.stderr)
    return ExitCode.INTERRUPTED


def fault() -> ExitCode:
    """Prints the error that is being handled: a fault of the tool must not look like a verdict."""
    traceback.print_exc()
    print("cupel: this is a fault of cupel, not of its input; please report it", file=sys.stderr)
    return ExitCode.FAULT


def _resumes(arguments: Sequence[str]) -> bool:
    """Whether a command keeps what it has done: always, or where an option says so."""
    match arguments:
        case ["assay" | "generate", *_]:
            return True
        case ["audit", "secrets", *options]:
            return _given(options, "-o", "--output")
        case ["audit", "membership", *options]:
            return _given(options, "--model")  # the signals of finished reference models
    return False


def _given(options: Sequence[str], *names: str) -> bool:
    return any(
        option.partition("=")[0] in names or (option[:2] in names and not option.startswith("--")) for option in options
    )
