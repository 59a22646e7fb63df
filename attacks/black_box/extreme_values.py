"""Pairs whose target lies beyond all other records: extreme numbers, an outlier in every column, a long text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import ColumnFacts, Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample, make_pair
from dpassay.attacks.black_box.output_events import EQUAL, EXCHANGED, REACHED, TOWARD, Event

FAR = 10.0
"""How far beyond the range of the data an extreme value lies, in widths of the range."""
NEAR = 1.0
"""The same for an outlier, which public limits may well admit."""
BEYOND = 2.0
"""The same for two opposite outliers, which an output shows by a number that is half as far out."""
LONG = 10
"""How many times as long as the longest text an extreme text is."""


def extreme_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ has rare categories, and numbers far beyond those of D."""
    target = dict(sample.unusual)
    outside = _make_extreme(sample, target, FAR)
    if not outside:
        return None
    events = (Event(f"{name}{TOWARD}", 1.0) for name in ("", *(f"{name}: " for name in outside)))
    return make_pair(sample, "extreme_value", sample.rows, target, tuple(events))


def _make_extreme(sample: Sample, target: dict[str, Any], far: float) -> list[str]:
    """Gives a record extreme numbers; the columns in which they are outside the range of the sample."""
    outside = []
    for column in sample.of_kind("number"):
        extreme = column.extreme(far)
        target[column.name] = column.written(extreme)
        if not column.low <= extreme <= column.high:
            outside.append(column.name)
    return outside


def outlier(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ has the rarest category of every column, which no record of D has, and numbers beyond all
    others: so it shows in every column, and the privacy losses of all of them add up."""
    rest, target, rare, outside = _farthest(sample, NEAR)
    columns = [*rare, *outside]
    if len(columns) < 2 or not rare:
        return None
    events = [Event(REACHED, float(len(columns))), *(Event(f"{name}: {EQUAL}", 1.0) for name in columns)]
    return make_pair(sample, "outlier", rest, target, tuple(events))


def opposite_outliers(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The target is an outlier, and the record that it replaces is one on the other side of each column: so both show
    in every column, and the privacy losses of all of them add up, of each column twice."""
    if sample.adjacency is not Adjacency.REPLACE_ONE:
        return None
    rest, target, rare, outside = _farthest(sample, BEYOND)
    if len(rare) + len(outside) < 2:
        return None
    replaced, signs = dict(sample.usual), len(rare) + len(outside)
    for column in sample.columns:
        name, own = column.name, column.value(target[column.name])
        if column.kind == "number" and isinstance(own, float):
            number = column.opposite(own, BEYOND)
            if name in outside and not column.low <= number <= column.high:
                replaced[name] = column.written(number)
                signs += 1
        elif name in rare:
            counts = Counter(value for row in rest if (value := column.value(row[name])) is not None)
            if counts:
                replaced[name] = column.cells[min(counts, key=counts.__getitem__)]
                signs += 1
    rows = (*rest, *(dict(replaced) for _ in range(sample.copies)))
    return make_pair(sample, "opposite_outliers", rows, target, (Event(EXCHANGED, float(signs)),))


def _farthest(sample: Sample, far: float) -> tuple[tuple[Row, ...], dict[str, Any], list[str], list[str]]:
    """The records without the rarest category of each column; a record that has them all, and numbers beyond the
    others; and the columns in which it has such a category, and such a number."""
    rest, target = sample.rows, dict(sample.usual)
    for column, value in _rarest_of_each(sample):
        fewer = tuple(row for row in rest if column.value(row[column.name]) != value)
        if 2 * len(fewer) >= len(sample.rows) and len(fewer) > sample.copies + 2:
            rest, target[column.name] = fewer, column.cells[value]
    rare = [column.name for column in sample.of_kind("category") if not sample.holds(rest, column, target)]
    return rest, target, rare, _make_extreme(sample, target, far)


def _rarest_of_each(sample: Sample) -> list[tuple[ColumnFacts, Hashable]]:
    """The columns of three or more categories of words, each with its rarest, the rarest of all first."""
    columns = [column for column in sample.of_kind("category") if len(column.counts) > 2]
    rarest = [(column, min(column.counts, key=column.counts.__getitem__)) for column in columns]
    return sorted(rarest, key=lambda item: item[0].counts[item[1]])


def longest_text(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """The record of D′ has a text that is far longer than those of D."""
    target = dict(sample.usual)
    events = []
    for column in sample.of_kind("text"):
        longest = max(map(str, column.cells.values()), key=len, default="text")
        target[column.name] = " ".join([longest] * LONG)
        events.append(Event(f"{column.name}: characters of the longest text", 2.0 * len(longest)))
    return make_pair(sample, "longest_text", sample.rows, target, tuple(events)) if events else None
