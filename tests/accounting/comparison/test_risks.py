"""What a loss means: against closed forms of Gaussians, and against tests that are tried one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import DpEvent, dp_event
from scipy import optimize, stats

from dpassay.accounting.bounds import Direction, Risk
from dpassay.accounting.comparison.risks import regret, risks
from dpassay.accounting.events import EpsilonDeltaDpEvent, RandomAllocationDpEvent
from dpassay.accounting.lattice.accountant import Lattice

TRAINING = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(1.5)), 40)


def of(event: DpEvent, name: str, at: float | None = None, prior: float = 0.5) -> Risk:
    found = risks(event, adjacency="add_remove", delta=1e-5, prior=prior)
    (risk,) = (risk for risk in found if risk.name == name and (at is None or risk.at == at))
    return risk


@pytest.mark.parametrize("mu", [0.2, 1.0, 3.0])
def test_a_gaussian_in_closed_form(mu: float) -> None:
    event = dp_event.GaussianDpEvent(1 / mu)
    assert of(event, "advantage").value == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=1e-9)
    for rate in (0.01, 0.001):
        power = stats.norm.cdf(stats.norm.ppf(rate) + mu)
        assert of(event, "true_positive_rate", rate).value == pytest.approx(power, rel=1e-9)
    assert of(event, "mu").value == pytest.approx(mu, rel=1e-9)
    assert of(event, "regret").value < 1e-3
    for prior in (0.1, 0.5, 0.9):

        def error(threshold: float, prior: float = prior) -> float:
            missed, wrong = stats.norm.cdf(threshold - mu), stats.norm.sf(threshold)
            return float(prior * missed + (1 - prior) * wrong)

        found = min(
            optimize.minimize_scalar(error, bounds=(-15, 15), method="bounded", options={"xatol": 1e-12}).fun,
            prior,
            1 - prior,
        )
        risk = of(event, "bayes_error", prior=prior)
        assert risk.direction is Direction.LOWER
        assert risk.value == pytest.approx(found, rel=1e-6)


def test_the_regret_is_how_far_the_curve_is_above_the_gaussian() -> None:
    """At κ the moved curve is nowhere above; at four fifths of it it is, somewhere, even by its lower end."""
    pair = Lattice("add_remove").compose(TRAINING).pair
    mu = of(TRAINING, "mu").value
    kappa = regret(pair, mu)
    alphas = np.linspace(1e-4, 1 - kappa - 1e-4, 3001)
    gaussian = stats.norm.cdf(stats.norm.ppf(1 - alphas) - mu)
    assert (pair.trade_off(alphas + kappa)[0] - kappa <= gaussian + 1e-12).all()
    less = 0.8 * kappa
    assert (pair.trade_off(alphas + less)[0] - less > gaussian).any()
    assert 0.001 < kappa < 0.2


def test_every_number_is_certified_and_has_both_ends_where_neighbours_attain_it() -> None:
    for risk in risks(TRAINING, adjacency="add_remove", delta=1e-5):
        assert risk.rigor == "certified"
        if risk.name != "regret":
            assert risk.interval is not None
            assert risk.value in (risk.interval.lower, risk.interval.upper)
    bounded = risks(dp_event.ZCDpEvent(0.1), adjacency="add_remove", delta=1e-5)
    assert {risk.name for risk in bounded} == {"advantage", "true_positive_rate", "bayes_error", "mu"}
    assert all(risk.interval is None for risk in bounded)


def test_groups_are_told_apart_more_easily() -> None:
    for one, three in zip(
        risks(TRAINING, adjacency="add_remove", delta=1e-5),
        risks(TRAINING, adjacency="add_remove", delta=1e-5, unit="group(3)"),
        strict=True,
    ):
        if one.name in ("advantage", "true_positive_rate", "mu"):
            assert three.value > one.value
        elif one.name == "bayes_error":
            assert three.value < one.value


def test_a_prior_is_a_probability() -> None:
    with pytest.raises(ValueError, match="prior must be strictly between 0 and 1"):
        risks(TRAINING, adjacency="add_remove", delta=1e-5, prior=1.0)
    assert math.isinf(risks(dp_event.NonPrivateDpEvent(), adjacency="add_remove", delta=1e-5)[-1].value)


def test_who_guesses_is_told_apart_from_the_other_direction() -> None:
    """σ = 0.5, rate 0.2, prior 0.9: nothing is better than to guess that the unit is in, at an error of 0.1."""
    event = dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(0.5))
    interval = of(event, "bayes_error", prior=0.9).interval
    assert interval is not None
    assert 0.1 in interval or interval.lower == pytest.approx(0.1, rel=1e-9)


@pytest.mark.parametrize(
    "event",
    [
        dp_event.SelfComposedDpEvent(RandomAllocationDpEvent(dp_event.GaussianDpEvent(1.0), 1, 100), 5),
        dp_event.SelfComposedDpEvent(RandomAllocationDpEvent(dp_event.GaussianDpEvent(2.0), 1, 20), 2),
        dp_event.ZCDpEvent(0.1),
        EpsilonDeltaDpEvent(1.0, 1e-3),
        dp_event.RepeatAndSelectDpEvent(TRAINING, 10, 1),
    ],
)
def test_power_is_no_larger_than_the_advantage_and_every_epsilon_allow(event: DpEvent) -> None:
    """Of pairs of which only an upper side is known: P(E) ≤ Q(E) + δ(0), and e^ε Q(E) + δ.

    The second is asked at the rates that are told, up to the grid of ε and the width of its lattices, together 1.2.
    """
    lattice = Lattice("replace_one").compose(event)
    advantage = lattice.delta(0.0).value
    rates = np.array([0.1, 0.01, 0.001, 1e-6])
    betas = lattice.pair.trade_off(rates)[0]
    for rate, beta in zip(rates, betas, strict=True):
        power = lattice.blowup(float(rate)).value
        assert rate <= power <= (rate + advantage) * 1.01
        assert 1 - beta <= (rate + advantage) * 1.01
        for delta in (1e-2, 1e-4, 1e-6) if rate >= 1e-3 else ():
            assert power <= (math.exp(lattice.epsilon(delta).value) * rate + delta) * 1.2


def test_a_mu_that_nothing_certifies_is_infinite() -> None:
    """Three records of a tuned run: what bounds δ(0) is 1, which no Gaussian reaches."""
    training = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 1000)
    tuned = dp_event.RepeatAndSelectDpEvent(training, 10, 1)
    found = {risk.name: risk.value for risk in risks(tuned, adjacency="add_remove", delta=1e-5, unit="group(3)")}
    assert found["advantage"] == 1
    assert math.isinf(found["mu"])
