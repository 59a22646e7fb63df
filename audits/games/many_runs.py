"""The many-runs game for generators of other people: bet on runs on neighbours that hurt, and on the most revealing.

*Pairs.* Each strategy gives one pair of neighbours (`dpassay.attacks.black_box.worst_cases`). First a few pilot runs on
one more data set, a *probe* (`dpassay.attacks.black_box.probes`), may show from how many records on a value is
published; they choose one pair of each ladder, which joins the others.

*Rounds.* In each round the generator runs once on D and once on D′ of one pair. The pair is the one whose bets are
expected to grow most, given all runs before; one without a run promises what its strategy does. It is chosen anew after
1, 2, 3, 4, 6, 8, 16, 24, … rounds on a pair (`dpassay.audits.games.many_runs_rounds`).

*Bets.* A round is bet on by several events of its pair, each with a share of the wealth
(`dpassay.audits.games.event_bets`), and the anytime-valid bound of `dpassay.audits.statistics.sequential` counts them.

*Why the bound holds.* Given everything that was seen before a round, its pair and bets are fixed and its two runs are
new, so the round gains nothing on average under the claim, as the proof of the sequential bound needs. The search
therefore costs runs and no confidence, and a run may be stopped or continued at any time. It needs that runs are
independent of each other: a generator that keeps state between runs, or a fixed seed, breaks that. The proofs are in
docs/proofs/many-runs.md, theorems 1 to 4.

*Failures.* That a run fails is an outcome like any other, and it is counted. A pair is left and named once all runs on
its D failed, three or more. The same holds for D′ unless failures are asked for: the user knows whether they are seen.

Plans of version 0.2 keep their rules (`dpassay.audits.games.many_runs_halving`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from dpassay.accounting.bounds import Bound
from dpassay.attacks.black_box.feature_words import copied_in_words, in_words
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.attacks.black_box.probes import edge
from dpassay.audits.detection import Detectable, epsilon_shown
from dpassay.audits.games.event_choice import event_to_json
from dpassay.audits.games.many_runs_design import MAX_RUNS, GeneratorRun, ManyRunsDesign, Pair
from dpassay.audits.games.many_runs_halving import PairHalving, RoundsOfOnePair
from dpassay.audits.games.many_runs_power import detectable_leak, power_in_words, runs_needed
from dpassay.audits.games.many_runs_rounds import AuditRounds, RoundsOfPairs
from dpassay.audits.games.plainest_event import is_copied
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult, Rate, no_conclusion, refuted_where_concluded
from dpassay.base.number_format import format_ceiling

UNFINISHED: Final = "more runs are planned"

_EXHAUSTED: Final = "the generator failed in all runs on D, or in all on D′, of every pair that was tried"
_GAME = "the generator runs many times on D and on its neighbour D′; tell from one output which of them it read"


class ManyRuns:
    """An audit under way: says which runs it needs next, takes their results in any order, and gives the bound.

    Args:
        design: of the audit.
    """

    def __init__(self, design: ManyRunsDesign) -> None:
        self.design = design
        self._results: dict[GeneratorRun, Mapping[str, Features]] = {}
        self._halving = PairHalving(design) if design.halving else None
        self._test: AuditRounds | None = None
        self._published: dict[str, dict[int, list[bool]]] = {}

    def add(self, run: GeneratorRun, features: Mapping[str, Features]) -> None:
        """Adds the result of a run: features by the name of a pair, and those of every pair under ``""``."""
        self._results[run] = features

    def wanted(self, ahead: int = 1) -> list[GeneratorRun]:
        """The runs that are needed next, for so many rounds of the test ahead, and have no result yet; empty when the
        audit is finished."""
        if self._test is None:
            missing = [run for run in self._pilots() if run not in self._results]
            if missing:
                return missing
            self._begin()
        test = self._test
        if test is None:
            return []
        test.update(self._results)
        if test.finished:
            return []
        upcoming = test.upcoming[: min(ahead, test.most - test.rounds)]
        runs = [
            GeneratorRun("test", data, test.rounds + more)
            for more, pair in enumerate(upcoming)
            for data in (pair.data, pair.neighbor)
        ]
        return [run for run in runs if run not in self._results]

    def _pilots(self) -> list[GeneratorRun]:
        """The runs that are needed before the first round, as far as they are known."""
        if self._halving is not None:
            return self._halving.wanted(self._results)
        probe, runs = self.design.probe, range(self.design.probe_runs)
        return [] if probe is None else [GeneratorRun("pilot", probe.data, number) for number in runs]

    def _begin(self) -> None:
        """Begins the rounds; leaves that if the generator fails on all pairs of a search by halving."""
        design, halving = self.design, self._halving
        if halving is None:
            pairs = (*self._probed(), *design.pairs)
            self._test = RoundsOfPairs(design, pairs, design.probe_runs)
        elif halving.chosen is not None:
            self._test = RoundsOfOnePair(design, halving, self._results)

    def _probed(self) -> list[Pair]:
        """The pair of each ladder that the probe shows an edge of."""
        probe, added = self.design.probe, list[Pair]()
        results = [self._results[run] for run in self._pilots()]
        seen = [result for result in results if not result.get("", {}).get(FAILED)]
        if probe is None or not seen:
            return []
        for ladder in probe.ladders:
            levels = range(1, len(ladder.pairs) + 2)
            published = {
                level: [features.get(ladder.name, {}).get(str(level), 0.0) > 0 for features in seen] for level in levels
            }
            self._published[ladder.name] = published
            if (level := edge(published)) is not None:
                added.append(ladder.pairs[level - 1])
        return added

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that were made, and the most that will be."""
        return len(self._results), self.design.runs

    @property
    def stopped(self) -> str:
        """Why no more runs are needed, in words; empty if some are."""
        if self.wanted():
            return ""
        return _EXHAUSTED if self._test is None or self._test.exhausted else _stopped(self._test)

    def result(self) -> AuditResult:
        """The bound of all rounds so far; it may be read at any time."""
        self.wanted()
        test = self._test
        if test is None or test.exhausted or not (self._halving or test.rounds or test.finished):
            return self._unfinished()
        return _result(test, self._details())

    def bounds(self, confidence: float) -> tuple[Bound, ...]:
        """The bounds of `result` at another confidence than the planned one; the rounds and bets are the same."""
        made = self.result().bounds
        if self._test is None:
            return made
        state = self._test.state.at(confidence)
        value, ceiling = state.epsilon, state.ceiling(self._test.size)
        return tuple(dataclasses.replace(bound, value=value, ceiling=ceiling, confidence=confidence) for bound in made)

    def _unfinished(self) -> AuditResult:
        """The result before the first round: no bound."""
        details = self._details()
        if details["exhausted"]:
            reason = f"{_EXHAUSTED}; correct its command, ask for other neighbours, or test failures, too (--failures)"
        else:
            reason = "no round is finished, so nothing was tested"
        return AuditResult(
            name="many_runs",
            game=_GAME,
            attack="none yet",
            statistics=("sequential",),
            conclusion=no_conclusion(reason),
            trials=0,
            multiplicity=(f"{len(self._results)} runs on {len(self.design.pairs)} pairs of neighbours",),
            details=details,
        )

    def _details(self) -> dict[str, Any]:
        design, search = self.design, self._test if self._halving is None else self._halving
        compared = {} if search is None else search.compared
        possible = [pair.name for pair in design.possible_pairs]
        tried = [name for name in possible if name in compared]
        return {
            "runs": len(self._results),
            "most_runs": design.runs,
            "limit": None if design.claim is None else design.limit,
            "search": [{"pair": name, **item.to_json()} for name, item in compared.items()],
            "failing": [name for name in tried if compared[name].failing],
            "probes": [
                {"ladder": name, "published": {str(level): sum(runs) / len(runs) for level, runs in published.items()}}
                for name, published in self._published.items()
            ],
            "exhausted": search is not None and search.exhausted,
            "untried": self._untried(compared),
            "refuted": None,
        }

    def _untried(self, compared: Mapping[str, Any]) -> list[str]:
        """The pairs for which there were too few runs."""
        if self._halving is not None:
            return list(self._halving.untried)
        if self._test is None or self._test.rounds < self._test.most:
            return []
        return [pair.name for pair in self.design.pairs if pair.name not in compared]


