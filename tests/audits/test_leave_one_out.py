"""The leave-one-out audit: quantities and rigor by claim, its check of the accounting, what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from cupel.accounting.adjacency import Unit
from cupel.accounting.bounds import Bound, Direction, Rigor
from cupel.accounting.guarantees import GDP, ApproxDP, ExPostDP, Guarantee, PureDP
from cupel.accounting.registry import upper_bounds
from cupel.attacks.leave_one_out import ROW_MARGIN
from cupel.audits.games import AuditResult, leave_one_out_audit
from cupel.audits.verdict import decide
from cupel.claim import read_claim
from cupel.reports import assay

CLAIMS = Path(__file__).resolve().parents[2] / "examples" / "claims"
LOSSES = {0: 0.3, 1: 0.5, 2: 0.0}
EX_POST = ExPostDP(1.0)
COSTS = {0: (0.4, 0.9), 1: (0.5, 0.5), 2: (0.1, 0.2)}


def audit(guarantee: Guarantee = EX_POST, losses: Any = LOSSES, **arguments: Any) -> AuditResult:
    settings: dict[str, Any] = {"records": 9, "adjacency": "add_remove", "unit": Unit(), "ex_post_by_slot": COSTS}
    return leave_one_out_audit(losses, guarantee=guarantee, **{**settings, **arguments})


def test_fits_the_assay_document() -> None:
    result = audit(rerun_losses=[-0.7, 0.1], errors={1: 1e-9}, a_priori=100.0)
    row = assay.Audit.model_validate(result.to_json())
    assert [bound.value for bound in row.bounds] == [0.5 - 1e-9, 0.7]
    assert row.bounds[0].ceiling == 100.0
    assert row.details["batches"][1] == {
        "slot": 1,
        "loss": 0.5,
        "error": 1e-9,
        "epsilon": 0.5,
        "epsilon_published": 0.5,
    }
    assert set(result.to_json()) == set(assay.Audit.model_fields)


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
        assert any("leave_one_out_rerun is of rigor estimate" in reason for reason in result.reasons)


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
    text = audit(ex_post_by_slot={0: (0.4, 0.9), 1: (0.500011, 0.900011), 2: (0.1, 0.2)}).conclusion
    assert "(largest ε* 0.5001, published 0.9001)" in text


def test_a_rerun_names_its_assumption() -> None:
    result = audit(rerun_losses=[0.2])
    assumptions = " ".join(result.bounds[1].assumptions)
    assert f"{ROW_MARGIN:g} times the largest difference in a public spot check" in assumptions
    assert "the largest of 1 taken out of the whole pipeline is 0.2, an estimate" in result.conclusion
    assert [line.endswith("(an estimate: refutes nothing)") for line in result.multiplicity] == [False, True]


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
    row = assay.Audit.model_validate(result.to_json())
    assert row.bounds[0].value == "inf"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"adjacency": "replace_one"}, "leave the leave_one_out audit out"),
        ({"unit": Unit("group", 2)}, "leave the leave_one_out audit out"),
        ({"losses": {}}, "no loss"),
        ({"losses": {0: math.nan}}, "must be a number"),
        ({"losses": {0: -0.1}}, "must be a number"),
        ({"losses": {7: 0.1}}, "must come from the same run"),
    ],
)
def test_what_says_nothing_of_the_claim_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        audit(**arguments)
