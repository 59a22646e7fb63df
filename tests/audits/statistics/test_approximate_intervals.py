"""Intervals that are no bounds: against their definitions by simulation and by hand, and what they claim to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.bounds import Rigor
from dpassay.audits.statistics.approximate_intervals import epsilon_jeffreys, epsilon_katz_log
from dpassay.audits.statistics.binomial import epsilon_clopper_pearson, mu_clopper_pearson

COUNTS = [(200, 12, 58, 200), (90, 10, 30, 70), (50, 50, 50, 50), (500, 0, 0, 500), (10, 90, 60, 40)]


@pytest.mark.grid
@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("delta", [0.0, 0.01])
def test_jeffreys_is_the_quantile_of_the_posterior(counts: tuple[int, int, int, int], delta: float) -> None:
    """A hundred thousand draws of both rates: the share that (ε, δ)-DP allows is 5%, within 5 deviations."""
    tp, fn, fp, tn = counts
    value = epsilon_jeffreys(tp, fn, fp, tn, delta=delta, confidence=0.95).value
    generator, n = np.random.default_rng(8), 10**5
    x, y = generator.beta(fp + 0.5, tn + 0.5, n), generator.beta(fn + 0.5, tp + 0.5, n)
    pairs = [(1 - y, x), (x, 1 - y), (y, 1 - x), (1 - x, y)]  # P′[E] and P[E], of the test and its complement
    allowed = np.logical_and.reduce([first <= math.exp(value) * second + delta for first, second in pairs])
    tolerance = 5 * math.sqrt(0.05 * 0.95 / n)
    assert allowed.mean() == pytest.approx(0.05, abs=tolerance) or (value == 0 and allowed.mean() > 0.05)


def test_katz_is_the_textbook_interval() -> None:
    """ln of the risk ratio (.9/.3) less 1.96 standard errors of √(10/(100·90) + 70/(100·30)), at δ = 0."""
    bound = epsilon_katz_log(90, 10, 30, 70, delta=0.0, confidence=0.95)
    first = math.log(3) - stats.norm.isf(0.025) * math.sqrt(10 / 9000 + 70 / 3000)
    second = math.log(7) - stats.norm.isf(0.025) * math.sqrt(30 / 7000 + 90 / 1000)
    assert bound.value == pytest.approx(max(first, second), rel=1e-12)


def test_they_neither_support_nor_refute_and_say_why() -> None:
    jeffreys, katz = (f(*COUNTS[0], delta=1e-5, confidence=0.95) for f in (epsilon_jeffreys, epsilon_katz_log))
    assert (jeffreys.rigor, katz.rigor) == (Rigor.CREDIBLE, Rigor.ASYMPTOTIC)
    for bound in (jeffreys, katz):
        assert not bound.rigor.may_refute
        assert not bound.rigor.may_support
        assert bound.value > epsilon_clopper_pearson(*COUNTS[0], delta=1e-5, confidence=0.95).value


@pytest.mark.slow
def test_a_posterior_has_no_coverage() -> None:
    """60 runs each of an event of probability .05·e and .05, which (1, 0)-DP allows exactly: the posterior's 95% ε is
    above 1 with probability .0557, worked out over the counts; Clopper and Pearson's with less than .001.

    With b events of the second kind, both are above 1 from a number of the first kind on that grows with b."""
    n, p, q = 60, 0.05 * math.e, 0.05
    alarms = {epsilon_clopper_pearson: 0.0, epsilon_jeffreys: 0.0}
    for function in alarms:
        a = 0
        for b in range(12):  # more have a probability of 4e-5 together
            while function(a, n - a, b, n - b, delta=0.0, confidence=0.95).value <= 1:
                a += 1
            alarms[function] += stats.binom.pmf(b, n, q) * stats.binom.sf(a - 1, n, p)
    assert alarms[epsilon_clopper_pearson] < 0.001
    assert alarms[epsilon_jeffreys] == pytest.approx(0.0557, abs=1e-4)


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999999])
def test_katz_ceiling_is_the_largest_of_all_counts(confidence: float) -> None:
    """Every table of 23 and 17 runs: none shows more than the ceiling, and one reaches it."""
    tables = [(a, 23 - a, b, 17 - b) for a in range(24) for b in range(18)]
    bounds = [epsilon_katz_log(*counts, delta=0.02, confidence=confidence) for counts in tables]
    assert len({bound.ceiling for bound in bounds}) == 1
    assert max(bound.value for bound in bounds) == bounds[0].ceiling


def test_an_empty_count_has_no_katz_interval() -> None:
    assert epsilon_katz_log(500, 0, 0, 500, delta=0.0, confidence=0.99).value == 0.0


def test_mu_of_two_rates() -> None:
    """900 of 1000 both ways at 95%: 2.347097. The ε of this μ on randomised response is far above its ε = 1."""
    bound = mu_clopper_pearson(900, 100, 100, 900, confidence=0.95)
    assert bound.value == pytest.approx(2.347097, abs=5e-7)
    assert (bound.quantity, bound.rigor) == ("mu", Rigor.MODEL_CONDITIONAL)
    assert mu_clopper_pearson(0, 10, 10, 0, confidence=0.95).value == 0.0
    assert mu_clopper_pearson(0, 0, 0, 0, confidence=0.95).value == 0.0


def test_impossible_counts_are_refused() -> None:
    for function in (epsilon_jeffreys, epsilon_katz_log):
        with pytest.raises(ValueError, match="whole numbers"):
            function(-1, 2, 3, 4, delta=0.0, confidence=0.9)
        with pytest.raises(ValueError, match="delta"):
            function(1, 2, 3, 4, delta=1.0, confidence=0.9)
