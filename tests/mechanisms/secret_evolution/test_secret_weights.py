"""Records that always count, with a weight each: sums in whole numbers, one Gaussian, r against a quadrature."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from property_settings import examples
from scipy.signal import fftconvolve
from scipy.sparse import csr_array
from scipy.stats import norm

from dpassay.accounting.events import SecretGroupsReleaseDpEvent, SecretReleaseDpEvent
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.secret_protection.accountant import SecretProtectionAccountant
from dpassay.accounting.secret_protection.groups import of_group, releases_of_lengths
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.secret_evolution import clustering
from dpassay.mechanisms.secret_evolution.clustering import PublicClusters, exact_sums, release
from dpassay.mechanisms.secret_evolution.incidence import Incidence
from dpassay.mechanisms.secret_evolution.inclusion import SecretNoise, inclusion_weights

Floats = NDArray[np.float64]


class Undrawn(Recorded):
    """Draws no record, and remembers what noise of which scale was added to."""

    def __init__(self) -> None:
        super().__init__(0)
        self.asked: list[tuple[Floats, float]] = []

    def add_gaussian(self, values: object, scale: float) -> Floats:
        self.asked.append((np.array(values, dtype=np.float64), scale))
        return self.asked[-1][0]

    def bernoulli(self, probabilities: object) -> NDArray[np.bool_]:
        raise AssertionError("a record was drawn")


def before_noise(
    clusters: PublicClusters, vectors: Floats, weights: Floats, sigma: float = 1.0
) -> tuple[Floats, float]:
    """The numbers of a release that get noise, and its scale."""
    source = Undrawn()
    release(clusters, vectors, weights, sigma, source, inclusion="weights")
    ((exact, scale),) = source.asked
    return exact, scale


def layout(seed: int, count: int) -> tuple[PublicClusters, Floats, Floats]:
    """Centres in a ball; vectors opposite to centres, too long, zero or not finite; weights of any size."""
    generator = np.random.default_rng(seed)
    centres, dimension = generator.integers(1, 4), generator.integers(1, 5)
    radius = float(generator.choice([1.0, 0.3, 7.0]))
    points = generator.normal(size=(centres, dimension))
    points *= radius / np.linalg.norm(points, axis=1, keepdims=True) * generator.uniform(0.5, 1, (centres, 1))
    kinds = [
        -points[generator.integers(centres, size=count)] * 50,
        generator.normal(size=(count, dimension)) * 10.0 ** generator.integers(-9, 30, (count, 1)),
        generator.choice([np.nan, np.inf, -np.inf, 0.0, 0.5], (count, dimension)),
    ]
    vectors = np.array(kinds, dtype=np.float64)[generator.integers(len(kinds), size=count), np.arange(count)]
    weights = generator.choice([1.0, 0.0, 2.0**-30, 2.0**-31, generator.random(), generator.random() * 1e-6], count)
    return PublicClusters(points.astype(np.float32), generator.integers(1, 50, centres), radius), vectors, weights


# The release


@examples(15, 60)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 10))
def test_another_value_moves_the_release_by_at_most_root_two_times_its_weight(seed: int, count: int) -> None:
    """Against the release without the secret's records, in whole numbers: any vectors that another value may give."""
    clusters, vectors, weights = layout(seed, count)
    generator = np.random.default_rng(seed)
    holders = generator.random(count) < 0.6
    rounded = clustering.rounded_weights(weights)
    spent = int(sum(Fraction(w) * 2**30 for w in rounded[holders].tolist()))
    without = exact_sums(clusters, vectors, np.where(holders, 0.0, rounded))
    for _ in range(3):
        other = np.where(holders[:, None], layout(int(generator.integers(10**6)), count)[1][:, :1], vectors)
        changed = exact_sums(clusters, other, rounded)
        moved = sum(int(n) ** 2 for a, b in zip(changed, without, strict=True) for n in (a - b).ravel())
        assert moved <= 2 * spent**2


