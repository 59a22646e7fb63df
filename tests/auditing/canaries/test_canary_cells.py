"""Cells of the data and of synthetic files: what is read in which form, and what is refused in one line."""

from __future__ import annotations

import csv
import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from audit_command import done, refused

from dpassay.auditing.canaries.files import read_plan

START = datetime.date(1955, 1, 28)
TABLE = ("plan", "--kind", "table", "--canaries", 40)
Rows = list[dict[str, Any]]


def written(rows: Rows, path: Path, schema: pyarrow.Schema | None = None) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            out = csv.DictWriter(file, list(rows[0]))
            out.writeheader()
            out.writerows(rows)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(path: Path) -> Rows:
    if path.suffix == ".parquet":
        result: Rows = pyarrow.parquet.read_table(path).to_pylist()
        return result
    with path.open(newline="", encoding="utf-8") as file:
        return [dict(row) for row in csv.DictReader(file)]


def people(count: int = 400) -> Rows:
    """With numbers and dates that are too many to be categories."""
    return [
        {
            "spent": 10_000 + (i * 7919) % 9000,
            "born": str(START + datetime.timedelta(days=(i * 389) % 9973)),
            "place": ["Oslo", "Delft", "Ghent"][i % 3],
        }
        for i in range(count)
    ]


@pytest.fixture
def planned(tmp_path: Path) -> Path:
    like = written(people(), tmp_path / "people.csv")
    done(*TABLE, "--like", like, "-o", tmp_path / "audit")
    return tmp_path / "audit"


def scored(folder: Path, synthetic: Path) -> list[float]:
    done("score", folder, synthetic)
    [entry] = json.loads((folder / "scores.json").read_text())["scorings"]
    manifest = read_plan(folder).plan
    return [score for score, coin in zip(entry["candidates"], manifest.coins, strict=True) if coin]


@pytest.mark.parametrize("form", ["{} 00:00:00", "{}T00:00:00", "{}T00:00:00.000Z"])
def test_copies_with_dates_at_midnight_are_found(form: str, planned: Path, tmp_path: Path) -> None:
    rows = [{**row, "born": form.format(row["born"])} for row in read(planned / "canaries.csv")]
    assert set(scored(planned, written(rows, tmp_path / "s.csv"))) == {0}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Oslo"])
def test_copies_in_other_parquet_types_are_found(zone: str | None, planned: Path, tmp_path: Path) -> None:
    schema = pyarrow.schema(
        [
            ("spent", pyarrow.decimal128(12, 2)),
            ("born", pyarrow.timestamp("us", zone)),
            ("place", pyarrow.string()),
        ]
    )
    kind = schema.field("born").type
    rows = [
        {
            **row,
            "spent": Decimal(row["spent"]),
            "born": datetime.datetime.fromisoformat(row["born"]).replace(
                tzinfo=None if zone is None else pyarrow.lib.string_to_tzinfo(kind.tz)
            ),
        }
        for row in read(planned / "canaries.csv")
    ]
    assert set(scored(planned, written(rows, tmp_path / "s.parquet", schema))) == {0}


@pytest.mark.grid
@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("spent", lambda cell: f"{int(cell):,}"),
        ("spent", lambda cell: f" {cell}.00 "),
        ("spent", lambda cell: f"{cell},00"),
        ("born", lambda cell: ".".join(reversed(cell.split("-")))),
        ("born", lambda cell: "/".join(reversed(cell.split("-")))),
        ("born", lambda cell: f"{cell} 00:00:00"),
        ("place", lambda cell: f"{cell.upper()}  "),
    ],
)
@pytest.mark.parametrize("score", ["nearest", "pairs"])
def test_copies_that_are_written_otherwise_are_found(
    column: str, change: Callable[[str], str], score: str, tmp_path: Path
) -> None:
    like, folder = written(people(), tmp_path / "people.csv"), tmp_path / "audit"
    done(*TABLE, "--like", like, "--score", score, "-o", folder)
    rows = read(folder / "canaries.csv")
    rows.append(rows[0])  # the file of the plan itself is refused
    plain = scored(folder, written(rows, tmp_path / "plain.csv"))
    (folder / "scores.json").unlink()
    assert scored(folder, written([{**row, column: change(row[column])} for row in rows], tmp_path / "s.csv")) == plain


