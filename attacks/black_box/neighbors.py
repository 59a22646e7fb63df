"""All neighbours of a small data set, for brute force."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from cupel.accounting.adjacency import Adjacency

T = TypeVar("T")


def neighbors(data: Sequence[T], universe: Sequence[T], *, adjacency: Adjacency | str) -> Iterator[list[T]]:
    """Every data set that one unit tells apart from `data`.

    Under add_remove each unit is taken out, and each of the universe put in at every place, because what depends on the
    order depends on the place: n + (n + 1)·|universe| data sets. Under replace_one and zero_out each unit is exchanged
    for each other one of the universe: at most n·|universe|.

    Args:
        data: a small data set.
        universe: what a unit can be; for zero_out the null record alone.
        adjacency: add_remove, replace_one or zero_out.

    Raises:
        ValueError: for another adjacency.
    """
    units, relation = list(data), Adjacency(adjacency)
    if relation is Adjacency.SECRET:
        raise ValueError(
            "neighbours under secret are not enumerated; give the data sets with the secret's other values"
        )
    if relation is Adjacency.ADD_REMOVE:
        for place in range(len(units)):
            yield units[:place] + units[place + 1 :]
        for place, unit in itertools.product(range(len(units) + 1), universe):
            yield [*units[:place], unit, *units[place:]]
        return
    for place, unit in itertools.product(range(len(units)), universe):
        if np.any(unit != units[place]):  # units may be arrays
            yield [*units[:place], unit, *units[place + 1 :]]
