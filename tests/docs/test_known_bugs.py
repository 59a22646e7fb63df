"""The page of known bugs: its example runs, and its table has a row for each bug. (Their tests hold the numbers.)"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measurements" / "known-bugs.md"


def test_the_example_prints_what_the_page_says() -> None:
    (code, printed) = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == printed


def test_every_bug_has_a_row() -> None:
    folder = ROOT / "tests" / "known_bugs"
    exhibits = {path.stem for path in folder.glob("test_*.py") if "def exhibit()" in path.read_text(encoding="utf-8")}
    (order,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((folder / "table.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER"
    )
    assert {f"test_{name}" for name in order} == exhibits
    rows = re.findall(r"^\| (?!bug |---)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert len(rows) == len(order) == 17
