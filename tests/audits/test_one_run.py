"""The one-run bound: published values, brute force, exact and simulated false-alarm rates, speed."""

from __future__ import annotations

import time

import numpy as np
import pytest
from cupel.accounting.bounds import Rigor
from cupel.audits import one_run
from cupel.audits.statistics import (
    canaries_needed,
    ceiling_one_run,
    disclosures_with_holdout,
    epsilon_one_run,
    epsilons_one_run,
    hypergeometric_tail,
)
from scipy import optimize, stats

FALSE_ALARM = 1e-4
"""Probability with which a simulated coverage test fails although the statistic is valid."""


def brute_force_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """B + 2mδA by its definition, with scipy's binomial."""
    q = 1 / (1 + np.exp(-epsilon))
    tail = stats.binom.sf(v - 1, r, q)
    slope = max(
        (float(stats.binom.sf(v - i - 1, r, q) - stats.binom.sf(v - 1, r, q)) / i for i in range(1, v + 1)),
        default=0.0,
    )
    return float(min(1.0, tail + 2 * m * delta * slope))


@pytest.mark.parametrize(
    ("m", "r", "v", "expected"),
    [(1000, 600, 600, 5.2704), (1000, 100, 90, 1.62614), (10000, 500, 400, 1.19167)],
)
def test_published_values(m: int, r: int, v: int, expected: float) -> None:
    bound = epsilon_one_run(m, r, v, delta=1e-5, confidence=0.95)
    assert bound.value == pytest.approx(expected, abs=0.51 * 10.0 ** -(len(str(expected)) - 2))
    assert bound.rigor is Rigor.FINITE_SAMPLE
    assert bound.delta == 1e-5


@pytest.mark.parametrize("delta", [0.0, 1e-4, 3e-3])
@pytest.mark.parametrize(("r", "v"), [(1, 1), (5, 5), (40, 33), (40, 20), (90, 80), (100, 100), (100, 0)])
def test_agrees_with_brute_force(r: int, v: int, delta: float) -> None:
    m, beta = 100, 0.05
    found = epsilon_one_run(m, r, v, delta=delta, confidence=1 - beta).value
    if brute_force_p_value(m, r, v, 0.0, delta) >= beta:
        assert found == 0.0
        return
    expected = optimize.brentq(lambda e: brute_force_p_value(m, r, v, e, delta) - beta, 0, 20, xtol=1e-12)
    # brentq stops within 1e-12, and scipy's tails carry relative errors of about 1e-13.
    assert found == pytest.approx(expected, abs=1e-9)


def test_many_failures_use_the_concave_majorant() -> None:
    """With 2mδ beyond the maximising i the line B + 2mδA overshoots; the majorant of f(v − i) is what is needed."""
    m, r, v, delta = 100, 60, 40, 0.05
    failures = 2 * m * delta
    q = 1 / (1 + np.exp(-0.3))
    curve = stats.binom.sf(v - np.arange(v + 1) - 1, r, q)
    # The largest E[f(v − F)] with E[F] ≤ failures, as a linear programme over the law of F.
    best = optimize.linprog(
        -curve, A_ub=[np.arange(v + 1)], b_ub=[failures], A_eq=[np.ones(v + 1)], b_eq=[1.0], bounds=(0, 1)
    )
    assert one_run._fixed_p_value(r, v, failures)(0.3) == pytest.approx(-best.fun, abs=1e-9)  # the solver's tolerance
    assert brute_force_p_value(m, r, v, 0.3, delta) > -best.fun + 0.01


@pytest.mark.parametrize("rule", [one_run._fixed_p_value, one_run._adaptive_p_value])
@pytest.mark.parametrize("failures", [0.01, 0.5, 3.0, 20.0])
def test_p_values_increase_with_epsilon(rule: object, failures: float) -> None:
    """Bisection finds the first crossing only if there is one crossing."""
    grid = np.linspace(0, 8, 161)
    for r, v in [(3, 3), (6, 6), (6, 5), (30, 25), (30, 30), (200, 120), (200, 199)]:
        values = np.array([rule(r, v, failures)(float(e)) for e in grid])  # type: ignore[operator]
        below = values < 0.99
        assert (np.diff(values)[below[:-1] & below[1:]] >= -1e-12).all(), (r, v)


