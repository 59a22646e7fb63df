"""The pages of the site: those of `docs/`, as Python-Markdown reads them, with links that work there.

Pages are written for readers of the repository. Two things differ on the site. Python-Markdown indents the content of
list items by four spaces, and begins a list or a table after an empty line. And links to files that are no pages cannot
be followed there, so their paths are shown.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""

OUTSIDE = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that are not in `docs/`, and where they are on the site."""

PICTURES = (".svg", ".png")

_FENCE = re.compile(r" *(```|~~~)")
_ITEM = re.compile(r"( *)([-*+]|\d+[.)])( +)")
_BLOCKS = ("#", "<!--", "```", "~~~")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)


def sources() -> dict[str, Path]:
    """All pages and pictures: where each is on the site, and its file."""
    found = {
        path.relative_to(ROOT / "docs").as_posix(): path
        for path in sorted((ROOT / "docs").rglob("*"))
        if path.suffix in (".md", *PICTURES)
    }
    return found | {page: ROOT / name for name, page in OUTSIDE.items()}


def write_pages(folder: Path, generated: Mapping[str, str]) -> list[str]:
    """Writes all pages and pictures of the site.

    Args:
        folder: is made anew.
        generated: further pages, in Python-Markdown: where each is on the site, and its text.

    Returns:
        Where the pages are on the site, pictures left out.

    Raises:
        ValueError: if a generated page would replace one of the repository, or a link leads nowhere.
    """
    shutil.rmtree(folder, ignore_errors=True)
    files = sources()
    if both := sorted(set(files) & set(generated)):
        raise ValueError(f"docs/{both[0]}: a page of this name is generated; rename one of the two")
    where = {path: page for page, path in files.items()}
    for page, path in files.items():
        target = folder / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(page_text(path, where, set(generated)), encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for page, text in generated.items():
        (folder / page).parent.mkdir(parents=True, exist_ok=True)
        (folder / page).write_text(text, encoding="utf-8")
    return [page for page in (*files, *generated) if page.endswith(".md")]


def page_text(path: Path, where: Mapping[Path, str], generated: set[str], folder: Path | None = None) -> str:
    """A page of the repository as the site has it.

    Args:
        path: its file.
        where: file of a page or a picture → where it is on the site.
        generated: where pages are that no file holds.
        folder: in which its links begin; that of its file by default.

    Raises:
        ValueError: if a link leads nowhere.
    """
    start = os.path.dirname(where[path])

    def follow(picture: str, text: str, address: str) -> str:
        target, mark, anchor = address.partition("#")
        if re.match(r"[a-z]+:", address) or not target:
            return f"{picture}[{text}]({address})"
        file = Path(os.path.normpath((folder or path.parent) / target))
        here = where.get(file / "README.md" if file.is_dir() else file) or _generated(file, generated)
        if here is not None:
            return f"{picture}[{text}]({os.path.relpath(here, start or '.')}{mark}{anchor})"
        if not file.exists():
            raise ValueError(f"{path}: the link {address} leads nowhere")
        name = f"`{file.relative_to(ROOT)}`"
        return text if name.strip("`") in text.replace("/`", "`") else f"{text} ({name})"

    return as_python_markdown(path.read_text(encoding="utf-8"), follow)


def _generated(file: Path, generated: set[str]) -> str | None:
    docs = ROOT / "docs"
    name = file.relative_to(docs).as_posix() if file.is_relative_to(docs) else ""
    return name if name in generated else None


def as_python_markdown(text: str, follow: Callable[[str, str, str], str]) -> str:
    """A page of GitHub's Markdown as Python-Markdown reads it: deeper lists, and an empty line before lists and tables.

    Args:
        text: of the page.
        follow: what takes the place of a link or a picture; it gets an exclamation mark if it is a picture, its text,
            and its address.
    """
    prose: list[str] = []
    result: list[str] = []
    for code, line in _indented(text.splitlines()):
        if not code:
            prose.append(line)
            continue
        result += [*_with_links(prose, follow), line]
        prose = []
    return "\n".join([*result, *_with_links(prose, follow)]) + "\n"


def _with_links(prose: list[str], follow: Callable[[str, str, str], str]) -> list[str]:
    """Lines of prose with its links changed; what stands between backticks is code, but for the text of a link."""
    kept: list[str] = []

    def keep(code: re.Match[str]) -> str:
        kept.append(code[0])
        return f"\ue000{len(kept) - 1}\ue001"

    def put_back(text: str) -> str:
        return re.sub("\ue000(\\d+)\ue001", lambda mark: kept[int(mark[1])], text)

    text = _CODE.sub(keep, "\n".join(prose))
    text = _LINK.sub(lambda link: follow(link[1], put_back(link[2]), link[3]), text)
    return put_back(text).split("\n") if prose else []


def _indented(lines: list[str]) -> Iterator[tuple[bool, str]]:
    """Lines, each with whether it is code, and indented by four spaces for every list item that it is in."""
    items: list[int] = []  # the column at which the content of each open list item begins
    fence, before = "", ""
    paragraph = False  # whether the line before is of a paragraph that began neither a list item nor a table
    for line in lines:
        if fence or not line.strip():
            inside, line = bool(fence), _shifted(line, items)
            if fence and line.strip().startswith(fence):
                fence = ""
            yield inside, line
            before = line
            continue
        indent = len(line) - len(line.lstrip())
        item, opened = _ITEM.match(line), _FENCE.match(line)
        if item or opened or not before.strip() or line.startswith("#"):
            while items and indent < items[-1]:
                items.pop()
        begins = item or line.lstrip().startswith("|")
        if paragraph and before.strip() and begins:
            yield False, ""
        if begins or not before.strip() or before.lstrip().startswith(_BLOCKS):
            paragraph = not begins and not line.lstrip().startswith(_BLOCKS)
        fence = opened[1] if opened else ""
        shifted = _shifted(line, items)
        if item:
            items.append(len(item[0]))
        yield bool(fence), shifted
        before = line


def _shifted(line: str, items: list[int]) -> str:
    """A line within list items, indented by four spaces for each."""
    if not items or not line.strip():
        return line
    indent = len(line) - len(line.lstrip())
    return " " * (4 * len(items) + max(0, indent - items[-1])) + line.lstrip()
