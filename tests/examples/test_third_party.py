"""A whole audit of two small generators, by every kind of canary: the one that remembers is found, the other is not."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import run
from seeded_entropy import seed_entropy

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "third-party"
CONFIDENCE = 0.999999


def audited(kind: str, generator: str, tmp_path: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and result of `bound` after a run of the generator on data with canaries."""
    like = EXAMPLE / ("customers.csv" if kind == "table" else "tickets.jsonl")
    folder, data, synthetic = tmp_path / "audit", tmp_path / f"data{like.suffix}", tmp_path / f"out{like.suffix}"
    plan = ("--kind", kind, "--canaries", 400, "--like", like, "--id", "id", "--epsilon", 1, "--confidence", CONFIDENCE)
    assert run("audit", "plan", *plan, "-o", folder, "-q").returncode == 0
    planted = (folder / f"canaries{like.suffix}").read_text().splitlines(keepends=True)
    data.write_text(like.read_text() + "".join(planted[1 if kind == "table" else 0 :]))
    subprocess.run([sys.executable, EXAMPLE / generator, data, synthetic], check=True)
    scored = run("audit", "score", folder, synthetic, "-q")
    assert (scored.returncode, scored.stderr) == (0, "")
    done = run("audit", "bound", folder, "--json")
    return done.returncode, json.loads(done.stdout)


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["key", "echo", "table"])
def test_a_generator_that_remembers_is_found(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """90 guesses of echoes and rows, and about 180 of keys, are nearly all right; all of 45 show ε = 1.

    Seeded, because the negative control fails by chance with probability at most .001.
    """
    seed_entropy(monkeypatch, 0)
    code, result = audited(kind, "memorises.py", tmp_path)
    audit = result["audit"]
    assert (code, result["refuted"], audit["controls_passed"]) == (1, True, True)
    [bound] = audit["bounds"]
    assert bound["value"] > 1.4
    assert bound["confidence"] == CONFIDENCE
    planted, holdout = audit["rates"]
    assert planted["hits"] > 80
    assert holdout["hits"] <= 3


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["key", "echo", "table"])
def test_a_generator_that_counts_with_noise_is_not(kind: str, tmp_path: Path) -> None:
    """It has ε = 1, so the audit accuses it with probability at most 1e-6."""
    code, result = audited(kind, "counts.py", tmp_path)
    assert (code, result["refuted"]) == (0, False)
    assert all(bound["value"] <= 1 for bound in result["audit"]["bounds"])
    assert result["audit"]["trials"] == 400


def test_the_data_are_those_of_the_script(tmp_path: Path) -> None:
    shutil.copy(EXAMPLE / "make_data.py", tmp_path)
    subprocess.run([sys.executable, tmp_path / "make_data.py"], check=True)
    for name in ("tickets.jsonl", "customers.csv"):
        assert (tmp_path / name).read_bytes() == (EXAMPLE / name).read_bytes()
