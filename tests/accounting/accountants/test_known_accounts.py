"""Accountants against closed forms, dp_accounting, and values computed independently; units and adjacencies."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import DpEvent, NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

from dpassay.accounting import Accountant, Rigor, Unit, accountant
from dpassay.accounting.accountants.rdp import RenyiAccountant, sampled_gaussian_divergence
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, EpsilonDeltaDpEvent, ParallelDpEvent

DELTA = 1e-5
ADJACENCIES = ["add_remove", "replace_one", "zero_out"]
NAMES = ["lattice", "basic", "zcdp", "gdp", "rdp", "pld", "prv"]
# Room between two computations of one number by the same accountant, as in the contract suite.
SAME = {
    "basic": 1e-12,
    "zcdp": 2e-9,
    "gdp": 1e-9,
    "rdp": 1e-9,
    "pld": 3e-3,
    "prv": 2e-2,
    "lattice": 1e-3,
    "advanced": 1e-9,
}


def gaussian(sigma: float) -> DpEvent:
    return dp_event.GaussianDpEvent(sigma)


def close(name: str, a: float, b: float) -> bool:
    return a == b or math.isclose(a, b, rel_tol=SAME[name], abs_tol=SAME[name])


def epsilon(name: str, adjacency: str, *composed: tuple[DpEvent, int]) -> float:
    chosen: Accountant[object] = accountant(name, adjacency)
    for event, count in composed:
        chosen = chosen.compose(event, count)
    return chosen.epsilon(DELTA).value


# --- against exact answers


def exact_gaussian_delta(mu: mpmath.mpf, epsilon: float) -> mpmath.mpf:
    e = mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)


@pytest.mark.grid("name", "adjacency", "sigmas")
@pytest.mark.parametrize("name", ["zcdp", "gdp", "rdp", "pld", "prv"])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("sigmas", "delta"), [((1.0,), 1e-5), ((3.0, 5.0, 5.0, 9.0), 1e-9), ((20.0,) * 50, 1e-3)])
def test_gaussian_compositions_lie_above_the_closed_form(
    name: str, adjacency: str, sigmas: tuple[float, ...], delta: float
) -> None:
    """Composed Gaussians are one Gaussian with μ² = Σ (Δ/σ)², Δ = 2 under replace_one. gdp is exact; the lattice of pld
    and the ε error of prv are above it too."""
    chosen = accountant(name, adjacency)
    for sigma in sigmas:
        chosen = chosen.compose(gaussian(sigma))
    value = chosen.epsilon(delta).value
    with mpmath.workdps(60):
        step = 2 if adjacency == "replace_one" else 1
        mu = mpmath.sqrt(sum((step / mpmath.mpf(sigma)) ** 2 for sigma in sigmas))
        assert exact_gaussian_delta(mu, value) <= delta
        if name == "gdp":
            assert exact_gaussian_delta(mu, value * (1 - 1e-9)) > delta


@pytest.mark.parametrize("order", [2, 3, 10, 64, 400])
@pytest.mark.parametrize(("rate", "sigma"), [(0.01, 1.0), (0.001, 0.6), (0.5, 4.0), (1e-6, 20.0)])
def test_sampled_gaussian_divergence_is_rounded_up(order: int, rate: float, sigma: float) -> None:
    with mpmath.workdps(60):
        q, s = mpmath.mpf(rate), mpmath.mpf(sigma)
        moment = mpmath.fsum(
            mpmath.binomial(order, k) * q**k * (1 - q) ** (order - k) * mpmath.exp((k * k - k) / (2 * s * s))
            for k in range(order + 1)
        )
        exact = mpmath.log(moment) / (order - 1)
    got = sampled_gaussian_divergence(rate, sigma, order)
    assert exact <= got <= exact * (1 + mpmath.mpf(10) ** -9)


@pytest.mark.parametrize("order", [1.05, 1.5, 2.0, 7.3, 300.0])
@pytest.mark.parametrize("scale", [0.05, 1.0, 30.0])
def test_laplace_divergence_is_rounded_up(order: float, scale: float) -> None:
    with mpmath.workdps(400):
        a, e = mpmath.mpf(order), 1 / mpmath.mpf(scale)
        moment = (a * mpmath.exp((a - 1) * e) + (a - 1) * mpmath.exp(-a * e)) / (2 * a - 1)
        exact = mpmath.log(moment) / (a - 1)
    chosen = RenyiAccountant("add_remove", orders=[order]).compose(dp_event.LaplaceDpEvent(scale))
    got = float(chosen.cost.divergence[0])
    assert exact <= got <= exact + 1e-12 * max(1, 1 / scale)


@pytest.mark.parametrize(
    ("event", "adjacency", "exact"),
    [
        (gaussian(6.0), "add_remove", True),
        (dp_event.LaplaceDpEvent(6.0), "zero_out", True),
        (dp_event.ZCDpEvent(0.1, 0.2), "add_remove", True),
        (dp_event.PoissonSampledDpEvent(0.05, gaussian(2.0)), "add_remove", True),
        (dp_event.ComposedDpEvent([gaussian(3.0), dp_event.LaplaceDpEvent(9.0)]), "zero_out", True),
        (dp_event.RandomizedResponseDpEvent(0.6, 3), "zero_out", False),  # ours is that of the worst ε-DP mechanism
        (dp_event.RandomizedResponseDpEvent(0.6, 3), "replace_one", False),
    ],
)
def test_renyi_divergences_are_at_least_those_of_dp_accounting(event: DpEvent, adjacency: str, exact: bool) -> None:
    """Where the library's events mean the same; it does not double sensitivities under replace_one."""
    relation = {
        "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "zero_out": NeighboringRelation.REPLACE_SPECIAL,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }[adjacency]
    orders = [1.5, 2.0, 5.5, 30.0]
    library = RdpAccountant(orders, relation)
    library.compose(event)
    ours = RenyiAccountant(adjacency, orders=orders).compose(event).cost.divergence
    assert (ours >= library.rdp * (1 - 1e-9)).all()
    if exact:
        assert ours == pytest.approx(library.rdp, rel=1e-9)


def test_certified_orders_of_a_sampled_gaussian_are_whole() -> None:
    event = dp_event.PoissonSampledDpEvent(0.01, gaussian(1.0))
    chosen = RenyiAccountant("add_remove").compose(event, 100)
    assert (chosen.cost.certified == (chosen.orders % 1 == 0)).all()
    assert chosen.epsilon(DELTA).rigor is Rigor.CERTIFIED
    assert chosen.estimate(DELTA).rigor is Rigor.ESTIMATE
    assert chosen.estimate(DELTA).value <= chosen.epsilon(DELTA).value
    assert chosen.divergence(1.5).rigor is Rigor.ESTIMATE
    assert chosen.divergence(4).rigor is Rigor.CERTIFIED
    assert RenyiAccountant("add_remove", orders=[1.5]).compose(event).epsilon(DELTA).value == math.inf
    assert {1.05, 1.5, 1.95, 2.0, 10.9, 63.0, 1024.0} <= set(chosen.orders)


def test_joint_sampling_of_gaussians_is_one_gaussian() -> None:
    """Two releases on the same sample: σ = 1.5 and σ = 2 are one Gaussian with σ^-2 = 1/2.25 + 1/4."""
    both = dp_event.PoissonSampledDpEvent(0.1, dp_event.ComposedDpEvent([gaussian(1.5), gaussian(2.0)]))
    item = dp_event.PoissonSampledDpEvent(0.1, gaussian((1 / 2.25 + 1 / 4) ** -0.5))
    assert epsilon("rdp", "add_remove", (both, 5)) == pytest.approx(epsilon("rdp", "add_remove", (item, 5)), rel=1e-12)


# --- conversions between adjacencies


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_replacement_doubles_the_sensitivity_of_a_sum(name: str) -> None:
    """dp_accounting's RdpAccountant(REPLACE_ONE) does not, its PLDAccountant does for Gaussians; here all do."""
    for event, halved in (
        (gaussian(8.0), gaussian(4.0)),
        (dp_event.LaplaceDpEvent(4.0), dp_event.LaplaceDpEvent(2.0)),
        (dp_event.DiscreteLaplaceDpEvent(0.3, 1), dp_event.DiscreteLaplaceDpEvent(0.3, 2)),
    ):
        if accountant(name, "replace_one").supports(event) is None:
            replaced = epsilon(name, "replace_one", (event, 5))
            assert close(name, replaced, epsilon(name, "add_remove", (halved, 5)))
            assert replaced > epsilon(name, "add_remove", (event, 5))


def test_the_library_difference_that_makes_explicit_conversion_necessary() -> None:
    relation = NeighboringRelation.REPLACE_ONE
    added = RdpAccountant().compose(gaussian(2.0)).get_epsilon(DELTA)
    assert RdpAccountant(neighboring_relation=relation).compose(gaussian(2.0)).get_epsilon(DELTA) == added
    assert PLDAccountant(relation).compose(gaussian(2.0)).get_epsilon(DELTA) > 1.9 * added * 0.9
    assert epsilon("rdp", "replace_one", (gaussian(2.0), 1)) > 1.9 * added


@pytest.mark.parametrize("name", NAMES)
def test_a_cost_that_is_stated_is_stated_for_the_adjacency(name: str) -> None:
    """η and ρ belong to the adjacency of the ledger: no doubling."""
    for event in (BoundedRangeSelectionDpEvent(0.4), dp_event.ZCDpEvent(0.1)):
        if accountant(name, "add_remove").supports(event) is None:
            assert epsilon(name, "replace_one", (event, 5)) == epsilon(name, "add_remove", (event, 5))


@pytest.mark.grid
@pytest.mark.parametrize("name", NAMES)
def test_disjoint_parts(name: str) -> None:
    """The worst part under add_remove or a public partition, the two worst of three otherwise."""
    loud, quiet = dp_event.LaplaceDpEvent(4.0), dp_event.LaplaceDpEvent(9.0)
    if name == "prv":
        loud, quiet = gaussian(4.0), gaussian(9.0)
    parts = [quiet, loud, quiet]
    private, public = ParallelDpEvent(parts), ParallelDpEvent(parts, partition_is_public=True)
    assert close(name, epsilon(name, "add_remove", (private, 3)), epsilon(name, "add_remove", (loud, 3)))
    assert close(name, epsilon(name, "replace_one", (public, 3)), epsilon(name, "replace_one", (loud, 3)))
    both = epsilon(name, "replace_one", (loud, 3), (quiet, 3))
    assert close(name, epsilon(name, "replace_one", (private, 3)), both)
    twice = epsilon(name, "replace_one", (ParallelDpEvent([loud, loud]), 3))
    assert close(name, twice, epsilon(name, "replace_one", (loud, 6)))
    single = epsilon(name, "replace_one", (ParallelDpEvent([loud]), 3))
    assert close(name, single, epsilon(name, "replace_one", (loud, 3)))


def test_alternatives_of_parts_are_limited() -> None:
    parts = ParallelDpEvent([gaussian(1.0 + index) for index in range(20)])
    assert "different compositions of disjoint parts, not 20" in (accountant("pld", "add_remove").supports(parts) or "")
    assert accountant("rdp", "add_remove").supports(parts) is None


def test_groups() -> None:
    """k times a pure ε, k² times a ρ, k times a μ; the others refuse."""
    three = Unit("group", 3)
    laplace = dp_event.LaplaceDpEvent(4.0)
    assert accountant("basic", "add_remove", three).compose(laplace).pure().value == 0.75
    rho = accountant("zcdp", "add_remove", three).compose(gaussian(2.0)).rho()
    assert (rho.value, rho.unit) == (9 / 8, three)
    assert accountant("gdp", "add_remove", three).compose(gaussian(2.0)).mu().value == 1.5
    for name in ("rdp", "pld", "prv"):
        assert "groups" in (accountant(name, "add_remove", three).supports(gaussian(1.0)) or "")


def test_users_are_charged_as_a_whole() -> None:
    bound = accountant("rdp", "add_remove", Unit("user")).compose(gaussian(2.0)).epsilon(DELTA)
    assert bound.value == epsilon("rdp", "add_remove", (gaussian(2.0), 1))
    assert any("user" in assumption for assumption in bound.assumptions)


def test_moving_between_parts_is_an_assumption() -> None:
    parts = ParallelDpEvent([BoundedRangeSelectionDpEvent(0.1)] * 2)
    replaced = accountant("zcdp", "replace_one").compose(parts).epsilon(DELTA)
    assert any("disjoint part" in assumption for assumption in replaced.assumptions)
    assert accountant("zcdp", "add_remove").compose(parts).epsilon(DELTA).assumptions == ()


# --- known values

# Mean aggregation of clipped logits, c = 9, τ = 1.5, δ = N^-1.1: (N, tokens, denominator) → ε at η = 2c/(sτ).
TABLE = [
    ((108000, 367, 64), 9.888715),
    ((108000, 373, 64), 9.985061),
    ((108000, 689, 256), 2.897877),
    ((108000, 733, 256), 2.999107),
    ((504000, 331, 64), 9.883027),
    ((504000, 604, 256), 2.899025),
    ((230400, 349, 64), 9.896336),
    ((230400, 645, 256), 2.899740),
]


@pytest.mark.parametrize(("row", "expected"), TABLE)
def test_mean_aggregation_with_a_fixed_denominator(row: tuple[int, int, int], expected: float) -> None:
    records, tokens, denominator = row
    event = BoundedRangeSelectionDpEvent(2 * 9 / (denominator * 1.5))
    bound = ZeroConcentrated("add_remove").compose(event, tokens).epsilon(records**-1.1)
    assert bound.value == pytest.approx(expected, abs=1e-6)
    assert bound.rigor is Rigor.CERTIFIED


@pytest.mark.parametrize(
    ("row", "expected", "digits"),
    [
        (TABLE[0][0], 23.416, 5e-4),
        (TABLE[1][0], 23.664, 5e-4),
        (TABLE[2][0], 6.3416, 5e-5),
        (TABLE[3][0], 6.5729, 5e-5),
    ],
)
def test_mean_aggregation_when_a_vector_is_exchanged(row: tuple[int, int, int], expected: float, digits: float) -> None:
    """η = 4c/(sτ), to the digits the values were given with."""
    records, tokens, denominator = row
    event = BoundedRangeSelectionDpEvent(4 * 9 / (denominator * 1.5))
    bound = ZeroConcentrated("replace_one").compose(event, tokens).epsilon(records**-1.1)
    assert bound.value == pytest.approx(expected, abs=digits)


def test_bounded_range_is_pure_with_the_range_and_its_rounding() -> None:
    event = BoundedRangeSelectionDpEvent(0.25, 2.0**-30)
    bound = accountant("basic", "add_remove").compose(event, 8).pure()
    assert bound.value == 8 * event.range == 2 + 2.0**-25
    assert bound.delta is None


def test_the_count_of_randomised_response_is_not_lost() -> None:
    """dp_accounting's PLDAccountant ignores it: 1.0987 for ten runs. Ten times log 3 is 10.986 at δ = 0."""
    event = dp_event.RandomizedResponseDpEvent(0.5, 2)
    library = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    library.compose(event, 10)
    assert library.get_epsilon(1e-6) == pytest.approx(1.0987, abs=1e-3)
    assert epsilon_at(1e-6, event, 10) == pytest.approx(10.987, abs=1e-3)


def epsilon_at(delta: float, event: DpEvent, count: int) -> float:
    return accountant("pld", "replace_one").compose(event, count).epsilon(delta).value


def test_pure_sampling_is_amplified_for_a_unit_that_may_be_absent() -> None:
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(1.0))
    exact = math.log1p(0.1 * math.expm1(1.0))
    amplified = accountant("basic", "add_remove").compose(event).pure().value
    assert exact <= amplified <= exact * (1 + 1e-14)
    assert accountant("basic", "replace_one").compose(event).pure().value == 2.0
    assert accountant("basic", "zero_out").compose(event).pure().value == 1.0


