"""The data of the study: private records, real ones that stand beside synthetic ones, and real ones to measure against.

The three parts are disjoint, and drawn anew by each seed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from paths import HERE, data

from dpassay.data import corpora
from dpassay.data.table_schema import CategoryColumn, NumberColumn, Row, Schema, read_schema
from dpassay.data.tables import RANDHIE, randhie_rows

KINDS = {"topics": "made-up texts on eight topics", "notes": "notes of the RAND Health Insurance Experiment"}
"""Of texts."""
LABELS: dict[str, tuple[str, ...]] = {"topics": data.LABELS, "notes": ()}

STAR98 = HERE / "star98.schema.yaml"
TARGETS = {"randhie": "limitation", "star98": "above"}
"""Table → the column that classifiers predict."""

SECRET = r"\(ref \d{5}\)"
"""Of the records for secret-protected evolution, a tenth of which hold such a code."""

LabelledTexts = list[tuple[str, str]]


@dataclass(frozen=True)
class Texts:
    """Texts with labels.

    Attributes:
        records: private.
        unused: real ones that no generator sees, at least as many as synthetic ones.
        reference: real ones that no generator sees; every text is measured against them.
    """

    records: LabelledTexts
    unused: LabelledTexts
    reference: LabelledTexts


@dataclass(frozen=True)
class TableRows:
    """Rows in the words of a public schema; otherwise as `Texts`."""

    schema: Schema
    records: list[Row]
    unused: list[Row]
    reference: list[Row]


def texts(kind: str, scale: Mapping[str, Any], seed: int) -> Texts:
    """The texts of a seed."""
    count, unused = scale["records"], 2 * scale["documents"]  # enough of each label
    others = unused + scale["reference"]
    if kind == "topics":
        records, other = data.topical(count, seed), data.topical(others, seed, "held out")
    else:
        rows = corpora.notes(count + others, seed)
        records, other = rows[:count], rows[count:]
    return Texts(records, other[:unused], other[unused:])


def with_codes(records: Sequence[tuple[str, str]], seed: int) -> LabelledTexts:
    """The same records, of which every tenth holds a code of its own, which is the secret."""
    codes = iter(np.random.default_rng([seed, 7]).choice(100_000, size=len(records), replace=False))
    return [
        (f"{text} (ref {next(codes):05d})" if place % 10 == 0 else text, label)
        for place, (text, label) in enumerate(records)
    ]


def write_texts(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    """Writes records as JSON Lines."""
    path.write_text(
        "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in rows), encoding="utf-8"
    )


def read_texts(folder: Path) -> list[tuple[str, str | None]]:
    """What a run wrote, with labels; a text may be empty, and is then none."""
    lines = (folder / "private" / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    rows = map(json.loads, lines)
    return [(row["text"], row.get("label")) for row in rows if row["text"].strip()]


def schema_of(table: str) -> Schema:
    """The public schema of a table of the study."""
    return RANDHIE if table == "randhie" else read_schema(STAR98)[0]


def table_rows(table: str, size: Mapping[str, int], seed: int) -> TableRows:
    """The rows of a seed, in the order of a permutation.

    Args:
        table: ``randhie`` or ``star98``.
        size: number of private ``records``, and of synthetic ``rows``. The unused ones are as many as the latter, and
            all others are the reference.
        seed: of the permutation.
    """
    cells = randhie_rows() if table == "randhie" else star98_rows()
    schema, count, unused = schema_of(table), size["records"], size["rows"]
    rows = [schema.row(cells[place]) for place in np.random.default_rng(seed).permutation(len(cells))]
    return TableRows(schema, rows[:count], rows[count : count + unused], rows[count + unused :])


def star98_rows() -> list[dict[str, Any]]:
    """All 303 rows of `star98`: school districts, with the eight interaction terms of the table.

    The two counts of pupils above and below the national median in mathematics are given as their sum and as whether
    the first is larger.
    """
    from statsmodels.datasets import star98

    columns = {
        **{"low income": "LOWINC", "Asian": "PERASIAN", "Black": "PERBLACK", "Hispanic": "PERHISP"},
        **{"minority": "PERMINTE", "years": "AVYRSEXP", "salary": "AVSALK", "spending": "PERSPENK"},
        **{"ratio": "PTRATIO", "prep": "PCTAF", "charter": "PCTCHRT", "year round": "PCTYRRND"},
        **{"minority years": "PERMINTE_AVYRSEXP", "minority salary": "PERMINTE_AVSAL"},
        **{"years salary": "AVYRSEXP_AVSAL", "spending ratio": "PERSPEN_PTRATIO"},
        **{"spending prep": "PERSPEN_PCTAF", "ratio prep": "PTRATIO_PCTAF"},
        **{"minority years salary": "PERMINTE_AVYRSEXP_AVSAL", "spending ratio prep": "PERSPEN_PTRATIO_PCTAF"},
    }
    table = star98.load_pandas().data
    return [
        {
            "students": int(row["NABOVE"] + row["NBELOW"]),
            "above": "yes" if row["NABOVE"] > row["NBELOW"] else "no",
            **{name: float(row[column]) for name, column in columns.items()},
        }
        for row in table.to_dict("records")
    ]


def write_rows(path: Path, schema: Schema, rows: Iterable[Row]) -> None:
    """Writes rows as JSON Lines."""
    cells = (dict(zip(schema.names, schema.cells(row), strict=True)) for row in rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in cells), encoding="utf-8")


def read_rows(folder: Path, schema: Schema) -> list[Row]:
    """The rows that a run wrote."""
    lines = (folder / "private" / "synthetic.jsonl").read_text(encoding="utf-8").splitlines()
    return [schema.row(json.loads(line)) for line in lines]


def uniform_rows(schema: Schema, count: int, seed: int) -> list[Row]:
    """Rows that are uniform in the public domains: all that a schema says."""
    rng = np.random.default_rng(seed)
    return [schema.uniform(rng) for _ in range(count)]


def guessed_rows(table: str, count: int, seed: int) -> list[Row]:
    """Rows whose columns are independent, each by the public guess of ``guesses.yaml``."""
    guesses = yaml.safe_load((HERE / "guesses.yaml").read_text(encoding="utf-8"))[table]
    rng, schema = np.random.default_rng(seed), schema_of(table)
    columns = [_guessed(column, guesses[column.name], count, rng) for column in schema.columns]
    return list(zip(*columns, strict=True))


def _guessed(column: Any, guess: Any, count: int, rng: np.random.Generator) -> list[str]:
    """Words of a column: categories by their shares; numbers exponential of a mean, or normal, within the domain."""
    if isinstance(column, CategoryColumn):
        shares = np.array([guess[value] for value in column.values], dtype=np.float64)
        return [column.values[place] for place in rng.choice(len(shares), size=count, p=shares / shares.sum())]
    assert isinstance(column, NumberColumn)
    if isinstance(guess, dict):
        values = rng.normal(guess["mean"], guess["deviation"], count)
    else:
        values = rng.exponential(guess, count)
    return [column.word(round(float(value), column.decimals)) for value in np.clip(values, column.low, column.high)]
