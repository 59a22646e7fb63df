"""How often each statistic is wrong, and how much of ε it finds, on mechanisms whose ε is known exactly.

    python benchmarks/audit_power.py [--repetitions 2000] [--runs 1000] [--seed 0] [--json]

Every mechanism is at the boundary of its (ε, δ), so a bound above ε is a false alarm. A statistic is called valid where
its false alarms are within what β = 5% allows: at most the 1 − 1e-4 quantile of a binomial law. *Power* is the median
of the bound over ε. The last rows are what other tools do and what is no bound; they are here to be seen failing.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from cupel.audits.clopper_pearson import clopper_pearson, epsilons_clopper_pearson
from cupel.audits.one_run import epsilons_one_run
from cupel.audits.score_thresholds import Band, Grid, Split, epsilon_from_scores
from cupel.audits.sequential import Wealth

Floats = NDArray[np.float64]
BETA = 0.05


@dataclass(frozen=True)
class Mechanism:
    """Scores of runs with and without a unit, larger with it, and the ε at δ that holds with equality.

    Attributes:
        name: for the table.
        epsilon: the smallest ε at `delta`.
        delta: δ.
        threshold: of the test that shows the most.
        draw: from a generator and a shape, scores with and scores without.
    """

    name: str
    epsilon: float
    delta: float
    threshold: float
    draw: Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]


def mechanisms() -> list[Mechanism]:
    """Randomised response, Laplace and Gaussian noise, and a Poisson-sampled Gaussian (a unit that is removed)."""
    q = math.e / (1 + math.e)
    # δ(ε) of N(1, 1) against N(0, 1) at ε = 1, reached by the event that the score is above 3/2.
    gaussian = stats.norm.sf(0.5) - math.e * stats.norm.sf(1.5)
    # The mixture .5·N(0, 1) + .5·N(2, 1) is e^ε times likelier than N(0, 1) where N(2, 1) is e^inner times.
    rate, shift, epsilon = 0.5, 2.0, 1.0
    inner = math.log1p(math.expm1(epsilon) / rate)
    cut = inner / shift + shift / 2
    sampled = rate * (stats.norm.sf(cut - shift) - math.exp(inner) * stats.norm.sf(cut))
    return [
        Mechanism(
            "randomised response",
            1.0,
            0.0,
            0.5,
            lambda g, n: ((g.random(n) < q).astype(float), (g.random(n) >= q).astype(float)),
        ),
        Mechanism("Laplace", 1.0, 0.0, 1.0, lambda g, n: (g.laplace(1, 1, n), g.laplace(0, 1, n))),
        Mechanism("Gaussian", 1.0, float(gaussian), 1.5, lambda g, n: (g.normal(1, 1, n), g.normal(0, 1, n))),
        Mechanism(
            "sampled Gaussian",
            epsilon,
            float(sampled),
            cut,
            lambda g, n: (g.normal(shift * (g.random(n) < rate), 1), g.normal(0, 1, n)),
        ),
    ]


@dataclass(frozen=True)
class Row:
    """What came out of one statistic on one mechanism."""

    statistic: str
    mechanism: str
    epsilon: float
    delta: float
    repetitions: int
    alarms: int
    power: float
    bound: bool

    @property
    def valid(self) -> bool:
        return self.alarms <= stats.binom.isf(1e-4, self.repetitions, BETA)


def measure(mechanism: Mechanism, repetitions: int, runs: int, seed: int) -> Iterator[Row]:
    """All statistics on one mechanism; each repetition has its own runs."""

    def row(statistic: str, values: Floats, bound: bool = True) -> Row:
        alarms = int((values > mechanism.epsilon * (1 + 1e-12)).sum())
        power = float(np.median(values)) / mechanism.epsilon
        return Row(statistic, mechanism.name, mechanism.epsilon, mechanism.delta, len(values), alarms, power, bound)

    generator, delta = np.random.default_rng(seed), mechanism.delta
    inside, outside = mechanism.draw(generator, (repetitions, runs))
    tp, fp = (np.sum(scores >= mechanism.threshold, axis=1) for scores in (inside, outside))
    counts = (tp, runs - tp, fp, runs - fp)
    yield row("Clopper–Pearson, fixed threshold", epsilons_clopper_pearson(*counts, delta=delta, confidence=1 - BETA))
    grid = Grid(tuple((mechanism.threshold + np.linspace(-1, 1, 9)).tolist()))
    for name, rule in (("scores, split", Split(seed=seed)), ("scores, grid of 9", grid), ("scores, band", Band())):
        values = [
            epsilon_from_scores(a, b, delta=delta, confidence=1 - BETA, threshold=rule).value
            for a, b in zip(inside, outside, strict=True)
        ]
        yield row(name, np.array(values))
    yield row("betting, at the last round", _betting(mechanism, inside, outside))
    yield from (row(f"one run, {rule}", values) for rule, values in _one_run(mechanism, generator, repetitions, runs))
    best = [_best_threshold(a, b, delta) for a, b in zip(inside, outside, strict=True)]
    yield row("the best of all thresholds, unpaid for", np.array(best), bound=False)


def _betting(mechanism: Mechanism, inside: Floats, outside: Floats) -> Floats:
    """The bound of `Sequential` after all rounds; its wealth is kept at its largest, so this is that of any time."""
    step = 0.02
    wealth = Wealth(np.arange(0, 2 * mechanism.epsilon + step / 2, step), mechanism.delta, (len(inside),))
    for scores_in, scores_out in zip(inside.T, outside.T, strict=True):
        wealth.update(scores_in >= mechanism.threshold, scores_out >= mechanism.threshold)
    return np.asarray(np.maximum(wealth.rejected(1 - BETA) - 1, 0) * step)


def _one_run(
    mechanism: Mechanism, generator: np.random.Generator, repetitions: int, m: int
) -> Iterator[tuple[str, Floats]]:
    """m units, each in by its own fair coin, with its own noise; the tenth with the most extreme scores is guessed."""
    coins = generator.integers(0, 2, size=(repetitions, m)) == 1
    inside, outside = mechanism.draw(generator, (repetitions, m))
    scores = np.where(coins, inside, outside)
    told = np.argsort(-np.abs(scores - 0.5), axis=1, kind="stable")[:, : m // 10]
    guesses = np.take_along_axis(scores > 0.5, told, axis=1)
    right = (guesses == np.take_along_axis(coins, told, axis=1)).sum(axis=1)
    for rule in ("published", "tight", "adaptive"):
        found = epsilons_one_run(m, m // 10, right, delta=mechanism.delta, confidence=1 - BETA, rule=rule)
        yield rule, found


def _best_threshold(inside: Floats, outside: Floats, delta: float) -> float:
    thresholds = np.unique(np.concatenate([inside, outside]))
    tp, fp = (s.size - np.searchsorted(np.sort(s), thresholds) for s in (inside, outside))
    counts = (tp, inside.size - tp, fp, outside.size - fp)
    return float(epsilons_clopper_pearson(*counts, delta=delta, confidence=1 - BETA).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=2000, help="audits of each kind (2000)")
    parser.add_argument("--runs", type=int, default=1000, help="runs with and without the unit, or candidates (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    parser.add_argument("--json", action="store_true", help="rows for programs")
    options = parser.parse_args()
    rows = [
        row for mechanism in mechanisms() for row in measure(mechanism, options.repetitions, options.runs, options.seed)
    ]
    if options.json:
        print(json.dumps([{**vars(row), "valid": row.valid} for row in rows]))
    else:
        table = Table(title=f"β = {BETA:g}, {options.repetitions} repetitions of {options.runs} runs or candidates")
        for column in ("mechanism", "ε", "δ", "statistic", "false alarms", "95% interval", "within β", "power"):
            table.add_column(column)
        for row in rows:
            ends = clopper_pearson(row.alarms, row.repetitions, confidence=0.95)
            verdict = ("yes" if row.valid else "NO") + ("" if row.bound else " (no bound)")
            interval = f"{ends.lower:.4f} to {ends.upper:.4f}"
            rate = f"{row.alarms / row.repetitions:.4f}"
            table.add_row(
                row.mechanism,
                f"{row.epsilon:g}",
                f"{row.delta:.3g}",
                row.statistic,
                rate,
                interval,
                verdict,
                f"{row.power:.2f}",
            )
        Console(width=160).print(table)
    if wrong := [row for row in rows if row.bound and not row.valid]:
        raise SystemExit(f"{len(wrong)} bounds are wrong more often than they say")


if __name__ == "__main__":
    main()
