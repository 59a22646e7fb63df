"""The public schema of a table: names, types and domains of its columns.

A domain is public by assumption. It is never read off private rows: the smallest and the largest value of a column, or
the set of its categories, would then depend on single rows.
"""

from __future__ import annotations

import bisect
import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
    model_validator,
)

from dpassay.base.arrays import Integers
from dpassay.base.errors import InputError
from dpassay.base.validate import did_you_mean
from dpassay.data.cells import as_day, is_missing
from dpassay.data.column_names import MAX_SHOWN
from dpassay.data.columns import MARKS, NO_RULES, Form, Kind, Rules, meanings, word_of

MISSING = "missing"
"""The word for an empty cell in serialised rows; no category may be that word."""

MADE_FROM = "made_from"
"""The key of a schema file that says what its domains were made from."""

_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one that is written in C is ten times as fast

LARGEST_SCHEMA = 2**24
"""Bytes of a schema file."""

MAX_COLUMNS = 5000
MAX_VALUES = 10_000
MAX_DECIMALS = 9
MAX_DAYS = 400_000

NUMBER_FORMS = (Form.POINT, Form.THOUSANDS, Form.COMMA)
_READ = {None: (Form.POINT,), ".": (Form.POINT, Form.THOUSANDS), ",": (Form.COMMA,)}
"""Forms in which numbers are read, by the decimal sign that is stated."""

Cell: TypeAlias = str | int | float | None
"""A value of a synthetic table."""

Row: TypeAlias = tuple[str, ...]
"""The words of a row's cells, in the order of the schema."""


class SchemaColumn(BaseModel, ABC):
    """A column of a table: a public name and a public domain.

    A value is written as one word, the same for equal values: `word` reads it from a cell of a file, `cell` is its
    inverse. The words of a domain are those for which `begins` holds up to their end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, ignored_types=(cached_property,))

    name: str = Field(min_length=1, max_length=200)
    missing: StrictBool = Field(default=False, description="whether cells may be empty")

    kind: ClassVar[str]
    """Type of the column in Parquet."""

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if name != name.strip() or not name.isprintable():
            raise ValueError("must be printable, without spaces at its ends")
        return name

    def word(self, cell: Any, rules: Rules = NO_RULES) -> str:
        """The word of a cell.

        Args:
            cell: of a file.
            rules: which words mean that a cell is missing, and the sign before decimals; its kinds are not used.

        Raises:
            ValueError: if it is outside the public domain. The message has no value in it.
        """
        empty = is_missing(cell)
        if empty or self._is_marked(cell, rules):
            if not self.missing:
                how = "empty" if empty else "marked as missing"
                raise ValueError(f"is {how}, but the schema does not allow missing values here")
            return MISSING
        word = self._word(cell, rules.decimal)
        if word is None:
            raise ValueError(
                self._other_form(cell, rules.decimal)
                or f"is outside the public domain of the schema ({self.described}); cap or recode cells by a public "
                "rule, and do not widen the domain until the data fit: it would tell what they hold"
            )
        return word

    def _is_marked(self, cell: Any, rules: Rules) -> bool:
        return bool(rules.missing) and isinstance(cell, str) and word_of(cell) in rules.missing

    def _other_form(self, cell: Any, decimal: str | None) -> str | None:
        """The message for a cell that is written in a form that is not read; None for any other cell."""
        return None

    def cell(self, word: str) -> Cell:
        """The value that a word stands for; None for an empty cell."""
        return None if self.missing and word == MISSING else self._cell(word)

    def uniform(self, rng: np.random.Generator) -> str:
        """The word of a value drawn uniformly from the domain, where an empty cell is one of the categories, or has
        probability 1/10 among numbers and dates."""
        if self.missing and rng.random() < self._missing_rate:
            return MISSING
        return self._uniform(rng)

    @property
    @abstractmethod
    def described(self) -> str:
        """The domain in a few words."""

    @property
    @abstractmethod
    def longest(self) -> Sequence[str]:
        """Words among which one has most characters, and one most tokens if characters are tokens."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of values in the domain, without the empty cell."""

    def index(self, word: str) -> int:
        """The index of a word in the domain, from 0: of categories as the schema lists them, of numbers and dates in
        their order, one step for each unit of the last decimal or day.

        Raises:
            ValueError: if it is no word of the domain; `MISSING` is none.
        """
        index = self._index(word)
        if index is None:
            raise ValueError(
                f"a word of column {self.name!r} is outside the public domain of the schema ({self.described})"
            )
        return index

    def word_at(self, index: int) -> str:
        """The word of an index in the domain, from 0 to `size` − 1: the inverse of `index`.

        Raises:
            ValueError: if it is outside.
        """
        if not 0 <= index < self.size:
            raise ValueError(f"index must be from 0 to {self.size - 1} in column {self.name!r}, not {index}")
        return self._word_at(index)

    @property
    def _missing_rate(self) -> float:
        return 0.1

    @abstractmethod
    def _index(self, word: str) -> int | None: ...

    @abstractmethod
    def _word_at(self, index: int) -> str: ...

    @abstractmethod
    def _word(self, cell: Any, decimal: str | None) -> str | None: ...

    @abstractmethod
    def _cell(self, word: str) -> Cell: ...

    @abstractmethod
    def _uniform(self, rng: np.random.Generator) -> str: ...


