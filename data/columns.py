"""What the columns of tables hold, found out from their cells, and what a cell means in such a column.

A column is of numbers, dates or times if nearly all of its cells are (`NEARLY`), all in the same form (`Form`), as in
16/07/2020; the rest counts as missing, and is counted. In such a column the usual marks of missing cells (`MARKS`) are
missing, too; among words only empty cells are. Else a column has words: an identifier if no two cells are alike, text
if it reads like sentences, and categories if its words are few and repeat.

Zeros and ones, and other whole numbers of which there are few, are numbers, as are true and false, since one file
writes what another one writes as 0 and 1. Whole numbers that a float does not hold, such as keys of 18 digits, are
words: two of them would be one number.

Kinds that were found out from private rows are private. An audit may depend on them; a mechanism takes a schema.
"""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Any

from dpassay.data.cells import as_category, as_day, as_number, decimals, is_missing

NEARLY = 0.95
"""The share of the cells that are there, from which on a column is of numbers, dates or times."""
MARKS = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "-", "?", ".", "\\n"})
"""Marks of a missing cell among numbers and dates, in lower case."""
MAX_CATEGORIES = 200
"""A column with more distinct words holds names or prose."""
_WORDS_OF_PROSE = 3.0  # in a cell of a column of text, on average
_MIN_IDENTIFIERS = 20
MAX_DISTINCT = 10_000
"""Words of a column that are remembered."""
_EXACT = 2**53
"""Floats below this hold every whole number."""
_MAX_SHOWN = 5  # rows of odd cells

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*")
_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")
_COMMA = re.compile(r"[-+]?(\d{1,3}(\.\d{3})+(,\d+)?|\d+,\d+)")
_POINT_OR_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
_PARTS = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})")


class Kind(StrEnum):
    """What the cells of a column are."""

    NUMBER = "number"
    DATE = "date"
    TIME = "time"
    CATEGORY = "category"
    TEXT = "text"
    IDENTIFIER = "identifier"
    CONSTANT = "constant"
    NESTED = "nested"


_MEASURED = (Kind.NUMBER, Kind.DATE, Kind.TIME)


class Form(StrEnum):
    """A way to write numbers, dates or times, by an example; the first that fits most cells is that of the column."""

    POINT = "1200.5"
    THOUSANDS = "1,200.5"
    COMMA = "1.200,5"
    TRUTH = "true, false"
    DAY = "2013-05-31"
    TIME = "2013-05-31 12:30"
    YEAR_FIRST = "2013/05/31"
    DOTTED = "31.05.2013"
    DAY_FIRST = "31/05/2013"
    MONTH_FIRST = "05/31/2013"

    @property
    def kind(self) -> Kind:
        """The kind of a column that is written so."""
        if self in (Form.POINT, Form.THOUSANDS, Form.COMMA, Form.TRUTH):
            return Kind.NUMBER
        return Kind.TIME if self is Form.TIME else Kind.DATE


_ORDERS = {  # of year, month and day between these signs
    ("/", "ymd"): Form.YEAR_FIRST,
    (".", "dmy"): Form.DOTTED,
    ("/", "dmy"): Form.DAY_FIRST,
    ("/", "mdy"): Form.MONTH_FIRST,
}


_PLAIN = (Form.POINT, Form.THOUSANDS, Form.COMMA)
_WITH_POINT = (Form.POINT, Form.THOUSANDS)
_DAYS = (Form.DAY, Form.TIME, *_ORDERS.values())


def meanings(cell: Any) -> tuple[tuple[Form, ...], Sequence[float]]:
    """The forms in which a cell is a number, and that number in each: dates and times as days from 0001-01-01."""
    if isinstance(cell, bool):
        return (Form.TRUTH,), (float(cell),)
    number = as_number(cell)
    if number is not None:
        return _plain(cell, number)
    if isinstance(cell, datetime.date):
        day = as_day(cell)
        if day is not None:
            return _DAYS, _midnight(day, cell)
        return (Form.TIME,), (_days(cell) if isinstance(cell, datetime.datetime) else float(cell.toordinal()),)
    results = dict(_written(cell.strip())) if isinstance(cell, str) else {}
    return tuple(results), tuple(results.values())


def _plain(cell: Any, number: float) -> tuple[tuple[Form, ...], Sequence[float]]:
    """The meanings of a cell that is a number as it stands; none if a float does not hold that whole number."""
    if isinstance(cell, str) and "." in cell:
        if _POINT_OR_THOUSANDS.fullmatch(word := cell.strip()):
            return _PLAIN, (number, number, float(word.replace(".", "")))
        return _WITH_POINT, (number, number)
    if abs(number) >= _EXACT and _is_rounded(cell, number):
        return (), ()
    return _PLAIN, (number, number, number)


