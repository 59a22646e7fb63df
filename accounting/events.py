"""Privacy events: what ran, independent of how it is counted.

`dp_accounting.DpEvent` and its subclasses are used if one fits. This module adds the missing ones, and the codec
between events and JSON. Rules: an event documents the mechanism completely; a field is never removed and never changes
its meaning; an accountant refuses what it does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs
import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.base import validate


def _positive(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    validate.positive(**{attribute.name: value})


def _non_negative(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    validate.non_negative(**{attribute.name: value})


def _probability(_: object, attribute: attrs.Attribute[float], value: float) -> None:
    validate.probability(**{attribute.name: value})


def _floats(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


@attrs.frozen
class _Selection(DpEvent):  # type: ignore[misc]
    eta: float = attrs.field(validator=_positive)
    rounding: float = attrs.field(default=0.0, validator=_non_negative)

    @property
    def range(self) -> float:
        """The bounded range of the law that was sampled, rounding included."""
        return self.eta + 4 * self.rounding


@attrs.frozen
class BoundedRangeSelectionDpEvent(_Selection):
    """One selection from a finite set that is `eta`-bounded-range (Durfee and Rogers 2019).

    For every pair of neighbours there is a t with log P(y)/Q(y) in [t − eta, t] for every outcome y, at the adjacency
    of the ledger that holds the event. Softmax of scores at temperature τ qualifies with eta = range/τ, where range is
    the largest max_y Δ_y − min_y Δ_y of the scores between neighbours. `rounding` bounds |log p̃(y)/p(y)| between the
    law that was sampled and the exact softmax. A log-ratio of two sampled laws then moves by up to 2·rounding, up at
    one outcome and down at another, so the sampled law is (eta + 4·rounding)-bounded-range.
    """


@attrs.frozen
class EpsilonDeltaDpEvent(DpEvent):  # type: ignore[misc]
    """Any mechanism that is (`epsilon`, `delta`)-DP, of which nothing more is known.

    At the adjacency of the ledger that holds the event.
    """

    epsilon: float = attrs.field(validator=_non_negative)
    delta: float = attrs.field(default=0.0, validator=_probability)


@attrs.frozen
class PermuteAndFlipDpEvent(DpEvent):  # type: ignore[misc]
    """Permute-and-flip (McKenna and Sheldon 2020): the best of scores to which exponential noise is added.

    `epsilon` is twice the rate of the noise times the most that a score moves, at the adjacency of the ledger that
    holds the event.
    """

    epsilon: float = attrs.field(validator=_non_negative)


@attrs.frozen
class DiscreteGaussianDpEvent(DpEvent):  # type: ignore[misc]
    """Whole numbers with noise on the integers, p(z) ∝ e^{−z²/(2σ²)} (Canonne, Kamath and Steinke 2020).

    `sensitivity` is the L2 norm of what one unit contributes, `dimension` the number of coordinates, None if unknown.
    """

    sigma: float = attrs.field(validator=_non_negative)
    sensitivity: float = attrs.field(default=1.0, validator=_non_negative)
    dimension: int | None = attrs.field(default=None)

    def __attrs_post_init__(self) -> None:
        if self.dimension is not None:
            validate.integer(minimum=1, dimension=self.dimension)


@attrs.frozen
class ExPostSelectionDpEvent(_Selection):
    """A bounded-range selection whose realised, ex-post cost is recorded in the ledger.

    A priori it is an `eta`-bounded-range selection, as above. The realised cost (u⁻, u⁺) is part of the ledger's entry,
    never of the event.
    """


@attrs.frozen
class ParallelDpEvent(DpEvent):  # type: ignore[misc]
    """Mechanisms that run on disjoint parts of the data, one event per part.

    Under add_remove one part changes, so the cost is the largest of the parts. Under replace_one the new unit may fall
    into another part, so the two worst parts compose, unless `partition_is_public`: the part of each unit is public and
    does not depend on its value. Each unit stays in one part.
    """

    events: tuple[DpEvent, ...] = attrs.field(converter=tuple)
    partition_is_public: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.events:
            raise ValueError("a parallel composition needs at least one part")


@attrs.frozen
class SecretReleaseDpEvent(DpEvent):  # type: ignore[misc]
    """One noisy release of a sum in which a secret occurs k times with probability `weights[k]`.

    Each occurrence adds a vector of length at most 1 to the sum, or changes a count by at most 1. Gaussian noise of
    standard deviation `noise_multiplier` is added to every coordinate. Occurrences are drawn independently in each
    release. With probability `remainder` the secret occurs more often; the release is then assumed to reveal it. The
    law is `weights` and `remainder` over their sum, which is 1 up to rounding. For several secrets, the law is
    stochastically larger than the counts of each. The places where secrets occur are public.
    """

    noise_multiplier: float = attrs.field(validator=_non_negative)
    weights: tuple[float, ...] = attrs.field(converter=_floats)
    remainder: float = attrs.field(default=0.0, converter=float)

    def __attrs_post_init__(self) -> None:
        for weight in self.weights:
            validate.probability(weights=weight)
        validate.probability(remainder=self.remainder)
        total = math.fsum((*self.weights, self.remainder))
        if not abs(total - 1) <= 1e-9:
            raise ValueError(f"weights and remainder must sum to 1, not {total!r}")


@attrs.frozen
class SecretGroupsReleaseDpEvent(DpEvent):  # type: ignore[misc]
    """One noisy release seen by several groups of secrets, for instance one group per budget.

    `groups[g]` is the same release as seen by the secrets of group g: its law of occurrences covers each of them. A
    group whose secrets are of several kinds is itself a release for groups, one per kind; kinds are not divided
    further. A secret is in one group and of one kind, in the same order for the whole run. The cost of the release is
    its largest cost for any of them.
    """

    groups: tuple[SecretReleaseDpEvent | SecretGroupsReleaseDpEvent, ...] = attrs.field(converter=tuple)

    def __attrs_post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a release for groups of secrets needs at least one group")
        for group in self.groups:
            kinds = group.groups if isinstance(group, SecretGroupsReleaseDpEvent) else (group,)
            if not all(isinstance(kind, SecretReleaseDpEvent) for kind in kinds):
                raise ValueError("each group of secrets, or each kind in it, must be a SecretReleaseDpEvent")


@attrs.frozen
class RandomAllocationDpEvent(DpEvent):  # type: ignore[misc]
    """`num_steps` runs of a mechanism, of which each unit takes part in exactly `num_selected`, chosen uniformly.

    The choices of different units are independent, as are those of different epochs: an epoch is one event. Batches
    therefore have random sizes. Shuffled batches of a fixed size are another mechanism (`ShuffledBatchesDpEvent`),
    since records then displace each other.
    """

    event: DpEvent
    num_selected: int
    num_steps: int

    def __attrs_post_init__(self) -> None:
        validate.integer(minimum=1, num_steps=self.num_steps)
        validate.integer(num_selected=self.num_selected)
        if self.num_selected > self.num_steps:
            raise ValueError(f"num_selected must be at most num_steps ({self.num_steps}), not {self.num_selected}")


@attrs.frozen
class ShuffledBatchesDpEvent(DpEvent):  # type: ignore[misc]
    """One epoch: units are shuffled and cut into `num_batches` batches, and a mechanism runs on each.

    The shuffle is uniform, anew for each epoch, and does not depend on values, nor do the sizes of batches, which are
    public. The epoch runs to its end.
    """

    event: DpEvent
    num_batches: int

    def __attrs_post_init__(self) -> None:
        validate.integer(minimum=1, num_batches=self.num_batches)


@attrs.frozen
class TruncatedPoissonSampledDpEvent(DpEvent):  # type: ignore[misc]
    """A mechanism on a Poisson sample of `source_dataset_size` units, truncated to `max_batch_size`.

    Every unit is drawn with probability `sampling_probability`, independently. If more than `max_batch_size` units are
    drawn, that many are kept, chosen uniformly at random. The size includes the unit in question.
    """

    sampling_probability: float
    source_dataset_size: int
    max_batch_size: int
    event: DpEvent

    def __attrs_post_init__(self) -> None:
        validate.probability(sampling_probability=self.sampling_probability)
        validate.integer(minimum=1, source_dataset_size=self.source_dataset_size)
        validate.integer(minimum=1, max_batch_size=self.max_batch_size)


_INFINITE = "inf"
"""How JSON, which has no infinite number, says one: the shape of a Poisson number of runs."""


def is_native(event: DpEvent) -> bool:
    """Whether `event` and all it contains are dp_accounting's own classes, which its accountants can read."""
    return all(type(part).__module__.startswith("dp_accounting") for part in with_inner(event))


