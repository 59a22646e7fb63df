"""However a claim's file is written, its records, their ids and their slots are those of the plain file."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from dpassay.claims.data import FileData
from dpassay.claims.tables import TableData

TEXTS = ["a note, and more", 'she said "no"', "two\nlines", "ein Gruß", "1,5", "NA"]


def written(path: Path, separator: str = ",", encoding: str = "utf-8", header: bool = True, end: str = "\n") -> Path:
    lines = ["text" + separator + "label"] if header else []
    lines += ['"' + text.replace('"', '""') + '"' + separator + "x" for text in TEXTS]
    content = "".join(line + end for line in lines).encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def texts(path: Path, **stated: Any) -> list[Any]:
    columns = {"text": "column 0", "label": "column 1"} if stated.get("header") is False else {"label": "label"}
    return list(FileData.model_validate({"source": "file", "path": path, **columns, **stated}).load(None, False))


@pytest.mark.parametrize(
    ("name", "way", "stated"),
    [
        ("a.csv", {"separator": ";"}, {}),
        ("a.csv", {"separator": "|", "end": "\r\n"}, {}),
        ("a.tsv", {"separator": "\t"}, {}),
        ("a.csv", {"encoding": "utf-16"}, {}),
        ("a.csv", {"encoding": "utf-8-sig"}, {}),
        ("a.csv", {"encoding": "latin-1"}, {"encoding": "latin-1"}),
        ("a.csv", {"header": False}, {"header": False}),
        ("a.csv.gz", {}, {}),
        ("a.csv.gz", {"separator": ";", "encoding": "latin-1"}, {"encoding": "latin-1", "separator": "semicolon"}),
    ],
)
def test_records_are_those_of_the_plain_file(
    name: str, way: dict[str, Any], stated: dict[str, Any], tmp_path: Path
) -> None:
    plain = texts(written(tmp_path / "plain.csv"))
    assert [record.text for record in plain] == TEXTS
    assert texts(written(tmp_path / name, **way), **stated) == plain


def test_rows_of_tables_are_those_of_the_plain_file(tmp_path: Path) -> None:
    plain, other = (
        TableData.model_validate({"source": "table", "path": written(tmp_path / name, separator)}).load(None, False)
        for name, separator in (("a.csv", ","), ("b.csv", ";"))
    )
    assert plain == other


def test_how_the_file_was_read_is_private_and_said(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", ";")
    data = FileData.model_validate({"source": "file", "path": path, "label": "label"})
    assert data.facts() == {"the data were read as": "semicolons between cells, utf-8"}
    (tmp_path / "a.csv").unlink()
    assert data.facts() == {}
