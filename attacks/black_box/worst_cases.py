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
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.cell_writing import CellWriter, writer_of
from dpassay.attacks.black_box.row_order import FIRST
from dpassay.base import validate
from dpassay.data.cells import as_category, as_day, as_number, decimals, is_missing
from dpassay.data.column_names import no_column
from dpassay.data.columns import MAX_CATEGORIES, MAX_DISTINCT, NO_RULES, Column, Form, Kind, Rules, columns_of, word_of
from dpassay.data.table_schema import AnyColumn, CategoryColumn, DateColumn, Schema, kinds_of

Row: TypeAlias = Mapping[str, Any]

FAR = 10.0
"""How far beyond the range of the data an extreme value lies, in widths of the range."""
NEAR = 1.0
"""The same for an outlier, which public limits may well admit."""
LONG = 10
"""How many times as long as the longest text an extreme text is."""
FEW = 10
"""Whole numbers of which there are so many different ones at most are categories, too."""

SHOWN: Final = "columns that show the target"
"""Name of a feature: in how many columns the output has the target's value, or a number that points to it, where no
other record has one."""

REACHED: Final = "columns that reach the target"
"""Name of a feature: the same, but for numbers only those that are at least as far out as the target's."""

TOWARD: Final = "values toward the target's"
"""Name of a feature, of all columns or of one: how many numbers lie beyond the middle between those of D and the
target's."""

TOGETHER: Final = {2: "pairs of the target's values that occur", 3: "triples of the target's values that occur"}
"""Names of features, by a number of columns: how many combinations of so many columns an output has a row for that has
the target's values in all of them. They are of pairs only that expect them."""

EQUAL: Final = "target's value"
"""End of the name of a feature of a column: how many cells have the target's value."""

SHARE: Final = "share of cells with the target's value"
"""End of the name of a feature of a column. It is of pairs only that expect it, as is the next one."""

NEARER: Final = "share of numbers nearer to the target's than to the middle of D"
"""The same, where all numbers of D are the target's or another one: the median of an output in which it is at least one
half is nearer to the target's than to the middle of both."""

_LAST_DAY = datetime.date(2261, 12, 31).toordinal()  # libraries that count nanoseconds in 64 bits hold no later one
_NEW_WORDS = 100  # words that are made up for a column, at most
_MANY = 1_000_000  # ids that are made up, at most
_COUNTED = re.compile(r"(.*?)(\d+)(\D*)")
_UNNAMED = re.compile(r"Unnamed: \d+")
_IDENTIFIER = re.compile(r"(?i:(?:^|[^a-z])(?:id|ids|uuid|guid|index|row|nr|no))$|[a-z](?:Id|ID)$")
_MIN_COUNTED = 20
_COMBINED = 6  # columns of which combinations are expected to be absent, at most
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"

