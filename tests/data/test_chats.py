"""Chat transcripts: lists of turns that are joined to texts where that is stated, the same from every format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from dpassay.data.chats import TextOptions, joined_turns
from dpassay.data.records import content_id, read_records, read_texts, read_user_texts

TURNS = TextOptions(join="turns")
ROLES = [
    {"role": "system", "content": ""},
    {"role": "user", "content": "Wie geht’s, 👩\u200d⚕️?\n\tGut: {}"},
    {"role": "assistant", "content": 'שלום ["x"]'},
]
TEXT = 'system: \nuser: Wie geht’s, 👩\u200d⚕️?\n\tGut: {}\nassistant: שלום ["x"]'


def as_values(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    return [{"from": turn["role"], "value": turn["content"]} for turn in turns]


def written(path: Path, *chats: Any) -> Path:
    rows = [{"chat": chat, "who": "ab"[i % 2]} for i, chat in enumerate(chats)]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize("style", [list, as_values])
def test_both_styles_are_one_text_in_every_format(tmp_path: Path, style: Any, ending: str) -> None:
    path = written(tmp_path / f"chats.{ending}", style(ROLES), style(ROLES[1:]))
    records = read_records(path, text="chat", user="who", stated=TURNS)
    assert [record.text for record in records] == [TEXT, TEXT.removeprefix("system: \n")]
    assert [record.user for record in records] == ["a", "b"]
    assert records[0].id == content_id(TEXT, None, "a")
    assert [text for text, _ in read_texts(path, text="chat", stated=TURNS)] == [record.text for record in records]
    assert list(read_user_texts(path, text="chat", user="who", stated=TURNS))[1] == (records[1].text, "b")


def test_texts_are_turns_without_a_speaker(tmp_path: Path) -> None:
    for ending in ("jsonl", "parquet"):
        path = written(tmp_path / f"chats.{ending}", ["one: 1", "", "three"])
        assert [record.text for record in read_records(path, text="chat", stated=TURNS)] == ["one: 1\n\nthree"]


def test_what_else_a_turn_holds_is_not_read() -> None:
    extra = {"role": "user", "content": "hi", "from": None, "value": None, "weight": 1}
    assert joined_turns([extra, {**extra, "role": None, "content": None, "from": "gpt", "value": "hello"}]) == (
        "user: hi\ngpt: hello"
    )


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant"},
        {"role": "assistant", "content": None},
        {"content": "SECRET"},
        {"role": "user", "content": [{"type": "text", "text": "SECRET"}]},
        {"from": "human", "content": "SECRET"},
        {},
        None,
        7,
        ["SECRET"],
    ],
)
@pytest.mark.parametrize("generated", [True, False])
def test_a_turn_that_is_not_whole_is_refused_by_its_number(tmp_path: Path, turn: Any, generated: bool) -> None:
    path = written(tmp_path / "chats.jsonl", ROLES, [*ROLES, turn])
    with pytest.raises(ValueError, match="line 2: column 'chat': turn 4 is neither a text nor has") as caught:
        list(read_texts(path, text="chat", empty=generated, stated=TURNS))
    assert "SECRET" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_is_no_text_unless_it_is_stated(tmp_path: Path) -> None:
    for ending, line in (("jsonl", "line 1"), ("parquet", "row 1")):
        path = written(tmp_path / f"chats.{ending}", ROLES)
        with pytest.raises(
            ValueError, match=f"{line}: column 'chat' holds a list and no text; if it is the turns of a"
        ):
            read_records(path, text="chat")
    with pytest.raises(ValueError, match="join must be one of turns, not 'lines'"):
        TextOptions(join="lines")


def test_where_turns_are_stated_only_generated_texts_may_be_texts(tmp_path: Path) -> None:
    path = written(tmp_path / "texts.jsonl", "plain", "")
    assert [text for text, _ in read_texts(path, text="chat", empty=True, stated=TURNS)] == ["plain", ""]
    with pytest.raises(ValueError, match="line 1: column 'chat' holds a text and no list of turns; leave join out"):
        read_records(path, text="chat", stated=TURNS)
