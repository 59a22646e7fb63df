"""Tests of whether recorded samples and noise follow the declared distribution.

Replay on neighbours cannot check this. Each p-value is the probability, or an upper bound on it, of a result at least
as extreme under the declared distribution. A small one refutes what a mechanism declares about its randomness; no ε
follows from it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

from dpassay.attacks.black_box.recorder import Recording, Step
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.base.number_format import format_number

_MAX_VALUES = 5000  # noise values that are tested: the exact Kolmogorov–Smirnov distribution is used up to 10⁴
_ROUNDING = 2.0**-51  # relative error of noise that is recovered by subtracting the query
_MAX_BATCHES = 1000  # batches of all runs that are compared in pairs
_RESOLUTION = 1e-9  # in units of the noise scale
_FRESH_NOISE = "fresh noise"


@dataclass(frozen=True, slots=True)
class RandomnessTest:
    """What was observed from a step on, and an upper bound on the probability, under the declared distribution, of a
    result at least as extreme."""

    about: Literal["sampling", "noise"]
    step: int
    declared: str
    measured: str
    p_value: float


def sampling_tests(recordings: Sequence[Recording]) -> list[RandomnessTest]:
    """Tests of all samples that mechanisms drew themselves against Poisson sampling.

    If units are included by independent coins of rate q, the sizes of K batches are independent Bin(n, q), and the
    numbers of batches, of T in a run, that each unit takes part in are independent Bin(T, q). Six tests:

    - all inclusions together are Bin(·, q): its two-sided tail;
    - m of K batch sizes are equal: for each size s, the number of batches of this size is Bin(K, f(s)), so
      Σ_s P[Bin(K, f(s)) ≥ m] bounds the probability that any size occurs m times. A constant size fails this test;
    - the same for the number of batches of each unit. Shuffled epochs, in which each unit occurs once, fail this test;
    - the largest deviation of a batch size, and of a number of batches, by a union bound over both tails of each;
    - the pair of batches that agree on the most, or the fewest, units: Bin(n, q² + (1 − q)²), by a union bound. Samples
      from a fixed seed, or chosen by the data, fail this test.
    """
    tests = []
    for number, rate, runs in _samples(recordings):
        said = f"independent coins of rate {format_number(rate)}"
        total, items = sum(flags.size for flags in runs), int(sum(flags.sum() for flags in runs))
        sizes = np.concatenate([flags.sum(axis=1) for flags in runs])
        tests.append(
            RandomnessTest(
                "sampling", number, said, f"{items} of {total} inclusions", _two_sided_p_value([items], total, rate)
            )
        )
        tests += _count_tests(number, said, "batches have size", sizes, runs[0].shape[1], rate)
        tests += _pair_tests(number, said, [flags[: _MAX_BATCHES // len(runs)] for flags in runs], rate)
        for length in sorted({len(flags) for flags in runs}):
            taken = np.concatenate([flags.sum(axis=0) for flags in runs if len(flags) == length])
            tests += _count_tests(number, said, f"units are in, of {length} batches,", taken, length, rate)
    return tests


def _samples(recordings: Sequence[Recording]) -> list[tuple[int, float, list[Bools]]]:
    """For each declared sample: its first step, its rate, and its flags in each run, shape (batches, units)."""
    results: dict[tuple[str, tuple[Hashable, ...]], tuple[int, float, list[list[Bools]]]] = {}
    for index, recording in enumerate(recordings):
        for number, step in enumerate(recording.steps):
            if step.kind == "sample" and step.own and step.units:
                rate = step.event.sampling_probability
                *_, runs = results.setdefault((repr(step.event), step.units), (number, rate, [[] for _ in recordings]))
                runs[index].append(step.value)
    return [(number, rate, [np.stack(flags) for flags in runs if flags]) for number, rate, runs in results.values()]


def _count_tests(
    number: int, said: str, what: str, counts: Integers, trials: int, rate: float
) -> Iterator[RandomnessTest]:
    """The two tests of independent Bin(trials, rate) counts: how many are equal, and the largest deviation."""
    often = np.bincount(counts)
    most = int(often.max())
    law = stats.binom.pmf(np.arange(trials + 1), trials, rate)
    equal = min(1.0, float(np.sum(stats.binom.sf(most - 1, len(counts), law))))
    yield RandomnessTest("sampling", number, said, f"{most} of {len(counts)} {what} {int(often.argmax())}", equal)
    far = int(counts[np.argmax(np.abs(counts - trials * rate))])
    yield RandomnessTest(
        "sampling", number, said, f"of {len(counts)} {what} one {far}", _two_sided_p_value(counts, trials, rate)
    )


def _pair_tests(number: int, said: str, runs: Sequence[Bools], rate: float) -> Iterator[RandomnessTest]:
    """The test of whether two batches are too similar or too different."""
    signs = 2.0 * np.concatenate(runs) - 1
    if len(signs) > 1:
        units = signs.shape[1]
        equal = np.rint((signs @ signs.T + units) / 2)[np.triu_indices(len(signs), 1)].astype(np.int64)
        same = rate**2 + (1 - rate) ** 2
        ends = np.array([equal.min(), equal.max()])
        p_value = min(1.0, _two_sided_p_value(ends, units, same) * len(equal))
        seen = f"of {len(equal)} pairs of batches some agree on {ends[0]}, some on {ends[1]} of {units} units"
        yield RandomnessTest("sampling", number, said, seen, p_value)


def _two_sided_p_value(counts: Sequence[int] | Integers, trials: int, rate: float) -> float:
    """The two-sided p-value of the most extreme of several Bin(trials, rate) counts, by a union bound."""
    values = np.asarray(counts)
    least = np.minimum(stats.binom.cdf(values, trials, rate), stats.binom.sf(values - 1, trials, rate))
    return min(1.0, 2 * len(values) * float(least.min()))


def noise_tests(recordings: Sequence[Recording]) -> list[RandomnessTest]:
    """Tests of all noise and selections that mechanisms drew themselves: for repetition, and for their distribution.

    Given the noise of one step, that of another step repeats it to within rounding with probability at most
    Π 2t·f(0), with t the rounding and f(0) the largest density of the declared distribution, in units of its scale.
    For whole numbers and selections it is the probability of the same values. The steps of the first run are compared
    with each other, and the first run with each later run. The noise and selections of all runs are tested with a
    Kolmogorov–Smirnov test, if their number does not depend on their values.
    """
    first, *others = recordings
    own = {number: step for number, step in enumerate(first.steps) if step.own and step.kind != "sample"}
    tests = []
    for kind in ("gaussian", "laplace", "discrete_laplace"):
        steps = {number: step for number, step in own.items() if step.kind == kind and step.scale and step.query.size}
        if steps:
            again = [step for run in others for step in run.steps if step.own and step.kind == kind and step.scale]
            tests.append(_law_test(kind, min(steps), [*steps.values(), *again]))
            tests += [_repetition_within_run(steps)] if kind != "discrete_laplace" else []
    selections = [step for run in recordings for step in run.steps if step.own and step.kind == "selection"]
    if selections:
        first_one = next(n for run in recordings for n, step in enumerate(run.steps) if step is selections[0])
        tests.append(_selection_law_test(first_one, selections))
    for index, other in enumerate(others, start=1):
        tests += _repetition_across_runs(own, other, index)
    return tests


def _law_test(kind: str, number: int, steps: Sequence[Step]) -> RandomnessTest:
    """Tests the distribution of all noise of a kind, except values of which rounding leaves too few digits.

    A value is the quantile of a uniform u, so it implies low ≤ u ≤ high (low = high except for whole numbers). So n
    values give a lower bound on the Kolmogorov–Smirnov distance of the u's, the largest i/n − high_(i) and
    low_(i) − (i − 1)/n of the sorted ends, and hence an upper bound on its p-value.
    """
    results, ends = [], []
    for step in steps:
        noise, error = _standardised_noise(step)
        clear = error < _RESOLUTION
        results.append(noise[clear])
        ends.append(cdf_ends(kind, noise[clear], error[clear], step.scale))
    pooled, (low, high) = np.concatenate(results)[:_MAX_VALUES], np.concatenate(ends, axis=1)[:, :_MAX_VALUES]
    n = len(pooled)
    seen = f"{n} values, of a standard deviation of {format_number(float(pooled.std()) if n else 0.0)} scales"
    return RandomnessTest(
        "noise", number, f"{kind} noise of the declared scale", seen, _kolmogorov_smirnov_p_value(low, high)
    )


def _selection_law_test(number: int, steps: Sequence[Step]) -> RandomnessTest:
    """The same test for selections, ordered by probability, likeliest first: always choosing the likeliest fails."""
    ends, likeliest = [], 0
    for step in steps[:_MAX_VALUES]:
        law = np.exp(step.query)
        order = np.argsort(-law, kind="stable")
        index = int(np.flatnonzero(order == step.value[0])[0])
        ends.append((law[order[:index]].sum(), law[order[: index + 1]].sum()))
        likeliest += index == 0
    low, high = np.array(ends).T
    seen = f"{len(ends)} selections, {likeliest} of them of the likeliest outcome"
    return RandomnessTest(
        "noise",
        number,
        "selections by their weights",
        seen,
        _kolmogorov_smirnov_p_value(low - _RESOLUTION, high + _RESOLUTION),
    )


def _kolmogorov_smirnov_p_value(low: Floats, high: Floats) -> float:
    """The Kolmogorov–Smirnov p-value of the smallest distance that uniform numbers between these ends can have."""
    n = len(low)
    if not n:
        return 1.0
    if np.isnan(low).any():
        return 0.0  # some values are not whole numbers
    i = np.arange(n)
    distance = np.max([(i + 1) / n - np.sort(high), np.sort(low) - i / n], initial=0.0)
    return float(stats.kstwo.sf(distance, n))


def cdf_ends(kind: str, noise: Floats, error: Floats, scale: float) -> Floats:
    """P[X < x] and P[X ≤ x] of noise in units of its scale, shape (2, n); NaN for a value that should be integers."""
    if kind != "discrete_laplace":
        up_to = special.ndtr(noise) if kind == "gaussian" else stats.laplace.cdf(noise)
        return np.stack([up_to, up_to])
    integers = np.rint(noise * scale)
    ratio = math.exp(-1 / scale)
    tail = ratio ** np.abs(integers) / (1 + ratio)  # P[K ≥ |k|]
    low = np.where(integers <= 0, tail * ratio, 1 - tail)
    low[np.abs(noise * scale - integers) > 2 * error * scale] = np.nan
    return np.stack([low, low + (1 - ratio) * tail])


def _repetition_within_run(steps: dict[int, Step]) -> RandomnessTest:
    """The test of the pair of steps with equal noise, in units of the scale, that is least likely to repeat."""
    numbers = list(steps)
    worst, pair = 0.0, (numbers[0], numbers[0])
    for size in {step.query.size for step in steps.values()}:
        own = [number for number in numbers if steps[number].query.size == size]
        by_value = sorted(own, key=lambda number: float(_standardised_noise(steps[number])[0][0]))
        for first, second in itertools.pairwise(by_value):  # sorted by value, so equal noise is adjacent
            log = log_repeat_probability(steps[first], steps[second]) if is_repeat(steps[first], steps[second]) else 0.0
            if log < worst:
                worst, pair = log, (min(first, second), max(first, second))
    chance = math.exp(min(0.0, worst + math.log(max(1, math.comb(len(numbers), 2)))))
    return RandomnessTest("noise", pair[0], _FRESH_NOISE, f"that of step {pair[1]} is the same", chance)


def _repetition_across_runs(own: dict[int, Step], other: Recording, index: int) -> list[RandomnessTest]:
    """Two tests of a later run: the least likely step that it repeats, and whether it repeats all of them."""
    pairs = [(number, step, other.steps[number]) for number, step in own.items() if number < len(other.steps)]
    if not pairs:
        return []
    logs = [log_repeat_probability(step, later) if is_repeat(step, later) else 0.0 for _, step, later in pairs]
    least = int(np.argmin(logs))
    item = math.exp(min(0.0, logs[least] + math.log(len(logs))))
    every = math.exp(math.fsum(logs)) if all(is_repeat(step, later) for _, step, later in pairs) else 1.0
    return [
        RandomnessTest("noise", pairs[least][0], _FRESH_NOISE, f"that of run {index} is the same", item),
        RandomnessTest("noise", pairs[0][0], _FRESH_NOISE, f"run {index} has the same in every step", every),
    ]


def _standardised_noise(step: Step) -> tuple[Floats, Floats]:
    """The noise of a release in units of its scale, and bounds on its error.

    With u the unit roundoff, the release, its difference from the query and the quotient are each rounded by at most
    u·(|query| + |noise|).
    """
    noise = (step.value - step.query) / step.scale
    return noise, _ROUNDING * (np.abs(step.query) / step.scale + np.abs(noise))


def is_repeat(step: Step, later: Step) -> bool:
    """Whether two steps have the same noise in units of its scale, or the same selection."""
    if later.kind != step.kind or later.query.size != step.query.size:
        return False
    if step.kind == "selection":
        return bool(step.value[0] == later.value[0])
    if not step.scale or not later.scale:
        return False
    (noise, error), (again, more) = _standardised_noise(step), _standardised_noise(later)
    return bool((np.abs(noise - again) <= error + more).all())


def log_repeat_probability(step: Step, later: Step) -> float:
    """A bound on the log-probability that noise drawn anew at `later` repeats that of `step` to within rounding."""
    if step.kind == "selection":
        return float(later.query[step.value[0]])
    noise, error = _standardised_noise(step)
    if step.kind == "discrete_laplace":
        rate = 1 / later.scale
        size = np.rint(np.abs(noise) * step.scale).sum()
        return min(0.0, float(noise.size * math.log(math.tanh(rate / 2)) - rate * size))
    # If the noise repeats, the later error is that of `_standardised_noise` with this noise in place of its own.
    within = error + 1.01 * _ROUNDING * (np.abs(later.query) / later.scale + np.abs(noise))
    density = 1 / math.sqrt(2 * math.pi) if step.kind == "gaussian" else 0.5
    return float(np.minimum(0.0, np.log(np.maximum(2 * within * density, 1e-300))).sum())
