"""A synthetic file that is scored: how it is written, and how its columns match those of the data.

A generator may write its table in another way than the data are written. What its cells are is found out from this file
and the plan alone, so that a score stays a function of the synthetic data and of the candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpassay.attacks.canaries.rows import ColumnRange, Row, is_empty
from dpassay.base.progress import Step
from dpassay.data.column_names import no_column
from dpassay.data.column_summary import ColumnSummary
from dpassay.data.columns import MAX_DISTINCT, ColumnReader, Form, Kind, Rules, word_of
from dpassay.data.reader import FOUND, FileOptions
from dpassay.data.records import read_rows, read_texts

SYNTHETIC = "synthetic"
"""The name of the file, where it is said what was understood of it."""
_SHOWN = 0.05  # share of missing cells above which the data should have some, too
_EXAMPLES = {
    "number": "numbers; write them as 12124 or 0.5, without a unit",
    "date": "dates; write them as 2013-05-31",
    "time": "times; write them as 2013-05-31 12:30:00",
}
"""What cells must be, and how they are written, by the kind of their column."""


@dataclass(slots=True)
class SyntheticData:
    """A synthetic file, which counts its rows and shows progress while it is read.

    Attributes:
        path: of the file.
        text: column of the text.
        reading: how it is written; what is not stated is found out.
        names: of the columns of the data, by whose order those of this file are named; None if it names them itself.
        ignore: columns that are left out.
        marks: words that mean that a cell is missing, in any column.
        count: the number of its rows that were read last.
        columns: what was understood of its columns; empty for texts.
    """

    path: Path
    text: str
    step: Step
    total: int
    reading: FileOptions = FOUND
    names: Sequence[str] | None = None
    ignore: Collection[str] = ()
    marks: Collection[str] = ()
    count: int = 0
    columns: list[ColumnSummary] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """The text of each row."""
        self.count = 0
        for text, _ in read_texts(self.path, text=self.text, empty=True, stated=self.reading):
            self._count_row()
            yield text

    def some_texts(self) -> Iterator[str]:
        """The text of each row, one of which must not be blank.

        Raises:
            ValueError: after the last row, if all are blank.
        """
        read = False
        for text in self.texts():
            read = read or bool(text.strip())
            yield text
        if not read:
            raise ValueError(f"{self.path}: holds no text")

    def rows(self, names: Collection[str]) -> Iterator[Row]:
        """The named columns of each row.

        Raises:
            ValueError: one line, if there are no rows, or a column is missing.
        """
        self.count, there = 0, set[str]()
        for _, row in read_rows(self.path, names if self.names is None else None, self.reading):
            self._count_row()
            if self.names is not None:
                row = self._renamed(row)
            there.update(name for name in names if name in row)
            yield row
        if not self.count:
            raise ValueError(f"{self.path}: the synthetic table has no rows")
        missing = sorted(set(names) - there)
        if missing:
            raise ValueError(f"{self.path}: {no_column(missing[0], there)}, which the data of the plan have")

    def _renamed(self, row: Mapping[str, Any]) -> Row:
        assert self.names is not None
        if len(row) != len(self.names):
            raise ValueError(
                f"{self.path}: has {len(row)} columns and the data have {len(self.names)}; without names they are "
                "matched by their order, so that all of them are needed"
            )
        return dict(zip(self.names, row.values(), strict=True))

    def _count_row(self) -> None:
        self.count += 1
        if self.count % 1000 == 0:
            self.step(self.count, max(self.count, self.total))

    def written(self, columns: Sequence[ColumnRange], used: Callable[[ColumnRange], bool]) -> list[ColumnRange]:
        """The columns of the data as this file writes them; those that are left out are not compared.

        Args:
            columns: of the data.
            used: whether a column is compared, or searched.

        Raises:
            ValueError: one line, if no copy could be recognised by a column, or no column is left.
        """
        wanted = [column for column in columns if used(column)]
        unknown = [name for name in self.ignore if name not in {column.name for column in wanted}]
        if unknown:
            raise ValueError(f"--ignore {unknown[0]}: {no_column(unknown[0], [column.name for column in wanted])}")
        chosen = [column for column in wanted if column.name not in self.ignore]
        if not chosen:
            raise ValueError(f"{self.path}: no column is left that rows can be compared by; leave out fewer")
        rules = Rules(missing=self.marks, decimal=self.reading.decimal)
        readers = {column.name: ColumnReader(column.name, rules) for column in chosen}
        for row in self.rows(set(readers)):
            for name, reader in readers.items():
                cell = row.get(name)
                reader.read(None if is_empty(cell) else cell)
        results = {column.name: self._match(column, readers[column.name], rules) for column in chosen}
        self.columns = [results[column.name][1] if column.name in results else _left_out(column) for column in wanted]
        return [
            results[column.name][0] if column.name in results else replace(column, compared=False) for column in columns
        ]

    def _match(self, column: ColumnRange, reader: ColumnReader, rules: Rules) -> tuple[ColumnRange, ColumnSummary]:
        """A column of the data as this file writes it, and what was understood of it."""
        marks = tuple(sorted({*column.marks, *map(word_of, self.marks)}))
        form = _form(column, reader, rules) if column.is_measured else None
        missing = reader.missing(replace(reader.column(), form=form))
        filled = reader.rows - missing
        where = f"{self.path}: column {column.name!r}"
        instead = f"or leave the column out with --ignore {column.name}"
        unseen = "so that no copy would be recognised by it"
        if not filled:
            raise ValueError(f"{where} is empty, {unseen}; write its values, {instead}")
        warnings = []
        if form is not None:
            odd = reader.odd(replace(reader.column(), form=form))
            if 2 * odd > filled:
                raise ValueError(
                    f"{where}: {odd} of {filled} cells that are not empty are no {_EXAMPLES[column.kind]}, {instead}"
                )
            warnings = _warnings(column, reader, form, odd, filled)
        elif not _has_known_words(column, reader):
            raise ValueError(f"{where} has no value of the data, {unseen}; write them as the data do, {instead}")
        if (missing > _SHOWN * reader.rows) != (column.missing > _SHOWN):
            few, many = ("the data", "this file") if missing > _SHOWN * reader.rows else ("this file", "the data")
            warnings.append(f"more than 5% of its cells are missing in {many}, but not in {few}")
        summary = ColumnSummary(
            name=column.name,
            kind=str(Kind.CATEGORY if form is None else form.kind),
            form="" if form is None else str(_shown(reader, form)),
            missing={SYNTHETIC: missing},
            distinct={SYNTHETIC: len(reader.words)},
            used=True,
            why="compared word by word" if form is None else "measured",
            warnings=tuple(warnings),
        )
        return replace(column, form="" if form is None else str(form), marks=marks), summary


def _form(column: ColumnRange, reader: ColumnReader, rules: Rules) -> Form:
    """The form in which most cells are what the data have.

    Of those that fit equally many cells it is one whose range is not all outside that of the data, since 1.200 may be
    1.2 or 1200, and that of the data if possible.
    """
    numbers = column.kind == "number"
    mine = Form(column.form or (Form.POINT if numbers else Form.DAY))
    forms = [mine, *(form for form in Form if (form.kind is Kind.NUMBER) == numbers)]
    held = reader.column()

    def misfit(form: Form) -> tuple[int, bool]:
        return reader.odd(replace(held, form=form)), _is_outside(column, reader, form)

    return min((form for form in forms if rules.fits(form)), key=misfit)


def _shown(reader: ColumnReader, form: Form) -> Form:
    """The form that this file has, if its cells mean the same in it: 2013-05-31 is that day among 31/05/2013, too."""
    own = reader.column()
    if own.form is None or own.form.kind is not form.kind or reader.ends(own.form) != reader.ends(form):
        return form
    return own.form if reader.odd(own) == reader.odd(replace(own, form=form)) else form


def _is_outside(column: ColumnRange, reader: ColumnReader, form: Form) -> bool:
    """Whether all numbers, in a form, are outside the range of the data."""
    low, high = reader.ends(form)
    return high < column.low or low > column.high


def _has_known_words(column: ColumnRange, reader: ColumnReader) -> bool:
    """Whether a word of the data, or of its public domain, occurs; so it is taken if not all words are remembered."""
    known = {word_of(value) for value in (*column.values, *column.unused)}
    return bool(reader.words & known) or len(reader.words) >= MAX_DISTINCT


def _warnings(column: ColumnRange, reader: ColumnReader, form: Form, odd: int, filled: int) -> list[str]:
    """How a column of this file differs from that of the data."""
    warnings = []
    if odd:
        warnings.append(f"{odd} of {filled} cells are no {form.kind} as in {form}, and match nothing")
    if _is_outside(column, reader, form):
        warnings.append("all values are outside the range of the data")
    held = reader.column()
    others = [
        other for other in held.also if other != form and (other.kind is Kind.NUMBER) == (column.kind == "number")
    ]
    if others and str(form) != column.form:
        warnings.append(f"read as in {form}; it could also be {' or '.join(others)}")
    return warnings


def _left_out(column: ColumnRange) -> ColumnSummary:
    return ColumnSummary(
        name=column.name,
        kind=column.kind,
        form="",
        missing={SYNTHETIC: 0},
        distinct={SYNTHETIC: 0},
        used=False,
        why="left out by --ignore",
    )
