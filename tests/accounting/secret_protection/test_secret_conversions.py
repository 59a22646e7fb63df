"""Secret protection from other guarantees and from curves, against linear programs and 50-digit arithmetic."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy.optimize import linprog
from scipy.stats import norm

from dpassay.accounting import secret_protection as sp

P = 1e-4
small = st.floats(-12, -0.001).map(lambda power: 10.0**power)


def quantile(p: float) -> mpmath.mpf:
    """Φ̄⁻¹(p), from a float start by Newton's method on log Φ̄."""
    target, z = mpmath.log(mpmath.mpf(p)), mpmath.mpf(float(norm.isf(p)))
    for _ in range(6):
        tail = mpmath.ncdf(-z)
        z += (mpmath.log(tail) - target) * tail / mpmath.npdf(z)
    return z


# Other guarantees


def dp_rows(epsilon: float, delta: float, laws: int, outcomes: int) -> tuple[list[list[float]], list[float]]:
    """P_i(A) − e^ε P_j(A) ≤ δ for all pairs and all sets of outcomes, as rows of a linear program."""
    rows, limits = [], []
    for i, j in itertools.permutations(range(laws), 2):
        for chosen in itertools.product((0, 1), repeat=outcomes):
            row = np.zeros((laws, outcomes))
            row[i] += chosen
            row[j] -= math.exp(epsilon) * np.array(chosen)
            rows.append(row.ravel().tolist())
            limits.append(delta)
    return rows, limits


def worst_guess(epsilon: float, delta: float, prior: list[float]) -> float:
    """The largest Σ π_v P_v(v) of (ε, δ)-indistinguishable laws of a guess."""
    size = len(prior)
    rows, limits = dp_rows(epsilon, delta, size, size)
    sums = np.kron(np.eye(size), np.ones(size))
    result = linprog(-np.diag(prior).ravel(), A_ub=rows, b_ub=limits, A_eq=sums, b_eq=np.ones(size), bounds=(0, 1))
    assert result.fun is not None
    return -float(result.fun)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.05), (0.3, 0.2), (4.0, 1e-3)])
@pytest.mark.parametrize("p", [0.01, 0.3, 0.9])
def test_r_of_approx_dp_is_the_worst_pair(epsilon: float, delta: float, p: float) -> None:
    """A linear program over two laws on two outcomes, the second with P(E) = p; its tolerance is 1e-7."""
    rows, limits = dp_rows(epsilon, delta, 2, 2)
    result = linprog(
        [-1, 0, 0, 0], A_ub=rows, b_ub=limits, A_eq=[[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], b_eq=[1, p, 1 - p]
    )
    assert result.fun is not None
    assert sp.r_of_approx_dp(epsilon, delta, p) == pytest.approx(-result.fun, abs=1e-7)


@examples(67, 200, derandomize=True)
@given(st.floats(0, 800), st.one_of(st.just(0.0), small), small)
def test_conversions_of_approx_dp_are_rounded_up(epsilon: float, delta: float, p: float) -> None:
    with mpmath.workdps(60):
        e, d, guess = mpmath.exp(mpmath.mpf(epsilon)), mpmath.mpf(delta), mpmath.mpf(p)
        reference = min(mpmath.mpf(1), e * guess + d, 1 - (1 - d - guess) / e)
        rho = guess * e / (guess * e + 1 - guess)
        for got, exact in (
            (sp.r_of_approx_dp(epsilon, delta, p), reference),
            (sp.r_between_secrets(epsilon, delta, p), d + (1 - d) * rho),
        ):
            assert exact <= got <= exact * (1 + 2.0**-47) + 2.0**-52 * (got > 0.01)


def test_guessing_among_values_is_tight_for_uniform_priors() -> None:
    for size, epsilon, delta in ((2, 1.0, 0.05), (3, 0.5, 0.1), (5, 1.0, 0.05)):
        assert sp.r_between_secrets(epsilon, delta, 1 / size) == pytest.approx(
            worst_guess(epsilon, delta, [1 / size] * size), abs=1e-7
        )


@pytest.mark.parametrize("prior", [[0.4, 0.4, 0.2], [0.3, 0.3, 0.3, 0.1], [0.6, 0.4], [0.4, 0.3, 0.2, 0.1]])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.3), (1.0, 0.05), (0.1, 0.6)])
def test_guessing_among_values_holds_for_any_prior(prior: list[float], epsilon: float, delta: float) -> None:
    """Also where 1/p is no whole number, and where some value is guessed with probability below δ."""
    assert worst_guess(epsilon, delta, prior) <= sp.r_between_secrets(epsilon, delta, max(prior)) + 1e-7


