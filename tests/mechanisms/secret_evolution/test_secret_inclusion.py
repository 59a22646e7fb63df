"""SecretNoise: the linear program against every vertex, probabilities, and events that cover what is drawn."""

from __future__ import annotations

import itertools
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples
from scipy.sparse import csr_array
from scipy.stats import norm

from dpassay.accounting import secret_protection as sp
from dpassay.accounting.events import SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from dpassay.accounting.guarantees import SecretProtection
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise, inclusion_weights

GOAL, WIDE = SecretProtection(1e-3, 1e-2), SecretProtection(1e-3, 0.2)
ETA = {goal: norm.isf(goal.p) - norm.isf(goal.r) for goal in (GOAL, WIDE)}


def places(
    rows: list[list[int]], records: int, *budgets: SecretProtection, group: list[int] | None = None
) -> Incidence:
    matrix = np.zeros((len(rows), records), dtype=bool)
    for secret, where in enumerate(rows):
        matrix[secret, where] = True
    return Incidence(csr_array(matrix), budgets or (GOAL,), np.array(group or [0] * len(rows)))


def best_vertex(matrix: NDArray[np.bool_], limits: NDArray[np.float64]) -> float:
    """The largest Σ w over all vertices of {0 ≤ w ≤ 1, E w ≤ η}: any n of the constraints as equations."""
    count = matrix.shape[1]
    lines = np.concatenate([matrix.astype(float), np.eye(count), -np.eye(count)])
    ends = np.concatenate([limits, np.ones(count), np.zeros(count)])
    best = 0.0
    for chosen in itertools.combinations(range(len(lines)), count):
        some = lines[list(chosen)]
        if abs(np.linalg.det(some)) > 1e-9:
            w = np.linalg.solve(some, ends[list(chosen)])
            if (lines @ w <= ends + 1e-9).all():
                best = max(best, float(w.sum()))
    return best


# The linear program


@examples(12, 20, derandomize=True)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_the_program_finds_the_best_vertex(secrets: int, records: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.random((secrets, records)) < 0.6
    group = generator.integers(0, 2, secrets)
    weights = inclusion_weights(Incidence(csr_array(matrix), (GOAL, WIDE), group))
    private = matrix.any(axis=0)
    limits = np.array([ETA[(GOAL, WIDE)[g]] for g in group])
    # HiGHS meets constraints to 1e-7
    assert (matrix @ weights <= limits + 1e-6).all()
    assert ((weights >= 0) & (weights <= 1)).all()
    assert (weights[~private] == 0).all()
    assert weights.sum() == pytest.approx(best_vertex(matrix[:, private], limits) if private.any() else 0.0, abs=1e-6)


def test_records_with_the_same_secrets_share_equally() -> None:
    weights = inclusion_weights(places([[0, 1, 2, 3], [3, 5]], 7))
    assert weights[:3] == pytest.approx([ETA[GOAL] / 3] * 3, abs=1e-6)
    assert weights[3:5].tolist() == [0, 0]  # record 3 would spend two budgets
    assert weights[5:] == pytest.approx([ETA[GOAL], 0], abs=1e-6)


def test_a_secret_that_may_be_revealed_limits_nothing() -> None:
    weights = inclusion_weights(places([[0, 1, 2], [2]], 3, SecretProtection(0.1, 1.0), GOAL, group=[0, 1]))
    assert weights == pytest.approx([1, 1, ETA[GOAL]], abs=1e-6)


# Probabilities


def test_the_largest_weight_is_drawn_surely_by_default() -> None:
    noise = SecretNoise.fit(places([[0, 1, 2, 3], [5]], 7), rounds=1)
    expected = [0.25, 0.25, 0.25, 0.25, 0, 1, 0]
    assert noise.probabilities == pytest.approx(expected, abs=1e-6)
    assert noise.expected_sample == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("sample", [0.01, 0.7, 2.0, 3.5, 4.9, 5.0])
def test_the_expected_sample_is_what_was_asked_for(sample: float) -> None:
    noise = SecretNoise.fit(places([[0, 1, 2, 3], [5]], 7), rounds=1, expected_sample=sample)
    assert noise.expected_sample == pytest.approx(sample, rel=1e-12)
    small, large = noise.probabilities[0], noise.probabilities[5]
    assert large == pytest.approx(min(1, 4 * small), rel=1e-6)  # the weights are as 1 to 4


def test_an_impossible_sample_is_one_line() -> None:
    for sample in (0.0, -1.0, 5.01, math.nan):
        with pytest.raises(ValueError, match="expected_sample must be above 0 and at most 5") as refused:
            SecretNoise.fit(places([[0, 1, 2, 3], [5]], 7), rounds=1, expected_sample=sample)
        assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match="rounds must be at least 1"):
        SecretNoise.fit(places([[0]], 1), rounds=0)