def _result(test: AuditRounds, details: dict[str, Any]) -> AuditResult:
    design, bound = test.design, test.state.bound()
    bound = dataclasses.replace(
        bound,
        private=True,
        ceiling=test.state.ceiling(test.size),
        assumptions=(
            *bound.assumptions,
            f"D and D′ differ in one unit ({design.unit}); {test.choice}",
        ),
    )
    (out, runs_out), (inside, runs_inside) = test.counted
    return AuditResult(
        name="many_runs",
        game=_GAME,
        attack=test.attack,
        statistics=("sequential",),
        conclusion=_conclusion(test, bound),
        trials=2 * test.rounds,
        bounds=(bound,),
        rates=(
            Rate("runs on D′ with the event", inside, runs_inside),
            Rate("runs on D with the event", out, runs_out),
        ),
        multiplicity=(
            test.compared_in_words,
            "one anytime-valid bound (each bet was fixed before the round that it is counted in)",
        ),
        details={
            **details,
            "tested": {
                "pair": test.pair.name,
                "finds": test.pair.finds,
                "differs": test.pair.differs,
                **event_to_json(test.event),
            },
            **test.bets_to_json(),
            "cause": _cause(test),
            "rounds": test.rounds,
            "most_rounds": test.most,
            "pilots_each": test.earlier,
            "refuted": _refuted(test, bound),
            "detectable": None if test.refuted else _detectable(test).to_json(),
            "notes": _notes(test),
            "stopped": _stopped(test),
            "failures": {"on_data": test.failures[0], "on_neighbor": test.failures[1]},
            "bounds_by_round": test.bounds,
        },
    )