def _is_rounded(cell: Any, number: float) -> bool:
    """Whether a whole number is not what a float makes of it, so that another one would be the same."""
    if isinstance(cell, str):
        return cell.strip().lstrip("+-").isdecimal() and int(cell) != number
    return isinstance(cell, int) and cell != number


def _written(word: str) -> Iterator[tuple[Form, float]]:
    """The meanings of a word that is no plain number."""
    if not word[:1].isdigit() and word[:1] not in "-+":
        if word.casefold() in ("true", "false"):
            yield Form.TRUTH, float(word.casefold() == "true")
        return
    if _THOUSANDS.fullmatch(word):
        yield Form.THOUSANDS, float(word.replace(",", ""))
    if _COMMA.fullmatch(word):
        yield Form.COMMA, float(word.replace(".", "").replace(",", "."))
    if (day := as_day(word)) is not None:
        yield from zip(_DAYS, _midnight(day, datetime.datetime.fromisoformat(word)), strict=True)
    elif _TIME.fullmatch(word):
        try:
            yield Form.TIME, _days(datetime.datetime.fromisoformat(word))
        except ValueError:
            return
    elif parts := _PARTS.fullmatch(word):
        for (separator, order), form in _ORDERS.items():
            numbers = dict(zip(order, (parts[1], parts[3], parts[4]), strict=True))
            if parts[2] == separator and len(numbers["y"]) == 4:
                try:
                    date = datetime.date(int(numbers["y"]), int(numbers["m"]), int(numbers["d"]))
                except ValueError:
                    continue
                yield form, float(date.toordinal())


def _midnight(day: float, time: datetime.date) -> Sequence[float]:
    """The number of a midnight in each of `_DAYS`: the day where it is, and among times that of the moment."""
    moment = _days(time) if isinstance(time, datetime.datetime) else day
    return [moment if form is Form.TIME else day for form in _DAYS]


def _days(time: datetime.datetime) -> float:
    utc = time.astimezone(datetime.UTC) if time.tzinfo is not None else time
    midnight = utc.replace(hour=0, minute=0, second=0, microsecond=0)
    return utc.toordinal() + (utc - midnight).total_seconds() / 86_400


def word_of(cell: Any) -> str:
    """The word of a cell, without case and spaces at its ends; whole numbers and truth values have one spelling."""
    return as_category(cell).casefold()


@dataclass(frozen=True, slots=True)
class Rules:
    """What a user says of columns, which goes before what is found out.

    Attributes:
        kinds: of some columns, by name; number, date and time stand for each other, as the cells are.
        missing: words that mean that a cell is missing, in any column, beside `MARKS` among numbers and dates; they
            are kept as `word_of` gives them.
        decimal: the sign before decimals, ``.`` or ``,``; None is found out.
    """

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    missing: Collection[str] = ()
    decimal: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", frozenset(map(word_of, self.missing)))

    def fits(self, form: Form) -> bool:
        """Whether numbers may be written so."""
        if self.decimal is None or form.kind is not Kind.NUMBER or form is Form.TRUTH:
            return True
        return (form is Form.COMMA) is (self.decimal == ",")


NO_RULES = Rules()
"""Everything is found out."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of one or several files.

    Attributes:
        name: of the column.
        kind: of its cells.
        form: of its numbers, dates or times; None if it has words.
        rows: number of cells.
        missing: how many of them are empty, or marked as missing.
        odd: how many are not of the column's form, and count as missing.
        distinct: the number of distinct words, or of those that were remembered.
        low, high: the smallest and largest number; of dates and times, days from 0001-01-01.
        decimals: of its numbers.
        also: other forms that fit as many cells and give other numbers, so that the form is a guess.
        marks: words that mean that a cell is missing.
        is_prose: whether its cells have three words or more on average.
    """

    name: str
    kind: Kind
    form: Form | None
    rows: int
    missing: int
    odd: int
    distinct: int
    low: float = math.inf
    high: float = -math.inf
    decimals: int = 0
    also: tuple[Form, ...] = ()
    marks: frozenset[str] = frozenset()
    is_prose: bool = False

    def is_missing(self, cell: Any) -> bool:
        """Whether a cell is empty, or marked as missing."""
        return is_missing(cell) or (bool(self.marks) and isinstance(cell, str) and word_of(cell) in self.marks)

    def number(self, cell: Any) -> float | None:
        """The number that a cell means in the column's form; None if it is missing, or not of that form."""
        if is_missing(cell):
            return None
        if self.form in _WITH_POINT and (number := as_number(cell)) is not None and abs(number) < _EXACT:
            return number
        forms, numbers = meanings(cell)
        return numbers[forms.index(self.form)] if self.form in forms else None

    def plain_numbers(self, cells: Sequence[Any]) -> list[float] | None:
        """`number` of cells that are all text of finite numbers as they stand; None unless they are, which is faster to
        find out for many cells together."""
        if self.form not in _WITH_POINT or not all(type(cell) is str for cell in cells) or "_" in "".join(cells):
            return None
        try:
            numbers = list(map(float, cells))
        except ValueError:
            return None
        return numbers if all(-_EXACT < number < _EXACT for number in numbers) else None

    def value(self, cell: Any) -> float | str | None:
        """What a cell means: a number, or a word; None if it is missing, or not of the column's form."""
        if self.form is not None:
            return self.number(cell)
        return None if self.is_missing(cell) else word_of(cell)


