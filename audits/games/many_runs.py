"""The many-runs game for generators of other people: search for neighbours that hurt, then test one pair.

*Search.* Each strategy gives one pair of neighbours (`dpassay.attacks.black_box.worst_cases`). Pilot runs of the
generator compare them by successive halving: every pair gets a few runs, the better half gets more, and so on, until
one is left, or one shows more than the claim by a cautious estimate. They decide which pair is tested and which event
is looked for at first, and they set the first estimates of its rates. No bound counts them.

*Probes.* Before that, a few pilot runs on one more data set (`dpassay.attacks.black_box.probes`) show from how many
records on a value is published. They choose one pair of each ladder, which is compared with the others.

*Test.* The generator runs once on D and once on D′ in each further round, and the anytime-valid bound of
`dpassay.audits.statistics.sequential` counts on which of the two an event happened. The event of a round is fixed
before the round. After rounds 8, 16, 32, … it is chosen anew, from all runs of the pair before.

*Why the bound holds.* Given everything that was seen before a round, its event is fixed and its two runs are new, so
a bet on the round gains nothing on average under the claim, as the proof of the sequential bound needs. The search
therefore costs runs and no confidence, and a run may be stopped or continued at any time. It needs that runs are
independent of each other: a generator that keeps state between runs, or a fixed seed, breaks that. The proofs are in
docs/proofs/many-runs.md, theorems 1 to 4.

*Failures.* That a run fails is an outcome like any other, and it is counted. A pair on whose D′ every pilot run fails,
three or more if the budget allows, is left out of the search and named, unless failures are asked for: the user knows
whether a failure can be seen. A pair on whose D they all fail is never tested.
"""

from __future__ import annotations

import bisect
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.attacks.black_box.feature_words import copied_in_words, in_words, plain_threshold
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.attacks.black_box.probes import edge
from dpassay.attacks.black_box.worst_cases import REACHED, Event
from dpassay.audits.detection import Detectable, epsilon_shown
from dpassay.audits.games.distinguishing_choice import thresholds
from dpassay.audits.games.plainest_event import Candidate, is_copied, plainest
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult, Rate, no_conclusion, refuted_where_concluded
from dpassay.audits.statistics.binomial import lower_limit, upper_limit
from dpassay.audits.statistics.sequential import Sequential, simulated_bounds
from dpassay.audits.statistics.two_sample import log_bets
from dpassay.base import defaults, validate
from dpassay.base.arrays import Floats
from dpassay.base.number_format import (
    format_ceiling,
    format_number,
)

PILOT_SHARE: Final = 0.4
"""The fraction of all runs that the search may use."""
MIN_RUNS: Final = 20
MAX_RUNS: Final = 10_000
"""Above it, the simulation of the power would take minutes."""

_CHOOSE_AFTER = frozenset(2**power for power in range(3, 31))  # rounds after which the event is chosen anew
_TAIL = 0.1  # probability with which the limit of a rate may be wrong while events are compared, for all events jointly
_TINY = 1e-9
_PROBE_RUNS = ((60, 5), (20, 3))  # with so many pilot runs or more, so many are on the probing data set
_LEAST = 2  # pilot runs on each data set before a pair is left out, if there are as many
_DOUBT = 1.0  # that a pair which is one of several shows most, in the logarithm of the wealth
_ENOUGH = 12  # the same, after which a pair that is left alone is tested
_FAILURES = 3  # pilot runs of a data set that must fail, if there are as many, before its pairs are left out

Phase: TypeAlias = Literal["pilot", "test"]


