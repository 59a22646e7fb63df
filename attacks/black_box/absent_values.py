"""Pairs for generators that write only what no record has: D has parts of the target, and only D′ has all of it."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData, Sample, make_pair
from dpassay.attacks.black_box.output_events import TOGETHER, Event

_COMBINED = 6  # columns of which combinations are expected to be absent, at most


def absent_row(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Records that have all values of the target but one each, so that a generator which draws columns from their
    counts soon writes the target; one that leaves out what private records have does not, once the target is one."""
    target, others = _with_others(sample)
    if len(others) < 2:
        return None
    rows = tuple({**target, name: other} for name, other in others.items())
    event = Event("rows equal to the target", 1.0)
    return make_pair(sample, "absent_row", _repeated(rows, len(sample.rows)), target, (event,))


def absent_pair(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Records that have one value of the target each, so that no two of its values occur together."""
    return _absent_combination(sample, "absent_pair", 1)


def absent_triple(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Records that have two values of the target each, so that no three of its values occur together."""
    return _absent_combination(sample, "absent_triple", 2)


def _absent_combination(sample: Sample, name: str, shared: int) -> NeighboringData | None:
    """Records that have so many values of the target each. If columns are drawn on their own, every combination of one
    more value occurs, so one event says that all do."""
    target, others = _with_others(sample)
    if len(others) < shared + 2:  # with one column more, it is the pair of an absent row
        return None
    names = sorted(others, key=lambda item: item not in [column.name for column in sample.categories])[:_COMBINED]
    other = {item: others[item] for item in names}
    rows = [
        {**target, **other, **{item: target[item] for item in kept}} for kept in itertools.combinations(names, shared)
    ]
    event = Event(TOGETHER[shared + 1], float(math.comb(len(names), shared + 1)))
    return make_pair(sample, name, _repeated(rows, len(sample.rows)), target, (event,))


def _with_others(sample: Sample) -> tuple[Row, dict[str, Any]]:
    """The usual record, and for each column of numbers or categories another cell of the sample: of categories the most
    frequent other one, of numbers the farthest."""
    target, others = sample.usual, dict[str, Any]()
    for column in sample.columns:
        value = column.value(target[column.name])
        cells: dict[Hashable, Any] = {}
        counts: Counter[Hashable] = Counter()
        for row in sample.rows:
            other = column.value(row[column.name])
            if other is not None and other != value:
                cells.setdefault(other, row[column.name])
                counts[other] += 1
        if column.kind not in ("number", "category") or value is None or not cells:
            continue
        numbers = [other for other in cells if isinstance(other, float) and math.isfinite(other)]
        if column.kind == "number" and isinstance(value, float) and numbers:
            own = value
            others[column.name] = cells[max(numbers, key=lambda other: abs(other / 2 - own / 2))]
        else:
            others[column.name] = cells[counts.most_common(1)[0][0]]
    return target, others


def _repeated(rows: Sequence[Row], count: int) -> tuple[Row, ...]:
    """So many records, these in turn."""
    return tuple(itertools.islice(itertools.cycle(rows), count))
