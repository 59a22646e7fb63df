"""What bounds on a run rest on besides its events: written by every generator when a run begins, read with its ledger.

A ledger is read without the report that its run may or may not have made. So assumptions, and why bounds are estimates,
are part of the run's first entry, before anything is charged. `begin_run` writes them, and `basis_of` reads them for
reports and for whoever reads the ledger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Rigor, Risk, fields_to_json
from dpassay.accounting.interop.conditions import Condition, Unstated
from dpassay.accounting.ledger.entries import Json, LedgerError, Outcome
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run

B = TypeVar("B", Bound, Risk)

ASSUMPTIONS, ESTIMATES, EXACT, UNSTATED, STATED = "assumptions", "estimates", "exact", "unstated", "stated"
"""The keys of a run's description with what its `Basis` has by these names."""

OS_ENTROPY = "os"
"""What a run records of noise from the operating system's entropy; any other noise may be known."""

NEWEST = "The ledger is the newest one of its runs; no earlier head of it is known here."
"""The assumption on a ledger without an anchor."""


@dataclass(frozen=True)
class Basis:
    """What bounds on a run rest on, besides its events. Public."""

    assumptions: tuple[str, ...] = ()  # under which the events are what the run cost, a sentence each
    estimates: tuple[str, ...] = ()  # why bounds are estimates, a sentence each; empty if they are not
    exact: bool = True  # whether the events are what the run cost in the worst case, and not more
    unstated: tuple[Unstated, ...] = ()  # those assumptions that nobody states
    # what a file or a claim says, a verdict reads, and the run does not compute, by name. With another value it is
    # another run.
    stated: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        """The part of a run's description."""
        unstated = [[item.name, item.sentence] for item in self.unstated]
        return fields_to_json(self) | {UNSTATED: unstated, STATED: dict(self.stated)}

    def joined(self, other: Basis) -> Basis:
        """Both together, without duplicates."""
        return Basis(
            tuple(dict.fromkeys((*self.assumptions, *other.assumptions))),
            tuple(dict.fromkeys((*self.estimates, *other.estimates))),
            self.exact and other.exact,
            tuple(dict.fromkeys((*self.unstated, *other.unstated))),
            {**self.stated, **other.stated},
        )

    def under(self, bound: B) -> B:
        """The bound on the run's events as one on the run."""
        return replace(
            bound,
            assumptions=(*bound.assumptions, *self.assumptions, *self.estimates),
            interval=bound.interval if self.exact else None,
            rigor=Rigor.ESTIMATE if self.estimates else bound.rigor,
        )


class RecordedRun(Protocol):
    """A run as its ledger, or an export of it, has it."""

    name: str

    @property
    def about(self) -> dict[str, Any]: ...
    def outcome(self, key: str) -> Outcome | None: ...
    def verdicts(self) -> list[dict[str, Any]]: ...


def begin_run(
    ledger: Ledger,
    name: str,
    *,
    plan: DpEvent,
    adjacency: Adjacency,
    unit: Unit,
    about: Mapping[str, Json],
    basis: Basis,
) -> Run:
    """Begins a run with what its bounds rest on, or resumes the run of that name. Every generator begins its runs here.

    The sentences that a run began with stay, since a later version may word them differently; what was stated must be
    the same. A run of an older version, which did not record them, is resumed as it is.

    Raises:
        LedgerError: if the run exists with another plan, adjacency, unit, description, or with another statement.
    """
    written = basis.to_json()
    if name in ledger.runs():
        known = ledger.run(name).about
        if STATED in known:
            _check_stated(ledger, name, known[STATED], basis.stated)
        written = {key: known[key] for key in written if key in known}
    return ledger.begin(name, plan=plan, adjacency=adjacency, unit=unit, about={**about, **written})


def _check_stated(ledger: Ledger, name: str, known: Mapping[str, Json], given: Mapping[str, Json]) -> None:
    for key in sorted({*known, *given}):
        if known.get(key) != given.get(key):
            raise LedgerError(
                f"{ledger.path}: run {name!r} began with {key} {_shown(known.get(key))}, not {_shown(given.get(key))}, "
                "which is another run; restore it, or start a new run in a new folder"
            )


def _shown(value: Json) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(_shown(item) for item in value) or "none"
    return "not stated" if value is None else str(value)


