"""How plans of version 0.2 choose a pair: by pilot runs and successive halving. Later ones bet from the first round.

Every pair gets a few pilot runs, the better half gets more, and so on, until one is left, or one shows more than the
claim by a cautious estimate. That pair alone is tested, by one event at a time, which is chosen anew after 8, 16, 32, …
rounds from all its runs before.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from dpassay.attacks.black_box.feature_words import in_words
from dpassay.attacks.black_box.output_events import Event
from dpassay.attacks.black_box.output_features import FAILED, Features
from dpassay.audits.games.event_bets import Sides
from dpassay.audits.games.event_choice import chosen_event, event_to_json, happened, of_pair
from dpassay.audits.games.many_runs_design import GeneratorRun, ManyRunsDesign, Pair
from dpassay.audits.games.many_runs_rounds import FAILURES, AuditRounds, PairFindings, Results, failing_side

_CHOOSE_AFTER = frozenset(2**power for power in range(3, 31))  # rounds after which the event is chosen anew


class PairHalving:
    """The search. Its answers depend on the results only, not on the order they came in.

    Args:
        design: of the audit.

    Attributes:
        chosen: the pair that is tested, once it is known.
        compared: what was seen of every pair that was tried.
        used: number of pilot runs.
        exhausted: whether the generator fails on all pairs.
        untried: pairs for which there are too few runs.
    """

    def __init__(self, design: ManyRunsDesign) -> None:
        self._design = design
        self._known: dict[tuple[str, int, int], PairFindings] = {}
        self.chosen: Pair | None = None
        self.compared: dict[str, PairFindings] = {}
        self.used = 0
        self.exhausted = False
        self.untried: tuple[str, ...] = ()

    def wanted(self, results: Results) -> list[GeneratorRun]:
        """The pilot runs that the search needs so far; once all have results, `chosen` is set."""
        design, budget = self._design, self._design.pilots
        survivors = list(design.pairs)
        while len(_data_sets(survivors)) > budget:
            survivors.pop()
        self.untried = tuple(pair.name for pair in design.pairs[len(survivors) :])
        counts = dict.fromkeys(_data_sets(survivors), 0)
        while True:
            data_sets = _data_sets(survivors)
            rounds = max(1, math.ceil(math.log2(len(survivors))) + 1)
            left = budget - sum(counts.values())
            each = left // (rounds * len(data_sets))
            if not any(counts.values()):
                each = max(each, 1)
            if each == 0:
                break
            for data in data_sets:
                counts[data] += each
            while True:
                wanted = _pilots(counts)
                if any(run not in results for run in wanted):
                    return wanted
                again = [data for data in data_sets if counts[data] < FAILURES and _all_failed(data, counts, results)]
                if not again or sum(counts.values()) + len(again) > budget:
                    break
                for data in again:
                    counts[data] += 1
            for pair in survivors:
                key = (pair.name, counts[pair.data], counts[pair.neighbor])
                if key not in self._known:
                    seen = _pilots_of(pair, results, (counts[pair.data], counts[pair.neighbor]))
                    self._known[key] = PairFindings.of(design, pair, seen, failing_side(design, seen, 1))
                self.compared[pair.name] = self._known[key]
            ranked = [pair for pair in survivors if not self.compared[pair.name].failing]
            ranked.sort(key=lambda pair: -self.compared[pair.name].value)
            if len(survivors) == 1 or not ranked:
                survivors = ranked
                break
            best = max(ranked, key=lambda pair: self.compared[pair.name].value)
            if design.claim is not None and self.compared[best.name].value > design.limit:
                survivors = [best]  # good enough: the other runs are better spent on the test
                break
            survivors = ranked[: math.ceil(len(survivors) / 2)]
        self.used = sum(counts.values())
        if not survivors:  # those that were left fail, but others may not
            survivors = [pair for pair in design.pairs if pair.name in self.compared]
            survivors = [pair for pair in survivors if not self.compared[pair.name].failing]
        self.chosen = max(survivors, key=lambda pair: self.compared[pair.name].value, default=None)
        self.exhausted = self.chosen is None
        return _pilots(counts)


class RoundsOfOnePair(AuditRounds):
    """Rounds on the pair that the search chose.

    Args:
        design: of the audit.
        search: that has chosen a pair.
        results: of its pilot runs.

    Attributes:
        events: with the number of rounds before each.
    """

    def __init__(self, design: ManyRunsDesign, search: PairHalving, results: Results) -> None:
        assert search.chosen is not None
        self.pair, found = search.chosen, search.compared[search.chosen.name]
        super().__init__(design, search.used, earlier=max(found.runs))
        self._seen, self._compared = _pilots_of(self.pair, results, found.runs), search.compared
        self.events = [(0, found.event)]
        self._hits = [0, 0]
        self._expect()

    @property
    def seen(self) -> Sides:
        return self._seen

    @property
    def event(self) -> Event:
        return self.events[-1][1]

    @property
    def counted(self) -> tuple[tuple[int, int], tuple[int, int]]:
        return (self._hits[0], self.rounds), (self._hits[1], self.rounds)

    @property
    def compared(self) -> dict[str, PairFindings]:
        return self._compared

    @property
    def upcoming(self) -> Sequence[Pair]:
        return [self.pair] * max(1, self.most - self.rounds)

    @property
    def attack(self) -> str:
        last = f", the last of {len(self.events)} choices" if len(self.events) > 1 else ""
        return f"the event is that {in_words(self.event)}{last}"

    @property
    def choice(self) -> str:
        return "the pair was chosen on pilot runs, which are not counted"

    @property
    def earlier_events(self) -> str:
        last = [sum(happened(self.event, run) for run in side[len(side) - self.rounds :]) for side in self._seen]
        return "" if last == self._hits else ", or the event of earlier rounds happened,"

    @property
    def compared_in_words(self) -> str:
        return (
            f"{len(self._compared)} pairs of neighbours were compared on {self.pilots} pilot runs, which no bound "
            "counts; one pair was tested"
        )

    def bets_to_json(self) -> dict[str, Any]:
        return {"events": [{"from_round": start, **event_to_json(event)} for start, event in self.events]}

    def look(self) -> None:
        """The pair stays, and an event is chosen when a round is counted."""

    def count(self, on_d: Mapping[str, Features], on_d_prime: Mapping[str, Features]) -> None:
        if self.rounds in _CHOOSE_AFTER:
            self.events.append((self.rounds, chosen_event(self.design, self.pair, self._seen)[1]))
            self._expect()
        new = of_pair(on_d, self.pair.name), of_pair(on_d_prime, self.pair.name)
        self.state.update(*(happened(self.event, features) for features in new))
        for side, features in enumerate(new):
            self._hits[side] += happened(self.event, features)
            self._seen[side].append(features)

    def _expect(self) -> None:
        """Tells the gambler what the event did in all runs of the pair so far."""
        hits = [sum(happened(self.event, features) for features in side) for side in self._seen]
        self.state.expect(*((some, len(side)) for some, side in zip(hits, self._seen, strict=True)))


@functools.lru_cache(maxsize=64)
def usual_pilots(design: ManyRunsDesign) -> int:
    """Pilot runs on each data set of the pair that is tested, if the first pairs show most and none fails."""
    if not design.halving:
        return 0
    search, every = PairHalving(design), range(design.pilots)
    blank: dict[GeneratorRun, Mapping[str, Features]] = {
        GeneratorRun("pilot", data, number): {} for data in _data_sets(design.pairs) for number in every
    }
    search.wanted(blank)
    return max(search.compared[search.chosen.name].runs) if search.chosen is not None else 0


def _pilots(counts: Mapping[int, int]) -> list[GeneratorRun]:
    """So many pilot runs on each data set."""
    return [GeneratorRun("pilot", data, number) for data, count in counts.items() for number in range(count)]


def _pilots_of(pair: Pair, results: Results, runs: tuple[int, int]) -> tuple[list[Features], list[Features]]:
    """The features of so many pilot runs on D and on D′."""

    def side(data: int, most: int) -> list[Features]:
        return [of_pair(results[GeneratorRun("pilot", data, number)], pair.name) for number in range(most)]

    return side(pair.data, runs[0]), side(pair.neighbor, runs[1])


def _all_failed(data: int, counts: Mapping[int, int], results: Results) -> bool:
    return all(results[run].get("", {}).get(FAILED) for run in _pilots({data: counts[data]}))


def _data_sets(pairs: Sequence[Pair]) -> list[int]:
    return list(dict.fromkeys(data for pair in pairs for data in (pair.data, pair.neighbor)))
