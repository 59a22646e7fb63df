"""Calibrated values meet their targets, and lie within the tolerance of the exact threshold.

Exact thresholds come from closed forms in 50-digit arithmetic; those of compositions from dp_accounting, whose
pessimistic estimate lies above the truth, so that its noise does too.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import pytest
from dp_accounting import DpEvent, dp_event, pld
from hypothesis import given, settings
from hypothesis import strategies as st
from property_settings import examples

from dpassay.accounting import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    Calibration,
    ExPostDP,
    PrivacyProfile,
    PureDP,
    SecretProtection,
    TradeOff,
    account,
    calibrate,
    calibrate_many,
    dominating_pair,
    noise_for_dp_sgd,
)
from dpassay.accounting.calibration.search import CAP, LossCurve, NotMonotone, Unreachable
from dpassay.accounting.calibration.targets import Target
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import BoundedRangeSelectionDpEvent, SecretReleaseDpEvent
from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial

TOLERANCE = 1e-3
NOISE: dict[str, Any] = {"adjacency": "add_remove", "decreasing": True, "bracket": (0.05, 500.0)}


def sgd(rate: float, steps: int) -> Callable[[float], DpEvent]:
    """Noise ↦ DP-SGD."""

    def make_event(noise_multiplier: float) -> DpEvent:
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise_multiplier))
        return dp_event.SelfComposedDpEvent(step, steps)

    return make_event


def gaussian_delta(mu: mpmath.mpf, epsilon: mpmath.mpf) -> mpmath.mpf:
    """Balle and Wang (2018), Theorem 8."""
    near, far = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return mpmath.ncdf(near) - mpmath.exp(epsilon) * mpmath.ncdf(far)


def root(function: Callable[[mpmath.mpf], mpmath.mpf], low: float, high: float) -> float:
    """Where a function of one sign at `low` and the other at `high` is 0, by 160 halvings in 50 digits."""
    with mpmath.workdps(50):
        a, b = mpmath.mpf(low), mpmath.mpf(high)
        positive = function(a) > 0
        assert (function(b) > 0) != positive
        for _ in range(160):
            middle = (a + b) / 2
            a, b = (middle, b) if (function(middle) > 0) == positive else (a, middle)
        return float(a)


def assert_encloses(result: Calibration, threshold: float, *, decreasing: bool, tolerance: float = TOLERANCE) -> None:
    """The exact threshold lies between the value and what is beyond it, which are within the tolerance; an ulp of the
    float64 threshold is let pass."""
    assert result.beyond is not None
    low, high = sorted((result.value, result.beyond))
    assert (result.value == high) is decreasing
    assert low * (1 - 1e-15) <= threshold <= high * (1 + 1e-15)
    assert high - low <= tolerance * result.value * (1 + 1e-12)


# Closed forms


@pytest.mark.grid
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 5.0, 10.0])
def test_gaussian_noise_for_epsilon_and_delta(epsilon: float) -> None:
    threshold = 1 / root(lambda mu: gaussian_delta(mu, mpmath.mpf(epsilon)) - mpmath.mpf(1e-5), 1e-6, 20.0)
    result = calibrate(dp_event.GaussianDpEvent, ApproxDP(epsilon, 1e-5), **{**NOISE, "bracket": (0.01, 1e6)})
    assert_encloses(result, threshold, decreasing=True)
    assert result.refuted
    assert result.bound.value <= (epsilon or 1e-5)
    known = {1.0: 3.730632, 5.0: 0.891868, 10.0: 0.499889}
    if epsilon in known:
        assert abs(threshold - known[epsilon]) < 1e-6


def test_a_narrow_tolerance_is_reached_where_the_bound_is_a_closed_form() -> None:
    threshold = 1 / root(lambda mu: gaussian_delta(mu, mpmath.mpf(1)) - mpmath.mpf(1e-5), 1e-3, 20.0)
    result = calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), tolerance=1e-9, **NOISE)
    assert_encloses(result, threshold, decreasing=True, tolerance=1e-9)


def test_replace_one_needs_twice_the_noise_of_a_gaussian() -> None:
    threshold = 2 / root(lambda mu: gaussian_delta(mu, mpmath.mpf(1)) - mpmath.mpf(1e-5), 1e-3, 20.0)
    result = calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), **{**NOISE, "adjacency": "replace_one"})
    assert_encloses(result, threshold, decreasing=True)


@pytest.mark.grid
@pytest.mark.parametrize(("alpha", "beta"), [(0.01, 0.9), (0.1, 0.1), (1e-6, 0.999)])
def test_gaussian_noise_for_a_point_of_the_trade_off_curve(alpha: float, beta: float) -> None:
    def gap(mu: mpmath.mpf) -> mpmath.mpf:
        return mpmath.ncdf(mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(alpha)) - mu) - mpmath.mpf(beta)

    result = calibrate(dp_event.GaussianDpEvent, TradeOff(alpha, beta), **NOISE)
    assert_encloses(result, 1 / root(gap, 1e-3, 30.0), decreasing=True)
    assert result.refuted
    assert result.bound.value >= beta


def test_other_currencies_by_the_accountant_that_knows_them() -> None:
    gaussian, laplace = dp_event.GaussianDpEvent, dp_event.LaplaceDpEvent
    cases: list[tuple[Any, Target, float, str]] = [
        (gaussian, ZCDP(0.5), 1.0, "zcdp"),
        (gaussian, RDP(4.0, 0.5), 2.0, "rdp"),
        (gaussian, GDP(0.25), 4.0, "gdp"),
        (laplace, PureDP(0.1), 10.0, "basic"),
    ]
    for make_event, target, threshold, method in cases:
        result = calibrate(make_event, target, **NOISE)
        assert_encloses(result, threshold, decreasing=True)
        assert result.bound.method == method
    by_lattice = calibrate(gaussian, GDP(0.25), delta=1e-6, **NOISE)
    assert_encloses(by_lattice, 4.0, decreasing=True)
    assert (by_lattice.bound.method, by_lattice.bound.delta) == ("lattice", 1e-6)


@pytest.mark.grid
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_rate_of_a_single_sampled_gaussian(epsilon: float) -> None:
    """One step has δ(ε) = q·δ_{1/σ}(log(1 + (e^ε − 1)/q)); removal is the worse direction (Zhu, Dong and Wang 2022)."""

    def gap(rate: mpmath.mpf) -> mpmath.mpf:
        inner = mpmath.log(1 + mpmath.expm1(mpmath.mpf(epsilon)) / rate)
        return rate * gaussian_delta(mpmath.mpf(2), inner) - mpmath.mpf(1e-4)

    def make_event(rate: float) -> DpEvent:
        return dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(0.5))

    result = calibrate(
        make_event, ApproxDP(epsilon, 1e-4), adjacency="add_remove", decreasing=False, bracket=(1e-6, 1.0)
    )
    assert_encloses(result, root(gap, 1e-5, 0.999), decreasing=False)


@pytest.mark.grid
@pytest.mark.parametrize(("p", "r"), [(1e-4, 1e-3), (1e-4, 0.02), (0.1, 0.11)])
def test_noise_for_a_secret_in_one_release(p: float, r: float) -> None:
    weights = poisson_binomial([0.01] * 80)

    with mpmath.workdps(50):
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * mpmath.mpf(p))
        exact = [mpmath.binomial(80, k) * mpmath.mpf(0.01) ** k * mpmath.mpf(0.99) ** (80 - k) for k in range(30)]

    def gap(sigma: mpmath.mpf) -> mpmath.mpf:  # 30 occurrences or more have probability 1e-39
        return sum(w * mpmath.ncdf(k / sigma - quantile) for k, w in enumerate(exact)) - mpmath.mpf(r)

    result = calibrate(
        lambda sigma: SecretReleaseDpEvent(sigma, weights),
        SecretProtection(p, r),
        adjacency="secret",
        decreasing=True,
        bracket=(0.05, 500.0),
    )
    # 0.01 and its complement are rounded to float64, which moves the weights by less than a relative 1e-14.
    assert_encloses(result, root(gap, 0.05, 500.0), decreasing=True)
    assert (result.bound.quantity, result.bound.at, result.refuted) == ("r", p, True)


def test_noise_for_a_secret_in_ten_releases_is_near_the_known_value() -> None:
    """Bin(80, .01), ten rounds, σ = 2, p = 1e-4: r = .0162015."""
    weights = poisson_binomial([0.01] * 80)
    result = calibrate(
        lambda sigma: dp_event.SelfComposedDpEvent(SecretReleaseDpEvent(sigma, weights), 10),
        SecretProtection(1e-4, 0.0162015),
        adjacency="secret",
        decreasing=True,
        bracket=(0.2, 50.0),
    )
    assert result.beyond is not None
    # r falls at least like 1/σ here, so the six digits known of it are less than 1e-5 of σ.
    assert result.beyond * (1 - 1e-5) <= 2.0 <= result.value * (1 + 1e-5)


# Steps


@pytest.mark.parametrize("sigma", [7.3, 40.0, 300.0])
def test_steps_of_gaussians_are_exact(sigma: float) -> None:
    mu = root(lambda mu: gaussian_delta(mu, mpmath.mpf(1)) - mpmath.mpf(1e-5), 1e-3, 20.0)
    result = calibrate(
        lambda n: dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(sigma), n),
        ApproxDP(1.0, 1e-5),
        adjacency="add_remove",
        decreasing=False,
        integer=True,
        bracket=(1, 10**7),
        parameter="steps",
    )
    # The number is not near a whole one: 3.82…, 114.9…, 6466.6…
    assert result.value == math.floor((mu * sigma) ** 2)
    assert (result.beyond, result.refuted, type(result.value)) == (result.value + 1, True, int)


def test_one_step_more_of_dp_sgd_is_too_much() -> None:
    result = calibrate(
        lambda n: sgd(0.01, n)(1.0),
        ApproxDP(2.0, 1e-5),
        adjacency="add_remove",
        decreasing=False,
        integer=True,
        bracket=(1, 10**6),
    )
    assert result.refuted
    # Again, on other lattices.
    inside = dominating_pair(sgd(0.01, int(result.value))(1.0), "add_remove").epsilon(1e-5, width=5e-5)
    outside = dominating_pair(sgd(0.01, int(result.value) + 1)(1.0), "add_remove").epsilon(1e-5, width=5e-5)
    assert inside.lower <= 2.0 <= outside.upper
    assert outside.lower - inside.upper > 0  # widths are a quarter of what a step costs
    steps = pld.PLDAccountant().compose(sgd(0.01, int(result.value) + 8)(1.0)).get_epsilon(1e-5)
    assert steps > 2.0  # a pessimistic estimate: eight steps cost more than its own error, 1e-3


def test_an_integer_of_which_more_is_better() -> None:
    """Gaussian noise of standard deviation k/7."""
    threshold = 7 / root(lambda mu: gaussian_delta(mu, mpmath.mpf(1)) - mpmath.mpf(1e-5), 1e-3, 20.0)
    result = calibrate(
        lambda k: dp_event.GaussianDpEvent(k / 7),
        ApproxDP(1.0, 1e-5),
        adjacency="add_remove",
        decreasing=True,
        integer=True,
        bracket=(1, 10**4),
    )
    assert (result.value, result.beyond) == (math.ceil(threshold), math.floor(threshold))


# Compositions


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "delta", "rate", "steps"), [(1.0, 1e-5, 0.01, 10_000), (0.3, 1e-6, 0.002, 2000)])
def test_noise_of_dp_sgd_against_dp_accounting(epsilon: float, delta: float, rate: float, steps: int) -> None:
    result = noise_for_dp_sgd(
        epsilon, delta, sampling_probability=rate, steps=steps, adjacency="add_remove", tolerance=TOLERANCE
    )
    assert result.refuted
    assert result.bound.value <= epsilon
    theirs = dp_accounting.calibrate_dp_mechanism(
        pld.PLDAccountant,
        sgd(rate, steps),
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(0.9 * result.value, 1.1 * result.value),
        tol=1e-4 * result.value,
    )
    assert result.value <= theirs * (1 + TOLERANCE)
    assert result.beyond is not None
    # Their noise lies above the truth, less what their search may miss, and `beyond` below it.
    assert result.beyond <= theirs * (1 + 1e-4)
    assert result.evaluations <= 7


def test_a_certified_bound_stands_at_the_answer() -> None:
    result = noise_for_dp_sgd(1.0, 1e-5, sampling_probability=0.02, steps=500, adjacency="zero_out")
    again = account(sgd(0.02, 500)(result.value), adjacency="zero_out", delta=1e-5)
    assert result.bound.interval is not None
    assert again.interval is not None
    assert again.interval.lower <= result.bound.value <= 1.0
    assert again.interval.lower <= result.bound.interval.upper
    assert result.bound.interval.lower <= again.interval.upper
    assert (result.bound.method, result.bound.rigor.value, result.parameter) == (
        "lattice",
        "certified",
        "noise_multiplier",
    )


def test_a_profile_holds_at_every_point() -> None:
    profile = PrivacyProfile((-0.2, 0.3, 1.0), (0.5, 0.04, 1e-5))
    result = calibrate(sgd(0.01, 500), profile, start=1.0, **NOISE)
    assert result.refuted
    assert result.beyond is not None
    assert result.bound.at in profile.epsilons
    inside, outside = (dominating_pair(sgd(0.01, 500)(sigma), "add_remove") for sigma in (result.value, result.beyond))
    for epsilon, delta in zip(profile.epsilons, profile.deltas, strict=True):
        assert inside.delta(epsilon).lower <= delta
    points = zip(profile.epsilons, profile.deltas, strict=True)
    assert any(outside.delta(epsilon).upper > delta for epsilon, delta in points)
    assert abs(result.beyond - result.value) <= TOLERANCE * result.value


@pytest.mark.slow
def test_clip_of_a_selection_where_only_an_upper_bound_is_known() -> None:
    """zCDP: ρ = 367η²/8, η = 2c/(64·1.5), and ε(ρ) by the conversion; c = 9 has 9.888715."""
    delta = 108000**-1.1

    def make_event(clip: float) -> DpEvent:
        return dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(2 * clip / 96), 367)

    result = calibrate(
        make_event,
        ApproxDP(9.888715, delta),
        adjacency="add_remove",
        decreasing=False,
        bracket=(0.1, 100.0),
        method="zcdp",
    )
    # Printed to seven digits, so the threshold is 9 to 1e-7.
    assert_encloses(result, 9.0, decreasing=False)
    assert not result.refuted
    assert formulas.epsilon_from_zcdp(367 * (2 * result.value / 96) ** 2 / 8, delta) <= 9.888715 * (1 + 1e-9)
    by_lattice = calibrate(
        make_event,
        ApproxDP(9.888715, delta),
        adjacency="add_remove",
        decreasing=False,
        bracket=(1.0, 100.0),
        tolerance=0.05,
        start=9.6,
    )
    assert by_lattice.value >= result.value * (1 - 0.06)  # at least as good a bound


# Many targets


@pytest.mark.slow
def test_many_targets_share_what_is_learnt() -> None:
    targets = [ApproxDP(epsilon, 1e-5) for epsilon in (4.0, 0.5, 1.0, 2.0, 0.7, 1.4, 2.8)]
    many = calibrate_many(sgd(0.01, 1000), targets, **NOISE)
    each = [calibrate(sgd(0.01, 1000), target, **NOISE) for target in targets]
    assert [result.target for result in many] == targets
    for shared, alone in zip(many, each, strict=True):
        assert shared.refuted
        assert shared.bound.value <= shared.target.epsilon  # type: ignore[union-attr]
        assert abs(shared.value - alone.value) <= 2 * TOLERANCE * alone.value  # both are within it of the threshold
    assert 2 * sum(result.evaluations for result in many) <= sum(result.evaluations for result in each) + 14


def test_many_targets_of_several_kinds() -> None:
    targets: list[Target] = [
        ApproxDP(1.0, 1e-5),
        TradeOff(0.01, 0.9),
        ApproxDP(1.0, 1e-7),
        SecretProtection(0.01, 0.05),
        GDP(0.5),
    ]
    result = calibrate_many(dp_event.GaussianDpEvent, targets, **NOISE)
    for item, target in zip(result, targets, strict=True):
        alone = calibrate(dp_event.GaussianDpEvent, target, **NOISE)
        assert item.target == target
        assert abs(item.value - alone.value) <= 2 * TOLERANCE * alone.value
    assert calibrate_many(dp_event.GaussianDpEvent, [], **NOISE) == []


@settings(max_examples=6, derandomize=True)
@given(st.floats(0.05, 20.0), st.floats(1.01, 3.0), st.sampled_from([1e-4, 1e-6, 1e-10]), st.integers(1, 1000))
def test_less_is_asked_less_is_needed(epsilon: float, factor: float, delta: float, steps: int) -> None:
    def noise(epsilon: float, delta: float, steps: int) -> Calibration:
        def make_event(sigma: float) -> DpEvent:
            return dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(sigma), steps)

        return calibrate(make_event, ApproxDP(epsilon, delta), **{**NOISE, "bracket": (1e-3, 1e6)})

    base = noise(epsilon, delta, steps)
    slack = 1 + TOLERANCE
    assert noise(factor * epsilon, delta, steps).value <= base.value * slack
    assert noise(epsilon, delta * factor, steps).value <= base.value * slack
    assert noise(epsilon, delta, steps + 1).value * slack >= base.value


# What there is no answer to


def test_an_impossible_target_names_the_end_and_its_bound() -> None:
    with pytest.raises(
        ValueError, match=r"^no sigma in the bracket is certified to give epsilon ≤ 1 at δ = 1e-05: at "
    ):
        calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), parameter="sigma", **{**NOISE, "bracket": (0.1, 2.0)})
    with pytest.raises(ValueError, match=r"beta ≥ 0.989 at α = 0.01: at 2, its most private end, lattice has 0.9"):
        calibrate(dp_event.GaussianDpEvent, TradeOff(0.01, 0.989), **{**NOISE, "bracket": (0.1, 2.0)})
    with pytest.raises(ValueError, match=r"^no steps in the bracket .* at 3, its most private end"):
        calibrate(
            lambda n: dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1.0), n),
            ApproxDP(1.0, 1e-5),
            adjacency="add_remove",
            decreasing=False,
            integer=True,
            bracket=(3, 100),
            parameter="steps",
        )


def test_where_everything_meets_the_target_the_least_private_end_is_the_answer() -> None:
    result = calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), **{**NOISE, "bracket": (10.0, 100.0)})
    assert (result.value, result.beyond, result.beyond_bound, result.refuted) == (10.0, None, None, False)
    steps = calibrate(
        lambda n: dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(100.0), n),
        ApproxDP(1.0, 1e-5),
        adjacency="add_remove",
        decreasing=False,
        integer=True,
        bracket=(1, 50),
    )
    assert (steps.value, steps.beyond) == (50, None)
    assert result.to_json()["beyond"] is None


def test_a_parameter_that_runs_the_other_way_is_told() -> None:
    with pytest.raises(ValueError, match=r"^privacy does not change with sigma as decreasing says: the bound is "):
        calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), parameter="sigma", **{**NOISE, "decreasing": False})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bracket": (1.0, 1.0)}, r"bracket must be \(low, high\) with 0 < low < high"),
        ({"bracket": (0.0, 1.0)}, "bracket must be above 0, not 0.0"),
        ({"bracket": (1.0, math.inf)}, "bracket must be finite"),
        ({"bracket": (1.0, 2.0, 3.0)}, r"bracket must be \(low, high\)"),
        ({"bracket": (1.5, 2.0), "integer": True}, "two whole numbers"),
        ({"tolerance": 0.0}, "tolerance must be above 0"),
        ({"tolerance": 0.9}, "tolerance must be between 1e-9 and 0.5"),
        ({"start": -1.0}, "start must be above 0"),
        ({"adjacency": "neighbour"}, "adjacency must be one of"),
        ({"adjacency": "secret"}, "a secret's target is SecretProtection"),
        ({"method": "magic"}, "method must be one of"),
        ({"method": "zcdp", "target": GDP(1.0)}, "zcdp has no bound on mu"),
        ({"method": "lattice", "target": GDP(1.0)}, "lattice needs a delta"),
        ({"target": GDP(1.0), "delta": 1.0}, "delta must be strictly between 0 and 1"),
        ({"target": ExPostDP(1.0)}, "ExPostDP is not a target"),
        ({"target": 1.0}, "float is not a target"),
        ({"method": "gdp", "make_event": lambda x: dp_event.ZCDpEvent(x)}, "gdp supports Gaussians"),
    ],
)
def test_wrong_input_is_told_in_one_line(changes: dict[str, Any], message: str) -> None:
    arguments = {"make_event": dp_event.GaussianDpEvent, "target": ApproxDP(1.0, 1e-5), **NOISE, **changes}
    with pytest.raises(ValueError, match=message) as error:
        calibrate(**arguments)
    assert "\n" not in str(error.value)


def test_wrong_input_of_dp_sgd_and_of_a_trade_off() -> None:
    good: dict[str, Any] = {"target_epsilon": 1.0, "delta": 1e-5, "sampling_probability": 0.1, "steps": 10}
    for change in ({"target_epsilon": 0.0}, {"delta": 0.0}, {"sampling_probability": 0.0}, {"steps": 0}):
        with pytest.raises(ValueError, match=f"^{next(iter(change))} must be"):
            noise_for_dp_sgd(**{**good, **change}, adjacency="add_remove")
    for alpha, beta in ((0.5, 0.5), (0.0, 0.5), (0.1, -0.1)):
        with pytest.raises(ValueError, match=r"^(alpha|beta)"):
            TradeOff(alpha, beta)


def test_a_mistake_of_the_caller_s_function_is_not_hidden() -> None:
    def make_event(sigma: float) -> DpEvent:
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        calibrate(make_event, ApproxDP(1.0, 1e-5), **NOISE)


# What is said


def test_json_says_it_all() -> None:
    result = noise_for_dp_sgd(2.0, 1e-6, sampling_probability=0.1, steps=100, adjacency="add_remove")
    told = json.loads(json.dumps(result.to_json()))
    assert told["target"] == {"type": "ApproxDP", "epsilon": 2.0, "delta": 1e-6}
    assert told["bound"] == json.loads(json.dumps(result.bound.to_json()))
    assert (told["value"], told["beyond"], told["refuted"]) == (result.value, result.beyond, True)
    assert set(told) == {field.name for field in dataclasses.fields(result)} | {"refuted"}


def test_no_warning_of_widths_on_the_way() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrate(dp_event.GaussianDpEvent, ApproxDP(1.0, 1e-5), **NOISE)
        noise_for_dp_sgd(2.0, 1e-6, sampling_probability=0.1, steps=100, adjacency="add_remove")


# The search by itself


def measurement(
    exact: Callable[[float], float], *, seed: int, narrowest: float = 0.0
) -> Callable[[float, float], tuple[float, float, float]]:
    """Intervals of the width asked for, or `narrowest`, anywhere around a level; the answer is the upper end."""
    noise = random.Random(seed)

    def measure(value: float, width: float) -> tuple[float, float, float]:
        level, room = exact(value), max(width, narrowest)
        below = room * noise.random()
        low, high = (max(-CAP, min(CAP, end)) for end in (level - below, level - below + room))
        return low, high, high

    return measure


SHAPES: dict[str, Callable[[float], float]] = {
    "power": lambda x: 1.3 * math.log(x),
    "steep": lambda x: 40 * math.log(x / 3),
    "flat": lambda x: 0.1 * math.log(x) - 1,
    "bent": lambda x: math.log(x) + 0.05 * math.log(x) ** 3,
    "nothing, then much": lambda x: -CAP if x < 0.7 else 2 * math.log(x) + 1,
    "much, then all": lambda x: CAP if x > 5 else 0.5 * math.log(x),
    "two steps": lambda x: -3.0 if x < 0.2 else (0.1 if x < 30 else 2.0),
}


@examples(67, 200, derandomize=True)
@given(
    st.sampled_from(sorted(SHAPES)),
    st.integers(0, 10**6),
    st.floats(-4.0, 4.0),
    st.sampled_from([0.0, 1e-4, 3e-3]),
    st.sampled_from([1e-2, 1e-3, 1e-5]),
    st.booleans(),
)
def test_the_search_ends_at_a_crossing(
    shape: str, seed: int, limit: float, narrowest: float, tolerance: float, rising: bool
) -> None:
    exact = SHAPES[shape] if rising else lambda x: SHAPES[shape](1 / x)
    bracket = (1e-3, 1e3)
    measure = measurement(exact, seed=seed, narrowest=narrowest)
    curve = LossCurve(measure, bracket, rising=rising, integer=False, tolerance=tolerance)
    best, worst = bracket if rising else bracket[::-1]
    try:
        result = curve.crossing(limit, lambda high: high <= limit, 1.0)
    except Unreachable:
        assert exact(best) > limit - max(1e-4, 2 * narrowest)
        return
    assert exact(result.last.value) <= result.last.answer <= limit
    assert result.measurements <= 16 + 25  # patience, and then halvings of log(1e6) down to 1e-5
    if result.beyond is None:
        assert result.last.value == worst
        return
    assert result.beyond.answer > limit
    assert 0 <= (result.beyond.coordinate - result.last.coordinate) <= tolerance
    if not narrowest:  # as narrow as was asked for: the exact crossing is in between
        assert exact(result.beyond.value) >= limit - 1e-6
    if not narrowest and shape in ("power", "bent"):
        assert result.measurements <= 10


@examples(34, 100, derandomize=True)
@given(st.integers(1, 10**6), st.floats(0.2, 3.0), st.integers(0, 10**6), st.booleans())
def test_the_search_among_whole_numbers_is_exact(last: int, power: float, seed: int, rising: bool) -> None:
    """The level crosses half-way between two whole numbers, on a scale of which one is the reciprocal of the other."""
    sign = 1 if rising else -1

    def exact(n: float) -> float:
        return sign * power * math.log(n / (last + 0.5))

    curve = LossCurve(measurement(exact, seed=seed), (1, 10**7), rising=rising, integer=True, tolerance=1e-3)
    result = curve.crossing(0.0, lambda high: high <= 0, 1000.0)
    assert result.beyond is not None
    expected = (last, last + 1) if rising else (last + 1, last)
    if power / last > 2e-5:  # a step is more than the finest width
        assert (result.last.value, result.beyond.value) == expected
    else:
        assert exact(result.last.value) <= 0
        assert abs(result.last.value - result.beyond.value) == 1
    assert type(result.last.value) is int


def test_a_falling_level_is_refused() -> None:
    curve = LossCurve(lambda x, width: (-x, -x, None), (1.0, 100.0), rising=True, integer=False, tolerance=1e-3)
    with pytest.raises(NotMonotone):
        curve.crossing(-5.0, lambda answer: False, 10.0)


def test_code_in_the_guide_runs_and_prints_what_it_says() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "calibration.md").read_text()
    code = "\n".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    expected = "".join(re.findall(r"```text\n(.*?)```", page, flags=re.DOTALL))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == expected
