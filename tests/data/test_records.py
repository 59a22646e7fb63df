"""Reading records: the three formats, ids from content, and errors that tell nothing of the content."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from dpassay.data.records import (
    Record,
    builtin_records,
    check_ids,
    content_id,
    read_records,
    read_rows,
    read_texts,
    read_user_texts,
    with_content_ids,
)

ROWS = [
    {"text": "first, with a comma", "topic": "a", "key": "1", "who": "ann"},
    {"text": 'second "quoted"\nover lines', "topic": "b", "key": "2", "who": "bob"},
    {"text": "dritte Zeile: Größe ≥ 3", "topic": "a", "key": "3", "who": "ann"},
]


def written(folder: Path, kind: str) -> Path:
    path = folder / f"records.{kind}"
    match kind:
        case "jsonl":
            path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n\n" for row in ROWS), encoding="utf-8")
        case "csv":
            quoted = [",".join('"' + v.replace('"', '""') + '"' for v in row.values()) for row in ROWS]
            path.write_text("text,topic,key,who\n" + "\n".join(quoted) + "\n", encoding="utf-8")
        case "parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_all_formats_give_the_same_records(tmp_path: Path, kind: str) -> None:
    records = read_records(written(tmp_path, kind), label="topic", id="key", user="who")
    assert records == [Record(row["key"], row["text"], row["topic"], row["who"]) for row in ROWS]


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_without_ids_the_content_decides(tmp_path: Path, kind: str) -> None:
    records = read_records(written(tmp_path, kind), label="topic")
    assert [record.id for record in records] == [content_id(row["text"], row["topic"]) for row in ROWS]


def test_repeated_content_is_kept_and_hashes_alike() -> None:
    records = with_content_ids([("x", "a", None), ("y", "a", None), ("x", "a", None), ("x", "b", None)])
    ids = [record.id for record in records]
    assert len(set(ids)) == 4
    assert ids[2] == f"{ids[0]}#2"
    assert records[2].slotting_id == records[0].slotting_id == ids[0]
    assert records[3].slotting_id != ids[0]
    check_ids(records)


def test_a_content_id_is_stable_and_keeps_fields_apart() -> None:
    # The canonical bytes are pinned: others would move records between slots from one version to the next.
    canonical = 'cupel.record\0["My key is \\u00e4",null,null]'
    assert content_id("My key is ä") == hashlib.sha256(canonical.encode("ascii")).hexdigest()
    different = [content_id("ab"), content_id("a", "b"), content_id("a", None, "b"), content_id('["a"'), content_id("")]
    assert len(set(different)) == len(different)


def test_a_repeated_given_id_is_refused_without_naming_it(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"text": "secret one", "key": "K17"}\n{"text": "secret two", "key": "K17"}\n')
    with pytest.raises(ValueError, match="same id") as error:
        read_records(path, id="key")
    assert "K17" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("r.txt", "x", "jsonl"),
        ("r.jsonl", "{broken", "line 1: is not JSON"),
        ("r.jsonl", '{"text": "a"}\n[1]', "line 2: is not a JSON object"),
        ("r.jsonl", '{"body": "a"}', "no column 'text'"),
        ("r.jsonl", '{"text": ""}', "not empty"),
        ("r.jsonl", '{"text": "a", "text": "b"}', "line 1: has a repeated key"),
        ("r.jsonl", r'{"text": "a\ud800"}', "unpaired surrogate"),
        ("r.jsonl", '{"text": 5}', "must hold text"),
        ("r.csv", "text,label\na,b,c\n", "a different number of cells"),
        ("r.csv", "text,label\na\n", "a different number of cells"),
        ("r.parquet", "no parquet", "not a Parquet file"),
    ],
)
def test_bad_files_give_one_clear_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as error:
        read_records(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_texts_of_users_are_those_of_records(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path, kind)
    for user in ("who", None):
        records = read_records(path, user=user)
        assert list(read_user_texts(path, user=user)) == [(record.text, record.user or "") for record in records]
    wrong: list[dict[str, Any]] = [{"text": "nothing"}, {"user": "nothing"}]
    for columns in wrong:
        messages = []
        for read in (read_records, read_user_texts):
            with pytest.raises(ValueError, match="nothing") as raised:
                list(read(path, **columns))
            messages.append(str(raised.value))
        assert messages[0] == messages[1]


def test_files_that_are_missing_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        read_records(tmp_path / "none.jsonl")
    (tmp_path / "r.csv").write_bytes(b"text\n\xff\xfe\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        read_records(tmp_path / "r.csv")


def test_builtin_records_have_public_labels() -> None:
    keys, notes = builtin_records("keys", 20, 1), builtin_records("notes", 20, 1)
    assert {record.label for record in keys} == {"key"}
    assert {record.label for record in notes} <= {"excellent", "good", "fair", "poor"}
    assert builtin_records("keys", 20, 1) == keys
    with pytest.raises(ValueError, match="name must be one of"):
        builtin_records("diaries", 1, 0)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_texts_are_read_row_by_row_and_may_be_empty_only_where_asked(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"texts.{ending}"
    rows = [("one", "a"), ("", "b"), ("three", "a")]
    if ending == "jsonl":
        path.write_text("".join(json.dumps({"text": text, "kind": kind}) + "\n" for text, kind in rows))
    elif ending == "csv":
        path.write_text("text,kind\n" + "".join(f"{text},{kind}\n" for text, kind in rows))
    else:
        table = {"text": [text for text, _ in rows], "kind": [kind for _, kind in rows]}
        pyarrow.parquet.write_table(pyarrow.table(table), path)
    assert list(read_texts(path, label="kind", empty=True)) == rows
    reading = read_texts(path, label="kind")
    assert next(reading) == ("one", "a")
    with pytest.raises(ValueError, match="column 'text' must hold text that is not empty"):
        next(reading)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("a.xls", "its name ends in '.xls'; save its sheet as CSV, or the file as .xlsx"),
        ("a.json", "if it is one list, convert it: `jq -c '.[]' a.json > data.jsonl`"),
        ("a.feather", 'convert it: `pandas.read_feather("a.feather").to_parquet('),
        ("a.txt", "if it is a table, rename it to .csv or .tsv; if it has one text a line, convert it"),
        ("a.zip", "unzip it, or compress it with gzip"),
        ("a.ndjson", "rename it to .jsonl"),
        ("a.parquet.gz", "its name ends in '.parquet.gz'; decompress it"),
        ("a.json.gz", "its name ends in '.json.gz'; if it has one object a line, rename"),
        ("a", "its name ends in ''; rename it by its format"),
        ("a.dat", "the file must be one of .csv, .tsv, .jsonl, .parquet, .xlsx; its name ends in '.dat'"),
    ],
)
def test_a_file_of_another_format_is_told_how_to_convert(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / name).write_bytes(b"SECRET")
    with pytest.raises(ValueError, match=re.escape(says)) as caught:
        list(read_rows(tmp_path / name))
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_paths_that_are_no_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        list(read_rows(tmp_path))
    with pytest.raises(ValueError, match="there is no such file"):
        list(read_rows(tmp_path / "a.xls"))
    (tmp_path / "a.jsonl").write_text('[{"text": "SECRET"}]')
    with pytest.raises(
        ValueError, match=r"line 1: is not a JSON object; if it is a list of objects, .* a\.jsonl > data"
    ):
        list(read_rows(tmp_path / "a.jsonl"))
