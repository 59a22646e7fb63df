"""What accountants compute exactly is rounded once and upward: sums of ρ, μ² and pure ε, and what is read off them."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import Rigor, Unit, accountant
from dpassay.accounting.accountants.gdp import GaussianDP
from dpassay.accounting.accountants.rdp import RenyiAccountant
from dpassay.accounting.accountants.zcdp import ZeroConcentrated
from dpassay.accounting.bounds import Bound
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import BoundedRangeSelectionDpEvent
from dpassay.accounting.lattice.pairs import DominatingPair


def gaussian(sigma: float) -> DpEvent:
    return dp_event.GaussianDpEvent(sigma)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 2.0, 9.0, 40.0])
def test_the_concentration_of_pure_dp_is_that_of_randomised_response(epsilon: float) -> None:
    """The least ρ with D_α ≤ ρα at every order is the supremum of D_α/α, which randomised response reaches as α → 1:
    the KL divergence ε·tanh(ε/2). At α = 1 + 1e-9 it is there to a relative 1e-8. Not ε²/2."""
    pure = dp_event.DiscreteLaplaceDpEvent(epsilon, 1)
    rho = ZeroConcentrated("add_remove").compose(pure).rho().value
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        p, q = 1 / (1 + mpmath.exp(-e)), 1 / (1 + mpmath.exp(e))
        for order in (1 + mpmath.mpf(10) ** -9, mpmath.mpf(2), mpmath.mpf(30)):
            divergence = mpmath.log(p**order * q ** (1 - order) + q**order * p ** (1 - order)) / (order - 1)
            assert divergence <= rho * order
            if order < 1.5:
                assert divergence >= rho * (1 - mpmath.mpf(10) ** -7)
    wide = ZeroConcentrated("add_remove").compose(BoundedRangeSelectionDpEvent(epsilon)).rho().value
    assert wide == min(formulas.up(Fraction(epsilon) ** 2 / 8), rho)  # a range of η is also η-DP


def test_without_noise_there_is_no_concentration() -> None:
    assert ZeroConcentrated("add_remove").compose(dp_event.LaplaceDpEvent(0.0)).rho().value == math.inf


def test_an_additive_part_of_zcdp() -> None:
    """ξ + ρα ≤ (ξ + ρ)α for α > 1. A group is held to the triangle inequality of Rényi divergences (Bun and Steinke
    2016, Section 5), step by step in 50 digits."""
    event = dp_event.ZCDpEvent(0.25, 0.5)
    assert accountant("zcdp", "add_remove").compose(event, 3).rho().value == 2.25
    for size in (2, 3, 20):
        chosen = accountant("zcdp", "add_remove", Unit("group", size)).compose(event)
        rho, xi = chosen._parameters()
        assert rho == 0.25 * size**2
        assert chosen.rho().value == pytest.approx(rho + xi, rel=1e-15)
        with mpmath.workdps(50):
            for order in (mpmath.mpf("1.000001"), mpmath.mpf("1.5"), mpmath.mpf(40)):
                assert stepwise(size, order, mpmath.mpf("0.25"), mpmath.mpf("0.5")) <= xi + rho * order


def stepwise(size: int, order: mpmath.mpf, rho: mpmath.mpf, xi: mpmath.mpf) -> mpmath.mpf:
    """D_α over `size` steps ≤ kα/(kα − 1)·D_{(kα − 1)/(k − 1)} over all but one of them + D_{kα} over one."""
    if size == 1:
        return xi + rho * order
    top = size * order
    rest = stepwise(size - 1, (top - 1) / (size - 1), rho, xi)
    return top / (top - 1) * rest + xi + rho * top


@pytest.mark.parametrize("order", [1.05, 2.0, 7.3, 8.0, 1024.0])
def test_the_divergence_of_gaussians_at_one_order_is_rounded_up_once(order: float) -> None:
    """α Σ 1/(2σ²), with σ halved under replace_one, plus ξ + ρα of zCDP events."""
    for adjacency, step in (("add_remove", 1), ("replace_one", 2)):
        chosen = RenyiAccountant(adjacency).compose(gaussian(1.0)).compose(gaussian(3.0), 7)
        chosen = chosen.compose(dp_event.ZCDpEvent(0.1, 0.3))
        exact = step**2 * (Fraction(1, 2) + Fraction(7, 18)) * Fraction(order)
        exact += Fraction(0.3) + Fraction(0.1) * Fraction(order)
        bound = chosen.divergence(order)
        assert bound.rigor is Rigor.CERTIFIED
        assert Fraction(math.nextafter(bound.value, 0)) < exact <= Fraction(bound.value)
    assert accountant("rdp", "add_remove").compose(dp_event.GaussianDpEvent(0.0)).divergence(order).value == math.inf


@pytest.mark.parametrize("sigma", [1.0, 3.0, 5.0, 13.0, 25.0, 100.0, 0.7, 1e-170, 1e170])
def test_a_single_gaussian_has_the_least_float_that_is_no_less_than_its_mu(sigma: float) -> None:
    mu = accountant("gdp", "add_remove").compose(gaussian(sigma)).mu().value
    exact = 1 / Fraction(sigma)
    if math.isinf(mu):  # its square is beyond the floats
        assert exact**2 > Fraction(sys.float_info.max)
    elif mu > 1e-150:  # or is rounded to the least float
        assert Fraction(math.nextafter(mu, 0)) < exact <= Fraction(mu)
    else:
        assert exact <= Fraction(mu) < 1e-150
    assert accountant("gdp", "add_remove").mu().value == 0


def test_pure_sums_are_exact() -> None:
    """Ten times 0.1 is ten times the double 0.1, rounded up once: the next double above 1."""
    value = accountant("basic", "add_remove").compose(dp_event.DiscreteLaplaceDpEvent(0.1, 1), 10).pure().value
    assert Fraction(value) >= 10 * Fraction(0.1) > Fraction(math.nextafter(value, 0))


@pytest.mark.parametrize("name", ["lattice", "zcdp", "gdp", "rdp"])
def test_a_tiny_delta_does_not_underflow_to_pure_dp(name: str) -> None:
    """exp(−60²/2) is below the floats and not 0; so is what ρ = 1/2 alone implies at ε = 60."""
    for event in (gaussian(1.0), dp_event.ZCDpEvent(0.5)):
        chosen = accountant(name, "add_remove")
        if chosen.supports(event) is None:
            assert 0 < chosen.compose(event).delta(60.0).value < 1e-300


def test_a_curve_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A composition, which is another accountant, has a curve of its own."""
    asked: list[float] = []
    delta = GaussianDP.delta

    def watched(self: GaussianDP, epsilon: float) -> Bound:
        asked.append(epsilon)
        return delta(self, epsilon)

    monkeypatch.setattr(GaussianDP, "delta", watched)
    chosen = GaussianDP("add_remove").compose(gaussian(2.0))
    answers = [chosen.beta(0.1), chosen.beta(0.2), chosen.blowup(0.1), chosen.blowup(0.3)]
    points = len(asked)
    assert points == len(set(asked))
    assert len({answer.value for answer in answers}) == 4
    assert chosen.compose(gaussian(2.0)).blowup(0.1).value > answers[2].value
    assert len(asked) == 2 * points


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5])
def test_one_blowup_of_an_upper_bound_is_as_good_as_many(p: float) -> None:
    """B(p) ≤ e^ε p + δ(ε) for every ε, here on a grid. At ρ = 1/2 and p = 0.001 it was 0.56, where 0.025 holds."""
    for pair in (DominatingPair.concentrated(0.5), DominatingPair.approx_dp(1.0, 1e-5).as_upper_bound()):
        line = min(math.exp(epsilon) * p + pair.delta(epsilon).upper for epsilon in np.linspace(0, 6, 61))
        assert pair.blowup(p).upper <= line * (1 + 1e-3)
        assert pair.beta(p).lower >= 1 - line * (1 + 1e-3)
