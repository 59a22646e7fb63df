"""A generator whose counts are noisy and whose labels are not: `python own_labels.py DATA OUT --epsilon 1`.

Counts of cities and of plans get Laplace noise, as in counts.py. But it counts the cities and plans that the data hold,
where counts.py has a public list. So a city that one customer lives in is written only if that customer is in the data.
"""

import argparse
import csv
import math
import random
from collections import Counter
from pathlib import Path

COLUMNS = ("city", "plan")
COUNT = 300


def noisy(values: list[str], epsilon: float) -> dict[str, float]:
    """The noisy count of each value that occurs. One record changes one count by 1."""
    draw = random.SystemRandom()
    noise = dict.fromkeys(values, 0.0)
    if not math.isinf(epsilon):
        noise = {value: draw.expovariate(epsilon) - draw.expovariate(epsilon) for value in noise}
    return {value: max(0.01, count + noise[value]) for value, count in Counter(values).items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epsilon", type=float, default=1.0, help="claimed; inf for no noise")
    given = parser.parse_args()
    with given.data.open(encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    each = given.epsilon / len(COLUMNS)
    counts = {name: noisy([record[name] for record in records], each) for name in COLUMNS}
    columns = [random.choices(list(counts[name]), list(counts[name].values()), k=COUNT) for name in COLUMNS]
    with given.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(zip(*columns, strict=True))


if __name__ == "__main__":
    main()
