"""What an audit by many runs understood is shown, and where it understood too little it says so."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import command
import pytest
from seeded_entropy import seed_entropy
from shipped_tables import shipped_tables

from dpassay import audit
from dpassay.attacks.black_box.output_features import FAILED
from dpassay.auditing.many_runs.files import PlannedRuns, read_plan
from dpassay.audits.games import many_runs_power
from dpassay.base.errors import InputError

EARLIER = Path(__file__).with_name("earlier_plan")
"""A plan and results as this package wrote them before columns had forms: of a generator that copies its input."""


@pytest.fixture(autouse=True)
def fewer_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_runs_power, "REPETITIONS", 20)


def dpassay(*arguments: object) -> command.Result:
    result = command.run("audit", "runs", *arguments)
    assert "SECRET" not in result.stdout + result.stderr
    return result


def refused(*arguments: object) -> str:
    result = dpassay(*arguments, "-q")
    assert result.returncode == 2, (result.stdout, result.stderr)
    (line,) = result.stderr.strip().splitlines()
    return line


def visits(path: Path, separator: str = ";", rows: int = 40) -> Path:
    cells = [["id", "visit", "paid", "city", "note"]]
    for index in range(rows):
        note = f"SECRET number {index} of many words"
        cells.append([f"p-{index:03d}", f"{index % 28 + 1:02d}.03.2021", f"{100 + index},5", "AB"[index % 2], note])
    cells[7][2] = "SECRET"
    path.write_text("".join(separator.join(row) + "\n" for row in cells))
    return path


def test_columns_are_shown_before_anything_runs(tmp_path: Path) -> None:
    like, folder = visits(tmp_path / "visits.csv"), tmp_path / "audit"
    said = dpassay("plan", "--like", like, "-o", folder, "--runs", 40, "--epsilon", 0.1)
    assert said.returncode == 0, said.stderr
    assert "Read as semicolons between cells, utf-8: visits.csv" in said.stdout
    assert "Column 'paid': 1 cells of data are no number as in 1.200,5 (rows 7) and count as missing" in " ".join(
        said.stdout.split()
    )
    outcome = json.loads(dpassay("plan", "--like", like, "-o", tmp_path / "b", "--runs", 40, "--json").stdout)
    columns = {column["name"]: column for column in outcome["understood"]["columns"]}
    assert {name: (column["kind"], column["used"]) for name, column in columns.items()} == {
        "id": ("identifier", False),
        "visit": ("date", True),
        "paid": ("number", True),
        "city": ("category", True),
        "note": ("text", True),
    }
    assert columns["visit"]["form"] == "31.05.2013"
    assert all(column["why"] for column in columns.values())
    target = next(pair.target for pair in read_plan(folder).plan.pairs if pair.name == "extreme_value")
    assert re.fullmatch(r"\d\d\.\d\d\.20\d\d", target["visit"])
    assert re.fullmatch(r"\d{3},5", target["paid"])
    assert target["id"] == "p-040" or re.fullmatch(r"p-\d{3}", target["id"])
    assert target["id"] not in {f"p-{index:03d}" for index in range(40)}


def test_the_page_shows_them_too(tmp_path: Path) -> None:
    like, folder = visits(tmp_path / "visits.csv"), tmp_path / "audit"
    assert dpassay("plan", "--like", like, "-o", folder, "--runs", 20, "--epsilon", 0.1, "-q").returncode == 0
    assert dpassay("run", folder, "--command", "cp {input} {output}", "-q").returncode == 0
    assert dpassay("bound", folder, "-q").returncode == 1
    document = json.loads(dpassay("report", folder, "--json").stdout)
    assert document["plan"]["written"] == "semicolons between cells, utf-8"
    assert [column["name"] for column in document["plan"]["columns"]] == ["id", "visit", "paid", "city", "note"]
    page = (folder / "report.html").read_text()
    assert "What the data hold" in page
    assert "SECRET" not in page + json.dumps(document)


@pytest.mark.parametrize("sign", [":", "^", "~"])
def test_a_file_that_is_read_as_one_column_is_not_planned_in_silence(sign: str, tmp_path: Path) -> None:
    like = tmp_path / "one.csv"
    like.write_text("".join(f"{sign}".join(row) + "\n" for row in [("age", "city"), *[("20", "SECRET")] * 30]))
    assert "is read as one column, but" in refused("plan", "--like", like, "-o", tmp_path / "a")
    assert not (tmp_path / "a").exists()
    assert dpassay("plan", "--like", like, "-o", tmp_path / "a", "--separator", "comma", "-q").returncode == 0


def test_one_column_of_texts_is_one_column(tmp_path: Path) -> None:
    like = tmp_path / "notes.csv"
    like.write_text("doctor's note\n" + "".join(f"{'SECRET ' * (index % 5)} {index} end\n" for index in range(40)))
    assert dpassay("plan", "--like", like, "-o", tmp_path / "a", "-q").returncode == 0


def test_hardly_a_used_column_is_warned_of(tmp_path: Path) -> None:
    like = tmp_path / "people.csv"
    like.write_text("name,age\n" + "".join(f"SECRET{index},{20 + index}\n" for index in range(40)))
    said = dpassay("plan", "--like", like, "-o", tmp_path / "a").stdout
    assert "Warning: of 2 columns only 'age' is used" in " ".join(said.split())


def test_of_a_long_file_the_columns_are_those_of_some_records_with_the_numbers_of_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed_entropy(monkeypatch, 1)  # of 100 records some are odd, and fewer than 5 %
    monkeypatch.setattr("dpassay.auditing.many_runs.plan.SAMPLE", 100)
    like = tmp_path / "long.csv"
    ages = [str(20 + index % 50) for index in range(2000)]
    odd = [index for index in range(2000) if index % 30 == 7]
    for index in odd:
        ages[index] = "SECRET"
    like.write_text("age,city\n" + "".join(f"{age},{'AB'[index % 2]}\n" for index, age in enumerate(ages)))
    planned = audit.runs(tmp_path / "a", like=like, runs=20, records=50)
    assert planned.plan.understood is not None
    assert "columns are those of 100 of its records, drawn at random" in planned.plan.understood.written
    (warning,) = planned.plan.understood.columns[0].warnings
    rows = re.search(r"\(rows ([\d, ]+)\)", warning)
    assert rows is not None
    assert {int(row) - 1 for row in rows[1].split(", ")} <= set(odd)


@pytest.mark.parametrize(
    ("name", "start", "warned"),
    [("number", 7, True), ("", 7, False), ("number", 1, False), ("customer_id", 7, False), ("customerId", 7, False)],
)
def test_a_column_that_counts_the_rows_is_warned_of_or_holds_ids(
    name: str, start: int, warned: bool, tmp_path: Path
) -> None:
    like = tmp_path / "people.csv"
    like.write_text(f"{name},age\n" + "".join(f"{start + index},{20 + index % 30}\n" for index in range(59)))
    said = " ".join(dpassay("plan", "--like", like, "-o", tmp_path / "a").stdout.split())
    assert ("Column 'number': it counts the rows" in said) is warned
    assert [column.kind for column in read_plan(tmp_path / "a").plan.columns] == [
        "number" if warned else "id",
        "number",
    ]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--number", "city"), "column 'city' is stated to hold numbers or dates, but no cell of it does"),
        (("--number", "paid", "--categorical", "paid"), "column 'paid' is named twice"),
        (("--id", "height"), "there is no column 'height'"),
        (("--separator", "comma"), "has a different number of cells"),
        (("--encoding", "ebcdic"), "encoding must be one of"),
    ],
)
def test_what_is_stated_wrongly_is_one_line(options: tuple[str, ...], says: str, tmp_path: Path) -> None:
    like = visits(tmp_path / "visits.csv")
    assert says in refused("plan", "--like", like, "-o", tmp_path / "a", *options)
    assert not (tmp_path / "a").exists()


def script(folder: Path, code: str) -> str:
    path = folder / "generator.py"
    path.write_text(f"import pathlib, sys\nsource, target = map(pathlib.Path, sys.argv[1:])\n{code}")
    return f"{sys.executable} -I -S {path} {{input}} {{output}}"


OUTPUTS = {
    "another separator": ("'visit~city\\n' + '01.03.2021~SECRET\\n' * 9", "read as one column (commas between cells"),
    "no header": ("'SECRET;x\\n' * 9", "read as 2 columns (semicolons between cells, utf-8), of which the data"),
    "other names": ("'Visit,City\\nSECRET,B\\n'", "read as 2 columns (commas between cells, utf-8), of which the data"),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_without_any_column_of_the_data_is_said_in_one_line(name: str, tmp_path: Path) -> None:
    content, says = OUTPUTS[name]
    folder = tmp_path / "audit"
    dpassay("plan", "--like", visits(tmp_path / "visits.csv"), "-o", folder, "--runs", 20, "-q")
    line = refused("run", folder, "--command", script(tmp_path, f"target.write_text({content})"))
    assert says in line
    assert "the command fails on the data (its output cannot be read: it is read as" in line


def test_columns_that_an_output_lacks_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    dpassay("plan", "--like", visits(tmp_path / "visits.csv"), "-o", folder, "--runs", 20, "--epsilon", 9, "-q")
    made = dpassay("run", folder, "--command", script(tmp_path, "target.write_text('paid,city\\n103.5,A\\n')"))
    said = " ".join(made.stdout.split())
    assert "The first output of the command lacks 2 of 5 columns of the data, which count as empty: 'visit'" in said
    features = [json.loads(row) for row in (folder / "private" / "results.jsonl").read_text().splitlines()]
    row = next(row for row in features if "phase" in row)
    assert row["features"][""]["paid: largest"] == 103.5, "decimal commas in the data, a point in the output"


def test_a_claim_that_the_rounds_could_not_refute_has_no_conclusion(tmp_path: Path) -> None:
    """A claim of ε = 9 needs more runs than there are: exit code 4, and what would do, or that nothing would."""
    folder = tmp_path / "audit"
    dpassay("plan", "--like", visits(tmp_path / "visits.csv"), "-o", folder, "--runs", 20, "--epsilon", 4, "-q")
    assert dpassay("run", folder, "--command", "cp {input} {output}", "-q").returncode == 0
    bound = dpassay("bound", folder)
    assert bound.returncode == 4
    said = " ".join(bound.stdout.split())
    assert re.match(r"No conclusion: .* in \d+ of \d+ runs on D′", said)
    assert "plan at least 244 runs (--runs)." in said
    assert json.loads((folder / "bound.json").read_text())["refuted"] is None
    assert dpassay("report", folder, "-q").returncode == 0
    assert re.search(r'<p class="word withheld">No conclusion</p>', (folder / "report.html").read_text())


def test_runs_that_all_fail_have_no_conclusion(tmp_path: Path) -> None:
    folder, tried = tmp_path / "audit", tmp_path / "tried"
    dpassay("plan", "--like", visits(tmp_path / "visits.csv"), "-o", folder, "--runs", 20, "--epsilon", 1, "-q")
    code = f"tried = pathlib.Path({str(tried)!r})\nif tried.exists():\n    sys.exit(1)\ntried.touch()\n"
    command_ = script(tmp_path, code + "target.write_bytes(source.read_bytes())\n")
    assert dpassay("run", folder, "--command", command_, "-q").returncode == 0
    bound = dpassay("bound", folder)
    assert bound.returncode == 4
    said = " ".join(bound.stdout.split())
    assert "No conclusion: the generator failed in all runs" in said
    assert json.loads((folder / "bound.json").read_text())["refuted"] is None
    assert "correct its command, ask for other neighbours, or test failures, too (--failures)" in said


def test_a_function_whose_records_have_no_column_of_the_data_is_refused() -> None:
    people = [{"age": 20 + index, "city": "AB"[index % 2]} for index in range(20)]

    def renamed(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
        return [{"Age": row["age"]} for row in rows]

    with pytest.raises(ValueError, match="have no column of the data; name them alike"):
        audit.function(renamed, people, claim=None, runs=20, seed=0)


def test_a_function_that_renames_columns_of_some_data_only_has_failed_runs() -> None:
    """An error would end the audit on one of two neighbours, and keep what that shows."""
    people = [{"age": 20 + index, "city": "AB"[index % 2]} for index in range(20)]
    first: list[int] = []

    def renames(rows: list[dict[str, Any]], seed: int) -> list[dict[str, Any]]:
        first.append(len(rows))
        return rows if len(rows) == first[0] else [{"Age": row["age"]} for row in rows]

    result = audit.function(renames, people, claim=None, runs=40, seed=0)
    assert len(set(first)) > 1
    assert "failed in all runs" in result.conclusion or result.details["failing"]


def test_features_of_an_earlier_plan_are_those_that_were_recorded() -> None:
    """So that an audit which an earlier version began goes on with the same numbers."""
    planned = read_plan(EARLIER)
    assert planned.plan.understood is None
    recorded = [json.loads(line) for line in (EARLIER / "private" / "results.jsonl").read_text().splitlines()]
    features, compared = planned.features(), 0
    for row in recorded:
        if "phase" in row:
            pairs = planned.plan.pairs_of(row["data"])
            assert features.of(planned.rows(row["data"]), pairs) == row["features"]
            assert row["features"][""][FAILED] == 0.0
            compared += 1
    assert compared == len(planned.plan.data_sets) == 3


def test_an_earlier_plan_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    shutil.copytree(EARLIER, folder)
    for path in (folder / "private", *(folder / "private").rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    before = (folder / "private" / "results.jsonl").read_text()
    result = dpassay("score", folder, "--json")
    assert "made by another command" in result.stderr
    assert (folder / "private" / "results.jsonl").read_text() == before
    (folder / "private" / "results.jsonl").unlink()
    assert dpassay("run", folder, "--command", "cp {input} {output}", "-q").returncode == 0
    assert dpassay("bound", folder, "-q").returncode == 1
    assert dpassay("report", folder, "-q").returncode == 0


TABLES = shipped_tables()
NO_HEADER, SPACES = "looks like a row", "has spaces between its cells, it seems"
REFUSED = {
    "statsmodels/anes96/src/anes96.csv": SPACES,
    "statsmodels/interest_inflation/E6_jmulti.csv": SPACES,
    "statsmodels/macrodata/src/unemp.csv": "different number of cells",  # lines of text come first
    "statsmodels/scotland/src/scotland_population.csv": "different number of cells",
    "statsmodels/scotland/src/scotvote.csv": "every quote is closed",
    "statsmodels/spector/spector.csv": SPACES,
    "sklearn/breast_cancer.csv": "different number of cells",  # the first line counts rows and columns
    "sklearn/diabetes_data_raw.csv.gz": SPACES,
    "sklearn/diabetes_target.csv.gz": NO_HEADER,
    "sklearn/digits.csv.gz": NO_HEADER,
    "sklearn/iris.csv": NO_HEADER,
    "sklearn/linnerud_exercise.csv": SPACES,
    "sklearn/linnerud_physiological.csv": SPACES,
    "sklearn/wine_data.csv": "different number of cells",
}
"""Tables that are refused, each looked at: they are no CSV with one header, or nothing tells that they are."""


@pytest.mark.grid
@pytest.mark.parametrize("name", TABLES)
def test_tables_as_people_have_them_are_planned_or_refused_in_one_line(name: str, tmp_path: Path) -> None:
    def plan() -> PlannedRuns:
        return audit.runs(tmp_path / "audit", like=TABLES[name], epsilon=1.0, runs=20, records=60)

    if name in REFUSED:
        with pytest.raises(InputError, match=REFUSED[name]) as caught:
            plan()
        assert "\n" not in str(caught.value)
        return
    planned = plan()
    assert len(planned.plan.pairs) >= 4
    assert planned.plan.understood is not None
    assert len(planned.plan.understood.columns) >= 2
    planned.features()
