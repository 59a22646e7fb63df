"""Notebooks run from top to bottom in plain Python, print what they are stored to print, and are small."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from notebooks import NOTEBOOKS, VARIES, code_cells, executed, printed

BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
PICTURE = 100_000
"""Bytes of a picture as base64, at most."""


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore:.*:UserWarning")  # a slow machine leaves curves out, and says so
def test_a_notebook_prints_what_it_is_stored_to_print(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    for cell, (text, pictures) in zip(code_cells(book), executed(book), strict=True):
        assert len(pictures) == sum(item["output_type"] == "display_data" for item in cell["outputs"])
        if VARIES not in cell["metadata"].get("tags", []):
            assert text == printed(cell)


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_says_nothing_of_a_machine(path: Path) -> None:
    book = json.loads(path.read_text(encoding="utf-8"))
    assert book["cells"][0]["cell_type"] == "markdown"
    assert "?" in "".join(book["cells"][0]["source"]), "the question comes first"
    for cell in code_cells(book):
        assert cell["execution_count"] is None
        assert all(len(item.get("data", {}).get("image/png", "")) < PICTURE for item in cell["outputs"])
        assert not re.search(r"/(home|tmp|work|Users)/", printed(cell))
    words = "".join("".join(cell["source"]) for cell in book["cells"])
    for link in re.findall(r"\]\(([^)]+)\)", words):
        assert (path.parent / link).exists(), link