class GeneratorRun(NamedTuple):
    """One run of the generator on the data set of this index: its number among those of its phase, or the round of the
    test."""

    phase: Phase
    data: int
    number: int


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair of neighbours.

    Attributes:
        name: of its strategy.
        data, neighbor: the indices of D and D′, which pairs may share.
        events: that are expected on D′ and not on D.
        finds: the faults that it aims at, in words.
        differs: what D is, and what D′ has in addition, in a sentence.
        held: the features of D and of D′ themselves, as if they were outputs; None if they are unknown. No event
            depends on them: they only say of an event whether a generator copies what it is about.
    """

    name: str
    data: int
    neighbor: int
    events: tuple[Event, ...] = ()
    finds: str = ""
    differs: str = ""
    held: tuple[Features, Features] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PairLadder:
    """Pairs of which a probe chooses one: the m-th, from 1 on, has m planted records on D."""

    name: str
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """The index of the probing data set, and the ladders that its runs choose a pair of."""

    data: int
    ladders: tuple[PairLadder, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyRunsDesign:
    """What is fixed before the first run.

    Attributes:
        pairs: of neighbours, at least one.
        probe: that may add pairs; None for none.
        by_growth: whether pairs are ranked by `PilotResult.growth`; plans of version 0.2 rank them by its value.
        runs: number of runs, pilot runs and both data sets of a pair included, from `MIN_RUNS` to `MAX_RUNS`.
        confidence: of the bound, in (0, 1).
        adjacency: of the pairs.
        unit: in which the data sets of a pair differ.
        claim: the claim; None for none.
        delta: δ at which ε is bounded; that of the claim, if there is one.
        failures: whether pairs are tested on whose D′ every pilot run fails.
        stop: whether the test stops as soon as the claim is refuted.
        plainest: whether the plainest of events that tell the data sets apart equally well is tested; plans of version
            0.2 take the first.
    """

    pairs: tuple[Pair, ...]
    runs: int
    confidence: float = defaults.CONFIDENCE
    adjacency: Adjacency = Adjacency.ADD_REMOVE
    unit: Unit = field(default_factory=Unit)
    claim: PureDP | ApproxDP | None = None
    delta: float = 0.0
    failures: bool = False
    stop: bool = True
    plainest: bool = True
    probe: ProbePlan | None = None
    by_growth: bool = True

    def __post_init__(self) -> None:
        if not self.pairs:
            raise ValueError("an audit needs at least one pair of neighbours")
        if len({pair.name for pair in self.possible_pairs}) < len(self.possible_pairs):
            raise ValueError("pairs of neighbours must have different names")
        validate.integer(minimum=MIN_RUNS, maximum=MAX_RUNS, runs=self.runs)
        validate.open_probability(confidence=self.confidence)
        validate.probability_below_one(delta=self.delta)

    @property
    def pilots(self) -> int:
        """The most pilot runs that the search uses."""
        return int(self.runs * PILOT_SHARE)

    @property
    def possible_pairs(self) -> tuple[Pair, ...]:
        """All pairs, those of ladders included."""
        ladders = () if self.probe is None else self.probe.ladders
        return (*self.pairs, *(pair for ladder in ladders for pair in ladder.pairs))

    @property
    def probe_runs(self) -> int:
        """The number of runs on the probing data set; none if the search has few."""
        if self.probe is None:
            return 0
        return next((runs for least, runs in _PROBE_RUNS if self.pilots >= least), 0)

    @property
    def most_rounds(self) -> int:
        """The most rounds of the test, if the search uses all its runs."""
        return (self.runs - self.pilots) // 2

    @property
    def limit(self) -> float:
        """The claimed ε; 0 without a claim."""
        return 0.0 if self.claim is None else float(self.claim.epsilon)

    @property
    def usual_pilots(self) -> int:
        """Pilot runs on each data set of the pair that is tested, if the first pairs show most and none fails."""
        return _usual_pilots(self)

    def state(self, earlier: int | None = None) -> Sequential:
        """The bound before the first round, after so many pilot runs on each data set; None for the most possible."""
        return Sequential(
            delta=self.delta,
            confidence=self.confidence,
            earlier=self.pilots // 2 if earlier is None else earlier,
            adjacency=self.adjacency,
            unit=self.unit,
        )


@dataclass(frozen=True, slots=True)
class Power:
    """What the test shows of a leak of known size, if the search finds the pair and the event that show it: how well
    that event tells D′ from D, in words; the chance to refute the claim (without one, to show ε > 0), by simulation;
    and the median of the bound."""

    leak: str
    chance: float
    median: float


REPETITIONS: Final = 1000
"""Simulated audits for each stated power, whose standard error is then at most 0.016."""


def _randomized_response(epsilon: float, delta: float) -> tuple[float, float]:
    """Probabilities on D and D′ of the true answer for D′, of the (ε, δ)-DP mechanism that lies least often."""
    usual = math.exp(-epsilon) / (1 + math.exp(-epsilon)) * (1 - delta)
    return usual, 1 - usual


def chance_to_refute(design: ManyRunsDesign, rounds: int, earlier: int, rates: tuple[float, float]) -> float:
    """The chance that so many rounds refute the claim; without a claim, that they show ε > 0."""
    state = design.state()
    if design.limit + state.step > state.largest:
        return 0.0
    # The largest ε is the last to be rejected; 0 stands for all below it.
    grid = np.array([0.0, design.limit + state.step])
    return float((_simulated(design, rounds, earlier, rates, grid, REPETITIONS) > design.limit).mean())


def _simulated(
    design: ManyRunsDesign, rounds: int, earlier: int, rates: tuple[float, float], grid: Floats, repetitions: int
) -> Floats:
    delta, confidence = design.delta, design.confidence
    return simulated_bounds(
        *rates, rounds, delta=delta, confidence=confidence, grid=grid, earlier=earlier, repetitions=repetitions
    )


@functools.lru_cache(maxsize=64)
def power(design: ManyRunsDesign, rounds: int, earlier: int) -> tuple[Power, ...]:
    """What a test of so many rounds shows of leaks of known size, by simulation, if the event happened as often as in
    the rounds in so many earlier pilot runs on each data set."""
    scale = design.limit or 1.0
    known = {epsilon: f"ε = {format_number(epsilon)} allows" for epsilon in (scale, 2 * scale, 4 * scale)}
    if design.claim is not None:
        claimed = f"the claim, ε = {format_number(design.limit)}, allows (a false alarm)"
        known = {design.limit: claimed} | {epsilon: words for epsilon, words in known.items() if epsilon > design.limit}
    leaks = [
        *(
            (f"as well as {words}", _randomized_response(epsilon, design.delta))
            for epsilon, words in known.items()
            if math.isfinite(epsilon)
        ),
        ("in one of ten runs on D′, and in none on D", (0.0, 0.1)),
        ("in every second run on D′, and in none on D", (0.0, 0.5)),
        ("in every run on D′, and in none on D", (0.0, 1.0)),
    ]
    grid = np.linspace(0.0, 8.0, 41)
    results = []
    for words, rates in leaks:
        median = float(np.median(_simulated(design, rounds, earlier, rates, grid, REPETITIONS // 5)))
        results.append(Power(words, chance_to_refute(design, rounds, earlier, rates), max(0.0, median)))
    return tuple(results)


@functools.lru_cache(maxsize=64)
def detectable_leak(design: ManyRunsDesign, rounds: int, earlier: int) -> Detectable:
    """The leaks that a test of so many rounds detects with 50 % power, by bisection of its simulated `power`."""

    def smallest(rates: Callable[[float], tuple[float, float]], most: float) -> float | None:
        if chance_to_refute(design, rounds, earlier, rates(most)) < 0.5:
            return None
        low, high = 0.0, most
        while high - low > most / 500:
            middle = (low + high) / 2
            chance = chance_to_refute(design, rounds, earlier, rates(middle))
            low, high = (low, middle) if chance >= 0.5 else (middle, high)
        return high

    return Detectable(
        claim=None if design.claim is None else design.limit,
        epsilon=smallest(lambda epsilon: _randomized_response(epsilon, design.delta), 10.0),
        share=smallest(lambda share: (0.0, share), 1.0),
        by_chance=0.0,
        fixed=False,
    )


def power_in_words(result: Detectable) -> str:
    """What a test detects with 50 % power, as one sentence about its event."""
    return result.sentence(
        "of the runs on D′ have the event",
        right="of the runs are attributed to the right data set by the event",
        others="and none on D",
    )


_MAX_NEEDED: Final = 2**18


def runs_needed(design: ManyRunsDesign) -> int | None:
    """A number of runs that the claim needs at least, whatever the design's own is: no outcome of fewer refutes it.
    None if 262,144 would not do.

    After p pilot runs on either side there are at most runs/2 − p rounds. As round i gains at most what the (p + i)-th
    does without pilot runs, all of them gain at most what runs/2 rounds do without.
    """
    state = design.state(0)
    rounds = bisect.bisect_left(
        range(1, _MAX_NEEDED // 2 + 1), True, key=lambda number: state.could_exceed(design.limit, number)
    )
    return max(MIN_RUNS, 2 * (rounds + 1)) if rounds < _MAX_NEEDED // 2 else None


class ManyRuns:
    """An audit under way: says which runs it needs next, takes their results in any order, and gives the bound.

    Args:
        design: of the audit.
    """

    def __init__(self, design: ManyRunsDesign) -> None:
        self.design = design
        self._results: dict[GeneratorRun, Mapping[str, Features]] = {}
        self._search = PairSearch(design)
        self._test: RunsTest | None = None

    def add(self, run: GeneratorRun, features: Mapping[str, Features]) -> None:
        """Adds the result of a run: features by the name of a pair, and those of every pair under ``""``."""
        self._results[run] = features

    def wanted(self, ahead: int = 1) -> list[GeneratorRun]:
        """The runs that are needed next, for so many rounds of the test ahead, and have no result yet; empty when the
        audit is finished."""
        if self._test is None:
            missing = [run for run in self._search.wanted(self._results) if run not in self._results]
            if missing or self._search.chosen is None:
                return missing
            self._test = RunsTest(self.design, self._search, self._results)
        test = self._test
        test.update(self._results)
        if test.finished:
            return []
        rounds = range(test.rounds, min(test.rounds + ahead, test.most))
        runs = [
            GeneratorRun("test", data, number) for number in rounds for data in (test.pair.data, test.pair.neighbor)
        ]
        return [run for run in runs if run not in self._results]

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that were made, and the most that will be."""
        return len(self._results), self.design.runs

    @property
    def stopped(self) -> str:
        """Why no more runs are needed, in words; empty if some are."""
        if self.wanted():
            return ""
        return _EXHAUSTED if self._test is None else _stopped(self._test)

    def result(self) -> AuditResult:
        """The bound of all rounds so far; it may be read at any time."""
        self.wanted()
        if self._test is None:
            return _unfinished(self.design, self._search, len(self._results))
        return _result(self.design, self._search, self._test, len(self._results))

    def bounds(self, confidence: float) -> tuple[Bound, ...]:
        """The bounds of `result` at another confidence than the planned one; the rounds and events are the same."""
        made = self.result().bounds
        if self._test is None:
            return made
        state = self._test.state.at(confidence)
        value, ceiling = state.epsilon, state.ceiling(self._test.size)
        return tuple(dataclasses.replace(bound, value=value, ceiling=ceiling, confidence=confidence) for bound in made)


