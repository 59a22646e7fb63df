"""Neighbouring data sets on which faulty generators of tables and texts differ most.

Each strategy makes one pair (D, D′) from a sample of the data, and aims at one kind of fault: a range or a set of
categories that is taken from the data, a statistic that is released without noise, and so on. A lower bound on ε holds
whatever the pair is, so strategies may be as artful as they like; they only decide what is found.

Where a public schema is given, every value stays inside its domain, so that no generator is blamed for values that it
was promised never to see.
"""

from __future__ import annotations

import dataclasses
import datetime
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.base import validate
from dpassay.data.cells import as_category, as_day, as_number, decimals, is_missing
from dpassay.data.column_names import no_column
from dpassay.data.table_schema import AnyColumn, CategoryColumn, DateColumn, NumberColumn, Schema

Row: TypeAlias = Mapping[str, Any]

FAR = 10.0
"""How far beyond the range of the data an extreme value lies, in widths of the range."""
NEAR = 1.0
"""The same for an outlier, which public limits may well admit."""
LONG = 10
"""How many times as long as the longest text an extreme text is."""

SHOWN: Final = "columns that show the target"
"""Name of a feature: in how many columns the output has the target's value, or a number that points to it, where no
other record has one."""

TOWARD: Final = "values toward the target's"
"""Name of a feature, of all columns or of one: how many numbers lie beyond the middle between those of D and the
target's."""

_MAX_CATEGORIES = 200  # a column with more distinct words holds names or prose
_WORDS_OF_PROSE = 3  # a column whose texts have more words on average holds prose
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What strategies know of a column.

    Attributes:
        name: of the column.
        kind: ``number``, ``category``, ``text`` for prose, or ``other`` for names, ids, and cells that are neither
            numbers, words, truth values nor dates; columns of that kind are left alone.
        low, high: the smallest and largest number of the sample.
        decimals: of its numbers.
        counts: how often each word (`as_category`) occurs in the sample.
        cells: a cell of the sample for each word.
        quoted: whether numbers are written as strings, as in CSV.
        domain: of numbers, the public range; of categories, public words. None without a schema.
        most: the largest number that the file can hold.
        may_be_missing: whether cells may be empty.
    """

    name: str
    kind: Literal["number", "category", "text", "other"]
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    cells: Mapping[str, Any] = field(default_factory=dict)
    quoted: bool = False
    domain: tuple[Any, ...] | None = None
    most: float = sys.float_info.max
    may_be_missing: bool = True

    @property
    def width(self) -> float:
        """high − low, or 1 if all numbers are equal."""
        return min(self.high - self.low, sys.float_info.max) or max(1.0, abs(self.high))

    def extreme(self, far: float) -> float:
        """A number so many widths beyond the others, or the end of the public range that is farther from them."""
        if self.domain is None:
            return min(self.high + far * self.width, self.most)
        low, high = self.domain
        return float(high if high - self.high >= self.low - low else low)

    def written(self, number: float) -> str | float | int:
        """A number as the file writes it."""
        value = round(number, self.decimals)
        if self.quoted:
            return f"{value:.{self.decimals}f}"
        return value if self.decimals else int(value)

    def new_words(self, rng: np.random.Generator) -> Iterator[str]:
        """Words that no record of the sample has, inside the public domain."""
        if self.domain is not None:
            every: Iterable[str] = self.domain
        elif all(isinstance(cell, bool) for cell in self.cells.values()):
            every = ("True", "False")
        elif all(as_day(word) is not None for word in self.counts):
            last = int(max(as_day(word) or 0.0 for word in self.counts))
            every = (str(datetime.date.fromordinal(min(last + 1, datetime.date.max.toordinal()))),)
        elif all(as_number(word) is not None for word in self.counts):
            every = (str(int(max(as_number(word) or 0.0 for word in self.counts)) + 1),)
        else:
            every = (_word(rng) for _ in range(100))
        return (word for word in every if word not in self.counts)

    def cell(self, word: str) -> Any:
        """A word in the type of the column's cells; None if it has none."""
        kinds = {type(cell) for cell in self.cells.values()} or {str}
        for kind in kinds:
            try:
                return _CELLS[kind](word)
            except (KeyError, ValueError, OverflowError):
                continue
        return None


@dataclass(frozen=True, slots=True)
class Event:
    """That one feature of an output (`dpassay.attacks.black_box.output_features`) is at least a threshold."""

    feature: str
    threshold: float


