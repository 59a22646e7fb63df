"""The exit codes of commands, and the messages of commands that fail or are interrupted.

Imports little but the standard library, so that an interruption is reported even while everything else is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from dpassay.audits.verdict_wording import AUDIT_EXIT, EXIT
from dpassay.base.terminal import one_line


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    REFUTED = 1
    BAD_INPUT = 2
    FAULT = 3
    UNPROVEN = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


MEANINGS = {
    ExitCode.DONE: EXIT["SUPPORTED"],
    ExitCode.REFUTED: EXIT["REFUTED"],
    ExitCode.BAD_INPUT: "bad input, or a file that cannot be written: one line says what to do",
    ExitCode.FAULT: "a fault of dpassay's own",
    ExitCode.UNPROVEN: EXIT["UNPROVEN"],
    ExitCode.INTERRUPTED: "interrupted: one line says whether the same command resumes",
    ExitCode.OUTPUT_CLOSED: "the reader of the output closed it, such as `head`",
}

MEANINGS_FOR_AUDITS: dict[ExitCode, str] = MEANINGS | {
    ExitCode.DONE: AUDIT_EXIT["DONE"],
    ExitCode.REFUTED: AUDIT_EXIT["REFUTED"],
    ExitCode.UNPROVEN: AUDIT_EXIT["NO_CONCLUSION"],
}


def _in_help(meanings: Mapping[ExitCode, str]) -> str:
    return "Exit codes: " + "; ".join(
        f"{code:d} {meaning.replace('; ', ', ').replace('`', '')}" for code, meaning in meanings.items()
    )


IN_HELP = _in_help(MEANINGS)
"""The table in one line, for `--help`."""
IN_AUDIT_HELP = _in_help(MEANINGS_FOR_AUDITS)
"""The same for audits."""


def of_verdict(verdict: str) -> ExitCode:
    """The exit code of SUPPORTED, REFUTED or UNPROVEN."""
    codes = {"SUPPORTED": ExitCode.DONE, "REFUTED": ExitCode.REFUTED, "UNPROVEN": ExitCode.UNPROVEN}
    return codes[verdict]


def of_audit(refuted: bool, concluded: bool) -> ExitCode:
    """The exit code of an audit, which can refute a claim but not support one."""
    if refuted:
        return ExitCode.REFUTED
    return ExitCode.DONE if concluded else ExitCode.UNPROVEN


def interrupted(arguments: Sequence[str]) -> ExitCode:
    """Reports in one line that a command was interrupted, and whether it resumes."""
    what = "run the same command again to resume"
    if not _resumes(arguments):
        what = "this command does not resume; run it again from the start"
    exec("")  # noqa: S102 - an interruption inside of `exec` makes CPython exit by the signal, unless another one ends well
    _say(f"interrupted; {what}", ExitCode.INTERRUPTED, arguments, start="\n" if sys.stderr.isatty() else "")
    return ExitCode.INTERRUPTED


def output_closed() -> bool:
    """Whether nobody reads standard output or standard error any more; what is left to write is then dropped."""
    closed = [stream for stream in (sys.stdout, sys.stderr) if stream is not None and _reader_gone(stream.fileno())]
    for stream in closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return bool(closed)


def _reader_gone(descriptor: int) -> bool:
    watched = select.poll()
    watched.register(descriptor, 0)
    return any(happened & select.POLLERR for _, happened in watched.poll(0))


def bad_input(message: str, arguments: Sequence[str]) -> ExitCode:
    """Reports in one line what is wrong with the input, or which file cannot be written."""
    _say(message, ExitCode.BAD_INPUT, arguments)
    return ExitCode.BAD_INPUT


def fault(arguments: Sequence[str]) -> ExitCode:
    """Prints the error that is being handled as a fault of dpassay, so that it is not taken for a verdict."""
    said = "this is a fault of dpassay, not of its input; please report it"
    if wants_json(arguments):
        _say(said, ExitCode.FAULT, arguments, traceback=traceback.format_exc())
        return ExitCode.FAULT
    with _full_streams():
        traceback.print_exc()
    _say(said, ExitCode.FAULT, arguments)
    return ExitCode.FAULT


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether --json was given, even if the arguments are invalid."""
    options = list(arguments)
    return "--json" in options[: options.index("--")] if "--" in options else "--json" in options


def _say(message: str, code: ExitCode, arguments: Sequence[str], start: str = "", **more: str) -> None:
    """Prints one line to standard error; with --json a JSON object with the message and the exit code."""
    if wants_json(arguments):
        said = json.dumps({"error": one_line(message), "exit_code": int(code), **more})
    else:
        said = one_line(f"dpassay: {message}")
    with _full_streams():
        print(f"{start}{said}", file=sys.stderr)


@contextlib.contextmanager
def _full_streams() -> Iterator[None]:
    """Drops what standard error cannot take, such as a full disk: the exit code is said all the same."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        pass


def _resumes(arguments: Sequence[str]) -> bool:
    """Whether the same command resumes: always, or because of an option."""
    match arguments:
        case ["assay" | "generate", *_]:
            return True
        case ["audit", "secrets", *options]:
            return _given(options, "-o", "--output")
        case ["audit", "runs", "run" | "score", *_]:
            return True
        case ["audit", "membership", "model", *_]:
            return True  # the signals of finished reference models
    return False


def _given(options: Sequence[str], *names: str) -> bool:
    return any(
        option.partition("=")[0] in names or (option[:2] in names and not option.startswith("--")) for option in options
    )