def test_randomised_response_against_its_definition() -> None:
    for uniform, buckets in ((0.5, 2), (0.9, 7), (0.01, 3)):
        event = dp_event.RandomizedResponseDpEvent(uniform, buckets)
        truth, other = 1 - uniform + uniform / buckets, uniform / buckets
        replaced = accountant("basic", "replace_one").compose(event).pure().value
        assert replaced == pytest.approx(math.log(truth / other), rel=1e-12)
        assert Fraction(math.exp(replaced)) >= Fraction(truth / other) * Fraction(1 - 1e-15)
        nulled = accountant("basic", "zero_out").compose(event).pure().value
        assert nulled == pytest.approx(max(math.log(truth * buckets), -math.log(other * buckets)), rel=1e-12)


def test_accountants_do_not_change() -> None:
    empty = accountant("rdp", "add_remove")
    empty.compose(gaussian(1.0))
    assert empty.epsilon(DELTA).value == 0
    assert empty.compose(gaussian(1.0), 0).epsilon(DELTA).value == 0


@pytest.mark.slow
def test_random_mixed_compositions_agree_between_certified_accountants() -> None:
    """zcdp, gdp and rdp bound the same thing: each is at least what pld finds, less its own truncation."""
    public = random.Random(5)
    for _ in range(5):
        parts = [(gaussian(public.uniform(3, 9)), public.randrange(1, 4)) for _ in range(2)]
        parts.append((dp_event.LaplaceDpEvent(public.uniform(3, 9)), public.randrange(1, 4)))
        lower = epsilon("pld", "add_remove", *parts) - 1e-3
        for name in ("zcdp", "gdp", "rdp"):
            assert epsilon(name, "add_remove", *parts) >= lower


