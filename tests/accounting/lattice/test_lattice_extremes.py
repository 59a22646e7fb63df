"""Certified intervals at the ends of float64: rates next to 1, masses that underflow, losses of 700, noise of 1e160.

Every interval is held against 60 digits, or 400 where what matters is 10⁻¹⁶⁰ of the whole. Widths are not asked about:
next to a rounding they cannot be small. Where a whole composition is out of reach, what a bit of each output tells lies
below the truth, and what is told with more than the output above it.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np
import oracle
import pytest
from dp_accounting import DpEvent, dp_event
from oracle import DIRECTIONS, Atoms, Direction, Exact, Real, mp
from oracle_cases import FAMILIES, gaussian_by_cdfs, normalised

from dpassay.accounting.accountants.base import Unsupported
from dpassay.accounting.bounds import Interval
from dpassay.accounting.events import ParallelDpEvent, TruncatedPoissonSampledDpEvent
from dpassay.accounting.lattice import concentrated_curve
from dpassay.accounting.lattice.accountant import dominating_pair
from dpassay.accounting.lattice.curve import OneSidedCurve
from dpassay.accounting.lattice.enclosure import Enclosure, LatticePlan
from dpassay.accounting.lattice.laws import Law
from dpassay.accounting.lattice.pairs import DominatingPair, WidthNotMet

SIDES: tuple[Direction | None, ...] = (*DIRECTIONS, None)


@pytest.fixture(autouse=True)
def _warnings_are_not_asked_about() -> Iterator[None]:
    """Only whether the truth is inside; `test_nothing_but_widths_is_warned_of` asks about the rest."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", WidthNotMet)
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def holds_delta(pair: DominatingPair, exact: Exact, epsilon: float, side: Direction | None) -> None:
    result = pair.delta(epsilon, direction=side)
    assert result.lower <= exact.delta(epsilon, side) <= result.upper, (epsilon, side)


def holds_epsilon(pair: DominatingPair, exact: Exact, delta: float, side: Direction | None) -> None:
    """By the curve at both ends: where δ(ε) is above its limit it falls strictly."""
    result = pair.epsilon(delta, direction=side)
    assert result.upper == math.inf or exact.delta(result.upper, side) <= delta, (delta, side, result)
    if result.lower == math.inf:
        assert exact.epsilon(delta, side) == oracle.INFINITY, (delta, side)
    else:
        assert result.lower == 0 or exact.delta(result.lower, side) >= delta, (delta, side, result)


def holds_blowup(pair: DominatingPair, exact: Exact, p: float, side: Direction | None) -> None:
    result = pair.blowup(p, direction=side)
    assert result.lower <= exact.blowup(p, side) <= result.upper, (p, side)


# --- sampling rates next to 1: the loss of adding a unit ends at −log(1 − q), or at that of the last likelihood ratio


RATES = [1 - 1e-10, 1 - 1e-6, 0.9, 0.5]
GAPS = [1e-3, 1e-6, 1e-8, 1e-9, 1e-12, 1e-15]


def largest_loss_of_adding(rate: float, least: Real = 0) -> Real:
    """−log(1 − q + q·least), `least` the smallest likelihood ratio without sampling."""
    return -mp.log(1 - oracle.real(rate) * (1 - least))


@pytest.mark.parametrize("rate", RATES)
def test_sampled_gaussians_at_the_end_of_their_losses(rate: float) -> None:
    pair, exact = DominatingPair.gaussian(0.05).poisson_sampled(rate), oracle.sampled_gaussian(0.05, rate)
    for gap in GAPS:
        epsilon = float(largest_loss_of_adding(rate) * (1 - mp.mpf(gap)))
        holds_delta(pair, exact, epsilon, "add")
        holds_delta(pair, exact, -epsilon, "remove")


@pytest.mark.parametrize("rate", [*RATES, 1 - 1e-7, 0.999])
@pytest.mark.parametrize("scale", [1 / 23, 0.1])
def test_sampled_laplace_at_the_end_of_its_losses(rate: float, scale: float) -> None:
    pair, exact = DominatingPair.laplace(scale).poisson_sampled(rate), oracle.sampled_laplace(scale, rate)
    top = largest_loss_of_adding(rate, mp.exp(-1 / oracle.real(scale)))
    for gap in GAPS:
        epsilon = float(top * (1 - mp.mpf(gap)))
        holds_delta(pair, exact, epsilon, "add")
        holds_delta(pair, exact, -epsilon, "remove")


@pytest.mark.grid("rate", "delta")
@pytest.mark.parametrize("rate", [*RATES, 0.3])
@pytest.mark.parametrize("delta", [1e-15, 1e-16, 3e-17, 1e-17, 1e-18, 1e-20])
def test_epsilon_of_a_delta_below_every_rounding(rate: float, delta: float) -> None:
    for pair, exact in (
        (DominatingPair.gaussian(0.05).poisson_sampled(rate), oracle.sampled_gaussian(0.05, rate)),
        (DominatingPair.laplace(0.1).poisson_sampled(rate), oracle.sampled_laplace(0.1, rate)),
    ):
        for side in SIDES:
            holds_epsilon(pair, exact, delta, side)
        assert pair.reversed().epsilon(delta, direction="remove") == pair.epsilon(delta, direction="add")


