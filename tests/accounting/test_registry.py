"""The registry: one name an accountant, and every answer to a claim at once."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from dp_accounting import dp_event

from cupel.accounting import (
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
from cupel.accounting.events import BoundedRangeSelectionDpEvent, ParallelDpEvent

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
        account("gaussian", adjacency="add_remove", delta=1e-5)  # type: ignore[arg-type]
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
    assert all(bound.comparable(bounds[0]) for bound in bounds)
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
    assert quantities(ZCDP(1.0), GAUSSIAN) == [("zcdp", "rho", 0.125)]
    assert quantities(ZCDP(1.0), SELECTION) == [("zcdp", "rho", 0.0625)]
    assert quantities(GDP(1.0), GAUSSIAN) == [("gdp", "mu", 0.5)]
    [(method, quantity, value)] = quantities(RDP(8.0, 1.0), GAUSSIAN)
    assert (method, quantity) == ("rdp", "renyi_epsilon")
    assert 1.0 <= value <= 1.0 + 1e-14  # α·ρ = 8/8, rounded up
    assert quantities(SecretProtection(0.1, 0.2), GAUSSIAN) == []


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
        "import sys, cupel.accounting as a\n"
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
