"""The reference of the command line has every command with an example, and what each argument and option means."""

from __future__ import annotations

import inspect
import shlex
from typing import Any

import pytest
from build_site import command_line

from dpassay.cli.app import command_parser

COMMANDS = dict(command_line.commands())
LEAVES = {name: command for name, command in COMMANDS.items() if not hasattr(command, "commands")}
PAGE = command_line.page()


def section(name: str) -> str:
    return PAGE.partition(f"# {name}\n")[2].partition("\n## ")[0].partition("\n### ")[0]


def test_every_command_is_there() -> None:
    assert set(command_parser().commands) == {name.split()[1] for name in COMMANDS}
    assert len(LEAVES) > 40
    for name, command in COMMANDS.items():
        assert f"# {name}\n" in PAGE
        assert command.help, f"{name} says nothing of itself"


@pytest.mark.parametrize("name", LEAVES)
def test_a_command_has_an_example_and_all_that_it_takes(name: str) -> None:
    command: Any = LEAVES[name]
    text = section(name)
    examples = [line for line in text.splitlines() if line.startswith(f"{name} ") and "[OPTIONS]" not in line]
    assert examples or f"```sh\n{name}\n" in text, f"{name} has no example"
    for example in examples:
        assert shlex.split(example, comments=True)[: name.count(" ") + 1] == name.split()
    taken = [item for item in command.params if item.name != "help"]
    assert len(taken) >= len(inspect.signature(inspect.unwrap(command.callback)).parameters)
    assert text.count("\n| `") == len(taken)
    for item in taken:
        for option in item.opts if item.param_type_name == "option" else ():
            assert option in text, f"{name}: {option}"
    for written, meaning in command_line.options(command):
        assert meaning.partition("  [")[0].strip(), f"{name}: {written} lacks a meaning"
