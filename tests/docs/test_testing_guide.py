"""The code of the guide to testing runs in its order, and prints what the blocks after it say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "testing.md"


def test_the_code_prints_what_the_guide_says() -> None:
    names: dict[str, Any] = {}
    printed, shown = [], []
    for language, block in re.findall(r"```(python|text)\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL):
        if language == "text":
            shown.append(block)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(block, names)  # noqa: S102 (our own documentation)
        if out.getvalue():
            printed.append(out.getvalue())
    assert printed == shown
    assert len(shown) == 4
    assert {"bounds", "truth", "test_counts"} <= names.keys()


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", GUIDE.read_text())
    assert links
    assert all((GUIDE.parent / link).exists() for link in links)
