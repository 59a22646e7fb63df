"""Noise for secrets against 50-digit arithmetic and brute force, and published statements with their numbers."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy.stats import norm

from dpassay.accounting import secret_protection as sp
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import SecretProtection

BIN80 = sp.poisson_binomial(np.full(80, 0.01))
P = 1e-4
MU = {2: 0.178933, 10: 0.628784, 50: 1.143187, 400: 1.968330}  # Φ⁻¹(rP) − Φ⁻¹(P), computed independently

small = st.floats(-12, -0.001).map(lambda power: 10.0**power)
noise = st.floats(-2, 2.5).map(lambda power: 10.0**power)


def quantile(p: float) -> mpmath.mpf:
    """Φ̄⁻¹(p), from a float start by Newton's method on log Φ̄."""
    target, z = mpmath.log(mpmath.mpf(p)), mpmath.mpf(float(norm.isf(p)))
    for _ in range(6):
        tail = mpmath.ncdf(-z)
        z += (mpmath.log(tail) - target) * tail / mpmath.npdf(z)
    return z


def exact_r(weights: list[float], sigma: float, p: float) -> mpmath.mpf:
    """Σ w_k Φ̄(Φ̄⁻¹(p) − k/σ) for the law weights/Σ weights."""
    with mpmath.workdps(50):
        z, total = quantile(p), mpmath.fsum(map(mpmath.mpf, weights))
        return (
            mpmath.fsum(mpmath.mpf(w) * mpmath.ncdf(k / mpmath.mpf(sigma) - z) for k, w in enumerate(weights)) / total
        )


# One round


@pytest.mark.parametrize(
    ("sigma", "r", "last"), [(1, 0.02202592, 1e-8), (2, 0.00173397, 1e-8), (5, 2.402890e-4, 1e-10)]
)
def test_known_r_of_one_round(sigma: float, r: float, last: float) -> None:
    """Computed independently, to the digits shown."""
    enclosure = sp.blowup(BIN80, sigma, P)
    assert enclosure.lower == pytest.approx(r, abs=last / 2)
    assert enclosure.width <= 1e-10 * r


@examples(20, 60, derandomize=True)
@given(st.lists(st.floats(1e-12, 1), min_size=1, max_size=12), noise, st.one_of(small, st.floats(0.01, 0.999999)))
def test_one_round_encloses_the_exact_r(shares: list[float], sigma: float, p: float) -> None:
    weights = (np.array(shares) / sum(shares)).tolist()
    enclosure = sp.blowup(weights, sigma, p)
    exact, oracle = exact_r(weights, sigma, p), mpmath.mpf(10) ** -40  # the oracle's own rounding
    assert enclosure.lower <= exact * (1 + oracle)
    assert exact * (1 - oracle) <= enclosure.upper
    # 4e-13·(1 + |z|) in z, times a hazard of at most |z| + 1, and 1e-13·|log f| twice; |z| ≤ 7 and |log f| ≤ 28
    assert enclosure.width <= 1e-10 * enclosure.upper


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    sigmas, ps = np.array([[0.0], [0.5], [3.0]]), np.array([0.0, 1e-9, 0.3, 1.0])
    lower, upper = sp.blowups(BIN80, sigmas, ps)
    assert lower.shape == (3, 4)
    for i, j in itertools.product(range(3), range(4)):
        item = sp.blowup(BIN80, float(sigmas[i, 0]), float(ps[j]))
        # smaller p's in the same call leave out less, which is far below a relative 1e-15
        assert (lower[i, j], upper[i, j]) == pytest.approx((item.lower, item.upper), rel=1e-15)


def test_no_test_of_a_fine_grid_does_better() -> None:
    """Likelihood-ratio tests of the outcome rounded to 1/2000: a post-processing, so at most r, and near it."""
    weights, sigma = [0.5, 0.3, 0.0, 0.2], 0.8
    edges = np.arange(-8, 12, 1 / 2000)
    q = -np.diff(norm.sf(edges / sigma))
    p = -np.sum([w * np.diff(norm.sf((edges - k) / sigma)) for k, w in enumerate(weights)], axis=0)
    order = np.argsort(-p / np.maximum(q, 1e-300))
    false, true = np.cumsum(q[order]), np.cumsum(p[order])
    some = np.searchsorted(false, np.geomspace(1e-6, 0.9, 50))
    lower, upper = sp.blowups(weights, sigma, false[some])
    assert (true[some] <= upper + 1e-11).all()  # 40000 additions, differences of numbers accurate to 1e-16
    assert (true[some] >= lower * (1 - 1e-4)).all()


