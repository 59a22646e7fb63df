"""The code of the guides to accounting runs, and its comments say what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("guide", ["accounting", "lattice"])
def test_the_code_runs(guide: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{guide}.md").read_text(), flags=re.DOTALL)
    assert blocks
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 (our own documentation)


def test_the_printed_values_are_those_of_the_code() -> None:
    """`expression  # 9.2492…` lines of accounting.md."""
    text = (DOCS / "accounting.md").read_text()
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102 (our own documentation)
    shown = re.findall(r"^(.*\.value)  # ([\d.]+)…", block, flags=re.MULTILINE)
    assert len(shown) == 2
    for expression, digits in shown:
        assert str(eval(expression, names)).startswith(digits)