@dataclass(frozen=True, slots=True)
class PilotResult:
    """What the search found about one pair.

    Attributes:
        name: of the pair.
        runs: number of pilot runs on D and on D′, which are equal.
        value: a cautious estimate of the ε that its best event shows.
        event: the best event.
        growth: what a round of the test is expected to add to the logarithm of the gambler's wealth.
        failing: the side, ``D`` or ``D′``, on which all these runs failed, so that the pair is not tested; or empty.
    """

    name: str
    runs: tuple[int, int]
    value: float
    event: Event
    growth: float
    failing: str = ""


class PairSearch:
    """Successive halving over the pairs. Its answers depend on the results only, not on the order they came in."""

    def __init__(self, design: ManyRunsDesign) -> None:
        self._design = design
        self._known: dict[tuple[str, int, int], PilotResult] = {}
        self.chosen: PilotResult | None = None
        self.compared: dict[str, PilotResult] = {}
        self.used = 0
        self.exhausted = False
        self.failing: dict[str, str] = {}
        self.untried: tuple[str, ...] = ()
        self.pairs = design.pairs
        self.published: dict[str, dict[int, list[bool]]] = {}

    def wanted(self, results: Mapping[GeneratorRun, Mapping[str, Features]]) -> list[GeneratorRun]:
        """The pilot runs that the search needs so far; once all have results, `chosen` is set."""
        design = self._design
        probing = [] if design.probe is None else _pilots({design.probe.data: design.probe_runs})
        if any(run not in results for run in probing):
            return probing
        self._probe(results, probing)
        budget = design.pilots - len(probing)
        survivors = list(self.pairs)
        while len(_data_sets(survivors)) > budget:
            survivors.pop()
        self.untried = tuple(pair.name for pair in self.pairs[len(survivors) :])
        counts = dict.fromkeys(_data_sets(survivors), 0)
        while True:
            data_sets = _data_sets(survivors)
            rounds = max(1, math.ceil(math.log2(len(survivors))) + 1)
            left = budget - sum(counts.values())
            each = left // (rounds * len(data_sets))
            if not any(counts.values()):
                each = max(each, _LEAST if design.by_growth and _LEAST * len(data_sets) <= left else 1)
            if len(survivors) == 1 and design.by_growth:
                each = min(each, max(_ENOUGH - min(counts[data] for data in data_sets), 0))
            if each == 0 and len(survivors) > 1 and design.by_growth:
                survivors = _kept(survivors, math.ceil(len(survivors) / 2))
                continue
            if each == 0:
                break
            for data in data_sets:
                counts[data] += each
            while True:
                wanted = _pilots(counts)
                if any(run not in results for run in wanted):
                    return wanted
                again = [data for data in data_sets if counts[data] < _FAILURES and _all_failed(data, counts, results)]
                if not again or sum(counts.values()) + len(again) > budget:
                    break
                for data in again:
                    counts[data] += 1
            for pair in survivors:
                key = (pair.name, counts[pair.data], counts[pair.neighbor])
                if key not in self._known:
                    self._known[key] = _compare(design, pair, results, counts)
                self.compared[pair.name] = self._known[key]
            ranked = [pair for pair in survivors if not self.compared[pair.name].failing]
            ranked.sort(key=lambda pair: -self._rank(self.compared[pair.name]))
            if len(survivors) == 1 or not ranked:
                survivors = ranked
                break
            best = max(ranked, key=lambda pair: self.compared[pair.name].value)
            if design.claim is not None and self.compared[best.name].value > design.limit:
                survivors = [best]  # good enough: the other runs are better spent on the test
                break
            survivors = _kept(ranked, math.ceil(len(survivors) / 2))
        self.failing = {item.name: item.failing for item in self.compared.values() if item.failing}
        self.used = sum(counts.values()) + len(probing)
        if not survivors:  # those that were left fail, but others may not
            others = [item for item in self.compared.values() if not item.failing]
            self.chosen = max(others, key=self._rank, default=None)
        else:
            self.chosen = self.compared[survivors[0].name]
        self.exhausted = self.chosen is None
        return [*probing, *_pilots(counts)]

    def _rank(self, outcome: PilotResult) -> float:
        return outcome.growth if self._design.by_growth else outcome.value

    def _probe(self, results: Mapping[GeneratorRun, Mapping[str, Features]], runs: Sequence[GeneratorRun]) -> None:
        """Adds the pair of each ladder that the probe shows an edge of, before the others."""
        probe = self._design.probe
        seen = [results[run] for run in runs if not results[run].get("", {}).get(FAILED)]
        if probe is None or not seen:
            return
        added = []
        for ladder in probe.ladders:
            levels = range(1, len(ladder.pairs) + 2)
            published = {
                level: [features.get(ladder.name, {}).get(str(level), 0.0) > 0 for features in seen] for level in levels
            }
            self.published[ladder.name] = published
            if (level := edge(published)) is not None:
                added.append(ladder.pairs[level - 1])
        self.pairs = (*added, *self._design.pairs)


