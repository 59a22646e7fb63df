"""A probe: one data set that shows from how many records on a generator publishes what they have in common.

The probing data set holds planted values that no other record has: one record with the first new category, two with the
second, and so on; likewise words in prose; and numbers that lie ever farther beyond all others, one record each, so
that m records reach the m-th largest. A few runs on it show which of these the generator publishes always, sometimes
and never. A *ladder* has, for every number m of such records, a pair of neighbours: m records against one unit more.
The runs choose one pair of each ladder, at the edge between what is published and what is not.

The runs of a probe are pilot runs. No bound counts them, so they may choose whatever they like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.worst_cases import (
    FAR,
    TOWARD,
    ColumnFacts,
    Event,
    NeighboringData,
    NewIds,
    Row,
    Sample,
    made_up_word,
)

MAX_LEVEL: Final = 25
"""The most records that have a planted value in common."""
_LEAST_LEVELS = 3
_RECORDS = 60  # for so many records or fewer, the probing data set has planted values as for so many
_RANGE_LEVELS = 12
_FARTHER = 1.5  # how many times as far beyond all others a planted number lies as the one before


class Mark(NamedTuple):
    """What the records of one level have in a column: a cell, or a number from which on they lie; or a word of prose.

    Attributes:
        column: its name.
        level: how many records have it.
        value: the category, number or word.
    """

    column: str
    level: int
    value: str | float


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Pairs of neighbours with m planted records against one unit more, for every m below the last level.

    Attributes:
        name: of the kind of planted values.
        finds: the fault that it aims at, in words.
        marks: what the records of the probing data set have in common, by level.
        rows: records without a planted value, and after the first `filler` of them the planted ones.
        filler: how many records have no planted value.
        levels: the number of levels.
        novel: the columns in which the planted records have a value that no other has.
        events: that are expected.
        adjacency: of the pairs.
        copies: number of records in a unit.
    """

    name: str
    finds: str
    marks: tuple[Mark, ...]
    rows: tuple[Row, ...]
    filler: int
    levels: int
    novel: tuple[str, ...]
    events: tuple[Event, ...]
    adjacency: Adjacency
    copies: int

    @property
    def target(self) -> Row:
        """A planted record."""
        return self.rows[self.filler]

    def pair(self, level: int) -> NeighboringData:
        """The pair whose D has so many planted records."""
        kept = self.filler - self.copies * (self.adjacency is Adjacency.REPLACE_ONE)
        return NeighboringData(
            pair_name(self.name, level),
            self.finds,
            self.rows[: self.filler + level],
            (*self.rows[:kept], *self.rows[self.filler : self.filler + level + self.copies]),
            self.target,
            self.novel,
            self.events,
            planted=level,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A probing data set, and its ladders.

    Attributes:
        data: the data set.
        ladders: at least one.
    """

    data: tuple[Row, ...]
    ladders: tuple[Ladder, ...]


def pair_name(ladder: str, level: int) -> str:
    """The name of the pair of a ladder whose D has so many planted records."""
    return f"{ladder}_{level}"


def edge(published: Mapping[int, Sequence[bool]]) -> int | None:
    """The level at which a pair should be made, from what several runs published at each level from 1 on.

    That is the largest m such that nothing of any level up to m was ever published, if something was at m + 1.

    Returns:
        m, from 1 to the last level but one; None if there is no such edge.
    """
    never = 0
    for level in sorted(published):
        if any(published[level]):
            return never or None
        never = level
    return None


def probe(sample: Sample, rng: np.random.Generator, names: Sequence[str] | None = None) -> Probe | None:
    """The probe of a sample with all ladders, or those named, that apply; None if none does. `rng` is of public
    choices, such as made-up words.

    Every level has its records of categories and words together; planted numbers have records of their own.
    """
    most = _levels(len(sample.rows))
    shared: list[dict[str, Any]] = [{} for _ in range(most)]
    own: list[dict[str, Any]] = [{} for _ in range(most)]
    planted: dict[str, list[Mark]] = {}
    for name, kind in _LADDERS.items():
        if names is None or name in names:
            marks = kind.plant(sample, rng, own if name == RANGE else shared)
            if len({mark.level for mark in marks}) >= _LEAST_LEVELS:
                planted[name] = marks
    if not planted:
        return None
    records = [cells for level, cells in enumerate(shared, 1) if cells for _ in range(level)]
    records += [cells for cells in own if cells]
    filler = _filler(sample, len(records))
    ids = NewIds(sample)
    data = ids.given_to((*filler, *({**sample.usual, **cells} for cells in records)))
    ladders = (_ladder(sample, name, marks, len(data)) for name, marks in planted.items())
    return Probe(data, tuple(ladders))


def _levels(records: int) -> int:
    """So many levels that planted records are at most twice as many as the records of a data set."""
    allowed = 2 * max(records, _RECORDS)
    return next(level for level in range(MAX_LEVEL, 0, -1) if level * (level + 1) // 2 + level <= allowed)


def _filler(sample: Sample, planted: int) -> tuple[Row, ...]:
    """Records without planted values: as many as fill the data set up, or a quarter of it, again and again."""
    count = max(len(sample.rows) - planted, len(sample.rows) // 4, sample.copies + 2)
    return tuple(itertools.islice(itertools.cycle(sample.rows), count))


def _ladder(sample: Sample, name: str, marks: Sequence[Mark], size: int) -> Ladder:
    """The ladder of planted values in a data set of about this size."""
    levels = max(mark.level for mark in marks)
    planted = levels + sample.copies
    filler = tuple(itertools.islice(itertools.cycle(sample.rows), max(size - planted, sample.copies + 2)))
    facts = {column.name: column for column in sample.columns}
    target, novel, events = dict(sample.usual), list[str](), list[Event]()
    for mark in marks:
        if mark.level != 1:
            continue
        column = facts[mark.column]
        target[mark.column] = _cell(sample, column, mark, name)
        if name == VOCABULARY:
            events.append(Event(f"{mark.column}: texts with a new word of the target", 1.0))
        elif name == THRESHOLD:
            novel.append(mark.column)
    if name == THRESHOLD:
        events = [Event("novel values of the target", 1.0)]
    if name == RANGE:
        events = [Event(f"{column}{TOWARD}", 1.0) for column in ("", *(f"{mark.column}: " for mark in marks[:1]))]
    rows = NewIds(sample).given_to((*filler, *(dict(target) for _ in range(planted))))
    return Ladder(
        name, FINDS[name], tuple(marks), rows, len(filler), levels, tuple(novel), tuple(events), sample.adjacency,
        sample.copies,
    )  # fmt: skip


def _cell(sample: Sample, column: ColumnFacts, mark: Mark, name: str) -> Any:
    """The cell of a planted record of a ladder."""
    if name == VOCABULARY:
        return _with_word(sample.usual[column.name], str(mark.value), column)
    if name == RANGE:
        return column.written(column.extreme(FAR))
    return column.cell_of(str(mark.value))


def _plant_categories(sample: Sample, rng: np.random.Generator, cells: list[dict[str, Any]]) -> list[Mark]:
    """Gives the records of each level new categories."""
    marks = []
    for column in sample.of_kind("category"):
        if column.writer is not None:
            continue  # two numbers, such as 0 and 1, or only one
        seen = dict.fromkeys(column.new_words(rng))
        for level, word in zip(range(1, len(cells) + 1), seen, strict=False):
            cells[level - 1][column.name] = column.cell_of(word)
            marks.append(Mark(column.name, level, word))
    return marks


def _plant_words(sample: Sample, rng: np.random.Generator, cells: list[dict[str, Any]]) -> list[Mark]:
    """Gives the prose of each level a made-up word."""
    marks = []
    for column in sample.of_kind("text"):
        for level, level_cells in enumerate(cells, 1):
            word = made_up_word(rng)
            level_cells[column.name] = _with_word(sample.usual[column.name], word, column)
            marks.append(Mark(column.name, level, word))
    return marks


def _plant_numbers(sample: Sample, rng: np.random.Generator, cells: list[dict[str, Any]]) -> list[Mark]:
    """Gives one record each of a chain of numbers beyond all others; m of them are at least the m-th largest.

    All are so far out that public limits leave out all or none, and so far apart that noise inside a range does not
    hide which of them the range reaches.
    """
    marks, levels = list[Mark](), min(len(cells), _RANGE_LEVELS)
    for column in sample.of_kind("number"):
        chain = [column.high + FAR * column.width * _FARTHER**index for index in range(levels)]
        if column.writer is None or column.domain is not None or chain[-1] > column.most or column.is_truth:
            continue
        for index, (before, number) in enumerate(itertools.pairwise((column.high, *chain))):
            cells[index][column.name] = column.written(number)
            marks.append(Mark(column.name, levels - index, (before + number) / 2))
    return sorted(marks, key=lambda mark: mark.level)


def _with_word(text: Any, word: str, column: ColumnFacts) -> str:
    usual = "" if column.is_missing(text) else str(text)
    return " ".join(part for part in (word, usual, word) if part)


THRESHOLD: Final = "threshold"
RANGE: Final = "trimmed_range"
VOCABULARY: Final = "vocabulary"


class _Planting(NamedTuple):
    """How values are planted, and in words: what the records of a pair have, and the faults that it aims at."""

    plant: Callable[..., list[Mark]]
    records: str
    finds: str


_LADDERS: Final[dict[str, _Planting]] = {
    THRESHOLD: _Planting(
        _plant_categories,
        "have categories that no other has",
        "categories that are published from some number of records on",
    ),
    RANGE: _Planting(
        _plant_numbers,
        "have numbers ten times the range beyond all others",
        "ranges that some number of extreme records move, such as quantiles of the data",
    ),
    VOCABULARY: _Planting(
        _plant_words, "have a word that no other has", "words that are published from some number of records on"
    ),
}

FINDS: Final[dict[str, str]] = {name: kind.finds for name, kind in _LADDERS.items()}
"""The ladders by name, and the fault that each aims at."""

PLANTED: Final[dict[str, str]] = {name: kind.records for name, kind in _LADDERS.items()}
"""In words, what the planted records of each ladder have."""
