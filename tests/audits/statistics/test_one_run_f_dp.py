"""One run within a family: published numbers, the exact worst case of (ε, δ)-DP, and coverage for Gaussian noise."""

from __future__ import annotations

import time

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from dpassay.accounting.bounds import Rigor
from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.statistics import epsilon_one_run
from dpassay.audits.statistics.one_run_f_dp import (
    Family,
    approximate_inverse,
    epsilon_one_run_f_dp,
    gaussian_inverse,
    rejects,
)


def test_published_value() -> None:
    """70 of 80 guesses right among 100 at δ = 1e-6: 3.2906 by the published search over a grid, 3.2956 exactly."""
    bound = epsilon_one_run_f_dp(100, 80, 70, family="gdp", delta=1e-6, confidence=0.95)
    assert bound.value == pytest.approx(3.2956, abs=5e-5)
    assert bound.rigor is Rigor.MODEL_CONDITIONAL
    assert any("Gaussian" in assumption for assumption in bound.assumptions)
    assert bound.ceiling is not None
    assert bound.value < bound.ceiling


def test_for_all_mechanisms_it_is_nearly_the_exact_worst_case_and_never_beyond() -> None:
    """For (ε, δ)-DP the `tight` rule is exact (a linear programme confirms it), so a valid bound is at most that."""
    generator, largest_gap = np.random.default_rng(1), 0.0
    for _ in range(150):
        m = int(generator.integers(1, 150))
        guesses = int(generator.integers(1, m + 1))
        correct = int(generator.integers(guesses // 2, guesses + 1))
        delta, confidence = 10 ** -generator.uniform(1, 7), float(generator.choice([0.8, 0.95, 0.99]))
        family = epsilon_one_run_f_dp(m, guesses, correct, family="approx_dp", delta=delta, confidence=confidence)
        exact = epsilon_one_run(m, guesses, correct, delta=delta, confidence=confidence, rule="tight").value
        assert family.value <= exact + 1e-9  # halvings of both
        assert family.rigor is Rigor.FINITE_SAMPLE
        largest_gap = max(largest_gap, exact - family.value)
    assert largest_gap < 0.1


@pytest.mark.grid
@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_gaussian_noise_at_the_boundary_is_rejected_no_more_often_than_stated(mu: float) -> None:
    """Exact: each of 60 candidates has its own Gaussian; all are guessed, and Bin(60, Φ(μ/2)) of them rightly."""
    m, delta, confidence = 60, 1e-5, 0.9
    truth = gaussian_curve.epsilon(mu, delta).lower
    values = [
        epsilon_one_run_f_dp(m, m, c, family="gdp", delta=delta, confidence=confidence).value for c in range(m + 1)
    ]
    assert (np.diff(values) >= -1e-9).all()
    beyond = np.array(values) > truth + 1e-9
    false_alarms = float(stats.binom.pmf(np.flatnonzero(beyond), m, stats.norm.cdf(mu / 2)).sum())
    assert false_alarms <= 1 - confidence
    assert beyond.any() or mu == 2  # 60 right guesses cannot show more than μ = 2


def test_the_most_telling_guesses_keep_the_coverage() -> None:
    """Only the 20 most extreme of 60 scores are guessed; 2000 runs at β = 10%. A valid bound fails this with
    probability below 1e-4."""
    m, guesses, mu, delta, confidence = 60, 20, 1.0, 1e-5, 0.9
    generator = np.random.default_rng(7)
    coins = generator.integers(0, 2, size=(2000, m))
    scores = generator.normal(size=coins.shape) + mu * coins - mu / 2
    told = np.argsort(-np.abs(scores), axis=1)[:, :guesses]
    right = np.take_along_axis((scores > 0) == (coins == 1), told, axis=1).sum(axis=1)
    values = [
        epsilon_one_run_f_dp(m, guesses, c, family="gdp", delta=delta, confidence=confidence).value
        for c in range(guesses + 1)
    ]
    truth = gaussian_curve.epsilon(mu, delta).lower
    assert int((np.array(values)[right] > truth + 1e-9).sum()) <= stats.binom.isf(1e-4, 2000, 1 - confidence)


def rejected_by_definition(
    m: int, guesses: int, correct: int, family: str, parameter: float, delta: float, tail: float
) -> bool:
    """The published recursion in 50 digits, with neither early exit nor rounding down."""
    with mpmath.workdps(50):
        tau, grow = mpmath.mpf(tail), mpmath.exp(parameter)

        def inverse(power: mpmath.mpf) -> mpmath.mpf:
            if family == "approx_dp":
                return max(mpmath.mpf(0), (power - delta) / grow, 1 - delta - grow * (1 - power))
            quantile = -mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * power)
            return mpmath.ncdf(quantile - parameter)

        r, h = tau * correct / m, tau * (guesses - correct) / m
        for i in range(correct - 1, -1, -1):
            following = max(h, inverse(r))
            r += mpmath.mpf(i) / (guesses - i) * (following - h)
            h = following
            if r >= 1:
                return True
        return bool(r + h > mpmath.mpf(guesses) / m)


@pytest.mark.grid
@pytest.mark.parametrize("delta", [1e-6, 1e-2])
@pytest.mark.parametrize("counts", [(100, 80, 70), (40, 40, 40), (40, 40, 22), (300, 12, 11), (30, 1, 1), (60, 60, 50)])
def test_what_is_said_to_be_rejected_is_rejected_without_rounding(counts: tuple[int, int, int], delta: float) -> None:
    """Never on the wrong side, and within 1e-9 of where the exact recursion changes its mind."""
    low, high = 0.0, 80.0
    value = epsilon_one_run_f_dp(*counts, family="approx_dp", delta=delta, confidence=0.8).value
    if value:
        assert rejected_by_definition(*counts, "approx_dp", value, delta, 1 - 0.8)
    assert not rejected_by_definition(*counts, "approx_dp", value + 1e-9, delta, 1 - 0.8)
    for _ in range(50):
        middle = (low + high) / 2
        above = rejects(*counts, gaussian_inverse(middle), 1 - 0.8)
        low, high = (middle, high) if above else (low, middle)
    assert not low or rejected_by_definition(*counts, "gdp", low, delta, 1 - 0.8)
    assert not rejected_by_definition(*counts, "gdp", low + 1e-9, delta, 1 - 0.8)


def test_the_rounded_quantile_and_tail_are_below_the_true_ones() -> None:
    """f̄⁻¹ of a Gaussian against 40 digits, from powers of 1e-300 to 1 − 1e-16."""
    powers = [10.0**-k for k in (300, 200, 100, 50, 20, 12, 8, 4, 2)]
    powers += [0.02425, 0.1, 0.3, 0.5, 0.7, 0.925, 0.98, 1 - 1e-4, 1 - 1e-9, 1 - 1e-16]
    for mu in (0.0, 1e-3, 0.5, 3.0, 20.0):
        for power in powers:
            result = gaussian_inverse(mu)(power)
            with mpmath.workdps(40):
                p = mpmath.mpf(power)
                guess = mpmath.mpf(float(special.ndtri(power)))
                z = mpmath.findroot(lambda x, p=p: mpmath.log(mpmath.ncdf(x)) - mpmath.log(p), guess)
                exact = mpmath.ncdf(z - mu)
                assert result <= exact
                # 1e-14·(1 + |z| + μ) in z, times a hazard of at most |z| + μ + 1; below 1e-300 doubles lose digits
                if exact > 1e-290:
                    assert result >= exact * (1 - mpmath.mpf(3e-14) * (2 + abs(z) + mu) ** 2)


def test_the_inverse_of_approximate_dp_is_below_the_true_one() -> None:
    """In 40 digits, also where 1 − δ is no float and where p − δ has few digits left."""
    powers = [1.0, *(1 - 10.0**-k for k in (1, 4, 9, 15)), 0.5, 0.1 + 1e-16, 1e-3, 1e-17, 1e-250]
    for epsilon in (0.0, 0.3, 3.0, 30.0):
        for delta in (0.0, 1e-300, 1e-17, 1e-9, 1e-3, 0.1, 0.7):
            for power in powers:
                result = approximate_inverse(epsilon, delta)(power)
                with mpmath.workdps(40):
                    p, d, grow = mpmath.mpf(power), mpmath.mpf(delta), mpmath.exp(mpmath.mpf(epsilon))
                    exact = max(mpmath.mpf(0), (p - d) / grow, 1 - d - grow * (1 - p))
                    assert result <= exact
                    assert result >= exact * (1 - mpmath.mpf(1e-14)) - mpmath.mpf(1e-14) * (p > 0.1)


def test_more_right_guesses_never_show_less() -> None:
    """For every count of 30 guesses; so the ceiling, all of them right, is the most."""
    for family, delta in (("gdp", 1e-5), ("approx_dp", 1e-5), ("approx_dp", 0.05)):
        bounds = [
            epsilon_one_run_f_dp(50, 30, c, family=family, delta=delta, confidence=0.9)  # type: ignore[arg-type]
            for c in range(31)
        ]
        values = [bound.value for bound in bounds]
        assert (np.diff(values) >= 0).all()
        assert {bound.ceiling for bound in bounds} == {values[-1]}


@pytest.mark.parametrize("family", ["gdp", "approx_dp"])
def test_a_hundred_thousand_guesses_take_less_than_a_second(family: Family) -> None:
    start = time.process_time()
    bound = epsilon_one_run_f_dp(100_000, 100_000, 50_600, family=family, delta=1e-6, confidence=0.95)
    assert time.process_time() - start < 1
    assert 0 < bound.value < 0.05


def test_wrong_arguments_are_refused() -> None:
    for counts in ((10, 11, 5), (10, 0, 0), (10, 5, 6)):
        with pytest.raises(ValueError, match="correct ≤ guesses ≤ m"):
            epsilon_one_run_f_dp(*counts, family="gdp", delta=1e-5, confidence=0.95)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        epsilon_one_run_f_dp(10, 5, 5, family="gdp", delta=0.0, confidence=0.95)
    with pytest.raises(ValueError, match="family"):
        epsilon_one_run_f_dp(10, 5, 5, family="laplace", delta=0.1, confidence=0.95)  # type: ignore[arg-type]
