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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.base.arrays import Integers
from dpassay.data.records import Record, check_ids

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


@dataclass(frozen=True, slots=True)
class Batches:
    """Records in slots and, within a slot, in contexts.

    Attributes:
        contexts: for each slot, its contexts, each a tuple of indices of records; a slot may have none. They are
            ordered by hash, which is independent of the input's order.
        assignment: shape (records,), the slot of each record; −1 for a record that is not used (because another record
            of its user is, or, as published, because it is in no full piece).
    """

    contexts: tuple[tuple[tuple[int, ...], ...], ...]
    assignment: Integers

    @property
    def sizes(self) -> Integers:
        """Shape (slots,): the number of contexts of each slot. Private."""
        return np.array([len(slot) for slot in self.contexts], dtype=np.int64)

    @property
    def units(self) -> Integers:
        """Shape (slots,): the number of records (or users) of each slot. Private; `sizes` when k = 1."""
        return np.array([sum(map(len, slot)) for slot in self.contexts], dtype=np.int64)


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
    result = np.array([position.get(record.label or "", -1) for record in records], dtype=np.int64)
    if (result < 0).any():
        raise ValueError(
            "a record's label is not in the public list of labels; list every label that may occur, "
            "or remove those records before anything is charged"
        )
    return result


def unit_records(records: Sequence[Record], key: bytes, unit: Unit) -> list[int]:
    """The indices of the records that represent a unit: all of them, or of each user the one with the smallest hash.

    Raises:
        ValueError: if an id repeats, or a record lacks the user that the unit needs.
    """
    check_ids(records)
    if not unit.needs_user:
        return list(range(len(records)))
    best: dict[str, tuple[int, str, int]] = {}
    for index, record in enumerate(records):
        if record.user is None:
            raise ValueError(
                f"unit {unit} needs a user for every record, but a record has none; name the column of the users as "
                "`user:` in the claim's data"
            )
        candidate = (keyed_hash(key, "record-of-user", record.slotting_id), record.id, index)
        best[record.user] = min(candidate, best.get(record.user, candidate))
    return sorted(index for _, _, index in best.values())


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
    assignment = np.full(len(records), -1, dtype=np.int64)
    members: list[dict[int, list[tuple[int, str, int]]]] = [{} for _ in range(sum(cells.slots))]
    starts = cells.starts
    for index in unit_records(records, key, unit):
        record, cell = records[index], int(cells.of_record[index])
        hashed = _hashed(record, unit)
        slot = starts[cell] + keyed_hash(key, "slot", hashed) % cells.slots[cell]
        order = keyed_hash(key, "context", hashed)
        context = order % contexts if records_per_context > 1 else index
        assignment[index] = slot
        members[slot].setdefault(context, []).append((order, record.id, index))
    return Batches(tuple(_in_order(slot) for slot in members), assignment)


def _in_order(slot: dict[int, list[tuple[int, str, int]]]) -> tuple[tuple[int, ...], ...]:
    """The contexts of a slot and the records of each, ordered by hash, independently of the input's order."""
    contexts = sorted(sorted(members) for members in slot.values())
    return tuple(tuple(index for _, _, index in members) for members in contexts)


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
    order: list[list[tuple[int, str, int]]] = [[] for _ in cells.slots]
    for index in unit_records(records, key, unit):
        record = records[index]
        hashed = _hashed(record, unit)
        order[int(cells.of_record[index])].append((keyed_hash(key, "shuffle", hashed), record.id, index))
    assignment = np.full(len(records), -1, dtype=np.int64)
    pieces: list[tuple[tuple[int, ...], ...]] = []
    width = batch_size * records_per_context
    for members, slots in zip(order, cells.slots, strict=True):
        indices = [index for _, _, index in sorted(members)]
        for start in range(0, slots * width, width):
            piece = indices[start : start + width]
            assignment[piece] = len(pieces)
            pieces.append(
                tuple(tuple(piece[i : i + records_per_context]) for i in range(0, len(piece), records_per_context))
            )
    return Batches(tuple(pieces), assignment)
