"""False alarms of every statistic on four mechanisms whose (ε, δ) holds with equality, and of models outside theirs.

A bound above the true ε is a false alarm. Each test has 2000 repetitions and fails on a valid statistic with
probability at most 1e-4. Exact enumerations are in the tests of each statistic; `benchmarks/audit_power.py` prints
rates and power.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpassay.accounting.lattice import gaussian_curve
from dpassay.audits.statistics import (
    difference_interval,
    disclosures_with_holdout,
    epsilon_one_run_f_dp,
    epsilons_clopper_pearson,
    epsilons_one_run,
    mu_clopper_pearson,
    risk_interval,
)
from dpassay.audits.statistics.sequential import Wealth

Floats = NDArray[np.float64]

REPETITIONS, BETA = 2000, 0.1
MAX_ALARMS = int(stats.binom.isf(1e-4, REPETITIONS, BETA))
Q = math.e / (1 + math.e)


@dataclass(frozen=True)
class Mechanism:
    """Scores with and without the unit, and the event "score ≥ threshold" that attains (ε, δ)."""

    epsilon: float
    delta: float
    threshold: float
    event: tuple[float, float]
    draw: Callable[[np.random.Generator, tuple[int, ...]], tuple[Floats, Floats]]


def sampled_gaussian(rate: float, shift: float, epsilon: float) -> Mechanism:
    """(1 − q)·N(0, 1) + q·N(s, 1) is e^ε times likelier than N(0, 1) where N(s, 1) is 1 + (e^ε − 1)/q times."""
    cut = math.log1p(math.expm1(epsilon) / rate) / shift + shift / 2
    without = float(stats.norm.sf(cut))
    with_unit = (1 - rate) * without + rate * float(stats.norm.sf(cut - shift))

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        return generator.normal(shift * (generator.random(shape) < rate), 1), generator.normal(0, 1, shape)

    return Mechanism(epsilon, with_unit - math.exp(epsilon) * without, cut, (with_unit, without), draw)


def failing_response(delta: float) -> Mechanism:
    """Randomised response that tells the truth, by a score that nobody else has, with probability δ."""

    def draw(generator: np.random.Generator, shape: tuple[int, ...]) -> tuple[Floats, Floats]:
        inside, outside = (generator.random(shape) < Q).astype(float), (generator.random(shape) >= Q).astype(float)
        failed = [generator.random(shape) < delta for _ in range(2)]
        return np.where(failed[0], 2.0, inside), np.where(failed[1], -1.0, outside)

    return Mechanism(1.0, delta, 0.5, (delta + (1 - delta) * Q, (1 - delta) * (1 - Q)), draw)


MECHANISMS = {
    "response that fails": failing_response(1e-3),
    "randomised response": Mechanism(
        1.0, 0.0, 0.5, (Q, 1 - Q), lambda g, n: ((g.random(n) < Q).astype(float), (g.random(n) >= Q).astype(float))
    ),
    "laplace": Mechanism(1.0, 0.0, 1.0, (0.5, 0.5 / math.e), lambda g, n: (g.laplace(1, 1, n), g.laplace(0, 1, n))),
    "gaussian": sampled_gaussian(1.0, 1.0, 1.0),
    "sampled gaussian": sampled_gaussian(0.5, 2.0, 1.0),
}

every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


def alarms(values: Floats, epsilon: float) -> int:
    return int((values > epsilon * (1 + 1e-12)).sum())


def one_run(mechanism: Mechanism, m: int, seed: int) -> tuple[NDArray[np.bool_], Floats]:
    """Coins and scores of m candidates, each with its own noise."""
    generator = np.random.default_rng(seed)
    coins = generator.integers(0, 2, (REPETITIONS, m)) == 1
    inside, outside = mechanism.draw(generator, (REPETITIONS, m))
    return coins, np.where(coins, inside, outside)


@every_mechanism
def test_error_rates_of_many_runs(mechanism: Mechanism) -> None:
    generator, n = np.random.default_rng(0), 300
    tp, fp = (generator.binomial(n, p, REPETITIONS) for p in mechanism.event)
    result = epsilons_clopper_pearson(tp, n - tp, fp, n - fp, delta=mechanism.delta, confidence=1 - BETA)
    assert alarms(result, mechanism.epsilon) <= MAX_ALARMS
    assert mechanism.delta or np.median(result) > 0.4 * mechanism.epsilon


@pytest.mark.grid
@every_mechanism
def test_one_run_with_a_fixed_number_of_guesses(mechanism: Mechanism) -> None:
    """The 40 candidates with the largest and the 40 with the smallest of 200 scores are guessed."""
    coins, scores = one_run(mechanism, 200, 1)
    order = np.argsort(scores, axis=1, kind="stable")
    sorted_coins = np.take_along_axis(coins, order, axis=1)
    right = sorted_coins[:, -40:].sum(axis=1) + (~sorted_coins[:, :40]).sum(axis=1)
    for rule in ("published", "tight", "adaptive"):
        result = epsilons_one_run(200, 80, right, delta=mechanism.delta, confidence=1 - BETA, rule=rule)
        assert alarms(result, mechanism.epsilon) <= MAX_ALARMS, rule
    by_count = np.array(
        [
            epsilon_one_run_f_dp(200, 80, c, family="approx_dp", delta=mechanism.delta, confidence=1 - BETA).value
            for c in range(81)
        ]
    )
    assert alarms(by_count[right], mechanism.epsilon) <= MAX_ALARMS


def test_where_delta_counts_the_tight_rule_sees_more_than_the_published_one() -> None:
    """So the coverage above is that of a test which can accuse."""
    mechanism = MECHANISMS["response that fails"]
    coins, scores = one_run(mechanism, 1000, 1)
    right = ((scores > 0.5) == coins)[:, :100].sum(axis=1)
    tight, published = (
        np.median(epsilons_one_run(1000, 100, right, delta=mechanism.delta, confidence=1 - BETA, rule=rule))
        for rule in ("tight", "published")
    )
    assert tight > 0.4 * mechanism.epsilon
    assert tight > published + 0.2


@pytest.mark.grid
@every_mechanism
def test_disclosures_of_which_the_output_tells_how_many(mechanism: Mechanism) -> None:
    """Every candidate with a score of at least the threshold is disclosed; so K varies, and the bound allows for it."""
    coins, scores = one_run(mechanism, 120, 2)
    disclosed = scores >= mechanism.threshold
    k, v = disclosed.sum(axis=1), (disclosed & coins).sum(axis=1)
    pairs, which = np.unique(np.stack([k, v], axis=1), axis=0, return_inverse=True)
    bounds = [
        disclosures_with_holdout(a, b, 120, source=max(b, 60), delta=mechanism.delta, confidence=1 - BETA).epsilon.value
        for a, b in pairs.tolist()
    ]
    assert alarms(np.array(bounds)[which.reshape(-1)], mechanism.epsilon) <= MAX_ALARMS


def test_the_p_value_of_disclosures_that_do_not_depend_on_who_is_in() -> None:
    """m coins, 30 random candidates disclosed: P[p ≤ β] ≤ β, given how many were in."""
    generator = np.random.default_rng(3)
    source = generator.binomial(80, 0.5, REPETITIONS)
    hits = generator.hypergeometric(source, 80 - source, 30)
    pairs, which = np.unique(np.stack([source, hits], axis=1), axis=0, return_inverse=True)
    values = np.array([disclosures_with_holdout(30, v, 80, source=s).p_value for s, v in pairs.tolist()])
    assert int((values[which.reshape(-1)] <= BETA).sum()) <= MAX_ALARMS


@pytest.mark.grid
@every_mechanism
def test_betting_at_any_time(mechanism: Mechanism) -> None:
    """Wealth is kept at its largest, so the last look shows what any of 80 looks showed."""
    wealth = Wealth(np.arange(0, 1.3, 0.25), mechanism.delta, (REPETITIONS,))
    for round_ in np.random.default_rng(4).random((80, 2, REPETITIONS)) < np.array(mechanism.event)[:, None]:
        wealth.update(*round_)
    assert int(((wealth.rejected(1 - BETA) - 1) * 0.25 > mechanism.epsilon).sum()) <= MAX_ALARMS


@every_mechanism
def test_intervals_of_a_difference_and_of_a_risk_hold_together(mechanism: Mechanism) -> None:
    generator, (p, q) = np.random.default_rng(5), mechanism.event
    pairs = np.stack([generator.binomial(40, p, REPETITIONS), generator.binomial(25, q, REPETITIONS)], axis=1)
    unique, which = np.unique(pairs, axis=0, return_inverse=True)
    missed = [
        p - q not in difference_interval(a, 40, b, 25, confidence=1 - BETA)
        or (p - q) / (1 - q) not in risk_interval(a, 40, b, 25, confidence=1 - BETA)
        for a, b in unique.tolist()
    ]
    assert int(np.array(missed)[which.reshape(-1)].sum()) <= MAX_ALARMS


def test_mu_on_its_own_family() -> None:
    """A Gaussian with μ = 1 at its best threshold ½."""
    generator, n = np.random.default_rng(6), 200
    tp, fp = generator.binomial(n, stats.norm.sf(np.array([-0.5, 0.5]))[:, None], (2, REPETITIONS))
    unique, which = np.unique(np.stack([tp, fp], axis=1), axis=0, return_inverse=True)
    result = np.array([mu_clopper_pearson(a, n - a, b, n - b, confidence=1 - BETA).value for a, b in unique.tolist()])
    assert alarms(result[which.reshape(-1)], 1.0) <= MAX_ALARMS
    assert np.median(result[which.reshape(-1)]) > 0.6


def test_epsilon_of_a_gaussian_is_wrong_outside_its_family() -> None:
    """Randomised response with ε = 1 looks like μ = 1.23 to every test of one bit, and as a Gaussian like ε = 5.58 at
    δ = 1e-5. From 10000 runs of each side the bound on μ is nearly there, and its ε five times too large."""
    n = 10_000
    right = round(n * Q)
    mu = mu_clopper_pearson(right, n - right, n - right, right, confidence=0.95)
    assert not mu.rigor.may_refute
    assert 1.15 < mu.value < stats.norm.ppf(Q) - stats.norm.ppf(1 - Q) < 1.233
    assert 5 < gaussian_curve.epsilon(mu.value, 1e-5).lower < 5.59
    coins, scores = one_run(MECHANISMS["randomised response"], 200, 7)
    correct = ((scores == 1) == coins).sum(axis=1)
    unique, which = np.unique(correct, return_inverse=True)
    bounds = [epsilon_one_run_f_dp(200, 200, c, family="gdp", delta=1e-5, confidence=1 - BETA) for c in unique.tolist()]
    assert not any(bound.rigor.may_refute for bound in bounds)
    assert alarms(np.array([bound.value for bound in bounds])[which], 1.0) > REPETITIONS / 2
