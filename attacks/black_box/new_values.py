"""Pairs whose target has a category, a combination, a word or an empty cell that no record of D has, or only one."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np

from dpassay.attacks.black_box.column_facts import ColumnFacts, Row, made_up_word
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample, make_novel_pair, make_pair
from dpassay.attacks.black_box.output_events import Event


def new_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ has categories that no record of D has."""
    target = dict(sample.usual)
    _make_new(sample, target, rng)
    return make_novel_pair(sample, "new_category", sample.rows, target)


def repeated_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """One record of D has categories that no other has, and D′ has that record twice."""
    target = dict(sample.usual)
    _make_new(sample, target, rng)
    once = make_novel_pair(sample, "repeated_category", sample.rows, target)
    if once is None:
        return None
    twice = make_pair(sample, "repeated_category", (*sample.rows, dict(target)), target, once.events)
    return None if twice is None else dataclasses.replace(twice, novel=once.novel)


def _make_new(sample: Sample, target: dict[str, Any], rng: np.random.Generator) -> None:
    """Gives a record new categories."""
    for column in sample.of_kind("category"):
        target[column.name] = next(column.new_cells(rng), target[column.name])


def rare_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record with the rarest category, D′ has one."""
    rarest = _rarest(sample)
    return None if rarest is None else _without(sample, "rare_category", rarest)


def _rarest(sample: Sample) -> tuple[ColumnFacts, Hashable] | None:
    """The column and the value of the rarest category of words."""
    every = [
        (count, column, value)
        for column in sample.of_kind("category")
        if len(column.counts) > 2
        for value, count in column.counts.items()
    ]
    return min(every, key=lambda item: item[0])[1:] if every else None


def empty_class(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record of the rarest class, D′ has one."""
    column = sample.classes
    if column is None or len(column.counts) < 2:
        return None
    return _without(sample, "empty_class", (column, min(column.counts, key=column.counts.__getitem__)))


def _without(sample: Sample, name: str, rarest: tuple[ColumnFacts, Hashable]) -> NeighboringData | None:
    rest, target = _split(sample, rarest)
    return make_novel_pair(sample, name, rest, target) if len(rest) > sample.copies + 2 else None


def _split(sample: Sample, rarest: tuple[ColumnFacts, Hashable]) -> tuple[tuple[Row, ...], dict[str, Any]]:
    """The records without a category, and the first that has it."""
    column, value = rarest
    having = [column.value(row[column.name]) == value for row in sample.rows]
    rest = tuple(row for row, has in zip(sample.rows, having, strict=True) if not has)
    return rest, dict(sample.rows[having.index(True)])


def new_combination(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two frequent categories that occur together in no record."""
    best: tuple[int, ColumnFacts, Hashable, ColumnFacts, Hashable] | None = None
    columns = [column for column in sample.categories if len(column.counts) > 1]
    for index, first in enumerate(columns):
        for second in columns[index + 1 :]:
            seen = {(first.value(row[first.name]), second.value(row[second.name])) for row in sample.rows}
            for a, many in first.counts.items():
                for b, more in second.counts.items():
                    if (a, b) not in seen and (best is None or min(many, more) > best[0]):
                        best = min(many, more), first, a, second, b
    if best is None:
        return None
    _, first, a, second, b = best
    target = {**sample.usual, first.name: first.cells[a], second.name: second.cells[b]}
    event = Event(f"rows with the target's {first.name} and {second.name}", 1.0)
    return make_pair(sample, "new_combination", sample.rows, target, (event,))


def missing_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """A record with empty cells, where no other record has any."""
    complete = tuple(
        row for row in sample.rows if not any(column.is_missing(row[column.name]) for column in sample.columns)
    )
    classes = sample.classes
    kinds = ("number", "category") if len(sample.columns) > 1 else ()
    empty = [
        column
        for column in sample.columns
        if column.may_be_missing and column.kind in kinds and (classes is None or column.name != classes.name)
    ]
    if not empty or len(complete) <= sample.copies + 2:
        return None
    target = dict(complete[0])
    for column in empty:
        target[column.name] = column.blank
    return make_pair(sample, "missing_value", complete, target, (Event("empty cells", 1.0),))


def new_token(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ has a made-up word in its texts, several times."""
    target = dict(sample.usual)
    columns = sample.of_kind("text")
    for column in columns:
        word = made_up_word(rng)
        usual = target[column.name]
        target[column.name] = " ".join([word] * 3 + [str(usual)] * (not column.is_missing(usual)) + [word] * 3)
    events = tuple(Event(f"{column.name}: texts with a new word of the target", 1.0) for column in columns)
    return make_pair(sample, "new_token", sample.rows, target, events) if columns else None
