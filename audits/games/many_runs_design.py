"""What is fixed before an audit by many runs: pairs of neighbours, the number of runs, the claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import ApproxDP, PureDP
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.audits.statistics.sequential import Sequential
from dpassay.base import defaults, validate

SEARCH_SHARE: Final = 0.4
"""The fraction of the runs that the search for a pair is thought to take. A search by halving takes no more."""
MIN_RUNS: Final = 20
MAX_RUNS: Final = 10_000
"""Above it, the simulation of the power would take minutes."""

_PROBE_RUNS = ((150, 5), (50, 3))  # with so many runs or more, so many are on the probing data set

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
        halving: whether pairs are compared by pilot runs and successive halving, and only the best is tested, by one
            event at a time: the rules of plans of version 0.2.
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
    halving: bool = False

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
        """The most runs that no bet is made on: those of a probe, or of a search by halving."""
        return int(self.runs * SEARCH_SHARE) if self.halving else self.probe_runs

    @property
    def possible_pairs(self) -> tuple[Pair, ...]:
        """All pairs, those of ladders included."""
        ladders = () if self.probe is None else self.probe.ladders
        return (*self.pairs, *(pair for ladder in ladders for pair in ladder.pairs))

    @property
    def probe_runs(self) -> int:
        """The number of runs on the probing data set; none if there are few in all."""
        if self.probe is None:
            return 0
        return next((runs for least, runs in _PROBE_RUNS if self.runs >= least), 0)

    @property
    def most_rounds(self) -> int:
        """The most rounds that may be bet on; of a search by halving, if it uses all its runs."""
        return (self.runs - self.pilots) // 2

    @property
    def usual_rounds(self) -> int:
        """The rounds on one pair for which power is stated."""
        return self.usual_rounds_of(self.most_rounds)

    def usual_rounds_of(self, rounds: int) -> int:
        """Of so many rounds, those that are thought to be on the pair that tells most; the others are a search."""
        alone = self.halving or len(self.possible_pairs) == 1
        return rounds if alone else int(rounds * (1 - SEARCH_SHARE))

    @property
    def limit(self) -> float:
        """The claimed ε; 0 without a claim."""
        return 0.0 if self.claim is None else float(self.claim.epsilon)

    def state(self, earlier: int) -> Sequential:
        """The bound before the first round, after so many pilot runs on each data set."""
        return Sequential(
            delta=self.delta,
            confidence=self.confidence,
            earlier=earlier,
            adjacency=self.adjacency,
            unit=self.unit,
        )
