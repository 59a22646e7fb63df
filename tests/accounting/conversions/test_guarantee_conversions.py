"""Every conversion against an exact mechanism that attains it, or nearly, in 50-digit arithmetic; every refusal."""

from __future__ import annotations

import itertools
import math
import re
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf
from property_settings import examples

from dpassay.accounting.conversions import formulas
from dpassay.accounting.conversions.guarantees import TABLE, convert, refusal
from dpassay.accounting.guarantees import (
    GDP,
    RDP,
    ZCDP,
    ApproxDP,
    ExPostDP,
    Guarantee,
    PrivacyProfile,
    PureDP,
    SecretProtection,
)

Law = Sequence[mpf]
with mpmath.workdps(50):
    CARRIED = 1 + mpf(10) ** -30
"""The error of 50 digits where 20 cancel: far below that of a float."""
GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guarantees.md"

TYPICAL: tuple[Guarantee, ...] = (
    PureDP(1.0),
    ApproxDP(1.0, 1e-5),
    RDP(8.0, 0.5),
    ZCDP(0.1),
    GDP(0.7),
    PrivacyProfile((0.5, 1.0), (1e-2, 1e-4)),
    ExPostDP(1.0),
    SecretProtection(0.1, 0.2),
)
EXTRA: dict[Any, dict[str, Any]] = {
    ApproxDP: {"delta": 1e-3},
    RDP: {"alpha": 3.0},
    PrivacyProfile: {"epsilons": (-0.5, 0.0, 0.7, 2.0)},
    SecretProtection: {"p": 0.05},
}


@pytest.fixture(autouse=True)
def fifty_digits() -> Any:
    with mpmath.workdps(50):
        yield


# Exact quantities of finite pairs and of normals, in the direction P over Q


def delta_of(p: Law, q: Law, epsilon: Any) -> mpf:
    return sum(max(a - mpmath.exp(epsilon) * b, mpf(0)) for a, b in zip(p, q, strict=True))


def renyi_of(p: Law, q: Law, order: Any) -> mpf:
    order = mpf(order)
    terms = [a**order * b ** (1 - order) for a, b in zip(p, q, strict=True) if a > 0]
    return mpmath.log(sum(terms)) / (order - 1)


def blowup_of(p: Law, q: Law, at: Any) -> mpf:
    """The most probable event of Neyman and Pearson."""
    left, result = mpf(at), mpf(0)
    for a, b in sorted(zip(p, q, strict=True), key=lambda pair: -pair[0] / pair[1] if pair[1] else -mpmath.inf):
        share = min(mpf(1), left / b) if b else mpf(1)
        result, left = result + share * a, left - share * b
    return result


def response(epsilon: Any) -> tuple[Law, Law]:
    """Randomised response, of which every ε-DP pair is a post-processing."""
    a = 1 / (1 + mpmath.exp(-mpf(epsilon)))
    return (a, 1 - a), (1 - a, a)


def response_or_leak(epsilon: Any, delta: Any) -> tuple[Law, Law]:
    """The worst (ε, δ)-DP pair (Kairouz, Oh and Viswanath 2015)."""
    d = mpf(delta)
    (a, b), _ = response(epsilon)
    return (d, (1 - d) * a, (1 - d) * b, mpf(0)), (mpf(0), (1 - d) * b, (1 - d) * a, d)


def quantile(p: Any) -> mpf:
    return mpmath.sqrt(2) * mpmath.erfinv(2 * mpf(p) - 1)


def normal_delta(mu: Any, epsilon: Any) -> mpf:
    with mpmath.workdps(120):
        m, e = mpf(mu), mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def above(got: float, exact: mpf, relative: float) -> None:
    """`got` is at least the exact value, and more by at most that much of it."""
    assert exact <= got * CARRIED
    assert got <= exact * (1 + mpf(relative)) + mpf(10) ** -300


# The table


