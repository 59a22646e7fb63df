"""Assigns records to slots that are aggregated together: keyed hashing into a public number of slots.

Sound: a record's slot is a keyed hash of its own id, modulo a public number of slots, within its own cell: its label,
or its cluster among those of its label. So adding or removing a record changes one slot, and slots compose in parallel.
No exact size is used: a slot holds as many records as hash into it. The key is drawn once, independently of the data,
and is public.

As published (`as_published`): the records of a cell are ordered and cut into pieces of a fixed size. Adding one record
near the front shifts every later piece, so all of them change, and pieces do not compose in parallel.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.base.arrays import Integers
from dpassay.data.hashed_strings import Hashes, hashes_of, starts
from dpassay.data.records import Record, RecordsAt, check_ids

KEY_BYTES = (16, 64)
"""Smallest and largest length of a key."""


def keyed_hash(key: bytes, purpose: str, value: str) -> int:
    """A 128-bit number, uniform for anyone without the key (keyed BLAKE2b, with `purpose` as its personalisation).

    The probabilities of residues modulo b differ by less than b·2⁻¹²⁸ relatively.

    Raises:
        ValueError: if the key has fewer than 16 or more than 64 bytes.
    """
    if not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise ValueError(f"the batching key must have {KEY_BYTES[0]} to {KEY_BYTES[1]} bytes, not {len(key)}")
    digest = hashlib.blake2b(value.encode("utf-8", "surrogatepass"), key=key, person=purpose.encode(), digest_size=16)
    return int.from_bytes(digest.digest(), "big")


@dataclass(frozen=True, slots=True, eq=False)
class Batches:
    """Records in slots and, within a slot, in contexts.

    Attributes:
        members: shape (used records,), indices of records, slot by slot and context by context.
        context_starts: shape (contexts + 1,), where each context begins among the members.
        slot_starts: shape (slots + 1,), where each slot begins among the contexts.
        assignment: shape (records,), the slot of each record; −1 for a record that is not used (because another record
            of its user is, or, as published, because it is in no full piece).
    """

    members: Integers
    context_starts: Integers
    slot_starts: Integers
    assignment: Integers

    @property
    def contexts(self) -> Contexts:
        """For each slot, its contexts, each a tuple of indices of records; a slot may have none. They are ordered by
        hash, which is independent of the input's order."""
        return Contexts(self)

    @property
    def sizes(self) -> Integers:
        """Shape (slots,): the number of contexts of each slot. Private."""
        return np.diff(self.slot_starts)

    @property
    def units(self) -> Integers:
        """Shape (slots,): the number of records (or users) of each slot. Private; `sizes` when k = 1."""
        return np.diff(self.context_starts[self.slot_starts])