def test_orders_are_validated() -> None:
    for orders in ([], [1.0], [0.5, 2.0]):
        with pytest.raises(ValueError, match="above 1"):
            RenyiAccountant("add_remove", orders=orders)
    assert np.all(np.diff(RenyiAccountant("add_remove").orders) > 0)


@pytest.mark.parametrize(
    ("epsilon_0", "delta_0", "count"), [(0.5, 1e-3, 1), (0.5, 1e-3, 2), (0.2, 1e-6, 5), (1.5, 0.0, 3)]
)
def test_mechanisms_of_which_only_epsilon_and_delta_are_known(epsilon_0: float, delta_0: float, count: int) -> None:
    """Kairouz, Oh and Viswanath (2015), Theorem 3.3: the worst (ε, δ)-DP mechanisms, k times, are exactly
    ((k − 2i)ε, 1 − (1 − δ)^k (1 − δ_i))-DP."""
    e, d, k = mpmath.mpf(epsilon_0), mpmath.mpf(delta_0), count
    chosen = accountant("lattice", "add_remove").compose(EpsilonDeltaDpEvent(epsilon_0, delta_0), k)
    for i in range(k // 2 + 1):
        terms = (mpmath.binomial(k, j) * (mpmath.exp((k - j) * e) - mpmath.exp((k - 2 * i + j) * e)) for j in range(i))
        exact = 1 - (1 - d) ** k * (1 - mpmath.fsum(terms) / (1 + mpmath.exp(e)) ** k)
        result = chosen.delta((k - 2 * i) * epsilon_0)
        assert exact * (1 - mpmath.mpf(10) ** -12) <= result.value <= exact + 2e-3 * max(exact, mpmath.mpf(10) ** -9)
        assert result.interval is None, "what ran may be better"


@pytest.mark.grid
@pytest.mark.parametrize("noise", [5e-324, 1e-200, 1e200, 1e308])
def test_prv_bounds_or_refuses_gaussians_whose_noise_has_no_square(noise: float) -> None:
    """They were a ZeroDivisionError and an OverflowError. With much noise the other release decides."""
    sampled = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, gaussian(1.1)), 100)
    event = dp_event.ComposedDpEvent([sampled, gaussian(noise)])
    chosen = accountant("prv", "add_remove")
    if noise < 1:
        with pytest.raises(ValueError, match="prv needs noise multipliers of at least"):
            chosen.compose(event).epsilon(DELTA)
    else:
        alone = chosen.compose(sampled).epsilon(DELTA).value
        assert chosen.compose(event).epsilon(DELTA).value == pytest.approx(alone, abs=0.05)


