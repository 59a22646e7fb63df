"""Noisy counts: the law, the event, and its certified cost."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from cupel.accounting.adjacency import Adjacency
from cupel.accounting.registry import accountant
from cupel.mechanisms import noise
from cupel.mechanisms.randomness import OS_ENTROPY, Recorded, Source

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
