"""Runs a mechanism with all that it releases recorded, and again on other data with the same releases handed out.

A mechanism under test is a function ``mechanism(data, recorder)``. Where it reads the data for a release, it gives the
recorder the exact query and the event that it charges, and goes on with what the recorder returns. The second run then
has the history of the first whatever its data are, so that queries can be compared one by one.

Noise is drawn by the recorder, or by the mechanism's own code where that is to be tested too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import ArrayLike, NDArray
from scipy import special

from cupel.accounting import events, validate
from cupel.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent

Floats = NDArray[np.float64]
Data = TypeVar("Data")
Kind: TypeAlias = Literal["gaussian", "laplace", "discrete_laplace", "selection", "sample"]

_EVENTS: dict[Kind, tuple[type[DpEvent], ...]] = {
    "gaussian": (dp_event.GaussianDpEvent,),
    "laplace": (dp_event.LaplaceDpEvent,),
    "discrete_laplace": (dp_event.DiscreteLaplaceDpEvent,),
    "selection": (BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent),
    "sample": (dp_event.PoissonSampledDpEvent,),
}


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One use of private data.

    Attributes:
        kind: how the value was drawn.
        event: what was declared.
        query: what was read off the data, flat: shape (d,), the values that noise is added to; shape (V,), the
            log-weights of a selection; empty for a sample.
        scale: standard deviation of Gaussian noise, b of Laplace noise P(x) ∝ exp(−|x|/b); 0 elsewhere.
        value: what was released: shape (d,); the index, shape (1,); for a sample, which units are in, shape (units,).
        own: the mechanism's own code drew the value.
        units: of a sample, the names of the units.
        covered: the release is of a sample, whose event has paid for it.
    """

    kind: Kind
    event: DpEvent
    query: Floats
    scale: float
    value: NDArray[Any]
    own: bool
    units: tuple[Hashable, ...] = ()
    covered: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A run: what it used of the data, and what it returned.

    Attributes:
        steps: in order.
        output: what the mechanism returned; None where the replay broke off.
        broke_off: why a replay could not go on: the steps of the two data sets differ.
    """

    steps: tuple[Step, ...]
    output: Any
    broke_off: str | None = None

    def charged(self) -> DpEvent:
        """The composition of what was declared, in canonical form; a release of a sample is inside the sample."""
        return events.compose([(step.event, 1) for step in self.steps if not step.covered])


Mechanism: TypeAlias = "Callable[[Data, Recorder], Any]"


def record(mechanism: Mechanism[Data], data: Data, *, rng: np.random.Generator | None = None) -> Recording:
    """Runs a mechanism once.

    Args:
        mechanism: called with the data, which it must not change, and a recorder.
        data: private, or made up.
        rng: draws what the mechanism leaves to the recorder; by default from the operating system's entropy.
    """
    recorder = Recorder(rng=rng)
    output = mechanism(data, recorder)
    return Recording(recorder.steps, output)


def replay(mechanism: Mechanism[Data], data: Data, past: Recording) -> Recording:
    """Runs a mechanism on other data and hands out what was released in the past."""
    recorder = Recorder(past)
    try:
        output = mechanism(data, recorder)
    except _BrokenOff as reason:
        return Recording(recorder.steps, None, str(reason))
    left = len(past.steps) - len(recorder.steps)
    return Recording(recorder.steps, output, f"{left} of {len(past.steps)} steps are missing" if left else None)


class _BrokenOff(BaseException):  # not an Exception, so that a mechanism that catches those does not catch it
    """A replay asks for another step than was recorded."""


class Recorder:
    """What a mechanism under test draws from. `record` and `replay` make it."""

    def __init__(self, past: Recording | None = None, *, rng: np.random.Generator | None = None) -> None:
        self._past = past
        self._rng = rng or np.random.default_rng()
        self._steps: list[Step] = []
        self._due: list[DpEvent] = []  # what the last sample has paid for and was not released yet

    @property
    def steps(self) -> tuple[Step, ...]:
        """All so far."""
        return tuple(self._steps)

    def gaussian(
        self,
        query: ArrayLike,
        event: dp_event.GaussianDpEvent,
        *,
        scale: float,
        noise: Callable[[int], ArrayLike] | None = None,
    ) -> Floats:
        """`query` with Gaussian noise.

        Args:
            query: any shape.
            event: that is charged. Its noise multiplier is `scale` over the largest norm of a unit's contribution.
            scale: standard deviation of the noise.
            noise: the mechanism's own noise: called with the number of values, returns them.

        Returns:
            The release, of the shape of `query`.
        """
        drawn = noise or (lambda size: self._rng.normal(scale=scale, size=size))
        return self._additive("gaussian", query, event, scale, drawn, noise is not None)

    def laplace(
        self,
        query: ArrayLike,
        event: dp_event.LaplaceDpEvent,
        *,
        scale: float,
        noise: Callable[[int], ArrayLike] | None = None,
    ) -> Floats:
        """`query` with Laplace noise of scale b: as `gaussian`, with norms in L1."""
        drawn = noise or (lambda size: self._rng.laplace(scale=scale, size=size))
        return self._additive("laplace", query, event, scale, drawn, noise is not None)

    def discrete_laplace(
        self,
        query: ArrayLike,
        event: dp_event.DiscreteLaplaceDpEvent,
        *,
        scale: float,
        noise: Callable[[int], ArrayLike] | None = None,
    ) -> Floats:
        """Whole numbers with noise P(k) ∝ exp(−|k|/b): as `laplace`, for an event of parameter 1/b or more."""

        validate.positive(scale=scale)

        def geometric(size: int) -> ArrayLike:
            p = -np.expm1(-1 / scale)
            return self._rng.geometric(p, size) - self._rng.geometric(p, size)

        return self._additive("discrete_laplace", query, event, scale, noise or geometric, noise is not None)

    def select(
        self,
        log_weights: ArrayLike,
        event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent,
        *,
        draw: Callable[[Floats], int] | None = None,
    ) -> int:
        """An index with probability proportional to its weight.

        Args:
            log_weights: shape (V,); −∞ is never drawn. They need not be normalised.
            event: that is charged.
            draw: the mechanism's own choice, given the log-probabilities.
        """
        weights = np.asarray(log_weights, dtype=np.float64)
        if weights.ndim != 1 or not len(weights) or np.isnan(weights).any() or not np.isfinite(weights.max()):
            raise ValueError("log-weights must be one row of numbers with a finite largest one")
        self._begin("selection", event, weights.size)
        query = weights - special.logsumexp(weights)
        if self._past is None:
            index = draw(query) if draw is not None else int(np.argmax(query + self._rng.gumbel(size=query.size)))
            value = np.array([validate.integer(index=int(index))])
        else:
            value = self._past.steps[len(self._steps)].value
        self._add(Step("selection", event, query, 0.0, value, draw is not None, covered=self._covers(event)))
        return int(value[0])

    def sample(
        self,
        units: Sequence[Hashable],
        event: dp_event.PoissonSampledDpEvent,
        *,
        included: ArrayLike | None = None,
    ) -> NDArray[np.bool_]:
        """Which units take part in the releases that follow, whose events are inside of `event`.

        In a replay a unit takes part if it did before. One that was not there takes part: what the inner event says
        must hold for every sample.

        Args:
            units: a name for each unit of the data, that does not change when another one comes or goes.
            event: that is charged; it pays for the events inside of it.
            included: shape (units,), the mechanism's own sample; None draws each unit by its own coin.
        """
        names = tuple(units)
        if len(set(names)) < len(names):
            raise ValueError(
                "the names of units must differ, or a unit cannot be followed from one data set to another"
            )
        self._begin("sample", event, None)
        if self._past is None:
            own = included is not None
            coins = self._rng.random(len(names)) < event.sampling_probability
            flags = np.array(included, dtype=bool) if own else coins
            if flags.shape != (len(names),):
                raise ValueError(f"{len(names)} units need as many flags, not an array of shape {flags.shape}")
        else:
            before = self._past.steps[len(self._steps)]
            own, known = before.own, dict(zip(before.units, before.value.tolist(), strict=True))
            flags = np.array([known.get(name, True) for name in names], dtype=bool)
        self._add(Step("sample", event, np.empty(0), 0.0, flags, own, names))
        self._due = _flat(event.event)
        return flags.copy()

    def _additive(
        self,
        kind: Kind,
        query: ArrayLike,
        event: DpEvent,
        scale: float,
        noise: Callable[[int], ArrayLike],
        own: bool,
    ) -> Floats:
        exact = np.array(query, dtype=np.float64)
        validate.non_negative(scale=scale)
        if not np.isfinite(exact).all():
            raise ValueError("a query must consist of finite numbers")
        self._begin(kind, event, exact.size)
        if self._past is None:
            drawn = np.asarray(noise(exact.size), dtype=np.float64).reshape(exact.size)
            value = exact.ravel() + drawn
        else:
            value = self._past.steps[len(self._steps)].value
        self._add(Step(kind, event, exact.ravel(), scale, value, own, covered=self._covers(event)))
        return np.asarray(value.reshape(exact.shape).copy())

    def _begin(self, kind: Kind, event: DpEvent, size: int | None) -> None:
        """Checks that the event is one of its kind and, in a replay, that the step is the recorded one."""
        allowed = _EVENTS[kind]
        if not isinstance(event, allowed):
            names = " or ".join(each.__name__ for each in allowed)
            raise ValueError(f"{kind} is declared by a {names}, not by a {type(event).__name__}")
        if self._past is None:
            return
        number = len(self._steps)
        if number == len(self._past.steps):
            raise _BrokenOff(f"a step more than the {number} on the data: {kind} {event!r}")
        before = self._past.steps[number]
        if (kind, event) != (before.kind, before.event):
            raise _BrokenOff(f"{kind} {event!r}, where the data have {before.kind} {before.event!r}")
        if size is not None and size != before.query.size:
            raise _BrokenOff(f"{size} values, where the data have {before.query.size}")

    def _covers(self, event: DpEvent) -> bool:
        """Whether the sample before has paid for this event; it pays once."""
        for place, due in enumerate(self._due):
            if due == event:
                del self._due[place]
                return True
        return False

    def _add(self, step: Step) -> None:
        self._steps.append(step)


def _flat(event: DpEvent) -> list[DpEvent]:
    """The events of a composition, each as often as it runs."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        count: int = event.count
        return _flat(event.event) * count
    if isinstance(event, dp_event.ComposedDpEvent):
        return [part for inner in event.events for part in _flat(inner)]
    return [event]
