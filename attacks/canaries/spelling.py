"""How a file writes the numbers, dates and times of a column, so that canaries are written alike.

A canary that is written otherwise, as 2013-05-31 among 31/05/2013, could be told from the data by its spelling alone.
"""

from __future__ import annotations

import datetime
import math
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from dpassay.data.cells import as_day, decimals, is_missing
from dpassay.data.columns import MARKS, MAX_CATEGORIES, Form, word_of

Value: TypeAlias = str | int | float | bool | None

MAX_DECIMALS = 12
"""Numbers with so many decimals are written with as many as they have."""
_DAY = 86_400 * 10**6  # microseconds
_REMEMBERED = 10_000  # cells that are not read again
_SPELLINGS = 100
_NUMBER = re.compile(r"[-+]?\d[\d.,]*")
_PADDED = re.compile(r"[-+]?0\d+")
_PARTS = re.compile(r"(\d{1,4})[-/.](\d{1,2})[-/.](\d{1,4})")
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ])(\d\d):(\d\d)(:\d\d)?(?:\.(\d{1,6}))?\d*(Z|[-+]\d\d:?\d\d)?")
_ZONE = re.compile(r"(?:Z|[-+]\d\d:?\d\d)$")
_STEPS = [3600 * 10**6, 60 * 10**6, 10**6, 10**3]
"""Microseconds between times of which some columns have only multiples."""
_DIRECTIVE = re.compile(r"%([-\d]?)([YmdHMSf])")
_DAYS = {
    Form.YEAR_FIRST: "%Y/%m/%d",
    Form.DOTTED: "%d.%m.%Y",
    Form.DAY_FIRST: "%d/%m/%Y",
    Form.MONTH_FIRST: "%m/%d/%Y",
}


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the numbers, dates and times of a column are written.

    Attributes:
        places: the fewest decimals of its numbers, as written.
        grouped: whether there are signs between thousands.
        width: digits of its whole numbers, if some begin with a zero; 0 if none does.
        pattern: of dates and times, in directives of ``strftime``; ``%-d`` has no zero before it, ``%3f`` three digits.
        step: microseconds of which all times of day are multiples.
        missing: how a missing cell is written.
    """

    places: int = 0
    grouped: bool = False
    width: int = 0
    pattern: str = "%Y-%m-%d"
    step: int = _STEPS[0]
    missing: str | None = None

    def number(self, number: float, digits: int, form: Form, *, quoted: bool) -> Value:
        """A number in the form of a column whose numbers have at most so many decimals."""
        if not quoted:
            return int(number) if self.places == 0 and float(number).is_integer() else float(number)
        number += 0.0  # turns −0 into 0
        text = f"{number:.{digits}f}" if digits < MAX_DECIMALS else repr(float(number))
        if "e" in text:
            text = f"{number:.{digits}f}"
        whole, _, fraction = text.partition(".")
        fraction = fraction.rstrip("0").ljust(self.places, "0")
        sign, whole = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
        whole = whole.zfill(self.width)
        if self.grouped and not self.width:
            whole = f"{int(whole):,}"
        text = sign + whole + (f".{fraction}" if fraction else "")
        return text.translate(str.maketrans(",.", ".,")) if form is Form.COMMA else text

    def moment(self, days: float) -> str:
        """A date or a time, given as days from 0001-01-01, in UTC if times have a zone."""
        day = math.floor(days)
        start = datetime.datetime.combine(datetime.date.fromordinal(day), datetime.time())
        zone = _ZONE.search(self.pattern) if "%H" in self.pattern else None
        if zone is not None:
            start += datetime.datetime.fromisoformat(f"2000-01-01T00:00{zone[0]}").utcoffset() or datetime.timedelta(0)
        after = round((days - day) * _DAY / self.step) * self.step
        time = start + datetime.timedelta(microseconds=after)

        def written(directive: re.Match[str]) -> str:
            how, what = directive.groups()
            if what == "f":
                return f"{time.microsecond:06d}"[: int(how or 6)]
            part = {"Y": time.year, "m": time.month, "d": time.day, "H": time.hour, "M": time.minute, "S": time.second}
            return str(part[what]) if how == "-" else f"{part[what]:0{4 if what == 'Y' else 2}d}"

        return _DIRECTIVE.sub(written, self.pattern)


PLAIN = Spelling()


class SpellingReader:
    """Finds out how a column is written, cell by cell, in bounded memory.

    Attributes:
        quoted: whether some of its numbers, dates and times are strings.
        whole: whether all of its cells that are there are whole numbers, and no strings.
        values: a spelling of each distinct word, of at most 201.
    """

    def __init__(self, missing: Collection[str] = ()) -> None:
        self._stated = frozenset(map(word_of, missing))
        self._marks = MARKS | self._stated
        self._seen: set[str] = set()
        self._points = self._commas = _NONE  # fewest digits after the sign, and most without zeros at the end
        self._grouped = dict.fromkeys((Form.THOUSANDS, Form.COMMA), False)
        self._width = 0
        self._unpadded = False
        self._after: Counter[str] = Counter()
        self._times: Counter[str] = Counter()
        self._microseconds = 0  # the greatest common divisor of times of day
        self._missing: Counter[str | None] = Counter()
        self.quoted, self.whole = False, True
        self.values: dict[str, Value] = {}

    def read(self, cell: Any) -> None:
        """Adds one cell, which is no float that is not finite."""
        if isinstance(cell, str):
            if cell in self._seen:
                return
            word = word_of(cell)
            if cell == "" or word in self._marks:
                _count(self._missing, cell)
            if cell == "":
                return
            self.whole = False
            if len(self._seen) < _REMEMBERED and word not in self._marks:
                self._seen.add(cell)
            self._read_word(cell.strip())
            self._keep(word, cell)
        elif is_missing(cell):
            _count(self._missing, None)
        elif isinstance(cell, datetime.date):
            self.whole = False
            self._read_date(cell)
        elif isinstance(cell, bool):
            self.whole = False
            self._keep(word_of(cell), cell)
        else:
            if isinstance(cell, Decimal):
                cell = int(cell) if cell == cell.to_integral_value() else float(cell)
            self.whole &= float(cell).is_integer()
            fraction = "" if isinstance(cell, int) else "1" * decimals(cell) or "0"
            self._points, self._commas = _widened(self._points, fraction), _widened(self._commas, fraction)
            self._keep(word_of(cell), cell)

    def _keep(self, word: str, cell: Value) -> None:
        if len(self.values) <= MAX_CATEGORIES:
            self.values.setdefault(word, cell)

    def _at(self, microseconds: int) -> None:
        self._microseconds = math.gcd(self._microseconds, microseconds)

    def _read_word(self, word: str) -> None:
        if not word[:1].isdigit() and word[:1] not in ("-", "+"):
            self.quoted |= word.casefold() in ("true", "false")
            return
        self.quoted |= word_of(word) not in self._marks
        if _NUMBER.fullmatch(word):
            self._points = _widened(self._points, word.partition(".")[2])
            self._commas = _widened(self._commas, word.partition(",")[2])
            self._grouped[Form.THOUSANDS] |= "," in word
            self._grouped[Form.COMMA] |= "." in word
            if _PADDED.fullmatch(word):
                self._width = max(self._width, len(word.lstrip("+-")))
        if parts := _PARTS.fullmatch(word):
            self._unpadded |= any(len(part) == 1 for part in parts.groups())
        if time := _TIME.fullmatch(word):
            seconds, fraction = ":%S" if time[4] else "", f".%{len(time[5])}f" if time[5] else ""
            _count(self._times, f"%Y-%m-%d{time[1]}%H:%M{seconds}{fraction}{time[6] or ''}")
            whole = int(time[2]) * 3600 + int(time[3]) * 60 + int((time[4] or ":0")[1:])
            self._at(whole * 10**6 + int((time[5] or "0").ljust(6, "0")))
        if as_day(word) is not None:
            _count(self._after, word[len("2013-05-31") :])

    def _read_date(self, cell: datetime.date) -> None:
        """A date of Parquet, which is written into manifests in ISO 8601."""
        written = cell.isoformat()
        if as_day(cell) is not None:
            written = written[: len("2013-05-31")]
        elif isinstance(cell, datetime.datetime):
            self._at(cell.hour * 3600 * 10**6 + cell.minute * 60 * 10**6 + cell.second * 10**6 + cell.microsecond)
        zone = "+00:00" if isinstance(cell, datetime.datetime) and cell.tzinfo is not None else ""
        _count(self._after, "")
        _count(self._times, f"%Y-%m-%dT%H:%M:%S.%6f{zone}")
        self._keep(word_of(written), written)

    def digits(self, form: Form) -> int:
        """The most decimals of the numbers in a form, without zeros at the end."""
        return min(self._ends(form)[1], MAX_DECIMALS)

    def _ends(self, form: Form) -> tuple[int, int]:
        return self._commas if form is Form.COMMA else self._points

    def spelling(self, form: Form | None) -> Spelling:
        """How a column of this form is written; None for words."""
        marks = [cell for cell in self._missing if form is not None or not cell or word_of(cell) in self._stated]
        missing = max(marks, key=lambda cell: (self._missing[cell], str(cell)), default=None)
        if form is None:
            return Spelling(missing=missing)
        pattern = "%Y-%m-%d"
        if form is Form.DAY and self._after:
            pattern += max(self._after, key=lambda rest: (self._after[rest], rest))
        elif form is Form.TIME and self._times:
            pattern = max(self._times, key=lambda time: (self._times[time], time))
        elif form in _DAYS:
            pattern = _DAYS[form].replace("%m", "%-m").replace("%d", "%-d") if self._unpadded else _DAYS[form]
        return Spelling(
            places=min(self._ends(form)[0], MAX_DECIMALS) if self._ends(form) is not _NONE else 0,
            grouped=self._grouped.get(form, False),
            width=self._width,
            pattern=pattern,
            step=next((step for step in _STEPS if self._microseconds % step == 0), 1),
            missing=missing,
        )


_NONE = (MAX_DECIMALS, 0)


def _widened(ends: tuple[int, int], fraction: str) -> tuple[int, int]:
    return min(ends[0], len(fraction)), max(ends[1], len(fraction.rstrip("0")))


def _count(counts: Counter[Any], what: str | None) -> None:
    if what in counts or len(counts) < _SPELLINGS:
        counts[what] += 1
