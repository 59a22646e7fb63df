"""Conversions against 40-digit arithmetic: never below the exact value, and above it by no more than stated."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting.conversions import formulas

positive = st.floats(-8, 3).map(lambda power: 10.0**power)


def exact_delta_gdp(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang (2018), Theorem 8, with enough digits that the difference keeps 30."""
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def test_known_conversion_of_one_order() -> None:
    """D = 0.5 at order 10 and δ = 1e-5, a value computed independently."""
    assert float(formulas.epsilon_from_rdp(10.0, 0.5, 1e-5)) == pytest.approx(1.418011, abs=1e-6)


@examples(34, 100)
@given(order=st.floats(1.001, 2000), divergence=positive, delta=st.floats(-30, -1).map(lambda power: 10.0**power))
def test_epsilon_of_one_order_is_rounded_up(order: float, divergence: float, delta: float) -> None:
    with mpmath.workdps(40):
        a, d, small = mpmath.mpf(order), mpmath.mpf(divergence), mpmath.mpf(delta)
        exact = max(d + mpmath.log(1 - 1 / a) - mpmath.log(a * small) / (a - 1), 0)
        if small >= mpmath.sqrt(1 - mpmath.exp(-d)):
            exact = mpmath.mpf(0)
        got = float(formulas.epsilon_from_rdp(order, divergence, delta))
        assert exact <= got
        # what is added is 16 units in the last place of the sum of all terms; twice that, for what it covers
        terms = d + abs(mpmath.log(a - 1)) + 2 * mpmath.log(a) + (abs(mpmath.log(small)) + mpmath.log(a)) / (a - 1)
        assert got <= exact + 32 * 2.0**-53 * terms


@examples(34, 100)
@given(order=st.floats(1.001, 2000), divergence=positive, epsilon=st.floats(0, 50))
def test_delta_of_one_order_is_rounded_up(order: float, divergence: float, epsilon: float) -> None:
    with mpmath.workdps(40):
        a, d = mpmath.mpf(order), mpmath.mpf(divergence)
        exact = min((a - 1) * (d - mpmath.mpf(epsilon) + mpmath.log(1 - 1 / a)) - mpmath.log(a), 0)
        got = float(formulas.log_delta_from_rdp(order, divergence, epsilon))
        assert exact <= got
        assert got <= exact + 32 * 2.0**-53 * ((a - 1) * (d + epsilon + 10) + 10)


@pytest.mark.grid
@pytest.mark.parametrize("rho", [1e-6, 0.01, 0.5, 3.0, 200.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-10])
def test_zcdp_takes_the_best_order(rho: float, delta: float) -> None:
    """No order does better than what is returned, beyond the search's relative 1e-9."""
    got = formulas.epsilon_from_zcdp(rho, delta)
    with mpmath.workdps(40):

        def at(log_excess: float) -> mpmath.mpf:
            a = 1 + mpmath.exp(log_excess)
            return rho * a + mpmath.log(1 - 1 / a) - mpmath.log(a * delta) / (a - 1)

        best = min(at(x) for x in np.linspace(-8, 18, 4001))
        refined = max(best, mpmath.mpf(0))
    assert got <= refined * (1 + 1e-9)
    assert got == pytest.approx(float(refined), rel=1e-4)  # the oracle's grid is coarser
    assert formulas.delta_from_zcdp(rho, got) == pytest.approx(delta, rel=1e-4) or got == 0


@examples(34, 100)
@given(mu=st.floats(-4, 1.5).map(lambda power: 10.0**power), share=st.floats(0, 12))
def test_delta_of_gdp_is_rounded_up(mu: float, share: float) -> None:
    epsilon = mu * share + mu * mu / 2
    exact = exact_delta_gdp(mu, epsilon)
    got = formulas.delta_from_gdp(mu, epsilon)
    assert exact <= got
    # the cancellation of the two terms costs a factor up to 1/μ on 1e-13 of their logarithms
    assert got <= exact * (1 + 1e-9 / min(mu, 1.0)) + mpmath.mpf(10) ** -300


