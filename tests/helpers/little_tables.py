"""A small table with categories, numbers, dates and empty cells, for tests of generators of tables."""

from __future__ import annotations

import numpy as np

from dpassay.data.table_schema import MISSING, Row, Schema
from dpassay.data.tables import Table

PEOPLE = Schema.model_validate(
    {
        "columns": [
            {"name": "sex", "type": "category", "values": ["f", "m"]},
            {"name": "age", "type": "number", "low": 0, "high": 400, "missing": True},
            {"name": "weight", "type": "number", "low": -5, "high": 120, "decimals": 1},
            {"name": "city", "type": "category", "values": ["a", "b", "c", "d"], "missing": True},
            {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2021-12-31"},
        ]
    }
)


def people(count: int, seed: int = 0) -> list[Row]:
    """Rows in which the age follows the sex, and the weight follows the age."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for _ in range(count):
        sex = int(rng.integers(2))
        age = 30 if rng.random() < 0.4 else int(rng.integers(100 * sex, 100 * sex + 60))
        weight = f"{age / 4 + int(rng.integers(20)) / 10:.1f}"
        city = MISSING if rng.random() < 0.2 else "abcd"[int(rng.integers(3))]
        day = f"2020-{1 + int(rng.integers(12)):02d}-15"
        rows.append(("fm"[sex], MISSING if rng.random() < 0.1 else str(age), weight, city, day))
    return rows


def people_table(count: int, seed: int = 0) -> Table:
    """A table of such rows."""
    return Table(PEOPLE, people(count, seed), [f"person {index}" for index in range(count)])
