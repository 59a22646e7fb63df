"""Reading sheets of Excel files row by row, where openpyxl is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from dpassay.data.column_names import check_columns, names_of

_CONVERT = "save the sheet as CSV"


def read_excel(path: Path, wanted: Collection[str] | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of the only sheet of an ``.xlsx`` file, each with its location; the first row names the columns.

    Values have the types of the cells, those of formulas are the ones that were stored last, and an empty cell is None.

    Raises:
        ValueError: one line, which names the file, never a value: if openpyxl is not installed, there are several
            sheets, a column has two names, or this is no Excel file.
    """
    try:
        import openpyxl
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError:
        raise ValueError(f"{path}: an Excel file needs openpyxl (pip install openpyxl); or {_CONVERT}") from None
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except (BadZipFile, InvalidFileException, KeyError, ValueError, TypeError):
        raise ValueError(f"{path}: is not an Excel file (.xlsx); {_CONVERT}") from None
    with contextlib.closing(book):
        sheets = book.worksheets
        if len(sheets) != 1:
            raise ValueError(f"{path}: has {len(sheets)} sheets, of which only one would be read; {_CONVERT}")
        rows = sheets[0].iter_rows(values_only=True)
        names = names_of(["" if cell is None else str(cell) for cell in next(rows, ())])
        check_columns(path, names, wanted, ", row 1")
        for number, row in enumerate(rows, 2):
            if any(cell is not None for cell in row):
                yield f"row {number}", dict(zip(names, row, strict=True))