def test_without_noise_the_secret_is_seen_where_it_occurs() -> None:
    for rounds in (1, 10):
        w0 = Fraction(99, 100) ** 80
        exact = 1 - w0**rounds * (1 - Fraction(P))
        enclosure = sp.blowup(BIN80, 0.0, P, rounds)
        # the law is that of the float 0.01, off by a relative 2⁻⁵³ in 80·rounds factors
        assert enclosure.lower * (1 - 1e-12) <= exact <= enclosure.upper * (1 + 1e-12)
        assert enclosure.width <= 1e-11


def test_edges_of_one_round() -> None:
    assert sp.blowup([1.0], 0.0, P) == sp.blowup([1.0], 3.0, P)
    assert sp.blowup([1.0], 0.0, P).lower == P
    assert sp.blowup([1.0], 0.0, P).upper == pytest.approx(P, rel=1e-15)
    assert sp.blowup(BIN80, 1.0, 0.0).upper <= 2e-17
    assert sp.blowup(BIN80, 1.0, 1.0).lower == 1
    assert sp.blowup([0.0, 1.0], 0.0, 0.0).lower == pytest.approx(1, rel=1e-15)
    assert sp.blowup([0.5, 0.5], 1e-300, P).upper == pytest.approx(0.5 + P / 2, rel=1e-12)
    assert sp.blowup([0.5, 0.5], 1e300, P).upper == pytest.approx(P, rel=1e-11)


# Noise


@examples(12, 25, derandomize=True)
@given(st.lists(st.floats(1e-6, 0.9), min_size=1, max_size=30), st.floats(-6, -1), st.floats(0.01, 0.99))
def test_noise_is_enough_and_no_more_than_enough(occurrences: list[float], power: float, share: float) -> None:
    p = 10.0**power
    r = p + share * (1 - p)
    weights = sp.poisson_binomial(occurrences)
    sigma = sp.noise_for(weights, p, r)
    if sigma == 0:
        assert sp.blowup(weights, 0.0, p).upper <= r
    else:
        assert sp.blowup(weights, sigma, p).upper <= r
        assert sp.blowup(weights, sigma * (1 - 1.1e-6), p).upper > r


def test_no_noise_where_the_secret_seldom_occurs() -> None:
    weights = sp.poisson_binomial([1e-5] * 10)
    enough = 1 - weights[0] + weights[0] * P
    assert sp.noise_for(weights, P, enough * (1 + 1e-9)) == 0
    assert sp.noise_for(weights, P, enough * (1 - 1e-9)) > 0.1
    assert sp.noise_for([1.0], P, P) == 0
    assert sp.noise_for(BIN80, P, 1.0) == 0


def test_noise_of_a_certain_occurrence_is_that_of_gaussian_dp() -> None:
    for ratio, mu in MU.items():
        assert sp.noise_for([0.0, 1.0], P, ratio * P) == pytest.approx(1 / mu, rel=1e-5)


def test_impossible_protection_is_refused() -> None:
    with pytest.raises(ValueError, match="r must be at least p"):
        sp.noise_for(BIN80, 0.2, 0.1)
    with pytest.raises(ValueError, match="r must be above p"):
        sp.noise_for(BIN80, 0.1, 0.1)
    with pytest.raises(ValueError, match="too close to p"):
        sp.noise_for(BIN80, 0.1, math.nextafter(0.1, 1))
    with pytest.raises(ValueError, match="weights must sum to 1"):
        sp.blowup([0.5, 0.4], 1.0, P)
    with pytest.raises(ValueError, match="a vector of probabilities"):
        sp.blowup([1.5, -0.5], 1.0, P)
    with pytest.raises(ValueError, match="sigma must be at least 0"):
        sp.blowup(BIN80, -1.0, P)
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        sp.blowup(BIN80, 1.0, P, 0)


# Many secrets


def test_noise_for_secrets_is_the_largest_of_their_own() -> None:
    generator = np.random.default_rng(2)
    secrets = [generator.uniform(0, generator.uniform(0, 0.2), generator.integers(1, 60)) for _ in range(12)]
    ps = (10.0 ** generator.uniform(-5, -2, 12)).tolist()
    rs = [p * ratio for p, ratio in zip(ps, generator.uniform(2, 50, 12).tolist(), strict=True)]
    own = [sp.noise_for(sp.poisson_binomial(q), p, r) for q, p, r in zip(secrets, ps, rs, strict=True)]
    together = sp.noise_for_secrets(secrets, ps, rs)
    assert together == pytest.approx(max(own), rel=2.1e-6)  # either is within 1e-6 of the least
    doubled = [np.append(q[::-1], 0.0) for q in secrets]  # the order of records and certain absence do not matter
    assert sp.noise_for_secrets([*secrets, *doubled], ps * 2, rs * 2) == together


