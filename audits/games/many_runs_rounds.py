"""The rounds of an audit by many runs: each is one run on D and one on its neighbour D′, bet on before it is seen."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from dpassay.attacks.black_box.feature_words import in_words
from dpassay.attacks.black_box.output_events import IN_ALL_COLUMNS, Event
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.audits.games.event_bets import (
    EXPECTED_ODDS,
    MOST_BETS,
    EventBets,
    EventCounts,
    Sides,
    choose_bets,
    log_factors,
)
from dpassay.audits.games.event_choice import (
    choose_event,
    chosen_event,
    event_to_json,
    expected_events,
    happened,
    of_pair,
)
from dpassay.audits.games.many_runs_design import GeneratorRun, ManyRunsDesign, Pair

FAILURES: Final = 3
"""Runs on a data set that must fail, if there are as many, before its pairs are left out."""

_EVERYWHERE_ODDS = 1.0  # that a record which shows in every column is seen by their number
_COLUMN_ODDS = 0.3  # that it is seen by one column
_PROBED_ODDS = 0.5  # that an event tells a pair apart which a probe added
_AT_ONCE = 4  # pairs without a round that get their first one before any of them is looked at

Results = Mapping[GeneratorRun, Mapping[str, Features]]


@dataclass(frozen=True, slots=True)
class PairFindings:
    """What runs on one pair showed.

    Attributes:
        runs: number of runs on D and on D′.
        value: a cautious estimate of the ε that its best event shows; −∞ if it is not tested.
        event: the best event.
        failing: the side, ``D`` or ``D′``, on which all runs failed, so that the pair is not tested; or empty.
    """

    runs: tuple[int, int]
    value: float
    event: Event
    failing: str = ""

    @classmethod
    def of(cls, design: ManyRunsDesign, pair: Pair, seen: Sides, failing: str) -> PairFindings:
        """From the features of runs on D and on D′."""
        value, event = chosen_event(design, pair, seen)
        return cls((len(seen[0]), len(seen[1])), -math.inf if failing else value, event, failing)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types."""
        event = {"feature": None, "threshold": None, "event": ""} if self.failing else event_to_json(self.event)
        return {
            "runs_on_data": self.runs[0],
            "runs_on_neighbor": self.runs[1],
            "estimate": self.value if math.isfinite(self.value) else None,
            **event,
            "failing_on": self.failing or None,
        }


def failing_side(design: ManyRunsDesign, seen: Sides, least: int) -> str:
    """The side on which all runs failed, of at least so many, so that the pair is not tested; or empty."""
    fails = [len(side) >= least and all(features.get(FAILED) for features in side) for side in seen]
    return "D" if fails[0] else "D′" if fails[1] and not design.failures else ""


