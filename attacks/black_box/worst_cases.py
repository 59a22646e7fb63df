"""Neighbouring data sets on which faulty generators of tables and texts differ most.

Each strategy makes one pair (D, D′) from a sample of the data, and aims at one kind of fault: a range or a set of
categories that is read off the data, a statistic that is released without noise, and so on. A lower bound on ε holds
whatever the pair is, so strategies may be as artful as they like; they only decide what is found.

Where a public schema is given, every value stays inside its domain, so that no generator is blamed for values that it
was promised never to see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from cupel.accounting import validate
from cupel.accounting.adjacency import Adjacency
from cupel.mechanisms.data.cells import as_number, decimals, is_missing
from cupel.mechanisms.data.table_schema import CategoryColumn, NumberColumn, Schema

Row: TypeAlias = Mapping[str, Any]

FAR = 10.0
"""How far beyond the range of the data an extreme value lies, in widths of the range."""
LONG = 10
"""How many times as long as the longest text an extreme text is."""

_MOST_CATEGORIES = 200  # a column with more distinct words holds names or prose
_WORDS_OF_PROSE = 3  # a column whose texts have more words on average holds prose
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What strategies know of a column.

    Attributes:
        name: of the column.
        kind: ``number``, ``category``, ``text`` for prose, or ``other`` for names and ids, which are left alone.
        low, high: the smallest and largest number of the sample.
        decimals: of its numbers.
        counts: how often each word occurs in the sample.
        quoted: whether numbers are written as strings, as in CSV.
        domain: the public range of numbers, or the public categories; None without a schema.
        may_be_missing: whether cells may be empty.
    """

    name: str
    kind: Literal["number", "category", "text", "other"]
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    counts: Mapping[Any, int] = field(default_factory=dict)
    quoted: bool = False
    domain: tuple[Any, ...] | None = None
    may_be_missing: bool = True

    @property
    def width(self) -> float:
        """high − low, or 1 if all numbers are equal."""
        return self.high - self.low or max(1.0, abs(self.high))

    def written(self, number: float) -> str | float | int:
        """A number as the file writes it."""
        value = round(number, self.decimals)
        if self.quoted:
            return f"{value:.{self.decimals}f}"
        return value if self.decimals else int(value)


@dataclass(frozen=True, slots=True)
class Event:
    """A threshold on one feature of an output; see `cupel.attacks.black_box.output_features`.

    Attributes:
        feature: its name.
        threshold: the event is that the feature is at least this.
    """

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
        novel: the columns in which no record of D has the target's value.
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
        adjacency: add_remove, where D′ has more records, or replace_one, where the last ones are exchanged.
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

    def of_kind(self, kind: str) -> list[ColumnFacts]:
        """The columns of a kind."""
        return [column for column in self.columns if column.kind == kind]

    @property
    def classes(self) -> ColumnFacts | None:
        """The column of classes."""
        categories = self.of_kind("category")
        if self.label is not None:
            return next((column for column in categories if column.name == self.label), None)
        several = [column for column in categories if len(column.counts) > 1]
        return min(several, key=lambda column: len(column.counts), default=None)

    def rarity(self, row: Row) -> float:
        """The sum of −log of the frequencies of a row's categories."""
        held = [column.counts.get(row.get(column.name), 0) for column in self.of_kind("category")]
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
) -> tuple[ColumnFacts, ...]:
    """What is known of each column of a sample.

    Args:
        rows: of the sample.
        schema: the public domains; None to read types off the sample.
        categorical: columns of numbers that are categories.
        texts: columns of prose.

    Raises:
        ValueError: if the rows have different columns, or a named column is missing.
    """
    if not rows:
        raise ValueError("there are no records to make neighbours from")
    names = list(rows[0])
    if any(list(row) != names for row in rows):
        raise ValueError("the records have different columns; give each record all columns, in one order")
    for name in (*categorical, *texts, *(schema.names if schema else ())):
        if name not in names:
            raise ValueError(f"there is no column {name!r}; the data have {', '.join(names)}")
    public = {} if schema is None else {column.name: column for column in schema.columns}
    return tuple(
        _facts(name, [row[name] for row in rows], public.get(name), name in categorical, name in texts)
        for name in names
    )


