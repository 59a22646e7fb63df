"""Files of other libraries, read under what the user states of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.interop import conditions
from dpassay.accounting.interop.conditions import Condition, Unstated
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Reading, State, Stated, check_used, read_as
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.registry import unsupported
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number

Named = tuple[str, tuple[Adjacency, Unit]]
"""A name and the relation of what it names."""

Read = tuple[Path, State, Reading]
"""A file, what it says, and what follows under what was stated."""


@dataclass(frozen=True)
class ForeignFile:
    """A file of another library.

    Attributes:
        path: the file.
        library: which wrote it.
        what: of that library.
        stated: the ε that the file itself states, or None.
        assumptions: what the bounds rest on, and the file does not show.
        remarks: other sentences about what the file itself states; no bound rests on them.
        unstated: those assumptions that neither the file nor the user states.
    """

    path: Path
    library: str
    what: str
    stated: float | None
    assumptions: tuple[str, ...]
    remarks: tuple[str, ...] = ()
    unstated: tuple[Unstated, ...] = ()

    @classmethod
    def of(cls, path: Path, state: State, reading: Reading) -> ForeignFile:
        """The file under the assumptions of a reading."""
        return cls(path, state.library, state.what, state.stated, reading.assumptions, state.remarks, reading.unstated)

    def to_json(self) -> dict[str, Any]:
        """The file as plain JSON types."""
        return {
            **asdict(self),
            "path": str(self.path),
            "assumptions": list(self.assumptions),
            "remarks": list(self.remarks),
            "unstated": [asdict(item) for item in self.unstated],
        }

    def notes(self) -> list[str]:
        """The file in sentences."""
        stated = "" if self.stated is None else f"; it states ε = {format_number(self.stated)} itself"
        return [
            f"{self.path}: {self.what}{stated}",
            *(f"{self.path}: {item}" for item in self.remarks),
            *(f"{self.path}: assumed: {item}" for item in self.assumptions),
            *([f"{self.path}: nobody stated: {conditions.options(self.unstated)}"] if self.unstated else []),
        ]


def is_claim_file(path: str | Path) -> bool:
    """Whether a file is a claim, by its name."""
    return Path(path).suffix in (".yaml", ".yml")


def is_foreign(path: Path) -> bool:
    """Whether a regular file is there and is no ledger."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_LEDGER)) != _LEDGER
    except (OSError, ValueError):
        return False


_LEDGER = b"SQLite format 3\0"


def states_in(paths: Sequence[Path]) -> list[tuple[Path, State]]:
    """What the files say.

    Raises:
        ValueError: one line that names the file, if one is of no known library.
    """
    return [(path, read_state(path)) for path in paths]


def check_stated(foreign: Sequence[Path], stated: Stated) -> None:
    """Checks that nothing is stated of files of other libraries where there is none.

    Raises:
        InputError: if something is.
    """
    if not foreign and dataclasses.replace(stated, conditions=frozenset()) != Stated():
        raise InputError(
            "--adjacency, --sampler, --records, --unit and --normalizer are for files of other libraries; ledgers and "
            "claims say them"
        )


def check_statements_used(stated: Stated, readings: Sequence[Read], unstated: Sequence[Unstated]) -> None:
    """Checks that whatever the user states is used, or agrees with what a file says.

    Args:
        stated: what the user states of everything that was read.
        readings: the files of other libraries.
        unstated: what ledgers and claims leave open.

    Raises:
        ValueError: one line that names what does not apply.
    """
    used = {name for _, _, reading in readings for name in reading.used}
    if stated.sampler is None and any(state.is_sampled and state.sampler is None for _, state, _ in readings):
        used |= {"records", Condition.EPOCHS}  # for the bounds with the samplers fixed and shuffled
    check_used(stated, used | {item.name for item in unstated})


def readings_of(states: Sequence[tuple[Path, State]], stated: Stated, relations: list[Named]) -> list[Read]:
    """The files under what was stated; their relations are added to the others.

    Where nobody states a neighbouring relation, it is that of the ledgers and claims, or of a file that records one.
    """
    relation = _common(states, relations)
    results = []
    for path, state in states:
        with input_errors(f"{path}: "):
            reading = read_as(state, stated, relation=relation)
        of = stated.unit or state.unit or Unit()
        _check_event(path, reading, of)
        relations.append((str(path), (reading.adjacency, of)))
        results.append((path, state, reading))
    return results


def _common(states: Sequence[tuple[Path, State]], relations: Sequence[Named]) -> Adjacency | None:
    """The neighbouring relation that files without one are composed at; None if each has its library's."""
    if relations and relations[0][1][0] is not Adjacency.SECRET:
        return relations[0][1][0]
    recorded = [state.adjacency for _, state in states if state.adjacency is not None]
    if recorded:
        return recorded[0]
    defaults = {state.default_adjacency for _, state in states}
    return Adjacency.ZERO_OUT if len(defaults) > 1 else None


def recorded_delta(states: Sequence[tuple[Path, State]]) -> float | None:
    """The δ of the files, if they all record the same."""
    named = {state.delta for _, state in states}
    return named.pop() if len(named) == 1 else None


def _check_event(path: Path, reading: Reading, unit: Unit) -> None:
    """Checks that accountants can read the numbers of an event, whatever types a file gave them."""
    try:
        unsupported(reading.event, adjacency=reading.adjacency, unit=unit)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: its event has a number out of range: {' '.join(str(error).split())[:200]}") from None


def basis_of_files(readings: Sequence[Read]) -> Basis:
    """What bounds on files rest on, each under its reading."""
    assumed = dict.fromkeys(item for _, _, reading in readings for item in reading.assumptions)
    return Basis(tuple(assumed), exact=all(reading.exact for _, _, reading in readings))
