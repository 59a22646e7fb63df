"""Noise and draws: their laws; noisy counts: the event, and its certified cost."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.registry import accountant
from dpassay.mechanisms.primitives import counts as noise
from dpassay.mechanisms.primitives import randomness
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source

ADD, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


@pytest.mark.parametrize(("adjacency", "scale"), [(ADD, 2.0), (REPLACE, 4.0)])
@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(3)], ids=["os", "recorded"])
def test_noise_is_discrete_laplace(adjacency: Adjacency, scale: float, source: Source) -> None:
    """Chi-square of 20,000 draws at ε = .5, tails pooled. False alarm: once in 10⁶ runs for fresh entropy."""
    counts = np.full(20_000, 7)
    drawn = noise.noisy_counts(counts, epsilon=0.5, adjacency=adjacency, source=source) - 7
    edge = int(6 * scale)
    support = np.arange(-edge, edge + 1)
    mass = np.exp(-np.abs(support) / scale) * math.tanh(1 / (2 * scale))
    tail = (1 - mass.sum()) / 2
    observed = [(drawn < -edge).sum(), *((drawn == k).sum() for k in support), (drawn > edge).sum()]
    assert stats.chisquare(observed, np.array([tail, *mass, tail]) * 20_000).pvalue > 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 2.5])
@pytest.mark.parametrize("adjacency", [ADD, REPLACE])
def test_the_event_covers_the_scale_that_is_used(epsilon: float, adjacency: Adjacency) -> None:
    event = noise.count_event(epsilon, adjacency)
    # Two roundings, of the rate and of the accountant's product.
    assert accountant("basic", adjacency).compose(event).pure().value == pytest.approx(epsilon, rel=2**-51)
    # The loss of the release is sensitivity/scale at most, and must not exceed what the event says.
    assert 1 / Fraction(noise.count_scale(epsilon, adjacency)) <= Fraction(event.noise_parameter)


def test_log_probabilities_sum_to_one_and_move_by_epsilon() -> None:
    values = np.arange(-2000, 2000)
    law = [noise.log_probability([k], [3], epsilon=0.1, adjacency=ADD) for k in values]
    # The tail beyond 2000 is e^-200; 4000 terms of double precision.
    assert math.fsum(np.exp(law)) == pytest.approx(1.0, abs=1e-12)
    moved = [noise.log_probability([k], [4], epsilon=0.1, adjacency=ADD) for k in values]
    assert np.abs(np.array(law) - moved).max() == pytest.approx(0.1, rel=1e-12)


def test_other_adjacencies_are_refused() -> None:
    with pytest.raises(ValueError, match="adjacency must be one of"):
        noise.count_event(0.1, Adjacency.ZERO_OUT)
    with pytest.raises(ValueError, match="epsilon must be above 0"):
        noise.noisy_counts([1], epsilon=0.0, adjacency=ADD)


@pytest.mark.parametrize("scale", [1e-3, 2.5])
@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(5)], ids=["os", "recorded"])
def test_gaussian_noise_is_normal_and_independent_of_what_it_is_added_to(source: Source, scale: float) -> None:
    """Kolmogorov–Smirnov of 4000 draws, and Spearman's ρ with the neighbour and with the values. False alarm: each at
    most once in 10⁶ runs for fresh entropy. Half as much noise again differs by 0.097, 9 standard deviations more."""
    values = np.random.default_rng(0).normal(scale=100, size=4000)
    added = source.add_gaussian(values, scale) - values
    assert stats.kstest(added / scale, "norm").pvalue > 1e-6
    assert stats.kstest(added / (1.5 * scale), "norm").pvalue < 1e-6
    assert stats.spearmanr(added[1:], added[:-1]).pvalue > 1e-6
    assert stats.spearmanr(added, values).pvalue > 1e-6


@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(6)], ids=["os", "recorded"])
def test_the_scale_of_gaussian_noise_is_the_one_asked_for(source: Source) -> None:
    """Σz²/s² of 20,000 draws is chi-square; two-sided, false alarm once in 10⁶ runs. 5 % off lies outside."""
    total = np.square(source.add_gaussian(np.zeros(20_000), 3.0) / 3).sum()
    low, high = stats.chi2.ppf(np.array([5e-7, 1 - 5e-7]), 20_000)
    assert low < total < high
    assert not low < 1.05**2 * 20_000 < high


@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(9)], ids=["os", "recorded"])
def test_discrete_gaussian_noise_has_its_law(source: Source) -> None:
    """Chi-square of 20,000 draws, tails pooled, and their sum of squares. False alarm: each once in 10⁶ runs for fresh
    entropy. 5 % off lies outside of the second."""
    scale, edge, count = 30.0, 75, 20_000
    drawn = source.discrete_gaussian(count, scale)
    law = np.exp(-(np.arange(-1000, 1001) ** 2) / (2 * scale**2))
    law /= law.sum()
    own = law[1000 - edge : 1001 + edge]
    tail = (1 - own.sum()) / 2
    seen = np.bincount(np.clip(drawn, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    assert stats.chisquare(seen, np.array([tail, *own, tail]) * count).pvalue > 1e-6
    low, high = stats.chi2.ppf(np.array([5e-7, 1 - 5e-7]), count)
    assert low < np.square(drawn / scale).sum() < high
    assert not low < 0.95**2 * count < high


@pytest.mark.parametrize("cores", [1, 2, 3, 7])
def test_threads_keep_the_order_and_draw_their_own_noise(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(randomness, "PIECE", 10)
    monkeypatch.setattr(randomness, "cores", lambda: cores)
    values = np.arange(103) * 1e6
    noisy = OS_ENTROPY.add_gaussian(values, 1.0)
    assert np.array_equal(np.rint(noisy / 1e6), np.arange(103))
    assert len(set((noisy - values).tolist())) == 103  # two equal draws of float64 noise: never seen


def test_gaussian_noise_reaches_the_last_bits() -> None:
    """Added to 0, noise is a float64 of full length: 100 draws on a grid of 2⁻⁴⁰ would need luck of 2⁻¹⁰⁰⁰."""
    drawn = OS_ENTROPY.add_gaussian(np.zeros(100), 1.0)
    assert not np.array_equal(np.ldexp(drawn, 40), np.rint(np.ldexp(drawn, 40)))


@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(7)], ids=["os", "recorded"])
def test_no_noise_nothing_to_add_to_and_bad_numbers(source: Source) -> None:
    values = np.array([1.5, -2.0])
    kept = source.add_gaussian(values, 0.0)
    assert kept.tolist() == [1.5, -2.0]
    assert kept is not values
    assert source.add_gaussian([], 1.0).shape == (0,)
    for bad in ([math.nan], [math.inf], [[1.0]]):
        with pytest.raises(ValueError, match="list of finite numbers"):
            source.add_gaussian(bad, 1.0)
    for scale in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="scale must be"):
            source.add_gaussian(values, scale)


@pytest.mark.parametrize("source", [OS_ENTROPY, Recorded(8)], ids=["os", "recorded"])
def test_draws_have_their_probabilities(source: Source) -> None:
    """Exact binomial tests of 20,000 draws for each of four numbers; false alarm: 4 in 10⁶ runs for fresh entropy."""
    chances = np.tile([0.5, 0.01, 0.999, 1 / 3], 20_000)
    drawn = source.bernoulli(chances).reshape(-1, 4)
    for column, chance in enumerate(chances[:4]):
        assert stats.binomtest(int(drawn[:, column].sum()), 20_000, chance).pvalue > 1e-6
    assert stats.spearmanr(drawn[:, 0], drawn[:, 3]).pvalue > 1e-6
    certain = source.bernoulli(np.tile([0.0, 1.0], 1000))
    assert certain.tolist() == [False, True] * 1000
    assert source.bernoulli([]).shape == (0,)
    for bad in ([-1e-9], [1.0000001], [math.nan], [[0.5]]):
        with pytest.raises(ValueError, match="numbers from 0 to 1"):
            source.bernoulli(bad)


@pytest.mark.parametrize("chance", [0.5, 1 / 3, 0.1, 1 - 2**-53, 2.0**-64, 1.9 * 2.0**-64, 2.0**-70, 5e-324])
def test_a_draw_is_at_most_as_likely_as_asked_for(chance: float) -> None:
    """Of the 2⁶⁴ numbers the first n are taken, and n/2⁶⁴ is at most the probability and less than 2⁻⁶⁴ below it."""
    count = int(Fraction(chance) * 2**64)
    edge = np.array([max(0, count - 1), min(2**64 - 1, count)], dtype=np.uint64)
    assert randomness.taken(edge, np.full(2, chance)).tolist() == [count > 0, False]
    assert 0 <= Fraction(chance) - Fraction(count, 2**64) < Fraction(1, 2**64)