def sampled_laplace_twice_add(scale: float, rate: float, gap: float) -> tuple[Real, Real]:
    """ε at a relative `gap` below twice the largest loss of adding, and δ(ε) of two runs.

    δ(ε) = ∫ p(x) δ₁(ε − L(x)) dx, x the first output. The loss is largest on (−∞, 0), half of P; δ₁ is 0 from where
    L(x) has fallen to ε less its largest value.
    """
    item, b = oracle.sampled_laplace(scale, rate), oracle.real(scale)
    top = largest_loss_of_adding(rate, mp.exp(-1 / b))
    epsilon = oracle.real(float(2 * top * (1 - mp.mpf(gap))))

    def part(x: Real) -> Real:
        loss = largest_loss_of_adding(rate, mp.exp((2 * x - 1) / b))
        return mp.exp(-x / b) / (2 * b) * item.one_sided(epsilon - loss, "add")

    end = item.crossing(top - epsilon)
    return epsilon, item.one_sided(epsilon - top, "add") / 2 + mp.quad(part, [0, end])


@pytest.mark.parametrize("rate", [1 - 1e-10, pytest.param(1 - 1e-7, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [pytest.param(1 / 23, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("gap", [1e-3, *(pytest.param(gap, marks=pytest.mark.slow) for gap in (1e-9, 1e-12))])
def test_sampled_laplace_twice_at_the_end_of_its_losses(rate: float, scale: float, gap: float) -> None:
    pair = DominatingPair.laplace(scale).poisson_sampled(rate).self_compose(2)
    epsilon, truth = sampled_laplace_twice_add(scale, rate, gap)
    result = pair.delta(float(epsilon), direction="add")
    assert result.lower <= truth <= result.upper
    mirrored = pair.delta(-float(epsilon), direction="remove")  # δ_{P‖Q}(−ε) = 1 − e^{−ε}(1 − δ_{Q‖P}(ε))
    assert mirrored.lower <= 1 - mp.exp(-epsilon) * (1 - truth) <= mirrored.upper


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_a_nearly_pure_mechanism_beside_a_sampled_one_at_the_end_of_their_losses(rate: float, kind: str) -> None:
    beside, bit = DominatingPair.approx_dp(0.7, 1e-9), oracle.approx_dp(0.7, 1e-9)
    if kind == "gaussian":
        pair, exact, least = DominatingPair.gaussian(0.05), oracle.sampled_gaussian(0.05, rate), mp.mpf(0)
    else:
        pair, exact, least = DominatingPair.laplace(0.1), oracle.sampled_laplace(0.1, rate), mp.exp(-1 / mp.mpf(0.1))
    pair, product = pair.poisson_sampled(rate).compose(beside), exact.with_atoms(bit)
    for gap in GAPS:
        epsilon = float((largest_loss_of_adding(rate, least) + mp.mpf(0.7)) * (1 - mp.mpf(gap)))
        holds_delta(pair, product, epsilon, "add")
        holds_delta(pair, product, -epsilon, "remove")
    for delta in (1e-8, 2e-9):
        holds_epsilon(pair, product, delta, "add")


# --- masses that underflow, losses beyond float64


@pytest.mark.parametrize(("mu", "epsilon"), [(10, 340.0), (20, 560.0), (20, 600.0), (24, 620.0), (26, 640.0)])
@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_masses_of_q_that_underflow(mu: float, epsilon: float, rate: float) -> None:
    """e^ε Q(L > ε) is as large as P(L > ε), and Q(L > ε) is below 1e-300."""
    pair, exact = DominatingPair.gaussian(1 / mu).poisson_sampled(rate), oracle.sampled_gaussian(1 / mu, rate)
    for side in SIDES:
        holds_delta(pair, exact, epsilon, side)
    holds_epsilon(pair, exact, float(exact.delta(epsilon)), "remove")


def test_a_delta_below_the_least_double() -> None:
    for sigma, epsilon in ((1.0, 60.0), (1 / 7.682348, 300.0), (7.682348, 5.0), (1.0, 1e3)):
        for side in SIDES:
            holds_delta(DominatingPair.gaussian(sigma), oracle.gaussian(sigma), epsilon, side)


@pytest.mark.grid("kind", "count", "size")
@pytest.mark.parametrize("size", [300.0, 500.0, 600.0, 640.0, 660.0, 690.0, 701.0, 740.0, 800.0])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["discrete_laplace", "approx_dp", "approx_dp with δ"])
def test_pure_losses_near_and_beyond_the_largest_double(size: float, count: int, kind: str) -> None:
    if kind == "discrete_laplace":
        pair, item = DominatingPair.discrete_laplace(size), oracle.discrete_laplace(size)
    else:
        lost = 0.0 if kind == "approx_dp" else 1e-9
        pair, item = DominatingPair.approx_dp(size, lost), oracle.approx_dp(size, lost)
    pair, exact = pair.self_compose(count), item.power(count)
    for side in DIRECTIONS:
        for delta in (1e-5, 0.3):
            holds_epsilon(pair, exact, delta, side)
        for epsilon in (0.0, size - 1, size, count * size * (1 - 1e-9)):
            holds_delta(pair, exact, epsilon, side)
        holds_blowup(pair, exact, 1e-3, side)


@pytest.mark.grid
@pytest.mark.parametrize("size", [300.0, 600.0, 800.0])
def test_a_pure_loss_near_the_largest_double_beside_a_gaussian(size: float) -> None:
    pair = DominatingPair.approx_dp(size, 1e-9).compose(DominatingPair.gaussian(0.1))
    exact = oracle.gaussian(0.1).with_atoms(oracle.approx_dp(size, 1e-9))
    for side in DIRECTIONS:
        for epsilon in (0.0, 60.0, size - 1, size + 50.0):
            holds_delta(pair, exact, epsilon, side)
        holds_epsilon(pair, exact, 1e-5, side)


@pytest.mark.parametrize("sigma", [0.1, 0.12, 0.15, 0.2, 0.3])
def test_discrete_gaussians_of_hardly_any_noise(sigma: float) -> None:
    pair, exact = DominatingPair.discrete_gaussian(sigma), oracle.discrete_gaussian(sigma)
    for side in DIRECTIONS:
        for delta in (1e-5, 1e-100, 1e-200):
            holds_epsilon(pair, exact, delta, side)
        for epsilon in (0.0, 1.0, 0.5 / sigma**2, 1.5 / sigma**2):
            holds_delta(pair, exact, epsilon, side)


# --- many buckets, hardly any sampling


def response(uniform: float, buckets: int, adjacency: str) -> Atoms:
    """k-ary randomised response; answers that tell nothing apart are one."""
    other = oracle.real(uniform) / buckets
    truth = 1 - oracle.real(uniform) + other
    if adjacency == "zero_out":
        share = 1 / mp.mpf(buckets)
        return Atoms((truth, 1 - truth), (share, 1 - share))
    rest = (buckets - 2) * other
    return Atoms((truth, other, rest), (other, truth, rest))


RESPONSES = [(1 - 1e-6, 10**6), (1 - 1e-4, 10**5), (1 - 1e-9, 10**8), (0.5, 10**8), (0.5, 3), (1e-12, 5)]


@pytest.mark.parametrize(("uniform", "buckets"), RESPONSES)
@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
def test_randomised_response_with_many_buckets(uniform: float, buckets: int, adjacency: str) -> None:
    pair = dominating_pair(dp_event.RandomizedResponseDpEvent(uniform, buckets), adjacency)
    exact = response(uniform, buckets, adjacency)
    for side in DIRECTIONS:
        p, q = (exact.p, exact.q) if side == "remove" else (exact.q, exact.p)
        largest = max(mp.log(a / b) for a, b in zip(p, q, strict=True))
        for share in (0, 0.5, 1 - 1e-9, 1):
            holds_delta(pair, exact, float(largest * share), side)
        for delta in (1e-3, 1e-7, 1e-12):
            holds_epsilon(pair, exact, delta, side)
        holds_blowup(pair, exact, 1e-6, side)


@pytest.mark.parametrize("rate", [1e-20, 1e-10, 0.3])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one", "zero_out"])
def test_a_sample_without_noise_tells_all_at_its_rate(rate: float, adjacency: str) -> None:
    event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(0.0))
    q = oracle.real(rate)
    here, elsewhere = (1 - q, q, 0), ((1 - q, 0, q) if adjacency == "replace_one" else (1, 0, 0))
    exact = oracle.finite(here, elsewhere)
    pairs = [dominating_pair(event, adjacency)]
    if adjacency != "zero_out":
        mirrored = adjacency == "replace_one"
        pairs.append(DominatingPair.gaussian_mixture([1 - rate, rate], [0.0, 1.0], 0.0, mirrored=mirrored))
    for pair in pairs:
        for side in SIDES:
            for epsilon in (-0.2, 0.0, 0.5, 40.0):
                holds_delta(pair, exact, epsilon, side)
            holds_epsilon(pair, exact, rate / 2, side)
        assert pair.delta(0.5, direction="remove").lower > 0


# --- roundings of parameters


@pytest.mark.parametrize("scale", [3.0, 7.0, 11.0, 49.0, 0.1, 0.125])
def test_the_loss_of_laplace_noise_is_one_over_its_scale_and_not_that_rounded(scale: float) -> None:
    pair, exact = DominatingPair.laplace(scale), oracle.sampled_laplace(scale)
    rounded = 1 / scale
    for epsilon in (rounded, math.nextafter(rounded, 0), math.nextafter(rounded, 1e3), rounded / 3):
        for side in SIDES:
            holds_delta(pair, exact, epsilon, side)
    for delta in (1e-16, 1e-18, 1e-20):
        holds_epsilon(pair, exact, delta, None)


POWERS = [1 - 2.0**-52, 1 - 2.0**-53, 1e-300]


@pytest.mark.grid
@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("sigma", [0.1, 1.0, 100.0])
def test_tests_that_nearly_always_or_never_reject(p: float, sigma: float) -> None:
    for pair, exact in (
        (DominatingPair.gaussian(sigma), oracle.gaussian(sigma)),
        (DominatingPair.laplace(sigma), oracle.sampled_laplace(sigma)),
        (DominatingPair.gaussian(sigma).poisson_sampled(0.3), oracle.sampled_gaussian(sigma, 0.3)),
    ):
        for side in SIDES:
            holds_blowup(pair, exact, p, side)


# --- noise that is next to nothing or next to everything


def holds_everywhere(pair: DominatingPair, exact: Exact, epsilons: Sequence[float], deltas: Sequence[float]) -> None:
    """In 400 digits; B(p) by p ≤ B(p) ≤ p + δ(0) alone."""
    with mp.workdps(400):
        for side in SIDES:
            for epsilon in epsilons:
                holds_delta(pair, exact, epsilon, side)
            for delta in deltas:
                holds_epsilon(pair, exact, delta, side)
            result = pair.blowup(0.01, direction=side)
            assert result.lower <= oracle.real(0.01) + exact.delta(0, side)
            assert result.upper >= 0.01


NOISE = [1e-300, 1e-160, 1e-150, 1e-140, 1e-100, 1e-20, 1e20, 1e100, 1e160, 1e200, 1e300]


@pytest.mark.grid("kind", "noise", "rate")
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_any_noise(noise: float, kind: str, rate: float) -> None:
    plain = DominatingPair.gaussian(noise) if kind == "gaussian" else DominatingPair.laplace(noise)
    exact = (oracle.sampled_gaussian if kind == "gaussian" else oracle.sampled_laplace)(noise, rate)
    epsilons = [-1.0, -1e-3, 0.0, min(1 / noise, 1e200), 1.0, 600.0]
    holds_everywhere(plain.poisson_sampled(rate), exact, epsilons, [0.4, 1e-9])


@pytest.mark.grid
@pytest.mark.parametrize("shift", [1e-16, 1e-60, 1e-160, 1e-300])
@pytest.mark.parametrize("rate", [0.5, 1e-9])
def test_mixtures_with_a_shift_that_is_next_to_nothing(shift: float, rate: float) -> None:
    weights = [1 - rate, rate]
    with mp.workdps(400):
        exact = oracle.sampled_gaussian(1 / oracle.real(shift), normalised(weights)[1])
    pair = DominatingPair.gaussian_mixture(weights, [0.0, shift], 1.0)
    holds_everywhere(pair, exact, [-1e-3, 0.0, shift, 1e-3], [1e-9, 0.1 * shift])


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-20])
def test_pure_losses_that_are_next_to_nothing(size: float) -> None:
    with mp.workdps(400):
        cases = [
            (DominatingPair.discrete_laplace(size), oracle.discrete_laplace(size)),
            (DominatingPair.approx_dp(size), oracle.approx_dp(size)),
            (DominatingPair.approx_dp(size, 1e-200), oracle.approx_dp(size, 1e-200)),
        ]
    for pair, exact in cases:
        holds_everywhere(pair, exact, [-1e-3, 0.0, size / 2, 1e-3], [1e-9, size / 4])


QUIET: dict[str, DominatingPair] = {
    "a shift of 1e-160": DominatingPair.gaussian_mixture([0.5, 0.5], [0.0, 1e-160], 1.0),
    "shifts of 1e-160 and 1e-150": DominatingPair.gaussian_mixture([0.5, 0.3, 0.2], [0.0, 1e-160, 1e-150], 1.0),
    "a mirrored shift of 1e-160": DominatingPair.gaussian_mixture([0.5, 0.5], [0.0, 1e-160], 1.0, mirrored=True),
    "a Gaussian of 1e100": DominatingPair.gaussian(1e100),
    "Laplace noise of 1e200": DominatingPair.laplace(1e200),
    "sampled Laplace noise of 1e200": DominatingPair.laplace(1e200).poisson_sampled(0.5),
    "a sampled Gaussian of 1e200": DominatingPair.gaussian(1e200).poisson_sampled(0.5),
    "hardly any noise, twice": DominatingPair.gaussian(0.03).poisson_sampled(0.5).self_compose(2),
    "a rate of 1e-5, twice": DominatingPair.gaussian(1.0).poisson_sampled(1e-5).self_compose(2),
    "a pure loss of 300, twice": DominatingPair.approx_dp(300.0).self_compose(2),
    "a Gaussian of 1e-160": DominatingPair.gaussian(1e-160),
    "a Gaussian of 1e-20": DominatingPair.gaussian(1e-20),
    "a Gaussian of 1e160": DominatingPair.gaussian(1e160),
    "a Gaussian of 1e200": DominatingPair.gaussian(1e200),
    "a sampled Gaussian of 1e-160": DominatingPair.gaussian(1e-160).poisson_sampled(0.5),
    "Laplace noise of 1e-160": DominatingPair.laplace(1e-160),
    "sampled Laplace noise of 1e-160": DominatingPair.laplace(1e-160).poisson_sampled(0.5),
    "a pure loss of 500, twice": DominatingPair.approx_dp(500.0).self_compose(2),
    "a pure loss of 640, twice": DominatingPair.discrete_laplace(640.0).self_compose(2),
    "a pure loss of 800, twice": DominatingPair.discrete_laplace(800.0).self_compose(2),
}

RUNS_OF_SECONDS = ("hardly any noise, twice", "a rate of 1e-5, twice")


@pytest.mark.grid
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in RUNS_OF_SECONDS else name for name in QUIET]
)
def test_nothing_but_widths_is_warned_of(name: str) -> None:
    pair = QUIET[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", WidthNotMet)
        for epsilon in (-1.0, 0.0, 1.0, 600.0):
            pair.delta(epsilon)
        for delta in (0.1, 1e-12):
            pair.epsilon(delta)
        pair.blowup(0.01)
        pair.mu(0.1)


# --- μ


def test_no_mu_is_needed_where_every_delta_is_small_enough() -> None:
    """TV(N(.001, 1), N(0, 1)) = 4e-4 is below .1: μ = 0 will do."""
    assert DominatingPair.gaussian(1000.0).mu(0.1) == Interval(0.0, 0.0)
    assert DominatingPair.gaussian(1000.0).mu(3e-4).lower > 0
    assert 1.0 in DominatingPair.gaussian(1.0).mu(0.1)


def test_a_hundred_thousand_equal_gaussians_are_counted_without_rounding() -> None:
    sigma, count = 300.0, 10**5
    item = DominatingPair.gaussian(sigma)
    chained = DominatingPair.identity().compose(*[item] * count)
    assert chained.gaussian_mu == item.self_compose(count).gaussian_mu
    exact = oracle.gaussians([sigma], [count])
    for delta in (1e-3, 1e-12):
        assert chained.epsilon(delta) == item.self_compose(count).epsilon(delta)
        holds_epsilon(chained, exact, delta, None)


def test_a_sum_of_ten_thousand_different_squares_is_rounded_once() -> None:
    """Each composition makes a Gaussian of the two before: rounded each time, √Σμ² would be off by many units."""
    sigmas = [300.0 + index % 7 for index in range(10_000)]
    total = DominatingPair.identity().compose(*map(DominatingPair.gaussian, sigmas))
    squares = sum((Fraction(1 / sigma) ** 2 for sigma in sigmas), Fraction(0))
    mu = total.gaussian_mu
    assert mu is not None
    assert abs(Fraction(mu) ** 2 / squares - 1) <= Fraction(8, 2**53)  # a division, a root, a product; and doubled
    holds_epsilon(total, oracle.gaussians(sigmas), 1e-9, None)


# --- hardly any noise, many runs


def told_draws(sigma: float, rate: float, count: int, epsilon: float, side: Direction) -> Real:
    """δ(ε) where the adversary knows in which runs the unit was drawn: Gaussians of μ = √k/σ, k binomial."""
    q, parts = oracle.real(rate), []
    for k in range(count + 1):
        weight = mp.binomial(count, k) * q**k * (1 - q) ** (count - k)
        parts.append(
            weight * (oracle.gaussians([sigma], [k]).delta(epsilon, side) if k else max(0, -mp.expm1(epsilon)))
        )
    return mp.fsum(parts)


def bits(exact: oracle.Line, x: Real) -> Atoms:
    """Whether an output is above x: a post-processing, so it costs no more."""
    (p, q), (p_below, q_below) = exact.above(x), exact.below(x)
    return Atoms((p, p_below), (q, q_below))


@pytest.mark.parametrize(
    ("sigma", "count"),
    [
        (0.01, 1),
        (0.02, 1),
        (0.05, 2),
        (0.05, 10),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in ((0.01, 10), (0.02, 10), (0.03, 2), (0.03, 10), (0.05, 3))
        ),
    ],
)
def test_half_samples_with_hardly_any_noise(sigma: float, count: int) -> None:
    """Between what a bit of each output tells and, as H_t is convex, what knowing the draws tells."""
    item = oracle.sampled_gaussian(sigma, 0.5)
    pair = DominatingPair.gaussian(sigma).poisson_sampled(0.5).self_compose(count)
    least = bits(item, mp.mpf(1) / 2).power(count)
    for side in DIRECTIONS:
        for epsilon in (0.6, 500.0):
            result = pair.delta(epsilon, direction=side)
            assert least.delta(epsilon, side) <= result.upper
            assert result.lower <= told_draws(sigma, 0.5, count, epsilon, side)
        result = pair.epsilon(1e-5, direction=side)
        assert result.lower == 0 or told_draws(sigma, 0.5, count, result.lower, side) >= 1e-5
        assert result.upper == math.inf or least.delta(result.upper, side) <= 1e-5
        assert least.blowup(1e-3, side) <= pair.blowup(1e-3, direction=side).upper


