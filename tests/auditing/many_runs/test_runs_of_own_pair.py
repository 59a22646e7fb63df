"""`dpassay audit runs plan --pair`: neighbours that the user gives."""

from __future__ import annotations

import json
import re
import shlex
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command
import pyarrow
import pyarrow.parquet
import pytest
import toy_functions

from dpassay import audit
from dpassay.accounting.guarantees import PureDP
from dpassay.attacks.black_box import output_features
from dpassay.auditing.many_runs import plan as planning
from dpassay.auditing.many_runs.explain import RUNS_EACH, variants
from dpassay.auditing.many_runs.files import read_plan
from dpassay.auditing.many_runs.own_files import FileRows
from dpassay.audits.games import many_runs_power
from dpassay.base.errors import InputError

COPY = "cp {input} {output}"
AT = 12  # where the record is that D has not
SECRET: dict[str, Any] = {"age": 90, "city": "SECRET-town", "note": "SECRET words of a record"}


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)
    monkeypatch.syspath_prepend(str(Path(toy_functions.__file__).parent))
    monkeypatch.chdir(tmp_path)


def people(count: int = 30) -> list[dict[str, Any]]:
    return [
        {"age": 20 + 7 * index % 40, "city": ["north", "south"][index % 2], "note": f"a b c d {'ef'[index % 2]}"}
        for index in range(count)
    ]


def more(count: int = 30) -> list[dict[str, Any]]:
    """The same, with a record more in the middle."""
    return [*people(count)[:AT], SECRET, *people(count)[AT:]]


def exchanged() -> list[dict[str, Any]]:
    return [SECRET if place == AT else row for place, row in enumerate(people())]


def write(name: str, rows: Sequence[dict[str, Any]], separator: str = ",", end: str = "\n") -> Path:
    path = Path(name)
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [list(rows[0]), *(row.values() for row in rows)]
        path.write_bytes("".join(separator.join(map(str, line)) + end for line in lines).encode())
    return path


def done(*arguments: object, code: int = 0) -> dict[str, Any]:
    result = command.run("audit", "runs", *arguments, "--json")
    assert result.returncode == code, (result.stdout, result.stderr)
    assert "SECRET" not in result.stdout + result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def plan(first: Path, second: Path, *options: object) -> dict[str, Any]:
    return done("plan", "--pair", first, second, "--epsilon", "0.1", "--runs", "40", "-o", "audit", *options)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", pytest.param(".parquet", marks=pytest.mark.slow)])
def test_a_whole_audit_of_ones_own_pair(suffix: str) -> None:
    """D′ is given first. A generator that copies is refuted, on a page that holds no record."""
    neighbor, data = write(f"with{suffix}", more()), write(f"without{suffix}", people())
    planned = plan(neighbor, data)
    assert planned["pairs"] == ["own"]
    assert planned["probes"] == []
    assert planned["own"]["data"] == data.name
    assert planned["own"]["neighbor"] == neighbor.name
    assert planned["own"]["records"] == [30, 31]
    for number, given in enumerate((data, neighbor)):
        assert Path(f"audit/private/data/0{number}{suffix}").read_bytes() == given.read_bytes()
    done("run", "audit", "--command", COPY)
    result = done("bound", "audit", code=1)
    assert result["audit"]["details"]["tested"]["pair"] == "own"
    document = done("report", "audit")
    assert document["plan"]["own"] is True
    (pair,) = document["plan"]["pairs"]
    assert pair["differs"] == (
        f"D: the user's own file {data.name}. D′: the user's own file {neighbor.name}, which has one record more, the "
        "target."
    )
    page = Path("audit/report.html").read_text()
    assert "one, the user&#39;s own" in page
    assert "The data sets that were compared are the user&#39;s own." in page
    assert "made from the data" not in page
    assert pair["differs"].replace("'", "&#39;") in page
    assert "SECRET" not in page
    assert "SECRET" not in Path("audit/report.json").read_text()


def test_the_plan_says_which_file_became_which() -> None:
    result = command.run(
        "audit", "runs", "plan", "--pair", write("a.csv", more(), ";"), write("b.csv", people(), ";"), "-o", "audit"
    )
    assert result.returncode == 0, result.stderr
    said = " ".join(result.stdout.split())
    assert (
        "One pair of neighbours (add_remove, unit record), your own. D: the user's own file b.csv. D′: the user's own "
        "file a.csv, which has one record more, the target. They have 30 and 31 records." in said
    )
    assert "in rounds of two, one on D and one on D′" in said
    assert "semicolons between cells" in said
    readme = Path("audit/README.md").read_text()
    assert "holds copies of `b.csv` and `a.csv`" in readme
    assert "SECRET" not in readme