def _kept(ranked: Sequence[Pair], number: int) -> list[Pair]:
    """So many of the best pairs. While there are several, one whose record shows in every column is among them."""
    kept = list(ranked[:number])
    whole = [pair for pair in ranked if _shows_everywhere(pair)]
    if number > 1 and whole and whole[0] not in kept:
        kept[-1] = whole[0]
    return kept


def _shows_everywhere(pair: Pair) -> bool:
    """Whether the target shows in every column. Noise that is too small is seen on such a pair as well as on any, but
    not in few runs, so it is the one to test if nothing else stands out."""
    return any(event.feature == REACHED for event in pair.events)


@functools.lru_cache(maxsize=64)
def _usual_pilots(design: ManyRunsDesign) -> int:
    search, every = PairSearch(design), range(design.pilots)
    probed = [] if design.probe is None else [design.probe.data]
    blank: dict[GeneratorRun, Mapping[str, Features]] = {
        GeneratorRun("pilot", data, number): {} for data in (*_data_sets(design.pairs), *probed) for number in every
    }
    search.wanted(blank)
    return max(search.chosen.runs) if search.chosen is not None else 0


def _pilots(counts: Mapping[int, int]) -> list[GeneratorRun]:
    """So many pilot runs on each data set."""
    return [GeneratorRun("pilot", data, number) for data, count in counts.items() for number in range(count)]


