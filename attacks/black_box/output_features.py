"""Numbers that describe a synthetic table or text, as somebody sees it who looks for one record in it.

Some depend on the output alone, such as the largest value of a column. Others compare it with the record by which two
neighbouring data sets differ: how many cells have its value, how near the nearest row is. Nothing here knows on which
of the two data sets the generator ran.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeAlias

import numpy as np

from dpassay.attacks.black_box.worst_cases import SHOWN, TOWARD, ColumnFacts, NeighboringData, Row
from dpassay.base.arrays import Bools, Floats
from dpassay.base.pieces import pieces
from dpassay.data.cells import as_category, as_number, is_missing

Features: TypeAlias = dict[str, float]
"""Value by the name of a feature."""

FAILED: Final = "failed"
"""1 if the generator wrote no output. Whoever sees outputs sees that, too."""

PIECE = 20_000  # rows that are held at once
_MAX_DISTINCT = 200_000  # above it, distinct values are no longer counted
_WORD = re.compile(r"\w+")


def failed() -> Features:
    """The features of a run that wrote no output."""
    return {FAILED: 1.0}


class OutputFeatures:
    """Features of outputs, for one or several pairs of neighbouring data sets.

    Args:
        columns: of the data.
        pairs: neighbouring data sets, from the same data.
    """

    def __init__(self, columns: Sequence[ColumnFacts], pairs: Sequence[NeighboringData]) -> None:
        self._columns = tuple(columns)
        self._targets = {pair.name: _Target(self._columns, pair) for pair in pairs}

    def of(self, rows: Iterable[Row], pairs: Sequence[str]) -> dict[str, Features]:
        """The features of one output by the name of a pair, and under ``""`` those that depend on no pair. Rows are
        read once, in pieces; columns that are missing count as empty."""
        whole = _Whole(self._columns)
        sums = {name: _FeatureSums() for name in pairs}
        for piece in pieces(rows, PIECE):
            cells = {column.name: [row.get(column.name) for row in piece] for column in self._columns}
            numbers = {column.name: _numbers(cells[column.name]) for column in self._columns if column.kind == "number"}
            words = {name: _categories(values) for name, values in cells.items()}
            whole.add(piece, cells, numbers, words)
            for name, into in sums.items():
                self._targets[name].add(cells, numbers, words, into)
        return {"": whole.features(), **{name: self._targets[name].features(into) for name, into in sums.items()}}


class _Whole:
    """Features that depend on the output alone."""

    def __init__(self, columns: Sequence[ColumnFacts]) -> None:
        self._columns = columns
        self._rows, self._empty = 0, dict.fromkeys((column.name for column in columns), 0)
        self._distinct: dict[str, set[Any]] = {column.name: set() for column in columns}
        self._distinct_rows: set[int] = set()
        self._moments: dict[str, list[float]] = {}
        self._lengths: dict[str, list[float]] = {}
        self._other_columns: set[str] = set()

    def add(
        self,
        piece: Sequence[Row],
        cells: Mapping[str, list[Any]],
        numbers: Mapping[str, Floats],
        words: Mapping[str, list[str]],
    ) -> None:
        self._rows += len(piece)
        known = cells.keys()
        for row in piece:
            if row.keys() != known:
                self._other_columns.update(row.keys() ^ known)
        if len(self._distinct_rows) < _MAX_DISTINCT:
            self._distinct_rows.update(map(hash, zip(*words.values(), strict=True)))
        for column in self._columns:
            name, values = column.name, cells[column.name]
            self._empty[name] += _missing(values)
            if len(self._distinct[name]) < _MAX_DISTINCT:
                self._distinct[name].update(words[name])
            if column.kind == "number":
                self._add_numbers(name, numbers[name])
            elif column.kind == "text":
                self._add_texts(name, values)

    def _add_numbers(self, name: str, values: Floats) -> None:
        values = values[~np.isnan(values)]
        if not values.size:
            return
        kept = self._moments.setdefault(name, [math.inf, -math.inf, 0.0, 0.0, 0.0])
        kept[0], kept[1] = min(kept[0], float(values.min())), max(kept[1], float(values.max()))
        with np.errstate(over="ignore"):
            kept[2] += float(values.sum())
            kept[3] += float(np.square(values).sum())
        kept[4] += values.size

    def _add_texts(self, name: str, values: Sequence[Any]) -> None:
        kept = self._lengths.setdefault(name, [0.0, 0.0])
        lengths = [len(value) for value in values if isinstance(value, str)]
        kept[0] = max(kept[0], max(lengths, default=0))
        kept[1] += sum(lengths)

    def features(self) -> Features:
        results = {
            FAILED: 0.0,
            "rows": float(self._rows),
            "distinct rows": float(len(self._distinct_rows)),
            "empty cells": float(sum(self._empty.values())),
            "other columns": float(len(self._other_columns)),
        }
        for column in self._columns:
            name = column.name
            results[f"{name}: empty cells"] = float(self._empty[name])
            results[f"{name}: distinct values"] = float(len(self._distinct[name]))
            if name in self._moments:
                low, high, total, squares, count = self._moments[name]
                mean = total / count
                results[f"{name}: smallest"], results[f"{name}: largest"], results[f"{name}: mean"] = low, high, mean
                results[f"{name}: deviation"] = math.sqrt(max(squares / count - mean * mean, 0.0))
            if name in self._lengths:
                results[f"{name}: characters of the longest text"], results[f"{name}: characters"] = self._lengths[name]
        return {name: value for name, value in results.items() if math.isfinite(value)}


class _FeatureSums:
    """What is added up over the pieces of an output, for one target."""

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.most: dict[str, float] = {}
        self.triples: dict[str, set[tuple[str, ...]]] = {}

    def add(self, name: str, count: float) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + count

    def raise_to(self, name: str, value: float) -> None:
        self.most[name] = max(self.most.get(name, -math.inf), value)

    def features(self) -> Features:
        pairs = [count for name, count in self.counts.items() if name.startswith(_PAIR)]
        triples = {f"{column}: word triples of the target": float(len(seen)) for column, seen in self.triples.items()}
        together = {"pairs of the target's values": float(np.log1p(pairs).sum())} if pairs else {}
        return {**self.counts, **self.most, **triples, **together}


_PAIR: Final = "rows with the target's "
EQUAL: Final = "target's value"


class _Target:
    """Compares outputs with the record by which two data sets differ."""

    def __init__(self, columns: Sequence[ColumnFacts], pair: NeighboringData) -> None:
        self._columns = [column for column in columns if column.kind in ("number", "category")]
        self._target, self._novel = pair.target, set(pair.novel)
        self._values = {column.name: as_number(pair.target[column.name]) for column in self._columns}
        self._middles = {
            column.name: middle for column in self._columns if (middle := self._middle(column, pair)) is not None
        }
        self._words: dict[str, tuple[frozenset[str], frozenset[tuple[str, ...]]]] = {}
        for column in columns:
            if column.kind == "text":
                known = {word for row in pair.data for word in _words(row.get(column.name))}
                words = _words(pair.target[column.name])
                self._words[column.name] = frozenset(words) - known, frozenset(_triples(words))

    def _middle(self, column: ColumnFacts, pair: NeighboringData) -> tuple[float, bool] | None:
        """Half-way from the range of D to the target's value, and whether that is above; None if it is inside."""
        value = self._values[column.name]
        if column.kind != "number" or value is None:
            return None
        held = [number for row in pair.data if (number := as_number(row.get(column.name))) is not None]
        if not held or min(held) <= value <= max(held):
            return None
        edge = max(held) if value > max(held) else min(held)
        return (edge + value) / 2, value > edge

    def add(
        self,
        cells: Mapping[str, list[Any]],
        numbers: Mapping[str, Floats],
        words: Mapping[str, list[str]],
        into: _FeatureSums,
    ) -> None:
        count = len(next(iter(cells.values()), []))
        equal = {column.name: self._equal(column, cells, numbers, words) for column in self._columns}
        for name, mask in equal.items():
            into.add(f"{name}: {EQUAL}", float(mask.sum()))
        into.add("novel values of the target", float(sum(equal[name].sum() for name in self._novel if name in equal)))
        toward = 0.0
        for name, (middle, above) in self._middles.items():
            beyond = float((numbers[name] >= middle if above else numbers[name] <= middle).sum())
            into.add(f"{name}: {TOWARD}", beyond)
            toward += beyond
        into.add(TOWARD, toward)
        if count and equal:
            stacked = np.stack(list(equal.values()))
            into.raise_to("most cells of a row equal to the target's", float(stacked.sum(axis=0).max()))
            into.add("rows equal to the target", float(stacked.all(axis=0).sum()))
            into.raise_to("nearness of the nearest row", 1.0 - self._distance(equal, numbers))
            together = stacked.astype(np.float64) @ stacked.T
            for (index, item), (other, two) in combinations(enumerate(equal), 2):
                into.add(f"{_PAIR}{item} and {two}", float(together[index, other]))
        for name, (new, triples) in self._words.items():
            self._add_texts(name, cells[name], new, triples, into)

    def features(self, sums: _FeatureSums) -> Features:
        """All features of an output, from the sums over its pieces."""
        if not sums.counts:
            return {}
        alone = [f"{name}: {EQUAL}" for name in self._novel] + [f"{name}: {TOWARD}" for name in self._middles]
        return {**sums.features(), SHOWN: float(sum(sums.counts.get(name, 0.0) > 0 for name in alone))}

    def _equal(
        self,
        column: ColumnFacts,
        cells: Mapping[str, list[Any]],
        numbers: Mapping[str, Floats],
        words: Mapping[str, list[str]],
    ) -> Bools:
        """Which rows have the target's value in a column."""
        value = self._values[column.name]
        if column.kind == "number" and value is not None:
            with np.errstate(over="ignore"):
                return np.asarray(np.abs(numbers[column.name] - value) <= 0.5 * 10.0**-column.decimals)
        if is_missing(self._target[column.name]):
            return np.array([is_missing(cell) for cell in cells[column.name]], dtype=np.bool_)
        wanted = as_category(self._target[column.name])
        return np.array([word == wanted for word in words[column.name]], dtype=np.bool_)

    def _distance(self, equal: Mapping[str, Bools], numbers: Mapping[str, Floats]) -> float:
        """Gower's distance of the nearest row."""
        total: Floats = np.zeros(1)
        for column in self._columns:
            value, gap = self._values[column.name], 1.0 - equal[column.name]
            if column.kind == "number" and value is not None:
                width = max(column.width, abs(value - column.low), abs(value - column.high))
                with np.errstate(over="ignore", invalid="ignore"):
                    near = np.minimum(np.abs(numbers[column.name] - value) / width, 1.0)
                gap = np.where(np.isnan(near), 1.0, near)
            total = total + gap
        return float(total.min()) / len(self._columns)

    def _add_texts(
        self,
        name: str,
        values: Sequence[Any],
        new: frozenset[str],
        triples: frozenset[tuple[str, ...]],
        into: _FeatureSums,
    ) -> None:
        held = 0
        seen = into.triples.setdefault(name, set())
        for value in values:
            words = _words(value)
            held += not new.isdisjoint(words)
            seen.update(triples.intersection(_triples(words)))
        into.add(f"{name}: texts with a new word of the target", float(held))
        wanted = self._target[name]
        into.add(f"{name}: texts equal to the target's", float(sum(value == wanted for value in values)))


def _missing(values: Sequence[Any]) -> int:
    """How many cells are empty."""
    if {str, int, type(None)}.issuperset(map(type, values)):  # no NaN among them
        return values.count(None) + values.count("")
    return sum(map(is_missing, values))


def _numbers(values: Sequence[Any]) -> Floats:
    """The cells of a column as numbers; NaN for cells that hold no finite number. Truth values are words."""
    try:
        if bool in set(map(type, values)):
            raise TypeError
        result = np.array([float(value) for value in values])
    except (TypeError, ValueError, OverflowError):
        result = np.array([_number(value) for value in values])
    return np.where(np.isfinite(result), result, math.nan)


def _number(value: Any) -> float:
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _categories(values: Sequence[Any]) -> list[str]:
    """`as_category` of every value; equal values are converted once."""
    if bool in set(map(type, values)):  # True equals 1, but is another word
        return [as_category(value) for value in values]
    try:
        known = {value: as_category(value) for value in set(values)}
    except TypeError:  # lists and objects of JSON
        return [as_category(value) for value in values]
    return [known[value] for value in values]


def _words(value: Any) -> list[str]:
    return _WORD.findall(value.casefold()) if isinstance(value, str) else []


def _triples(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(words, words[1:], words[2:], strict=False)
