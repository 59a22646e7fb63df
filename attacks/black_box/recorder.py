"""Records everything that a mechanism releases, and replays the releases on other data.

A mechanism under test is a function ``mechanism(data, recorder)``. Wherever it reads the data for a release, it passes
the exact query and the event that it charges to the recorder, and continues with the value that the recorder returns.
In a replay it therefore has the history of the first run, whatever the data, so queries can be compared one by one.

The recorder draws the noise, unless the mechanism's own noise is to be tested.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import ArrayLike, NDArray
from scipy import special

from dpassay.accounting import events
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ExPostSelectionDpEvent
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats

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
        event: the declared event.
        query: what was computed from the data, flattened: shape (d,), the values that noise is added to; shape (V,),
            the log-probabilities of a selection; empty for a sample.
        scale: standard deviation of Gaussian noise, b of Laplace noise P(x) ∝ exp(−|x|/b); 0 otherwise.
        value: the released value: shape (d,); the index, shape (1,); for a sample, which units are in, shape (units,).
        own: whether the mechanism's own code drew the value.
        units: for a sample, the names of the units.
        covered: whether the release is part of a sample, whose event includes its cost.
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
    """One run: its uses of the data, and its output.

    Attributes:
        steps: in order.
        output: the mechanism's return value; None if the replay diverged before it returned.
        divergence: how the steps of a replay differ from the recorded ones; None if they agree.
    """

    steps: tuple[Step, ...]
    output: Any
    divergence: str | None = None

    def charged(self) -> DpEvent:
        """The composition of the declared events, in canonical form; events covered by a sample are not repeated."""
        return events.compose([(step.event, 1) for step in self.steps if not step.covered])


Mechanism: TypeAlias = "Callable[[Data, Recorder], Any]"


def record(mechanism: Mechanism[Data], data: Data, *, rng: np.random.Generator | None = None) -> Recording:
    """Runs a mechanism once on data, which it must not change, and records it; `rng` of the recorder is by default
    seeded from the operating system's entropy."""
    recorder = Recorder(rng=rng)
    output = mechanism(data, recorder)
    return Recording(recorder.steps, output)


def replay(mechanism: Mechanism[Data], data: Data, past: Recording) -> Recording:
    """Runs a mechanism on other data, with the releases of a recorded run."""
    recorder = Recorder(past)
    try:
        output = mechanism(data, recorder)
    except _Diverged as reason:
        return Recording(recorder.steps, None, str(reason))
    left = len(past.steps) - len(recorder.steps)
    return Recording(recorder.steps, output, f"{left} of {len(past.steps)} steps are missing" if left else None)


class _Diverged(BaseException):  # not an Exception, so that a mechanism that catches exceptions does not catch it
    """A replay reached a step that differs from the recorded one."""


