"""Makes the two tables that the generators here are audited on: `python make_people.py`.

Both hold 1000 of the 20190 rows of the RAND Health Insurance Experiment, about real people in a public study, from
`statsmodels.datasets.randhie` (public domain). `people.csv` has numbers and categories. `people-binned.csv` has
categories only, for generators that take nothing else; its bins are public, in `people-binned.yaml`.
"""

import csv
from pathlib import Path

import numpy as np

from dpassay.data import randhie_rows

HERE = Path(__file__).parent
ROWS, SEED = 1000, 0
BINS = ("0", "1-2", "3-5", "6+")


def binned(visits: int) -> str:
    """The bin of a number of visits."""
    return BINS[0 if visits == 0 else 1 if visits <= 2 else 2 if visits <= 5 else 3]


def main() -> None:
    """Writes both tables."""
    every = randhie_rows()
    rows = [every[place] for place in np.random.default_rng(SEED).choice(len(every), size=ROWS, replace=False)]
    kept = ("coinsurance", "deductible", "limitation", "health")
    fewer = [{"visits": binned(row["visits"]), **{name: row[name] for name in kept}} for row in rows]
    for name, table in (("people.csv", rows), ("people-binned.csv", fewer)):
        with (HERE / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)


if __name__ == "__main__":
    main()
