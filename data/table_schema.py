"""The public schema of a table: names, types and domains of its columns.

A domain is public by assumption. It is never read off private rows: the smallest and the largest value of a column, or
the set of its categories, would then depend on single rows.
"""

from __future__ import annotations

import bisect
import datetime
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal, localcontext
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

from dpassay.base.errors import InputError
from dpassay.data.cells import as_number, decimals, is_missing
from dpassay.data.columns import Kind

MISSING = "missing"
"""The word for an empty cell in serialised rows; no category may be that word."""

MADE_FROM = "made_from"
"""The key of a schema file that says what its domains were made from."""

LARGEST_SCHEMA = 2**24
"""Bytes of a schema file."""

MAX_COLUMNS = 500
MAX_PROPOSED_CATEGORIES = 10_000
MAX_DECIMALS = 9
MAX_DAYS = 400_000
MAX_WORDS = 50
"""A column of a sample with more distinct words has no domain that a sample could show."""

_DECIMALS = 6  # of a proposed column of numbers, at most

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

    def word(self, cell: Any) -> str:
        """The word of a cell.

        Raises:
            ValueError: if it is outside the public domain. The message has no value in it.
        """
        if is_missing(cell):
            if not self.missing:
                raise ValueError("is empty, but the schema does not allow missing values here")
            return MISSING
        word = self._word(cell)
        if word is None:
            raise ValueError(f"is outside the public domain of the schema ({self.described})")
        return word

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

    @property
    def _missing_rate(self) -> float:
        return 0.1

    @abstractmethod
    def _index(self, word: str) -> int | None: ...

    @abstractmethod
    def _word(self, cell: Any) -> str | None: ...

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


class CategoryColumn(SchemaColumn):
    """A column of categories."""

    type: Literal["category"]
    values: tuple[str, ...] = Field(min_length=1, max_length=MAX_PROPOSED_CATEGORIES)

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

    def _word(self, cell: Any) -> str | None:
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

    def _spelled(self, unit: int) -> str:
        digits = f"{abs(unit):0{self.decimals + 1}d}"
        if self.decimals:
            digits = f"{digits[: -self.decimals]}.{digits[-self.decimals :]}"
        return f"-{digits}" if unit < 0 else digits

    def _word(self, cell: Any) -> str | None:
        if isinstance(cell, bool):
            return None
        try:
            value = Decimal(str(cell).strip())
            if not value.is_finite() or abs(value) > 2**53:
                return None
            unit = int((value * Decimal(10) ** self.decimals).to_integral_value(ROUND_HALF_EVEN))
        except (ArithmeticError, ValueError):
            return None
        return self._spelled(unit) if self._units[0] <= unit <= self._units[1] else None

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

    @cached_property
    def _days(self) -> list[str]:
        first = self.low.toordinal()
        return [str(datetime.date.fromordinal(day)) for day in range(first, self.high.toordinal() + 1)]

    def _word(self, cell: Any) -> str | None:
        date = _date(cell)
        if date is None or not self.low <= date <= self.high:
            return None
        return self._days[(date - self.low).days]  # one text for all rows that have it

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
            raise ValueError(f"the schema has no column {name!r}; it has {', '.join(self.names)}")
        return self.names.index(name)

    def row(self, cells: Mapping[str, Any]) -> Row:
        """The words of a row, given its cells of all columns by name.

        Raises:
            ValueError: one line without any value, if a cell is outside the public domain or a column is missing.
        """
        words = []
        for column in self.columns:
            if column.name not in cells:
                raise ValueError(f"there is no column {column.name!r}, which the schema has")
            try:
                words.append(column.word(cells[column.name]))
            except ValueError as error:
                raise ValueError(f"column {column.name!r}: {error}") from None
        return tuple(words)

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
        body = yaml.safe_load(content.decode("utf-8"))
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
        raise InputError(f"{path}: {first_error(error)}") from None


def kinds_of(schema: Schema) -> dict[str, Kind]:
    """What the columns of a schema hold, by name."""
    kinds = {"number": Kind.NUMBER, "date": Kind.DATE, "category": Kind.CATEGORY}
    return {column.name: kinds[column.type] for column in schema.columns}


