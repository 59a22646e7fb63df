"""One table in every way in which people write tables."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
FIRST = datetime.date(2020, 1, 1)


def people(count: int, seed: int) -> list[Row]:
    """Rows with numbers, a date, categories and a truth value, some cells empty."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        row: Row = {
            "height": round(float(rng.normal(170, 10)), 1),
            "income": int(rng.lognormal(8, 0.8)) + 1000,
            "visit": FIRST + datetime.timedelta(days=int(rng.integers(1400))),
            "city": str(rng.choice(["Kiel", "Ulm", "Bonn", "Köln"])),
            "member": bool(rng.integers(2)),
        }
        for name in ("height", "income", "visit"):
            if rng.random() < 0.02:
                row[name] = None
        rows.append(row)
    return rows


def near_copies(rows: Sequence[Row], seed: int) -> list[Row]:
    """Rows that a generator with a good memory returns: nearly those that it was given."""
    rng = np.random.default_rng(seed)
    copies = []
    for row in rows:
        copy = dict(row)
        if copy["height"] is not None:
            copy["height"] = round(copy["height"] + float(rng.choice([-0.1, 0.1])), 1)
        copies.append(copy)
    return copies


@dataclass(frozen=True)
class Writing:
    """A way to write a table."""

    separator: str = ","
    quoted: bool = False
    decimal: str = "."
    thousands: bool = False
    missing: str = ""
    dates: str = "%Y-%m-%d"
    encoding: str = "utf-8"
    packed: bool = False
    index: bool = False
    truth: tuple[str, str] = ("False", "True")
    end: str = "\n"

    def cell(self, value: Any) -> str:
        if value is None:
            return self.missing
        if isinstance(value, bool):
            return self.truth[value]
        if isinstance(value, datetime.date):
            return value.strftime(self.dates)
        if isinstance(value, int | float):
            text = f"{value:,}" if self.thousands else str(value)
            return text.translate(str.maketrans(",.", ".,")) if self.decimal == "," else text
        return str(value)

    def write(self, rows: Sequence[Row], path: Path) -> Path:
        """Writes rows; the name says whether the file is compressed."""
        out = io.StringIO()
        dialect = csv.unix_dialect if self.quoted else csv.excel
        table = csv.writer(out, dialect, delimiter=self.separator, lineterminator=self.end)
        names = list(rows[0])
        table.writerow([""] * self.index + names)
        for number, row in enumerate(rows):
            table.writerow([str(number)] * self.index + [self.cell(row[name]) for name in names])
        content = out.getvalue().encode(self.encoding)
        path = path.with_suffix(".csv.gz" if self.packed else ".csv")
        path.write_bytes(gzip.compress(content) if self.packed else content)
        return path


def writings() -> Iterator[Writing]:
    """All pairs of some choices with all others, each on its own and together: more than 300."""
    marks = ["", "NA", "N/A", "NaN", "NULL", "None", "-", "?", ".", "\\N"]
    dates = ["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%Y-%m-%dT00:00:00", "%Y-%m-%d 00:00:00"]
    numbers = [(".", False), (",", False), (".", True), (",", True)]
    for separator, quoted, missing in itertools.product([",", ";", "\t", "|"], [False, True], marks):
        yield Writing(separator, quoted, missing=missing)
    for separator, (decimal, thousands), date in itertools.product([";", "\t", "|"], numbers, dates):
        yield Writing(separator, decimal=decimal, thousands=thousands, dates=date)
    for encoding, packed, index, end, truth in itertools.product(
        ["utf-8", "utf-8-sig", "utf-16", "latin-1"],
        [False, True],
        [False, True],
        ["\n", "\r\n"],
        [("False", "True"), ("false", "true"), ("0", "1"), ("FALSE", "TRUE")],
    ):
        yield Writing(encoding=encoding, packed=packed, index=index, end=end, truth=truth)
    for separator, missing, date in itertools.product([";", "\t", "|"], marks[1:], dates[1:4]):
        yield Writing(separator, missing=missing, dates=date, decimal=",")


def as_json_lines(rows: Sequence[Row], path: Path) -> Path:
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
    return path
