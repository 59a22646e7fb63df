"""Sheets of Excel files are read like other tables, or refused in one line."""

from __future__ import annotations

import builtins
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from dpassay.data.columns import columns_of
from dpassay.data.records import read_rows


def book(path: Path, *sheets: Sequence[Sequence[Any]]) -> Path:
    result = openpyxl.Workbook()
    result.remove(result.active)
    for number, rows in enumerate(sheets):
        sheet = result.create_sheet(f"s{number}")
        for row in rows:
            sheet.append(list(row))
    result.save(path)
    return path


def test_a_sheet_is_a_table(tmp_path: Path) -> None:
    day = datetime.datetime(2013, 5, 31)
    path = book(tmp_path / "a.xlsx", [["height", None, "day"], [170.5, "x", day], [None, None, None], [180, None, day]])
    rows = list(read_rows(path))
    assert [str(where) for where, _ in rows] == ["row 2", "row 4"]
    assert [row for _, row in rows] == [
        {"height": 170.5, "Unnamed: 1": "x", "day": day},
        {"height": 180, "Unnamed: 1": None, "day": day},
    ]
    assert columns_of(row for _, row in rows)["height"].kind == "number"


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ([[["a"], [1]], [["a"], [2]]], "has 2 sheets, of which only one would be read; save the sheet as CSV"),
        ([[["a", "a"], [1, 2]]], "columns 1 and 2 have one name; give them"),
    ],
)
def test_mistakes_are_one_line(sheets: list[Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        list(read_rows(book(tmp_path / "a.xlsx", *sheets)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PK\x03\x04broken"])
def test_what_is_no_excel_file_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"is not an Excel file \(.xlsx\); save the sheet as CSV"):
        list(read_rows(path))


def test_without_openpyxl_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = book(tmp_path / "a.xlsx", [["a"], [1]])
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "openpyxl":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ValueError, match=r"needs openpyxl \(pip install openpyxl\); or save the sheet as CSV"):
        list(read_rows(path))
