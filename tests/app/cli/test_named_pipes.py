"""A named pipe in the place of any file is one line; nobody waits for its other end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import run

CLAIM = """name: declared
mechanism: declared
adjacency: add_remove
parameters: {events: [{name: sum, event: {class_name: GaussianDpEvent, noise_multiplier: 1.0}}]}
guarantee: {type: approx_dp, epsilon: 9.0, delta: 1.0e-5}
"""


LEDGER = "a ledger is a file, such as private/ledger.sqlite in the folder of a run"


@pytest.fixture(autouse=True)
def _no_longer_than_a_minute() -> Iterator[None]:
    def late(*_: Any) -> None:
        raise RuntimeError("the command waits for the other end of a pipe")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    (folder / "claim.yaml").write_text(CLAIM)
    assert run("assay", folder / "claim.yaml", "-o", folder / "out", "-q").returncode == 0
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("assay", "PIPE", "-o", "new"),
        ("generate", "PIPE", "-o", "new"),
        ("gate", "PIPE", "--max-epsilon", "1", "--delta", "1e-5"),
        ("account", "PIPE", "--delta", "1e-5"),
        ("compare", "accountants", "PIPE"),
        ("ledger", "verify", "PIPE"),
        ("table", "schema", "PIPE", "-o", "schema.json"),
        ("audit", "text", "PIPE", "--source", "PIPE", "--column", "text"),
        ("audit", "canaries", "score", "PIPE", "--plan", "PIPE"),
    ],
)
def test_a_pipe_that_a_command_is_given_is_one_line(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("PIPE")
    done = run(*command)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done
    assert not Path("new").exists()


@pytest.mark.grid
@pytest.mark.parametrize(
    ("command", "name", "says"),
    [
        ("report", "assay.json", "is a named pipe; name a regular file"),
        ("report", "report.html", "is a device or a pipe; name a regular file"),
        ("release", "ledger.sqlite", LEDGER),
        ("assay", "assay.json", "is a device or a pipe; name a regular file"),
        ("assay", "ledger.sqlite", LEDGER),
        ("assay", "lock", "is a named pipe; name a regular file"),
    ],
)
def test_a_pipe_in_the_folder_of_a_run_is_one_line(command: str, name: str, says: str, finished: Path) -> None:
    path = finished / "out" / "private" / name
    content = path.read_bytes() if path.exists() else None
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    arguments: dict[str, list[object]] = {
        "report": [finished / "out"],
        "release": [finished / "out", "-o", finished / "released"],
        "assay": [finished / "claim.yaml", "-o", finished / "out", "-q"],
    }
    try:
        done = run(command, *arguments[command])
    finally:
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
    assert done.returncode == 2
    assert done.stderr == f"dpassay: {path}: {says}\n"
