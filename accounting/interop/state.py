"""What a file of another library says about privacy, what it does not say, and the events that follow.

A file rarely says everything that a bound rests on. What it leaves open is stated by the user, and becomes an
assumption of every bound. What nobody states gets the weakest reading that is still certified, or none; where there is
no weaker reading, the condition is assumed, and listed as unstated.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import RECORD_RELATIONS, Adjacency, Unit
from dpassay.accounting.interop import conditions
from dpassay.accounting.interop.conditions import Condition, Normalizer, Sampler, Unstated
from dpassay.base import validate

MAX_STEPS = 10**7
"""The largest number of steps, or of equal releases, in a part."""


@dataclass(frozen=True, slots=True)
class SampledGaussian:
    """Steps that each release a noisy sum over a sample of the records."""

    noise_multiplier: float  # standard deviation over the largest length C of a record's contribution, at least 0
    rate: float  # expected share of the records in a step, in (0, 1]
    steps: int  # how many there were
    batch_size: int | None = None  # records of a step, if the file says so

    def __post_init__(self) -> None:
        validate.non_negative(noise_multiplier=self.noise_multiplier)
        validate.positive(sample_rate=validate.probability(sample_rate=self.rate))
        validate.integer(minimum=0, maximum=MAX_STEPS, steps=self.steps)


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """Releases that the file describes completely."""

    event: DpEvent
    count: int = 1

    def __post_init__(self) -> None:
        validate.integer(minimum=0, maximum=MAX_STEPS, count=self.count)
        if self.count * _releases(self.event) > MAX_STEPS:
            raise ValueError(f"an event may be composed at most {MAX_STEPS} times")


def _releases(event: DpEvent) -> int:
    """How often parts of a composition run, all compositions in it included."""
    match event:
        case dp_event.SelfComposedDpEvent(event=inner, count=int() as count):
            return max(1, count) * _releases(inner)
        case dp_event.ComposedDpEvent(events=several):
            return sum(map(_releases, several))
    return max([1, *map(_releases, events.children(event))])


Part: TypeAlias = SampledGaussian | RepeatedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a file says. None where it does not."""

    library: str  # which wrote it
    what: str  # its name in sentences, such as "the state of Opacus' rdp accountant"
    parts: tuple[Part, ...]  # everything that it says was released
    adjacency: Adjacency | None = None  # the neighbouring relation
    # other relations and units that its words mean, too: who states one of them does not contradict it.
    also: tuple[Adjacency | Unit, ...] = ()
    delta: float | None = None  # of the guarantee
    sampler: Sampler | None = None  # of the steps
    records: int | None = None  # the number of records n
    unit: Unit | None = None  # of the guarantee
    normalizer: Normalizer | None = None  # what a step divides its noisy sum by
    holds: frozenset[Condition] = frozenset()  # conditions that the library's own code ensures, whatever the user does
    # the neighbouring relation where neither the file nor the user says it.
    default_adjacency: Adjacency = Adjacency.ADD_REMOVE
    # what the library divides by, as far as anybody knows, where neither says it.
    default_normalizer: Normalizer = Normalizer.PUBLIC
    stated: float | None = None  # the ε that the file itself states
    remarks: tuple[str, ...] = ()  # other sentences about what the file itself states; no bound rests on them
    notes: tuple[str, ...] = ()  # sentences about what the file does not show
    exact: bool = True  # whether its parts are what ran; or else worse, so that no lower bound follows

    @property
    def is_sampled(self) -> bool:
        """Whether its events depend on how records were sampled."""
        return any(isinstance(part, SampledGaussian) and part.rate < 1 and part.steps for part in self.parts)

    @property
    def sums(self) -> bool:
        """Whether it says that steps released noisy sums."""
        return any(isinstance(part, SampledGaussian) for part in self.parts)

    def goes_with(self, unit: Unit) -> bool:
        """Whether a unit does not contradict the file: its own, a group of its records, or another that it means."""
        of_records = unit.is_group and self.unit == Unit()
        return self.unit in (None, unit) or unit in self.also or of_records

    def samplers(self) -> frozenset[Sampler]:
        """How records were sampled, where the file or its events say it."""
        return self.samplers_of_events() | ({self.sampler} if self.sampler is not None else set())

    def samplers_of_events(self) -> frozenset[Sampler]:
        """How records were sampled, where its events say it."""
        return frozenset(
            _SAMPLERS_OF_EVENTS[type(event)]
            for part in self.parts
            if isinstance(part, RepeatedEvent)
            for event in events.with_inner(part.event)
            if type(event) in _SAMPLERS_OF_EVENTS
        )