# --- truncated samples


def half_lines(event: TruncatedPoissonSampledDpEvent, others: int, x: Real, *, null: bool) -> Atoms:
    """Whether the sum is above x, where the unit adds 1 and each other one adds `others`; Q is without the unit, or
    (`null`) with a unit that adds 0.

    With k others drawn: below the limit B the unit joins with probability q; otherwise, with probability qB/(k + 1), in
    the place of one of them.
    """
    q, size, limit = oracle.real(event.sampling_probability), event.source_dataset_size - 1, event.max_batch_size
    chances = [math.comb(size, k) * q**k * (1 - q) ** (size - k) for k in range(size + 1)]

    def above(index: Real) -> Real:
        return oracle.normal_cdf((index - x) / oracle.real(event.event.noise_multiplier))

    replaced = mp.fsum(chances[k] * q * limit / (k + 1) for k in range(limit, size + 1))
    kept = mp.fsum(chances[limit:]) - replaced
    low = [above(others * k) for k in range(min(limit, size + 1))]
    high = [above(others * k + 1) for k in range(min(limit, size + 1))]
    full, swapped = above(others * limit), above(others * (limit - 1) + 1)
    missing = above(others * (limit - 1)) if null else full
    p = mp.fsum(c * ((1 - q) * a + q * b) for c, a, b in zip(chances, low, high, strict=False)) + kept * full
    reference = mp.fsum(c * a for c, a in zip(chances, low, strict=False)) + kept * full
    p, reference = p + replaced * swapped, reference + replaced * missing
    return Atoms((p, 1 - p), (reference, 1 - reference))