def test_every_cell_converts_or_says_why_not() -> None:
    assert list(TABLE) == [type(guarantee) for guarantee in TYPICAL]
    converted = set()
    for guarantee, to in itertools.product(TYPICAL, TABLE):
        reason = refusal(type(guarantee), to)
        if reason is None and not (isinstance(guarantee, PrivacyProfile) and to in (PureDP, RDP, ZCDP, GDP, ExPostDP)):
            assert type(convert(guarantee, to, **EXTRA.get(to, {}))) is to
            converted.add((type(guarantee), to))
        else:
            with pytest.raises(
                ValueError, match=f"{type(guarantee).__name__} does not convert to {to.__name__}"
            ) as info:
                convert(guarantee, to, **EXTRA.get(to, {}))
            assert reason is None or reason in str(info.value)
            assert "\n" not in str(info.value)
    assert len(converted) == 8 + 3 + 4 + 6 + 6 + 3 + 1 + 1  # in the order of the table


def test_the_guide_has_the_same_table() -> None:
    rows = re.findall(r"^\| `(\w+)` \|(.*)\|$", GUIDE.read_text(), flags=re.MULTILINE)
    cells = {name: [cell.strip() for cell in row.split("|")] for name, row in rows}
    assert list(cells) == [kind.__name__ for kind in TABLE]
    for source, to in itertools.product(TABLE, TABLE):
        cell = cells[source.__name__][list(TABLE).index(to)]
        assert (cell == "–") == (refusal(source, to) is not None), (source, to)


def test_the_guide_runs() -> None:
    code = "".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL))
    printed = re.findall(r"```text\n(.*?)```", GUIDE.read_text(), flags=re.DOTALL)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "".join(printed)


def test_a_guarantee_that_allows_no_loss_is_pure() -> None:
    nothing: list[Guarantee] = [PureDP(0.0), RDP(2.0, 0.0), ZCDP(0.0), GDP(0.0), PrivacyProfile((0.0, 1.0), (0.0, 0.0))]
    for guarantee in nothing:
        assert convert(guarantee, PureDP) == PureDP(0.0)
        assert convert(guarantee, GDP) == GDP(0.0)
        assert convert(guarantee, ZCDP) == ZCDP(0.0)
        assert convert(guarantee, ExPostDP) == ExPostDP(0.0)
        assert convert(guarantee, RDP, alpha=64.0) == RDP(64.0, 0.0)
        assert convert(guarantee, ApproxDP, delta=1e-9) == ApproxDP(0.0, 1e-9)
        assert convert(guarantee, SecretProtection, p=0.25).r == pytest.approx(0.25, rel=1e-14)
        assert convert(guarantee, PrivacyProfile, epsilons=[0.0, 1.0]).deltas == (0.0, 0.0)


def test_the_same_kind_without_an_argument_is_the_same() -> None:
    for guarantee in TYPICAL:
        assert convert(guarantee, type(guarantee)) is guarantee


