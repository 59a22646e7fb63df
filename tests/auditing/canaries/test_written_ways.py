"""The same table, written in more than 300 ways, gives the same audit by canaries; canaries are written as it is."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import command
import pytest
from audit_command import done, refused
from written_tables import Row, Writing, as_json_lines, people, writings

from dpassay.auditing.canaries.files import read_plan
from dpassay.data.records import read_rows

WRITINGS = list(writings())
SOME = WRITINGS[::29]
PARTS = 10
CANARIES = 40


def reading(way: Writing) -> list[str]:
    """What has to be stated: of compressed files, UTF-16 is not found out."""
    stated = way.encoding == "latin-1" or (way.encoding == "utf-16" and way.packed)
    return ["--encoding", way.encoding] if stated else []


def meant(row: dict[str, Any], way: Writing) -> Row:
    """What the cells of a row mean, by how they were written."""

    def number(cell: str) -> float:
        plain = cell.translate(str.maketrans(",.", ".,")) if way.decimal == "," else cell
        assert way.thousands or "," not in plain
        assert not way.thousands or plain == f"{float(plain.replace(',', '')):,.{len(plain.partition('.')[2])}f}"
        return float(plain.replace(",", ""))

    def date(cell: str) -> datetime.date:
        day = datetime.datetime.strptime(cell, way.dates)
        assert day.strftime(way.dates) == cell
        return day.date()

    read: dict[str, Callable[[str], Any]] = {
        "height": number,
        "income": lambda cell: int(number(cell)),
        "visit": date,
        "city": str,
    }
    result: Row = {name: None if row[name] == way.missing else read[name](row[name]) for name in read}
    return result | {"member": bool(way.truth.index(row["member"]))}


def planned(folder: Path, like: Path, way: Writing, *more: object) -> dict[str, Any]:
    plan = ("plan", "--kind", "table", "--canaries", CANARIES, "--guesses", 8, "--epsilon", 0.1, "--like", like)
    return done(*plan, *reading(way), *more, "-o", folder)


def bounded(folder: Path, synthetic: Path, *more: object) -> dict[str, Any]:
    """The audit of one file, which is scored for the first time."""
    for name in ("scores.json", "bound.json"):
        (folder / name).unlink(missing_ok=True)
    done("score", folder, synthetic, *more)
    [entry] = json.loads((folder / "scores.json").read_text())["scorings"]
    audit: dict[str, Any] = done("bound", folder, codes=(0, 1, 4))["audit"]  # pairs of columns may miss copies
    shown = {key: audit[key] for key in ("bounds", "rates", "controls", "p_value")}
    return shown | {key: entry[key] for key in ("candidates", "never", "copied")}


@pytest.mark.parametrize("score", ["nearest", "pairs"])
def test_a_synthetic_table_gives_the_same_numbers_however_it_is_written(score: str, tmp_path: Path) -> None:
    check_synthetic_tables(SOME, score, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("score", ["nearest", "pairs"])
def test_a_synthetic_table_gives_the_same_numbers_in_every_writing(score: str, part: int, tmp_path: Path) -> None:
    check_synthetic_tables(WRITINGS[part::PARTS], score, tmp_path)


def check_synthetic_tables(ways: list[Writing], score: str, tmp_path: Path) -> None:
    plain, rows = Writing(), people(300, 0)
    folder = tmp_path / "audit"
    planned(folder, plain.write(rows, tmp_path / "data"), plain, "--score", score)
    copies = [meant(dict(row), plain) for _, row in read_rows(folder / "canaries.csv")]
    synthetic = [*copies[::2], *people(100, 1)]
    expected = bounded(folder, plain.write(synthetic, tmp_path / "plain"))
    assert score != "nearest" or expected["candidates"].count(0) == len(copies[::2])
    for number, way in enumerate(ways):
        path = way.write(synthetic, tmp_path / f"synthetic-{number}")
        assert bounded(folder, path, *reading(way)) == expected, way
    lines = as_json_lines(synthetic, tmp_path / "synthetic.jsonl")
    assert bounded(folder, lines) == expected


@pytest.mark.parametrize("way", SOME, ids=range(len(SOME)))
def test_canaries_are_written_as_the_data_are(way: Writing, tmp_path: Path) -> None:
    check_canaries(way, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_canaries_are_written_as_the_data_are_in_every_writing(part: int, tmp_path: Path) -> None:
    for number, way in enumerate(WRITINGS[part::PARTS]):
        (tmp_path / str(number)).mkdir()
        check_canaries(way, tmp_path / str(number))


def check_canaries(way: Writing, tmp_path: Path) -> None:
    """The cells of canaries have the form of the data, and their bytes are those that the same writer writes; all are
    found in a file that is written in the plain way, and so are those that are copied as they are."""
    rows, folder = people(300, 0), tmp_path / "audit"
    like = way.write(rows, tmp_path / "data")
    stated = ["--decimal", ","] if way.decimal == "," and way.thousands else []  # 1.200 may be 1.2 or 1200
    about = planned(folder, like, way, *stated)
    [*path] = folder.glob("canaries.*")
    assert path[0].name == "canaries" + "".join(like.suffixes)
    content = gzip.decompress(path[0].read_bytes()) if way.packed else path[0].read_bytes()
    cells = cells_of(content.decode(way.encoding), way)
    copies = [meant(row, way) for row in cells]
    size = len(read_plan(folder).plan.planted)
    assert len(copies) == size
    first = gzip.decompress(like.read_bytes()) if way.packed else like.read_bytes()
    lines = content.decode(way.encoding).split(way.end)
    assert first.startswith(content[: len(lines[0].encode(way.encoding))])
    assert len(lines) == size + 2
    if way.quoted:
        assert all(line.startswith('"') for line in lines[:-1])
    found = [*copies, rows[0]]
    for copied, more in (
        (Writing().write(found, tmp_path / "plain"), []),
        (way.write(found, tmp_path / "same"), reading(way)),
    ):
        rates = bounded(folder, copied, *more)["rates"]
        assert (rates[0]["hits"], rates[1]["hits"]) == (8, 0)
    names = [column["name"] for column in about["understood"]["columns"]]
    assert names == (["Unnamed: 0"] if way.index else []) + list(rows[0])
    used = {column["name"]: column["used"] for column in about["understood"]["columns"]}
    assert all(used[name] for name in rows[0])
    assert not used.get("Unnamed: 0")


def cells_of(text: str, way: Writing) -> list[dict[str, Any]]:
    lines = text.split(way.end)[:-1]
    names, *rows = ([cell.strip('"') for cell in line.split(way.separator)] for line in lines)
    return [dict(zip(names, row, strict=True)) for row in rows]


def pandas_like(rows: list[Row]) -> list[dict[str, Any]]:
    """As pandas writes a table that it has read, with an index: times at midnight, True, and whole numbers as floats
    where some are missing."""
    return [
        {
            "": number,
            "height": "" if row["height"] is None else row["height"],
            "income": "" if row["income"] is None else float(row["income"]),
            "visit": "" if row["visit"] is None else f"{row['visit']} 00:00:00",
            "city": f"{row['city']}   ",
            "member": str(row["member"]),
        }
        for number, row in enumerate(rows)
    ]


def raw(rows: list[dict[str, Any]], path: Path) -> Path:
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("index", [False, True])
def test_copies_as_pandas_writes_them_are_found(index: bool, tmp_path: Path) -> None:
    """An index, True for true, blanks at the ends, midnight: all planted copies, and the claim is refuted."""
    way, rows = Writing(truth=("false", "true"), index=index), people(400, 0)
    folder = tmp_path / "audit"
    plan = ("plan", "--kind", "table", "--canaries", 240, "--epsilon", 1, "--like", way.write(rows, tmp_path / "data"))
    done(*plan, "-o", folder)
    copies = [meant(dict(row), way) for _, row in read_rows(folder / "canaries.csv")]
    synthetic = raw(pandas_like(people(50, 1) + copies), tmp_path / "synthetic.csv")
    about = done("score", folder, synthetic)
    assert [column["name"] for column in about["understood"]["columns"]] == list(rows[0])
    warnings = [words for column in about["understood"]["columns"] for words in column["warnings"]]
    assert all("of its cells are missing" in words for words in warnings)  # canaries far from the data have more
    [entry] = json.loads((folder / "scores.json").read_text())["scorings"]
    coins = read_plan(folder).plan.coins
    assert {score for score, coin in zip(entry["candidates"], coins, strict=True) if coin} == {0}
    assert max(score for score, coin in zip(entry["candidates"], coins, strict=True) if not coin) < 0
    result = done("bound", folder)
    assert result["refuted"] is True
    done("report", folder)
    page = (folder / "report.html").read_text()
    assert "synthetic.csv: commas between cells, utf-8" in page
    assert "left alone: the index of pandas" in page or not index


@pytest.mark.parametrize(
    ("column", "change", "what"),
    [
        ("member", {"True": "yes", "False": "no"}, "are no numbers"),
        ("city", {"Kiel   ": "K", "Ulm   ": "U", "Bonn   ": "B", "Köln   ": "C"}, "has no value of the data"),
        ("visit", None, "are no dates"),
    ],
)
def test_a_column_that_no_longer_matches_is_named(
    column: str, change: dict[str, str] | None, what: str, tmp_path: Path
) -> None:
    folder, way = tmp_path / "audit", Writing()
    planned(folder, way.write(people(400, 0), tmp_path / "data"), way)
    copies = [meant(dict(row), way) for _, row in read_rows(folder / "canaries.csv")]
    rows = [
        {**row, column: "in spring" if change is None else change[row[column]]}
        for row in pandas_like([copy for copy in copies if copy[column] is not None])
    ]
    line = refused("score", folder, raw(rows, tmp_path / "synthetic.csv"))
    assert f"column '{column}'" in line
    assert what in line
    assert not (folder / "scores.json").exists()


def test_columns_that_differ_are_warned_about(tmp_path: Path) -> None:
    folder, way = tmp_path / "audit", Writing()
    planned(folder, way.write(people(400, 0), tmp_path / "data"), way)
    rows = people(60, 1)
    for number, row in enumerate(rows):
        row["income"] = 10**6 + number
        row["visit"] = None if number % 2 else row["visit"]
        row["height"] = "tall" if number < 9 else row["height"]
    synthetic = way.write(rows, tmp_path / "synthetic")
    warned = {
        column["name"]: column["warnings"] for column in done("score", folder, synthetic)["understood"]["columns"]
    }
    assert warned["income"] == ["all values are outside the range of the data"]
    assert warned["visit"] == ["more than 5% of its cells are missing in this file, but not in the data"]
    assert re.fullmatch(r"9 of \d+ cells are no number as in 1200.5, and match nothing", *warned["height"])
    assert warned["city"] == warned["member"] == []
    printed = command.run("audit", "score", folder, synthetic).stdout
    assert "Column 'income': all values are outside the range of the data." in " ".join(printed.split())


def test_how_the_synthetic_file_is_written_is_shown(tmp_path: Path) -> None:
    """And not how the data are."""
    way = Writing(separator=";", decimal=",", dates="%d/%m/%Y", truth=("0", "1"), encoding="utf-16")
    folder = tmp_path / "audit"
    about = planned(folder, way.write(people(300, 0), tmp_path / "data"), way)["understood"]
    assert about["written"] == {"data": "semicolons between cells, utf-16"}
    assert [column["form"] for column in about["columns"]] == ["1.200,5", "1200.5", "31/05/2013", "", "1200.5"]
    about = done("score", folder, Writing().write(people(300, 1), tmp_path / "synthetic"))["understood"]
    assert about["written"] == {"synthetic": "commas between cells, utf-8"}
    assert [column["form"] for column in about["columns"]] == ["1200.5", "1200.5", "2013-05-31", "", "true, false"]


def test_compressed_canaries_can_be_appended_to_the_data(tmp_path: Path) -> None:
    """As the guide says: without the first line, which names the columns."""
    way, folder = Writing(packed=True, separator=";", decimal=","), tmp_path / "audit"
    like = way.write(people(300, 0), tmp_path / "data")
    planned(folder, like, way, "--holdout", 0.5)
    append = f"gzip -dc {folder}/canaries.csv.gz | tail -n +2 | gzip >> {like}"
    subprocess.run(["bash", "-c", append], check=True)
    size = len(read_plan(folder).plan.planted)
    rows = [row for _, row in read_rows(like)]
    assert [meant(dict(row), way) for row in rows[:300]] == people(300, 0)
    assert [dict(row) for row in rows[300:]] == [dict(row) for _, row in read_rows(folder / "canaries.csv.gz")]
    assert len(rows) == 300 + size
    sides = [[row for _, row in read_rows(folder / "private" / f"{name}.csv.gz")] for name in ("source", "holdout")]
    inputs = [row for _, row in read_rows(folder / "input.csv.gz")]
    assert sum(map(len, sides)) == 300
    assert len(inputs) == len(sides[0]) + size
    assert not list(folder.glob(".part*"))


def test_a_table_without_names_of_columns(tmp_path: Path) -> None:
    """The generator's file may have names or none; without them columns are matched by their order."""
    folder, like = tmp_path / "audit", tmp_path / "data.csv"
    lines = Writing().write(people(300, 0), tmp_path / "named").read_text(encoding="utf-8").splitlines(keepends=True)
    like.write_text("".join(lines[1:]), encoding="utf-8")
    assert "--no-header" in refused("plan", "--kind", "table", "--like", like, "-o", folder)
    planned(folder, like, Writing(), "--no-header", "--holdout", 0.4)
    readme = (folder / "README.md").read_text()
    assert "holdout.csv --no-header --coins" in readme
    assert "names the columns" not in readme
    canaries = (folder / "canaries.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(canaries) == len(read_plan(folder).plan.planted)
    assert len((folder / "input.csv").read_text(encoding="utf-8").splitlines()) > len(canaries)
    for name, content, more in (
        ("named", [lines[0], *canaries, lines[1]], []),
        ("bare", [*canaries, lines[1]], ["--no-header"]),
    ):
        (tmp_path / f"{name}.csv").write_text("".join(content), encoding="utf-8")
        rates = bounded(folder, tmp_path / f"{name}.csv", *more)["rates"]
        assert (rates[0]["hits"], rates[1]["hits"]) == (8, 0)
    fewer = tmp_path / "fewer.csv"
    fewer.write_text("a,b\n1,2\n2,3\n", encoding="utf-8")
    for name in ("scores.json", "bound.json"):
        (folder / name).unlink()
    assert "has 2 columns and the data have 5" in refused("score", folder, fewer)


TEXTS = [f"Die Rechnung {2000 + i} über {i * 37 % 91} Euro; bitte bis morgen, „sofort“" for i in range(120)]


@pytest.mark.parametrize("kind", ["key", "echo"])
def test_texts_give_the_same_numbers_however_they_are_written(kind: str, tmp_path: Path) -> None:
    folder, like = tmp_path / "audit", tmp_path / "like.jsonl"
    like.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    plan = ("plan", "--kind", kind, "--canaries", CANARIES, "--like", like, "-o", folder)
    done(*plan, *(("--guesses", 8) if kind == "echo" else ()))
    said = [canary.text for canary in read_plan(folder).plan.planted[::2]] + [text.replace("„", "") for text in TEXTS]
    rows: list[Row] = [{"no": number, "text": text.replace("“", "")} for number, text in enumerate(said)]
    expected = bounded(folder, as_json_lines(rows, tmp_path / "plain.jsonl"))
    ways = [way for way in SOME if way.separator != "|"]
    for number, way in enumerate(ways):
        assert bounded(folder, way.write(rows, tmp_path / str(number)), *reading(way)) == expected, way


@pytest.mark.parametrize("way", SOME[::3], ids=range(len(SOME[::3])))
def test_texts_are_planted_as_the_data_are_written(way: Writing, tmp_path: Path) -> None:
    rows: list[Row] = [{"no": i, "text": text.translate({0x201E: None, 0x201C: None})} for i, text in enumerate(TEXTS)]
    like, folder = way.write(rows, tmp_path / "data"), tmp_path / "audit"
    done("plan", "--canaries", CANARIES, "--like", like, "--id", "no", *reading(way), "-o", folder)
    [path] = folder.glob("canaries.*")
    content = gzip.decompress(path.read_bytes()) if way.packed else path.read_bytes()
    table = csv.DictReader(io.StringIO(content.decode(way.encoding), newline=""), delimiter=way.separator)
    assert [row["text"] for row in table] == [canary.text for canary in read_plan(folder).plan.planted]
    if way.quoted:
        assert all(line.startswith('"') for line in content.decode(way.encoding).split(way.end)[:-1])


def test_characters_that_the_encoding_lacks_are_refused(tmp_path: Path) -> None:
    way, out = Writing(encoding="latin-1"), tmp_path / "audit"
    like = way.write([{"no": i, "text": f"Straße {i}"} for i in range(40)], tmp_path / "data")
    plan = ("plan", "--like", like, "--canaries", 40, "--encoding", "latin-1", "--template", "Łódź {key}", "-o", out)
    line = refused(*plan)
    assert "latin-1" in line
    assert "save the data as UTF-8" in line
    assert "Łódź" not in line
    assert not out.exists()
