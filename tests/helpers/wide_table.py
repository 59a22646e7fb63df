"""A made-up table of real shape: 24 columns of numbers, categories and dates, rare ones, empty cells, Unicode."""

from __future__ import annotations

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import yaml
from small_models import save_model

_FIRST = datetime.date(2000, 1, 1)
_DAYS = 9000


def columns() -> list[dict[str, Any]]:
    """8 of numbers, 12 of categories, 4 of dates."""
    numbers = [
        {"name": f"größe {i}", "type": "number", "low": -100, "high": 9999, "decimals": i % 3, "missing": i % 2 == 0}
        for i in range(8)
    ]
    categories = [
        {
            "name": "категория" if i == 0 else f"k{i}",
            "type": "category",
            "values": [f"{'日本 é' if i < 3 else 'c'} {j}" for j in range(3 + i)],
            "missing": i == 1,
        }
        for i in range(12)
    ]
    dates = [
        {"name": f"d{i}", "type": "date", "low": "2000-01-01", "high": "2024-12-31", "missing": i == 0}
        for i in range(4)
    ]
    return [*numbers, *categories, *dates]


def _cells(column: dict[str, Any], count: int, rng: np.random.Generator) -> list[str]:
    """Words of a column; each category is half as frequent as the one before, so the last is in few rows or none."""
    match column["type"]:
        case "number":
            tenths = rng.integers(-1_000, 99_990, count) / 10
            words = [f"{x:.{column['decimals']}f}" for x in tenths]
        case "category":
            share = 0.5 ** np.arange(len(column["values"]))
            words = [column["values"][index] for index in rng.choice(len(share), count, p=share / share.sum())]
        case _:
            words = [str(_FIRST + datetime.timedelta(int(day))) for day in rng.integers(0, _DAYS, count)]
    is_empty = rng.random(count) < 0.1 * column["missing"]
    return ["" if empty else word for word, empty in zip(words, is_empty, strict=True)]


def write_wide_claim(folder: Path, rows: int, *, ending: str = "csv", positions: int = 640) -> Path:
    """A claim about the table, in a new folder, with its schema and a small model of so many positions."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    table = {"id": [f"p{row}" for row in range(rows)]}
    table |= {column["name"]: _cells(column, rows, rng) for column in columns()}
    with (folder / "people.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    if ending == "parquet":  # with types of its own: numbers, dates and null
        options = pyarrow.csv.ConvertOptions(strings_can_be_null=True, null_values=[""])
        read = pyarrow.csv.read_csv(folder / "people.csv", convert_options=options)
        pyarrow.parquet.write_table(read, folder / "people.parquet")
    body = {"made_from": "public", "columns": columns()}
    (folder / "schema.yaml").write_text(yaml.safe_dump(body, allow_unicode=True), encoding="utf-8")
    (folder / "model").mkdir()
    save_model(folder / "model", "llama", scale=1.0, positions=positions)
    claim = {
        "name": "wide",
        "data": {"source": "table", "path": f"people.{ending}", "id": "id"},
        "mechanism": "two_stage",
        "model": "model",
        "parameters": {
            "noise_multiplier": 1.0,
            "batch_size": 8,
            "steps": 2,
            "first_steps": 1,
            "generation": {"rows": 6, "rounds": 1},
        },
        "public": {"records": rows, "columns": "schema.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 9.0, "delta": 1e-6},
    }
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim), encoding="utf-8")
    return folder / "claim.yaml"