@pytest.mark.grid
@pytest.mark.parametrize(
    ("column", "change", "what"),
    [
        ("spent", lambda cell: f"{cell} €", "are no numbers; write them as 12124 or 0.5, without a unit, or leave"),
        ("spent", lambda cell: str(START + datetime.timedelta(days=int(cell))), "are no numbers"),
        ("born", lambda cell: f"on {cell}", "are no dates; write them as 2013-05-31, or leave the column out"),
        ("born", lambda cell: cell.replace("-", ""), "are no dates"),
    ],
)
@pytest.mark.parametrize("score", ["nearest", "pairs"])
def test_cells_that_cannot_be_read_are_refused(
    column: str, change: Callable[[str], str], what: str, score: str, tmp_path: Path
) -> None:
    like, folder = written(people(), tmp_path / "people.csv"), tmp_path / "audit"
    done(*TABLE, "--like", like, "--score", score, "-o", folder)
    rows = [{**row, column: change(row[column])} for row in read(folder / "canaries.csv")]
    size = len(rows)
    rows += [{**rows[0], column: ""}] * 30  # empty cells do not count
    synthetic = written(rows, tmp_path / "s.csv")
    line = refused("score", folder, synthetic)
    assert f"{synthetic}: column '{column}': {size} of {size} cells that are not empty {what}" in line
    assert "--ignore " + column in line
    assert all(row[column] not in line for row in rows if row[column])
    assert not (folder / "scores.json").exists()
    about = done("score", folder, synthetic, "--ignore", column)
    [left] = [of for of in about["understood"]["columns"] if of["name"] == column]
    assert (left["used"], left["why"]) == (False, "left out by --ignore")


@pytest.mark.parametrize(
    ("cell", "what"),
    [("", "is empty, so that no copy would be"), ("Rome", "has no value of the data, so that no copy")],
)
def test_a_column_of_words_that_cannot_be_matched_is_refused(
    cell: str, what: str, planned: Path, tmp_path: Path
) -> None:
    rows = [{**row, "place": cell} for row in read(planned / "canaries.csv")]
    synthetic = written(rows, tmp_path / "s.csv")
    line = refused("score", planned, synthetic)
    assert f"{synthetic}: column 'place'" in line
    assert what in line
    assert "or leave the column out with --ignore place" in line
    assert not (planned / "scores.json").exists()
    about = done("score", planned, synthetic, "--ignore", "place")
    assert [column["used"] for column in about["understood"]["columns"]] == [True, True, False]
    assert "no column 'x'" in refused("score", planned, synthetic, "--ignore", "x")
    every = [option for name in ("spent", "born", "place") for option in ("--ignore", name)]
    assert "no column is left that rows can be compared by" in refused("score", planned, synthetic, *every)


def test_half_of_the_cells_must_be_read(planned: Path, tmp_path: Path) -> None:
    """As many that cannot be read as can are scored, one more is refused; unknown words are new categories."""
    [row, *_] = read(planned / "canaries.csv")
    good, bad = {**row, "place": "Rome"}, {**row, "spent": "much"}
    line = refused("score", planned, written([good] * 5 + [bad] * 6, tmp_path / "more.csv"))
    assert "column 'spent': 6 of 11 cells that are not empty are no numbers" in line
    assert done("score", planned, written([good] * 5 + [bad] * 5, tmp_path / "half.csv"))["rows"] == 10


@pytest.mark.grid
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_categories_that_are_whole_numbers_are_found_as_floats(ending: str, tmp_path: Path) -> None:
    rows: Rows = [{"code": str(300 + i % 60), "place": "Oslo"} for i in range(400)]
    schema = tmp_path / "schema.json"
    values = [str(300 + i) for i in range(60)]
    columns = [{"name": "code", "type": "category", "values": values}]
    columns.append({"name": "place", "type": "category", "values": ["Oslo", "Delft"]})
    schema.write_text(json.dumps({"columns": columns}))
    folder = tmp_path / "audit"
    like = written(rows, tmp_path / "like.csv")
    done("plan", "--kind", "category", "--canaries", 40, "--like", like, "--schema", schema, "-o", folder)
    copies = [
        {**row, "code": float(row["code"]) if row["code"].isdigit() else row["code"]}
        for row in read(folder / "canaries.csv")
    ]
    if ending == "parquet":  # one type for all
        copies = [{**row, "code": row["code"] if isinstance(row["code"], float) else None} for row in copies]
    result = scored(folder, written(copies, tmp_path / f"s.{ending}"))
    whole = [canary.column == "code" for canary in read_plan(folder).plan.planted]
    assert any(whole)
    assert all(score == 1 for score, of in zip(result, whole, strict=True) if of)