@pytest.mark.parametrize(
    ("guarantee", "to", "arguments", "message"),
    [
        (PureDP(1.0), ApproxDP, {}, "a conversion to ApproxDP needs delta"),
        (ZCDP(1.0), PrivacyProfile, {}, "needs epsilons"),
        (PureDP(1.0), ZCDP, {"delta": 0.1}, "ZCDP takes no argument, not delta"),
        (PureDP(1.0), RDP, {"alpha": 2.0, "p": 0.1}, "RDP takes only alpha, not p"),
        (PureDP(1.0), ApproxDP, {"delta": 1.0}, "delta must be strictly between"),
        (PureDP(1.0), RDP, {"alpha": 1.0}, "alpha must be above 1"),
        (PureDP(1.0), SecretProtection, {"p": 0.0}, "p must be strictly between"),
        (PureDP(1.0), PrivacyProfile, {"epsilons": (1.0, 0.5)}, "must increase"),
        (PureDP(1.0), PrivacyProfile, {"epsilons": (math.inf,)}, "epsilon must be finite"),
        (PureDP(1.0), float, {}, "a guarantee must be one of PureDP, ApproxDP"),
        (ApproxDP(1.0, 1e-5), ApproxDP, {"delta": 1e-6}, "gives no ε at δ = 1e-06, as all of its δ are larger"),
        (PrivacyProfile((1.0,), (1e-3,)), ApproxDP, {"delta": 1e-4}, "as all of its δ are larger"),
        (PrivacyProfile((1.0,), (1.0,)), ApproxDP, {"delta": 1e-4}, "as all of its δ are larger"),
        (RDP(3.0, 1.0), RDP, {"alpha": 3.5}, "order 3.0 gives no bound at the larger order 3.5"),
    ],
)
def test_impossible_questions_are_refused(
    guarantee: Guarantee, to: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        convert(guarantee, to, **arguments)


# Pure and approximate DP: their worst pairs attain everything

positive = st.floats(-4, 1.5).map(lambda power: 10.0**power)
small = st.floats(-12, -0.1).map(lambda power: 10.0**power)


@examples(14, 40, derandomize=True)
@given(epsilon=positive, delta=small, share=st.floats(0.001, 1.5), p=small, order=st.floats(1.01, 200))
def test_pure_dp_is_randomised_response(epsilon: float, delta: float, share: float, p: float, order: float) -> None:
    """Float error only: relative 1e-12 of what does not cancel, and 1e-14 over ε of δ near the end of its range."""
    with mpmath.workdps(60):
        pair, pure = response(epsilon), PureDP(epsilon)
        got = convert(pure, ApproxDP, delta=delta)
        assert delta_of(*pair, got.epsilon) <= delta
        if got.epsilon > 0:
            assert delta_of(*pair, got.epsilon - 1e-12 * (1 + epsilon / delta) * (1 + epsilon)) >= delta
        for point in (share * epsilon, -share * epsilon):
            [value] = convert(pure, PrivacyProfile, epsilons=[point]).deltas
            above(value, delta_of(*pair, point), 1e-13)
        above(convert(pure, SecretProtection, p=p).r, blowup_of(*pair, p), 1e-13)
        exact = renyi_of(*pair, order)
        assert exact <= convert(pure, RDP, alpha=order).epsilon <= exact + mpf(1e-13) * (epsilon + 1 / (order - 1))
        assert convert(pure, ExPostDP) == ExPostDP(epsilon)


def test_nothing_underflows_to_no_loss() -> None:
    assert convert(PureDP(1e-300), ZCDP).rho > 0
    assert convert(GDP(1e-300), ZCDP).rho > 0
    with pytest.raises(ValueError, match="rho must be finite"):
        convert(GDP(1e300), ZCDP)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 40.0])
def test_pure_dp_is_concentrated_by_its_relative_entropy(epsilon: float) -> None:
    """No order has a divergence above αρ; in the limit α → 1 it is ρ. Bun and Steinke's ε²/2 is never less."""
    rho, pair = convert(PureDP(epsilon), ZCDP).rho, response(epsilon)
    entropy = sum(a * mpmath.log(a / b) for a, b in zip(*pair, strict=True))
    above(rho, entropy, 1e-13)
    assert rho <= epsilon**2 / 2 * (1 + 1e-15)
    for excess in (1e-9, 1e-3, 0.1, 0.5, 1, 3, 10, 100, 1000):
        assert renyi_of(*pair, 1 + mpf(excess)) <= (1 + mpf(excess)) * mpf(rho)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 3.0, 20.0])
def test_pure_dp_is_gaussian_at_its_kink(epsilon: float) -> None:
    """Every event is bounded by the Gaussian curve, and the response itself attains it, to a relative 1e-9."""
    mu, pair = convert(PureDP(epsilon), GDP).mu, response(epsilon)
    for p in (1e-9, 1e-3, 0.1, 0.4, 0.6, 0.99):
        assert blowup_of(*pair, p) <= mpmath.ncdf(quantile(p) + mpf(mu))
    above(mu, quantile(pair[0][0]) - quantile(pair[1][0]), 1e-9)