def _all_failed(data: int, counts: Mapping[int, int], results: Mapping[GeneratorRun, Mapping[str, Features]]) -> bool:
    return all(results[run].get("", {}).get(FAILED) for run in _pilots({data: counts[data]}))


def _data_sets(pairs: Sequence[Pair]) -> list[int]:
    return list(dict.fromkeys(data for pair in pairs for data in (pair.data, pair.neighbor)))


def _compare(
    design: ManyRunsDesign,
    pair: Pair,
    results: Mapping[GeneratorRun, Mapping[str, Features]],
    counts: Mapping[int, int],
) -> PilotResult:
    runs = counts[pair.data], counts[pair.neighbor]
    sides = _pilots_of(pair, results, runs)
    fails = [all(item.get(FAILED) for item in side) for side in sides]
    failing = "D" if fails[0] else "D′" if fails[1] and not design.failures else ""
    value, event = _chosen_event(design, pair, sides)
    growth = _growth(design, pair, sides, event)
    return PilotResult(
        pair.name, runs, -math.inf if failing else value, event, -math.inf if failing else growth, failing
    )


def _growth(
    design: ManyRunsDesign, pair: Pair, sides: tuple[Sequence[Features], Sequence[Features]], event: Event
) -> float:
    """What a round is expected to add to the logarithm of the wealth against the claim, with the best of the expected
    events or with the chosen one.

    An event that was chosen among m seems better than it is. So log m is taken off what all runs would add, and
    `_DOUBT` if the pair is one of several that nothing speaks for: no probe, and not that its target shows everywhere.
    """
    rounds, expected = min(map(len, sides)), _expected(design, pair)
    grown = np.array([math.exp(min(design.limit, 64.0))])
    features = {name for side in sides for item in side for name in item}
    best = -math.inf
    for candidate in dict.fromkeys((*expected, event)):
        hits = [sum(_happened(candidate, item) for item in side) for side in sides]
        rates = [(some + 0.5) / (len(side) + 1) for some, side in zip(hits, sides, strict=True)]
        hit, miss = log_bets(np.array(rates[0]), np.array(rates[1]), grown, design.delta)
        gained = sum(rate * float(hit[side, 0]) + (1 - rate) * float(miss[side, 0]) for side, rate in enumerate(rates))
        tried = len(expected) if candidate in expected else len(features) * (rounds + 1)
        best = max(best, gained - math.log(max(1, tried)) / rounds)
    return best if _shows_everywhere(pair) or pair not in design.pairs else best - _DOUBT / rounds


def _pilots_of(
    pair: Pair, results: Mapping[GeneratorRun, Mapping[str, Features]], runs: tuple[int, int]
) -> tuple[list[Features], list[Features]]:
    """The features of so many pilot runs on D and on D′."""

    def side(data: int, most: int) -> list[Features]:
        return [_of_pair(results[GeneratorRun("pilot", data, number)], pair.name) for number in range(most)]

    return side(pair.data, runs[0]), side(pair.neighbor, runs[1])


def _expected(design: ManyRunsDesign, pair: Pair) -> tuple[Event, ...]:
    return (*pair.events, Event(FAILED, 1.0)) if design.failures else pair.events


def _of_pair(features: Mapping[str, Features], name: str) -> Features:
    return {**features.get("", {}), **features.get(name, {})}


def _chosen_event(
    design: ManyRunsDesign, pair: Pair, sides: tuple[Sequence[Features], Sequence[Features]]
) -> tuple[float, Event]:
    return choose_event(*sides, _expected(design, pair), design.delta, plainest_wins=design.plainest, held=pair.held)


