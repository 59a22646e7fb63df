"""Pickles are read without being run: plain values come out, whatever else is in the file."""

from __future__ import annotations

import collections
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from dpassay.accounting.interop.pickled import LARGEST, Opaque, UnreadableError, is_checkpoint, read_checkpoint, values

PLAIN = {
    "a": [1, -2, 2**70, 2.5, "x", "é" * 300, None, True, False, (), (1,), (1, (2, 3))],
    "b": {"c": b"bytes", 3: []},
    7: "y" * 70_000,
}


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_those_of_pickle(protocol: int) -> None:
    content = PLAIN if protocol > 2 else {key: value for key, value in PLAIN.items() if key != "b"}  # bytes need a call
    written = pickle.dumps(content, protocol=protocol)
    assert values(written) == content
    ordered = collections.OrderedDict([("history", [(1.0, 0.1, 3)]), ("mechanism", "rdp")])
    assert values(pickle.dumps(ordered, protocol=protocol)) == dict(ordered)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_executed(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "touched"
    result = values(pickle.dumps({"evil": Evil(target), "kept": 1}, protocol=protocol))
    assert isinstance(result["evil"], Opaque)
    assert result["kept"] == 1
    assert not target.exists()


def test_a_checkpoint_of_pytorch_without_its_tensors(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    held = {"model": layer.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "nested": {"lr": [1e-3]}}
    torch.save(held, tmp_path / "checkpoint.pt")
    assert is_checkpoint(tmp_path / "checkpoint.pt")
    result = read_checkpoint(tmp_path / "checkpoint.pt")
    assert (result["epoch"], result["nested"]) == (3, {"lr": [1e-3]})
    assert isinstance(result["model"]["weight"], Opaque)
    assert result["optimizer"]["param_groups"][0]["lr"] == 1e-3


def test_mutated_pickles_are_read_or_refused_in_one_line(tmp_path: Path) -> None:
    """3000 mutations of a pickle with a call in it."""
    target = tmp_path / "touched"
    base = pickle.dumps({"evil": Evil(target), "b": [1, 2.5, "x"], "history": [(1.0, 0.1, 3)]}, protocol=2)
    rng = random.Random(0)
    refused = 0
    for _ in range(3000):
        changed = bytearray(base)
        for _ in range(rng.randint(1, 6)):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        cut = bytes(changed[: rng.randint(1, len(changed))] if rng.random() < 0.2 else changed)
        try:
            values(cut)
        except UnreadableError as error:
            refused += "\n" not in str(error)
    assert refused > 1000
    assert not target.exists()


def test_what_would_need_much_memory_or_depth_is_refused(tmp_path: Path) -> None:
    deep_key = b"\x80\x02})" + b"\x85" * 10**6 + b"K\x01s."  # a tuple in a tuple, a million deep, as a key
    assert list(values(deep_key).values()) == [1]
    far_memo = b"\x80\x02]r\xff\xff\xff\x7f."  # index 2³¹ − 1 of the memo
    assert values(far_memo) == []
    with pytest.raises(UnreadableError, match="damaged"):
        values(b"\x80\x02X\xff\xff\xff\x7fa.")  # a text of 2³¹ − 1 bytes
    with (
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("archive/data.pkl", "w", force_zip64=True) as file,
    ):
        for _ in range(LARGEST // 2**20 + 2):
            file.write(b"\0" * 2**20)
    assert (tmp_path / "bomb.pt").stat().st_size < 2**20
    with pytest.raises(UnreadableError, match="more than 67108864 bytes"):
        read_checkpoint(tmp_path / "bomb.pt")


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x80\x02.", b"hello", b"\x80\x02]a.", b"\x80\x02]]."])
def test_damaged_pickles(content: bytes) -> None:
    with pytest.raises(UnreadableError):
        values(content)


def test_a_zip_that_is_no_checkpoint(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("hello.txt", "x")
    assert not is_checkpoint(tmp_path / "other.zip")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02N.")
        archive.writestr("b/data.pkl", b"\x80\x02N.")
    with pytest.raises(UnreadableError, match="not a checkpoint"):
        read_checkpoint(tmp_path / "two.zip")
