"""The certified intervals of single mechanisms and of exact compositions contain the value to 60 digits."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import oracle
import pytest
from dp_accounting import dp_event
from oracle import DIRECTIONS, Direction, mp
from oracle_cases import FAMILIES, Case, gaussian_by_cdfs, log_uniform
from oracle_inversion import composed_delta, sampled_gaussian
from property_settings import number

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice import law_products
from dpassay.accounting.lattice.accountant import dominating_pair
from dpassay.accounting.lattice.enclosure import Enclosure
from dpassay.accounting.lattice.normal_mixtures import NormalMixtures
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet
from dpassay.accounting.lattice.single_law import SingleLaw

WIDTH = 1e-3
SIDES: tuple[Direction | None, ...] = (*DIRECTIONS, None)


def contains_delta(result: Interval, exact: oracle.Exact, epsilon: float, side: Direction | None) -> bool:
    return bool(result.lower <= exact.delta(epsilon, side) <= result.upper)


def contains_epsilon(result: Interval, exact: oracle.Exact, delta: float, side: Direction | None) -> bool:
    """Whether ε(δ) is inside, by the curve at both ends: δ(ε) falls strictly wherever it is above its limit."""
    if result.upper < math.inf and exact.delta(result.upper, side) > delta:
        return False
    if result.lower == math.inf:
        return bool(exact.epsilon(delta, side) == oracle.INFINITY)
    return result.lower == 0 or bool(exact.delta(result.lower, side) >= delta)


def contains_blowup(result: Interval, exact: oracle.Exact, p: float, side: Direction | None) -> bool:
    truth = exact.blowup(p, side)
    return bool(result.lower * (1 - oracle.ROOM) <= truth <= result.upper * (1 + oracle.ROOM))


@contextmanager
def narrow() -> Iterator[None]:
    """An interval that misses its width is an error: [0, 1] contains everything."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", WidthNotMet)
        yield


def is_narrow(result: Interval, floor: float) -> bool:
    """Whether the width is met, or below what the rounding of masses and losses near 1 allows."""
    return result.width <= max(WIDTH * result.upper, floor) or result.lower == result.upper


def check(case: Case, chance: random.Random) -> None:
    """δ(ε) at both signs, ε(δ) with δ from 1e-14 to .1, B(p) and β(α), in each direction and in the worse one."""
    pair, exact = case.pair, case.exact
    for side in SIDES:
        where = f"{case.label}, {side}"
        delta = log_uniform(chance, 1e-14, 0.1)
        result = pair.epsilon(delta, direction=side)
        assert contains_epsilon(result, exact, delta, side), (where, delta, result)
        assert pair.tight
        assert is_narrow(result, 1e-10), (where, delta, result)

        reach = result.upper if math.isfinite(result.upper) else 1.0
        epsilon = reach * chance.choice([chance.uniform(0.1, 1.1), chance.uniform(-1, 0), 0.0])
        result = pair.delta(epsilon, direction=side)
        assert contains_delta(result, exact, epsilon, side), (where, epsilon, result)
        assert is_narrow(result, 1e-12), (where, epsilon, result)

        p = log_uniform(chance, 1e-9, 0.9)
        result = pair.blowup(p, direction=side)
        other = pair.beta(p, direction=side)
        assert is_narrow(result, 1e-12), (where, p, result)
        if not isinstance(exact, oracle.Curve):
            assert contains_blowup(result, exact, p, side), (where, p, result)
            assert other.lower <= 1 - exact.blowup(p, side) <= other.upper, (where, p, other)


@pytest.mark.grid
@pytest.mark.filterwarnings("ignore::dpassay.accounting.lattice.pairs.WidthNotMet")
@pytest.mark.parametrize("family", FAMILIES)
def test_single_mechanisms(family: str) -> None:
    chance = random.Random(f"fast {family}")
    for _ in range(number(2, 22)):
        check(FAMILIES[family](chance), chance)


# --- Gaussians


def unrecognised(mu: float) -> DominatingPair:
    """N(μ, 1) against N(0, 1) without the mark of a Gaussian, so that its powers are the lattice's work."""
    return DominatingPair.of(NormalMixtures([1.0], [mu]), label=f"unrecognised({mu!r})")


