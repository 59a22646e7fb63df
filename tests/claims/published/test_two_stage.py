"""Published claims about two-stage fine-tuning: integrals and closed forms in mpmath, and simulated training."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from published_rows import checked, lower, upper
from scipy import special

from dpassay.accounting import ApproxDP, calibrate
from dpassay.claims.published.laws import certain_epsilon, certain_epsilon_of_coins, certain_epsilon_of_maxima
from dpassay.claims.published.registry import checks_of, read_published_claims
from dpassay.mechanisms.two_stage.generator import TwoStage

mp = mpmath.mp.clone()
mp.dps = 20

DELTA = 1e-5


def test_all_have_a_row_and_the_verdict_of_their_file() -> None:
    rows = [claim for claim in read_published_claims() if claim.check.startswith("two_stage.")]
    assert {claim.check.partition(".")[2] for claim in rows} == set(checks_of("two_stage"))
    for claim in rows:
        result = checked(claim.id)
        assert result.as_recorded, claim.id
        assert all(step[-1] == "." for step in result.finding.steps)


# Theorem A.4


def divergence(order: float, rate: float, sigma: float, *, added: bool) -> float:
    """D_α between a step with and without a record whose gradient has length 1, by quadrature (Definition A.1)."""

    def mixture(x: mpmath.mpf) -> mpmath.mpf:
        return (1 - rate) * mp.npdf(x, 0, sigma) + rate * mp.npdf(x, 1, sigma)

    def integrand(x: mpmath.mpf) -> mpmath.mpf:
        first, second = mixture(x), mp.npdf(x, 0, sigma)
        if not added:
            first, second = second, first
        return second * (first / second) ** order

    edges = [*range(-40, 41, 5)]
    return float(mp.log(mp.quad(integrand, [edge * sigma for edge in edges])) / (order - 1))


@pytest.mark.grid
@pytest.mark.parametrize(("order", "rate", "sigma"), [(2, 0.01, 1.0), (8, 0.05, 0.8), (16, 0.01, 1.5)])
def test_theorem_a4_has_its_inequality_the_wrong_way(order: int, rate: float, sigma: float) -> None:
    """ "If ρ ≥" is right, and nothing below is enough."""
    step: dict[str, Any] = {"order": order, "rate": rate, "noise_multiplier": sigma}
    exact = divergence(order, rate, sigma, added=True)
    result = checked("002-1", **step)
    assert result.claimed == pytest.approx(exact / 2, rel=1e-9)
    assert result.finding.lower == pytest.approx(exact, rel=1e-9)
    assert divergence(order, rate, sigma, added=False) <= exact  # A_α ≥ B_α
    assert [checked("002-1", **step, share=share).verdict for share in (0, 0.999, 1.001)] == [
        "REFUTED",
        "REFUTED",
        "SUPPORTED",
    ]


# Theorem A.7


def bound(order: int, rate: float, sigma: float) -> float:
    """log A_α/(α − 1) of Theorem A.4 for a whole α, by the binomial theorem: no integral."""
    moments = (
        mp.binomial(order, k)
        * mp.mpf(1 - rate) ** (order - k)
        * mp.mpf(rate) ** k
        * mp.exp(k * (k - 1) / (2 * sigma**2))
        for k in range(order + 1)
    )
    return float(mp.log(mp.fsum(moments)) / (order - 1))


def theorem_a7(rate: float, sigma: float, steps: int) -> float:
    """Equation 12, the least over a grid of orders; at α = 1, which the theorem allows, it divides by 0."""
    orders: dict[float, float] = {order: bound(order, rate, sigma) for order in range(2, 64)}
    orders |= {order / 4: divergence(order / 4, rate, sigma, added=True) for order in range(5, 24) if order % 4}
    return min(
        steps * result + float(mp.log1p(-mp.mpf(1) / order) - (mp.log(DELTA) + mp.log(order)) / (order - 1))
        for order, result in orders.items()
    )


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "epochs"), [(1.0, 10), (8.0, 10), (1.0, 1)])
def test_theorem_a7_is_sound_and_loose_for_poisson_samples(epsilon: float, epochs: int) -> None:
    """30000 records, batches of 32: what the theorem states lies above the certified ε of the same noise."""
    size: dict[str, Any] = {"records": 30_000, "batch_size": 32, "steps": epochs * 30_000 // 32}
    noise = calibrate(
        lambda value: TwoStage(noise_multiplier=value, **size).plan(),
        ApproxDP(epsilon, DELTA),
        adjacency="add_remove",
        decreasing=True,
        bracket=(0.1, 20.0),
    ).value
    result = checked("002-3", epochs=epochs, noise_multiplier=noise)
    stated = theorem_a7(32 / 30_000, noise, size["steps"])
    assert result.claimed == pytest.approx(stated, rel=5e-3)  # by different grids of orders
    assert result.finding.upper is not None
    assert 0.99 * epsilon < result.finding.upper <= epsilon
    assert result.claimed > 1.05 * epsilon
    assert result.verdict == "SUPPORTED"


def test_without_sampling_the_theorem_does_not_hold() -> None:
    result = checks_of("two_stage")["poisson_samples"](30_000, 32, 10, 0.913, DELTA, sampler="none")
    assert result.upper is not None
    assert result.claimed is not None
    assert result.upper > 100 > 2 > result.claimed


# Shuffled batches


def simulated_delta(epsilon: float, runs: int) -> tuple[float, float]:
    """δ(ε) = E_P max(0, 1 − e^(ε − loss)) of ten maxima of 938 sums, and its standard error.

    The maxima are not counted in bins. They are drawn with the mean 3.2 instead of 2, and weighted.
    """
    rng, batches, sigma = np.random.default_rng(5), 938, 0.913
    own = rng.normal(size=(runs, 10)) + 3.2 / sigma
    others = special.ndtri_exp(np.log(rng.random((runs, 10))) / (batches - 1))
    top = np.maximum(own, others)

    def log_density(mean: float) -> np.ndarray:
        """Of the maximum, less (m − 2)·log Φ(x): (m − 1) φ(x) Φ(x − mean) + Φ(x) φ(x − mean)."""
        shifted = top - mean / sigma
        return np.logaddexp(
            math.log(batches - 1) - top**2 / 2 + special.log_ndtr(shifted), special.log_ndtr(top) - shifted**2 / 2
        )

    drawn, with_, without = (log_density(mean).sum(axis=1) for mean in (3.2, 2.0, 1.0))
    gains = -np.expm1(np.minimum(0.0, epsilon - (with_ - without))) * np.exp(with_ - drawn)
    return float(gains.mean()), float(gains.std() / math.sqrt(runs))


@pytest.mark.slow
def test_shuffled_batches_are_no_poisson_samples() -> None:
    """The bound is within .1 of the exact ε of the maxima: four standard errors err with probability 6e-5."""
    result = checked("002-2")
    assert result.claimed == pytest.approx(1.0009, abs=1e-4)
    assert 6.51 < lower("002-2") < 6.52
    for epsilon, sign in ((lower("002-2"), 1), (lower("002-2") + 0.1, -1)):
        delta, error = simulated_delta(epsilon, 300_000)
        assert sign * (delta - DELTA) > -4 * error
        assert error < 0.02 * DELTA


def test_with_more_noise_the_maxima_show_nothing() -> None:
    assert checked("002-2", noise_multiplier=5.0).verdict == "UNPROVEN"


# What floats are certain of


def test_bounds_of_finite_laws_are_below_the_exact_value() -> None:
    """Ten answers of .75 against .25, by all three functions: 10 log 3 less what δ = 1e-6 takes off."""
    p, delta = mp.mpf(3) / 4, mp.mpf(10) ** -6
    exact = float(mp.log((p**10 - delta) / (1 - p) ** 10))
    coins = certain_epsilon_of_coins((0.75, 0.25), (0.25, 0.75), count=10, delta=1e-6)
    assert exact - 1e-8 < coins <= exact
    assert coins == certain_epsilon_of_coins((0.25, 0.75), (0.75, 0.25), count=10, delta=1e-6)
    for error in (1e-12, 1e-4):
        laws = certain_epsilon([0.75, 0.25], [0.25, 0.75], count=10, delta=1e-6, relative_error=error)
        assert exact - 30 * error - 1e-6 < laws <= exact - 20 * error


def test_one_sum_is_a_gaussian() -> None:
    """The largest of one sum is the sum: σ = 1, means 1 apart, ε(1e-5) = 4.377178."""
    result = certain_epsilon_of_maxima(batches=1, epochs=1, noise_multiplier=1.0, means=(2.0, 1.0), delta=1e-5)
    assert 4.35 < result < 4.377178


def test_supported_bounds_are_those_of_the_rows() -> None:
    assert upper("002-3") < 0.6 < lower("002-2")