def test_exchanged_records_of_a_group() -> None:
    rows = [SECRET if place in (3, AT) else row for place, row in enumerate(people())]
    first, second = write("a.csv", people()), write("b.csv", rows)
    plan(first, second, "--adjacency", "replace_one", "--unit", "group(2)")
    planned = read_plan(Path("audit"))
    assert planned.plan.own is not None
    assert planned.plan.own.positions == [3, AT]
    assert planned.plan.own.data == "a.csv"
    done("run", "audit", "--function", "toy_functions:copy")
    assert done("bound", "audit", code=1)["audit"]["details"]["tested"]["differs"].endswith(
        "which has 2 records in the place of as many of D, one of which is the target."
    )


def test_a_strategys_pair_given_as_ones_own_is_the_same_pair() -> None:
    """Its files, its columns, what outputs are compared with, and the features of the data sets."""
    done("plan", "--like", write("people.csv", more()), "--neighbors", "new_category", "-o", "made")
    made = read_plan(Path("made"))
    files = [made.data_file(number) for number in (0, 1)]
    done("plan", "--pair", *files, "-o", "audit")
    own = read_plan(Path("audit"))
    assert own.plan.data_sets == made.plan.data_sets
    assert own.plan.columns == made.plan.columns
    assert own.plan.pairs[0].target == made.plan.pairs[0].target
    assert own.plan.pairs[0].novel == made.plan.pairs[0].novel
    assert [of[""] for of in own.plan.held] == [of[""] for of in made.plan.held]
    assert [of["own"] for of in own.plan.held] == [of["new_category"] for of in made.plan.held]


