"""The reference of the command line, from the parsers of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from dpassay.cli.app import command_parser
from dpassay.cli.exit_codes import MEANINGS

INTRODUCTION = """# Command line

Every command has `--help`, which says what is written here. A user's mistake is one line and exit code 2.
`dpassay --install-completion` makes your shell complete commands, options, and values that are of a known set.
"""


def page() -> str:
    """The reference as a page of the site."""
    sections = [INTRODUCTION, "## Exit codes\n", "| code | meaning |", "| --- | --- |"]
    sections += [f"| {code:d} | {_cell(meaning)} |" for code, meaning in MEANINGS.items()]
    for name, command in commands():
        inner = getattr(command, "commands", None)
        sections.append(f"\n{'##' if name.count(' ') == 1 else '###'} {name}\n")
        sections += [command.help or "", ""]
        if inner is None:
            sections += [_usage(name, command), *_parameters(command), *_examples(command)]
    return "\n".join(sections) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Every command and every group of commands: its name, as it is typed, and its parser."""

    def of(name: str, command: Any) -> Iterator[tuple[str, Any]]:
        yield name, command
        for inner, subcommand in getattr(command, "commands", {}).items():
            yield from of(f"{name} {inner}", subcommand)

    for name, command in command_parser().commands.items():
        yield from of(f"dpassay {name}", command)


def options(command: Any) -> list[tuple[str, str]]:
    """The arguments and options of a command: how each is written, and what its help says."""
    context = _context(command)
    records = [item.get_help_record(context) for item in command.params]
    return [record for record in records if record is not None]


def _context(command: Any) -> Any:
    """A command keeps the option for help of its first context, so that is one of the program, which has `-h`."""
    program = command_parser().make_context("dpassay", [], resilient_parsing=True)
    return command.make_context(command.name, [], parent=program, resilient_parsing=True)


def _usage(name: str, command: Any) -> str:
    context = _context(command)
    pieces = [piece for item in command.params for piece in item.get_usage_pieces(context)]
    return f"```text\n{' '.join([name, '[OPTIONS]', *pieces])}\n```\n"


def _parameters(command: Any) -> Iterator[str]:
    if shown := options(command):
        yield "| argument or option | meaning |"
        yield "| --- | --- |"
        yield from (f"| `{name}` | {_cell(meaning)} |" for name, meaning in shown)
        yield ""


def _examples(command: Any) -> Iterator[str]:
    if found := re.findall(r"^(?:Example: )?(dpassay .+)$", command.epilog or "", re.MULTILINE):
        yield "```sh\n" + "\n".join(found) + "\n```\n"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").replace("<", "&lt;")
