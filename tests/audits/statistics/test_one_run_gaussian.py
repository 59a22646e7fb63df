"""One run in a Gaussian model: its law by quadrature and by draws, coverage at the boundary, and where it is wrong."""

from __future__ import annotations

import functools
import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Rigor
from dpassay.accounting.guarantees import ApproxDP
from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.audits.statistics import epsilon_one_run, epsilon_one_run_gaussian, mu_one_run
from dpassay.audits.statistics.one_run_gaussian import gaussian_p_value
from dpassay.audits.verdict import decide

REPETITIONS, BETA = 2000, 0.1
MAX_ALARMS = int(stats.binom.isf(1e-4, REPETITIONS, BETA))

Counts = NDArray[np.int64]


def p_by_quadrature(m: int, r: int, v: int, mu: float) -> float:
    """P[at least v right], from the joint density of the (r + 1)-th largest |Y| and of the counts above it."""
    with mpmath.workdps(25):
        half = mpmath.mpf(mu) / 2

        def density(t: mpmath.mpf) -> mpmath.mpf:
            right, wrong = mpmath.ncdf(half - t), mpmath.ncdf(-half - t)
            here = mpmath.npdf(t - half) + mpmath.npdf(t + half)
            below = (1 - right - wrong) ** (m - r - 1)
            above = mpmath.fsum(mpmath.binomial(r, k) * right**k * wrong ** (r - k) for k in range(v, r + 1))
            return m * mpmath.binomial(m - 1, r) * here * below * above

        return float(mpmath.quad(density, [0, 0.5, 1, 1.5, 2, 3, 4, 6, 9]))


@pytest.mark.grid
@pytest.mark.parametrize("mu", [0.0, 0.4, 1.0, 3.0])
@pytest.mark.parametrize(("m", "r", "v"), [(2, 1, 1), (5, 2, 2), (30, 7, 5), (60, 20, 17), (60, 59, 40)])
def test_the_p_value_is_that_of_a_quadrature_and_never_below(m: int, r: int, v: int, mu: float) -> None:
    """The cells, 1/256 of 15 standard deviations of T wide, add less than 6 %."""
    p, exact = gaussian_p_value(m, r, v)(mu), p_by_quadrature(m, r, v, mu)
    assert exact * (1 - 1e-12) <= p <= 1.06 * exact


def test_with_all_guessed_it_is_a_binomial() -> None:
    for mu in (0.0, 0.7, 2.0):
        exact = float(stats.binom.sf(69, 100, stats.norm.cdf(mu / 2)))
        assert gaussian_p_value(100, 100, 70)(mu) == pytest.approx(exact, rel=2e-9)


def drawn(m: int, r: int, mu: float, seed: int, repetitions: int = REPETITIONS) -> Counts:
    """Right guesses of the signs of the r largest |Y|, with noise that is drawn."""
    generator = np.random.default_rng(seed)
    coins = generator.integers(0, 2, (repetitions, m)) * 2 - 1
    seen = mu / 2 * coins + generator.normal(size=coins.shape)
    chosen = np.argsort(-np.abs(seen), axis=1)[:, :r]
    return np.asarray((np.take_along_axis(seen * coins, chosen, axis=1) > 0).sum(axis=1))


@functools.cache
def mus(m: int, r: int) -> NDArray[np.float64]:
    return np.array([mu_one_run(m, r, v, confidence=1 - BETA).value for v in range(r + 1)])


@pytest.mark.parametrize(("m", "r", "mu"), [(60, 60, 1.0), (60, 20, 1.0), (200, 20, 0.5), (200, 150, 1.5)])
def test_coverage_at_the_boundary(m: int, r: int, mu: float) -> None:
    """2000 Gaussian mechanisms of this μ; a valid bound fails with probability at most 1e-4. The last assertion: the
    test can accuse, since a mechanism of three times the μ is accused of more than μ more often than not."""
    assert int((mus(m, r)[drawn(m, r, mu, 1)] > mu).sum()) <= MAX_ALARMS
    assert (mus(m, r)[drawn(m, r, 3 * mu, 2)] > mu).mean() > 0.5


def test_the_law_is_attained() -> None:
    """200 000 draws; the tolerance is 4.5 standard deviations, which a right law exceeds once in 10⁵."""
    m, r, mu, draws = 60, 20, 1.0, 200_000
    right = drawn(m, r, mu, 3, draws)
    for v in (14, 17, 19, 20):
        share, p = float((right >= v).mean()), gaussian_p_value(m, r, v)(mu)
        assert abs(share - p) <= 4.5 * math.sqrt(p / draws) + 0.03 * p


def test_weaker_observations_and_other_guesses_keep_the_coverage() -> None:
    """Candidates whose μ_i are anything up to μ, of which the highest scores alone are guessed "in"."""
    m, r, mu = 100, 20, 1.5
    generator = np.random.default_rng(4)
    coins = generator.integers(0, 2, (REPETITIONS, m)) * 2 - 1
    strength = mu * generator.choice([0.3, 1.0, 1.0, 1.0], size=m)
    seen = strength / 2 * coins + generator.normal(size=coins.shape)
    chosen = np.argsort(-seen, axis=1)[:, :r]
    right = (np.take_along_axis(coins, chosen, axis=1) > 0).sum(axis=1)
    assert int((mus(m, r)[right] > mu).sum()) <= MAX_ALARMS


