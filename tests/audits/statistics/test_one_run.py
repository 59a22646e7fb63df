"""The one-run bound: published values, brute force, exact and simulated false-alarm rates, speed."""

from __future__ import annotations

import itertools
import time
from typing import Any, Literal

import numpy as np
import pytest
from scipy import optimize, sparse, stats

from dpassay.accounting.bounds import Rigor
from dpassay.audits.statistics import (
    OneRun,
    canaries_needed,
    ceiling,
    disclosures_with_holdout,
    epsilon_one_run,
    epsilons_one_run,
    hypergeometric_tail,
)
from dpassay.audits.statistics.one_run import Rule, p_value

RULES: tuple[Rule, ...] = ("published", "tight", "adaptive")
FALSE_ALARM = 1e-4
"""Probability with which a simulated coverage test fails although the statistic is valid."""


def brute_force_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """B + 2mδA by its definition, with scipy's binomial."""
    q = 1 / (1 + np.exp(-epsilon))
    tail = stats.binom.sf(v - 1, r, q)
    i = np.arange(1, v + 1)
    slope = float(np.max((stats.binom.sf(v - i - 1, r, q) - tail) / i, initial=0.0))
    return float(min(1.0, tail + 2 * m * delta * slope))


@pytest.mark.parametrize(
    ("m", "r", "v", "expected"),
    [(1000, 600, 600, 5.2704), (1000, 100, 90, 1.62614), (10000, 500, 400, 1.19167)],
)
def test_published_values(m: int, r: int, v: int, expected: float) -> None:
    bound = epsilon_one_run(m, r, v, delta=1e-5, confidence=0.95)
    assert bound.value == pytest.approx(expected, abs=0.51 * 10.0 ** -(len(str(expected)) - 2))
    assert bound.rigor is Rigor.FINITE_SAMPLE
    assert (bound.delta, bound.method) == (1e-5, "one_run")


@pytest.mark.parametrize("delta", [0.0, 1e-4, 3e-3])
@pytest.mark.parametrize(("r", "v"), [(1, 1), (5, 5), (40, 33), (40, 20), (90, 80), (100, 100), (100, 0)])
def test_agrees_with_brute_force(r: int, v: int, delta: float) -> None:
    m, beta = 100, 0.05
    result = epsilon_one_run(m, r, v, delta=delta, confidence=1 - beta).value
    if brute_force_p_value(m, r, v, 0.0, delta) >= beta:
        assert result == 0.0
        return
    expected = optimize.brentq(lambda e: brute_force_p_value(m, r, v, e, delta) - beta, 0, 20, xtol=1e-12)
    # brentq stops within 1e-12, and scipy's tails carry relative errors of about 1e-13.
    assert result == pytest.approx(expected, abs=1e-9)


def worst_case(m: int, epsilon: float, delta: float, thresholds: dict[int, int]) -> float:
    """The largest probability, over all (ε, δ)-DP mechanisms and numbers of guesses r, that v ≥ thresholds[r].

    A linear programme over X_{r,k}, the probability of r guesses of which k are right. Averaging a mechanism over
    permutations of the candidates and flips of coins together with guesses keeps (ε, δ)-DP and the objective, so one
    that depends on (r, k) only is among the worst.
    """
    indices = {(r, k): i for i, (r, k) in enumerate((r, k) for r in thresholds for k in range(r + 1))}
    pairs = [(r, k) for r in thresholds for k in range(1, r + 1)]
    n, grow = len(indices), np.exp(epsilon)
    rows, columns, values = [], [], []
    for index, (r, k) in enumerate(pairs):
        here, before = k / m, (r - k + 1) / m  # a candidate is among the k right ones, or became wrong by its flip
        for side, (plus, minus) in enumerate(((here, -grow * before), (-grow * here, before))):
            row = 2 * index + side
            rows += [row] * 3
            columns += [indices[r, k], indices[r, k - 1], n + row]
            values += [plus, minus, -1.0]
    # Flips may lower the count as well as raise it; the two directions of a pair are paid from one δ.
    rows += [2 * len(pairs)] * (2 * len(pairs))
    columns += range(n, n + 2 * len(pairs))
    values += [1.0] * (2 * len(pairs))
    limits = np.append(np.zeros(2 * len(pairs)), delta)
    objective = np.zeros(n + 2 * len(pairs))
    for (r, k), position in indices.items():
        objective[position] = -float(k >= thresholds[r])
    best = optimize.linprog(  # type: ignore[call-overload]  # the stubs know no sparse matrices
        objective,
        A_ub=sparse.csr_matrix((values, (rows, columns))),
        b_ub=limits,
        A_eq=sparse.csr_matrix((np.ones(n), (np.zeros(n, dtype=int), np.arange(n))), shape=(1, objective.size)),
        b_eq=[1.0],
        bounds=(0, 1),
    )
    assert best.success
    return float(-best.fun)