def test_losses_between_far_atoms_give_an_epsilon_that_is_large_enough() -> None:
    """Eight releases of noise ∝ e^−|x| on a count that moves by 6, at a δ where dp_accounting's own solution for ε
    loses digits: its δ there is 6e-12 too large. The law of the losses is exact, by sums of 50 digits."""
    with mpmath.workdps(50):
        one: dict[int, mpmath.mpf] = {}
        for x in range(-400, 407):
            loss = abs(x - 6) - abs(x)
            one[loss] = one.get(loss, mpmath.mpf(0)) + mpmath.tanh(mpmath.mpf(1) / 2) * mpmath.exp(-abs(x))
        total = {0: mpmath.mpf(1)}
        for _ in range(8):
            longer: dict[int, mpmath.mpf] = {}
            for first, mass in total.items():
                for second, more in one.items():
                    longer[first + second] = longer.get(first + second, mpmath.mpf(0)) + mass * more
            total = longer
        event = dp_event.SelfComposedDpEvent(dp_event.DiscreteLaplaceDpEvent(1.0, 3), 8)
        delta = math.exp(-2)
        epsilon = accountant("pld", "replace_one").compose(event).epsilon(delta).value
        attained = sum(mass * (1 - mpmath.exp(epsilon - loss)) for loss, mass in total.items() if loss > epsilon)
        assert attained <= delta
        assert attained > delta - 1e-10
