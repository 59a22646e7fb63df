"""The example of the page of membership inference prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from command import run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "membership.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_example_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    data, in_python = blocks("python")
    names: dict[str, Any] = {}
    exec(compile(data, "docs/membership.md", "exec"), names)  # noqa: S102
    commands, expected = blocks("console"), blocks("text")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(in_python, "docs/membership.md", "exec"), names)  # noqa: S102
    assert out.getvalue() == expected.pop(1)
    (command,), (printed,) = commands, expected
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "dpassay"
    result = run(*arguments)
    assert result.returncode == 1, result.stderr
    assert [line.rstrip() for line in result.stdout.splitlines()] == printed.splitlines()


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (Path(__file__).resolve().parents[2] / "docs" / link).exists(), link
