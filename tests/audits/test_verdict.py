"""Verdicts: which bounds count for and against which claims, and what is said of them."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
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
from dpassay.accounting.registry import upper_bounds
from dpassay.audits import implications
from dpassay.audits.verdict import Verdict, decide
from dpassay.reports.json_form import Missing


def bound(
    direction: str,
    value: float,
    *,
    quantity: str = "epsilon",
    rigor: Rigor = Rigor.CERTIFIED,
    delta: float | None = None,
    at: float | None = None,
    confidence: float | None = None,
    ceiling: float | None = None,
    method: str = "method",
    adjacency: Adjacency = Adjacency.ADD_REMOVE,
    private: bool = False,
) -> Bound:
    if rigor is Rigor.FINITE_SAMPLE and confidence is None:
        confidence = 0.95
    return Bound(
        direction=Direction(direction),
        value=value,
        method=method,
        rigor=rigor,
        adjacency=adjacency,
        quantity=quantity,
        delta=delta,
        at=at,
        confidence=confidence,
        ceiling=ceiling,
        assumptions=("rows do not influence one another",),
        private=private,
    )


def verdict(claim: Guarantee, *bounds: Bound) -> Verdict:
    return decide(claim, adjacency="add_remove", unit=Unit(), bounds=bounds)


APPROX = ApproxDP(1.0, 1e-5)


@pytest.mark.parametrize(
    ("claim", "upper", "expected"),
    [
        (PureDP(1.0), bound("upper", 1.0), "SUPPORTED"),
        (PureDP(1.0), bound("upper", 1.0, delta=0.0), "SUPPORTED"),
        (PureDP(1.0), bound("upper", 1.0 + 1e-12), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.5, delta=1e-9), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.5, quantity="ex_post_epsilon"), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.5, rigor=Rigor.ESTIMATE), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.5, rigor=Rigor.FINITE_SAMPLE), "UNPROVEN"),
        (PureDP(1.0), bound("upper", math.inf), "UNPROVEN"),
        (APPROX, bound("upper", 1.0), "SUPPORTED"),
        (APPROX, bound("upper", 1.0, delta=1e-6), "SUPPORTED"),
        (APPROX, bound("upper", 1.0, delta=2e-5), "UNPROVEN"),
        (APPROX, bound("upper", 0.001, quantity="rho"), "SUPPORTED"),
        (APPROX, bound("upper", 0.1, quantity="rho"), "UNPROVEN"),
        (APPROX, bound("upper", 0.2, quantity="mu"), "SUPPORTED"),
        (APPROX, bound("upper", 0.5, quantity="ex_post_epsilon"), "UNPROVEN"),
        (ExPostDP(1.0), bound("upper", 1.0, quantity="ex_post_epsilon"), "SUPPORTED"),
        (ExPostDP(1.0), bound("upper", 1.0), "SUPPORTED"),
        (ExPostDP(1.0), bound("upper", 0.5, delta=1e-5), "UNPROVEN"),
        (ExPostDP(1.0), bound("upper", 0.5, quantity="rho"), "UNPROVEN"),
        (ZCDP(0.5), bound("upper", 0.5, quantity="rho"), "SUPPORTED"),
        (ZCDP(0.51), bound("upper", 1.0), "SUPPORTED"),
        (ZCDP(0.4622), bound("upper", 1.0), "SUPPORTED"),  # tanh(1/2) = 0.46212
        (ZCDP(0.4621), bound("upper", 1.0), "UNPROVEN"),
        (ZCDP(0.51), bound("upper", 1.0, quantity="mu"), "SUPPORTED"),
        (ZCDP(0.5), bound("upper", 0.1, delta=1e-5), "UNPROVEN"),
        (GDP(1.0), bound("upper", 1.0, quantity="mu"), "SUPPORTED"),
        (GDP(1.0), bound("upper", 0.7), "SUPPORTED"),
        (GDP(1.0), bound("upper", 0.9), "UNPROVEN"),
        (GDP(1.0), bound("upper", 0.227, quantity="rho"), "SUPPORTED"),  # √−log Φ(−½) − √−log Φ(½) = √0.22751
        (GDP(1.0), bound("upper", 0.228, quantity="rho"), "UNPROVEN"),
        (RDP(4.0, 2.0), bound("upper", 0.5, quantity="rho"), "SUPPORTED"),
        (RDP(4.0, 2.0), bound("upper", 1.0, quantity="mu"), "SUPPORTED"),
        (RDP(4.0, 1.99), bound("upper", 1.0, quantity="mu"), "UNPROVEN"),
        (RDP(4.0, 1.0), bound("upper", 1.0), "SUPPORTED"),
        (RDP(4.0, 0.2), bound("upper", 0.5, quantity="rho"), "UNPROVEN"),
        (RDP(4.0, 0.2), bound("upper", 0.2, quantity="renyi_epsilon", at=4.0), "SUPPORTED"),
        (RDP(4.0, 0.2), bound("upper", 0.2, quantity="renyi_epsilon", at=5.0), "SUPPORTED"),
        (RDP(4.0, 0.2), bound("upper", 0.2, quantity="renyi_epsilon", at=3.9), "UNPROVEN"),
        (ZCDP(9.0), bound("upper", 0.2, quantity="renyi_epsilon", at=4.0), "UNPROVEN"),
        (ApproxDP(1.5, 1e-5), bound("upper", 0.2, quantity="renyi_epsilon", at=10.0), "SUPPORTED"),
        (ApproxDP(1.5, 1e-5), bound("upper", 0.2, quantity="renyi_epsilon", at=2.0), "UNPROVEN"),
        (APPROX, bound("upper", 1e-5, quantity="delta", at=1.0), "SUPPORTED"),
        (APPROX, bound("upper", 1e-5, quantity="delta", at=0.9), "SUPPORTED"),
        (APPROX, bound("upper", 1e-5, quantity="delta", at=1.1), "UNPROVEN"),
        (APPROX, bound("upper", 1.1e-5, quantity="delta", at=1.0), "UNPROVEN"),
        (APPROX, bound("upper", 0.0, quantity="delta", at=-0.1), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.0, quantity="delta", at=1.0), "SUPPORTED"),
        (PureDP(1.0), bound("upper", 1e-300, quantity="delta", at=1.0), "UNPROVEN"),
        (GDP(1.0), bound("upper", 0.5, quantity="mu", delta=1e-9), "UNPROVEN"),
        (SecretProtection(0.1, 0.2), bound("upper", 0.2, quantity="r", at=0.1), "SUPPORTED"),
        (SecretProtection(0.1, 0.2), bound("upper", 0.2, quantity="r", at=0.15), "SUPPORTED"),
        (SecretProtection(0.1, 0.2), bound("upper", 0.2, quantity="r", at=0.09), "UNPROVEN"),
        (SecretProtection(0.1, 0.2), bound("upper", 0.1, quantity="r", at=0.0625), "SUPPORTED"),
        (SecretProtection(0.1, 0.2), bound("upper", 0.01), "UNPROVEN"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("upper", 0.5), "SUPPORTED"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("upper", 0.7), "UNPROVEN"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 0.0)), bound("upper", 0.4, delta=1e-4), "UNPROVEN"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-4)), bound("upper", 0.5, delta=1e-4), "SUPPORTED"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("upper", 0.15, quantity="mu"), "SUPPORTED"),
        (PrivacyProfile((0.5, 1.0), (1e-5, 1e-5)), bound("upper", 0.15, quantity="mu"), "UNPROVEN"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("upper", 0.01, quantity="rho"), "SUPPORTED"),
        # 1 − δ(−½) = e^{−½}(1 − δ(½)): pure 0.4-DP has δ(½) = 0, and 1 − e^{−½} = 0.39347
        (PrivacyProfile((-0.5, 0.5), (0.3935, 0.0)), bound("upper", 0.4), "SUPPORTED"),
        (PrivacyProfile((-0.5, 0.5), (0.3935, 0.0)), bound("upper", 0.6), "UNPROVEN"),
        (PrivacyProfile((-0.5,), (0.4,)), bound("upper", 0.4, quantity="delta", at=-0.5), "SUPPORTED"),
        (PrivacyProfile((-0.5,), (0.4,)), bound("upper", 0.41, quantity="delta", at=-0.5), "UNPROVEN"),
        # its mirror image: δ(½) ≤ 1 − e^½(1 − 0.4) = 0.01077
        (ApproxDP(0.5, 0.0108), bound("upper", 0.4, quantity="delta", at=-0.5), "SUPPORTED"),
        (ApproxDP(0.5, 0.0107), bound("upper", 0.4, quantity="delta", at=-0.5), "UNPROVEN"),
        (PureDP(1.0), bound("upper", 0.0, quantity="mu"), "SUPPORTED"),
        (APPROX, bound("upper", 0.0, quantity="beta", at=0.1), "UNPROVEN"),
    ],
)
def test_only_what_proves_a_claim_supports_it(claim: Guarantee, upper: Bound, expected: str) -> None:
    assert verdict(claim, upper).name == expected


@pytest.mark.parametrize(("sigma", "alpha", "epsilon"), [(1.0, 8.0, 4.0), (0.5, 3.0, 6.0), (2.0, 1.5, 0.1875)])
def test_a_claim_that_a_gaussian_meets_exactly_is_supported(sigma: float, alpha: float, epsilon: float) -> None:
    """α/(2σ²) is a float in each row. One unit in the last place less is not proven."""
    event = dp_event.GaussianDpEvent(sigma)
    for claimed, expected in ((epsilon, "SUPPORTED"), (math.nextafter(epsilon, 0), "UNPROVEN")):
        claim = RDP(alpha, claimed)
        assert verdict(claim, *upper_bounds(event, claim, adjacency="add_remove")).name == expected
    for other in (GDP(1 / sigma), ZCDP(1 / (2 * sigma**2))):
        assert verdict(other, *upper_bounds(event, other, adjacency="add_remove")).name == "SUPPORTED"


@pytest.mark.parametrize(
    ("claim", "below"),
    [(GDP(0.02136), GDP(0.02135)), (ZCDP(1.452e-4), ZCDP(1.451e-4)), (RDP(8.0, 1.158e-3), RDP(8, 1e-3))],
)
def test_a_claim_in_another_currency_is_decided_by_the_accountant_of_the_mechanism(
    claim: Guarantee, below: Guarantee
) -> None:
    """A Laplace mechanism of scale 1 on a sample of one in a hundred is pure log(1 + 0.01(e − 1)) = 0.0170368-DP, which
    nothing but basic composition knows; by hand, ρ = ε²/2 = 1.4513e-4 and μ = ε√(π/2) = 0.021352, to 1 in 10⁴."""
    event = dp_event.PoissonSampledDpEvent(0.01, dp_event.LaplaceDpEvent(1.0))
    result = verdict(claim, *upper_bounds(event, claim, adjacency="add_remove"))
    assert result.name == "SUPPORTED"
    assert result.best_upper is not None
    assert result.best_upper.method == "basic"
    assert verdict(below, *upper_bounds(event, below, adjacency="add_remove")).name == "UNPROVEN"


SAMPLED = Rigor.FINITE_SAMPLE


@pytest.mark.parametrize(
    ("claim", "lower", "expected"),
    [
        (PureDP(1.0), bound("lower", 1.1), "REFUTED"),
        (PureDP(1.0), bound("lower", 1.0), "UNPROVEN"),
        (PureDP(1.0), bound("lower", 1.1, delta=1e-3), "REFUTED"),
        (PureDP(1.0), bound("lower", 1.1, rigor=SAMPLED), "REFUTED"),
        (PureDP(1.0), bound("lower", 1.1, quantity="ex_post_epsilon"), "REFUTED"),
        (PureDP(1.0), bound("lower", math.inf), "REFUTED"),
        (PureDP(1.0), bound("lower", 9.0, rigor=Rigor.ESTIMATE), "UNPROVEN"),
        (PureDP(1.0), bound("lower", 9.0, rigor=Rigor.MODEL_CONDITIONAL), "UNPROVEN"),
        (PureDP(1.0), bound("lower", 9.0, rigor=Rigor.CREDIBLE), "UNPROVEN"),
        (PureDP(1.0), bound("lower", 9.0, rigor=Rigor.ASYMPTOTIC), "UNPROVEN"),
        (APPROX, bound("lower", 1.1, delta=1e-5), "REFUTED"),
        (APPROX, bound("lower", 1.1, delta=1e-4), "REFUTED"),
        (APPROX, bound("lower", 9.0, delta=1e-6), "UNPROVEN"),
        (APPROX, bound("lower", 9.0), "UNPROVEN"),
        (APPROX, bound("lower", math.inf), "UNPROVEN"),
        (APPROX, bound("lower", 9.0, quantity="ex_post_epsilon"), "UNPROVEN"),
        (ExPostDP(1.0), bound("lower", 1.1, quantity="ex_post_epsilon"), "REFUTED"),
        (ExPostDP(1.0), bound("lower", 9.0), "UNPROVEN"),
        (ExPostDP(1.0), bound("lower", 9.0, rigor=SAMPLED), "UNPROVEN"),
        (ZCDP(0.1), bound("lower", 3.0, delta=1e-5), "REFUTED"),
        (ZCDP(0.1), bound("lower", 9.0), "UNPROVEN"),
        (ZCDP(0.1), bound("lower", 0.11, quantity="rho"), "REFUTED"),
        (GDP(0.5), bound("lower", 2.5, delta=1e-5), "REFUTED"),
        (GDP(0.5), bound("lower", 1.5, delta=1e-5), "UNPROVEN"),
        (RDP(4.0, 0.5), bound("lower", 6.0, delta=1e-5), "REFUTED"),
        (SecretProtection(0.1, 0.2), bound("lower", 9.0), "UNPROVEN"),
        (SecretProtection(0.1, 0.2), bound("lower", 0.25, quantity="r", at=0.1), "REFUTED"),
        (SecretProtection(0.1, 0.2), bound("lower", 0.25, quantity="r", at=0.05), "REFUTED"),
        (SecretProtection(0.1, 0.2), bound("lower", 0.25, quantity="r", at=0.2), "UNPROVEN"),
        (SecretProtection(0.1, 0.2), bound("lower", 0.41, quantity="r", at=0.2), "REFUTED"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("lower", 0.6, delta=1e-3), "REFUTED"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("lower", 0.6, delta=1e-4), "UNPROVEN"),
        # the chord between the two points is at e^ε = 2.6211 for δ = 1e-4
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("lower", 0.97, delta=1e-4), "REFUTED"),
        (PrivacyProfile((0.5, 1.0), (1e-3, 1e-5)), bound("lower", 0.96, delta=1e-4), "UNPROVEN"),
        (PrivacyProfile((-0.5, 1.0), (0.4, 1e-5)), bound("lower", 0.6, delta=0.0108), "REFUTED"),
        (PrivacyProfile((-0.5, 1.0), (0.4, 1e-5)), bound("lower", 0.4, delta=0.0108), "UNPROVEN"),
        (APPROX, bound("lower", 2e-5, quantity="delta", at=1.0), "REFUTED"),
        (APPROX, bound("lower", 0.9e-5, quantity="delta", at=1.0), "UNPROVEN"),
        (PureDP(1.0), bound("lower", 1e-9, quantity="delta", at=1.1), "REFUTED"),
        (RDP(4.0, 0.5), bound("lower", 0.6, quantity="renyi_epsilon", at=3.0), "REFUTED"),
        (RDP(4.0, 0.5), bound("lower", 0.6, quantity="renyi_epsilon", at=5.0), "UNPROVEN"),
        (ZCDP(0.1), bound("lower", 0.6, quantity="renyi_epsilon", at=5.0), "REFUTED"),
        (ExPostDP(1.0), bound("lower", 0.9, quantity="delta", at=1.0), "UNPROVEN"),
        (APPROX, bound("lower", 0.9, quantity="beta", at=0.5), "UNPROVEN"),
    ],
)
def test_only_what_contradicts_a_claim_refutes_it(claim: Guarantee, lower: Bound, expected: str) -> None:
    assert verdict(claim, lower).name == expected


def test_every_point_of_a_profile_needs_a_proof() -> None:
    claim = PrivacyProfile((0.5, 1.0), (1e-3, 1e-5))
    first = bound("upper", 1e-3, quantity="delta", at=0.5, method="gdp")
    assert verdict(claim, first, bound("upper", 1e-5, quantity="delta", at=1.0)).name == "SUPPORTED"
    assert verdict(claim, bound("upper", 1e-5, quantity="delta", at=0.5)).name == "SUPPORTED"
    result = verdict(claim, first, bound("upper", 2.0**-16, quantity="delta", at=1.0, method="gdp"))
    assert result.name == "UNPROVEN"
    assert result.missing is not None
    assert (result.missing.best_upper, result.missing.claimed) == (2.0**-16, 1e-5)
    assert "upper bound on δ at ε = 1 is 1.52588 × 10⁻⁵ (gdp)" in result.missing.statement
    nothing = verdict(claim, bound("upper", 1.0, quantity="delta", at=0.5))
    assert nothing.missing is not None
    assert nothing.missing.best_upper is None


def test_points_below_zero_are_decided_like_the_others() -> None:
    """δ(ε) = Φ(½ − ε) − e^ε Φ(−½ − ε) of σ = 1, of either sign of ε: at 1e-12 above its curve a claim is SUPPORTED,
    at 1e-9 below it is not."""
    from scipy import stats

    indices = (-2.0, -0.5, 0.0, 1.5)
    exact = [stats.norm.cdf(0.5 - e) - math.exp(e) * stats.norm.cdf(-0.5 - e) for e in indices]
    event = dp_event.GaussianDpEvent(1.0)
    for shift, expected in ((1e-12, "SUPPORTED"), (-1e-9, "UNPROVEN")):
        claim = PrivacyProfile(indices, tuple(delta + shift for delta in exact))
        uppers = upper_bounds(event, claim, adjacency="add_remove", methods=["gdp"])
        result = verdict(claim, *uppers)
        assert result.name == expected
    assert "on δ at ε = " in result.sentence


def test_a_refutation_wins_over_a_proof_and_names_the_conflict() -> None:
    result = verdict(PureDP(1.0), bound("upper", 0.9, method="basic"), bound("lower", 1.5, rigor=SAMPLED))
    assert result.name == "REFUTED"
    assert any("basic certifies at most 0.9" in reason for reason in result.reasons)


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        (bound("upper", 1.0), bound("lower", 1.01)),
        (bound("upper", 1.0), bound("lower", 1.01, delta=1e-3)),
        (bound("upper", 1.0), bound("lower", 1.01, quantity="ex_post_epsilon")),
        (bound("upper", 1.0, delta=1e-5), bound("lower", 1.01, delta=1e-5)),
        (bound("upper", 1.0, quantity="ex_post_epsilon"), bound("lower", 1.01, quantity="ex_post_epsilon")),
        (bound("upper", 0.1, quantity="rho"), bound("lower", 3.0, delta=1e-5)),
    ],
)
@pytest.mark.parametrize("rigor", [Rigor.CERTIFIED, SAMPLED])
@pytest.mark.parametrize("claim", [PureDP(5.0), ExPostDP(5.0), ApproxDP(5.0, 1e-5)])
def test_a_lower_bound_above_a_certified_upper_bound_leaves_nothing_proven(
    claim: Guarantee, rigor: Rigor, upper: Bound, lower: Bound
) -> None:
    """Another proof of the same mechanism falls with it, and the reasons name the evidence."""
    seen = dataclasses.replace(lower, rigor=rigor, confidence=0.95 if rigor is SAMPLED else None, method="audit")
    other = bound("upper", 4.5, method="other")
    result = verdict(claim, upper, other, seen)
    assert (result.name, result.best_upper, result.is_private) == ("UNPROVEN", None, True)
    (sentence,) = result.contradictions
    assert sentence.startswith("audit shows ")
    assert "method certifies at most" in sentence
    assert f"the upper bounds count as estimates: {sentence}" in result.reasons
    assert "evidence contradicts the certified upper bounds" in result.sentence
    assert verdict(claim, other).name == "SUPPORTED"


def test_a_lower_bound_above_proof_and_claim_refutes() -> None:
    for rigor in (Rigor.CERTIFIED, SAMPLED):
        result = verdict(PureDP(0.5), bound("upper", 0.4), bound("lower", 0.6, rigor=rigor))
        assert (result.name, result.best_upper) == ("REFUTED", None)
        assert len(result.contradictions) == 1


@pytest.mark.parametrize("rigor", [Rigor.ASYMPTOTIC, Rigor.CREDIBLE, Rigor.MODEL_CONDITIONAL, Rigor.ESTIMATE])
def test_what_can_be_wrong_itself_contradicts_nothing(rigor: Rigor) -> None:
    result = verdict(PureDP(1.0), bound("upper", 0.5), bound("lower", 9.0, rigor=rigor))
    assert (result.name, result.contradictions) == ("SUPPORTED", ())


@pytest.mark.parametrize("claimed", [2.0, 1.6, 1.2])
def test_what_does_not_hold_jointly_refutes_nothing_and_is_no_support_either(claimed: float) -> None:
    """Whether it exceeds the claim, or only what is proven. With more confidence in each, it counts."""
    two = [bound("lower", 1.5, rigor=SAMPLED, confidence=0.95) for _ in range(2)]
    result = verdict(PureDP(claimed), bound("upper", 1.0), *two)
    assert (result.name, result.contradictions) == ("UNPROVEN", ())
    assert "do not hold jointly" in result.sentence
    sure = [bound("lower", 1.5, rigor=SAMPLED, confidence=0.975) for _ in range(2)]
    assert verdict(PureDP(claimed), bound("upper", 1.0), *sure).contradictions
    below = [bound("lower", 0.9, rigor=SAMPLED, confidence=0.95) for _ in range(2)]
    assert verdict(PureDP(claimed), bound("upper", 1.0), *below).name == "SUPPORTED"


def test_finite_sample_bounds_contradict_a_proof_only_if_they_hold_jointly() -> None:
    two = [bound("lower", 1.5, rigor=SAMPLED, confidence=0.95) for _ in range(2)]
    assert not verdict(PureDP(2.0), bound("upper", 1.0), *two).contradictions
    assert verdict(PureDP(2.0), bound("upper", 1.0), *two, bound("lower", 1.2)).contradictions
    assert verdict(PureDP(2.0), bound("upper", 1.0), two[0]).name == "UNPROVEN"


def test_no_claim_is_refuted_beside_a_proof_that_the_same_bound_contradicts() -> None:
    """The second bound is about a δ of which the claim says nothing; the two do not hold jointly."""
    refuting = bound("lower", 1.5, rigor=SAMPLED, delta=1e-5)
    beside = bound("lower", 0.1, rigor=SAMPLED, delta=1e-9)
    result = verdict(APPROX, bound("upper", 0.5), refuting, beside)
    assert (result.name, result.best_upper, len(result.contradictions)) == ("REFUTED", None, 1)


def test_what_an_audit_saw_makes_every_upper_bound_an_estimate() -> None:
    proof = bound("upper", 0.5)
    for claim, name in ((PureDP(1.0), "UNPROVEN"), (PureDP(0.1), "REFUTED")):
        seen = ["a loss of 9 was seen"]
        result = decide(
            claim, adjacency="add_remove", unit=Unit(), bounds=[proof, bound("lower", 0.2)], contradictions=seen
        )
        assert (result.name, result.best_upper, result.contradictions) == (name, None, tuple(seen))
        assert "the upper bounds count as estimates: a loss of 9 was seen" in result.reasons
    assert proof.rigor is Rigor.CERTIFIED


@given(
    of=st.floats(0.01, 10.0),
    quantities=st.lists(st.sampled_from(["epsilon", "ex_post_epsilon", "delta"]), min_size=1, max_size=4),
    shares=st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
    rigor=st.sampled_from([Rigor.CERTIFIED, SAMPLED]),
)
def test_evidence_that_the_proof_allows_demotes_nothing(
    of: float, quantities: list[str], shares: list[float], rigor: Rigor
) -> None:
    """Lower bounds up to the exact values of randomised response: a loss of ε₀, and δ(ε₀/2) by its closed form."""
    delta = (math.exp(of) - math.exp(of / 2)) / (1 + math.exp(of))
    lowers = [
        bound(
            "lower",
            (delta * (1 - 1e-12) if quantity == "delta" else of) * share,
            quantity=quantity,
            at=of / 2 if quantity == "delta" else None,
            rigor=rigor,
            confidence=1 - 0.05 / 4 if rigor is SAMPLED else None,
        )
        for quantity, share in zip(quantities, shares, strict=False)
    ]
    result = verdict(PureDP(of), bound("upper", of), *lowers)
    assert (result.name, result.contradictions) == ("SUPPORTED", ())


@pytest.mark.parametrize(
    ("upper", "lower"),
    [
        (bound("upper", 1.0), bound("lower", 1.0)),
        (bound("upper", 1.0, delta=1e-5), bound("lower", 9.0)),
        (bound("upper", 1.0, delta=1e-5), bound("lower", 9.0, delta=1e-6)),
        (bound("upper", 1.0, quantity="ex_post_epsilon"), bound("lower", 9.0)),
        (bound("upper", 1.0, rigor=Rigor.ESTIMATE), bound("lower", 9.0)),
        (bound("upper", 1.0), bound("lower", 9.0, rigor=Rigor.ESTIMATE)),
        (bound("upper", math.inf), bound("lower", math.inf)),
    ],
)
def test_bounds_that_can_both_be_true_do_not_contradict(upper: Bound, lower: Bound) -> None:
    verdict(PureDP(0.5), upper, lower)


def test_finite_sample_bounds_must_hold_jointly() -> None:
    two = [bound("lower", 1.5, rigor=SAMPLED, confidence=0.95) for _ in range(2)]
    result = verdict(PureDP(1.0), *two)
    assert result.name == "UNPROVEN"
    assert any("jointly with confidence 0.9 only" in reason for reason in result.reasons)
    shared = [bound("lower", 1.5, rigor=SAMPLED, confidence=1 - 0.05 / 3) for _ in range(3)]
    assert verdict(PureDP(1.0), *shared).name == "REFUTED"


def test_a_bound_that_cannot_refute_costs_no_confidence() -> None:
    beside = bound("lower", 9.0, rigor=SAMPLED, delta=1e-9)
    assert verdict(APPROX, bound("lower", 1.5, rigor=SAMPLED, delta=1e-5), beside).name == "REFUTED"


def test_a_certified_refutation_does_not_wait_for_the_others() -> None:
    two = [bound("lower", 1.5, rigor=SAMPLED, confidence=0.95) for _ in range(2)]
    assert verdict(PureDP(1.0), *two, bound("lower", 1.2)).name == "REFUTED"


@pytest.mark.parametrize(
    "other",
    [
        bound("lower", 0.1, adjacency=Adjacency.REPLACE_ONE),
        Bound(Direction.UPPER, 0.1, "m", Rigor.CERTIFIED, Adjacency.ADD_REMOVE, unit=Unit("user")),
    ],
)
def test_another_unit_or_adjacency_is_an_error(other: Bound) -> None:
    with pytest.raises(ValueError, match="convert the bound or leave it out"):
        verdict(PureDP(1.0), other)


def test_an_unproven_claim_says_what_is_missing() -> None:
    result = verdict(PureDP(3.0), bound("upper", 12.0, method="basic"), bound("upper", 9.888715, method="zcdp"))
    assert result.missing is not None
    assert result.best_upper is not None
    assert (result.missing.best_upper, result.missing.claimed, result.best_upper.method) == (9.888715, 3.0, "zcdp")
    # Rounded up: what is printed is still an upper bound, and so is the distance.
    assert "9.88872 (zcdp), 6.88872 above the claimed 3" in result.missing.statement
    assert TypeAdapter(Missing).validate_python(result.missing.to_json()) == result.missing


def test_a_claim_without_any_proof() -> None:
    result = verdict(PureDP(3.0), bound("upper", math.inf))
    assert result.best_upper is None
    assert result.missing is not None
    assert result.missing.best_upper is None
    assert TypeAdapter(Missing).validate_python(result.missing.to_json()) == result.missing
    assert "no certified upper bound" in result.sentence


def test_what_supports_brings_its_assumptions() -> None:
    result = verdict(PureDP(1.0), bound("upper", 0.5, method="basic"))
    assert "assumed by basic: rows do not influence one another" in result.reasons


def test_a_ceiling_below_the_claim_is_named() -> None:
    result = verdict(
        PureDP(3.0), bound("upper", 2.0), bound("lower", 0.0, rigor=SAMPLED, ceiling=2.5, method="one_run")
    )
    assert result.name == "SUPPORTED"
    assert any("one_run could have shown at most 2.5" in reason for reason in result.reasons)
    high = verdict(PureDP(2.0), bound("upper", 2.0), bound("lower", 0.0, rigor=SAMPLED, ceiling=2.5))
    assert not any("could have shown" in reason for reason in high.reasons)


def test_numbers_are_printed_on_the_right_side() -> None:
    refuted = verdict(PureDP(1.0), bound("lower", 1.23456789))
    assert "at least 1.23456 " in refuted.sentence
    supported = verdict(PureDP(2.0), bound("upper", 1.23456489))
    assert "bound of 1.23457 " in supported.sentence


def test_ceilings_and_proofs_are_printed_upward() -> None:
    low = verdict(PureDP(3.0), bound("upper", 2.0), bound("lower", 0.0, rigor=SAMPLED, ceiling=2.500001))
    assert any("could have shown at most 2.50001," in reason for reason in low.reasons)
    against = verdict(PureDP(1.0), bound("upper", 1.20000049), bound("lower", 2.0, rigor=SAMPLED))
    assert any("certifies at most 1.20001 " in reason for reason in against.reasons)


def test_what_depends_on_private_data_is_marked() -> None:
    realised = bound("upper", 0.5, quantity="ex_post_epsilon")
    assert verdict(ExPostDP(1.0), realised).is_private
    assert not verdict(PureDP(1.0), bound("upper", 0.5)).is_private
    assert verdict(PureDP(1.0), bound("lower", 2.0, private=True)).is_private


@pytest.mark.parametrize("claim", [PureDP(1.0), APPROX, ExPostDP(1.0), ZCDP(0.5), GDP(1.0), RDP(2.0, 1.0)])
@pytest.mark.parametrize("value", [0.0001, 50.0])
@pytest.mark.parametrize("direction", ["upper", "lower"])
def test_no_verdict_says_more_than_it_may(claim: Guarantee, value: float, direction: str) -> None:
    result = verdict(claim, bound(direction, value), bound("lower", 0.0, rigor=SAMPLED, ceiling=0.1))
    text = " ".join((result.sentence, *result.reasons))
    assert result.sentence.startswith(result.name + ": ")
    assert not re.search(r"\b(private|safe|passed)\b", text, re.IGNORECASE)


def test_conversions_used_for_claims_are_those_of_the_accountants() -> None:
    """ρ = 0.5 at δ = 1e-5, and μ = 1 at δ = 1e-5, against independent closed forms."""
    epsilon = implications.implied_limit(ZCDP(0.5), bound("lower", 1.0, delta=1e-5))
    assert epsilon <= 0.5 + 2 * math.sqrt(0.5 * math.log(1e5))  # Bun and Steinke 2016, Proposition 1.3, is looser
    assert epsilon > 3.0
    from scipy import stats

    epsilon = implications.implied_limit(GDP(1.0), bound("lower", 1.0, delta=1e-5))
    delta = stats.norm.cdf(-epsilon + 0.5) - math.exp(epsilon) * stats.norm.cdf(-epsilon - 0.5)
    assert delta == pytest.approx(1e-5, rel=1e-9)


@pytest.mark.parametrize(
    ("claim", "delta", "epsilon"),
    [
        (PureDP(1.5), 0.0, 1.5),
        (ApproxDP(2.0, 1e-7), 1e-7, 2.0),
        (GDP(0.5), 1e-5, 1.9931),  # the root of Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = 1e-5
        (ExPostDP(1.0), 0.0, None),
        (SecretProtection(0.1, 0.2), 0.0, None),
    ],
)
def test_an_audit_tests_a_claim_where_it_limits_epsilon(claim: Guarantee, delta: float, epsilon: float | None) -> None:
    at, limit = implications.epsilon_to_audit(claim)
    assert at == delta
    assert limit == (None if epsilon is None else pytest.approx(epsilon, abs=1e-3))
    if epsilon is not None:
        lower = bound("lower", epsilon + 0.1, delta=delta or None)
        assert verdict(claim, lower).name == "REFUTED"


@pytest.mark.parametrize("claim", [ZCDP(0.1), GDP(0.5), RDP(4.0, 0.2)])
def test_a_claim_in_another_form_can_be_refuted_by_an_audit(claim: Guarantee) -> None:
    at, limit = implications.epsilon_to_audit(claim)
    assert at > 0
    assert limit is not None
    for more, result in ((0.01, "REFUTED"), (-0.01, "UNPROVEN")):
        assert verdict(claim, bound("lower", limit + more, delta=at)).name == result
