"""A plan with a probe: its data sets, the pair that it adds, and the page, as the commands make them."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import command
import pytest
import toy_functions

from dpassay.auditing.many_runs.files import PlannedRuns, read_plan
from dpassay.audits.games import many_runs, many_runs_power


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)
    monkeypatch.syspath_prepend(str(Path(toy_functions.__file__).parent))


def dpassay(*arguments: object, code: int = 0) -> str:
    result = command.run("audit", "runs", *arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result.stdout + result.stderr


def planned(folder: Path, *more: object, runs: int = 50) -> PlannedRuns:
    people = [
        {"age": 20 + 7 * index % 40, "city": ["Ulm", "Bern"][index % 2], "note": f"a b c d {'ef'[index % 2]}"}
        for index in range(30)
    ]
    like = folder / "people.csv"
    with like.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(people[0]), lineterminator="\n")
        out.writeheader()
        out.writerows(people)
    settings = ("--neighbors", "ordinary", "--neighbors", "threshold") if "--neighbors" not in more else ()
    dpassay("plan", "--like", like, "-o", folder / "audit", "--epsilon", "1", "--runs", runs, *settings, *more)
    return read_plan(folder / "audit")


def test_a_threshold_is_refuted_at_its_edge(tmp_path: Path) -> None:
    """Cities are published from five records on: `ordinary` shows nothing, and four against five everything."""
    plan = planned(tmp_path)
    folder = plan.folder
    assert plan.design.probe_runs == 3
    said = dpassay("run", folder, "--function", "toy_functions:often", "--explain")
    assert "'city'" in said
    printed = dpassay("bound", folder, code=1)
    assert "threshold_4" in printed
    dpassay("report", folder)
    document: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert document["audit"]["details"]["tested"]["pair"] == "threshold_4"
    (probe,) = document["audit"]["details"]["probes"]
    assert [share for _, share in sorted(probe["published"].items(), key=lambda item: int(item[0]))] == [
        float(level >= 5) for level in range(1, len(probe["published"]) + 1)
    ]
    assert [pair["name"] for pair in document["plan"]["pairs"]] == ["ordinary", "threshold_4"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "threshold_4" in page
    assert "categories that are published from some number of records on" in page


def test_the_file_of_a_pair_of_a_ladder_holds_its_records(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    (ladder,) = plan.plan.design().probe.ladders  # type: ignore[union-attr]
    city = str(plan.ladders[0].target["city"])
    for level, pair in enumerate(ladder.pairs, 1):
        for number, more in ((pair.data, 0), (pair.neighbor, 1)):
            text = plan.content(number).decode()
            rows = list(csv.DictReader(text.splitlines()))
            assert rows == [dict(row) for row in plan.rows(number)]
            assert Counter(row["city"] for row in rows)[city] == level + more
            assert plan.plan.pairs_of(number) == [pair.name]


def test_a_probe_that_fails_adds_no_pair(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    audit = many_runs.ManyRuns(plan.design)
    made = 0
    while wanted := audit.wanted():
        for run in wanted:
            names = plan.plan.pairs_of(run.data)
            failed = plan.plan.probe is not None and run.data == plan.plan.probe.data
            audit.add(run, {"": {"failed": float(failed)}, **{name: {} for name in names}})
            made += 1
    result = audit.result()
    assert result.details["probes"] == []
    assert result.details["tested"]["pair"] == "ordinary"
    assert made <= plan.design.runs


def test_a_search_of_few_runs_has_no_probe(tmp_path: Path) -> None:
    plan = planned(tmp_path, runs=40)
    assert plan.design.probe_runs == 0
    assert plan.plan.probe is not None
    assert plan.plan.probe.data not in {run.data for run in many_runs.ManyRuns(plan.design).wanted()}


def test_strategies_that_are_named_have_the_probes_that_are_named(tmp_path: Path) -> None:
    assert planned(tmp_path, "--neighbors", "ordinary").plan.probe is None


def test_a_plan_with_a_wrong_probe_is_refused(tmp_path: Path) -> None:
    folder = planned(tmp_path).folder
    path = folder / "private" / "plan.json"
    body = json.loads(path.read_text(encoding="utf-8"))
    body["probe"]["data"] = 99
    path.write_text(json.dumps(body), encoding="utf-8")
    assert "was not written by this version" in dpassay("run", folder, "--function", "toy_functions:often", code=2)


@pytest.mark.parametrize("left_out", [False, True])
def test_a_plan_by_the_rules_of_version_0_2_has_no_probe(tmp_path: Path, left_out: bool) -> None:
    """Those rules hold where a plan does not say which do."""
    folder = planned(tmp_path).folder
    path = folder / "private" / "plan.json"
    body = json.loads(path.read_text(encoding="utf-8"))
    body["halving"] = True
    if left_out:
        del body["halving"]
    path.write_text(json.dumps(body), encoding="utf-8")
    printed = dpassay("bound", folder, code=2)
    assert "has a probe, which plans by the rules of version 0.2 (halving) have not; make a new plan" in printed
    assert len(printed.splitlines()) == 1