Use: TypeAlias = Literal["number", "category", "text", "id", "other"]


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What strategies know of a column.

    Attributes:
        name: of the column.
        kind: as what it is used: ``number`` for numbers, dates and times; ``category``, also for numbers of which there
            are one or two, such as truth values; ``text`` for prose; ``id``, which no strategy changes and no feature
            describes, but where no two records share one, each new record gets a new one; or ``other`` for names and
            cells that are neither text nor numbers nor dates, which are left alone.
        low, high: the smallest and largest number of the sample; of dates and times, days from 0001-01-01.
        decimals: of its numbers.
        counts: how often each value (`value`) occurs in the sample; empty for numbers that are no categories.
        cells: a cell of the sample for each value.
        column: what the column holds, by which cells are read.
        writer: how its numbers are written; None if it has words.
        blank: a missing cell, as the file has it.
        domain: of numbers, the public range; of categories, public words. None without a schema.
        most: the largest number that the file can hold.
        may_be_missing: whether cells may be empty.
    """

    name: str
    kind: Use
    low: float = 0.0
    high: float = 0.0
    decimals: int = 0
    counts: Mapping[Hashable, int] = field(default_factory=dict)
    cells: Mapping[Hashable, Any] = field(default_factory=dict)
    column: Column | None = None
    writer: CellWriter | None = None
    blank: Any = None
    domain: tuple[Any, ...] | None = None
    most: float = sys.float_info.max
    may_be_missing: bool = True

    @property
    def is_category(self) -> bool:
        """Whether its values are categories; few whole numbers are, too."""
        return self.kind == "category" or (self.kind == "number" and bool(self.counts))

    @property
    def is_truth(self) -> bool:
        """Whether all its values are 0 or 1, whatever the file calls them."""
        column = self.column
        is_number = column is not None and column.form is not None and column.form.kind is Kind.NUMBER
        return is_number and self.low >= 0.0 and self.high <= 1.0 and not self.decimals

    @property
    def width(self) -> float:
        """high − low, or 1 if all numbers are equal."""
        return min(self.high - self.low, sys.float_info.max) or max(1.0, abs(self.high))

    def value(self, cell: Any) -> float | str | None:
        """What a cell means: a number, or a word; None if it is missing, or among numbers none."""
        if self.column is None:
            return None if is_missing(cell) else word_of(cell)
        return self.column.value(cell)

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell is empty, or marked as missing."""
        return is_missing(cell) if self.column is None else self.column.is_missing(cell)

    def extreme(self, far: float) -> float:
        """A number so many widths beyond the others, or the end of the public range that is farther from them."""
        if self.domain is None:
            return max(self.high, min(self.high + far * self.width, self.most))
        low, high = self.domain
        return float(high if high - self.high >= self.low - low else low)

    def written(self, number: float) -> Any:
        """A number as the file writes it."""
        assert self.writer is not None
        return self.writer.cell(number)

    def new_cells(self, rng: np.random.Generator) -> Iterator[Any]:
        """Cells whose values no record of the sample has, inside the public domain."""
        if self.writer is not None:
            numbers = [0.0, 1.0] if self.is_truth else [float(math.floor(self.high) + 1)]
            if self.domain is not None:
                numbers = [float(self.domain[1]), float(self.domain[0])]
            cells = (self.written(number) for number in numbers if number <= self.most)
        else:
            cells = (self.cell_of(word) for word in self.new_words(rng))
        return (cell for cell in cells if self.value(cell) not in self.counts)

    def new_words(self, rng: np.random.Generator) -> Iterator[str]:
        """Words of a column of words that no record of the sample has, inside the public domain, and that its type
        can hold."""
        for word in self._new_words(rng):
            cell = self.cell_of(word)
            if cell is not None and self.value(cell) not in self.counts:
                yield word

    def _new_words(self, rng: np.random.Generator) -> Iterable[str]:
        words = [as_category(cell) for cell in self.cells.values()]
        if self.domain is not None:
            return self.domain
        if words and all(as_day(word) is not None for word in words):
            last = int(max(as_day(word) or 0.0 for word in words))
            days = (min(last + more, datetime.date.max.toordinal()) for more in range(1, _NEW_WORDS))
            return (str(datetime.date.fromordinal(day)) for day in days)
        if words and all(as_number(word) is not None for word in words):
            largest = int(max(as_number(word) or 0.0 for word in words))
            return (str(largest + more) for more in range(1, _NEW_WORDS))
        return (made_up_word(rng) for _ in range(_NEW_WORDS))

    def cell_of(self, word: str) -> Any:
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
        planted: how many of the last records of D are copies of the target, which outputs are not compared with.
    """

    name: str
    finds: str
    data: Sequence[Row]
    neighbor: Sequence[Row]
    target: Row
    novel: tuple[str, ...]
    events: tuple[Event, ...]
    planted: int = 0


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
            given = f"{len(self.rows)} record{'s'[: len(self.rows) != 1]}"
            raise ValueError(f"neighbours are made from {self.copies + 4} records or more, and there are {given}")
        if self.label is not None and self.label not in [column.name for column in self.categories]:
            raise ValueError(f"the column of classes, {self.label!r}, is no column of categories; name it as one")

    def of_kind(self, kind: str) -> list[ColumnFacts]:
        """The columns of a kind."""
        return [column for column in self.columns if column.kind == kind]

    @property
    def categories(self) -> list[ColumnFacts]:
        """The columns whose values are categories, those of few whole numbers included."""
        return [column for column in self.columns if column.is_category]

    @property
    def classes(self) -> ColumnFacts | None:
        """The column of classes."""
        categories = self.categories
        if self.label is not None:
            return next(column for column in categories if column.name == self.label)
        several = [column for column in categories if len(column.counts) > 1]
        return min(several, key=lambda column: len(column.counts), default=None)

    def rarity(self, row: Row) -> float:
        """The sum of −log of the frequencies of a row's categories."""
        held = [column.counts.get(column.value(row[column.name]), 0) for column in self.categories]
        return -sum(math.log((count + 0.5) / (len(self.rows) + 1)) for count in held)

    @property
    def usual(self) -> Row:
        """The row with the most frequent categories."""
        return min(self.rows, key=self.rarity)

    @property
    def unusual(self) -> Row:
        """The row with the rarest categories."""
        return max(self.rows, key=self.rarity)

    def holds(self, rows: Sequence[Row], column: ColumnFacts, target: Row) -> bool:
        """Whether one of some rows has the target's value in a column."""
        return any(_same(column, row, target) for row in rows)

    def equal(self, row: Row, other: Row) -> bool:
        """Whether two rows hold the same, whatever the types of their cells; ids aside."""
        return all(_same(column, row, other) for column in self.columns if column.kind != "id")


