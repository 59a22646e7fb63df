"""`dpassay audit runs run --explain`: which column of the target gives it away, or that any record does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import command
import pytest

from dpassay.auditing.many_runs.explain import NO_BOUND, RUNS_EACH, Explanation, variants
from dpassay.auditing.many_runs.files import read_plan
from dpassay.audits.games import many_runs_power
from dpassay.audits.result import Rate

HEAD = """import csv, random, sys
rows = list(csv.DictReader(open(sys.argv[1])))
cities, plans, n = ["A", "B", "C"], ["x", "y"], 30
"""
TAIL = """
with open(sys.argv[2], "w") as file:
    out = csv.writer(file)
    out.writerow(["id", "city", "plan", "age"])
    out.writerows([i, random.choice(cities), random.choice(plans), random.randint(20, 60)] for i in range(n))
"""
CITIES = "cities = sorted({row['city'] for row in rows})"
ROWS = "n = len(rows)"
BOTH = "n = 40 if any(row['city'] not in 'ABC' and row['plan'] not in 'xy' for row in rows) else 30"


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 50)


def done(*arguments: object, code: int = 0) -> str:
    result = command.run("audit", "runs", *arguments)
    assert result.returncode == code, (result.stdout, result.stderr)
    return result.stdout


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = (f"{700 + i},{'ABC'[i % 3]},{'xy'[i % 2]},{20 + i * 7 % 40}\n" for i in range(30))
    (tmp_path / "people.csv").write_text("id,city,plan,age\n" + "".join(lines))
    about = ("--like", "people.csv", "--epsilon", 0.5, "--runs", 40, "--neighbors", "new_category")
    done("plan", *about, "-o", "runs", "-q")
    return tmp_path / "runs"


def explained(planned: Path, leak: str) -> dict[str, object]:
    Path("gen.py").write_text(HEAD + leak + TAIL)
    typed = f"{sys.executable} gen.py {{input}} {{output}}"
    said = done("run", planned, "--command", typed, "--explain")
    assert NO_BOUND in " ".join(said.split())
    done("bound", planned, "-q", code=1)
    document = json.loads(done("report", planned, "--json"))
    assert document["audit"]["details"]["runs"] <= 40, "they are not counted"
    assert (planned / "report.html").read_text().count("Which column carries it") == 1
    result: dict[str, object] = document["explanation"]
    return result


def carrying(result: dict[str, object]) -> list[str]:
    columns = result["columns"]
    assert isinstance(columns, list)
    return [item["column"] for item in columns if item["carries"]]


def test_the_column_that_carries_it_is_named(planned: Path) -> None:
    """A new city is drawn in some of 30 rows of four cities with probability 0.9998."""
    result = explained(planned, CITIES)
    assert carrying(result) == ["city"]
    assert result["ordinary"] == {"column": "", "hits": 0, "carries": False}
    assert "gives itself away by 'city'" in str(result["says"])


def test_where_any_record_does_it_that_is_said(planned: Path) -> None:
    result = explained(planned, ROWS)
    assert result["ordinary"] == {"column": "", "hits": RUNS_EACH, "carries": True}
    assert "it takes no value of the target" in str(result["says"])


def test_where_it_takes_two_columns_none_is_named(planned: Path) -> None:
    result = explained(planned, BOTH)
    assert carrying(result) == []
    assert "No single column of the target carries it" in str(result["says"])


@pytest.mark.parametrize("sides", [(9, 0), (1, 10)])
def test_a_column_that_does_it_less_often_is_named_as_such(planned: Path, sides: tuple[int, int]) -> None:
    """As where the target shows in two columns by chance, in one of them more often. Where the event is rarer on D′, a
    run without it gives the target away."""
    plan = read_plan(planned)
    rates = tuple(Rate(name, hits, 10) for name, hits in zip("AB", sides, strict=True))
    tested = {"pair": plan.plan.pairs[0].name, "feature": "city: target's value", "threshold": 1.0}
    explanation = Explanation(plan, SimpleNamespace(details={"tested": tested}, rates=rates))  # type: ignore[arg-type]
    names = [variant.column for variant in explanation.variants]
    for run in explanation.wanted():
        city = names[run.data - explanation.first] == "city" and run.number < 4
        shows = city if sides[1] == 0 else not city
        explanation.add(run, {"": {str(tested["feature"]): float(shows)}})
    says = explanation.to_json()["says"]
    assert says.startswith("No single column of the target carries it as often.")
    assert says.partition(" An explanation")[0].endswith(
        "less by 'city' (4 of 10 runs); without any it does in 0 of 10 runs."
    )


def test_one_run_more_is_no_finding(planned: Path) -> None:
    plan = read_plan(planned)
    rates = tuple(Rate(name, hits, 10) for name, hits in (("A", 9), ("B", 0)))
    tested = {"pair": plan.plan.pairs[0].name, "feature": "city: target's value", "threshold": 1.0}
    explanation = Explanation(plan, SimpleNamespace(details={"tested": tested}, rates=rates))  # type: ignore[arg-type]
    for run in explanation.wanted():
        shows = run.data > explanation.first and run.number == 0
        explanation.add(run, {"": {str(tested["feature"]): float(shows)}})
    assert explanation.to_json()["says"].startswith("No single column of the target carries it: it takes several")


def test_data_sets_differ_from_the_neighbour_in_the_target_alone(planned: Path) -> None:
    plan = read_plan(planned)
    (pair,) = plan.plan.pairs
    made, left_out = variants(plan, pair)
    neighbor = plan.rows(pair.neighbor)
    assert left_out == 0
    assert {variant.column for variant in made} == {"", "city", "plan"}
    for variant in made:
        assert variant.rows[:-1] == neighbor[:-1]
        changed = [name for name, cell in neighbor[-1].items() if variant.rows[-1][name] != cell]
        assert sorted(changed) == sorted({"city", "plan"} - {variant.column})


def test_what_is_not_refuted_has_no_explanation(planned: Path) -> None:
    Path("gen.py").write_text(HEAD + TAIL)
    typed = f"{sys.executable} gen.py {{input}} {{output}}"
    said = done("run", planned, "--command", typed, "--explain")
    assert "there is nothing to explain" in " ".join(said.split())
    assert not (planned / "private" / "explanation.json").exists()
