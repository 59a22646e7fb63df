"""Claims about a procedure that ran elsewhere, of which only its parts are known."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from dp_accounting import DpEvent
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from dpassay.accounting import events
from dpassay.accounting.adjacency import RECORD_UNITS, Adjacency, Unit
from dpassay.accounting.interop.conditions import Condition, Normalizer, Sampler, Unstated
from dpassay.accounting.interop.dp_accounting_events import declared_event
from dpassay.accounting.interop.read import read_state
from dpassay.accounting.interop.state import RepeatedEvent, SampledGaussian, State, Stated, check_used, read_as
from dpassay.accounting.ledger.entries import LedgerError
from dpassay.accounting.ledger.evidence import (
    NEWEST,
    Basis,
    basis_of_ledger,
)
from dpassay.accounting.ledger.ledger import Ledger, open_ledgers
from dpassay.accounting.registry import unsupported
from dpassay.accounting.tuning.statement import Tuning
from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import Claim, Count, ExPostClaim, Number, Plan, Public, SecretProtectionClaim
from dpassay.claims.data import DataSource, Strict
from dpassay.data.records import Record

if TYPE_CHECKING:
    from dpassay.audits.result import AuditResult

COMPLETE = "The declared parts are everything that was computed from these records."
"""The assumption of every declared claim."""


class NoData(DataSource):
    """A declared procedure read its data elsewhere."""

    source: Literal["none"] = Field(default="none", description="the data were read elsewhere")


class DeclaredPublic(Public):
    """What is public by assumption."""

    records: int | None = Field(
        default=None,
        ge=1,
        description="the number n of privacy units, at unit `user` of users; needed for a δ such as n^-1.1",
    )  # type: ignore[assignment]


class SGD(Strict):
    """Steps of DP-SGD, in the words of their configuration."""

    noise_multiplier: Number = Field(ge=0, description="standard deviation of the noise over the clipping length")
    sample_rate: Number = Field(gt=0, le=1, description="expected share of the records in a batch")
    steps: Count = Field(ge=1, description="number of noisy steps")


class TuningClaim(Strict):
    """How often a part ran while it was tuned; the number of runs is fixed, or drawn at random."""

    runs: Count | None = Field(None, ge=1, description="a fixed number of runs, all of which are charged")
    mean: Number | None = Field(
        None, gt=0, description="the mean of a random number of runs, of which only the best is released"
    )
    distribution: str | None = Field(
        None, description="of that number: geometric (default), poisson, logarithmic or truncated_negative_binomial"
    )
    shape: Number | None = Field(None, ge=0, description="of a truncated negative binomial number")

    @model_validator(mode="after")
    def _one_law(self) -> Self:
        self.stated()
        return self

    def stated(self) -> Tuning:
        """The statement, checked."""
        return Tuning(self.runs, self.mean, self.distribution, self.shape)


_LONGEST_LABEL = 100


class DeclaredPart(Strict):
    """One part of a procedure: an event, steps of DP-SGD, a file of another library, or a ledger.

    A file or a ledger is relative to the claim file.
    """

    name: str | None = Field(None, max_length=_LONGEST_LABEL, description="of the part, for the report")
    event: dict[str, Any] | None = Field(
        None, description="class_name and fields of an event of dp_accounting; events in it likewise"
    )
    dp_sgd: SGD | None = Field(None, description="steps of DP-SGD, in the words of their configuration")
    file: Path | None = Field(None, description="a file of another library: a checkpoint, JSON, or text")
    ledger: Path | None = Field(None, description="a ledger of this tool")
    count: Count = Field(1, ge=1, description="how often the part ran on the same data")
    tuning: TuningClaim | None = Field(None, description="how often the part ran to be tuned, each run like this one")
    sampler: Sampler | None = Field(None, description="how records were sampled, for dp_sgd and files")
    records: Count | None = Field(None, ge=1, description="the number of records, for sampler: fixed")
    normalizer: Normalizer | None = Field(
        None, description="whether noisy sums are divided by a public number, for dp_sgd and files"
    )
    conditions: list[Condition] = Field(
        [], description="conditions that hold, such as clipping, noise, once, epochs, event, run or newest"
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [key for key in ("event", "dp_sgd", "file", "ledger") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give one of event, dp_sgd, file and ledger, not {' and '.join(given) or 'none'}")
        if given[0] in ("event", "ledger") and (self.sampler, self.records, self.normalizer) != (None, None, None):
            raise ValueError(
                f"sampler, records and normalizer: are for dp_sgd and file; a part with {given[0]} says them"
            )
        if self.dp_sgd is not None and self.records is not None and self.sampler is not Sampler.FIXED:
            raise ValueError(f"records {self.records} does not apply: it is for sampler: fixed; leave it out")
        if self.ledger is not None and self.count != 1:
            raise ValueError("count: a ledger counts its runs itself; leave it out")
        if self.tuning is not None and self.count != 1:
            raise ValueError("count: does not go with tuning, which says how often the part ran; leave it out")
        if self.event is not None:
            declared_event(self.event)
        if not self.label.strip() or len(self.label) > _LONGEST_LABEL or not self.label.isprintable():
            raise ValueError(
                f"name: must be a printable text of 1 to {_LONGEST_LABEL} characters; without one a part is named like "
                "its file"
            )
        return self

    @model_serializer(mode="wrap")
    def _without_what_is_not_stated(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As older versions describe it, where it states no condition, so that their ledgers are resumed."""
        body: dict[str, Any] = serialize(self)
        return {key: value for key, value in body.items() if value or key not in ("normalizer", "conditions", "tuning")}

    @property
    def path(self) -> Path | None:
        """The file or the ledger that it names."""
        return self.file if self.ledger is None else self.ledger

    @property
    def label(self) -> str:
        """How a report names it."""
        if self.name is not None:
            return self.name
        if self.path is not None:
            return self.path.name
        return "DP-SGD" if self.event is None else str(self.event["class_name"])