def test_the_bound_is_reached_in_the_worst_place() -> None:
    """Three records opposite to the only centre: all but 2⁻²⁷ of √2 times their weight."""
    centre = np.array([[0.6, -0.8]], dtype=np.float32)
    clusters, weights = PublicClusters(centre, np.array([9]), 1.0), np.array([1.0, 0.25, 0.125])
    exact, _ = before_noise(clusters, np.repeat(-5.0 * centre, 3, axis=0), weights)
    assert 1 - 2.0**-24 < float(np.linalg.norm(exact)) / (math.sqrt(2) * 1.375) <= 1 + 1e-15


@examples(15, 60)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 10))
def test_weighted_sums_are_those_of_fractions(seed: int, count: int) -> None:
    clusters, vectors, weights = layout(seed, count)
    counts = [Fraction(0)] * clusters.count
    sums = [[0] * clusters.vectors.shape[1] for _ in counts]
    units = [math.floor(Fraction(w) * 2**30) for w in weights.tolist()]
    positions = clustering.positions_of(vectors, clusters.radius).tolist()
    centres = clustering.positions_of(clusters.vectors, clusters.radius).tolist()
    for unit, position, cluster in zip(units, positions, clusters.assign(vectors).tolist(), strict=True):
        counts[cluster] += Fraction(unit, 2**30)
        for axis, (x, c) in enumerate(zip(position, centres[cluster], strict=True)):
            sums[cluster][axis] += int(Fraction(unit * (x - c), 2**30))  # toward zero
    exact, scale = before_noise(clusters, vectors, weights, 1.7)
    assert exact.tolist() == [*counts, *(Fraction(n, 2**30) for row in sums for n in row)]
    assert Fraction(scale) ** 2 >= 2 * Fraction(1.7) ** 2


def test_weights_of_one_are_records_that_are_all_drawn() -> None:
    clusters, vectors, _ = layout(7, 9)
    always, noisy = np.ones(9), Recorded(3)
    drawn = release(clusters, vectors, always, 2.0, Recorded(3))
    noisy.bernoulli(always)  # what the other release draws first
    weighted = release(clusters, vectors, always, 2.0, noisy, inclusion="weights")
    assert np.array_equal(drawn.centres, weighted.centres)
    assert np.array_equal(drawn.sizes, weighted.sizes)


def test_weights_outside_of_0_and_1_are_refused() -> None:
    clusters, vectors, _ = layout(1, 2)
    for wrong in ([0.5, 1.5], [-0.1, 0.5], [math.nan, 0.5]):
        with pytest.raises(ValueError, match=r"^weights must be numbers from 0 to 1$"):
            release(clusters, vectors, wrong, 1.0, Undrawn(), inclusion="weights")
    with pytest.raises(ValueError, match="inclusion must be one of coins, weights"):
        release(clusters, vectors, [0.5, 0.5], 1.0, Undrawn(), inclusion="dice")  # type: ignore[arg-type]


def test_the_largest_sums_are_exact() -> None:
    """2²² records of weight 1, each 2³⁰ units in a count or a sum, and no product above 63 bits."""
    assert clustering.MAX_RECORDS * 2**clustering.WEIGHT_BITS < 2**53
    assert 2**30 * 2**clustering.WEIGHT_BITS < 2**63


# Noise and events


def places(rows: list[list[int]], records: int, *budgets: SecretProtection, group: list[int]) -> Incidence:
    matrix = np.zeros((len(rows), records), dtype=bool)
    for secret, where in enumerate(rows):
        matrix[secret, where] = True
    return Incidence(csr_array(matrix), budgets, np.array(group))


def eta(goal: SecretProtection) -> float:
    return float(norm.isf(goal.p) - norm.isf(goal.r))


GOAL, WIDE = SecretProtection(1e-3, 1e-2), SecretProtection(1e-3, 0.2)