@pytest.mark.grid
@pytest.mark.parametrize("content", ["", "spent,born,place\n"])
@pytest.mark.parametrize("kind", ["table", "edge", "category"])
def test_a_table_without_rows_is_refused(content: str, kind: str, tmp_path: Path) -> None:
    like, folder, empty = written(people(), tmp_path / "people.csv"), tmp_path / "audit", tmp_path / "s.csv"
    done("plan", "--kind", kind, "--canaries", 40, "--like", like, "-o", folder)
    empty.write_text(content)
    assert refused("score", folder, empty).endswith(f"{empty}: the synthetic table has no rows")
    assert not (folder / "scores.json").exists()


@pytest.mark.grid
@pytest.mark.parametrize("content", ["", "text\n", 'text\n" "\n""\n'])
@pytest.mark.parametrize("kind", ["key", "echo"])
def test_a_file_without_text_is_refused(content: str, kind: str, tmp_path: Path) -> None:
    folder, empty = tmp_path / "audit", tmp_path / "s.csv"
    done("plan", "--kind", kind, "--canaries", 20, "-o", folder)
    empty.write_text(content)
    assert refused("score", folder, empty).endswith(f"{empty}: holds no text")
    assert not (folder / "scores.json").exists()


@pytest.mark.parametrize(
    ("kind", "cell", "instead"),
    [
        (pyarrow.time64("us"), datetime.time(12), "leave it out of the file or give the data as CSV"),
        (pyarrow.duration("s"), datetime.timedelta(1), "leave it out of the file or give the data as CSV"),
        (pyarrow.list_(pyarrow.int64()), [1], "leave it out of the file or give the data as CSV"),
    ],
)
@pytest.mark.parametrize("of_text", [False, True])
def test_a_parquet_column_that_cannot_hold_canaries_is_named(
    kind: pyarrow.DataType, cell: Any, instead: str, of_text: bool, tmp_path: Path
) -> None:
    schema = pyarrow.schema([("text", pyarrow.string()), ("seen", kind)])
    rows: Rows = [{"text": ["one", "two"][i % 2], "seen": cell} for i in range(400)]
    like, out = written(rows, tmp_path / "like.parquet", schema), ("-o", tmp_path / "a")
    named = pyarrow.parquet.read_schema(like).field("seen").type
    # Of 40 canaries none is planted with probability 2⁻⁴⁰.
    line = refused("plan", "--kind", "key" if of_text else "category", "--canaries", 40, "--like", like, *out)
    assert line == f"dpassay: {like}: column 'seen' ({named}) cannot hold made-up values; {instead}"
    assert not (tmp_path / "a").exists()


def test_parquet_columns_of_days_with_a_zone_and_of_decimals(tmp_path: Path) -> None:
    kind = pyarrow.timestamp("us", "Europe/Oslo")
    zone = pyarrow.lib.string_to_tzinfo(kind.tz)
    schema = pyarrow.schema([("born", kind), ("spent", pyarrow.decimal128(12, 2)), ("place", pyarrow.string())])
    rows = [
        {
            "born": datetime.datetime.fromisoformat(row["born"]).replace(tzinfo=zone),
            "spent": Decimal(row["spent"]) / 4,
            "place": row["place"],
        }
        for row in people()
    ]
    like, folder = written(rows, tmp_path / "like.parquet", schema), tmp_path / "audit"
    about = done(*TABLE, "--like", like, "-o", folder)
    assert about["warnings"] == []
    assert {column.kind for column in read_plan(folder).plan.table} == {"date", "number", "word"}
    copies = read(folder / "canaries.parquet")
    assert {row["born"].time() for row in copies} == {datetime.time()}
    assert all(isinstance(row["spent"], Decimal) for row in copies)
    synthetic = written([*copies, rows[0]], tmp_path / "s.parquet", schema)
    assert set(scored(folder, synthetic)) == {0}


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Oslo"])
@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_times_of_day_are_drawn_and_found(zone: str | None, ending: str, tmp_path: Path) -> None:
    kind = pyarrow.timestamp("ms", zone)
    start = datetime.datetime(2013, 5, 31, 12, 30, tzinfo=None if zone is None else datetime.UTC)
    rows = [{**row, "seen": start + datetime.timedelta(minutes=i * 7919 % 99_991)} for i, row in enumerate(people())]
    schema = pyarrow.Table.from_pylist(rows).schema
    schema = schema.set(schema.get_field_index("seen"), pyarrow.field("seen", kind))
    like, folder = written(rows, tmp_path / "like.parquet", schema), tmp_path / "audit"
    done(*TABLE, "--like", like, "-o", folder)
    assert {column.name: column.kind for column in read_plan(folder).plan.table}["seen"] == "time"
    copies = read(folder / "canaries.parquet")
    assert {(row["seen"].second, row["seen"].microsecond) for row in copies} == {(0, 0)}
    assert all(rows[0]["seen"] <= row["seen"] < rows[0]["seen"] + datetime.timedelta(days=70) for row in copies)
    synthetic = written([*copies, rows[0]], tmp_path / f"s.{ending}", schema if ending == "parquet" else None)
    assert set(scored(folder, synthetic)) == {0}


