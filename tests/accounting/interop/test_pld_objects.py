"""Privacy loss distributions of other libraries: whether they bound a pair, by exact arithmetic and other libraries."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from dpassay.accounting.interop import pld_objects
from dpassay.accounting.interop.pld_objects import LossDistribution, loss_distribution
from dpassay.accounting.lattice.pairs import DominatingPair

ANSWERS = json.loads((Path(__file__).parent / "files/answers.json").read_text(encoding="utf-8"))
EPSILONS = [-3.0, -1.2345, -0.1, 0.0, 0.01, 0.5, 1.0, 1.7321, 2.5, 4.0]


def exact_profile(made: LossDistribution, epsilon: float | mpmath.mpf) -> mpmath.mpf:
    """G(ε) with 40 digits, losses i·h not rounded."""
    with mpmath.workdps(40):
        h, total = mpmath.mpf(made.discretization), mpmath.mpf(made.infinity_mass)
        for index, weight in enumerate(made.probabilities):
            loss = (made.lowest + index) * h
            if weight and loss > epsilon:
                total += mpmath.mpf(float(weight)) * -mpmath.expm1(mpmath.mpf(epsilon) - loss)
        return total


def exact_gaussian(mu: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang (2018), Theorem 5."""
    with mpmath.workdps(40):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def exact_finite(p: Sequence[float], q: Sequence[float], epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(40):
        return mpmath.fsum(
            max(mpmath.mpf(0), mpmath.mpf(a) - mpmath.exp(mpmath.mpf(epsilon)) * mpmath.mpf(b))
            for a, b in zip(p, q, strict=True)
        )


@pytest.mark.slow
@pytest.mark.parametrize("discretization", [0.1, 0.01])
@pytest.mark.parametrize("mu", [0.3, 1.0])
def test_estimates_of_a_gaussian_bound_its_exact_curve(mu: float, discretization: float) -> None:
    """On and between the points of the grid, and in the tails, in exact arithmetic."""
    pair = DominatingPair.gaussian(1 / mu)
    for side in ("remove", "add"):
        above = loss_distribution(pair, side, discretization=discretization)
        below = loss_distribution(pair, side, discretization=discretization, pessimistic=False)
        grid = [discretization * index for index in range(-int(3 / discretization), int(4 / discretization), 97)]
        for epsilon in [*EPSILONS, *grid, 6.0, -6.0, 12.0]:
            exact = exact_gaussian(mu, epsilon)
            assert exact_profile(below, epsilon) <= exact <= exact_profile(above, epsilon)
        assert exact_profile(above, 0.5) <= exact_gaussian(mu, 0.5) * (1 + 2 * discretization**2 / mu**2) + 1e-14
        assert exact_profile(below, 0.5) >= exact_gaussian(mu, 0.5 + 2 * discretization)


@pytest.mark.grid
@pytest.mark.parametrize("pessimistic", [True, False])
def test_rounding_is_on_the_safe_side_of_the_pair_s_own_bounds(pessimistic: bool) -> None:
    """In exact arithmetic, at corners: not below upper bounds there, and not above lower bounds at the next one."""
    pair, h = DominatingPair.gaussian(0.7), 0.02
    made = loss_distribution(pair, "remove", discretization=h, pessimistic=pessimistic)
    indices = np.flatnonzero(made.probabilities)[::23]
    points = (made.lowest + indices) * h
    asked = points if pessimistic else np.nextafter(points + h, np.inf)
    low, high = pair.privacy_profile(np.asarray(asked, dtype=np.float64), "remove")
    for index, least, most in zip(indices, low, high, strict=True):
        with mpmath.workdps(40):
            result = exact_profile(made, (made.lowest + int(index)) * mpmath.mpf(h))
        if pessimistic:
            assert result >= most
            assert result <= most * (1 + 1e-10)
        elif least > 0:
            assert result <= least
            assert result >= least * (1 - 1e-10) - 1e-15 or index == indices[0]


PAIRS = [
    ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]),
    ([0.75, 0.25], [0.25, 0.75]),
    ([0.9, 0.05, 0.05], [0.0, 0.5, 0.5]),
    ([0.6, 0.4, 0.0], [0.3, 0.3, 0.4]),
    ([1.0, 0.0], [0.0, 1.0]),
    ([0.5, 0.5], [0.5, 0.5]),
]


@pytest.mark.parametrize(("p", "q"), PAIRS)
def test_estimates_of_finite_pairs_bound_brute_force(p: list[float], q: list[float]) -> None:
    pair = DominatingPair.finite(p, q)
    for side, (first, second) in (("remove", (p, q)), ("add", (q, p))):
        above = loss_distribution(pair, side, discretization=0.03)
        below = loss_distribution(pair, side, discretization=0.03, pessimistic=False)
        for epsilon in [*EPSILONS, *(math.log(a / b) for a, b in zip(p, q, strict=True) if a and b)]:
            exact = exact_finite(first, second, epsilon)
            # The vectors are normalised in float64, which moves them by an ulp.
            assert exact_profile(below, epsilon) <= exact + 1e-15
            assert exact <= exact_profile(above, epsilon) + 1e-15
            assert float(exact_profile(above, epsilon)) <= float(exact_finite(first, second, epsilon - 0.06)) + 1e-12


