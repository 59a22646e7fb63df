"""The leave-one-out audit: quantities and rigor by claim, its check of the accounting, what it refuses."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.guarantees import GDP, ApproxDP, ExPostDP, Guarantee, PureDP
from dpassay.accounting.registry import upper_bounds
from dpassay.attacks.private_inference.leave_one_out import ROW_MARGIN
from dpassay.audits.games import leave_one_out_audit
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.one_outcome import certified_profile
from dpassay.audits.verdict import decide
from dpassay.generators.registry import read_claim
from dpassay.reports.json_form import AuditResult as AuditOfDocument

CLAIMS = Path(__file__).resolve().parents[3] / "examples" / "claims"
LOSSES = {0: 0.3, 1: 0.5, 2: 0.0}
EX_POST = ExPostDP(1.0)
COSTS = {0: (0.4, 0.9), 1: (0.5, 0.5), 2: (0.1, 0.2)}


def audit(guarantee: Guarantee = EX_POST, losses: Any = LOSSES, **arguments: Any) -> AuditResult:
    settings: dict[str, Any] = {"records": 9, "adjacency": "add_remove", "unit": Unit(), "ex_post_by_slot": COSTS}
    return leave_one_out_audit(losses, guarantee=guarantee, **{**settings, **arguments})


def read(result: AuditResult) -> AuditResult:
    """An audit as an assay document holds it, written as JSON and read again."""
    document: TypeAdapter[AuditResult] = TypeAdapter(AuditOfDocument)
    return document.validate_json(json.dumps(result.to_json()))


def test_fits_the_assay_document() -> None:
    result = audit(rerun_losses=[-0.7, 0.1], errors={1: 1e-9}, a_priori=100.0)
    row = read(result)
    assert row == result
    assert [bound.value for bound in row.bounds] == [0.5 - 1e-9, 0.7]
    assert row.bounds[0].ceiling == 100.0
    assert row.details["batches"][1] == {
        "slot": 1,
        "loss": 0.5,
        "error": 1e-9,
        "epsilon": 0.5,
        "epsilon_published": 0.5,
    }


@pytest.mark.parametrize(
    ("guarantee", "quantity", "rigor", "delta"),
    [
        (PureDP(1.0), "epsilon", Rigor.CERTIFIED, None),
        (ExPostDP(1.0), "ex_post_epsilon", Rigor.CERTIFIED, None),
        (ApproxDP(1.0, 1e-5), "epsilon", Rigor.ESTIMATE, 1e-5),
        (GDP(1.0), "epsilon", Rigor.ESTIMATE, None),
    ],
)
def test_a_single_outcome_is_certified_for_pointwise_guarantees_only(
    guarantee: Guarantee, quantity: str, rigor: Rigor, delta: float | None
) -> None:
    (bound,) = audit(guarantee).bounds
    assert (bound.quantity, bound.rigor, bound.delta) == (quantity, rigor, delta)
    assert (bound.direction, bound.private, bound.value) == (Direction.LOWER, True, 0.5)


def test_a_batch_that_is_cut_gives_an_estimate_only() -> None:
    (within,) = audit(PureDP(1.0), batches_are_kept=False).bounds
    assert within.rigor is Rigor.ESTIMATE


@pytest.mark.parametrize("guarantee", [PureDP(0.1), ExPostDP(0.1), ApproxDP(0.1, 1e-5)])
def test_another_forward_pass_neither_refutes_nor_contradicts(guarantee: Guarantee) -> None:
    """What is subtracted for it comes from a spot check, so a loss of 9 shows nothing for certain."""
    (rerun,) = audit(guarantee, losses={}, rerun_losses=[9.0], rerun_error=0.01, ex_post_by_slot=None).bounds
    assert rerun.rigor is Rigor.ESTIMATE
    assert rerun.value == pytest.approx(8.99)
    proof = Bound(Direction.UPPER, 0.05, "basic", Rigor.CERTIFIED, rerun.adjacency)
    for bounds, expected in (([rerun], "UNPROVEN"), ([rerun, proof], "SUPPORTED")):
        result = decide(guarantee, adjacency="add_remove", unit=Unit(), bounds=bounds)
        assert result.name == expected
        assert any("leave_one_out_rerun is only an estimate" in reason for reason in result.reasons)


@pytest.mark.grid
@pytest.mark.parametrize("path", sorted(CLAIMS.glob("*.yaml")), ids=lambda path: path.stem)
def test_no_verdict_on_a_shipped_claim_rests_on_another_forward_pass(path: Path) -> None:
    """With what the plan proves and without: a loss of a million moves neither the verdict nor the best lower bound."""
    claim = read_claim(path)
    guarantee, unit = claim.claimed(), Unit.parse(claim.unit)
    if unit.kind == "secret":
        with pytest.raises(ValueError, match="needs unit record or user, not secret"):
            audit(guarantee, unit=unit)
        return
    settings: dict[str, Any] = {"adjacency": claim.adjacency, "unit": unit}
    if claim.adjacency == "replace_one":
        with pytest.raises(ValueError, match="compares neighbours under add_remove"):
            audit(guarantee, **settings)
        return
    plan = upper_bounds(claim.plan().event, guarantee, **settings)
    (rerun,) = audit(guarantee, losses={}, rerun_losses=[1e6], ex_post_by_slot=None, unit=unit).bounds
    for proven in ([], plan):
        alone = decide(guarantee, bounds=proven, **settings)
        both = decide(guarantee, bounds=[*proven, rerun], **settings)
        assert (both.name, both.best_lower, both.missing) == (alone.name, None, alone.missing)


def test_the_error_of_each_slot_is_its_own() -> None:
    """The largest certified value is taken after subtraction: slot 1 is larger by 0.2 but known to 0.3 only."""
    (bound,) = audit(errors={1: 0.3}).bounds
    assert bound.value == 0.3


def test_a_loss_below_its_error_shows_nothing() -> None:
    (bound,) = audit(losses={0: 1e-9}, errors={0: 1e-8}).bounds
    assert bound.value == 0.0


def test_everything_in_order_is_said() -> None:
    result = audit()
    assert result.contradictions == ()
    assert "in every one of 3 batches" in result.conclusion


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        ({**COSTS, 0: (0.29, 0.9)}, "batch 0: a record's loss 0.3 exceeds the ex-post ε* 0.29"),
        ({**COSTS, 0: (0.4, 0.39)}, "batch 0: the ex-post ε* 0.4 exceeds the published cost 0.39"),
    ],
)
def test_a_contradiction_is_reported_as_an_error(costs: dict[int, tuple[float, float]], text: str) -> None:
    result = audit(ex_post_by_slot=costs)
    assert result.contradictions == (text,)
    assert result.to_json()["details"]["contradictions"] == [text]
    assert "contradict" in result.conclusion
    assert audit(ex_post_by_slot=costs, errors={0: 0.02}).contradictions == ()


def test_an_exchanged_row_may_cost_more_than_is_published() -> None:
    """ε* ≤ Σ γ holds for rows that come or go, not for rows that are replaced."""
    costs = {**COSTS, 0: (0.4, 0.39)}
    result = audit(ex_post_by_slot=costs, published_is_bound=False)
    assert result.contradictions == ()
    assert "loss ≤ ex-post ε* in every one of 3 batches" in result.conclusion
    assert "≤ published" not in result.conclusion
    over = audit(ex_post_by_slot={**COSTS, 0: (0.29, 0.9)}, published_is_bound=False)
    assert "exceeds the ex-post ε*" in over.contradictions[0]


def test_the_largest_costs_are_printed_upward() -> None:
    text = audit(ex_post_by_slot={0: (0.4, 0.9), 1: (0.50000049, 0.90000049), 2: (0.1, 0.2)}).conclusion
    assert "(largest ε* 0.500001, published 0.900001)" in text


def test_a_rerun_names_its_assumption() -> None:
    result = audit(rerun_losses=[0.2])
    assumptions = " ".join(result.bounds[1].assumptions)
    assert f"{ROW_MARGIN:g} times the largest difference in a public spot check" in assumptions
    assert "bit for bit where rows were verified to be exact" in assumptions
    assert "the largest of 1 taken out of the whole pipeline is 0.2, an estimate" in result.conclusion
    assert [line.endswith("(an estimate, refutes nothing)") for line in result.multiplicity] == [False, True]


def test_a_loss_above_the_claim_refutes_it() -> None:
    result = audit(PureDP(0.4), ex_post_by_slot=None)
    assert decide(PureDP(0.4), adjacency="add_remove", unit=Unit(), bounds=result.bounds).name == "REFUTED"
    estimate = audit(ApproxDP(0.4, 1e-5), ex_post_by_slot=None)
    claim = ApproxDP(0.4, 1e-5)
    assert decide(claim, adjacency="add_remove", unit=Unit(), bounds=estimate.bounds).name == "UNPROVEN"


def test_a_realised_upper_bound_and_the_loss_agree_in_a_verdict() -> None:
    upper = Bound(
        Direction.UPPER, 0.5, "ex_post", Rigor.CERTIFIED, audit().bounds[0].adjacency, quantity="ex_post_epsilon"
    )
    bounds = (upper, *audit().bounds)
    assert decide(ExPostDP(1.0), adjacency="add_remove", unit=Unit(), bounds=bounds).name == "SUPPORTED"


def test_an_infinite_loss_survives_json() -> None:
    result = audit(PureDP(1.0), losses={0: math.inf}, ex_post_by_slot=None)
    assert result.to_json()["bounds"][0]["value"] == "inf"
    assert read(result) == result


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adjacency": "replace_one"}, "omit the audit"),
        ({"unit": Unit("group", 2)}, "omit the audit"),
        ({"losses": {}}, "at least one loss"),
        ({"losses": {0: math.nan}}, "must not be NaN"),
        ({"losses": {0: -0.1}}, "must not be NaN"),
        ({"losses": {7: 0.1}}, "must come from the same run"),
    ],
)
def test_what_says_nothing_of_the_claim_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(**arguments)


ALLOWED: dict[str, Any] = {"ex_post_by_slot": None, "rerun_losses": [-0.75, 0.1], "rerun_error": 0.125}


@pytest.mark.parametrize("guarantee", [PureDP(5.0), ExPostDP(5.0), ApproxDP(5.0, 1e-5), GDP(1.0)])
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"a_priori": 0.59}, "taken out of the whole pipeline, the privacy loss of a record is at least 0.625, above"),
        ({"a_priori": 0.49, "rerun_losses": []}, "within its batch, the privacy loss of a record is at least 0.5, abo"),
        ({"realised": 0.59}, "at least 0.625, above the certified ex-post ε of the run, 0.59"),
    ],
)
def test_a_loss_above_what_is_certified_of_every_outcome_contradicts_it(
    guarantee: Guarantee, arguments: dict[str, Any], text: str
) -> None:
    """The estimate of a rerun refutes no claim, but what it contradicts supports none."""
    result = audit(guarantee, **{**ALLOWED, **arguments})
    assert any(text in sentence for sentence in result.contradictions)
    proof = Bound(Direction.UPPER, 0.01, "basic", Rigor.CERTIFIED, result.bounds[0].adjacency)
    verdict = decide(
        guarantee,
        adjacency="add_remove",
        unit=Unit(),
        bounds=[proof, *result.bounds],
        contradictions=result.contradictions,
    )
    assert (verdict.name, verdict.best_upper) == ("UNPROVEN", None)


def pure_profile(epsilon: float) -> Any:
    """δ of randomised response: what a pure ε implies."""
    return lambda points: [max(0.0, (math.expm1(epsilon) - math.expm1(e)) / (1 + math.exp(epsilon))) for e in points]


@given(
    loss=st.floats(0.0, 20.0),
    error=st.floats(0.0, 1.0),
    slack=st.floats(0.0, 1.0),
    guarantee=st.sampled_from([PureDP(30.0), ExPostDP(30.0), ApproxDP(30.0, 1e-5), GDP(9.0)]),
)
def test_a_loss_that_every_bound_allows_contradicts_nothing(
    loss: float, error: float, slack: float, guarantee: Guarantee
) -> None:
    limit = loss + slack
    seen = loss + 0.999 * error
    result = audit(
        guarantee,
        losses={0: seen},
        errors={0: error},
        rerun_losses=[-seen],
        rerun_error=error,
        ex_post_by_slot={0: (limit, limit)},
        a_priori=limit,
        realised=limit,
        profile=pure_profile(limit),
    )
    assert result.contradictions == ()


def test_a_loss_that_the_curve_allows_rarely_enough_contradicts_it() -> None:
    """μ = 1: L is N(½, 1), so a loss of 6 has probability 2e-8, and one of 5 has 3e-6."""
    profile = certified_profile(dp_event.GaussianDpEvent(1.0), adjacency="add_remove", unit=Unit())
    claim = ApproxDP(9.0, 1e-5)
    settings: dict[str, Any] = {"ex_post_by_slot": None, "profile": profile, "records": 1}
    (sentence,) = audit(claim, losses={0: 6.0}, **settings).contradictions
    assert "which the certified curve δ(ε) of the charged events allows with probability at most" in sentence
    assert audit(claim, losses={0: 5.0}, **settings).contradictions == ()
    assert audit(claim, losses={0: 6.0}, **{**settings, "records": 100}).contradictions == (), "of so many, one is"
    assert audit(claim, losses={0: 6.0}, batches_are_kept=False, **settings).contradictions == (), "no neighbours"
    assert audit(claim, losses={}, rerun_losses=[-6.0], **settings).contradictions != ()
    # A pure ε that is certified is the statement there; where none is, the curve is.
    assert audit(PureDP(9.0), losses={0: 6.0}, a_priori=7.0, **settings).contradictions == ()
    assert audit(PureDP(9.0), losses={0: 6.0}, a_priori=math.inf, **settings).contradictions != ()