class DeclaredParameters(Strict):
    """The parts of a procedure."""

    events: list[DeclaredPart] = Field(
        min_length=1, max_length=1000, description="the parts of the procedure; each is charged"
    )


@dataclass(frozen=True)
class ReadPart:
    """A part, and what follows from it.

    Attributes:
        label: how a report names it.
        event: what it cost, `count` times included.
        basis: what the bounds rest on; unstated is what neither a file nor the claim states.
        stated: the ε that its file states itself.
        sha256: of its file; None without one.
        hints: why it has no bound and what to state for one, sentences.
    """

    label: str
    event: DpEvent
    basis: Basis
    stated: float | None = None
    sha256: str | None = None
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Declared:
    """A procedure that ran elsewhere, as `dpassay.claims.base.GeneratorParameters`."""

    adjacency: Adjacency
    unit: Unit
    releasable: bool = True


class DeclaredClaim(Claim):
    """A claim about a procedure that ran elsewhere.

    What the parts cost together is computed from what is declared. Nothing here can check that the parts are all that
    ran, or that they ran as declared: both are assumptions of every bound.
    """

    mechanism: Literal["declared"]
    data: NoData = NoData()  # type: ignore[assignment]
    parameters: DeclaredParameters
    public: DeclaredPublic = DeclaredPublic(labels=[])
    audits: list[str] = Field(default=[], description="folders or results of dpassay audit, relative to the claim file")

    def check(self) -> None:
        if self.model != "builtin" or self.variant != "sound":
            raise ValueError("model and variant: a declared procedure has none; leave them out")
        if self.public.context_tokens is not None or self.public.labels:
            raise ValueError("public: a declared procedure has records only; leave the others out")
        if isinstance(self.guarantee, ExPostClaim | SecretProtectionClaim) or Unit.parse(self.unit).is_secret:
            raise ValueError(
                "guarantee: of a declared procedure is pure_dp, approx_dp, zcdp, gdp or rdp, and its unit is "
                f"{RECORD_UNITS}"
            )
        if self.adjacency is Adjacency.SECRET:
            raise ValueError("adjacency: of a declared procedure is add_remove, replace_one or zero_out")

    def generator(self) -> Declared:
        return Declared(self.adjacency, Unit.parse(self.unit))

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        return "A procedure that ran elsewhere, as the claim declares it"

    def plan(self) -> Plan:
        parts = self.read_parts()
        return Plan(events.compose([(part.event, 1) for part in parts]), exact=basis_of_parts(parts).exact)

    def read_parts(self, anchor: Path | None = None) -> list[ReadPart]:
        """All parts, in order.

        Args:
            anchor: as for `dpassay.accounting.ledger.ledger.Ledger.open`.

        Raises:
            InputError: one line that names the part, if a file or a ledger cannot be read, contradicts the claim, or
                is given twice.
        """
        results = []
        with ExitStack() as stack, input_errors():
            paths = [part.ledger for part in self.parameters.events if part.ledger is not None]
            opened = iter(stack.enter_context(open_ledgers(paths, anchor=anchor)))
            for number, part in enumerate(self.parameters.events):
                with input_errors(f"parameters.events.{number}: "):
                    results.append(self._of_ledger(part, next(opened)) if part.ledger else self._of_state(part))
        digests = [part.sha256 for part in results if part.sha256 is not None]
        if len(set(digests)) != len(digests):
            raise InputError(
                "parameters.events: two parts name files with the same content; if it ran twice, say count"
            )
        return results

    def _of_state(self, part: DeclaredPart) -> ReadPart:
        unit = Unit.parse(self.unit)
        state = _state_of(part, self.adjacency, unit)
        digest = None if part.file is None else _sha256(part.file)
        if not state.goes_with(unit):
            raise ValueError(f"its unit is {state.unit}, and that of the claim {self.unit}")
        given = Stated(
            adjacency=self.adjacency,
            sampler=part.sampler,
            records=part.records,
            unit=unit if state.unit is None else None,
            normalizer=part.normalizer,
            conditions=frozenset(part.conditions),
        )
        reading = read_as(state, given)
        check_used(given, reading.used)
        try:
            unsupported(reading.event, adjacency=self.adjacency, unit=unit)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"its event has a number out of range: {' '.join(str(error).split())[:200]}") from None
        assumed = [f"{part.label}: {sentence}" for sentence in reading.assumptions]
        if part.file is None:
            assumed.append(f"{part.label}: Its events are charged for {unit.charged_for}, as the claim declares.")
        repeated = RepeatedEvent(reading.event, part.count)
        event = events.compose([(repeated.event, repeated.count)])
        basis = Basis(tuple(assumed), exact=reading.exact, unstated=_of_part(part, reading.unstated))
        return _tuned(part, ReadPart(part.label, event, basis, state.stated, digest, reading.hints))

    def _of_ledger(self, part: DeclaredPart, ledger: Ledger) -> ReadPart:
        runs = [ledger.run(name) for name in ledger.runs()]
        if not runs:
            raise LedgerError("the ledger holds no run")
        for run in runs:
            if run.adjacency is not self.adjacency or not self._is_of_unit(run.unit):
                raise ValueError(
                    f"run {run.name!r} is at {run.adjacency} and unit {run.unit}, the claim at {self.adjacency} and "
                    f"unit {self.unit}"
                )
        event = events.compose([(run.event() if run.finished else run.plan, 1) for run in runs])
        basis = basis_of_ledger(ledger)
        assumed = [
            *(f"Run {run.name!r} did what its ledger says, under the assumptions of its own report." for run in runs),
            *basis.assumptions,
        ]
        if not ledger.anchored:
            assumed.append(NEWEST)
        check_used(Stated(conditions=frozenset(part.conditions)), {item.name for item in basis.unstated})
        of_part = Basis(
            tuple(f"{part.label}: {item}" for item in assumed),
            tuple(f"{part.label}: {item}" for item in basis.estimates),
            basis.exact,
            _of_part(part, [item for item in basis.unstated if item.name not in part.conditions]),
        )
        if part.tuning is not None and len(runs) != 1:
            raise ValueError("tuning: a ledger of one run can be one of the runs of a tuning, and this one holds more")
        return _tuned(part, ReadPart(part.label, event, of_part, sha256=ledger.identity))

    def _is_of_unit(self, unit: Unit) -> bool:
        """Whether events for one unit count for the claim: for its own, or for the records of its groups."""
        own = Unit.parse(self.unit)
        return unit == own or (own.is_group and unit == Unit())

    def assumptions(self) -> list[str]:
        return list(self.basis().assumptions)

    def unstated(self) -> list[Unstated]:
        return list(self.basis().unstated)

    def estimate_reasons(self) -> list[str]:
        parts = self.read_parts()
        audits = self.read_audits(events.compose([(part.event, 1) for part in parts])) if self.audits else []
        return [
            *basis_of_parts(parts).estimates,
            *(f"an audit that claim {self.name!r} names: {item}" for audit in audits for item in audit.contradictions),
        ]

    def read_audits(self, event: DpEvent) -> list[AuditResult]:
        """The audits that it names, with what they contradict of its parts' events together.

        Raises:
            InputError: one line that names the file.
        """
        from dpassay.generators.declared.results import read_audits, with_contradictions

        unit = Unit.parse(self.unit)
        results = [
            item for path in self.audits for item in read_audits(Path(path), adjacency=self.adjacency, unit=unit)
        ]
        return with_contradictions(results, event, adjacency=self.adjacency, unit=unit)

    def basis(self) -> Basis:
        return basis_of_parts(self.read_parts())

    def parameter_warnings(self) -> list[str]:
        return [
            "This procedure ran elsewhere. The verdict holds if its parts are what ran, and all that ran, and under "
            "the assumptions that the report lists."
        ]

    def load_records(self, download: bool = False) -> Sequence[Record]:
        return []

    def described(self) -> dict[str, Any]:
        body = super().described()
        del body["data"], body["model"]
        body["audits"] = [Path(audit).name for audit in self.audits]
        return body

    def reads(self, *others: Path | str | None) -> list[Path | None]:
        return super().reads(*others, *self.audits)

    def located(self, folder: Path) -> Self:
        return super().located(folder).model_copy(update={"audits": [str(folder / audit) for audit in self.audits]})


