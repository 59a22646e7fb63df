"""Nearest records: are rows of the source nearer to the synthetic ones than rows of the holdout?

Source: Platzer and Reutterer, "Holdout-Based Empirical Assessment of Mixed-Type Synthetic Data" (2021), for the share
    of synthetic rows that are nearer to the source than to an equally large holdout.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

from dpassay.attacks.released.holdout import Hits, ranks
from dpassay.attacks.released.tables import EncodedTable, Step, Tables, nearest
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.base.number_format import format_percent

CLOSEST = 0.1
"""The fraction of all units that the attack guesses to be in the source: those nearest to a synthetic row."""

_GAME = "some rows were given to the generator and others held out; tell them apart by the synthetic table"


def exact_matches(tables: Tables) -> Hits:
    """Which units have a row that the synthetic table repeats in all columns."""
    known = set(tables.synthetic.keys())
    rows = (*tables.source.keys(), *tables.holdout.keys())
    source, holdout = tables.hits(np.array([key in known for key in rows], dtype=np.bool_))
    attack = "a unit whose row is in the synthetic table, the same in all columns"
    return Hits("exact_match", _GAME, attack, "repeated", source, holdout)


def closest_records(
    tables: Tables,
    *,
    seed: int,
    share: float = CLOSEST,
    limit: int | None = None,
    distances: Floats | None = None,
    progress: Step | None = None,
) -> Hits:
    """Guesses that the rows nearest to a synthetic row are those of the source.

    The number of guesses is fixed in advance, and ties are broken by a hash of the unit, so hits depend on the split
    into source and holdout only through the synthetic rows. The index of a row must not break ties, since it reveals
    the side. A user is as near as the nearest of the user's rows.

    Args:
        tables: the rows, and the units whose rows they are.
        seed: of the rows drawn for the share of synthetic rows, and of ties between equal rows; public choices.
        share: fraction of all units to guess, in (0, 1).
        limit: largest number of synthetic rows, and of rows of each side, that are used for the share of synthetic
            rows; the guesses use all rows.
        distances: of all rows of source and holdout to the nearest synthetic row, if they are known (`nearest`).
        progress: called with the number of rows done and the total.

    Returns:
        The hits. The details have the area under the curve of −distance, and the share of synthetic rows that are
        nearer to the source than to the holdout, with equally many rows of each: ½ if the synthetic table is equally
        near to both. Both are descriptive and have no interval, since synthetic rows are not independent.
    """
    validate.open_probability(share=share)
    both = EncodedTable.joined(tables.source, tables.holdout)
    of_rows = nearest(both, tables.synthetic, progress)[0] if distances is None else distances
    count, total = tables.counts[0], sum(tables.counts)
    of_units = np.full(total, np.inf)
    np.minimum.at(of_units, tables.owners, of_rows)
    rng = np.random.default_rng(seed)
    ties = ranks(both.keys()) if tables.units is None else tables.units.order
    order = np.lexsort((rng.permutation(total), ties, of_units))
    guessed = np.zeros(total, dtype=np.bool_)
    guessed[order[: math.ceil(share * total)]] = True
    return Hits(
        "closest_record",
        _GAME,
        f"the {format_percent(share)} of all units that are nearest to a synthetic row, by Gower's distance",
        "among the nearest",
        guessed[:count],
        guessed[count:],
        {
            "area_under_curve": area_under_curve(of_units[:count], of_units[count:]),
            "median_distance": {
                "source": float(np.median(of_units[:count])),
                "holdout": float(np.median(of_units[count:])),
            },
            "synthetic_rows": _nearer(tables, rng, limit or len(both)),
        },
    )


def area_under_curve(source: Floats, holdout: Floats) -> float:
    """The probability that a source row is nearer than a holdout row, with ties counted half."""
    ranks = stats.rankdata(np.concatenate([source, holdout]))[len(source) :]
    below = float(ranks.sum()) - len(holdout) * (len(holdout) + 1) / 2
    return below / (len(source) * len(holdout))


def _nearer(tables: Tables, rng: np.random.Generator, limit: int) -> dict[str, Any]:
    """How many synthetic rows are nearer to the source; sides of equal size, since a larger side would be nearer."""
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


def _draw(rng: np.random.Generator, rows: int, count: int) -> Integers:
    return np.sort(rng.permutation(rows)[:count])
