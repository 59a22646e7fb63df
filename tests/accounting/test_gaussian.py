"""Gaussian releases against 50-digit arithmetic, quadrature over every sample, and independently computed numbers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import gaussian
from dpassay.accounting.conversions import formulas

powers = st.floats(-12, -0.5).map(lambda power: 10.0**power)


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang (2018), Theorem 8; the caller sets enough digits for the difference."""
    m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
    return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


# How much noise


def test_analytic_noise_that_was_computed_independently() -> None:
    """Given to six decimals."""
    for epsilon, expected in ((1, 3.730632), (5, 0.891868), (10, 0.499889)):
        assert gaussian.analytic_noise_multiplier(epsilon, 1e-5) == pytest.approx(expected, abs=5.1e-7)


@examples(14, 40, derandomize=True)
@given(epsilon=st.floats(0.01, 50), delta=powers)
def test_analytic_noise_is_enough_and_hardly_more(epsilon: float, delta: float) -> None:
    """Less by a relative 1e-8/min(μ, 1) is too little: the certified δ exceeds the exact one by at most 1e-9/min(μ, 1),
    and δ grows at least in proportion to μ where ε is above μ²/2, which it is for δ below 0.3."""
    multiplier = gaussian.analytic_noise_multiplier(epsilon, delta)
    with mpmath.workdps(120):
        mu = 1 / mpmath.mpf(multiplier)
        assert exact_delta(mu, epsilon) <= delta
        if delta < 0.3:
            assert exact_delta(mu * (1 + mpmath.mpf(1e-8) / min(mu, 1)), epsilon) > delta


def test_noise_for_many_targets_at_once() -> None:
    epsilons, deltas = np.array([0.0, 0.5, 3.0, 40.0]), np.array([[1e-9], [0.2]])
    many = gaussian.analytic_noise_multipliers(epsilons, deltas)
    assert many.shape == (2, 4)
    for row, column in itertools.product(range(2), range(4)):
        single = gaussian.analytic_noise_multiplier(float(epsilons[column]), float(deltas[row, 0]))
        assert many[row, column] == pytest.approx(single, rel=1e-12)  # bisections that start elsewhere
    # at ε = 0, δ = 2Φ(μ/2) − 1; the certified δ is off by 1e-13 of log Φ, over δ
    assert 1 / many[1, 0] == pytest.approx(float(mpmath.erfinv(0.2) * 2 * mpmath.sqrt(2)), rel=1e-11)


def test_many_deltas_are_the_single_ones() -> None:
    """The same formulas by numpy and by math, whose functions differ by a few units in the last place; where the two
    terms of δ cancel, 1/μ times that."""
    means = np.array([0.0, 1e-300, 1e-3, 0.5, 3.0, 100.0, 1e200, math.inf])[:, None]
    epsilons = np.array([0.0, 1e-6, 0.3, 4.0, 60.0, 1e5])
    many = formulas.deltas_from_gdp(means, epsilons)
    for row, column in itertools.product(range(8), range(6)):
        single = formulas.delta_from_gdp(float(means[row, 0]), float(epsilons[column]))
        assert many[row, column] == pytest.approx(single, rel=1e-11, abs=1e-16)
        assert (many[row, column] == 0) == (single == 0) == (row == 0)


def test_where_the_classical_noise_stops_being_enough() -> None:
    """Limits given to six decimals; at ε = 10 its δ is 2.265374e-5 in place of 1e-5."""
    assert gaussian.classical_limit(1e-5) == pytest.approx(8.419771, abs=5.1e-7)
    assert gaussian.classical_limit(1e-6) == pytest.approx(8.782092, abs=5.1e-7)
    mu = 10 / math.sqrt(2 * math.log(1.25e5))
    assert formulas.delta_from_gdp(mu, 10) == pytest.approx(2.265374e-5, rel=2.5e-7)


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-5, 1e-10, 1e-30])
def test_the_limit_is_the_only_one(delta: float) -> None:
    """The exact δ of the classical σ grows with ε, and passes the claimed one at the limit, within a relative 1e-9."""
    limit = gaussian.classical_limit(delta)
    with mpmath.workdps(200):
        root = mpmath.sqrt(2 * mpmath.log(mpmath.mpf("1.25") / mpmath.mpf(delta)))
        grid = [limit * share for share in (0.01, 0.1, 0.5, 0.9, 1 - 1e-12, 1 + 1e-9, 1.1, 2)]
        exact = [exact_delta(mpmath.mpf(epsilon) / root, epsilon) for epsilon in grid]
        assert exact == sorted(exact)
        assert exact[4] <= delta < exact[5]
        for epsilon in grid[:5]:
            multiplier = gaussian.classical_noise_multiplier(epsilon, delta)
            assert multiplier >= root / mpmath.mpf(epsilon)
            assert multiplier == pytest.approx(float(root / mpmath.mpf(epsilon)), rel=1e-14)
            assert exact_delta(1 / mpmath.mpf(multiplier), epsilon) <= delta
    with pytest.raises(ValueError, match=r"only up to ε = .*; use analytic_noise_multiplier"):
        gaussian.classical_noise_multiplier(limit * (1 + 1e-6), delta)


