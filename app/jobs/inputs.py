"""What a privacy cost is computed from: ledgers, claims, and files of other libraries under what the user states."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from dp_accounting import DpEvent
from pydantic_core import to_jsonable_python

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.interop import conditions
from dpassay.accounting.interop.conditions import Condition, Unstated
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import Reading, State, Stated, check_used, read_as
from dpassay.accounting.ledger.evidence import Basis, basis_of_ledger
from dpassay.accounting.ledger.ledger import Ledger, common_relation, compose_ledgers, open_ledgers, relation_of
from dpassay.accounting.registry import unsupported
from dpassay.base.errors import InputError, input_errors
from dpassay.base.number_format import format_number
from dpassay.claims.base import Claim, Plan

Read = tuple[Path, State, Reading]
"""A file of another library, what it says, and what follows under what was stated."""


class StatementWords(TypedDict, total=False):
    """What files of other libraries do not record, in words, as for `dpassay.account`."""

    adjacency: str | None
    sampler: str | None
    records: int | None
    unit: str | None
    normalizer: str | None
    conditions: Collection[str]


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
        body: dict[str, Any] = to_jsonable_python(self)
        return body

    def notes(self) -> list[str]:
        """The file in sentences."""
        stated = "" if self.stated is None else f"; it states ε = {format_number(self.stated)} itself"
        return [
            f"{self.path}: {self.what}{stated}",
            *(f"{self.path}: {item}" for item in self.remarks),
            *(f"{self.path}: assumed: {item}" for item in self.assumptions),
            *([f"{self.path}: nobody stated: {conditions.options(self.unstated)}"] if self.unstated else []),
        ]


@dataclass(frozen=True)
class Inputs:
    """Ledgers, claims and files of other libraries about one data set.

    Attributes:
        stated: what the user states of the files.
        claims, plans: claims that would run, and their plans.
        ledgers: open and verified.
        readings: the files.
        bases: what bounds rest on: the name and the basis of each claim, then of each ledger.
        adjacency, unit: of all.
    """

    stated: Stated
    claims: Sequence[Claim]
    plans: Sequence[Plan]
    ledgers: Sequence[Ledger]
    readings: Sequence[Read]
    bases: Sequence[tuple[str, Basis]]
    adjacency: Adjacency
    unit: Unit

    @property
    def charged(self) -> DpEvent:
        """The charges of the runs so far, and the plans of the claims."""
        return events.compose([*self._claimed(), *([(compose_ledgers(self.ledgers), 1)] if self.ledgers else [])])

    @property
    def whole_plan(self) -> DpEvent:
        """The same with the plan of each run in place of its charges."""
        runs = [ledger.run(name) for ledger in self.ledgers for name in ledger.runs()]
        return events.compose([*self._claimed(), *((run.plan, 1) for run in runs)])

    def _claimed(self) -> list[tuple[DpEvent, int]]:
        return [(plan.event, 1) for plan in self.plans] + [(reading.event, 1) for _, _, reading in self.readings]


@contextlib.contextmanager
def open_inputs(
    paths: Sequence[Path], stated: Stated, *, claims: Sequence[Claim] = (), anchor: Path | None = None
) -> Iterator[Inputs]:
    """Opens and verifies ledgers, and reads files of other libraries under what is stated of them.

    Raises:
        ValueError: one line, if a file is of no known kind or does not verify, adjacencies or units differ, or what is
            stated applies to nothing that was read.
    """
    foreign = [path for path in paths if is_foreign(path)]
    if not foreign and dataclasses.replace(stated, conditions=frozenset()) != Stated():
        raise InputError(
            "--adjacency, --sampler, --records, --unit and --normalizer are for files of other libraries; ledgers and "
            "claims say them"
        )
    states = [(path, read_state(path)) for path in foreign]
    with open_ledgers([path for path in paths if path not in foreign], anchor=anchor) as ledgers:
        relations = [(claim.name, (claim.adjacency, Unit.parse(claim.unit))) for claim in claims]
        relations += [(str(ledgers[0].path), relation_of(ledgers))] if ledgers else []
        readings = _readings(states, stated, relations)
        adjacency, unit = common_relation(relations)
        plans = [claim.plan() for claim in claims]
        bases = [
            *((claim.name, _basis_of(claim, plan)) for claim, plan in zip(claims, plans, strict=True)),
            *((str(ledger.path), basis_of_ledger(ledger)) for ledger in ledgers),
        ]
        _check_used(stated, readings, [item for _, basis in bases for item in basis.unstated])
        yield Inputs(stated, claims, plans, ledgers, readings, bases, adjacency, unit)


def _basis_of(claim: Claim, plan: Plan) -> Basis:
    unstated = tuple(claim.unstated())
    return Basis(tuple(claim.assumptions()), tuple(claim.estimate_reasons()), plan.exact, unstated)


def _check_used(stated: Stated, readings: Sequence[Read], unstated: Sequence[Unstated]) -> None:
    """Checks that whatever the user states is used, or agrees with what a file, a ledger or a claim says."""
    used = {name for _, _, reading in readings for name in reading.used}
    if stated.sampler is None and any(state.is_sampled and state.sampler is None for _, state, _ in readings):
        used |= {"records", Condition.EPOCHS}  # for the bounds with the samplers fixed and shuffled
    check_used(stated, used | {item.name for item in unstated})


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


def _readings(
    states: Sequence[tuple[Path, State]], stated: Stated, relations: list[tuple[str, tuple[Adjacency, Unit]]]
) -> list[Read]:
    """The files under what was stated; their relations are added to the others.

    Where nobody states a neighbouring relation, it is that of the ledgers and claims, or of a file that records one.
    """
    recorded = [state.adjacency for _, state in states if state.adjacency is not None]
    if relations and relations[0][1][0] is not Adjacency.SECRET:
        relation: Adjacency | None = relations[0][1][0]
    elif recorded:
        relation = recorded[0]
    else:  # that of each file's library, if they agree
        relation = Adjacency.ZERO_OUT if len({state.default_adjacency for _, state in states}) > 1 else None
    results = []
    for path, state in states:
        with input_errors(f"{path}: "):
            reading = read_as(state, stated, relation=relation)
        unit = stated.unit or state.unit or Unit()
        _check_event(path, reading, unit)
        relations.append((str(path), (reading.adjacency, unit)))
        results.append((path, state, reading))
    return results


def only(values: Iterable[float | None]) -> float | None:
    """The value that all have; None if they differ, or there are none."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _check_event(path: Path, reading: Reading, unit: Unit) -> None:
    """Checks that accountants can read the numbers of an event, whatever types a file gave them."""
    try:
        unsupported(reading.event, adjacency=reading.adjacency, unit=unit)
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise InputError(f"{path}: its event has a number out of range: {' '.join(str(error).split())[:200]}") from None


def basis_of_files(readings: Sequence[Reading]) -> Basis:
    """What bounds on files rest on, each under its reading."""
    assumed = dict.fromkeys(item for reading in readings for item in reading.assumptions)
    return Basis(tuple(assumed), exact=all(reading.exact for reading in readings))