def _detectable(test: AuditRounds) -> Detectable:
    """What as many rounds detect, of which the search takes its share."""
    return detectable_leak(test.design, test.design.usual_rounds_of(test.size), test.earlier)


def _refuted(test: AuditRounds, bound: Bound) -> bool | None:
    """Whether the claim is refuted; None without a claim, or if the test was too small to say anything of it."""
    if test.design.claim is None:
        return None
    return refuted_where_concluded(test.refuted, test.refuted or _says_something(test, bound))


def _says_something(test: AuditRounds, bound: Bound) -> bool:
    """Whether as many rounds could have refuted the claim, and would have with 50 % power where every run on D′ and no
    run on D shows the record."""
    could = (bound.ceiling or 0.0) > test.design.limit
    return could and (test.design.halving or _detectable(test).share is not None)


def _cause(test: AuditRounds) -> str:
    """What gives the record away, as a clause about outputs."""
    feature = test.event.feature
    copied = is_copied(feature, test.seen, test.pair.held)
    return (copied_in_words(feature) if copied else "") or in_words(test.event)


def _stopped(test: AuditRounds) -> str:
    if test.refuted:
        return "the claim is refuted"
    if test.rounds >= test.most:
        return "all planned runs were made"
    if test.hopeless:
        return "no outcome of the other runs could refute the claim"
    return UNFINISHED


def _notes(test: AuditRounds) -> list[str]:
    """A remark on outputs that are all alike, which look like a fixed seed."""
    alike = [len(side) > 1 and all(item == side[0] for item in side) for side in test.seen]
    if not all(alike):
        return []
    return [
        "Every run on D looks the same, and so does every run on D′: the generator adds no noise, or has a fixed seed. "
        "Then the runs are not independent, and the bound is for a generator whose noise is known."
    ]


def _what_would_do(test: AuditRounds) -> str:
    """With which runs the claim could be refuted, in words."""
    needed = runs_needed(test.design)
    if needed is None or needed > MAX_RUNS:
        return f"no outcome of {MAX_RUNS} runs, the most that are possible, refutes it"
    if needed > test.design.runs:
        return f"plan at least {needed} runs (--runs)"
    if not test.ended:
        return "plan anew, and make all planned runs before the bound is computed"
    return "plan more runs (--runs), or fewer pairs of neighbours (--neighbors)"


def _shown(test: AuditRounds, bound: Bound) -> str:
    """The event, how often it happened, and the ε that this shows, as a sentence without its end."""
    event, cause = in_words(test.event), _cause(test)
    copied = f"{cause}: " if cause != event else ""
    on_d, on_d_prime = (f"{hits} of {runs}" for hits, runs in test.counted)
    others = f", {test.others} of {test.rounds} rounds were on others" if test.others else ""
    shows = "and all rounds show" if test.others else "which shows"
    return (
        f"{copied}{event}{test.earlier_events} in {on_d_prime} runs on D′ and in {on_d} on D (neighbours "
        f"{test.pair.name!r}{others}), {shows} {epsilon_shown(bound)}"
    )


def _conclusion(test: AuditRounds, bound: Bound) -> str:
    """What the rounds show, and what that says of the claim."""
    design, shown = test.design, _shown(test, bound)
    notes = "".join(f" {note}" for note in _notes(test))
    half = "" if test.refuted else power_in_words(_detectable(test))
    if design.claim is None:
        return f"{shown}. {half}{notes}"
    claimed = describe(design.claim)
    if test.refuted:
        return f"{shown}; the claim, {claimed}, is refuted.{notes}"
    if not _says_something(test, bound):
        ceiling = format_ceiling(bound.ceiling, bound.value)
        most = f"{test.size} rounds show at most ε = {ceiling}"
        if (bound.ceiling or 0.0) > design.limit:
            most += ", and hardly as much where some of them are a search"
        most += f", so nothing follows for the claim, {claimed}"
        return f"{no_conclusion(shown, most, _what_would_do(test))}{notes}"
    return f"{shown}; the claim, {claimed}, is not refuted. {half}{notes}"
