"""Reading Parquet files row by row, in memory that their size on disk does not hide.

A page of a few kilobytes may expand to gigabytes: pages state their size, and all are looked at before any is expanded.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from dpassay.data.column_names import check_columns

LARGEST_PAGE = 2**27  # bytes, expanded; writers make pages of 1 MiB, or of the 1024 values that they take at once
_BATCH = 2**27  # bytes of texts that are expanded at once
_SMALL, _SHARE = 2**30, 1000  # a file may expand to as many bytes, or to as many times its size
_IN_LISTS = 2**22  # numbers in the lists of a column of a group of rows
_ROWS = 4096  # of a batch, at most
_HONEST = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY", "BIT_PACKED", "DELTA_LENGTH_BYTE_ARRAY"}
"""Encodings of texts in which each distinct one is as long as it is in its page."""


def read_parquet(
    path: Path, wanted: Collection[str] | None, lists: str | None = None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rows of a file, each with its location for messages, in the wanted columns or in all.

    Args:
        path: of the file.
        wanted: names of columns; None for all.
        lists: the column that may hold lists of texts.

    Raises:
        ValueError: one line, which names the file, never a value; also if a page, or the file, expands to too much.
    """
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path.absolute()) as file:
            check_columns(path, file.schema_arrow.names, wanted)
            rows = rows_at_once(path, file.metadata, wanted, lists)
            leaves = _texts_in_lists(file.metadata, lists)
        most, expanded = max(_SMALL, _SHARE * path.stat().st_size), 0
        with pyarrow.parquet.ParquetFile(path.absolute(), read_dictionary=leaves) as file:
            for batch in file.iter_batches(batch_size=rows, columns=None if wanted is None else sorted(wanted)):
                for i, column in enumerate(batch.columns):
                    if pyarrow.types.is_dictionary(column.type):
                        batch = batch.set_column(i, batch.schema.field(i).name, column.dictionary_decode())
                if leaves and lists in batch.schema.names:
                    in_lists = _bytes(batch.column(batch.schema.names.index(lists)))
                    if in_lists > _BATCH:
                        raise ValueError(
                            f"{path}: column {lists!r} has {in_lists} bytes of texts in {batch.num_rows} rows, and at "
                            f"most {_BATCH} are read; give the file as JSON Lines"
                        )
                    expanded += in_lists
                expanded += batch.nbytes
                if expanded > most:
                    raise ValueError(f"{path}: expands to over {most} bytes, {_SHARE} times its size; give it as CSV")
                for values in _values(path, batch):
                    number += 1
                    yield f"row {number}", values
    except (pyarrow.ArrowException, _NoHeaderError):
        raise ValueError(f"{path}: is not a Parquet file") from None


