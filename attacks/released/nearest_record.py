"""Nearest records: are rows of the source nearer to the synthetic ones than rows of the holdout?

Source: Platzer and Reutterer, "Holdout-Based Empirical Assessment of Mixed-Type Synthetic Data" (2021), for the share
    of synthetic rows that are nearer to the source than to an equally large holdout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cupel.accounting import validate
from cupel.accounting.number_format import format_percent
from cupel.attacks.released.holdout import Hits, places
from cupel.attacks.released.tables import Step, Table, Tables, nearest

CLOSEST = 0.1
"""The share of all candidates that the attack guesses to be in the source: those nearest to a synthetic row."""

_GAME = "some rows were given to the generator and others held out; tell them apart by the synthetic table"


def exact_matches(tables: Tables) -> Hits:
    """Which rows the synthetic table repeats in all columns; rows are one unit each."""
    known = set(tables.synthetic.keys())
    source, holdout = (_among(side.keys(), known) for side in (tables.source, tables.holdout))
    attack = "a unit whose row is in the synthetic table, the same in all columns"
    return Hits("exact_match", _GAME, attack, "repeated", source, holdout)


def _among(keys: list[str], known: set[str]) -> NDArray[np.bool_]:
    return np.array([key in known for key in keys], dtype=np.bool_)


def closest_records(
    tables: Tables, *, seed: int, share: float = CLOSEST, limit: int | None = None, progress: Step | None = None
) -> Hits:
    """Guesses that the rows nearest to a synthetic row are those of the source.

    How many it guesses is fixed before, and ties are decided by a hash of the row, so that hits depend on the split
    into source and holdout through the synthetic rows only. The place of a row in a list would tell its side.

    Args:
        tables: rows that are one unit each.
        seed: of rows drawn for the share of synthetic rows, and of ties between equal rows; public choices.
        share: of all candidates that are guessed, in (0, 1).
        limit: at most so many synthetic rows, and as many of each side, are used for that share; none is left out of
            the guesses.
        progress: called with rows done and rows in all.

    Returns:
        The hits. The details have the area under the curve of −distance, and the share of synthetic rows that are
        nearer to the source than to the holdout, with as many of each: ½ where the synthetic table is no nearer to
        either. Both describe and have no interval, since synthetic rows do not come one by one.
    """
    validate.open_probability(share=share)
    both = Table.joined(tables.source, tables.holdout)
    distances, _ = nearest(both, tables.synthetic, progress)
    rng = np.random.default_rng(seed)
    order = np.lexsort((rng.permutation(len(both)), places(both.keys()), distances))
    guessed = np.zeros(len(both), dtype=np.bool_)
    guessed[order[: math.ceil(share * len(both))]] = True
    count = len(tables.source)
    return Hits(
        "closest_record",
        _GAME,
        f"the {format_percent(share)} of all units that are nearest to a synthetic row, by Gower's distance",
        "among the nearest",
        guessed[:count],
        guessed[count:],
        {
            "area_under_curve": area_under_curve(distances[:count], distances[count:]),
            "median_distance": {
                "source": float(np.median(distances[:count])),
                "holdout": float(np.median(distances[count:])),
            },
            "synthetic_rows": _nearer(tables, rng, limit or len(both)),
        },
    )


def area_under_curve(source: NDArray[np.float64], holdout: NDArray[np.float64]) -> float:
    """The probability that a row of the source is nearer than one of the holdout, ties counted half."""
    ranks = stats.rankdata(np.concatenate([source, holdout]))[len(source) :]
    below = float(ranks.sum()) - len(holdout) * (len(holdout) + 1) / 2
    return below / (len(source) * len(holdout))


def _nearer(tables: Tables, rng: np.random.Generator, limit: int) -> dict[str, Any]:
    """How many synthetic rows are nearer to the source: of two sides the larger one would be nearer by its size."""
    size = min(len(tables.source), len(tables.holdout), limit)
    drawn = tables.synthetic.take(_draw(rng, len(tables.synthetic), limit))
    sides = [side.take(_draw(rng, len(side), size)) for side in (tables.source, tables.holdout)]
    source, holdout = (nearest(drawn, side)[0] for side in sides)
    nearer, ties = int((source < holdout).sum()), int((source == holdout).sum())
    return {
        "rows": len(drawn),
        "rows_of_each_side": size,
        "nearer_to_source": nearer,
        "nearer_to_holdout": len(drawn) - nearer - ties,
        "share_nearer_to_source": (nearer + ties / 2) / len(drawn),
    }


def _draw(rng: np.random.Generator, rows: int, count: int) -> NDArray[np.int64]:
    return np.sort(rng.permutation(rows)[:count])