@pytest.mark.parametrize("count", [1, 4])
def test_compositions_of_finite_pairs_bound_brute_force(count: int) -> None:
    p, q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
    pair = DominatingPair.finite(p, q).self_compose(count)
    products = [
        (math.prod(p[item] for item in each), math.prod(q[item] for item in each))
        for each in itertools.product(range(3), repeat=count)
    ]
    above = pld_objects.to_dp_accounting(pair, discretization=0.01)
    below = pld_objects.to_dp_accounting(pair, discretization=0.01, pessimistic=False)
    for epsilon in (0.0, 0.3, 1.0, 2.2):
        exact = math.fsum(max(0.0, a - math.exp(epsilon) * b) for a, b in products)
        assert below.get_delta_for_epsilon(epsilon) <= exact + 1e-13
        assert exact <= above.get_delta_for_epsilon(epsilon) + 1e-13
        assert above.get_delta_for_epsilon(epsilon) <= below.get_delta_for_epsilon(epsilon - 0.03) + 1e-9


def test_directions_are_those_of_dp_accounting() -> None:
    """A Gaussian on a Poisson sample, whose directions differ: dp_accounting's own estimates from both sides."""
    pair = DominatingPair.gaussian(1.0).poisson_sampled(0.2)
    made = {up: pld_objects.to_dp_accounting(pair, discretization=1e-3, pessimistic=up) for up in (True, False)}
    own = {
        up: privacy_loss_distribution.from_gaussian_mechanism(
            1.0, sampling_prob=0.2, value_discretization_interval=1e-4, pessimistic_estimate=up, use_connect_dots=False
        )
        for up in (True, False)
    }
    for side in ("_pmf_remove", "_pmf_add"):
        for epsilon in (-0.15, 0.0, 0.2, 0.5, 1.0):
            truth = [getattr(own[up], side).get_delta_for_epsilon(epsilon) for up in (False, True)]
            assert getattr(made[True], side).get_delta_for_epsilon(epsilon) >= truth[0] - 1e-14
            assert getattr(made[False], side).get_delta_for_epsilon(epsilon) <= truth[1] + 1e-14
    ours = pair.self_compose(30).epsilon(1e-5)
    assert ours.lower <= made[True].self_compose(30).get_epsilon_for_delta(1e-5) <= ours.upper * 1.002
    assert made[False].self_compose(30).get_epsilon_for_delta(1e-5) <= ours.upper


@pytest.mark.grid
@pytest.mark.parametrize("connect", [True, False])
def test_from_dp_accounting_is_an_upper_bound_only(connect: bool) -> None:
    """At least what the library answers of the object itself, up to its float error, and within the lattice's width."""
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        2.0, sampling_prob=0.1, value_discretization_interval=1e-3, use_connect_dots=connect
    ).self_compose(20)
    pair = pld_objects.from_dp_accounting(theirs)
    assert not pair.tight
    for delta in (1e-3, 1e-5, 1e-8):
        answer = theirs.get_epsilon_for_delta(delta)
        assert answer * (1 - 1e-9) <= pair.epsilon(delta).upper <= answer * (1 + 5e-3)
    for epsilon in (0.1, 0.5, 1.0):
        assert pair.delta(epsilon).upper >= theirs.get_delta_for_epsilon(epsilon) * (1 - 1e-9)
    remove = theirs._pmf_remove.get_delta_for_epsilon(0.3)
    assert pair.delta(0.3, direction="remove").upper == pytest.approx(remove, rel=5e-3)


def test_a_pair_that_goes_and_comes_back_is_no_better() -> None:
    pair = DominatingPair.gaussian(1.0)
    back = pld_objects.from_dp_accounting(pld_objects.to_dp_accounting(pair, discretization=1e-3))
    exact = pair.epsilon(1e-5)
    assert exact.lower <= back.epsilon(1e-5).upper <= exact.upper * 1.002
    twice = back.self_compose(2).epsilon(1e-5).upper
    assert pair.self_compose(2).epsilon(1e-5).lower <= twice <= pair.self_compose(2).epsilon(1e-5).upper * 1.005


@pytest.mark.grid
@pytest.mark.parametrize(
    ("pair", "symmetric"),
    [
        (DominatingPair.gaussian(1.0), True),
        (DominatingPair.laplace(1.0).self_compose(3), True),
        (DominatingPair.discrete_laplace(0.5, 2).compose(DominatingPair.gaussian(2.0)), True),
        (DominatingPair.approx_dp(1.0, 1e-6), True),
        (DominatingPair.gaussian_mixture([0.9, 0.1], [0.0, 1.0], 1.0, mirrored=True), True),
        (DominatingPair.gaussian(1.0).poisson_sampled(0.1), False),
        (DominatingPair.finite([0.5, 0.25, 0.25], [0.25, 0.25, 0.5]), False),  # symmetric, but nobody said so
    ],
    ids=["gaussian", "laplaces", "product", "approx dp", "mirrored", "sampled", "finite"],
)
def test_a_symmetric_pair_is_one_distribution(pair: DominatingPair, symmetric: bool) -> None:
    """Libraries look at whether there is a second one: gdpnum 0.1.2 then takes the curve for its own inverse."""
    made = pld_objects.to_dp_accounting(pair, discretization=1e-2)
    assert made._symmetric is symmetric
    assert (made._pmf_add is made._pmf_remove) is symmetric
    both = [loss_distribution(pair, side, discretization=1e-2) for side in ("remove", "add")]
    for item, pmf in zip(both, (made._pmf_remove, made._pmf_add), strict=True):
        assert pmf.get_delta_for_epsilon(0.5) == pytest.approx(float(item.profile(np.array([0.5]))[0]), rel=1e-6)