def test_64_random_bits_draw_exactly_what_the_event_counts() -> None:
    """Multiples of 2⁻⁶⁴, at least what was computed and less than 2⁻⁶⁴ above."""
    matrix = csr_array(np.random.default_rng(3).random((4, 300)) < 0.2)
    result = Incidence(matrix, (GOAL,), np.zeros(4, dtype=np.int64))
    for sample in (None, 1e-3, 1e-15):
        noise = SecretNoise.fit(result, rounds=1, expected_sample=sample)
        drawn = [Fraction(chance) * 2**64 for chance in noise.probabilities.tolist()]
        assert all(chance.denominator == 1 for chance in drawn)
        assert max(drawn) <= 2**64
        assert noise.expected_sample >= (sample or 0)
        assert [chance > 0 for chance in drawn] == (inclusion_weights(result) > 0).tolist()


# Noise and events


def test_one_budget_is_one_release_that_covers_the_secret() -> None:
    """One secret in three records, 0.2 each: its law is binomial, and no noise is wasted on it."""
    noise = SecretNoise.fit(places([[0, 1, 2]], 3), rounds=1, expected_sample=0.6)
    event = noise.event()
    assert isinstance(event, SecretReleaseDpEvent)
    assert event == noise.published_event()
    law = [math.comb(3, k) * 0.2**k * 0.8 ** (3 - k) for k in range(4)]
    assert event.weights == pytest.approx(law, rel=1e-9)  # ρ are those of a solver, equal to the last bits
    sure = SecretNoise.fit(places([[0]], 1), rounds=1).event()  # whose law loses nothing, but noise is on a grid
    assert isinstance(sure, SecretReleaseDpEvent)
    assert min(event.remainder, sure.remainder) >= 1e-300
    assert noise.sigma == pytest.approx(sp.noise_for(sp.poisson_binomial([0.2] * 3), GOAL.p, GOAL.r), rel=5e-6)


@pytest.mark.parametrize("rounds", [1, 4])
def test_the_event_reaches_every_budget_and_the_noise_is_no_less_than_its(rounds: int) -> None:
    matrix = csr_array(np.random.default_rng(8).random((12, 60)) < 0.1)
    noise = SecretNoise.fit(Incidence(matrix, (GOAL, WIDE), np.arange(12) % 2), rounds=rounds)
    event = noise.event()
    assert isinstance(event, SecretGroupsReleaseDpEvent)
    assert len(event.groups) == 2
    for group, goal in enumerate((GOAL, WIDE)):
        spent = sp.SecretProtectionAccountant().compose(sp.of_group(event, group), rounds)
        assert spent.protection(goal.p).value <= goal.r
    kinds = [kind for own in event.groups for kind in (own.groups if hasattr(own, "groups") else [own])]
    assert all(noise.sigma > kind.noise_multiplier for kind in kinds)
    assert all(Fraction(math.sqrt(2) * noise.sigma) ** 2 >= 2 * Fraction(kind.noise_multiplier) ** 2 for kind in kinds)


def test_kinds_of_one_budget_stay_one_group() -> None:
    """A sure record and many rare ones: two kinds, and what the one group sees is what everybody sees."""
    result = places([[0], list(range(1, 41))], 41)
    noise = SecretNoise.fit(result, rounds=10, expected_sample=2.0)
    event = noise.event()
    assert isinstance(event, SecretGroupsReleaseDpEvent)
    assert len(event.groups) == 1
    assert sp.of_group(event, 0) == event
    assert sp.SecretProtectionAccountant().compose(event, 10).protection(GOAL.p).value <= GOAL.r