def _facts(name: str, values: Sequence[Any], public: Any, categorical: bool, text: bool) -> ColumnFacts:
    present = [value for value in values if not is_missing(value)]
    numbers = [as_number(value) for value in present]
    domain: tuple[Any, ...] | None = None
    numeric = bool(present) and all(number is not None for number in numbers) and len(set(numbers)) > 2
    if isinstance(public, NumberColumn):
        numeric, domain = True, (public.low, public.high)
    elif public is not None:
        numeric = False
        domain = public.values if isinstance(public, CategoryColumn) else None
    missing = public.missing if public is not None else True
    if numeric and not categorical and not text:
        found = [number for number in numbers if number is not None] or [0.0]
        digits = public.decimals if domain else max((decimals(value) for value in present), default=0)
        quoted = any(isinstance(value, str) for value in present)
        return ColumnFacts(
            name, "number", min(found), max(found), digits, quoted=quoted, domain=domain, may_be_missing=missing
        )
    counts = Counter(value for value in present if isinstance(value, str | int | float | bool))
    words = [len(str(value).split()) for value in present]
    if text or (domain is None and not categorical and words and np.mean(words) > _WORDS_OF_PROSE):
        return ColumnFacts(name, "text", counts=counts, may_be_missing=missing)
    if not categorical and domain is None and (len(counts) > _MOST_CATEGORIES or 2 * len(counts) > len(present)):
        return ColumnFacts(name, "other", may_be_missing=missing)
    return ColumnFacts(name, "category", counts=counts, domain=domain, may_be_missing=missing)


Strategy: TypeAlias = Callable[[Sample, np.random.Generator], NeighboringData | None]


def neighboring_data(
    sample: Sample, rng: np.random.Generator, strategies: Sequence[str] | None = None
) -> tuple[NeighboringData, ...]:
    """The pairs of all strategies that apply to the data, in the order of `STRATEGIES`.

    Args:
        sample: of the data.
        rng: of public choices, such as made-up words.
        strategies: names in `STRATEGIES`; None for all.

    Raises:
        ValueError: if a name is unknown, or no strategy applies.
    """
    for name in strategies or ():
        validate.one_of(tuple(STRATEGIES), neighbors=name)
    found = [
        pair
        for name, strategy in STRATEGIES.items()
        if strategies is None or name in strategies
        if (pair := strategy(sample, rng)) is not None
    ]
    if not found:
        raise ValueError(f"none of the strategies {', '.join(strategies or STRATEGIES)} applies to these columns")
    return tuple(found)


