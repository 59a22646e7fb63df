"""Tables on standard output."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpassay.base.private_results import write
from dpassay.base.terminal import escaped, say
from dpassay.cli.options import show
from dpassay.utility.result import Result


class TableConsole(Console):
    """Prints tables to standard output, without markup; control characters are escaped."""

    def __init__(self) -> None:
        super().__init__(markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """A string as it is printed."""
        return super().render_str(escaped(text), **options)


Rows = tuple[str, list[str], list[list[str]]]
"""A title, columns, of which the first holds names and the others numbers, and rows."""


def folded(title: str, columns: Iterable[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose cells are folded where the terminal is narrow."""
    table = Table(title=title)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def show_measures(result: Result, tables: Iterable[Rows | None], path: Path, json_: bool, quiet: bool) -> None:
    """Writes measures to a private file, and shows them after a note that they are private."""
    document = result.to_json()
    write(document, path)

    def in_words() -> None:
        console = TableConsole()
        console.print(f"PRIVATE. {document['private']}")
        for title, columns, rows in filter(None, tables):
            table = Table(title=title, title_justify="left")
            for number, column in enumerate(columns):
                table.add_column(column, justify="right" if number else "left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
        say(f"Written to {path}")

    show(document, in_words, json_, quiet)