@pytest.mark.parametrize("rounds", [1, 10])
@pytest.mark.parametrize("sample", [None, 0.02, 20.0])
def test_the_noise_is_that_of_the_secret_that_spends_most(rounds: int, sample: float | None) -> None:
    """σ₁ = √T·max s_j/η_j to a relative 1e-9, over two budgets; weights are multiples of 2⁻³⁰, rounded down."""
    matrix = np.random.default_rng(8).random((12, 60)) < 0.1
    result = Incidence(csr_array(matrix), (GOAL, WIDE), np.arange(12) % 2)
    noise = SecretNoise.fit(result, rounds=rounds, expected_sample=sample, inclusion="weights")
    coins = SecretNoise.fit(result, rounds=1, expected_sample=sample).probabilities
    units = [Fraction(w) * 2**30 for w in noise.probabilities.tolist()]
    assert all(unit.denominator == 1 for unit in units)
    assert ((coins - noise.probabilities >= 0) & (coins - noise.probabilities < 2.0**-29)).all()
    spent = [sum((units[i] for i in np.flatnonzero(row)), start=Fraction(0)) / 2**30 for row in matrix]
    least = max(float(s) / eta((GOAL, WIDE)[j % 2]) for j, s in enumerate(spent)) * math.sqrt(rounds)
    assert noise.sigma == pytest.approx(least, rel=1e-9)
    event = noise.event()
    assert isinstance(event, SecretGroupsReleaseDpEvent)
    for group, goal in enumerate((GOAL, WIDE)):
        own = event.groups[group]
        assert isinstance(own, SecretReleaseDpEvent)
        assert own.weights == (0.0, 1.0)
        assert Fraction(own.noise_multiplier) * max(spent[group::2]) <= Fraction(noise.sigma)
        got = SecretProtectionAccountant().compose(of_group(event, group), rounds).protection(goal.p)
        assert got.value <= goal.r


def test_it_takes_less_noise_than_coins() -> None:
    """A secret in forty records of equal weight: noise of coins over noise of weights, at p = 10⁻⁴ and r/p = 10."""
    result = places([list(range(40))], 40, SecretProtection(1e-4, 1e-3), group=[0])
    for rounds, least in ((1, 1.2), (10, 1.02)):
        coins, weights = (
            SecretNoise.fit(result, rounds=rounds, expected_sample=0.6, inclusion=how) for how in ("coins", "weights")
        )
        assert weights.expected_sample == pytest.approx(coins.expected_sample, rel=1e-6)
        assert coins.sigma > least * weights.sigma


def test_secrets_that_occur_nowhere_or_may_be_revealed_take_no_noise() -> None:
    nowhere = places([[]], 3, GOAL, group=[0])
    noise = SecretNoise.fit(nowhere, rounds=2, inclusion="weights")
    assert (noise.sigma, noise.expected_sample) == (0.0, 0.0)
    assert SecretProtectionAccountant().compose(noise.event(), 2).protection(0.1).value <= 0.1 * (1 + 1e-12)
    free = places([[0, 1]], 3, SecretProtection(0.1, 1.0), group=[0])
    assert SecretNoise.fit(free, rounds=2, inclusion="weights").sigma == 0.0
    both = places([[0, 1], [1, 2], []], 4, SecretProtection(0.1, 1.0), GOAL, group=[0, 1, 1])
    mixed = SecretNoise.fit(both, rounds=1, inclusion="weights")
    event = mixed.event()
    assert SecretProtectionAccountant().compose(of_group(event, 1)).protection(GOAL.p).value <= GOAL.r
    with pytest.raises(ValueError, match="inclusion must be one of coins, weights"):
        SecretNoise.fit(both, rounds=1, inclusion="dice")  # type: ignore[arg-type]


def test_impossible_goals_of_lengths() -> None:
    with pytest.raises(ValueError, match="no noise is certified to reach it; give a larger r"):
        releases_of_lengths([1.0], [SecretProtection(0.1, 0.1)])
    with pytest.raises(ValueError, match="lengths must be at least 0"):
        releases_of_lengths([-1.0], [GOAL])


# r against a quadrature


