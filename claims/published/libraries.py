"""Checks of what the code and the documentation of libraries state.

dp_accounting and OpenDP, which dpassay depends on, are asked when a check runs. Other libraries are not needed: their
rows have the number that the version printed, or the check evaluates its formula, and the row says which.

Of checks, `noise_multiplier` is σ over the largest norm of a record, `records` n and `delta` δ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version

import numpy as np
from dp_accounting import DpEvent, NeighboringRelation, dp_event, privacy_accountant
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from scipy import special

from dpassay.accounting import DominatingPair
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_interval, format_lower, format_number
from dpassay.claims.published.laws import certain_epsilon_of_coins, certain_epsilon_of_maxima
from dpassay.claims.published.statement import CheckResult

_ACCOUNTANTS: Mapping[str, type[privacy_accountant.PrivacyAccountant]] = {"pld": PLDAccountant, "rdp": RdpAccountant}


def _by_dp_accounting(
    event: DpEvent, count: int, delta: float, accountant: str, relation: str = "ADD_OR_REMOVE_ONE"
) -> float:
    asked = _ACCOUNTANTS[accountant](neighboring_relation=NeighboringRelation[relation])
    return float(asked.compose(event, count).get_epsilon(delta))


def _dp_accounting_says(what: str, epsilon: float, delta: float) -> str:
    library = f"dp_accounting {version('dp_accounting')}"
    return f"{what} of {library} answers ε = {format_number(epsilon)} at δ = {format_number(delta)}."


# --- randomised response, Gaussians, mixtures: dp_accounting, Flower


def randomized_response(noise_parameter: float, count: int, delta: float, accountant: str = "pld") -> CheckResult:
    """So many answers about one bit, by randomised response with two buckets."""
    event = dp_event.RandomizedResponseDpEvent(noise_parameter, 2)
    claimed = _by_dp_accounting(event, count, delta, accountant, "REPLACE_ONE")
    likely, other = 1 - noise_parameter / 2, noise_parameter / 2
    lower = certain_epsilon_of_coins((likely, other), (other, likely), count=count, delta=delta)
    return CheckResult.of(
        f"The same bit is answered {count} times: 0 in D, 1 in D′. Each answer is right with probability "
        f"{format_number(likely)}.",
        f"All {count} answers are 0 with probability {format_number(likely**count)} in D and "
        f"{format_number(other**count)} in D′. Over all tests of how many are, ε is at least {format_lower(lower)}.",
        _dp_accounting_says(f"For {count} answers {_ACCOUNTANTS[accountant].__name__}", claimed, delta),
        lower=lower,
        claimed=claimed,
    )


def exchanged_gaussian(noise_multiplier: float, delta: float, accountant: str = "") -> CheckResult:
    """A sum with Gaussian noise, as one record is exchanged for its opposite.

    Args:
        accountant: of dp_accounting, "rdp" or "pld"; by default the row has a number.
    """
    result = DominatingPair.gaussian(noise_multiplier, 2.0).epsilon(delta)
    claimed = None
    if accountant:
        event = dp_event.GaussianDpEvent(noise_multiplier)
        claimed = _by_dp_accounting(event, 1, delta, accountant, "REPLACE_ONE")
    steps = [
        f"Records have a norm of at most C; the noise is {format_number(noise_multiplier)} C. One record, "
        "(C, 0, …, 0), is exchanged for (−C, 0, …, 0): the sum moves by 2 C.",
        f"So the pair is N({format_number(2 / noise_multiplier)}, 1) against N(0, 1), whose ε at δ = "
        f"{format_number(delta)} lies in {format_interval(result.lower, result.upper)}.",
    ]
    if claimed is not None:
        steps.append(_dp_accounting_says(f"For REPLACE_ONE {_ACCOUNTANTS[accountant].__name__}", claimed, delta))
    return CheckResult.of(*steps, within=result, claimed=claimed)


def sampled_without_replacement(
    records: int, sample: int, noise_multiplier: float, delta: float, moved_by: float = 2.0
) -> CheckResult:
    """A noisy sum over a sample of fixed size, as one record is exchanged.

    Args:
        sample: m.
        moved_by: how far the exchange moves the sum of a sample that has the record, in these norms.
    """
    event = dp_event.SampledWithoutReplacementDpEvent(records, sample, dp_event.GaussianDpEvent(noise_multiplier))
    claimed = _by_dp_accounting(event, 1, delta, "rdp", "REPLACE_ONE")
    rate = sample / records
    lower = DominatingPair.gaussian(noise_multiplier, moved_by).poisson_sampled(rate).epsilon(delta).lower
    return CheckResult.of(
        f"{records} records, of which {sample} are drawn. All have the value −1 in D′; in D one has "
        f"{format_number(moved_by - 1)}. The noise is {format_number(noise_multiplier)}.",
        f"The sum has the mean −{sample} in D′; in D it is {format_number(moved_by)} more with probability "
        f"{format_number(rate)}.",
        f"This mixture of two Gaussians against one has ε of at least {format_lower(lower)}.",
        _dp_accounting_says("For REPLACE_ONE RdpAccountant", claimed, delta),
        lower=lower,
        claimed=claimed,
    )


def gaussian_mixture(
    weights: Sequence[float], shifts: Sequence[float], noise: float, unit: float, delta: float, step: float = 1e-4
) -> CheckResult:
    """A mixture of Gaussians whose numbers are all multiplied by `unit`, which does not change what is told apart.

    Args:
        weights: of the Gaussians.
        shifts: their means.
        noise: their standard deviation.
        unit: a factor of means and standard deviation.
        step: of the losses that the library counts, by default its own.
    """
    event = dp_event.MixtureOfGaussiansDpEvent(noise * unit, [unit * shift for shift in shifts], list(weights))
    claimed = float(PLDAccountant(value_discretization_interval=step).compose(event).get_epsilon(delta))
    result = DominatingPair.gaussian_mixture(weights, shifts, noise).epsilon(delta)
    return CheckResult.of(
        f"D releases a Gaussian with σ = {format_number(noise)} around {', '.join(map(format_number, shifts))} "
        f"with the weights {', '.join(map(format_number, weights))}, and D′ one around 0: ε at δ = "
        f"{format_number(delta)} lies in {format_interval(result.lower, result.upper)}, in any unit.",
        _dp_accounting_says(f"In the unit {format_number(unit)} PLDAccountant", claimed, delta),
        within=result,
        claimed=claimed,
    )


def composed_gaussians(noise_multiplier: float, count: int, delta: float) -> CheckResult:
    """Gaussians whose privacy-loss distributions are composed, which are together one Gaussian of larger mean."""
    law = privacy_loss_distribution.from_gaussian_mechanism(noise_multiplier)
    claimed = float(law.self_compose(count).get_epsilon_for_delta(delta))
    result = DominatingPair.gaussian(noise_multiplier).self_compose(count).epsilon(delta)
    return CheckResult.of(
        f"{count} Gaussian releases with σ = {format_number(noise_multiplier)} are one with σ = "
        f"{format_number(noise_multiplier / math.sqrt(count))}.",
        f"Its ε at δ = {format_number(delta)} lies in {format_interval(result.lower, result.upper)}.",
        _dp_accounting_says("The pessimistic privacy-loss distribution", claimed, delta),
        within=result,
        claimed=claimed,
    )


# --- sampled Gaussians: dp_accounting, Opacus, Flower, TensorFlow Privacy, prv_accountant


def _sampled(noise_multipliers: Sequence[float], rates: Sequence[float], steps: Sequence[int]) -> DominatingPair:
    parts = [
        DominatingPair.gaussian(noise).poisson_sampled(rate).self_compose(count)
        for noise, rate, count in zip(noise_multipliers, rates, steps, strict=True)
    ]
    return parts[0].compose(*parts[1:])


def epsilon_of_central_limit(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """ε by the μ of a central limit theorem, q·√(T(e^(1/σ²) − 1)), for Poisson samples."""
    mu = rate * math.sqrt(steps * math.expm1(noise_multiplier**-2))
    return DominatingPair.gaussian(1 / mu).epsilon(delta).upper


def poisson_samples(
    noise_multipliers: Sequence[float],
    rates: Sequence[float],
    steps: Sequence[int],
    delta: float,
    accountant: str = "",
    width: float = 1e-3,
) -> CheckResult:
    """Gaussian sums over Poisson samples.

    Args:
        noise_multipliers, rates, steps: of each part of a run.
        accountant: "rdp" or "pld" of dp_accounting, or "central_limit"; by default the row has a number. For one part.
        width: relative width of the certified interval.
    """
    result = _sampled(noise_multipliers, rates, steps).epsilon(delta, width=width)
    parts = zip(noise_multipliers, rates, steps, strict=True)
    lines = [
        *(
            f"{count} steps with σ = {format_number(noise)} on Poisson samples at the rate {format_number(rate)}: a "
            "record of the largest norm is in D and not in D′."
            for noise, rate, count in parts
        ),
        f"ε at δ = {format_number(delta)} lies in {format_interval(result.lower, result.upper)}.",
    ]
    claimed = None
    if accountant == "central_limit":
        claimed = epsilon_of_central_limit(noise_multipliers[0], rates[0], steps[0], delta)
        lines.append(f"The central limit theorem has ε = {format_number(claimed)}.")
    elif accountant:
        event = dp_event.PoissonSampledDpEvent(rates[0], dp_event.GaussianDpEvent(noise_multipliers[0]))
        claimed = _by_dp_accounting(event, steps[0], delta, accountant)
        lines.append(_dp_accounting_says(_ACCOUNTANTS[accountant].__name__, claimed, delta))
    return CheckResult.of(*lines, within=result, claimed=claimed)


def stated_lower_end(
    noise_multiplier: float, rate: float, steps: int, delta: float, lower_end: float, width: float = 1e-3
) -> CheckResult:
    """How far the lower end of a stated interval is above ε, which is to be nowhere."""
    result = _sampled([noise_multiplier], [rate], [steps]).epsilon(delta, width=width)
    return CheckResult.of(
        f"{steps} steps with σ = {format_number(noise_multiplier)} on Poisson samples at the rate "
        f"{format_number(rate)}, one record more or less: ε at δ = {format_number(delta)} lies in "
        f"{format_interval(result.lower, result.upper)}.",
        f"The interval that is stated begins at {format_number(lower_end)}.",
        lower=math.nextafter(lower_end - result.upper, -math.inf),
        upper=math.nextafter(lower_end - result.lower, math.inf),
    )


def delta_of_an_addition(noise_multiplier: float, rate: float, steps: int, epsilon: float) -> CheckResult:
    """δ at a negative ε, where adding a record has the larger one."""
    pair = _sampled([noise_multiplier], [rate], [steps])
    added, removed = (pair.delta(epsilon, direction=side) for side in ("add", "remove"))
    return CheckResult.of(
        f"{steps} steps with σ = {format_number(noise_multiplier)} on Poisson samples at the rate "
        f"{format_number(rate)}, ε = {format_number(epsilon)}.",
        f"Of the data set with the record over the one without, δ lies in "
        f"{format_interval(removed.lower, removed.upper)}; the other way round in "
        f"{format_interval(added.lower, added.upper)}.",
        lower=max(added.lower, removed.lower),
        upper=max(added.upper, removed.upper),
    )


def shuffled_batches(batches: int, epochs: int, noise_multiplier: float, delta: float) -> CheckResult:
    """Batches of a shuffled data set, of known gradients but for one record's."""
    lower = certain_epsilon_of_maxima(
        batches=batches, epochs=epochs, noise_multiplier=noise_multiplier, means=(2.0, 1.0), delta=delta
    )
    return CheckResult.of(
        f"{batches} shuffled batches, {epochs} epoch{'s' if epochs > 1 else ''}, σ = "
        f"{format_number(noise_multiplier)}. One record has the gradient 1 in D and counts as 0 in D′; all others "
        "have −1.",
        "The adversary adds the size of its batch to each noisy sum. What is left is noise around 0 but for the batch "
        "of the record, where it is noise around 2 in D and around 1 in D′. She takes the largest sum of each epoch.",
        f"The largest sums have ε of at least {format_lower(lower)} at δ = {format_number(delta)}.",
        lower=lower,
    )


