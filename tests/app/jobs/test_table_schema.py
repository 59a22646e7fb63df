"""`dpassay table schema`: a template of a public sample, which a claim can read; what it warns of and refuses."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from command import run

from dpassay.data.table_schema import read_schema
from dpassay.data.tables import read_table, schema_rows

SAMPLE = "person,age,weight,smoker,seen,note\n1,39,70.5,no,2020-01-31,\n2,41,,yes,2021-12-01,no\n"


def test_the_template_of_a_public_sample(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text(SAMPLE)
    path = tmp_path / "schema.yaml"
    done = run("table", "schema", tmp_path / "sample.csv", "-o", path, "--public", "--ignore", "person")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(path.read_text()) == {
        "made_from": "public",
        "columns": [
            {"name": "age", "type": "number", "low": 39, "high": 41, "decimals": 0},
            {"name": "weight", "type": "number", "low": 70.5, "high": 70.5, "decimals": 1, "missing": True},
            {"name": "smoker", "type": "category", "values": ["no", "yes"]},
            {"name": "seen", "type": "date", "low": date(2020, 1, 31), "high": date(2021, 12, 1)},
            {"name": "note", "type": "category", "values": ["no"], "missing": True},
        ],
    }
    schema, made_from = read_schema(path)
    assert made_from == "public"
    row = {"age": "40", "weight": "", "smoker": "yes", "seen": "2020-02-29", "note": "no"}
    assert schema.row(row) == ("40", "missing", "yes", "2020-02-29", "no")


def test_a_sample_that_is_not_declared_public_is_said(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text(SAMPLE)
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml")
    assert done.returncode == 0, done.stderr
    assert "--public" in done.stdout
    assert read_schema(tmp_path / "schema.yaml")[1] == "private"
    assert (tmp_path / "schema.yaml").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (
            "a,b,c\n" + "".join(f"word{row % 60},{row},word{row % 51}\n" for row in range(120)),
            [],
            "columns 'a', 'c' have more than 50 distinct words; leave out (--ignore) what is no category, and write",
        ),
        (
            "a,b\n" + "".join(f"word{row},see word {row} of these\n" for row in range(300)),
            [],
            "no column of the sample can be in a schema, which has numbers, dates and categories: "
            "'a' (no two cells are alike, as in an id), 'b' (free text, or more than 200 distinct words)",
        ),
        ("a,b\n1,\n", [], "column 'b' is empty"),
        ("a\n", [], "the sample has no rows"),
        ("a\n1\n", ["--ignore", "a"], "no column of the sample can be in a schema"),
        ("a\n1\n", ["--ignore", "c"], "there is no column 'c'; the columns are 'a'"),
    ],
)
def test_what_no_schema_can_show_is_one_line(tmp_path: Path, content: str, options: list[str], says: str) -> None:
    (tmp_path / "sample.csv").write_text(content)
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert "word1" not in done.stderr
    assert not (tmp_path / "schema.yaml").exists()


PEOPLE = [
    f"p{row:03};{row % 7}.{row % 3}00,5;{'n/a' if row % 9 == 0 else row % 80};{1 + row % 28:02}.05.2013;came for the "
    f"{row}th time;{('low', 'NA')[row % 2]}\n"
    for row in range(260)
]
EUROPEAN = "id;price;age;day;note;kind\n" + "".join(PEOPLE)


def test_ids_and_free_text_are_left_out_and_said(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text(EUROPEAN)
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    body = yaml.safe_load((tmp_path / "schema.yaml").read_text())
    assert body["columns"] == [
        {"name": "price", "type": "number", "low": 0.5, "high": 6200.5, "decimals": 1},
        {"name": "age", "type": "number", "low": 0, "high": 79, "decimals": 0, "missing": True},
        {"name": "day", "type": "date", "low": date(2013, 5, 1), "high": date(2013, 5, 28)},
        {"name": "kind", "type": "category", "values": ["NA", "low"]},
    ]
    comments = [line for line in (tmp_path / "schema.yaml").read_text().splitlines() if line.startswith("#")]
    assert "# 'id': no two cells are alike, as in an id" in comments
    assert "# 'note': free text, or more than 200 distinct words" in comments
    shown = " ".join(done.stdout.split())
    assert "Read as semicolons between cells, utf-8" in shown
    assert "4 columns, and 2 left out" in shown
    assert "Column 'price': written as in 1.200,5; a claim reads them with decimal: ',' only." in shown
    assert "Column 'day': written as in 31.05.2013; a claim reads dates as in 2013-05-31 only." in shown
    result = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "other.yaml", "--json")
    document = json.loads(result.stdout)
    assert document["columns"] == ["price", "age", "day", "kind"]
    assert list(document["left_out"]) == ["id", "note"]
    kinds = {column["name"]: (column["kind"], column["used"]) for column in document["understood"]["columns"]}
    assert kinds == {
        "id": ("identifier", False),
        "price": ("number", True),
        "age": ("number", True),
        "day": ("date", True),
        "note": ("text", False),
        "kind": ("category", True),
    }


def test_what_is_stated_of_a_sample(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_bytes("a|1,500|-9|é\nb|2,250|4|é\nc|1,125|lost|é\n".encode("latin-1"))
    written = ["--no-header", "--separator", "bar", "--encoding", "latin-1", "--decimal", ","]
    stated = [*written, "--missing", "-9", "--missing", "Lost"]
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public", *stated)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "schema.yaml").read_text())["columns"] == [
        {"name": "column 0", "type": "category", "values": ["a", "b", "c"]},
        {"name": "column 1", "type": "number", "low": 1.125, "high": 2.25, "decimals": 3},
        {"name": "column 2", "type": "number", "low": 4, "high": 4, "decimals": 0, "missing": True},
        {"name": "column 3", "type": "category", "values": ["é"]},
    ]


def test_cells_that_are_no_numbers_are_said_and_not_shown(tmp_path: Path) -> None:
    rows = [f"{row % 30 + 0.5},{row % 5}\n" for row in range(60)]
    (tmp_path / "sample.csv").write_text("x,y\n" + "".join(rows[:59]) + "secret,1\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    shown = " ".join(done.stdout.split())
    assert "Column 'x': 1 cells of sample are no number as in 1200.5 (rows 60) and count as missing." in shown
    assert "Column 'x': a claim refuses such cells; correct them, or state their words as missing." in shown
    assert "secret" not in shown
    assert yaml.safe_load((tmp_path / "schema.yaml").read_text())["columns"][0] == {
        "name": "x",
        "type": "number",
        "low": 0.5,
        "high": 29.5,
        "decimals": 1,
    }


def test_whole_numbers_that_do_not_repeat_may_be_ids(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text("x,y\n" + "".join(f"{row},{row % 3}\n" for row in range(20)))
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert "Column 'x': no two cells are alike; if it is an id, leave it out" in " ".join(done.stdout.split())
    assert "Column 'y'" not in done.stdout


def test_truth_values_and_a_few_times_of_day_are_categories(tmp_path: Path) -> None:
    """So are marks of missing cells among them, which a claim does not take for empty cells."""
    rows = [f"{('TRUE', 'FALSE')[row % 2]},2020-01-0{row % 3 + 1} 12:30,{row % 4}\n" for row in range(40)]
    (tmp_path / "sample.csv").write_text("flag,when,x\n" + "".join(rows) + "NA,NA,NA\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((tmp_path / "schema.yaml").read_text())["columns"] == [
        {"name": "flag", "type": "category", "values": ["FALSE", "NA", "TRUE"]},
        {
            "name": "when",
            "type": "category",
            "values": ["2020-01-01 12:30", "2020-01-02 12:30", "2020-01-03 12:30", "NA"],
        },
        {"name": "x", "type": "number", "low": 0, "high": 3, "decimals": 0, "missing": True},
    ]
    assert "Column '" not in done.stdout
    schema, _ = read_schema(tmp_path / "schema.yaml")
    assert schema_rows(read_table(tmp_path / "sample.csv"), schema)[-1] == ("NA", "NA", "missing")


@pytest.mark.slow
def test_five_thousand_columns(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(5000)]
    lines = [",".join(f"{(number * row) % 97}.5" for number in range(5000)) for row in range(1, 4)]
    (tmp_path / "sample.csv").write_text("\n".join([",".join(names), *lines]) + "\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    assert "And 4960 more columns; --json has all." in done.stdout
    schema, _ = read_schema(tmp_path / "schema.yaml")
    assert [list(row) for row in schema_rows(read_table(tmp_path / "sample.csv"), schema)] == [
        line.split(",") for line in lines
    ]


def test_a_schema_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text(SAMPLE)
    (tmp_path / "schema.yaml").write_text("mine")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml")
    assert done.returncode == 2
    assert (tmp_path / "schema.yaml").read_text() == "mine"


def test_a_proposed_schema_accepts_its_own_sample(tmp_path: Path) -> None:
    """Ends with more decimals than a schema has are rounded outwards."""
    (tmp_path / "sample.csv").write_text("lat,when\n0.12345641,\n-0.98765432109,2020-01-01\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    schema, _ = read_schema(tmp_path / "schema.yaml")
    assert [column.size for column in schema.columns] == [1_111_113, 1]
    for row in ({"lat": "0.12345641", "when": ""}, {"lat": "-0.98765432109", "when": "2020-01-01"}):
        schema.row(row)


def test_the_word_for_an_empty_cell_is_no_category(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text("x,y\nmissing,1\na,2\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 2
    assert "stands for an empty cell" in done.stderr
    assert not (tmp_path / "schema.yaml").exists()


def test_days_of_a_parquet_file(tmp_path: Path) -> None:
    """Timestamps at midnight are days: in a schema, and in rows that are read by it."""
    days = [datetime(2020, 5, day) for day in (1, 2, 9)]
    pyarrow.parquet.write_table(pyarrow.table({"day": days, "x": [1, 2, 3]}), tmp_path / "sample.parquet")
    done = run("table", "schema", tmp_path / "sample.parquet", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 0, done.stderr
    schema, _ = read_schema(tmp_path / "schema.yaml")
    rows = schema_rows(read_table(tmp_path / "sample.parquet"), schema)
    assert rows == [("2020-05-01", "1"), ("2020-05-02", "2"), ("2020-05-09", "3")]


def test_an_invalid_schema_is_not_left_behind(tmp_path: Path) -> None:
    (tmp_path / "sample.csv").write_text("x,y\n1e300,a\n2,b\n")
    done = run("table", "schema", tmp_path / "sample.csv", "-o", tmp_path / "schema.yaml", "--public")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "schema.yaml").exists()