@examples(34, 100, derandomize=True)
@given(st.floats(1e-6, 12), small)
def test_r_of_gdp_is_rounded_up(mu: float, p: float) -> None:
    got = sp.r_of_gdp(mu, p)
    with mpmath.workdps(50):
        exact = mpmath.ncdf(mpmath.mpf(mu) - quantile(p))
        assert exact <= got <= exact * (1 + 1e-10)


@examples(34, 100, derandomize=True)
@given(small, st.floats(0.001, 0.999))
def test_mu_is_rounded_down(p: float, share: float) -> None:
    r = p ** (1 - share)
    mu = sp.mu_for(p, r)
    assert sp.r_of_gdp(mu, p) <= r
    with mpmath.workdps(50):
        exact = quantile(p) - quantile(r)
        assert exact - mpmath.mpf(10) ** -10 <= mu <= exact


def test_edges_of_conversions() -> None:
    assert sp.mu_for(0.1, 1.0) == math.inf
    assert sp.mu_for(0.1, 0.1) == 0
    assert sp.r_of_gdp(0.0, 0.1) == 0.1
    assert 0.1 <= sp.r_of_approx_dp(0.0, 0.0, 0.1) <= 0.1 * (1 + 2.0**-48)
    assert sp.r_of_approx_dp(0.0, 1.0, 0.1) == sp.r_between_secrets(0.0, 1.0, 0.1) == 1
    wrongs: list[Callable[[], float]] = [lambda: sp.r_of_gdp(-1.0, 0.1), lambda: sp.r_of_approx_dp(-1.0, 0.0, 0.1)]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="must be at least 0"):
            wrong()


# Composition of curves


def concave(lines: list[tuple[float, float]], p: float | np.ndarray) -> np.ndarray:
    """The least of 1 and of lines that lie above p on [0, 1]: a blow-up curve."""
    return np.asarray(np.minimum.reduce([np.ones(np.shape(p)), *[a + (1 - a + b) * np.asarray(p) for a, b in lines]]))


curve = st.lists(st.tuples(st.floats(0, 0.9), st.floats(0, 50)), min_size=1, max_size=4)


@examples(67, 200, derandomize=True)
@given(st.lists(curve, min_size=1, max_size=3), st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0, 1))
def test_composition_holds_for_every_mixture_of_curves(
    curves: list[list[tuple[float, float]]], ps: list[float], first: float
) -> None:
    """The second may meet another curve after each outcome of the first; only the points' largest values are known."""
    # Points are certified: no less than the curve, which is four roundings of numbers of at least 0.
    largest = [max(float(concave(lines, p)) for lines in curves) * (1 + 2.0**-50) for p in ps]
    points = [(p, max(min(1.0, r), p)) for p, r in zip(ps, largest, strict=True)]
    got = sp.compose_curves(first, points)
    generator = np.random.default_rng(1)
    for _ in range(20):
        shares = generator.dirichlet(np.ones(len(curves)))
        indices = np.clip(first + generator.normal(size=len(curves)) * 0.3, 0, 1)
        indices *= min(1.0, first / max(float(shares @ indices), 1e-300))
        attained = sum(
            share * concave(lines, index) for share, lines, index in zip(shares, curves, indices, strict=True)
        )
        assert attained <= got + 1e-12  # the test's own sums of at most 1


def test_one_point_is_not_interpolated() -> None:
    """The straight line from (0, 0) over (0.5, r) to (1, 1) lies below a Gaussian curve, the bound does not."""
    r = sp.r_of_gdp(1.0, 0.5)
    true = float(norm.cdf(norm.ppf(0.1) + 1))
    assert 0.1 / 0.5 * r < true <= sp.compose_curves(0.1, [(0.5, r)])


def test_dense_points_reach_the_curve() -> None:
    """800 points of a Gaussian curve: Φ(Φ⁻¹(R₁) + μ₂) is the exact value, the rest the curve's bend between points."""
    ps = np.geomspace(1e-7, 1, 800)[:-1]
    points = [(p, sp.r_of_gdp(0.7, p)) for p in ps.tolist()]
    first = sp.r_of_gdp(0.5, P)
    exact = sp.r_of_gdp(1.2, P)
    assert exact <= sp.compose_curves(first, points) <= exact * 1.005
    assert sp.compose_curves(1.0, points) == 1


def test_bad_curves_are_refused() -> None:
    with pytest.raises(ValueError, match="have rows"):
        sp.compose_curves(0.1, [0.1, 0.2])
    with pytest.raises(ValueError, match="0 ≤ p ≤ r ≤ 1"):
        sp.compose_curves(0.1, [(0.2, 0.1)])