@dataclass(frozen=True, slots=True, eq=False)
class NeighboringData:
    """Two neighbouring data sets, and where they differ.

    Attributes:
        name: of the strategy.
        finds: the faults that it aims at, in words.
        data: D.
        neighbor: D′.
        target: the record that D′ has and D has not.
        novel: the columns in which no record of D has the target's value, but for copies of the target.
        events: events that the faults make likely on D′ and not on D, best first.
    """

    name: str
    finds: str
    data: tuple[Row, ...]
    neighbor: tuple[Row, ...]
    target: Row
    novel: tuple[str, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The records that neighbours are made from.

    Attributes:
        rows: a sample of the data, or made-up records.
        columns: what is known of each column.
        adjacency: add_remove, where D′ has more records, or replace_one, where the last ones that differ from the
            target are exchanged for it.
        copies: number of records in a unit: how many copies of the target D′ has.
        label: the column of classes; None for the category column with the fewest values.
    """

    rows: tuple[Row, ...]
    columns: tuple[ColumnFacts, ...]
    adjacency: Adjacency
    copies: int = 1
    label: str | None = None

    def __post_init__(self) -> None:
        if self.adjacency not in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
            raise ValueError(f"neighbours are made for add_remove and replace_one, not for {self.adjacency}")
        validate.integer(minimum=1, copies=self.copies)
        if len(self.rows) < self.copies + 4:
            raise ValueError(f"{len(self.rows)} records are too few to make neighbours from; give {self.copies + 4}")
        if self.label is not None and self.label not in [column.name for column in self.of_kind("category")]:
            raise ValueError(f"the column of classes, {self.label!r}, is no column of categories; name it as one")

    def of_kind(self, kind: str) -> list[ColumnFacts]:
        """The columns of a kind."""
        return [column for column in self.columns if column.kind == kind]

    @property
    def classes(self) -> ColumnFacts | None:
        """The column of classes."""
        categories = self.of_kind("category")
        if self.label is not None:
            return next(column for column in categories if column.name == self.label)
        several = [column for column in categories if len(column.counts) > 1]
        return min(several, key=lambda column: len(column.counts), default=None)

    def rarity(self, row: Row) -> float:
        """The sum of −log of the frequencies of a row's categories."""
        held = [column.counts.get(as_category(row[column.name]), 0) for column in self.of_kind("category")]
        return -sum(math.log((count + 0.5) / (len(self.rows) + 1)) for count in held)

    @property
    def usual(self) -> Row:
        """The row with the most frequent categories."""
        return min(self.rows, key=self.rarity)

    @property
    def unusual(self) -> Row:
        """The row with the rarest categories."""
        return max(self.rows, key=self.rarity)


def describe_columns(
    rows: Sequence[Row],
    *,
    schema: Schema | None = None,
    categorical: Sequence[str] = (),
    texts: Sequence[str] = (),
    most: Mapping[str, float] | None = None,
) -> tuple[ColumnFacts, ...]:
    """What is known of each column of a sample.

    Args:
        rows: of the sample.
        schema: the public domains; None to read types off the sample.
        categorical: columns of numbers that are categories.
        texts: columns of prose.
        most: the largest number that the file can hold in a column, where that is less than the largest float.

    Raises:
        ValueError: if the rows have different columns, a named column is missing, or a column of prose has a domain.
    """
    if not rows:
        raise ValueError("there are no records to make neighbours from")
    names = list(rows[0])
    if any(list(row) != names for row in rows):
        raise ValueError("the records have different columns; give each record all columns, in one order")
    for name in (*categorical, *texts, *(schema.names if schema else ())):
        if name not in names:
            raise ValueError(no_column(name, names))
    public = {} if schema is None else {column.name: column for column in schema.columns}
    return tuple(
        _facts(
            name,
            [row[name] for row in rows],
            public.get(name),
            name in categorical,
            name in texts,
            (most or {}).get(name, sys.float_info.max),
        )
        for name in names
    )


def _facts(
    name: str, values: Sequence[Any], public: AnyColumn | None, categorical: bool, text: bool, most: float
) -> ColumnFacts:
    present = [value for value in values if not is_missing(value)]
    known = all(isinstance(value, str | int | float | datetime.date) for value in present)
    missing = public.missing if public is not None else True
    if public is not None and text:
        raise ValueError(f"column {name!r} has a public domain in the schema, so it is no column of prose")
    numbers = [as_number(value) for value in present]
    numeric = bool(present) and all(number is not None for number in numbers) and len(set(numbers)) > 2
    if not (categorical or text) and (isinstance(public, NumberColumn) or (public is None and numeric)):
        result = [number for number in numbers if number is not None] or [0.0]
        domain = None if public is None else tuple(float(word) for word in public.longest)
        digits = max((decimals(number) for number in result), default=0) if public is None else public.decimals
        quoted = any(isinstance(value, str) for value in present)
        low, high = min(result), max(result)
        return ColumnFacts(
            name, "number", low, high, digits, quoted=quoted, domain=domain, most=most, may_be_missing=missing
        )
    if not known or (public is None and not present and not text):
        return ColumnFacts(name, "other", may_be_missing=missing)
    words = [as_category(value) for value in present]
    counts = Counter(words)
    cells = dict(zip(reversed(words), reversed(present), strict=True))
    if text or (
        public is None and not categorical and words and np.mean([len(w.split()) for w in words]) > _WORDS_OF_PROSE
    ):
        return ColumnFacts(name, "text", counts=counts, cells=cells, may_be_missing=missing)
    if public is None and not categorical and (len(counts) > _MAX_CATEGORIES or 2 * len(counts) > len(present)):
        return ColumnFacts(name, "other", may_be_missing=missing)
    allowed = None if public is None else public.values if isinstance(public, CategoryColumn) else _ends(public)
    return ColumnFacts(name, "category", counts=counts, cells=cells, domain=allowed, may_be_missing=missing)


Strategy: TypeAlias = Callable[[Sample, np.random.Generator], NeighboringData | None]


def neighboring_data(
    sample: Sample, rng: np.random.Generator, strategies: Sequence[str] | None = None
) -> tuple[NeighboringData, ...]:
    """The pairs of all strategies, or of those named, that apply to the data, in the order of `STRATEGIES`; `rng` is of
    public choices, such as made-up words.

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
        raise ValueError(f"none of the strategies {', '.join(strategies or STRATEGIES)} applies to these columns")
    return tuple(results)


def data_sets_of(pairs: Sequence[NeighboringData]) -> tuple[list[tuple[Row, ...]], list[tuple[int, int]]]:
    """The different data sets of some pairs, and for each pair the indices of its D and D′ among them."""
    data_sets: list[tuple[Row, ...]] = []

    def index(rows: tuple[Row, ...]) -> int:
        for position, known in enumerate(data_sets):
            if known is rows or known == rows:
                return position
        data_sets.append(rows)
        return len(data_sets) - 1

    return data_sets, [(index(pair.data), index(pair.neighbor)) for pair in pairs]


def _ordinary(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    return _pair(sample, "ordinary", sample.rows, sample.usual, ())


def _extreme_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.unusual)
    outside = _make_extreme(sample, target, FAR)
    if not outside:
        return None
    events = (Event(f"{name}{TOWARD}", 1.0) for name in ("", *(f"{name}: " for name in outside)))
    return _pair(sample, "extreme_value", sample.rows, target, tuple(events))


def _make_extreme(sample: Sample, target: dict[str, Any], far: float) -> list[str]:
    """Gives a record extreme numbers; the columns in which they are outside the range of the sample."""
    outside = []
    for column in sample.of_kind("number"):
        extreme = column.extreme(far)
        target[column.name] = column.written(extreme)
        if not column.low <= extreme <= column.high:
            outside.append(column.name)
    return outside


def _outlier(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record with the rarest category, D′ has one, whose numbers are beyond all others."""
    rarest = _rarest(sample)
    if rarest is None:
        return None
    rest, target = _split(sample, rarest)
    columns = 1 + len(_make_extreme(sample, target, NEAR))
    if columns < 2 or len(rest) <= sample.copies + 2:
        return None
    return _pair(sample, "outlier", rest, target, (Event(SHOWN, float(columns)),))


def _new_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    _make_new(sample, target, rng)
    return _of_novel(sample, "new_category", sample.rows, target)


def _repeated_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """One record of D has categories that no other has, and D′ has that record twice."""
    target = dict(sample.usual)
    _make_new(sample, target, rng)
    once = _of_novel(sample, "repeated_category", sample.rows, target)
    if once is None:
        return None
    twice = _pair(sample, "repeated_category", (*sample.rows, dict(target)), target, once.events)
    return None if twice is None else dataclasses.replace(twice, novel=once.novel)


def _make_new(sample: Sample, target: dict[str, Any], rng: np.random.Generator) -> None:
    """Gives a record new categories."""
    for column in sample.of_kind("category"):
        fitting = (cell for word in column.new_words(rng) if (cell := column.cell(word)) is not None)
        target[column.name] = next(fitting, target[column.name])


def _rare_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record with the rarest category, D′ has one."""
    rarest = _rarest(sample)
    return None if rarest is None else _without(sample, "rare_category", rarest)


def _rarest(sample: Sample) -> tuple[str, str] | None:
    """The column and the word of the rarest category."""
    every = [
        (count, column.name, word)
        for column in sample.of_kind("category")
        if len(column.counts) > 2
        for word, count in column.counts.items()
    ]
    return min(every, key=lambda item: item[0])[1:] if every else None


def _empty_class(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record of the rarest class, D′ has one."""
    column = sample.classes
    if column is None or len(column.counts) < 2:
        return None
    return _without(sample, "empty_class", (column.name, min(column.counts, key=column.counts.__getitem__)))


def _without(sample: Sample, name: str, rarest: tuple[str, str]) -> NeighboringData | None:
    rest, target = _split(sample, rarest)
    return _of_novel(sample, name, rest, target) if len(rest) > sample.copies + 2 else None


def _split(sample: Sample, rarest: tuple[str, str]) -> tuple[tuple[Row, ...], dict[str, Any]]:
    """The records without a category, and the first that has it."""
    column, word = rarest
    rest = tuple(row for row in sample.rows if as_category(row[column]) != word)
    return rest, dict(next(row for row in sample.rows if as_category(row[column]) == word))


def _new_combination(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two frequent categories that occur together in no record."""
    best: tuple[int, ColumnFacts, str, ColumnFacts, str] | None = None
    columns = [column for column in sample.of_kind("category") if len(column.counts) > 1]
    for index, first in enumerate(columns):
        for second in columns[index + 1 :]:
            seen = {(as_category(row[first.name]), as_category(row[second.name])) for row in sample.rows}
            for a, many in first.counts.items():
                for b, more in second.counts.items():
                    if (a, b) not in seen and (best is None or min(many, more) > best[0]):
                        best = min(many, more), first, a, second, b
    if best is None:
        return None
    _, first, a, second, b = best
    target = {**sample.usual, first.name: first.cells[a], second.name: second.cells[b]}
    event = Event(f"rows with the target's {first.name} and {second.name}", 1.0)
    return _pair(sample, "new_combination", sample.rows, target, (event,))


def _missing_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """A record with empty cells, where no other record has any."""
    complete = tuple(row for row in sample.rows if not any(is_missing(value) for value in row.values()))
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
        target[column.name] = "" if column.quoted or isinstance(target[column.name], str) else None
    return _pair(sample, "missing_value", complete, target, (Event("empty cells", 1.0),))


def _duplicates(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """All records of D are equal, and one record of D′ is another one."""
    same, other = sample.usual, sample.unusual
    if _equal(same, other):
        other = next((row for row in sample.rows if not _equal(row, same)), same)
    return _of_novel(sample, "duplicates", (same,) * len(sample.rows), other)


def _cluster_edge(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two groups that are far apart, and a record half-way between them."""
    numbers = [column for column in sample.of_kind("number") if column.high > column.low]
    if not numbers:
        return None
    first = max(numbers, key=lambda column: len({as_number(row[column.name]) for row in sample.rows}))

    def value(row: Row) -> float:
        return as_number(row[first.name]) or 0.0

    ordered = sorted((row for row in sample.rows if as_number(row[first.name]) is not None), key=value)
    quarter = len(ordered) // 4
    groups = (*ordered[:quarter], *ordered[len(ordered) - quarter :])
    if quarter < 2 or value(ordered[quarter - 1]) >= value(ordered[-quarter]):
        return None
    target = dict(ordered[len(ordered) // 2])
    for column in numbers:
        target[column.name] = column.written(column.low / 2 + column.high / 2)
    return _pair(sample, "cluster_edge", groups * (1 + (len(sample.rows) - 1) // len(groups)), target, ())


def _longest_text(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    events = []
    for column in sample.of_kind("text"):
        longest = max(column.counts, key=len, default="text")
        target[column.name] = " ".join([longest] * LONG)
        events.append(Event(f"{column.name}: characters of the longest text", 2.0 * len(longest)))
    return _pair(sample, "longest_text", sample.rows, target, tuple(events)) if events else None


def _new_token(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    columns = sample.of_kind("text")
    for column in columns:
        word = _word(rng)
        usual = target[column.name]
        target[column.name] = " ".join([word] * 3 + [str(usual)] * (not is_missing(usual)) + [word] * 3)
    events = tuple(Event(f"{column.name}: texts with a new word of the target", 1.0) for column in columns)
    return _pair(sample, "new_token", sample.rows, target, events) if columns else None


def _of_novel(sample: Sample, name: str, rows: tuple[Row, ...], target: Row) -> NeighboringData | None:
    """A pair whose target has values that no record of D has; None if it has none."""
    pair = _pair(sample, name, rows, target, (Event("novel values of the target", 1.0),))
    return pair if pair is not None and pair.novel else None


def _pair(
    sample: Sample, name: str, rows: tuple[Row, ...], target: Row, events: tuple[Event, ...]
) -> NeighboringData | None:
    """The pair whose D is `rows`; None if D has too few records that differ from the target."""
    kept = rows
    if sample.adjacency is Adjacency.REPLACE_ONE:
        others = [index for index, row in enumerate(rows) if not _equal(row, target)][-sample.copies :]
        if len(others) < sample.copies:
            return None
        kept = tuple(row for index, row in enumerate(rows) if index not in others)
    novel = tuple(
        column.name
        for column in sample.of_kind("category")
        if not any(_same(row[column.name], target[column.name]) for row in rows)
    )
    return NeighboringData(name, FINDS[name], rows, (*kept, *(dict(target),) * sample.copies), target, novel, events)


def _equal(row: Row, other: Row) -> bool:
    return all(_same(value, other[name]) for name, value in row.items())


def _same(value: Any, other: Any) -> bool:
    """Whether two cells hold the same, whatever their types."""
    if is_missing(value) or is_missing(other):
        return is_missing(value) and is_missing(other)
    return as_category(value) == as_category(other)


def _ends(public: AnyColumn) -> tuple[str, ...]:
    """The first and the last word of a public range of numbers or dates."""
    if isinstance(public, DateColumn):
        return str(public.low), str(public.high)
    return tuple(public.longest)


def _word(rng: np.random.Generator) -> str:
    """A pronounceable word that is in no dictionary."""
    letters = [rng.choice(list(_CONSONANTS if index % 2 == 0 else _VOWELS)) for index in range(8)]
    return "".join(letters)


_CELLS: Final[dict[type, Callable[[str], Any]]] = {
    str: str,
    int: int,
    float: float,
    bool: {"True": True, "False": False}.__getitem__,
    datetime.date: datetime.date.fromisoformat,
    datetime.datetime: datetime.datetime.fromisoformat,
}
"""From a word to a cell, by type."""

_TABLE: Final[dict[str, tuple[Strategy, str]]] = {
    "extreme_value": (_extreme_value, "the smallest or largest value of a column, taken from the data"),
    "new_category": (_new_category, "the categories of a column, taken from the data"),
    "rare_category": (_rare_category, "the categories of a column, taken from the data"),
    "outlier": (_outlier, "noise that is too small for a record that shows in several columns at once"),
    "repeated_category": (_repeated_category, "counts that are published above a threshold only"),
    "longest_text": (_longest_text, "a length that is taken from the data; texts that are clipped too late"),
    "new_token": (_new_token, "a vocabulary, taken from the data; texts that are memorised"),
    "empty_class": (_empty_class, "a model for each class that the data have"),
    "new_combination": (_new_combination, "combinations of categories, taken from the data"),
    "missing_value": (_missing_value, "whether a column has empty cells, taken from the data"),
    "duplicates": (_duplicates, "variances, ranges, distinct values or duplicates, taken from the data"),
    "cluster_edge": (_cluster_edge, "centres or splits that one record moves, taken from the data"),
    "ordinary": (_ordinary, "the number of records, or a count, that is released without noise"),
}

STRATEGIES: Final[dict[str, Strategy]] = {name: strategy for name, (strategy, _) in _TABLE.items()}
"""All strategies by name. Where there are too few runs for all of them, the first are tried."""

FINDS: Final[dict[str, str]] = {name: finds for name, (_, finds) in _TABLE.items()}
"""The faults that each strategy aims at."""