# What is released


def test_four_layers_cost_one_joint_release() -> None:
    """ε = 5, δ = 1e-5 for four layers: 4.098369 a layer by classical noise and basic composition, 1.783737 jointly."""
    classical, joint = gaussian.classical_noise_multiplier(5 / 4, 1e-5 / 4), gaussian.joint_noise_multiplier(5, 1e-5, 4)
    assert classical == pytest.approx(4.098369, abs=5.1e-7)
    assert joint == pytest.approx(1.783737, abs=5.1e-7)
    clips, records = [5.5, 1.0, 0.3, 2.0], 500
    deviations = [joint * 2 * clip / records for clip in clips]
    mu = gaussian.joint_mu(clips, deviations, records=records, adjacency="replace_one")
    assert mu == pytest.approx(2 / joint, rel=1e-14)  # a few roundings of σ
    assert formulas.epsilon_from_gdp(mu, 1e-5) == pytest.approx(5, rel=1e-12)


@examples(14, 40, derandomize=True)
@given(
    layers=st.lists(st.tuples(st.floats(0.01, 100), st.floats(1e-6, 10)), min_size=1, max_size=6),
    records=st.integers(1, 10**6),
)
def test_joint_mu_is_the_root_rounded_up(layers: list[tuple[float, float]], records: int) -> None:
    clips, deviations = [clip for clip, _ in layers], [deviation for _, deviation in layers]
    for adjacency, steps in (("replace_one", 2), ("add_remove", 1), ("zero_out", 1)):
        mu = gaussian.joint_mu(clips, deviations, records=records, adjacency=adjacency)
        exact = sum((Fraction(steps) * Fraction(c) / (records * Fraction(d))) ** 2 for c, d in layers)
        assert Fraction(mu) ** 2 >= exact
        assert Fraction(mu * (1 - 2**-51)) ** 2 < exact  # at most two floats above the root


def test_joint_mu_of_squares_beyond_float64() -> None:
    """The squares underflow where the root does not: exact ones, and between neighbouring floats."""
    assert gaussian.joint_mu([3.0, 4.0], [1.0, 1.0], records=1, adjacency="add_remove") == 5.0
    mu = gaussian.joint_mu([2.0**-1000] * 2, [1.0, 1.0], records=1, adjacency="add_remove")
    assert Fraction(math.nextafter(mu, 0)) ** 2 < 2 * Fraction(2) ** -2000 <= Fraction(mu) ** 2
    assert gaussian.joint_mu([1e300], [1e-300], records=1, adjacency="add_remove") == math.inf


def test_joint_mu_is_attained() -> None:
    """Records of two layers, clipped to norms 3 and 0.5, one exchanged for its negative: the scaled difference of the
    means has the norm that joint_mu says, to float error of a mean of ten vectors."""
    generator = np.random.default_rng(7)
    clips, deviations = (3.0, 0.5), (0.7, 0.2)
    rows = [generator.normal(size=(10, 6)) for _ in clips]
    rows = [row / np.linalg.norm(row, axis=1, keepdims=True) * clip for row, clip in zip(rows, clips, strict=True)]
    moved = [np.concatenate([-row[:1], row[1:]]) for row in rows]
    parts = [(a.mean(0) - b.mean(0)) / d for a, b, d in zip(rows, moved, deviations, strict=True)]
    mu = gaussian.joint_mu(clips, deviations, records=10, adjacency="replace_one")
    assert np.linalg.norm(np.concatenate(parts)) == pytest.approx(mu, rel=1e-13)


