"""Record and replay: brute force over neighbours, event by event.

A mechanism runs on a data set with all that it releases recorded (`cupel.attacks.black_box.recorder`), then on each
neighbour with the same releases handed out. With the history equal, what is left of an event is one query on two data
sets, and whether it keeps to what was declared is arithmetic:

- Gaussian and Laplace noise: the norm (L2, L1) of the difference of the queries is at most the declared sensitivity,
  scale/noise multiplier (twice that under replace_one, where a contribution goes and another comes);
- a selection: the log-ratios of the two laws spread over at most the declared range, over all outcomes;
- steps, their events and their noise scales are the same, whatever the data;
- all steps together are the plan, or what the ledger was charged;
- the output is the same: it may depend on the data through the releases only. Anything else was read past all events;
- what is released of a sample does not move where only units outside of the sample leave;
- samples and noise that the mechanism draws itself can be of the law that is declared (`recorded_randomness`).

What it proves. An exceeded sensitivity or range is certain, for it was seen: the declared *event* is refuted. The claim
that rests on it may still be true by another argument, so no bound on ε follows, and an output that reads the data
past its events has none. That nothing is found says no more than that these neighbours, with
these histories, show nothing.

Source: Cebere et al., "Privacy in Theory, Bugs in Practice: Grey-Box Auditing of Differential Privacy Libraries"
(2026), for the comparison of recorded queries with declared sensitivities.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from dp_accounting import DpEvent

from cupel.accounting import events, validate
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import json_number
from cupel.accounting.number_format import DIGITS, digits_apart, format_confidence, format_number, format_p_value
from cupel.attacks.black_box.recorder import Data, Mechanism, Recording, Step, record, replay
from cupel.audits.games.replay.recorded_randomness import noise_tests, sampling_tests
from cupel.audits.games.replay.same_outputs import same
from cupel.audits.result import AuditResult

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
"""An excess below this share of what is declared is no finding.

Queries are floats: the sum of n contributions, each at most as long as the sensitivity, has in any order an error of at
most n²·2⁻⁵³ of it. For two sums of up to 2000 that is below 1e-9.
"""

FALSE_ALARM = 1e-6
"""The probability that what is tested by chance (samples, noise) is called wrong although it is right."""


_UNEQUAL = "another output: it depends on unrecorded randomness, or is an object without an == that compares"


@dataclass(frozen=True, slots=True)
class Finding:
    """One way in which a mechanism does not do what it declares.

    Attributes:
        kind: what does not hold.
        step: the number of the step, from 0; None where it is about the whole run.
        neighbor: the number of the neighbour that shows it, from 0; None where the data alone do.
        declared: the number or the thing that was declared.
        found: what was seen instead.
        p_value: for samples and noise, at most the probability of what was seen if all is as declared, times the number
            of tests; None for what is certain.
        part: of the data that the step is of, where there are several, such as ``slot 3``.
    """

    kind: Kind
    step: int | None
    neighbor: int | None
    declared: float | str
    found: float | str
    p_value: float | None = None
    part: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The fields as plain JSON types."""
        numbers = {"declared": self.declared, "found": self.found}
        return dataclasses.asdict(self) | {
            name: json_number(value) if isinstance(value, float) else value for name, value in numbers.items()
        }

    def __str__(self) -> str:
        where = [self.part] if self.part is not None else []
        where += [f"step {self.step}"] if self.step is not None else []
        where += [f"neighbour {self.neighbor}"] if self.neighbor is not None else []
        chance = "" if self.p_value is None else f" (probability at most {format_p_value(self.p_value)})"
        declared, found = self._numbers()
        return f"{self.kind}{', ' if where else ''}{', '.join(where)}: declared {declared}, found {found}{chance}"

    def _numbers(self) -> tuple[str, str]:
        """What was declared and found; two numbers in as many digits as tell them apart."""
        declared, found = self.declared, self.found
        digits = DIGITS
        if isinstance(declared, float) and isinstance(found, float):
            digits = digits_apart(declared, found)
        one, other = (format_number(x, digits=digits) if isinstance(x, float) else x for x in (declared, found))
        return one, other


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
    """What a mechanism does otherwise than it declares, worst first for each step.

    Args:
        mechanism: called with data, which it must not change, and a `Recorder`; each call is a run of its own.
        data: a small data set.
        neighbors: of the data, at `adjacency`; `cupel.attacks.black_box.neighbors` lists all.
        adjacency: add_remove, replace_one or zero_out; of the declared events.
        plan: what the run is accounted as, or what its ledger was charged; None does not compare.
        recordings: runs on the data, at least 2, so that noise can be seen to repeat. Each is replayed on each
            neighbour.
        tolerance: an excess below this share of what is declared is no finding. The default is for sums in double
            precision; sums of thousands of numbers in single precision need 1e-4 or so.
        false_alarm: the probability, over all tests of samples and noise, of a finding where all is as declared.
        rng: what the recorder draws from; by default the operating system's entropy.

    Raises:
        ValueError: for an adjacency without a rule.
    """
    return _findings(
        mechanism, data, list(neighbors), Adjacency(adjacency), plan, recordings, tolerance, false_alarm, rng
    )[0]


