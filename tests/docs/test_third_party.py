"""The commands of docs/third-party.md and of the example run in order, and come out as the page says."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import command
import pytest
from seeded_entropy import seed_entropy

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "third-party"
GUIDE = ROOT / "docs" / "third-party.md"


def blocks(page: Path) -> list[list[str]]:
    """The lines of each block of commands."""
    return [block.splitlines() for block in re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)]


def run(line: str) -> int:
    """The exit code of a line in the current folder."""
    if line.startswith("dpassay "):
        result = command.run(*shlex.split(line)[1:])
        assert result.returncode in (0, 1), result.stderr
        return result.returncode
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(["bash", "-c", line], check=True, env={**os.environ, "PATH": path}).returncode


@pytest.mark.parametrize(
    ("page", "block", "refuted"),
    [(GUIDE, 0, True), (GUIDE, 1, False), (EXAMPLE / "README.md", 0, True)],
    ids=["keys", "rows", "echoes"],
)
def test_commands_come_out_as_the_page_says(
    page: Path, block: int, refuted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About 190 guesses of keys are right where 24 would do, and 90 of echoes where 45 would.

    The rows' generator has ε = 1 and is refuted with probability at most 1e-6. What must be refuted is seeded, because
    the negative control fails by chance with probability at most .001.
    """
    if refuted:
        seed_entropy(monkeypatch, 0)
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    codes = {line: run(line) for line in blocks(page)[block]}
    assert {line.split()[2] for line, code in codes.items() if code == 1} == ({"bound"} if refuted else set())
    folder = "rows" if block else "audit"
    assert (tmp_path / folder / "bound.json").is_file()
    assert (tmp_path / folder / "report.html").is_file() == (block == 0)


def test_the_code_prints_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every planted key is printed, and no other. It is seeded as the commands above are, because of the control."""
    seed_entropy(monkeypatch, 0)
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    ((code, expected),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {})  # noqa: S102 (our own documentation)
    assert out.getvalue() == expected


def test_a_plan_expects_what_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (line,) = [block[0] for block in blocks(GUIDE) if "--kind echo" in block[0]]
    result = command.run(*shlex.split(line)[1:])
    starts = ("- A generator that ", "A test of this size ")
    expected = [said for said in result.stdout.splitlines() if said.startswith(starts)]
    assert len(expected) == 7
    (block,) = re.findall(r"```text\n(- A generator that .*?)```", GUIDE.read_text(), flags=re.DOTALL)
    assert block.split() == " ".join(expected).split()


def test_links_lead_somewhere() -> None:
    for page in (GUIDE, EXAMPLE / "README.md"):
        for link in re.findall(r"\]\(([^)]+)\)", page.read_text()):
            path, _, heading = link.partition("#")
            target = page.parent / path if path else page
            assert target.exists(), link
            headings = re.findall(r"^#+ (.*)$", target.read_text(), flags=re.MULTILINE) if heading else []
            assert not heading or heading in [
                re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings
            ]