def once_an_epoch(
    noise_multiplier: float, batches: int, epochs: int, delta: float, adjacency: str = "zero_out"
) -> CheckResult:
    """Batches that are cut from the records in a fixed order, where each record is in one batch of an epoch.

    Where a record counts as 0, all others stay in their batches, and only its own moves. Where it is removed, all
    records after it move up, and each batch loses its first and gains the first of the next.

    Args:
        batches: whole batches of an epoch.
        epochs: passes over the data.
        adjacency: "zero_out" or "add_remove".
    """
    moved, count = (1.0, epochs) if adjacency == "zero_out" else (2.0, epochs * batches)
    result = DominatingPair.gaussian(noise_multiplier, moved).self_compose(count).epsilon(delta)
    if adjacency == "zero_out":
        how = f"A record of norm 1 counts as 0 in D′: in each of {epochs} epochs one sum moves by 1."
    else:
        how = (
            f"The first records of the {batches} batches are 1 and −1 in turn, and D′ lacks the first of all: in each "
            f"of {epochs} epochs the sums of all these batches move by 2, as each loses its first record and gains the "
            "first of the next."
        )
    return CheckResult.of(
        how,
        f"{count} Gaussian sums with σ = {format_number(noise_multiplier)} that move by {format_number(moved)} "
        f"have an ε at δ = {format_number(delta)} in {format_interval(result.lower, result.upper)}.",
        lower=result.lower,
        upper=result.upper if adjacency == "zero_out" else None,
    )


