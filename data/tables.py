"""Tables: reading them by a public schema, the schema of a public sample, and two tables that ship with a library.

`randhie` is the RAND Health Insurance Experiment, about real people in a public study; its schema is written by hand,
from the study's documentation. `fair` is Fair's survey of marriages, which serves as an unrelated, public table.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Collection, Iterable, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.base import validate
from dpassay.data.cells import as_number, decimals, is_missing
from dpassay.data.corpora import LABELS, randhie
from dpassay.data.records import Record, read_rows, with_content_ids
from dpassay.data.table_schema import MISSING, Row, Schema

MAX_WORDS = 50
"""A column of a sample with more distinct words has no domain that a sample could show."""

_DECIMALS = 6

RANDHIE = Schema.model_validate(
    {
        "columns": [
            {"name": "visits", "type": "number", "low": 0, "high": 99},
            {"name": "coinsurance", "type": "category", "values": ["0", "25", "50", "95", "100"]},
            {"name": "deductible", "type": "category", "values": ["yes", "no"]},
            {"name": "incentive", "type": "number", "low": 0, "high": 2000},
            {"name": "expenditure", "type": "number", "low": 0, "high": 4000},
            {"name": "limitation", "type": "category", "values": ["yes", "no"]},
            {"name": "disease", "type": "number", "low": 0, "high": 60, "decimals": 1},
            {"name": "health", "type": "category", "values": list(LABELS)},
        ]
    }
)
"""Visits to a doctor in a year, coinsurance in percent, whether there is an individual deductible, yearly participation
incentive and largest expenditure in dollars, whether there is a physical limitation, index of chronic diseases, and
self-rated health."""

_YES = ("no", "yes")


def randhie_rows() -> list[dict[str, Any]]:
    """All 20190 rows of `randhie`, in the columns of `RANDHIE`.

    Source: `statsmodels.datasets.randhie`; see `corpora.notes` for the conversions.
    """
    table = randhie()
    coinsurance = np.rint(np.exp(table["lncoins"]) - 1).astype(int).tolist()
    incentive = np.where(table["lpi"] > 0, np.rint(np.exp(table["lpi"])), 0).astype(int).tolist()
    expenditure = np.where(table["fmde"] > 0, np.rint(np.exp(table["fmde"])), 0).astype(int).tolist()
    health = (table["hlthg"] + 2 * table["hlthf"] + 3 * table["hlthp"]).astype(int).tolist()
    return [
        {
            "visits": int(table["mdvis"][row]),
            "coinsurance": str(coinsurance[row]),
            "deductible": _YES[int(table["idp"][row])],
            "incentive": incentive[row],
            "expenditure": expenditure[row],
            "limitation": _YES[int(table["physlm"][row] >= 0.5)],
            "disease": round(float(table["disea"][row]), 1),
            "health": LABELS[health[row]],
        }
        for row in range(len(health))
    ]


def fair_rows() -> list[dict[str, Any]]:
    """All 6366 rows of Fair's survey of marriages, a public table.

    Source: `statsmodels.datasets.fair`.
    """
    from statsmodels.datasets import fair

    table = fair.load_pandas().data
    rows: list[dict[str, Any]] = table.round(1).to_dict("records")
    return rows


def builtin_table(name: str, count: int, seed: int) -> list[Record]:
    """Rows of a table that ships with a library, drawn without replacement.

    Args:
        name: ``randhie``.
        count: number of rows.
        seed: of the public choice of rows.

    Raises:
        ValueError: if the name is unknown or the count is out of range.
    """
    validate.one_of(("randhie",), name=name)
    rows = randhie_rows()
    if not 0 <= count <= len(rows):
        raise ValueError(f"count must be from 0 to {len(rows)}, the number of rows in the table, not {count}")
    picked = np.random.default_rng(seed).choice(len(rows), size=count, replace=False)
    return with_content_ids((as_text(rows[index]), None, None) for index in picked)


def builtin_holdout(name: str, count: int, seed: int) -> list[Record]:
    """As many rows, if there are as many, that `builtin_table` does not draw.

    Args:
        name, count, seed: of `builtin_table`.
    """
    validate.one_of(("randhie",), name=name)
    rows = randhie_rows()
    picked = set(np.random.default_rng(seed).choice(len(rows), size=count, replace=False).tolist())
    rest = [index for index in np.random.default_rng([seed, 1]).permutation(len(rows)).tolist() if index not in picked]
    return with_content_ids((as_text(rows[index]), None, None) for index in rest[:count])


def as_text(cells: Mapping[str, Any]) -> str:
    """A row as JSON, as in the text of a record; dates as in 2013-05-31."""
    return json.dumps(dict(cells), ensure_ascii=False, default=_plain)


def _plain(cell: Any) -> str:
    if isinstance(cell, datetime.datetime):
        is_day = cell.time() == datetime.time() and cell.tzinfo is None
        return str(cell.date() if is_day else cell)
    if isinstance(cell, datetime.date):
        return str(cell)
    raise ValueError("holds a value that is neither text nor a number nor a date")


def read_table(path: Path | str, *, id: str | None = None) -> list[Record]:
    """The rows of a JSON Lines, CSV or Parquet file as records, whose text is the row as JSON.

    Args:
        path: of the file.
        id: column of a stable id, which is no part of the row; None uses the content's hash.

    Raises:
        ValueError: one line, which names the file and, if possible, the line, never a value.
    """
    texts: list[str] = []
    ids: list[str] = []
    for where, cells in read_rows(path):
        row = dict(cells)
        if id is not None:
            if row.get(id) in (None, ""):
                raise ValueError(f"{path}, {where}: column {id!r} must hold an id")
            ids.append(str(row.pop(id)))
        try:
            texts.append(as_text(row))
        except (ValueError, TypeError):
            raise ValueError(f"{path}, {where}: holds a value that is neither text nor a number nor a date") from None
    if id is None:
        return with_content_ids((text, None, None) for text in texts)
    if len(set(ids)) < len(ids):
        raise ValueError(f"{path}: column {id!r}: two rows have the same id; leave id out to use the content")
    return [Record(name, text, hashed=name) for name, text in zip(ids, texts, strict=True)]


def schema_rows(records: Iterable[Record], schema: Schema) -> list[Row]:
    """The rows of records in the words of a schema.

    Raises:
        ValueError: one line without any value, which names the row and the column.
    """
    rows, names = [], set(schema.names)
    for number, record in enumerate(records, 1):
        cells = json.loads(record.text)
        unknown = sorted(set(cells) - names)
        if unknown:
            raise ValueError(
                f"the table has a column {unknown[0]!r}, which the schema lacks; add it, or drop the column"
            )
        try:
            rows.append(schema.row(cells))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return rows


def proposed_schema(rows: Iterable[Mapping[str, Any]], *, ignore: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a public sample, as JSON types: a template, whose domains are those of the sample.

    A column is of numbers or dates if all its cells are, or else of categories.

    Args:
        rows: public.
        ignore: columns that are left out, such as ids.

    Raises:
        ValueError: if there are no rows, or a column has too many distinct words for categories.
    """
    readers: dict[str, _ColumnReader] = {}
    count = 0
    for cells in rows:
        count += 1
        for name, cell in cells.items():
            if name not in ignore:
                readers.setdefault(name, _ColumnReader(name)).read(cell)
    if not count:
        raise ValueError("the sample has no rows")
    return {"columns": [reader.column(count) for reader in readers.values()]}


