"""What every command has: help by two names with an example, `--json`, `--quiet`, and one line for a mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from command import run

from dpassay.cli.app import command_parser


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that is no group, with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from leaves(inner, (*path, name))


COMMANDS = dict(leaves(command_parser()))
each = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def test_there_are_as_many_commands_as_the_groups_say() -> None:
    assert {words[0] for words in COMMANDS} == set(command_parser().commands)
    assert {("report",), ("ledger", "verify"), ("audit", "membership", "text"), ("audit", "runs", "run")} <= set(
        COMMANDS
    )


@pytest.mark.grid
@each
def test_help_has_two_names_and_an_example(words: tuple[str, ...]) -> None:
    long, short = run(*words, "--help"), run(*words, "-h")
    assert (long.returncode, long.stderr) == (0, "")
    assert long.stdout == short.stdout
    said = " ".join(long.stdout.replace("│", " ").split())
    assert "Example: dpassay " + " ".join(words) in said


@each
def test_every_command_speaks_json_and_keeps_quiet(words: tuple[str, ...]) -> None:
    options = {name for parameter in COMMANDS[words].params for name in parameter.opts}
    assert {"--json", "--quiet", "-q"} <= options


@each
def test_a_mistake_is_one_line_that_names_the_help(words: tuple[str, ...]) -> None:
    result = run(*words, "--no-such-option")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("dpassay: ")
    assert result.stderr.endswith(f"See `dpassay {' '.join(words)} --help`.\n")


@each
def test_a_mistake_is_json_where_json_is_asked_for(words: tuple[str, ...]) -> None:
    result = run(*words, "--json", "--no-such-option")
    assert (result.returncode, result.stdout) == (2, "")
    said = json.loads(result.stderr)
    assert said["exit_code"] == 2
    assert "--no-such-option" in said["error"]


@pytest.mark.parametrize(
    "group",
    [(), ("audit",), ("audit", "membership"), ("audit", "runs"), ("compare",), ("calibrate",), ("ledger",), ("table",)],
)
def test_groups_have_help_by_two_names(group: tuple[str, ...]) -> None:
    assert run(*group, "--help").stdout == run(*group, "-h").stdout != ""


def test_the_old_form_of_the_membership_audit_says_what_it_is_now() -> None:
    result = run("audit", "membership", "scores.csv", "--coins")
    assert result.returncode == 2
    for name in ("scores FILE", "model RECORDS --model FOLDER", "text RECORDS --synthetic FILE", "scores.csv"):
        assert name in result.stderr


def test_a_fault_and_an_interruption_are_json_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("dpassay.generators.registry.read_claim", broken)
    said = json.loads(run("assay", "x.yaml", "--json").stderr)
    assert said["exit_code"] == 3
    assert "ZeroDivisionError: a bug" in said["traceback"]

    def interrupt(path: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dpassay.generators.registry.read_claim", interrupt)
    said = json.loads(run("assay", "x.yaml", "--json").stderr)
    assert said == {"error": "interrupted; run the same command again to resume", "exit_code": 130}


def test_a_shell_can_complete_commands() -> None:
    environment = {**os.environ, "_DPASSAY_COMPLETE": "complete_bash", "COMP_WORDS": "dpassay comp", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "dpassay"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["compare"], done.stderr