TRUNCATED = [(1000, 10, 0.5), (1000, 10, 0.01), (1000, 100, 0.01), (4, 3, 0.9), (12, 1, 0.3)]


@pytest.mark.grid
@pytest.mark.parametrize(("size", "limit", "rate"), TRUNCATED)
@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("count", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_truncated_samples_cover_a_sum(size: int, limit: int, rate: float, null: bool, count: int) -> None:
    """What tells whether each sum is above a point is a post-processing of the sums."""
    event = TruncatedPoissonSampledDpEvent(rate, size, limit, dp_event.GaussianDpEvent(0.5))
    pair = dominating_pair(dp_event.SelfComposedDpEvent(event, count), "zero_out" if null else "add_remove")
    assert not pair.tight
    bounds = {
        (side, epsilon): pair.delta(epsilon, direction=side).upper for side in DIRECTIONS for epsilon in (0.0, 0.5, 2.0)
    }
    for others in (0, -1):
        for index in (0.5, 1, 1.5):
            told = half_lines(event, others, others * limit + mp.mpf(index), null=null).power(count)
            for (side, epsilon), upper in bounds.items():
                assert told.delta(epsilon, side) <= upper


# --- disjoint parts and responses


def test_parts_that_a_unit_moves_between_are_not_said_to_be_attained() -> None:
    """A unit leaves one part and enters another, so the pair bounds what no neighbours attain."""
    parts = [dp_event.GaussianDpEvent(1.0), dp_event.GaussianDpEvent(2.0)]
    moved = dominating_pair(ParallelDpEvent(parts), "replace_one")
    assert not moved.tight
    assert not moved.compose(DominatingPair.gaussian(3.0)).tight
    assert not moved.self_compose(2).tight
    assert not dominating_pair(ParallelDpEvent(parts[:1] * 2), "replace_one").tight
    assert dominating_pair(ParallelDpEvent(parts, True), "replace_one").tight
    assert dominating_pair(ParallelDpEvent(parts), "add_remove").tight


@pytest.mark.parametrize("epsilon", [0.5, 4.0, 6.0, 8.0])
def test_a_unit_that_moves_leaves_one_part_and_enters_the_other(epsilon: float) -> None:
    """A sampled Gaussian costs most where the unit leaves, randomised response where it enters: the worst is mixed."""
    parts = (
        dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(0.3)),
        dp_event.RandomizedResponseDpEvent(0.01, 2),
    )
    pair = dominating_pair(ParallelDpEvent(parts), "zero_out")
    assert not pair.tight
    sampled, flip = oracle.sampled_gaussian(0.3, 0.1), oracle.randomised_response(0.01, 2, null=True)
    for exact in (sampled.with_atoms(flip), sampled.with_atoms(Atoms(flip.q, flip.p))):
        for side in SIDES:
            assert exact.delta(epsilon, side) <= pair.delta(epsilon).upper