def _ordinary(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    return _pair(sample, "ordinary", sample.rows, sample.usual, ())


def _extreme_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    numbers = sample.of_kind("number")
    target = dict(sample.unusual)
    events = []
    for column in numbers:
        extreme = column.high + FAR * column.width
        if column.domain is not None:
            low, high = column.domain
            extreme = high if high - column.high >= column.low - low else low
        target[column.name] = column.written(extreme)
        if not column.low <= extreme <= column.high:
            events.append(Event(f"{column.name}: values toward the target's", 1.0))
    if not events:
        return None
    events.insert(0, Event("values toward the target's", 1.0))
    return _pair(sample, "extreme_value", sample.rows, target, tuple(events))


def _new_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    for column in sample.of_kind("category"):
        if column.domain is not None:
            free = [value for value in column.domain if value not in column.counts]
        elif all(as_number(value) is not None for value in column.counts):
            largest = max((as_number(value) or 0.0 for value in column.counts), default=0.0)
            free = [_like(int(largest) + 1, column)]
        else:
            free = [_word(rng)]
        if free:
            target[column.name] = free[0]
    return _of_novel(sample, "new_category", sample.rows, target)


def _rare_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record with the rarest category, D′ has one."""
    rarest = [
        (count, column.name, value)
        for column in sample.of_kind("category")
        if len(column.counts) > 2
        for value, count in column.counts.items()
    ]
    return _without(sample, "rare_category", min(rarest, key=lambda one: one[0])) if rarest else None


def _empty_class(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record of the rarest class, D′ has one."""
    column = sample.classes
    if column is None or len(column.counts) < 2:
        return None
    value, count = min(column.counts.items(), key=lambda one: one[1])
    return _without(sample, "empty_class", (count, column.name, value))


def _without(sample: Sample, name: str, rarest: tuple[int, str, Any]) -> NeighboringData | None:
    _, column, value = rarest
    rest = tuple(row for row in sample.rows if row[column] != value)
    target = next(row for row in sample.rows if row[column] == value)
    return _of_novel(sample, name, rest, target) if len(rest) > sample.copies + 2 else None


def _new_combination(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two frequent categories that occur together in no record."""
    best: tuple[int, str, Any, str, Any] | None = None
    columns = [column for column in sample.of_kind("category") if len(column.counts) > 1]
    for place, one in enumerate(columns):
        for other in columns[place + 1 :]:
            seen = {(row[one.name], row[other.name]) for row in sample.rows}
            for a, many in one.counts.items():
                for b, more in other.counts.items():
                    if (a, b) not in seen and (best is None or min(many, more) > best[0]):
                        best = min(many, more), one.name, a, other.name, b
    if best is None:
        return None
    target = {**sample.usual, best[1]: best[2], best[3]: best[4]}
    event = Event(f"rows with the target's {best[1]} and {best[3]}", 1.0)
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
    if same == other:
        other = next((row for row in sample.rows if row != same), same)
    if same == other:
        return None
    return _of_novel(sample, "duplicates", (same,) * len(sample.rows), other)


def _cluster_edge(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two groups that are far apart, and a record half-way between them."""
    numbers = [column for column in sample.of_kind("number") if column.high > column.low]
    if not numbers:
        return None
    first = max(numbers, key=lambda column: len({row[column.name] for row in sample.rows}))

    def place(row: Row) -> float:
        return as_number(row[first.name]) or 0.0

    ordered = sorted((row for row in sample.rows if not is_missing(row[first.name])), key=place)
    quarter = len(ordered) // 4
    groups = (*ordered[:quarter], *ordered[len(ordered) - quarter :])
    if quarter < 2 or place(ordered[quarter - 1]) >= place(ordered[-quarter]):
        return None
    target = dict(ordered[len(ordered) // 2])
    for column in numbers:
        target[column.name] = column.written((column.low + column.high) / 2)
    return _pair(sample, "cluster_edge", groups * (1 + (len(sample.rows) - 1) // len(groups)), target, ())


def _longest_text(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    events = []
    for column in sample.of_kind("text"):
        longest = max((str(value) for value in column.counts), key=len, default="text")
        target[column.name] = " ".join([longest] * LONG)
        events.append(Event(f"{column.name}: characters of the longest text", 2.0 * len(longest)))
    return _pair(sample, "longest_text", sample.rows, target, tuple(events)) if events else None


def _new_token(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    columns = sample.of_kind("text")
    for column in columns:
        word = _word(rng)
        target[column.name] = " ".join([word] * 3 + [str(target[column.name])] + [word] * 3)
    events = tuple(Event(f"{column.name}: texts with a new word of the target", 1.0) for column in columns)
    return _pair(sample, "new_token", sample.rows, target, events) if columns else None


def _of_novel(sample: Sample, name: str, rows: tuple[Row, ...], target: Row) -> NeighboringData | None:
    """A pair whose target has values that no record of D has; None if it has none."""
    pair = _pair(sample, name, rows, target, (Event("novel values of the target", 1.0),))
    return pair if pair.novel else None


def _pair(sample: Sample, name: str, rows: tuple[Row, ...], target: Row, events: tuple[Event, ...]) -> NeighboringData:
    added = (dict(target),) * sample.copies
    kept = rows if sample.adjacency is Adjacency.ADD_REMOVE else rows[: -sample.copies]
    held = {column.name: {row[column.name] for row in rows} for column in sample.columns}
    novel = tuple(
        column.name
        for column in sample.columns
        if column.kind == "category" and target[column.name] not in held[column.name]
    )
    return NeighboringData(name, FINDS[name], rows, (*kept, *added), target, novel, events)


def _like(number: int, column: ColumnFacts) -> Any:
    """A number in the type of a column's categories."""
    sort = type(next(iter(column.counts), ""))
    return sort(number) if sort in (str, int, float) else str(number)


def _word(rng: np.random.Generator) -> str:
    """A pronounceable word that is in no dictionary."""
    letters = [rng.choice(list(_CONSONANTS if place % 2 == 0 else _VOWELS)) for place in range(8)]
    return "".join(letters)


STRATEGIES: Final[dict[str, Strategy]] = {
    "extreme_value": _extreme_value,
    "new_category": _new_category,
    "rare_category": _rare_category,
    "longest_text": _longest_text,
    "new_token": _new_token,
    "empty_class": _empty_class,
    "new_combination": _new_combination,
    "missing_value": _missing_value,
    "duplicates": _duplicates,
    "cluster_edge": _cluster_edge,
    "ordinary": _ordinary,
}
"""All strategies by name. Where there are too few runs for all of them, the first are tried."""

FINDS: Final[dict[str, str]] = {
    "ordinary": "the number of records, or a count, that is released without noise",
    "extreme_value": "the smallest or largest value of a column, read off the data",
    "new_category": "the categories of a column, read off the data",
    "rare_category": "the categories of a column, read off the data; counts that are published above a threshold only",
    "empty_class": "a model for each class that the data have",
    "new_combination": "combinations of categories, read off the data",
    "missing_value": "whether a column has empty cells, read off the data",
    "duplicates": "variances, ranges, distinct values or duplicates, read off the data",
    "cluster_edge": "centres or splits that one record moves, read off the data",
    "longest_text": "a length that is read off the data; texts that are clipped too late",
    "new_token": "a vocabulary, read off the data; texts that are memorised",
}
"""The faults that each strategy aims at."""
