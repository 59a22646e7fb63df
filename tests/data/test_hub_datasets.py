"""Records through the library `datasets`: saved data sets, folders of data files, the library's cache, no network."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

from dpassay.data.hub_datasets import HubDataset
from dpassay.data.records import Record, read_records, read_texts

FEATURES = datasets.Features(
    {
        "body": datasets.Value("string"),
        "topic": datasets.ClassLabel(names=["World", "Sci/Tech"]),
        "key": datasets.Value("int64"),
    }
)
ROWS = {"body": ["one", "two", "three"], "topic": [1, 0, 1], "key": [7, 8, 9]}
EXPECTED = [Record("7", "one", "Sci/Tech"), Record("8", "two", "World"), Record("9", "three", "Sci/Tech")]
COLUMNS: dict[str, Any] = {"text": "body", "label": "topic", "id": "key"}


@pytest.fixture(autouse=True)
def requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """What was asked of the network, which answers nothing; an empty cache."""
    asked: list[Any] = []

    def refuse(*arguments: Any, **_: Any) -> None:
        asked.append(arguments)
        raise OSError("no network in tests")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return asked


def data_set(**changes: Any) -> datasets.Dataset:
    return datasets.Dataset.from_dict(ROWS | changes, features=FEATURES)


def saved(folder: Path, kind: str) -> str:
    """One of the four kinds of local folder, with splits train and test where there can be several."""
    folder = folder / kind
    match kind:
        case "one":
            data_set().save_to_disk(folder)
        case "splits":
            datasets.DatasetDict({"train": data_set(), "test": data_set().select([0])}).save_to_disk(folder)
        case "parquet":
            folder.mkdir()
            data_set().to_parquet(folder / "train.parquet")
            data_set().select([0]).to_parquet(folder / "test.parquet")
        case "jsonl":
            folder.mkdir()
            rows = [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]
            names = FEATURES["topic"].names
            lines = [json.dumps(row | {"topic": names[row["topic"]]}) for row in rows]
            (folder / "train.jsonl").write_text("\n".join(lines))
            (folder / "test.jsonl").write_text(lines[0])
    return str(folder)


@pytest.mark.parametrize("kind", ["one", "splits", "parquet", "jsonl"])
def test_local_folders(tmp_path: Path, kind: str, requests: list[Any]) -> None:
    name = saved(tmp_path, kind)
    assert read_records(HubDataset(name), **COLUMNS) == EXPECTED
    assert list(read_texts(HubDataset(name), text="body", label="topic")) == [(r.text, r.label) for r in EXPECTED]
    if kind != "one":
        assert read_records(HubDataset(name, split="test"), **COLUMNS) == EXPECTED[:1]
    assert requests == []
    # No copy of local data: nothing but a lock.
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file() and file.stat().st_size]


def test_many_rows_are_read_in_order(tmp_path: Path) -> None:
    texts = [f"text {i}" for i in range(2500)]
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(tmp_path / "many")
    assert [text for text, _ in read_texts(HubDataset(str(tmp_path / "many")))] == texts


@pytest.mark.parametrize("kind", ["one", "splits", "parquet", "jsonl"])
def test_a_wrong_column_or_split_is_named(tmp_path: Path, kind: str) -> None:
    name = saved(tmp_path, kind)
    with pytest.raises(ValueError, match="there is no column 'words'; the columns are 'body', 'topic', 'key'"):
        read_records(HubDataset(name), text="words")
    there = "train" if kind == "one" else "train, test"
    with pytest.raises(ValueError, match=f"there is no split 'validation'; it has {there}$"):
        read_records(HubDataset(name, split="validation"), text="body")


def test_a_data_set_may_hold_nothing(tmp_path: Path) -> None:
    data_set().select([]).to_parquet(tmp_path / "train.parquet")
    assert read_records(HubDataset(str(tmp_path)), **COLUMNS) == []


def test_rows_that_will_not_do_are_told_without_their_content(tmp_path: Path) -> None:
    data_set(topic=[1, -1, 0]).save_to_disk(tmp_path / "unlabelled")
    with pytest.raises(ValueError, match="row 2: column 'topic' must hold a string or a number"):
        read_records(HubDataset(str(tmp_path / "unlabelled")), text="body", label="topic")
    data_set(key=[1, 2, 1]).save_to_disk(tmp_path / "repeated")
    with pytest.raises(ValueError, match="same id"):
        read_records(HubDataset(str(tmp_path / "repeated")), **COLUMNS)


def test_broken_files_are_one_line_that_quotes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = {
        "cut.jsonl": '{"text": "secret"}\n{"text": "secret',
        "nested.jsonl": '{"text": "a"}\n{"text": {"secret": 1}}\n',
        "cells.csv": 'text\na\n"secret\n',
        "none.parquet": "secret",
    }
    for name, content in lines.items():
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(ValueError, match=f"dataset {folder}") as error:
            read_records(HubDataset(str(folder)))
        assert "secret" not in str(error.value)
        assert "\n" not in str(error.value)
    shown = capfd.readouterr()
    assert "secret" not in shown.out + shown.err + caplog.text


def test_a_subset_is_one_of_the_folders_own(tmp_path: Path) -> None:
    name = saved(tmp_path, "parquet")
    about = [
        {"config_name": part, "data_files": [{"split": "train", "path": f"{part}.parquet"}]}
        for part in ("train", "test")
    ]
    (Path(name) / "README.md").write_text(f"---\nconfigs: {json.dumps(about)}\n---\nText\n")
    assert read_records(HubDataset(name, subset="test"), **COLUMNS) == EXPECTED[:1]
    for wrong in ("third", None):
        with pytest.raises(ValueError, match=r"'?train'?.*'?test'?"):
            read_records(HubDataset(name, subset=wrong), **COLUMNS)
    with pytest.raises(ValueError, match="subset is for"):
        read_records(HubDataset(saved(tmp_path, "one"), subset="test"), **COLUMNS)


@pytest.mark.parametrize("url", ["hf://datasets/no/such/a.jsonl", "https://example.com/a.jsonl"])
def test_a_folder_cannot_point_elsewhere(tmp_path: Path, url: str, requests: list[Any]) -> None:
    name = saved(tmp_path, "jsonl")
    (Path(name) / "README.md").write_text(f"---\nconfigs:\n- config_name: default\n  data_files: {url}\n---\n")
    for allow in (False, True):
        with pytest.raises(ValueError, match="names files outside of the folder"):
            read_records(HubDataset(name, allow_network=allow), **COLUMNS)
    assert requests == []


def test_without_download_nothing_goes_out(tmp_path: Path, requests: list[Any]) -> None:
    for name in ("no-such-owner/no-such-data", "nosuchdata"):
        with pytest.raises(ValueError, match=r"not in the local cache.*--download") as error:
            read_records(HubDataset(name))
        assert "\n" not in str(error.value)
    assert requests == []
    # Two are formats of the library, for which it would search the working folder.
    for name in (
        str(tmp_path / "missing"),
        "a b",
        "../x",
        "json",
        "parquet",
        str(Path(saved(tmp_path, "jsonl")) / "train.jsonl"),
    ):
        with pytest.raises(ValueError, match="neither a folder nor a hub id"):
            read_records(HubDataset(name))


def test_what_the_library_has_in_its_cache_is_used_offline(tmp_path: Path, requests: list[Any]) -> None:
    folder = Path(saved(tmp_path, "parquet")).rename(tmp_path / "parquet_news")
    datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert read_records(HubDataset("parquet_news", split="test"), **COLUMNS) == EXPECTED[:1]
    assert requests == []


def test_download_asks_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    asked = []

    def unreachable(name: str, subset: str | None) -> None:
        asked.append((name, subset, datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE))
        raise ConnectionError("secret address")

    monkeypatch.setattr(datasets, "load_dataset_builder", unreachable)
    with pytest.raises(ValueError, match=r"dataset a/b: could not be downloaded \(ConnectionError\)$"):
        read_records(HubDataset("a/b", subset="c", allow_network=True))
    with pytest.raises(ValueError, match="not in the local cache"):
        read_records(HubDataset("a/b"))
    assert asked == [("a/b", "c", False, False), ("a/b", None, True, True)]
    assert (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "train.tar", "w") as archive:
        archive.add(__file__, arcname="a.txt")
    with pytest.raises(ValueError, match="format webdataset; the supported formats are parquet"):
        read_records(HubDataset(str(tmp_path)))


def test_the_library_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r"pip install '\.\[datasets\]'"):
        read_records(HubDataset("a/b"))
