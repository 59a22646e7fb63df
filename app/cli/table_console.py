"""Tables on standard output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpassay.base.terminal import escaped


class TableConsole(Console):
    """Prints tables to standard output, without markup; control characters are escaped."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as it is printed."""
        return super().render_str(escaped(text), **options)


def titled(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table with a title; the first column holds names, the others numbers."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    for row in rows:
        table.add_row(*row)
    return table
