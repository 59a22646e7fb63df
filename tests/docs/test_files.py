"""The page on files has the limits, words and forms of the code."""

from __future__ import annotations

from pathlib import Path

from dpassay.data import column_summary, columns, reader

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "files.md").read_text()


def test_the_page_has_the_forms_and_the_marks_of_the_code() -> None:
    for form in columns.Form:
        assert all(f"`{word}`" in PAGE for word in form.split(", ")), form
    for mark in columns.MARKS - {"#n/a"}:
        assert f"`{mark}`" in PAGE.lower()
    for kind in columns.Kind:
        assert kind is columns.Kind.NESTED or f"| {kind} |" in PAGE


def test_the_page_has_the_limits_of_the_code() -> None:
    assert f"| number | {columns.NEARLY:.0%} of".replace("%", " %") in PAGE
    assert f"| category | at most {columns.MAX_CATEGORIES} distinct words" in PAGE
    assert f"first {reader.SAMPLE} rows" in PAGE
    assert f"more than {column_summary.MISSING:.0%} is missing".replace("%", " %") in PAGE
    assert ", ".join(f"`{name}`" for name in reader.SEPARATORS.values()) in PAGE
    assert ", ".join(f"`{name}`" for name in reader.ENCODINGS) in PAGE
