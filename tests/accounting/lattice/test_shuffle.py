"""Shuffled batches: intervals between what an adversary attains and the Gaussian of one batch."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import dp_event
from mpmath import mp
from numpy.typing import NDArray
from scipy.special import ndtri, ndtri_exp

from dpassay.accounting import ShuffledBatchesDpEvent, account, accountant, unsupported
from dpassay.accounting.accountants.base import SHUFFLED
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.accounting.lattice.shuffle import law_of_maxima

NOISE = 1.3


def shuffled(noise_multiplier: float, batches: int, epochs: int = 1) -> dp_event.DpEvent:
    event = ShuffledBatchesDpEvent(dp_event.GaussianDpEvent(noise_multiplier), batches)
    return dp_event.SelfComposedDpEvent(event, epochs)


def attained(values: list[int], others: list[int], sizes: tuple[int, int], epsilon: float, noise: float) -> float:
    """δ(ε) of the two noisy sums of records in random order, by Simpson's rule in the plane."""
    x = np.linspace(-9.0 * noise, 9.0 * noise, 481)
    weights = np.ones(x.size)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    weights *= (x[1] - x[0]) / 3

    def density(records: list[int]) -> NDArray[np.float64]:
        orders = Counter((sum(order[: sizes[0]]), sum(order[sizes[0] :])) for order in itertools.permutations(records))
        total = sum(orders.values())
        parts = [
            count / total * np.multiply.outer(*(np.exp(-(((x - mean) / noise) ** 2) / 2) for mean in means))
            for means, count in orders.items()
        ]
        return np.asarray(np.sum(parts, axis=0) / (2 * math.pi * noise**2))

    excess = np.maximum(density(values) - math.exp(epsilon) * density(others), 0.0)
    return float(weights @ excess @ weights)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 2), (2, 1)])