@examples(20, 60, derandomize=True)
@given(epsilon=positive, delta=small, factor=st.floats(1.0, 50), share=st.floats(0, 1.5), p=small)
def test_approximate_dp_is_response_or_leak(
    epsilon: float, delta: float, factor: float, share: float, p: float
) -> None:
    with mpmath.workdps(60):
        pair, guarantee = response_or_leak(epsilon, delta), ApproxDP(epsilon, delta)
        for point in (share * epsilon, -share * epsilon):
            [value] = convert(guarantee, PrivacyProfile, epsilons=[point]).deltas
            above(value, delta_of(*pair, point), 1e-13)
        above(convert(guarantee, SecretProtection, p=p).r, blowup_of(*pair, p), 1e-13)
        wider = min(delta * factor, 0.99)
        if wider >= delta:
            got = convert(guarantee, ApproxDP, delta=wider)
            assert got.delta == wider
            assert delta_of(*pair, got.epsilon) <= wider * CARRIED
            if 0 < got.epsilon < epsilon:
                # δ is rounded by 1e-16 of itself, and the curve falls at a rate of at least (1 − δ)e^ε′/(1 + e^ε)
                rate = (1 - delta) * math.exp(got.epsilon - epsilon) / 2
                assert delta_of(*pair, got.epsilon - (1e-13 * wider / rate + 1e-12 * (1 + epsilon))) >= wider


# Rényi DP


def worst_binary(order: float, divergence: float, epsilon: float) -> mpf:
    """max p − e^ε q over pairs (p, 1 − p), (q, 1 − q) whose divergence of that order is at most D: the tight δ."""
    a, most = mpf(order), mpmath.exp((mpf(order) - 1) * mpf(divergence))

    def value(log_q: Any) -> mpf:
        q = mpmath.exp(log_q)
        low, high = q, mpf(1)
        if q ** (1 - a) <= most:
            return 1 - mpmath.exp(epsilon) * q
        for _ in range(80):
            p = (low + high) / 2
            low, high = (p, high) if p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a) <= most else (low, p)
        return low - mpmath.exp(epsilon) * q

    grid = [mpf(-32) + 2 * k for k in range(16)] + [mpf(-1e-9)]
    best = max(range(17), key=lambda k: value(grid[k]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, 16)]
    golden = (mpmath.sqrt(5) - 1) / 2
    for _ in range(32):
        first, second = high - golden * (high - low), low + golden * (high - low)
        low, high = (first, high) if value(first) < value(second) else (low, second)
    return value((low + high) / 2)


@pytest.mark.grid
@pytest.mark.parametrize(
    ("order", "divergence", "epsilon"),
    [(10, 0.5, 1.418), (10, 0.05, 0.5), (4, 0.1, 1.0), (2, 0.01, 0.1), (1.1, 0.3, 0.0), (2, 1e-6, 1e-4), (2.5, 5, 0.0)],
)
def test_one_order_gives_the_delta_of_its_worst_pair(order: float, divergence: float, epsilon: float) -> None:
    guarantee = RDP(order, divergence)
    with mpmath.workdps(30):
        exact = worst_binary(order, divergence, epsilon)
    [delta] = convert(guarantee, PrivacyProfile, epsilons=[epsilon]).deltas
    above(delta, exact, 1e-6)
    assert delta <= math.exp(float(formulas.log_delta_from_rdp(order, divergence, epsilon))) * (1 + 1e-14)
    back = convert(guarantee, ApproxDP, delta=delta)
    assert back.epsilon <= epsilon * (1 + 1e-6) + 1e-300
    [again] = convert(guarantee, PrivacyProfile, epsilons=[back.epsilon]).deltas
    assert again <= delta


@examples(12, 25, derandomize=True)
@given(order=st.floats(1.01, 300), mean=st.floats(0.02, 4), share=st.floats(0, 3))
def test_one_order_holds_for_normals(order: float, mean: float, share: float) -> None:
    """N(μ, 1) against N(0, 1) has divergence αμ²/2 and a δ that no conversion of it may be below."""
    divergence = formulas.up(Fraction(order) * Fraction(mean) ** 2 / 2)
    epsilon = share * mean
    [delta] = convert(RDP(order, divergence), PrivacyProfile, epsilons=[epsilon]).deltas
    assert normal_delta(mean, epsilon) <= delta
    for p in (1e-6, 0.2, 0.9):
        assert mpmath.ncdf(quantile(p) + mpf(mean)) <= convert(RDP(order, divergence), SecretProtection, p=p).r