SOLVER = 1e-6
"""HiGHS meets constraints to 1e-7 each; the multipliers here stay below 10."""


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("r", [3, 10, 60])
def test_the_tight_p_value_is_that_of_the_worst_mechanism(r: int, epsilon: float) -> None:
    m = r + 5
    for v in sorted({1, r // 2, int(0.8 * r), r - 1, r} - {0}):
        for failures in (0.01, 0.3):
            worst = worst_case(m, epsilon, failures / m, {r: v})
            assert p_value(r, v, failures, "tight")(epsilon) == pytest.approx(worst, abs=SOLVER)
            assert p_value(r, v, failures, "published")(epsilon) >= worst - SOLVER


def test_the_published_p_value_is_the_larger_one_where_tests_reject() -> None:
    for r in (1, 2, 5, 20, 150, 1000):
        for epsilon in (0.0, 0.3, 1.0, 2.5, 6.0):
            q = 1 / (1 + np.exp(-epsilon))
            for level in (0.5, 0.2, 0.05, 1e-3, 1e-9):
                v = int(stats.binom.isf(level, r, q)) + 1
                if v <= r:
                    tight = p_value(r, v, 1e-3, "tight")(epsilon)
                    assert tight <= brute_force_p_value(r, r, v, epsilon, 1e-3 / r) * (1 + 1e-9)


def test_the_symmetric_programme_is_the_whole_one() -> None:
    """All mechanisms from three coins to three guesses, one variable for each input and output."""
    m, epsilon, delta, v = 3, 0.7, 0.05, 2
    inputs = list(itertools.product((-1, 1), repeat=m))
    size = len(inputs)
    flips = [(i, inputs.index((*s[:j], -s[j], *s[j + 1 :]))) for i, s in enumerate(inputs) for j in range(m)]
    blocks, limits = [], []
    for number, (i, other) in enumerate(flips):
        excess = np.zeros((size, size * (size + len(flips))))
        slack = slice(size * (size + number), size * (size + number + 1))
        excess[:, i * size : (i + 1) * size] = np.eye(size)
        excess[:, other * size : (other + 1) * size] = -np.exp(epsilon) * np.eye(size)
        excess[:, slack] = -np.eye(size)
        total = np.zeros((1, excess.shape[1]))
        total[:, slack] = 1
        blocks += [excess, total]
        limits += [0.0] * size + [delta]
    item = np.hstack([np.kron(np.eye(size), np.ones(size)), np.zeros((size, size * len(flips)))])
    wins = np.array([sum(a == b for a, b in zip(s, t, strict=True)) >= v for s in inputs for t in inputs])
    objective = np.append(-wins.astype(float) / size, np.zeros(size * len(flips)))
    best = optimize.linprog(
        objective, A_ub=np.vstack(blocks), b_ub=limits, A_eq=item, b_eq=np.ones(size), bounds=(0, 1)
    )
    assert best.fun is not None
    assert -best.fun == pytest.approx(worst_case(m, epsilon, delta, {m: v}), abs=SOLVER)


def test_the_published_p_value_fails_in_the_lower_tail() -> None:
    """The mechanism of the module's docstring, by enumeration: (0, .01)-DP, and above B + 2mδA."""
    m, delta = 3, 0.01
    inputs = list(itertools.product((-1, 1), repeat=m))
    law = np.full((8, 8), 1 / 8)
    for i, s in enumerate(inputs):
        opposite = inputs.index(tuple(-x for x in s))
        law[i] += 0.08 / 8 * (1 / 8)
        law[i, opposite] -= 0.08 / 8
    np.testing.assert_allclose(law.sum(axis=1), 1, atol=1e-15)
    for i, s in enumerate(inputs):
        for j in range(m):
            other = law[inputs.index((*s[:j], -s[j], *s[j + 1 :]))]
            assert np.maximum(law[i] - other, 0).sum() <= delta + 1e-15
    right = np.array([[sum(a == b for a, b in zip(s, t, strict=True)) >= 1 for t in inputs] for s in inputs])
    rate = float((law * right).sum() / 8)
    assert rate == pytest.approx(0.88375, abs=1e-12)
    assert brute_force_p_value(m, m, 1, 0.0, delta) == pytest.approx(0.8825, abs=1e-12)
    assert p_value(m, 1, m * delta, "published")(0.0) >= rate - 1e-12


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("failures", [0.01, 0.5, 3.0, 20.0])
def test_p_values_increase_with_epsilon(rule: Rule, failures: float) -> None:
    """Bisection finds the first crossing of β < ½ only if there is one crossing."""
    grid = np.linspace(0, 8, 161)
    for r, v in [(3, 3), (6, 6), (6, 5), (30, 25), (30, 30), (200, 120), (200, 199)]:
        values = np.array([p_value(r, v, failures, rule)(float(e)) for e in grid])
        below = values < 0.5
        assert (np.diff(values)[below[:-1]] >= -1e-12).all(), (r, v)


def test_ceilings_and_how_many_canaries_they_need() -> None:
    """For δ = 0 the ceiling is −ln(β^{−1/r} − 1)."""
    for r in (1, 4, 5, 37, 100, 1000):
        expected = max(0.0, -np.log(0.05 ** (-1 / r) - 1)) if r >= 5 else 0.0
        assert ceiling(OneRun(1000, r), confidence=0.95) == pytest.approx(expected, rel=1e-9)
    assert ceiling(OneRun(100, 100), confidence=0.95) == pytest.approx(3.493, abs=5e-4)
    assert ceiling(OneRun(1000, 1000), confidence=0.95) == pytest.approx(5.8091, abs=5e-5)
    assert [canaries_needed(e, confidence=0.95) for e in (1, 2, 3, 4, 6, 8)] == [10, 24, 62, 166, 1211, 8932]


@pytest.mark.grid("epsilon", "m", "delta", "rule")
@pytest.mark.parametrize("rule", ["tight", "adaptive"])
@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.02])
@pytest.mark.parametrize("m", [None, 3000])
@pytest.mark.parametrize("epsilon", [0.3, 1.7, 5.0])
def test_one_canary_less_is_not_enough(
    epsilon: float, m: int | None, delta: float, rule: Literal["tight", "adaptive"]
) -> None:
    r = canaries_needed(epsilon, confidence=0.9, delta=delta, m=m, rule=rule)

    def shown(guesses: int) -> float:
        return ceiling(OneRun(m or guesses, guesses, rule), delta=delta, confidence=0.9)

    assert shown(r) >= epsilon - 1e-12  # the ceiling is the last float that bisection found below the crossing
    assert shown(r - 1) < epsilon