CSV = ("a.csv", "b.csv")
REFUSED: dict[str, tuple[list[object], str]] = {
    "neither": (["--epsilon", 1], "give either --like FILE, the data that neighbours are made like, or --pair FILE"),
    "both": (["--pair", *CSV, "--like", "a.csv"], "give either --like FILE"),
    "neighbors": (["--pair", *CSV, "--neighbors", "ordinary"], "--neighbors says how neighbours are made"),
    "schema": (["--pair", *CSV, "--schema", "schema.yaml"], "--schema says how neighbours are made, and --pair gives"),
    "records": (["--pair", *CSV, "--records", 200], "--records says how neighbours are made"),
    "label": (["--pair", *CSV, "--label", "city"], "--label says how neighbours are made"),
    "no such file": (["--pair", "a.csv", "none.csv"], "none.csv: there is no such file"),
    "the same file": (["--pair", "a.csv", "a.csv"], "have 30 records each, but with add_remove"),
    "another adjacency": (["--pair", *CSV, "--adjacency", "replace_one"], "a.csv has 30 records and b.csv has 31, but"),
    "two more": (["--pair", "a.csv", "two.csv"], "two.csv has 2 records more than a.csv, but neighbours differ in at"),
    "another order": (["--pair", "a.csv", "order.csv"], "the first 2 records of a.csv are not in it"),
    "another format": (["--pair", "a.csv", "b.jsonl"], "b.jsonl: is not of the format of a.csv"),
    "another separator": (["--pair", "a.csv", "semicolons.csv"], "semicolons.csv is read as semicolons between cells"),
    "other line ends": (["--pair", "a.csv", "ends.csv"], "ends.csv: has another end of lines than a.csv"),
    "other columns": (["--pair", "a.csv", "columns.csv"], "columns.csv: has another first line than a.csv"),
    "other keys": (["--pair", "a.jsonl", "keys.jsonl"], "keys.jsonl: record 31 has other columns than the first"),
    "other types": (["--pair", "a.parquet", "types.parquet"], "types.parquet: has other columns, or other types"),
    "an empty file": (["--pair", "a.jsonl", "empty.jsonl"], "empty.jsonl holds no records"),
    "Excel": (["--pair", "a.csv", "b.xlsx"], "b.xlsx: data sets are written as the data are, and no Excel files are"),
    "a user": (["--pair", *CSV, "--unit", "user"], "for a user give 'group(k)' with the most records"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_one_line_and_leaves_nothing(name: str) -> None:
    write("a.csv", people()), write("b.csv", more()), write("b.jsonl", more()), write("a.jsonl", people())
    write("two.csv", [*more(), SECRET]), write("order.csv", [SECRET, *reversed(people())])
    write("semicolons.csv", more(), ";"), write("ends.csv", more(), end="\r\n")
    write("columns.csv", [{("town" if key == "city" else key): cell for key, cell in row.items()} for row in more()])
    write("keys.jsonl", [*people(), {"SECRET": 1}]), write("a.parquet", people()), write("empty.jsonl", [])
    write("types.parquet", [{**row, "age": float(row["age"])} for row in more()])
    Path("b.xlsx").touch()
    options, says = REFUSED[name]
    before = sorted(path.name for path in Path().iterdir())
    result = command.run("audit", "runs", "plan", *options, "-o", "audit", "-q")
    assert result.returncode == 2, (result.stdout, result.stderr)
    assert says in " ".join(result.stderr.split())
    assert len(result.stderr.strip().splitlines()) == 1
    assert "SECRET" not in result.stdout + result.stderr
    assert sorted(path.name for path in Path().iterdir()) == before


def test_a_changed_copy_is_refused() -> None:
    plan(write("a.csv", people()), write("b.csv", more()))
    path = Path("audit/private/data/01.csv")
    path.write_bytes(path.read_bytes() + b"1,north,x\n")
    result = command.run("audit", "runs", "run", "audit", "--command", COPY, "-q")
    assert result.returncode == 2
    assert "01.csv: was changed since it was planned" in result.stderr


@pytest.mark.parametrize("change", ["positions", "adjacency"])
def test_a_plan_changed_by_hand_is_refused(change: str) -> None:
    plan(write("a.csv", people()), write("b.csv", more()))
    path = Path("audit/private/plan.json")
    body = json.loads(path.read_text())
    if change == "positions":
        body["own"]["positions"], body["own"]["target"] = [AT + 1], AT + 1
    else:
        body["adjacency"] = "replace_one"
    path.write_text(json.dumps(body))
    result = command.run("audit", "runs", "run", "audit", "--command", COPY, "-q")
    assert result.returncode == 2
    assert "the data sets of own are not neighbours" in result.stderr


def test_an_explanation_changes_the_target_where_it_is() -> None:
    plan(write("a.csv", people()), write("b.csv", more()))
    planned = read_plan(Path("audit"))
    made, left_out = variants(planned, planned.plan.pairs[0])
    assert left_out == 0
    assert [variant.column for variant in made] == ["", "city", "note", "age"]
    rows = tuple(planned.rows(1))
    for variant in made:
        assert variant.rows[:AT] + variant.rows[AT + 1 :] == rows[:AT] + rows[AT + 1 :]
        kept = {name for name in rows[AT] if variant.rows[AT][name] == rows[AT][name]}
        assert kept == {variant.column} - {""}
    done("run", "audit", "--command", COPY, "--explain")
    result = done("bound", "audit", code=1)
    assert result["explanation"]["ordinary"]["hits"] in range(RUNS_EACH + 1)
    assert not list(Path("audit/private").glob("explained*"))


def test_files_are_compared_and_copied_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """4500 records more take less memory than a third of their file, to plan and to make outputs' features ready."""
    monkeypatch.setattr(planning, "SAMPLE", 300)
    monkeypatch.setattr(output_features, "PIECE", 300)
    peaks = []
    for count in (1500, 6000):
        rows = [{"age": 20 + place % 40, "city": "north", "note": f"{'x' * 400} {place % 7}"} for place in range(count)]
        first = write(f"{count}.jsonl", rows)
        second = write(f"{count}-more.jsonl", [*rows[:AT], {**rows[0], "city": "south"}, *rows[AT:]])
        del rows
        tracemalloc.start()
        try:
            audit.runs(f"audit-{count}", pair=(first, second), runs=40, epsilon=1.0)
            read_plan(Path(f"audit-{count}")).features()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] < second.stat().st_size / 3, peaks


def test_rows_of_a_file_are_a_sequence() -> None:
    rows = FileRows(write("a.jsonl", people()))
    assert len(rows) == 30
    assert list(rows) == people() == list(rows)
    assert rows[4] == people()[4]
    assert rows[-1] == people()[-1]
    assert list(rows[5:20:3]) == people()[5:20:3]
    assert list(rows[::-1]) == people()[::-1]
    with pytest.raises(IndexError):
        rows[30]


def leaks(records: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
    """Its number of rows is that of the records."""
    return people()[:5] * (len(records) - 25)


def test_a_function_on_ones_own_pair() -> None:
    result = audit.function(leaks, pair=(more(), people()), claim=PureDP(0.1), runs=40, seed=0)
    assert result.details["refuted"]
    assert result.details["tested"]["pair"] == "own"
    assert result.details["tested"]["differs"] == (
        "D: the user's own data. D′: the user's own data, which has one record more, the target."
    )
    given: Any
    for given in ({}, {"rows": people(), "pair": (more(), people())}):
        with pytest.raises(ValueError, match=r"give either rows, .* or pair"):
            audit.function(leaks, **given, claim=None, runs=20, seed=0)
    with pytest.raises(ValueError, match="leave one of the two out"):
        audit.function(leaks, pair=(more(), people()), neighbors=["tie"], claim=None, runs=20, seed=0)
    with pytest.raises(ValueError, match="differ in at most 1"):
        audit.function(leaks, pair=([*more(), SECRET], people()), claim=None, runs=20, seed=0)


def test_the_example_of_the_help_is_a_command() -> None:
    shown = command.run("audit", "runs", "plan", "--help").stdout
    (example,) = re.findall(r"dpassay audit runs plan --pair [^\n]*? -o runs", " ".join(shown.split()))
    words = shlex.split(example)[1:]
    write("people.csv", more()), write("without-ann.csv", people())
    assert command.run(*words, "-q").returncode == 0
    with pytest.raises(InputError, match="exists and is not an empty folder"):
        audit.runs("runs", pair=("people.csv", "without-ann.csv"))
