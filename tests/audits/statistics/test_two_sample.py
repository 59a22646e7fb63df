"""The bet of one round against brute force over every (ε, δ)-DP pair of rates."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpassay.audits.statistics.two_sample import corner, log_bets, projected
from dpassay.base.arrays import Floats

SETTINGS = list(itertools.product((0.0, 0.01, 0.5, 1.0, 3.0, 8.0), (0.0, 1e-5, 0.05, 0.4)))
RATES = np.array([2e-4, 0.01, 0.1, 0.3, 0.5, 0.62, 0.9, 0.99, 1 - 2e-4])


def boundary(epsilon: float, delta: float, points: int = 2000) -> tuple[Floats, Floats]:
    """Rates on D and D′ all along the boundary of what (ε, δ)-DP allows, from the definition alone."""
    p = np.linspace(0, 1, points)
    grow = math.exp(epsilon)
    most = np.minimum.reduce([grow * p + delta, 1 - (1 - p - delta) / grow, np.ones(points)])
    least = np.maximum.reduce([(p - delta) / grow, 1 - grow * (1 - p) - delta, np.zeros(points)])
    return np.concatenate([p, p]), np.concatenate([most, least])


def divergence(a: float, b: float, p: Floats, q: Floats) -> Floats:
    """Kullback–Leibler divergence of two events of rates a and b from those of rates p and q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = [rate * np.log(rate / of) for rate, of in ((a, p), (1 - a, 1 - p), (b, q), (1 - b, 1 - q))]
    return np.where((p > 0) & (p < 1) & (q > 0) & (q < 1), np.sum(terms, axis=0), math.inf)


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_no_private_mechanism_gains_on_average(epsilon: float, delta: float) -> None:
    """The mean is bilinear, so its maximum is on the boundary."""
    p, q = boundary(epsilon, delta)
    for a, b in itertools.product(RATES, RATES):
        hit, miss = (np.exp(side)[:, 0] for side in log_bets(a, b, np.array([math.exp(epsilon)]), delta))
        means = (p * hit[0] + (1 - p) * miss[0]) * (q * hit[1] + (1 - q) * miss[1])
        assert means.max() <= 1 + 1e-12


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_the_projection_is_the_nearest_point(epsilon: float, delta: float) -> None:
    p, q = boundary(epsilon, delta)
    grow = np.array([math.exp(epsilon)])
    for a, b in itertools.product(RATES, RATES):
        if a > b:
            continue
        result = projected(np.array([a]), np.array([b]), grow, delta)
        nearest = float(divergence(a, b, *result)[0])
        inside = b <= grow[0] * a + delta and 1 - a <= grow[0] * (1 - b) + delta
        if inside:
            assert (result[0][0], result[1][0]) == (a, b)
        else:
            assert nearest <= divergence(a, b, p, q).min() + 1e-12
            assert result[1][0] <= grow[0] * result[0][0] + delta + 1e-12  # and it is inside
            assert 1 - result[0][0] <= grow[0] * (1 - result[1][0]) + delta + 1e-12


def test_a_projection_that_is_wrong_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a point that is not the nearest, the mean without what is taken off would exceed 1."""
    from dpassay.audits.statistics import two_sample

    def wrong(low: Floats, high: Floats, grown: Floats, delta: float) -> tuple[Floats, Floats]:
        p = np.broadcast_to(low * 1.5, np.broadcast_shapes(low.shape, grown.shape))
        return p, grown * p + delta

    monkeypatch.setattr(two_sample, "projected", wrong)
    p, q = boundary(1.0, 0.0)
    hit, miss = (np.exp(side)[:, 0] for side in log_bets(np.array(0.1), np.array(0.8), np.array([math.e]), 0.0))
    means = (p * hit[0] + (1 - p) * miss[0]) * (q * hit[1] + (1 - q) * miss[1])
    assert means.max() <= 1 + 1e-12
    monkeypatch.setattr(two_sample, "_excess", lambda *given: np.zeros(1))
    hit, miss = (np.exp(side)[:, 0] for side in log_bets(np.array(0.1), np.array(0.8), np.array([math.e]), 0.0))
    means = (p * hit[0] + (1 - p) * miss[0]) * (q * hit[1] + (1 - q) * miss[1])
    assert means.max() > 1.05


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "delta"), SETTINGS)
def test_better_estimates_gain_more(epsilon: float, delta: float) -> None:
    """What the ceiling rests on: the gain of an event on D′ alone grows with b and falls with a, where it is positive.
    Pairs without the event on either, or with it on both, never gain."""
    grid = np.concatenate([[1e-4], np.linspace(0.002, 0.998, 250), [1 - 1e-4]])
    hit, miss = log_bets(grid[:, None], grid[None, :], np.array([math.exp(epsilon)]), delta)
    positive = np.maximum(miss[..., 0, 0] + hit[..., 1, 0], 0.0)
    assert (np.diff(positive, axis=0) <= 1e-12).all()
    assert (np.diff(positive, axis=1) >= -1e-12).all()
    assert positive.max() > 0
    assert (hit.sum(axis=-2) <= 1e-12).all()
    assert (miss.sum(axis=-2) <= 1e-12).all()
    perfect = 2 * math.log1p(-1e-4) - 2 * math.log1p(-float(corner(np.array(math.exp(epsilon)), delta)))
    assert positive[0, -1] == pytest.approx(perfect, abs=1e-12)


def test_the_two_runs_may_be_exchanged() -> None:
    grow = np.exp(np.array([0.1, 1.0]))
    low, high = np.array(0.1), np.array(0.7)
    left, right = log_bets(low, high, grow, 0.01), log_bets(high, low, grow, 0.01)
    for first, second in zip(left, right, strict=True):
        np.testing.assert_array_equal(first, second[::-1])
