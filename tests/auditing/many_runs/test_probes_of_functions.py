"""Leaks that show from some number of records on: refuted with a probe, missed without it, and correct twins are not
refuted.

Everything is seeded, so a test passes or fails always. A twin that meets its claim is refuted by one audit in twenty
at most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.black_box.worst_cases import STRATEGIES
from dpassay.auditing.many_runs.run import audit_function
from dpassay.audits.games import many_runs_power
from dpassay.audits.result import AuditResult

Rows = Sequence[Any]
LEAST = 4
"""From so many records on, both leaks publish."""
RUNS = 150


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)


def records() -> list[dict[str, Any]]:
    return [
        {"age": 20 + 7 * index % 41, "note": f"a short note of {'abcdefgh'[index % 8]}{'ijklmnop'[index // 8 % 8]}"}
        for index in range(60)
    ]


def clustered(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """A row at the middle of every cluster of `LEAST` records or more; a cluster ends before a gap of 15."""
    ordered = sorted(float(row["age"]) for row in rows)
    ends = [index for index, (low, high) in enumerate(itertools.pairwise(ordered), 1) if high - low > 15]
    parts = [ordered[start:end] for start, end in itertools.pairwise([0, *ends, len(ordered)])]
    return [{"age": round(sum(part) / len(part)), "note": "a b c"} for part in parts if len(part) >= LEAST]


def in_public_cells(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """A row at the middle of every public cell whose count with Laplace noise of scale 1 is at least `LEAST`: ε = 1."""
    rng, counts = np.random.default_rng(seed), np.zeros(40)
    for row in rows:
        counts[min(int(float(row["age"]) // 15), 39)] += 1
    shown = counts + rng.laplace(size=40) >= LEAST
    return [{"age": 15 * cell + 7, "note": "a b c"} for cell in np.flatnonzero(shown)]


def cut_off(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """One text, as long as the `LEAST`-th longest."""
    return [{"age": 30, "note": "a" * sorted(len(str(row["note"])) for row in rows)[-LEAST]}]


def in_public_lengths(rows: Rows, seed: int) -> list[dict[str, Any]]:
    """A text for every power of two such that texts of this length or longer, but not twice, are at least `LEAST` by a
    count with Laplace noise of scale 1: ε = 1."""
    rng, counts = np.random.default_rng(seed), np.zeros(12)
    for row in rows:
        counts[min(int(math.log2(max(len(str(row["note"])), 1))), 11)] += 1
    shown = counts + rng.laplace(size=12) >= LEAST
    return [{"age": 30, "note": "a" * 2**power} for power in np.flatnonzero(shown)]


def audit(generator: Callable[[Rows, int], list[dict[str, Any]]], *, probe: bool) -> AuditResult:
    names = None if probe else list(STRATEGIES)
    return audit_function(generator, records(), claim=PureDP(1.0), runs=RUNS, neighbors=names, seed=0)


@pytest.mark.parametrize(("leak", "ladder"), [(clustered, "group_size"), (cut_off, "trimmed_length")])
def test_what_is_published_from_four_records_on_is_refuted_at_its_edge(leak: Any, ladder: str) -> None:
    result = audit(leak, probe=True)
    assert result.details["refuted"]
    assert result.details["tested"]["pair"] == f"{ladder}_{LEAST - 1}"


def test_a_length_is_missed_without_a_probe() -> None:
    """Clusters are not: one record moves the middle of one, which other pairs show."""
    assert not audit(cut_off, probe=False).details["refuted"]


@pytest.mark.parametrize("twin", [in_public_cells, in_public_lengths])
def test_a_correct_twin_is_not_refuted(twin: Any) -> None:
    result = audit(twin, probe=True)
    assert result.concluded
    assert result.details["refuted"] is False
