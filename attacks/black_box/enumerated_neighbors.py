"""Enumeration of all neighbours of a small data set."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from dpassay.accounting.adjacency import Adjacency

T = TypeVar("T")


def neighbors(data: Sequence[T], universe: Sequence[T], *, adjacency: Adjacency | str) -> Iterator[list[T]]:
    """All data sets that differ from `data` in one unit.

    Under add_remove each unit is removed, and each unit of the universe is inserted at every position, because a
    mechanism may depend on the order: n + (n + 1)·|universe| data sets. Under replace_one and zero_out each unit is
    replaced by each different one of the universe: at most n·|universe|.

    Args:
        data: a small data set.
        universe: the possible units; for zero_out, only the null record.
        adjacency: add_remove, replace_one or zero_out.

    Raises:
        ValueError: if the adjacency is another one.
    """
    units, relation = list(data), Adjacency(adjacency)
    if relation is Adjacency.SECRET:
        raise ValueError(
            "neighbours under secret cannot be enumerated; pass the data sets with the other values of the secret"
        )
    if relation is Adjacency.ADD_REMOVE:
        for index in range(len(units)):
            yield units[:index] + units[index + 1 :]
        for index, unit in itertools.product(range(len(units) + 1), universe):
            yield [*units[:index], unit, *units[index:]]
        return
    for index, unit in itertools.product(range(len(units)), universe):
        if np.any(unit != units[index]):  # units may be arrays
            yield [*units[:index], unit, *units[index + 1 :]]