def basis_of(run: RecordedRun) -> Basis:
    """What bounds on a run rest on, as its ledger says."""
    about = run.about
    unstated = [Unstated(str(name), str(sentence)) for name, sentence in about.get(UNSTATED, ())]
    if ASSUMPTIONS not in about:
        unstated.append(Unstated(Condition.RECORDED, not_recorded(run.name)))
    assumptions = map(str, about.get(ASSUMPTIONS, (not_recorded(run.name),)))
    estimates = map(str, (*_public_doubts(run), *about.get(ESTIMATES, ())))
    return Basis(tuple(assumptions), tuple(estimates), bool(about.get(EXACT, True)), tuple(unstated))


def not_recorded(name: str) -> str:
    """The assumption on a run of an older version, or of another program."""
    return (
        f"What run {name!r} assumes is not recorded in its ledger: that its events are what it cost, and that whatever "
        "its report assumes holds, is assumed."
    )


def basis_of_runs(runs: Sequence[RecordedRun], file: str) -> Basis:
    """What bounds on all runs of a file rest on."""
    each = [basis_of(run) for run in runs]
    return Basis(
        tuple(dict.fromkeys(item for basis in each for item in basis.assumptions)),
        tuple(item for run in runs for item in run_doubts(run, file)),
        all(basis.exact for basis in each),
        tuple(item for basis in each for item in basis.unstated),
    )


def basis_of_ledger(ledger: Ledger) -> Basis:
    """What bounds on all runs of a ledger rest on; without an anchor, also that it is the newest one of its runs."""
    basis = basis_of_runs([ledger.run(name) for name in ledger.runs()], ledger.path.name)
    newest = () if ledger.anchored else (Unstated(Condition.NEWEST, NEWEST),)
    return replace(basis, unstated=(*basis.unstated, *newest))


def run_doubts(run: RecordedRun, file: str) -> list[str]:
    """Why bounds on a run in a file are estimates; empty if they are not."""
    doubts = (*_public_doubts(run), *_private_doubts(run))
    return [*map(str, run.about.get(ESTIMATES, ())), *(f"{file}: {item}" for item in doubts)]


def _public_doubts(run: RecordedRun) -> list[str]:
    """What the ledger of a run shows against its bounds, from public facts."""
    results = []
    if run.about.get("noise", OS_ENTROPY) != OS_ENTROPY:
        results.append(f"the noise of run {run.name!r} was recorded, so it protects nobody")
    if without_proof([body.get("public") or {} for body in run.verdicts()]):
        results.append(f"a report of run {run.name!r} certifies no bound")
    if not _rows_are_exact(run):
        results.append(f"the rows of run {run.name!r} were not verified to be computed each by itself")
    return results


def _private_doubts(run: RecordedRun) -> list[str]:
    """What audits of a run show against its bounds."""
    if any(verdict.get("verdict", {}).get("contradictions") for verdict in run.verdicts()):
        return [f"an audit contradicted the events of run {run.name!r}"]
    if any(map(_is_doubted, run.verdicts())):
        return [f"audits of run {run.name!r} show more than is proven, and do not hold jointly"]
    return []


def _is_doubted(body: Mapping[str, Any]) -> bool:
    """Whether a claim stayed unproven though a certified bound reaches it, which only audits can do."""
    public = body.get("public") or {}
    reached = public.get("best_upper") is not None and not public.get("shortfalls")
    return body.get("verdict", {}).get("verdict") == "UNPROVEN" and reached


def without_proof(reports: list[Mapping[str, Any]]) -> bool:
    """Whether all upper bounds of a report are estimates, or none of the last report is certified.

    Reports are the releasable parts of all reports on a run, in JSON types, oldest first. What a report states of a
    run, such as that a schema was made from private rows, stays true when a file is changed.
    """
    uppers = ([item for item in report.get("bounds") or [] if item.get("direction") == "upper"] for report in reports)
    rigors = [[str(item["rigor"]) for item in each] for each in uppers]
    last = rigors[-1] if rigors else []
    return any(each and set(each) == {"estimate"} for each in rigors) or bool(last and "certified" not in last)


def _rows_are_exact(run: RecordedRun) -> bool:
    """Whether the run recorded that its rows were verified, or is not private inference and has no rows."""
    inputs, step = run.outcome("inputs"), run.outcome("rows")
    noted = inputs.value.get("rows") if inputs is not None and isinstance(inputs.value, dict) else None
    if step is not None and isinstance(step.value, dict):
        noted = step.value
    infers = (run.about.get("claim") or {}).get("mechanism") == "private_inference"
    rows = noted or run.about.get("rows") or {"exact": not (infers or isinstance(inputs and inputs.value, dict))}
    return bool(rows["exact"])
