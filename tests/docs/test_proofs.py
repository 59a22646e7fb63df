"""Every proof is on one page of docs/proofs, which names tests that exist; what docstrings and guides cite is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROOFS = ROOT / "docs" / "proofs"
PAGES = sorted(path for path in PROOFS.glob("*.md") if path.name != "README.md")
FLOORS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values()


def numbers(text: str) -> list[int]:
    """The numbers in "Theorem 3", "Theorems 3, 8 and 9" or "Theorems 1 to 4"."""
    results: list[int] = []
    for part in re.split(r",| and ", text):
        ends = [int(end) for end in re.findall(r"\d+", part)]
        results += range(ends[0], ends[-1] + 1)
    return results


def test_docstrings_cite_theorems_that_exist() -> None:
    cited = 0
    for source in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        text = re.sub(r"\s+", " ", source.read_text(encoding="utf-8"))
        for page, listed in re.findall(
            r"docs/proofs/([\w-]+)\.md(?:, Theorems? (\d+(?:(?:, | and | to )\d+)*))?", text
        ):
            assert (PROOFS / f"{page}.md").exists(), f"{source}: {page}"
            if listed:
                stated = re.findall(r"^## (?:Theorem|Lemma|Corollary) (\d+)", (PROOFS / f"{page}.md").read_text(), re.M)
                assert {str(number) for number in numbers(listed)} <= set(stated), f"{source}: {page}, {listed}"
                cited += 1
    assert cited > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_assumptions_proofs_and_tests_that_exist(page: Path) -> None:
    """Tests are named as `tests/…/test_file.py` or, after a folder, as `test_file.py`, and by their functions."""
    text = page.read_text(encoding="utf-8")
    assert re.search(r"^## (Setting and a|A)ssumptions|^## Setting", text, re.M)
    assert text.count("**Proof.**") == text.count("∎") > 0
    theorems = re.findall(r"^## (?:Theorem|Lemma|Corollary) (\d+)", text, re.M)
    assert theorems == [str(number) for number in range(1, len(theorems) + 1)]
    folders = [ROOT / folder for folder in re.findall(r"`(tests/[\w/]+/)`", text)]
    named = set(re.findall(r"`([\w/]+\.py)`", text))
    files = [ROOT / name for name in named if name.startswith("tests/")]
    files += [folder / name for folder in folders for name in named if "/" not in name]
    assert files
    defined = set()
    for file in files:
        assert file.exists(), file
        defined |= set(re.findall(r"^def (test_\w+)", file.read_text(encoding="utf-8"), re.M))
    functions = set(re.findall(r"`(test_\w+)`", text))
    assert functions
    assert functions <= defined, functions - defined
    for code in named - {str(file.relative_to(ROOT)) for file in files} - {file.name for file in files}:
        assert (ROOT / code).exists(), code


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (PROOFS / "README.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [page.name for page in PAGES]


def test_links_between_pages_lead_somewhere() -> None:
    """Relative links of all pages, with the headings that they name. The site makes the pages of `reference`."""
    made = re.findall(r"\breference/\S+\.md", (ROOT / "mkdocs.yml").read_text("utf-8"))
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for target, heading in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text("utf-8")):
            to = (page.parent / target).resolve() if target else page
            if to.is_relative_to(ROOT / "docs" / "reference"):
                assert to.relative_to(ROOT / "docs").as_posix() in made, f"{page.relative_to(ROOT)}: {target}"
                continue
            assert to.exists(), f"{page.relative_to(ROOT)}: {target}"
            if heading:
                lines = re.findall(r"^#+ (.*)$", to.read_text("utf-8"), re.M)
                anchors = {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}
                assert heading in anchors, f"{page.relative_to(ROOT)}: {target}#{heading}"
