"""Record and replay: checks each declared event of a mechanism by running it on neighbours of the data.

A mechanism runs on a data set while all its releases are recorded (`dpassay.attacks.black_box.recorder`), then on each
neighbour, where it receives the same releases. Since the history is equal, each event reduces to one query on two data
sets, and its declaration can be checked by arithmetic:

- Gaussian and Laplace noise: the norm (L2, L1) of the difference of the queries is at most the declared sensitivity,
  scale/noise multiplier (twice that under replace_one, which removes one contribution and adds another);
- a selection: the range of the log-ratio of the two distributions, over all outcomes, is at most the declared range;
- the steps, their events and their noise scales do not depend on the data;
- all steps together are the plan, or what the ledger was charged;
- the output is the same: it may depend on the data only through the releases. Otherwise data were read outside of all
  events;
- a query of a sample does not change if only units outside of the sample are removed;
- samples and noise that the mechanism draws itself are consistent with the declared distribution
  (`recorded_randomness`).

What it proves. An exceeded sensitivity or range is conclusive, since it was observed: the declared *event* is refuted.
The claim that rests on the event may still be true by another argument, so no bound on ε follows; and no bound exists
for an output that reads data outside of its events. If nothing is found, this holds only for these neighbours and
these histories.

Source: Cebere et al., "Privacy in Theory, Bugs in Practice: Grey-Box Auditing of Differential Privacy Libraries"
(2026), for the comparison of recorded queries with declared sensitivities.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from dp_accounting import DpEvent

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency
from dpassay.attacks.black_box.recorder import Data, Mechanism, Recording, Step, record, replay
from dpassay.audits.games.replay.recorded_randomness import noise_tests, sampling_tests
from dpassay.base import validate
from dpassay.base.number_format import DIGITS, digits_apart, format_number, format_p_value

Kind: TypeAlias = Literal[
    "sensitivity",
    "range",
    "scale",
    "steps",
    "charges",
    "output",
    "sampling",
    "noise",
    "control",
    "parts",
    "rows",
    "cost",
]

TOLERANCE = 1e-9
"""The relative excess over a declared value that is ignored.

Queries are floats: the sum of n contributions, each of norm at most the sensitivity, has in any order of summation an
error of at most n²·2⁻⁵³ times the sensitivity. For two sums of up to 2000 contributions that is below 1e-9.
"""

FALSE_ALARM = 1e-6
"""The probability that the tests of samples and noise report a finding although everything is as declared."""


_UNEQUAL = "another output: it depends on unrecorded randomness, or is an object without an == that compares"


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation of a mechanism from what it declares.

    Attributes:
        kind: what does not hold.
        step: the index of the step, from 0; None if the finding is about the whole run.
        neighbor: the index of the neighbour that shows it, from 0; None if the data alone show it.
        declared: the declared number, or a description.
        measured: what was found instead.
        p_value: for samples and noise, an upper bound on the probability of the finding if everything is as declared,
            times the number of tests; None if the finding is conclusive.
        part: the part of the data that the step reads, if there are several, such as ``slot 3``.
    """

    kind: Kind
    step: int | None
    neighbor: int | None
    declared: float | str
    measured: float | str
    p_value: float | None = None
    part: str | None = None

    def __str__(self) -> str:
        where = [self.part] if self.part is not None else []
        where += [f"step {self.step}"] if self.step is not None else []
        where += [f"neighbour {self.neighbor}"] if self.neighbor is not None else []
        chance = "" if self.p_value is None else f" (probability at most {format_p_value(self.p_value)})"
        digits = DIGITS
        if isinstance(self.declared, float) and isinstance(self.measured, float):
            digits = digits_apart(self.declared, self.measured)
        declared, result = (
            format_number(x, digits=digits) if isinstance(x, float) else x for x in (self.declared, self.measured)
        )
        return f"{self.kind}{', ' if where else ''}{', '.join(where)}: declared {declared}, found {result}{chance}"


