"""One reader for CSV, TSV and JSON Lines, plain or compressed: DuckDB, which opens only the file that is named.

How a text file is written (its `Dialect`) is found out from its beginning, unless it is stated, and can be shown. Cells
of CSV stay text: what a cell means is decided by its column, and what is hashed are the characters of the file. Rows
come in the order of the file, and memory is that of a part of it.

The connection is in memory, has no other file and no network, and installs no extension. Messages name the file and the
line, never a cell: what DuckDB says of a faulty line quotes it.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import itertools
import re
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from dpassay.base import validate
from dpassay.data.column_names import check_columns, names_of

if TYPE_CHECKING:
    import duckdb

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}
"""What may stand between cells, and its name on a command line; a space is never found out, since texts have some."""
ENCODINGS = ("utf-8", "utf-16", "latin-1")
DECIMALS = (".", ",")
COMPRESSED = {".gz": "gzip", ".zst": "zstd"}
"""Endings of compressed files, and what DuckDB calls them."""

SAMPLE = 2048  # rows that the separator and the header are found in
_PIECE = 2048  # rows that are read at once
_LONGEST_LINE = 2**31 - 1
_LONGEST_COMPRESSED = 2**24  # sixteen times as much memory is taken
_TOO_LONG = f": has a line of more than {_LONGEST_COMPRESSED >> 20} MiB; decompress the file first"
_NOT_COMPRESSED = ": is not compressed as its name says, or was cut off"
_MAX_MEMORY = "1GB"
_START = 4096  # bytes, even, so that no sign of UTF-16 is cut
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ONE_LINE = "\x01"  # no JSON holds it unescaped, so that a line is one cell
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*")
_DATE = re.compile(r"\d{4}-\d\d?-\d\d?([T ].*)?")


@dataclass(frozen=True, kw_only=True)
class CsvOptions:
    """What a user says of how CSV files are written; what is None is found out.

    Attributes:
        separator: between cells, a character of `SEPARATORS`, or its name.
        encoding: one of `ENCODINGS`.
        header: whether the first line names the columns.
    """

    separator: Annotated[
        str | None,
        "Between the cells of CSV files: comma, semicolon, tab, bar or space. Default: found out.",
        SEPARATORS.values(),
    ] = None
    encoding: Annotated[
        str | None, "Of CSV files: utf-8, utf-16 or latin-1. Default: UTF-8, or UTF-16 by its mark.", ENCODINGS
    ] = None
    header: Annotated[
        bool | None, "Whether the first line of CSV files names the columns. Default: it does, or is refused."
    ] = None

    def __post_init__(self) -> None:
        if self.separator is not None:
            named = {name: sign for sign, name in SEPARATORS.items()}
            if self.separator not in (*named, *SEPARATORS):
                *others, last = named
                raise ValueError(
                    f"separator must be {', '.join(others)} or {last}, or that character, not {self.separator!r}"
                    + validate.did_you_mean(self.separator, named)
                )
            object.__setattr__(self, "separator", named.get(self.separator, self.separator))
        if self.encoding is not None:
            validate.one_of(ENCODINGS, encoding=self.encoding)


@dataclass(frozen=True, kw_only=True)
class FileOptions(CsvOptions):
    """The same, and what a user says of the cells of tables.

    Attributes:
        missing: words that mean that a cell is missing, in any column.
        decimal: the sign before decimals, ``.`` or ``,``.
    """

    missing: Annotated[list[str] | None, "Word that means that a cell is missing, in any column; repeatable."] = None
    decimal: Annotated[
        str | None,
        'The sign before decimals, "." or ",". Default: found out by column; "." in `table utility`.',
        DECIMALS,
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decimal not in (None, *DECIMALS):
            raise ValueError(f'decimal must be "." or ",", not {self.decimal!r}')


FOUND = FileOptions()
"""Nothing is stated, and everything is found out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a CSV file is written; as `FileOptions`, with the compression (``none``, ``gzip``, ``zstd``)."""

    separator: str
    encoding: str
    header: bool
    compression: str

    def __str__(self) -> str:
        said = [f"{SEPARATORS.get(self.separator, 'line')}s between cells", self.encoding]
        said += ["no header"] if not self.header else []
        said += [self.compression] if self.compression != "none" else []
        return ", ".join(said)

    def to_json(self) -> dict[str, str | bool]:
        return asdict(self)


@dataclass(slots=True)
class Where:
    """The location of a row; its line is found when it is printed, since rows may take several lines."""

    path: Path
    row: int
    dialect: Dialect

    def __str__(self) -> str:
        return f"line {_line_of(self.path, self.row, self.dialect)}"


def compression_of(path: Path) -> tuple[str, str]:
    """The format of a file by its name, such as ``.csv``, and its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in COMPRESSED:
        return (suffixes[0] if len(suffixes) > 1 else ""), COMPRESSED[suffixes[-1]]
    return (suffixes[-1] if suffixes else ""), "none"


