"""Small generators that `dpassay audit runs run --function audited_functions:NAME` audits."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

Rows = list[dict[str, Any]]


def own_labels(records: Rows, seed: int) -> Rows:
    """Draws from noisy counts of the cities that the data hold: whether a city occurs at all is not protected."""
    draw = random.Random(seed)
    counts = Counter(record["city"] for record in records)
    noisy = [max(0.01, count + draw.expovariate(3.0) - draw.expovariate(3.0)) for count in counts.values()]
    return [{"city": city} for city in draw.choices(list(counts), noisy, k=400)]


def constant(records: Rows, seed: int) -> Rows:
    """Reads nothing."""
    return [{"city": "Delft"}]