def describe_columns(
    rows: Sequence[Row],
    *,
    columns: Mapping[str, Column] | None = None,
    schema: Schema | None = None,
    rules: Rules = NO_RULES,
    most: Mapping[str, float] | None = None,
) -> tuple[ColumnFacts, ...]:
    """What is known of each column of a sample.

    Args:
        rows: of the sample.
        columns: what the columns of the data hold; None to find out from the sample by the rules.
        schema: the public domains; None for none.
        rules: what is stated of columns.
        most: the largest number that the file can hold in a column, where that is less than the largest float.

    Raises:
        ValueError: if the rows have different columns, a named column is missing, a column of prose has a domain, or
            one that is stated to hold numbers has none.
    """
    if not rows:
        raise ValueError("there are no records to make neighbours from")
    names = list(rows[0])
    if any(list(row) != names for row in rows):
        raise ValueError("the records have different columns; give each record all columns, in one order")
    if schema is not None:
        rules = dataclasses.replace(rules, kinds=kinds_of(schema) | dict(rules.kinds))
    for name in rules.kinds:
        if name not in names:
            raise ValueError(no_column(name, names))
    public = {} if schema is None else {column.name: column for column in schema.columns}
    known = columns_of(rows, rules) if columns is None else columns
    results = tuple(
        _facts(
            known[name],
            [row[name] for row in rows],
            public.get(name),
            rules.kinds.get(name),
            (most or {}).get(name, sys.float_info.max),
        )
        for name in names
    )
    return tuple(dataclasses.replace(facts, blank=_blank(facts, results, rows)) for facts in results)


def _facts(
    column: Column, cells: Sequence[Any], public: AnyColumn | None, stated: Kind | None, most: float
) -> ColumnFacts:
    name, missing = column.name, public.missing if public is not None else True
    if public is not None and stated is Kind.TEXT:
        raise ValueError(f"column {name!r} has a public domain in the schema, so it is no column of prose")
    values = [(column.value(cell), cell) for cell in cells]
    present = [(value, cell) for value, cell in values if value is not None]
    counts: Counter[Hashable] = Counter(value for value, _ in present)
    facts = ColumnFacts(
        name,
        "other",
        counts=counts,
        cells=dict(reversed(present)),
        column=column,
        most=most,
        may_be_missing=missing,
    )
    if column.form is not None:
        return _measured(facts, [cell for _, cell in present], len(cells), public, stated)
    if column.kind is Kind.NESTED or (public is None and not present and stated is None):
        return facts
    domain = None if public is None else public.values if isinstance(public, CategoryColumn) else _ends(public)
    return dataclasses.replace(facts, kind=_use_of_words(column, public, stated), domain=domain)


