"""The code of the guide on audits that guesses secrets prints what the guide says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "secret-audit.md").read_text(encoding="utf-8")


def test_the_code_prints_what_the_guide_says() -> None:
    result = re.findall(r"```python\n([^`]*SecretGame[^`]*)```\n\n```text\n([^`]*)```", GUIDE)
    assert len(result) == 1
    code, expected = result[0]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == expected


def test_the_command_is_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """At confidence 0.95 a claim that holds is refuted with probability below 0.05, so only the proof is expected."""
    monkeypatch.setattr("dpassay.auditing.secrets.attack._MAX_GAMES", 60)
    monkeypatch.setattr("dpassay.auditing.secrets.attack._MAX_ENTROPY_GAMES", 30)
    (code,) = re.findall(r"```python\n([^`]*dpassay\.audit\.secrets[^`]*)```", GUIDE)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue().split()[1] == "True"
