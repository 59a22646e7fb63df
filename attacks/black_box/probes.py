"""A probe: one data set that shows from how many records on a generator publishes what they have in common.

The probing data set holds planted values that no other record has: one record with the first new category, two with
the second, and so on; likewise words in prose; groups of records whose numbers are equal and far from all others; and
numbers that lie ever farther beyond all others, and ever longer texts, one record each, so that m records reach the
m-th largest. A few runs on it show which of these the generator publishes always, sometimes and never. A *ladder* has,
for every number m of such records, a pair of neighbours: m records against one unit more. The runs choose one pair of
each ladder, at the edge between what is published and what is not.

The runs of a probe are pilot runs. No bound counts them, so they may choose whatever they like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.column_facts import ColumnFacts, Row, made_up_word
from dpassay.attacks.black_box.extreme_values import FAR, LONG, NEAR
from dpassay.attacks.black_box.neighboring_data import NeighboringData, NewIds, Sample
from dpassay.attacks.black_box.output_events import TOWARD, Event

MAX_LEVEL: Final = 25
"""The most records that have a planted value in common."""
_LEAST_LEVELS = 3
_RECORDS = 60  # for so many records or fewer, the probing data set has planted values as for so many
_FEWER_LEVELS = 12  # of ranges, lengths and groups
_FARTHER = 1.5  # how many times as far beyond all others a planted number lies as the one before
_LONGER = 1.1  # how many times as long a planted text is as the one before
_GROUPS = NEAR, 0.9 * FAR  # the nearest and the farthest group, in widths beyond all others


class Mark(NamedTuple):
    """What the records of one level have in a column: a cell, or a number from which on they lie; in prose a word, or a
    number of characters from which on texts are as long.

    Attributes:
        column: its name.
        level: how many records have it.
        value: the category, number or word.
        until: the number up to which they lie; None if there is no end.
    """

    column: str
    level: int
    value: str | float
    until: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Pairs of neighbours with m planted records against one unit more, for every m below the last level.

    Attributes:
        name: of the kind of planted values.
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

    Every level has its records of categories and words together; planted numbers and long texts have records of their
    own, and so have groups.
    """
    most = _levels(len(sample.rows))
    cells: dict[_Records, list[dict[str, Any]]] = {
        "shared": [{} for _ in range(most)],
        "grouped": [{} for _ in range(_groups(len(sample.rows)))],
        "single": [{} for _ in range(min(most, _FEWER_LEVELS))],
    }
    planted: dict[str, list[Mark]] = {}
    for name, kind in _LADDERS.items():
        if names is None or name in names:
            marks = kind.plant(sample, rng, cells[kind.records])
            if len({mark.level for mark in marks}) >= _LEAST_LEVELS:
                planted[name] = marks
    if not planted:
        return None
    records = [
        level_cells
        for own, levels in cells.items()
        for level, level_cells in enumerate(levels, 1)
        if level_cells
        for _ in range(1 if own == "single" else level)
    ]
    filler = _filler(sample, len(records))
    ids = NewIds(sample)
    data = ids.given_to((*filler, *({**sample.usual, **of_record} for of_record in records)))
    ladders = (_ladder(sample, name, marks, len(data)) for name, marks in planted.items())
    return Probe(data, tuple(ladders))


