"""Numbers that describe a synthetic table or text, as somebody sees it who looks for one record in it.

Some depend on the output alone, such as the largest value of a column. Others compare it with the record by which two
neighbouring data sets differ: how many cells have its value, how near the nearest row is. Nothing here knows on which
of the two data sets the generator ran.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, Final, TypeAlias

import numpy as np

from dpassay.attacks.black_box.column_facts import ColumnFacts, Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData
from dpassay.attacks.black_box.output_events import EQUAL, EXCHANGED, NEARER, REACHED, SHARE, SHOWN, TOGETHER, TOWARD
from dpassay.attacks.black_box.probes import Mark
from dpassay.attacks.black_box.row_order import ORDERED, SuccessiveRows, TargetPlace
from dpassay.base.arrays import Bools, Floats
from dpassay.base.pieces import pieces
from dpassay.data.cells import as_category
from dpassay.data.columns import Form, Kind, meanings, word_of

Features: TypeAlias = dict[str, float]
"""Value by the name of a feature."""

FAILED: Final = "failed"
"""1 if the generator wrote no output. Whoever sees outputs sees that, too."""

PIECE = 20_000  # rows that are held at once
_MAX_DISTINCT = 200_000  # above it, distinct values are no longer counted
_AS_LONG = 1.25  # an output with up to so many times more or fewer rows than D holds counts like those of D
_WORD = re.compile(r"\w+")


def failed() -> Features:
    """The features of a run that wrote no output."""
    return {FAILED: 1.0}


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The cells of one column in a piece of an output.

    Attributes:
        raw: as they are.
        values: what each means: a number in a column of numbers, else a word; `_MISSING` if it is missing.
        numbers: NaN for cells that are none; empty in a column of words.
        missing: the number of missing ones.
    """

    raw: Sequence[Any]
    values: Sequence[Hashable]
    numbers: Floats
    missing: int


_MISSING: Final = None
_NO_NUMBERS: Final = np.empty(0)


class OutputFeatures:
    """Features of outputs, for one or several pairs of neighbouring data sets, and for ladders of planted values. Ids
    have none.

    Args:
        columns: of the data.
        pairs: neighbouring data sets, from the same data.
        planted: the marks of ladders, by name.
        later: gives a pair of another name when it is first asked for; None if there are no others.
        of_first_plans: whether features that plans of version 0.2 did not have are left out, so that what was recorded
            for such a plan goes on.
    """

    def __init__(
        self,
        columns: Sequence[ColumnFacts],
        pairs: Sequence[NeighboringData],
        planted: Mapping[str, Sequence[Mark]] | None = None,
        later: Callable[[str], NeighboringData] | None = None,
        *,
        of_first_plans: bool = False,
    ) -> None:
        self._left_out = ORDERED | {MORE, LESS} if of_first_plans else frozenset[str]()
        self._columns = tuple(column for column in columns if column.kind != "id")
        self._ids = frozenset(column.name for column in columns if column.kind == "id")
        texts = frozenset(column.name for column in columns if column.kind == "text")
        self._targets: dict[str, _Target | _Planted] = {
            name: _Planted(marks, texts) for name, marks in (planted or {}).items()
        }
        self._targets |= {pair.name: _Target(self._columns, pair) for pair in pairs}
        self._later = later

    def of(self, rows: Iterable[Row], pairs: Sequence[str]) -> dict[str, Features]:
        """The features of one output by the name of a pair, and under ``""`` those that depend on no pair. Rows are
        read once, in pieces; columns that are missing count as empty."""
        whole = _Whole(self._columns, self._ids)
        targets = {name: self._target(name) for name in pairs}
        sums = {name: _FeatureSums() for name in pairs}
        forms: dict[str, Form | None] = {}
        for piece in pieces(rows, PIECE):
            raw = {column.name: [row.get(column.name) for row in piece] for column in self._columns}
            if not forms:
                forms = {column.name: _form_in(column, raw[column.name]) for column in self._columns}
            cells = {column.name: _cells(column, raw[column.name], forms[column.name]) for column in self._columns}
            whole.add(piece, cells)
            for name, into in sums.items():
                targets[name].add(cells, into)
        found = {"": whole.features(), **{name: targets[name].features(into) for name, into in sums.items()}}
        if not self._left_out:
            return found
        return {
            pair: {name: value for name, value in of.items() if name not in self._left_out}
            for pair, of in found.items()
        }

    def _target(self, name: str) -> _Target | _Planted:
        if name not in self._targets and self._later is not None:
            self._targets[name] = _Target(self._columns, self._later(name))
        return self._targets[name]