_SAMPLERS_OF_EVENTS: Mapping[type[DpEvent], Sampler] = {
    dp_event.PoissonSampledDpEvent: Sampler.POISSON,
    events.TruncatedPoissonSampledDpEvent: Sampler.POISSON,
    dp_event.SampledWithoutReplacementDpEvent: Sampler.FIXED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What the user says of a file; None, or no condition, where nothing is said."""

    adjacency: Adjacency | None = None
    sampler: Sampler | None = None
    records: int | None = None
    unit: Unit | None = None
    normalizer: Normalizer | None = None
    conditions: frozenset[Condition] = frozenset()

    @classmethod
    def of(
        cls,
        adjacency: str | None = None,
        sampler: str | None = None,
        records: int | None = None,
        unit: str | None = None,
        normalizer: str | None = None,
        conditions: Collection[str] = (),
    ) -> Stated:
        """What is said in words, such as those of options; a `ValueError` if a word is unknown."""
        if records is not None:
            validate.integer(minimum=1, records=records)
        return cls(
            adjacency=None if adjacency is None else Adjacency(validate.one_of(RECORD_RELATIONS, adjacency=adjacency)),
            sampler=None if sampler is None else Sampler(validate.one_of(tuple(Sampler), sampler=sampler)),
            records=records,
            unit=None if unit is None else Unit.parse(unit),
            normalizer=None
            if normalizer is None
            else Normalizer(validate.one_of(tuple(Normalizer), normalizer=normalizer)),
            conditions=frozenset(Condition(validate.one_of(tuple(Condition), condition=item)) for item in conditions),
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """A file under a set of assumptions."""

    event: DpEvent  # what was charged
    adjacency: Adjacency  # of the event
    sampler: Sampler | None  # of the steps; None if nothing was sampled
    assumptions: tuple[str, ...]  # sentences, for every bound on the event
    exact: bool  # whether the event is what ran, under the assumptions; or else worse, so that no lower bound follows
    # why there is no bound and what to state for one, sentences; empty if the reading has one.
    hints: tuple[str, ...] = ()
    unstated: tuple[Unstated, ...] = ()  # the assumptions that neither the file nor the user states
    # the names of the user's statements that the reading rests on, or that agree with the file.
    used: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Merged:
    """The statements of file and user together, with the sentences that follow."""

    state: State
    given: Stated
    assumptions: list[str] = field(default_factory=list)
    unstated: list[Unstated] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def of(self, name: str, default: object = None) -> object:
        """The value of the file, else the user's, else the default; a `ValueError` if both have one and they differ."""
        recorded, said = getattr(self.state, name), getattr(self.given, name)
        self.used.add(name)
        if recorded is not None and said is not None and recorded != said:
            if said not in self.state.also:
                raise ValueError(_contradicted(name, recorded, said))
            self.assumptions.append(
                f"{_STATED[name].format(said)}, as stated; {self.state.what} means it, or {recorded}, by one name."
            )
            return said
        if recorded is not None:
            return recorded
        if said is not None:
            self.assumptions.append(f"{_STATED[name].format(said)}, as stated; {self.state.what} does not record it.")
            return said
        return default

    def leave_open(self, name: str, sentence: str) -> None:
        """Assumes what nobody states."""
        self.assumptions.append(sentence)
        self.unstated.append(Unstated(name, sentence))

    def condition(self, condition: Condition, sentence: str) -> None:
        """Assumes a condition, and notes whether anybody states it."""
        if self.states(condition):
            self.assumptions.append(sentence)
        else:
            self.leave_open(condition, sentence)

    def states(self, condition: Condition) -> bool:
        """Whether the user states a condition, or the library ensures it."""
        self.used.add(condition)
        return condition in self.given.conditions or condition in self.state.holds


def _contradicted(name: str, recorded: object, said: object) -> str:
    return f"the file says {name} {recorded}, not {said}; leave {name} out, or state the same"


_STATED: Mapping[str, str] = {
    "adjacency": "The neighbouring relation is {}",
    "sampler": "Records were sampled: {}",
    "records": "There are {} records",
    "normalizer": "What noisy sums were divided by, and the sampling rate: {}",
}


def read_as(state: State, given: Stated, *, relation: Adjacency | None = None) -> Reading:
    """The events of a file under what it says and what the user says.

    Where nobody says how records were sampled, the sampler is ``unknown``. Where nobody says the neighbouring relation,
    it is `relation`, else the one at which the library's own steps have a bound; where nobody says the unit, it is one
    record.

    Args:
        state: the file.
        given: what the user states of it.
        relation: the neighbouring relation of what the file is composed with.

    Raises:
        ValueError: one line, if file and user differ, or ``fixed`` lacks a number of records.
    """
    merged = _Merged(state, given)
    adjacency = _adjacency(merged, relation)
    sampler = _sampler(merged)
    records = merged.of("records") if sampler is Sampler.FIXED and state.is_sampled else None
    assert records is None or isinstance(records, int)
    for name in ("unit", "records", "normalizer"):
        _check_recorded(merged, name)
    who = (state.unit or given.unit or Unit()).noun
    if state.unit is None:
        merged.used.add("unit")
        if given.unit is None:
            merged.leave_open("unit", _of_unit(None, state.what))
        else:
            merged.assumptions.append(_of_unit(given.unit, state.what))
    hints = (*(_normalized(merged, adjacency) if state.sums else ()), *_unbounded(merged, adjacency, sampler))
    shares = _shares(merged, sampler)
    parts: list[tuple[DpEvent, int]] = []
    first = True
    for part in state.parts:
        if isinstance(part, RepeatedEvent):
            parts.append((part.event, part.count))
        elif part.steps:
            parts += _NO_BOUND if hints else _steps(part, sampler, records, shares, first=first)
            first = False
    composed = events.compose(parts)
    if not events.counted([(composed, 1)]):
        raise ValueError(f"{state.what} records no step and no release, so it says nothing about what ran")
    if state.sums:
        merged.condition(Condition.CLIPPING, conditions.CLIPPED.format(who=who))
        merged.condition(Condition.NOISE, conditions.EXACT_NOISE)
        if shares is None or not shares.twice:
            merged.condition(Condition.ONCE, conditions.AT_MOST_ONCE.format(who=who))
    # How records were sampled, in events and in steps.
    samplers = [*sorted(state.samplers() - {sampler}), *([sampler] if sampler is not None else [])]
    said = [_of_sampler(item, state, shares, who, adjacency) for item in samplers]
    if sampler is Sampler.UNKNOWN and state.sampler is None and given.sampler is None:
        merged.leave_open("sampler", said.pop())
    merged.assumptions += said
    if sampler is Sampler.UNKNOWN and adjacency is Adjacency.ADD_REMOVE and not hints:
        merged.condition(Condition.INDEPENDENT, conditions.INDEPENDENT_BATCHES.format(who=who))
    if any(isinstance(part, RepeatedEvent) for part in state.parts):
        merged.condition(Condition.EVENT, conditions.AS_ITS_EVENT)
    for sentence in _of_parallel_parts(composed, who):
        merged.condition(Condition.DISJOINT, sentence)
    exact = sampler in (None, Sampler.POISSON, Sampler.FIXED) and state.exact and not hints
    if adjacency is Adjacency.REPLACE_ONE and not all(isinstance(event, _OF_THE_RELATION) for event, _ in parts):
        merged.assumptions.append(
            f"Noise multipliers are relative to the largest length of one {who}'s contribution; an exchange of two "
            f"{who}s moves a sum by twice that."
        )
        exact = exact and not any(
            isinstance(part, RepeatedEvent) for part in state.parts
        )  # its convention is not recorded
    if state.adjacency is None and any(isinstance(event, _BY_GUARANTEE) for event, _ in parts):
        merged.assumptions.append(f"The ε, δ or ρ of a mechanism that {state.what} states holds at {adjacency}.")
    for note in state.notes:
        merged.condition(Condition.RUN, note)
    return Reading(
        composed,
        adjacency,
        sampler,
        tuple(merged.assumptions),
        exact,
        hints,
        tuple(merged.unstated),
        frozenset(merged.used),
    )


_NO_BOUND: list[tuple[DpEvent, int]] = [(dp_event.NonPrivateDpEvent(), 1)]


def check_used(given: Stated, used: Collection[str]) -> None:
    """Checks that everything that the user states says something about what was read."""
    for name in ("sampler", "records", "normalizer"):
        if getattr(given, name) is not None and name not in used:
            raise ValueError(f"{name} {getattr(given, name)} does not apply: {_WITHOUT[name]}; leave it out")
    for condition in sorted(given.conditions):
        if condition not in used:
            raise ValueError(f"condition {condition} does not apply to what was read; leave it out")


_WITHOUT: Mapping[str, str] = {
    "sampler": "nothing of what was read depends on how records were sampled",
    "records": "the number of records matters only for the sampler fixed",
    "normalizer": "nothing of what was read is a noisy sum of a training step",
}


def _adjacency(merged: _Merged, relation: Adjacency | None) -> Adjacency:
    """The neighbouring relation."""
    result = merged.of("adjacency")
    if result is None:
        result = relation or merged.state.default_adjacency
        what, same = merged.state.what, "" if relation is None else ", so it is that of what the file is composed with"
        merged.leave_open(
            "adjacency",
            f"The neighbouring relation is {result}; {what} does not record it, and nobody stated it{same}.",
        )
    assert isinstance(result, Adjacency)
    return result


def _sampler(merged: _Merged) -> Sampler | None:
    """How the records of steps were sampled; None if nothing that depends on it is left open."""
    said, recorded = merged.given.sampler, merged.state.samplers()
    if said is not None and recorded and recorded != {said}:
        raise ValueError(_contradicted("sampler", " and ".join(sorted(recorded)), said))
    if not merged.state.is_sampled:
        merged.used |= {"sampler"} if merged.state.samplers_of_events() else set()
        return None
    result = merged.of("sampler", Sampler.UNKNOWN)
    assert isinstance(result, Sampler)
    return result


def _check_recorded(merged: _Merged, name: str) -> None:
    """Checks a statement of the user on what the file records."""
    recorded, said = getattr(merged.state, name), getattr(merged.given, name)
    if recorded is None or said is None:
        return
    if recorded != said and not (isinstance(said, Unit) and merged.state.goes_with(said)):
        raise ValueError(_contradicted(name, recorded, said))
    merged.used.add(name)


def _normalized(merged: _Merged, adjacency: Adjacency) -> tuple[str, ...]:
    """Why noisy sums have no bound at a neighbouring relation, for what they are divided by; empty if they have one.

    The scale of the noise of a divided sum is that of the divisor. Where the numbers of records of neighbours are the
    same, so is a divisor that follows from them.
    """
    said = merged.of("normalizer")
    if adjacency is not Adjacency.ADD_REMOVE:
        return ()
    result = merged.state.default_normalizer if said is None else said
    if result is Normalizer.PUBLIC:
        if said is None:
            merged.leave_open("normalizer", f"{conditions.PUBLIC_NORMALIZER}; nobody stated it.")
        return ()
    return (
        f"No bound is known at add_remove where the divisor of the noisy sum "
        f"{'follows the size of the data' if result is Normalizer.BATCH else 'is not known to be public'}, because the "
        "scale of the noise then tells neighbours apart: state the adjacency zero_out or replace_one, or, if the "
        "divisor is a public number, the normalizer public.",
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    """In how many steps of shuffled epochs a record is."""

    whole_epochs: bool  # whether each epoch ran to its end; or else a record may be in every step
    twice: bool  # whether a record may be twice in one step
    most: int  # the number of steps that a record is in, counted as often as it is
    steps: int  # the number of all steps


def _shares(merged: _Merged, sampler: Sampler | None) -> _Shares | None:
    """The shares of a record in shuffled steps; None for another sampler."""
    if sampler is not Sampler.SHUFFLED:
        return None
    steps = [part for part in merged.state.parts if isinstance(part, SampledGaussian) and part.steps]
    whole_epochs = merged.states(Condition.EPOCHS)
    twice = whole_epochs and not merged.states(Condition.ONCE)
    most = sum(
        _times_in(part, first=not index) if whole_epochs and part.rate < 1 else part.steps
        for index, part in enumerate(steps)
    )
    return _Shares(whole_epochs, twice, most, sum(part.steps for part in steps))


def _of_unit(given: Unit | None, what: str) -> str:
    """The sentence on a unit that the file does not record. The same file at another unit has the same event."""
    if given is None:
        return f"The unit is one record; {what} does not record it, and nobody stated it."
    grouped = f", and a group has {given.size}" if given.is_group else ""
    charged = f"its events are charged for {given.charged_for}{grouped}"
    return f"The unit is {given}, as stated: {charged}; {what} does not record it."


def _unbounded(merged: _Merged, adjacency: Adjacency, sampler: Sampler | None) -> tuple[str, ...]:
    """Why samples have no bound at add_remove; empty if they have one.

    Batches of a shuffled data set are those of a public number of records. One record more changes that number, and
    with it which others are together.
    """
    if adjacency is not Adjacency.ADD_REMOVE or sampler in (None, Sampler.POISSON, Sampler.FIXED):
        return ()
    how, stated = f"the sampler is {sampler}", "if batches were Poisson samples, the sampler poisson"
    if sampler is Sampler.UNKNOWN:
        if merged.states(Condition.INDEPENDENT):
            return ()
        how, stated = "it is unknown how records were sampled", f"{stated}, or the condition independent if it holds"
    return (
        f"No bound is known at add_remove where {how}, as adding a record may change which other records share a "
        f"batch: state the adjacency replace_one or zero_out, or, {stated}.",
    )


def _of_parallel_parts(event: DpEvent, who: str) -> list[str]:
    """What a parallel composition says of the data and no file shows: its cost is not that of all parts together."""
    result = list(events.with_parallel_parts(event))
    said = []
    if result:
        said.append(
            f"The parts of a parallel composition are disjoint: each {who} is in one part only, and what a part "
            f"releases depends on no {who} of another part."
        )
    if any(item.partition_is_public for item in result):
        said.append(
            f"Where a partition is said to be public, the part of each {who} is known to everyone and does not depend "
            "on its value."
        )
    return said


_BY_GUARANTEE = (events.EpsilonDeltaDpEvent, dp_event.ZCDpEvent)
"""Events that say what a mechanism satisfies, and not what it did."""

_OF_THE_RELATION = (*_BY_GUARANTEE, dp_event.NonPrivateDpEvent)
"""Events whose numbers are those of the neighbouring relation, whatever it is, and not relative to a contribution."""


def _step(part: SampledGaussian, sampler: Sampler | None, records: int | None) -> DpEvent:
    """The event of one step that has a bound."""
    if part.noise_multiplier == 0:
        return dp_event.NonPrivateDpEvent()
    item = dp_event.GaussianDpEvent(part.noise_multiplier)
    if sampler is None or part.rate >= 1:
        return item
    if sampler is Sampler.POISSON:
        return dp_event.PoissonSampledDpEvent(part.rate, item)
    if sampler is Sampler.FIXED:
        if records is None:
            raise ValueError("sampler fixed: give --records, the number of records that batches were drawn from")
        size = round(part.rate * records) if part.batch_size is None else part.batch_size
        if not 1 <= size <= records or abs(size - part.rate * records) > 1e-6 * records:
            raise ValueError(
                f"sampler fixed: a rate of {part.rate!r} of {records} records is no whole number; correct --records"
            )
        return dp_event.SampledWithoutReplacementDpEvent(records, size, item)
    return item


def _steps(
    part: SampledGaussian,
    sampler: Sampler | None,
    records: int | None,
    shares: _Shares | None,
    *,
    first: bool,
) -> list[tuple[DpEvent, int]]:
    """The events of a part's steps, with their counts.

    Over whole shuffled epochs a record is in a number of places, one an epoch. A step of less than an epoch has two of
    them at most. The squares of its shares add up to most where as many steps as possible have two.

    Proof: docs/proofs/sampling.md, Theorem 6.
    """
    event = _step(part, sampler, records)
    if shares is None or not shares.whole_epochs or part.rate >= 1 or isinstance(event, dp_event.NonPrivateDpEvent):
        return [(event, part.steps)]
    times = _times_in(part, first=first)
    if not shares.twice:
        return [(event, min(part.steps, times))]
    double, single = min(part.steps, times // 2), min(times % 2, max(0, part.steps - times // 2))
    results = [(dp_event.GaussianDpEvent(part.noise_multiplier / 2), double), (event, single)]
    return [(item, count) for item, count in results if count]


def _times_in(part: SampledGaussian, *, first: bool) -> int:
    """How often a record is in a part at most, if it is in it once in each shuffled epoch.

    Steps that begin within an epoch, as those of a second part may, touch one epoch more.
    """
    steps_of_epoch = round(1 / Fraction(part.rate))
    epoch = steps_of_epoch if 1 / steps_of_epoch == part.rate else math.floor(1 / Fraction(part.rate))
    return -(-(part.steps + (0 if first else epoch - 1)) // epoch)


def _of_sampler(sampler: Sampler, state: State, shares: _Shares | None, who: str, adjacency: Adjacency) -> str:
    steps = sum(part.steps for part in state.parts if isinstance(part, SampledGaussian))
    match sampler:
        case Sampler.POISSON:
            return f"Every {who} was in each step's batch independently, with the recorded rate, in secret."
        case Sampler.FIXED:
            size = f"; its size does not depend on the number of {who}s" if adjacency is Adjacency.ADD_REMOVE else ""
            return f"Each step's batch was drawn anew, uniformly, without replacement, in secret{size}."
        case Sampler.UNKNOWN:
            return (
                f"Which {who}s were in a step did not depend on their values; each may have been in all {steps} steps."
            )
    assert shares is not None
    chosen = f"Batches of shuffled {who}s were chosen without looking at the {who}s"
    if not shares.whole_epochs:
        return (
            f"{chosen}. That each epoch ran to its end is not stated, so each {who} counts in all {shares.steps} steps."
        )
    how = f"each {who} was in at most {shares.most} of the {shares.steps} steps"
    if shares.twice:
        how = (
            f"each {who} was at most {shares.most} times in the {shares.steps} steps, and, as it is not stated that it "
            "is in a step at most once, twice in some"
        )
    return f"{chosen}; the first step began an epoch, and each epoch ran to its end: {how}."
