"""The code of the page on released data prints what the page says, and its table names the attacks that there are."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from dpassay.attacks.released.attribute_inference import TOLERANCE
from dpassay.attacks.released.nearest_record import CLOSEST
from dpassay.attacks.released.text_extraction import Criteria

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "released-data.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_code_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, shown = blocks("python"), blocks("text")
    assert len(code) == len(shown) == 2
    names: dict[str, Any] = {}
    for block, expected in zip(code, shown, strict=True):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(block, names)  # noqa: S102 (our own documentation)
        assert out.getvalue() == expected


def test_the_page_has_the_thresholds_of_the_code() -> None:
    rule = Criteria()
    assert f"| {rule.words} consecutive words" in PAGE
    assert f"at least {rule.near_share:.0%} of its runs of {rule.near_words} words" in PAGE
    assert f"the {rule.longest_share:.0%} of all units with the longest run, of {rule.words} words at least" in PAGE
    assert f"the {CLOSEST:.0%} of all units that are nearest" in PAGE
    assert f"within {TOLERANCE:.0%} of the range" in PAGE
