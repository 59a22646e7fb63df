"""Pages as a whole: tags that nest, texts that try to break out, and drawings left out. Nothing of dpassay is used."""

from __future__ import annotations

import re
from html.parser import HTMLParser

HOSTILE = "<script>alert(1)</script>\"'`{{7*7}}{% raw %}&amp;</style></title><svg onload=x>\x00\u202e"
VOID = {"meta", "br"}


class Nesting(HTMLParser):
    """Checks that tags nest, and keeps their names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def outside(page: str) -> str:
    """The page without its drawings, in which long names take several lines."""
    return re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
