"""Builds the site; a warning is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from build_site import claim_keys, command_line, glossary, python_names
from build_site.pages import ROOT, write_pages

SCRIPTS = Path(__file__).parent / "assets"
"""Copied to the site as they are."""

REMEDY = "mkdocs.yml: {page} is in no entry of `nav`; add it where its readers look, or remove the page"


def named_in_navigation() -> list[str]:
    """Where the pages are that entries of the navigation name."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    return list(_pages(yaml.safe_load(navigation)))


def _pages(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
        return
    for item in entry.values() if isinstance(entry, dict) else entry:
        yield from _pages(item)


def check_navigation(pages: list[str], named: list[str]) -> None:
    """Checks that every page has one entry of the navigation, and every entry a page.

    Raises:
        ValueError: one line that names the first page that is missing, or that is there twice.
    """
    if missing := sorted(set(pages) - set(named)):
        raise ValueError(REMEDY.format(page=missing[0]))
    if gone := sorted(set(named) - set(pages)):
        raise ValueError(f"mkdocs.yml: `nav` names {gone[0]}, and there is no such page")
    if twice := sorted({page for page in named if named.count(page) > 1}):
        raise ValueError(f"mkdocs.yml: `nav` names {twice[0]} twice")


def build(folder: Path) -> None:
    """Builds the site: its settings and its pages in a folder, and the site in the folder ``site`` there.

    Raises:
        ValueError: one line, if a page is in no entry of the navigation, or a link leads nowhere.
        subprocess.CalledProcessError: if there is a warning; it has been printed.
    """
    generated = {
        "reference/command-line.md": command_line.page(),
        "reference/claim-keys.md": claim_keys.page(),
        "reference/glossary.md": glossary.page(),
        **python_names.pages(),
    }
    pages = write_pages(folder / "docs", generated)
    check_navigation(pages, named_in_navigation())
    shutil.copytree(SCRIPTS, folder / "docs/assets")
    shutil.copyfile(ROOT / "mkdocs.yml", folder / "mkdocs.yml")
    shutil.rmtree(folder / "python", ignore_errors=True)
    python_names.link_packages(folder / "python")
    subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "--clean"], cwd=folder, check=True)


def main() -> int:
    """Builds the site in ``build/``, and returns the exit code."""
    try:
        build(ROOT / "build")
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        return error.returncode
    print(ROOT / "build/site/index.html")
    return 0


if __name__ == "__main__":
    sys.exit(main())
