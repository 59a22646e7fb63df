"""A pair of neighbouring data sets that a user gives: which of the two is D, and in which records they differ.

Records are compared in their order, so that both data sets are read once and nothing but positions is kept. Messages
count records and quote none.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.attacks.black_box.column_facts import ColumnFacts, Row
from dpassay.attacks.black_box.neighboring_data import NeighboringData
from dpassay.attacks.black_box.output_events import TOWARD, Event
from dpassay.attacks.black_box.worst_cases import OWN


@dataclass(frozen=True, slots=True, eq=False)
class OwnNeighbors:
    """Two data sets that are neighbours.

    Attributes:
        data: D.
        neighbor: D′.
        positions: of the records of D′ that D has not, from 0.
        swapped: whether D was given second.
    """

    data: Sequence[Row]
    neighbor: Sequence[Row]
    positions: tuple[int, ...]
    swapped: bool


def own_neighbors(
    first: Sequence[Row],
    second: Sequence[Row],
    adjacency: Adjacency,
    unit: Unit,
    names: tuple[str, str] = ("the first data set", "the second"),
) -> OwnNeighbors:
    """Two data sets as neighbours.

    With ``add_remove`` D is the smaller one, and D′ must be D with at most as many more records as the unit has, the
    others in the order of D. With ``replace_one`` D is the first, and at most as many records of D′ may be others.

    Args:
        first, second: the two data sets, which are read several times.
        adjacency: add_remove or replace_one.
        unit: of the claim.
        names: of the two in messages.

    Raises:
        ValueError: one line, if they are no neighbours; it says how many records differ.
    """
    _check_columns(first, second, names)
    if adjacency is Adjacency.REPLACE_ONE:
        return OwnNeighbors(first, second, _exchanged(first, second, unit, names), False)
    swapped = len(first) > len(second)
    if swapped:
        first, second, names = second, first, (names[1], names[0])
    return OwnNeighbors(first, second, _added(first, second, unit, names), swapped)


def _check_columns(first: Sequence[Row], second: Sequence[Row], names: tuple[str, str]) -> None:
    """Raises `ValueError` unless all records of both data sets have the same columns."""
    columns = next((list(row) for row in first), None)
    for name, rows in zip(names, (first, second), strict=True):
        number = 0
        for number, row in enumerate(rows, 1):
            if list(row) != columns:
                raise ValueError(
                    f"{name}: record {number} has other columns than the first record of {names[0]}, or in another "
                    "order; give all records of both the same columns in one order"
                )
        if not number:
            raise ValueError(f"{name} holds no records; give two data sets of some")


def _added(data: Sequence[Row], neighbor: Sequence[Row], unit: Unit, names: tuple[str, str]) -> tuple[int, ...]:
    """The positions of the records that D′ has in addition."""
    more = len(neighbor) - len(data)
    if not more:
        raise ValueError(
            f"{names[0]} and {names[1]} have {len(data)} records each, but with add_remove one of two neighbours has "
            "more; if a record is exchanged for another, plan with adjacency replace_one"
        )
    if more > unit.size:
        raise ValueError(
            f"{names[1]} has {more} records more than {names[0]}, but neighbours differ in at most {unit.size} (unit "
            f'{unit}); leave some out, or give the unit of the claim, such as "group({more})"'
        )
    rest, positions, matched = map(_content, data), list[int](), 0
    wanted = next(rest, None)
    for position, row in enumerate(neighbor):
        if wanted is not None and _content(row) == wanted:
            wanted, matched = next(rest, None), matched + 1
        elif len(positions) < more:
            positions.append(position)
    if wanted is not None:
        raise ValueError(
            f"{names[1]} has {_counted(more)} more, but not all {len(data)} records of {names[0]} in their order: the "
            f"first {_counted(matched + 1)} of {names[0]} are not in it; make one of the two from the other by leaving "
            "out records"
        )
    return tuple(positions)


def _exchanged(data: Sequence[Row], neighbor: Sequence[Row], unit: Unit, names: tuple[str, str]) -> tuple[int, ...]:
    """The positions at which D′ has another record."""
    if len(data) != len(neighbor):
        raise ValueError(
            f"{names[0]} has {_counted(len(data))} and {names[1]} has {len(neighbor)}, but with replace_one neighbours "
            "have equally many; if a record is added or removed, plan with adjacency add_remove"
        )
    positions, differ = list[int](), 0
    for position, (row, other) in enumerate(zip(data, neighbor, strict=True)):
        if _content(row) != _content(other):
            differ += 1
            positions += [position] * (differ <= unit.size)
    if not differ:
        raise ValueError(f"{names[0]} and {names[1]} hold the same records; neighbours differ in one")
    if differ > unit.size:
        raise ValueError(
            f"{names[0]} and {names[1]} have different records at {differ} positions, but neighbours differ in at most "
            f'{unit.size} (unit {unit}); exchange fewer, or give the unit of the claim, such as "group({differ})"'
        )
    return tuple(positions)


def _content(row: Row) -> str:
    """What a record holds, with the types of its cells: to a generator, 1 and 1.0 and true may differ."""
    return repr(list(row.values()))


def _counted(records: int) -> str:
    return f"{records} record{'s'[: records != 1]}"


def own_pair(own: OwnNeighbors, columns: Sequence[ColumnFacts]) -> tuple[NeighboringData, int]:
    """The pair that an audit tests, and the position of its target in D′. Of several records by which the two differ,
    the target is the one with new values in most columns, or else the first."""
    chosen = frozenset(own.positions)
    targets = {position: dict(row) for position, row in enumerate(own.neighbor) if position in chosen}
    categories = [column for column in columns if column.is_category]
    new = _new_values(own.data, list(targets.values()), categories)

    def novel(target: Row) -> tuple[str, ...]:
        return tuple(column.name for column in categories if _meaning(column, target) in new[column.name])

    position = max(targets, key=lambda place: len(novel(targets[place])))
    target = targets[position]
    return (
        NeighboringData(OWN, own.data, own.neighbor, target, novel(target), tuple(_expected(columns))),
        position,
    )


def _new_values(
    data: Sequence[Row], targets: Sequence[Row], columns: Sequence[ColumnFacts]
) -> dict[str, Collection[Hashable]]:
    """The values of the targets that no record of D has, by column."""
    left = {column.name: {_meaning(column, target) for target in targets} for column in columns}
    for row in data:
        for column in columns:
            if left[column.name]:
                left[column.name].discard(_meaning(column, row))
    return dict(left)


def _meaning(column: ColumnFacts, row: Row) -> tuple[bool, Any]:
    """What a record has in a column, whatever the type of its cell: whether it is missing, and its value."""
    cell = row[column.name]
    return (True, None) if column.is_missing(cell) else (False, column.value(cell))


def _expected(columns: Sequence[ColumnFacts]) -> Iterator[Event]:
    """Events that are looked for before all others; one that cannot happen on D′ costs next to nothing."""
    yield Event("novel values of the target", 1.0)
    yield Event(TOWARD, 1.0)
    for column in columns:
        if column.kind == "text":
            yield Event(f"{column.name}: texts with a new word of the target", 1.0)


def own_in_words(adjacency: Adjacency, records: int, names: tuple[str, str] = ("", "")) -> str:
    """What D and D′ are, as one sentence.

    Args:
        adjacency: of the claim.
        records: number of records by which they differ.
        names: of the files of D and of D′; empty for records that come from no file.
    """
    some = "one record" if records == 1 else f"{records} records"
    more = f"{some} more" if adjacency is Adjacency.ADD_REMOVE else f"{some} in the place of as many of D"
    target = "the target" if records == 1 else "one of which is the target"
    first, second = (f" {name}" if name else "" for name in names)
    given = "file" if first else "data"
    return f"D: the user's own {given}{first}. D′: the user's own {given}{second}, which has {more}, {target}."