def choose_event(
    on_d: Sequence[Features],
    on_d_prime: Sequence[Features],
    expected: Sequence[Event],
    delta: float,
    *,
    plainest_wins: bool = True,
    held: tuple[Features, Features] | None = None,
) -> tuple[float, Event]:
    """The event with the largest cautious estimate of the ε that it shows at δ, and that estimate, which may be
    negative, from features of at least one run on D and one on D′.

    A rate is estimated by its exact limit at an error probability that is divided among the events that are compared:
    those that were expected before the runs among each other, and all thresholds on all features among each other. So
    an event that was expected needs fewer runs to stand out.

    If the plainest wins, the event is the plainest one that is as good (`dpassay.audits.games.plainest_event`).
    """
    names = sorted({name for features in (*on_d, *on_d_prime) for name in features})
    out, inside = (_matrix(side, names) for side in (on_d, on_d_prime))
    found: list[Candidate] = []
    varied = [position for position in range(len(names)) if len(set(out[:, position]) | set(inside[:, position])) > 1]
    candidates: list[tuple[str, Floats, int, float]] = []
    for event in expected:
        if event.feature in names:
            tail = _TAIL / len(expected)
            candidates.append((event.feature, np.array([event.threshold]), names.index(event.feature), tail))
    for position in varied:
        between = thresholds(np.concatenate([out[:, position], inside[:, position]]))[1:]  # not that below all values
        candidates.append((names[position], between, position, _TAIL / len(varied)))
    for feature, tried, position, tail in candidates:
        fp, tp = (
            side.shape[0] - np.searchsorted(np.sort(side[:, position]), tried, side="left") for side in (out, inside)
        )
        values = _estimates(tp, inside.shape[0], fp, out.shape[0], delta, tail)
        index = int(np.argmax(values))
        gap = abs(tp[index] / inside.shape[0] - fp[index] / out.shape[0])
        event, hits = Event(feature, float(tried[index])), (int(fp[index]), int(tp[index]))
        if plainest_wins:
            seen = np.concatenate([out[:, position], inside[:, position]])
            event = plain_threshold(event, float(max(seen[seen < event.threshold], default=-math.inf)))
        found.append(Candidate(event, float(values[index]), float(gap), hits))
    if not found:
        return -math.inf, expected[0] if expected else Event(FAILED, 1.0)
    best = max(found, key=lambda candidate: (candidate.value, candidate.gap))
    if not plainest_wins:
        return best.value, best.event
    runs, tail = (out.shape[0], inside.shape[0]), _TAIL / max(1, len(varied))

    def estimate(candidate: Candidate) -> float:
        off, on = (np.array([count]) for count in candidate.hits)
        return float(_estimates(on, runs[1], off, runs[0], delta, tail)[0])

    def copied(feature: str) -> bool:
        return is_copied(feature, (on_d, on_d_prime), held)

    if best.event.feature == REACHED:  # losses of columns add up; one column alone is no plainer name of that
        found = [candidate for candidate in found if candidate.hits in ((0, runs[1]), (runs[0], 0))]
    return best.value, plainest(found, best, runs, estimate, copied).event


def _matrix(side: Sequence[Features], names: Sequence[str]) -> Floats:
    """Shape (runs, features); −∞ where a run has no such feature."""
    return np.array([[features.get(name, -math.inf) for name in names] for features in side]).reshape(len(side), -1)


@functools.lru_cache(maxsize=256)
def _limits(trials: int, tail: float) -> tuple[Floats, Floats]:
    hits = np.arange(trials + 1)
    return lower_limit(hits, trials, tail), upper_limit(hits, trials, tail)


def _estimates(tp: Any, inside: int, fp: Any, outside: int, delta: float, tail: float) -> Floats:
    """Cautious estimates of ε for events with these counts, in the better direction of the event or its complement."""
    (low_in, up_in), (low_out, up_out) = _limits(inside, tail), _limits(outside, tail)
    ratios = [
        (low_in[tp], up_out[fp]),
        (low_out[fp], up_in[tp]),
        (low_in[inside - tp], up_out[outside - fp]),
        (low_out[outside - fp], up_in[inside - tp]),
    ]
    estimates = [np.log(np.maximum(more - delta, _TINY)) - np.log(less) for more, less in ratios]
    return np.asarray(np.max(estimates, axis=0))


def _happened(event: Event, features: Features) -> bool:
    return features.get(event.feature, -math.inf) >= event.threshold


