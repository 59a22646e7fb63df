"""What is known of the columns of a table: their use, range and categories, and values that no cell has."""

from __future__ import annotations

import dataclasses
import datetime
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from dpassay.attacks.black_box.cell_writing import CellWriter, writer_of
from dpassay.data.cells import as_category, as_day, as_number, decimals, is_missing
from dpassay.data.column_names import no_column
from dpassay.data.columns import MAX_CATEGORIES, MAX_DISTINCT, NO_RULES, Column, Form, Kind, Rules, columns_of, word_of
from dpassay.data.table_schema import AnyColumn, CategoryColumn, DateColumn, Schema, kinds_of

Row: TypeAlias = Mapping[str, Any]
"""A record: its cells by the names of the columns."""

FEW = 10
"""Whole numbers of which there are so many different ones at most are categories, too."""

_FIRST_DAY = datetime.date(1677, 9, 22).toordinal()
_LAST_DAY = datetime.date(2261, 12, 31).toordinal()  # libraries that count nanoseconds in 64 bits hold no later one
_NEW_WORDS = 100  # words that are made up for a column, at most
_UNNAMED = re.compile(r"Unnamed: \d+")
_IDENTIFIER = re.compile(r"(?i:(?:^|[^a-z])(?:id|ids|uuid|guid|index|row|nr|no))$|[a-z](?:Id|ID)$")
_MIN_COUNTED = 20
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

    def opposite(self, number: float, far: float) -> float:
        """A number so many widths beyond the others, on the other side of them than a number: the other end of the
        public range; without one not below 0 if no other is. It may be inside the range of the others."""
        if self.domain is not None:
            return float(self.domain[0] if number > self.high else self.domain[1])
        if number < self.low:
            return max(self.high, min(self.high + far * self.width, self.most))
        is_number = self.column is None or self.column.form is None or self.column.form.kind is Kind.NUMBER
        least = 0.0 if is_number else float(_FIRST_DAY)
        return min(self.low, max(self.low - far * self.width, least if self.low >= least else -self.most))

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