def test_ceilings_and_how_many_canaries_they_need() -> None:
    assert ceiling_one_run(100, confidence=0.95) == pytest.approx(3.493, abs=5e-4)
    assert ceiling_one_run(1000, confidence=0.95) == pytest.approx(5.8091, abs=5e-5)
    assert [canaries_needed(e, confidence=0.95) for e in (1, 2, 3, 4, 6, 8)] == [10, 24, 62, 166, 1211, 8932]
    r = np.arange(0, 300)
    np.testing.assert_allclose(
        ceiling_one_run(r, confidence=0.95), epsilons_one_run(300, r, r, delta=0.0, confidence=0.95), rtol=1e-9
    )


@pytest.mark.parametrize("epsilon", [0.3, 1.7, 5.0])
def test_one_canary_less_is_not_enough(epsilon: float) -> None:
    r = canaries_needed(epsilon, confidence=0.9)
    assert ceiling_one_run(r, confidence=0.9) >= epsilon > ceiling_one_run(r - 1, confidence=0.9)


def test_the_ceiling_is_that_of_the_same_delta() -> None:
    bound = epsilon_one_run(1000, 100, 90, delta=1e-4, confidence=0.95)
    assert bound.ceiling == epsilon_one_run(1000, 100, 100, delta=1e-4, confidence=0.95).value
    assert bound.ceiling < ceiling_one_run(100, confidence=0.95)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("r", [20, 300])
def test_randomised_response_at_the_boundary(epsilon: float, r: int) -> None:
    """Exact: m bits answered truthfully with probability q are ε-DP, and v ~ Bin(r, q)."""
    v = np.arange(r + 1)
    mass = stats.binom.pmf(v, r, 1 / (1 + np.exp(-epsilon)))
    alarm = epsilons_one_run(r, r, v, delta=0.0, confidence=0.95) > epsilon
    rate = float(mass[alarm].sum())
    assert rate <= 0.05 * (1 + 1e-9)
    # Tight: one more count in the rejected set would exceed β.
    first = np.flatnonzero(alarm)[0] if alarm.any() else r + 1
    assert rate + mass[first - 1] > 0.05


@pytest.mark.parametrize("fixed_guesses", [True, False])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (1.0, 1e-3), (1.0, 0.02)])
def test_randomised_response_that_fails_with_probability_delta(
    epsilon: float, delta: float, fixed_guesses: bool
) -> None:
    """Exact: each bit is published in clear with probability δ and answered by randomised response otherwise."""
    r = 120
    v = np.arange(r + 1)
    q = 1 / (1 + np.exp(-epsilon))
    mass = stats.binom.pmf(v, r, delta + (1 - delta) * q)
    alarm = epsilons_one_run(r, r, v, delta=delta, confidence=0.95, fixed_guesses=fixed_guesses) > epsilon
    assert mass[alarm].sum() <= 0.05 * (1 + 1e-9)


def test_guesses_that_depend_on_the_output_need_the_adaptive_rule() -> None:
    """A (0, δ)-DP mechanism on which the fixed-r p-value alarms more often than β, and the adaptive one does not.

    With probability λ it publishes five random bits in clear (then r = v = 5), else r = 100000 fair guesses. One bit
    changes the output law by at most λ·5/m in total variation, so it is (0, 5λ/m)-DP.
    """
    m, few, many, share = 200_000, 5, 100_000, 0.007
    delta = share * few / m
    v = np.arange(50_000, 50_600)  # the tail beyond holds less than 1e-3 of the 5% that is at stake
    mass = stats.binom.pmf(v, many, 0.5)
    rates = {}
    for fixed in (True, False):
        rejects = {r: _first_rejected(m, r, delta, fixed) for r in (few, many)}
        tail = float(stats.binom.sf(rejects[many] - 1, many, 0.5))
        rates[fixed] = (1 - share) * tail + share * (rejects[few] <= few)
    assert mass.sum() > 0.49
    assert rates[True] > 0.055
    assert rates[False] <= 0.05


def _first_rejected(m: int, r: int, delta: float, fixed: bool) -> int:
    """The smallest v at which ε = 0 is rejected at β = 0.05."""
    rule = one_run._fixed_p_value if fixed else one_run._adaptive_p_value
    low, high = r // 2, r + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rule(r, middle, 2 * m * delta)(0.0) < 0.05 else (middle, high)
    return high


