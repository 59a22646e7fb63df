"""Bets on several events of one pair of neighbours at a time, each with a share of the wealth.

Which event gives a record away is not known, and one that looks best in few runs often has had luck. So each of the
most promising events is bet on with the share of the wealth that is the probability, given the runs, that it tells D′
from D; the rest is not bet. The shares are fixed before the round, so that a mean of valid factors is one, too
(docs/proofs/many-runs.md, theorem 1). Where nothing is there, hardly anything is lost; where an event is the right one,
its share grows with every round that shows it.

A feature to which all columns add their part, such as the number in which a record shows, is bet on by all its values
(`dpassay.audits.games.bets_on_levels`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from scipy import special

from dpassay.attacks.black_box.feature_words import LEVELS
from dpassay.attacks.black_box.output_events import EXCHANGED, IN_ALL_COLUMNS, Event
from dpassay.attacks.black_box.output_features import Features
from dpassay.audits.games.bets_on_levels import LevelRatio
from dpassay.audits.games.distinguishing_choice import thresholds
from dpassay.audits.games.event_choice import event_to_json, happened, matrix
from dpassay.audits.games.expected_growth import ANY, EXPECTED, Prior, expected_growth
from dpassay.audits.statistics.sequential import estimated_rate
from dpassay.audits.statistics.two_sample import log_bets
from dpassay.base.arrays import Floats, Integers

MOST_BETS: Final = 8
"""Events that are bet on in one round, at most."""

EXPECTED_ODDS: Final = 0.05
"""Odds, before the runs, that an event which a strategy expects tells the data sets apart."""

_OTHER_ODDS = 0.05  # that any event tells the data sets apart which nobody expected, divided among all of them
_LEAST_SHARE = 1e-4
_FINE = 2.0**20  # shares are rounded down to multiples of its inverse, and growths to so many digits, which
_DIGITS = 9  # makes them the same on all machines

Sides = tuple[Sequence[Features], Sequence[Features]]
"""Features of runs on D and on D′."""


@dataclass(frozen=True, slots=True)
class Bet:
    """An event, the share of the wealth that is bet on it, and, if that is bet on all values of its feature, how much
    likelier each seems on D′."""

    event: Event
    share: float
    ratio: LevelRatio | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON types. A ratio is that of the runs before the first round of these bets, and stays; rates of
        other events are those of all runs before each round."""
        if self.ratio is None:
            return {**event_to_json(self.event), "share": self.share, "by_levels": False}
        levels = {"event": LEVELS[self.event.feature], "by_levels": True, "ratio": self.ratio.to_json()}
        return {**event_to_json(self.event), "share": self.share, **levels}


@dataclass(frozen=True, slots=True)
class EventBets:
    """The bets of the next rounds on a pair.

    Attributes:
        bets: the most promising first; shares add up to at most 1.
        growth: what a round is expected to add to the logarithm of the wealth against the claim.
    """

    bets: tuple[Bet, ...]
    growth: float


def choose_bets(seen: Sides, expected: Mapping[Event, float], limit: float, delta: float) -> EventBets:
    """The bets on a pair after some runs, or none.

    Args:
        seen: features of these runs.
        expected: events that the pair's strategy expects on D′ and not on D, with the odds, before the runs, that each
            tells D′ from D.
        limit: ε of the claim.
        delta: δ of the claim.
    """
    runs = len(seen[0]), len(seen[1])
    events, log_odds, growth = list[Event](), list[float](), list[float]()
    ratios: dict[int, LevelRatio] = {}

    def add(tried: Sequence[Event], hits: Integers, odds: float, prior: Prior) -> None:
        """Adds the best of some events."""
        found = expected_growth(hits, runs, np.full(len(tried), odds), limit, delta, prior)
        best = int(np.argmax(found.log_odds + np.log(found.growth + 1e-12)))
        events.append(tried[best])
        log_odds.append(float(found.log_odds[best]))
        growth.append(float(found.growth[best]))

    for event, odds in expected.items():
        hits = np.array([[sum(happened(event, features) for features in side) for side in seen]])
        if event.feature != EXCHANGED:  # all its signs at once are rare
            add([event], hits, odds, EXPECTED)
        if event.feature in IN_ALL_COLUMNS:
            ratio = ratios[len(events)] = _ratio(event, seen, limit)
            events.append(event)
            log_odds.append(math.log(odds) + ratio.log_odds)
            growth.append(ratio.mean_growth(delta))
    names = sorted({name for side in seen for features in side for name in features}) if min(runs) else []
    columns = [np.sort(matrix(side, names), axis=0) for side in seen]
    for position, name in enumerate(names):
        out, inside = (side[:, position] for side in columns)
        values = np.concatenate([out, inside])
        if values.min() == values.max():
            continue
        between = thresholds(values)[1:]  # not that below all values
        counts = [side.size - np.searchsorted(side, between, side="left") for side in (out, inside)]
        tried = [Event(name, float(threshold)) for threshold in between]
        add(tried, np.stack(counts, axis=1), _OTHER_ODDS / len(names) / len(between), ANY)
    if not min(runs):  # nothing is known of other features, and nothing can be bet on them
        unknown = expected_growth(np.zeros((1, 2), dtype=np.int64), (0, 0), np.array([_OTHER_ODDS]), limit, delta, ANY)
        log_odds.append(float(unknown.log_odds[0]))
        growth.append(float(unknown.growth[0]))
    if not log_odds:
        return EventBets((), 0.0)
    shares = np.floor(_probabilities(np.array(log_odds)) * _FINE) / _FINE
    grown = np.round(shares * np.array(growth), _DIGITS)
    best = np.argsort(-grown, kind="stable")[:MOST_BETS]
    order = [int(index) for index in best if index < len(events) and shares[index] > _LEAST_SHARE]
    bets = tuple(Bet(events[index], float(shares[index]), ratios.get(index)) for index in order)
    return EventBets(bets, round(float(grown.sum()), _DIGITS))