@pytest.mark.parametrize(
    ("epsilon", "delta", "ratio"), [(1, 1e-5, 3.730632), (5, 1e-5, 0.891868), (10, 1e-5, 0.499889)]
)
def test_analytic_gaussian_noise(epsilon: float, delta: float, ratio: float) -> None:
    """σ/Δ computed independently, to six decimals: ε moves by less than ε·1e-6/ratio·2."""
    assert formulas.epsilon_from_gdp(1 / ratio, delta) == pytest.approx(epsilon, rel=4e-6)


@examples(17, 50)
@given(mu=st.floats(-3, 1.5).map(lambda power: 10.0**power), delta=st.floats(-30, -0.5).map(lambda power: 10.0**power))
def test_epsilon_of_gdp_meets_its_delta(mu: float, delta: float) -> None:
    epsilon = formulas.epsilon_from_gdp(mu, delta)
    assert exact_delta_gdp(mu, epsilon) <= delta
    if epsilon > 1e-6:
        assert exact_delta_gdp(mu, epsilon * (1 - 1e-6)) > delta * (1 - 1e-3)


@examples(34, 100)
@given(epsilon=st.floats(-6, 2.5).map(lambda power: 10.0**power), order=st.floats(1.01, 1100))
def test_renyi_of_pure_is_randomised_response(epsilon: float, order: float) -> None:
    with mpmath.workdps(700):
        e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
        exact = mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))) / (a - 1)
    got = float(formulas.rdp_of_pure(epsilon, np.array([order]))[0])
    assert min(exact, epsilon) <= got <= epsilon
    assert got <= exact + 64 * 2.0**-53 * (epsilon + 1 / (order - 1))


@pytest.mark.parametrize(
    "epsilon", [5e-324, 1e-310, 1e-160, 1e-17, 1e-9, 1e-6, 6.1e-5, 6.2e-5, 0.1, 1.0, 5.0, 50.0, 600.0]
)
def test_gdp_of_pure_lies_below_both_chords(epsilon: float) -> None:
    """Φ(−μ/2) ≤ 1/(1 + e^ε) at the μ returned, and not at a μ smaller by 1e-8 of it and a unit of the least floats."""
    mu = formulas.gdp_of_pure(epsilon)
    with mpmath.workdps(700):
        kink = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        assert mpmath.ncdf(-mpmath.mpf(mu) / 2) <= kink
        assert mpmath.ncdf(-(mpmath.mpf(mu) * (1 - mpmath.mpf(10) ** -8) - mpmath.mpf(2) ** -1074) / 2) > kink


@pytest.mark.parametrize("epsilon", [5e-324, 1.5e-323, 1e-310, 1e-160, 1e-9, 0.1, 1.0, 30.0, 1e300])
def test_zcdp_of_pure_is_rounded_up(epsilon: float) -> None:
    """ε tanh(ε/2), and above it by no more than 64 units in the last place and one of the least floats; never 0."""
    with mpmath.workdps(700):
        exact = mpmath.mpf(epsilon) * mpmath.tanh(mpmath.mpf(epsilon) / 2)
        rho = mpmath.mpf(formulas.zcdp_of_pure(epsilon))
        assert exact <= rho <= exact * (1 + mpmath.mpf(2) ** -47) + mpmath.mpf(2) ** -1074


def test_edges() -> None:
    assert formulas.epsilon_from_zcdp(0.0, 1e-5) == 0
    assert formulas.delta_from_zcdp(0.0, 1.0) == 0
    assert math.isinf(formulas.epsilon_from_zcdp(math.inf, 1e-5))
    assert formulas.delta_from_zcdp(math.inf, 1.0) == 1
    assert formulas.epsilon_from_gdp(0.0, 1e-5) == 0
    assert math.isinf(formulas.epsilon_from_gdp(math.inf, 1e-5))
    assert formulas.delta_from_gdp(math.inf, 1.0) == 1
    assert formulas.gdp_of_pure(0.0) == 0
    assert math.isinf(formulas.gdp_of_pure(math.inf))
    assert np.isinf(formulas.rdp_of_pure(math.inf, np.array([2.0]))).all()


def test_up_is_the_next_float() -> None:
    third = Fraction(1, 3)
    assert Fraction(math.nextafter(formulas.up(third), 0)) < third <= Fraction(formulas.up(third))
    assert formulas.up(Fraction(3)) == 3
