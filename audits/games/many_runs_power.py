"""What a test of so many rounds on one pair can show: its power, by simulation, and the runs that a claim needs."""

from __future__ import annotations

import bisect
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dpassay.audits.detection import Detectable
from dpassay.audits.games.event_bets import share_of_expected
from dpassay.audits.games.many_runs_design import MIN_RUNS, ManyRunsDesign
from dpassay.audits.statistics.sequential import simulated_bounds
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_number


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
    state = design.state(earlier)
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
        *rates,
        rounds,
        delta=delta,
        confidence=confidence,
        grid=grid,
        earlier=earlier,
        share=None if design.halving else functools.partial(share_of_expected, limit=design.limit, delta=delta),
        repetitions=repetitions,
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