def _levels(records: int) -> int:
    """So many levels that planted records are at most twice as many as the records of a data set."""
    allowed = 2 * max(records, _RECORDS)
    return next(level for level in range(MAX_LEVEL, 0, -1) if level * (level + 1) // 2 + level <= allowed)


def _groups(records: int) -> int:
    """So many groups that their records are at most half as many as those of a data set."""
    allowed = max(records, _RECORDS) // 2
    return next(level for level in range(_FEWER_LEVELS, 0, -1) if level * (level + 1) // 2 <= allowed)


def _filler(sample: Sample, planted: int) -> tuple[Row, ...]:
    """Records without planted values: as many as fill the data set up, or a quarter of it, again and again."""
    count = max(len(sample.rows) - planted, len(sample.rows) // 4, sample.copies + 2)
    return tuple(itertools.islice(itertools.cycle(sample.rows), count))


def _ladder(sample: Sample, name: str, marks: Sequence[Mark], size: int) -> Ladder:
    """The ladder of planted values in a data set of about this size."""
    levels = max(mark.level for mark in marks)
    planted = levels + sample.copies
    filler = tuple(itertools.islice(itertools.cycle(sample.rows), max(size - planted, sample.copies + 2)))
    facts, kind = {column.name: column for column in sample.columns}, _LADDERS[name]
    first = [mark for mark in marks if mark.level == 1]
    target = {
        **sample.usual,
        **{mark.column: kind.cell(sample, facts[mark.column], str(mark.value)) for mark in first},
    }
    rows = NewIds(sample).given_to((*filler, *(dict(target) for _ in range(planted))))
    return Ladder(
        name,
        tuple(marks),
        rows,
        len(filler),
        levels,
        tuple(mark.column for mark in first) if name == THRESHOLD else (),
        tuple(kind.events([facts[mark.column] for mark in first])),
        sample.adjacency,
        sample.copies,
    )


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

    All are so far out that public limits leave out all or none, farther than groups, and so far apart that noise inside
    a range does not hide which of them the range reaches.
    """
    marks, levels = list[Mark](), len(cells)
    for column in _unlimited(sample, FAR * _FARTHER ** (levels - 1)):
        chain = [column.high + FAR * column.width * _FARTHER**index for index in range(levels)]
        nearer = column.high + _GROUPS[1] * column.width
        for index, (before, number) in enumerate(itertools.pairwise((nearer, *chain))):
            cells[index][column.name] = column.written(number)
            marks.append(Mark(column.name, levels - index, (before + number) / 2))
    return sorted(marks, key=lambda mark: mark.level)


def _plant_groups(sample: Sample, rng: np.random.Generator, cells: list[dict[str, Any]]) -> list[Mark]:
    """Gives the records of each level the same numbers, far from those of all others.

    The order of groups differs from column to column, so that they are apart in several at once.
    """
    marks, levels = list[Mark](), len(cells)
    near, far = _GROUPS
    step = (far - near) / max(levels - 1, 1)
    for column in _unlimited(sample, far):
        for level, position in enumerate(rng.permutation(levels), 1):
            cell = column.written(column.high + (near + step * position) * column.width)
            number = column.value(cell)
            assert isinstance(number, float)
            cells[level - 1][column.name] = cell
            half = step * column.width / 4
            marks.append(Mark(column.name, level, number - half, number + half))
    return sorted(marks, key=lambda mark: mark.level)


def _unlimited(sample: Sample, far: float) -> list[ColumnFacts]:
    """The columns of numbers that hold numbers so many widths beyond all others, as no public domain forbids."""
    return [
        column
        for column in sample.of_kind("number")
        if column.writer is not None and column.domain is None and not column.is_truth
        if column.high + far * column.width <= column.most
    ]


def _plant_lengths(sample: Sample, rng: np.random.Generator, cells: list[dict[str, Any]]) -> list[Mark]:
    """Gives one record each of a chain of ever longer texts; m of them are at least as long as the m-th longest.

    The longest one is about as long as that of `longest_text`, which a generator must take as well.
    """
    marks, levels = list[Mark](), len(cells)
    for column in sample.of_kind("text"):
        others = len(_with_word(_text_of_length(column, _longest(column)), made_up_word(rng), column))
        lengths = [round(LONG * others / _LONGER**index) for index in reversed(range(levels))]
        for index, (before, length) in enumerate(itertools.pairwise((others, *lengths))):
            cells[index][column.name] = _text_of_length(column, length)
            marks.append(Mark(column.name, levels - index, (before + length) / 2))
    return sorted(marks, key=lambda mark: mark.level)


def _longest(column: ColumnFacts) -> int:
    """The number of characters of the longest text, or of a word if there is none."""
    return max(map(len, map(str, column.cells.values())), default=0) or len(_NO_TEXT)


def _text_of_length(column: ColumnFacts, length: int) -> str:
    """A text of so many characters, the longest one again and again."""
    longest = max(map(str, column.cells.values()), key=len, default=_NO_TEXT) or _NO_TEXT
    text = " ".join(itertools.repeat(longest, length // len(longest) + 1))[:length]
    return text if text[-1] != " " else f"{text[:-1]}."


def _with_word(text: Any, word: str, column: ColumnFacts) -> str:
    usual = "" if column.is_missing(text) else str(text)
    return " ".join(part for part in (word, usual, word) if part)


THRESHOLD: Final = "threshold"
RANGE: Final = "trimmed_range"
GROUPS: Final = "group_size"
VOCABULARY: Final = "vocabulary"
LENGTH: Final = "trimmed_length"
_NO_TEXT: Final = "text"


_Records: TypeAlias = Literal["shared", "grouped", "single"]
"""Which records have planted values: m of level m, together with other values or on their own; or one of each level."""


class _Planting(NamedTuple):
    """How values are planted, the cells of the records of a pair, and their events; and in words: what these records
    have, and the faults that the pair aims at."""

    plant: Callable[[Sample, np.random.Generator, list[dict[str, Any]]], list[Mark]]
    records: _Records
    cell: Callable[[Sample, ColumnFacts, str], Any]
    events: Callable[[Sequence[ColumnFacts]], list[Event]]
    have: str
    finds: str


def _toward(columns: Sequence[ColumnFacts]) -> list[Event]:
    return [Event(f"{column}{TOWARD}", 1.0) for column in ("", f"{columns[0].name}: ")]


def _far(sample: Sample, column: ColumnFacts, value: str) -> Any:
    return column.written(column.extreme(FAR))


_LADDERS: Final[dict[str, _Planting]] = {
    THRESHOLD: _Planting(
        _plant_categories,
        "shared",
        lambda sample, column, word: column.cell_of(word),
        lambda columns: [Event("novel values of the target", 1.0)],
        "have categories that no other has",
        "categories that are published from some number of records on",
    ),
    RANGE: _Planting(
        _plant_numbers,
        "single",
        _far,
        _toward,
        "have numbers ten times the range beyond all others",
        "ranges that some number of extreme records move, such as quantiles of the data",
    ),
    GROUPS: _Planting(
        _plant_groups,
        "grouped",
        _far,
        _toward,
        "have the same numbers, ten times the range beyond all others",
        "groups of similar records that are published from some size on, such as clusters",
    ),
    VOCABULARY: _Planting(
        _plant_words,
        "shared",
        lambda sample, column, word: _with_word(sample.usual[column.name], word, column),
        lambda columns: [Event(f"{column.name}: texts with a new word of the target", 1.0) for column in columns],
        "have a word that no other has",
        "words that are published from some number of records on",
    ),
    LENGTH: _Planting(
        _plant_lengths,
        "single",
        lambda sample, column, value: _text_of_length(column, LONG * _longest(column)),
        lambda columns: [
            Event(f"{column.name}: characters of the longest text", 2.0 * _longest(column)) for column in columns
        ],
        "have a text ten times as long as the longest of all others",
        "lengths of texts that some number of long texts move, such as quantiles of the data",
    ),
}

FINDS: Final[dict[str, str]] = {name: kind.finds for name, kind in _LADDERS.items()}
"""The ladders by name, and the fault that each aims at."""

PLANTED: Final[dict[str, str]] = {name: kind.have for name, kind in _LADDERS.items()}
"""In words, what the planted records of each ladder have."""
