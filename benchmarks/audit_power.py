"""How often each statistic is wrong, and how much of ε it finds, on mechanisms whose ε is known exactly.

    python benchmarks/audit_power.py [--repetitions 2000] [--runs 1000] [--seed 0] [--json]

Every mechanism is at the boundary of its (ε, δ), so a bound above ε is a false alarm. A statistic is called valid where
its false alarms are within what β = 5% allows: at most the 1 − 1e-4 quantile of a binomial law. *Power* is the median
of the bound over ε; of the interval of a difference it is the median of the lower end over the difference, and a false
alarm is an interval that misses it. Rows of a model stand with the Gaussian, which is theirs, and with randomised
response, which is not: there they are no bound, like the best of all thresholds, and are here to be seen failing.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy import stats

from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.statistics.binomial import (
    clopper_pearson,
    difference_interval,
    epsilons_clopper_pearson,
    mu_clopper_pearson,
)
from dpassay.audits.statistics.one_run import Rule, epsilon_one_run, epsilons_one_run
from dpassay.audits.statistics.one_run_f_dp import Family, epsilon_one_run_f_dp
from dpassay.audits.statistics.score_thresholds import Band, Grid, Split, epsilon_from_scores
from dpassay.audits.statistics.sequential import Wealth

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BETA = 0.05


@dataclass(frozen=True)
class Mechanism:
    """Scores of runs with and without a unit, larger with it, and the ε at δ that holds with equality.

    Attributes:
        name: for the table.
        epsilon: the smallest ε at `delta`.
        delta: δ.
        threshold: of the test that shows the most.
        event: the probability of a score of at least `threshold`, with and without.
        draw: from a generator and a shape, scores with and scores without.
    """

    name: str
    epsilon: float
    delta: float
    threshold: float
    event: tuple[float, float]
    draw: Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]


def mechanisms() -> list[Mechanism]:
    """Randomised response, the same that tells the truth with probability δ, Laplace and Gaussian noise, and a
    Poisson-sampled Gaussian (a unit that is removed)."""
    q = math.e / (1 + math.e)
    slip = 1e-3

    def failing(g: np.random.Generator, n: tuple[int, ...]) -> tuple[Floats, Floats]:
        """With probability δ a score of 2 (in) or −1 (out), which nobody else has."""
        inside, outside = (g.random(n) < q).astype(float), (g.random(n) >= q).astype(float)
        return np.where(g.random(n) < slip, 2.0, inside), np.where(g.random(n) < slip, -1.0, outside)

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
            (q, 1 - q),
            lambda g, n: ((g.random(n) < q).astype(float), (g.random(n) >= q).astype(float)),
        ),
        Mechanism("response that fails", 1.0, slip, 0.5, (slip + (1 - slip) * q, (1 - slip) * (1 - q)), failing),
        Mechanism("Laplace", 1.0, 0.0, 1.0, (0.5, 0.5 / math.e), lambda g, n: (g.laplace(1, 1, n), g.laplace(0, 1, n))),
        Mechanism(
            "Gaussian",
            1.0,
            float(gaussian),
            1.5,
            (float(stats.norm.sf(0.5)), float(stats.norm.sf(1.5))),
            lambda g, n: (g.normal(1, 1, n), g.normal(0, 1, n)),
        ),
        Mechanism(
            "sampled Gaussian",
            epsilon,
            float(sampled),
            cut,
            (float(rate * stats.norm.sf(cut - shift) + (1 - rate) * stats.norm.sf(cut)), float(stats.norm.sf(cut))),
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
    yield row(
        "scores, fixed threshold (Clopper–Pearson)", epsilons_clopper_pearson(*counts, delta=delta, confidence=1 - BETA)
    )
    grid = Grid(tuple((mechanism.threshold + np.linspace(-1, 1, 9)).tolist()))
    for name, rule in (("scores, split", Split(seed=seed)), ("scores, grid of 9", grid), ("scores, band", Band())):
        values = [
            epsilon_from_scores(a, b, delta=delta, confidence=1 - BETA, threshold=rule).value
            for a, b in zip(inside, outside, strict=True)
        ]
        yield row(name, np.array(values))
    yield row("betting, at the last round", _betting(mechanism, inside, outside))
    difference = mechanism.event[0] - mechanism.event[1]
    intervals = {
        (a, b): difference_interval(a, runs, b, runs, confidence=1 - BETA)
        for a, b in set(zip(tp.tolist(), fp.tolist(), strict=True))
    }
    results = [intervals[a, b] for a, b in zip(tp.tolist(), fp.tolist(), strict=True)]
    missed = sum(difference not in interval for interval in results)
    power = float(np.median([interval.lower for interval in results])) / difference
    yield Row("interval of a difference", mechanism.name, difference, 0.0, repetitions, missed, power, True)
    yield from (row(f"one run, {rule}", values) for rule, values in _one_run(mechanism, generator, repetitions, runs))
    yield from _models(mechanism, generator, tp, fp, runs)
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
    guessed = np.argsort(-np.abs(scores - 0.5), axis=1, kind="stable")[:, : m // 10]
    guesses = np.take_along_axis(scores > 0.5, guessed, axis=1)
    right = (guesses == np.take_along_axis(coins, guessed, axis=1)).sum(axis=1)
    rules: tuple[Rule, ...] = ("published", "tight", "adaptive")
    for rule in rules:
        yield rule, epsilons_one_run(m, m // 10, right, delta=mechanism.delta, confidence=1 - BETA, rule=rule)
    level: dict[str, Any] = {"delta": mechanism.delta, "confidence": 1 - BETA}
    yield (
        "f-DP of every mechanism",
        _by_counts(lambda v: epsilon_one_run_f_dp(m, m // 10, v, family="approx_dp", **level).value, right),
    )
    disclosed = scores >= mechanism.threshold
    yield (
        "disclosures, as many as there are",
        _by_counts(
            lambda k, v: epsilon_one_run(m, k, v, rule="adaptive", **level).value,
            disclosed.sum(axis=1),
            (disclosed & coins).sum(axis=1),
        ),
    )


def _models(
    mechanism: Mechanism, generator: np.random.Generator, tp: Integers, fp: Integers, runs: int
) -> Iterator[Row]:
    """What holds for Gaussians only: on one with μ = 1, and on randomised response as an ε at δ = 1e-5."""
    name, own, small = mechanism.name, mechanism.name == "Gaussian", 1e-5
    if not own and name != "randomised response":
        return

    def row(statistic: str, truth: float, delta: float, values: Floats) -> Row:
        alarms, power = int((values > truth * (1 + 1e-12)).sum()), float(np.median(values)) / truth
        return Row(statistic, name, truth, delta, len(values), alarms, power, own)

    mus = _by_counts(lambda a, b: mu_clopper_pearson(a, runs - a, b, runs - b, confidence=1 - BETA).value, tp, fp)
    if own:
        yield row("μ of a Gaussian", 1.0, 0.0, mus)
    else:
        yield row("ε of a Gaussian with that μ", 1.0, small, _by_counts(lambda mu: _epsilon_of(mu, small), mus))
    coins = generator.integers(0, 2, size=(len(tp), 200)) == 1
    inside, outside = mechanism.draw(generator, coins.shape)
    right = ((np.where(coins, inside, outside) >= 0.5) == coins).sum(axis=1)
    result = _by_counts(
        lambda v: epsilon_one_run_f_dp(200, 200, v, family="gdp", delta=small, confidence=1 - BETA).value, right
    )
    yield row("one run of 200, f-DP of a Gaussian", _epsilon_of(1.0, small) if own else 1.0, small, result)


def _epsilon_of(mu: float, delta: float) -> float:
    return gaussian_curve.epsilon(mu, delta).lower if mu else 0.0


def _by_counts(function: Callable[..., float], *counts: NDArray[Any]) -> Floats:
    """A function of counts on each repetition, worked out once for equal ones."""
    unique, which = np.unique(np.stack(counts, axis=1), axis=0, return_inverse=True)
    return np.array([function(*row) for row in unique.tolist()])[which.reshape(-1)]


def _best_threshold(inside: Floats, outside: Floats, delta: float) -> float:
    thresholds = np.unique(np.concatenate([inside, outside]))
    tp, fp = (s.size - np.searchsorted(np.sort(s), thresholds) for s in (inside, outside))
    counts = (tp, inside.size - tp, fp, outside.size - fp)
    return float(epsilons_clopper_pearson(*counts, delta=delta, confidence=1 - BETA).max())


def times(m: int = 100_000) -> Iterator[tuple[str, float]]:
    """Seconds of one bound from one run of m candidates, 80% of which are guessed and 75% of those rightly."""
    counts = (m, m * 4 // 5, m * 3 // 5)
    level: dict[str, Any] = {"delta": 1e-6, "confidence": 1 - BETA}
    rules: tuple[Rule, ...] = ("published", "tight", "adaptive")
    families: tuple[Family, ...] = ("approx_dp", "gdp")
    for rule in rules:
        start = time.process_time()
        epsilon_one_run(*counts, rule=rule, **level)
        yield f"one run, {rule}", time.process_time() - start
    for family in families:
        start = time.process_time()
        epsilon_one_run_f_dp(*counts, family=family, **level)
        yield f"one run, f-DP, {family}", time.process_time() - start


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
    seconds = dict(times())
    if options.json:
        print(json.dumps({"rows": [{**vars(row), "valid": row.valid} for row in rows], "seconds": seconds}))
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
        for name, taken in seconds.items():
            print(f"{name}: {taken:.2f} s for 100000 candidates, its ceiling included")
    if wrong := [row for row in rows if row.bound and not row.valid]:
        raise SystemExit(f"{len(wrong)} bounds are wrong more often than they say")


if __name__ == "__main__":
    main()
