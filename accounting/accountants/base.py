"""Base class of all accountants.

An accountant turns an event into a *cost* in its own parameter. This module recurses through composed and parallel
events. For other events it looks up a handler by event type; an event without a handler is refused with a reason.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Interval, Rigor
from dpassay.base import validate
from dpassay.base.errors import DpassayError

C = TypeVar("C")


TUNED = (
    "Of all runs of a tuning only the best is released, chosen by a score that is a function of one run's output and "
    "of public data, or is part of what is charged for a run. The number of runs was drawn before them from the stated "
    "law, independently of the data, and nothing about the other runs, nor how many there were, is released."
)
"""What every bound on the best of a random number of runs assumes."""


SHUFFLED = (
    "Records are shuffled anew for each epoch, whatever their values are, and cut into batches of public sizes. Each "
    "epoch runs to its end."
)
"""What every bound on shuffled batches assumes."""


ALLOCATED = (
    "The steps of each record are chosen uniformly and in secret, anew in each epoch, independently of all other "
    "records and of values."
)
"""What every bound on random allocation assumes."""


_OF_A_SIZE = (
    dp_event.SampledWithoutReplacementDpEvent,
    dp_event.SampledWithReplacementDpEvent,
    events.TruncatedPoissonSampledDpEvent,
)
"""Samples from a stated number of records, which a random step does not have."""


class Unsupported(DpassayError):
    """An accountant has no bound for an event at this adjacency and unit; the message is the reason."""


class Accountant(ABC, Generic[C]):
    """An upper bound on the privacy loss of a composition of events.

    Accountants are immutable: `compose` returns a new one. All events are taken at the accountant's adjacency and unit.
    A noise multiplier or sensitivity refers to the contribution of one unit, so exchanging a unit moves a sum by twice
    as much as adding one. An η, a ρ or a cost refers to the adjacency itself.
    """

    name: ClassVar[str]
    handlers: ClassVar[Mapping[type[DpEvent], Callable[[Any, Any], Any]]]
    """Maps an event type to a function of (accountant, event) that returns the cost or raises `Unsupported`."""
    converts_groups: ClassVar[bool] = False
    """Whether the accountant has a bound for groups of records, given events for one record."""

    def __init__(self, adjacency: Adjacency | str, unit: Unit | str | None = None) -> None:
        if adjacency not in tuple(Adjacency):
            raise ValueError(f"adjacency must be one of {', '.join(Adjacency)}, not {str(adjacency)!r}")
        self.adjacency = Adjacency(adjacency)
        self.unit = Unit.of_text(unit)
        self.event: DpEvent = dp_event.NoOpDpEvent()
        self._total: C | None = None
        self._last_cost: tuple[DpEvent, C] | None = None

    def supports(self, event: DpEvent) -> str | None:
        """None if the accountant has a bound for `event`, else the reason why it has none."""
        if self.adjacency is Adjacency.SECRET or self.unit.is_secret:
            return f"{self.name} has no bound for secrets"
        if self.unit.is_group and not self.converts_groups:
            return f"{self.name} has no bound for groups; use lattice, basic, advanced, zcdp or gdp"
        try:
            self._last_cost = event, self._total_cost(event)
        except Unsupported as reason:
            return str(reason)
        return None

    def compose(self, event: DpEvent, count: int = 1) -> Self:
        """This accountant with `count` more runs of `event`.

        Raises:
            Unsupported: a `ValueError`, if the event is not supported, with the reason.
        """
        validate.integer(count=count)
        new = self._copy()
        new.event = events.compose([(self.event, 1), (event, count)])
        asked = new.event if count and isinstance(self.event, dp_event.NoOpDpEvent) else event
        if reason := self.supports(asked):
            raise Unsupported(reason)
        if self._last_cost is not None and self._last_cost[0] is new.event:
            new._total = self._last_cost[1]
        return new

    @abstractmethod
    def epsilon(self, delta: float) -> Bound:
        """An upper bound on the ε of (ε, δ)-DP."""

    @abstractmethod
    def delta(self, epsilon: float) -> Bound:
        """An upper bound on the δ of (ε, δ)-DP."""

    def beta(self, alpha: float) -> Bound:
        """A lower bound on the type II error of any test with type I error `alpha` between neighbours.

        For every ε ≥ 0, β ≥ max(1 − δ(ε) − e^ε α, e^{−ε}(1 − δ(ε) − α)); the best value on a grid of ε is returned.

        Source: Wasserman and Zhou (2010); Kairouz, Oh and Viswanath (2015).
        """
        validate.probability(alpha=alpha)
        epsilons, deltas = self._curve
        lines = np.maximum(1 - deltas - np.exp(epsilons) * alpha, np.exp(-epsilons) * (1 - deltas - alpha))
        value = max(0.0, float(lines.max()) - 1e-15)  # three roundings of numbers of at most 1, where the line is ≥ 0
        return self._bound(value, "beta", at=alpha, rigor=self._rigor(), direction=Direction.LOWER)

    def blowup(self, p: float) -> Bound:
        """An upper bound on sup{P(E): Q(E) ≤ p} over neighbours: 1 − β at p.

        It is the least of e^ε p + δ(ε) and 1 − e^{−ε}(1 − δ(ε) − p) on a grid of ε, as in `beta`.
        """
        validate.probability(p=p)
        epsilons, deltas = self._curve
        steep = float((np.exp(epsilons) * p + deltas).min()) * (1 + 1e-14)
        flat = 1 - float((np.exp(-epsilons) * (1 - deltas - p)).max()) + 1e-15
        value = min(1.0, steep, flat)
        return self._bound(value, "r", at=p, rigor=self._rigor())

    # Operations on costs

    @abstractmethod
    def _zero(self) -> C: ...

    @abstractmethod
    def _add(self, costs: Sequence[C]) -> C: ...

    @abstractmethod
    def _times(self, cost: C, count: int) -> C: ...

    @abstractmethod
    def _largest(self, costs: Sequence[C], how_many: int) -> C:
        """The cost of the worst `how_many` of disjoint parts (1 or 2, at most the number of parts)."""

    def _rigor(self) -> Rigor:
        return Rigor.CERTIFIED

    # Shared by all accountants

    @property
    def cost(self) -> C:
        """The cost of everything composed so far, in the accountant's own parameter."""
        if self._total is None:
            self._total = self._total_cost(self.event)
        return self._total

    @property
    def scale(self) -> int:
        """The sensitivity of a sum in contributions of one unit: 2 under replace_one, else 1."""
        return 2 if self.adjacency is Adjacency.REPLACE_ONE else 1

    def _copy(self) -> Self:
        return type(self)(self.adjacency, self.unit)

    def _total_cost(self, event: DpEvent) -> C:
        """The cost of everything that ran, where it is more than what its parts add up to."""
        return self._cost(event)

    def _cost(self, event: DpEvent) -> C:
        event = events.own(event)
        if isinstance(event, dp_event.NoOpDpEvent):
            return self._zero()
        if isinstance(event, dp_event.SelfComposedDpEvent):
            count = validate.integer(count=event.count)
            return self._times(self._cost(event.event), count) if count else self._zero()
        if isinstance(event, dp_event.ComposedDpEvent):
            return self._add([self._zero(), *(self._cost(part) for part in event.events)])
        if isinstance(event, events.ParallelDpEvent):
            single = event.partition_is_public or self.adjacency is Adjacency.ADD_REMOVE
            costs = [cost for part, times in _distinct_parts(event.events) for cost in [self._cost(part)] * times]
            return self._largest(costs, 1 if single else min(2, len(costs)))
        if isinstance(event, dp_event.SingleEpochTreeAggregationDpEvent):
            # The nodes that hold one step, each with its own noise. Proof: docs/proofs/matrices.md, Theorem 2.
            height = events.tree_height(event)
            node = self._cost(dp_event.GaussianDpEvent(event.noise_multiplier))
            return self._times(node, height) if height else self._zero()
        if isinstance(event, events.ShuffledBatchesDpEvent):
            return self._of_shuffled(event)
        for kind in type(event).__mro__:
            if kind in self.handlers:
                cost: C = self.handlers[kind](self, event)
                return cost
        if isinstance(event, events.RandomAllocationDpEvent):
            return self._of_known_steps(event)
        raise Unsupported(f"{self.name} has no bound for {type(event).__name__}")

    def _of_known_steps(self, event: events.RandomAllocationDpEvent) -> C:
        """The cost of random steps as if they were known. Proof: docs/proofs/allocation.md, Theorem 5."""
        if any(isinstance(part, _OF_A_SIZE) for part in events.with_inner(event)):
            raise Unsupported(f"{self.name} has no bound for samples of a fixed number of records within random steps")
        return self._times(self._cost(event.event), event.num_selected) if event.num_selected else self._zero()

    def _of_shuffled(self, event: events.ShuffledBatchesDpEvent) -> C:
        """The cost of one batch, since a unit is in one only. Proof: docs/proofs/sampling.md, Theorem 8."""
        if self.adjacency is Adjacency.ADD_REMOVE:
            raise Unsupported(
                f"{self.name} has no bound for shuffled batches under add_remove: one unit more changes who is with "
                "whom in all batches; use zero_out or replace_one"
            )
        return self._cost(event.event)

    @functools.cached_property
    def _curve(self) -> tuple[np.ndarray, np.ndarray]:
        """ε and upper bounds on δ(ε) on a grid, computed once."""
        grid = np.concatenate([np.linspace(0, 1, 65), np.geomspace(1, 64, 129)[1:]])
        return grid, np.array([self.delta(float(epsilon)).value for epsilon in grid])

    def _bound(
        self,
        value: float,
        quantity: str,
        *,
        delta: float | None = None,
        at: float | None = None,
        rigor: Rigor = Rigor.CERTIFIED,
        direction: Direction = Direction.UPPER,
        interval: Interval | None = None,
        assumptions: tuple[str, ...] = (),
    ) -> Bound:
        return Bound(
            direction=direction,
            value=value,
            method=self.name,
            rigor=rigor,
            adjacency=self.adjacency,
            quantity=quantity,
            unit=self.unit,
            delta=delta,
            at=at,
            interval=interval,
            assumptions=(*assumptions, *self._assumptions(self.event)),
        )

    def _enclosed(
        self,
        interval: Interval,
        quantity: str,
        *,
        delta: float | None = None,
        at: float | None = None,
        direction: Direction = Direction.UPPER,
        attained: bool = True,
    ) -> Bound:
        """The end of an interval as a bound; with the interval, if it encloses the exact value."""
        value = interval.upper if direction is Direction.UPPER else interval.lower
        known = interval if attained else None
        return self._bound(value, quantity, delta=delta, at=at, direction=direction, interval=known)

    def _assumptions(self, event: DpEvent) -> tuple[str, ...]:
        results = []
        if self.unit.needs_user:
            results.append(f"The events are charged for {self.unit.charged_for}.")
        elif self.unit.kind == "user":
            results.append(
                f"No user has more than {self.unit.size} records, and the events are charged for one record."
            )
        moving = (part for part in events.with_parallel_parts(event) if not part.partition_is_public)
        if self.adjacency is not Adjacency.ADD_REMOVE and any(moving):
            results.append("The event of each disjoint part also bounds adding or removing one unit of that part.")
        if any(isinstance(part, dp_event.SingleEpochTreeAggregationDpEvent) for part in events.with_inner(event)):
            results.append(
                "Each record takes part in at most one step of all trees of an event, and whether it does changes no "
                "step of the others."
            )
        if any(isinstance(part, events.ShuffledBatchesDpEvent) for part in events.with_inner(event)):
            results.append(SHUFFLED)
        if any(isinstance(part, events.RandomAllocationDpEvent) for part in events.with_inner(event)):
            results.append(ALLOCATED)
        if any(isinstance(part, dp_event.RepeatAndSelectDpEvent) for part in events.with_inner(event)):
            results.append(TUNED)
        return tuple(results)