def record_replay_audit(
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
) -> AuditResult:
    """`record_replay_findings` as an audit. It has no bounds; its `contradictions` are the findings."""
    others = list(neighbors)
    relation = Adjacency(adjacency)
    findings, tests = _findings(mechanism, data, others, relation, plan, recordings, tolerance, false_alarm, rng)
    lost = [finding for finding in findings if finding.kind == "control"]
    return AuditResult(
        name="record_replay",
        game=f"record and replay: the same releases on each of some neighbours under {relation}",
        attack="all queries, laws and samples of the mechanism",
        statistics=("largest difference of a query between neighbours", "exact tests of samples and noise"),
        conclusion=_conclusion(findings, lost, len(others), false_alarm if tests else 0.0),
        trials=len(others),
        controls_passed=not lost,
        multiplicity=(
            f"the largest excess over {len(others)} neighbours and {recordings} runs (of certain ones: no correction)",
            f"{tests} tests of samples and noise, together wrong with probability at most {format_number(false_alarm)}",
        ),
        contradictions=tuple(map(str, findings)),
        details={"findings": [finding.to_json() for finding in findings]},
    )


def _conclusion(findings: Sequence[Finding], lost: Sequence[Finding], neighbors: int, false_alarm: float) -> str:
    if lost:
        return f"No conclusion on neighbours: {lost[0]}."
    if not neighbors and not findings:
        return "No neighbour was given, so that no event was tested."
    if not findings:
        return (
            f"Every event held for {neighbors} neighbours, which says nothing of other neighbours and other histories."
        )
    chance = any(finding.p_value is not None for finding in findings)
    sure = f" with confidence {format_confidence(1 - false_alarm)}" if chance else ""
    places = f"{len(findings)} place{'s' if len(findings) > 1 else ''}"
    return f"What is declared does not hold{sure}, in {places}: {findings[0]}."


def _findings(
    mechanism: Mechanism[Data],
    data: Data,
    neighbors: Sequence[Data],
    adjacency: Adjacency,
    plan: DpEvent | None,
    recordings: int,
    tolerance: float,
    false_alarm: float,
    rng: np.random.Generator | None,
) -> tuple[list[Finding], int]:
    """The findings, and the number of tests of chance."""
    if adjacency is Adjacency.SECRET:
        raise ValueError("record and replay knows add_remove, replace_one and zero_out, not secret")
    validate.integer(minimum=2, recordings=recordings)
    validate.open_probability(false_alarm=false_alarm)
    validate.non_negative(tolerance=tolerance)
    runs = [record(mechanism, data, rng=rng) for _ in range(recordings)]
    found = [finding for run in runs for finding in _charges(run, plan)][:1]
    tests = [*sampling_tests(runs), *noise_tests(runs)]
    for test in tests:
        p_value = min(1.0, test.p_value * len(tests))
        if p_value <= false_alarm:
            found.append(Finding(test.about, test.step, None, test.declared, test.found, p_value))
    control = _control(mechanism, data, runs[0])
    if control is not None:
        return [control, *found], len(tests)
    worst: dict[tuple[Kind, int | None], tuple[float, Finding]] = {}
    for run in runs:
        for number, other in enumerate(neighbors):
            for excess, finding in _compared(run, replay(mechanism, other, run), number, adjacency, tolerance):
                key = (finding.kind, finding.step)
                if key not in worst or excess > worst[key][0]:
                    worst[key] = (excess, finding)
    certain = sorted((finding for _, finding in worst.values()), key=lambda f: math.inf if f.step is None else f.step)
    return [*found, *certain], len(tests)