@pytest.mark.parametrize("fixed_guesses", [True, False])
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_simulated_noise_at_the_boundary(mechanism: str, fixed_guesses: bool) -> None:
    """2000 repetitions of 200 noisy bits; the 40 largest are guessed in, the 40 smallest out."""
    rng = np.random.default_rng(7)
    repetitions, m, epsilon, half = 2000, 200, 1.0, 40
    bits = rng.integers(0, 2, size=(repetitions, m))
    if mechanism == "laplace":
        delta, noise = 0.0, rng.laplace(scale=1 / epsilon, size=bits.shape)
    else:
        threshold = epsilon + 0.5  # σ = 1
        delta = float(stats.norm.sf(threshold - 1) - np.exp(epsilon) * stats.norm.sf(threshold))
        noise = rng.normal(size=bits.shape)
    order = np.argsort(bits + noise, axis=1)
    sorted_bits = np.take_along_axis(bits, order, axis=1)
    correct = sorted_bits[:, -half:].sum(axis=1) + (1 - sorted_bits[:, :half]).sum(axis=1)
    shown = epsilons_one_run(m, 2 * half, correct, delta=delta, confidence=0.95, fixed_guesses=fixed_guesses)
    alarms = int((shown > epsilon).sum())
    assert stats.binom.sf(alarms - 1, repetitions, 0.05) >= FALSE_ALARM
    if mechanism == "laplace":
        assert (shown > epsilon / 4).mean() > 0.5


def test_maximum_over_abstention_counts_would_not_be_valid() -> None:
    """Why nothing is maximised without paying: the best of all r alarms far above β on ε = 1 (the test can fail)."""
    rng = np.random.default_rng(11)
    repetitions, m = 400, 200
    bits = rng.integers(0, 2, size=(repetitions, m))
    noisy = bits + rng.laplace(size=bits.shape)
    order = np.argsort(-noisy, axis=1)
    correct = np.cumsum(np.take_along_axis(bits, order, axis=1), axis=1)
    shown = epsilons_one_run(m, np.arange(1, m + 1), correct, delta=0.0, confidence=0.95).max(axis=1)
    assert (shown > 1.0).mean() > 0.1


def test_disclosures_against_a_holdout() -> None:
    result = disclosures_with_holdout(60, 45, 2000)
    assert result.p_value == pytest.approx(5.34e-5, abs=5e-8)
    assert result.epsilon.value == pytest.approx(0.5817, abs=5e-5)


@pytest.mark.parametrize(
    ("hits", "total", "marked", "drawn"),
    [(45, 2000, 1000, 60), (0, 10, 5, 3), (3, 10, 3, 9), (9, 10, 9, 10), (2, 9, 4, 7)],
)
def test_hypergeometric_tail_agrees_with_scipy(hits: int, total: int, marked: int, drawn: int) -> None:
    expected = stats.hypergeom.sf(hits - 1, total, marked, drawn)
    assert hypergeometric_tail(hits, total, marked, drawn) == pytest.approx(expected, rel=1e-10)


def test_hypergeometric_p_values_are_valid_and_do_not_underflow() -> None:
    total, marked, drawn = 60, 25, 20
    hits = np.arange(0, drawn + 1)
    p = np.array([hypergeometric_tail(int(h), total, marked, drawn) for h in hits])
    mass = stats.hypergeom.pmf(hits, total, marked, drawn)
    for level in (0.01, 0.05, 0.3):
        assert mass[p <= level].sum() <= level
    assert 0 < hypergeometric_tail(600, 2000, 1000, 600) < 1e-200


def test_a_hundred_thousand_canaries_take_less_than_a_second() -> None:
    start = time.process_time()
    assert epsilon_one_run(100_000, 80_000, 60_000, delta=1e-6, confidence=0.95).value > 1
    assert time.process_time() - start < 1


@pytest.mark.parametrize(("m", "r", "v"), [(10, 11, 5), (10, 5, 6), (10, 5, -1)])
def test_impossible_counts_are_refused(m: int, r: int, v: int) -> None:
    with pytest.raises(ValueError, match="correct ≤ guesses ≤ m"):
        epsilon_one_run(m, r, v, delta=0.0, confidence=0.95)


def test_more_disclosures_than_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        disclosures_with_holdout(10, 8, 14)
