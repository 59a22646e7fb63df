"""Two neighbouring data sets, the sample that they are made from, and new ids for records that are added."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import ColumnFacts, Row
from dpassay.attacks.black_box.output_events import Event
from dpassay.base import validate
from dpassay.data.cells import as_number
from dpassay.data.columns import word_of

RELATIONS: Final = (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE)
"""The neighbouring relations of which pairs are made."""

_MANY = 1_000_000  # ids that are made up, at most
_COUNTED = re.compile(r"(.*?)(\d+)(\D*)")


@dataclass(frozen=True, slots=True, eq=False)
class NeighboringData:
    """Two neighbouring data sets, and where they differ.

    Attributes:
        name: of the strategy.
        data: D.
        neighbor: D′.
        target: the record that D′ has and D has not.
        novel: the columns in which no record of D has the target's value, but for copies of the target.
        events: events that the faults make likely on D′ and not on D, best first.
        planted: how many of the last records of D are copies of the target, which outputs are not compared with.
    """

    name: str
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
        return any(same_value(column, row, target) for row in rows)

    def equal(self, row: Row, other: Row) -> bool:
        """Whether two rows hold the same, whatever the types of their cells; ids aside."""
        return all(same_value(column, row, other) for column in self.columns if column.kind != "id")


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


def make_novel_pair(sample: Sample, name: str, rows: tuple[Row, ...], target: Row) -> NeighboringData | None:
    """A pair whose target has values that no record of D has; None if it has none."""
    pair = make_pair(sample, name, rows, target, (Event("novel values of the target", 1.0),))
    return pair if pair is not None and pair.novel else None


def make_pair(
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
    return NeighboringData(name, rows, (*kept, *targets), targets[0], novel, events)


def same_value(column: ColumnFacts, row: Row, other: Row) -> bool:
    """Whether two rows hold the same in a column, whatever the types of the cells."""
    first, second = row[column.name], other[column.name]
    if column.is_missing(first) or column.is_missing(second):
        return column.is_missing(first) and column.is_missing(second)
    return column.value(first) == column.value(second)


class NewIds:
    """New ids for the records of one pair, in the columns of ids in which no two records of the sample share one."""

    def __init__(self, sample: Sample) -> None:
        self._new: dict[str, Iterator[Any]] = {}
        for column in sample.of_kind("id"):
            cells = [row[column.name] for row in sample.rows]
            words: set[Hashable] = {word_of(cell) for cell in cells}
            if len(words) == len(cells) and not any(map(column.is_missing, cells)):
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
