"""Generators as functions, for `dpassay audit runs run --function toy_functions:NAME`."""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def copy(rows: Rows, seed: int) -> Rows:
    """No protection; and it spoils what it was given."""
    results = [dict(row) for row in rows]
    rows.clear()
    return results


def constant(rows: Rows, seed: int) -> Rows:
    """Reads nothing; cells in types of NumPy."""
    drawn = np.random.default_rng(seed)
    return [{"age": drawn.integers(20, 60), "city": np.str_("north"), "note": "a b c d e"} for _ in range(9)]


LEAK = (0.0, 1.0)
RIGHT = (1 / (1 + math.e), math.e / (1 + math.e))
"""Randomised response at ε = 1 exactly."""


def response(rows: Rows, seed: int, rates: tuple[float, float]) -> Rows:
    """One row, whose city is SECRET-town with a probability that depends on whether a record has it."""
    shown = random.Random(seed).random() < rates[any(row["city"] == "SECRET-town" for row in rows)]
    return [{"age": 30, "city": "SECRET-town" if shown else "north", "note": "a b c d e"}]


def leak(rows: Rows, seed: int) -> Rows:
    return response(rows, seed, LEAK)


def right(rows: Rows, seed: int) -> Rows:
    return response(rows, seed, RIGHT)


def fails(rows: Rows, seed: int) -> Rows:
    raise RuntimeError(f"SECRET {rows[0]}")


def leaves(rows: Rows, seed: int) -> Rows:
    sys.exit(0)


def leaves_later(rows: Rows, seed: int) -> Rows:
    """A failure like any other."""
    if len(rows) % 2:
        sys.exit(0)
    return rows


def dies_later(rows: Rows, seed: int) -> Rows:
    """On D′ it ends its process."""
    print("SECRET", flush=True)
    if len(rows) % 2:
        os._exit(1)
    return rows


def hangs_later(rows: Rows, seed: int) -> Rows:
    """On D′ it does not end."""
    print("SECRET", flush=True)
    while len(rows) % 2:
        time.sleep(1)
    return rows


def prints(rows: Rows, seed: int) -> Rows:
    print("SECRET")
    print("SECRET", file=sys.stderr)
    return rows


def workers_of_its_own(rows: Rows, seed: int) -> Rows:
    """The end of a pool asks its workers to end, and waits for them."""
    for _ in range(3):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            made = pool.map(dict, rows)
    return made


def names(rows: Rows, seed: int) -> list[str]:
    """What `list` makes of a table of pandas."""
    return list(rows[0])


number = 7


def often(rows: Rows, seed: int) -> Rows:
    """Publishes, without noise, the rows of cities that occur in five records or more, and nothing else of them."""
    counts = Counter(row["city"] for row in rows)
    return [{"age": 30, "city": row["city"], "note": "a b c d e"} for row in rows if counts[row["city"]] >= 5]
