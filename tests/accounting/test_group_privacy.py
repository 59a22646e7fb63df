"""Groups and other adjacencies: chains of laws that attain the bounds, and random chains that must not exceed them."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf
from property_settings import examples

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.group_privacy import deltas_of_group, for_group, to_adjacency, to_replace_one
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

with mpmath.workdps(50):
    CARRIED = 1 + mpf(10) ** -30
"""The error of 50 digits where 20 cancel: far below that of a float."""


@pytest.fixture(autouse=True)
def fifty_digits() -> Any:
    with mpmath.workdps(50):
        yield


def renyi(p: list[mpf], q: list[mpf], order: Any) -> mpf:
    order = mpf(order)
    return mpmath.log(sum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


def test_pure_concentrated_and_gaussian_groups_are_exact() -> None:
    """N(kμ, 1) against N(0, 1): kμ-GDP, (kμ)²/2-zCDP; geometric noise with ratio e^ε: kε."""
    for size in (1, 2, 3, 10, 1000):
        for value in (0.1, 0.7, 3.0):
            for got, exact in (
                (for_group(PureDP(value), size).epsilon, size * Fraction(value)),  # type: ignore[union-attr]
                (for_group(GDP(value), size).mu, size * Fraction(value)),  # type: ignore[union-attr]
                (for_group(ZCDP(value), size).rho, size**2 * Fraction(value)),  # type: ignore[union-attr]
            ):
                assert exact <= Fraction(got) <= exact * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-4), (0.1, 1e-3), (0.0, 1e-2), (3.0, 1e-9)])
@pytest.mark.parametrize("size", [1, 2, 3, 6])
def test_a_chain_attains_the_delta_of_a_group(epsilon: float, delta: float, size: int) -> None:
    """Laws on two outcomes with P_{i+1}(E) = e^ε P_i(E) + δ, P_0(E) = 0: each step is (ε, δ)-DP in both directions, and
    the last against the first has just that δ at kε."""
    chances = [mpf(0)]
    for _ in range(size):
        chances.append(mpmath.exp(mpf(epsilon)) * chances[-1] + mpf(delta))
    assert chances[-1] < mpf(1) / 4
    for a, b in itertools.pairwise(chances):
        for first, second in ((a, b), (b, a), (1 - a, 1 - b), (1 - b, 1 - a)):
            assert first <= (mpmath.exp(mpf(epsilon)) * second + mpf(delta)) * CARRIED
    got = for_group(ApproxDP(epsilon, delta), size)
    assert isinstance(got, ApproxDP)
    assert Fraction(got.epsilon) >= size * Fraction(epsilon)
    assert chances[-1] <= got.delta * CARRIED
    assert got.delta <= chances[-1] * (1 + mpf("1e-12"))


def test_points_of_a_profile_go_one_by_one() -> None:
    profile = PrivacyProfile((-0.5, 0.0, 0.5, 4.0), (0.4, 0.1, 0.01, 0.009))
    got = for_group(profile, 2)
    assert isinstance(got, PrivacyProfile)
    assert got.epsilons == (-1.0, 0.0, 1.0, 8.0)
    assert got.deltas[0] == pytest.approx(0.4 * (1 + float(mpmath.exp(-0.5))), rel=1e-13)
    assert got.deltas[1] == pytest.approx(0.2, rel=1e-13)
    assert got.deltas[2] == pytest.approx(0.01 * (1 + float(mpmath.exp(0.5))), rel=1e-13)
    assert got.deltas[3] == got.deltas[2]  # 0.009(1 + e⁴) is larger, and δ does not rise with ε
    assert for_group(PrivacyProfile((1.0,), (0.0,)), 3) == PrivacyProfile((3.0,), (0.0,))
    assert for_group(PrivacyProfile((1.0,), (0.5,)), 3) == PrivacyProfile((3.0,), (1.0,))


@examples(20, 60, derandomize=True)
@given(rows=st.lists(st.tuples(*[st.floats(0.05, 1)] * 3), min_size=2, max_size=4), order=st.floats(2.1, 40))
def test_a_renyi_group_bounds_every_chain(rows: list[tuple[float, ...]], order: float) -> None:
    """P, R, Q at random: what the divergences of the two steps allow bounds P against Q at half the order, and stays
    within Mironov's 3ε where he states it."""
    laws = [[mpf(row[k]) / sum(mpf(other[k]) for other in rows) for row in rows] for k in range(3)]
    steps = [renyi(laws[a], laws[b], order) for a, b in ((0, 1), (1, 0), (1, 2), (2, 1))]
    divergence = max(float(max(steps)), 0.0) * (1 + 1e-15) + 1e-45  # rounded up, as are equal laws in 50 digits
    got = for_group(RDP(order, divergence), 2)
    assert isinstance(got, RDP)
    assert got.alpha == order / 2
    assert max(renyi(laws[0], laws[2], got.alpha), renyi(laws[2], laws[0], got.alpha)) <= got.epsilon
    assert order < 4 or got.epsilon <= 3 * divergence


