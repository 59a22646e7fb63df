"""`dpassay table schema`: a template of a public sample, which a claim can read; what it warns of and refuses."""

from __future__ import annotations

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
        ("a\n" + "".join(f"word{row}\n" for row in range(60)), [], "more than 50 distinct words"),
        ("a,b\n1,\n", [], "column 'b' is empty"),
        ("a\n", [], "the sample has no rows"),
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
