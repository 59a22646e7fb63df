"""Private records, and reading them from files, data sets, or the data that ship with the package."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np

from dpassay.base import validate
from dpassay.base.arrays import Integers
from dpassay.data.chats import TextOptions, joined_turns
from dpassay.data.column_names import no_column
from dpassay.data.excel import read_excel
from dpassay.data.hashed_strings import hashes_of, occurrences
from dpassay.data.hub_datasets import HubDataset
from dpassay.data.parquet import read_parquet
from dpassay.data.reader import FOUND, CsvOptions, compression_of, dialect_of, read_csv, read_lines

LARGE = 200_000
"""The largest number of records that are held in memory; more are in a file (`StoredRecords`)."""

Fields: TypeAlias = "tuple[str | None, str, str | None, str | None]"
"""Id, text, label and user of a record; without an id, that of its content is its id."""

_BUFFER = 1 << 20  # bytes of that file that are read or written at once
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Record:
    """One private record.

    Attributes:
        id: unique among the records of a run; the user's stable id, else computed from the content by `content_id`.
        text: the text that the language model sees.
        label: a member of the public set of labels, or None.
        user: the owner of the record, for units that need one (`Unit.needs_user`).
        hashed: the string that determines the record's batch, if not the id. Records with equal content have different
            ids but equal hashes, so that their numbering has no effect.
    """

    id: str
    text: str
    label: str | None = None
    user: str | None = None
    hashed: str | None = None

    @property
    def slotting_id(self) -> str:
        """The string that is hashed to determine the record's batch."""
        return self.id if self.hashed is None else self.hashed


class RecordsAt(Sequence[Record]):
    """The records at some places, each read when it is asked for.

    Args:
        records: all of them.
        places: shape (n,), indices of records.
    """

    def __init__(self, records: Sequence[Record], places: Integers) -> None:
        self._records, self._places = records, places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return RecordsAt(self._records, self._places[index])
        return self._records[int(self._places[index])]


