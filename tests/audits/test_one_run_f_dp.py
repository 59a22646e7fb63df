"""One run within a family: published numbers, the exact worst case of (ε, δ)-DP, and coverage for Gaussian noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cupel.accounting import gaussian_curve
from cupel.accounting.bounds import Rigor
from cupel.audits.one_run_f_dp import epsilon_one_run_f_dp
from cupel.audits.statistics import epsilon_one_run


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


def test_wrong_arguments_are_refused() -> None:
    for counts in ((10, 11, 5), (10, 0, 0), (10, 5, 6)):
        with pytest.raises(ValueError, match="correct ≤ guesses ≤ m"):
            epsilon_one_run_f_dp(*counts, family="gdp", delta=1e-5, confidence=0.95)
    with pytest.raises(ValueError, match=r"delta must be in \(0, 1\)"):
        epsilon_one_run_f_dp(10, 5, 5, family="gdp", delta=0.0, confidence=0.95)
    with pytest.raises(ValueError, match="family"):
        epsilon_one_run_f_dp(10, 5, 5, family="laplace", delta=0.1, confidence=0.95)  # type: ignore[arg-type]
