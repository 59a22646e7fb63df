"""Hostile files: every sample, changed at random or on purpose, is read or refused in one line, and runs nothing."""

from __future__ import annotations

import builtins
import functools
import importlib
import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.interop.conditions import Sampler
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Stated, read_as

FILES = sorted(path for path in (Path(__file__).parent / "files").iterdir() if path.name != "answers.json")
GIVEN = [Stated(sampler=sampler, adjacency=Adjacency.REPLACE_ONE, records=1000) for sampler in Sampler]
TOKENS = [
    *(
        "0",
        "-1",
        "1e999",
        "1e-400",
        "1" * 400,
        "-0.0",
        "0.5",
        "2",
        "null",
        "true",
        '"x"',
        "NaN",
        "Infinity",
        "[]",
        "{}",
    ),
    *("[", "]", "{", "}", '"', ",", ":", "(", ")", "=", "é", "\0", "\n", "\\u0000", "e", ".", "-", "DpEvent("),
    *('"os.system"', '"__import__"', '"builtins"', "__import__('os')", '"__function__"', '"type"', '"__tuple__"'),
]


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails at imports by name, at evaluation, and at new processes."""

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError(f"a file made the reader call {args!r:.80}")

    for module, name in (
        (importlib, "import_module"),
        (builtins, "eval"),
        (builtins, "exec"),
        (os, "system"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(module, name, refuse)


def message_of(run: Callable[[], object]) -> str | None:
    """The message of a ValueError, else None; any other exception is an error of the test."""
    try:
        run()
    except ValueError as error:
        return str(error)
    return None


def is_refused(path: Path) -> bool:
    """Whether a file is refused, which must be one line that names it, whatever is stated of it."""
    message = message_of(lambda: read_state(path))
    if message is None:
        state = read_state(path)
        results = [message_of(functools.partial(read_as, state, given)) for given in [Stated(), *GIVEN]]
        assert not any("\n" in item for item in results if item)
        return False
    assert "\n" not in message
    assert message.startswith(str(path))
    assert len(message) < len(str(path)) + 700
    return True


def changed(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:start] + rng.choice(TOKENS) + text[start + rng.choice((0, 1, 1, 2, 5)) :]
            case 1:
                end = min(len(text), start + rng.randrange(1, 60))
                text = text[:start] + text[end:]
            case 2:
                end = min(len(text), start + rng.randrange(1, 60))
                position = rng.randrange(len(text) + 1)
                text = text[:position] + text[start:end] + text[position:]
            case _:
                numbers = [index for index, item in enumerate(text) if item.isdigit()]
                if numbers:
                    position = rng.choice(numbers)
                    text = text[:position] + rng.choice(TOKENS[:15]) + text[position + 1 :]
    return text


def replaced(content: Any, rng: random.Random) -> Any:
    """JSON content with a random value in it replaced by one of another kind."""
    if isinstance(content, dict) and content and rng.random() < 0.9:
        key = rng.choice(sorted(content))
        return content | {key: replaced(content[key], rng)}
    if isinstance(content, list) and content and rng.random() < 0.9:
        position = rng.randrange(len(content))
        return [replaced(item, rng) if index == position else item for index, item in enumerate(content)]
    kinds = [
        None,
        True,
        -1,
        0,
        1,
        2,
        0.5,
        1e308,
        5e-324,
        -0.0,
        10**300,
        "",
        "x",
        "inf",
        [],
        {},
        [[1, 2]],
        {"type": "x"},
    ]
    return rng.choice(kinds)


@pytest.mark.grid
@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_mutations_of_every_sample(tmp_path: Path, path: Path) -> None:
    """90 mutations of the text of each of 31 files, and 40 of the values of each in JSON."""
    rng = random.Random(path.name)
    text = path.read_text(encoding="utf-8")
    refused = 0
    for _ in range(90):
        (tmp_path / "file").write_text(changed(text, rng), encoding="utf-8")
        refused += is_refused(tmp_path / "file")
    if path.suffix == ".json":
        content = json.loads(text)
        for _ in range(40):
            (tmp_path / "file").write_text(json.dumps(replaced(content, rng)), encoding="utf-8")
            refused += is_refused(tmp_path / "file")
    assert refused > 10


def test_there_are_enough_samples() -> None:
    """At least 2000 mutations."""
    assert 90 * len(FILES) + 40 * sum(path.suffix == ".json" for path in FILES) >= 3500


DEEP = 100_000


@pytest.mark.grid
@pytest.mark.usefixtures("nothing_runs")
@pytest.mark.parametrize(
    "content",
    [
        '{"process": ' + '{"type": "Repeated", "count": 2, "inner": ' * 900 + '{"type": "Identity"}' + "}" * 901,
        '{"process": ' + '{"type": "Repeated", "count": 2, "inner": ' * DEEP + "{}" + "}" * (DEEP + 1),
        '{"process": {"type": "Repeated", "count": 340282366920938463463374607431768211456, "inner": {"type": '
        '"Repeated", "count": 3, "inner": {"type": "Gaussian", "noise_multiplier": 1}}}}',
        '{"__function__": "make_composition", "__module__": "combinators", "__kwargs__": {"measurements": ['
        + '{"__function__": "make_composition", "__module__": "os", "__kwargs__": {"measurements": [' * 200
        + "]}}" * 201,
        '{"__function__": "system", "__module__": "os", "__kwargs__": {"command": "touch x"}}',
        '{"__function__": "make_laplace", "__module__": "os", "__kwargs__": []}',
        '{"__function__": ["make_laplace"], "__module__": "measurements"}',
        '{"iterations": 1, "expected_participations": 1, "strategy": [' + "1," * 200_000 + "1]}",
        '{"iterations": 1, "expected_participations": 1, "strategy": [1e308, 1e308], "noise_multiplier": 1}',
        '{"iterations": 10, "expected_participations": 1e308, "strategy": [1e-320], "noise_multiplier": 1e-320}',
        '{"steps": [' + "[1, 0]," * 150_000 + "[1, 0]]}",
        '{"steps": [[1e308, 0], [1e308, 0]]}',
        '{"epsilon": 1, "delta": 0, "mechanism": "x", "dp_operations": [{"mechanism_type": "LAPLACE", "sigma": 5e-324'
        "}]}",
        "DiagnosticInformation(" + "f(" * 5000 + ")" * 5000 + ")",
        "DiagnosticInformation(epsilon=1, delta=0, mechanism=__import__('os').system('touch x'), dp_operations=[])",
        "DP epsilon=1, delta=1e-5, noise_multiplier=1, num_iterations=" + "9" * 5000 + ".",
        "DP epsilon=" + "1" * 100_000,
        "DP epsilon=1, delta=1e-5, noise_multiplier=1, num_iterations=1.\n" * 5000,
        '{"config": {"privacy": {"dp_enabled": true, "epsilon": 1' + "0" * 400 + ', "delta": "auto"}}}',
    ],
    ids=range(19),
)
def test_what_would_need_much_or_run_something(tmp_path: Path, content: str) -> None:
    (tmp_path / "file").write_text(content)
    is_refused(tmp_path / "file")
    assert not (Path.cwd() / "x").exists()
