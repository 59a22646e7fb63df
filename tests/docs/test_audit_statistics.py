"""The page on statistics of audits shows what the committed results of the comparison say."""

from __future__ import annotations

import math
from pathlib import Path

import black_box_power as power
import pytest
from black_box_peers import AUDITORS
from seeded_bugs import CASES

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/audit-statistics.md").read_text(encoding="utf-8")
ROWS = power.read(ROOT / "benchmarks/black_box_power.json")


def test_the_tables_of_black_box_audits_are_those_of_the_results() -> None:
    assert power.filled(PAGE, ROWS) == PAGE
    assert power.filled(PAGE, ROWS[1:]) != PAGE
    with pytest.raises(ValueError, match="the page has no"):
        power.filled("", ROWS)


def test_the_results_agree_with_their_counts() -> None:
    """Who was asked at a number of runs was asked about every generator, and kept within that number."""
    asked = {(row["auditor"], row["method"], row["neighbours"], row["runs"]) for row in ROWS}
    assert {auditor for auditor, *_ in asked} <= {"cupel", *AUDITORS}
    for key in asked:
        rows = [row for row in ROWS if (row["auditor"], row["method"], row["neighbours"], row["runs"]) == key]
        assert sorted(row["case"] for row in rows) == sorted(CASES)
    for row in ROWS:
        assert row["ran"] <= row["runs"]
        assert power.with_interval({**row}) == row


def test_the_generators_of_the_page_are_those_that_run() -> None:
    for name, case in CASES.items():
        epsilon = "∞" if math.isinf(case.epsilon) else f"{case.epsilon:g}"
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name.replace('_', ' ')} |")]
        assert line.endswith(f"| `{case.adjacency}` | {epsilon} |")
