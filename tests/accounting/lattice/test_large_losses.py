"""Losses far above zero: both ends of an interval are near the value to 60 digits, which outcomes one by one give."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator

import oracle
import pytest
from dp_accounting import dp_event

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.components import DIRECTIONS
from dpassay.accounting.lattice.enclosure import Enclosure
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet


@pytest.fixture(autouse=True)
def _narrow() -> Iterator[None]:
    """An interval that misses its width is an error, since [0, ∞] contains everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", WidthNotMet)
        yield


def holds(result: Interval, exact: oracle.Exact, delta: float, side: oracle.Direction | None) -> bool:
    """Whether ε(δ) is inside: δ(ε) falls strictly wherever it is above its limit."""
    return bool(
        exact.delta(result.upper, side) <= delta
        and (result.lower <= 0 or exact.delta(result.lower, side) >= delta)
        and result.width <= 1e-3 * result.upper
    )


def test_discrete_laplaces_of_very_different_noise() -> None:
    """Where the lower end was 92.49, the loss of a single run."""
    strong, weak = dp_event.DiscreteLaplaceDpEvent(9.249, 5), dp_event.DiscreteLaplaceDpEvent(0.355, 5)
    event = dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(strong, 4), dp_event.SelfComposedDpEvent(weak, 3)])
    exact = oracle.discrete_laplace_power(9.249, 10, 4).times(oracle.discrete_laplace_power(0.355, 10, 3))
    result = Lattice("replace_one").compose(event).epsilon(9.8e-7).interval
    assert result is not None
    assert holds(result, exact, 9.8e-7, None)
    assert result.lower > 380.2


Case = tuple[DominatingPair, oracle.Atoms]


def _discrete_laplace(chance: random.Random, count: int) -> Case:
    parameter, sensitivity = 10 ** chance.uniform(-0.5, 1.1), chance.choice([1, 2, 5, 10])
    exact = oracle.discrete_laplace_power(parameter, sensitivity, count)
    return DominatingPair.discrete_laplace(parameter, sensitivity).self_compose(count), exact


def _response(chance: random.Random, count: int) -> Case:
    uniform = 2.0 ** -chance.randint(1, 50)  # a power of two, so that both probabilities are exact
    pair = DominatingPair.finite([1 - uniform / 2, uniform / 2], [uniform / 2, 1 - uniform / 2])
    return pair.self_compose(count), oracle.randomised_response_power(uniform, count)


def _laplace(chance: random.Random, count: int) -> tuple[DominatingPair, oracle.Line]:
    scale = 2.0 ** -chance.randint(0, 6)
    return DominatingPair.laplace(scale), oracle.sampled_laplace(scale)


@pytest.mark.parametrize("seed", range(16))
def test_both_ends_are_near_what_outcomes_one_by_one_give(seed: int) -> None:
    """Finite laws, on a lattice although few outcomes need none; every fourth time beside a Laplace mechanism."""
    chance = random.Random(f"large losses {seed}")
    kinds = [chance.choice([_discrete_laplace, _response]) for _ in range(2)]
    (first, item), (second, other) = (kind(chance, chance.choice([1, 2, 3, 4, 7])) for kind in kinds)
    pair, exact = first.compose(second), item.times(other)
    whole: oracle.Exact = exact
    if seed % 4 == 0:
        noise, line = _laplace(chance, 1)
        pair, whole = pair.compose(noise), line.with_atoms(exact)
    delta = 10 ** chance.uniform(-12, -1)
    for side in DIRECTIONS:
        laws = [(getattr(part, side), count) for part, count in pair.alternatives[0]]
        assert holds(Enclosure(laws).epsilon(delta, 1e-3)[0], whole, delta, side), (seed, side, delta)


@pytest.mark.parametrize(("noise", "parameter", "count", "delta"), [(0.03, 3.0, 4, 1e-6), (0.025, 0.5, 10, 1e-12)])
def test_losses_beyond_float64(noise: float, parameter: float, count: int, delta: float) -> None:
    """e^ε is no float64 here, and lattices end before. The lower end was 650."""
    pair = DominatingPair.gaussian(noise).compose(DominatingPair.discrete_laplace(parameter, 10).self_compose(count))
    exact = oracle.gaussian(noise).with_atoms(oracle.discrete_laplace_power(parameter, 10, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        result = pair.epsilon(delta)
    assert result.lower > 650
    assert math.isfinite(result.upper)
    assert exact.delta(result.lower) >= delta >= exact.delta(result.upper)
    assert result.width <= 0.05 * result.upper


def test_a_saddle_point_is_found_behind_rare_small_losses() -> None:
    """A law whose small losses are far from all others, and one that reaches the loss of interest only far out."""
    sampled = DominatingPair.gaussian(5.0).poisson_sampled(0.25).self_compose(2)
    response = DominatingPair.finite([1 - 2.0**-60, 2.0**-60], [2.0**-60, 1 - 2.0**-60])
    result, rest = response.compose(sampled).epsilon(1e-10), sampled.epsilon(1e-10)
    # A response is its input but with probability 2^−60, so that its loss is 60·log 2 almost surely, and at most that.
    loss = 60 * math.log(2)
    assert result.lower <= loss + rest.upper
    assert result.upper >= (loss + rest.lower) * (1 - 1e-12)
    assert result.width <= 1e-3 * result.upper
