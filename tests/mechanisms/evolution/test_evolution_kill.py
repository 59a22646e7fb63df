"""An evolution killed at any point resumes: nothing committed changes, is charged twice or is lost."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import random
import shutil
import sqlite3
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from little_evolution import evolution, evolve_in
from property_settings import number

from dpassay.accounting.ledger.ledger import Ledger

STAGES = {"aug_pe": "votes", "secret_evolution": "release"}
_PRELOADED = [
    "little_evolution",
    "dpassay.accounting.lattice.pairs",
    "opendp.prelude",
    "sklearn.cluster",
    "sklearn.decomposition",
    "sklearn.feature_extraction.text",
]


def start(folder: Path, kind: str) -> BaseProcess:
    """A run in a process of its own, forked from one that has loaded the libraries."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    process = context.Process(target=evolve_in, args=(folder, kind, 0.001))
    process.start()
    return process


def entries(folder: Path) -> list[tuple[str, str]]:
    """Kind and body of all entries so far; empty before the ledger exists."""
    ledger = folder / "ledger.sqlite"
    if not ledger.exists():
        return []
    try:
        with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
            return list(connection.execute("SELECT kind, body FROM entries ORDER BY seq"))
    except sqlite3.OperationalError:
        return []


def whole_lines(folder: Path) -> list[bytes]:
    """The lines of the journal that are complete."""
    journal = folder / "journal.jsonl"
    content = journal.read_bytes() if journal.exists() else b""
    return content[: content.rfind(b"\n") + 1].splitlines()


def kill_and_resume(folder: Path, kind: str, points: list[tuple[int, float]]) -> int:
    """Kills a run after so many new entries and some seconds, for each of some points; lets it finish, and checks it.

    Returns:
        The number of kills that hit a run in progress.
    """
    kept: list[tuple[str, str]] = []
    lines: list[bytes] = []
    hits = 0
    for wanted, delay in points:
        process = start(folder, kind)
        while process.is_alive() and len(entries(folder)) < len(kept) + wanted:
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
        process.join()
        assert process.exitcode in (0, -9)
        hits += process.exitcode == -9
        assert entries(folder)[: len(kept)] == kept, "what is in the ledger never changes"
        assert whole_lines(folder)[: len(lines)] == lines, "nor what is in the journal"
        kept, lines = entries(folder), whole_lines(folder)
    evolve_in(folder, kind)
    assert entries(folder)[: len(kept)] == kept
    mechanism = evolution(kind)
    charges = [json.loads(body)["key"] for name, body in entries(folder) if name == "charge"]
    commits = [json.loads(body)["key"] for name, body in entries(folder) if name == "commit"]
    assert len(set(charges)) == len(charges)
    assert sorted(charges) == sorted(commits)
    steps = [f"{STAGES[kind]}/{step}" for step in range(mechanism.rounds)]
    assert [key for key in charges if "/" in key] == steps
    with Ledger.open(folder / "ledger.sqlite", read_only=True) as ledger:
        ledger.verify()
        assert ledger.run("run").finished
    again = folder / "again"  # the same committed values and no journal: a run that was never interrupted
    again.mkdir()
    shutil.copy(folder / "ledger.sqlite", again / "ledger.sqlite")
    evolve_in(again, kind)
    texts = json.loads((folder / "texts.json").read_text())
    assert len(texts) == mechanism.synthetic * len(mechanism.labels)
    assert json.loads((again / "texts.json").read_text()) == texts
    return hits


@pytest.mark.slow
@pytest.mark.parametrize("kind", STAGES)
def test_killed_at_random_points(kind: str, tmp_path: Path) -> None:
    """Thirty, five a run, up to three entries apart and up to 20 ms later; in `make test` one of the first two."""
    assert kill_and_resume(tmp_path, kind, [(3, 0.0), (2, 0.01)]) >= 1
    generator = random.Random(20261122)
    hits = 0
    for part in range(number(0, 24)):  # some kills come when a run is at its end: how many depends on the machine
        folder = tmp_path / str(part)
        folder.mkdir()
        points = [(generator.randint(1, 3), generator.uniform(0, 0.02)) for _ in range(5)]
        hits += kill_and_resume(folder, kind, points)
        if hits >= 30:
            break
    assert hits >= number(0, 30), f"only {hits} kills hit a run in progress: make the run longer"