def r_by_quadrature(moved: Floats, scale: float, rounds: int, width: float = 5e-4) -> tuple[Floats, Floats]:
    """Pairs (p, r) of best tests between `rounds` releases without and with the secret, by integrals on a grid.

    The log-likelihood ratio of a number that moves by d is ℓ = (xd − d²/2)/s², x its noise, or its noise and d. Ratios
    of independent numbers add up, so their densities are convolved, one for every number and release. Tests are ℓ > t;
    sums on a grid of smooth densities err by far less than the half cell at t, of a relative width² or so.
    """
    tails = []
    for present in (0.0, 1.0):
        density, start = np.ones(1) / width, 0
        for _ in range(rounds):
            for d in np.abs(moved[moved != 0]).tolist():
                first, own = _ratio_density(d, present * d, scale, width)
                density, start = fftconvolve(density, own) * width, start + first
        tails.append((np.cumsum(density[::-1])[::-1] - density / 2) * width)
    return tails[0], tails[1]


def _ratio_density(d: float, mean: float, scale: float, width: float) -> tuple[int, Floats]:
    """The density of ℓ on the multiples of `width`, x around `mean`, and the first of them; the same for both means."""
    slope = d / scale**2
    low, high = ((x * d - d * d / 2) / scale**2 for x in (-11 * scale, d + 11 * scale))
    index = np.arange(math.floor(low / width), math.ceil(high / width) + 1)
    x = width * index / slope + d / 2
    return int(index[0]), np.exp(-(((x - mean) / scale) ** 2) / 2) / (scale * math.sqrt(2 * math.pi)) / slope


@pytest.mark.parametrize("rounds", [1, 10])
@pytest.mark.parametrize("goal", [SecretProtection(1e-4, 1e-3), SecretProtection(0.01, 0.3)], ids=str)
def test_r_is_that_of_a_quadrature(goal: SecretProtection, rounds: int) -> None:
    """Counts and centres of the code's own release, with and without the records of a secret, in the worst place.

    The accountant's r is that of the integral at every p from 10⁻⁵ to a half, to a relative 2e-6; at the claimed p it
    is the claimed r. With √½ of the noise, which is for the counts alone, the integral is far above it.
    """
    result = places([[0, 1, 2], [2, 3]], 5, goal, group=[0, 0])
    noise = SecretNoise.fit(result, rounds=rounds, inclusion="weights")
    centre = np.array([[0.6, -0.8]], dtype=np.float32)
    clusters, vectors = PublicClusters(centre, np.array([9]), 1.0), np.repeat(-2.0 * centre, 4, axis=0)
    sums = result.matrix[:, :4].astype(float) @ noise.probabilities[:4]
    holders = result.matrix[[int(np.argmax(sums))]].indices
    without = noise.probabilities[:4].copy()
    without[holders] = 0.0
    with_secret, scale = before_noise(clusters, vectors, noise.probabilities[:4], noise.sigma)
    moved = with_secret - before_noise(clusters, vectors, without, noise.sigma)[0]
    assert np.count_nonzero(moved) == 3  # a count and both coordinates of a centre
    ps, rs = r_by_quadrature(moved, scale, rounds)
    accountant = SecretProtectionAccountant().compose(noise.event(), rounds)
    some = [int(np.argmin(np.abs(np.log(np.maximum(ps, 1e-300) / p)))) for p in (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5)]
    for index in some:
        assert accountant.protection(float(ps[index])).value == pytest.approx(rs[index], rel=2e-6)
    at_claim = float(np.interp(goal.p, ps[::-1], rs[::-1]))
    assert at_claim == pytest.approx(goal.r, rel=1e-4)
    half_ps, half_rs = r_by_quadrature(moved, scale / math.sqrt(2), rounds)
    assert np.interp(goal.p, half_ps[::-1], half_rs[::-1]) > 1.4 * goal.r


def test_weights_are_those_of_the_linear_program() -> None:
    result = places([[0, 1, 2, 3], [5]], 7, GOAL, group=[0, 0])
    noise = SecretNoise.fit(result, rounds=1, inclusion="weights")
    program: Any = inclusion_weights(result)
    assert noise.probabilities == pytest.approx(program / program.max(), abs=2.0**-29)
    assert noise.inclusion == "weights"
    assert noise.event() == noise.published_event()
