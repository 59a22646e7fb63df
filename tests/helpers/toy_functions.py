"""Generators as functions, for `cupel audit runs run --function toy_functions:NAME`."""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

Rows = list[dict[str, Any]]


def copy(rows: Rows, seed: int) -> Rows:
    """No protection; and it spoils what it was given."""
    found = [dict(row) for row in rows]
    rows.clear()
    return found


def constant(rows: Rows, seed: int) -> Rows:
    """Reads nothing; cells in types of NumPy."""
    drawn = np.random.default_rng(seed)
    return [{"age": drawn.integers(20, 60), "city": np.str_("north"), "note": "a b c d e"} for _ in range(9)]


def fails(rows: Rows, seed: int) -> Rows:
    raise RuntimeError(f"SECRET {rows[0]}")


def leaves(rows: Rows, seed: int) -> Rows:
    sys.exit(0)


def leaves_later(rows: Rows, seed: int) -> Rows:
    """A failure like any other."""
    if len(rows) % 2:
        sys.exit(0)
    return rows


def dies(rows: Rows, seed: int) -> Rows:
    """Only in a process of its own."""
    if os.getpid() != int(os.environ["TOY_PARENT"]):
        os._exit(1)
    return rows


def names(rows: Rows, seed: int) -> list[str]:
    """What `list` makes of a table of pandas."""
    return list(rows[0])


number = 7