def discrete_gaussian(scale: float, delta: float) -> CheckResult:
    """The ε of OpenDP for a noisy count, through zero-concentrated differential privacy."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    noisy = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale)
    claimed = float(dp.c.make_zCDP_to_approxDP(noisy).map(1).epsilon(delta))
    result = DominatingPair.discrete_gaussian(scale, 1).epsilon(delta)
    return CheckResult.of(
        f"Counts that differ by 1, with discrete Gaussian noise of scale {format_number(scale)}: ε at δ = "
        f"{format_number(delta)} lies in {format_interval(result.lower, result.upper)}.",
        f"OpenDP {version('opendp')} answers {format_number(claimed)}.",
        within=result,
        claimed=claimed,
    )


# --- lower bounds on ε from guesses: TensorFlow Privacy


# --- dpsynth


def selection_of_errors(standard_deviation: float, misses: int) -> CheckResult:
    """A selection from two marginals by their errors, with probabilities proportional to e^(εu), as AIM draws it.

    The errors of floats in both terms are below 1e-12 of what they are.

    Args:
        standard_deviation: of the Laplace noise that is accounted for it, which has ε = √2 over it.
        misses: by how many records the model is above a cell of the second marginal.
    """
    epsilon = math.sqrt(2) / standard_deviation
    before, after = (float(np.logaddexp(0, epsilon * gap)) for gap in (misses, misses - 2))
    lower = (before - after) - 1e-12 * (before + after)
    return CheckResult.of(
        f"Laplace noise of deviation {format_number(standard_deviation)} has ε = {format_number(epsilon)}. The "
        "selection draws a marginal with a probability proportional to e^(εu), u being the L1 distance to what "
        "the model expects.",
        f"In D the model is right about the first marginal, and {misses} records above a cell of the second: the "
        f"errors are 0 and {misses}.",
        f"D′ has one more record, in that cell: the errors are 1 and {misses - 1}. They move in opposite directions.",
        f"The log-probability of the first marginal grows by {format_lower(lower)}.",
        f"As errors move by 1 at most, it never moves by more than 2ε = {format_number(2 * epsilon)}.",
        lower=lower,
        upper=2 * epsilon * (1 + 1e-12),
        claimed=epsilon,
    )


def _katz_log(hits: Floats, false_hits: Floats, runs: int, z: float) -> Floats:
    """log(tpr/fpr) less z standard errors of the logarithms; −∞ for no hits. Zeros and full counts move by one half."""
    full = (hits == runs) & (false_hits == runs)
    own, other = np.where(full, runs - 0.5, hits), np.where(full, runs - 0.5, false_hits)
    other = np.where(other == 0, 0.5, other)
    some = np.maximum(own, 0.5)
    error = np.sqrt((1 - some / runs) / some + (1 - other / runs) / other)
    return np.where(hits == 0, -np.inf, np.log(some / other) - z * error)


def katz_log(epsilon: float, runs: int, confidence: float) -> CheckResult:
    """How often Katz' lower bound on ε is above the ε of randomised response, by the law of the two counts.

    So many answers on each data set are 1 with probability e^ε/(1 + e^ε) and 1/(1 + e^ε). The bound is the largest of
    the four of true and false, positive and negative rates. The sum over all pairs of counts errs by 1e-9 at most;
    pairs whose bound is within 1e-9 of ε are not counted.
    """
    counts = np.arange(runs + 1)
    likely, z = 1 / (1 + math.exp(-epsilon)), -float(special.ndtri(1 - confidence))
    log_ways = np.array([math.log(math.comb(runs, int(k))) for k in counts])
    law = np.exp(log_ways + counts * math.log(likely) + (runs - counts) * math.log1p(-likely))
    tp, fp = np.meshgrid(counts.astype(float), counts.astype(float), indexing="ij")
    tn, fn = runs - fp, runs - tp
    bound = np.maximum.reduce([_katz_log(*pair, runs, z) for pair in ((tp, fp), (tn, fn), (fp, tp), (fn, tn))])
    chance = float((law[:, None] * law[::-1][None, :])[bound > epsilon + 1e-9].sum())
    return CheckResult.of(
        f"Randomised response with ε = {format_number(epsilon)} answers {runs} times for each of two data sets; an "
        f"answer is 1 with probability {format_number(likely)} and {format_number(1 - likely)}.",
        f"Over all {(runs + 1) ** 2} pairs of counts, the bound at confidence {format_number(confidence)} is above "
        f"{format_number(epsilon)} with probability {format_number(chance)}, where "
        f"{format_number(1 - confidence)} is allowed.",
        lower=chance - 1e-9,
    )