class Recorder:
    """The source of randomness of a mechanism under test; created by `record` and `replay`."""

    def __init__(self, past: Recording | None = None, *, rng: np.random.Generator | None = None) -> None:
        self._past = past
        self._rng = rng or np.random.default_rng()
        self._steps: list[Step] = []
        self._prepaid: list[DpEvent] = []  # events inside the last sample that have not been used yet

    @property
    def past(self) -> Recording | None:
        """The run that is replayed; None in a run that is recorded."""
        return self._past

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps so far."""
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
            event: the charged event. Its noise multiplier is `scale` over the largest norm of a unit's contribution.
            scale: standard deviation of the noise.
            noise: the mechanism's own noise: called with the number of values, returns that many.

        Returns:
            The release, with the shape of `query`.
        """
        return self._additive("gaussian", query, event, scale, noise, lambda size: self._rng.normal(0.0, scale, size))

    def laplace(
        self,
        query: ArrayLike,
        event: dp_event.LaplaceDpEvent,
        *,
        scale: float,
        noise: Callable[[int], ArrayLike] | None = None,
    ) -> Floats:
        """`query` with Laplace noise of scale b: as `gaussian`, with norms in L1."""
        return self._additive("laplace", query, event, scale, noise, lambda size: self._rng.laplace(0.0, scale, size))

    def discrete_laplace(
        self,
        query: ArrayLike,
        event: dp_event.DiscreteLaplaceDpEvent,
        *,
        scale: float,
        noise: Callable[[int], ArrayLike] | None = None,
    ) -> Floats:
        """Whole numbers with noise P(k) ∝ exp(−|k|/b): as `laplace`, for an event with parameter at least 1/b."""

        validate.positive(scale=scale)

        def geometric(size: int) -> ArrayLike:
            p = -np.expm1(-1 / scale)
            return self._rng.geometric(p, size) - self._rng.geometric(p, size)

        return self._additive("discrete_laplace", query, event, scale, noise, geometric)

    def select(
        self,
        log_weights: ArrayLike,
        event: BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent,
        *,
        draw: Callable[[Floats], int] | None = None,
    ) -> int:
        """An index with probability proportional to its weight.

        Args:
            log_weights: shape (V,), not necessarily normalised; an index with −∞ is never drawn.
            event: the charged event.
            draw: the mechanism's own selection, given the log-probabilities.
        """
        weights = np.asarray(log_weights, dtype=np.float64)
        if weights.ndim != 1 or not len(weights) or np.isnan(weights).any() or not np.isfinite(weights.max()):
            raise ValueError("log_weights must be a non-empty 1-D array without NaN, with a finite maximum")
        self._check_step("selection", event, weights.size)
        query = weights - special.logsumexp(weights)
        if self._past is None:
            index = draw(query) if draw is not None else int(np.argmax(query + self._rng.gumbel(size=query.size)))
            value = np.array([validate.integer(index=int(index))])
        else:
            value = self._past.steps[len(self._steps)].value
        covered = self._use_prepaid(event)
        self._steps.append(Step("selection", event, query, 0.0, value, draw is not None, covered=covered))
        return int(value[0])

    def sample(
        self,
        units: Sequence[Hashable],
        event: dp_event.PoissonSampledDpEvent,
        *,
        included: ArrayLike | None = None,
    ) -> Bools:
        """Which units take part in the following releases, whose events are inside of `event`.

        In a replay a unit takes part if it did in the recorded run. A unit that was not there takes part, because the
        inner event must hold for every sample.

        Args:
            units: a name for each unit of the data, which does not change if another unit is added or removed.
            event: the charged event; it includes the cost of the events inside of it.
            included: shape (units,), the mechanism's own sample; None includes each unit by an independent coin.
        """
        names = tuple(units)
        if len(set(names)) < len(names):
            raise ValueError("the names of units must be distinct, to identify a unit across data sets")
        self._check_step("sample", event, None)
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
        self._steps.append(Step("sample", event, np.empty(0), 0.0, flags, own, names))
        self._prepaid = _flattened(event.event)
        return flags.copy()

    def _additive(
        self,
        kind: Kind,
        query: ArrayLike,
        event: DpEvent,
        scale: float,
        own: Callable[[int], ArrayLike] | None,
        default: Callable[[int], ArrayLike],
    ) -> Floats:
        exact = np.array(query, dtype=np.float64)
        validate.non_negative(scale=scale)
        if not np.isfinite(exact).all():
            raise ValueError("query must contain finite numbers only")
        self._check_step(kind, event, exact.size)
        if self._past is None:
            drawn = np.asarray((own or default)(exact.size), dtype=np.float64).reshape(exact.size)
            value = exact.ravel() + drawn
        else:
            value = self._past.steps[len(self._steps)].value
        covered = self._use_prepaid(event)
        self._steps.append(Step(kind, event, exact.ravel(), scale, value, own is not None, covered=covered))
        return np.asarray(value.reshape(exact.shape).copy())

    def _check_step(self, kind: Kind, event: DpEvent, size: int | None) -> None:
        """Checks the type of the event and, in a replay, that the step agrees with the recorded one."""
        allowed = _EVENTS[kind]
        if not isinstance(event, allowed):
            names = " or ".join(each.__name__ for each in allowed)
            raise ValueError(f"a {kind} step needs an event of type {names}, not {type(event).__name__}")
        if self._past is None:
            return
        number = len(self._steps)
        if number == len(self._past.steps):
            raise _Diverged(f"one step more than the {number} on the data: {kind} {event!r}")
        before = self._past.steps[number]
        if (kind, event) != (before.kind, before.event):
            raise _Diverged(f"{kind} {event!r}, where the data have {before.kind} {before.event!r}")
        if size is not None and size != before.query.size:
            raise _Diverged(f"{size} values, where the data have {before.query.size}")

    def _use_prepaid(self, event: DpEvent) -> bool:
        """Whether the last sample covers this event; each event inside of a sample covers one release."""
        for index, prepaid in enumerate(self._prepaid):
            if prepaid == event:
                del self._prepaid[index]
                return True
        return False


def _flattened(event: DpEvent) -> list[DpEvent]:
    """The events of a composition, each repeated as often as it runs."""
    if isinstance(event, dp_event.SelfComposedDpEvent):
        count: int = event.count
        return _flattened(event.event) * count
    if isinstance(event, dp_event.ComposedDpEvent):
        return [part for inner in event.events for part in _flattened(inner)]
    return [event]
