"""Pairs whose D is unusual as a whole, such as one record repeated, and the pair of an ordinary record."""

from __future__ import annotations

import numpy as np

from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample, make_novel_pair, make_pair, same_value
from dpassay.attacks.black_box.output_events import NEARER, SHARE, Event
from dpassay.attacks.black_box.row_order import FIRST


def ordinary(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ is one of the sample, with the most frequent categories."""
    return make_pair(sample, "ordinary", sample.rows, sample.usual, ())


def tie(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two records, each as often as the other, and one of them once more: what is most frequent changes, and medians
    and the order by counts with it."""
    first = sample.usual

    def different(row: Row) -> list[str]:
        return [column.name for column in sample.columns if column.kind != "id" and not same_value(column, row, first)]

    second = max(sample.rows, key=lambda row: len(different(row)))
    if not (names := different(second)):
        return None
    used = [column for column in sample.columns if column.kind in ("number", "category")]
    events = [Event(FIRST, 1.0 + sum(column.name not in names for column in used))]
    for column in used:
        if column.name in names:
            empty = any(column.is_missing(row[column.name]) for row in (first, second))
            numbers = column.kind == "number" and not empty
            events.append(Event(f"{column.name}: {NEARER if numbers else SHARE}", 0.5))
    return make_pair(sample, "tie", (first, second) * (len(sample.rows) // 2), second, tuple(events))


def duplicates(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """All records of D are equal, and one record of D′ is another one."""
    same, other = sample.usual, sample.unusual
    if sample.equal(same, other):
        other = next((row for row in sample.rows if not sample.equal(row, same)), same)
    return make_novel_pair(sample, "duplicates", (same,) * len(sample.rows), other)


def cluster_edge(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two groups that are far apart, and a record half-way between them."""
    numbers = [column for column in sample.of_kind("number") if column.high > column.low]
    if not numbers:
        return None
    first = max(numbers, key=lambda column: len({column.value(row[column.name]) for row in sample.rows}))

    def value(row: Row) -> float:
        number = first.value(row[first.name])
        return number if isinstance(number, float) else 0.0

    ordered = sorted((row for row in sample.rows if first.value(row[first.name]) is not None), key=value)
    quarter = len(ordered) // 4
    groups = (*ordered[:quarter], *ordered[len(ordered) - quarter :])
    if quarter < 2 or value(ordered[quarter - 1]) >= value(ordered[-quarter]):
        return None
    target = dict(ordered[len(ordered) // 2])
    for column in numbers:
        target[column.name] = column.written(column.low / 2 + column.high / 2)
    return make_pair(sample, "cluster_edge", groups * (1 + (len(sample.rows) - 1) // len(groups)), target, ())