def test_the_fewest_canaries_agree_with_a_search_through_all() -> None:
    """Every number of guesses among 40, so that one on which the p-value rose again would be seen."""
    for delta in (0.0, 1e-3, 0.01):
        for epsilon in (0.2, 2.0, 2.5):
            for rule in ("tight", "adaptive"):
                shown = [
                    r for r in range(1, 41) if ceiling(OneRun(40, r, rule), delta=delta, confidence=0.95) >= epsilon
                ]
                if shown:
                    assert shown == list(range(shown[0], 41))
                    result = canaries_needed(epsilon, confidence=0.95, delta=delta, m=40, rule=rule)
                    assert result == shown[0]
                else:
                    with pytest.raises(ValueError, match="cannot be shown with 40 canaries"):
                        canaries_needed(epsilon, confidence=0.95, delta=delta, m=40, rule=rule)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epsilon": 40.0}, "cannot be shown with any number of canaries"),
        ({"epsilon": 1.0, "delta": 0.06}, "cannot be shown with any number of canaries"),
        ({"epsilon": 8.0, "m": 8931}, "or more canaries"),
        ({"epsilon": 1.0, "m": 2.5}, "m must be a whole number, not 2.5"),
        ({"epsilon": 0.0}, "epsilon must be above 0"),
        ({"epsilon": 1.0, "rule": "published"}, "rule must be one of tight, adaptive"),
    ],
)
def test_what_no_number_of_canaries_shows_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        canaries_needed(confidence=0.95, **arguments)
    assert "\n" not in str(error.value)


def test_the_ceiling_is_that_of_the_same_delta() -> None:
    bound = epsilon_one_run(1000, 100, 90, delta=1e-4, confidence=0.95)
    assert bound.ceiling == epsilon_one_run(1000, 100, 100, delta=1e-4, confidence=0.95).value
    assert bound.ceiling < ceiling(OneRun(1000, 100), confidence=0.95)


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


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-3), (1.0, 1e-3), (1.0, 0.02)])
def test_randomised_response_that_fails_with_probability_delta(epsilon: float, delta: float, rule: Rule) -> None:
    """Exact: each bit is published in clear with probability δ and answered by randomised response otherwise."""
    r = 120
    v = np.arange(r + 1)
    q = 1 / (1 + np.exp(-epsilon))
    mass = stats.binom.pmf(v, r, delta + (1 - delta) * q)
    alarm = epsilons_one_run(r, r, v, delta=delta, confidence=0.95, rule=rule) > epsilon
    assert mass[alarm].sum() <= 0.05 * (1 + 1e-9)


