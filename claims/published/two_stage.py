"""Checks of "DP-2Stage: Adapting Language Models as Differentially Private Tabular Data Generators"."""

from __future__ import annotations

import math

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from dpassay.accounting import account
from dpassay.base.number_format import format_lower, format_number, format_upper
from dpassay.claims.published.laws import certain_epsilon_of_maxima
from dpassay.claims.published.statement import CheckResult


def sampled_gaussian_divergence(order: int, rate: float, noise_multiplier: float) -> float:
    """log A_α/(α − 1) of Theorem A.4 for a whole order, to a relative 1e-12.

    A_α − 1 = Σ_k C(α, k) (1 − q)^(α − k) q^k (e^(k(k − 1)/(2σ²)) − 1) is a sum of α − 1 positive terms, each of which
    errs by α + 5 units in the last place at most, as α is at most 1000.
    """
    moments = (
        math.comb(order, k) * (1 - rate) ** (order - k) * rate**k * math.expm1(k * (k - 1) / (2 * noise_multiplier**2))
        for k in range(2, order + 1)
    )
    return math.log1p(math.fsum(moments)) / (order - 1)


def renyi_divergence_of_a_step(order: int, rate: float, noise_multiplier: float, share: float) -> CheckResult:
    """The Rényi divergence of a step with and without a row whose gradient has length 1, against `share` of the bound.

    The output along that gradient has the law μ with the row and μ₀ without it, so that D_α is the bound itself. It is
    an upper bound by Theorem 4 and Corollary 7 of Mironov, Talwar and Zhang (2019).
    """
    exact = sampled_gaussian_divergence(order, rate, noise_multiplier)
    lower, upper = exact * (1 - 1e-12), exact * (1 + 1e-12)
    return CheckResult.of(
        f"D has one row of gradient 1 and other rows of gradient 0, and D′ lacks it; q = {format_number(rate)}, "
        f"σ = {format_number(noise_multiplier)}, α = {order}.",
        f"A step releases the mixture (1 − q)·N(0, σ²) + q·N(1, σ²) from D and N(0, σ²) from D′: their Rényi "
        f"divergence is log A_α/(α − 1), at least {format_lower(lower)}.",
        f"By the theorem as printed ρ = {format_number(share * exact)} would do, which is "
        f"{format_number(share)} times that.",
        lower=lower,
        upper=upper,
        claimed=share * exact,
    )


def stated_epsilon(rate: float, noise_multiplier: float, steps: int, delta: float) -> float:
    """Equation (12), the least over the orders of dp_accounting, which evaluates the same formula."""
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise_multiplier))
    return float(RdpAccountant().compose(event, steps).get_epsilon(delta))


def shuffled_batches(records: int, batch_size: int, epochs: int, noise_multiplier: float, delta: float) -> CheckResult:
    """Batches of a shuffled table, accounted as Poisson samples, where all but one gradient are known.

    Where the batch of the row in question is in an epoch is drawn at random. The last batch of an epoch may be smaller,
    which changes nothing: its known sum is subtracted as well.
    """
    batches = math.ceil(records / batch_size)
    claimed = stated_epsilon(batch_size / records, noise_multiplier, epochs * batches, delta)
    lower = certain_epsilon_of_maxima(
        batches=batches, epochs=epochs, noise_multiplier=noise_multiplier, means=(2.0, 1.0), delta=delta
    )
    return CheckResult.of(
        f"{records} rows in shuffled batches of {batch_size}, {epochs} epochs, σ = {format_number(noise_multiplier)}: "
        f"equation (12) states ε = {format_number(claimed)} at δ = {format_number(delta)}.",
        "One row has the gradient 1 in D and counts as 0 in D′; all others have −1.",
        f"The adversary adds the size of its batch to each noisy sum. What is left is noise around 0 but for the "
        f"batch of the row, where it is noise around 2 in D and around 1 in D′. She takes the largest of the "
        f"{batches} sums of each epoch.",
        f"The largest sums of {epochs} epochs have ε of at least {format_lower(lower)}.",
        lower=lower,
        claimed=claimed,
    )


def poisson_samples(
    records: int, batch_size: int, epochs: int, noise_multiplier: float, delta: float, sampler: str = "poisson"
) -> CheckResult:
    """The ε of equation (12), against a certified bound.

    Args:
        batch_size: b, expected.
        epochs: for T = epochs·n/b steps.
        sampler: "poisson", or "none", where each step has all rows.
    """
    rate, steps = batch_size / records, records * epochs // batch_size
    claimed = stated_epsilon(rate, noise_multiplier, steps, delta)
    step: dp_event.DpEvent = dp_event.GaussianDpEvent(noise_multiplier)
    if sampler == "poisson":
        step = dp_event.PoissonSampledDpEvent(rate, step)
    event = dp_event.SelfComposedDpEvent(step, steps)
    upper = account(event, adjacency="add_remove", delta=delta, method="lattice").value
    return CheckResult.of(
        f"{steps} steps with a Poisson sample of {batch_size} of {records} rows, σ = "
        f"{format_number(noise_multiplier)}: equation (12) states ε = {format_number(claimed)} at δ = "
        f"{format_number(delta)}.",
        f"The privacy-loss distribution of the same steps has ε of at most {format_upper(upper)}, so that the "
        f"statement is {format_number(claimed / upper, digits=3)} times the certified bound.",
        upper=upper,
        claimed=claimed,
    )
