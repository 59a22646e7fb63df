"""Tables: reading them by a public schema, and two tables that ship with a library.

`randhie` is the RAND Health Insurance Experiment, about real people in a public study; its schema is written by hand,
from the study's documentation. `fair` is Fair's survey of marriages, which serves as an unrelated, public table.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.base import validate
from dpassay.data.columns import NO_RULES, Rules
from dpassay.data.corpora import LABELS, randhie
from dpassay.data.reader import FOUND, CsvOptions
from dpassay.data.records import Record, read_rows, with_content_ids
from dpassay.data.table_schema import Row, Schema

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


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of a table in the words of its public schema, and their ids, which are private where the rows are."""

    schema: Schema
    rows: Sequence[Row]
    ids: Sequence[str]


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
    """Rows of a table that ships with a library (``randhie``), drawn without replacement by a public seed.

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
    """As many rows, if there are as many, that `builtin_table` of these arguments does not draw."""
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


def read_table(path: Path | str, *, id: str | None = None, stated: CsvOptions = FOUND) -> list[Record]:
    """The rows of a file as records, whose text is the row as JSON.

    A column of stable ids (`id`) is no part of the row; None uses the content's hash. `stated` says how a CSV file is
    written. The cells of CSV stay the characters of the file, whatever a claim states of separators, missing cells and
    decimals, so that ids and slots are those of the text.

    Raises:
        ValueError: one line, which names the file and, if possible, the line, never a value.
    """
    texts: list[str] = []
    ids: list[str] = []
    for where, cells in read_rows(path, stated=stated):
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
        raise ValueError(
            f"{path}: column {id!r}: two rows have the same id, but an id names one row, which is what a claim about a "
            "table protects; if it names a person, join the rows of each person into one; else leave `id:` out and the "
            "column out of the file, and the content is the id"
        )
    return [Record(name, text, hashed=name) for name, text in zip(ids, texts, strict=True)]


def schema_rows(records: Iterable[Record], schema: Schema, rules: Rules = NO_RULES) -> list[Row]:
    """The rows of records in the words of a schema, by the rules of `SchemaColumn.word`.

    Raises:
        ValueError: one line without any value, which names the row and the column.
    """
    rows, names = [], set(schema.names)
    for number, record in enumerate(records, 1):
        cells = json.loads(record.text)
        unknown = sorted(set(cells) - names)
        if unknown:
            raise ValueError(
                f"the table has a column {unknown[0]!r}, which the schema lacks; add it to the schema or "
                f"drop it, or write id: {unknown[0]!r} under data if it only names the rows"
            )
        try:
            rows.append(schema.row(cells, rules))
        except ValueError as error:
            raise ValueError(f"row {number}: {error}") from None
    return rows
