"""ε from scores: exact coverage where it can be enumerated, simulation at the boundary elsewhere, and what cheats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpassay.audits.statistics.binomial import epsilon_clopper_pearson, epsilons_clopper_pearson
from dpassay.audits.statistics.score_thresholds import Band, FixedThreshold, Grid, Split, Threshold, epsilon_from_scores

RULES: list[Threshold] = [FixedThreshold(0.5), Split(), Grid((-1.0, 0.5, 2.0)), Band()]
REPETITIONS, BETA = 2000, 0.1
MAX_ALARMS = int(stats.binom.isf(1e-4, REPETITIONS, BETA))
"""A valid statistic has more false alarms than this with probability at most 1e-4."""


def samples(mechanism: str, n: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Scores on D′ and D at the boundary of (ε, δ)-DP, with that ε and δ."""
    if mechanism == "randomised response":
        q = math.e / (1 + math.e)
        return (generator.random(n) < q).astype(float), (generator.random(n) >= q).astype(float), 1.0, 0.0
    if mechanism == "laplace":
        return generator.laplace(1, 1, n), generator.laplace(0, 1, n), 1.0, 0.0
    if mechanism == "gaussian":
        # (ε, δ) of a Gaussian with μ = 1 at ε = 1
        return generator.normal(1, 1, n), generator.normal(0, 1, n), 1.0, 0.12693673750664397
    # Poisson-sampled Gaussian, q = .3 and σ = 1, removal: D′ is the mixture; δ(ε) is q·δ_G(ε₁), e^ε₁ = 1 + (e^ε − 1)/q
    q, epsilon = 0.3, 0.5
    inner = math.log1p(math.expm1(epsilon) / q)
    delta = q * (stats.norm.sf(inner - 0.5) - math.exp(inner) * stats.norm.sf(inner + 0.5))
    return generator.normal(1.0 * (generator.random(n) < q), 1, n), generator.normal(0, 1, n), epsilon, float(delta)


@pytest.mark.grid
@pytest.mark.parametrize(
    "mechanism",
    [
        *("randomised response", "subsampled gaussian"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("laplace", "gaussian")),
    ],
)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_false_alarms_are_at_most_nominal(mechanism: str, rule: Threshold) -> None:
    generator, alarms = np.random.default_rng(11), 0
    for _ in range(REPETITIONS):
        inside, outside, epsilon, delta = samples(mechanism, 60, generator)
        result = epsilon_from_scores(inside, outside, delta=delta, confidence=1 - BETA, threshold=rule)
        alarms += result.value > epsilon
    assert alarms <= MAX_ALARMS


def test_a_grid_is_the_best_of_its_thresholds_each_at_its_share_of_beta() -> None:
    inside, outside, _, _ = samples("gaussian", 200, np.random.default_rng(4))
    values = (-0.5, 0.5, 1.0, 2.5)

    def best(confidence: float) -> float:
        return max(
            epsilon_from_scores(
                inside, outside, delta=0.01, confidence=confidence, threshold=FixedThreshold(value)
            ).value
            for value in values
        )

    result = epsilon_from_scores(inside, outside, delta=0.01, confidence=0.9, threshold=Grid(values)).value
    assert result == best(1 - (1 - 0.9) / 4)
    assert 0 < result < best(0.9)


