"""A generator killed at any point goes on where it was, and what it released is what the ledger holds."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cupel.accounting.ledger import Ledger
from cupel.claim import read_claim

CLAIM = """
name: tiny
data: {source: builtin, name: keys}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 7, tokens: 160, prefix: "My 5-digit key is "}
public: {records: 210}
"""


def start(claim: Path, output: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "cupel", "generate", str(claim), "-o", str(output), "-q"]
    return subprocess.Popen(command)


def commits(ledger: Path) -> list[str]:
    """The bodies of all committed entries, in order; empty before the ledger exists."""
    if not ledger.exists():
        return []
    try:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as connection:
            query = "SELECT body FROM entries WHERE kind = 'commit' ORDER BY seq"
            return [row[0] for row in connection.execute(query)]
    except sqlite3.OperationalError:
        return []


def kill_and_resume(tmp_path: Path, delays: list[float]) -> int:
    """Kills a run after each delay (seconds since its first commit), lets it finish, and checks it all.

    Returns:
        The number of kills that hit a run in progress.
    """
    claim = tmp_path / "claim.yaml"
    claim.write_text(CLAIM)
    output = tmp_path / "run"
    ledger = output / "private" / "ledger.sqlite"
    kept: list[str] = []
    hits = 0
    for delay in delays:
        process = start(claim, output)
        while process.poll() is None and len(commits(ledger)) <= len(kept):
            time.sleep(0.01)
        time.sleep(delay)
        hits += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = commits(ledger)
        assert now[: len(kept)] == kept, "what was committed never changes"
        kept = now
        if ledger.exists():
            with Ledger.open(ledger, read_only=True) as opened:
                opened.verify()
        assert not (output / "release" / "synthetic.jsonl").exists() or process.returncode == 0
    assert start(claim, output).wait() == 0
    with Ledger.open(ledger, read_only=True) as opened:
        opened.verify()
        assert opened.event() == read_claim(claim).generator().plan()
    final = commits(ledger)
    assert final[: len(kept)] == kept
    rows = [json.loads(line) for line in (output / "release" / "synthetic.jsonl").read_text().splitlines()]
    assert rows
    return hits


def test_killed_at_three_points(tmp_path: Path) -> None:
    kill_and_resume(tmp_path, [0.0, 0.05, 0.15])


@pytest.mark.slow
def test_killed_at_fifty_points(tmp_path: Path) -> None:
    generator = random.Random(20261121)
    hits = 0
    for part in range(10):
        folder = tmp_path / str(part)
        folder.mkdir()
        hits += kill_and_resume(folder, [generator.uniform(0, 0.5) for _ in range(8)])
    assert hits >= 50, f"only {hits} kills hit a run in progress: make the run longer"
