"""Published claims about secret-protected evolution: the numbers of a table that was computed before, laws in 60 digits
and adversaries that are simulated or enumerated."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import oracle
import pytest
from published_rows import checked, lower, upper
from scipy import optimize, stats
from scipy.integrate import quad

from dpassay.claims.published.registry import checks_of, read_published_claims
from dpassay.mechanisms.secret_evolution.clustering import PublicClusters, running_sums

mp = oracle.mp
P, R, RECORDS = 1e-4, 1e-3, 80


def test_all_have_a_row_and_the_verdict_of_their_file() -> None:
    rows = [claim for claim in read_published_claims() if claim.check.startswith("secret_evolution.")]
    assert {claim.check.partition(".")[2] for claim in rows} == set(checks_of("secret_evolution"))
    for claim in rows:
        result = checked(claim.id)
        assert result.as_recorded
        assert all(step[-1] == "." for step in result.finding.steps)


# Theorem 3


def test_two_digits_are_a_secret() -> None:
    """The best guess, over all functions of both digits, of a value drawn uniformly: by the posteriors."""
    result = checked("001-1")
    assert (result.claimed, result.finding.lower) == (0.2, 1.0)
    values = [(tens, items) for tens, items in itertools.product(range(10), repeat=2)]
    assert sum(Fraction(1, len(values)) for _ in {value[:1] for value in values}) == Fraction(1, 10)
    assert sum(Fraction(1, len(values)) for _ in set(values)) == 1


def test_one_digit_twice_is_no_more_than_once() -> None:
    """A secret of three digits is guessed with .01 after one of them and with .1 after two."""
    assert checked("001-1", revealed=[1, 1]).verdict == "UNPROVEN"
    three = checked("001-1", digits=3)
    assert (three.verdict, three.claimed) == ("REFUTED", 0.02)
    assert three.finding.lower == pytest.approx(0.1, rel=1e-15)


def right(values: int, mu: float) -> float:
    """E Φ(X + μ)^(K−1) by adaptive quadrature."""
    value, error = quad(
        lambda x: stats.norm.pdf(x) * stats.norm.cdf(x + mu) ** (values - 1),
        -9,
        9,
        epsabs=1e-13,
        epsrel=1e-11,
        limit=400,
    )
    assert error < 1e-10
    return float(value)


def test_orthogonal_gaussians() -> None:
    result = checked("001-1b")
    assert result.claimed == pytest.approx(6.007507e-3, rel=2e-5)
    assert result.claimed >= 2 * right(10_000, 1.0)
    assert right(10_000, math.sqrt(2)) == pytest.approx(9.493692e-3, abs=5e-10)
    assert lower("001-1b") == pytest.approx(9.493692e-3, rel=2e-5)
    assert lower("001-1b") <= right(10_000, math.sqrt(2))
    assert checked("001-1b", releases=1).verdict == "UNPROVEN"


@pytest.mark.parametrize(("values", "mu"), [(2, 0.0), (2, 1.5), (30, 0.4)])
def test_the_largest_coordinate_is_enclosed(values: int, mu: float) -> None:
    """Of two it is Φ(μ/√2) often; the probability after one release is in the claim."""
    result = checked("001-1b", values=values, mu=mu, releases=1)
    exact = float(mp.ncdf(mp.mpf(mu) / mp.sqrt(2))) if values == 2 else right(values, mu)
    assert lower("001-1b", values=values, mu=mu, releases=1) <= exact <= result.claimed
    assert result.claimed == pytest.approx(exact, rel=1e-4)


# Lemma C.2


def test_odds_of_two_data_sets_are_no_reference() -> None:
    result = checked("001-2")
    assert result.claimed == pytest.approx(0.335570, abs=5e-7)
    assert result.finding.lower == 0.5
    assert checked("001-2", against="values").verdict != "REFUTED"


@pytest.mark.parametrize(("values", "ratio"), [(100, 50), (2, 3), (4, 100)])
def test_the_mechanism_is_private_against_the_reference(values: int, ratio: int) -> None:
    """All events of four outputs or fewer, and all outputs of more: P_v and Q within e^ε, by exact numbers."""
    p = Fraction(1, values)
    guess = min(ratio * p, 1 - (1 - p) / ratio)
    laws = [guess, (1 - guess) / (values - 1)]
    assert lower("001-2", values=values, ratio=ratio) == pytest.approx(float(guess), rel=1e-15)
    assert laws[0] + (values - 1) * laws[1] == 1
    assert all(item <= ratio * p and p <= ratio * item for item in laws)
    assert any(item == ratio * p or p == ratio * item for item in laws)


def test_odds_between_values_are_sound_and_loose() -> None:
    """Every event of five outputs; the claim is the least over c by another minimiser."""
    result = checked("001-3")
    assert result.claimed == pytest.approx(0.530301, abs=5e-7)
    assert upper("001-3") == pytest.approx(0.434379, abs=5e-7)
    least = optimize.minimize_scalar(
        lambda c: 1 / (1 + 4 / (math.e + 1 / c)) + 0.05 * c, bounds=(1, 10), method="bounded", options={"xatol": 1e-10}
    )
    assert result.claimed == pytest.approx(float(least.fun), rel=1e-6)
    answer = (1 - 0.05) / (math.e + 4)
    laws = np.full((5, 5), answer) + np.eye(5) * (0.05 + answer * (math.e - 1))
    assert laws[0, 0] == pytest.approx(lower("001-3"), rel=1e-12)
    for chosen in itertools.product((0, 1), repeat=5):
        first, second = laws[:2] @ chosen
        assert first <= math.e * second + 0.05 + 1e-15


def test_a_smaller_claim_between_values_would_be_false() -> None:
    """What is attained, .434379, is above what the lemma would state without δ."""
    assert lower("001-3") > 1 / (1 + 4 / math.e)
    assert checked("001-3", against="reference", delta=0.0).verdict == "REFUTED"


# Lemma 3.3


def test_gaussian_dp_to_secret_protection() -> None:
    exact = float(oracle.gaussian(1 / mp.mpf(0.62878)).blowup(P, "remove"))
    assert exact * (1 - 1e-9) <= lower("001-4") <= exact <= upper("001-4") <= exact * (1 + 1e-9)
    assert checked("001-4", mu=0.6288).verdict == "REFUTED"


def test_the_bound_is_attained_on_a_circle() -> None:
    """Arcs of a circle of ten values: each law is the same one turned, and the arc of its value has B(.1)."""
    cells = 100_000
    edges = stats.norm.isf(np.linspace(0, 1, cells + 1))  # of equal probability under N(0, 1), largest ratio first
    law = np.diff(stats.norm.sf(edges - 1.0))
    assert (np.diff(law) <= 1e-16).all()
    guess = np.mean([np.roll(law, v * cells // 10)[v * cells // 10 : (v + 1) * cells // 10].sum() for v in range(10)])
    assert guess == pytest.approx(float(oracle.gaussian(1).blowup(0.1, "remove")), rel=1e-12)
    assert guess == pytest.approx(lower("001-4", p=0.1, mu=1.0), rel=1e-9)


# Theorem 1, Algorithms 1 and 2


def occurrences() -> tuple[float, list[float]]:
    """μ = Φ⁻¹(R) − Φ⁻¹(P), and the binomial law of how many of 80 records are drawn."""
    mu = float(stats.norm.isf(P) - stats.norm.isf(R))
    return mu, stats.binom.pmf(np.arange(RECORDS + 1), RECORDS, mu / RECORDS).tolist()


def mixture(sigma: float) -> float:
    """B(P) of Σ w_k N(k, σ²) over N(0, σ²): thresholds are the best tests."""
    _, weights = occurrences()
    return float(np.dot(weights, stats.norm.sf(stats.norm.isf(P) - np.arange(RECORDS + 1) / sigma)))


def least_noise() -> float:
    return float(optimize.brentq(lambda sigma: mixture(sigma) / R - 1, 1, 4, xtol=1e-10))


def test_thresholds_are_the_best_tests() -> None:
    """By 60 digits, without the largest counts, whose weight is below 10⁻¹²."""
    _, weights = occurrences()
    exact = oracle.gaussian_mixture(weights[:12], range(12), 1).blowup(P, "remove")
    assert mixture(1.0) == pytest.approx(float(exact), rel=1e-9)


def test_one_noise_for_counts_and_centres() -> None:
    assert lower("001-5") == pytest.approx(3.222783e-3, rel=2e-6)
    assert lower("001-5") == pytest.approx(mixture(least_noise() / math.sqrt(2)), rel=1e-5)
    assert lower("001-5") <= upper("001-5")
    assert checked("001-5", noise_factor=1.41422).verdict == "SUPPORTED"
    assert checked("001-5", noise_factor=1.4142).verdict == "REFUTED"


def test_guesses_of_the_cluster_that_moved_most() -> None:
    """The probability in the last step, by quadrature, and by a simulation with 100 values in place of 10⁴."""
    _, weights = occurrences()
    sigma = least_noise() / math.sqrt(2)
    exact = sum(w * right(10_000, k / sigma) for k, w in enumerate(weights[:12]))
    printed = float(checked("001-5").finding.steps[-1].split()[-3])
    assert exact * (1 - 5e-3) <= printed <= exact
    assert printed > R
    generator, values = np.random.default_rng(5), 100
    drawn = generator.choice(RECORDS + 1, size=20_000, p=np.array(weights) / sum(weights))
    counts, sums = (generator.normal(scale=least_noise(), size=(20_000, values)) for _ in range(2))
    counts[:, 0] += drawn
    sums[:, 0] += drawn
    guessed = ((counts + sums).argmax(axis=1) == 0).mean()
    many = sum(w * right(values, k / sigma) for k, w in enumerate(weights[:12]))
    assert guessed == pytest.approx(many, abs=5 * math.sqrt(many / 20_000))


def test_the_centre_moves_as_much_as_the_count() -> None:
    """The records and centres of the counterexample: a centre opposite, its cluster's own, for every value."""
    radius, eta, values, public = 2.0, 1e-5, 6, 1e9
    u, others = np.eye(values + 1)[0], np.eye(values + 1)[1:]
    centres = radius * (-math.sqrt(1 - eta**2) * u + eta * others)
    vectors = radius * (math.sqrt(1 - eta**2) * u + eta * others)
    assert np.linalg.norm(centres, axis=1) == pytest.approx(radius)
    for v, vector in enumerate(vectors):
        squares = [sum(Fraction(x) ** 2 for x in (vector - centre)) for centre in centres]
        assert min(range(values), key=squares.__getitem__) == v
        for k in (1, RECORDS):
            moved = (public * centres[v] + k * vector) / (public + k) - centres[v]
            unit = np.linalg.norm(moved) / (2 * radius / public)
            assert math.hypot(k, unit) >= math.sqrt(2) * k * (1 - 1e-7)
            assert unit <= k * (1 + 1e-6)  # the difference of two vectors of length 2, in units of 10⁻⁹