@pytest.mark.grid("count", "delta")
@pytest.mark.parametrize("count", [1, 3, 10, 100, 10**3, 10**4, 10**5])
@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-10, 1e-14])
def test_composed_gaussians(count: int, delta: float) -> None:
    """n at σ = √n/2: recognised, a closed form; not recognised; and, up to 1000, given by cdfs, which come with
    an error of 1e-12, more than the differences that matter in a single run at larger σ."""
    sigma = math.sqrt(count) / 2
    exact = oracle.gaussians([sigma], [count])
    closed = DominatingPair.gaussian(sigma).self_compose(count).epsilon(delta)
    assert contains_epsilon(closed, exact, delta, None), closed
    assert closed.width <= 1e-11 * closed.upper  # log Φ has a relative 1e-13, and is below 40
    mu = 1 / sigma
    exact = oracle.gaussians([1 / oracle.real(mu)], [count])
    for pair in (unrecognised(mu), gaussian_by_cdfs(mu))[: 2 if count <= 1000 else 1]:
        with narrow():
            result = pair.self_compose(count).epsilon(delta)
        assert contains_epsilon(result, exact, delta, None), result
        assert result.width <= WIDTH * result.upper


def test_a_delta_that_is_far_out() -> None:
    """n = 10⁴, σ = 100, δ = 1e-14: 7.868736 by independent computation."""
    for pair in (DominatingPair.gaussian(100.0), unrecognised(0.01)):
        with narrow():
            result = pair.self_compose(10**4).epsilon(1e-14)
        assert 7.868736 in Interval(result.lower - 5e-7, result.upper + 5e-7)
        assert contains_epsilon(result, oracle.gaussians([100.0], [10**4]), 1e-14, None)


def test_different_gaussians_compose() -> None:
    sigmas, counts = [0.9, 3.0, 17.0], [1, 5, 400]
    exact = oracle.gaussians(sigmas, counts)
    parts = [DominatingPair.gaussian(sigma).self_compose(n) for sigma, n in zip(sigmas, counts, strict=True)]
    mixed = [gaussian_by_cdfs(1 / sigma).self_compose(n) for sigma, n in zip(sigmas, counts, strict=True)]
    for total in (parts[0].compose(*parts[1:]), mixed[0].compose(*mixed[1:]), parts[0].compose(*mixed[1:])):
        with narrow():
            for delta in (1e-3, 1e-12):
                assert contains_epsilon(total.epsilon(delta), exact, delta, None)
            for epsilon in (-2.0, 0.0, 3.0, 9.0):
                assert contains_delta(total.delta(epsilon), exact, epsilon, None)


# --- exact compositions of finite pairs


