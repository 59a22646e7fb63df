"""The registry: one name an accountant, and every answer to a claim at once."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import pytest
from dp_accounting import dp_event
from scipy.stats import norm

from dpassay.accounting import (
    ACCOUNTANTS,
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    PrivacyProfile,
    PureDP,
    Rigor,
    SecretProtection,
    Unit,
    account,
    accountant,
    unsupported,
    upper_bounds,
)
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, ParallelDpEvent
from dpassay.accounting.guarantees import Guarantee

SELECTION = dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(0.25), 8)
GAUSSIAN = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(4.0), 4)
SAMPLED = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(2.0)), 10)


def test_the_names() -> None:
    records = {"lattice", "basic", "advanced", "zcdp", "gdp", "rdp", "pld", "prv"}
    assert set(ACCOUNTANTS) == records | {"ex_post", "secret_protection"}
    for name in ACCOUNTANTS:
        assert accountant(name, "add_remove").name == name


def test_unknown_names_and_things() -> None:
    with pytest.raises(ValueError, match="method must be one of lattice, basic, advanced"):
        accountant("moments", "add_remove")
    with pytest.raises(ValueError, match="adjacency must be one of add_remove"):
        accountant("rdp", "bounded")
    with pytest.raises(ValueError, match="an event, a ledger or a run, not str"):
        account("gaussian", adjacency="add_remove", delta=1e-5)
    with pytest.raises(ValueError, match="lattice needs a delta"):
        account(GAUSSIAN, adjacency="add_remove")
    with pytest.raises(ValueError, match="delta must be strictly between 0 and 1"):
        account(GAUSSIAN, adjacency="add_remove", delta=1.0)


def test_an_event_and_a_ledger_of_it_cost_the_same() -> None:
    class Ledger:
        def event(self) -> dp_event.DpEvent:
            return GAUSSIAN

    for method in ("rdp", "zcdp", "gdp"):
        assert account(Ledger(), adjacency="add_remove", delta=1e-5, method=method) == account(
            GAUSSIAN, adjacency="add_remove", delta=1e-5, method=method
        )


def test_only_pure_epsilon_needs_no_delta() -> None:
    bound = account(SELECTION, adjacency="add_remove", method="basic")
    assert (bound.value, bound.delta) == (2.0, None)


def test_bounds_are_sorted_and_reasons_given() -> None:
    bounds = upper_bounds(SELECTION, ApproxDP(1.0, 1e-5), adjacency="add_remove")
    assert {bound.method for bound in bounds} == {"lattice", "basic", "advanced", "zcdp", "gdp", "rdp"}
    assert [bound.value for bound in bounds] == sorted(bound.value for bound in bounds)
    assert len({(bound.quantity, bound.unit, bound.adjacency, bound.delta, bound.at) for bound in bounds}) <= 1
    reasons = unsupported(SELECTION, adjacency="add_remove")
    assert reasons.keys() == {"pld", "prv", "secret_protection"}
    assert reasons["pld"] == "pld has no bound for BoundedRangeSelectionDpEvent"


def test_certified_bounds_come_before_smaller_estimates() -> None:
    bounds = upper_bounds(SAMPLED, ApproxDP(1.0, 1e-5), adjacency="add_remove")
    assert [bound.method for bound in bounds[:2]] == ["lattice", "rdp"]
    assert {bound.rigor for bound in bounds[:2]} == {Rigor.CERTIFIED}
    assert {bound.method for bound in bounds[2:]} >= {"pld", "prv"}
    assert {bound.rigor for bound in bounds[2:]} == {Rigor.ESTIMATE}
    few = upper_bounds(SAMPLED, ApproxDP(1.0, 1e-5), adjacency="add_remove", methods=["rdp"])
    assert {bound.method for bound in few} == {"rdp"}


def test_each_guarantee_has_its_own_quantity() -> None:
    def quantities(guarantee: object, event: dp_event.DpEvent) -> list[tuple[str, str, float]]:
        bounds = upper_bounds(event, guarantee, adjacency="add_remove", methods=["basic", "zcdp", "gdp", "rdp"])  # type: ignore[arg-type]
        return [(bound.method, bound.quantity, bound.value) for bound in bounds]

    assert quantities(PureDP(1.0), SELECTION) == [("basic", "epsilon", 2.0)]
    assert quantities(ExPostDP(1.0), SELECTION) == [("basic", "epsilon", 2.0)]
    assert quantities(PureDP(1.0), GAUSSIAN) == []
    assert quantities(ZCDP(1.0), GAUSSIAN)[0] == ("zcdp", "rho", 0.125)
    assert quantities(ZCDP(1.0), SELECTION)[0] == ("zcdp", "rho", 0.0625)
    assert quantities(GDP(1.0), GAUSSIAN)[0] == ("gdp", "mu", 0.5)
    [(quantity, value)] = [row[1:] for row in quantities(RDP(8.0, 1.0), GAUSSIAN) if row[0] == "rdp"]
    assert quantity == "renyi_epsilon"
    assert 1.0 <= value <= 1.0 + 1e-14  # α·ρ = 8/8, rounded up
    assert quantities(SecretProtection(0.1, 0.2), GAUSSIAN) == []


def values(guarantee: Guarantee, event: dp_event.DpEvent, unit: Unit | None = None) -> dict[str, float]:
    """Method → value of all bounds; all of the same quantity and argument, certified ones from small to large."""
    bounds = upper_bounds(event, guarantee, adjacency="add_remove", unit=unit)
    assert len({(bound.quantity, bound.unit, bound.adjacency, bound.delta, bound.at) for bound in bounds}) <= 1
    certified = [bound.value for bound in bounds if bound.rigor is Rigor.CERTIFIED]
    assert certified == sorted(certified)
    assert [bound.value for bound in bounds[: len(certified)]] == certified
    return {bound.method: bound.value for bound in bounds}


def test_what_converts_answers_too() -> None:
    """Gaussian DP: divergence αμ²/2. Pure 1-DP: the relative entropy of randomised response, (e − 1)/(e + 1), and the μ
    of the Gaussian pair with the same point of its trade-off curve on the diagonal; its divergence of order 2 from its
    two probabilities. The μ of a ρ by its defining equation (`conversions.gdp_of_zcdp`)."""
    unit = dp_event.GaussianDpEvent(1.0)
    assert values(ZCDP(1.0), unit) == {"zcdp": 0.5, "gdp": 0.5}
    assert values(RDP(3.0, 1.0), unit) == {"zcdp": 1.5, "gdp": 1.5, "rdp": pytest.approx(1.5, rel=1e-14)}
    laplace = dp_event.LaplaceDpEvent(1.0)
    e = math.e
    rho = values(ZCDP(1.0), laplace)
    assert rho.keys() == {"basic", "zcdp", "gdp"}
    assert rho["basic"] == rho["zcdp"] == pytest.approx((e - 1) / (e + 1), rel=1e-14)
    mu = values(GDP(1.0), laplace)
    pure = -2 * float(norm.ppf(1 / (1 + e)))
    assert mu["basic"] == pytest.approx(pure, rel=1e-11)
    assert mu["gdp"] == pytest.approx(pure, rel=1e-11)
    assert rho["gdp"] == pytest.approx(pure**2 / 2, rel=1e-11)
    root = math.sqrt(-float(norm.logcdf(-mu["zcdp"] / 2))) - math.sqrt(-float(norm.logcdf(mu["zcdp"] / 2)))
    assert root == pytest.approx(math.sqrt(rho["zcdp"]), rel=1e-11)
    renyi = math.log((e**2 + 1 / e) / (1 + e))
    assert values(RDP(2.0, 1.0), laplace)["basic"] == pytest.approx(renyi, rel=1e-13)


def test_a_conversion_may_be_the_best_bound_or_the_only_one() -> None:
    """Selections have a smaller ρ than their pure ε has, so a smaller μ too; a sampled Laplace mechanism and a group's
    divergence have no other bound."""
    mu = values(GDP(1.0), SELECTION)
    assert mu["zcdp"] < 0.6 * mu["gdp"] < 0.6 * mu["basic"]
    sampled = dp_event.PoissonSampledDpEvent(0.01, dp_event.LaplaceDpEvent(1.0))
    epsilon = math.log1p(0.01 * math.expm1(1.0))
    assert values(ZCDP(1.0), sampled) == {"basic": pytest.approx(epsilon * math.tanh(epsilon / 2), rel=1e-13)}
    assert values(GDP(1.0), sampled).keys() == {"basic"}
    assert values(GDP(1.0), dp_event.ZCDpEvent(0.5)).keys() == {"zcdp"}
    pair = Unit("group", 2)
    assert values(ZCDP(1.0), GAUSSIAN, pair) == {"zcdp": 0.5, "gdp": 0.5}  # 2²·4/(2·4²)
    assert values(RDP(8.0, 1.0), GAUSSIAN, pair) == {"zcdp": 4.0, "gdp": 4.0}


def test_a_conversion_keeps_what_else_the_bound_says() -> None:
    parts = ParallelDpEvent([dp_event.LaplaceDpEvent(2.0), dp_event.LaplaceDpEvent(4.0)])
    for guarantee, quantity, at in ((ZCDP(1.0), "rho", None), (GDP(1.0), "mu", None), (RDP(2.5, 1.0), None, 2.5)):
        own = accountant("basic", "replace_one", Unit("user")).compose(parts).pure()
        [bound] = upper_bounds(parts, guarantee, adjacency="replace_one", unit=Unit("user"), methods=["basic"])
        assert (bound.quantity, bound.at) == (quantity or "renyi_epsilon", at)
        assert len(bound.assumptions) == 2
        assert dataclasses.replace(bound, quantity="epsilon", at=None, value=own.value) == own


@pytest.mark.parametrize(
    ("guarantee", "largest"),
    [(ZCDP(1.0), 1e308), (GDP(1.0), pytest.approx(2 * math.sqrt(2) * 1e154, rel=1e-9)), (RDP(8.0, 1.0), math.inf)],
)
def test_nothing_converts_into_a_number_where_there_is_none(guarantee: Guarantee, largest: float) -> None:
    """ρ = 1e308 is a μ of 2√(2ρ), and a divergence beyond the floats."""
    assert set(values(guarantee, dp_event.NonPrivateDpEvent()).values()) == {math.inf}
    assert set(values(guarantee, dp_event.NoOpDpEvent()).values()) == {0.0}
    event = dp_event.ZCDpEvent(1e308)
    [bound] = upper_bounds(event, guarantee, adjacency="add_remove", methods=["zcdp"])
    assert bound.value == largest


def test_a_profile_is_bounded_point_by_point() -> None:
    points = (0.5, 1.0)
    bounds = upper_bounds(
        GAUSSIAN, PrivacyProfile(points, (1e-2, 1e-3)), adjacency="add_remove", methods=["gdp", "rdp"]
    )
    assert [bound.method for bound in bounds] == ["gdp", "gdp", "rdp", "rdp"]
    assert [bound.at for bound in bounds] == [0.5, 1.0, 0.5, 1.0]
    gdp = accountant("gdp", "add_remove").compose(GAUSSIAN)
    assert [bound.value for bound in bounds[:2]] == [gdp.delta(point).value for point in points]


def test_a_profile_below_zero_is_that_of_the_reversed_pair() -> None:
    """Randomised response at ε₀ = 2, (a, 1 − a) against (1 − a, a) with a = e²/(1 + e²): δ(−1) = a − (1 − a)/e + (1 − a
    − a/e)⁺ = a − (1 − a)/e, to a few units in the last place."""
    response = dp_event.RandomizedResponseDpEvent(2 / (1 + math.exp(2.0)), 2)
    profile = PrivacyProfile((-1.0, 0.0), (1.0, 1.0))
    below, zero = upper_bounds(response, profile, adjacency="replace_one", methods=["basic"])
    a = math.exp(2.0) / (1 + math.exp(2.0))
    exact = sum(max(p - q * math.exp(-1.0), 0.0) for p, q in ((a, 1 - a), (1 - a, a)))
    assert (below.at, zero.at) == (-1.0, 0.0)
    assert exact <= below.value * (1 + 4e-16)
    assert below.value == pytest.approx(exact, rel=1e-13)


def test_a_group_and_parallel_parts_reach_every_accountant() -> None:
    parts = ParallelDpEvent([SELECTION, SELECTION])
    [bound] = upper_bounds(parts, PureDP(1.0), adjacency="add_remove", unit=Unit("group", 2))
    assert (bound.value, bound.unit) == (4.0, Unit("group", 2))
    [bound] = upper_bounds(parts, PureDP(1.0), adjacency="replace_one")
    assert bound.value == 4.0


def test_a_question_that_one_accountant_cannot_answer_does_not_silence_the_others() -> None:
    """δ = 1e-14 is below what prv's float64 sums resolve."""
    bounds = upper_bounds(GAUSSIAN, ApproxDP(1.0, 1e-14), adjacency="add_remove", methods=["gdp", "prv"])
    assert [bound.method for bound in bounds] == ["gdp"]


def test_importing_the_package_is_light() -> None:
    """Neither torch nor dp_accounting nor scipy before a name is used, and torch never."""
    code = (
        "import sys, dpassay.accounting as a\n"
        "heavy = {'numpy', 'scipy', 'dp_accounting', 'prv_accountant', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert a.Adjacency('add_remove') and a.Unit()\n"
        "a.account\n"
        "assert not {'prv_accountant', 'torch'} & set(sys.modules)\n"
        "try:\n    a.nothing\nexcept AttributeError as error:\n    assert 'nothing' in str(error)\n"
        "else:\n    raise AssertionError\n"
        "assert all(hasattr(a, name) for name in a.__all__)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
