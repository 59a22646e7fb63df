"""The data that canaries will be added to: their columns, and canaries in the same format."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import random
import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, localcontext
from pathlib import Path
from typing import IO, Any, NamedTuple

from dpassay.attacks.canaries.rows import ColumnRange, RangeReader, range_of
from dpassay.attacks.canaries.spelling import Spelling
from dpassay.attacks.canaries.texts import form, numbers_in
from dpassay.auditing.csv_style import CsvStyle, compressed
from dpassay.base.errors import InputError, input_errors, naming
from dpassay.base.progress import Progress
from dpassay.data.column_names import no_column
from dpassay.data.column_summary import ColumnSummary, summarised
from dpassay.data.columns import MAX_DISTINCT, Column, Form, Kind, Rules, word_of
from dpassay.data.reader import FOUND, FileOptions, compression_of
from dpassay.data.records import read_rows, written_as
from dpassay.data.table_schema import AnyColumn, CategoryColumn, DateColumn, Schema, kinds_of

SAMPLE = 20_000
"""The most rows of the data, drawn uniformly, that canaries are modelled on and compared with."""
_NUMBERS, _FORMS = 10**6, 1000  # the most numbers, and ways of writing them, that are remembered
_MISSING = 0.1  # share of empty cells where a schema allows them and there are no data
_PIECE = 4096  # rows that are written to Parquet at once
_MIN_IDS = 20
_SURROGATE = re.compile("[\ud800-\udfff]")
_UNPAIRED = "has an unpaired surrogate, which is not a valid character"
_WHOLE = re.compile(r"[0-9]{1,15}")
_INDEX = re.compile(r"Unnamed: \d+")
_TEXTS = (".csv", ".tsv")
_WRITTEN = (*_TEXTS, ".jsonl", ".parquet")
DATA = "data"
"""The name of the file, where it is said what was understood of it."""


class Columns(NamedTuple):
    """The columns of the data in which canaries have new values; None for those that it has not."""

    text: str | None
    id: str | None
    user: str | None

    @property
    def named(self) -> dict[str, str]:
        """The columns that there are, by what they hold."""
        return {what: column for what, column in self._asdict().items() if column is not None}

    def check(self) -> None:
        """Raises `ValueError` if one column is named twice."""
        if len(set(self.named.values())) < len(self.named):
            raise ValueError(
                f"{', '.join(f'--{what} {column}' for what, column in self.named.items())}: one column cannot be two "
                "of them, since canaries have a new value in each"
            )


@dataclass(slots=True)
class Data:
    """What was read of the data that canaries will be added to, and of their public schema.

    Attributes:
        path: the file, or None.
        columns: its columns in order, with the kind and the values of each.
        public: whether the domains of the columns are those of a schema.
        rows: a uniform sample of its rows.
        count: number of its rows.
        templates: sentences for keys; empty for built-in ones.
        numbers: the numbers in its texts that keys could be; at most a million.
        forms: how often they are written in each way.
        whole_ids: whether all ids are integers.
        largest: the largest integer among ids, and among users.
        like_id: columns that look like ids: every row has another integer or word.
        reading: what was stated of how the file is written.
        written: how it is written, in words; empty without a file.
        summaries: what was understood of its columns; private.
        style: how a CSV file is written, which is found out where canaries are written.
    """

    path: Path | None = None
    columns: list[ColumnRange] = field(default_factory=list)
    public: bool = False
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    count: int = 0
    templates: tuple[str, ...] = ()
    numbers: set[str] = field(default_factory=set)
    forms: Counter[str] = field(default_factory=Counter)
    whole_ids: bool = True
    largest: dict[str, int] = field(default_factory=dict)
    like_id: tuple[str, ...] = ()
    reading: FileOptions = FOUND
    written: str = ""
    summaries: tuple[ColumnSummary, ...] = ()
    style: CsvStyle | None = None

    @property
    def format(self) -> str:
        """The format of the files that are written, such as ``.csv``."""
        return compression_of(self.path)[0] if self.path else ".jsonl"

    @property
    def suffix(self) -> str:
        """Suffix of the files that are written: that of the data, such as ``.csv.gz``."""
        return self.format + (self.path.suffix.lower() if self.path and compression_of(self.path)[1] != "none" else "")

    def csv_style(self) -> CsvStyle:
        """How the CSV file is written."""
        assert self.path is not None
        if self.style is None:
            self.style = CsvStyle.of(self.path, self.reading)
        return self.style


def read_data(
    path: Path | None,
    columns: Columns,
    progress: Progress,
    schema: Schema | None = None,
    reading: FileOptions = FOUND,
) -> Data:
    """Reads the data in one pass and bounded memory.

    Args:
        path: a ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file; None for records with a text, the columns of the
            schema and, if given, a user and an id.
        columns: of text, id and user; there is no text if canaries are rows of a table.
        progress: where to show progress.
        schema: the public domains of all other columns; None to read these off the data.
        reading: how the file is written; what is not stated is found out.

    Raises:
        ValueError: one line, if the file or a column is invalid.
    """
    text, id, user = columns
    taken: set[str | None] = {id, user, text}
    if path is None:
        named = [ColumnRange(name, "other") for name in (text, user, id) if name is not None]
        if any(_SURROGATE.search(column.name) for column in named):
            raise ValueError(f"the name of a column {_UNPAIRED}")
        domains = [] if schema is None else [_public(column, None) for column in schema.columns]
        return Data(
            columns=named + [column for column in domains if column.name not in taken], public=schema is not None
        )
    data = Data(path, public=schema is not None, reading=reading)
    if data.format not in _WRITTEN and path.is_file():
        raise ValueError(
            f"{path}: canaries are written as the data are, in {', '.join(_WRITTEN)}; save the data as one of these"
        )
    rules = Rules(
        kinds={} if schema is None else kinds_of(schema), missing=reading.missing or (), decimal=reading.decimal
    )
    readers: dict[str, RangeReader] = {}
    halves: dict[str, object] = {}
    drawn = random.Random(secrets.randbits(64))
    with progress.stage("Reading the data") as step:
        for data.count, (where, row) in enumerate(read_rows(path, stated=reading), 1):
            for name, value in row.items():
                if name not in readers:
                    if _SURROGATE.search(name):
                        raise ValueError(f"{path}, {where}: the name of a column {_UNPAIRED}")
                    readers[name] = RangeReader(name, rules)
                readers[name].read(value)
                if isinstance(value, str) and not value.isascii() and _SURROGATE.search(value):
                    halves.setdefault(name, where)
            _read_row(data, row, text, id, where)
            for column in (id, user):
                if column is not None and isinstance(number := row.get(column), int):
                    data.largest[column] = max(data.largest.get(column, 0), number)
            if len(data.rows) < SAMPLE:  # reservoir sampling: Vitter 1985, algorithm R
                data.rows.append(row)
            elif (index := drawn.randrange(data.count)) < SAMPLE:
                data.rows[index] = row
            if data.count % 1000 == 0:
                step(0, 1)  # the number of rows is unknown before the end
        step(1, 1)
    if not data.count:
        raise ValueError(f"{path}: holds no rows; canaries are modelled on rows, so name a file with some")
    for what, column in columns.named.items():
        if column not in readers:
            raise ValueError(f"{path}: {no_column(column, readers)}; name the {what} column with --{what}")
    held = {name: reader.cells.column() for name, reader in readers.items()}
    results = {
        name: _without_index(range_of(held[name], reader.written, rules.missing), held[name])
        for name, reader in readers.items()
    }
    if schema is not None:
        results |= _public_columns(path, results, readers, schema, taken)
    data.columns = [ColumnRange(name, "other") if name in taken else column for name, column in results.items()]
    data.written = written_as(path, reading)
    data.summaries = tuple(
        _summary(held[column.name], readers[column.name], column, columns) for column in data.columns
    )
    for compared in data.columns:
        if text is None and compared.kind != "other" and compared.name in halves:
            raise ValueError(f"{path}, {halves[compared.name]}: column {compared.name!r} {_UNPAIRED}")
    if not data.public:
        data.like_id = tuple(column.name for column in data.columns if _looks_like_an_id(column, data))
    return data


def _looks_like_an_id(column: ColumnRange, data: Data) -> bool:
    """Whether each row that was kept, of at least 20, has an integer or a word of its own in a compared column."""
    if not column.compared or column.kind not in ("number", "word") or len(data.rows) < _MIN_IDS:
        return False
    if column.decimals or column.missing:
        return False
    return len({word_of(row.get(column.name)) for row in data.rows}) == len(data.rows)


def _without_index(column: ColumnRange, held: Column) -> ColumnRange:
    """A column, which is not compared if it is the index that pandas writes: whole numbers without a name."""
    is_index = (
        bool(_INDEX.fullmatch(column.name))
        and held.kind is Kind.NUMBER
        and not (column.decimals or held.missing or held.odd)
        and held.distinct == min(held.rows, MAX_DISTINCT)
    )
    return replace(column, compared=False) if is_index else column


def _summary(held: Column, reader: RangeReader, column: ColumnRange, named: Columns) -> ColumnSummary:
    """What was understood of a column, and what canaries have in it."""
    left, use = "", ""
    if column.name == named.text:
        use = "the text of canaries"
    elif column.name in named:
        what = next(what for what, name in named.named.items() if name == column.name)
        left = f"the {what}; each canary has a new one"
    elif named.text is not None:
        left = "the attack reads the text only"
    elif not column.compared:
        left = "the index of pandas"
    elif column.kind == "other":
        left = _why_other(held)
    return summarised(held, {DATA: reader.cells}, left=left, use=use)


def _why_other(held: Column) -> str:
    if held.kind is Kind.NESTED:
        return "holds neither text nor numbers nor dates"
    if held.form is not None:
        return "its numbers are too large to be exact"
    if held.missing == held.rows:
        return "empty"
    return "too many different words; canaries have a made-up one"


def whole_column(data: Data, column: str | None) -> tuple[int, str] | None:
    """The largest number of a column of integers of a Parquet file, and its type in words; None for any other."""
    if data.path is None or data.suffix != ".parquet" or column is None:
        return None
    import pyarrow.parquet

    kind = pyarrow.parquet.read_schema(data.path.absolute()).field(column).type
    if not pyarrow.types.is_integer(kind):
        return None
    return int(2 ** (kind.bit_width - pyarrow.types.is_signed_integer(kind)) - 1), str(kind)


def _read_row(data: Data, row: Mapping[str, Any], text: str | None, id: str | None, where: object) -> None:
    """Adds the numbers in the text of a row to the data, and whether its id is an integer."""
    if id is not None:
        data.whole_ids &= bool(_WHOLE.fullmatch(str(row.get(id))))
    value = row.get(text) if text is not None else None
    if value is None:
        return
    if not isinstance(value, str):
        raise ValueError(f"{data.path}, {where}: column {text!r} must hold text")
    for number in numbers_in(value):
        written = form(number)
        if written in data.forms or len(data.forms) < _FORMS:
            data.forms[written] += 1
        if len(data.numbers) < _NUMBERS:
            data.numbers.add(number)


def _public_columns(
    path: Path,
    result: Mapping[str, ColumnRange],
    readers: Mapping[str, RangeReader],
    schema: Schema,
    taken: Collection[str | None],
) -> dict[str, ColumnRange]:
    """The columns of the data with the domains of the schema."""
    unknown = [name for name in result if name not in taken and name not in schema.names]
    if unknown:
        raise ValueError(
            f"{path}: has a column {unknown[0]!r}, which the schema lacks; add it to the schema, or name it with --id "
            "or --user if it is one of these"
        )
    missing = [name for name in schema.names if name not in result]
    if missing:
        raise ValueError(f"{path}: there is no column {missing[0]!r}, which the schema has; take it out of the schema")
    return {
        column.name: _public(column, result[column.name], whole=readers[column.name].written.whole)
        for column in schema.columns
        if column.name not in taken
    }


def _public(column: AnyColumn, read: ColumnRange | None, *, whole: bool = False) -> ColumnRange:
    """A column with a public domain, in the types and the spelling of the file.

    Values come from the domain. Where the data have few values that repeat, they are those of both, so that the column
    keeps its number of distinct values.

    Args:
        column: of the schema.
        read: the same column as the data show it; None without data.
        whole: whether the data have whole numbers in it, which are no strings.
    """
    seen = () if read is None else tuple(value for value in read.values if _allows(column, read, value))
    missing = 0.0 if not column.missing else _MISSING if read is None else min(read.missing, 0.99)
    known = replace(read, decimals=0, unused=()) if read is not None else ColumnRange(column.name, "other")
    known = replace(known, values=seen, missing=missing)
    if isinstance(column, CategoryColumn):
        every: tuple[Any, ...] = tuple(int(word) if whole else word for word in column.values)
        unused = tuple(word for word in every if word_of(word) not in set(map(word_of, seen))) if seen else ()
        return replace(known, kind="word", values=seen or every, unused=unused)
    if isinstance(column, DateColumn):
        low, high = float(column.low.toordinal()), float(column.high.toordinal())
        form = known.form if known.kind == "date" else str(Form.DAY)
        return replace(known, kind="date", low=low, high=high, form=form)
    low, high = (float(word) for word in column.longest)
    form = known.form if known.kind == "number" else str(Form.POINT)
    if read is None:
        known = replace(known, spelling=Spelling(places=min(column.decimals, 1)))
    return replace(known, kind="number", low=low, high=high, decimals=column.decimals, form=form)


def _allows(column: AnyColumn, read: ColumnRange, value: Any) -> bool:
    """Whether a value of the data is one of the domain."""
    if read.is_measured and (number := read.number(value)) is not None:
        value = datetime.date.fromordinal(int(number)) if read.kind == "date" else number
    try:
        column.word(value)
    except ValueError:
        return False
    return True


class RowWriter:
    """Writes rows in the format and the columns of the data, row by row; only the owner may read the file.

    Raises:
        InputError: if the file cannot be written, or the column types of the Parquet file cannot hold a row.
    """

    def __init__(self, path: Path, data: Data) -> None:
        self._path, self._data = path, data
        self._stack = contextlib.ExitStack()
        self._rows: list[Mapping[str, Any]] = []

    def __enter__(self) -> RowWriter:
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        path, data = self._path, self._data
        with input_errors(), naming(path):
            self._parquet = path.suffix == ".parquet" and data.path is not None
            if self._parquet:
                import pyarrow.parquet

                self._file = self._stack.enter_context(open(path, "wb", opener=private))
                self._schema = pyarrow.parquet.read_schema(data.path.absolute())  # type: ignore[union-attr]
                self._writer = self._stack.enter_context(pyarrow.parquet.ParquetWriter(self._file, self._schema))
                return self
            kind, compression = compression_of(path)
            file: IO[bytes] = self._stack.enter_context(open(path, "wb", opener=private))
            file = self._stack.enter_context(compressed(file, compression))
            style = data.csv_style() if kind in _TEXTS else None
            encoding = "utf-8" if style is None else style.encoding
            text = self._stack.enter_context(io.TextIOWrapper(file, encoding=encoding, newline=""))
            if style is None:
                self._put: Callable[[Mapping[str, Any]], Any] = lambda row: text.write(_json_line(row))
                return self
            names = [column.name for column in data.columns]
            if style.header is not None:
                text.write(style.header + style.end)
            self._put = lambda row: text.write(style.line([_csv_cell(row.get(name)) for name in names]))
        return self

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row."""
        if not self._parquet:
            with input_errors(), naming(self._path):
                try:
                    self._put(row)
                except UnicodeEncodeError as error:
                    raise ValueError(f"has characters that {error.encoding} has not; save the data as UTF-8") from None
            return
        self._rows.append(row)
        if len(self._rows) == _PIECE:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        columns = []
        for field_ in self._schema:
            try:
                cells = [_typed(row.get(field_.name), field_.type) for row in self._rows]
                columns.append(pyarrow.array(cells, type=field_.type))
            except (pyarrow.ArrowException, ArithmeticError, TypeError, ValueError):
                raise InputError(
                    f"{self._data.path}: column {field_.name!r} ({field_.type}) cannot hold made-up values; "
                    f"{_instead(field_.type)}"
                ) from None
        try:
            self._writer.write_table(pyarrow.Table.from_arrays(columns, schema=self._schema))
        except (pyarrow.ArrowException, TypeError, ValueError):
            raise InputError(
                f"{self._data.path}: its column types cannot hold canaries; use CSV or JSON Lines"
            ) from None
        self._rows = []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._parquet:
                self._flush()
        finally:
            with input_errors(), naming(self._path):
                self._stack.close()


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], data: Data) -> None:
    """Writes rows in the format and the columns of the data.

    Raises:
        InputError: as `RowWriter`.
    """
    with RowWriter(path, data) as writer:
        for row in rows:
            writer.write(row)


