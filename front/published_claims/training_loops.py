"""Checks of what training loops of libraries do beside the noisy sum that their accountants know."""

from __future__ import annotations

import math

import numpy as np

from cupel.accounting import DominatingPair
from cupel.accounting.number_format import format_interval, format_lower, format_number
from cupel.published_claims.statement import Checks, Finding


def rate_and_divisor(records: int, batch: int) -> tuple[float, int]:
    """The sampling rate of Opacus 1.6.0, 1/⌈n/batch⌉, and what it divides noisy sums by, int(n · rate)."""
    rate = 1 / math.ceil(records / batch)
    return rate, int(records * rate)


def scale_of_noise(
    records: int, batch: int, noise_multiplier: float, dimensions: int, steps: int, delta: float
) -> Finding:
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
        noise_multiplier: σ over the clipping norm.
        dimensions: parameters of the model.
        steps: how many.
        delta: δ.
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
    return Finding(
        lower=max(lower, 0.0),
        steps=(
            f"D has {records} records and D′ one less; the loader's batches have {batch}. The sampling rates are "
            f"{format_number(rate)} and {format_number(other_rate)}, and noisy sums are divided by {divisor} and by "
            f"{other}.",
            f"All gradients are 0. A step is then noise of {format_number(noise_multiplier)} clipping norms over "
            f"{divisor}, or over {other}: {format_number(divisor / other)} times as large in D′.",
            f"The norm of {steps} steps of {dimensions} parameters is on one side of a threshold in D, on the other in "
            f"D′. By Chernoff's bound for both, ε is at least {format_lower(max(lower, 0.0))} at δ = "
            f"{format_number(delta)}.",
            f"With one rate and one divisor for both, ε would lie in {format_interval(pair.lower, pair.upper)}.",
        ),
    )


CHECKS: Checks = {"scale_of_noise": scale_of_noise}
