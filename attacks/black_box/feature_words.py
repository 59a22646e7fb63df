"""Events in words, and how plain they are: of events that tell two data sets apart equally well, the plainest names the
cause.

The number of rows is plainer than a value that occurs, that than a range, that than a count, that than a mean, and all
are plainer than what is composed of several columns.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Final

from dpassay.attacks.black_box.output_events import (
    EQUAL,
    EXCHANGED,
    NEARER,
    REACHED,
    SHARE,
    SHOWN,
    TOGETHER,
    TOWARD,
    Event,
)
from dpassay.attacks.black_box.output_features import FAILED, LESS, MORE, PAIR
from dpassay.attacks.black_box.row_order import CHANGES, DESCENTS, FIRST, LAST, PLACE
from dpassay.base.number_format import format_number


class Plainness(enum.IntEnum):
    """What an event is about, the plainest first."""

    ROWS = 0
    """Whether there is an output, and how many rows it has."""
    VALUE = 1
    """Whether one column has a value of the target."""
    RANGE = 2
    """The ends of a range."""
    COUNT = 3
    """How often something occurs in one column."""
    STATISTIC = 4
    """A mean or a deviation."""
    COMPOSED = 5
    """Something of several columns."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of feature, with ``{}`` for the name of the column.

    Attributes:
        plainness: of its events.
        is_least: that it is at least a number ``{n}``, in words.
        once: that it is at least 1, in words; empty if these are no other ones. Then the event is about a value.
        is_equal: that it is what it is of the data, in words; empty if that says nothing.
        whole: whether it counts something.
    """

    plainness: Plainness
    is_least: str
    once: str = ""
    is_equal: str = ""
    whole: bool = True


LEVELS: Final = {
    REACHED: "the number of columns in which the target shows",
    EXCHANGED: "the number of signs, two a column, that the target is there and the record that it replaces is not",
}
"""Features all values of which are bet on, in words."""

_OF_OUTPUTS: Final = {
    FAILED: _Kind(Plainness.ROWS, "the run fails"),
    "rows": _Kind(
        Plainness.ROWS,
        "the output has at least {n} rows",
        "the output has a row",
        "the number of rows equals the number of records",
    ),
    "novel values of the target": _Kind(
        Plainness.COMPOSED,
        "at least {n} cells have values of the target that no record of D has",
        "a cell has a value of the target that no record of D has",
    ),
    TOWARD: _Kind(
        Plainness.COMPOSED,
        "at least {n} numbers are nearer to the target's than to those of D",
        "a number is nearer to the target's than to those of D",
    ),
    SHOWN: _Kind(Plainness.COMPOSED, "the target shows in at least {n} columns", "the target shows in a column"),
    REACHED: _Kind(
        Plainness.COMPOSED,
        "the target shows in at least {n} columns, its numbers or numbers farther out among them",
        "the target, or a number as far out, shows in a column",
    ),
    EXCHANGED: _Kind(
        Plainness.COMPOSED,
        "at least {n} signs are there, two a column: that it shows the target, and that it lacks the record which the "
        "target replaces",
        "a column shows the target, or lacks the record that it replaces",
    ),
    "rows equal to the target": _Kind(
        Plainness.COMPOSED, "at least {n} rows equal the target", "a row equals the target"
    ),
    "most cells of a row equal to the target's": _Kind(
        Plainness.COMPOSED, "a row has at least {n} of the target's values", "a row has one of the target's values"
    ),
    "empty cells": _Kind(
        Plainness.COMPOSED,
        "at least {n} cells are empty",
        "a cell is empty",
        "the number of empty cells equals that of the data",
    ),
    "other columns": _Kind(
        Plainness.COMPOSED,
        "at least {n} columns are missing, or are none of the data",
        "a column is missing, or is none of the data",
    ),
    "distinct rows": _Kind(
        Plainness.COMPOSED,
        "the output has at least {n} different rows",
        is_equal="the number of different rows equals that of the data",
    ),
    "nearness of the nearest row": _Kind(
        Plainness.COMPOSED, "the nearness of the row nearest to the target is at least {n}", whole=False
    ),
    "pairs of the target's values": _Kind(
        Plainness.COMPOSED, "the score for pairs of the target's values is at least {n}", whole=False
    ),
    **{
        name: _Kind(
            Plainness.COMPOSED,
            f"at least {{n}} combinations of {size} values of the target occur in a row",
            f"a combination of {size} values of the target occurs in a row",
        )
        for size, name in TOGETHER.items()
    },
    MORE: _Kind(Plainness.COMPOSED, "a column has the target's value at least {n} times more often than D"),
    LESS: _Kind(Plainness.COMPOSED, "a column has the target's value at least {n} times less often than D"),
    FIRST: _Kind(
        Plainness.COMPOSED,
        "the first row has at least {n} of the target's values",
        "the first row has one of the target's values",
    ),
    LAST: _Kind(
        Plainness.COMPOSED,
        "the last row has at least {n} of the target's values",
        "the last row has one of the target's values",
    ),
    PLACE: _Kind(
        Plainness.COMPOSED,
        "at least a share of {n} of the rows comes before the first that is most like the target",
        whole=False,
    ),
    CHANGES: _Kind(
        Plainness.COMPOSED, "at least a share of {n} of the cells differs from that of the row before", whole=False
    ),
    DESCENTS: _Kind(
        Plainness.COMPOSED,
        "at least a share of {n} of the numbers is smaller than that of the row before",
        whole=False,
    ),
}
"""By the name of a feature of a whole output."""

_OF_COLUMNS: Final = {
    "empty cells": _Kind(
        Plainness.COUNT,
        "at least {n} cells of column {} are empty",
        "column {} has an empty cell",
        "column {} has as many empty cells as in the data",
    ),
    EQUAL: _Kind(
        Plainness.COUNT, "at least {n} cells of column {} have the target's value", "column {} has the target's value"
    ),
    "texts with a new word of the target": _Kind(
        Plainness.COUNT,
        "at least {n} texts of column {} have a word that only the target has",
        "a text of column {} has a word that only the target has",
    ),
    "texts equal to the target's": _Kind(
        Plainness.COUNT, "at least {n} texts of column {} are the target's", "column {} has the target's text"
    ),
    "word triples of the target": _Kind(
        Plainness.COUNT,
        "column {} has at least {n} sequences of three words of the target",
        "column {} has three successive words of the target",
    ),
    "largest": _Kind(
        Plainness.RANGE,
        "the largest value of column {} is at least {n}",
        is_equal="the largest value of column {} equals that of the data",
        whole=False,
    ),
    "smallest": _Kind(
        Plainness.RANGE,
        "the smallest value of column {} is at least {n}",
        is_equal="the smallest value of column {} equals that of the data",
        whole=False,
    ),
    TOWARD: _Kind(
        Plainness.RANGE,
        "at least {n} numbers of column {} are nearer to the target's than to those of D",
        "a number of column {} is nearer to the target's than to those of D",
    ),
    "characters of the longest text": _Kind(
        Plainness.RANGE,
        "the longest text of column {} has at least {n} characters",
        is_equal="the longest text of column {} is as long as that of the data",
    ),
    "distinct values": _Kind(
        Plainness.COUNT,
        "column {} has at least {n} different values",
        is_equal="column {} has as many different values as in the data",
    ),
    "characters": _Kind(
        Plainness.STATISTIC,
        "the texts of column {} have at least {n} characters",
        is_equal="the texts of column {} have as many characters as in the data",
    ),
    SHARE: _Kind(
        Plainness.STATISTIC, "at least a share of {n} of the cells of column {} has the target's value", whole=False
    ),
    NEARER: _Kind(
        Plainness.STATISTIC,
        "at least a share of {n} of the numbers of column {} is nearer to the target's than to the middle of D",
        whole=False,
    ),
    "mean": _Kind(
        Plainness.STATISTIC,
        "the mean of column {} is at least {n}",
        is_equal="the mean of column {} equals that of the data",
        whole=False,
    ),
    "deviation": _Kind(
        Plainness.STATISTIC,
        "the standard deviation of column {} is at least {n}",
        is_equal="the standard deviation of column {} equals that of the data",
        whole=False,
    ),
}
"""By the end of the name of a feature of one column; the plainest of the same plainness first."""

_ORDER: Final = [*_OF_OUTPUTS.values(), *_OF_COLUMNS.values()]
_PAIR: Final = _Kind(
    Plainness.COMPOSED, "at least {n} rows have the target's {} together", "a row has the target's {} together"
)
_OTHER: Final = _Kind(Plainness.COMPOSED, "“{}” is at least {n}", whole=False)


def _kind(feature: str) -> tuple[_Kind, str]:
    """The kind of a feature, and the name of its column."""
    if feature in _OF_OUTPUTS:
        return _OF_OUTPUTS[feature], ""
    if feature.startswith(PAIR):
        return _PAIR, feature.removeprefix(PAIR)
    column, _, end = feature.rpartition(": ")
    if end in _OF_COLUMNS and column:
        return _OF_COLUMNS[end], repr(column)
    return _OTHER, feature


def plainness(event: Event, copied: bool = False) -> tuple[float, int]:
    """How plain an event is, the smallest first: by what it is about, then by its feature.

    Args:
        event: the event.
        copied: whether its feature is, in all runs, what it is of the data that were read. Where the largest number is
            always that of the data, the range is the cause, and not that the target's number occurs. In a column that
            repeats the mean of the data, the mean is the cause, and not the largest value.
    """
    kind, _ = _kind(event.feature)
    about: float = kind.plainness
    if kind.once and event.threshold <= 1 and about == Plainness.COUNT:
        about = Plainness.VALUE
    elif copied and about > Plainness.VALUE:
        about = Plainness.VALUE + (-0.5 if about == Plainness.RANGE and not kind.whole else 0.5)
    return about, _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def plain_threshold(event: Event, below: float) -> Event:
    """The same event with threshold 1, “there is one”, if its feature counts something and no run had a number of at
    least 1 and below the threshold; `below` is the largest number below the threshold that was seen."""
    kind, _ = _kind(event.feature)
    return Event(event.feature, 1.0) if kind.once and kind.whole and below < 1 < event.threshold else event


def in_words(event: Event) -> str:
    """An event as a clause."""
    kind, column = _kind(event.feature)
    if kind.once and event.threshold <= 1:
        return kind.once.format(column)
    number = math.ceil(event.threshold) if kind.whole and math.isfinite(event.threshold) else event.threshold
    return kind.is_least.format(column, n=format_number(number))


def copied_in_words(feature: str) -> str:
    """That a feature is what it is of the data, as a clause; empty if that says nothing."""
    kind, column = _kind(feature)
    return kind.is_equal.format(column)
