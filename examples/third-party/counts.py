"""A generator that knows its data by noisy counts only: `python counts.py DATA OUT` (the files of make_data.py).

Each record adds at most one to one count of each table below, and each count gets Laplace noise, so that all tables
together are differentially private with ε = 1 under adding or removing one record (but for the rounding of floating
point). What may be counted is public: the words, cities, plans and ranges in this file.
"""

import csv
import json
import random
import sys
from pathlib import Path

from make_data import CITIES, DOES, PLANS, WHAT, WHEN, WHO

COUNT = 1500
EPSILON = 1.0
TEXT = {"who": WHO, "does": DOES, "what": WHAT, "when": WHEN}
TABLE = {
    "age": [str(age) for age in range(18, 91)],
    "city": CITIES,
    "plan": PLANS,
    "tickets": [str(number) for number in range(10)],
    "spent": [str(number) for number in range(100, 1000, 100)],
}


def noisy(counts: dict[str, float], epsilon: float, draw: random.SystemRandom) -> dict[str, float]:
    """Counts with noise, at least 0; a little everywhere, so that something can always be drawn."""
    noise = {name: draw.expovariate(epsilon) - draw.expovariate(epsilon) for name in counts}
    return {name: max(0.01, count + noise[name]) for name, count in counts.items()}


def counted(records: list[dict[str, str]], tables: dict[str, list[str]]) -> dict[str, dict[str, float]]:
    """One noisy table of counts for each column."""
    draw = random.SystemRandom()
    out = {}
    for column, domain in tables.items():
        counts = dict.fromkeys(domain, 0.0)
        for record in records:
            if record.get(column) in counts:
                counts[record[column]] += 1
        out[column] = noisy(counts, EPSILON / len(tables), draw)
    return out


def drawn(tables: dict[str, dict[str, float]]) -> dict[str, str]:
    """A record of which every part is drawn by itself."""
    return {name: random.choices(list(counts), list(counts.values()))[0] for name, counts in tables.items()}


def parts(text: str) -> dict[str, str]:
    """The first known wording of each kind in a text."""
    found = {}
    for name, wordings in TEXT.items():
        known = [wording for wording in wordings if wording in text]
        found[name] = known[0] if known else ""
    return found


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    if source.suffix == ".jsonl":
        with source.open(encoding="utf-8") as file:
            tables = counted([parts(json.loads(line)["text"]) for line in file], TEXT)
        rows = [{"text": " ".join(drawn(tables).values())} for _ in range(COUNT)]
        target.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return
    with source.open(encoding="utf-8", newline="") as file:
        records = [{**row, "spent": str(round(float(row["spent"]), -2))[:3]} for row in csv.DictReader(file)]
    tables = counted(records, TABLE)
    with target.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(TABLE))
        writer.writeheader()
        writer.writerows(drawn(tables) for _ in range(COUNT))


if __name__ == "__main__":
    main()