def children(event: DpEvent) -> tuple[DpEvent, ...]:
    """The events directly inside `event`."""
    if isinstance(event, dp_event.ComposedDpEvent | ParallelDpEvent):
        return tuple(event.events)
    inner = getattr(event, "event", None)
    return (inner,) if isinstance(inner, DpEvent) else ()


def with_inner(event: DpEvent) -> Iterator[DpEvent]:
    """`event` and all it contains."""
    yield event
    for child in children(event):
        yield from with_inner(child)


def with_parallel_parts(event: DpEvent) -> Iterator[ParallelDpEvent]:
    """The parallel compositions of several parts in an event."""
    return (part for part in with_inner(event) if isinstance(part, ParallelDpEvent) and len(part.events) > 1)


def replaced(event: DpEvent, change: Callable[[DpEvent], DpEvent]) -> DpEvent:
    """`event` with every part of its compositions changed."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        return dp_event.SelfComposedDpEvent(replaced(event.event, change), event.count)
    if isinstance(event, dp_event.ComposedDpEvent):
        return dp_event.ComposedDpEvent([replaced(part, change) for part in event.events])
    if isinstance(event, ParallelDpEvent):
        return attrs.evolve(event, events=[replaced(part, change) for part in event.events])
    return change(event)


def tree_height(event: dp_event.SingleEpochTreeAggregationDpEvent) -> int:
    """In how many noisy nodes a step of a tree is at most: ⌊log₂ n⌋ + 1 for the largest tree of n steps, 0 without one.

    A node is the sum of 2^i consecutive steps that begins at a multiple of 2^i, once all of them are over.

    Raises:
        ValueError: if `step_counts` is neither a whole number of at least 0 nor a list of at least one such number.
    """
    counts = event.step_counts if isinstance(event.step_counts, list | tuple) else [event.step_counts]
    if not counts:
        raise ValueError("step_counts must be a whole number or a list of at least one, not an empty list")
    return max(int(validate.integer(step_counts=count)) for count in counts).bit_length()


_SAMPLED = dp_event.GaussianDpEvent(2.0)

EXAMPLES: dict[str, DpEvent] = {
    "Gaussian noise": dp_event.GaussianDpEvent(6.0),
    "Laplace noise": dp_event.LaplaceDpEvent(6.0),
    "discrete Laplace noise": dp_event.DiscreteLaplaceDpEvent(0.3, 1),
    "randomised response": dp_event.RandomizedResponseDpEvent(0.6, 3),
    "zCDP": dp_event.ZCDpEvent(0.1),
    "approximate zCDP": dp_event.ZCDpEvent(0.1, 0.2),
    "pure ε": EpsilonDeltaDpEvent(0.4),
    "(ε, δ)": EpsilonDeltaDpEvent(0.4, 1e-7),
    "bounded-range selection": BoundedRangeSelectionDpEvent(0.4),
    "ex-post selection": ExPostSelectionDpEvent(0.4),
    "Gaussian on a Poisson sample": dp_event.PoissonSampledDpEvent(0.05, _SAMPLED),
    "Laplace on a Poisson sample": dp_event.PoissonSampledDpEvent(0.05, dp_event.LaplaceDpEvent(2.0)),
    "Gaussian on a Poisson sample that is cut": TruncatedPoissonSampledDpEvent(0.05, 1000, 80, _SAMPLED),
    "Gaussian in some of the steps, at random": RandomAllocationDpEvent(_SAMPLED, 2, 20),
    "Gaussian on each of shuffled batches": ShuffledBatchesDpEvent(_SAMPLED, 20),
    "Gaussian on a sample without replacement": dp_event.SampledWithoutReplacementDpEvent(100, 10, _SAMPLED),
    "Gaussian on a sample with replacement": dp_event.SampledWithReplacementDpEvent(100, 10, _SAMPLED),
    "discrete Gaussian noise on a number": DiscreteGaussianDpEvent(6.0, 1.0, 1),
    "discrete Gaussian noise on a vector": DiscreteGaussianDpEvent(6.0, 1.5),
    "permute-and-flip": PermuteAndFlipDpEvent(0.4),
    "tree of Gaussian sums": dp_event.SingleEpochTreeAggregationDpEvent(6.0, [8, 5]),
    "mixture of Gaussians": dp_event.MixtureOfGaussiansDpEvent(4.0, (0.0, 1.0, 2.0), (0.5, 0.3, 0.2)),
    "sum in which a secret may occur": SecretReleaseDpEvent(2.0, (0.5, 0.3, 0.2)),
    "sum in which secrets of several budgets may occur": SecretGroupsReleaseDpEvent(
        (SecretReleaseDpEvent(2.0, (0.5, 0.3, 0.2)), SecretReleaseDpEvent(2.0, (0.9, 0.1)))
    ),
    "best of a random number of runs": dp_event.RepeatAndSelectDpEvent(dp_event.LaplaceDpEvent(6.0), 10.0, 1.0),
    "composition": dp_event.ComposedDpEvent(
        [dp_event.LaplaceDpEvent(6.0), dp_event.SelfComposedDpEvent(dp_event.LaplaceDpEvent(9.0), 2)]
    ),
    "disjoint parts": ParallelDpEvent([dp_event.LaplaceDpEvent(6.0)] * 3),
    "disjoint parts, partition public": ParallelDpEvent([dp_event.LaplaceDpEvent(6.0)] * 3, partition_is_public=True),
    "nothing": dp_event.NoOpDpEvent(),
    "release without protection": dp_event.NonPrivateDpEvent(),
}
"""One event of each kind that a ledger can hold. A new kind is a class and a row; no row is ever removed."""


EVENTS: dict[str, type[DpEvent]] = {
    type(event).__name__: type(event) for example in EXAMPLES.values() for event in with_inner(example)
}


def of_library(name: str, fields: Mapping[str, Any]) -> DpEvent | None:
    """The event of this package for one of dp_accounting that has another class here; None for all others.

    Raises:
        ValueError: if a field is invalid.
    """
    if name == "TruncatedSubsampledGaussianDpEvent" and set(fields) == set(TRUNCATED):
        size, rate, most, multiplier = (fields[key] for key in TRUNCATED)
        return TruncatedPoissonSampledDpEvent(rate, size, most, dp_event.GaussianDpEvent(multiplier))
    if name == "ExponentialMechanismDpEvent" and set(fields) == {"epsilon"}:
        epsilon = validate.non_negative(epsilon=fields["epsilon"])
        return BoundedRangeSelectionDpEvent(epsilon) if epsilon else dp_event.NoOpDpEvent()
    return None


TRUNCATED = ("dataset_size", "sampling_probability", "truncated_batch_size", "noise_multiplier")
"""The fields of dp_accounting's TruncatedSubsampledGaussianDpEvent, in its order."""


