"""Fine enclosures beside dp_accounting's and prv_accountant's answers for sampled Gaussians, removal of a unit.

Three computations that share no code: a certified interval of relative width 1e-5, the library's number, and the
transform's inversion (`oracle_inversion`, 10 digits), which settles who is right where two of them disagree. In the
four configurations and in 51 random ones:

- prv_accountant's [lower, upper], ±.01 by request, holds the true ε and all of our interval, with one exception: at
  σ = 1.0018, q = .1004, n = 2389, δ = 2.41e-8 it states [53.1931, 53.2156], and [53.18249, 53.18290] is certified; the
  inversion and dp_accounting agree with that (`tests/known_bugs` has a rounder case). It refused 5 of 56 draws
  ("Discrete mean differs from continuous mean significantly"), all of them with a large ε.
- dp_accounting's pessimistic ε (step 1e-4) was above the truth every time, by 4e-6 to 8.5e-5: (σ, q, n, δ) =
  (.8, .005, 10³, 1e-6) gives 2.0041117 where [2.0040995, 2.0041185] is certified, (1, .01, 10⁴, 1e-5) 6.1877450 beside
  [6.1876953, 6.1877447], (.6, .001, 5·10³, 1e-7) 3.4373409 beside [3.4373114, 3.4373390], (2, .1, 2·10³, 1e-6)
  13.8057673 in [13.8057255, 13.8058335]. Where it does fall below is held by `tests/known_bugs`.
"""

from __future__ import annotations

import random
import warnings

import pytest
from dp_accounting.pld import privacy_loss_distribution
from oracle_cases import log_uniform
from oracle_inversion import composed_delta, sampled_gaussian
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet

STEP = 1e-4
WIDTH = 1e-5
DIGITS = 1e-10
"""Relative error of the inversion."""
MISSED = {(1.0018427816165507, 0.1004038543436717, 2389, 2.4128277659535807e-08)}
"""Where prv_accountant's interval excludes the truth."""


def enclosure(sigma: float, rate: float, count: int, delta: float) -> Interval:
    """Of ε under removal, checked against the inversion at both ends."""
    pair = DominatingPair.gaussian(sigma).poisson_sampled(rate).self_compose(count)
    with warnings.catch_warnings():
        warnings.simplefilter("error", WidthNotMet)
        result = pair.epsilon(delta, direction="remove", width=WIDTH)
    laws = sampled_gaussian(rate)
    assert composed_delta(*laws, sigma, count, result.upper, "remove") <= delta * (1 + DIGITS)
    assert composed_delta(*laws, sigma, count, result.lower, "remove") >= delta * (1 - DIGITS)
    return result


def by_prv(sigma: float, rate: float, count: int, delta: float) -> Interval:
    law = PoissonSubsampledGaussianMechanism(noise_multiplier=sigma, sampling_probability=rate)
    library = PRVAccountant(law, eps_error=0.01, delta_error=delta / 1000, max_self_compositions=count)
    lower, _, upper = library.compute_epsilon(delta, [count])
    return Interval(float(lower), float(upper))


def by_pld(sigma: float, rate: float, count: int, delta: float) -> float:
    law = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=STEP
    )
    return float(law.self_compose(count).get_epsilon_for_delta(delta))


def agree(sigma: float, rate: float, count: int, delta: float) -> None:
    ours = enclosure(sigma, rate, count, delta)
    prv, pld = by_prv(sigma, rate, count, delta), by_pld(sigma, rate, count, delta)
    where = (sigma, rate, count, delta, ours, prv, pld)
    if (sigma, rate, count, delta) not in MISSED:
        # The true ε is in both, and ours is some hundred times the finer; so all of ours is in theirs but for a sliver.
        assert prv.lower <= ours.lower <= ours.upper <= prv.upper, where
    # Connecting dots costs the library at most n(λ + 1)h²/8 of ε, which was below 8.5e-5 throughout: one step at most.
    assert ours.lower <= pld <= ours.upper + STEP, where


@pytest.mark.slow
@pytest.mark.parametrize(
    "configuration",
    [
        *((0.8, 0.005, 1000, 1e-6), (2.0, 0.1, 2000, 1e-6)),
        pytest.param((1.0, 0.01, 10_000, 1e-5), marks=pytest.mark.slow),
        pytest.param((0.6, 0.001, 5000, 1e-7), marks=pytest.mark.slow),
    ],
)
def test_private_training(configuration: tuple[float, float, int, float]) -> None:
    agree(*configuration)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(56))
def test_random_private_training(seed: int) -> None:
    """51 of 56; the others are those that prv_accountant refuses."""
    chance = random.Random(f"training {seed}")
    sigma, rate = log_uniform(chance, 0.6, 4), log_uniform(chance, 3e-3, 0.2)
    count, delta = chance.randint(100, 3000), log_uniform(chance, 1e-8, 1e-4)
    try:
        agree(sigma, rate, count, delta)
    except RuntimeError as reason:
        if "Discrete mean differs" not in str(reason):
            raise
        pytest.skip(f"prv_accountant refuses (σ, q, n, δ) = {(sigma, rate, count, delta)}: {reason}")


def test_both_directions_beside_the_library() -> None:
    """dp_accounting has both inside: its public δ(ε) is the larger. (σ, q, n) = (1, .05, 100)."""
    pair = DominatingPair.gaussian(1.0).poisson_sampled(0.05).self_compose(100)
    law = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, sampling_prob=0.05, value_discretization_interval=STEP
    ).self_compose(100)
    for epsilon in (-0.2, 0.5, 2.0):
        ends = {side: pair.delta(epsilon, direction=side, width=WIDTH) for side in ("remove", "add")}
        for side, end in ends.items():
            truth = composed_delta(*sampled_gaussian(0.05), 1.0, 100, epsilon, side)
            assert end.lower * (1 - DIGITS) <= truth <= end.upper * (1 + DIGITS)
        library = float(law.get_delta_for_epsilon(epsilon))
        assert max(end.lower for end in ends.values()) <= library
        assert library <= max(end.upper for end in ends.values()) + STEP
