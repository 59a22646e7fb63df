"""What a file of another library says about privacy, what it does not say, and the events that follow.

A file rarely says everything that a bound rests on. What it leaves open is stated by the user, and becomes an
assumption of every bound; what nobody states gets the weakest reading that is still certified, or none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import TypeAlias

from dp_accounting import DpEvent, dp_event

from cupel.accounting import events, validate
from cupel.accounting.adjacency import Adjacency, Unit

MOST_STEPS = 10**7
"""The largest number of steps, or of equal releases, in a part."""


class Sampler(StrEnum):
    """How the records of a step were chosen."""

    POISSON = "poisson"
    """Each record independently with one probability."""
    FIXED = "fixed"
    """Each step a uniform sample of a fixed size, drawn anew without replacement."""
    SHUFFLED = "shuffled"
    """Consecutive batches of a shuffled data set."""
    UNKNOWN = "unknown"
    """Nobody knows; any choice that does not depend on the values of records."""


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """Steps that each release a noisy sum over a sample of the records.

    Attributes:
        noise_multiplier: standard deviation over the largest length C of a record's contribution, at least 0.
        rate: expected share of the records in a step, in (0, 1].
        steps: how many there were.
        batch_size: records of a step, if the file says so.
    """

    noise_multiplier: float
    rate: float
    steps: int
    batch_size: int | None = None

    def __post_init__(self) -> None:
        validate.non_negative(noise_multiplier=self.noise_multiplier)
        validate.positive(sample_rate=validate.probability(sample_rate=self.rate))
        validate.integer(minimum=0, maximum=MOST_STEPS, steps=self.steps)


@dataclass(frozen=True, slots=True)
class Release:
    """Releases that the file describes completely."""

    event: DpEvent
    count: int = 1

    def __post_init__(self) -> None:
        validate.integer(minimum=0, maximum=MOST_STEPS, count=self.count)
        if self.count * _releases(self.event) > MOST_STEPS:
            raise ValueError(f"an event may be composed at most {MOST_STEPS} times")


def _releases(event: DpEvent) -> int:
    """How often parts of a composition run, all compositions in it included."""
    match event:
        case dp_event.SelfComposedDpEvent(event=inner, count=int() as count):
            return max(1, count) * _releases(inner)
        case dp_event.ComposedDpEvent(events=several):
            return sum(map(_releases, several))
    return max([1, *map(_releases, events.children(event))])


Part: TypeAlias = SampledGaussian | Release


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a file says. None where it does not.

    Attributes:
        library: which wrote it.
        what: of that library.
        parts: everything that it says was released.
        adjacency: the neighbouring relation.
        delta: of the guarantee.
        sampler: of the steps.
        records: the number of records n.
        unit: of the guarantee.
        stated: the ε that the file itself states.
        remarks: other sentences about what the file itself states; no bound rests on them.
        notes: sentences about what the file does not show.
        exact: whether its parts are what ran; or else worse, so that no lower bound follows.
    """

    library: str
    what: str
    parts: tuple[Part, ...]
    adjacency: Adjacency | None = None
    delta: float | None = None
    sampler: Sampler | None = None
    records: int | None = None
    unit: Unit | None = None
    stated: float | None = None
    remarks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    exact: bool = True

    @property
    def is_sampled(self) -> bool:
        """Whether its events depend on how records were sampled."""
        return any(isinstance(part, SampledGaussian) and part.rate < 1 and part.steps for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the user says of a file; None where nothing is said."""

    adjacency: Adjacency | None = None
    sampler: Sampler | None = None
    records: int | None = None
    delta: float | None = None
    unit: Unit | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A file under a set of assumptions.

    Attributes:
        event: what was charged.
        adjacency: of the event.
        sampler: of the steps; None if nothing was sampled.
        assumptions: sentences, for every bound on the event.
        exact: whether the event is what ran, under the assumptions; or else worse, so that no lower bound follows.
        hints: why there is no bound and what to state for one, sentences; empty if the sampler has one.
    """

    event: DpEvent
    adjacency: Adjacency
    sampler: Sampler | None
    assumptions: tuple[str, ...]
    exact: bool
    hints: tuple[str, ...] = ()


@dataclass(slots=True)
class _Merged:
    """The statements of file and user together, with the sentences that follow."""

    state: State
    given: Stated
    assumptions: list[str] = field(default_factory=list)

    def of(self, name: str, default: object = None) -> object:
        """The value of the file, else the user's, else the default.

        Raises:
            ValueError: if both have one and they differ.
        """
        recorded, said = getattr(self.state, name), getattr(self.given, name)
        if recorded is not None and said is not None and recorded != said:
            raise ValueError(f"the file says {name} {recorded}, not {said}; leave --{name} out, or give the same")
        if recorded is not None:
            return recorded
        if said is not None:
            self.assumptions.append(f"{_STATED[name].format(said)}, as stated; {self.state.what} does not record it.")
            return said
        return default


_STATED: Mapping[str, str] = {
    "adjacency": "The neighbouring relation is {}",
    "sampler": "Records were sampled: {}",
    "records": "There are {} records",
}


def read_as(state: State, given: Stated) -> Reading:
    """The events of a file under what it says and what the user says.

    Where nobody says how records were sampled, the sampler is ``unknown``; where nobody says the neighbouring relation,
    it is add_remove, the one that libraries of DP-SGD assume; where nobody says the unit, it is one record.

    Raises:
        ValueError: one line, if file and user differ, or ``fixed`` lacks a number of records.
    """
    merged = _Merged(state, given)
    adjacency = merged.of("adjacency")
    if adjacency is None:
        adjacency = Adjacency.ADD_REMOVE
        merged.assumptions.append(
            f"The neighbouring relation is add_remove; {state.what} does not record it, and nobody stated it."
        )
    assert isinstance(adjacency, Adjacency)
    sampler = merged.of("sampler", Sampler.UNKNOWN) if state.is_sampled else None
    records = merged.of("records") if sampler is Sampler.FIXED else None
    assert sampler is None or isinstance(sampler, Sampler)
    assert records is None or isinstance(records, int)
    parts = []
    for part in state.parts:
        if isinstance(part, Release):
            parts.append((part.event, part.count))
        elif part.steps:
            times = _times_in(part, first=not parts) if sampler is Sampler.SHUFFLED else part.steps
            parts.append((_step(part, adjacency, sampler, records), times))
    composed = events.compose(parts)
    if not events.counted([(composed, 1)]):
        raise ValueError(f"{state.what} records no step and no release, so it says nothing about what ran")
    if state.unit is None:
        merged.assumptions.append(_of_unit(given.unit, state.what))
    who = "user" if (state.unit or given.unit or Unit()).kind == "user" else "record"
    if any(isinstance(part, SampledGaussian) for part in state.parts):
        merged.assumptions += _of_steps(sampler, who)
    if any(isinstance(part, Release) for part in state.parts):
        merged.assumptions.append(_AS_ITS_EVENT)
    exact = sampler in (None, Sampler.POISSON) or (sampler is Sampler.FIXED and adjacency is not Adjacency.ADD_REMOVE)
    exact = exact and state.exact
    if adjacency is Adjacency.REPLACE_ONE and not all(isinstance(event, _OF_THE_RELATION) for event, _ in parts):
        merged.assumptions.append(
            f"Noise multipliers are relative to the largest length of one {who}'s contribution; an exchange of two "
            f"{who}s moves a sum by twice that."
        )
        exact = exact and not any(isinstance(part, Release) for part in state.parts)  # its convention is not recorded
    if state.adjacency is None and any(isinstance(event, _BY_GUARANTEE) for event, _ in parts):
        merged.assumptions.append(f"The ε, δ or ρ of a mechanism that {state.what} states holds at {adjacency}.")
    return Reading(
        composed,
        adjacency,
        sampler,
        (*merged.assumptions, *state.notes),
        exact,
        _hints(adjacency, sampler),
    )


def _of_unit(given: Unit | None, what: str) -> str:
    """The sentence on a unit that the file does not record. The same file at another unit has the same event."""
    if given is None:
        return f"The unit is one record; {what} does not record it, and nobody stated it."
    if given.kind == "group":
        return (
            f"The unit is {given}, as stated: its events are charged for one record, and a group has {given.size}; "
            f"{what} does not record it."
        )
    whose = "all records of a user together" if given.kind == "user" else "one record"
    return f"The unit is {given}, as stated: its events are charged for {whose}; {what} does not record it."


def _hints(adjacency: Adjacency, sampler: Sampler | None) -> tuple[str, ...]:
    if adjacency is not Adjacency.ADD_REMOVE or sampler in (None, Sampler.POISSON):
        return ()
    how = "it is unknown how records were sampled" if sampler is Sampler.UNKNOWN else f"the sampler is {sampler}"
    return (
        f"No bound is known at add_remove where {how}, as adding a record changes which other records share a batch: "
        "state the adjacency replace_one or zero_out, or, if batches were Poisson samples, the sampler poisson.",
    )


_AS_ITS_EVENT = (
    "What was released is what its event says and nothing else: no unit changes it by more than the noise is relative "
    "to, and the noise was exact, fresh and known to nobody."
)


_BY_GUARANTEE = (events.EpsilonDeltaDpEvent, dp_event.ZCDpEvent)
"""Events that say what a mechanism satisfies, and not what it did."""

_OF_THE_RELATION = (*_BY_GUARANTEE, dp_event.NonPrivateDpEvent)
"""Events whose numbers are those of the neighbouring relation, whatever it is, and not relative to a contribution."""


def _step(part: SampledGaussian, adjacency: Adjacency, sampler: Sampler | None, records: int | None) -> DpEvent:
    """The event of one step.

    Batches of a fixed size or of a shuffled data set are those of a public number of records. One record more changes
    that number, and with it which others are together: no bound is known then.
    """
    if part.noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    one = dp_event.GaussianDpEvent(part.noise_multiplier)
    if sampler is None or part.rate >= 1:
        return one
    if sampler is Sampler.POISSON:
        return dp_event.PoissonSampledDpEvent(part.rate, one)
    if adjacency is Adjacency.ADD_REMOVE:
        return dp_event.NonPrivateDpEvent()
    if sampler is Sampler.FIXED:
        if records is None:
            raise ValueError("sampler fixed: give --records, the number of records that batches were drawn from")
        size = round(part.rate * records) if part.batch_size is None else part.batch_size
        if not 1 <= size <= records or abs(size - part.rate * records) > 1e-6 * records:
            raise ValueError(
                f"sampler fixed: a rate of {part.rate!r} of {records} records is no whole number; correct --records"
            )
        return dp_event.SampledWithoutReplacementDpEvent(records, size, one)
    return one


def _times_in(part: SampledGaussian, *, first: bool) -> int:
    """How many steps a record is in at most, if it is in one of each shuffled epoch.

    Steps that begin within an epoch, as those of a second part may, touch one epoch more.
    """
    whole = round(1 / Fraction(part.rate))
    epoch = whole if 1 / whole == part.rate else math.floor(1 / Fraction(part.rate))
    return min(part.steps, -(-(part.steps + (0 if first else epoch - 1)) // epoch))


def _of_steps(sampler: Sampler | None, who: str) -> list[str]:
    found = [
        f"Each step clipped each {who}'s contribution by itself to the length that the noise multiplier refers to, and "
        "released nothing but the noisy sum.",
        "The noise was drawn from an exact Gaussian with fresh randomness that nobody knows.",
    ]
    match sampler:
        case Sampler.POISSON:
            found.append(f"Every {who} was in each step's batch independently, with the recorded rate, in secret.")
        case Sampler.FIXED:
            found.append("Each step's batch was drawn anew, uniformly, without replacement, in secret.")
        case Sampler.SHUFFLED:
            found.append(
                f"Every {who} was in one batch of each epoch at most, chosen without looking at the records, and the "
                "first step began an epoch."
            )
        case Sampler.UNKNOWN:
            found.append(
                f"Which {who}s were in a step did not depend on their values; each may have been in all steps."
            )
    return found