@pytest.mark.parametrize(("order", "divergence"), [(1.5, 0.3), (2, 2.0), (8, 0.5), (64, 0.01)])
@pytest.mark.parametrize("p", [1e-8, 1e-3, 0.3, 0.95])
def test_one_order_gives_the_blowup_of_its_worst_pair(order: float, divergence: float, p: float) -> None:
    """(r, 1 − r) against (p, 1 − p) obeys the guarantee in both directions and uses it up, to a relative 1e-9."""
    r = mpf(convert(RDP(order, divergence), SecretProtection, p=p).r)
    laws = (r, 1 - r), (mpf(p), 1 - mpf(p))
    used = max(renyi_of(*laws, order), renyi_of(*laws[::-1], order))
    assert divergence * (1 - mpf(10) ** -12) <= used <= divergence * (1 + mpf(10) ** -6) + mpf(10) ** -9


def test_a_smaller_order_keeps_the_divergence() -> None:
    """Two outcomes with P = (e^{−D}, 1 − e^{−D}) conditioned on the first have divergence D at every order."""
    assert convert(RDP(8.0, 0.5), RDP, alpha=3.0) == RDP(3.0, 0.5)
    q = (mpmath.exp(-mpf("0.5")), 1 - mpmath.exp(-mpf("0.5")))
    for order in (3, 8):
        assert mpmath.almosteq(renyi_of((mpf(1), mpf(0)), q, order), mpf("0.5"))


# Zero-concentrated and Gaussian DP


@pytest.mark.parametrize("mean", [0.05, 0.5, 2.0, 10.0])
def test_zcdp_holds_for_normals_and_is_near(mean: float) -> None:
    """N(μ, 1) against N(0, 1) is μ²/2-zCDP: its own ε at δ is at most what zCDP gives, and above 0.8 times that."""
    rho = mean**2 / 2 * (1 + 1e-15)
    for delta in (1e-3, 1e-6, 1e-10):
        got = convert(ZCDP(rho), ApproxDP, delta=delta)
        assert normal_delta(mean, got.epsilon) <= delta
        assert normal_delta(mean, 0.8 * got.epsilon) > delta
    epsilons = [-mean, 0.0, mean, 3 * mean + rho]
    profile = convert(ZCDP(rho), PrivacyProfile, epsilons=epsilons)
    for epsilon, delta in zip(epsilons, profile.deltas, strict=True):
        assert normal_delta(mean, epsilon) <= delta
    tail = math.exp(-((epsilons[3] - rho) ** 2) / (4 * rho))  # Bun and Steinke (2016), Proposition 1.3, is looser
    assert profile.deltas[3] <= tail
    above(convert(ZCDP(rho), RDP, alpha=7.5).epsilon, mpf(7.5) * mpf(rho), 1e-15)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("p", [1e-200, 1e-9, 1e-3, 0.3, 0.9])
