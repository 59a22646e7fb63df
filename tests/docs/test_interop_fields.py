"""The page on files of other libraries shows the table of fields."""

from __future__ import annotations

from pathlib import Path

from dpassay.accounting.interop.fields import FIELDS, table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "interop.md").read_text(encoding="utf-8")


def test_the_table_of_fields() -> None:
    assert table() in PAGE
    assert len(table().splitlines()) == len(FIELDS) + 2