class Texts(Sequence[str]):
    """The texts of records, one by one, so that not all are held at once."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return (record.text for record in self._records)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Texts(self._records[index])
        return self._records[index].text


def content_id(text: str, label: str | None = None, user: str | None = None) -> str:
    """SHA-256 of a canonical encoding of a record's content, in hexadecimal."""
    canonical = json.dumps([text, label, user], ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(b"cupel.record\0" + canonical.encode("ascii")).hexdigest()


def with_content_ids(rows: Iterable[tuple[str, str | None, str | None]]) -> list[Record]:
    """Records of (text, label, user) with ids from their content; repeated content is kept, with id ``…#2`` etc."""
    seen: Counter[str] = Counter()
    records = []
    for text, label, user in rows:
        hashed = content_id(text, label, user)
        seen[hashed] += 1
        suffix = f"#{seen[hashed]}" if seen[hashed] > 1 else ""
        records.append(Record(hashed + suffix, text, label, user, hashed))
    return records


class RepeatedIdError(ValueError):
    """Two records have the same id, which may be private and is not named."""

    def __init__(self) -> None:
        super().__init__(
            "two records have the same id, but an id names one record; if it names a person who may have several "
            "records, give the column as `user:` in place of `id:`, and state `unit: user`; else leave `id:` out, "
            "and the content is the id"
        )


class CheckedRecords(Sequence[Record]):
    """Records whose ids were found to be unique when they were read."""


def check_ids(records: Iterable[Record]) -> None:
    """Checks that ids are unique: two rows with one id would be one unit that counts twice.

    Raises:
        RepeatedIdError: if an id repeats.
    """
    if isinstance(records, CheckedRecords):
        return
    seen: set[str] = set()
    for record in records:
        if record.id in seen:
            raise RepeatedIdError
        seen.add(record.id)


class StoredRecords(CheckedRecords):
    """Records that are too many for memory, in their order: they are in a file, and memory holds 8 bytes of each.

    The file has no name, is in the folder for temporary files (``TMPDIR``), is readable by its owner only, and is gone
    when the process ends, however it ends.

    Args:
        rows: id, text, label and user of each record; either all have ids or none has, and then these are from the
            content, as `with_content_ids` numbers them.

    Raises:
        RepeatedIdError: if an id repeats.
    """

    def __init__(self, rows: Iterable[Fields]) -> None:
        self._file = tempfile.TemporaryFile(buffering=_BUFFER)  # noqa: SIM115 (it lives as long as the records)
        self._ends = array("q", [0])
        self._own = False
        times = occurrences(hashes_of(self._written(rows)))
        if self._own and (times > 1).any():
            raise RepeatedIdError
        self._again = np.flatnonzero(times > 1)
        self._times = times[self._again]

    def _written(self, rows: Iterable[Fields]) -> Iterator[str]:
        """Writes the records, and gives the id of each, before equal ones are numbered."""
        for id, text, label, user in rows:
            self._own = id is not None
            hashed = content_id(text, label, user) if id is None else None
            row = json.dumps([id or hashed, text, label, user, hashed], ensure_ascii=False).encode()
            self._file.write(row)
            self._ends.append(self._ends[-1] + len(row))
            yield id or hashed or ""
        self._file.flush()

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...

    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        start, end = self._ends[place], self._ends[place + 1]
        return self._record(place, os.pread(self._file.fileno(), end - start, start))

    def __iter__(self) -> Iterator[Record]:
        held, offset = b"", 0  # what was read, and where in the file it begins
        for place, (start, end) in enumerate(itertools.pairwise(self._ends)):
            if end > offset + len(held):
                held, offset = os.pread(self._file.fileno(), max(_BUFFER, end - start), start), start
            yield self._record(place, held[start - offset : end - offset])

    def _record(self, place: int, row: bytes) -> Record:
        id, *fields = json.loads(row)
        at = int(np.searchsorted(self._again, place))
        if at < len(self._again) and self._again[at] == place:
            id = f"{id}#{self._times[at]}"
        return Record(id, *fields)


def read_records(
    path: Path | str | HubDataset,
    *,
    text: str = "text",
    label: str | None = None,
    id: str | None = None,
    user: str | None = None,
    labels: Collection[str] = (),
    stated: CsvOptions = FOUND,
) -> Sequence[Record]:
    """Reads records from CSV, TSV, JSON Lines or Parquet, by the file's extension, or from a data set.

    Args:
        path: a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file, or a split of a data set.
        text: column of the text, which must not be empty in any row.
        label: column of the label, or None for no labels.
        id: column of a stable id; None uses the content's hash.
        user: column that names the user, for unit ``user``.
        labels: the labels that may occur; empty allows any.
        stated: how the file is written; the rest is found out. `TextOptions` may say that texts are lists of turns.

    Raises:
        ValueError: one line, which names the file and, if possible, the line, never a record's content.
    """
    rows = _fields(path, {"text": text, "label": label, "id": id, "user": user}, labels, stated)
    first = list(itertools.islice(rows, LARGE + 1))
    try:
        if len(first) > LARGE:
            return StoredRecords(itertools.chain(first, rows))
        if id is None:
            return with_content_ids((content, of, owner) for _, content, of, owner in first)
        records = [Record(own or "", content, of, owner) for own, content, of, owner in first]
        check_ids(records)
    except RepeatedIdError as error:
        raise ValueError(f"{path}: column {id!r}: {error}") from None
    return records


def _fields(
    path: Path | str | HubDataset,
    columns: Mapping[str, str | None],
    labels: Collection[str],
    stated: CsvOptions,
) -> Iterator[Fields]:
    """Id, text, label and user of each row."""
    column = columns["label"]
    for where, row in _rows(path, columns, stated=stated):
        if column is not None and labels and row["label"] not in labels:
            raise ValueError(
                f"{where}: column {column!r} holds a label that is not in the public list of labels; list every label "
                "that may occur, or remove those records before anything is charged"
            )
        yield row["id"], row["text"] or "", row["label"], row["user"]


def read_texts(
    path: Path | str | HubDataset,
    *,
    text: str = "text",
    label: str | None = None,
    empty: bool = False,
    stated: CsvOptions = FOUND,
) -> Iterator[tuple[str, str | None]]:
    """The texts and labels of a file, row by row, so that a file need not fit into memory. `empty` is for generated
    texts, which may be empty, and need not be lists of turns where others are. Other arguments, and errors when the
    faulty row is reached, as for `read_records`."""
    for _, row in _rows(path, {"text": text, "label": label}, generated=empty, stated=stated):
        yield row["text"] or "", row["label"]


def read_user_texts(
    path: Path | str, *, text: str = "text", user: str | None = None, stated: CsvOptions = FOUND
) -> Iterator[tuple[str, str]]:
    """The texts of a file and their users (or the empty string), row by row, without the ids of records; as
    `read_records`, also when the faulty row is reached."""
    for _, row in _rows(path, {"text": text, "user": user}, stated=stated):
        yield row["text"] or "", row["user"] or ""


def builtin_records(name: str, count: int, seed: int) -> list[Record]:
    """Records of the data that ship with the package.

    Args:
        name: ``keys`` (label ``key``), ``notes`` or ``notes-with-secrets`` (labels: self-rated health).
        count: number of records.
        seed: of the public choice of records.

    Raises:
        ValueError: if the name is unknown or the count is out of range.
    """
    from dpassay.data import corpora

    validate.one_of(("keys", "notes", "notes-with-secrets"), name=name)
    if name == "keys":
        return with_content_ids((text, "key", None) for text in corpora.keys(count, seed))
    drawn = corpora.notes(count, seed) if name == "notes" else corpora.notes_with_secrets(count, seed)
    return with_content_ids((text, label, None) for text, label in drawn)


def _rows(
    path: Path | str | HubDataset,
    columns: Mapping[str, str | None],
    generated: bool = False,
    stated: CsvOptions = FOUND,
) -> Iterator[tuple[Located, dict[str, str | None]]]:
    """The wanted columns of every row of a file or a data set, as strings, each row with its location."""
    wanted = {column for column in columns.values() if column is not None}
    join = stated.join if isinstance(stated, TextOptions) else None
    rows = path.rows(wanted) if isinstance(path, HubDataset) else read_rows(path, wanted, stated, columns["text"])
    for location, values in rows:
        where = Located(path, location)
        yield where, _row(values, columns, where, generated, join)


@dataclass(slots=True)
class Located:
    """A file and the location of a row in it, as words for a message, which are made where one is printed."""

    path: Path | str | HubDataset
    location: object

    def __str__(self) -> str:
        return f"{self.path}, {self.location}"


_OF_LIST = "jq -c '.[]' FILE > data.jsonl"
_CONVERTED = {
    ".arrow": 'convert it: `pandas.read_feather("FILE").to_parquet("data.parquet")`',
    ".bz2": "decompress it, or compress it with gzip",
    ".db": "export its table as CSV",
    ".feather": 'convert it: `pandas.read_feather("FILE").to_parquet("data.parquet")`',
    ".json": f"if it has one object a line, rename it to .jsonl; if it is one list, convert it: `{_OF_LIST}`",
    ".ndjson": "rename it to .jsonl",
    ".ods": "save its sheet as CSV",
    ".pickle": "write it as Parquet or CSV from where it was made; a pickle may run code",
    ".pkl": "write it as Parquet or CSV from where it was made; a pickle may run code",
    ".sqlite": "export its table as CSV",
    ".txt": "if it is a table, rename it to .csv or .tsv; if it has one text a line, convert it: `jq -cR '{text: .}' "
    "FILE > data.jsonl`",
    ".xls": "save its sheet as CSV, or the file as .xlsx",
    ".xz": "decompress it, or compress it with gzip",
    ".zip": "unzip it, or compress it with gzip",
}
"""What to do with a file of another format, by the end of its name."""
_PACKED = (".parquet", ".xlsx")  # formats that are compressed already


def read_rows(
    path: Path | str,
    wanted: Collection[str] | None = None,
    stated: CsvOptions = FOUND,
    lists: str | None = None,
) -> Iterator[tuple[object, Mapping[str, Any]]]:
    """The rows of a ``.csv``, ``.tsv``, ``.jsonl``, ``.parquet`` or ``.xlsx`` file, each with its location.

    Text files may be compressed (``.gz``, ``.zst``). Values have the types of the format. A Parquet file yields only
    the wanted columns, of which `lists` may hold lists of texts.

    Raises:
        ValueError: one line, which names the file and, if possible, the line, never a value.
    """
    path = Path(path)
    readers: dict[str, Callable[[], Iterator[tuple[object, Mapping[str, Any]]]]] = {
        ".csv": lambda: read_csv(path, stated, wanted),
        ".tsv": lambda: read_csv(path, stated, wanted),
        ".jsonl": lambda: _json_lines(path),
        ".parquet": lambda: read_parquet(path, wanted, lists),
        ".xlsx": lambda: read_excel(path, wanted),
    }
    kind, compression = compression_of(path)
    if not path.is_file():
        what = "is a folder; name a file in it" if path.is_dir() else "there is no such file"
        raise ValueError(f"{path}: {what}")
    if kind not in readers or (kind in _PACKED and compression != "none"):
        ending, instead = "".join(path.suffixes[-1:]), _CONVERTED.get(path.suffix.lower())
        if compression != "none":
            ending = "".join(path.suffixes[-2:])
            instead = "decompress it" if kind in _PACKED else _CONVERTED.get(kind)
        instead = instead or ("" if ending else "rename it by its format")
        raise ValueError(
            f"{path}: the file must be one of {', '.join(readers)}; its name ends in {ending!r}"
            + (f"; {instead.replace('FILE', path.name)}" if instead else "")
        )
    try:
        yield from readers[kind]()
    except UnicodeDecodeError:
        raise ValueError(
            f"{_not_utf8(path)}; save it as UTF-8, or convert it: `iconv -f latin1 -t utf-8 {path.name} > new.jsonl`"
        ) from None
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror or error}") from None