def _csv_cell(value: Any) -> str:
    return "" if value is None else str(value)


def _json_line(row: Mapping[str, Any]) -> str:
    written = json.dumps(row, ensure_ascii=False)
    return (json.dumps(row) if _SURROGATE.search(written) else written) + "\n"  # half of a pair has no UTF-8


def _typed(value: Any, kind: Any) -> Any:
    """A value in a type of Parquet: in manifests dates are text, and decimals are floats.

    Raises:
        ValueError: if it is text that is no date, in a column of times.
    """
    from pyarrow import lib, types

    if isinstance(value, str) and types.is_temporal(kind):
        time = datetime.datetime.fromisoformat(value)
        if not types.is_timestamp(kind):
            return time.date()
        if kind.tz is None:
            return time
        zone = lib.string_to_tzinfo(kind.tz)
        return time.replace(tzinfo=zone) if time.tzinfo is None else time.astimezone(zone)
    if isinstance(value, float) and types.is_decimal(kind):
        with localcontext(prec=100):
            return Decimal(repr(value)).quantize(Decimal(1).scaleb(-kind.scale))
    if isinstance(value, int) and (types.is_string(kind) or types.is_large_string(kind)):
        return str(value)
    return value


def _instead(kind: Any) -> str:
    from pyarrow import types

    if types.is_timestamp(kind):
        return "write it as a date or give the data as CSV"
    return "leave it out of the file or give the data as CSV"
