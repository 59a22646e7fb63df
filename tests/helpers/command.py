"""The command, in this process: a new one takes seconds to load the libraries."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from typing import Any


@dataclass
class Result:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


def plain(stderr: str) -> str:
    """Standard error as it reads without ``--json``: an error that is an object becomes its line."""
    lines = stderr.split("\n")
    for index, line in enumerate(lines):
        if line.startswith('{"error"'):
            lines[index] = f"dpassay: {json.loads(line)['error']}"
    return "\n".join(lines)


def run(*arguments: object) -> Result:
    """`dpassay` with these arguments."""
    from dpassay.cli.app import run_command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([str(argument) for argument in arguments])
    return Result(code, out.getvalue(), err.getvalue())


def written(*arguments: object) -> Any:
    """What `dpassay` writes with these arguments and ``--json``, if it succeeds."""
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)