def written_as(path: Path | str, stated: CsvOptions = FOUND) -> str:
    """How a file is written, in words such as ``semicolons between cells, utf-8``; of other formats, its ending."""
    path = Path(path)
    kind, compression = compression_of(path)
    if kind in (".csv", ".tsv"):
        return str(dialect_of(path, stated))
    return kind.removeprefix(".") + (f", {compression}" if compression != "none" else "")


def _not_utf8(path: Path) -> str:
    """The message for a file that is not UTF-8, with its first such line; a Parquet file has no lines."""
    if path.suffix.lower() == ".parquet":
        return f"{path}: is not UTF-8 text"
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError:
                return f"{path}, line {number}: is not UTF-8 text"
    return f"{path}: is not UTF-8 text"


def _row(
    values: Mapping[str, Any],
    columns: Mapping[str, str | None],
    where: object,
    generated: bool,
    join: str | None,
) -> dict[str, str | None]:
    """The wanted columns of one row, as strings; a generated text may be an empty string."""
    out: dict[str, str | None] = {}
    for name, column in columns.items():
        if column is None:
            out[name] = None
            continue
        if column not in values:
            raise ValueError(f"{where}: {no_column(column, values)}; give the name of the {name} column")
        if name == "text":
            out[name] = text_of(values, column, where, generated, join)
            continue
        value = values[column]
        if value is None or value == "" or value != value or isinstance(value, bool | list | dict):
            raise ValueError(f"{where}: column {column!r} must hold a string or a number that is not empty")
        out[name] = _characters(str(value), column, where)
    return out


