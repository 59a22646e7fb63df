"""Whether recorded samples and noise can come from the law that was declared: p-values for what brute force cannot see.

Each is the probability, or an upper bound on it, of something at least as telling under the declared law. They refute
what a mechanism says of its own randomness; no ε follows from them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from cupel.accounting.number_format import format_number
from cupel.attacks.black_box.recorder import Recording, Step

Floats = NDArray[np.float64]

_MOST_VALUES = 5000  # of noise, for the test of its law: the exact distribution is used up to 10⁴
_ROUNDING = 2.0**-51  # of what rounding leaves of noise that was added and is taken apart again
_MOST_BATCHES = 1000  # of all runs, that are compared in pairs
_CLEAR = 1e-9  # of a scale
_ANEW = "noise drawn anew"


@dataclass(frozen=True, slots=True)
class RandomnessTest:
    """A p-value.

    Attributes:
        about: ``sampling`` or ``noise``.
        step: the first step that it is about.
        declared: the law under which `p_value` is computed.
        found: what was seen.
        p_value: at most this is the probability of that, or of more of it, under the law.
    """

    about: Literal["sampling", "noise"]
    step: int
    declared: str
    found: str
    p_value: float


def sampling_tests(recordings: Sequence[Recording]) -> list[RandomnessTest]:
    """Tests of all samples that mechanisms drew themselves against independent coins.

    With inclusion by independent coins of rate q, the sizes of K batches are independent Bin(n, q), and so are the
    numbers of batches, of T in a run, that units take part in: Bin(T, q). Six tests:

    - all inclusions together are Bin(·, q): its two-sided tail;
    - m of K equal batch sizes: for each size s, the number of batches that have it is Bin(K, f(s)), so that
      Σ_s P[Bin(K, f(s)) ≥ m] bounds the probability that any size occurs m times. A constant size fails here;
    - the same for how often units take part. Shuffled epochs, in which each takes part once, fail here;
    - the largest deviation of a batch size, and of a participation, by a union bound over both tails of each;
    - the pair of batches that agree on the most, or the fewest, units: Bin(n, q² + (1 − q)²), by a union bound. Samples
      from a fixed seed, or by what the data are, fail here.
    """
    tests = []
    for number, rate, runs in _samples(recordings):
        said = f"independent coins of rate {format_number(rate)}"
        total, ones = sum(flags.size for flags in runs), int(sum(flags.sum() for flags in runs))
        sizes = np.concatenate([flags.sum(axis=1) for flags in runs])
        tests.append(
            RandomnessTest("sampling", number, said, f"{ones} of {total} inclusions", _tails([ones], total, rate))
        )
        tests += _counts(number, said, "batches have size", sizes, runs[0].shape[1], rate)
        tests += _pairs(number, said, [flags[: _MOST_BATCHES // len(runs)] for flags in runs], rate)
        for length in sorted({len(flags) for flags in runs}):
            taken = np.concatenate([flags.sum(axis=0) for flags in runs if len(flags) == length])
            tests += _counts(number, said, f"units are in, of {length} batches,", taken, length, rate)
    return tests


def _samples(recordings: Sequence[Recording]) -> list[tuple[int, float, list[NDArray[np.bool_]]]]:
    """For each sample that is declared: its first step, its rate, and its flags in each run, shape (batches, units)."""
    found: dict[tuple[str, tuple[Hashable, ...]], tuple[int, float, list[list[NDArray[np.bool_]]]]] = {}
    for index, recording in enumerate(recordings):
        for number, step in enumerate(recording.steps):
            if step.kind == "sample" and step.own and step.units:
                rate = step.event.sampling_probability
                *_, runs = found.setdefault((repr(step.event), step.units), (number, rate, [[] for _ in recordings]))
                runs[index].append(step.value)
    return [(number, rate, [np.stack(flags) for flags in runs if flags]) for number, rate, runs in found.values()]


def _counts(
    number: int, said: str, what: str, counts: NDArray[np.int64], trials: int, rate: float
) -> Iterator[RandomnessTest]:
    """The two tests of independent counts with the law Bin(trials, rate)."""
    often = np.bincount(counts)
    most = int(often.max())
    law = stats.binom.pmf(np.arange(trials + 1), trials, rate)
    equal = min(1.0, float(np.sum(stats.binom.sf(most - 1, len(counts), law))))
    yield RandomnessTest("sampling", number, said, f"{most} of {len(counts)} {what} {int(often.argmax())}", equal)
    far = int(counts[np.argmax(np.abs(counts - trials * rate))])
    yield RandomnessTest("sampling", number, said, f"of {len(counts)} {what} one {far}", _tails(counts, trials, rate))


def _pairs(number: int, said: str, runs: Sequence[NDArray[np.bool_]], rate: float) -> Iterator[RandomnessTest]:
    """The test of batches that are too much, or too little, alike."""
    signs = 2.0 * np.concatenate(runs) - 1
    if len(signs) > 1:
        units = signs.shape[1]
        equal = np.rint((signs @ signs.T + units) / 2)[np.triu_indices(len(signs), 1)].astype(np.int64)
        same = rate**2 + (1 - rate) ** 2
        ends = np.array([equal.min(), equal.max()])
        p_value = min(1.0, _tails(ends, units, same) * len(equal))
        seen = f"of {len(equal)} pairs of batches some agree on {ends[0]}, some on {ends[1]} of {units} units"
        yield RandomnessTest("sampling", number, said, seen, p_value)


def _tails(counts: Sequence[int] | NDArray[np.int64], trials: int, rate: float) -> float:
    """Both tails of the most extreme of some Bin(trials, rate), times their number."""
    values = np.asarray(counts)
    least = np.minimum(stats.binom.cdf(values, trials, rate), stats.binom.sf(values - 1, trials, rate))
    return min(1.0, 2 * len(values) * float(least.min()))


def noise_tests(recordings: Sequence[Recording]) -> list[RandomnessTest]:
    """Tests of all values that mechanisms drew themselves, for noise that repeats and for its law.

    Given the noise of one step, that of another repeats it to within rounding with probability at most Π 2t·f(0), t
    the rounding and f(0) the largest density of the declared law, in units of its scale; for whole numbers and for
    selections it is the probability of those very values. Compared are the steps of the first run with each other, and
    the first run with each later one. The law of the noise and of the selections of all runs is tested after Kolmogorov
    and Smirnov, where their number does not depend on their values.
    """
    first, *others = recordings
    own = {number: step for number, step in enumerate(first.steps) if step.own and step.kind != "sample"}
    tests = []
    for kind in ("gaussian", "laplace", "discrete_laplace"):
        steps = {number: step for number, step in own.items() if step.kind == kind and step.scale and step.query.size}
        if steps:
            again = [step for run in others for step in run.steps if step.own and step.kind == kind and step.scale]
            tests.append(_law(kind, min(steps), [*steps.values(), *again]))
            tests += [_within(steps)] if kind != "discrete_laplace" else []
    selections = [step for run in recordings for step in run.steps if step.own and step.kind == "selection"]
    if selections:
        first_one = next(n for run in recordings for n, step in enumerate(run.steps) if step is selections[0])
        tests.append(_law_of_selections(first_one, selections))
    for index, other in enumerate(others, start=1):
        tests += _between(own, other, index)
    return tests


def _law(kind: str, number: int, steps: Sequence[Step]) -> RandomnessTest:
    """Whether all noise of a kind is of its declared law, where rounding leaves enough of it to tell.

    A value comes from a uniform u as the law's quantile, and tells that low ≤ u ≤ high (low = high but for whole
    numbers). So n values bound Kolmogorov and Smirnov's distance of the u's from below, by the largest i/n − high_(i)
    and low_(i) − (i − 1)/n of sorted ones, and its p-value from above.
    """
    found, ends = [], []
    for step in steps:
        noise, error = _standard(step)
        clear = error < _CLEAR
        found.append(noise[clear])
        ends.append(_ends(kind, noise[clear], error[clear], step.scale))
    pooled, (low, high) = np.concatenate(found)[:_MOST_VALUES], np.concatenate(ends, axis=1)[:, :_MOST_VALUES]
    n = len(pooled)
    seen = f"{n} values, of a standard deviation of {format_number(float(pooled.std()) if n else 0.0)} scales"
    return RandomnessTest("noise", number, f"{kind} noise of the declared scale", seen, _far(low, high))


def _law_of_selections(number: int, steps: Sequence[Step]) -> RandomnessTest:
    """The same for outcomes, ordered by their probability, the likeliest first: always taking that one fails here."""
    ends, likeliest = [], 0
    for step in steps[:_MOST_VALUES]:
        law = np.exp(step.query)
        order = np.argsort(-law, kind="stable")
        place = int(np.flatnonzero(order == step.value[0])[0])
        ends.append((law[order[:place]].sum(), law[order[: place + 1]].sum()))
        likeliest += place == 0
    low, high = np.array(ends).T
    seen = f"{len(ends)} selections, {likeliest} of them of the likeliest outcome"
    return RandomnessTest("noise", number, "selections by their weights", seen, _far(low - _CLEAR, high + _CLEAR))


def _far(low: Floats, high: Floats) -> float:
    """The p-value of Kolmogorov and Smirnov for the least distance that uniform numbers between these ends can have."""
    n = len(low)
    if not n:
        return 1.0
    if np.isnan(low).any():
        return 0.0  # numbers that are not whole
    i = np.arange(n)
    distance = np.max([(i + 1) / n - np.sort(high), np.sort(low) - i / n], initial=0.0)
    return float(stats.kstwo.sf(distance, n))


def _ends(kind: str, noise: Floats, error: Floats, scale: float) -> Floats:
    """P[X < x] and P[X ≤ x] of noise in units of its scale, shape (2, n); NaN for what should be whole and is not."""
    if kind != "discrete_laplace":
        up_to = special.ndtr(noise) if kind == "gaussian" else stats.laplace.cdf(noise)
        return np.stack([up_to, up_to])
    whole = np.rint(noise * scale)
    ratio = math.exp(-1 / scale)
    tail = ratio ** np.abs(whole) / (1 + ratio)  # P[K ≥ |k|]
    low = np.where(whole <= 0, tail * ratio, 1 - tail)
    low[np.abs(noise * scale - whole) > 2 * error * scale] = np.nan
    return np.stack([low, low + (1 - ratio) * tail])


def _within(steps: dict[int, Step]) -> RandomnessTest:
    """The pair of steps whose noise repeats, in units of its scale, that is least likely to."""
    numbers = list(steps)
    worst, pair = 0.0, (numbers[0], numbers[0])
    for size in {step.query.size for step in steps.values()}:
        own = [number for number in numbers if steps[number].query.size == size]
        by_value = sorted(own, key=lambda number: float(_standard(steps[number])[0][0]))
        for one, two in itertools.pairwise(by_value):  # equal ones are next to each other
            log = _log_chance(steps[one], steps[two]) if _repeats(steps[one], steps[two]) else 0.0
            if log < worst:
                worst, pair = log, (min(one, two), max(one, two))
    chance = math.exp(min(0.0, worst + math.log(max(1, math.comb(len(numbers), 2)))))
    return RandomnessTest("noise", pair[0], _ANEW, f"that of step {pair[1]} is the same", chance)


def _between(own: dict[int, Step], other: Recording, index: int) -> list[RandomnessTest]:
    """The step of the first run that a later run repeats and is least likely to, and the repetition of all of them."""
    pairs = [(number, step, other.steps[number]) for number, step in own.items() if number < len(other.steps)]
    if not pairs:
        return []
    logs = [_log_chance(step, later) if _repeats(step, later) else 0.0 for _, step, later in pairs]
    least = int(np.argmin(logs))
    one = math.exp(min(0.0, logs[least] + math.log(len(logs))))
    every = math.exp(math.fsum(logs)) if all(_repeats(step, later) for _, step, later in pairs) else 1.0
    return [
        RandomnessTest("noise", pairs[least][0], _ANEW, f"that of run {index} is the same", one),
        RandomnessTest("noise", pairs[0][0], _ANEW, f"run {index} has the same in every step", every),
    ]


def _standard(step: Step) -> tuple[Floats, Floats]:
    """The noise of a release in units of its scale, and bounds on its error.

    The release was rounded by at most u·(|query| + |noise|), and so are its difference to the query and the quotient.
    """
    noise = (step.value - step.query) / step.scale
    return noise, _ROUNDING * (np.abs(step.query) / step.scale + np.abs(noise))


def _repeats(step: Step, later: Step) -> bool:
    """Whether two steps have the same noise in units of its scale, or the same selection."""
    if later.kind != step.kind or later.query.size != step.query.size:
        return False
    if step.kind == "selection":
        return bool(step.value[0] == later.value[0])
    if not step.scale or not later.scale:
        return False
    (noise, error), (again, more) = _standard(step), _standard(later)
    return bool((np.abs(noise - again) <= error + more).all())


def _log_chance(step: Step, later: Step) -> float:
    """A bound on the log-probability that noise drawn anew at `later` repeats that of `step` to within rounding."""
    if step.kind == "selection":
        return float(later.query[step.value[0]])
    noise, error = _standard(step)
    if step.kind == "discrete_laplace":
        rate = 1 / later.scale
        size = np.rint(np.abs(noise) * step.scale).sum()
        return min(0.0, float(noise.size * math.log(math.tanh(rate / 2)) - rate * size))
    # Where it repeats it, its own error is as in `_standard`, with this noise in the place of its own.
    within = error + 1.01 * _ROUNDING * (np.abs(later.query) / later.scale + np.abs(noise))
    density = 1 / math.sqrt(2 * math.pi) if step.kind == "gaussian" else 0.5
    return float(np.minimum(0.0, np.log(np.maximum(2 * within * density, 1e-300))).sum())