def share_of_expected(hits: Floats, runs: int, *, limit: float, delta: float) -> Floats:
    """The share that is bet on an event that a strategy expects, after so many hits on D and on D′, shape (m, 2), in
    so many runs on each, if no other event seems to tell the data sets apart, shape (m,)."""
    odds = np.full(len(hits), EXPECTED_ODDS)
    found = expected_growth(hits.astype(np.int64), (runs, runs), odds, limit, delta, EXPECTED)
    return np.asarray(special.expit(found.log_odds))


def _probabilities(log_odds: Floats) -> Floats:
    """The probability that each event tells D′ from D, if at most one does."""
    top = max(0.0, float(log_odds.max()))
    odds = np.exp(log_odds - top)
    return np.asarray(odds / (odds.sum() + math.exp(-top)))


class EventCounts:
    """In how many of the runs seen so far each event of some bets happened, on D and on D′.

    Args:
        bets: whose events are counted.
        seen: features of the runs so far.
    """

    def __init__(self, bets: Sequence[Bet], seen: Sides) -> None:
        self.runs = [len(side) for side in seen]
        self.of = {bet.event: [sum(happened(bet.event, run) for run in side) for side in seen] for bet in bets}

    def add(self, new: tuple[Features, Features]) -> None:
        """Adds a run on D and one on D′."""
        for side, features in enumerate(new):
            self.runs[side] += 1
            for event, hits in self.of.items():
                hits[side] += happened(event, features)


def log_factors(
    bets: Sequence[Bet],
    seen: Sides,
    new: tuple[Features, Features],
    epsilons: Floats,
    delta: float,
    hits: EventCounts | None = None,
) -> Floats:
    """The logarithm of the factor by which one round changes the wealth against every ε, shape (G,).

    Args:
        bets: fixed before the round.
        seen: features of earlier runs on D and on D′, from which rates are estimated.
        new: of the two runs of the round.
        hits: what is counted of the runs seen; None to count it.
        epsilons: shape (G,), at least 0.
        delta: δ in [0, 1).
    """
    total, rest, counted = np.zeros(len(epsilons)), 1.0, EventCounts(bets, seen) if hits is None else hits
    for bet in bets:
        total += bet.share * np.exp(_factors(bet, new, epsilons, delta, counted))
        rest -= bet.share
    return np.asarray(np.log(total + max(0.0, rest)))


def _factors(bet: Bet, new: tuple[Features, Features], epsilons: Floats, delta: float, counted: EventCounts) -> Floats:
    event = bet.event
    if bet.ratio is not None:
        on_d, on_d_prime = (features.get(event.feature, 0.0) for features in new)
        return bet.ratio.log_factors((on_d, on_d_prime), epsilons, delta)
    rates = [estimated_rate(hits, runs) for hits, runs in zip(counted.of[event], counted.runs, strict=True)]
    hit, miss = log_bets(np.array(rates[0]), np.array(rates[1]), np.exp(epsilons), delta)
    return np.asarray(sum((hit if happened(event, new[side]) else miss)[side] for side in (0, 1)))


def _ratio(event: Event, seen: Sides, limit: float) -> LevelRatio:
    """How much likelier each value of an event's feature is on D′; its threshold is the largest value."""
    on_d, on_d_prime = ([features.get(event.feature, 0.0) for features in side] for side in seen)
    return LevelRatio(on_d, on_d_prime, event.threshold, limit)
