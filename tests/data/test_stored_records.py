"""Records in a file are the same sequence as in memory, and are put into the same slots."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.adjacency import Unit
from dpassay.data import records as records_module
from dpassay.data.batching import Batches, Cells, cut_slots, hashed_slots, keyed_hash, unit_records
from dpassay.data.hashed_strings import hashes_of, multiplicities, occurrences
from dpassay.data.records import (
    Record,
    RecordsAt,
    RepeatedIdError,
    StoredRecords,
    Texts,
    read_records,
    with_content_ids,
)

KEY = bytes(range(32))
USER = Unit.parse("user")
TEXTS = st.sampled_from(["a", "b", 'ä\n"', "日本 " * 30, "long " * 400, "c", "d", "e"])
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from(["x", "y"]), st.sampled_from(["ann", "bob", "cyd"])), max_size=40)


@given(ROWS)
@examples(40, 200)
def test_a_file_holds_what_memory_would(rows: list[tuple[str, str, str]]) -> None:
    kept, stored = with_content_ids(rows), StoredRecords((None, *row) for row in rows)
    assert len(stored) == len(kept)
    assert list(stored) == kept
    assert [stored[index] for index in range(len(kept))] == kept
    assert stored[1:-1] == kept[1:-1]
    if kept:
        assert stored[-1] == kept[-1]
    with pytest.raises(IndexError):
        _ = stored[len(kept)]


def test_records_at_places_are_read_when_asked_for() -> None:
    stored = StoredRecords((None, f"text {index}", None, None) for index in range(9))
    records, places = list(stored), np.array([7, 0, 3, 8])
    some = RecordsAt(stored, places)
    assert list(some) == [records[index] for index in places]
    assert list(some[1:3]) == [records[0], records[3]]
    texts = Texts(some)
    assert list(texts) == [texts[index] for index in range(4)] == ["text 7", "text 0", "text 3", "text 8"]
    assert list(texts[2:]) == ["text 3", "text 8"]
    assert "text 3" in texts
    assert "text 1" not in texts


def test_own_ids_are_kept_and_may_not_repeat() -> None:
    rows = [(f"id {index}", "text", None, None) for index in range(5)]
    assert list(StoredRecords(rows)) == [Record(id, text) for id, text, _, _ in rows]
    with pytest.raises(RepeatedIdError):
        StoredRecords([*rows, ("id 3", "other", None, None)])


@pytest.mark.parametrize("own", [False, True])
def test_many_records_of_a_file_are_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    rows = [
        {"id": index, "text": f"note {index % 17}", "label": "ab"[index % 2], "user": index % 5} for index in range(60)
    ]
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def read() -> Sequence[Record]:
        return read_records(path, label="label", user="user", id="id" if own else None)

    kept = read()
    monkeypatch.setattr(records_module, "LARGE", 20)
    stored = read()
    assert isinstance(stored, StoredRecords)
    assert not isinstance(kept, StoredRecords)
    assert list(stored) == list(kept)
    rows[7]["id"] = 3
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if own:
        with pytest.raises(ValueError, match=r"data\.jsonl: column 'id': two records have the same id") as error:
            read()
        assert not isinstance(error.value, RepeatedIdError)


@given(st.lists(st.text(max_size=3), max_size=60))
@examples(40, 200)
def test_equal_strings_are_counted(strings: list[str]) -> None:
    seen: Counter[str] = Counter()
    expected = []
    for string in strings:
        seen[string] += 1
        expected.append(seen[string])
    hashes = hashes_of(strings)
    assert occurrences(hashes).tolist() == expected
    assert sorted(multiplicities(hashes).tolist()) == sorted(seen.values())


def by_dictionaries(
    records: Sequence[Record], cells: Cells, *, key: bytes, contexts: int, records_per_context: int, unit: Unit
) -> tuple[Any, list[int]]:
    """Slots by dictionaries and sorts of Python, record by record."""
    members: list[dict[int, list[tuple[int, str, int]]]] = [{} for _ in range(sum(cells.slots))]
    assignment = [-1] * len(records)
    best: dict[str, tuple[int, str, int]] = {}
    for index, record in enumerate(records):
        owner = record.user if unit.needs_user else str(index)
        assert owner is not None
        candidate = (keyed_hash(key, "record-of-user", record.slotting_id), record.id, index)
        best[owner] = min(candidate, best.get(owner, candidate))
    for index in sorted(index for *_, index in best.values()):
        record, cell = records[index], int(cells.of_record[index])
        hashed = (record.user or "") if unit.needs_user else record.slotting_id
        slot = sum(cells.slots[:cell]) + keyed_hash(key, "slot", hashed) % cells.slots[cell]
        order = keyed_hash(key, "context", hashed)
        context = order % contexts if records_per_context > 1 else index
        assignment[index] = slot
        members[slot].setdefault(context, []).append((order, record.id, index))
    result = []
    for of_slot in members:
        ordered = sorted(sorted(of_context) for of_context in of_slot.values())
        result.append(tuple(tuple(index for _, _, index in of_context) for of_context in ordered))
    return tuple(result), assignment


def cut_by_lists(
    records: Sequence[Record], cells: Cells, *, key: bytes, batch_size: int, records_per_context: int, unit: Unit
) -> tuple[Any, list[int]]:
    """Pieces of a fixed size, by sorts of Python."""
    assignment, width = [-1] * len(records), batch_size * records_per_context
    pieces: list[tuple[tuple[int, ...], ...]] = []
    used = unit_records(records, key, unit).tolist()
    for cell, slots in enumerate(cells.slots):
        hashed = [
            (keyed_hash(key, "shuffle", unit.of(record) if unit.needs_user else record.slotting_id), record.id, index)
            for index in used
            if cells.of_record[index] == cell
            for record in [records[index]]
        ]
        order = [index for *_, index in sorted(hashed)]
        for slot in range(slots):
            piece = order[slot * width : (slot + 1) * width]
            for index in piece:
                assignment[index] = len(pieces)
            k = records_per_context
            pieces.append(tuple(tuple(piece[first : first + k]) for first in range(0, len(piece), k)))
    return tuple(pieces), assignment


def same(batches: Batches, expected: tuple[Any, list[int]]) -> None:
    contexts, assignment = expected
    assert tuple(batches.contexts) == contexts
    assert batches.assignment.tolist() == assignment
    assert batches.sizes.tolist() == [len(slot) for slot in contexts]
    assert batches.units.tolist() == [sum(map(len, slot)) for slot in contexts]


@given(
    ROWS, st.tuples(st.integers(1, 4), st.integers(1, 3)), st.integers(1, 3), st.booleans(), st.booleans(), st.data()
)
@examples(60, 400)
def test_slots_are_those_of_dictionaries(
    rows: list[tuple[str, str, str]],
    slots: tuple[int, int],
    per_context: int,
    of_users: bool,
    in_file: bool,
    data: st.DataObject,
) -> None:
    records: Sequence[Record] = with_content_ids(rows)
    if in_file:
        records = StoredRecords((None, *row) for row in rows)
    cells = Cells(np.array([row[1] == "y" for row in rows], dtype=np.int64), slots)
    options: dict[str, Any] = {"key": KEY, "records_per_context": per_context, "unit": USER if of_users else Unit()}
    contexts = data.draw(st.integers(1, 5))
    same(
        hashed_slots(records, cells, contexts=contexts, **options),
        by_dictionaries(records, cells, contexts=contexts, **options),
    )
    size = data.draw(st.integers(1, 4))
    same(
        cut_slots(records, cells, batch_size=size, **options), cut_by_lists(records, cells, batch_size=size, **options)
    )