def test_an_excel_file_is_not_written(tmp_path: Path) -> None:
    like = tmp_path / "like.xlsx"
    like.write_bytes(b"PK")
    line = refused(*TABLE, "--like", like, "-o", tmp_path / "a")
    assert f"{like}: canaries are written as the data are, in .csv, .tsv, .jsonl, .parquet; save the data as" in line


@pytest.mark.parametrize("kind", [pyarrow.int16(), pyarrow.int32(), pyarrow.uint32(), pyarrow.int64()])
def test_new_ids_fit_the_column(kind: pyarrow.DataType, tmp_path: Path) -> None:
    rows = [{"id": i - 50, "owner": i % 90, **row} for i, row in enumerate(people())]
    rows = [row for row in rows if row["id"] >= 0] if kind == pyarrow.uint32() else rows
    schema = pyarrow.Table.from_pylist(rows).schema.set(0, pyarrow.field("id", kind))
    schema = schema.set(1, pyarrow.field("owner", kind))
    like, folder = written(rows, tmp_path / "like.parquet", schema), tmp_path / "audit"
    done(*TABLE, "--like", like, "--id", "id", "--user", "owner", "-o", folder)
    copies = read(folder / "canaries.parquet")
    for name in ("id", "owner"):
        assert len({row[name] for row in copies}) == len(copies)
        assert not {row[name] for row in copies} & {row[name] for row in rows}


def test_ids_that_a_column_cannot_hold(tmp_path: Path) -> None:
    rows = [{"id": i % 120, **row} for i, row in enumerate(people())]
    narrow = pyarrow.Table.from_pylist(rows).schema.set(0, pyarrow.field("id", pyarrow.int8()))
    like = written(rows, tmp_path / "narrow.parquet", narrow)
    line = refused(*TABLE, "--like", like, "--id", "id", "-o", tmp_path / "a")
    assert f"{like}: column 'id' (int8) has no room for 40 new numbers; write it as int64" in line
    other = narrow.set(0, pyarrow.field("id", pyarrow.float64()))
    like = written([{**row, "id": row["id"] + 0.5} for row in rows], tmp_path / "other.parquet", other)
    line = refused(*TABLE, "--like", like, "--id", "id", "-o", tmp_path / "a")
    assert f"{like}: column 'id' (double) cannot hold made-up values; " in line
    words = narrow.set(0, pyarrow.field("id", pyarrow.string()))
    like = written([{**row, "id": str(row["id"])} for row in rows], tmp_path / "words.parquet", words)
    done(*TABLE, "--like", like, "--id", "id", "-o", tmp_path / "words")


def test_half_a_character_is_refused_where_it_is(tmp_path: Path) -> None:
    rows = people()
    rows[6]["place"] = "Secret\ud800"
    like, out = written(rows, tmp_path / "like.jsonl"), ("-o", tmp_path / "a")
    line = refused(*TABLE, "--like", like, *out)
    assert f"{like}, line 7: column 'place' has an unpaired surrogate, which is not a valid character" in line
    assert "Secret" not in line
    rows = [*people(5), {**people(1)[0], "x\ud800": 1}]
    line = refused(*TABLE, "--like", written(rows, tmp_path / "names.jsonl"), *out)
    assert "names.jsonl, line 6: the name of a column has an unpaired surrogate" in line
    line = refused("plan", "--template", "My \ud800 is {key}", *out)
    assert "template has an unpaired surrogate" in line
    assert "the name of a column has an unpaired surrogate" in refused("plan", "--text", "x\ud800", *out)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("cell", ["Infinity", "-Infinity", "NaN"])