def test_a_renyi_group_is_near_for_normals() -> None:
    """N(kμ, 1) has αk²μ²/2 at every order: two units from order 128 get 2.008 in place of 2 times its divergence."""
    got = for_group(RDP(128.0, 64.0), 2)  # ρ = 1/2
    assert isinstance(got, RDP)
    assert (got.alpha, 64 * 2.0) <= (64.0, got.epsilon)
    assert got.epsilon == pytest.approx(64 * (2 * 64 - 1.5) / 63, rel=1e-14)
    four = for_group(RDP(128.0, 64.0), 4)
    assert four == for_group(RDP(128.0, 64.0), 3)
    assert isinstance(four, RDP)
    assert four.alpha == 32.0
    assert four.epsilon == pytest.approx(got.epsilon * (64 - 1.5) / 31, rel=1e-14)


@pytest.mark.parametrize(
    ("guarantee", "size", "message"),
    [
        (PureDP(1.0), 0, "size must be at least 1"),
        (PureDP(1.0), 2.5, "size must be a whole number"),
        (RDP(2.0, 1.0), 2, "gives no bound for a group of 2: every doubling of the group halves the order"),
        (RDP(8.0, 1.0), 5, "must stay above 1"),
        (ApproxDP(1.0, 1.1e-5), 12, "(1.0, 1.1e-05)-DP gives no bound for a group of 12: δ grows to 1"),
        (ApproxDP(1.0, 1e-5), 10**9, "δ grows to 1"),
        (ExPostDP(1.0), 1, "an ex-post ε does not convert to groups"),
        (SecretProtection(0.1, 0.2), 2, "(p, r)-secret protection does not convert to groups"),
    ],
)
def test_groups_of_which_nothing_is_known(guarantee: Guarantee, size: int, message: str) -> None:
    """1.1e-5·(e¹² − 1)/(e − 1) = 1.04, while 1e-5 stays at 0.947."""
    assert isinstance(for_group(ApproxDP(1.0, 1e-5), 12), ApproxDP)
    with pytest.raises(ValueError, match=re.escape(message)):
        for_group(guarantee, size)


STEPS = {
    (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE): 2,
    (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE): 2,
    **{(adjacency, adjacency): 1 for adjacency in Adjacency},
}


@pytest.mark.parametrize("source", Adjacency)
@pytest.mark.parametrize("to", Adjacency)
def test_which_adjacency_follows_from_which(source: Adjacency, to: Adjacency) -> None:
    guarantee = GDP(0.75)
    if (source, to) in STEPS:
        assert to_adjacency(guarantee, source=source, to=str(to)) == GDP(0.75 * STEPS[source, to])
    else:
        with pytest.raises(ValueError, match=f"at {source} does not convert to {to}: "):
            to_adjacency(guarantee, source=str(source), to=to)


def test_an_exchange_is_one_that_goes_and_one_that_comes() -> None:
    assert to_replace_one(PureDP(0.5)) == PureDP(1.0)
    assert to_replace_one(ZCDP(0.5)) == ZCDP(2.0)
    with pytest.raises(ValueError, match="an ex-post ε does not convert"):
        to_replace_one(ExPostDP(0.5))
    assert to_adjacency(ExPostDP(0.5), source="zero_out", to="zero_out") == ExPostDP(0.5)
    with pytest.raises(ValueError, match="adjacency must be one of"):
        to_adjacency(PureDP(0.5), source="substitute", to="replace_one")


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_delta_of_a_group_is_the_sum_rounded_up_by_little(size: int) -> None:
    """δ Σ_{i<k} e^{iε} in 60 digits, at ε of either sign from 10⁻³²⁰ to 600 and δ down to the least float64."""
    rng = np.random.default_rng(size)
    epsilons = np.concatenate([rng.normal(size=300) * 10.0 ** rng.uniform(-18, 2, 300), [0.0, 1e-320, -1e-320, 600.0]])
    deltas = np.concatenate([10.0 ** rng.uniform(-300, 0, 201), 5e-324 * np.arange(1, 101), [1.0, 1.0, 1e-300]])
    grown = deltas_of_group(epsilons, deltas, size)
    with mpmath.workdps(60):
        for epsilon, delta, bound in zip(epsilons.tolist(), deltas.tolist(), grown.tolist(), strict=True):
            factor = mpmath.fsum(mpmath.exp(index * mpmath.mpf(epsilon)) for index in range(size))
            exact = min(mpmath.mpf(1), delta * factor)
            assert bound >= exact
            scale = 1 + abs(mpmath.log(delta)) + abs(mpmath.log(factor))
            if exact > 1e-300:
                assert bound <= exact * (1 + 80 * 2.0**-53 * scale)
    assert deltas_of_group(np.array([1.0]), np.array([0.0]), size).tolist() == [0.0]
