"""Parquet files that expand to far more than their size: refused before memory is used, whatever the encoding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from dpassay.data import parquet
from dpassay.data.hub_datasets import HubDataset
from dpassay.data.records import read_rows

READ = """
import resource, sys
from pathlib import Path
from dpassay.data.records import read_rows
import pyarrow.parquet
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    told = sum(len(row["text"]) for _, row in read_rows(Path(sys.argv[1])))
except ValueError as error:
    told = error
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, told, sep="|")
"""


def written(path: Path, cells: Any, **options: Any) -> Path:
    table = pyarrow.table({"text": cells, "n": pyarrow.array(range(len(cells)))})
    pyarrow.parquet.write_table(table, path, compression="zstd", **options)
    return path


def read(path: Path) -> tuple[int, str]:
    """The KiB that reading took, and the sum of the lengths of the texts or the error."""
    ran = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, check=True)
    taken, _, told = ran.stdout.strip().partition("|")
    return int(taken), told


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "data_page_version": "2.0"}])
def test_a_long_cell_in_a_small_file_is_refused_before_it_is_expanded(tmp_path: Path, options: dict[str, Any]) -> None:
    path = written(tmp_path / "a.parquet", pyarrow.array(["a" * 150_000_000]), **options)
    assert path.stat().st_size < 50_000
    taken, told = read(path)
    assert told.startswith(f"{path}: column 'text' has a page that expands to 15000000"), told
    assert taken < 50_000
    assert [row for _, row in read_rows(path, ["n"])] == [{"n": 0}]


def test_a_folder_of_parquet_files_is_bounded_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder / "train.parquet", pyarrow.array(["a" * 10**6, "b"]))
    data = HubDataset(str(folder))
    assert [row["text"] for _, row in data.rows(["text"])] == ["a" * 10**6, "b"]
    monkeypatch.setattr(parquet, "LARGEST_PAGE", 10**5)
    assert [row for _, row in data.rows(["n"])] == [{"n": 0}, {"n": 1}]
    with pytest.raises(ValueError, match="column 'text' has a page that expands to 10000"):
        list(data.rows(["text"]))


@pytest.mark.slow
def test_one_long_text_of_a_dictionary_in_every_row_is_read_in_bounded_memory(tmp_path: Path) -> None:
    """100 rows of 10⁷ letters, in one batch 1 GB, are read some rows at a time; 200 rows are over the share."""
    cells = pyarrow.DictionaryArray.from_arrays([0] * 100, ["b" * 10**7])
    taken, told = read(written(tmp_path / "a.parquet", cells))
    assert told == str(10**9)
    assert taken < 700_000
    cells = pyarrow.DictionaryArray.from_arrays([0] * 200, ["b" * 10**7])
    path = written(tmp_path / "b.parquet", cells)
    assert read(path)[1] == f"{path}: expands to over {2**30} bytes, 1000 times its size; give it as CSV"


@pytest.mark.slow
def test_texts_as_changes_of_the_text_before_are_read_in_bounded_memory(tmp_path: Path) -> None:
    cells = pyarrow.array(["c" * 10**7] * 60)
    path = written(tmp_path / "a.parquet", cells, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    taken, told = read(path)
    assert told == str(6 * 10**8)
    assert taken < 700_000


def test_long_lists_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    cells = pyarrow.ListArray.from_arrays([0, 5 * 10**6], pyarrow.array(bytes(5 * 10**6), pyarrow.int8()))
    pyarrow.parquet.write_table(pyarrow.table({"text": cells}), path)
    with pytest.raises(ValueError, match="column 'text' holds lists; leave it out"):
        list(read_rows(path))
    pyarrow.parquet.write_table(pyarrow.table({"text": [["a"]]}), path)
    with pytest.raises(ValueError, match="column 'text' holds lists; leave it out"):
        list(read_rows(path))
    assert [row for _, row in read_rows(path, lists="text")] == [{"text": ["a"]}]


def test_texts_in_lists_are_read_unless_they_expand_to_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dictionary holds a long text once, and as changes of the text before it costs nothing, too."""
    path, chats = tmp_path / "a.parquet", [[{"role": "user", "content": "é" * 1000}] * 50, [], None] * 3
    pyarrow.parquet.write_table(pyarrow.table({"text": chats, "n": range(9)}), path)
    assert path.stat().st_size < 10_000
    assert [row["text"] for _, row in read_rows(path, ["text"], lists="text")] == chats
    assert [row["text"] for _, row in read_rows(path, lists="text")] == chats
    monkeypatch.setattr(parquet, "_BATCH", 3 * 50 * (2000 + len("user")))
    assert [row["text"] for _, row in read_rows(path, ["text"], lists="text")] == chats
    monkeypatch.setattr(parquet, "_BATCH", 3 * 50 * (2000 + len("user")) - 1)
    with pytest.raises(ValueError, match=r"column 'text' has 300600 bytes of texts in \d rows"):
        list(read_rows(path, ["text"], lists="text"))
    assert [row for _, row in read_rows(path, ["n"], lists="text")] == [{"n": i} for i in range(9)]
    monkeypatch.undo()
    options: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"text.list.element": "DELTA_BYTE_ARRAY"}}
    pyarrow.parquet.write_table(pyarrow.table({"text": [["a" * 1000] * 50]}), path, **options)
    with pytest.raises(ValueError, match="column 'text' holds lists; leave it out"):
        list(read_rows(path, lists="text"))


@pytest.mark.grid
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_headers_of_pages_are_read_as_pyarrow_reads_them(
    tmp_path: Path, codec: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pages of a column together are as large as its metadata say, headers aside; rows are those written."""
    import random

    drawn = random.Random(1)
    texts = ["".join(drawn.choices("abcdefgh", k=200)) for _ in range(5000)]
    rows = [{"text": text, "n": i, "m": None if i % 3 else i / 7} for i, text in enumerate(texts)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows),
        path,
        compression=codec,
        data_page_version=version,
        data_page_size=20_000,
        row_group_size=1700,
        write_batch_size=50,
        write_statistics=True,
        use_dictionary=["n"],
    )
    assert [row for _, row in read_rows(path)] == rows
    monkeypatch.setattr(parquet, "LARGEST_PAGE", 20_000)
    with pytest.raises(ValueError, match=r"column 'text' has a page that expands to 2\d{4} bytes"):
        list(read_rows(path))
    monkeypatch.setattr(parquet, "LARGEST_PAGE", 40_000)
    assert [row for _, row in read_rows(path)] == rows


def test_a_header_that_is_damaged_is_no_parquet_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.parquet", ["one", "two"])
    content = bytearray(path.read_bytes())
    content[4:12] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is not a Parquet file"):
        list(read_rows(path))