def test_correlated_noise_of_orthogonal_directions_is_a_function_of_independent_noise() -> None:
    """A sum Σ S_i g_i with Gaussian noise of unit covariance and orthogonal |g_i| = μ: the projections on g_i have
    independent noise, whatever else is released."""
    generator, m, mu = np.random.default_rng(5), 40, 1.0
    basis = np.linalg.qr(generator.normal(size=(60, m)))[0]
    coins = generator.integers(0, 2, (REPETITIONS, m)) * 2 - 1
    released = mu / 2 * coins @ basis.T + generator.normal(size=(REPETITIONS, 60))
    right = ((released @ basis) * coins > 0).sum(axis=1)
    assert int((mus(m, m)[right] > mu).sum()) <= MAX_ALARMS


def test_more_right_guesses_show_more_and_the_ceiling_is_all_right() -> None:
    values = mus(60, 20)
    assert (np.diff(values) >= 0).all()
    bound = mu_one_run(60, 20, 11, confidence=1 - BETA)
    assert bound.ceiling == values[-1]
    assert (bound.quantity, bound.rigor, bound.unit) == ("mu", Rigor.MODEL_CONDITIONAL, Unit())
    epsilon = epsilon_one_run_gaussian(60, 20, 20, delta=1e-5, confidence=1 - BETA)
    assert epsilon.value == epsilon.ceiling == gaussian_curve.epsilon(float(values[-1]), 1e-5).lower
    assert epsilon_one_run_gaussian(60, 20, 0, delta=1e-5, confidence=0.95).value == 0


def test_assuming_more_shows_more_of_a_gaussian() -> None:
    """90 of 100 guesses right among 1000 at δ = 1e-5."""
    general = epsilon_one_run(1000, 100, 90, delta=1e-5, confidence=0.95, rule="tight")
    assert epsilon_one_run_gaussian(1000, 100, 90, delta=1e-5, confidence=0.95).value > 1.9 * general.value


def test_it_is_wrong_for_randomised_response_and_refutes_nothing() -> None:
    """ε = 1, all of 1000 coins guessed: the ε of the Gaussian is above 1 in every one of 2000 runs, and above 4 in the
    median. No verdict counts it."""
    q = math.e / (1 + math.e)
    right = np.random.default_rng(6).binomial(1000, q, REPETITIONS)
    by_count = {
        v: epsilon_one_run_gaussian(1000, 1000, int(v), delta=1e-5, confidence=0.95) for v in np.unique(right).tolist()
    }
    values = np.array([by_count[v].value for v in right.tolist()])
    assert values.min() > 1
    assert np.median(values) > 4
    bound = by_count[int(right[0])]
    assert not bound.rigor.may_refute
    verdict = decide(ApproxDP(1.0, 1e-5), adjacency=Adjacency.ADD_REMOVE, unit=Unit(), bounds=[bound])
    assert verdict.name == "UNPROVEN"


def test_gaussian_dp_alone_is_not_enough() -> None:
    """|Y| is drawn once and revealed, and each coin is answered by randomised response at that level: for each
    candidate that is an observation with μ = 1, since a Gaussian is its |Y| and a sign that is right with probability
    1/(1 + e^{−μ|Y|}). A common level varies the number of right guesses; by quadrature the bound is above 1 far more
    often than the 10 % that it states."""
    m, mu = 200, 1.0
    least = int(np.flatnonzero(mus(m, m) > mu)[0])
    level = np.linspace(0, 12, 20_001)
    density = stats.norm.pdf(level - mu / 2) + stats.norm.pdf(level + mu / 2)
    alarm = stats.binom.sf(least - 1, m, special.expit(mu * level))
    assert np.trapezoid(density, level) == pytest.approx(1, abs=1e-9)
    assert np.trapezoid(density * alarm, level) > 0.3


@pytest.mark.parametrize("counts", [(10, 0, 0), (10, 5, 6), (10, 11, 5), (0, 0, 0), (10, 5, -1)])
def test_impossible_counts(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"must"):
        mu_one_run(*counts, confidence=0.95)
    with pytest.raises(ValueError, match=r"must"):
        epsilon_one_run_gaussian(*counts, delta=1e-5, confidence=0.95)


def test_delta_0_has_no_epsilon() -> None:
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\), not 0.0; for δ = 0 take mu_one_run"):
        epsilon_one_run_gaussian(10, 5, 5, delta=0.0, confidence=0.95)


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_membership_shows_it_beside_the_bound_and_does_not_count_it(delta: float) -> None:
    """Randomised response with ε = 1 against a claim of 1: the Gaussian ε is far above, the bound is not."""
    generator = np.random.default_rng(7)
    included = generator.integers(0, 2, 1000) == 1
    answers = np.where(generator.random(1000) < math.e / (1 + math.e), included, ~included)
    design = MembershipDesign(guesses=(1000,), fair_coins=True, delta=delta, claimed_epsilon=1.0)
    result = membership_audit(MembershipScores({"answer": answers.astype(float)}, included), design)
    (bound,) = result.bounds
    assert bound.rigor is Rigor.FINITE_SAMPLE
    assert bound.value <= 1
    assert "not refuted" in result.conclusion
    gaussian = result.details["gaussian"]
    assert gaussian["mu"]["value"] > 0.8
    assert gaussian["mu"]["rigor"] == "model_conditional"
    assert "refutes nothing" in gaussian["sentence"]
    assert (gaussian["epsilon"] is None) == (delta == 0)
    if delta:
        assert gaussian["epsilon"]["value"] > 3
