"""How a CSV file is written: its quotes, line ends and first line, too. Canaries are written alike."""

from __future__ import annotations

import codecs
import gzip
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from dpassay.data.reader import FOUND, Dialect, FileOptions, dialect_of

_HEAD = 2**22  # bytes in which the style is found
_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How a CSV file is written.

    Attributes:
        dialect: what a reader has to know.
        header: its first line, as it is; None if the file has none.
        quoted: the indices of columns whose cells are in quotes.
        quoted_empty: the indices of columns whose empty cells are in quotes.
        end: of its lines.
        mark: whether it begins with the mark of UTF-8.
    """

    dialect: Dialect
    header: str | None
    quoted: frozenset[int]
    quoted_empty: frozenset[int]
    end: str
    mark: bool

    @classmethod
    def of(cls, path: Path, stated: FileOptions = FOUND) -> CsvStyle:
        """The style of a file, from its beginning.

        Raises:
            ValueError: one line, as `dialect_of`.
        """
        dialect = dialect_of(path, stated)
        head, is_whole = _head(path, dialect.compression)
        mark = dialect.encoding == "utf-8" and head.startswith(codecs.BOM_UTF8)
        encoding = "utf-8-sig" if mark else dialect.encoding
        text = codecs.getincrementaldecoder(encoding)("replace").decode(head)
        records = list(itertools.islice(_records(text, dialect.separator), _RECORDS))
        if not is_whole and len(records) > 1:
            records = records[:-1]
        first = records[0] if records else _Record([], "", "\n")
        rows = [record.cells for record in (records[1:] if dialect.header else records)]
        filled: dict[int, bool] = {}
        empty: dict[int, bool] = {}
        for row in rows:
            for index, cell in enumerate(row):
                kind = empty if cell in ("", '""') else filled
                kind[index] = kind.get(index, True) and cell.startswith('"')
        return cls(
            dialect,
            first.text if dialect.header and records else None,
            frozenset(index for index, quoted in filled.items() if quoted),
            frozenset(index for index, quoted in empty.items() if quoted),
            first.end or "\n",
            mark,
        )

    @property
    def encoding(self) -> str:
        """As Python names it, with the mark."""
        return "utf-8-sig" if self.mark else self.dialect.encoding

    @property
    def stated(self) -> FileOptions:
        """What a reader has to be told, so that it finds nothing out."""
        of = self.dialect
        return FileOptions(separator=of.separator, encoding=of.encoding, header=of.header)

    def line(self, cells: Sequence[str]) -> str:
        """A row, with its line end."""
        return self.dialect.separator.join(self._cell(index, cell, len(cells)) for index, cell in enumerate(cells)) + (
            self.end
        )

    def _cell(self, index: int, cell: str, cells: int) -> str:
        if not cell:  # which could not be told from no cell in a line of one, or among spaces
            return '""' if index in self.quoted_empty or cells == 1 or self.dialect.separator == " " else ""
        if index in self.quoted or any(sign in cell for sign in (self.dialect.separator, '"', "\n", "\r")):
            return '"' + cell.replace('"', '""') + '"'
        return cell


@dataclass(frozen=True, slots=True)
class _Record:
    """A row as it is in the file: its cells with their quotes, all of it, and its line end."""

    cells: list[str]
    text: str
    end: str


def _records(text: str, separator: str) -> Iterator[_Record]:
    cell = re.compile(rf'("(?:[^"]|"")*"|[^{re.escape(separator)}\r\n]*)({re.escape(separator)}|\r\n|\n|\r|\Z)')
    position, start, cells = 0, 0, list[str]()
    while position < len(text) and (match := cell.match(text, position)):
        cells.append(match[1])
        position = match.end()
        if match[2] != separator:
            if cells != [""]:
                yield _Record(cells, text[start : match.end(1)], match[2])
            cells, start = [], position


def _head(path: Path, compression: str) -> tuple[bytes, bool]:
    """The beginning of a file, decompressed, and whether that is all of it."""
    with opened(path, compression) as file:
        head = file.read(_HEAD)
        return bytes(head), len(head) < _HEAD


def opened(path: Path, compression: str) -> IO[bytes]:
    """A file, decompressed."""
    if compression == "gzip":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if compression == "zstd":
        import pyarrow

        stream: IO[bytes] = pyarrow.input_stream(str(path.absolute()), compression="zstd")
        return stream
    return path.open("rb")


def compressed(file: IO[bytes], compression: str) -> IO[bytes]:
    """What compresses all that is written into it."""
    if compression == "gzip":
        return gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0)  # type: ignore[return-value]
    if compression == "zstd":
        import pyarrow

        stream: IO[bytes] = pyarrow.CompressedOutputStream(pyarrow.PythonFile(file, "w"), "zstd")
        return stream
    return file
