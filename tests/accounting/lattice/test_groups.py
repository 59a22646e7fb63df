"""Groups of records: pairs by the number of records that are drawn, against neighbours that are integrated outright."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples
from scipy import integrate, stats

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound
from dpassay.accounting.group_privacy import for_group
from dpassay.accounting.guarantees import ApproxDP
from dpassay.accounting.lattice.accountant import Lattice
from dpassay.accounting.lattice.pairs import DominatingPair
from dpassay.accounting.registry import account, unsupported, upper_bounds


def sampled(rate: float, sigma: float, steps: int = 1) -> DpEvent:
    return dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)), steps)


def lattice(event: DpEvent, size: int, adjacency: str = "add_remove") -> Lattice:
    return Lattice(adjacency, Unit("group", size)).compose(event)


def drawn(vectors: np.ndarray, rate: float) -> list[tuple[float, np.ndarray]]:
    """The probability of each choice of records, and their sum."""
    results = []
    for chosen in itertools.product((0, 1), repeat=len(vectors)):
        taken = sum(chosen)
        results.append((rate**taken * (1 - rate) ** (len(vectors) - taken), np.array(chosen) @ vectors))
    return results


def density(parts: list[tuple[float, np.ndarray]], sigma: float, points: np.ndarray) -> np.ndarray:
    """Of a mixture of normal laws in the plane, at points of shape (n, 2)."""
    scale = 1 / (2 * math.pi * sigma**2)
    parts_of = [
        weight * scale * np.exp(-((points - centre) ** 2).sum(axis=1) / (2 * sigma**2)) for weight, centre in parts
    ]
    return np.asarray(np.sum(parts_of, axis=0))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [2, 3])
def test_no_vectors_of_a_group_exceed_its_pair(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rate, sigma = rng.uniform(0.05, 0.9), rng.uniform(0.5, 2)
    angles, norms = rng.uniform(0, 2 * math.pi, (2, size)), rng.choice([0.3, 1.0], (2, size), p=[0.3, 0.7])
    there, others = (norms[i, :, None] * np.stack([np.cos(angles[i]), np.sin(angles[i])], axis=1) for i in (0, 1))
    step = sigma / 15
    axis = np.arange(-size - 7 * sigma, size + 7 * sigma, step)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    for adjacency, absent in (("add_remove", np.zeros((size, 2))), ("replace_one", others)):
        p, q = (density(drawn(vectors, rate), sigma, points) * step**2 for vectors in (there, absent))
        for epsilon in (0.0, 0.3, 1.0, 2.5):
            most = lattice(sampled(rate, sigma), size, adjacency).delta(epsilon).value
            for first, second in ((p, q), (q, p)):
                assert np.maximum(first - math.exp(epsilon) * second, 0).sum() <= most * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize(("rate", "sigma", "size"), [(0.1, 1.0, 2), (0.5, 0.7, 3), (0.01, 2.0, 5)])
def test_alike_records_attain_it(rate: float, sigma: float, size: int, adjacency: str) -> None:
    weights = [float(stats.binom.pmf(index, size, rate)) for index in range(size + 1)]
    x = np.linspace(-size - 12 * sigma, size + 12 * sigma, 2_000_001)
    present, mirrored = (
        sum(weight * stats.norm.pdf(x, sign * index, sigma) for index, weight in enumerate(weights)) for sign in (1, -1)
    )
    absent = mirrored if adjacency == "replace_one" else stats.norm.pdf(x, 0, sigma)
    for epsilon in (0.1, 1.0):
        t = math.exp(epsilon)
        remove, add = (
            integrate.trapezoid(np.maximum(p - t * q, 0), x) for p, q in ((present, absent), (absent, present))
        )
        interval = lattice(sampled(rate, sigma), size, adjacency).delta(epsilon).interval
        assert interval is not None
        assert interval.lower <= max(remove, add) * (1 + 1e-6) + 1e-12
        assert max(remove, add) <= interval.upper * (1 + 1e-6) + 1e-12


def test_three_records_of_a_user() -> None:
    event = sampled(0.01, 1.0, 500)

    def at(unit: str | None) -> Bound:
        return account(event, adjacency="add_remove", delta=1e-5, unit=unit)

    bound = at("group(3)")
    assert bound.interval is not None
    assert 4.49714 < bound.interval.lower < bound.interval.upper < 4.50107
    assert bound.assumptions == ("The records of a group come together or go together: none comes where another goes.",)
    one = at(None).value
    chained = for_group(ApproxDP(one, 1e-5), 3)
    assert isinstance(chained, ApproxDP)
    assert chained.delta > 1e-5  # a chain needs a smaller δ of each record
    user = at("user(3)")
    assert (user.value, str(user.unit)) == (bound.value, "user(3)")
    assert "No user has more than 3 records, and the events are charged for one record." in user.assumptions
    assert at("user").value == one
    assert "one record" not in " ".join(at("user").assumptions)


def test_mixtures_agree_with_a_library() -> None:
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    weights = [float(stats.binom.pmf(index, 3, 0.05)) for index in range(4)]
    mixture = dp_event.MixtureOfGaussiansDpEvent(1.5, [0.0, 1.0, 2.0, 3.0], weights)
    other = PLDAccountant().compose(dp_event.SelfComposedDpEvent(mixture, 20)).get_epsilon(1e-5)
    assert lattice(sampled(0.05, 1.5, 20), 3).epsilon(1e-5).value == pytest.approx(other, rel=2e-3)


@pytest.mark.parametrize("example", events.EXAMPLES)
def test_every_event_that_one_record_has_a_bound_for_has_one_for_groups(example: str) -> None:
    event = events.EXAMPLES[example]
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE, Adjacency.ZERO_OUT):
        if Lattice(adjacency).supports(event) is not None:
            continue
        one, group = (Lattice(adjacency, Unit("group", size)).compose(event) for size in (1, 3))
        assert group.epsilon(1e-6).value >= one.epsilon(1e-6).value
        others = upper_bounds(event, ApproxDP(1, 1e-6), adjacency=adjacency, unit=Unit("group", 3))
        assert others[0].value == group.epsilon(1e-6).value
        known = one.delta(0.5).value
        least = for_group(ApproxDP(0.5, known), 3) if 0 < known * math.expm1(1.5) / math.expm1(0.5) < 1 else None
        if isinstance(least, ApproxDP) and "sample" not in example:  # those of fewer records cost more
            assert group.delta(1.5).value <= least.delta * (1 + 1e-3) + 1e-300


@pytest.mark.parametrize("size", [2, 3, 7])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.3, 1e-3), (1.0, 1e-6), (0.0, 1e-4)])
def test_a_chain_is_no_less_than_what_some_chain_attains(epsilon: float, delta: float, size: int) -> None:
    """δ, then what is left grows by e^ε at each step: Vadhan (2017), Lemma 2.2, is attained."""
    attained = sum(delta * math.exp(index * epsilon) for index in range(size))
    chained = DominatingPair.approx_dp(epsilon, delta).chained(size).delta(size * epsilon)
    assert attained * (1 - 1e-9) <= chained.upper <= attained * 1.01


@examples(30, 300)
@given(st.floats(0.01, 0.9), st.floats(0.5, 5), st.integers(1, 40), st.integers(2, 6))
def test_larger_groups_more_steps_and_less_noise_cost_more(rate: float, sigma: float, steps: int, size: int) -> None:
    bound = lattice(sampled(rate, sigma, steps), size).epsilon(1e-6)
    assert bound.interval is not None
    for more in (
        lattice(sampled(rate, sigma, steps), size + 1),
        lattice(sampled(rate, sigma, steps + 1), size),
        lattice(sampled(rate, sigma * 0.9, steps), size),
        lattice(sampled(min(1.0, rate * 1.1), sigma, steps), size),
    ):
        assert bound.interval.lower <= more.epsilon(1e-6).value * (1 + 1e-12)


def test_what_has_no_bound_for_groups_says_so() -> None:
    event = sampled(0.01, 1.0)
    reasons = unsupported(event, adjacency="add_remove", unit="group(3)")
    assert reasons["rdp"] == "rdp has no bound for groups; use lattice, basic, advanced, zcdp or gdp"
    assert "lattice" not in reasons
    large = Unit("group", 2000)
    assert math.isfinite(account(dp_event.LaplaceDpEvent(1e6), adjacency="add_remove", delta=1e-5, unit=large).value)