class RunsTest:
    """The rounds of the test so far, in order, up to the first that has no result."""

    def __init__(
        self, design: ManyRunsDesign, search: PairSearch, results: Mapping[GeneratorRun, Mapping[str, Features]]
    ) -> None:
        chosen = search.chosen
        assert chosen is not None
        self.design = design
        self.pair = next(pair for pair in search.pairs if pair.name == chosen.name)
        self.seen = _pilots_of(self.pair, results, chosen.runs)
        self.earlier = max(chosen.runs)
        self.pilots = search.used
        self.most = (design.runs - self.pilots) // 2
        self.state = design.state(self.earlier)
        self.events = [(0, chosen.event)]
        self._expect(chosen.event)
        self.hits = [0, 0]
        self.failures = [0, 0]
        self.bounds: list[float] = []

    @property
    def rounds(self) -> int:
        return self.state.rounds

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.design.claim is not None and self.state.epsilon > self.design.limit

    @property
    def ended(self) -> bool:
        """Whether the test is over by its own rule, and not because no more runs were made."""
        return self.rounds >= self.most or self.refuted or self.hopeless

    @property
    def finished(self) -> bool:
        return self.ended if self.design.stop else self.rounds >= self.most

    @property
    def hopeless(self) -> bool:
        """Whether no outcome of the rounds that are left could refute the claim. If so, it stays so."""
        return self.design.claim is not None and not self.state.could_exceed(self.design.limit, self.most - self.rounds)

    @property
    def size(self) -> int:
        """The number of rounds for which power and ceiling are stated: those that were planned, unless it was cut."""
        return self.most if self.ended and not self.refuted else self.rounds

    def _expect(self, event: Event) -> None:
        """Tells the gambler what an event did in all runs of the pair so far."""
        hits = [sum(_happened(event, features) for features in side) for side in self.seen]
        self.state.expect(*((some, len(side)) for some, side in zip(hits, self.seen, strict=True)))

    def update(self, results: Mapping[GeneratorRun, Mapping[str, Features]]) -> None:
        """Counts the rounds whose two runs have results, in order."""
        while not self.finished:
            runs = [GeneratorRun("test", data, self.rounds) for data in (self.pair.data, self.pair.neighbor)]
            if any(run not in results for run in runs):
                return
            if self.rounds in _CHOOSE_AFTER:
                _, event = _chosen_event(self.design, self.pair, self.seen)
                self.events.append((self.rounds, event))
                self._expect(event)
            event = self.events[-1][1]
            collected = [_of_pair(results[run], self.pair.name) for run in runs]
            happened = [_happened(event, features) for features in collected]
            self.state.update(happened[0], happened[1])
            for side in (0, 1):
                self.hits[side] += happened[side]
                self.failures[side] += bool(collected[side].get(FAILED))
                self.seen[side].append(collected[side])
            self.bounds.append(self.state.epsilon)


_EXHAUSTED: Final = "the generator failed in all pilot runs on D, or in all on D′, of every pair that was tried"


def _unfinished(design: ManyRunsDesign, search: PairSearch, made: int) -> AuditResult:
    """The result before the first round of the test: no bound."""
    if search.exhausted:
        reason = f"{_EXHAUSTED}; correct its command, ask for other neighbours, or test failures, too (--failures)"
    else:
        reason = "the search for neighbours is not finished, so nothing was tested"
    return AuditResult(
        name="many_runs",
        game=_GAME,
        attack="none yet",
        statistics=("sequential",),
        conclusion=no_conclusion(reason),
        trials=0,
        multiplicity=(f"{made} pilot runs on {len(search.pairs)} pairs of neighbours",),
        details=_details(design, search, made),
    )


_GAME = "the generator runs many times on D and on its neighbour D′; tell from one output which of them it read"


def _result(design: ManyRunsDesign, search: PairSearch, test: RunsTest, made: int) -> AuditResult:
    bound = test.state.bound()
    bound = dataclasses.replace(
        bound,
        private=True,
        ceiling=test.state.ceiling(test.size),
        assumptions=(
            *bound.assumptions,
            f"D and D′ differ in one unit ({design.unit}); the pair was chosen on pilot runs, which are not counted",
        ),
    )
    event = test.events[-1][1]
    return AuditResult(
        name="many_runs",
        game=_GAME,
        attack=f"the event is that {in_words(event)}"
        + (f", the last of {len(test.events)} choices" if len(test.events) > 1 else ""),
        statistics=("sequential",),
        conclusion=_conclusion(design, test, bound),
        trials=2 * test.rounds,
        bounds=(bound,),
        rates=(
            Rate("runs on D′ with the event", test.hits[1], test.rounds),
            Rate("runs on D with the event", test.hits[0], test.rounds),
        ),
        multiplicity=(
            f"{len(search.compared)} pairs of neighbours were compared on {test.pilots} pilot runs, which no bound "
            "counts; one pair was tested",
            "one anytime-valid bound (each event was fixed before the rounds that it is counted in)",
        ),
        details={
            **_details(design, search, made),
            "tested": {"pair": test.pair.name, "finds": test.pair.finds, "differs": test.pair.differs},
            "events": [{"from_round": start, **_event_to_json(item)} for start, item in test.events],
            "cause": _cause(test),
            "rounds": test.rounds,
            "most_rounds": test.most,
            "pilots_each": test.earlier,
            "refuted": _refuted(design, test, bound),
            "detectable": None if test.refuted else detectable_leak(design, test.size, test.earlier).to_json(),
            "notes": _notes(test),
            "stopped": _stopped(test),
            "failures": {"on_data": test.failures[0], "on_neighbor": test.failures[1]},
            "bounds_by_round": test.bounds,
        },
    )


