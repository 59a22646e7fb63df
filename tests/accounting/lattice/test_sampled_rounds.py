"""Several mechanisms on one Poisson sample, against the law of both outputs on a fine grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy import stats

from dpassay.accounting.events import BoundedRangeSelectionDpEvent, EpsilonDeltaDpEvent, ParallelDpEvent
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.registry import account

GAUSSIAN, LAPLACE = dp_event.GaussianDpEvent(2.0), dp_event.LaplaceDpEvent(4.0)


def on_sample(rate: float, parts: Sequence[DpEvent], rounds: int = 1) -> DpEvent:
    inner = dp_event.ComposedDpEvent(list(parts))
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, inner), rounds)


def cells(law: Any, mean: float, edges: np.ndarray) -> np.ndarray:
    return np.diff(law.cdf(np.concatenate([[-math.inf], edges, [math.inf]]) - mean))


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_one_round_is_the_product_then_the_mixture(rate: float) -> None:
    normal, flat = np.linspace(-14, 15, 4001), np.linspace(-1, 2, 3001)
    p, q = (
        np.outer(cells(stats.norm(scale=2), mean, normal), cells(stats.laplace(scale=4), mean, flat)).ravel()
        for mean in (1.0, 0.0)
    )
    mixture = (1 - rate) * q + rate * p
    pair = Lattice("add_remove").compose(on_sample(rate, [GAUSSIAN, LAPLACE])).pair
    for epsilon in (0.0, rate / 10, rate, 0.8):
        for side, first, second in (("remove", mixture, q), ("add", q, mixture)):
            attained = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
            bound = pair.delta(epsilon, direction=side).upper
            assert attained <= bound * (1 + 1e-9) + 1e-12
            assert bound <= attained * (1 + 3e-3) + 1e-9  # of the grid's cells
    assert not pair.tight


def test_rounds_compose() -> None:
    """Every kind of outcome of three rounds of two answers by randomised response that a sampled unit takes part in."""
    rate, told = 0.2, 1 / (1 + math.exp(-0.7))
    one = np.array([told, 1 - told])
    single = [np.multiply.outer(law, law).ravel() for law in (one, one[::-1])]
    mixture = (1 - rate) * single[1] + rate * single[0]
    p, q = np.ones(1), np.ones(1)
    for _ in range(3):
        p, q = np.outer(p, mixture).ravel(), np.outer(q, single[1]).ravel()
    event = on_sample(rate, [EpsilonDeltaDpEvent(0.7), EpsilonDeltaDpEvent(0.7)], 3)
    pair = Lattice("add_remove").compose(event).pair
    for epsilon in (0.0, 0.1, 0.4):
        for side, first, second in (("remove", p, q), ("add", q, p)):
            attained = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
            assert attained * (1 - 1e-9) <= pair.delta(epsilon, direction=side).upper <= attained * 1.01 + 1e-9


def test_gaussians_on_one_sample_are_one_gaussian() -> None:
    together = account(on_sample(0.05, [GAUSSIAN, GAUSSIAN], 100), adjacency="add_remove", delta=1e-6)
    joint = dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(2 / math.sqrt(2)))
    one = account(dp_event.SelfComposedDpEvent(joint, 100), adjacency="add_remove", delta=1e-6)
    assert together.value == pytest.approx(one.value, rel=1e-9)
    assert together.interval is not None


PARTS: list[DpEvent] = [
    GAUSSIAN,
    LAPLACE,
    dp_event.ZCDpEvent(0.05),
    EpsilonDeltaDpEvent(0.2, 1e-9),
    BoundedRangeSelectionDpEvent(0.3),
    dp_event.DiscreteLaplaceDpEvent(0.2, 1),
    dp_event.PoissonSampledDpEvent(0.5, GAUSSIAN),
    ParallelDpEvent([LAPLACE, GAUSSIAN]),
]


@pytest.mark.parametrize("parts", list(itertools.combinations(PARTS, 2)))
def test_a_round_costs_between_its_parts_and_no_sample(parts: tuple[DpEvent, DpEvent]) -> None:
    """At least each part on the sample, and at most both without one, whose bounds come another way."""

    def epsilon(event: DpEvent) -> float:
        return account(event, adjacency="add_remove", delta=1e-6).value

    both = epsilon(on_sample(0.3, parts))
    for part in parts:
        assert epsilon(dp_event.PoissonSampledDpEvent(0.3, part)) <= both * (1 + 2e-3)
    assert both <= epsilon(dp_event.ComposedDpEvent(list(parts))) * (1 + 2e-3)


@examples(15, 150)
@given(st.floats(0.001, 0.9), st.floats(0.5, 20), st.floats(0.5, 20), st.integers(1, 300))
def test_more_of_anything_costs_more(rate: float, sigma: float, scale: float, rounds: int) -> None:
    def epsilon(rate: float, sigma: float, scale: float, rounds: int) -> float:
        event = on_sample(rate, [dp_event.GaussianDpEvent(sigma), dp_event.LaplaceDpEvent(scale)], rounds)
        return account(event, adjacency="add_remove", delta=1e-6).value

    known = epsilon(rate, sigma, scale, rounds)
    alone = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), rounds)
    assert account(alone, adjacency="add_remove", delta=1e-6).value <= known * (1 + 2e-3)
    assert known <= epsilon(min(1.0, rate * 1.2), sigma, scale, rounds) * (1 + 2e-3)
    assert known <= epsilon(rate, sigma / 1.2, scale, rounds) * (1 + 2e-3)
    assert known <= epsilon(rate, sigma, scale / 1.2, rounds) * (1 + 2e-3)
    assert known <= epsilon(rate, sigma, scale, rounds + 1) * (1 + 2e-3)


def test_masses_that_underflow_are_no_fault() -> None:
    event = on_sample(0.5, [dp_event.LaplaceDpEvent(1 / 400)] * 2)
    assert account(event, adjacency="add_remove", delta=1e-6).value <= 800


def test_the_other_direction_is_bounded_too() -> None:
    """Four answers at ε = 1 and twelve at ε = 0.1 that are told with probability 1e-9 reveal all with 1.2e-8."""
    parts = [EpsilonDeltaDpEvent(1.0)] * 4 + [EpsilonDeltaDpEvent(0.1, 1e-9)] * 12
    pair = Lattice("add_remove").compose(on_sample(0.5, parts)).pair
    least = 0.5 * -math.expm1(12 * math.log1p(-1e-9))
    assert pair.delta(12.0, direction="remove").upper >= least
    both = Lattice("add_remove").compose(dp_event.ComposedDpEvent(parts)).pair
    for loss in (0.1, 0.5):  # of Q over the mixture, from a curve that is found without a sample
        weight = 0.5 - math.expm1(loss) * 0.5
        exact = weight * both.delta(math.log(math.exp(loss) * 0.5 / weight), direction="add").lower
        assert pair.delta(loss, direction="add").upper >= exact * (1 - 1e-9)