def test_a_split_is_a_fixed_threshold_on_scores_that_did_not_choose_it() -> None:
    for seed in range(5):
        inside, outside = np.random.default_rng(seed + 9).normal([[2.0], [0.0]], 1, size=(2, 80))
        result = epsilon_from_scores(inside, outside, delta=0.0, confidence=0.8, threshold=Split(0.4, seed)).value
        generator = np.random.default_rng(seed)
        parts = [np.split(generator.permutation(scores), [32]) for scores in (inside, outside)]
        (choosing_in, rest_in), (choosing_out, rest_out) = parts

        def value(threshold: float, confidence: float, one: np.ndarray, other: np.ndarray) -> float:
            rule = FixedThreshold(threshold)
            return epsilon_from_scores(one, other, delta=0.0, confidence=confidence, threshold=rule).value

        candidates = np.unique(np.concatenate([choosing_in, choosing_out])).tolist()
        chosen = max(candidates, key=lambda t: value(t, 1 - 0.2 / len(candidates), choosing_in, choosing_out))
        assert result == value(chosen, 0.8, rest_in, rest_out) != value(chosen, 0.8, choosing_in, choosing_out)


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_the_band_is_as_wide_as_both_samples_need(delta: float) -> None:
    """One-sided Kolmogorov–Smirnov deviations, exactly: beyond the margin with probability at most β/2 a sample."""
    sizes = (70, 300)
    margins = [math.sqrt(math.log(2 / BETA) / (2 * n)) for n in sizes]
    assert all(BETA / 3 < stats.ksone.sf(margin, n) <= BETA / 2 for n, margin in zip(sizes, margins, strict=True))
    generator = np.random.default_rng(2)
    inside, outside = generator.normal(2, 1, sizes[0]), generator.normal(0, 1, sizes[1])
    for first, second, (m1, m0) in ((inside, outside, margins), (-outside, -inside, margins[::-1])):
        shown = [0.0]
        for threshold in [*first, *second]:
            hit, false = np.mean(first >= threshold) - m1, np.mean(second >= threshold) + m0
            miss, true = 1 - hit, 1 - false
            shown += [math.log((a - delta) / b) for a, b in ((hit, false), (true, miss)) if a > delta and b < 1]
        result = epsilon_from_scores(first, second, delta=delta, confidence=1 - BETA, threshold=Band())
        assert result.value == pytest.approx(max(shown), rel=1e-12)
        assert result.value > 0.3


@pytest.mark.slow
def test_the_best_of_all_thresholds_unpaid_for_is_no_bound() -> None:
    """What the rules are for: the largest value over all thresholds, as if it had been fixed, on Laplace noise."""
    generator, alarms = np.random.default_rng(11), 0
    for _ in range(200):
        inside, outside, epsilon, _ = samples("laplace", 2000, generator)
        thresholds = np.sort(np.concatenate([inside, outside]))
        tp, fp = (scores.size - np.searchsorted(np.sort(scores), thresholds) for scores in (inside, outside))
        values = epsilons_clopper_pearson(tp, 2000 - tp, fp, 2000 - fp, delta=0.0, confidence=1 - BETA)
        alarms += values.max() > epsilon
    assert alarms > stats.binom.isf(1e-6, 200, BETA), alarms


def test_a_fixed_threshold_is_clopper_pearson() -> None:
    result = epsilon_from_scores(
        [0.1, 0.7, 0.9, 0.5], [0.2, 0.3, 0.6], delta=0.01, confidence=0.9, threshold=FixedThreshold(0.5)
    )
    assert result.value == epsilon_clopper_pearson(3, 1, 1, 2, delta=0.01, confidence=0.9).value
    assert result.ceiling == epsilon_clopper_pearson(4, 0, 0, 3, delta=0.01, confidence=0.9).value


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_perfectly_separate_scores_reach_the_ceiling(rule: Threshold) -> None:
    result = epsilon_from_scores(np.full(500, 3.0), np.full(400, -3.0), delta=0.0, confidence=0.95, threshold=rule)
    assert result.value == pytest.approx(result.ceiling, rel=1e-12)
    assert result.value > 2


@pytest.mark.slow
def test_power_grows_with_the_sample() -> None:
    """Laplace noise of ε = 1 at 10⁵ runs. Scores above 1 or below 0 tell it all; thresholds in between tell less."""
    generator = np.random.default_rng(3)
    inside, outside, epsilon, _ = samples("laplace", 100_000, generator)
    least: dict[Threshold, float] = {
        Split(): 0.95,
        FixedThreshold(1.0): 0.95,
        FixedThreshold(0.5): 0.8,
        Grid((-1.0, 0.5, 2.0)): 0.9,
        Band(): 0.9,
    }
    for rule, share in least.items():
        result = epsilon_from_scores(inside, outside, delta=0.0, confidence=0.95, threshold=rule)
        assert share * epsilon < result.value <= epsilon


def test_wrong_scores_are_refused() -> None:
    good = [0.0, 1.0]
    for bad in ([], [float("nan")], [[1.0]]):
        with pytest.raises(ValueError, match="in_scores must "):
            epsilon_from_scores(bad, good, delta=0.0, confidence=0.9)
    with pytest.raises(ValueError, match="too few to split"):
        epsilon_from_scores([1.0], good, delta=0.0, confidence=0.9)
    with pytest.raises(ValueError, match="at least one threshold"):
        Grid(())
    with pytest.raises(ValueError, match="delta must be below 1"):
        epsilon_from_scores(good, good, delta=1.0, confidence=0.9)
