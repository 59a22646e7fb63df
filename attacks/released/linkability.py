"""Linkability: do two parts of a row, known to two parties, lead to the same synthetic row?

One party knows some columns of a person, another party knows the others, and neither knows which of its rows belong
together. Both look for the synthetic row that is nearest to theirs; if they find the same one, they link their rows.
Links in the holdout follow from what columns have in common; only a higher rate in the source is a leak.

Source: Giomi et al., "A Unified Framework for Quantifying Privacy Risk in Synthetic Data" (2023), section 4.2, with one
    neighbour. In their code, ties go to whichever row comes first, and copies of a synthetic row are different rows.
    Here copies are one row, and each party breaks ties in a random order of its own: otherwise both take the first of
    many equal rows, and link where nothing was learned.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dpassay.attacks.released.holdout import Hits
from dpassay.attacks.released.tables import EncodedTable, Step, Tables, nearest
from dpassay.base.arrays import Integers


def linkability(tables: Tables, known: Collection[str], *, seed: int, progress: Step | None = None) -> Hits:
    """Links the parts of every row by the nearest synthetic row.

    Args:
        tables: the rows, and the units whose rows they are.
        known: the columns that the first party knows; the second party knows the others.
        seed: of the order in which each party breaks ties; a public choice.
        progress: called with the number of rows done and the total.

    Returns:
        A unit is hit if both parts of a row of it lead to the same synthetic row. The details have the number of
        distinct synthetic rows; by chance one in so many is linked.

    Raises:
        ValueError: if there is no such column, or if a party knows no column.
    """
    every = tables.numeric + tables.categorical
    for column in known:
        tables.locate(column)
    others = [column for column in every if column not in known]
    if not known or not others:
        party = "second" if known else "first"
        raise ValueError(f"the {party} party of linkability knows no column; name some of the {len(every)} columns")
    distinct = np.unique(np.array(tables.synthetic.keys()), return_index=True)[1]
    rng = np.random.default_rng(seed)
    found: list[Integers] = []
    for part in (known, others):
        order = rng.permutation(np.sort(distinct))
        half = tables.only(part)
        found.append(_rows(half, order, progress, len(found)))
    linked = found[0] == found[1]
    source, holdout = tables.hits(linked)
    first, second = (", ".join(repr(column) for column in part) for part in (sorted(known), sorted(others)))
    return Hits(
        "linkability",
        f"one party knows {first} of each row, another {second}; find which parts belong together by the synthetic "
        "table",
        "parts that are nearest to the same synthetic row belong together",
        "linked",
        source,
        holdout,
        {"known": sorted(known), "distinct_synthetic_rows": len(distinct)},
    )


def _rows(half: Tables, order: Integers, progress: Step | None, done: int) -> Integers:
    """The synthetic row that is nearest to each row of source and holdout; of several, the first in an order."""
    both = EncodedTable.joined(half.source, half.holdout)

    def step(rows: int, total: int) -> None:
        if progress is not None:
            progress(done * total + rows, 2 * total)

    return np.asarray(order[nearest(both, half.synthetic.take(order), step)[1]])