def record_replay_findings(
    mechanism: Mechanism[Data],
    data: Data,
    neighbors: Iterable[Data],
    *,
    adjacency: Adjacency | str,
    plan: DpEvent | None = None,
    recordings: int = 2,
    tolerance: float = TOLERANCE,
    false_alarm: float = FALSE_ALARM,
    rng: np.random.Generator | None = None,
) -> list[Finding]:
    """The deviations of a mechanism from what it declares; for each kind and step, the one with the largest excess.

    Arguments as for `assert_events_hold`; `rng` is the source of the recorder's random numbers, by default the
    operating system's entropy, and there may be no neighbour.

    Raises:
        ValueError: if there is no rule for the adjacency.
    """
    relation = Adjacency(adjacency)
    if relation is Adjacency.SECRET:
        raise ValueError("adjacency must be add_remove, replace_one or zero_out for record and replay, not secret")
    validate.integer(minimum=2, recordings=recordings)
    validate.open_probability(false_alarm=false_alarm)
    validate.non_negative(tolerance=tolerance)
    runs = [record(mechanism, data, rng=rng) for _ in range(recordings)]
    results = [finding for run in runs for finding in _check_charges(run, plan)][:1]
    tests = [*sampling_tests(runs), *noise_tests(runs)]
    for test in tests:
        p_value = min(1.0, test.p_value * len(tests))
        if p_value <= false_alarm:
            results.append(Finding(test.about, test.step, None, test.declared, test.measured, p_value))
    control = _check_self_replay(mechanism, data, runs[0])
    if control is not None:
        return [control, *results]
    others = list(neighbors)
    worst: dict[tuple[Kind, int | None], tuple[float, Finding]] = {}
    for run in runs:
        for number, other in enumerate(others):
            for excess, finding in _compare(run, replay(mechanism, other, run), number, relation, tolerance):
                key = (finding.kind, finding.step)
                if key not in worst or excess > worst[key][0]:
                    worst[key] = (excess, finding)
    conclusive = sorted(
        (finding for _, finding in worst.values()), key=lambda f: math.inf if f.step is None else f.step
    )
    return [*results, *conclusive]


def assert_events_hold(
    mechanism: Mechanism[Data],
    data: Data,
    neighbors: Iterable[Data],
    *,
    adjacency: Adjacency | str = Adjacency.ADD_REMOVE,
    plan: DpEvent | None = None,
    recordings: int = 2,
    tolerance: float = TOLERANCE,
    false_alarm: float = FALSE_ALARM,
    seed: int | None = 0,
) -> None:
    """Records a mechanism, replays it on neighbours, and fails if an event does not hold.

    Passing is no proof: other neighbours and other histories were not tested (`record_replay_findings`).

    Args:
        mechanism: called as ``mechanism(data, recorder)``. It passes each query to the recorder, with the event that
            it charges (`dpassay.attacks.black_box.recorder.Recorder`).
        data: a small data set.
        neighbors: of the data; `dpassay.attacks.black_box.enumerated_neighbors.neighbors` lists all.
        adjacency: add_remove, replace_one or zero_out.
        plan: the event that the run is accounted as, or that its ledger was charged; None skips this comparison.
        recordings: number of runs on the data, at least 2. More runs give the tests of samples and noise more power.
        tolerance: relative excess over a declared value that is ignored; for sums in single precision, about 1e-4.
        false_alarm: the probability of a failure by chance, over all tests of samples and noise.
        seed: of the recorder's random numbers, which makes the test reproducible; None uses the operating system's.

    Raises:
        AssertionError: names each event that does not hold, the declared value and what was found.
        ValueError: if there is no neighbour, or no rule for the adjacency.
    """
    others = list(neighbors)
    if not others:
        raise ValueError("neighbors must have at least one neighbour to replay on")
    result = record_replay_findings(
        mechanism,
        data,
        others,
        adjacency=adjacency,
        plan=plan,
        recordings=recordings,
        tolerance=tolerance,
        false_alarm=false_alarm,
        rng=np.random.default_rng(seed),
    )
    if result:
        name = getattr(mechanism, "__name__", type(mechanism).__name__)
        lines = [f"{name} does not do what it declares ({Adjacency(adjacency)}):", *map(str, result)]
        raise AssertionError("\n- ".join(lines))


def _check_charges(run: Recording, plan: DpEvent | None) -> Iterator[Finding]:
    """Checks that the declared events, composed, are the plan."""
    charged = run.charged()
    if plan is not None and charged != events.compose([(plan, 1)]):
        yield Finding("charges", None, None, repr(events.compose([(plan, 1)])), repr(charged))


def _check_self_replay(mechanism: Mechanism[Data], data: Data, run: Recording) -> Finding | None:
    """Checks that a run replayed on its own data repeats itself; otherwise it uses unrecorded randomness."""
    again = replay(mechanism, data, run)
    said = "the same run on the same data with the same releases"
    if again.divergence is not None:
        return Finding("control", len(again.steps), None, said, again.divergence)
    for number, (step, repeated) in enumerate(zip(run.steps, again.steps, strict=True)):
        if step.scale != repeated.scale or not np.array_equal(step.query, repeated.query):
            return Finding("control", number, None, said, "another query: it depends on unrecorded randomness")
    if not outputs_equal(run.output, again.output):
        return Finding("control", None, None, said, _UNEQUAL)
    return None


