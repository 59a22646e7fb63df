"""What `dpassay audit runs plan` says of claims that its runs cannot refute."""

from __future__ import annotations

import json
from pathlib import Path

import command
import pytest

from dpassay.audits.games import many_runs_power


@pytest.mark.grid
@pytest.mark.parametrize(
    ("epsilon", "says"),
    [
        (1, None),
        (4, "if the search for a pair takes its share of the runs, no outcome of the others refutes a claim of ε = 4"),
        (6, "no outcome of 300 runs refutes a claim of ε = 6; at least 1776 are needed"),
        (16, "no outcome of 10000 runs, the most that are possible"),
    ],
)
def test_a_plan_says_if_no_outcome_could_refute_the_claim(
    epsilon: float, says: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of 90 rounds is at most 3.8; that of 150 rounds is at most 4.2."""
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 50)
    like = tmp_path / "people.csv"
    like.write_text("city,age\n" + "".join(f"{'ABCD'[i % 4]},{20 + i % 37}\n" for i in range(40)))
    arguments = ("audit", "runs", "plan", "--like", like, "--runs", 300, "--epsilon", epsilon)
    result = command.run(*arguments, "-o", tmp_path / "a")
    assert result.returncode == 0, result.stderr
    assert ("Warning:" in result.stdout) is (says is not None)
    assert says is None or says in result.stdout
    assert says is None or says in (tmp_path / "a" / "README.md").read_text()
    outcome = json.loads(command.run(*arguments, "-o", tmp_path / "b", "--json").stdout)
    assert outcome["runs_needed"] == {1: 20, 4: 244, 6: 1776, 16: None}[int(epsilon)]


def test_a_plan_says_if_even_a_perfect_leak_would_often_be_missed(tmp_path: Path) -> None:
    """60 runs leave 16 rounds for one pair, which show at most ε = 1.91, and less while bets are small."""
    like = tmp_path / "people.csv"
    like.write_text("city,age\n" + "".join(f"{'ABCD'[i % 4]},{20 + i % 37}\n" for i in range(40)))
    for epsilon, warned in ((1.9, True), (1.6, False)):
        arguments = ("audit", "runs", "plan", "--like", like, "--runs", 60, "--epsilon", epsilon)
        said = " ".join(command.run(*arguments, "-o", tmp_path / str(epsilon)).stdout.split())
        assert (f"the others refute a claim of ε = {epsilon} in fewer than half of all audits" in said) is warned
