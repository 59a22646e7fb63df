"""A generator killed at any point goes on where it was, and what it released is what the ledger holds."""

from __future__ import annotations

import functools
import json
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pytest

from cupel.accounting.ledger import Ledger
from cupel.claim import read_claim
from cupel.mechanisms.inference_loop import TOKENS
from cupel.mechanisms.language_model import LanguageModel
from cupel.mechanisms.private_inference import PrivateInference

CLAIM = """
name: tiny
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 2, tokens: 160, prefix: "My 5-digit key is "}
public: {records: 60}
"""


class Command:
    """A run by the command as a person starts it."""

    def __init__(self, claim: Path, output: Path) -> None:
        arguments = [sys.executable, "-m", "cupel", "generate", str(claim), "-o", str(output), "-q"]
        self._process = subprocess.Popen(arguments)

    def over(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> int:
        self._process.kill()
        return self.wait()

    def wait(self) -> int:
        """The exit code; −9 where it was killed."""
        return self._process.wait()


class Forked(Command):
    """The same without loading the libraries anew, which takes most of the time of a run."""

    def __init__(self, claim: Path, output: Path) -> None:
        self._forked = command.start("generate", claim, "-o", output, "-q")

    def over(self) -> bool:
        return not self._forked.is_alive()

    def kill(self) -> int:
        self._forked.kill()
        return self.wait()

    def wait(self) -> int:
        self._forked.join()
        code = self._forked.exitcode
        assert code is not None
        return code


def commits(ledger: Path, of: str = "body") -> list[Any]:
    """The bodies of all committed entries, in order; empty before the ledger exists."""
    if not ledger.exists():
        return []
    try:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as connection:
            query = f"SELECT {of} FROM entries WHERE kind = 'commit' ORDER BY seq"
            return [row[0] for row in connection.execute(query)]
    except sqlite3.OperationalError:
        return []


@functools.cache
def embedded_model() -> LanguageModel:
    return LanguageModel.load(device="cpu")


def released(mechanism: PrivateInference, tokens: list[list[int]]) -> list[dict[str, Any]]:
    """The rows of the release, from the tokens in the ledger, shape (steps, slots), alone."""
    rule = mechanism.end_rule(embedded_model())
    return [
        {"slot": slot, "label": None, "text": mechanism.prefix + rule.text(document)}
        for slot, written in enumerate(zip(*tokens, strict=True))
        for document in rule.split(written)
        if rule.stopped(document)
    ]


def kill_and_resume(tmp_path: Path, points: list[tuple[int, float]], start: Callable[[Path, Path], Command]) -> int:
    """Kills a run at each of some points, lets it finish, and checks it all.

    Args:
        tmp_path: for claim and output.
        points: after how many new commits, and how many seconds later.
        start: starts the command.

    Returns:
        The number of kills that hit a run in progress.
    """
    claim = tmp_path / "claim.yaml"
    claim.write_text(CLAIM)
    output = tmp_path / "run"
    ledger = output / "private" / "ledger.sqlite"
    mechanism = read_claim(claim).generator()
    last = f"{TOKENS}/{mechanism.tokens - 1}"
    kept: list[str] = []
    hits = 0
    for wanted, delay in points:
        process = start(claim, output)
        while not process.over() and len(commits(ledger, of="seq")) < len(kept) + wanted:
            time.sleep(0.005)
        time.sleep(delay)
        code = process.kill()
        assert code in (0, -9)
        hits += code == -9
        now = commits(ledger)
        assert now[: len(kept)] == kept, "what was committed never changes"
        kept = now
        if ledger.exists():
            with Ledger.open(ledger, read_only=True) as opened:
                opened.verify()
                done = "tiny" in opened.runs() and opened.run("tiny").outcome(last) is not None
            assert done or not (output / "private" / "synthetic.jsonl").exists()
    assert start(claim, output).wait() == 0
    with Ledger.open(ledger, read_only=True) as opened:
        opened.verify()
        assert opened.event() == mechanism.plan()
        run = opened.run("tiny")
        tokens = [run.outcome(f"{TOKENS}/{step}").value["tokens"] for step in range(mechanism.tokens)]
    final = commits(ledger)
    assert final[: len(kept)] == kept
    rows = [json.loads(line) for line in (output / "private" / "synthetic.jsonl").read_text().splitlines()]
    assert rows
    assert rows == released(mechanism, tokens)
    return hits


def test_killed_at_three_points(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, [(1, 0.0), (1, 0.05), (1, 0.15)], Command)


@pytest.mark.slow
def test_killed_at_fifty_points(tmp_path: Path) -> None:
    """Eight a run, one to twenty steps apart and up to the length of a step later."""
    generator = random.Random(20261121)
    hits = 0
    for part in range(7):
        folder = tmp_path / str(part)
        folder.mkdir()
        points = [(generator.randint(1, 20), generator.uniform(0, 0.02)) for _ in range(8)]
        hits += kill_and_resume(folder, points, Forked)
    assert hits >= 50, f"only {hits} kills hit a run in progress: make the run longer"