def _charges(run: Recording, plan: DpEvent | None) -> Iterator[Finding]:
    """Whether all that was declared is what is accounted for."""
    charged = run.charged()
    if plan is not None and charged != events.compose([(plan, 1)]):
        yield Finding("charges", None, None, repr(events.compose([(plan, 1)])), repr(charged))


def _control(mechanism: Mechanism[Data], data: Data, run: Recording) -> Finding | None:
    """Replayed on its own data, a run must repeat itself, or it draws on randomness that was not recorded."""
    again = replay(mechanism, data, run)
    said = "the same run on the same data with the same releases"
    if again.broke_off is not None:
        return Finding("control", len(again.steps), None, said, again.broke_off)
    for number, (step, repeated) in enumerate(zip(run.steps, again.steps, strict=True)):
        if step.scale != repeated.scale or not np.array_equal(step.query, repeated.query):
            return Finding("control", number, None, said, "another query: it depends on unrecorded randomness")
    if not same(run.output, again.output):
        return Finding("control", None, None, said, _UNEQUAL)
    return None


def _compared(
    run: Recording, other: Recording, neighbor: int, adjacency: Adjacency, tolerance: float
) -> Iterator[tuple[float, Finding]]:
    """What a neighbour shows, each with how far it exceeds what is declared."""
    unsampled = False
    for number, (step, theirs) in enumerate(zip(run.steps, other.steps, strict=False)):
        if step.scale != theirs.scale:
            yield math.inf, Finding("scale", number, neighbor, step.scale, theirs.scale)
        if step.kind == "sample":
            unsampled = _only_unsampled_leave(step, theirs)
            continue
        kind: Kind = "range" if step.kind == "selection" else "sensitivity"
        declared, found = _allowed(step, theirs, adjacency), _moved(step, theirs)
        least = declared * tolerance + _rounding(step, theirs)
        if step.covered and unsampled and found > least:
            said = f"a query that moves by {format_number(found)} with units outside of the sample"
            yield found, Finding("sampling", number, neighbor, "a query of the sample", said)
        elif found - declared > least:
            yield found - declared, Finding(kind, number, neighbor, declared, found)
    if other.broke_off is not None:
        yield math.inf, Finding("steps", len(other.steps), neighbor, "the steps of the data", other.broke_off)
    elif not same(run.output, other.output):
        said = "an output that is a function of the releases"
        yield math.inf, Finding("output", None, neighbor, said, "another output from the same releases")


def _only_unsampled_leave(step: Step, theirs: Step) -> bool:
    """Whether units are missing on the neighbour, all of them outside of the sample, and no other one has come."""
    missing = set(step.units) - set(theirs.units)
    sampled = {unit for unit, flag in zip(step.units, step.value.tolist(), strict=True) if flag}
    return bool(missing) and not missing & sampled and set(theirs.units) <= set(step.units)


def _allowed(step: Step, theirs: Step, adjacency: Adjacency) -> float:
    """By how much the query may differ between neighbours, if the event is right."""
    if step.kind == "selection":
        return float(step.event.range)
    scale = min(step.scale, theirs.scale)
    contributions = 2 if adjacency is Adjacency.REPLACE_ONE else 1
    if step.kind == "discrete_laplace":
        return float(step.event.noise_parameter * step.event.sensitivity * scale * contributions)
    if step.event.noise_multiplier == 0:
        return math.inf
    return float(scale / step.event.noise_multiplier * contributions)


def _moved(step: Step, theirs: Step) -> float:
    """The norm of the difference of a query; of a selection, the spread of the log-ratio over all outcomes."""
    if step.kind == "selection":
        possible = np.isfinite(step.query)
        if not np.array_equal(possible, np.isfinite(theirs.query)):
            return math.inf
        ratio = step.query[possible] - theirs.query[possible]
        return float(ratio.max() - ratio.min())
    difference = step.query - theirs.query
    return float(np.linalg.norm(difference) if step.kind == "gaussian" else np.abs(difference).sum())


def _rounding(step: Step, theirs: Step) -> float:
    """The float error of `_moved` itself.

    A norm of d numbers has a relative error of at most (d + 2)·2⁻⁵³. A log-probability is a weight less a normaliser,
    rounded; the normaliser drops out of the spread, and what rounding leaves is below 2⁻⁵⁰ of the largest of them.
    """
    if step.kind == "selection":
        queries = np.concatenate([step.query, theirs.query])
        return float(2.0**-50 * np.abs(queries[np.isfinite(queries)]).max(initial=0.0))
    return float((step.query.size + 2) * 2.0**-52 * _moved(step, theirs))