@pytest.mark.parametrize(
    "event",
    [
        dp_event.RandomizedResponseDpEvent(0.1, 2),
        dp_event.ComposedDpEvent([dp_event.GaussianDpEvent(1.0), dp_event.RandomizedResponseDpEvent(0.1, 2)]),
        dp_event.SelfComposedDpEvent(dp_event.RandomizedResponseDpEvent(0.1, 2), 1),
    ],
)
def test_sampled_responses_are_refused(event: DpEvent) -> None:
    """Whether a unit answers at all shows whether it was drawn, which a null record does not hide."""
    with pytest.raises(Unsupported, match="a response reveals that its unit was sampled"):
        dominating_pair(dp_event.PoissonSampledDpEvent(0.1, event), "zero_out")


# --- both curves of a lattice


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Compares the two curves of every lattice, before the better ends of several are taken, and counts them.

    Beyond float64 a curve has no answer, which is no number: only a lower end that is above the upper one is wrong.
    """
    curves, count = Enclosure.curves, 0
    ps = np.concatenate([np.geomspace(1e-12, 0.5, 40), 1 - np.geomspace(1e-12, 0.5, 20)])
    deltas = np.geomspace(1e-14, 0.9, 40)

    def checked(self: Enclosure, plan: LatticePlan) -> tuple[OneSidedCurve, OneSidedCurve | None]:
        nonlocal count
        above, below = curves(self, plan)
        if below is not None:
            count += 1
            epsilons = np.concatenate([np.linspace(-5, 30, 200), above.losses, below.losses])
            assert not (below.delta(epsilons) > above.delta(epsilons)).any()
            assert not any(below.epsilon(delta) > above.epsilon(delta) for delta in deltas)
            assert not (below.blowup(ps) > above.blowup(ps)).any()
        return above, below

    monkeypatch.setattr(Enclosure, "curves", checked)
    monkeypatch.setattr("dpassay.accounting.lattice.enclosure.ATTEMPTS", 3)  # the finest lattices take seconds
    return lambda: count


@pytest.mark.grid
@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.slow] * (name == "discrete_gaussian")) for name in FAMILIES]
)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))])
def test_the_lower_curve_never_crosses_the_upper_one(family: str, seed: int, compared: Callable[[], int]) -> None:
    """In a lattice of any two laws, also of those that need none."""
    chance = random.Random(f"curves {family} {seed}")
    pairs = FAMILIES[family](chance).pair, FAMILIES[chance.choice(sorted(FAMILIES))](chance).pair
    counts = chance.choice([1, 2, 5, 30]), chance.choice([1, 3])
    for side in DIRECTIONS:
        enclosure = Enclosure([law for pair, n in zip(pairs, counts, strict=True) for law in laws_of(pair, side, n)])
        enclosure.epsilon(10 ** chance.uniform(-12, -1), 1e-2)
        enclosure.delta(chance.uniform(0, 8), 1e-2)
        enclosure.blowup(10 ** chance.uniform(-8, -0.1), 1e-2)
    assert compared()


def laws_of(pair: DominatingPair, side: Direction, count: int) -> list[tuple[Law, int]]:
    """One direction of `count` runs of a single mechanism, none of one that says nothing."""
    (composition,) = pair.alternatives
    return [(getattr(component, side), count) for component, _ in composition]


# --- where a quotient, a factor or a sum leaves float64


@pytest.mark.parametrize(("mu", "rate", "epsilon"), [(40, 1e-40, 640.0), (60, 1e-27, 650.0), (60, 1e-30, 500.0)])
def test_odds_beyond_float64_hide_no_loss(mu: int, rate: float, epsilon: float) -> None:
    """e^ε/q is infinite in float64, the loss is not."""
    pair = DominatingPair.gaussian(1 / mu).poisson_sampled(rate)
    truth = oracle.sampled_gaussian(1 / mu, rate).delta(epsilon, "remove")
    assert truth <= pair.delta(epsilon, direction="remove").upper
    assert truth <= pair.self_compose(2).delta(epsilon, direction="remove").upper  # a run is a part of two
    assert pair.epsilon(float(truth), direction="remove").upper >= epsilon


@pytest.mark.parametrize(("mu", "top"), [(1.2926973921751477, 1238.1618419943914), (0.0687054, 50.1775)])
def test_profiles_far_from_their_lattice_are_bounds(mu: float, top: float) -> None:
    """A curve is e^{a number far below −745} times another that is as large."""
    pair, exact = gaussian_by_cdfs(mu).self_compose(100), oracle.gaussian(1 / (10 * oracle.real(mu)))
    epsilons = np.linspace(0, top, 60)
    low, high = pair.privacy_profile(epsilons, "remove")
    assert (low <= high).all()
    for epsilon, least, most in zip(epsilons, low, high, strict=True):
        assert least <= exact.delta(float(epsilon), "remove") <= most


def test_what_a_curve_known_from_above_does_not_exclude_is_possible() -> None:
    told = DominatingPair.approx_dp(800, 0.01)
    assert told.blowup(0.0).upper >= 0.01
    assert told.self_compose(2).blowup(0.0).upper >= 0.0199
    assert told.beta(0.0).lower <= 0.99
    assert DominatingPair.blend([told, DominatingPair.laplace(1.0)], [0.5, 0.5]).blowup(0.0).upper >= 0.005


@pytest.mark.parametrize("epsilon", [580.2847703057573, 578.1514])
def test_a_product_with_a_subnormal_mass_is_charged(epsilon: float) -> None:
    weight = 2.0**-46
    pair = DominatingPair.gaussian_mixture([weight, 1 - weight], [0, 20.0], 1.0, mirrored=True)
    truth = oracle.gaussian_mixture([weight, 1 - weight], [0, 20], 1, [weight, 1 - weight], [0, -20]).delta(
        epsilon, "remove"
    )
    assert truth <= pair.delta(epsilon, direction="remove").upper


def test_the_largest_loss_of_a_rare_outcome_is_known_no_better_than_its_masses() -> None:
    p, q = [9.825210493791973e-150, 0.4, 0.6], [6.241695758092576e-150, 0.41, 0.59]
    pair = DominatingPair.finite(p, q)
    for rate in (0.9, 1e-3):
        sampled = pair.poisson_sampled(rate)
        mixed = [(1 - oracle.real(rate)) * b + oracle.real(rate) * a for a, b in zip(p, q, strict=True)]
        exact = oracle.finite(mixed, q)
        highest = float(oracle.mp.log(mixed[0] / q[0]))
        for units in (-200, -50, -4, 0, 4):
            epsilon = highest * (1 + units * 2.0**-53)
            assert exact.delta(epsilon, "remove") <= sampled.delta(epsilon, direction="remove").upper


def test_masses_that_sum_to_one_only_when_rounded() -> None:
    """Told for certain but for less than a rounding; and a law all of whose outcomes tell all."""
    assert DominatingPair.finite([1.0, 1e-17], [0.0, 1.0]).self_compose(2).delta(0.5).upper == 1.0
    sixths = DominatingPair.finite([1 / 6] * 6 + [0], [0] * 6 + [1])
    assert sixths.compose(DominatingPair.discrete_gaussian(1.0)).delta(1.0) == Interval(1.0, 1.0)


@pytest.mark.parametrize(("rho", "xi"), [(1e-9, 0.0), (0.01, 0.0), (0.3, 0.5), (50.0, 0.0)])
def test_the_curve_of_zcdp_tries_every_order_that_is_best_somewhere(rho: float, xi: float) -> None:
    """In blocks of ε only the orders between the best of both ends are tried: as good as all orders at each ε."""
    law = concentrated_curve.law(Fraction(rho), Fraction(xi))
    low, high = law.support(0.0, 0.0)
    losses = np.linspace(low, high, 5001)
    together = law.hockey_stick_upper(losses)
    apart = np.concatenate([law.hockey_stick_upper(losses[index : index + 1]) for index in range(0, losses.size, 50)])
    np.testing.assert_array_equal(together[::50], apart)


@pytest.mark.parametrize("shift", [1e-45, 1e-200, 5e-324])
@pytest.mark.parametrize("side", DIRECTIONS)
def test_a_shift_that_underflows_counts_as_still(shift: float, side: Direction) -> None:
    """Beside another component without a shift, it was counted neither as still nor as moved."""
    tiny = DominatingPair.gaussian_mixture([0.5, 0.3, 0.2], [0.0, shift, 1e150], 1e150)
    none = DominatingPair.gaussian_mixture([0.8, 0.2], [0.0, 1e150], 1e150)
    for epsilon in (0.0, 0.5):
        result, expected = tiny.delta(epsilon, direction=side), none.delta(epsilon, direction=side)
        assert result.lower <= expected.upper
        assert expected.lower <= result.upper
        assert result.width <= 1e-3 * result.upper or result.upper < 1e-300  # 0 beyond −log of what is still


@pytest.mark.parametrize("side", DIRECTIONS)
@pytest.mark.parametrize(
    ("epsilon", "delta", "count", "at"), [(0.5, 0.05, 20, 0.1001), (1.0, 1e-3, 200, 0.021), (1.0, 1e-3, 200, 0.05)]
)
def test_samples_of_what_may_tell_all_have_narrow_answers(
    epsilon: float, delta: float, count: int, at: float, side: Direction
) -> None:
    """Of what is left when the other law is taken out, too, only the finite losses are merged into the last point."""
    pair = DominatingPair.approx_dp(epsilon, delta).poisson_sampled(0.1).self_compose(count)
    result = pair.epsilon(at, direction=side)
    assert result.upper - result.lower <= 1e-3 * result.upper


@pytest.mark.parametrize("rate", [1e-290, 1e-300, 1e-302])
def test_the_largest_loss_of_a_rare_sample_is_not_too_small(rate: float) -> None:
    """log(1 − q + q e^ε) at an ε where e^ε is near the end of float64, to 50 digits."""
    law = DominatingPair.laplace(1 / 701.0).poisson_sampled(rate).alternatives[0][0][0].remove
    with mp.workdps(50):
        exact = mp.log(1 - mp.mpf(rate) + mp.mpf(rate) * mp.exp(1 / mp.mpf(1 / 701.0)))
        assert law.highest + 2 * law.end_error >= exact


def test_of_a_blend_of_rounded_weights_no_infinite_loss_is_known_from_below() -> None:
    both = [DominatingPair.approx_dp(1.0, 0.2), DominatingPair.laplace(1.0)]
    assert DominatingPair.blend(both, [0.9, 0.9], rounded_up=True).epsilon(0.1).lower == 0.0


@pytest.mark.parametrize(
    ("weights", "shifts", "deviation"),
    [([1.0], [5e-324], 10.0), ([0.5, 0.5], [0.0, 5e-324], 10.0), ([0.3, 0.7], [1.0, 0.0], 1e308)],
)
@pytest.mark.parametrize("count", [1, 10])
def test_a_mixture_that_hardly_moves_costs_hardly_anything(
    weights: list[float], shifts: list[float], deviation: float, count: int
) -> None:
    """All of its shifts underflowed to 0, and there was no answer."""
    pair = DominatingPair.gaussian_mixture(weights, shifts, deviation).self_compose(count)
    assert pair.epsilon(1e-5) == Interval(0.0, 0.0)
    assert pair.delta(0.1).upper <= 1e-300
    alone = DominatingPair.laplace(1.0)
    both, item = pair.compose(alone).epsilon(0.1), alone.epsilon(0.1)
    assert both.lower <= item.upper * (1 + 1e-12)
    assert item.lower <= both.upper <= 1.001 * item.upper
