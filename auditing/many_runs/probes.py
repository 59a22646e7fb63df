"""The data sets of a probe by their numbers, and its part of a plan.

The data sets of a pair of a ladder are made when a probe has chosen it: after the numbers of the data sets that are
written with the plan, each pair of each ladder has two numbers of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pydantic import Field, FiniteFloat

from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.probes import FINDS, MAX_LEVEL, PLANTED, Ladder, Mark, Probe, pair_name
from dpassay.auditing.files import Part
from dpassay.audits.games.many_runs_design import Pair, PairLadder, ProbePlan


class PlannedMark(Part):
    """What planted records of one level have in a column."""

    column: str
    level: int = Field(ge=1, le=MAX_LEVEL)
    value: FiniteFloat | str
    until: FiniteFloat | None = None

    @property
    def mark(self) -> Mark:
        """The mark in the form that features take."""
        return Mark(self.column, self.level, self.value, self.until)


class LadderEvent(Part):
    """An event that is expected of a pair of a ladder."""

    feature: str
    threshold: FiniteFloat


class PlannedLadder(Part):
    """A ladder of pairs of neighbours.

    Attributes:
        name: of the kind of planted values.
        data: the data set of its records: `filler` of them without a planted value, then the planted ones.
        filler: number of records without a planted value.
        levels: number of levels.
        novel: columns in which planted records have a value that no other has.
        events: that are expected.
        marks: of the probing data set.
    """

    name: str
    data: int = Field(ge=0)
    filler: int = Field(ge=1)
    levels: int = Field(ge=2, le=MAX_LEVEL)
    novel: list[str]
    events: list[LadderEvent]
    marks: list[PlannedMark]


class PlannedProbe(Part):
    """The probing data set, and the ladders that its runs choose a pair of."""

    data: int = Field(ge=0)
    ladders: list[PlannedLadder]

    @classmethod
    def of(cls, probe: Probe, data: int) -> PlannedProbe:
        """A probe whose data set has this number, and whose ladders have the next ones."""
        return cls(
            data=data,
            ladders=[
                PlannedLadder(
                    name=ladder.name,
                    data=data + position,
                    filler=ladder.filler,
                    levels=ladder.levels,
                    novel=list(ladder.novel),
                    events=[LadderEvent(feature=event.feature, threshold=event.threshold) for event in ladder.events],
                    marks=[PlannedMark(**mark._asdict()) for mark in ladder.marks],
                )
                for position, ladder in enumerate(probe.ladders, 1)
            ],
        )

    def design(self, first: int) -> ProbePlan:
        """The probe as the game knows it, if this is the first number of a data set of a ladder."""
        return ProbePlan(
            self.data,
            tuple(
                ladder_of_pairs(
                    ladder.name,
                    ladder.levels,
                    tuple(Event(event.feature, event.threshold) for event in ladder.events),
                    position,
                    first,
                )
                for position, ladder in enumerate(self.ladders)
            ),
        )


class LadderPlace(NamedTuple):
    """Which data set of a ladder a number means: the position of the ladder, the planted records of D, and whether it
    is D′."""

    ladder: int
    level: int
    is_neighbor: bool


def place(number: int, first: int) -> LadderPlace:
    """What a number of a data set means, if this is the first of those of ladders."""
    pair, side = divmod(number - first, 2)
    return LadderPlace(pair // MAX_LEVEL, pair % MAX_LEVEL + 1, bool(side))


def ladder_of_pairs(name: str, levels: int, events: tuple[Event, ...], position: int, first: int) -> PairLadder:
    """The pairs of a ladder, with the numbers of their data sets."""
    pairs = []
    for level in range(1, levels):
        number = first + 2 * (position * MAX_LEVEL + level - 1)
        differs = f"D: {level} records {PLANTED[name]}. D′: one unit more of them."
        pairs.append(Pair(pair_name(name, level), number, number + 1, events, FINDS[name], differs))
    return PairLadder(name, tuple(pairs))


class ProbeRows:
    """The records of the data sets of a probe that the audit of a function needs, by their numbers.

    Args:
        probe: the probe.
        data: the number of the probing data set; those of ladders follow.
    """

    def __init__(self, probe: Probe, data: int) -> None:
        self._probe, self._data = probe, data

    @property
    def design(self) -> ProbePlan:
        """The probe as the game knows it."""
        ladders = (
            ladder_of_pairs(ladder.name, ladder.levels, ladder.events, position, self._data + 1)
            for position, ladder in enumerate(self._probe.ladders)
        )
        return ProbePlan(self._data, tuple(ladders))

    def names(self, number: int) -> list[str]:
        """The ladders of the probing data set, or the pair of a data set of a ladder."""
        if number == self._data:
            return [ladder.name for ladder in self._probe.ladders]
        at = place(number, self._data + 1)
        return [pair_name(self._probe.ladders[at.ladder].name, at.level)]

    def rows(self, number: int) -> Sequence[Row]:
        """The records of a data set."""
        if number == self._data:
            return self._probe.data
        return ladder_rows(number, self._data + 1, lambda position: self._probe.ladders[position])


def ladder_rows(number: int, first: int, ladder: Callable[[int], Ladder]) -> Sequence[Row]:
    """The records of a data set of a ladder, of which each is made by its position."""
    at = place(number, first)
    pair = ladder(at.ladder).pair(at.level)
    return pair.neighbor if at.is_neighbor else pair.data


def marks_of(ladders: Sequence[Ladder]) -> dict[str, tuple[Mark, ...]]:
    """The marks of ladders by name, as features take them."""
    return {ladder.name: ladder.marks for ladder in ladders}


def pair_named(name: str, ladders: Sequence[Ladder]) -> NeighboringData:
    """The pair of one of these ladders that has this name (`pair_name`)."""
    kind, _, level = name.rpartition("_")
    return next(ladder for ladder in ladders if ladder.name == kind).pair(int(level))
