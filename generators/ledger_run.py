"""The run of a claim, or of an audit, in its ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dp_accounting import DpEvent

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.ledger.entries import Json, LedgerError
from dpassay.accounting.ledger.evidence import Basis, begin_run
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import LEDGER, open_ledger, prepare, removed_if_unused
from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import PRIVATE
from dpassay.claims.base import Claim
from dpassay.claims.lints import public_warnings
from dpassay.mechanisms.evolution.journal import JournalError
from dpassay.mechanisms.models.prompts import PromptError
from dpassay.mechanisms.models.writers import WriterError
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY

if TYPE_CHECKING:
    from dpassay.generators.base import FinishedRun, RunSettings

FinishedT = TypeVar("FinishedT", bound="FinishedRun")
NOTHING_MORE = Basis()


def described(claim: Claim) -> dict[str, Json]:
    """The claim as its run begins with it.

    Paths describe a machine, addresses a network; fingerprints and the run's digest cover their content. A parameter
    that runs of earlier versions do not record is left out where it has the value of those runs, which are resumed.
    """
    left_out = {"guarantee", "audits", "data", "model", "contact", "purpose", "period"}
    body: dict[str, Any] = claim.model_dump(mode="json", exclude=left_out)
    for hidden in ("centres", "embedder", "secrets", "endpoint", "judge", "first_table"):
        body["parameters"].pop(hidden, None)
    for name, earlier in claim.newer_parameters.items():
        if body["parameters"].get(name) == earlier:
            del body["parameters"][name]
    body["public"].pop("columns", None)
    return body


def begun_parameters(folder: Path, name: str) -> dict[str, Json] | None:
    """The parameters of its claim with which a run in the ledger of a folder began, as `described`.

    None if there is no such run, or the ledger cannot be read, which is said when it is opened to go on.
    """
    if not (folder / LEDGER).is_file():
        return None
    try:
        with Ledger.open(folder / LEDGER, read_only=True, anchor=False) as ledger:
            begun = ledger.run(name).about.get("claim", {}) if name in ledger.runs() else None
    except (LedgerError, OSError):
        return None
    return None if begun is None else dict(begun.get("parameters", {}))


@contextmanager
def open_run(
    claim: Claim, ledger: Path, plan: DpEvent, settings: RunSettings, basis: Basis, about: Mapping[str, Json]
) -> Iterator[Run]:
    """The claim's run in its ledger, started or resumed, and finished after the block.

    Args:
        claim: of the run.
        ledger: the file.
        plan: what the run may charge.
        settings: of the run.
        basis: what bounds on it rest on.
        about: what a resumed run must have in common with the one that began, beside the claim.

    Raises:
        InputError: if the ledger is damaged or holds a run of that name with another claim or another `about`, or if an
            endpoint or a disk fails; the same command resumes the run.
    """
    with removed_if_unused(ledger, settings.anchor), open_ledger(ledger, settings.anchor) as opened:
        with input_errors():
            new = claim.name not in opened.runs()
            run = begin_run(
                opened,
                claim.name,
                plan=plan,
                adjacency=claim.adjacency,
                unit=Unit.parse(claim.unit),
                about={"claim": described(claim), "noise": settings.source.name, **about},
                basis=basis,
            )
        if new:  # what a resumed run is refused for is found later, and must be the only line
            for warning in public_warnings(claim):
                settings.progress.note(f"Warning: {warning}")
        with run_errors(ledger):
            yield run
        run.finish()


@contextmanager
def run_errors(ledger: Path) -> Iterator[None]:
    """Raises an `InputError` for whatever keeps a run from being made or resumed that its user can correct."""
    try:
        yield
    except (RunMismatchError, PromptError) as error:
        raise InputError(f"{ledger}: {error}") from None
    except (JournalError, WriterError, LedgerError) as error:
        raise InputError(str(error)) from None
    except OSError as error:
        with input_errors():
            raise error


def make_in_ledger(
    claim: Claim,
    output: Path,
    plan: DpEvent,
    settings: RunSettings,
    make: Callable[[Run, Path], FinishedT],
    about: Mapping[str, Json],
    basis: Basis = NOTHING_MORE,
) -> FinishedT:
    """What `make` makes of a run in the claim's ledger.

    Documents are committed before the run is finished, and written beside the ledger. Arguments and errors are those of
    `open_run`; `make` is given the run and the path of the ledger, and `basis` is joined to that of the claim.
    """
    ledger = prepare(output / PRIVATE, settings.anchor, claim.name)
    with open_run(claim, ledger, plan, settings, claim.basis().joined(basis), about) as run:
        made = make(run, ledger)
        made.documents.commit(run)
    with input_errors():
        made.documents.write(ledger.parent)
    return made


class PlannedMechanism(Protocol):
    """A mechanism whose plan depends on public parameters alone."""

    @property
    def adjacency(self) -> Adjacency: ...
    @property
    def unit(self) -> Unit: ...
    def plan(self) -> DpEvent: ...


@contextmanager
def open_audit_run(
    audited: FinishedRun,
    folder: Path,
    name: str,
    mechanism: PlannedMechanism,
    about: Mapping[str, Json],
    basis: Basis | None = None,
) -> Iterator[Run]:
    """A run that an audit of a claimed run makes, in the ledger of its own folder, finished after the block."""
    with open_ledger(folder / LEDGER, audited.settings.anchor) as opened:
        run = begin_run(
            opened,
            name,
            plan=mechanism.plan(),
            adjacency=mechanism.adjacency,
            unit=mechanism.unit,
            about={**about, "noise": OS_ENTROPY.name},
            basis=audited.basis if basis is None else basis,
        )
        yield run
        run.finish()