@pytest.mark.filterwarnings("ignore::dpassay.accounting.lattice.pairs.WidthNotMet")
@pytest.mark.parametrize("uniform", [0.5, 0.97])
@pytest.mark.parametrize("count", [1, 10, 1000, pytest.param(10**4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("null", [False, True])
def test_randomised_response_many_times(uniform: float, count: int, null: bool) -> None:
    """The number of true answers is binomial."""
    event = dp_event.RandomizedResponseDpEvent(uniform, 2)
    pair = dominating_pair(event, "zero_out" if null else "replace_one").self_compose(count)
    exact = oracle.randomised_response_power(uniform, count, null=null)
    for side in DIRECTIONS:
        for delta in (1e-3, 1e-10):
            result = pair.epsilon(delta, direction=side)
            assert contains_epsilon(result, exact, delta, side), (side, delta, result)
        p = 1e-4
        assert contains_blowup(pair.blowup(p, direction=side), exact, p, side)


@pytest.mark.parametrize(("parameter", "sensitivity", "count"), [(0.3, 1, 50), (0.05, 3, 200), (1.0, 2, 7)])
def test_discrete_laplace_many_times(parameter: float, sensitivity: int, count: int) -> None:
    """The losses of n runs are those of a polynomial's power."""
    pair = DominatingPair.discrete_laplace(parameter, sensitivity).self_compose(count)
    exact = oracle.discrete_laplace_power(parameter, sensitivity, count)
    for side in DIRECTIONS:
        for delta in (1e-2, 1e-6, 1e-12):
            result = pair.epsilon(delta, direction=side)
            assert contains_epsilon(result, exact, delta, side), (side, delta, result)
        for epsilon in (-0.7, 0.0, 0.5 * parameter * sensitivity * math.sqrt(count)):
            assert contains_delta(pair.delta(epsilon, direction=side), exact, epsilon, side)


@pytest.mark.parametrize("seed", range(6))
def test_finite_pairs_by_enumeration(seed: int) -> None:
    """All outcomes of n runs, one by one; outcomes that only P or only Q has among them."""
    chance = random.Random(seed)
    case = FAMILIES["finite"](chance)
    assert isinstance(case.exact, oracle.Atoms)
    count = int(math.log(20_000, len(case.exact.p)))
    pair, exact = case.pair.self_compose(count), case.exact.power(count)
    for side in DIRECTIONS:
        for delta in (0.1, 1e-4):
            result = pair.epsilon(delta, direction=side)
            assert contains_epsilon(result, exact, delta, side), (case.label, count, side, delta, result)
        for epsilon in (-0.4, 0.0, 1.3):
            result = pair.delta(epsilon, direction=side)
            assert contains_delta(result, exact, epsilon, side), (case.label, count, side, epsilon, result)
            assert result.width <= 1e-9 * result.upper + 1e-12  # few outcomes need no lattice
        assert contains_blowup(pair.blowup(1e-3, direction=side), exact, 1e-3, side)


@pytest.mark.parametrize("seed", range(12))
def test_a_lattice_holds_what_outcomes_one_by_one_give(seed: int) -> None:
    chance = random.Random(f"lattice {seed}")
    names = ["finite", "approx_dp", "randomised_response", "discrete_laplace"]
    pairs = [FAMILIES[name](chance).pair.self_compose(chance.randint(1, 3)) for name in chance.sample(names, 2)]
    parts = pairs[0].compose(pairs[1]).alternatives[0]
    for side in DIRECTIONS:
        laws = [(getattr(part, side), count) for part, count in parts]
        ((product, _),) = law_products.merged(laws)
        for epsilon in (0.0, 0.3, 2.0):
            coarse, fine = Enclosure(laws).delta(epsilon, 1e-3)[0], SingleLaw(product).delta(epsilon, 1e-3)[0]
            assert max(coarse.lower, fine.lower) <= min(coarse.upper, fine.upper), (seed, side, epsilon, coarse, fine)


@pytest.mark.parametrize("seed", range(12))
def test_a_continuous_mechanism_with_a_finite_one(seed: int) -> None:
    """Given the finite outcome i, δ(ε) is that of the other at ε − log p_i/q_i."""
    chance = random.Random(f"product {seed}")
    kinds = ("sampled_gaussian", "replaced_gaussian", "laplace", "sampled_laplace", "mixture", "gaussian")
    first = FAMILIES[kinds[seed % len(kinds)]](chance)
    second = FAMILIES["approx_dp" if seed % 2 else "finite"](chance)
    assert isinstance(second.exact, oracle.Atoms)
    pair, exact = first.pair.compose(second.pair), first.exact.with_atoms(second.exact)
    for side in DIRECTIONS:
        result = pair.epsilon(1e-3, direction=side)
        assert contains_epsilon(result, exact, 1e-3, side), (first.label, second.label, side, result)
        for epsilon in (0.0, 0.8):
            result = pair.delta(epsilon, direction=side)
            assert contains_delta(result, exact, epsilon, side), (first.label, second.label, side, epsilon, result)


# --- sampled Gaussians, many times


STEPS = [(0.8, 0.005, 1000, 1e-6), (1.0, 0.01, 10_000, 1e-5), (0.6, 0.001, 5000, 1e-7), (2.0, 0.1, 2000, 1e-6)]


@pytest.mark.grid
@pytest.mark.parametrize(("sigma", "rate", "count", "delta"), STEPS)
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("width", [1e-3, 1e-5])
def test_private_training(sigma: float, rate: float, count: int, delta: float, adjacency: str, width: float) -> None:
    """The transform's inversion, good to 1e-10, at both ends; the slack is that."""
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma))
    pair = dominating_pair(event, adjacency).self_compose(count)
    laws = sampled_gaussian(rate, replace=adjacency == "replace_one")
    for side in DIRECTIONS:
        with narrow():
            result = pair.epsilon(delta, direction=side, width=width)
        assert composed_delta(*laws, sigma, count, result.upper, side) <= delta * (1 + 1e-10)
        assert composed_delta(*laws, sigma, count, result.lower, side) >= delta * (1 - 1e-10)


# --- the oracle itself


DENSITIES: dict[str, Any] = {
    "gaussian": lambda mean, scale: lambda x: mp.npdf(x, mean, scale),
    "laplace": lambda mean, scale: lambda x: mp.exp(-abs(x - mean) / scale) / (2 * scale),
}


@pytest.mark.grid
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("epsilon", [-0.3, 0.0, 0.21])
def test_the_oracle_agrees_with_the_integral_of_densities(kind: str, epsilon: float) -> None:
    """Both directions of a sampled mechanism, to 40 digits: no crossing point and no mass is shared with the integral,
    which is told the kinks of the densities and, to split its range, a crossing point found by itself."""
    rate, scale = mp.mpf(1) / 8, mp.mpf(3) / 2
    exact = (oracle.sampled_gaussian if kind == "gaussian" else oracle.sampled_laplace)(scale, rate)
    base = DENSITIES[kind]
    still, moved = base(mp.mpf(0), scale), base(mp.mpf(1), scale)

    def sampled(x: Any) -> Any:
        return (1 - rate) * still(x) + rate * moved(x)

    sides: list[tuple[oracle.Direction, Any, Any]] = [("remove", sampled, still), ("add", still, sampled)]
    for side, p, q in sides:

        def margin(x: Any, p: Any = p, q: Any = q) -> Any:
            return p(x) - mp.exp(mp.mpf(epsilon)) * q(x)

        ends = [-250, 0, 1, 250] if kind == "laplace" else [-25, -10, 0, 10, 25]
        crossing = []
        for low, high in ((-20, 0), (0, 1), (1, 20)):
            if margin(mp.mpf(low)) * margin(mp.mpf(high)) < 0:
                low, high = mp.mpf(low), mp.mpf(high)
                for _ in range(190):
                    middle = (low + high) / 2
                    low, high = (middle, high) if margin(middle) * margin(low) > 0 else (low, middle)
                crossing.append(low)
        integral = oracle.hockey_stick_by_quadrature(p, q, sorted([*ends, *crossing]), epsilon)
        assert abs(exact.delta(epsilon, side) - integral) < mp.mpf(10) ** -40


def test_the_oracle_knows_values_computed_independently() -> None:
    """Bin(80, .01) copies of a secret, p = 1e-4; and the Gaussian of 10⁴ runs at σ = 100."""
    share = mp.mpf("0.01")
    weights = [mp.binomial(80, k) * share**k * (1 - share) ** (80 - k) for k in range(81)]
    for sigma, expected, digits in ((1, "0.02202592", 8), (2, "0.00173397", 8), (5, "2.402890e-4", 10)):
        value = oracle.gaussian_mixture(weights, range(81), sigma).blowup(mp.mpf("1e-4"), "remove")
        assert abs(value - mp.mpf(expected)) <= mp.mpf(10) ** -digits / 2
    assert abs(oracle.gaussian(1).epsilon(1e-14) - mp.mpf("7.868736")) < mp.mpf("5e-7")
    sampled = oracle.sampled_without_replacement(2 / mp.mpf("1.948576"), 4, 100)
    assert abs(sampled.epsilon(1e-5) - mp.mpf("4.9")) < mp.mpf("5e-6")  # μ was given to six decimals


def test_the_oracles_powers_agree() -> None:
    """Enumeration, binomials and polynomials, to 50 digits."""
    for epsilon in (-0.2, 0.0, 0.4):
        for side in DIRECTIONS:
            by_hand = oracle.discrete_laplace(0.3, 3).power(4).delta(epsilon, side)
            assert abs(by_hand - oracle.discrete_laplace_power(0.3, 3, 4).delta(epsilon, side)) < mp.mpf(10) ** -50
            by_hand = oracle.randomised_response(0.4, 2, null=True).power(6).delta(epsilon, side)
            power = oracle.randomised_response_power(0.4, 6, null=True)
            assert abs(by_hand - power.delta(epsilon, side)) < mp.mpf(10) ** -50


@pytest.mark.grid
@pytest.mark.parametrize(("sigma", "rate", "count", "delta"), STEPS)
def test_inversion_has_ten_digits(sigma: float, rate: float, count: int, delta: float) -> None:
    """With both steps halved nothing changes; and a composed Gaussian is a Gaussian."""
    for replace in (False, True):
        laws = sampled_gaussian(rate, replace=replace)
        for side in DIRECTIONS:
            once = composed_delta(*laws, sigma, count, 1.5, side)
            assert composed_delta(*laws, sigma, count, 1.5, side, fineness=2) == pytest.approx(once, rel=1e-10)
    noise = 10 * sigma * math.sqrt(count)
    exact = oracle.gaussians([noise], [100 * count])
    for epsilon in (0.1, 1.0, 6.0):
        inverted = composed_delta(((1,), (1,)), ((1,), (0,)), noise, 100 * count, epsilon, "remove")
        assert inverted == pytest.approx(float(exact.delta(epsilon)), rel=1e-10)
