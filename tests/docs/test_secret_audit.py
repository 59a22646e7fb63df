"""The code of the guide on audits that guesses secrets prints what the guide says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "secret-audit.md").read_text(encoding="utf-8")


def test_the_code_prints_what_the_guide_says() -> None:
    found = re.findall(r"```python\n([^`]*SecretGame[^`]*)```\n\n```text\n([^`]*)```", GUIDE)
    assert len(found) == 1
    code, expected = found[0]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == expected
