"""Guarantees: their parameters are checked where they are made."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dpassay.accounting import GDP, RDP, ZCDP, ApproxDP, ExPostDP, Guarantee, PrivacyProfile, PureDP, SecretProtection


def test_possible_guarantees() -> None:
    guarantees: list[Guarantee] = [
        PureDP(0.0),
        ApproxDP(1.0, 1e-5),
        ZCDP(0.5),
        GDP(1.0),
        RDP(1.5, 0.0),
        ExPostDP(3.0),
        SecretProtection(0.1, 0.1),
        PrivacyProfile((-0.5, 0.0, 1.0), (0.5, 0.2, 0.2)),
    ]
    assert len({repr(guarantee) for guarantee in guarantees}) == len(guarantees)
    assert PureDP(1.0) == PureDP(1.0)
    assert PureDP(1.0) != ExPostDP(1.0)  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PureDP(-1.0), "epsilon must be at least 0"),
        (lambda: PureDP(math.inf), "epsilon must be finite"),
        (lambda: PureDP(math.nan), "epsilon must be a number"),
        (lambda: ApproxDP(1.0, 0.0), "delta must be strictly between"),
        (lambda: ApproxDP(1.0, 1.0), "delta must be strictly between"),
        (lambda: ZCDP(-0.1), "rho must be at least 0"),
        (lambda: GDP(-0.1), "mu must be at least 0"),
        (lambda: RDP(1.0, 1.0), "alpha must be above 1"),
        (lambda: RDP(math.inf, 1.0), "alpha must be finite"),
        (lambda: RDP(2.0, -1.0), "epsilon must be at least 0"),
        (lambda: ExPostDP(-1.0), "epsilon must be at least 0"),
        (lambda: SecretProtection(0.2, 0.1), "r must be at least p"),
        (lambda: SecretProtection(0.0, 0.1), "p must be strictly between"),
        (lambda: SecretProtection(0.1, 1.5), "r must be between 0 and 1"),
        (lambda: PrivacyProfile((), ()), "at least one"),
        (lambda: PrivacyProfile((1.0,), (0.1, 0.2)), "as many deltas"),
        (lambda: PrivacyProfile((1.0, 1.0), (0.2, 0.1)), "must increase"),
        (lambda: PrivacyProfile((0.0, 1.0), (0.1, 0.2)), "must not increase"),
        (lambda: PrivacyProfile((-1.0, 1.0), (0.6, 0.2)), "no mechanism has δ = 0.6 at ε = -1.0"),
    ],
)
def test_impossible_guarantees_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