def test_without_secrets_nothing_is_private() -> None:
    for result in (places([[]], 3), Incidence(csr_array((0, 3), dtype=bool), (), np.zeros(0, dtype=np.int64))):
        noise = SecretNoise.fit(result, rounds=2)
        assert (noise.sigma, noise.expected_sample) == (0.0, 0.0)
        assert sp.SecretProtectionAccountant().compose(noise.event(), 2).protection(0.1).value <= 0.1 * (1 + 1e-12)
        assert SecretNoise.as_published(result, rounds=2).sigma == 0
        with pytest.raises(ValueError, match="at most 0"):
            SecretNoise.fit(result, rounds=1, expected_sample=1.0)


# As published


def test_as_published_draws_few_records_with_noise_for_the_mean() -> None:
    """Weights η/4 each of four and η: ρ = w/(max w Σw); E is η/(η·2η) of either secret, and σ = √T E/η."""
    eta = ETA[GOAL]
    noise = SecretNoise.as_published(places([[0, 1, 2, 3], [5]], 7), rounds=9)
    small = eta / 4 / eta / (2 * eta)
    assert noise.probabilities == pytest.approx([small] * 4 + [0, 4 * small, 0], rel=1e-6)
    assert noise.sigma == pytest.approx(3 * 4 * small / eta, rel=1e-6)
    claimed, bare = noise.published_event(), noise.event()
    assert isinstance(claimed, SecretReleaseDpEvent)
    assert isinstance(bare, SecretReleaseDpEvent)
    assert (claimed.noise_multiplier, bare.noise_multiplier) == (noise.sigma, 0.0)
    assert claimed.weights == bare.weights
    assert bare.weights[0] == pytest.approx(min((1 - small) ** 4, 1 - 4 * small), rel=1e-6)


def test_as_published_promises_more_than_it_keeps() -> None:
    """A secret in 80 records, and one in a record of its own, which is drawn most often."""
    noise = SecretNoise.as_published(places([list(range(80)), [80]], 81), rounds=1)
    assert noise.expected_sample == pytest.approx(1 / ETA[GOAL], rel=1e-6)
    claimed = sp.SecretProtectionAccountant().compose(noise.published_event()).protection(GOAL.p)
    assert claimed.value > 2 * GOAL.r
    bare = sp.SecretProtectionAccountant().compose(noise.event()).protection(GOAL.p)
    never = min((1 - noise.probabilities[0]) ** 80, 1 - noise.probabilities[80])
    assert bare.value == pytest.approx(1 - never * (1 - GOAL.p), rel=1e-9)


def test_published_probabilities_are_at_most_1() -> None:
    """Σw below 1: the printed formula gives 2.2."""
    goal = SecretProtection(0.1, 0.2)
    weight = norm.isf(0.1) - norm.isf(0.2)
    assert 1 / weight > 2
    assert SecretNoise.as_published(places([[0]], 1, goal), rounds=1).probabilities.tolist() == [1.0]


# Size


@pytest.mark.slow
def test_a_million_records() -> None:
    """10³ secrets, one to three in each of 10⁶ records: seconds, and below a minute on a busy machine."""
    generator = np.random.default_rng(1)
    records = np.repeat(np.arange(10**6), generator.integers(1, 4, 10**6))
    secrets = generator.integers(0, 1000, records.size)
    matrix = csr_array((np.ones(records.size, dtype=bool), (secrets, records)), shape=(1000, 10**6))
    start = time.process_time()
    noise = SecretNoise.fit(Incidence(matrix, (GOAL,), np.zeros(1000, dtype=np.int64)), rounds=1)
    assert time.process_time() - start < 60
    # every secret has records of its own, so that each budget is spent in full
    assert inclusion_weights(Incidence(matrix, (GOAL,), np.zeros(1000, dtype=np.int64))).sum() == pytest.approx(
        1000 * ETA[GOAL], rel=1e-6
    )
    assert sp.SecretProtectionAccountant().compose(noise.event()).protection(GOAL.p).value <= GOAL.r