def test_running_sums_move_by_71() -> None:
    """By the code that follows Algorithm 2 in floats, and by hand for the public centres."""
    clusters = PublicClusters(np.array([[-0.6], [0.6]]), np.array([1, 1]), 1.0)
    points = np.full((1001, 1), 0.01)
    points[0] = -1
    before, _ = running_sums(clusters, points[1:], np.ones(1000, dtype=bool))
    after, _ = running_sums(clusters, points, np.ones(1001, dtype=bool))
    assert (before.tolist(), after.tolist()) == ([560, 440], [611, 390])
    assert lower("001-6") == pytest.approx(math.hypot(51, 50), rel=1e-11)
    assert lower("001-6") <= math.hypot(51, 50)
    mended = checked("001-6", assign="public")
    assert mended.verdict == "SUPPORTED"
    assert mended.finding.lower == pytest.approx(1)


# The mixture, and Gaussian differential privacy


def test_one_gaussian_for_the_mixture() -> None:
    assert lower("001-7") == pytest.approx(1.322664e-2, abs=5e-9)
    assert lower("001-7") * (1 - 1e-9) <= mixture(1.0) <= upper("001-7") * (1 + 1e-9)
    mu, _ = occurrences()
    assert stats.norm.sf(stats.norm.isf(P) - mu) == pytest.approx(R)  # the estimate, which is the claim
    assert checked("001-7", sigma=least_noise() * 1.0001).verdict == "SUPPORTED"


def test_less_noise_than_gaussian_dp_depends_on_the_unit() -> None:
    mu, _ = occurrences()
    ratio = least_noise() * mu
    for row, group in (("001-8", 1), ("001-8b", RECORDS)):
        assert lower(row) <= ratio / group * (1 + 1e-8)
        assert ratio / group <= upper(row) * (1 + 1e-8)
        assert upper(row) == pytest.approx(lower(row), rel=1e-5)
    assert 1 / lower("001-8") == pytest.approx(0.770, abs=5e-4)
    assert 1 / lower("001-8b") == pytest.approx(61.63, abs=5e-3)
    assert checked("001-8", group=2).verdict == "SUPPORTED"