def _tuned(part: DeclaredPart, once: ReadPart) -> ReadPart:
    """A part with all its runs, if it was tuned. It may cost less, as most runs are not released."""
    if part.tuning is None:
        return once
    tuning = part.tuning.stated()
    said = f"{part.label}: Tuning: {tuning.in_words}. No run costs more than this part, and there were no others."
    basis = dataclasses.replace(once.basis, assumptions=(*once.basis.assumptions, said), exact=False)
    return dataclasses.replace(once, event=events.compose([(tuning.of(once.event), 1)]), basis=basis)


def _of_part(part: DeclaredPart, unstated: Sequence[Unstated]) -> tuple[Unstated, ...]:
    """What a part leaves open, in sentences that name it."""
    return tuple(Unstated(item.name, f"{part.label}: {item.sentence}") for item in unstated)


def basis_of_parts(parts: Sequence[ReadPart]) -> Basis:
    """What bounds on a procedure with these parts rest on; what audits of it show is no part of it."""
    return functools.reduce(Basis.joined, (part.basis for part in parts), Basis((COMPLETE,)))


def _state_of(part: DeclaredPart, adjacency: Adjacency, unit: Unit) -> State:
    """What a part says."""
    if part.file is not None:
        return read_state(part.file)
    ran: SampledGaussian | RepeatedEvent
    if part.dp_sgd is not None:
        ran = SampledGaussian(part.dp_sgd.noise_multiplier, part.dp_sgd.sample_rate, part.dp_sgd.steps)
    else:
        ran = RepeatedEvent(declared_event(part.event or {}))
    return State(
        library="declared",
        what="the claim",
        parts=(ran,),
        adjacency=adjacency,
        sampler=part.sampler,
        records=part.records,
        unit=unit,
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