class SpelledColumn(SchemaColumn, ABC):
    """A column whose words are spelled character by character: numbers and dates."""

    characters: ClassVar[str]

    @abstractmethod
    def begins(self, start: str) -> bool:
        """Whether some word of the domain begins like this."""

    @abstractmethod
    def is_complete(self, word: str) -> bool:
        """Whether this is a word of the domain."""

    def _is_marked(self, cell: Any, rules: Rules) -> bool:
        """As of all columns; among numbers and dates the usual marks of missing cells are missing, too."""
        if not isinstance(cell, str) or (cell[:1].isdigit() and not rules.missing):
            return False
        word = word_of(cell)
        return word in MARKS or word in rules.missing


class CategoryColumn(SchemaColumn):
    """A column of categories."""

    type: Literal["category"]
    values: tuple[str, ...] = Field(min_length=1, max_length=MAX_VALUES)

    kind: ClassVar[str] = "string"

    @field_validator("values", mode="before")
    @classmethod
    def _words(cls, values: Any) -> Any:
        """YAML reads ``no`` as false and ``1`` as a number, which would not be the words of the file."""
        if isinstance(values, list | tuple) and not all(isinstance(item, str) for item in values):
            raise ValueError('must be words; put numbers and truth values between quotes, such as "1" or "no"')
        return values

    @model_validator(mode="after")
    def _distinct(self) -> CategoryColumn:
        if len(set(self.values)) < len(self.values):
            raise ValueError("values: must name each category once")
        if not all(item and item == item.strip() and item.isprintable() for item in self.values):
            raise ValueError("values: must be printable and not empty, without spaces at their ends")
        if MISSING in self.values:
            raise ValueError(f"values: {MISSING!r} stands for an empty cell; give missing: true instead")
        return self

    @property
    def described(self) -> str:
        return f"one of {len(self.values)} categories"

    @property
    def longest(self) -> Sequence[str]:
        return self.values

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def _missing_rate(self) -> float:
        return 1 / (len(self.values) + 1)

    @cached_property
    def _known(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.values)}

    def _index(self, word: str) -> int | None:
        return self._known.get(word)

    def _word_at(self, index: int) -> str:
        return self.values[index]

    def _word(self, cell: Any, decimal: str | None) -> str | None:
        written = str(cell).strip()
        if isinstance(cell, float) and cell.is_integer() and written not in self._known:
            written = str(int(cell))  # a column of whole numbers with empty cells is read as floats
        index = self._known.get(written)
        return None if index is None else self.values[index]  # one text for all rows that have it

    def _cell(self, word: str) -> Cell:
        return word

    def _uniform(self, rng: np.random.Generator) -> str:
        return self.values[rng.integers(len(self.values))]