def test_noise_for_secrets_edges() -> None:
    assert sp.noise_for_secrets([], P, 2 * P) == 0
    assert sp.noise_for_secrets([[0.0, 0.0], []], P, P) == 0
    with pytest.raises(ValueError, match="one per secret, not 2 for 1 secrets"):
        sp.noise_for_secrets([[0.1]], [P, P], 2 * P)


@pytest.mark.slow
def test_a_thousand_secrets_of_eight_thousand_records() -> None:
    """Below 1 GiB besides the secrets themselves."""
    generator = np.random.default_rng(4)
    secrets = [generator.uniform(0, 0.02, 8000) for _ in range(1000)]
    tracemalloc.start()
    sigma = sp.noise_for_secrets(secrets, P, 10 * P)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**30
    own = [sp.noise_for(sp.poisson_binomial(secret), P, 10 * P) for secret in secrets[::50]]
    assert max(own) <= sigma * (1 + 1e-6)
    assert sigma == pytest.approx(max(own), rel=0.1)  # means of 80 with a standard deviation of .5 in all of them


# Published statements


def test_sums_of_r_are_refused_because_two_digits_are_a_secret() -> None:
    with pytest.raises(ValueError, match="r is 1, not 0"):
        sp.compose_naive((0.01, 0.1), (0.01, 0.1))
    # one digit: 100 secrets, guessed among the 10 that remain
    assert sp.compose_curves(0.1, [(0.01, 0.1)]) == 1


def test_odds_of_two_data_sets_are_no_reference() -> None:
    """p = .01, e^ε = 50, δ = 0: the published formula gives .335570 (with c → ∞), against a reference it is .5."""
    claimed = 1 / (1 + 0.99 / 0.01 / 50)
    assert claimed == pytest.approx(0.335570, abs=5e-7)
    assert sp.r_of_approx_dp(math.log(50), 0.0, 0.01) == pytest.approx(0.5, rel=1e-14)


def test_odds_between_values_are_sound_and_loose() -> None:
    """K = 5, ε = 1, δ = .05: the published formula is at least .530301 for every c ≥ 1."""
    p, delta = 0.2, 0.05
    claimed = min(1 / (1 + (1 - p) / p / (math.e + 1 / c)) + c * delta for c in np.linspace(1, 5, 4001).tolist())
    assert claimed == pytest.approx(0.530301, abs=5e-7)
    assert sp.r_between_secrets(1.0, delta, p) == pytest.approx(0.434379, abs=5e-7)


@pytest.mark.parametrize(("ratio", "mu"), MU.items())
def test_gaussian_dp_to_secret_protection(ratio: int, mu: float) -> None:
    assert sp.mu_for(P, ratio * P) == pytest.approx(mu, abs=5e-7)
    assert sp.r_of_gdp(mu, P) == pytest.approx(ratio * P, rel=4e-6)  # 5e-7 times a hazard below 4, and its double


def published_secret() -> np.ndarray:
    """80 records drawn with probability μ/80 each, so that the mean count is μ of r/p = 10."""
    return sp.poisson_binomial(np.full(80, sp.mu_for(P, 10 * P) / 80))


def test_one_gaussian_for_the_mixture_is_an_estimate_that_is_too_small() -> None:
    estimate = sp.single_gaussian_estimate(published_secret(), 1.0, P)
    assert estimate.rigor is Rigor.ESTIMATE
    assert (estimate.quantity, estimate.at) == ("r", P)
    assert estimate.value == pytest.approx(10 * P, rel=1e-9)
    true = sp.blowup(published_secret(), 1.0, P)
    assert true.lower == pytest.approx(1.322664e-2, abs=5e-9)
    assert true.lower / estimate.value > 13


def test_the_guarantee_holds_what_the_noise_was_made_for() -> None:
    goal = SecretProtection(P, 10 * P)
    sigma = sp.noise_for(BIN80, goal.p, goal.r)
    assert sp.blowup(BIN80, sigma, goal.p).upper <= goal.r
