"""The same table, written in more than 300 ways, gives the same audit by canaries; canaries are written as it is."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

import command
import pytest
from written_tables import Row, Writing, as_json_lines, people, writings

from dpassay.auditing.canaries.files import read_plan
from dpassay.data.records import read_rows

WRITINGS = list(writings())
SOME = WRITINGS[::29]
PARTS = 10
CANARIES = 40


def done(*arguments: object, codes: tuple[int, ...] = (0, 1)) -> dict[str, Any]:
    result = command.run("audit", *arguments, "--json")
    assert result.returncode in codes, result.stderr
    outcome: dict[str, Any] = json.loads(result.stdout)
    return outcome


def refused(*arguments: object) -> str:
    result = command.run("audit", *arguments, "-q")
    assert (result.returncode, result.stdout) == (2, ""), (result.stdout, result.stderr)
    [line] = result.stderr.strip().splitlines()
    return line


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

    read = {"height": number, "income": lambda cell: int(number(cell)), "visit": date, "city": str}
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
