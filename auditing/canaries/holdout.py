"""One run for all audits: the generator's input with canaries and without a holdout, and both sides of the split.

The coin of a unit comes from BLAKE2b under a fresh key of the operating system, so that all records of a user have one
coin, and nothing but the key has to be remembered. Files are read twice and written once; memory is that of a part of
the input, and eight bytes a record.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import math
import random
import re
import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dpassay.accounting.adjacency import Unit
from dpassay.attacks.canaries.rows import ColumnRange
from dpassay.auditing.canaries.files import Layout
from dpassay.auditing.data import Columns, Data, RowWriter
from dpassay.auditing.files import hashed
from dpassay.base.progress import Progress
from dpassay.data.cells import is_missing
from dpassay.data.columns import word_of
from dpassay.data.reader import FOUND
from dpassay.data.records import read_rows
from dpassay.data.word_runs import Words

SOURCE, HOLDOUT, CANDIDATES = "source", "holdout", "candidates"
_PART = 2**25  # about the bytes of the input that are shuffled at once
_MAX_PARTS = 256
_TEXTS = 4096
_COMPARED = (type(None), str, bool, int, float, Decimal, datetime.date)
"""The types of cells that `dpassay audit table` compares."""
_SURROGATE = re.compile("[\ud800-\udfff]")


def write_layout(
    folder: Path,
    data: Data,
    planted: Iterable[Mapping[str, Any]],
    split: Columns,
    unit: Unit,
    share: float,
    progress: Progress,
) -> Layout:
    """Writes the input, and in ``private/`` source and holdout; for texts also both as candidates of membership.

    Args:
        folder: that exists, with ``private/``.
        data: whose file is split.
        planted: records of the canaries that are in the input.
        split: columns of the text, which is None for rows of a table; of the id, which is no part of a record's
            content; and of the user, which is None unless all records of a user are on one side.
        unit: whose records are on one side; no group.
        share: of the units that is expected in the holdout, in (0, 1/2].
        progress: where to show progress.

    Raises:
        ValueError: one line, if the file is invalid, a record has no text or user, or a side stays empty.
    """
    assert data.path is not None
    private, suffix = folder / "private", data.suffix
    source, holdout = private / f"{SOURCE}{suffix}", private / f"{HOLDOUT}{suffix}"
    repeats = _Repeats.none() if split.user is not None else _Repeats.of(_contents(data, split, progress))
    coin, counts, repeated = CanaryCoins(share), [0, 0], 0
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(RowWriter(path, data)) for path in (source, holdout)]
        candidates = _Candidates(private / f"{CANDIDATES}.jsonl", split)
        shuffled = stack.enter_context(_Shuffled(folder / f"input{suffix}", data))
        stack.enter_context(candidates)
        with progress.stage("Splitting the data") as step:
            for number, (content, row) in enumerate(_contents(data, split, None)):
                again = content in repeats
                repeated += again
                side = None if again else coin.side(content)
                if side is not None:
                    counts[side] += 1
                    sides[side].write(row)
                    candidates.write(row, side == 0)
                if side != 1:
                    shuffled.write(row)
                if number % 1000 == 0:
                    step(number, max(number, data.count))
            for row in planted:
                shuffled.write(row)
            step(1, 1)
    if not all(counts):
        raise ValueError(
            f"{data.path}: {counts[0]} records are in the source and {counts[1]} in the holdout, but both need some; "
            "give more records, or a larger --holdout"
        )
    return Layout(
        unit=str(unit),
        share=share,
        records=data.count,
        repeated=repeated,
        source=counts[0],
        holdout=counts[1],
        input_sha256=hashed(folder / f"input{suffix}"),
        source_sha256=hashed(source),
        holdout_sha256=hashed(holdout),
    )


def _contents(data: Data, split: Columns, progress: Progress | None) -> Iterator[tuple[int | str, Mapping[str, Any]]]:
    """The unit of each record, and the record: its user, or a hash of what audits compare of it."""
    assert data.path is not None
    rows = read_rows(data.path, stated=data.reading)
    with (progress or Progress("quiet")).stage("Looking for repeated records") as step:
        while piece := list(islice(rows, _TEXTS)):
            yield from zip(_units(piece, split, data), (row for _, row in piece), strict=True)
            step(0, 1)
        step(1, 1)


def _units(piece: list[tuple[object, Mapping[str, Any]]], split: Columns, data: Data) -> list[int | str]:
    assert data.path is not None
    path = data.path
    for column, what in ((split.text, "text"), (split.user, "user")):
        for where, row in piece if column is not None else ():
            _check_word(row.get(str(column)), (path, where, column), what)
    for where, row in piece if split.text is None else ():
        for name, value in row.items():
            if name != split.id and not isinstance(value, _COMPARED):
                raise ValueError(
                    f"{path}, {where}: column {name!r} holds neither text nor numbers nor dates, and --holdout splits "
                    "rows for `dpassay audit table`, which compares these; leave the column out of the file, or write "
                    "it as text"
                )
    if split.user is not None:  # as the audits compare users
        return [str(row[split.user]) if split.text is not None else word_of(row[split.user]) for _, row in piece]
    if split.text is not None:  # as `dpassay audit text` compares them
        return [int(number) for number in Words.of(str(row[split.text]) for _, row in piece).whole()]
    columns = sorted((column for column in data.columns if column.name != split.id), key=lambda column: column.name)
    return [_row_number(row, columns) for _, row in piece]


def _cell(path: Path, where: object, column: str | None) -> str:
    return f"{path}, {where}: column {column!r}"


def _check_word(value: Any, of: tuple[Path, object, str | None], what: str) -> None:
    """Raises `ValueError` if `dpassay audit text` would refuse a text or a user `of` a file, a row and a column."""
    if is_missing(value):
        raise ValueError(f"{_cell(*of)} has no {what}; --holdout needs one in each record")
    if isinstance(value, bool | list | dict):
        raise ValueError(f"{_cell(*of)} must hold a string or a number; --holdout needs a {what} in each record")
    if not (written := str(value)).isascii() and _SURROGATE.search(written):
        raise ValueError(
            f"{_cell(*of)} has an unpaired surrogate, which is not a valid character, and `dpassay audit text` refuses "
            "it; leave --holdout out, or correct the record"
        )


def _row_number(row: Mapping[str, Any], columns: Sequence[ColumnRange]) -> int:
    """A hash of a row in some columns: of what its cells mean, however they are written."""
    cells: list[float | str | None] = []
    for column in columns:
        cell = row.get(column.name)
        if column.is_empty(cell):
            cells.append(None)
        else:
            cells.append(column.number(cell) if column.is_measured else word_of(cell))
    return int.from_bytes(hashlib.blake2b(repr(cells).encode("utf-8", "surrogatepass"), digest_size=8).digest())


@dataclass(frozen=True, slots=True, eq=False)
class _Repeats:
    """The contents that more than one record has; sorted, shape (n,)."""

    contents: NDArray[np.uint64]

    @classmethod
    def none(cls) -> _Repeats:
        return cls(np.empty(0, dtype=np.uint64))

    @classmethod
    def of(cls, records: Iterable[tuple[int | str, Any]]) -> _Repeats:
        every = np.frombuffer(array("Q", (int(content) for content, _ in records)), dtype=np.uint64)
        every = np.sort(every)
        return cls(np.unique(every[1:][every[1:] == every[:-1]]))

    def __contains__(self, content: int | str) -> bool:
        if isinstance(content, str) or not len(self.contents):
            return False
        index = int(np.searchsorted(self.contents, np.uint64(content)))
        return index < len(self.contents) and int(self.contents[index]) == content


class CanaryCoins:
    """Independent coins of units, from a fresh key."""

    def __init__(self, share: float) -> None:
        self._key, self._share = secrets.token_bytes(32), share

    def side(self, unit: int | str) -> Literal[0, 1] | None:
        """0 for the source, 1 for the holdout, None if the unit takes no part."""
        digest = hashlib.blake2b(str(unit).encode("utf-8", "surrogatepass"), key=self._key, digest_size=9).digest()
        if int.from_bytes(digest[:8]) >= 2 * self._share * 2**64:
            return None
        return 1 if digest[8] & 1 else 0


class _Shuffled:
    """Writes rows in random order: each to a random part, and the parts one after another, shuffled in memory."""

    def __init__(self, path: Path, data: Data) -> None:
        assert data.path is not None
        self._path, self._data = path, data
        self._draw = random.Random(secrets.randbits(256))
        count = min(_MAX_PARTS, 1 + math.ceil(data.path.stat().st_size / _PART))
        self._parts = [path.with_name(f".part-{number}{data.format}") for number in range(count)]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> _Shuffled:
        with contextlib.ExitStack() as stack:
            self._writers = [stack.enter_context(RowWriter(part, self._data)) for part in self._parts]
            self._stack = stack.pop_all()
        return self

    def write(self, row: Mapping[str, Any]) -> None:
        self._draw.choice(self._writers).write(row)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is not None:
            return
        known = FOUND if self._data.style is None else self._data.style.stated
        with RowWriter(self._path, self._data) as whole:
            for part in self._parts:
                rows = [row for _, row in read_rows(part, stated=known)]
                self._draw.shuffle(rows)
                for row in rows:
                    whole.write(row)
                part.unlink()


class _Candidates:
    """The candidates of `dpassay audit membership text`, if records are texts and units."""

    def __init__(self, path: Path, split: Columns) -> None:
        self._text = split.text if split.user is None else None
        self._data = Data(None)
        self._writer = RowWriter(path, self._data)

    def __enter__(self) -> None:
        if self._text is not None:
            self._writer.__enter__()

    def write(self, row: Mapping[str, Any], included: bool) -> None:
        if self._text is not None:
            self._writer.write({self._text: row[self._text], "included": included})

    def __exit__(self, *error: Any) -> None:
        if self._text is not None:
            self._writer.__exit__(*error)