def _use_of_words(column: Column, public: AnyColumn | None, stated: Kind | None) -> Use:
    """As what a column of words is used: words that rarely repeat are prose or names."""
    if public is not None or stated is Kind.CATEGORY:
        return "category"
    if stated is Kind.TEXT:
        return "text"
    if column.kind is Kind.IDENTIFIER:
        return "id"
    if column.distinct <= MAX_CATEGORIES and 2 * column.distinct <= column.rows - column.missing:
        return "category"
    return "text" if column.is_prose else "other"


def _measured(
    facts: ColumnFacts, cells: Sequence[Any], rows: int, public: AnyColumn | None, stated: Kind | None
) -> ColumnFacts:
    """What is known of a column of numbers, dates or times. One that numbers the records holds ids."""
    column, numbers = facts.column, [value for value in facts.counts if isinstance(value, float)]
    assert column is not None
    assert column.form is not None
    if not numbers and public is None and stated is not None:
        raise ValueError(f"column {column.name!r} is stated to hold numbers or dates, but no cell of it does")
    is_number = column.form.kind is Kind.NUMBER
    digits = max(map(decimals, numbers), default=0) if is_number else 0
    domain: tuple[Any, ...] | None = None
    if isinstance(public, DateColumn):
        domain = public.low.toordinal(), public.high.toordinal()
    elif isinstance(public, CategoryColumn):
        raise ValueError(f"column {column.name!r} has categories in the schema, so it holds no numbers or dates")
    elif public is not None:
        digits = public.decimals
        domain = tuple(float(word) for word in public.longest)
    low, high = min(numbers, default=0.0), max(numbers, default=0.0)
    if stated is None and public is None and not digits and len(numbers) == rows and _identifies(column):
        return dataclasses.replace(facts, kind="id")
    kind: Use = "number" if len(numbers) > 2 or stated is not None else "category"
    also = kind == "category" or (
        stated is None
        and is_number
        and not digits
        and len(numbers) <= FEW
        and 2 * len(numbers) <= sum(facts.counts.values())
    )
    return dataclasses.replace(
        facts,
        kind=kind,
        low=low,
        high=high,
        decimals=digits,
        counts=facts.counts if also else {},
        cells=facts.cells if also else {},
        writer=writer_of(column, cells, digits),
        domain=domain,
        most=1.0 if column.form is Form.TRUTH else facts.most if is_number else float(_LAST_DAY),
    )


def _identifies(column: Column) -> bool:
    """Whether whole numbers, of which no two are alike, number the records: from 0 or 1 to the last one, or with a name
    that says so."""
    whole = column.form is Form.POINT and not (column.decimals or column.missing or column.odd)
    if not whole or column.distinct < min(column.rows, MAX_DISTINCT):
        return False
    from_start = column.rows >= _MIN_COUNTED and column.low in (0, 1) and column.rows == column.high - column.low + 1
    return from_start or bool(_UNNAMED.fullmatch(column.name) or _IDENTIFIER.search(column.name))


def _blank(facts: ColumnFacts, every: Sequence[ColumnFacts], rows: Sequence[Row]) -> Any:
    """A missing cell as a column has most of them; if it has none, as another one that marks them alike has."""
    own = [row[facts.name] for row in rows]
    if not any(isinstance(cell, str) for cell in own):
        return None
    for cells in (own, *([row[other.name] for row in rows] for other in every)):
        missing = Counter(cell for cell in cells if isinstance(cell, str) and facts.is_missing(cell))
        if missing:
            return missing.most_common(1)[0][0]
    return ""


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
        raise ValueError(f"none of the strategies {', '.join(strategies or STRATEGIES)} applies to these columns")
    return tuple(results)


def data_sets_of(pairs: Sequence[NeighboringData]) -> tuple[list[Sequence[Row]], list[tuple[int, int]]]:
    """The different data sets of some pairs, and for each pair the indices of its D and D′ among them."""
    data_sets: list[Sequence[Row]] = []

    def index(rows: Sequence[Row]) -> int:
        for position, known in enumerate(data_sets):
            if known is rows or known == rows:
                return position
        data_sets.append(rows)
        return len(data_sets) - 1

    return data_sets, [(index(pair.data), index(pair.neighbor)) for pair in pairs]


