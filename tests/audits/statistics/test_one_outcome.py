"""How likely a loss is by a certified curve: above exactly known probabilities, and not by much."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dpassay.accounting.adjacency import Unit
from dpassay.audits.statistics.one_outcome import Profile, certified_profile, loss_probability


def gaussian_tail(mu: float, loss: float) -> float:
    """P[|L| ≥ ℓ] where the mean moves by μ standard deviations: L is N(μ²/2, μ²)."""
    return float(stats.norm.sf((loss - mu**2 / 2) / mu) + stats.norm.cdf((-loss - mu**2 / 2) / mu))


@pytest.mark.grid
@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 3.0])
def test_the_tail_of_a_gaussian_is_bounded_and_not_by_much(mu: float) -> None:
    profile = certified_profile(dp_event.GaussianDpEvent(1 / mu), adjacency="add_remove", unit=Unit())
    for deviations in (0.5, 2.0, 4.0, 6.0):
        loss = mu**2 / 2 + deviations * mu
        exact, bounded = gaussian_tail(mu, loss), loss_probability(loss, profile)
        assert exact <= bounded
        if deviations >= 2:
            assert bounded <= 10 * exact


def randomised_response(epsilon: float) -> Profile:
    def profile(epsilons: Sequence[float]) -> list[float]:
        return [max(0.0, (math.exp(epsilon) - math.exp(e)) / (1 + math.exp(epsilon))) for e in epsilons]

    return profile


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_randomised_response_always_loses_its_epsilon_and_never_more(epsilon: float) -> None:
    profile = randomised_response(epsilon)
    assert loss_probability(epsilon, profile) == 1.0
    # By 2 in 10⁵ only, so the factor 1 + e^−ℓ for the two directions cannot be left out.
    assert loss_probability(epsilon, lambda points: [x * (1 - 2e-5) for x in profile(points)]) < 1.0
    assert loss_probability(epsilon * 1.01 + 0.01, profile) == 0.0


def both_orders(p: NDArray[np.float64], q: NDArray[np.float64]) -> Profile:
    """δ(ε) of a finite pair by summation, of the worse order."""

    def profile(epsilons: Sequence[float]) -> list[float]:
        return [
            max(np.maximum(p - math.exp(e) * q, 0).sum(), np.maximum(q - math.exp(e) * p, 0).sum()) for e in epsilons
        ]

    return profile


WEIGHTS = st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=2, max_size=8)


@given(WEIGHTS, st.floats(0.0, 15.0))
def test_a_finite_pair_by_brute_force(weights: list[tuple[float, float]], loss: float) -> None:
    p, q = (np.array(side) / sum(side) for side in zip(*weights, strict=True))
    exact = p[np.abs(np.log(p) - np.log(q)) >= loss + 1e-9].sum()
    assert exact <= loss_probability(loss, both_orders(p, q)) * (1 + 1e-9)


def test_an_outcome_that_only_one_data_set_has() -> None:
    """With probability δ the output tells who was in: an infinite loss has probability δ, and δ is what is returned."""
    delta = 1e-3
    assert loss_probability(math.inf, lambda epsilons: [delta] * len(epsilons)) == pytest.approx(delta, rel=1e-12)


def test_what_nothing_is_certified_of_allows_any_loss() -> None:
    profile = certified_profile(dp_event.NonPrivateDpEvent(), adjacency="add_remove", unit=Unit())
    assert loss_probability(math.inf, profile) == 1.0
    assert loss_probability(0.0, randomised_response(1.0)) == 1.0