class AuditRounds(abc.ABC):
    """The rounds so far, in order, up to the first that has no result.

    Attributes:
        pair: on which most was won against the claim; if nothing was, of most rounds.
        pilots: number of runs that are not bet on.
        earlier: the most of them on one data set of a pair.
        most: the most rounds.
        state: the bound.
        bounds: after every round.
        failures: number of runs of rounds that failed, on D and on D′.
    """

    pair: Pair

    def __init__(self, design: ManyRunsDesign, pilots: int, earlier: int) -> None:
        self.design, self.pilots, self.earlier = design, pilots, earlier
        self.most = (design.runs - pilots) // 2
        self.state = design.state(earlier)
        self.bounds: list[float] = []
        self.failures = [0, 0]

    @property
    def rounds(self) -> int:
        """The number of rounds so far."""
        return self.state.rounds

    @property
    def refuted(self) -> bool:
        """Whether the bound exceeds the claim."""
        return self.design.claim is not None and self.state.epsilon > self.design.limit

    @property
    def hopeless(self) -> bool:
        """Whether no outcome of the rounds that are left could refute the claim. If so, it stays so."""
        return self.design.claim is not None and not self.state.could_exceed(self.design.limit, self.most - self.rounds)

    @property
    def ended(self) -> bool:
        """Whether the test is over by its own rule, and not because no more runs were made."""
        return self.rounds >= self.most or self.refuted or self.hopeless or self.exhausted

    @property
    def finished(self) -> bool:
        """Whether no more runs are asked for."""
        return self.ended if self.design.stop else self.rounds >= self.most or self.exhausted

    @property
    def size(self) -> int:
        """The number of rounds for which the ceiling is stated: those that were planned, unless it was cut."""
        return self.most if self.ended and not self.refuted else self.rounds

    def update(self, results: Results) -> None:
        """Counts the rounds whose two runs have results, in order."""
        while not self.finished:
            self.look()
            if self.exhausted:
                return
            pair = self.upcoming[0]
            runs = [GeneratorRun("test", data, self.rounds) for data in (pair.data, pair.neighbor)]
            if any(run not in results for run in runs):
                return
            self.count(results[runs[0]], results[runs[1]])
            for side in (0, 1):
                self.failures[side] += bool(results[runs[side]].get("", {}).get(FAILED))
            self.bounds.append(self.state.epsilon)

    @property
    def others(self) -> int:
        """The number of rounds on other pairs."""
        return 0

    @property
    def exhausted(self) -> bool:
        """Whether the generator failed on D or on D′ of every pair that was tried."""
        return False

    @property
    @abc.abstractmethod
    def seen(self) -> Sides:
        """The features of all runs on the pair."""

    @property
    @abc.abstractmethod
    def event(self) -> Event:
        """What tells D′ from D."""

    @property
    @abc.abstractmethod
    def counted(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """In how many runs on D the event happened, of how many; and the same on D′."""

    @property
    @abc.abstractmethod
    def compared(self) -> dict[str, PairFindings]:
        """What was seen of every pair that was tried."""

    @property
    @abc.abstractmethod
    def upcoming(self) -> Sequence[Pair]:
        """The pairs of the next rounds, as far as they are fixed, at least one."""

    @property
    @abc.abstractmethod
    def attack(self) -> str:
        """How D′ is told from D, in words."""

    @property
    def choice(self) -> str:
        """When the pair of a round was chosen, as a clause of the bound's assumptions."""
        return "pair and bets of each round were fixed before it"

    @property
    def earlier_events(self) -> str:
        """That the numbers of `counted` are of several events, as a clause; empty if they are not."""
        return ""

    @property
    @abc.abstractmethod
    def compared_in_words(self) -> str:
        """How many pairs were compared, and tested."""

    @abc.abstractmethod
    def bets_to_json(self) -> dict[str, Any]:
        """The bets of every round as plain JSON types, from which the bound can be computed again."""

    @abc.abstractmethod
    def look(self) -> None:
        """Chooses pair and bets of the next round anew, where that is due."""

    @abc.abstractmethod
    def count(self, on_d: Mapping[str, Features], on_d_prime: Mapping[str, Features]) -> None:
        """Counts one round on the pair."""


class RoundsOfPairs(AuditRounds):
    """Rounds on the pair that promises most by then, each bet on by several events.

    Args:
        design: of the audit.
        pairs: that may be tested, those that a probe added first.
        pilots: number of runs of the probe.

    Attributes:
        chosen: from which round on which pair was bet on, and how.
    """

    def __init__(self, design: ManyRunsDesign, pairs: Sequence[Pair], pilots: int) -> None:
        super().__init__(design, pilots, earlier=0)
        self.pair = self._next = pairs[0]
        self.chosen: list[tuple[int, str, EventBets]] = []
        self._pairs = {pair.name: pair for pair in pairs}
        self._seen: dict[str, tuple[list[Features], list[Features]]] = {name: ([], []) for name in self._pairs}
        self._rounds = dict.fromkeys(self._pairs, 0)
        self._bets: dict[str, EventBets] = {}
        self._next_look = 0
        self._queue: list[str] = []
        self._all_fail = False
        self._named: dict[int, Event] = {}
        self._won = dict.fromkeys(self._pairs, 0.0)
        self._hits = EventCounts((), ([], []))

    @property
    def others(self) -> int:
        return self.rounds - self._rounds[self.pair.name]

    @property
    def seen(self) -> Sides:
        return self._seen[self.pair.name]

    @property
    def event(self) -> Event:
        if self.rounds not in self._named:
            bets = self._chosen(self.pair).bets
            likeliest = (max(bets, key=lambda bet: bet.share).event,) if bets else self.pair.events
            _, event = choose_event(*self.seen, likeliest, self.design.delta, held=self.pair.held)
            self._named = {self.rounds: event}
        return self._named[self.rounds]

    @property
    def counted(self) -> tuple[tuple[int, int], tuple[int, int]]:
        event = self.event
        on_d, on_d_prime = ((sum(happened(event, run) for run in side), len(side)) for side in self.seen)
        return on_d, on_d_prime

    @property
    def upcoming(self) -> Sequence[Pair]:
        rounds = max(1, self._next_look - self.rounds)
        return [self._next] * rounds + [self._pairs[name] for name in self._queue]

    @property
    def hopeless(self) -> bool:
        return self.rounds > 0 and super().hopeless  # so that there is something to show

    @property
    def exhausted(self) -> bool:
        over = self._all_fail or self.rounds >= self.most or self.hopeless
        if not over or self.refuted or sum(self.failures) < FAILURES:
            return False
        return all(failing_side(self.design, seen, 1) for name, seen in self._seen.items() if self._rounds[name])

    @property
    def compared(self) -> dict[str, PairFindings]:
        return {
            name: PairFindings.of(self.design, self._pairs[name], seen, failing_side(self.design, seen, 1))
            for name, seen in self._seen.items()
            if self._rounds[name]
        }

    @property
    def attack(self) -> str:
        return f"bets on up to {MOST_BETS} events at a time; what tells most is that {in_words(self.event)}"

    @property
    def compared_in_words(self) -> str:
        tried = sum(1 for made in self._rounds.values() if made)
        return (
            f"{tried} of {len(self._pairs)} pairs of neighbours {'was' if tried == 1 else 'were'} tested, each "
            "round on the one that promised most"
            f"{f'; no bound counts {self.pilots} pilot runs' if self.pilots else ''}"
        )

    def bets_to_json(self) -> dict[str, Any]:
        bets = [
            {"from_round": start, "pair": name, "bets": [bet.to_json() for bet in chosen.bets]}
            for start, name, chosen in self.chosen
            if start < self.rounds
        ]
        return {"bets": bets}

    def look(self) -> None:
        if self.rounds < self._next_look:
            return
        for name, pair in self._pairs.items():
            if name not in self._bets:
                self._bets[name] = self._chosen(pair)
        if not self._queue:
            ranked = sorted(self._bets, key=lambda name: -self._bets[name].growth)[:_AT_ONCE]
            self._all_fail = self._bets[ranked[0]].growth == -math.inf
            alike = [
                name
                for name in ranked
                if self._bets[name].growth == self._bets[ranked[0]].growth and not self._rounds[name]
            ]
            new = not self._rounds[ranked[0]]
            self._queue = alike if new else ranked[:1]
        name = self._queue.pop(0)
        self._next = self._pairs[name]
        self.chosen.append((self.rounds, name, self._bets[name]))
        self._hits = EventCounts(self._bets[name].bets, self._seen[name])
        self._next_look = self.rounds + _until_next_look(self._rounds[name])

    def count(self, on_d: Mapping[str, Features], on_d_prime: Mapping[str, Features]) -> None:
        tested, grid = self._next, self.state.grid
        new, seen = (of_pair(on_d, tested.name), of_pair(on_d_prime, tested.name)), self._seen[tested.name]
        factors = log_factors(self.chosen[-1][2].bets, seen, new, grid, self.design.delta, self._hits)
        self.state.bet(factors)
        self._hits.add(new)
        self._rounds[tested.name] += 1
        self._won[tested.name] += float(factors[min(int(np.searchsorted(grid, self.design.limit)), grid.size - 1)])
        ranks: Mapping[str, float] = self._won if max(self._won.values()) > 0 else self._rounds
        self.pair = self._pairs[max(ranks, key=lambda name: ranks[name])]
        for data, features in ((tested.data, on_d), (tested.neighbor, on_d_prime)):
            for name, pair in self._pairs.items():
                for side, own in enumerate((pair.data, pair.neighbor)):
                    if own == data:
                        self._seen[name][side].append(of_pair(features, name))
                        self._bets.pop(name, None)

    def _chosen(self, pair: Pair) -> EventBets:
        seen = self._seen[pair.name]
        if failing_side(self.design, seen, FAILURES):
            return EventBets((), -math.inf)
        events = expected_events(self.design, pair)
        everywhere = [event for event in events if event.feature in IN_ALL_COLUMNS]
        others = [event for event in events if event.feature not in IN_ALL_COLUMNS]
        odds = _PROBED_ODDS if pair not in self.design.pairs else _COLUMN_ODDS if everywhere else EXPECTED_ODDS
        expected = dict.fromkeys(everywhere, _EVERYWHERE_ODDS) | {event: odds / len(others) for event in others}
        chosen = choose_bets(seen, expected, self.design.limit, self.design.delta)
        return dataclasses.replace(chosen, bets=()) if failing_side(self.design, seen, 1) else chosen


def _until_next_look(made: int) -> int:
    """The number of rounds after which pair and bets are chosen anew, after so many on the pair."""
    return 1 if made < 4 else 2 if made < 8 else 8 * max(1, made // 64)
