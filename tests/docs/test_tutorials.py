"""The tutorials do what they say: their files are written, their commands run in order and print what is shown."""

from __future__ import annotations

import contextlib
import html
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
from seeded_entropy import seed_entropy

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "tutorials"
PAGES = ("release-data", "account", "audit")
MOST_WORDS = 60_000
"""Of all guides and tutorials together."""


def text_of(page: str) -> str:
    return (FOLDER / f"{page}.md").read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    return text_of(page).split(f"\n## {heading}\n")[1].split("\n## ")[0]


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Language and content of each block of code, in order."""
    yield from re.findall(r"^```(\w+)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def plain(text: str) -> str:
    """Words alone: no lines of tables, one space between words."""
    return " ".join(re.sub("[━─│┃┡╇┩┏┳┓└┴┘]", " ", text).split())


def write_files(page: str) -> None:
    """Blocks that begin with the name of a file, in a comment."""
    for _, content in blocks(text_of(page)):
        if name := re.match(r"# ([\w-]+\.\w+)\n", content):
            Path(name[1]).write_text(content, encoding="utf-8")


def run(line: str, *codes: int) -> str:
    """What a line of a shell prints in the current folder."""
    if line.startswith("dpassay "):
        result = command.run(*shlex.split(line)[1:])
        assert result.returncode in codes, (line, result.stdout, result.stderr)
        return result.stdout
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], check=True, env={**os.environ, "PATH": path}, capture_output=True, text=True
    )
    return done.stdout


def printed(text: str, *codes: int) -> str:
    """Runs all commands of a part of a page, and checks that what is shown below them is printed, in this order."""
    everything = out = ""
    for language, content in blocks(text):
        if language == "sh":
            out = "".join(run(line, *codes) for line in content.splitlines())
            everything += out
        elif language == "text" and out:
            position, words = 0, plain(out)
            for line in re.split("…|\n", content):
                found = words.find(plain(line), position)
                assert found >= 0, f"{line!r} is not in {words!r}"
                position = found + len(plain(line))
            out = ""
    return everything


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return tmp_path


def test_a_table_is_released_with_the_sentences_of_the_page(folder: Path) -> None:
    write_files("release-data")
    for heading in ("The claim", "Check it", "Release it", "The same with texts"):
        printed(section("release-data", heading), 0)
    page = html.unescape(re.sub("<[^>]+>", " ", (folder / "released" / "report.html").read_text(encoding="utf-8")))
    shown = [content for language, content in blocks(section("release-data", "The note to the officer"))]
    assert len(shown) == 2
    for line in "".join(shown).splitlines():
        assert plain(line) in plain(page)


def test_python_prints_what_the_next_block_says(folder: Path) -> None:
    for page in ("release-data", "account"):
        pairs = re.findall(r"```python\n((?!# \w+\.py)[^`]*)```\n\n```text\n(.*?)```", text_of(page), flags=re.DOTALL)
        ((code, expected),) = pairs
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, {})  # noqa: S102 (our own documentation)
        assert out.getvalue() == expected


def test_numbers_of_the_tutorial_on_accounting_are_printed(folder: Path) -> None:
    for heading in ("ε from noise", "Noise for a target ε", "Users with several records", "What tuning costs"):
        assert printed(section("account", heading), 0)
    quoted = re.search(r"ε ≤ ([\d.]+) at δ = 10⁻⁶", section("account", "Write it down"))
    assert quoted is not None
    assert f"│ lattice    │ {quoted[1]} " in section("account", "ε from noise")


@pytest.mark.slow
def test_the_figure_is_the_one_that_the_command_draws(folder: Path) -> None:
    printed(section("account", "A figure"), 0)
    drawn, shown = (path.read_text(encoding="utf-8") for path in (folder / "account.svg", FOLDER / "account.svg"))
    assert re.findall(r"<text[^>]*>([^<]*)", drawn) == re.findall(r"<text[^>]*>([^<]*)", shown)


def test_copies_are_found_in_a_file_alone_and_by_canaries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control fails by chance with probability at most .001, so entropy is seeded."""
    seed_entropy(monkeypatch, 0)
    write_files("audit")
    printed(section("audit", "A CSV only"), 0)
    printed(section("audit", "One run, by somebody else"), 0, 1)
    assert (folder / "audit" / "report.html").is_file()


@pytest.mark.slow
def test_the_script_is_refuted_and_the_cause_is_named(folder: Path) -> None:
    """A new ward is printed in seven of ten runs on D′, and in none on D."""
    write_files("audit")
    run("python make.py")
    *first, bound, report = next(
        content for kind, content in blocks(section("audit", "A script")) if kind == "sh"
    ).splitlines()
    for line in first:
        run(line, 0)
    said = run(bound, 1)
    assert re.search(r"has (the|a value of the) target.* in \d+ of \d+ runs on D′", plain(said)), said
    assert "the claim, pure differential privacy with ε = 1, is refuted" in plain(said)
    run(report, 0)
    assert (folder / "runs" / "report.html").is_file()


@pytest.mark.parametrize("page", PAGES)
def test_every_page_has_a_picture_and_links_that_lead_somewhere(page: str) -> None:
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    assert "](" in text.partition("![")[2]
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert (FOLDER / link).exists() or link.startswith("../reference/"), link


def test_ready_claims_are_the_shipped_ones() -> None:
    names = re.findall(
        r"`([\w-]+)`", "".join(re.findall(r"^\| (`.*?) \|", section("release-data", "Ready claims, and Python"), re.M))
    )
    assert len(names) == 8
    assert all((ROOT / "examples" / "claims" / f"{name}.yaml").is_file() for name in names)


def test_guides_are_short_enough_to_read() -> None:
    words = {path: len(path.read_text(encoding="utf-8").split()) for path in (ROOT / "docs").glob("*.md")}
    words |= {path: len(path.read_text(encoding="utf-8").split()) for path in FOLDER.glob("*.md")}
    assert max(words.values()) <= 2500
    assert sum(words.values()) <= MOST_WORDS