def text_of(
    values: Mapping[str, Any], column: str, where: object, generated: bool = False, join: str | None = None
) -> str:
    """The text of a row, in which a list of turns is joined if `join` says so; a generated text may be empty.

    Raises:
        ValueError: one line that begins with `where`, without any of the text.
    """
    value = values[column]
    if isinstance(value, dict):
        raise ValueError(
            f"{where}: column {column!r} holds an object and no text; name another column, or write it as text"
        )
    if isinstance(value, list):
        if join is None:
            raise ValueError(f"{where}: column {column!r} holds a list and no text; {_JOIN_TURNS}")
        try:
            value = joined_turns(value)
        except ValueError as error:
            raise ValueError(f"{where}: column {column!r}: {error}") from None
    elif join is not None and isinstance(value, str) and value and not generated:
        raise ValueError(f"{where}: column {column!r} holds a text and no list of turns; leave join out for texts")
    if not isinstance(value, str) or (not value and not generated):
        raise ValueError(f"{where}: column {column!r} must hold text that is not empty; name the column of the text")
    return _characters(value, column, where)


def _characters(text: str, column: str, where: object) -> str:
    if not text.isascii() and _SURROGATE.search(text):
        raise ValueError(f"{where}: column {column!r} has an unpaired surrogate, which is not a valid character")
    return text


_JOIN_TURNS = (
    "if it is the turns of a chat, state `join: turns` in a claim, or `--join turns` where the command takes it; else "
    "write it as text"
)


def _json_lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    decode = json.JSONDecoder(object_pairs_hook=_unique).decode  # `json.loads` would create a decoder for every line
    for number, line in read_lines(path, compression_of(path)[1]):
        try:
            values = decode(line)
        except _RepeatedKeyError:
            raise ValueError(f"{path}, line {number}: has a repeated key, of which only one would be read") from None
        except (ValueError, RecursionError):  # a number with thousands of digits is a plain ValueError
            raise ValueError(f"{path}, line {number}: is not JSON; a .jsonl file has one object per line") from None
        if not isinstance(values, dict):
            instead = f"; if it is a list of objects, convert it: `{_OF_LIST.replace('FILE', path.name)}`"
            raise ValueError(
                f"{path}, line {number}: is not a JSON object{instead if isinstance(values, list) else ''}"
            )
        yield f"line {number}", values


class _RepeatedKeyError(ValueError):
    """A JSON object has a repeated key."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise _RepeatedKeyError
    return result
