"""The two files of a user that are a pair of neighbours, and their part of a plan.

They may be large: their records are read anew wherever they are needed, and the files are copied in pieces.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, overload

from pydantic import Field

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import Row
from dpassay.attacks.black_box.own_neighbors import OwnNeighbors, own_in_words, own_neighbors
from dpassay.auditing.csv_style import CsvStyle
from dpassay.auditing.files import Part
from dpassay.base.errors import naming
from dpassay.base.progress import Progress
from dpassay.data.reader import FOUND, FileOptions, compression_of
from dpassay.data.records import read_rows, written_as

_PIECE: Final = 1 << 20  # bytes that are copied at once


class FileRows(Sequence[Row]):
    """The records of a file, which are read again each time, so that they need not fit into memory.

    Args:
        path: of the file.
        stated: how it is written.
    """

    def __init__(self, path: Path, stated: FileOptions = FOUND) -> None:
        self.path, self._stated = path, stated
        self._count: int | None = None

    def __iter__(self) -> Iterator[Row]:
        count = 0
        for _, row in read_rows(self.path, stated=self._stated):
            count += 1
            yield row
        self._count = count

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Row, ...]: ...

    def __getitem__(self, index: int | slice) -> Row | tuple[Row, ...]:
        chosen = range(len(self))[index]
        if isinstance(chosen, int):
            return next(itertools.islice(self, chosen, None))
        wanted = frozenset(chosen)
        rows = {position: row for position, row in enumerate(self) if position in wanted}
        return tuple(rows[position] for position in chosen)


class PlannedOwn(Part):
    """The user's own pair.

    Attributes:
        data, neighbor: the files of D and D′, as they were given.
        records: number of records of each.
        positions: of the records of D′ that D has not, from 0.
        target: the position of the one that outputs are compared with.
    """

    data: str
    neighbor: str
    records: tuple[int, int]
    positions: list[int] = Field(min_length=1)
    target: int

    @classmethod
    def of(cls, own: OwnNeighbors, files: Sequence[Path], target: int) -> PlannedOwn:
        """The pair that two files are, if this is the position of the target."""
        data, neighbor = reversed(files) if own.swapped else files
        return cls(
            data=str(data),
            neighbor=str(neighbor),
            records=(len(own.data), len(own.neighbor)),
            positions=list(own.positions),
            target=target,
        )

    def differs(self, adjacency: Adjacency) -> str:
        """What D and D′ are, as one sentence."""
        return own_in_words(adjacency, len(self.positions), (Path(self.data).name, Path(self.neighbor).name))

    def in_words(self, adjacency: Adjacency) -> str:
        """Which file became D and which D′, and how they differ."""
        first, second = self.records
        return f"{self.differs(adjacency)} They have {first} and {second} records."

    def check(self) -> None:
        """Raises `ValueError` if a position is that of no record."""
        if self.target not in self.positions or not 0 <= min(self.positions) <= max(self.positions) < self.records[1]:
            raise ValueError("a position is that of no record")


def read_own(
    files: Sequence[Path], reading: FileOptions, adjacency: Adjacency, unit: Unit, progress: Progress
) -> OwnNeighbors:
    """Two files as a pair of neighbours.

    Raises:
        ValueError: one line, if a file cannot be read, they are written in different ways, or they are no neighbours.
    """
    with progress.stage("Comparing the two files") as step:
        _check_written_alike(files, reading)
        first, second = (FileRows(path, reading) for path in files)
        own = own_neighbors(first, second, adjacency, unit, (str(files[0]), str(files[1])))
        step(1, 1)
    return own


def _check_written_alike(files: Sequence[Path], reading: FileOptions) -> None:
    """Raises `ValueError` if files differ in more than their records, by which a generator could tell them apart."""
    first, second = files
    for path in files:
        next(read_rows(path, stated=reading), None)  # a file that is missing or malformed is named as such
    if compression_of(first) != compression_of(second):
        raise ValueError(f"{second}: is not of the format of {first}, by its name; write both alike")
    kind = compression_of(first)[0]
    if kind == ".parquet":
        import pyarrow.parquet

        schemas = [pyarrow.parquet.read_schema(path.absolute()).remove_metadata() for path in files]
        if not schemas[0].equals(schemas[1]):
            raise ValueError(f"{second}: has other columns, or other types, than {first}; write both alike")
    if kind not in (".csv", ".tsv"):
        return
    styles = [CsvStyle.of(path, reading) for path in files]
    if styles[0].dialect != styles[1].dialect:
        said = " and ".join(f"{path} is read as {written_as(path, reading)}" for path in files)
        raise ValueError(f"{said}; write both alike, or state how both are written (--separator, --encoding)")
    for attribute, what in (("header", "first line"), ("end", "end of lines"), ("mark", "mark of UTF-8")):
        if getattr(styles[0], attribute) != getattr(styles[1], attribute):
            raise ValueError(f"{second}: has another {what} than {first}; write both alike")


def copied(source: Path, target: Path) -> str:
    """Copies a file, which only its owner may read then, and returns the SHA-256 of its content."""
    digest = hashlib.sha256()

    def private(path: str, flags: int) -> int:
        return os.open(path, flags, 0o600)

    with naming(source), source.open("rb") as read, open(target, "wb", opener=private) as written:
        while piece := read.read(_PIECE):
            digest.update(piece)
            written.write(piece)
    return digest.hexdigest()
