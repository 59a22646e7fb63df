"""Checks of what training loops of libraries do beside the noisy sum that their accountants know.

Of checks, `noise_multiplier` is σ over the clipping norm, `records` n, `batch` the size of a batch and `delta` δ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version

import numpy as np
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy import stats

from dpassay.accounting import DominatingPair
from dpassay.base.number_format import format_interval, format_lower, format_number, format_upper
from dpassay.claims.published.libraries import shuffled_batches
from dpassay.claims.published.statement import CheckResult


def rate_and_divisor(records: int, batch: int) -> tuple[float, int]:
    """The sampling rate of Opacus 1.6.0, 1/⌈n/batch⌉, and what it divides noisy sums by, int(n · rate)."""
    rate = 1 / math.ceil(records / batch)
    return rate, int(records * rate)


def scale_of_noise(
    records: int, batch: int, noise_multiplier: float, dimensions: int, steps: int, delta: float
) -> CheckResult:
    """Noisy sums over a batch size that is computed from the number of records, one record more or less.

    All gradients are 0, so that steps are Gaussians around 0 of two scales a > b, m numbers in all. Of their squared
    norms over b², S has m degrees of freedom for b, and S·(a/b)² is that of a. By Chernoff's bound (Dasgupta & Gupta,
    "An Elementary Proof of a Theorem of Johnson and Lindenstrauss", 2003, Lemma 2.2) S is at least m·x, x ≥ 1, and at
    most m·x, x ≤ 1, with probability at most exp(−m/2·(x − 1 − log x)). So that a norm is above m·x tells one from the
    other, for every x between 1 and (a/b)².

    For a/b ≤ 3 the errors of floats are below 1e-14·m in both exponents, which are moved by that.

    Args:
        records: n of the larger data set.
        batch: size of a batch, as the data loader has it.
        dimensions: parameters of the model.
    """
    (rate, divisor), (other_rate, other) = (rate_and_divisor(n, batch) for n in (records, records - 1))
    numbers, ratio = dimensions * steps, (max(divisor, other) / min(divisor, other)) ** 2
    above = np.linspace(0.0, ratio - 1, 1001)[1:-1]  # x − 1
    below = (1 + above) / ratio - 1
    slack = 1e-14 * numbers
    log_false = slack - numbers / 2 * (above - np.log1p(above))
    log_missed = slack - numbers / 2 * (below - np.log1p(below))
    hits = -np.expm1(np.minimum(log_missed, 0.0)) * (1 - 1e-12) - delta
    tests = hits > 0
    lower = float((np.log(hits[tests]) - log_false[tests]).max()) if tests.any() else 0.0
    pair = DominatingPair.gaussian(noise_multiplier).poisson_sampled(rate).self_compose(steps).epsilon(delta)
    return CheckResult.of(
        f"D has {records} records and D′ one less; the loader's batches have {batch}. The sampling rates are "
        f"{format_number(rate)} and {format_number(other_rate)}, and noisy sums are divided by {divisor} and by "
        f"{other}.",
        f"All gradients are 0. A step is then noise of {format_number(noise_multiplier)} clipping norms over "
        f"{divisor}, or over {other}: {format_number(divisor / other)} times as large in D′.",
        f"The norm of {steps} steps of {dimensions} parameters is on one side of a threshold in D, on the other in D′. "
        f"By Chernoff's bound for both, ε is at least {format_lower(max(lower, 0.0))} at δ = {format_number(delta)}.",
        f"With one rate and one divisor for both, ε would lie in {format_interval(pair.lower, pair.upper)}.",
        lower=max(lower, 0.0),
    )


def noise_for_another_sensitivity(
    clipping_norm: float, sensitivity: float, epsilon: float, delta: float
) -> CheckResult:
    """The classical Gaussian mechanism for a sensitivity that is set apart from the norm to which updates are clipped.

    Args:
        clipping_norm: of the update that gets noise.
        sensitivity: for which the noise is computed.
        epsilon: for which the noise is computed.
    """
    noise = sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon
    result = DominatingPair.gaussian(noise, clipping_norm).epsilon(delta)
    return CheckResult.of(
        f"The noise is that of the classical formula for a sensitivity of {format_number(sensitivity)}, "
        f"ε = {format_number(epsilon)} and δ = {format_number(delta)}: {format_number(noise)}.",
        f"An update is bounded by its norm alone, clipped to {format_number(clipping_norm)}. All records of D′ "
        "have the gradient 0, and one more in D has one that is long: the update is 0 or of this norm, which is "
        f"{format_number(clipping_norm / noise)} times the noise.",
        f"ε at δ = {format_number(delta)} lies in {format_interval(result.lower, result.upper)}.",
        lower=result.lower,
        claimed=epsilon,
    )


def _accounted_noise(noise_multiplier: float, groups: int, expected_batch: int, fraction_noise: float) -> float:
    """σ of one Gaussian for a step with fractions that move by 1/2 over the expected batch.

    Source: Andrew et al., "Differentially Private Learning with Adaptive Clipping" (2021), Theorem 1.
    """
    return 1 / math.sqrt(noise_multiplier**-2 + groups / (2 * fraction_noise * expected_batch) ** 2)


def centred_fractions(
    noise_multiplier: float,
    groups: int,
    records: int,
    expected_batch: int,
    fraction_noise: float,
    steps: int,
    delta: float,
) -> CheckResult:
    """Noisy gradients and noisy sums of 1/2 for a clipped record and −1/2 for another, over a number that is public.

    The arguments are those of `fractions_of_clipped_records`.
    """
    sigma = _accounted_noise(noise_multiplier, groups, expected_batch, fraction_noise)
    rate = expected_batch / records
    result = DominatingPair.gaussian(sigma).poisson_sampled(rate).self_compose(steps).epsilon(delta)
    return CheckResult.of(
        f"A record moves the gradients by at most 1/σ = {format_number(1 / noise_multiplier)} of their noise, and "
        f"each of {groups} fractions by 1/2 over {expected_batch}, which is "
        f"{format_number(1 / (2 * expected_batch * fraction_noise))} of its noise: together one Gaussian with σ = "
        f"{format_number(sigma)}.",
        f"{steps} steps on Poisson samples at the rate {format_number(rate)}: ε at δ = {format_number(delta)} lies "
        f"in {format_interval(result.lower, result.upper)}.",
        within=result,
    )


def _left_out(
    groups: int,
    records: int,
    rate: float,
    fraction_noise: float,
    learning_rate: float,
    target_quantile: float,
    thresholds: Sequence[float],
    steps: int,
) -> float:
    """The probability of what `fractions_of_clipped_records` leaves out, at most, under either data set.

    Empty batches; errors of 1e-12 of the probabilities of B; thresholds that reach an end of their range, where
    they no longer tell the fraction. A walk of T steps of noise is above x at some step with probability at most twice
    that at the last one (Lévy). The record moves it by at most 5η, unless it is in more than 20 batches or in one of
    less than 4.
    """
    least, first, largest = thresholds
    spread = learning_rate * fraction_noise * math.sqrt(steps)
    down = (math.log(first / least) - learning_rate * target_quantile * steps) / spread
    up = (math.log(largest / first) - 5 * learning_rate) / spread
    pushed = stats.binom.sf(20, steps, rate) + steps * rate * stats.binom.cdf(2, records - 1, rate)
    ends = 2 * groups * (stats.norm.sf(down) + stats.norm.sf(up))
    return float(ends + pushed + steps * (1e-12 * rate + (1 - rate) ** (records - 1)))


def fractions_of_clipped_records(
    noise_multiplier: float,
    groups: int,
    records: int,
    expected_batch: int,
    fraction_noise: float,
    learning_rate: float,
    target_quantile: float,
    thresholds: Sequence[float],
    steps: int,
    delta: float,
) -> CheckResult:
    """Noisy gradients and noisy fractions of clipped records, over the records of the batch, on Poisson samples.

    All records but one have the gradient 0, which is never clipped. The gradient of that one is above each threshold in
    each group. In D′ a step releases noise alone. In D, in a batch of B records with it, the gradient moves by 1/σ of
    its noise, counted as .999/σ for the guards of clipping in floats, and each fraction by 1/B. Of what is released a
    projection on one direction is used, a mixture of Gaussians over B, whose law is binomial. What is left out is
    charged to δ, and may be a hundredth of it.

    Args:
        noise_multiplier: σ of the gradients of all groups together.
        groups: of parameters, each with its threshold and its fraction.
        expected_batch: n times the sampling rate, known to all.
        fraction_noise: standard deviation of the noise of a fraction.
        learning_rate: η of thresholds C·e^(η(fraction − target)).
        target_quantile: of these.
        thresholds: the least, the first and the largest.
    """
    rate = expected_batch / records
    sizes = np.arange(1, 40 * expected_batch)
    chances = stats.binom.pmf(sizes - 1, records - 1, rate)
    sizes, chances = sizes[chances > 1e-18], chances[chances > 1e-18]
    moved = np.stack([np.full(len(sizes), 0.999 / noise_multiplier), math.sqrt(groups) / (fraction_noise * sizes)])
    towards = np.array([1 / noise_multiplier, math.sqrt(groups) / (fraction_noise * (expected_batch + 1))])
    weights = [1 - rate * float(chances.sum()), *(rate * chances)]
    pair = DominatingPair.gaussian_mixture(weights, [0.0, *(towards @ moved / np.linalg.norm(towards))], 1.0)
    lower = pair.self_compose(steps).epsilon(1.01 * delta).lower
    loss = _left_out(groups, records, rate, fraction_noise, learning_rate, target_quantile, thresholds, steps)
    if math.log(loss) + np.logaddexp(0, lower) > math.log(0.01 * delta):
        lower = 0.0
    accounted = _accounted_noise(noise_multiplier, groups, expected_batch, fraction_noise)
    formula = DominatingPair.gaussian(accounted).poisson_sampled(rate).self_compose(steps).epsilon(delta)
    return CheckResult.of(
        f"{groups} groups of parameters; {records} records, sampled at the rate {format_number(rate)}. All have "
        "the gradient 0 but for one, which is in D and not in D′, and whose gradient is above each threshold.",
        f"In D′ the noisy fractions of clipped records, whose noise is {format_number(fraction_noise)}, are 0 but "
        f"for noise. In D each is 1/B in a batch of B records that has the record, and the gradients move by 1/σ = "
        f"{format_number(1 / noise_multiplier)} of their noise.",
        f"The thresholds tell the fractions, as they stay between {format_number(thresholds[0])} and "
        f"{format_number(thresholds[2])} for a target quantile of {format_number(target_quantile)}.",
        f"A mixture of Gaussians over B, {steps} times, against noise: ε at δ = {format_number(delta)} is at least "
        f"{format_lower(lower)}.",
        f"The accountant counts a fraction as one that moves by 1/2 over {expected_batch}: one Gaussian with σ = "
        f"{format_number(accounted)} a step, whose ε lies in {format_interval(formula.lower, formula.upper)}.",
        lower=lower,
    )


def counts_of_clipped_units(noise_multiplier: float, units: int, delta: float, stated: bool = True) -> CheckResult:
    """One step of adaptive clipping over all units, with noise of a twentieth of them on how many are clipped.

    The noise of the gradients is raised so that both together have the noise multiplier that is asked for, if the count
    moves by 1/2. One unit that is clipped, or is not, moves it by 1.

    Args:
        noise_multiplier: that is asked for.
        units: records or clients, whose number is public.
        stated: whether the claim is the ε of a Gaussian with this noise multiplier, and no number of the row.
    """
    of_count = units / 20
    of_gradients = (noise_multiplier**-2 - (2 * of_count) ** -2) ** -0.5
    together = (of_gradients**-2 + of_count**-2) ** -0.5
    result, asked = (DominatingPair.gaussian(noise).epsilon(delta) for noise in (together, noise_multiplier))
    return CheckResult.of(
        f"For a noise multiplier of {format_number(noise_multiplier)} and {units} units, the number of those that "
        f"are clipped, or are not, gets noise of {format_number(of_count)}, and the sum of vectors of norm at most "
        f"1 noise of {format_number(of_gradients)}.",
        "The vector of one unit is above the threshold in D, and as good as 0 in D′: the number moves by 1, and "
        "the sum by 1.",
        f"Both together are a Gaussian with a noise multiplier of {format_number(together)}, whose ε at δ = "
        f"{format_number(delta)} is at least {format_lower(result.lower)}; that of "
        f"{format_number(noise_multiplier)} is at most {format_upper(asked.upper)}.",
        lower=result.lower,
        claimed=asked.upper if stated else None,
    )


def shuffled_as_poisson(batches: int, epochs: int, noise_multiplier: float, delta: float) -> CheckResult:
    """Batches of a shuffled data set, accounted as Poisson samples at a rate of one over their number."""
    result = shuffled_batches(batches, epochs, noise_multiplier, delta)
    sampled = DominatingPair.gaussian(noise_multiplier).poisson_sampled(1 / batches).self_compose(batches * epochs)
    claimed = sampled.epsilon(delta).upper
    return CheckResult.of(
        *result.steps,
        f"Poisson samples at the rate {format_number(1 / batches)} would have ε of at most "
        f"{format_upper(claimed)}, which is what is accounted.",
        lower=result.lower,
        claimed=claimed,
    )


def fixed_number_of_clients(population: int, sample: int, noise_multiplier: float, delta: float) -> CheckResult:
    """One round of a fixed number of clients, one more or less in the population from which they are drawn.

    Args:
        population: clients of the larger population.
        sample: drawn without replacement.
    """
    claimed = RdpAccountant().compose(GaussianDpEvent(noise_multiplier)).get_epsilon(delta)
    rate = sample / population
    lower = DominatingPair.gaussian(noise_multiplier, 2.0).poisson_sampled(rate).epsilon(delta).lower
    return CheckResult.of(
        f"{sample} of {population} clients are drawn in D, and {sample} of {population - 1} in D′. All have an "
        "update of −1 but the one that is not in D′, which has 1.",
        f"The sum of updates is −{sample} in D′. In D it is 2 more with probability {format_number(rate)}: the "
        "client takes the place of another.",
        f"With noise of {format_number(noise_multiplier)}, ε at δ = {format_number(delta)} is at least "
        f"{format_lower(lower)}.",
        f"RdpAccountant of dp_accounting {version('dp_accounting')}, which the library asks, answers "
        f"{format_number(float(claimed))} for one Gaussian.",
        lower=lower,
        claimed=float(claimed),
    )


def drawn_with_replacement(records: int, batch: int, noise_multiplier: float, steps: int, delta: float) -> CheckResult:
    """Batches of a fixed size drawn with replacement, in which a record may be several times.

    All gradients are 0 but that of one record, which is 1, or counts as 0 in D′. The binomial probabilities of how
    often a batch has it err by less than 1e-12 in all, which a hundredth of δ pays for.
    """
    times = np.arange(batch + 1)
    chances = stats.binom.pmf(times, batch, 1 / records)
    times, chances = times[chances > 1e-18], chances[chances > 1e-18]
    pair = DominatingPair.gaussian_mixture([*(chances / chances.sum())], [*times.astype(float)], noise_multiplier)
    lower = pair.self_compose(steps).epsilon(1.01 * delta).lower
    if math.log(1e-12 * steps) + np.logaddexp(0, lower) > math.log(0.01 * delta):
        lower = 0.0
    once = batch / records
    return CheckResult.of(
        f"Each of {steps} batches is {batch} draws from {records} records, with replacement. The gradient of one "
        "record is 1 in D and counts as 0 in D′, and all others are 0.",
        f"A batch has it {format_number(once)} times on average, and twice or more with probability "
        f"{format_number(float(chances[2:].sum()))}: the sum moves by as much.",
        f"With noise of {format_number(noise_multiplier)}, ε at δ = {format_number(delta)} is at least "
        f"{format_lower(lower)}.",
        lower=lower,
    )


def sum_of_allocated_steps(noise_multiplier: float, times: int, steps: int, delta: float) -> CheckResult:
    """Steps to some of which each record is allotted, so often for certain: the sum of all of them moves by as much."""
    result = DominatingPair.gaussian(noise_multiplier * math.sqrt(steps), times).epsilon(delta)
    return CheckResult.of(
        f"Each record is in {times} of {steps} steps, whose noise is {format_number(noise_multiplier)}. All "
        "gradients are 0 but that of one record, which is 1. It is in D and not in D′.",
        f"The sum of all noisy sums is {times} in D and 0 in D′, with noise of "
        f"{format_number(noise_multiplier * math.sqrt(steps))}: ε at δ = {format_number(delta)} is at least "
        f"{format_lower(result.lower)}.",
        lower=result.lower,
    )


# --- sizes of what is released


def _shares(counts: Sequence[int], samples: int) -> tuple[int, ...]:
    """How many samples of each label, by the counts: rounded down, and one more for the largest remainders."""
    targets = np.asarray(counts) / np.sum(counts) * samples
    result = np.floor(targets).astype(int)
    result[np.argsort(targets - result)[::-1][: samples - int(result.sum())]] += 1
    return tuple(result.tolist())


def _certain(first: object, second: object, what: str, where: str) -> CheckResult:
    """What has no noise, in D and in D′: δ is 1 at every ε if it differs."""
    return CheckResult.of(
        where,
        f"{what}: {first} in D and {second} in D′, without noise.",
        "Whoever sees them tells D from D′ with certainty: δ is 1 at every ε."
        if first != second
        else "They are equal, and tell nothing.",
        lower=float(first != second),
    )


def samples_of_each_label(counts: Sequence[int], samples: int) -> CheckResult:
    """Synthetic samples of each label, in proportion to the labels of the private data.

    Args:
        counts: private records of each label in D; D′ has one less of the first.
        samples: synthetic ones.
    """
    fewer = (counts[0] - 1, *counts[1:])
    return _certain(
        _shares(counts, samples),
        _shares(fewer, samples),
        f"{samples} synthetic samples are divided among the labels",
        f"D has {', '.join(map(str, counts))} records of the labels, and D′ {', '.join(map(str, fewer))}.",
    )


def as_many_rows(records: int) -> CheckResult:
    """A synthetic table that is as long as the private one."""
    where = f"D has {records} rows and D′ one less."
    return _certain(records, records - 1, "Rows of the synthetic table, by default", where)
