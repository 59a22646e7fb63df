"""Values of options and arguments complete in a shell, wherever they are of a known set."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest
import typer

from dpassay.accounting.registry import ACCOUNTANTS
from dpassay.cli.app import app

FREE = {
    # files, folders and models
    *("model", "embedder", "base", "scorer"),
    # columns, and words of data
    *("text", "texts", "label", "synthetic_text", "synthetic_label", "id", "ids", "user", "target", "secret", "link"),
    *("ignore", "number", "categorical", "missing", "templates"),
    # numbers in a list
    *("weights", "toeplitz", "blt", "vary"),
    # addresses, hashes, commands and sentences
    *("allow_endpoint", "cluster", "key", "expect", "command", "function", "unprotected", "title", "accept", "run"),
}
"""Texts that can be anything."""

NOT_IN_HELP = {"method", "neighbors", "ids"}
"""Whose help does not list all words."""


def parameters(commands: typer.Typer, path: str = "") -> Iterator[tuple[str, str, Any]]:
    """Of every command: its words, the name of each option or argument that is text, and what typer knows of it."""
    for command in commands.registered_commands:
        run = command.callback
        assert run is not None
        name = f"{path}{command.name or run.__name__}"
        if not hasattr(run, "__signature__"):
            hints = get_type_hints(run, include_extras=True)
        else:
            hints = {key: item.annotation for key, item in inspect.signature(run).parameters.items()}
        for key, hint in hints.items():
            kinds = get_args(hint)
            if kinds and str in (kinds[0], *(part for kind in get_args(kinds[0]) for part in (kind, *get_args(kind)))):
                yield name, key, kinds[1]
    for group in commands.registered_groups:
        inner = group.typer_instance
        assert inner is not None
        yield from parameters(inner, f"{path}{group.name or inner.info.name} ")


TEXTS = {(command, name): of for command, name, of in parameters(app)}
COMPLETED = {key: of for key, of in TEXTS.items() if of.autocompletion is not None}


def test_every_text_completes_or_can_be_anything() -> None:
    assert len(COMPLETED) > 80
    assert {name for _, name in TEXTS.keys() - COMPLETED.keys()} == FREE
    assert {key for key in COMPLETED if key[1] in FREE} == {("claims", "ids")}  # elsewhere they are columns


@pytest.mark.parametrize("key", COMPLETED, ids=" ".join)
def test_words_are_those_of_the_help_and_begin_as_what_was_typed(key: tuple[str, str]) -> None:
    complete = COMPLETED[key].autocompletion
    words = complete("")
    assert words
    assert all(type(word) is str for word in words)
    assert len(set(words)) == len(words)
    if key[1] not in NOT_IN_HELP:
        assert [word for word in words if word not in COMPLETED[key].help] == []
    for word in words:
        assert complete(word[:2]) == [item for item in words if item.startswith(word[:2])]
    assert complete("§") == []


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        ("account", "adjacency", ["add_remove", "replace_one", "zero_out"]),
        ("accountants", "adjacency", ["add_remove", "replace_one", "zero_out", "secret"]),
        ("gate", "unit", ["record", "user"]),
        ("account", "method", list(ACCOUNTANTS)),
        ("compare ledger", "method", list(ACCOUNTANTS)),
        ("compare selection", "method", [*ACCOUNTANTS, "adaptive"]),
        ("compare vectors", "method", ["exact", "analytic", "classical"]),
        ("calibrate dp-sgd", "find", ["noise", "rate", "steps"]),
        ("audit membership text", "attacks", ["ngram", "neighbourhood"]),
        ("audit plan", "kind", ["key", "echo", "table", "edge", "category"]),
        ("audit plan", "separator", ["comma", "semicolon", "tab", "bar", "space"]),
        ("audit runs plan", "unit", ["record"]),
        ("schema", "of", ["claim", "assay", "certificate"]),
    ],
)
def test_the_words_are_known(command: str, name: str, words: list[str]) -> None:
    assert COMPLETED[command, name].autocompletion("") == words


def test_published_claims_are_in_their_order() -> None:
    assert COMPLETED["claims", "ids"].autocompletion("004-1") == ["004-1", "004-10", "004-10b"]


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (["account", "--adjacency", ""], ["add_remove", "replace_one", "zero_out"]),
        (["compare", "dp-sgd", "--method", "p"], ["pld", "prv"]),
        (["schema", "c"], ["claim", "certificate"]),
        (["assay", "pyproject"], []),  # the shell completes files
    ],
)
def test_a_shell_completes_values(typed: list[str], words: list[str]) -> None:
    asked = {"COMP_WORDS": " ".join(["dpassay", *typed]), "COMP_CWORD": str(len(typed))}
    done = subprocess.run(
        [sys.executable, "-m", "dpassay"],
        env={**os.environ, "_DPASSAY_COMPLETE": "complete_bash", **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == words, done.stderr


def test_completion_imports_nothing_slow() -> None:
    lines = (
        "import sys",
        "from dpassay.cli import completion",
        "found = [item('') for item in vars(completion).values() if getattr(item, '__name__', '') == 'beginning']",
        "assert len(found) > 10 and all(found)",
        "assert not {'torch', 'transformers', 'duckdb', 'dp_accounting'} & sys.modules.keys()",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
