"""Audits of chats say what audits of the joined texts say."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from dpassay import audit
from dpassay.accounting.adjacency import Unit
from dpassay.auditing.membership.files import read_candidates
from dpassay.data.chats import TextOptions

TURNS = TextOptions(join="turns")


def chat(number: int) -> list[dict[str, str]]:
    said = " ".join(f"word{(number * 7 + index * index) % 311}" for index in range(30))
    return [{"role": "user", "content": said}, {"role": "assistant", "content": f"Mail a{number}@example.org, please."}]


def joined(turns: list[dict[str, str]]) -> str:
    (first, second) = turns
    return f"user: {first['content']}\nassistant: {second['content']}"


def written(path: Path, numbers: range, as_text: bool = False) -> Path:
    rows = [{"text": joined(chat(i)) if as_text else chat(i), "included": i % 2, "user": f"u{i // 2}"} for i in numbers]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("user", [None, "user"])
@pytest.mark.parametrize("released_as_text", [True, False])
def test_chats_and_their_texts_are_audited_alike(
    tmp_path: Path, ending: str, user: str | None, released_as_text: bool
) -> None:
    plain = [written(tmp_path / f"{name}.jsonl", of, True) for name, of in PARTS.items()]
    chats = [
        written(tmp_path / f"{name}-chats.{ending}", of, released_as_text and name == "synthetic")
        for name, of in PARTS.items()
    ]
    results = [
        audit.text(synthetic, source=source, holdout=holdout, user=user, reading=reading)
        for (synthetic, source, holdout), reading in ((plain, TextOptions()), (chats, TURNS))
    ]
    first, second = ([(item.name, item.rates) for item in result.audits] for result in results)
    assert first == second
    found = dict(first)["verbatim_extraction"]
    assert [rate.hits for rate in found[:2]] == [10 if user else 20, 0]


PARTS = {"synthetic": range(20), "source": range(60), "holdout": range(100, 160)}


def test_candidates_may_be_chats(tmp_path: Path) -> None:
    for ending in ("jsonl", "parquet"):
        path = written(tmp_path / f"candidates.{ending}", range(6))
        texts, included = read_candidates(path, "text", Unit(), TURNS)
        assert texts == [joined(chat(i)) for i in range(6)]
        assert included.tolist() == [False, True] * 3
