"""What was understood of the columns of some files, for people: shown before anything is concluded from them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dpassay.base.number_format import format_percent
from dpassay.data.columns import MARKS, NEARLY, Column, ColumnReader, Kind

MISSING = 0.05
"""A share of missing cells above which the others of a pair of files should have some, too."""
_UNIT = "[%\u2030\u00b0$\u20ac\u00a3\u00a5\u20b9]"
_WITH_SIGNS = re.compile(
    rf"\(?[-+\u2212\u2013]?\s?({_UNIT}|[a-z]{{3}}\s)?\s?[-\u2212]?\d[\d.,'\u2019\s]*({_UNIT}[a-z]?|\s[a-z\u00b5]{{1,6}})?\)?"
)
_OTHER_DATE = re.compile(r"\d{1,2}([-/. ])(\d{1,2}|[a-z]{3,9})\1(\d{2}|\d{4})|[a-z]{3,9} \d{1,2}, \d{4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSummary:
    """What was understood of one column; private, since kinds and counts are those of private rows.

    Attributes:
        name: of the column.
        kind: `dpassay.data.columns.Kind` of the files that decide it.
        form: an example of how its numbers or dates are written; empty for words.
        missing: the number of missing cells, by file.
        distinct: the number of distinct words, by file; at most 10 000 are counted.
        used: whether the attacks use it.
        why: why it is used as it is, or left alone.
        warnings: one sentence each.
    """

    name: str
    kind: str
    form: str
    missing: Mapping[str, int]
    distinct: Mapping[str, int]
    used: bool
    why: str
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The summary as plain JSON types."""
        return asdict(self) | {"warnings": list(self.warnings)}


def summarised(
    column: Column, files: Mapping[str, ColumnReader], *, left: str = "", use: str = "", others: Collection[str] = ()
) -> ColumnSummary:
    """The summary of a column.

    Args:
        column: what it holds, by the files that decide it.
        files: what was read of it, by the name of the file.
        left: why it is left alone; empty if it is used.
        use: as what it is used; empty for what follows from its kind.
        others: names of the files that do not decide what it holds, such as a synthetic one.
    """
    warnings = [] if left else [*_odd(column, files), *_guess(column), *_missing(column, files)]
    if not (left or use or warnings) and _look_like_numbers(column, files):
        warnings = [
            "its cells look like numbers or dates, but are compared word by word; if they are, write them as 1200.5 or "
            "2013-05-31"
        ]
    for name in others if not left else ():
        warnings += _differs(column, files, name)
    return ColumnSummary(
        name=column.name,
        kind=str(column.kind),
        form=str(column.form or ""),
        missing={name: reader.missing(column) for name, reader in files.items()},
        distinct={name: len(reader.words) for name, reader in files.items()},
        used=not left,
        why=left or use or _use(column),
        warnings=tuple(warnings),
    )


def _use(column: Column) -> str:
    if column.kind is Kind.CONSTANT:
        return "one value, which tells no rows apart"
    if column.form is not None:
        return "measured"
    if column.kind is Kind.IDENTIFIER:
        return "compared word by word; no two rows are alike, as in an id"
    return "compared word by word"


def _odd(column: Column, files: Mapping[str, ColumnReader]) -> list[str]:
    if column.form is None:
        share = max(reader.best_share() for reader in files.values())
        if not 0.5 <= share < NEARLY or column.kind is Kind.CONSTANT:
            return []
        return [
            f"{format_percent(share, 'down')} of its cells are numbers or dates, but it is compared word by word; "
            "correct the others, or state what it holds"
        ]
    return [
        f"{count} cells of {name} are no {column.kind} as in {column.form} (rows "
        f"{', '.join(map(str, reader.odd_rows(column.form)))}) and count as missing"
        for name, reader in files.items()
        if (count := reader.odd(column))
    ]


def _look_like_numbers(column: Column, files: Mapping[str, ColumnReader]) -> bool:
    """Whether nearly all words are numbers or dates, but for a sign, a unit or a way to write them that is not read."""
    words = set().union(*(reader.words for reader in files.values())) - MARKS
    if column.form is not None or column.kind in (Kind.CONSTANT, Kind.NESTED) or not words:
        return False
    return sum(bool(_WITH_SIGNS.fullmatch(word) or _OTHER_DATE.fullmatch(word)) for word in words) >= NEARLY * len(
        words
    )


def _guess(column: Column) -> list[str]:
    if not column.also:
        return []
    return [f"read as in {column.form}; it could also be {' or '.join(column.also)}"]


def _missing(column: Column, files: Mapping[str, ColumnReader]) -> list[str]:
    shares = {name: reader.missing(column) / reader.rows for name, reader in files.items() if reader.rows}
    many = [name for name, share in shares.items() if share > MISSING]
    if not many or len(many) == len(shares):
        return []
    return [f"more than {format_percent(MISSING)} of its cells are missing in {' and '.join(many)} only"]


def _differs(column: Column, files: Mapping[str, ColumnReader], name: str) -> list[str]:
    """How the column of one file differs from what the others hold."""
    reader = files[name]
    there = reader.rows - reader.missing(column)
    if not there:
        return [f"empty in {name}"]
    if column.form is not None:
        if there == reader.odd(column):
            return [f"no cell of {name} is a {column.kind} as in {column.form}"]
        low, high = reader.ends(column.form)
        return [f"all values of {name} are outside the range of the other files"] * (
            high < column.low or low > column.high
        )
    words: set[str] = set().union(*(other.words for key, other in files.items() if key != name))
    return [] if reader.words & words else [f"no value of {name} occurs in the other files"]
