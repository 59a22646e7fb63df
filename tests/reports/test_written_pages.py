"""Every audit that the command line makes is opened in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from written_pages import PAGES, RESULTS

from dpassay.cli.audit.commands import app

STEPS = {"plan", "run", "score", "bound"}
"""Commands of an audit whose result another command, `report`, draws."""


def commands(group: Any, before: str = "") -> Iterator[str]:
    """The words of every command of a group, those of groups within it included."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"


def test_every_audit_is_opened_in_a_browser() -> None:
    """By `test_browser`: its page, or its result in the report of a claim."""
    opened = {name.partition(":")[0] for name in (*PAGES, *RESULTS)}
    assert opened == {name for name in commands(typer.main.get_command(app)) if name.split()[-1] not in STEPS}
