"""The charges that a run may still make within its plan."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.events import ParallelDpEvent
from dpassay.accounting.ledger.entries import Charge, LedgerError

Counts = dict[str, int]
"""Maps the text of an event to its count."""


class Allowance:
    """The charges that the plan of a run leaves room for.

    An event on the whole data may be charged as often as planned. The partitions of a run must fit into distinct
    parallel compositions of its plan. The parts of a partition must fit into distinct parts of that composition, with
    each event charged at most as often as planned there.
    """

    def __init__(self, plan: DpEvent) -> None:
        planned = events.counted([(plan, 1)])
        self._room = {text: count for text, (_, count) in planned.items()}
        parallel = [text for text, (event, _) in planned.items() if isinstance(event, ParallelDpEvent)]
        self._place_of_text = {text: index for index, text in enumerate(parallel)}
        self._planned = [_PlannedParts(planned[text][0]) for text in parallel]
        self._charged: dict[str, _ChargedParts] = {}
        self._partitions = _Assignment([self._room[text] for text in parallel], self._fits)

    def take(self, charge: Charge, key: str) -> None:
        """Uses the allowance for a charge, or an equal one with another key; a `LedgerError` if there is none left."""
        if charge.partition is None:
            self._take_whole(charge, key)
        else:
            self._take_parts(charge, charge.partition, key)

    def _take_whole(self, charge: Charge, key: str) -> None:
        (times,) = charge.times.values()
        for text, (_, count) in events.counted([(charge.event, times)]).items():
            self._room[text] = self._room.get(text, 0) - count
            index = self._place_of_text.get(text)
            if self._room[text] < 0 or (index is not None and not self._partitions.shrink(index, count)):
                raise LedgerError(f"{key!r} charges more than was planned: {abbreviated(text)}")

    def _take_parts(self, charge: Charge, partition: str, key: str) -> None:
        charged = self._charged.setdefault(partition, _ChargedParts(charge.partition_is_public))
        once = {text: count for text, (_, count) in events.counted([(charge.event, 1)]).items()}
        for part, times in charge.times.items():
            charged.add(part, once, times)
        index = self._partitions.place_of.get(partition)
        if index is not None and all(charged.place(part) for part in charge.parts):
            return
        if not self._partitions.place(partition):
            raise LedgerError(f"{key!r} charges partition {partition!r} more than was planned")
        for name, result in self._partitions.place_of.items():
            self._charged[name].assign_to(self._planned[result])

    def _fits(self, partition: str, index: int) -> bool:
        return self._charged[partition].placed_in(self._planned[index]) is not None


class _PlannedParts:
    """A planned parallel composition: its distinct parts, and the number of each."""

    def __init__(self, event: DpEvent) -> None:
        assert isinstance(event, ParallelDpEvent)
        self.is_public = event.partition_is_public
        different: dict[str, tuple[Counts, int]] = {}
        for part in event.events:
            counts = {text: count for text, (_, count) in events.counted([(part, 1)]).items()}
            different[repr(part)] = (counts, different.get(repr(part), (counts, 0))[1] + 1)
        largest_first = sorted(different.values(), key=lambda result: -sum(result[0].values()))
        self.parts = [counts for counts, _ in largest_first]
        self.numbers = [number for _, number in largest_first]


class _ChargedParts:
    """The charges of the parts of one partition, and the planned parts that they are assigned to."""

    def __init__(self, is_public: bool) -> None:
        self._is_public = is_public
        self._charged: dict[str, Counts] = {}
        self._planned: _PlannedParts | None = None
        self._parts: _Assignment | None = None

    def add(self, part: str, once: Counts, times: int) -> None:
        """Adds `times` runs of an event, given as its counts, to one part."""
        counts = self._charged.setdefault(part, {})
        for text, count in once.items():
            counts[text] = counts.get(text, 0) + count * times

    def place(self, part: str) -> bool:
        """Whether all parts still fit after this one was charged."""
        if self._planned is None or self._parts is None:
            return False
        slot = self._parts.place_of.get(part)
        return (slot is not None and self._fits(part, self._planned.parts[slot])) or self._parts.place(part)

    def placed_in(self, planned: _PlannedParts) -> _Assignment | None:
        """An assignment of all parts to distinct parts of a planned composition; None if they do not fit."""
        if planned.is_public != self._is_public:
            return None
        result = _Assignment(planned.numbers, lambda part, index: self._fits(part, planned.parts[index]))
        return result if all(result.place(part) for part in self._charged) else None

    def assign_to(self, planned: _PlannedParts) -> None:
        """Assigns these parts to a planned composition that they fit into."""
        if planned is not self._planned:
            self._planned, self._parts = planned, self.placed_in(planned)

    def _fits(self, part: str, planned: Counts) -> bool:
        return all(count <= planned.get(text, 0) for text, count in self._charged[part].items())


class _Assignment:
    """An assignment of items to places, each with room for some number of the items that fit there.

    An item is placed along a shortest augmenting path, so it finds a slot whenever all items together can be placed.
    """

    def __init__(self, room: Sequence[int], fits: Callable[[str, int], bool]) -> None:
        self._room = list(room)
        self._fits = fits
        self._members: list[dict[str, None]] = [{} for _ in room]
        self.place_of: dict[str, int] = {}

    def place(self, item: str) -> bool:
        """Finds a slot for an item, moving others if needed; False if there is none."""
        if (slot := self.place_of.pop(item, None)) is not None:
            del self._members[slot][item]
        wanted_by: dict[int, str] = {}
        waiting = deque([item])
        while waiting:
            wanting = waiting.popleft()
            for slot in range(len(self._room)):
                if slot in wanted_by or not self._fits(wanting, slot):
                    continue
                wanted_by[slot] = wanting
                if len(self._members[slot]) < self._room[slot]:
                    self._move(slot, wanted_by)
                    return True
                waiting.extend(self._members[slot])
        return False

    def shrink(self, index: int, by: int) -> bool:
        """Reduces the room of a slot; False if the items no longer fit."""
        self._room[index] -= by
        while len(self._members[index]) > max(self._room[index], 0):
            if not self.place(next(iter(self._members[index]))):
                return False
        return self._room[index] >= 0

    def _move(self, index: int | None, wanted_by: Mapping[int, str]) -> None:
        while index is not None:
            item = wanted_by[index]
            before = self.place_of.get(item)
            if before is not None:
                del self._members[before][item]
            self._members[index][item] = None
            self.place_of[item] = index
            index = before


def abbreviated(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "…"