def _ordinary(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    return _pair(sample, "ordinary", sample.rows, sample.usual, ())


def _absent_row(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Records that have all values of the target but one each, so that a generator which draws columns from their
    counts soon writes the target; one that leaves out what private records have does not, once the target is one."""
    target, others = _with_others(sample)
    if len(others) < 2:
        return None
    rows = tuple({**target, name: other} for name, other in others.items())
    event = Event("rows equal to the target", 1.0)
    return _pair(sample, "absent_row", _repeated(rows, len(sample.rows)), target, (event,))


def _absent_pair(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Records that have one value of the target each, so that no two of its values occur together."""
    return _absent_combination(sample, "absent_pair", 1)


def _absent_triple(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
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
    return _pair(sample, name, _repeated(rows, len(sample.rows)), target, (event,))


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


def _tie(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """Two records, each as often as the other, and one of them once more: what is most frequent changes, and medians
    and the order by counts with it."""
    first = sample.usual

    def different(row: Row) -> list[str]:
        return [column.name for column in sample.columns if column.kind != "id" and not _same(column, row, first)]

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
    return _pair(sample, "tie", (first, second) * (len(sample.rows) // 2), second, tuple(events))


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
    """The record of D′ has the rarest category of every column, which no record of D has, and numbers beyond all
    others: so it shows in every column, and the privacy losses of all of them add up."""
    rest, target = sample.rows, dict(sample.usual)
    for column, value in _rarest_of_each(sample):
        fewer = tuple(row for row in rest if column.value(row[column.name]) != value)
        if 2 * len(fewer) >= len(sample.rows) and len(fewer) > sample.copies + 2:
            rest, target[column.name] = fewer, column.cells[value]
    rare = [column for column in sample.of_kind("category") if not sample.holds(rest, column, target)]
    columns = [*(column.name for column in rare), *_make_extreme(sample, target, NEAR)]
    if len(columns) < 2 or not rare:
        return None
    events = [Event(REACHED, float(len(columns))), *(Event(f"{name}: {EQUAL}", 1.0) for name in columns)]
    return _pair(sample, "outlier", rest, target, tuple(events))


def _rarest_of_each(sample: Sample) -> list[tuple[ColumnFacts, Hashable]]:
    """The columns of three or more categories of words, each with its rarest, the rarest of all first."""
    columns = [column for column in sample.of_kind("category") if len(column.counts) > 2]
    rarest = [(column, min(column.counts, key=column.counts.__getitem__)) for column in columns]
    return sorted(rarest, key=lambda item: item[0].counts[item[1]])


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
        target[column.name] = next(column.new_cells(rng), target[column.name])


def _rare_category(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
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


def _empty_class(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """D has no record of the rarest class, D′ has one."""
    column = sample.classes
    if column is None or len(column.counts) < 2:
        return None
    return _without(sample, "empty_class", (column, min(column.counts, key=column.counts.__getitem__)))


def _without(sample: Sample, name: str, rarest: tuple[ColumnFacts, Hashable]) -> NeighboringData | None:
    rest, target = _split(sample, rarest)
    return _of_novel(sample, name, rest, target) if len(rest) > sample.copies + 2 else None


def _split(sample: Sample, rarest: tuple[ColumnFacts, Hashable]) -> tuple[tuple[Row, ...], dict[str, Any]]:
    """The records without a category, and the first that has it."""
    column, value = rarest
    having = [column.value(row[column.name]) == value for row in sample.rows]
    rest = tuple(row for row, has in zip(sample.rows, having, strict=True) if not has)
    return rest, dict(sample.rows[having.index(True)])


def _new_combination(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
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
    return _pair(sample, "new_combination", sample.rows, target, (event,))


def _missing_value(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
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
    return _pair(sample, "missing_value", complete, target, (Event("empty cells", 1.0),))


def _duplicates(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    """All records of D are equal, and one record of D′ is another one."""
    same, other = sample.usual, sample.unusual
    if sample.equal(same, other):
        other = next((row for row in sample.rows if not sample.equal(row, same)), same)
    return _of_novel(sample, "duplicates", (same,) * len(sample.rows), other)


def _cluster_edge(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
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
    return _pair(sample, "cluster_edge", groups * (1 + (len(sample.rows) - 1) // len(groups)), target, ())


def _longest_text(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    events = []
    for column in sample.of_kind("text"):
        longest = max(map(str, column.cells.values()), key=len, default="text")
        target[column.name] = " ".join([longest] * LONG)
        events.append(Event(f"{column.name}: characters of the longest text", 2.0 * len(longest)))
    return _pair(sample, "longest_text", sample.rows, target, tuple(events)) if events else None


def _new_token(sample: Sample, rng: np.random.Generator) -> NeighboringData | None:
    target = dict(sample.usual)
    columns = sample.of_kind("text")
    for column in columns:
        word = made_up_word(rng)
        usual = target[column.name]
        target[column.name] = " ".join([word] * 3 + [str(usual)] * (not column.is_missing(usual)) + [word] * 3)
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
    ids = NewIds(sample)
    rows = ids.given_to(rows)
    kept = rows
    if sample.adjacency is Adjacency.REPLACE_ONE:
        others = [index for index, row in enumerate(rows) if not sample.equal(row, target)][-sample.copies :]
        if len(others) < sample.copies:
            return None
        kept = tuple(row for index, row in enumerate(rows) if index not in others)
    novel = tuple(column.name for column in sample.categories if not sample.holds(rows, column, target))
    targets = [ids.new(target) for _ in range(sample.copies)]
    return NeighboringData(name, FINDS[name], rows, (*kept, *targets), targets[0], novel, events)


def _same(column: ColumnFacts, row: Row, other: Row) -> bool:
    """Whether two rows hold the same in a column, whatever the types of the cells."""
    first, second = row[column.name], other[column.name]
    if column.is_missing(first) or column.is_missing(second):
        return column.is_missing(first) and column.is_missing(second)
    return column.value(first) == column.value(second)


class NewIds:
    """New ids for the records of one pair, in the columns of ids in which no two records of the sample share one."""

    def __init__(self, sample: Sample) -> None:
        self._known: dict[str, set[Hashable]] = {}
        self._new: dict[str, Iterator[Any]] = {}
        for column in sample.of_kind("id"):
            cells = [row[column.name] for row in sample.rows]
            words: set[Hashable] = {word_of(cell) for cell in cells}
            if len(words) == len(cells) and not any(map(column.is_missing, cells)):
                self._known[column.name] = words
                self._new[column.name] = _ids_like(cells, words, column.most)

    def new(self, row: Row) -> dict[str, Any]:
        """A copy of a record with new ids."""
        return {**row, **{name: cell for name, new in self._new.items() if (cell := next(new, None)) is not None}}

    def given_to(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """Rows in which a record that is there a second time has new ids."""
        seen: dict[str, set[Hashable]] = {name: set() for name in self._new}
        results, changed = [], False
        for row in rows:
            again = any(word_of(row[name]) in words for name, words in seen.items())
            changed |= again
            results.append(self.new(row) if again else row)
            for name, words in seen.items():
                words.add(word_of(row[name]))
        return tuple(results) if changed else rows


def _ids_like(cells: Sequence[Any], known: set[Hashable], most: float) -> Iterator[Any]:
    """Ids that are none of these: the next numbers, or words with characters like those that others have there."""
    numbers = [as_number(cell) for cell in cells if not isinstance(cell, str)]
    if len(numbers) == len(cells) and all(number is not None and number.is_integer() for number in numbers):
        last = max(int(number or 0) for number in numbers)
        made: Iterable[Any] = (number for number in itertools.chain(range(last + 1, last + _MANY), range(last + 1)))
        made = (number for number in made if number <= most)
    elif all(isinstance(cell, str) for cell in cells):
        made = _words_like([cell.strip() for cell in cells])
    else:
        return
    taken = set(known)
    for cell in made:
        if word_of(cell) not in taken:
            taken.add(word_of(cell))
            yield cell


def _words_like(words: Sequence[str]) -> Iterator[str]:
    """Words that count on where all end in a number after the same letters, or else of characters in their places."""
    counted = [_COUNTED.fullmatch(word) for word in words]
    parts = [(match[1], int(match[2]), len(match[2]), match[3]) for match in counted if match is not None]
    if len(parts) == len(words) and len({(before, after) for before, _, _, after in parts}) == 1:
        before, _, width, after = parts[0]
        width = width if len({digits for _, _, digits, _ in parts}) == 1 else 0
        last = max(number for _, number, _, _ in parts)
        yield from (f"{before}{number:0{width}d}{after}" for number in range(last + 1, last + _MANY))
        return
    alike = [word for word in words if len(word) == len(words[0])]
    letters = [sorted(set(place)) for place in zip(*alike, strict=True)]
    letters = [list("0123456789") if len(place) > 1 and all(map(str.isdigit, place)) else place for place in letters]
    rng = np.random.default_rng(0)
    for number in range(_MANY):
        made = "".join(str(rng.choice(place)) for place in letters)
        yield made if number % 100 < 99 else f"{made}{number}"


def _ends(public: AnyColumn) -> tuple[str, ...]:
    """The first and the last word of a public range of numbers or dates."""
    if isinstance(public, DateColumn):
        return str(public.low), str(public.high)
    return tuple(public.longest)


def made_up_word(rng: np.random.Generator) -> str:
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


@dataclass(frozen=True, slots=True)
class _Strategy:
    """A strategy, and in words: D, the record that D′ has, and the faults that it aims at."""

    make: Strategy
    data: str
    target: str
    finds: str


_TABLE: Final[dict[str, _Strategy]] = {
    "outlier": _Strategy(
        _outlier,
        "without the rarest category of each column",
        "has them all, and numbers a range beyond the largest",
        "noise that is too small for a record that shows in several columns at once",
    ),
    "extreme_value": _Strategy(
        _extreme_value,
        "as drawn",
        "has numbers ten times the range beyond the largest, or with a schema at the end of the range",
        "the smallest or largest value of a column, taken from the data",
    ),
    "new_category": _Strategy(
        _new_category,
        "as drawn",
        "has categories that no record of D has",
        "the categories of a column, taken from the data",
    ),
    "rare_category": _Strategy(
        _rare_category,
        "without the rarest category of all",
        "has it",
        "the categories of a column, taken from the data",
    ),
    "repeated_category": _Strategy(
        _repeated_category,
        "one record has categories that no other has",
        "is a copy of that record",
        "counts that are published above a threshold only",
    ),
    "longest_text": _Strategy(
        _longest_text,
        "as drawn",
        "has a text ten times as long as the longest",
        "a length that is taken from the data; texts that are clipped too late",
    ),
    "new_token": _Strategy(
        _new_token,
        "as drawn",
        "has a made-up word in its text, six times",
        "a vocabulary, taken from the data; texts that are memorised",
    ),
    "empty_class": _Strategy(
        _empty_class,
        "without the rarest class",
        "is of that class",
        "a model for each class that the data have",
    ),
    "new_combination": _Strategy(
        _new_combination,
        "as drawn",
        "has two frequent categories that no record of D has together",
        "combinations of categories, taken from the data",
    ),
    "missing_value": _Strategy(
        _missing_value,
        "without empty cells",
        "has empty cells",
        "whether a column has empty cells, taken from the data",
    ),
    "duplicates": _Strategy(
        _duplicates,
        "one record, repeated",
        "is another one",
        "variances, ranges, distinct values or duplicates, taken from the data",
    ),
    "cluster_edge": _Strategy(
        _cluster_edge,
        "two groups, far apart in one column",
        "lies half-way between them",
        "centres or splits that one record moves, taken from the data",
    ),
    "ordinary": _Strategy(
        _ordinary,
        "as drawn",
        "has the most frequent categories",
        "the number of records, or a count, that is released without noise",
    ),
    "absent_row": _Strategy(
        _absent_row,
        "records that have all values of the target but one each",
        "has the usual value of every column",
        "rows that are written only if they equal no record",
    ),
    "absent_pair": _Strategy(
        _absent_pair,
        "records that have one value of the target each",
        "has the usual value of every column",
        "pairs of values that are written only if no record has them",
    ),
    "absent_triple": _Strategy(
        _absent_triple,
        "records that have two values of the target each",
        "has the usual value of every column",
        "triples of values that are written only if no record has them",
    ),
    "tie": _Strategy(
        _tie,
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
