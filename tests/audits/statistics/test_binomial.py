"""Exact intervals and the two-sample ε bound: published values, exact coverage, and a second library."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.proportion import proportion_confint

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.audits.statistics import (
    clopper_pearson,
    clopper_pearson_limits,
    difference_interval,
    epsilon_clopper_pearson,
    epsilons_clopper_pearson,
)

FALSE_ALARM = 1e-4
"""Probability with which a simulated coverage test fails although the statistic is valid."""


def test_agrees_with_statsmodels() -> None:
    n = np.repeat([1, 7, 40, 5000], 4)
    k = np.array([0, 1, 1, 0, 0, 3, 6, 7, 0, 2, 20, 40, 1, 13, 2500, 5000])
    lower, upper = clopper_pearson_limits(k, n, confidence=0.9)
    expected = proportion_confint(k, n, alpha=0.1, method="beta")
    # Two implementations of the same quantile.
    np.testing.assert_allclose(lower, np.nan_to_num(expected[0]), rtol=1e-10)
    np.testing.assert_allclose(upper, np.nan_to_num(expected[1], nan=1.0), rtol=1e-10)


def test_limits_of_rare_hits_keep_their_digits() -> None:
    """P[Bin(n, x) ≥ 1] = 1 − (1 − x)ⁿ and P[Bin(n, x) ≤ 1] in 40 digits: the tails are as stated to 1e-9 of them, even
    where a difference from 1 would have no digit left."""
    for n in (2, 10**4, 10**7):
        for tail in (0.025, 5e-7, 1e-12):
            confidence = 1 - 2 * tail
            lower, upper = (float(limit) for limit in clopper_pearson_limits(1, n, confidence=confidence))
            stated = pytest.approx((1 - confidence) / 2, rel=1e-9, abs=0)
            with mpmath.workdps(40):
                x, y = mpmath.mpf(lower), mpmath.mpf(upper)
                assert float(1 - (1 - x) ** n) == stated
                assert n == 2 or float((1 - y) ** n + n * y * (1 - y) ** (n - 1)) == stated
    # The rate of hits in ε is this limit, too: one in a million runs, against not one of 10¹⁸.
    n, runs, confidence = 10**6, 10**18, 1 - 1e-9
    value = float(epsilons_clopper_pearson(1, n - 1, 0, runs, delta=0.0, confidence=confidence))
    with mpmath.workdps(40):
        tail = mpmath.mpf((1 - confidence) / 2)
        hit, false = 1 - (1 - tail) ** (mpmath.mpf(1) / n), 1 - tail ** (mpmath.mpf(1) / runs)
        assert value == pytest.approx(float(mpmath.log(hit / false)), rel=1e-9)


def test_no_trials_say_nothing() -> None:
    interval = clopper_pearson(0, 0, confidence=0.95)
    assert (interval.lower, interval.upper) == (0.0, 1.0)


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_coverage_is_at_least_nominal_for_every_probability(confidence: float) -> None:
    """Exact: the probabilities of the counts whose interval misses the truth, on each side."""
    n = 35
    k = np.arange(n + 1)
    lower, upper = clopper_pearson_limits(k, n, confidence=confidence)
    truth = np.linspace(0.0, 1.0, 401)[:, None]
    mass = stats.binom.pmf(k, n, truth)
    nominal = (1 - confidence) / 2 * (1 + 1e-12)  # rounding of the sums
    assert ((mass * (truth < lower)).sum(axis=1) <= nominal).all()
    assert ((mass * (truth > upper)).sum(axis=1) <= nominal).all()


def test_difference_covers_for_every_pair_of_probabilities() -> None:
    n_a, n_b, confidence = 12, 17, 0.9
    k_a, k_b = np.meshgrid(np.arange(n_a + 1), np.arange(n_b + 1), indexing="ij")
    intervals = [
        difference_interval(int(a), n_a, int(b), n_b, confidence=confidence)
        for a, b in zip(k_a.ravel(), k_b.ravel(), strict=True)
    ]
    lower = np.array([interval.lower for interval in intervals]).reshape(k_a.shape)
    upper = np.array([interval.upper for interval in intervals]).reshape(k_a.shape)
    worst = 0.0
    for a in np.linspace(0, 1, 21):
        for b in np.linspace(0, 1, 21):
            mass = stats.binom.pmf(k_a, n_a, a) * stats.binom.pmf(k_b, n_b, b)
            worst = max(worst, float((mass * ((a - b < lower) | (a - b > upper))).sum()))
    assert worst <= (1 - confidence) * (1 + 1e-12)


def test_published_values() -> None:
    """Two count tables, to the digits that are known."""
    perfect = epsilon_clopper_pearson(500, 0, 0, 500, delta=0.0, confidence=0.99)
    assert perfect.value == pytest.approx(4.541916, abs=5e-7)
    assert perfect.ceiling == perfect.value
    both = epsilon_clopper_pearson(200, 12, 58, 200, delta=1e-5, confidence=0.95)
    assert both.value == pytest.approx(2.00575, abs=5e-6)
    # ln((1 − FN̄ − δ)/FP̄) alone is 1.168663: with the roles of the errors exchanged the other direction is left.
    fp_upper = stats.beta.isf(0.025, 58 + 1, 200)
    fn_upper = stats.beta.isf(0.025, 12 + 1, 200)
    assert np.log((1 - fn_upper - 1e-5) / fp_upper) == pytest.approx(1.168663, abs=5e-7)
    assert both.value == pytest.approx(np.log((1 - fp_upper - 1e-5) / fn_upper), abs=1e-12)


def test_a_bound_says_what_it_means() -> None:
    bound = epsilon_clopper_pearson(
        9, 1, 2, 8, delta=0.0, confidence=0.9, adjacency=Adjacency.REPLACE_ONE, unit=Unit("user")
    )
    assert (bound.direction, bound.rigor, bound.quantity) == (Direction.LOWER, Rigor.FINITE_SAMPLE, "epsilon")
    assert (bound.adjacency, bound.unit, bound.delta, bound.confidence) == (
        Adjacency.REPLACE_ONE,
        Unit("user"),
        None,
        0.9,
    )
    assert bound.ceiling is not None
    assert bound.ceiling > bound.value


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_randomised_response_at_the_boundary(epsilon: float, confidence: float) -> None:
    """Exact false-alarm rate: both errors are binomial with rate 1/(1 + e^ε), so ε is attained."""
    n = 150
    wrong = stats.binom.pmf(np.arange(n + 1), n, 1 / (1 + np.exp(epsilon)))
    fp, fn = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
    shown = epsilons_clopper_pearson(n - fn, fn, fp, n - fp, delta=0.0, confidence=confidence)
    rate = float((np.outer(wrong, wrong) * (shown > epsilon)).sum())
    assert rate <= (1 - confidence) * (1 + 1e-12)
    if epsilon:  # and it has power: it shows something in most runs
        assert float((np.outer(wrong, wrong) * (shown > epsilon / 4)).sum()) > 0.5


def false_alarms_are_nominal(alarms: np.ndarray, beta: float) -> bool:
    """Whether a simulated rate is compatible with at most β; wrong with probability `FALSE_ALARM`."""
    return bool(stats.binom.sf(int(alarms.sum()) - 1, alarms.size, beta) >= FALSE_ALARM)


@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_simulated_noise_at_the_boundary(mechanism: str) -> None:
    """4000 repetitions of 400 runs each on 0 and on 1, with the test that attains the boundary of (ε, δ)."""
    rng = np.random.default_rng(20260501)
    repetitions, runs, epsilon = 4000, 400, 1.0
    shape = (repetitions, runs)
    if mechanism == "laplace":
        delta, threshold = 0.0, 1.0  # the likelihood ratio is e^ε everywhere beyond 1
        noise = [rng.laplace(scale=1 / epsilon, size=shape) for _ in range(2)]
    else:
        # With σ = 1 the ratio exceeds e^ε beyond ε + ½, and δ(ε) is exact there.
        threshold = epsilon + 0.5
        delta = float(stats.norm.sf(threshold - 1) - np.exp(epsilon) * stats.norm.sf(threshold))
        noise = [rng.normal(size=shape) for _ in range(2)]
    fp = (noise[0] > threshold).sum(axis=1)
    tp = (1 + noise[1] > threshold).sum(axis=1)
    shown = epsilons_clopper_pearson(tp, runs - tp, fp, runs - fp, delta=delta, confidence=0.95)
    assert false_alarms_are_nominal(shown > epsilon, 0.05)
    assert (shown > epsilon / 4).mean() > 0.5


@pytest.mark.parametrize(("hits", "trials"), [(3, 2), (-1, 2), (0.5, 2)])
def test_impossible_counts_are_refused(hits: float, trials: int) -> None:
    with pytest.raises(ValueError, match=r"hits"):
        clopper_pearson(hits, trials, confidence=0.95)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0])
def test_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(ValueError, match="confidence"):
        clopper_pearson(1, 2, confidence=confidence)


def test_delta_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="delta"):
        epsilon_clopper_pearson(1, 1, 1, 1, delta=1.0, confidence=0.95)