def _refuted(design: ManyRunsDesign, test: RunsTest, bound: Bound) -> bool | None:
    """Whether the claim is refuted; None without a claim, or if the test was too small to say anything of it."""
    return None if design.claim is None else refuted_where_concluded(test.refuted, _says_something(design, bound))


def _says_something(design: ManyRunsDesign, bound: Bound) -> bool:
    """Whether as many rounds could have refuted the claim."""
    return (bound.ceiling or 0.0) > design.limit


def _event_to_json(event: Event) -> dict[str, Any]:
    return {"feature": event.feature, "threshold": _finite(event.threshold), "event": in_words(event)}


def _cause(test: RunsTest) -> str:
    """What gives the record away, as a clause about outputs."""
    feature = test.events[-1][1].feature
    copied = is_copied(feature, test.seen, test.pair.held)
    return (copied_in_words(feature) if copied else "") or in_words(test.events[-1][1])


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.copysign(1e300, value)


def _details(design: ManyRunsDesign, search: PairSearch, made: int) -> dict[str, Any]:
    return {
        "runs": made,
        "most_runs": design.runs,
        "limit": None if design.claim is None else design.limit,
        "search": [
            {
                "pair": item.name,
                "runs_on_data": item.runs[0],
                "runs_on_neighbor": item.runs[1],
                "estimate": item.value if math.isfinite(item.value) else None,
                **({"feature": None, "threshold": None, "event": ""} if item.failing else _event_to_json(item.event)),
                "failing_on": item.failing or None,
            }
            for item in search.compared.values()
        ],
        "failing": [pair.name for pair in search.pairs if pair.name in search.failing],
        "probes": [
            {"ladder": name, "published": {str(level): sum(runs) / len(runs) for level, runs in published.items()}}
            for name, published in search.published.items()
        ],
        "exhausted": search.exhausted,
        "untried": list(search.untried),
        "refuted": None,
    }


UNFINISHED: Final = "more runs are planned"


def _stopped(test: RunsTest) -> str:
    if test.refuted:
        return "the claim is refuted"
    if test.rounds >= test.most:
        return "all planned runs were made"
    if test.hopeless:
        return "no outcome of the other runs could refute the claim"
    return UNFINISHED


def _notes(test: RunsTest) -> list[str]:
    """A remark on outputs that are all alike, which look like a fixed seed."""
    alike = [len(side) > 1 and all(item == side[0] for item in side) for side in test.seen]
    if not all(alike):
        return []
    return [
        "Every run on D looks the same, and so does every run on D′: the generator adds no noise, or has a fixed seed. "
        "Then the runs are not independent, and the bound is for a generator whose noise is known."
    ]


def _what_would_do(design: ManyRunsDesign, test: RunsTest) -> str:
    """With which runs the claim could be refuted, in words."""
    needed = runs_needed(design)
    if needed is None or needed > MAX_RUNS:
        return f"no outcome of {MAX_RUNS} runs, the most that are possible, refutes it"
    if needed > design.runs:
        return f"plan at least {needed} runs (--runs)"
    if not test.ended:
        return "plan anew, and make all planned runs before the bound is computed"
    return "plan more runs (--runs), or fewer pairs of neighbours (--neighbors)"


def _shown(test: RunsTest, bound: Bound) -> str:
    """The event, how often it happened, and the ε that this shows, as a sentence without its end."""
    event, cause = in_words(test.events[-1][1]), _cause(test)
    copied = f"{cause}: " if cause != event else ""
    happened = [
        sum(_happened(test.events[-1][1], run) for run in side[len(side) - test.rounds :]) for side in test.seen
    ]
    earlier = "" if happened == test.hits else ", or the event of earlier rounds happened,"
    on_d, on_d_prime = (f"{hits} of {test.rounds}" for hits in test.hits)
    return (
        f"{copied}{event}{earlier} in {on_d_prime} runs on D′ and in {on_d} on D (neighbours {test.pair.name!r}), "
        f"which shows {epsilon_shown(bound)}"
    )


def _conclusion(design: ManyRunsDesign, test: RunsTest, bound: Bound) -> str:
    """What the test of one pair shows, and what it says of the claim."""
    shown = _shown(test, bound)
    notes = "".join(f" {note}" for note in _notes(test))
    half = "" if test.refuted else power_in_words(detectable_leak(design, test.size, test.earlier))
    if design.claim is None:
        return f"{shown}. {half}{notes}"
    claimed = describe(design.claim)
    if test.refuted:
        return f"{shown}; the claim, {claimed}, is refuted.{notes}"
    if not _says_something(design, bound):
        ceiling = format_ceiling(bound.ceiling, bound.value)
        most = f"{test.size} rounds show at most ε = {ceiling}, so nothing follows for the claim, {claimed}"
        return f"{no_conclusion(shown, most, _what_would_do(design, test))}{notes}"
    return f"{shown}; the claim, {claimed}, is not refuted. {half}{notes}"