@pytest.mark.parametrize(("adjacency", "without"), [("zero_out", 0), ("replace_one", -1)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_the_interval_is_between_what_is_attained_and_all_data(
    sizes: tuple[int, int], adjacency: str, without: int, epsilon: float
) -> None:
    known = accountant("lattice", adjacency).compose(shuffled(NOISE, 2)).delta(epsilon).interval
    assert known is not None
    best = 0.0
    for others in itertools.combinations_with_replacement((-1, 0), sum(sizes) - 1):
        for first, second in ((1, without), (without, 1)):
            best = max(best, attained([first, *others], [second, *others], sizes, epsilon, NOISE))
    assert known.lower <= best * (1 + 1e-4)  # the error of the rule where the curve bends
    assert best <= known.upper * (1 + 1e-4)
    assert known.lower > 0.9 * best  # the largest sum tells nearly everything here


@pytest.mark.parametrize(
    ("first", "second", "batches"), [(2.0, 1.0, 100), (60.0, 30.0, 7), (17.0, 0.0, 3), (1e-3, 5e-4, 10**7)]
)
def test_masses_of_the_largest_sum(first: float, second: float, batches: int) -> None:
    p, q = law_of_maxima(first, second, batches).outcomes[:2]
    first, second = (mean * min(1.0, 30 / first) for mean in (first, second))
    lowest, highest = float(ndtri_exp(math.log(1e-9) / batches)), -float(ndtri(1e-12 / batches))
    edges = np.linspace(lowest, min(highest + first, second + 17.0), 400)
    with mp.workdps(220):

        def below(index: int, mean: float) -> mp.mpf:
            if index in (-1, 400):
                return mp.mpf(index == 400)
            x = mp.mpf(float(edges[index]))
            return mp.ncdf(x) ** (batches - 1) * mp.ncdf(x - mp.mpf(mean))

        for index in (0, 1, 7, 150, 200, 280, 350, 398, 399, 400):
            for masses, mean in ((p, first), (q, second)):
                exact = below(index, mean) - below(index - 1, mean)
                assert abs(float(mp.mpf(float(masses[index])) / exact - 1)) < 1e-9


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_one_batch_is_a_gaussian(adjacency: str) -> None:
    one = account(shuffled(2.0, 1, 3), adjacency=adjacency, delta=1e-5)
    plain = account(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(2.0), 3), adjacency=adjacency, delta=1e-5)
    assert one.interval == plain.interval
    assert SHUFFLED in one.assumptions
    assert SHUFFLED not in plain.assumptions


def test_poisson_samples_cost_less_than_what_is_attained() -> None:
    """σ = 1, 100 batches, 20 epochs: ε is at least 14.57, where Poisson samples have 2.96."""
    known = account(shuffled(1.0, 100, 20), adjacency="zero_out", delta=1e-6)
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    poisson = account(dp_event.SelfComposedDpEvent(step, 2000), adjacency="zero_out", delta=1e-6)
    assert known.interval is not None
    assert known.interval.lower > 14.57 > 4 * poisson.value
    assert known.value == account(shuffled(1.0, 100, 20), adjacency="zero_out", delta=1e-6, method="gdp").value


def test_with_much_noise_all_sums_together_tell_more_than_the_largest() -> None:
    pair = DominatingPair.gaussian_shuffle(10.0, 100).self_compose(100)
    known = pair.epsilon(1e-5)
    of_sums = DominatingPair.gaussian(10.0, 0.1 * (1 - 1e-12)).self_compose(100).epsilon(1e-5)
    largest = DominatingPair.of(law_of_maxima(0.2, 0.1, 100), label="largest").self_compose(100).epsilon(1e-5)
    assert 2 * largest.upper < of_sums.lower * (1 - 1e-9) <= known.lower <= known.upper


def test_shuffles_of_several_numbers_of_batches_compose() -> None:
    event = dp_event.ComposedDpEvent([shuffled(1.0, 10, 2), shuffled(2.0, 3), dp_event.GaussianDpEvent(4.0)])
    known = account(event, adjacency="zero_out", delta=1e-5)
    gaussian = account(dp_event.GaussianDpEvent(1 / math.sqrt(2 + 1 / 4 + 1 / 16)), adjacency="zero_out", delta=1e-5)
    part = account(shuffled(1.0, 10, 2), adjacency="zero_out", delta=1e-5)
    assert known.interval is not None
    assert part.interval is not None
    assert known.interval.lower > part.interval.lower
    assert known.value == pytest.approx(gaussian.value, rel=1e-9)


def test_under_add_remove_nothing_is_known() -> None:
    reasons = unsupported(shuffled(1.0, 10), adjacency="add_remove")
    asked = {
        name: reason for name, reason in reasons.items() if name in ("lattice", "gdp", "rdp", "zcdp", "pld", "prv")
    }
    assert len(asked) == 6
    assert all("use zero_out or replace_one" in reason for reason in asked.values())


def test_other_noise_has_the_bound_of_one_batch() -> None:
    event = ShuffledBatchesDpEvent(dp_event.LaplaceDpEvent(2.0), 10)
    known = account(event, adjacency="replace_one", delta=1e-5)
    assert known.interval is None
    assert known.value == account(dp_event.LaplaceDpEvent(2.0), adjacency="replace_one", delta=1e-5).value
    assert account(event, adjacency="replace_one", method="basic", delta=1e-5).value == 1.0


@pytest.mark.parametrize("batches", [0, -1, 2.5, True])
def test_a_number_of_batches_is_a_whole_number(batches: float) -> None:
    with pytest.raises(ValueError, match="num_batches"):
        ShuffledBatchesDpEvent(dp_event.GaussianDpEvent(1.0), batches)  # type: ignore[arg-type]


def test_many_different_shuffles_compose() -> None:
    event = dp_event.ComposedDpEvent([shuffled(1 + index / 10, 10 + index) for index in range(8)])
    known = account(event, adjacency="zero_out", delta=1e-6)
    assert known.interval is not None
    assert 0.7 * known.value < known.interval.lower < known.value


def test_more_batches_than_the_law_of_the_largest_sum_is_known_for() -> None:
    known = account(shuffled(1.0, 10**12 + 1), adjacency="zero_out", delta=1e-6)
    assert known.interval is None
    some = account(shuffled(1.0, 10**12), adjacency="zero_out", delta=1e-6)
    assert some.interval is not None
    assert known.value == pytest.approx(some.value, rel=1e-10)  # one is a closed form, the other a law
