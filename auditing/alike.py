"""Whether the cells of source and holdout are of one kind, as they are if coins put each unit into one of them.

If one side writes yes and the other Y, or the ids of one side are larger, then every attack tells the sides apart by
that, whatever the generator did, and the bound that follows is wrong. So each column is tested: how many of its cells
are missing, are written in each form, hold each word, and lie in each half of its numbers. Of texts, each sign and each
word is tested: how many units hold it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dpassay.audits.statistics.one_run import hypergeometric_tail
from dpassay.base.arrays import Floats
from dpassay.data.columns import Column, meanings, word_of

LEVEL = 1e-6
"""The probability, at most, with which fair coins make some column of the two sides differ so much."""
FEWEST = 20
"""Cells that are alike, of which fair coins put all on one side with about this probability."""

_LETTERS, _DIGITS = re.compile(r"[^\W\d_]+"), re.compile(r"\d+")


def unlike(
    columns: Sequence[Column],
    source: Sequence[Mapping[str, Any]],
    holdout: Sequence[Mapping[str, Any]],
    numbers: Mapping[str, Floats] = MappingProxyType({}),
) -> tuple[str, ...]:
    """The names of the columns in which two sides differ by more than chance explains.

    Args:
        columns: what they hold on both sides.
        source, holdout: one row of each unit.
        numbers: of the rows of source, then holdout, for columns of which they are known; NaN where there is none.
    """
    tests = [
        (column.name, counts)
        for column in columns
        for counts in _counts(
            column,
            [row.get(column.name) for row in (*source, *holdout)],
            len(source),
            numbers.get(column.name),
        )
    ]
    return _unlikely(tests, len(source), len(holdout))


def unlike_texts(source: Iterable[Iterable[str]], holdout: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The signs and words that so different numbers of units of two sides hold that chance does not explain it.

    A word is what stands between spaces, and a sign is a character. Words are private; the number of them is what may
    be shown.

    Args:
        source, holdout: the texts of each unit.
    """
    (here, size), (there, other) = _signs_and_words(source), _signs_and_words(holdout)
    return _unlikely([(trait, (here[trait], there[trait])) for trait in here | there], size, other)


def _signs_and_words(units: Iterable[Iterable[str]]) -> tuple[Counter[str], int]:
    """In how many units each of them occurs, and the number of units."""
    counts, size = Counter[str](), 0
    for texts in units:
        counts.update(set[str]().union(*((*text, *text.split()) for text in texts)))
        size += 1
    return counts, size


def _unlikely(tests: Sequence[tuple[str, tuple[int, int]]], size: int, other: int) -> tuple[str, ...]:
    """The names of the tests whose counts on sides of these sizes fair coins hardly give, jointly at `LEVEL`."""
    kept = [(name, counts) for name, counts in tests if sum(counts) >= FEWEST]
    level = LEVEL / (2 * max(1, len(kept)))
    return tuple(
        dict.fromkeys(
            name
            for name, (here, there) in kept
            if hypergeometric_tail(here, size + other, size, here + there) < level
            or hypergeometric_tail(there, size + other, other, here + there) < level
        )
    )


def _counts(column: Column, cells: Sequence[Any], size: int, numbers: Floats | None) -> Iterator[tuple[int, int]]:
    """How many of the first `size` cells, and how many of the others, are alike, for each way to be alike."""
    if numbers is None:
        numbers = np.array([column.number(cell) if column.form else None for cell in cells], dtype=np.float64)
    measured = ~np.isnan(numbers)
    if measured.any():
        high = numbers > np.median(numbers[measured])
        for half in (measured & ~high, high):
            yield int(np.count_nonzero(half[:size])), int(np.count_nonzero(half[size:]))
    sides: tuple[Counter[Hashable], Counter[Hashable]] = Counter(), Counter()
    known: dict[Hashable, tuple[Hashable, ...]] = {}
    for index in np.flatnonzero(~measured).tolist():
        cell = cells[index]
        key = (type(cell), cell)
        if key not in known:
            known[key] = _traits(column, cell)
        sides[index >= size].update(known[key])
    for trait in sides[0] | sides[1]:
        yield sides[0][trait], sides[1][trait]


def _traits(column: Column, cell: Any) -> tuple[Hashable, ...]:
    """In what a cell that is no number of the column may be like others."""
    if column.is_missing(cell):
        return ("missing",)
    word = word_of(cell)
    return ("form", meanings(cell)[0]), ("word", word), ("shape", _DIGITS.sub("0", _LETTERS.sub("a", word)))