def dialect_of(path: Path, stated: CsvOptions = FOUND) -> Dialect:
    """How a CSV file is written, from its first rows and what is stated.

    Raises:
        ValueError: one line, if it is not text in its encoding, or its first row is a row like the others.
    """
    with _connected(path) as connection:
        return _dialect(connection, path, stated)


def read_csv(
    path: Path, stated: CsvOptions = FOUND, wanted: Collection[str] | None = None
) -> Iterator[tuple[Where, dict[str, str]]]:
    """The rows of a CSV file, by the names of its columns, each with its location.

    Columns without a name are called ``Unnamed: 0`` and so on, by their index, as pandas does; without a header all
    are ``column 0`` and so on.

    Args:
        path: of the file.
        stated: what is known of it.
        wanted: columns that must be there; None for any.

    Raises:
        ValueError: one line without any cell, if a row has another number of cells than the first, a quote is not
            closed, a name stands twice, or as for `dialect_of`.
    """
    with _connected(path) as connection:
        dialect = _dialect(connection, path, stated)
        cells = _cells(connection, path, dialect)
        first = next(cells, ())
        names = names_of(first) if dialect.header else [f"column {index}" for index in range(len(first))]
        check_columns(path, names, wanted, ", line 1" if dialect.header else "")
        rows = cells if dialect.header else itertools.chain([first] if first else [], cells)
        for number, row in enumerate(rows, 1 + dialect.header):
            yield Where(path, number, dialect), dict(zip(names, row))  # noqa: B905 - DuckDB checks their number


def _dialect(connection: duckdb.DuckDBPyConnection, path: Path, stated: CsvOptions) -> Dialect:
    format_, compression = compression_of(path)
    encoding = stated.encoding or _encoding(path, compression)
    separator = stated.separator or ("\t" if format_ == ".tsv" else "")
    separator = separator or _separator(connection, path, encoding, compression)
    dialect = Dialect(
        separator=separator, encoding=encoding, header=stated.header is not False, compression=compression
    )
    if stated.separator and stated.header is not None:
        return dialect
    sample = list(itertools.islice(_cells(connection, path, dialect), SAMPLE))
    if sample and sample[0][0].casefold().startswith("sep=") and not any(sample[0][1:]):
        raise ValueError(f"{path}, line 1: is a note for Excel (sep=), which names no columns; delete it")
    if not stated.separator and _has_spaces(sample):
        raise ValueError(
            f"{path}: has spaces between its cells, it seems, and no other separator; state which one it is "
            "(separator: space, or --separator space; any other, such as comma, for one column)"
        )
    if stated.header is None and _is_like_the_rest(sample):
        raise ValueError(
            f"{path}, line 1: looks like a row, and not like the names of columns; state whether it is one "
            "(header: false, or --no-header), or add a line with the names"
        )
    return dialect


def read_lines(path: Path, compression: str) -> Iterator[tuple[int, str]]:
    """The lines of a text in UTF-8 that are not blank, each with its number from 1.

    Raises:
        ValueError: one line, if the file is not UTF-8, or cannot be decompressed.
    """
    for number, line in enumerate(_lines(path, "utf-8", compression, "strict"), 1):
        if line.strip():
            yield number, line.rstrip("\r\n")


