"""The data that canaries are to be put into: what their columns are like, and canaries in the same format."""

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
"""Rows of the data that wording, and distances to the data, are taken from; drawn evenly."""
_WHOLE = re.compile(r"[0-9]{1,15}")


@dataclass(slots=True)
class Data:
    """What was learned of the data that canaries are to be put into.

    Attributes:
        path: the file, or None.
        columns: what its columns are like, in order.
        rows: an even sample of its rows.
        keys: the 5-digit numbers that its texts print.
        whole_ids: whether all ids are whole numbers.
    """

    path: Path | None = None
    columns: list[Column] = field(default_factory=list)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    whole_ids: bool = True

    @property
    def ending(self) -> str:
        """Of the file's name."""
        return self.path.suffix.lower() if self.path else ".jsonl"


def read_data(path: Path | None, *, text: str | None, id: str | None, user: str | None, progress: Progress) -> Data:
    """Learns what canaries have to know of the data, in one pass and bounded memory.

    Args:
        path: a ``.jsonl``, ``.csv`` or ``.parquet`` file; None for records of a text, and of a user if there is one.
        text, id, user: columns; None for no text where canaries are rows of a table.
        progress: shows the pass.

    Raises:
        ValueError: one line, for a file or columns that do not do.
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
            _look(data, row, text, id, where)
            if len(data.rows) < SAMPLE:  # an even sample: Vitter 1985, algorithm R
                data.rows.append(row)
            elif (place := drawn.randrange(number)) < SAMPLE:
                data.rows[place] = row
            if number % 1000 == 0:
                step(0, 1)  # how many there are is not known before the end
        step(1, 1)
    if not number:
        raise ValueError(f"{path}: holds no rows to make canaries like")
    asked: list[tuple[str, str | None]] = [("text", text), ("id", id), ("user", user)]
    for what, column in asked:
        if column is not None and column not in readers:
            raise ValueError(f"{path}: there is no column {column!r}; name the {what} column with --{what}")
    taken: set[str | None] = {id, user, text}
    data.columns = [Column(name, "other") if name in taken else reader.column for name, reader in readers.items()]
    return data


def _look(data: Data, row: Mapping[str, Any], text: str | None, id: str | None, where: str) -> None:
    """What canaries have to know of a row: keys that it prints, whether its id is a number."""
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
        InputError: where the types of a Parquet file cannot hold them.
    """
    if path.suffix == ".parquet" and data.path is not None:
        import pyarrow
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(data.path.absolute())
        content = io.BytesIO()
        try:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), content)
        except (pyarrow.ArrowException, TypeError):
            raise InputError(f"{data.path}: canaries cannot be written in its types; use CSV or JSON Lines") from None
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
    """How lines end in a file: whoever splits at another end would find canaries by what is left of theirs."""
    if path is None:
        return "\n"
    with path.open("rb") as file:
        return "\r\n" if file.readline().endswith(b"\r\n") else "\n"