class NumberColumn(SpelledColumn):
    """A column of numbers with a fixed number of decimals."""

    type: Literal["number"]
    low: float
    high: float
    decimals: StrictInt = Field(default=0, ge=0, le=MAX_DECIMALS)

    characters: ClassVar[str] = "0123456789.-"

    @model_validator(mode="after")
    def _ordered(self) -> NumberColumn:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise ValueError("low and high: must be finite numbers, low at most high")
        if max(abs(self.low), abs(self.high)) * 10**self.decimals >= 2**53:
            raise ValueError("low and high: are too large for this number of decimals")
        if self._units[0] > self._units[1]:
            raise ValueError("low and high: no number with this number of decimals is between them")
        return self

    @property
    def kind(self) -> str:  # type: ignore[override]
        return "double" if self.decimals else "int64"

    @property
    def described(self) -> str:
        return f"a number from {self._spelled(self._units[0])} to {self._spelled(self._units[1])}"

    @cached_property
    def _units(self) -> tuple[int, int]:
        """The least and the largest value in units of the last decimal."""
        scale = Decimal(10) ** self.decimals
        return math.ceil(Decimal(repr(self.low)) * scale), math.floor(Decimal(repr(self.high)) * scale)

    @property
    def longest(self) -> Sequence[str]:
        return [self._spelled(unit) for unit in self._units]

    @property
    def size(self) -> int:
        return self._units[1] - self._units[0] + 1

    def _index(self, word: str) -> int | None:
        unit = self._unit(word)
        return None if unit is None else unit - self._units[0]

    def _word_at(self, index: int) -> str:
        return self._spelled(self._units[0] + index)

    def _spelled(self, unit: int) -> str:
        digits = f"{abs(unit):0{self.decimals + 1}d}"
        if self.decimals:
            digits = f"{digits[: -self.decimals]}.{digits[-self.decimals :]}"
        return f"-{digits}" if unit < 0 else digits

    def _word(self, cell: Any, decimal: str | None) -> str | None:
        if isinstance(cell, bool):
            return None
        try:
            value = Decimal(_with_point(cell.strip(), decimal) if isinstance(cell, str) else str(cell))
            if not value.is_finite() or abs(value) > 2**53:
                return None
            unit = int((value * Decimal(10) ** self.decimals).to_integral_value(ROUND_HALF_EVEN))
        except (ArithmeticError, ValueError):
            return None
        return self._spelled(unit) if self._units[0] <= unit <= self._units[1] else None

    def _other_form(self, cell: Any, decimal: str | None) -> str | None:
        forms = [form for form in meanings(cell)[0] if form in NUMBER_FORMS] if isinstance(cell, str) else []
        if not forms or any(form in _READ[decimal] for form in forms):
            return None
        read = f"decimal is stated as {decimal!r}" if decimal else "no decimal is stated"
        signs = ", ".join(sorted({repr("," if form is Form.COMMA else ".") for form in forms}))
        return f"is written as in {' or '.join(forms)}, but {read}; state decimal ({signs}), or write it as in 1200.5"

    def _cell(self, word: str) -> Cell:
        return float(word) if self.decimals else int(word)

    def _uniform(self, rng: np.random.Generator) -> str:
        low, high = self._units
        return self._spelled(int(rng.integers(low, high, endpoint=True)))

    def is_complete(self, word: str) -> bool:
        return self._unit(word) is not None

    def _unit(self, word: str) -> int | None:
        """The value of a word in units of the last decimal; None if it is none of the domain."""
        plain = word.removeprefix("-").replace(".", "", 1)
        if not (plain.isascii() and plain.isdigit()):
            return None
        unit = int(plain) * (-1 if word.startswith("-") else 1)
        return unit if self._spelled(unit) == word and self._units[0] <= unit <= self._units[1] else None

    def begins(self, start: str) -> bool:
        low, high = self._units
        if not start:
            return True
        if start.startswith("-"):
            low, high = max(1, -high), -low
        else:
            low = max(0, low)
        digits = start.removeprefix("-")
        if low > high:
            return False
        if not digits:
            return True
        whole, point, part = digits.partition(".")
        if not all(item.isascii() and item.isdigit() for item in (whole, part) if item) or not whole:
            return False
        if (whole != "0" and whole.startswith("0")) or (point and not self.decimals) or len(part) > self.decimals:
            return False
        if point:
            scale: int = 10 ** (self.decimals - len(part))
            least = int(whole + part) * scale
            return least <= high and least + scale - 1 >= low
        longest = len(str(high // 10**self.decimals))
        for more in range(0, 1 if whole == "0" else longest - len(whole) + 1):
            scale = 10 ** (more + self.decimals)
            if int(whole) * scale <= high and (int(whole) + 1) * scale - 1 >= low:
                return True
        return False


class DateColumn(SpelledColumn):
    """A column of dates, written as in 2013-05-31."""

    type: Literal["date"]
    low: datetime.date
    high: datetime.date

    kind: ClassVar[str] = "string"
    characters: ClassVar[str] = "0123456789-"

    @model_validator(mode="after")
    def _ordered(self) -> DateColumn:
        if self.low > self.high:
            raise ValueError("low and high: low must not be after high")
        if (self.high - self.low).days > MAX_DAYS:
            raise ValueError(f"low and high: must be at most {MAX_DAYS} days apart")
        return self

    @property
    def described(self) -> str:
        return f"a date from {self.low} to {self.high}"

    @property
    def longest(self) -> Sequence[str]:
        return [str(self.low)]

    @property
    def size(self) -> int:
        return (self.high - self.low).days + 1

    def _index(self, word: str) -> int | None:
        return (datetime.date.fromisoformat(word) - self.low).days if self.is_complete(word) else None

    def _word_at(self, index: int) -> str:
        return self._days[index]

    @cached_property
    def _days(self) -> list[str]:
        first = self.low.toordinal()
        return [str(datetime.date.fromordinal(day)) for day in range(first, self.high.toordinal() + 1)]

    def _word(self, cell: Any, decimal: str | None) -> str | None:
        date = _date(cell)
        if date is None or not self.low <= date <= self.high:
            return None
        return self._days[(date - self.low).days]  # one text for all rows that have it

    def _other_form(self, cell: Any, decimal: str | None) -> str | None:
        forms = [form for form in meanings(cell)[0] if form.kind in (Kind.DATE, Kind.TIME)]
        if not forms or _date(cell) is not None:
            return None
        return f"is written as in {' or '.join(forms)}, but dates are read as in 2013-05-31 only; write them so"

    def _cell(self, word: str) -> Cell:
        return word

    def _uniform(self, rng: np.random.Generator) -> str:
        return self._days[rng.integers(len(self._days))]

    def is_complete(self, word: str) -> bool:
        return len(word) == len("2000-01-01") and self.begins(word)

    def begins(self, start: str) -> bool:
        index = bisect.bisect_left(self._days, start)
        return index < len(self._days) and bool(self._days[index].startswith(start))


AnyColumn = Annotated[CategoryColumn | NumberColumn | DateColumn, Field(discriminator="type")]


class Schema(BaseModel):
    """The public schema of a table.

    Attributes:
        columns: in the order of the table.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    columns: tuple[AnyColumn, ...] = Field(min_length=1, max_length=MAX_COLUMNS)

    @model_validator(mode="after")
    def _distinct(self) -> Schema:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("columns: two have the same name")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    def index(self, name: str) -> int:
        """The index of a column.

        Raises:
            ValueError: if there is none of that name.
        """
        if name not in self.names:
            listed = ", ".join(self.names[:MAX_SHOWN]) + (" and others" if len(self.names) > MAX_SHOWN else "")
            raise ValueError(f"the schema has no column {name!r}; it has {listed}{did_you_mean(name, self.names)}")
        return self.names.index(name)

    def row(self, cells: Mapping[str, Any], rules: Rules = NO_RULES) -> Row:
        """The words of a row, given its cells of all columns by name, and the rules by which `SchemaColumn.word` reads.

        Raises:
            ValueError: one line without any value, if a cell is outside the public domain or a column is missing.
        """
        words = []
        for column in self.columns:
            if column.name not in cells:
                raise ValueError(f"there is no column {column.name!r}, which the schema has")
            try:
                words.append(column.word(cells[column.name], rules))
            except ValueError as error:
                raise ValueError(f"column {column.name!r}: {error}") from None
        return tuple(words)

    def indices(self, rows: Sequence[Row]) -> list[Integers]:
        """The index of each word in its column's domain, −1 for an empty cell; of each column, shape (n,).

        Raises:
            ValueError: one line without any value, if a row has other columns or a word is outside its domain.
        """
        if any(len(row) != len(self.columns) for row in rows):
            raise ValueError(f"a row has other columns than the schema, which has {len(self.columns)}")
        results = []
        for position, column in enumerate(self.columns):
            words = [row[position] for row in rows]
            known = {
                word: -1 if column.missing and word == MISSING else column.index(word) for word in dict.fromkeys(words)
            }
            results.append(np.fromiter((known[word] for word in words), np.int64, len(words)))
        return results

    def cells(self, row: Row) -> list[Cell]:
        """The values of a row, in the order of the columns."""
        return [column.cell(word) for column, word in zip(self.columns, row, strict=True)]

    def uniform(self, rng: np.random.Generator) -> Row:
        """A row whose cells are independent and uniform in their domains."""
        return tuple(column.uniform(rng) for column in self.columns)


def read_schema(path: Path) -> tuple[Schema, str | None]:
    """The schema in a YAML file, and what its domains were made from.

    Raises:
        InputError: one line that names the file and the key.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_SCHEMA + 1)
        if len(content) > LARGEST_SCHEMA:
            raise InputError(f"{path}: is larger than {LARGEST_SCHEMA} bytes, which no schema is")
        body = yaml.load(content.decode("utf-8"), _YAML)  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is not UTF-8 text; a schema is a YAML file") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise InputError(f"{path}: is not valid YAML") from None
    if not isinstance(body, dict):
        raise InputError(f"{path}: a schema is a YAML mapping with the key columns")
    made_from = body.pop(MADE_FROM, None)
    try:
        return Schema.model_validate(body), None if made_from is None else str(made_from)
    except ValidationError as error:
        raise InputError(f"{path}: {first_error(error, body)}") from None


def kinds_of(schema: Schema) -> dict[str, Kind]:
    """What the columns of a schema hold, by name."""
    kinds = {"number": Kind.NUMBER, "date": Kind.DATE, "category": Kind.CATEGORY}
    return {column.name: kinds[column.type] for column in schema.columns}


def first_error(error: ValidationError, body: Mapping[str, Any]) -> str:
    """The first error of a schema in one line, with the column and the key; `body` is what was validated."""
    errors = error.errors(include_url=False)
    missing = [str(item["loc"][-1]) for item in errors if item["type"] == "missing"]
    first = min(
        errors, key=lambda item: item["type"] != "extra_forbidden" or not did_you_mean(str(item["loc"][-1]), missing)
    )  # an unknown key that resembles a missing one is that one, misspelt
    place, where, column = list(first["loc"]), "", body
    if len(place) > 1:
        column = body["columns"][place[1]]
        name = column.get("name") if isinstance(column, Mapping) else None
        where = f"column {name[:200]!r}: " if isinstance(name, str) else f"column {int(place[1]) + 1}: "
        place = [part for part in place[2:] if part not in _COLUMN_TYPES]
    key = str(place[0])[:80] if place else ""
    kind = str(column.get("type")) if isinstance(column, Mapping) else ""
    if first["type"] in ("union_tag_not_found", "union_tag_invalid"):
        key = "type"
    match first["type"]:
        case "value_error":
            said = str(first["ctx"]["error"])
        case "extra_forbidden" | "invalid_key":
            known = _COLUMN_TYPES[kind].model_fields if where else ("columns", MADE_FROM)
            said = f"unknown key; known are {', '.join(known)}{did_you_mean(key, known)}"
        case "missing" | "union_tag_not_found":
            said = "is missing" if where or key != "columns" else _NO_COLUMNS
        case "too_long":
            said = f"has {len(first['input'])} entries, and at most {first['ctx']['max_length']} are allowed"
        case "too_short" | "string_too_short":
            said = "must not be empty"
        case _:
            allowed = _ALLOWED | {"low": _ENDS.get(kind, ""), "high": _ENDS.get(kind, "")}
            said = f"must be {allowed.get(key, 'a mapping with the keys name and type')}"
            said += did_you_mean(kind, _COLUMN_TYPES) if key == "type" else ""
    return " ".join(f"{where}{key + ': ' if key else ''}{said}".split())


_COLUMN_TYPES: Mapping[str, type[SchemaColumn]] = {
    "category": CategoryColumn,
    "number": NumberColumn,
    "date": DateColumn,
}
_NO_COLUMNS = "is missing, so this is no schema; `dpassay table schema` writes one from a table"
_ALLOWED = {
    "columns": "a list of columns",
    "name": "a word of at most 200 characters; put it between quotes",
    "type": "category, number or date",
    "missing": "true or false",
    "values": "a list of words",
    "decimals": f"a whole number from 0 to {MAX_DECIMALS}",
}
_ENDS = {"number": "a number", "date": "a date as in 2013-05-31"}


def _with_point(word: str, decimal: str | None) -> str:
    """A number as Python writes it, given how it is written where this decimal sign is stated.

    Raises:
        ValueError: if it is not written so.
    """
    if decimal is None:
        return word
    if not any(form in _READ[decimal] for form in meanings(word)[0]):
        raise ValueError("is not a number with this decimal sign")
    return word.replace(".", "").replace(",", ".") if decimal == "," else word.replace(",", "")


def from_days(days: float) -> datetime.date:
    """The date of so many days from 0001-01-01, which is day 1."""
    return datetime.date.fromordinal(int(days))


def _date(cell: Any) -> datetime.date | None:
    """The date in a cell, if it holds one as in 2013-05-31 or 20130531, with no time of day but midnight."""
    written = cell.strip() if isinstance(cell, str) else cell
    days = as_day(written)
    if days is not None:
        return from_days(days)
    try:
        return datetime.date.fromisoformat(str(written))
    except ValueError:
        return None