def _compare(
    run: Recording, other: Recording, neighbor: int, adjacency: Adjacency, tolerance: float
) -> Iterator[tuple[float, Finding]]:
    """The findings on one neighbour, each with its excess over the declared value."""
    unsampled = False
    for number, (step, theirs) in enumerate(zip(run.steps, other.steps, strict=False)):
        if step.scale != theirs.scale:
            yield math.inf, Finding("scale", number, neighbor, step.scale, theirs.scale)
        if step.kind == "sample":
            unsampled = _only_unsampled_leave(step, theirs)
            continue
        kind: Kind = "range" if step.kind == "selection" else "sensitivity"
        declared, result = _declared_limit(step, theirs, adjacency), _difference_norm(step, theirs)
        least = declared * tolerance + _rounding_error(step, theirs)
        if step.covered and unsampled and result > least:
            said = f"a query that changes by {format_number(result)} with units outside of the sample"
            yield result, Finding("sampling", number, neighbor, "a query of the sample", said)
        elif result - declared > least:
            yield result - declared, Finding(kind, number, neighbor, declared, result)
    if other.divergence is not None:
        yield math.inf, Finding("steps", len(other.steps), neighbor, "the steps of the data", other.divergence)
    elif not outputs_equal(run.output, other.output):
        said = "an output that is a function of the releases"
        yield math.inf, Finding("output", None, neighbor, said, "another output from the same releases")


def _only_unsampled_leave(step: Step, theirs: Step) -> bool:
    """Whether the neighbour lacks units, all of them outside of the sample, and has no additional unit."""
    missing = set(step.units) - set(theirs.units)
    sampled = {unit for unit, flag in zip(step.units, step.value.tolist(), strict=True) if flag}
    return bool(missing) and not missing & sampled and set(theirs.units) <= set(step.units)


def _declared_limit(step: Step, theirs: Step, adjacency: Adjacency) -> float:
    """The largest difference of the query between neighbours that the declared event allows."""
    if step.kind == "selection":
        return float(step.event.range)
    scale = min(step.scale, theirs.scale)
    contributions = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    if step.kind == "discrete_laplace":
        return float(step.event.noise_parameter * step.event.sensitivity * scale * contributions)
    if step.event.noise_multiplier == 0:
        return math.inf
    return float(scale / step.event.noise_multiplier * contributions)


def _difference_norm(step: Step, theirs: Step) -> float:
    """The norm of the difference of the queries; for a selection, the range of the log-ratio over all outcomes."""
    if step.kind == "selection":
        possible = np.isfinite(step.query)
        if not np.array_equal(possible, np.isfinite(theirs.query)):
            return math.inf
        ratio = step.query[possible] - theirs.query[possible]
        return float(ratio.max() - ratio.min())
    difference = step.query - theirs.query
    return float(np.linalg.norm(difference) if step.kind == "gaussian" else np.abs(difference).sum())


def _rounding_error(step: Step, theirs: Step) -> float:
    """The float error of `_difference_norm`.

    A norm of d numbers has a relative error of at most (d + 2)·2⁻⁵³. A log-probability is a weight minus a normaliser,
    rounded. The normaliser cancels in the range, and the rounding error is below 2⁻⁵⁰ of the largest log-probability.
    """
    if step.kind == "selection":
        queries = np.concatenate([step.query, theirs.query])
        return float(2.0**-50 * np.abs(queries[np.isfinite(queries)]).max(initial=0.0))
    return float((step.query.size + 2) * 2.0**-52 * _difference_norm(step, theirs))


def outputs_equal(item: Any, other: Any) -> bool:
    """Whether two outputs are bitwise equal: arrays, containers, dataclasses, and objects that compare by ``==``."""
    if type(item) is not type(other):
        return False
    if dataclasses.is_dataclass(item) and not isinstance(item, type):
        return all(
            outputs_equal(getattr(item, field.name), getattr(other, field.name)) for field in dataclasses.fields(item)
        )
    if isinstance(item, dict):
        return item.keys() == other.keys() and all(outputs_equal(value, other[key]) for key, value in item.items())
    if isinstance(item, list | tuple):
        return len(item) == len(other) and all(map(outputs_equal, item, other))
    if hasattr(item, "__array__"):  # also tensors and tables, whose == does not return a bool
        array, second = np.asarray(item), np.asarray(other)
        same = array.dtype == second.dtype and array.shape == second.shape
        return same and bool(np.array_equal(array, second, equal_nan=array.dtype.kind in "fc"))
    return bool(item == other) or (isinstance(item, float) and math.isnan(item) and math.isnan(other))