class _ColumnReader:
    """The type and domain of a column, cell by cell."""

    def __init__(self, name: str) -> None:
        self.name, self.filled = name, 0
        self.words: set[str] | None = set()
        self.numbers: tuple[float, float, int] | None = (float("inf"), -float("inf"), 0)
        self.dates: tuple[datetime.date, datetime.date] | None = (datetime.date.max, datetime.date.min)

    def read(self, cell: Any) -> None:
        if is_missing(cell):
            return
        self.filled += 1
        written = str(cell).strip()
        if self.words is not None:
            self.words.add(written)
            if len(self.words) > MAX_WORDS:
                self.words = None
        if self.numbers is not None:
            self.numbers = _with_number(self.numbers, cell)
        if self.dates is not None:
            self.dates = _with_date(self.dates, cell)

    def column(self, rows: int) -> dict[str, Any]:
        missing = {"missing": True} if self.filled < rows else {}
        if self.filled and self.numbers is not None:
            low, high, decimals = self.numbers
            ends = _outwards(low, high, decimals)
            return {"name": self.name, "type": "number", **ends, "decimals": decimals, **missing}
        if self.filled and self.dates is not None:
            return {"name": self.name, "type": "date", "low": self.dates[0], "high": self.dates[1], **missing}
        if self.words and MISSING in self.words:
            raise ValueError(
                f"column {self.name!r} has the word {MISSING!r}, which stands for an empty cell; rename it"
            )
        if not self.words:
            why = "is empty" if self.words is not None else f"has more than {MAX_WORDS} distinct words"
            raise ValueError(f"column {self.name!r} {why}; leave it out, or write its schema by hand")
        return {"name": self.name, "type": "category", "values": sorted(self.words), **missing}


def _outwards(low: float, high: float, decimals: int) -> dict[str, float]:
    """The ends of a domain, rounded outwards to the decimals of the schema."""
    unit = Decimal(10) ** -decimals
    with localcontext(prec=400):
        least, most = Decimal(repr(low)).quantize(unit, ROUND_FLOOR), Decimal(repr(high)).quantize(unit, ROUND_CEILING)
    return {"low": float(least), "high": float(most)} if decimals else {"low": int(least), "high": int(most)}


def _with_number(known: tuple[float, float, int], cell: Any) -> tuple[float, float, int] | None:
    number = as_number(cell)
    if number is None:
        return None
    return min(known[0], number), max(known[1], number), max(known[2], min(_DECIMALS, decimals(cell)))


def _with_date(known: tuple[datetime.date, datetime.date], cell: Any) -> tuple[datetime.date, datetime.date] | None:
    try:
        date = datetime.date.fromisoformat(_plain(cell) if isinstance(cell, datetime.date) else str(cell).strip())
    except ValueError:
        return None
    return min(known[0], date), max(known[1], date)