def test_a_histogram_that_forgets_the_second_bin() -> None:
    """Calibrated to (0.1, 1e-5) with sensitivity 1, the true δ under replace_one is 2.540668e-4, and √2 mends it."""
    multiplier = gaussian.analytic_noise_multiplier(0.1, 1e-5)
    sensitivity = gaussian.histogram_sensitivity("replace_one")
    assert Fraction(sensitivity) ** 2 >= 2 > Fraction(math.nextafter(math.nextafter(sensitivity, 0), 0)) ** 2
    assert formulas.delta_from_gdp(sensitivity / multiplier, 0.1) == pytest.approx(2.540668e-4, rel=2.5e-7)
    mended = sensitivity / (multiplier * sensitivity * (1 + 1e-15))
    assert formulas.delta_from_gdp(mended, 0.1) <= 1e-5
    assert gaussian.histogram_sensitivity("add_remove") == gaussian.histogram_sensitivity("zero_out") == 1


# Samples


IMDB = {"sample_size": 500, "records": 12500}


def test_noise_for_a_sample_that_was_computed_independently() -> None:
    """q = 0.04, (4.9, 1e-5): μ = 1.948576. With sensitivity C/n in place of 2C/n, μ is twice that and 4.9 becomes 17.2,
    so that 5, with 0.1 for the exemplars, becomes 17.3."""
    mu = gaussian.sampled_mu(4.9, 1e-5, **IMDB)
    assert mu == pytest.approx(1.948576, abs=5.1e-7)
    assert round(gaussian.sampled_epsilon(2 * mu, 1e-5, **IMDB) + 0.1, 1) == 17.3


def hockey_stick(p: list[tuple[float, float]], q: list[tuple[float, float]], epsilon: float) -> float:
    """∫ (p − e^ε q)⁺ of two mixtures of normals of deviation 1, given as (weight, mean), on a fine grid."""
    x = np.linspace(-14, 14, 28_001)

    def density(mixture: list[tuple[float, float]]) -> np.ndarray:
        return sum(w * np.exp(-((x - m) ** 2) / 2) for w, m in mixture) / math.sqrt(2 * math.pi)  # type: ignore[return-value]

    excess = np.maximum(density(p) - math.exp(epsilon) * density(q), 0.0)
    return float(np.trapezoid(excess, x))


@pytest.mark.parametrize("mu", [0.5, 2.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0])
def test_the_cost_of_a_sample_bounds_every_data_set_and_is_attained(mu: float, epsilon: float) -> None:
    """All sums of 2 out of 4 numbers in [−1, 1] before and after one is exchanged; noise μ = 2/σ. The trapezoid rule at
    steps of 1e-3 errs by at most (1e-3)²/8 times the change of slope at each kink: below 1e-6 for a few kinks."""
    generator = np.random.default_rng(11)
    others = [np.array([-1.0, -1.0, -1.0]), np.zeros(3), *generator.uniform(-1, 1, (4, 3))]
    bound = gaussian.sampled_delta(mu, epsilon, sample_size=2, records=4)
    results = []
    for rest, (first, second) in itertools.product(others, [(1.0, -1.0), (-1.0, 1.0), (0.2, -0.9)]):
        laws = []
        for record in (first, second):
            data = [record, *rest]
            laws.append([(1 / 6, sum(pair) * mu / 2) for pair in itertools.combinations(data, 2)])
        results += [hockey_stick(laws[0], laws[1], epsilon), hockey_stick(laws[1], laws[0], epsilon)]
    assert max(results) == pytest.approx(bound, abs=1e-6)


