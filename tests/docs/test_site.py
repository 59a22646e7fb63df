"""The site: built without a warning, complete, the same as on GitHub, and opened as files without any request."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from build_site.__main__ import build, check_navigation, named_in_navigation
from build_site.pages import ROOT, as_python_markdown, page_text, sources
from markdown_it import MarkdownIt

_HELPER = importlib.util.spec_from_file_location("screenshot", ROOT / "tests/reports/screenshot.py")
assert _HELPER is not None
assert _HELPER.loader is not None
screenshot: Any = importlib.util.module_from_spec(_HELPER)
_HELPER.loader.exec_module(screenshot)

COUNTED = ("li", "ol", "ul", "table", "tr", "pre", "h1", "h2", "h3", "h4", "blockquote", "img")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder / "site"


class Page(HTMLParser):
    """What a page refers to, by element, and what can be referred to on it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect", "modulepreload"):
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


def of_article(html: str) -> str:
    return html.partition("<article")[2].partition("</article>")[0]


def name_of(page: str) -> str:
    return re.sub(r"README\.md$", "index.md", page).removesuffix("md") + "html"


def test_every_page_looks_as_on_github(site: Path) -> None:
    """As many lists, tables, rows, blocks of code and headings as a parser of CommonMark finds."""
    commonmark = MarkdownIt("commonmark").enable("table")
    pages = {page: path for page, path in sources().items() if page.endswith(".md")}
    for page, path in pages.items():
        wanted = Counter(re.findall(r"<(\w+)[ >/]", commonmark.render(path.read_text(encoding="utf-8"))))
        shown = Counter(re.findall(r"<(\w+)[ >/]", of_article((site / name_of(page)).read_text(encoding="utf-8"))))
        assert {tag: shown[tag] for tag in COUNTED} == {tag: wanted[tag] for tag in COUNTED}, page


def test_links_lead_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    followed = 0
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are those of a server's root
        for address in page.loaded:
            assert (path.parent / address.partition("?")[0]).exists(), f"{path}: {address}"
        for address in page.links:
            if re.match("[a-z]+:", address):
                continue
            target, _, anchor = unquote(address).partition("#")
            file = (path.parent / target).resolve() if target else path
            file = file / "index.html" if file.is_dir() else file
            assert file.exists(), f"{path}: {address}"
            assert not anchor or file.suffix != ".html" or anchor in pages[file].anchors, f"{path}: {address}"
            followed += 1
    assert followed > 1000


@pytest.mark.parametrize("text", ["[gone](gone.md)", "[gone](#gone)"])
def test_a_warning_is_an_error(text: str, tmp_path: Path) -> None:
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (tmp_path / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md]\n", encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text(f"# Home\n\n{text}\n", encoding="utf-8")
    shutil.copytree(ROOT / "docs/build_site/assets", tmp_path / "docs/assets")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    failed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "does not exist" in failed.stdout + failed.stderr


def test_a_page_that_the_navigation_does_not_name_is_an_error() -> None:
    named = named_in_navigation()
    check_navigation(named, named)
    with pytest.raises(ValueError, match=r"new\.md is in no entry"):
        check_navigation([*named, "new.md"], named)
    with pytest.raises(ValueError, match=r"names gone\.md, and there is no such page"):
        check_navigation(named, [*named, "gone.md"])
    with pytest.raises(ValueError, match=r"names index\.md twice"):
        check_navigation(named, [*named, "index.md"])


def test_a_link_to_a_file_of_the_repository_is_its_path(tmp_path: Path) -> None:
    page = ROOT / "docs/page.md"
    where = {page: "page.md", ROOT / "docs/audits.md": "audits.md", ROOT / "CONTRIBUTING.md": "contributing.md"}

    def shown(text: str, at: str = "page.md") -> str:
        path = tmp_path / "page.md"
        path.write_text(text, encoding="utf-8")
        moved = {path if file == page else file: place for file, place in where.items()} | {path: at}
        return page_text(path, moved, {"glossary.md"}, folder=ROOT / "docs").strip()

    assert shown("see [the floors](../pyproject.toml)") == "see the floors (`pyproject.toml`)"
    assert shown("see [`pyproject.toml`](../pyproject.toml)") == "see `pyproject.toml`"
    assert shown("see [how](../CONTRIBUTING.md#the-house)") == "see [how](contributing.md#the-house)"
    assert shown("see [it](glossary.md) and [up](audits.md)") == "see [it](glossary.md) and [up](audits.md)"
    assert shown("`[no](link.md)`\n\n```text\n[no](link.md)\n```") == "`[no](link.md)`\n\n```text\n[no](link.md)\n```"
    with pytest.raises(ValueError, match=r"the link gone\.md leads nowhere"):
        shown("[x](gone.md)")


def test_lists_and_tables_are_indented_and_set_apart() -> None:
    def unchanged(picture: str, text: str, address: str) -> str:
        return f"{picture}[{text}]({address})"

    text = "1. one\n   - nested\n     goes on\n\n   a paragraph\n2. two\n\nwords\n- item\n\nwords\n| a |\n| - |\n"
    expected = "1. one\n    - nested\n        goes on\n\n    a paragraph\n\n2. two\n\n"
    expected += "words\n\n- item\n\nwords\n\n| a |\n| - |\n"
    assert as_python_markdown(text, unchanged) == expected


@pytest.mark.skipif(screenshot.chromium() is None, reason="no Chromium: apt-get install chromium")
def test_opened_as_files_it_is_searched_without_a_request(site: Path) -> None:
    with screenshot.browser() as browser:
        for width, colours in ((1300, "light"), (360, "dark")):
            page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
            assert problems_of(page, site, width) == []
            page.close()


def problems_of(page: Any, site: Path, width: int) -> list[str]:
    """What goes wrong, or is requested from elsewhere, where pages are opened and searched."""
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    for name in ("index.html", "audits.html", "proofs/lattice.html"):
        page.goto((site / name).as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > width:
            problems.append(f"{name} scrolls sideways at {width} pixels")
    page.keyboard.press("/")
    page.keyboard.type("canary")
    page.get_by_text("Canary reconstruction").first.wait_for(timeout=20_000)
    return [*problems, *(address for address in requested if not address.startswith(site.as_uri()))]
