"""The numbers of the page on statistics of audits, and of those that compare audits, are computed or measured."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import black_box_power as power
import numpy as np
import other_audits
import pytest
from black_box_peers import AUDITORS
from other_audit_libraries import BETA, DELTA
from scipy import stats
from seeded_bugs import CASES

from dpassay.audits import statistics
from dpassay.audits.statistics import OneRun, ceiling, detectable_epsilon, detectable_share
from dpassay.base.number_format import format_lower, format_percent, format_upper

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/audit-statistics.md").read_text(encoding="utf-8")
COMPARED = (ROOT / "docs/measurements/black-box-audits.md").read_text(encoding="utf-8")
ROWS = power.read(ROOT / "benchmarks/black_box_power.json")


def test_the_tables_of_black_box_audits_are_those_of_the_results() -> None:
    assert power.filled(COMPARED, ROWS) == COMPARED
    assert power.filled(COMPARED, ROWS[1:]) != COMPARED
    with pytest.raises(ValueError, match="the page has no"):
        power.filled("", ROWS)


def test_the_results_agree_with_their_counts() -> None:
    """Who was asked at a number of runs was asked about every generator, and kept within that number."""
    asked = {(row["auditor"], row["method"], row["neighbours"], row["runs"]) for row in ROWS}
    assert {auditor for auditor, *_ in asked} <= {"dpassay", *AUDITORS}
    for key in asked:
        rows = [row for row in ROWS if (row["auditor"], row["method"], row["neighbours"], row["runs"]) == key]
        assert sorted(row["case"] for row in rows) == sorted(CASES)
    for row in ROWS:
        assert row["ran"] <= row["runs"]
        assert power.with_interval({**row}) == row


def test_the_power_on_the_page_is_computed() -> None:
    names = {name: getattr(statistics, name) for name in dir(statistics)}
    (made,) = re.findall(r"^hundred = .*$", PAGE, flags=re.MULTILINE)
    exec(made, names)  # noqa: S102 (our own documentation)
    calls = r"^((?:chance_to_show|quantile_shown|detectable_epsilon)\(.*\))\s+# ([\d.]+)$"
    stated = re.findall(calls, PAGE, flags=re.MULTILINE)
    assert len(stated) == 6
    for call, value in stated:
        assert f"{eval(call, names):.3g}" == value, call


def test_what_more_assumptions_buy_is_computed() -> None:
    """Lower bounds are printed rounded down, to three digits."""
    names = {name: getattr(statistics, name) for name in dir(statistics)}
    (made,) = re.findall(r"^counts = .*$", PAGE, flags=re.MULTILINE)
    exec(made, names)  # noqa: S102 (our own documentation)
    stated = re.findall(r"^((?:epsilon|mu)_one_run\w*\(\*\*counts.*\)\.value)\s+# ([\d.]+)$", PAGE, flags=re.MULTILINE)
    assert len(stated) == 4
    for call, value in stated:
        assert format_lower(eval(call, names), 3) == value, call


def test_the_leaks_found_half_of_the_time_are_computed() -> None:
    rows = re.findall(r"^\| (10|30|100|300|1000) \| (.*) \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == 5
    for guesses, cells in rows:
        test, confidence = OneRun(10 * int(guesses), int(guesses), "tight"), 0.95
        expected = [format_upper(ceiling(test, confidence=confidence), 3)]
        for claim in (0.0, 1.0):
            epsilon = detectable_epsilon(test, claim, confidence=confidence)
            share = detectable_share(test, claim, confidence=confidence)
            assert epsilon is not None
            assert share is not None
            expected += [format_upper(epsilon, 3), format_percent(share, "up")]
        assert cells.split(" | ") == expected
    hundred = OneRun(1000, 100, "tight")
    assert (detectable_epsilon(hundred, confidence=0.95) or 0) > 0.3
    assert (detectable_epsilon(hundred, 1.0, confidence=0.95) or 0) > 1.4


def test_the_generators_of_the_page_are_those_that_run() -> None:
    for name, case in CASES.items():
        epsilon = "∞" if math.isinf(case.epsilon) else f"{case.epsilon:g}"
        (line,) = [line for line in COMPARED.splitlines() if line.startswith(f"| {name.replace('_', ' ')} |")]
        assert line.endswith(f"| `{case.adjacency}` | {epsilon} |")


def test_an_exact_rate_beside_the_measured_ones_is_enumerated() -> None:
    """False alarms of the `tight` rule where all of the candidates are guessed at ε = 1."""
    right, chance = range(other_audits.CANDIDATES + 1), math.e / (1 + math.e)
    alarms = [
        statistics.epsilon_one_run(
            other_audits.CANDIDATES, other_audits.CANDIDATES, count, delta=DELTA, confidence=1 - BETA, rule="tight"
        ).value
        > other_audits.EPSILON
        for count in right
    ]
    rate = float(stats.binom.pmf(right, other_audits.CANDIDATES, chance) @ np.array(alarms))
    page = (ROOT / "docs/measurements/other-bounds.md").read_text(encoding="utf-8")
    assert f"is {100 * rate:.1f}% exactly" in page


def test_the_table_of_other_libraries_is_that_of_the_rows() -> None:
    """`tests/benchmarks/test_guide_tables.py` compares it with the page."""
    result = json.loads((ROOT / "benchmarks/other_audits.json").read_text(encoding="utf-8"))
    assert result["tables"] == {"bounds": other_audits.in_the_guide(result["rows"])}
    assert other_audits.in_the_guide(result["rows"][1:]) != result["tables"]["bounds"]
    for row in result["rows"]:
        assert row["basis"] == other_audits.BASIS[row["library"], row["method"]]
        alarms = [row[name]["interval"][0] for name in other_audits.MECHANISMS if name in row]
        assert row["basis"] != "proof" or max(alarms) <= BETA, row["method"]