def test_zcdp_gives_the_blowup_of_its_worst_pair(rho: float, p: float) -> None:
    """(r, 1 − r) against (p, 1 − p) is ρ(1 + 1e-4)-zCDP in both directions on a grid of orders, and no less than ρ."""
    r = mpf(convert(ZCDP(rho), SecretProtection, p=p).r)
    laws = (r, 1 - r), (mpf(p), 1 - mpf(p))
    orders = [1 + mpf(10) ** (mpf(k) / 8) for k in range(-48, 33)]
    used = max(max(renyi_of(*laws, order), renyi_of(*laws[::-1], order)) / order for order in orders)
    assert rho * (1 - mpf("0.02")) <= used  # the test's grid is coarser than the search's
    assert used <= rho * (1 + mpf("1e-4"))


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 1.0, 10.0, 200.0])
def test_zcdp_is_gaussian(rho: float) -> None:
    """The two inequalities from which μ is proven, on a grid of all intervals of that length; and randomised response
    of the same ρ, ε tanh(ε/2) = ρ, needs at least 0.84 times the μ."""
    mu = mpf(convert(ZCDP(rho), GDP).mu)
    root = mpmath.sqrt(mpf(rho))

    def depth(x: mpf) -> mpf:
        return mpmath.sqrt(-mpmath.log(mpmath.ncdf(x)))

    falls = []
    for step in range(-40, 41):
        x, y = step * mu / 20 - mu / 2, step * mu / 20 + mu / 2
        falls.append(max(depth(x) - depth(y), depth(-y) - depth(-x)))
    assert min(falls) == falls[40] >= root
    assert falls[40] <= root * (1 + mpf("1e-9"))
    with mpmath.workdps(200):
        epsilon = mpmath.findroot(lambda e: e * mpmath.tanh(e / 2) - rho, rho if rho > 1 else mpmath.sqrt(2 * rho))
        assert mpf("0.84") * mu <= 2 * quantile(response(epsilon)[0][0]) <= mu


@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_no_concentrated_event_exceeds_the_gaussian_curve(rho: float) -> None:
    """The largest r of every p by brute force over orders (the worst zCDP events) lies below Φ(Φ⁻¹(p) + μ)."""
    mu = convert(ZCDP(rho), GDP).mu
    for p in (1e-12, 1e-6, 1e-3, 0.05, 0.2, 0.4, 0.5, 0.7, 0.95):
        r = formulas.blowup_of_zcdp(rho, p)
        assert mpf(r) <= mpmath.ncdf(quantile(p) + mpf(mu))


@examples(14, 40, derandomize=True)
@given(
    mu=st.floats(0.05, 12), delta=small, share=st.floats(0, 6), p=st.floats(1e-9, 1 - 1e-9), order=st.floats(1.01, 99)
)
def test_gaussian_dp_is_that_of_normals(mu: float, delta: float, share: float, p: float, order: float) -> None:
    """Exact but for float error: 1e-13 of log Φ, over min(μ, 1) where the two terms of δ cancel."""
    with mpmath.workdps(60):
        guarantee, point = GDP(mu), share * mu
        got = convert(guarantee, ApproxDP, delta=delta).epsilon
        assert normal_delta(mu, got) <= delta
        if got > 1e-6:
            assert normal_delta(mu, got * (1 - 1e-6)) > delta * (1 - 1e-3)
        [below, value] = convert(guarantee, PrivacyProfile, epsilons=[-point - 0.1, point]).deltas
        above(value, normal_delta(mu, point), 1e-8)
        above(below, normal_delta(mu, -point - 0.1), 1e-8)
        above(convert(guarantee, SecretProtection, p=p).r, mpmath.ncdf(quantile(p) + mpf(mu)), 1e-10)
        above(convert(guarantee, ZCDP).rho, mpf(mu) ** 2 / 2, 1e-15)
        above(convert(guarantee, RDP, alpha=order).epsilon, mpf(order) * mpf(mu) ** 2 / 2, 1e-15)


# Profiles


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_two_points_are_the_whole_curve_of_two_responses(epsilon: float) -> None:
    """Two randomised responses have losses −2ε, 0 and 2ε, so that δ(0) and δ(2ε) = 0 say everything; and any δ in
    between lies on the chord between them, which is smaller than what either point says alone."""
    (a, b), _ = response(epsilon)
    p, q = (a * a, 2 * a * b, b * b), (b * b, 2 * a * b, a * a)
    start = delta_of(p, q, 0)
    profile = PrivacyProfile((0.0, 2 * epsilon), (float(start) * (1 + 1e-15), 0.0))
    for share in (-1.2, -0.6, 0.0, 0.25, 0.5, 0.9, 1.0, 1.5):
        [value] = convert(profile, PrivacyProfile, epsilons=[share * 2 * epsilon]).deltas
        above(value, delta_of(p, q, share * 2 * epsilon), 1e-13)
    for p0 in (1e-6, 0.1, 0.5, 0.97):
        above(convert(profile, SecretProtection, p=p0).r, blowup_of(p, q, p0), 1e-13)
    middle = float(start) / 3
    got = convert(profile, ApproxDP, delta=middle).epsilon
    assert delta_of(p, q, got) <= middle
    assert delta_of(p, q, got - 1e-12 * (1 + epsilon)) >= middle
    assert convert(profile, PureDP) == PureDP(2 * epsilon)
    assert convert(profile, ExPostDP) == ExPostDP(2 * epsilon)
    for kind in (GDP, ZCDP):
        assert convert(profile, kind) == convert(PureDP(2 * epsilon), kind)
    assert convert(profile, RDP, alpha=5.0) == convert(PureDP(2 * epsilon), RDP, alpha=5.0)


