"""What was understood of the columns of files, as a table on the terminal, before anything is concluded from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dpassay.cli.table_console import TableConsole

if TYPE_CHECKING:
    from dpassay.data.column_summary import ColumnSummary

MAX_ROWS = 40
"""Columns that are printed; those with a warning come first."""


def print_columns(columns: Sequence[ColumnSummary], written: Mapping[str, str], title: str = "Columns") -> None:
    """Prints how files are written, what their columns hold and what is done with them, and the warnings.

    Args:
        columns: of the files.
        written: how each file is written, by its name.
        title: of the table.
    """
    from rich.table import Table

    console = TableConsole()
    ways = dict.fromkeys(written.values())
    for way in ways:
        names = [name for name, of in written.items() if of == way]
        console.print(f"Read as {way}: {', '.join(names)}")
    shown = sorted(columns, key=lambda column: not column.warnings)[:MAX_ROWS]
    kept = [column for column in columns if column in shown]
    table = Table(title=title, title_justify="left")
    for number, name in enumerate(("column", "holds", "written", "missing", "distinct", "use")):
        table.add_column(name, overflow="fold", justify="right" if number in (3, 4) else "left")
    for column in kept:
        use = column.why if column.used else f"left alone: {column.why}"
        numbers = (" / ".join(map(str, of.values())) for of in (column.missing, column.distinct))
        table.add_row(column.name, column.kind, column.form, *numbers, use)
    files = " / ".join(columns[0].missing) if columns else ""
    console.print(table)
    if " / " in files:
        console.print(f"Missing and distinct: {files}.")
    if len(columns) > len(kept):
        console.print(f"And {len(columns) - len(kept)} more columns; --json has all.")
    for column in columns:
        for warning in column.warnings:
            console.print(f"Column {column.name!r}: {warning}.")