def own(event: DpEvent) -> DpEvent:
    """An event in this package's form.

    Numbers of NumPy become Python's, as events are told apart by their text, which NumPy shortens. An event of
    dp_accounting becomes that of this package for the same mechanism, where it has one.
    """
    kind = type(event)
    if attrs.has(kind):
        fields = {field.name: getattr(event, field.name) for field in attrs.fields(kind)}
        changes = {name: new for name, value in fields.items() if (new := _plain(value)) is not value}
        event = attrs.evolve(event, **changes) if changes else event
    if not kind.__module__.startswith("dp_accounting") or EVENTS.get(kind.__name__) is kind:
        return event
    fields = {field.name: getattr(event, field.name) for field in attrs.fields(kind)} if attrs.has(kind) else {}
    known = of_library(kind.__name__, fields)
    if known is None and kind.__name__ in EVENTS:  # a class of a later version
        known = build(kind.__name__, fields)
    return event if known is None else known


def _plain(value: Any) -> Any:
    """A field of an event without NumPy's types; the same object if there is nothing to change."""
    if isinstance(value, DpEvent):
        return own(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        known: dict[int, Any] = {}  # parts are often the same object
        items = [known[id(item)] if id(item) in known else known.setdefault(id(item), _plain(item)) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    return value


def compose(parts: Iterable[tuple[DpEvent, int]]) -> DpEvent:
    """The adaptive composition of events with counts, in a canonical form: flat, equal events merged, no-ops dropped.

    Two runs that charged the same mechanisms equally often have equal compositions.
    """
    merged = [
        event if count == 1 else dp_event.SelfComposedDpEvent(event, count)
        for _, (event, count) in sorted(counted(parts).items())
    ]
    if not merged:
        return dp_event.NoOpDpEvent()
    return merged[0] if len(merged) == 1 else dp_event.ComposedDpEvent(merged)


def counted(parts: Iterable[tuple[DpEvent, int]]) -> dict[str, tuple[DpEvent, int]]:
    """The events of a composition with their counts: each distinct event and how often it runs, by its text."""
    counts: dict[str, tuple[DpEvent, int]] = {}
    for event, count in parts:
        _collect(event, validate.integer(count=count), counts)
    return counts


def _collect(event: DpEvent, count: int, counts: dict[str, tuple[DpEvent, int]]) -> None:
    """Adds `count` copies of `event` to `counts`, keyed by `repr` because dp_accounting's lists do not hash."""
    event = own(event)
    if count == 0 or isinstance(event, dp_event.NoOpDpEvent):
        return
    if isinstance(event, dp_event.SelfComposedDpEvent):
        _collect(event.event, count * event.count, counts)
    elif isinstance(event, dp_event.ComposedDpEvent):
        for part in event.events:
            _collect(part, count, counts)
    else:
        if isinstance(event, ParallelDpEvent):
            parts = {id(part): part for part in event.events}  # parts are often the same object
            canonical = {name: compose([(part, 1)]) for name, part in parts.items()}
            texts = {name: repr(part) for name, part in canonical.items()}
            order = sorted((id(part) for part in event.events), key=texts.__getitem__)
            event = attrs.evolve(event, events=[canonical[name] for name in order])
        key = repr(event)
        counts[key] = (event, counts.get(key, (event, 0))[1] + count)


def known_names() -> frozenset[str]:
    """The names of all classes of events."""
    return frozenset(EVENTS)


def build(name: str, fields: Mapping[str, Any]) -> DpEvent:
    """The event of a known name with these fields; a `ValueError` if they are wrong."""
    try:
        return EVENTS[name](**fields)
    except TypeError as error:
        raise ValueError(f"event {name} has the wrong fields: {error}") from None


def to_json(event: DpEvent) -> dict[str, Any]:
    """`event` as plain JSON types, ``{"type": class name, field: value, …}``, if the ledger can hold it."""
    event = own(event)
    name = type(event).__name__
    if EVENTS.get(name) is not type(event):
        raise ValueError(f"the ledger cannot hold a {name}; it knows {', '.join(sorted(EVENTS))}")
    return {"type": name, **{field.name: _encode(getattr(event, field.name)) for field in attrs.fields(type(event))}}


def from_json(data: Mapping[str, Any]) -> DpEvent:
    """The inverse of `to_json`; a `ValueError` if the type is unknown or parameters are invalid."""
    name = str(data.get("type"))
    if name not in EVENTS:
        raise ValueError(f"unknown event type {data.get('type')!r}; known are {', '.join(sorted(EVENTS))}")
    return build(name, {key: _decode(value) for key, value in data.items() if key != "type"})


def _encode(value: Any) -> Any:
    if isinstance(value, DpEvent):
        return to_json(value)
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return _INFINITE if isinstance(value, float) and value == math.inf else value


def _decode(value: Any) -> Any:
    if isinstance(value, Mapping):
        return from_json(value)
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return math.inf if value == _INFINITE else value