def check_schema(body: dict[str, Any], where: str) -> None:
    """Checks a proposed schema.

    Raises:
        InputError: one line that names the sample and the key.
    """
    try:
        Schema.model_validate(body)
    except ValidationError as error:
        raise InputError(f"{where}: no schema follows from this sample: {first_error(error)}") from None


def first_error(error: ValidationError) -> str:
    """The first error of a validation in one line."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("category", "number", "date"))
    message = first["msg"].removeprefix("Value error, ")
    return " ".join(f"{where + ': ' if where else ''}{message[0].lower()}{message[1:]}".split())


def proposed_schema(rows: Iterable[Mapping[str, Any]], *, ignore: Collection[str] = ()) -> dict[str, Any]:
    """The schema of a public sample, as JSON types: a template, whose domains are those of the sample.

    A column is of numbers or dates if all its cells are, or else of categories; some, such as ids, are ignored.

    Raises:
        ValueError: if there are no rows, or a column has too many distinct words for categories.
    """
    readers: dict[str, _ColumnReader] = {}
    count = 0
    for cells in rows:
        count += 1
        for name, cell in cells.items():
            if name not in ignore:
                readers.setdefault(name, _ColumnReader(name)).read(cell)
    if not count:
        raise ValueError("the sample has no rows")
    return {"columns": [reader.column(count) for reader in readers.values()]}


class _ColumnReader:
    """The type and domain of a column, cell by cell."""

    def __init__(self, name: str) -> None:
        self.name, self.filled = name, 0
        self.words: set[str] | None = set()
        self.numbers: tuple[float, float, int] | None = (float("inf"), -float("inf"), 0)
        self.dates: tuple[datetime.date, datetime.date] | None = (datetime.date.max, datetime.date.min)

    def read(self, cell: Any) -> None:
        if is_missing(cell):
            return
        self.filled += 1
        written = str(cell).strip()
        if self.words is not None:
            self.words.add(written)
            if len(self.words) > MAX_WORDS:
                self.words = None
        if self.numbers is not None:
            self.numbers = _with_number(self.numbers, cell)
        if self.dates is not None:
            self.dates = _with_date(self.dates, cell)

    def column(self, rows: int) -> dict[str, Any]:
        missing = {"missing": True} if self.filled < rows else {}
        if self.filled and self.numbers is not None:
            low, high, decimals = self.numbers
            ends = _outwards(low, high, decimals)
            return {"name": self.name, "type": "number", **ends, "decimals": decimals, **missing}
        if self.filled and self.dates is not None:
            return {"name": self.name, "type": "date", "low": self.dates[0], "high": self.dates[1], **missing}
        if self.words and MISSING in self.words:
            raise ValueError(
                f"column {self.name!r} has the word {MISSING!r}, which stands for an empty cell; rename it"
            )
        if not self.words:
            why = "is empty" if self.words is not None else f"has more than {MAX_WORDS} distinct words"
            raise ValueError(f"column {self.name!r} {why}; leave it out, or write its schema by hand")
        return {"name": self.name, "type": "category", "values": sorted(self.words), **missing}


def _outwards(low: float, high: float, decimals: int) -> dict[str, float]:
    """The ends of a domain, rounded outwards to the decimals of the schema."""
    unit = Decimal(10) ** -decimals
    with localcontext(prec=400):
        least, most = Decimal(repr(low)).quantize(unit, ROUND_FLOOR), Decimal(repr(high)).quantize(unit, ROUND_CEILING)
    return {"low": float(least), "high": float(most)} if decimals else {"low": int(least), "high": int(most)}


def _with_number(known: tuple[float, float, int], cell: Any) -> tuple[float, float, int] | None:
    number = as_number(cell)
    if number is None:
        return None
    return min(known[0], number), max(known[1], number), max(known[2], min(_DECIMALS, decimals(cell)))


def _with_date(known: tuple[datetime.date, datetime.date], cell: Any) -> tuple[datetime.date, datetime.date] | None:
    date = _date(cell)
    return None if date is None else (min(known[0], date), max(known[1], date))


def _date(cell: Any) -> datetime.date | None:
    """The date in a cell, if it holds one without a time of day."""
    if isinstance(cell, datetime.datetime):
        return cell.date() if cell.time() == datetime.time() and cell.tzinfo is None else None
    if isinstance(cell, datetime.date):
        return cell
    try:
        return datetime.date.fromisoformat(str(cell).strip())
    except ValueError:
        return None