def test_variables_of_riskcal() -> None:
    """β of both libraries at riskcal's own arrays (`tests/helpers/make_interop_files.py`): ours lies below."""
    answers = ANSWERS["riskcal-plrvs.json"]
    content = json.loads((Path(__file__).parent / "files/riskcal-plrvs.json").read_text(encoding="utf-8"))
    pair = pld_objects.from_plrvs(content, content["discretization"])
    assert pair.epsilon(1e-5).upper == pytest.approx(answers["epsilon"], rel=5e-3)
    ours, _ = pair.trade_off(np.array(answers["alphas"]))
    for beta, theirs, again in zip(ours, answers["riskcal"], answers["gdpnum"], strict=True):
        assert theirs == pytest.approx(again, abs=1e-9)
        assert theirs - 5e-3 <= beta <= theirs + 1e-9


def test_variables_for_riskcal_are_those_of_its_own_conversion() -> None:
    """X is the negative loss of the other direction: of a Gaussian, P[X > 0] = P[Y ≤ 0] to the grid."""
    made = pld_objects.to_plrvs(DominatingPair.gaussian(1.0), discretization=1e-3)
    upper = made["pmf_Y"][(made["y0"] + np.arange(made["pmf_Y"].size)) <= 0].sum()
    lower = made["pmf_X"][(made["x0"] + np.arange(made["pmf_X"].size)) > 0].sum()
    expected = float(mpmath.ncdf(-0.5))
    assert upper == pytest.approx(expected, abs=1e-3)
    assert lower == pytest.approx(expected, abs=1e-3)
    back = pld_objects.from_plrvs(made, 1e-3)
    exact = float(mpmath.ncdf(-mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf("0.1") - 1) - 1))
    ours, _ = back.trade_off(np.array([0.1]))
    assert exact - 1e-3 <= ours[0] <= exact
    assert exact - 1e-3 <= back.beta(0.1).lower <= exact


def test_what_is_refused() -> None:
    optimistic = privacy_loss_distribution.from_gaussian_mechanism(
        1.0, pessimistic_estimate=False, use_connect_dots=False, value_discretization_interval=1e-2
    )
    with pytest.raises(ValueError, match="optimistic privacy loss distribution bounds nothing"):
        pld_objects.from_dp_accounting(optimistic)
    with pytest.raises(ValueError, match="not int"):
        pld_objects.from_dp_accounting(3)
    with pytest.raises(ValueError, match="only an upper bound has no optimistic"):
        loss_distribution(DominatingPair.concentrated(0.1), "remove", pessimistic=False)
    with pytest.raises(ValueError, match="take a larger"):
        loss_distribution(DominatingPair.gaussian(1.0), "remove", discretization=1e-9)
    with pytest.raises(ValueError, match="none negative"):
        LossDistribution(0, np.array([0.5, -0.1]), 0.1, 0.1)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("share", "infinity", "message"),
    [
        (0.5, 0.0, "add up to 0.5"),
        (-1.0, 0.0, "add up to 0,"),
        (1.0, math.nan, "infinity_mass must be a number"),
        (math.nan, 0.0, "none negative"),
    ],
)
def test_what_dominates_nothing_is_refused(share: float, infinity: float, message: str) -> None:
    """Objects that call themselves pessimistic, with half of the probability, none, or none that is a number."""
    pmf = privacy_loss_distribution.from_gaussian_mechanism(1.0)._pmf_remove.to_dense_pmf()
    made = pld_pmf.DensePLDPmf(pmf._discretization, pmf._lower_loss, share * pmf._probs, infinity, True)
    with pytest.raises(ValueError, match=message):
        pld_objects.from_dp_accounting(privacy_loss_distribution.PrivacyLossDistribution(made))
    if share == 0.5:
        variables = pld_objects.to_plrvs(DominatingPair.gaussian(1.0))
        with pytest.raises(ValueError, match=message):
            pld_objects.from_plrvs(variables | {"pmf_X": 0.5 * variables["pmf_X"]}, 1e-3)


def test_nothing_is_protected() -> None:
    made = loss_distribution(DominatingPair.non_private(), "remove", discretization=0.5)
    assert made.infinity_mass == 1.0
    back = pld_objects.from_dp_accounting(pld_objects.to_dp_accounting(DominatingPair.non_private()))
    assert back.epsilon(1e-5).upper == math.inf