class _Whole:
    """Features that depend on the output alone."""

    def __init__(self, columns: Sequence[ColumnFacts], ids: frozenset[str]) -> None:
        self._columns, self._ids = columns, ids
        self._rows, self._empty = 0, dict.fromkeys((column.name for column in columns), 0)
        self._distinct: dict[str, set[Hashable]] = {column.name: set() for column in columns}
        self._distinct_rows: set[int] = set()
        self._moments: dict[str, list[float]] = {}
        self._lengths: dict[str, list[float]] = {}
        self._other_columns: set[str] = set()
        self._order = SuccessiveRows()

    def add(self, piece: Sequence[Row], cells: Mapping[str, _Cells]) -> None:
        self._rows += len(piece)
        known = cells.keys()
        for row in piece:
            if row.keys() != known:
                self._other_columns.update((row.keys() ^ known) - self._ids)
        if len(self._distinct_rows) < _MAX_DISTINCT:
            self._distinct_rows.update(map(hash, zip(*(of.values for of in cells.values()), strict=True)))
        for column in self._columns:
            name, of = column.name, cells[column.name]
            self._empty[name] += of.missing
            self._order.add(name, of.values, of.numbers)
            if len(self._distinct[name]) < _MAX_DISTINCT:
                self._distinct[name].update(of.values)
            if column.kind == "number":
                self._add_numbers(name, of.numbers)
            elif column.kind == "text":
                self._add_texts(name, of.raw)

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
        lengths = _lengths(values)
        kept[0] = max(kept[0], float(lengths.max(initial=0.0)))
        kept[1] += float(lengths.sum())

    def features(self) -> Features:
        results = {
            FAILED: 0.0,
            "rows": float(self._rows),
            "distinct rows": float(len(self._distinct_rows)),
            "empty cells": float(sum(self._empty.values())),
            "other columns": float(len(self._other_columns)),
            **self._order.features(),
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
        self.reached: dict[str, bool] = {}
        self.place = TargetPlace()
        self.occurred: dict[str, set[tuple[int, ...]]] = {}
        self.shares: dict[str, list[float]] = {}
        self.replaced: _FeatureSums | None = None
        self.rows = 0

    def add(self, name: str, count: float) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + count

    def add_to_share(self, name: str, some: float, every: float) -> None:
        share = self.shares.setdefault(name, [0.0, 0.0])
        share[0], share[1] = share[0] + some, share[1] + every

    def raise_to(self, name: str, value: float) -> None:
        self.most[name] = max(self.most.get(name, -math.inf), value)

    def features(self) -> Features:
        pairs = [count for name, count in self.counts.items() if name.startswith(PAIR)]
        triples = {f"{column}: word triples of the target": float(len(seen)) for column, seen in self.triples.items()}
        together = {"pairs of the target's values": float(np.log1p(pairs).sum())} if pairs else {}
        occurred = {name: float(len(sets)) for name, sets in self.occurred.items()}
        shares = {name: some / every for name, (some, every) in self.shares.items() if every}
        return {**self.counts, **self.most, **triples, **together, **occurred, **shares, **self.place.features()}


PAIR: Final = "rows with the target's "
MORE: Final = "most cells with the target's value of a column beyond those of D"
LESS: Final = "most cells with the target's value of a column short of those of D"


class _Planted:
    """Counts what an output shows of each level of a ladder, by the level.

    Args:
        marks: of the ladder.
        texts: the columns of prose, in which a word is looked for, and not a cell, and long texts, not numbers.
    """

    def __init__(self, marks: Sequence[Mark], texts: frozenset[str]) -> None:
        self._texts = texts
        self._levels = sorted({mark.level for mark in marks})
        self._words: dict[str, dict[str, int]] = {}
        self._numbers: dict[str, list[tuple[float, float, int]]] = {}
        for mark in marks:
            if isinstance(mark.value, str):
                self._words.setdefault(mark.column, {})[word_of(mark.value)] = mark.level
            else:
                until = math.inf if mark.until is None else mark.until
                self._numbers.setdefault(mark.column, []).append((mark.value, until, mark.level))

    def add(self, cells: Mapping[str, _Cells], into: _FeatureSums) -> None:
        for level in self._levels:
            into.add(str(level), 0.0)
        for name, known in self._words.items():
            for cell, count in Counter(map(str, cells[name].values)).items():
                for word in set(_words(cell)) & known.keys() if name in self._texts else {cell} & known.keys():
                    into.add(str(known[word]), float(count))
        for name, ends in self._numbers.items():
            numbers = _lengths(cells[name].raw) if name in self._texts else cells[name].numbers
            for number, until, level in ends:
                into.add(str(level), float(((number <= numbers) & (numbers <= until)).sum()))

    def features(self, sums: _FeatureSums) -> Features:
        """How many rows show each level."""
        return dict(sums.counts)


class _Target:
    """Compares outputs with the record by which two data sets differ."""

    def __init__(self, columns: Sequence[ColumnFacts], pair: NeighboringData) -> None:
        self._columns = [column for column in columns if column.kind in ("number", "category")]
        self._target, self._novel, self._records = pair.target, set(pair.novel), len(pair.data)
        self._reaches = any(event.feature == REACHED for event in pair.events)  # plans of version 0.2 do not know it
        self._values = {column.name: column.value(pair.target[column.name]) for column in self._columns}
        self._held = dict.fromkeys(self._values, 0.0)
        for piece in pieces(pair.data, PIECE):
            for column in self._columns:
                self._held[column.name] += self._count(column, piece)
        self._together = self._combinations(pair)
        expected = {event.feature for event in pair.events}
        self._shared = [column.name for column in self._columns if f"{column.name}: {SHARE}" in expected]
        self._nearer = {
            column.name: edge
            for column in self._columns
            if f"{column.name}: {NEARER}" in expected and (edge := self._edge(column, pair)) is not None
        }
        others = _Others(columns, pair)
        self._middles = {
            column.name: middle for column in self._columns if (middle := self._middle(column, others)) is not None
        }
        self._replaced = self._replaced_by(columns, pair) if EXCHANGED in expected else None
        self._halfway = self._between(pair) if EXCHANGED in expected else {}
        self._words: dict[str, tuple[frozenset[str], frozenset[tuple[str, ...]]]] = {}
        for name, known in others.words.items():
            words = _words(pair.target[name])
            self._words[name] = frozenset(words) - known, frozenset(_triples(words))

    def _replaced_by(self, columns: Sequence[ColumnFacts], pair: NeighboringData) -> _Target:
        """The record that the target replaces, as if it were the target."""
        other = dataclasses.replace(
            pair, data=pair.neighbor, neighbor=pair.data, target=pair.data[-1], novel=(), events=()
        )
        result = _Target(columns, other)
        result._halfway = result._between(other)
        return result

    def _between(self, pair: NeighboringData) -> dict[str, float]:
        """By the name of a column of categories, half-way from how many records of D have the target's to how many of
        D′ have it, where these differ."""
        results = {}
        for column in self._columns:
            held = self._count(column, pair.neighbor)
            if column.name not in self._middles and column.kind == "category" and held > self._held[column.name]:
                results[column.name] = (held + self._held[column.name]) / 2
        return results

    def _combinations(self, pair: NeighboringData) -> dict[str, list[tuple[int, ...]]]:
        """By the name of an expected feature, the columns of each combination that it looks for: of those in which some
        record of D has another value than the target."""
        differ = [index for index, column in enumerate(self._columns) if self._held[column.name] < len(pair.data)]
        expected = {event.feature for event in pair.events}
        return {name: list(combinations(differ, size)) for size, name in TOGETHER.items() if name in expected}

    def _count(self, column: ColumnFacts, rows: Sequence[Row]) -> float:
        """How many of some records have the target's value in a column."""
        form = None if column.column is None else column.column.form
        return float(self._equal(column, _cells(column, [row.get(column.name) for row in rows], form)).sum())

    def _middle(self, column: ColumnFacts, others: _Others) -> tuple[float, bool] | None:
        """Half-way from the range of D to the target's value, and whether that is above; None if it is inside."""
        value = self._values[column.name]
        if column.kind != "number" or not isinstance(value, float):
            return None
        low, high = others.ranges[column.name]
        if low > high or low <= value <= high:
            return None
        edge = high if value > high else low
        return (edge + value) / 2, value > edge

    def _edge(self, column: ColumnFacts, pair: NeighboringData) -> tuple[float, bool] | None:
        """Half-way from the middle of the two numbers of D to the target's, and whether that is above; None if D has
        no other number than the target's."""
        value = self._values[column.name]
        held = {column.value(row.get(column.name)) for row in pair.data}
        others = [number for number in held if isinstance(number, float) and number != value]
        if not others or not isinstance(value, float):
            return None
        return others[0] / 4 + 3 * (value / 4), value > others[0]

    def add(self, cells: Mapping[str, _Cells], into: _FeatureSums) -> None:
        count = len(next(iter(cells.values())).raw) if cells else 0
        into.rows += count
        equal = {column.name: self._equal(column, cells[column.name]) for column in self._columns}
        for name, mask in equal.items():
            into.add(f"{name}: {EQUAL}", float(mask.sum()))
        for name in self._shared:
            into.add_to_share(f"{name}: {SHARE}", float(equal[name].sum()), float(count))
        for name, (edge, above) in self._nearer.items():
            numbers = cells[name].numbers
            near = numbers >= edge if above else numbers <= edge
            into.add_to_share(f"{name}: {NEARER}", float(near.sum()), float((~np.isnan(numbers)).sum()))
        into.add("novel values of the target", float(sum(equal[name].sum() for name in self._novel if name in equal)))
        toward = 0.0
        for name, (middle, above) in self._middles.items():
            numbers = cells[name].numbers
            beyond = float((numbers >= middle if above else numbers <= middle).sum())
            into.add(f"{name}: {TOWARD}", beyond)
            toward += beyond
            value = self._values[name]
            assert isinstance(value, float)
            into.reached[name] = into.reached.get(name, False) or bool(
                (numbers >= value).any() if above else (numbers <= value).any()
            )
        into.add(TOWARD, toward)
        if count and equal:
            stacked = np.stack(list(equal.values()))
            like = stacked.sum(axis=0)
            into.place.add(like.tolist())
            into.raise_to("most cells of a row equal to the target's", float(like.max()))
            into.add("rows equal to the target", float(stacked.all(axis=0).sum()))
            into.raise_to("nearness of the nearest row", 1.0 - self._distance(equal, cells))
            together = stacked.astype(np.float64) @ stacked.T
            for (index, item), (other, two) in combinations(enumerate(equal), 2):
                into.add(f"{PAIR}{item} and {two}", float(together[index, other]))
            for name, sets in self._together.items():
                into.occurred.setdefault(name, set()).update(
                    columns for columns in sets if stacked[list(columns)].all(axis=0).any()
                )
        for name, (new, triples) in self._words.items():
            self._add_texts(name, cells[name].raw, new, triples, into)
        if self._replaced is not None:
            into.replaced = into.replaced or _FeatureSums()
            self._replaced._add_signs(cells, into.replaced)

    def features(self, sums: _FeatureSums) -> Features:
        """All features of an output, from the sums over its pieces."""
        if not sums.counts:
            return {}
        alone = {name: f"{name}: {EQUAL}" for name in self._novel}
        alone |= {name: f"{name}: {TOWARD}" for name in self._middles}
        shown = float(sum(sums.counts.get(name, 0.0) > 0 for name in alone.values()))
        equal = sum(sums.counts.get(f"{name}: {EQUAL}", 0.0) > 0 for name in self._novel if name not in self._middles)
        reached = {REACHED: float(equal + sum(sums.reached.values()))} if self._reaches else {}
        if self._replaced is not None and sums.replaced is not None:
            missed = len(self._replaced._signs) - self._replaced._there(sums.replaced)
            reached[EXCHANGED] = float(self._there(sums) + missed)
        beyond = [sums.counts.get(f"{name}: {EQUAL}", 0.0) - count for name, count in self._held.items()]
        apart = {MORE: max(beyond), LESS: -min(beyond)} if beyond else {}
        return {**sums.features(), SHOWN: shown, **reached, **apart}

    def _add_signs(self, cells: Mapping[str, _Cells], into: _FeatureSums) -> None:
        """Adds only what `_there` needs."""
        into.rows += len(next(iter(cells.values())).raw) if cells else 0
        for column in self._columns:
            of = cells[column.name]
            if column.name in self._halfway:
                into.add(f"{column.name}: {EQUAL}", float(self._equal(column, of).sum()))
            if column.name in self._middles:
                middle, above = self._middles[column.name]
                beyond = of.numbers >= middle if above else of.numbers <= middle
                into.add(f"{column.name}: {TOWARD}", float(beyond.sum()))

    @property
    def _signs(self) -> set[str]:
        """The columns in which an output can show the target in `_there`."""
        return self._middles.keys() | self._halfway.keys()

    def _there(self, sums: _FeatureSums) -> int:
        """In how many columns an output has a number toward the target's, or its category more often than half-way from
        D to D′. Where outputs have far more or fewer rows than D, shares of the rows are compared."""
        times = sums.rows / self._records
        times = 1.0 if 1 / _AS_LONG <= times <= _AS_LONG else times
        often = sum(sums.counts[f"{name}: {EQUAL}"] > half * times for name, half in self._halfway.items())
        return often + sum(sums.counts[f"{name}: {TOWARD}"] > 0 for name in self._middles)

    def _equal(self, column: ColumnFacts, cells: _Cells) -> Bools:
        """Which rows have the target's value in a column."""
        value = self._values[column.name]
        if isinstance(value, float) and column.kind == "number":
            with np.errstate(over="ignore"):
                return np.asarray(np.abs(cells.numbers - value) <= 0.5 * 10.0**-column.decimals)
        if value is None and not column.is_missing(self._target[column.name]):
            value = word_of(self._target[column.name])  # among numbers
        return np.array([item == value for item in cells.values], dtype=np.bool_)

    def _distance(self, equal: Mapping[str, Bools], cells: Mapping[str, _Cells]) -> float:
        """Gower's distance of the nearest row."""
        total: Floats = np.zeros(1)
        for column in self._columns:
            value, gap = self._values[column.name], 1.0 - equal[column.name]
            if column.kind == "number" and isinstance(value, float):
                width = max(column.width, abs(value - column.low), abs(value - column.high))
                with np.errstate(over="ignore", invalid="ignore"):
                    near = np.minimum(np.abs(cells[column.name].numbers - value) / width, 1.0)
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


class _Others:
    """What the records of D hold, but for planted copies of the target, which are read once: the smallest and the
    largest number of each column of numbers, and the words of each column of prose."""

    def __init__(self, columns: Sequence[ColumnFacts], pair: NeighboringData) -> None:
        numbers = [column for column in columns if column.kind == "number"]
        self.ranges = {column.name: (math.inf, -math.inf) for column in numbers}
        self.words: dict[str, set[str]] = {column.name: set() for column in columns if column.kind == "text"}
        for row in islice(pair.data, len(pair.data) - pair.planted):
            for column in numbers:
                number = column.value(row.get(column.name))
                if isinstance(number, float):
                    low, high = self.ranges[column.name]
                    self.ranges[column.name] = min(low, number), max(high, number)
            for name, words in self.words.items():
                words.update(_words(row.get(name)))


def _form_in(column: ColumnFacts, cells: Sequence[Any]) -> Form | None:
    """The form in which an output writes numbers or dates: that of the data, unless another one fits more cells."""
    form = None if column.column is None else column.column.form
    if form is None:
        return None
    counts = Counter(item for cell in _different(cells) for item in meanings(cell)[0] if _alike(item, form, column))
    best = max(counts, key=lambda item: counts[item], default=form)
    return best if counts[best] > counts[form] else form


def _alike(form: Form, other: Form, column: ColumnFacts) -> bool:
    """Whether two forms are of numbers, or both of days; true and false are numbers where these are 0 and 1."""
    if form is Form.TRUTH and not column.is_truth:
        return False
    return (form.kind is Kind.NUMBER) is (other.kind is Kind.NUMBER)


def _different(cells: Sequence[Any]) -> list[Any]:
    """The different cells; true is another one than 1. Lists and objects of JSON are left out."""
    return [_plain(cell) for _, cell in {(type(cell), cell) for cell in cells if cell.__hash__ is not None}]


def _plain(cell: Any) -> Any:
    """A cell in a type of Python."""
    return cell.item() if isinstance(cell, np.generic) else cell


def _cells(column: ColumnFacts, raw: Sequence[Any], form: Form | None) -> _Cells:
    """What cells of a column mean, if numbers are written in this form."""
    known: dict[tuple[type, Any], Hashable] = {}
    values: list[Hashable] = []
    for cell in raw:
        if cell.__hash__ is None:
            values.append(as_category(cell))
            continue
        key = type(cell), cell
        if key not in known:
            known[key] = _value(column, _plain(cell), form)
        values.append(known[key])
    numbers = _NO_NUMBERS
    if form is not None:
        numbers = np.array([value if isinstance(value, float) else math.nan for value in values])
    return _Cells(raw, values, numbers, values.count(_MISSING))


def _value(column: ColumnFacts, cell: Any, form: Form | None) -> Hashable:
    if column.is_missing(cell):
        return _MISSING
    if form is not None:
        forms, numbers = meanings(cell)
        for item in (form, Form.POINT, Form.TRUTH) if column.is_truth else (form,):
            if item in forms:
                return numbers[forms.index(item)]
    return word_of(cell)


def _lengths(values: Sequence[Any]) -> Floats:
    """The numbers of characters of texts."""
    return np.array([float(len(value)) for value in values if isinstance(value, str)])


def _words(value: Any) -> list[str]:
    return _WORD.findall(value.casefold()) if isinstance(value, str) else []


def _triples(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(words, words[1:], words[2:], strict=False)
