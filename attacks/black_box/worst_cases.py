"""Neighbouring data sets on which faulty generators of tables and texts differ most.

Each strategy makes one pair (D, D′) from a sample of the data, and aims at one kind of fault: a range or a set of
categories that is taken from the data, a statistic that is released without noise, and so on. A lower bound on ε holds
whatever the pair is, so strategies may be as artful as they like; they only decide what is found.

Where a public schema is given, every value stays inside its domain, so that no generator is blamed for values that it
was promised never to see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.absent_values import absent_pair, absent_row, absent_triple
from dpassay.attacks.black_box.extreme_values import extreme_value, longest_text, opposite_outliers, outlier
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample
from dpassay.attacks.black_box.new_values import (
    empty_class,
    missing_value,
    new_category,
    new_combination,
    new_token,
    rare_category,
    repeated_category,
)
from dpassay.attacks.black_box.unusual_data import cluster_edge, duplicates, ordinary, tie
from dpassay.base import validate

Strategy: TypeAlias = Callable[[Sample, np.random.Generator], NeighboringData | None]


def neighboring_data(
    sample: Sample, rng: np.random.Generator, strategies: Sequence[str] | None = None
) -> tuple[NeighboringData, ...]:
    """The pairs of the strategies that are named, or else of all, if they apply to the data, in the order of
    `STRATEGIES`; `rng` is of public choices, such as made-up words.

    Raises:
        ValueError: if a name is unknown, or no strategy applies.
    """
    for name in strategies or ():
        validate.one_of(tuple(STRATEGIES), neighbors=name)
    results = [
        pair
        for name, strategy in STRATEGIES.items()
        if strategies is None or name in strategies
        if (pair := strategy(sample, rng)) is not None
    ]
    if not results:
        named = ", ".join(strategies or STRATEGIES)
        raise ValueError(f"none of the strategies {named} applies to these columns under {sample.adjacency}")
    return tuple(results)


@dataclass(frozen=True, slots=True)
class _Strategy:
    """A strategy, and in words: D, the record that D′ has, and the faults that it aims at."""

    make: Strategy
    data: str
    target: str
    finds: str


_TABLE: Final[dict[str, _Strategy]] = {
    "outlier": _Strategy(
        outlier,
        "without the rarest category of each column",
        "has them all, and numbers a range beyond the largest",
        "noise that is too small for a record that shows in several columns at once",
    ),
    "opposite_outliers": _Strategy(
        opposite_outliers,
        "without the rarest category of each column, and with a record that has the rarest other ones, and numbers up "
        "to two ranges below the smallest",
        "replaces that record, and has the rarest categories of all, and numbers up to two ranges beyond the largest",
        "noise that is too small for a record that replaces another one and shows in several columns at once",
    ),
    "extreme_value": _Strategy(
        extreme_value,
        "as drawn",
        "has numbers ten times the range beyond the largest, or with a schema at the end of the range",
        "the smallest or largest value of a column, taken from the data",
    ),
    "new_category": _Strategy(
        new_category,
        "as drawn",
        "has categories that no record of D has",
        "the categories of a column, taken from the data",
    ),
    "rare_category": _Strategy(
        rare_category,
        "without the rarest category of all",
        "has it",
        "the categories of a column, taken from the data",
    ),
    "repeated_category": _Strategy(
        repeated_category,
        "one record has categories that no other has",
        "is a copy of that record",
        "counts that are published above a threshold only",
    ),
    "longest_text": _Strategy(
        longest_text,
        "as drawn",
        "has a text ten times as long as the longest",
        "a length that is taken from the data; texts that are clipped too late",
    ),
    "new_token": _Strategy(
        new_token,
        "as drawn",
        "has a made-up word in its text, six times",
        "a vocabulary, taken from the data; texts that are memorised",
    ),
    "empty_class": _Strategy(
        empty_class,
        "without the rarest class",
        "is of that class",
        "a model for each class that the data have",
    ),
    "new_combination": _Strategy(
        new_combination,
        "as drawn",
        "has two frequent categories that no record of D has together",
        "combinations of categories, taken from the data",
    ),
    "missing_value": _Strategy(
        missing_value,
        "without empty cells",
        "has empty cells",
        "whether a column has empty cells, taken from the data",
    ),
    "duplicates": _Strategy(
        duplicates,
        "one record, repeated",
        "is another one",
        "variances, ranges, distinct values or duplicates, taken from the data",
    ),
    "cluster_edge": _Strategy(
        cluster_edge,
        "two groups, far apart in one column",
        "lies half-way between them",
        "centres or splits that one record moves, taken from the data",
    ),
    "ordinary": _Strategy(
        ordinary,
        "as drawn",
        "has the most frequent categories",
        "the number of records, or a count, that is released without noise",
    ),
    "absent_row": _Strategy(
        absent_row,
        "records that have all values of the target but one each",
        "has the usual value of every column",
        "rows that are written only if they equal no record",
    ),
    "absent_pair": _Strategy(
        absent_pair,
        "records that have one value of the target each",
        "has the usual value of every column",
        "pairs of values that are written only if no record has them",
    ),
    "absent_triple": _Strategy(
        absent_triple,
        "records that have two values of the target each",
        "has the usual value of every column",
        "triples of values that are written only if no record has them",
    ),
    "tie": _Strategy(
        tie,
        "two different records, equally often",
        "is a copy of one of them",
        "the most frequent value, a median, or an order by counts, taken from the data",
    ),
}

STRATEGIES: Final[dict[str, Strategy]] = {name: strategy.make for name, strategy in _TABLE.items()}
"""All strategies by name. Of those that promise alike, the first are tried first."""

OWN: Final = "own"
"""The name of a pair that the user gives (`dpassay.attacks.black_box.own_neighbors`), which no strategy makes."""

FINDS: Final[dict[str, str]] = {
    **{name: strategy.finds for name, strategy in _TABLE.items()},
    OWN: "what the user gave the two data sets for",
}
"""The faults that each strategy aims at; what the user's own pair does."""

NEIGHBORS: Final[dict[str, tuple[str, str]]] = {
    name: (strategy.data, strategy.target) for name, strategy in _TABLE.items()
}
"""In words, what D of each strategy is, and what the record that D′ has."""


def difference_in_words(name: str, adjacency: Adjacency, copies: int) -> str:
    """What D of a strategy is, and what D′ is, as one sentence."""
    data, target = NEIGHBORS[name]
    records = "one record" if copies == 1 else f"{copies} equal records"
    more = f"{records} more" if adjacency is Adjacency.ADD_REMOVE else f"{records} in the place of as many of D"
    return f"D: {data}. D′: {more}, the target, which {target}."