def _connected(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection that reads one file and nothing else."""
    import duckdb

    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false", "threads": "1"}
    connection = duckdb.connect(":memory:", config={**settings, "memory_limit": _MAX_MEMORY, "temp_directory": ""})
    connection.execute(f"SET allowed_paths = [{_quoted(str(path.absolute()))}, {_literal(path)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _literal(path: Path) -> str:
    """The path of a file in SQL, where a sign that stands for other files stands for itself."""
    return _quoted(re.sub(r"[*?\[]", r"[\g<0>]", str(path.absolute())))


def _cells(
    connection: duckdb.DuckDBPyConnection, path: Path, dialect: Dialect, columns: int | None = None, quote: str = '"'
) -> Iterator[tuple[str, ...]]:
    """All rows of a file as they are, the header included; an empty cell is an empty string."""
    import duckdb

    if columns is None:
        columns = _width(path, dialect)
    if not columns:
        return
    names = [f"c{index}" for index in range(columns)]
    options = {
        "auto_detect": "false",
        "hive_partitioning": "false",
        "header": "false",
        "delim": _quoted(dialect.separator),
        "quote": _quoted(quote),
        "escape": _quoted(quote),
        "encoding": _quoted(dialect.encoding),
        "compression": _quoted(dialect.compression),
        "strict_mode": "true" if quote else "false",  # among lines, those that a cell ends may end in another way
        "max_line_size": _longest_line(path, dialect.compression),
        "nullstr": _quoted(""),
        "force_not_null": f"[{', '.join(map(_quoted, names))}]",
        "columns": "{" + ", ".join(f"{_quoted(name)}: 'VARCHAR'" for name in names) + "}",
    }
    given = ", ".join(f"{name} = {value}" for name, value in options.items())
    try:
        result = connection.cursor().execute(f"SELECT * FROM read_csv({_literal(path)}, {given})")
        while rows := result.fetchmany(_PIECE):
            yield from rows
    except duckdb.Error as error:
        raise ValueError(f"{path}{_fault(str(error), dialect)}") from None


def _fault(message: str, dialect: Dialect) -> str:
    """What is wrong with a file, in words of our own: what DuckDB says quotes the line."""
    line = re.search(r"CSV Error on Line: (\d+)", message)
    where = f", line {line[1]}: " if line else ": "
    if "unterminated quote" in message or "quote should be followed" in message:
        return f"{where}is not CSV; check that every quote is closed ({dialect})"
    if "aximum line size" in message:
        return _TOO_LONG
    if "Expected Number of Columns" in message:
        return f"{where}has a different number of cells than the header ({dialect})"
    if "unicode" in message.lower() or "encod" in message.lower():
        return (
            f"{where}is not {dialect.encoding.upper()} text; save it as UTF-8, or state how it is written, such as "
            "`encoding: latin-1` in a claim and `--encoding latin-1` on the command line"
        )
    if "decompress" in message.lower() or "gzip" in message.lower() or "zstd" in message.lower():
        return _NOT_COMPRESSED
    return (
        f"{where}cannot be read as CSV ({dialect}); check that all lines end alike, and that cells with line ends are "
        "quoted"
    )


def _width(path: Path, dialect: Dialect) -> int:
    """The number of cells of the first row."""
    return len(_parsed(_first_lines(path, dialect.encoding, dialect.compression), dialect.separator, 1)[0])


def _first_lines(path: Path, encoding: str, compression: str) -> list[str]:
    with contextlib.closing(_lines(path, encoding, compression)) as lines:
        return list(itertools.islice(lines, SAMPLE))


def _lines(path: Path, encoding: str, compression: str, errors: str = "replace") -> Generator[str]:
    """The lines of a file with their ends; where it matters, `_cells` finds what is not in its encoding."""
    if compression == "zstd":
        yield from _lines_of_zstd(path, encoding)
        return
    opened: Callable[..., TextIO] = gzip.open if compression == "gzip" else open
    longest = _LONGEST_COMPRESSED if compression == "gzip" else -1
    try:
        with opened(path, "rt", encoding=_codec(path, encoding, compression), errors=errors, newline="") as file:
            while line := file.readline(longest):
                if len(line) == longest:
                    raise ValueError(f"{path}{_TOO_LONG}")
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise ValueError(f"{path}{_NOT_COMPRESSED}") from None
    except UnicodeDecodeError:
        if compression == "none":
            raise
        raise ValueError(f"{path}: is not UTF-8 text; save it as UTF-8") from None


def _codec(path: Path, encoding: str, compression: str) -> str:
    """The name of an encoding in Python, which reads UTF-16 without its mark by another one than with it."""
    if encoding == "utf-16":
        with gzip.open(path, "rb") if compression == "gzip" else path.open("rb") as file:
            return encoding if file.read(2) in _UTF_16_MARKS else "utf-16-le"
    return "utf-8-sig" if encoding == "utf-8" else encoding


def _lines_of_zstd(path: Path, encoding: str) -> Iterator[str]:
    dialect = Dialect(separator=_ONE_LINE, encoding=encoding, header=False, compression="zstd")
    with _connected(path) as connection:
        for (line,) in _cells(connection, path, dialect, columns=1, quote=""):
            yield line + "\n"


def _parsed(lines: Iterable[str], separator: str, rows: int) -> list[list[str]]:
    """The first rows of some lines of CSV, at least one; a row that goes on beyond them is cut."""
    csv.field_size_limit(_LONGEST_LINE)
    return list(itertools.islice(csv.reader(lines, delimiter=separator), rows)) or [[]]


def _longest_line(path: Path, compression: str) -> str:
    """No line is longer than its file; memory in proportion is taken where it is compressed or not UTF-8."""
    if compression != "none":
        return str(_LONGEST_COMPRESSED)
    return str(min(_LONGEST_LINE, max(2**21, path.stat().st_size + 1)))


def _separator(connection: duckdb.DuckDBPyConnection, path: Path, encoding: str, compression: str) -> str:
    """What stands between cells: what DuckDB finds, if it takes the first line for the first row, and finds columns.

    Else it is what cuts the first line into most cells. DuckDB prefers to leave out lines that do not fit.
    """
    given = f"{_literal(path)}, all_varchar = true, header = false, encoding = {_quoted(encoding)}, "
    given += f"compression = {_quoted(compression)}, max_line_size = {_longest_line(path, compression)}"
    query = f"SELECT Delimiter, SkipRows, len(Columns) FROM sniff_csv({given})"
    import duckdb

    try:
        found, skipped, columns = connection.cursor().execute(query).fetchone() or ("", 0, 1)
    except duckdb.Error:
        found, skipped, columns = "", 0, 1
    if found in SEPARATORS and found != " " and not skipped and columns > 1:
        return str(found)
    lines = _first_lines(path, encoding, compression)
    cells = {sign: len(_parsed(lines, sign, 1)[0]) for sign in SEPARATORS if sign != " "}
    return max(cells, key=lambda sign: cells[sign])


def _encoding(path: Path, compression: str) -> str:
    """UTF-16 if the file begins with its mark, else UTF-8, which is checked when it is read."""
    if compression != "none":
        return "utf-8"
    with path.open("rb") as file:
        start = file.read(_START)
    if start[:2] not in _UTF_16_MARKS:
        if 3 * start.count(b"\0") > len(start):  # of each sign of Latin letters in UTF-16 one byte is zero
            raise ValueError(
                f"{path}: looks like UTF-16 without its mark; save it as UTF-8, or state `encoding: utf-16` in a claim "
                "and `--encoding utf-16` on the command line"
            )
        return "utf-8"
    if len(start) > 2 and not any(sign.isascii() for sign in start.decode("utf-16", "replace")):
        raise ValueError(f"{path}: begins with the mark of UTF-16, but is not UTF-16 text; save it as UTF-8")
    return "utf-16"


def _is_like_the_rest(sample: Sequence[Sequence[str]]) -> bool:
    """Whether the first row has a number or a date where nearly all others have one, too."""
    first, rest = sample[:1], sample[1:]
    if not first or len(rest) < 2 or _counts_up(first[0]):
        return False
    return any(
        bool(kind.fullmatch(name)) and sum(bool(kind.fullmatch(row[index])) for row in rest) >= 0.9 * len(rest)
        for index, name in enumerate(first[0])
        for kind in (_NUMBER, _DATE)
    )


def _counts_up(names: Sequence[str]) -> bool:
    """Whether the numbers among some names are three or more that count up, as years do in a header, and indices."""
    numbers = [name.strip() for name in names if _NUMBER.fullmatch(name)]
    if len(numbers) < 3 or not all(number.isascii() and number.isdigit() for number in numbers):
        return False
    return [int(number) for number in numbers] == list(range(int(numbers[0]), int(numbers[0]) + len(numbers)))


def _has_spaces(sample: Sequence[Sequence[str]]) -> bool:
    """Whether the rows have one cell each, and spaces cut all of them into as many parts, one of which is a number."""
    if len(sample) < 2 or any(len(row) != 1 for row in sample):
        return False
    first, *rest = (row[0].split() for row in sample)
    width = len(rest[0])
    if len(first) < 2 or len(first) not in (width, width - 1) or any(len(parts) != width for parts in rest):
        return False  # a header may leave out the names of rows
    return any(all(_NUMBER.fullmatch(parts[index]) for parts in rest) for index in range(width))


def _line_of(path: Path, row: int, dialect: Dialect) -> int:
    """The line on which a row, counted from 1 with the header, ends."""
    with contextlib.closing(_lines(path, dialect.encoding, dialect.compression)) as lines:
        reader = csv.reader(lines, delimiter=dialect.separator)
        rows = (cells for cells in reader if cells)
        for _ in itertools.islice(rows, row):
            pass
        return reader.line_num
