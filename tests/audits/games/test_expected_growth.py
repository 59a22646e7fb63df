"""The expected growth of bets on an event, against quadrature over Beta densities and a projection by minimisation."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import optimize, special, stats

from dpassay.audits.games.expected_growth import ANY, EXPECTED, Prior, expected_growth
from dpassay.base.arrays import Floats

RUNS = ((0, 0), (2, 2), (4, 4), (3, 7), (20, 20))
PRIORS = {"any": ANY, "expected": EXPECTED}


def hits_of(runs: tuple[int, int]) -> list[tuple[int, int]]:
    return [(some, more) for some in {0, 1, runs[0] // 2, runs[0]} for more in {0, runs[1] // 2, runs[1]} if runs[0]]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("runs", RUNS)
def test_the_odds_of_two_rates_are_those_of_integrals(runs: tuple[int, int], prior: str) -> None:
    """Over the densities of the rates, by quadrature in the variable in which they have no poles."""
    laws = PRIORS[prior]

    def evidence(hits: int, size: int, law: tuple[float, float]) -> float:
        a, b = law
        with mpmath.workdps(30):
            density = lambda t: mpmath.sin(t) ** (2 * (hits + a) - 1) * mpmath.cos(t) ** (2 * (size - hits + b) - 1)  # noqa: E731
            middle = mpmath.asin(mpmath.sqrt(mpmath.mpf(hits + a) / (size + a + b)))
            result = 2 * mpmath.quad(density, [0, middle / 2, middle, (middle + mpmath.pi / 2) / 2, mpmath.pi / 2])
            return float(mpmath.log(result / mpmath.beta(a, b)))

    hits = hits_of(runs) or [(0, 0)]
    result = expected_growth(np.array(hits), runs, np.full(len(hits), 0.05), 1.0, 0.0, laws).log_odds
    for (some, more), value in zip(hits, result, strict=True):
        apart = evidence(some, runs[0], laws.on_d) + evidence(more, runs[1], laws.on_d_prime)
        assert value == pytest.approx(
            math.log(0.05) + apart - evidence(some + more, sum(runs), laws.same), abs=1e-6, rel=1e-6
        )


def divergence(p: float, q: float, epsilon: float, delta: float) -> float:
    """The Kullback–Leibler divergence of two rates from the nearest ones of an (ε, δ)-DP mechanism, which is what a
    round adds at most."""

    def kl(point: Floats) -> float:
        return float(special.rel_entr([p, 1 - p, q, 1 - q], [point[0], 1 - point[0], point[1], 1 - point[1]]).sum())

    c = math.exp(epsilon)
    limits: list[Any] = [
        {"type": "ineq", "fun": lambda x: c * x[0] + delta - x[1]},
        {"type": "ineq", "fun": lambda x: c * x[1] + delta - x[0]},
        {"type": "ineq", "fun": lambda x: c * (1 - x[0]) + delta - (1 - x[1])},
        {"type": "ineq", "fun": lambda x: c * (1 - x[1]) + delta - (1 - x[0])},
    ]
    start = np.array([(p + q) / 2] * 2)
    found = optimize.minimize(kl, start, bounds=[(1e-9, 1 - 1e-9)] * 2, constraints=limits, method="SLSQP", tol=1e-12)
    return float(found.fun)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.5, 0.05)])
def test_the_mean_growth_is_that_of_quadrature(epsilon: float, delta: float) -> None:
    """Posterior quantiles of either rate, 24 each, with equal weights: both rules have errors below a percent."""
    runs, hits = (6, 6), [(0, 5), (1, 4), (3, 3), (6, 1)]
    shares = (np.arange(24) + 0.5) / 24
    result = expected_growth(np.array(hits), runs, np.ones(len(hits)), epsilon, delta, ANY).growth
    for (some, more), value in zip(hits, result, strict=True):
        first, second = (stats.beta.ppf(shares, n + 0.5, 6.5 - n) for n in (some, more))
        mean = np.mean([divergence(p, q, epsilon, delta) for p in first for q in second])
        assert value == pytest.approx(mean, rel=0.05, abs=2e-3)


def test_what_was_expected_is_sooner_believed_and_large_claims_leave_nothing_to_gain() -> None:
    hits, runs = np.array([[0, 4], [0, 2], [2, 2], [4, 0]]), (4, 4)
    found = {name: expected_growth(hits, runs, np.ones(4), 1.0, 0.0, prior) for name, prior in PRIORS.items()}
    for item in found.values():
        assert (np.diff(item.log_odds[:3]) < 0).all()
    assert found["any"].log_odds[0] == pytest.approx(found["any"].log_odds[3]), "in either direction"
    assert found["expected"].log_odds[0] > found["any"].log_odds[0]
    assert found["expected"].log_odds[3] < found["any"].log_odds[3], "it happens on D and not on D′"
    assert expected_growth(hits, runs, np.ones(4), 64.0, 0.0, ANY).growth.max() < 1e-9


def test_before_all_runs_an_expected_event_promises_something() -> None:
    found = expected_growth(np.array([[0, 0]]), (0, 0), np.array([0.05]), 1.0, 0.0, Prior())
    assert found.log_odds[0] == pytest.approx(math.log(0.05))
    assert 0 < found.growth[0] < math.log(2)


def test_thousands_of_runs_have_finite_odds() -> None:
    hits = np.array([[0, 5000], [2500, 2500], [0, 0], [3000, 5000], [0, 17]])
    found = expected_growth(hits, (5000, 5000), np.ones(5), 1.0, 0.0, EXPECTED)
    assert np.isfinite(found.log_odds).all()
    assert np.isfinite(found.growth).all()
    assert found.growth.argmax() == 0
    assert found.log_odds[1] < 0 < found.log_odds[0]