class Contexts(Sequence["tuple[tuple[int, ...], ...]"]):
    """The contexts of each slot, made where they are asked for."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches.slot_starts) - 1

    def __getitem__(self, slot: Any) -> Any:
        if isinstance(slot, slice):
            return tuple(self[place] for place in range(*slot.indices(len(self))))
        of, place = self._batches, range(len(self))[slot]
        ends = of.context_starts[of.slot_starts[place] : of.slot_starts[place + 1] + 1].tolist()
        members = of.members[ends[0] : ends[-1]].tolist()
        return tuple(tuple(members[first - ends[0] : end - ends[0]]) for first, end in itertools.pairwise(ends))


@dataclass(frozen=True, slots=True)
class Cells:
    """Groups of records that share no slot: labels, or the clusters of labels.

    Attributes:
        of_record: shape (records,), the cell of each record; a function of that record and of what is public or was
            released. Private.
        slots: number of slots of each cell; slots are numbered cell by cell.
    """

    of_record: Integers
    slots: tuple[int, ...]

    @property
    def starts(self) -> list[int]:
        """The first slot of each cell."""
        return [sum(self.slots[:cell]) for cell in range(len(self.slots))]


def label_cells(records: Sequence[Record], labels: Sequence[str], slots: int) -> Cells:
    """Every label is a cell with `slots` slots; without labels there is one cell."""
    return Cells(label_indices(records, labels), (slots,) * max(1, len(labels)))


def label_indices(records: Sequence[Record], labels: Sequence[str]) -> Integers:
    """The index of each record's label in the public list; 0 for all if the list is empty.

    Raises:
        ValueError: if a record's label is not in the list; the message names neither the record nor the label.
    """
    if not labels:
        return np.zeros(len(records), dtype=np.int64)
    position = {label: index for index, label in enumerate(labels)}
    found = (position.get(record.label or "", -1) for record in records)
    result = np.fromiter(found, dtype=np.int64, count=len(records))
    if (result < 0).any():
        raise ValueError(
            "a record's label is not in the public list of labels; list every label that may occur, "
            "or remove those records before anything is charged"
        )
    return result


def unit_records(records: Sequence[Record], key: bytes, unit: Unit) -> Integers:
    """The indices of the records that represent a unit: all of them, or of each user the one with the smallest hash.

    Raises:
        ValueError: if an id repeats, or a record lacks the user that the unit needs.
    """
    check_ids(records)
    if not unit.needs_user:
        return np.arange(len(records), dtype=np.int64)
    users = hashes_of(_users(records, unit))
    hashed = _keyed(key, "record-of-user", (record.slotting_id for record in records))
    order = np.lexsort((hashed["low"], hashed["high"], users["low"], users["high"]))
    order = _by_id(order, [users, hashed], records)
    return np.sort(order[starts(users[order])])


def _users(records: Sequence[Record], unit: Unit) -> Iterator[str]:
    for record in records:
        if record.user is None:
            raise ValueError(
                f"unit {unit} needs a user for every record, but a record has none; name the column of the users as "
                "`user:` in the claim's data"
            )
        yield record.user


def _keyed(key: bytes, purpose: str, values: Iterable[str]) -> Hashes:
    """The keyed hashes of strings, whose numbers are 2⁶⁴·high + low."""
    numbers = bytearray()
    for value in values:
        numbers += keyed_hash(key, purpose, value).to_bytes(16, "little")
    return np.frombuffer(numbers, dtype=[("low", "<u8"), ("high", "<u8")])


def _remainders(hashes: Hashes, moduli: Integers | int) -> Integers:
    """Keyed hashes modulo numbers below 2³¹, exactly."""
    modulus = np.asarray(moduli, dtype=np.uint64)
    half = np.uint64(2**32)
    result = hashes["high"] % modulus
    for part in (hashes["low"] // half, hashes["low"] % half):
        result = (result * half + part) % modulus
    return np.asarray(result, dtype=np.int64)


def _by_id(order: Integers, keys: Sequence[Integers | Hashes], records: Sequence[Record]) -> Integers:
    """Records in the order of some keys; those with equal keys by their ids."""
    same = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for values in keys:
        ordered = values[order]
        same &= ordered[1:] == ordered[:-1]
    if not same.any():
        return order
    result = order.copy()
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    for first, last in edges.reshape(-1, 2).tolist():
        result[first : last + 1] = sorted(
            order[first : last + 1].tolist(), key=lambda index: (records[index].id, index)
        )
    return result


def _hashed(record: Record, unit: Unit) -> str:
    """The string that determines the batch: that of the record, or the name of its user."""
    return unit.of(record) if unit.needs_user else record.slotting_id


def hashed_slots(
    records: Sequence[Record],
    cells: Cells,
    *,
    key: bytes,
    contexts: int,
    records_per_context: int,
    unit: Unit,
) -> Batches:
    """The sound batching.

    Args:
        records: private, in any order; ids must be unique.
        cells: the groups that share no slot, with their public numbers of slots.
        key: 16 to 64 bytes, drawn independently of the data.
        contexts: public number of contexts in a slot, used only for records_per_context ≥ 2: a second keyed hash
            assigns each record of the slot to one of them, so the number of records in a context varies around k.
        records_per_context: k; for 1, each record is its own context.
        unit: if it needs users, one record of each is used, and the user's name is hashed.

    Raises:
        ValueError: if an id repeats, or a record has no user.
    """
    used = unit_records(records, key, unit)
    cell = cells.of_record[used]
    within = _remainders(_keyed(key, "slot", _of(records, used, unit)), np.array(cells.slots, dtype=np.int64)[cell])
    slots = np.array(cells.starts, dtype=np.int64)[cell] + within
    hashed = _keyed(key, "context", _of(records, used, unit))
    order = np.lexsort((hashed["low"], hashed["high"], slots))
    order = _by_id(order, [slots, hashed], RecordsAt(records, used))
    if records_per_context > 1:
        order, context_starts = _in_contexts(order, slots, _remainders(hashed, contexts))
    else:
        context_starts = np.arange(len(used) + 1, dtype=np.int64)
    assignment = np.full(len(records), -1, dtype=np.int64)
    assignment[used] = slots
    firsts = np.searchsorted(slots[order], np.arange(sum(cells.slots) + 1))
    return Batches(used[order], context_starts, np.searchsorted(context_starts, firsts), assignment)


def _of(records: Sequence[Record], used: Integers, unit: Unit) -> Iterator[str]:
    """What is hashed of the records that are used, whose indices ascend."""
    kept = np.zeros(len(records), dtype=np.bool_)
    kept[used] = True
    return (_hashed(record, unit) for record, use in zip(records, kept.tolist(), strict=True) if use)


def _in_contexts(order: Integers, slots: Integers, contexts: Integers) -> tuple[Integers, Integers]:
    """Records in the order of their slots and, within a slot, of the first records of their contexts; and where each
    context begins."""
    pairs = slots[order] * (int(contexts.max(initial=0)) + 1) + contexts[order]
    _, first, of_pair = np.unique(pairs, return_index=True, return_inverse=True)
    place = first[of_pair]  # of the first record of a record's context
    arranged = np.argsort(place, kind="stable")
    begins = np.flatnonzero(np.diff(place[arranged], prepend=-1))
    return order[arranged], np.append(begins, len(order))


def cut_slots(
    records: Sequence[Record],
    cells: Cells,
    *,
    key: bytes,
    batch_size: int,
    records_per_context: int,
    unit: Unit,
) -> Batches:
    """The published batching: the records of each cell, shuffled by keyed hash, are cut into pieces of a fixed size.

    Each piece has `batch_size` contexts of `records_per_context` records. A cell uses as many pieces as it has slots
    and leaves out the rest; if there are too few records, the last piece is shorter.

    Source: "Clustering and Median Aggregation Improve Differentially Private Inference", section 6.1: "we subdivide
    each cluster into fixed-sized batches". Arguments and errors as for `hashed_slots`.
    """
    used = unit_records(records, key, unit)
    cell = cells.of_record[used]
    hashed = _keyed(key, "shuffle", _of(records, used, unit))
    order = np.lexsort((hashed["low"], hashed["high"], cell))
    order = _by_id(order, [cell, hashed], RecordsAt(records, used))
    firsts = np.searchsorted(cell[order], np.arange(len(cells.slots)))
    places = np.arange(len(order)) - firsts[cell[order]]  # within the cell
    width = batch_size * records_per_context
    kept = places < np.array(cells.slots, dtype=np.int64)[cell[order]] * width
    order, places = order[kept], places[kept]
    slots = np.array(cells.starts, dtype=np.int64)[cell[order]] + places // width
    assignment = np.full(len(records), -1, dtype=np.int64)
    assignment[used[order]] = slots
    begins = np.append(np.flatnonzero(places % width % records_per_context == 0), len(order))
    ends = np.searchsorted(slots, np.arange(sum(cells.slots) + 1))
    return Batches(used[order], begins, np.searchsorted(begins, ends), assignment)
