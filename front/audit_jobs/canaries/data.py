"""The data that canaries will be added to: their columns, and canaries in the same format."""

from __future__ import annotations

import csv
import io
import json
import random
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cupel.attacks.canaries.reconstruction import extract_keys
from cupel.attacks.canaries.rows import Column, ColumnReader
from cupel.audit_jobs.canaries.files import write_whole
from cupel.errors import InputError
from cupel.mechanisms.data.records import read_rows
from cupel.progress import Progress

SAMPLE = 20_000
"""The most rows of the data, drawn uniformly, that canaries are modelled on and compared with."""
_WHOLE = re.compile(r"[0-9]{1,15}")


@dataclass(slots=True)
class Data:
    """What was read of the data that canaries will be added to.

    Attributes:
        path: the file, or None.
        columns: its columns in order, with the kind and the values of each.
        rows: a uniform sample of its rows.
        keys: the 5-digit numbers in its texts.
        whole_ids: whether all ids are integers.
    """

    path: Path | None = None
    columns: list[Column] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    whole_ids: bool = True

    @property
    def suffix(self) -> str:
        """Suffix of the file's name."""
        return self.path.suffix.lower() if self.path else ".jsonl"


def read_data(path: Path | None, *, text: str | None, id: str | None, user: str | None, progress: Progress) -> Data:
    """Reads the data in one pass and bounded memory.

    Args:
        path: a ``.jsonl``, ``.csv`` or ``.parquet`` file; None for records with a text and, if given, a user.
        text, id, user: names of columns; text is None if canaries are rows of a table.
        progress: where to show progress.

    Raises:
        ValueError: one line, if the file or a column is invalid.
    """
    if path is None:
        return Data(columns=[Column(name, "other") for name in (text, user) if name is not None])
    data = Data(path)
    readers: dict[str, ColumnReader] = {}
    drawn = random.Random(secrets.randbits(64))
    with progress.stage("Reading the data") as step:
        number = 0
        for number, (where, row) in enumerate(read_rows(path), 1):
            for name, value in row.items():
                readers.setdefault(name, ColumnReader(name)).read(value)
            _read_row(data, row, text, id, where)
            if len(data.rows) < SAMPLE:  # reservoir sampling: Vitter 1985, algorithm R
                data.rows.append(row)
            elif (place := drawn.randrange(number)) < SAMPLE:
                data.rows[place] = row
            if number % 1000 == 0:
                step(0, 1)  # the number of rows is unknown before the end
        step(1, 1)
    if not number:
        raise ValueError(f"{path}: holds no rows; canaries are modelled on rows, so name a file with some")
    asked: list[tuple[str, str | None]] = [("text", text), ("id", id), ("user", user)]
    for what, column in asked:
        if column is not None and column not in readers:
            raise ValueError(f"{path}: there is no column {column!r}; name the {what} column with --{what}")
    taken: set[str | None] = {id, user, text}
    data.columns = [Column(name, "other") if name in taken else reader.column for name, reader in readers.items()]
    return data


def _read_row(data: Data, row: Mapping[str, Any], text: str | None, id: str | None, where: str) -> None:
    """Adds the keys of a row to the data, and whether its id is an integer."""
    if id is not None:
        data.whole_ids &= bool(_WHOLE.fullmatch(str(row.get(id))))
    value = row.get(text) if text is not None else None
    if value is None:
        return
    if not isinstance(value, str):
        raise ValueError(f"{data.path}, {where}: column {text!r} must hold text")
    data.keys.update(extract_keys(value))


def write_rows(path: Path, rows: list[dict[str, Any]], data: Data) -> None:
    """Writes canaries in the format and the columns of the data.

    Raises:
        InputError: if the column types of the Parquet file cannot hold them.
    """
    if path.suffix == ".parquet" and data.path is not None:
        import pyarrow
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(data.path.absolute())
        content = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), content)
        except (pyarrow.ArrowException, TypeError):
            raise InputError(f"{data.path}: its column types cannot hold canaries; use CSV or JSON Lines") from None
        write_whole(path, content.getvalue())
    elif path.suffix == ".csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, [column.name for column in data.columns], lineterminator=_line_end(data.path))
        writer.writeheader()
        writer.writerows(rows)
        write_whole(path, out.getvalue())
    else:
        write_whole(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _line_end(path: Path | None) -> str:
    """The line end of a file. With another one, canaries could be told from the data."""
    if path is None:
        return "\n"
    with path.open("rb") as file:
        return "\r\n" if file.readline().endswith(b"\r\n") else "\n"
