"""The most power that any test can have: by linear programs over all outcomes, and against simulated bets."""

from __future__ import annotations

import itertools
import math

import most_power
import numpy as np
import pytest
from scipy import optimize

from dpassay.base.arrays import Floats

CASES = [(columns, scale) for _, columns, scale in most_power.CASES]


@pytest.mark.parametrize(("columns", "scale"), CASES)
def test_the_laws_are_those_of_the_noise_and_the_nearest_ones_meet_the_claim(columns: int, scale: float) -> None:
    on_d, on_d_prime = most_power.laws(columns, scale)
    # Noise ≥ 1 on D and ≥ 0 on D′: the tails of discrete Laplace noise, summed.
    tail = sum(math.exp(-n / scale) for n in range(1, 4000))
    mass = 1 + 2 * tail
    shown = np.array([tail / mass, (1 + tail) / mass])
    for rate, law in zip(shown, (on_d, on_d_prime), strict=True):
        expected = [math.comb(columns, k) * rate**k * (1 - rate) ** (columns - k) for k in range(columns + 1)]
        assert law == pytest.approx(expected, rel=1e-9)
    first, second = most_power.nearest(on_d, on_d_prime, 1.0)
    assert first.sum() == pytest.approx(1, abs=1e-12)
    assert second.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(np.log(first / second)).max() <= 1 + 1e-12
    assert np.abs(np.log(on_d / on_d_prime)).max() == pytest.approx(columns / scale)


@pytest.mark.parametrize(("columns", "scale"), CASES)
@pytest.mark.parametrize("beta", [0.05, 0.3])
def test_no_test_of_two_rounds_has_more_power(columns: int, scale: float, beta: float) -> None:
    """A linear program over all tests, one probability of refuting for each outcome of four runs."""
    on_d, on_d_prime = most_power.laws(columns, scale)
    first, second = most_power.nearest(on_d, on_d_prime, 1.0)

    def joint(law: Floats, other: Floats) -> Floats:
        sides = (law, law, other, other)
        return np.array([math.prod(side[k] for side, k in zip(sides, outcome, strict=True)) for outcome in outcomes])

    outcomes = list(itertools.product(range(columns + 1), repeat=4))
    best = optimize.linprog(
        -joint(on_d, on_d_prime), A_ub=[joint(first, second)], b_ub=[beta], bounds=(0, 1), method="highs"
    )
    assert most_power.most_power(columns, scale, 2, beta=beta) == pytest.approx(-float(best.fun or math.nan), abs=1e-7)


@pytest.mark.parametrize(("columns", "scale"), CASES)
def test_bets_have_less_power(columns: int, scale: float) -> None:
    """By simulation, at a standard error of at most 0.012."""
    for rounds in (15, 60):
        most = most_power.most_power(columns, scale, rounds)
        assert (
            most_power.by_best_event(columns, scale, rounds) < most_power.by_all_outcomes(columns, scale, rounds) + 0.05
        )
        assert most_power.by_all_outcomes(columns, scale, rounds) < most
