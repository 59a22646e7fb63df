"""Records of tables: their ids and slots are those of the characters of the file, however it is written."""

from __future__ import annotations

import csv
import hashlib
import json
from pathlib import Path

import pytest

from dpassay.claims.tables import TableData
from dpassay.data.batching import keyed_hash
from dpassay.data.reader import FileOptions
from dpassay.data.records import Record
from dpassay.data.tables import read_table

NAMES = ["when", "pay", "note"]
CELLS = [
    ["31.05.2013", "1.200,50", "NA"],
    ["2013-05-31", "1200.5", "a; b, c"],
    ["", "-9", 'said "no"'],
    ["", " 7 ", ""],
]


def write(path: Path, separator: str = ",", header: bool = True, encoding: str = "utf-8") -> Path:
    with path.open("w", newline="", encoding=encoding) as file:
        table = csv.writer(file, delimiter=separator)
        table.writerows([NAMES, *CELLS] if header else CELLS)
    return path


def content_hash(cells: list[str], names: list[str]) -> str:
    """SHA-256 of the row as JSON within the JSON of a record, after the name of the hash."""
    text = json.dumps(dict(zip(names, cells, strict=True)), ensure_ascii=False)
    record = json.dumps([text, None, None], separators=(",", ":"))
    return hashlib.sha256(b"cupel.record\0" + record.encode()).hexdigest()


@pytest.mark.parametrize(
    "stated",
    [
        {},
        {"decimal": ","},
        {"decimal": "."},
        {"missing": ["NA", "-9"]},
        {"decimal": ",", "missing": ["7"], "header": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_what_a_claim_states_of_a_file_never_moves_a_record(
    separator: str, stated: dict[str, object], tmp_path: Path
) -> None:
    path = write(tmp_path / "people.csv", separator)
    words = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
    for more in ({}, {"separator": words[separator], "encoding": "utf-8"}):
        data = TableData.model_validate({"source": "table", "path": path, **stated, **more})
        records = data.load(None, False)
        assert [record.id for record in records] == [content_hash(cells, NAMES) for cells in CELLS]
        assert [keyed_hash(b"0123456789abcdef", "slot", record.slotting_id) for record in records] == [
            keyed_hash(b"0123456789abcdef", "slot", content_hash(cells, NAMES)) for cells in CELLS
        ]


def test_encodings_and_headers_do_not_move_a_record_either(tmp_path: Path) -> None:
    plain = read_table(write(tmp_path / "plain.csv"))
    assert read_table(write(tmp_path / "marked.csv", encoding="utf-8-sig")) == plain
    assert read_table(write(tmp_path / "wide.csv", ";", encoding="utf-16")) == plain
    names = [f"column {number}" for number in range(len(NAMES))]
    bare: list[Record] = read_table(write(tmp_path / "bare.csv", header=False), stated=FileOptions(header=False))
    assert [record.id for record in bare] == [content_hash(cells, names) for cells in CELLS]
