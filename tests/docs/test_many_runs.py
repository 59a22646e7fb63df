"""The commands of docs/many-runs.md come out as it says; tables of it and the pages beside it are those of the code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import command
import many_runs_alarms
import most_power
import pytest

from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.black_box.worst_cases import FINDS, NEIGHBORS, STRATEGIES
from dpassay.audits.games.many_runs_design import ManyRunsDesign, Pair
from dpassay.audits.games.many_runs_power import detectable_leak, runs_needed
from dpassay.audits.statistics import OneRun, ceiling
from dpassay.base.number_format import format_percent, format_upper

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "third-party"
TEXT, NEIGHBOURS, POWER = (
    (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for page in ("many-runs", "many-runs-neighbours", "measurements/many-runs-power")
)


TEN = tuple(Pair(f"pair {place}", 0, place + 1) for place in range(10))
"""Pairs that share their D, as most of those of the default neighbours do."""


def blocks(language: str) -> list[list[str]]:
    return [block.splitlines() for block in re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)]


def table(text: str, name: str) -> str:
    """The table in a marked place of a page."""
    return text.partition(f"<!-- {name} -->")[2].partition("<!-- end -->")[0].strip()


def rows(text: str, name: str) -> list[list[str]]:
    """Its cells."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table(text, name).splitlines()[2:]]


@pytest.mark.slow
@pytest.mark.parametrize(("block", "refuted"), [(0, True), (1, False)], ids=["own labels", "public"])
def test_commands_come_out_as_the_page_says(
    block: int, refuted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new city is written in seven of ten runs on D′, so fewer than half of 90 rounds show it with probability below
    1e-4. The other generator is refuted with probability at most 0.05; for ε exactly at the claim that is 0.01."""
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    printed, codes = "", {}
    for line in blocks("sh")[block]:
        result = command.run(*shlex.split(line)[1:])
        assert result.returncode in (0, 1), result.stderr
        codes[line.split()[3]] = result.returncode
        printed += result.stdout
    assert codes["bound"] == refuted
    assert {name for name, code in codes.items() if code} <= {"bound"}
    if refuted:
        planned, _ = blocks("text")[:2]
        assert all(line in printed for line in planned)
        assert (tmp_path / "runs" / "report.html").is_file()
        assert re.search(r"\(neighbours '(new_category|rare_category|outlier|empty_class|duplicates)'\)", printed)
    else:
        assert re.search(r"every run on one data set failed: missing_value \(\d+ on D′\)", printed)


def test_the_code_prints_what_the_page_says() -> None:
    ((code, expected),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT, flags=re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == expected


def test_the_table_of_neighbours_is_that_of_the_code() -> None:
    results = [(cells[0].strip("`"), *cells[1:]) for cells in rows(NEIGHBOURS, "neighbours")]
    assert results == [(name, *NEIGHBORS[name], FINDS[name]) for name in STRATEGIES]


@pytest.mark.parametrize("runs", [60, 100, *(pytest.param(n, marks=pytest.mark.slow) for n in (300, 1000))])
def test_the_table_of_power_is_that_of_the_code(runs: int) -> None:
    design = ManyRunsDesign(pairs=TEN, runs=runs, claim=PureDP(1.0))
    rounds = design.usual_rounds
    leak = detectable_leak(design, rounds, 0)
    assert leak.epsilon is not None
    assert leak.share is not None
    expected = [str(runs), str(rounds), format_upper(design.state(0).ceiling(design.most_rounds))]
    expected += [format_upper(leak.epsilon, 3), format_percent(leak.share, "up")]
    assert expected in rows(TEXT, "power")
    assert len(rows(TEXT, "power")) == 4


def test_the_numbers_of_the_first_table_are_true() -> None:
    design = ManyRunsDesign(pairs=TEN, runs=300, claim=PureDP(1.0))
    assert round(design.state(0).ceiling(design.most_rounds), 1) == 4.2
    assert round(ceiling(OneRun(100, 100), confidence=0.95), 1) == 3.5
    assert "up to ε ≈ 4.2 with 300 runs" in TEXT
    assert "up to ε ≈ 3.5 with 100 right guesses" in TEXT
    assert runs_needed(design) == 20


def test_what_no_test_can_find_is_what_the_benchmark_computes() -> None:
    """The simulated columns are seeded."""
    assert table(POWER, "most power") == most_power.table()


def test_false_alarms_are_those_of_the_benchmark() -> None:
    result = json.loads((ROOT / "benchmarks" / "many_runs_alarms.json").read_text(encoding="utf-8"))
    assert table(POWER, "alarms") == many_runs_alarms.table(result["alarms"])
    for row in result["alarms"]:
        assert row["repetitions"] >= 1000
        assert row["interval"][1] < 0.05