def test_guesses_that_depend_on_the_output_need_the_adaptive_rule() -> None:
    """A (0, δ)-DP mechanism on which p-values for a fixed r alarm more often than β, and the adaptive one does not.

    With probability λ it publishes five random bits in clear (then r = v = 5), else r = 100000 fair guesses. One bit
    changes the output law by at most λ·5/m in total variation, so it is (0, 5λ/m)-DP.
    """
    m, few, many, share = 200_000, 5, 100_000, 0.007
    rates = {}
    for rule in RULES:
        rejects = {r: first_rejected(r, share * few, 0.0, rule) for r in (few, many)}
        tail = float(stats.binom.sf(rejects[many] - 1, many, 0.5))
        rates[rule] = (1 - share) * tail + share * (rejects[few] <= few)
    assert m > many
    assert rates["published"] > 0.055
    assert rates["tight"] > 0.055
    assert rates["adaptive"] <= 0.05


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
@pytest.mark.parametrize("delta", [1e-4, 2e-3])
def test_the_adaptive_rule_holds_against_every_choice_of_r(epsilon: float, delta: float) -> None:
    """The worst mechanism over all (ε, δ)-DP ones that choose among eight numbers of guesses."""
    m, sizes = 60, (2, 5, 8, 12, 20, 30, 45, 60)
    rejects = {r: first_rejected(r, m * delta, epsilon, "adaptive") for r in sizes}
    worst = worst_case(m, epsilon, delta, rejects)
    assert worst <= 0.05 + SOLVER
    assert worst > 0.015


def first_rejected(r: int, failures: float, epsilon: float, rule: Rule, beta: float = 0.05) -> int:
    """The smallest v at which ε is rejected; r + 1 if none is."""
    low, high = r // 2, r + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if p_value(r, middle, failures, rule)(epsilon) < beta else (middle, high)
    return high


def test_the_tight_rule_shows_more_than_the_published_one() -> None:
    counts = {"m": 8192, "guesses": 600, "correct": 560, "delta": 8192**-1.1, "confidence": 0.95}
    shown = {rule: epsilon_one_run(**counts, rule=rule).value for rule in RULES}
    assert shown["published"] < shown["adaptive"] < shown["tight"]
    assert shown["tight"] < epsilon_one_run(8192, 600, 560, delta=0.0, confidence=0.95).value


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mechanism", ["laplace", "gaussian"])
def test_simulated_noise_at_the_boundary(mechanism: str, rule: Rule) -> None:
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
    shown = epsilons_one_run(m, 2 * half, correct, delta=delta, confidence=0.95, rule=rule)
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


@pytest.mark.parametrize(
    ("m", "r", "v", "message"),
    [
        (10, 11, 5, "correct ≤ guesses ≤ m, not guesses = 11 and m = 10"),
        (10, 5, 6, "correct ≤ guesses ≤ m, not correct = 6 and guesses = 5"),
        (10, 5, -1, "correct must be whole numbers of at least 0, not -1"),
        (10, 5, 2.5, "correct must be whole numbers of at least 0, not an array of float64"),
        (True, 1, 1, "m must be a whole number, not True"),
    ],
)
def test_impossible_counts_are_refused(m: int, r: int, v: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        epsilon_one_run(m, r, v, delta=0.0, confidence=0.95)


def test_counts_may_be_of_numpy() -> None:
    result = epsilon_one_run(np.int64(100), np.int32(50), np.int64(40), delta=0.0, confidence=0.95)  # type: ignore[arg-type]
    assert result == epsilon_one_run(100, 50, 40, delta=0.0, confidence=0.95)


def test_the_number_of_disclosures_depends_on_the_output_and_is_paid_for() -> None:
    """With δ > 0 the rules for a fixed number of guesses show more, and are not valid here."""
    result = disclosures_with_holdout(60, 55, 200, delta=1e-4, confidence=0.95).epsilon
    adaptive, tight = (
        epsilon_one_run(200, 60, 55, delta=1e-4, confidence=0.95, rule=rule).value for rule in ("adaptive", "tight")
    )
    assert (result.value, result.method) == (adaptive, "one_run_adaptive")
    assert 0.5 < result.value < tight


def test_more_disclosures_than_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match="impossible counts"):
        disclosures_with_holdout(10, 8, 14)