def _distinct_parts(parts: Sequence[DpEvent]) -> Iterable[tuple[DpEvent, int]]:
    """Each distinct part with its count. Parts are often one shared object, whose text is computed once."""
    objects = {id(part): part for part in parts}
    counts: dict[str, int] = {}
    first: dict[str, DpEvent] = {}
    for name, times in Counter(map(id, parts)).items():
        text = repr(objects[name])
        first.setdefault(text, objects[name])
        counts[text] = counts.get(text, 0) + times
    return [(part, counts[text]) for text, part in first.items()]


def noise(value: float, name: str) -> float:
    """A noise parameter of an event, at least 0 and finite, since dp_accounting's classes accept any value."""
    return float(validate.non_negative(**{name: value}))


def randomized_response_epsilon(accountant: Accountant[Any], event: dp_event.RandomizedResponseDpEvent) -> float:
    """The pure ε of k-ary randomised response, rounded up.

    The response of one unit is released, so the unit cannot be absent: add_remove is refused, replace_one compares two
    inputs, and zero_out compares an input with a uniform response.
    """
    buckets = validate.integer(minimum=1, num_buckets=event.num_buckets)
    uniform = float(validate.probability(noise_parameter=event.noise_parameter))
    if accountant.adjacency is Adjacency.ADD_REMOVE:
        raise Unsupported(
            f"{accountant.name} has no bound for RandomizedResponseDpEvent under add_remove: "
            "each unit gives one response, so units cannot be added or removed; use replace_one or zero_out"
        )
    if buckets == 1 or uniform == 1:
        return 0.0
    if uniform == 0:
        return math.inf
    if accountant.adjacency is Adjacency.REPLACE_ONE:
        exact = math.log(buckets / uniform - buckets + 1)
    else:
        exact = max(math.log(buckets * (1 - uniform) + uniform), -math.log(uniform))
    # The argument has relative error below 4·2^-53·(its cancelling parts over it), at most 8·2^-53·k/p over exp(exact).
    return exact + 2.0**-50 * (1 + buckets / uniform * math.exp(-exact) + exact)
