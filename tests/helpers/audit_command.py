"""`dpassay audit …`, as tests run it: what it prints, or the one line that it is refused with."""

from __future__ import annotations

import json
from typing import Any

import command


def dpassay(*arguments: object) -> command.Result:
    return command.run("audit", *arguments)


def done(*arguments: object, codes: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    """What a command prints as JSON; it must not fail."""
    result = dpassay(*arguments, "--json")
    assert result.returncode in codes, result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def refused(*arguments: object) -> str:
    """The one line that a command is refused with."""
    result = dpassay(*arguments, "-q")
    assert (result.returncode, result.stdout) == (2, ""), (result.stdout, result.stderr)
    [line] = result.stderr.strip().splitlines()
    return line