@examples(20, 60, derandomize=True)
@given(
    masses=st.lists(st.tuples(st.floats(0.01, 1), st.floats(0.01, 1)), min_size=2, max_size=5),
    places=st.lists(st.integers(-48, 48).map(lambda k: k / 16), min_size=1, max_size=4, unique=True),
    asked=st.integers(-64, 64).map(lambda k: k / 16),
    p=st.floats(0.001, 0.999),
)
def test_a_profile_holds_for_the_pair_it_was_read_off(
    masses: list[tuple[float, float]], places: list[float], asked: float, p: float
) -> None:
    """The larger of both directions of a random pair, at random ε, rounded up; the answers bound both directions."""
    totals = [sum(mpf(mass[side]) for mass in masses) for side in (0, 1)]
    first, second = ([mpf(mass[side]) / totals[side] for mass in masses] for side in (0, 1))
    places = sorted(places)

    def worst(epsilon: float) -> mpf:
        return max(delta_of(first, second, epsilon), delta_of(second, first, epsilon))

    listed = [min(float(worst(epsilon)) * (1 + 1e-15) + 1e-300, 1.0) for epsilon in places]
    profile = PrivacyProfile(tuple(places), tuple(np.minimum.accumulate(listed).tolist()))
    [value] = convert(profile, PrivacyProfile, epsilons=[asked]).deltas
    assert worst(asked) <= value
    assert value <= min([d for e, d in zip(places, profile.deltas, strict=True) if e <= asked], default=1.0)
    assert max(blowup_of(first, second, p), blowup_of(second, first, p)) <= convert(profile, SecretProtection, p=p).r
    delta = float(worst(0.5))
    if delta > 0 and profile.deltas[-1] <= delta:
        assert worst(convert(profile, ApproxDP, delta=delta).epsilon) <= delta


def test_a_delta_above_zero_never_becomes_zero() -> None:
    """δ = 0 says pure DP, which none of these has, however large ε is."""
    for guarantee in (GDP(1.0), ZCDP(0.5), RDP(2000.0, 1.0), ApproxDP(1.0, 1e-300)):
        [delta] = convert(guarantee, PrivacyProfile, epsilons=[3000.0]).deltas
        assert 0 < delta < 1e-200


# Secrets


@pytest.mark.parametrize(("p", "r"), [(0.1, 0.2), (1e-4, 1e-3), (0.5, 0.5), (0.3, 1.0)])
def test_another_prior_is_bounded_by_lines_that_pairs_attain(p: float, r: float) -> None:
    """Left of p a leak, δ = (r − p)/(1 − p); right of it a pair whose curve is the line through 0 and (p, r)."""
    for other in (p * 0.3, p, p + (1 - p) * 0.4):
        got = convert(SecretProtection(p, r), SecretProtection, p=other).r
        exact_r, exact_p, point = mpf(r), mpf(p), mpf(other)
        leak = (exact_r - exact_p) / (1 - exact_p)
        laws = ((leak, 1 - leak), (mpf(0), mpf(1))) if other <= p else None
        line = min(mpf(1), exact_r * point / exact_p)
        above(got, blowup_of(*laws, point) if laws else line, 1e-14)
        assert got >= other