def test_numbers_that_are_not_finite_are_empty_cells(cell: str, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = people()
    for row in rows[::4]:
        row["spent"] = row["place"] = float(cell)
    like, folder = written(rows, tmp_path / "like.jsonl"), tmp_path / "audit"
    done(*TABLE, "--like", like, "-o", folder)
    table = {column.name: column for column in read_plan(folder).plan.table}
    assert (table["spent"].kind, table["spent"].missing) == ("number", 0.25)
    assert all(math.isfinite(end) for column in table.values() for end in (column.low, column.high))
    assert (set(table["place"].values), table["place"].missing) == ({"Delft", "Ghent", "Oslo"}, 0.25)
    copies = [json.loads(line) for line in (folder / "canaries.jsonl").read_text().splitlines()]
    empty = [{name: float(cell) if value is None else value for name, value in row.items()} for row in copies]
    assert set(scored(folder, written(empty, tmp_path / "s.jsonl"))) == {0}


def test_a_column_that_looks_like_an_id(tmp_path: Path) -> None:
    rows: Rows = [{"id": 5000 + i, **row, "weight": i + 0.5} for i, row in enumerate(people())]
    for row in rows:
        row["spent"] //= 10
    like = written(rows, tmp_path / "like.csv")
    plan = ("plan", "--kind", "table", "--canaries", 40, "--like", like)
    about = done(*plan, "-o", tmp_path / "a")
    assert about["warnings"] == ["column 'id' looks like an id: name it with --id"]
    assert "Warning: column 'id' looks like an id: name it with --id." in (tmp_path / "a" / "README.md").read_text()
    assert done(*plan, "--id", "id", "-o", tmp_path / "b")["warnings"] == []
    # Of 16 rows that are drawn among 200, of which 20 are in the data, fewer than 8 are new with probability 2e-6.
    names: Rows = [{"name": f"C-{i}", "place": f"P-{i % 10}"} for i in range(20)]
    for count, warned in ((20, True), (19, False)):
        like = written(names[:count], tmp_path / f"{count}.csv")
        about = done("plan", "--kind", "table", "--canaries", 4, "--like", like, "-o", tmp_path / str(count))
        assert ("column 'name' looks like an id: name it with --id" in about["warnings"]) == warned


def test_a_split_that_audits_of_text_would_refuse(tmp_path: Path) -> None:
    rows: Rows = [{"text": f"a note of {i} words", "who": f"u{i % 70}"} for i in range(200)]
    split = ("plan", "--canaries", 20, "--holdout", 0.5, "-o", tmp_path / "a")
    half = [*rows, {"text": "Secret \ud800", "who": "u1"}]
    line = refused(*split, "--like", written(half, tmp_path / "half.jsonl"))
    assert "half.jsonl, line 201: column 'text' has an unpaired surrogate, which is not a valid character" in line
    assert "Secret" not in line
    done("plan", "--canaries", 20, "--like", tmp_path / "half.jsonl", "-o", tmp_path / "whole")
    lists = [*rows, {"text": "one more", "who": ["u1"]}]
    users = (*split, "--unit", "user", "--user", "who")
    line = refused(*users, "--like", written(lists, tmp_path / "lists.jsonl"))
    assert "lists.jsonl, line 201: column 'who' must hold a string or a number" in line
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("cell", [["Secret"], {"of": "Secret"}])
def test_a_split_that_the_audit_of_a_table_would_refuse(ending: str, cell: Any, tmp_path: Path) -> None:
    rows = [{**row, "tags": cell} for row in people()]
    like = written(rows, tmp_path / f"like.{ending}")
    split = ("plan", "--kind", "table", "--canaries", 40, "--holdout", 0.5, "--like", like, "-o", tmp_path / "a")
    line = refused(*split)
    assert "column 'tags' " in line
    assert "leave" in line
    assert "Secret" not in line
    assert not (tmp_path / "a").exists()
    plain = written(people(), tmp_path / f"plain.{ending}")
    done("plan", "--kind", "table", "--canaries", 40, "--holdout", 0.5, "--like", plain, "-o", tmp_path / "b")