def rows_at_once(path: Path, metadata: Any, wanted: Collection[str] | None, lists: str | None = None) -> int:
    """The number of rows of a batch, such that its texts are at most `_BATCH` bytes if no cell exceeds a page.

    With a dictionary, or as a change of the text before it, each cell of a small page may be as large as a page. The
    texts in the column `lists` are left in their dictionary, so that their size is known before they are copied.

    Raises:
        ValueError: if a page of a wanted column is too large, or lists are too long: no page states their length.
    """
    texts = 1
    with path.open("rb") as file:
        for group in range(metadata.num_row_groups):
            of_group = 0
            for i in range(metadata.num_columns):
                column, chunk = metadata.schema.column(i), metadata.row_group(group).column(i)
                name = column.path.partition(".")[0]
                if wanted is not None and name not in wanted:
                    continue
                of_text = column.physical_type.endswith("BYTE_ARRAY")
                if not chunk.num_values:
                    continue
                of_changes = not _HONEST.issuperset(chunk.encodings)
                unknown = of_text and (name != lists or of_changes)
                if column.max_repetition_level and (unknown or chunk.num_values > _IN_LISTS):
                    raise ValueError(
                        f"{path}: column {name!r} holds lists; leave it out of the file or write it as text"
                    )
                largest = _largest_page(file, chunk)
                if largest > LARGEST_PAGE:
                    raise ValueError(
                        f"{path}: column {name!r} has a page that expands to {largest} bytes, and at most "
                        f"{LARGEST_PAGE} are read; shorten its cells, or write smaller pages"
                    )
                of_group += largest if of_text else 0
            texts = max(texts, of_group)
    return min(max(_BATCH // texts, 1), _ROWS)


def _texts_in_lists(metadata: Any, lists: str | None) -> list[str]:
    """The paths of the texts inside of the column `lists`, if it holds lists."""
    columns = (metadata.schema.column(i) for i in range(metadata.num_columns))
    return [
        column.path
        for column in columns
        if column.max_repetition_level
        and column.path.partition(".")[0] == lists
        and column.physical_type.endswith("BYTE_ARRAY")
    ]


def _bytes(cells: Any) -> int:
    """The bytes of all texts in nested cells, without copying any."""
    import pyarrow
    import pyarrow.compute

    if pyarrow.types.is_dictionary(cells.type):
        lengths = pyarrow.compute.binary_length(cells.dictionary)
        return int(pyarrow.compute.sum(lengths.cast("int64").take(cells.indices)).as_py() or 0)
    if pyarrow.types.is_struct(cells.type):
        return sum(map(_bytes, cells.flatten()))
    return _bytes(cells.flatten()) if pyarrow.types.is_nested(cells.type) else int(cells.nbytes)


def _largest_page(file: BinaryIO, chunk: Any) -> int:
    """The size of the largest page of a column in a group of rows, expanded, by the headers of the pages."""
    starts = [chunk.data_page_offset]
    if chunk.has_dictionary_page and chunk.dictionary_page_offset > 0:
        starts.append(chunk.dictionary_page_offset)
    index = min(starts)
    end, largest = index + chunk.total_compressed_size, 0
    while index < end:
        file.seek(index)
        header = _integers(file)
        if not {2, 3}.issubset(header) or header[3] < 0:
            raise _NoHeaderError
        largest = max(largest, header[2])
        index = file.tell() + header[3]
    return largest


class _NoHeaderError(Exception):
    """A page does not begin with a header."""


def _integers(file: BinaryIO, depth: int = 0) -> dict[int, int]:
    """The integers of a structure by the number of their field; other fields are skipped.

    Source: Apache Thrift, "Thrift compact protocol encoding"; `parquet.thrift` of Apache Parquet, PageHeader: field 2
        is ``uncompressed_page_size``, field 3 ``compressed_page_size``.
    """
    if depth > 8:
        raise _NoHeaderError
    results: dict[int, int] = {}
    field = 0
    while byte := _byte(file):
        kind, step = byte & 15, byte >> 4
        field = field + step if step else _whole(file)
        match kind:
            case 1 | 2:  # a truth value, in the kind
                pass
            case 3:
                _byte(file)
            case 4 | 5 | 6:
                results[field] = _whole(file)
            case 7:
                file.seek(8, os.SEEK_CUR)
            case 8:
                file.seek(_unsigned(file), os.SEEK_CUR)
            case 12:
                _integers(file, depth + 1)
            case _:  # headers of pages have no lists and maps
                raise _NoHeaderError
    return results


def _byte(file: BinaryIO) -> int:
    read = file.read(1)
    if not read:
        raise _NoHeaderError
    return read[0]


def _unsigned(file: BinaryIO) -> int:
    """An integer of seven bits a byte, the lowest first."""
    value = 0
    for index in range(10):
        byte = _byte(file)
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value
    raise _NoHeaderError


def _whole(file: BinaryIO) -> int:
    """An integer with its sign in the lowest bit."""
    value = _unsigned(file)
    return (value >> 1) ^ -(value & 1)


def _values(path: Path, batch: Any) -> list[Mapping[str, Any]]:
    """The rows of a batch. Errors of pyarrow for values without a Python type, such as some times, would show them."""
    try:
        rows: list[Mapping[str, Any]] = batch.to_pylist()
        return rows
    except UnicodeDecodeError:
        raise
    except (ValueError, OverflowError):
        raise ValueError(f"{path}: has values that are neither text nor numbers; write them as text") from None
