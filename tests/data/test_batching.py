"""Batching: stable, uniform, order-free, and one record in one slot, which fixed-size pieces are not."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpassay.accounting.adjacency import Unit
from dpassay.data.batching import Batches, cut_slots, hashed_slots, keyed_hash, label_cells
from dpassay.data.records import Record, with_content_ids

KEY = bytes(range(32))
LABELS = ("a", "b")


def hashed(records: list[Record], **changes: object) -> Batches:
    options: dict[str, Any] = {"key": KEY, "contexts": 4, "records_per_context": 1, "unit": Unit()} | changes
    cells = label_cells(records, options.pop("labels", LABELS), options.pop("slots", 3))
    return hashed_slots(records, cells, **options)


def cut(records: list[Record], **changes: object) -> Batches:
    options: dict[str, Any] = {"key": KEY, "batch_size": 2, "records_per_context": 1, "unit": Unit()} | changes
    return cut_slots(records, label_cells(records, LABELS, 3), **options)


def named(records: list[Record], batches: Batches) -> list[list[list[str]]]:
    """Slots as ids, which do not depend on the order of the input."""
    return [[[records[i].id for i in context] for context in slot] for slot in batches.contexts]


RECORDS = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(LABELS), st.integers(0, 9)), max_size=25, unique_by=lambda t: t[0]
).map(lambda rows: [Record(f"id-{number}", "text", label, f"user-{user}") for number, label, user in rows])


def test_the_hash_is_keyed_blake2b() -> None:
    """Pinned through hashlib by itself: a release names its key, and others recompute its slots."""
    digest = hashlib.blake2b(b"id-7", digest_size=16, key=KEY, person=b"slot").digest()
    assert keyed_hash(KEY, "slot", "id-7") == int.from_bytes(digest, "big")
    assert len({keyed_hash(k, p, "x") for k in (KEY, KEY[::-1]) for p in ("slot", "context", "shuffle")}) == 6
    for key in (b"short", bytes(65)):
        with pytest.raises(ValueError, match="16 to 64 bytes"):
            keyed_hash(key, "slot", "x")


def test_slots_are_uniform() -> None:
    """Chi-square over 20,000 ids and 65 slots, one fixed key: no luck involved once it has passed."""
    records = [Record(f"id-{i}", "") for i in range(20_000)]
    sizes = hashed(records, labels=(), slots=65).sizes
    assert sizes.sum() == 20_000
    assert stats.chisquare(sizes).pvalue > 1e-3


@given(records=RECORDS, k=st.integers(1, 3), extra=st.integers(10**6 + 1, 10**7), label=st.sampled_from(LABELS))
def test_one_record_more_changes_one_context_of_one_slot(records: list[Record], k: int, extra: int, label: str) -> None:
    more = [*records, Record(f"id-{extra}", "text", label, "nobody")]
    before, after = (hashed(r, records_per_context=k) for r in (records, more))
    own = int(after.assignment[-1])
    assert LABELS[own // 3] == label
    pairs = list(zip(named(records, before), named(more, after), strict=True))
    assert [slot for slot, (a, b) in enumerate(pairs) if a != b] == [own]
    old, new = pairs[own]
    assert len([context for context in new if context not in old]) == 1
    assert len([context for context in old if context not in new]) <= 1
    assert abs(len(old) - len(new)) <= 1
    if k == 1:
        assert [context for context in new if context != [f"id-{extra}"]] == old


@given(records=RECORDS, k=st.integers(1, 3), seed=st.integers(0, 99))
def test_the_order_of_the_input_says_nothing(records: list[Record], k: int, seed: int) -> None:
    shuffled = records.copy()
    random.Random(seed).shuffle(shuffled)
    for build in (hashed, cut):
        first, second = build(records, records_per_context=k), build(shuffled, records_per_context=k)
        assert named(records, first) == named(shuffled, second)


@given(records=RECORDS, gone=st.integers(0, 9))
def test_one_user_less_changes_one_slot(records: list[Record], gone: int) -> None:
    rest = [record for record in records if record.user != f"user-{gone}"]
    before, after = hashed(records, unit=Unit("user")), hashed(rest, unit=Unit("user"))
    changed = [a != b for a, b in zip(named(records, before), named(rest, after), strict=True)]
    assert sum(changed) == (1 if len(rest) < len(records) else 0)
    used = [records[i].user for slot in before.contexts for (i,) in slot]
    assert sorted(used, key=str) == sorted({record.user for record in records}, key=str)


def test_fixed_size_pieces_all_move_behind_one_more_record() -> None:
    """With an id that sorts first, every piece of its label changes, and none of the other label."""
    records = [Record(f"id-{i}", "", "ab"[i % 2]) for i in range(12)]
    first = min((f"new-{i}" for i in range(200)), key=lambda name: keyed_hash(KEY, "shuffle", name))
    more = [*records, Record(first, "", "a")]
    before, after = named(records, cut(records)), named(more, cut(more))
    assert [a != b for a, b in zip(before, after, strict=True)] == [True] * 3 + [False] * 3
    assert [len(slot) for slot in after] == [2] * 6


def test_pieces_hold_k_records_a_context_and_leave_out_the_rest() -> None:
    records = [Record(f"id-{i}", "", "a") for i in range(15)]
    batches = cut(records, records_per_context=3)
    assert [[len(context) for context in slot] for slot in batches.contexts] == [[3, 3], [3, 3], [3], [], [], []]
    assert (cut(records).assignment == -1).sum() == 15 - 6
    assert batches.units.tolist() == [6, 6, 3, 0, 0, 0]


def test_equal_content_goes_to_one_slot() -> None:
    records = with_content_ids([("same", "a", None)] * 3 + [("other", "a", None)])
    batches = hashed(records)
    assert len(set(batches.assignment[:3])) == 1
    assert batches.sizes.sum() == 4


def test_slots_are_within_labels_and_cover_all_records() -> None:
    records = [Record(f"id-{i}", "", LABELS[i % 2]) for i in range(200)]
    batches = hashed(records)
    assert np.array_equal(batches.assignment // 3, np.arange(200) % 2)
    flat = sorted(i for slot in batches.contexts for context in slot for i in context)
    assert flat == list(range(200))
    for slot, contexts in enumerate(batches.contexts):
        assert all(batches.assignment[i] == slot for context in contexts for i in context)


def test_mistakes_are_refused_without_naming_content() -> None:
    cases = [
        ([Record("x", "s3cret", "a"), Record("x", "s3cret", "a")], {}, "same id"),
        ([Record("x", "s3cret", "zz")], {}, "public list"),
        ([Record("x", "s3cret", None)], {}, "public list"),
        ([Record("x", "s3cret", "a")], {"unit": Unit("user")}, "a user for every record"),
    ]
    for build in (hashed, cut):
        for records, options, message in cases:
            with pytest.raises(ValueError, match=message) as error:
                build(records, **options)
            assert "s3cret" not in str(error.value)
            assert "zz" not in str(error.value)