class ColumnReader:
    """Finds out what a column holds, cell by cell, in bounded memory.

    The order of the cells has no effect on whether they are measured, nor, up to 10 000 distinct words, on the kind.

    Attributes:
        name: of the column.
        rules: what a user says of it.
        rows: the number of cells.
        words: distinct words, at most 10 000.
    """

    def __init__(self, name: str, rules: Rules = NO_RULES) -> None:
        self.name, self.rules = name, rules
        self._stated = rules.kinds.get(name)
        self._missing = frozenset(rules.missing)
        self.rows = self._empty = self._nested = self._parts = self._marks = self._repeats = 0
        self._decimals: dict[Form, int] = {}
        self._counts: dict[tuple[Form, ...], int] = {}  # of cells that have these forms
        self._first_rows: dict[tuple[Form, ...], list[int]] = {}
        self._ends: dict[Form, tuple[float, float]] = {}
        self._seen: dict[str, tuple[Form, ...]] = {}  # the forms of some cells, so that they are not read again
        self._seen_parts: dict[str, int] = {}
        self.words: set[str] = set()

    def read(self, cell: Any) -> None:
        """Adds one cell."""
        self.rows += 1
        if type(cell) is str and (forms := self._seen.get(cell)) is not None:
            self._repeats += 1
            self._parts += self._seen_parts[cell]
            self._count(forms)
        elif is_missing(cell):
            self._empty += 1
        elif isinstance(cell, str | int | float | Decimal | datetime.date):
            self._read(cell)
        else:
            self._nested += 1

    def _read(self, cell: Any) -> None:
        if not self._missing and self._repeats and len(self.words) >= MAX_DISTINCT:  # one word more tells nothing
            number = as_number(cell)
            if number is not None:
                self._parts += isinstance(cell, str)
                self._measure(*_plain(cell, number))
                return
        word = word_of(cell)
        if word in self._missing:
            self._empty += 1
            return
        if word in self.words:
            self._repeats += 1
        elif len(self.words) < MAX_DISTINCT:
            self.words.add(word)
        parts = len(cell.split()) if isinstance(cell, str) else 0
        self._parts += parts
        if parts and word in MARKS:
            self._marks += 1
            return
        forms, numbers = meanings(cell)
        self._measure(forms, numbers)
        if type(cell) is str and len(self._seen) < MAX_DISTINCT:
            self._seen[cell], self._seen_parts[cell] = forms, parts

    def _measure(self, forms: tuple[Form, ...], numbers: Sequence[float]) -> None:
        """Adds the meanings of a cell."""
        self._count(forms)
        for form, number in zip(forms, numbers, strict=True):
            low, high = self._ends.get(form, (number, number))
            if number <= low or number >= high:
                self._ends[form] = min(low, number), max(high, number)
        if forms and forms[0] in _PLAIN:
            self._count_decimals(forms, numbers)

    def _count_decimals(self, forms: tuple[Form, ...], numbers: Sequence[float]) -> None:
        digits = decimals(numbers[0])
        alike = numbers[0] == numbers[-1]
        if alike and not digits:
            return
        for form, number in zip(forms, numbers, strict=True):
            count = digits if alike else decimals(number)
            if count > self._decimals.get(form, 0):
                self._decimals[form] = count

    def _count(self, forms: tuple[Form, ...]) -> None:
        self._counts[forms] = count = self._counts.get(forms, 0) + 1
        if count <= _MAX_SHOWN:
            self._first_rows.setdefault(forms, []).append(self.rows)

    def add(self, other: ColumnReader) -> None:
        """Adds all cells that another one has read; `odd_rows` stay those of this one."""
        for name in ("rows", "_empty", "_nested", "_parts", "_marks"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for form, digits in other._decimals.items():
            self._decimals[form] = max(self._decimals.get(form, 0), digits)
        self._repeats += other._repeats + len(self.words & other.words)
        self.words |= other.words
        for forms, count in other._counts.items():
            self._counts[forms] = self._counts.get(forms, 0) + count
        for form, (low, high) in other._ends.items():
            mine = self._ends.get(form, (low, high))
            self._ends[form] = min(mine[0], low), max(mine[1], high)

    def missing(self, column: Column) -> int:
        """The number of cells that are empty or, in a column of this form, marked as missing."""
        return self._empty if column.form is None else self._empty + self._marks

    def odd(self, column: Column) -> int:
        """The number of cells that are there, but not of the form of a column."""
        if column.form is None:
            return 0
        return self.rows - self._empty - self._marks - self._of_form(column.form)

    def ends(self, form: Form) -> tuple[float, float]:
        """The smallest and the largest number in a form."""
        return self._ends.get(form, (math.inf, -math.inf))

    def best_share(self) -> float:
        """The share of the cells that are there which are of the form that most of them are of."""
        filled = self.rows - self._empty
        return max(map(self._of_form, Form)) / filled if filled else 0.0

    def _of_form(self, form: Form) -> int:
        return sum(count for forms, count in self._counts.items() if form in forms)

    def odd_rows(self, form: Form) -> list[int]:
        """The numbers, from 1, of the first rows whose cells are not of a form."""
        rows = (rows for forms, rows in self._first_rows.items() if form not in forms)
        return sorted(itertools.chain.from_iterable(rows))[:_MAX_SHOWN]

    def column(self) -> Column:
        """What the column holds."""
        counts = {form: self._of_form(form) for form in Form}
        filled = self.rows - self._empty - self._marks
        form = self._form(counts, filled)
        if form is None:
            kind = self._kind_of_words(self.rows - self._empty)
            known = (self.rows, self._empty, self._nested, len(self.words))
            prose = self._is_prose(self.rows - self._empty)
            return Column(self.name, kind, None, *known, marks=self._missing, is_prose=prose)
        low, high = self.ends(form)
        also = tuple(
            other
            for other in Form
            if counts[other] == counts[form] and self.rules.fits(other) and self.ends(other) != (low, high)
            if other is not Form.TIME  # of midnights elsewhere, which are days
        )
        thousands = (1000 * low, 1000 * high)
        if (
            form is Form.POINT
            and all(map(math.isfinite, thousands))
            and self.ends(Form.COMMA) == tuple(map(round, thousands))
        ):
            also = tuple(other for other in also if other is not Form.COMMA)  # another unit changes no comparison
        kind = form.kind if low < high or self._stated is not None else Kind.CONSTANT
        known = (self.rows, self._empty + self._marks, filled - counts[form], len(self.words))
        digits = self._decimals.get(form, 0)
        return Column(self.name, kind, form, *known, low, high, digits, also, self._missing | MARKS)

    def _form(self, counts: Mapping[Form, int], filled: int) -> Form | None:
        """The form of the column, or None if it has words."""
        if self._stated is not None and self._stated not in _MEASURED:
            return None
        fitting = [form for form in Form if self.rules.fits(form)]
        best = max(fitting, key=lambda form: counts[form])  # the first of those with most cells
        nearly = counts[best] >= max(1.0, NEARLY * filled, float(self._marks)) and not self._nested
        return best if nearly or self._stated is not None else None

    def _is_prose(self, filled: int) -> bool:
        return filled > 0 and self._parts >= _WORDS_OF_PROSE * filled

    def _kind_of_words(self, filled: int) -> Kind:
        if self._nested:
            return Kind.NESTED
        if self._stated is not None:
            return self._stated
        if len(self.words) <= 1:
            return Kind.CONSTANT
        if self._is_prose(filled) and (len(self.words) > MAX_CATEGORIES or not self._repeats):
            return Kind.TEXT
        if filled >= _MIN_IDENTIFIERS and not self._repeats:
            return Kind.IDENTIFIER
        return Kind.CATEGORY if len(self.words) <= MAX_CATEGORIES else Kind.TEXT


def readers_of(rows: Iterable[Mapping[str, Any]], rules: Rules = NO_RULES) -> dict[str, ColumnReader]:
    """Readers of the columns of rows, by name, in the order in which they first occur, after all cells are read."""
    readers: dict[str, ColumnReader] = {}
    for row in rows:
        for name, cell in row.items():
            if name not in readers:
                readers[name] = ColumnReader(name, rules)
            readers[name].read(cell)
    return readers


def joined(*readers: ColumnReader) -> Column:
    """What a column holds in several files together."""
    result = ColumnReader(readers[0].name, readers[0].rules)
    for reader in readers:
        result.add(reader)
    return result.column()


def columns_of(rows: Iterable[Mapping[str, Any]], rules: Rules = NO_RULES) -> dict[str, Column]:
    """The columns of rows, by name, in the order in which they first occur."""
    return {name: reader.column() for name, reader in readers_of(rows, rules).items()}
