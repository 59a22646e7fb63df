"""The most power that any audit by runs can have against noise of the wrong size, exactly.

    python benchmarks/most_power.py

A generator publishes the counts of q columns, each with discrete Laplace noise of one scale, and claims ε = 1. On the
pair of `seeded_bugs.py` one record moves q counts by one. For each count the privacy loss of an output is 1/scale or
−1/scale, and noise is independent. So all that an output says of D or D′ is in how many counts the loss is positive.
That number is binomial, with 1/(1 + e^(1/scale)) on D and 1/(1 + e^(−1/scale)) on D′. The smallest true ε is q/scale.

*No test does better.* Let a test know the pair and the scale, see n outputs of D and n of D′, and refute a generator
that meets the claim with probability at most 5 %. One that meets it has the two laws of `nearest`, where no outcome is
more than e times likelier on one data set than on the other. So the test has at most the power of the Neyman–Pearson
test of the true laws against these two, which is computed exactly. An audit also has to find pair and event, does not
know the scale, and may stop at any time.

The last columns are for bets without a search, by simulation: on the best single event, as if it were known, and on all
outcomes at their true ratios (`dpassay.audits.statistics.score_bets`), which audits by many runs estimate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from seeded_bugs import EPSILON

from dpassay.audits.statistics.sequential import simulated_bounds

Floats = NDArray[np.float64]
BETA = 0.05
REPETITIONS = 2000
CASES = (("budget not split", 2, 1.0), ("half of the noise", 4, 2.0))
"""What is wrong, number of columns, and scale."""
ROUNDS = (15, 60, 100, 300)
"""Runs on each of the two data sets: what 50, 200 and 1000 runs leave, and all of 200."""


def laws(columns: int, scale: float) -> tuple[Floats, Floats]:
    """The laws on D and on D′ of the number of counts with a positive loss, shape (columns + 1,)."""
    positive = 1 / (1 + math.exp(-1 / scale))
    counts = np.arange(columns + 1)
    on_d, on_d_prime = (stats.binom.pmf(counts, columns, rate) for rate in (1 - positive, positive))
    return np.asarray(on_d), np.asarray(on_d_prime)


def nearest(on_d: Floats, on_d_prime: Floats, epsilon: float) -> tuple[Floats, Floats]:
    """Two laws of a generator that meets ε: where an outcome is more than e^ε times likelier on one side, both
    probabilities are moved to a ratio of e^ε, and their sum is kept. If the laws mirror each other, both sum to one."""
    both, most = on_d + on_d_prime, 1 / (1 + math.exp(-epsilon))
    first = np.clip(on_d, both * (1 - most), both * most)
    return first, both - first


@dataclass(frozen=True)
class LogRatio:
    """The law of a log-likelihood ratio of one run, true laws over nearest ones.

    Attributes:
        values: different values.
        true, null: their probabilities.
    """

    values: tuple[float, ...]
    true: tuple[float, ...]
    null: tuple[float, ...]

    @classmethod
    def of(cls, true: Floats, null: Floats) -> LogRatio:
        """That of an outcome with these laws."""
        ratios = np.round(np.log(true / null), 12)
        values, which = np.unique(ratios, return_inverse=True)
        return cls(
            tuple(values.tolist()),
            tuple(np.bincount(which, true).tolist()),
            tuple(np.bincount(which, null).tolist()),
        )


def most_power(columns: int, scale: float, rounds: int, *, epsilon: float = EPSILON, beta: float = BETA) -> float:
    """The power of the Neyman–Pearson test of the true laws against the nearest ones that meet ε, by summing over the
    numbers of outcomes of each ratio in as many runs on D as on D′."""
    on_d, on_d_prime = laws(columns, scale)
    first, second = nearest(on_d, on_d_prime, epsilon)
    sides = LogRatio.of(on_d, first), LogRatio.of(on_d_prime, second)
    if not np.allclose(sides[0].values, sides[1].values) or not np.allclose(sides[0].true, sides[1].true):
        raise ValueError("the two laws must mirror each other")
    runs, law = 2 * rounds, sides[0]
    if len(law.values) > 3:
        raise ValueError("only up to three different ratios are summed over")
    padding = 3 - len(law.values)
    values, true, null = (np.array([*side, *[0.0] * padding]) for side in (law.values, law.true, law.null))
    some, more = np.meshgrid(np.arange(runs + 1), np.arange(runs + 1), indexing="ij")
    possible = some + more <= runs
    counts = np.stack([some[possible], more[possible], runs - some[possible] - more[possible]], axis=1)
    ratios = np.round(counts @ values, 9)
    likely = [stats.multinomial.pmf(counts, runs, side / side.sum()) for side in (true, null)]
    order, which = np.unique(-ratios, return_inverse=True)
    power, level = (np.bincount(which, side, minlength=order.size) for side in likely)  # best evidence first
    reached = np.cumsum(level)
    last = int(np.searchsorted(reached, beta))
    before = float(reached[last - 1]) if last else 0.0
    return float(power[:last].sum() + (beta - before) / level[last] * power[last])


def by_best_event(columns: int, scale: float, rounds: int) -> float:
    """How often bets on an event refute, with the best event, in simulated audits without a search."""
    on_d, on_d_prime = (np.cumsum(law[::-1])[::-1] for law in laws(columns, scale))
    grid = np.array([0.0, EPSILON + 0.01])
    chances = [
        simulated_bounds(float(p), float(q), rounds, delta=0.0, confidence=1 - BETA, grid=grid, repetitions=REPETITIONS)
        > EPSILON
        for p, q in zip(on_d[1:], on_d_prime[1:], strict=True)
    ]
    return float(max(chance.mean() for chance in chances))


def by_all_outcomes(columns: int, scale: float, rounds: int, seed: int = 0) -> float:
    """How often bets on all outcomes refute, at the true ratios, in simulated audits without a search."""
    on_d, on_d_prime = laws(columns, scale)
    first, second = nearest(on_d, on_d_prime, EPSILON)
    rng, steps = np.random.default_rng(seed), np.zeros((REPETITIONS, rounds))
    for true, null in ((on_d, first), (on_d_prime, second)):
        steps += np.log(true / null)[rng.choice(columns + 1, (REPETITIONS, rounds), p=true)]
    return float((np.cumsum(steps, axis=1).max(axis=1) >= -math.log(BETA)).mean())


def table() -> str:
    """A row for each fault and number of rounds, in Markdown."""
    lines = [
        "| fault | columns, scale | true ε | rounds | any test, at most | bets on the best event | on all outcomes |",
        "| --- " * 7 + "|",
    ]
    for name, columns, scale in CASES:
        for rounds in ROUNDS:
            chances = [
                f"{math.ceil(1000 * most_power(columns, scale, rounds)) / 10:.1f} %",
                *(f"{100 * bets(columns, scale, rounds):.0f} %" for bets in (by_best_event, by_all_outcomes)),
            ]
            cells = [name, f"{columns}, {scale:g}", str(Fraction(columns / scale)), str(rounds), *chances]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