@examples(14, 40, derandomize=True)
@given(
    mu=st.floats(0.05, 8), epsilon=st.floats(0, 20), records=st.integers(1, 10**6), share=st.floats(0, 1), delta=powers
)
def test_questions_about_a_sample_agree(mu: float, epsilon: float, records: int, share: float, delta: float) -> None:
    """δ is at least the exact one, and ε and μ give a δ of at most what was asked, to 1e-9 (conversions' own error)."""
    sample = {"sample_size": max(1, round(share * records)), "records": records}
    with mpmath.workdps(120):
        rate = mpmath.mpf(sample["sample_size"]) / records
        exact = rate * exact_delta(mu, mpmath.log(1 + mpmath.expm1(mpmath.mpf(epsilon)) / rate))
        got = gaussian.sampled_delta(mu, epsilon, **sample)
        assert exact <= got <= exact * (1 + 1e-8 / min(mu, 1)) + mpmath.mpf(10) ** -300
        answer = gaussian.sampled_epsilon(mu, delta, **sample)
        at_answer = rate * exact_delta(mu, mpmath.log(1 + mpmath.expm1(mpmath.mpf(answer)) / rate))
        assert at_answer <= delta
    if answer > 1e-6:
        assert gaussian.sampled_delta(mu, answer * (1 - 1e-6), **sample) > delta * (1 - 1e-9)
    most = gaussian.sampled_mu(epsilon, delta, **sample)
    if math.isfinite(most):
        assert gaussian.sampled_delta(most, epsilon, **sample) <= delta
        assert gaussian.sampled_delta(most * (1 + 1e-6 / min(most, 1)), epsilon, **sample) > delta * (1 - 1e-9)
    else:
        assert float(rate) <= delta


def test_edges_of_samples() -> None:
    assert gaussian.sampled_delta(1.0, 0.5, sample_size=0, records=9) == 0
    assert gaussian.sampled_delta(0.0, 0.5, sample_size=3, records=9) == 0
    assert gaussian.sampled_epsilon(1.0, 1e-5, sample_size=0, records=9) == 0
    assert math.isinf(gaussian.sampled_mu(1.0, 1e-5, sample_size=0, records=9))
    whole = {"sample_size": 9, "records": 9}
    assert gaussian.sampled_delta(1.0, 0.5, **whole) == pytest.approx(formulas.delta_from_gdp(1.0, 0.5), rel=1e-12)
    large = gaussian.sampled_epsilon(60.0, 1e-5, sample_size=1, records=100)  # beyond e^600
    assert large == pytest.approx(formulas.epsilon_from_gdp(60.0, 1e-3) + math.log(0.01), rel=1e-12)
    assert 0 < gaussian.sampled_delta(1.0, 800.0, sample_size=1, records=100) < 1e-300


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: gaussian.analytic_noise_multiplier(-1.0, 1e-5), "epsilons must be finite and at least 0"),
        (lambda: gaussian.analytic_noise_multiplier(math.nan, 1e-5), "epsilons must be finite"),
        (lambda: gaussian.analytic_noise_multiplier(1.0, 1.0), "deltas must be strictly between 0 and 1"),
        (lambda: gaussian.analytic_noise_multiplier(0.0, 1e-318), "no μ above 1e-300"),
        (lambda: gaussian.classical_noise_multiplier(0.0, 1e-5), "epsilon must be above 0"),
        (lambda: gaussian.classical_limit(0.0), "delta must be strictly"),
        (lambda: gaussian.joint_mu([], [], records=5, adjacency="replace_one"), "as many deviations as clips"),
        (lambda: gaussian.joint_mu([1.0], [1.0, 2.0], records=5, adjacency="replace_one"), "as many deviations"),
        (lambda: gaussian.joint_mu([1.0], [0.0], records=5, adjacency="replace_one"), "deviation must be above 0"),
        (lambda: gaussian.joint_mu([0.0], [1.0], records=5, adjacency="replace_one"), "clip must be above 0"),
        (lambda: gaussian.joint_mu([1.0], [1.0], records=0, adjacency="replace_one"), "records must be at least 1"),
        (lambda: gaussian.mean_sensitivity(1.0, 5, "secret"), "adjacency must be one of add_remove, replace_one"),
        (lambda: gaussian.joint_noise_multiplier(1.0, 1e-5, 0), "releases must be at least 1"),
        (lambda: gaussian.sampled_delta(1.0, 1.0, sample_size=6, records=5), "sample_size must be at most records"),
        (lambda: gaussian.sampled_delta(1.0, -1.0, sample_size=1, records=5), "epsilon must be at least 0"),
        (lambda: gaussian.sampled_epsilon(-1.0, 0.1, sample_size=1, records=5), "mu must be at least 0"),
    ],
)
def test_impossible_releases_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
