"""The names of the columns of a file, and the messages for those that are missing or given twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from dpassay.base.validate import did_you_mean

_NAME = re.compile(r"[^\W\d][\w .-]{0,39}")
MAX_SHOWN = 20
"""Columns that a message lists."""


def no_column(column: str, names: Iterable[str]) -> str:
    """The message for a column that is missing, with the columns that there are.

    Names that do not look like names are not shown: they may be the first record of a file without a header.
    """
    there = list(names)
    if not there or not all(_NAME.fullmatch(name) for name in there):
        return f"there is no column {column!r} among its {len(there)} columns"
    listed = ", ".join(map(repr, there[:MAX_SHOWN])) + (" and others" if len(there) > MAX_SHOWN else "")
    return f"there is no column {column!r}; the columns are {listed}{did_you_mean(column, there)}"


def check_columns(path: Path, names: Sequence[str], wanted: Collection[str] | None, header: str = "") -> None:
    """Checks that every wanted column (None: all) exists, and exists once, since only one of two would be read;
    `header` says where the file names its columns, and an empty file has none.

    Raises:
        ValueError: one line that names the file and the column.
    """
    counts = Counter(names)
    for column in sorted(counts if wanted is None else wanted):
        if names and column not in counts:
            raise ValueError(f"{path}{header}: {no_column(column, names)}")
        if counts[column] > 1 and wanted is not None:
            raise ValueError(f"{path}: has {counts[column]} columns {column!r}; give them distinct names")
        if counts[column] > 1:  # nobody has named it, and without a header it is a cell
            first, second = [index for index, name in enumerate(names, 1) if name == column][:2]
            raise ValueError(
                f"{path}{header}: columns {first} and {second} have one name; give them distinct names, or state that "
                "there is no header (--no-header)"
            )


def names_of(header: Sequence[str]) -> list[str]:
    """The names of columns, of which those that are empty are replaced by ``Unnamed: 0`` and so on."""
    return [name if name.strip() else f"Unnamed: {index}" for index, name in enumerate(header)]
