"""The box on top: what is proven, tested and assumed, and which sentences may be pasted elsewhere."""

from __future__ import annotations

import dataclasses
import math
import re

import pytest

from dpassay.accounting import Bound
from dpassay.accounting.adjacency import Unit
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.reports.assay import Assay, PastAudit, SecretGroup, Secrets
from dpassay.reports.claim import best_bound, claimed
from dpassay.reports.release import releasable
from dpassay.reports.standing import Standing, standing


def with_proof(assay: Assay, value: float, **changes: object) -> Assay:
    """The assay of a claim with one certified upper bound."""
    (upper, *_) = [row for row in assay.bounds if row.direction is Direction.UPPER and row.rigor.may_support]
    upper = dataclasses.replace(upper, value=value, interval=None, **changes)  # type: ignore[arg-type]
    return assay.model_copy(update={"bounds": [upper], "best_upper": upper, "contradictions": []})


def upper_of(assay: Assay) -> Bound | None:
    """The bound that the page names."""
    what = claimed(assay.claim)
    assert what is not None
    return assay.best_upper or best_bound(assay.bounds, what, Direction.UPPER)


def box(assay: Assay, numbers: dict[str, int] | None = None) -> Standing:
    return standing(assay, upper_of(assay), numbers or {})


def test_what_may_be_said_is_what_is_proven_and_not_what_is_claimed(assays: dict[str, Assay]) -> None:
    """With ε = 1.319 proven, a claim of ε = 10 is no reason to print e^10."""
    shown = box(with_proof(assays["approx_dp"], 1.319))
    first, second = shown.said
    assert "ε = 1.319 and δ = 1.06268 × 10⁻⁴ for one record added or removed" in first
    assert "proven before the run, for every data set and every output" in first
    assert "at most 3.74 times" in second  # e^1.319 = 3.7397
    assert "10" not in re.sub(r"1\.06268 × 10⁻⁴", "", first + second)


@pytest.mark.parametrize("value", [0.1, 1.0000001, 2.999999999, 9.99])
def test_numbers_are_rounded_up(assays: dict[str, Assay], value: float) -> None:
    first, second = box(with_proof(assays["approx_dp"], value)).said
    (epsilon,) = re.findall(r"ε = ([\d.]+) and", first)
    (factor,) = re.findall(r"at most ([\d.]+) times", second)
    assert float(epsilon) >= value
    assert float(factor) >= math.exp(value)
    assert float(factor) <= math.exp(value) * 1.01


def test_a_proof_above_the_claim_says_its_own_number_and_that_the_claim_is_not_met(assays: dict[str, Assay]) -> None:
    shown = box(with_proof(assays["approx_dp"], 11.5))
    assert "ε = 11.5" in shown.said[0]
    assert "limits hardly anything" in shown.said[1]
    assert "That ε is at most 10, as claimed: more is not excluded." in shown.unsaid


def test_nothing_may_be_said_of_what_an_audit_refuted_or_contradicts(assays: dict[str, Assay]) -> None:
    proven = with_proof(assays["approx_dp"], 1.319)
    assert box(proven).said
    for changes in ({"verdict": "REFUTED"}, {"contradictions": ["an audit shows more"]}):
        shown = box(proven.model_copy(update=changes))
        assert shown.said == ()
        assert shown.unsaid[0].startswith("That it is differentially private: an audit refuted the claim")


def test_without_a_bound_nothing_is_said(assays: dict[str, Assay]) -> None:
    for assay in (
        with_proof(assays["approx_dp"], math.inf),
        assays["refuted"].model_copy(update={"verdict": "UNPROVEN"}),
    ):
        shown = box(assay)
        assert shown.said == ()
        assert "That it is differentially private: nothing is proven that holds before the run." in shown.unsaid


def test_both_pages_say_the_same(assays: dict[str, Assay]) -> None:
    """So nothing private leaves with a sentence that is pasted."""
    for name in ("ex_post", "approx_dp"):
        assay = assays[name]
        page = releasable(assay)
        assert box(assay).said == standing(page, page.best_upper, {}).said != ()


def test_an_ex_post_number_is_never_in_what_may_be_said(assays: dict[str, Assay]) -> None:
    assay = assays["ex_post"]
    shown = box(assay)
    assert "ε ≤ 1.04108, for this output only" in shown.proven[0]
    assert "before the run, for every output" in shown.proven[1]
    assert "1.04" not in " ".join(shown.said)
    assert any(line.startswith("The ex-post ε that was proven:") for line in shown.unsaid)


def test_assumptions_that_were_tested_are_apart_from_those_that_are_taken(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    upper = upper_of(assay)
    assert upper is not None
    one, two = upper.assumptions
    numbers = {one: 1, two: 2}
    taken = box(assay, numbers)
    assert [point.assumption for point in taken.assumed] == [1, 2, None]
    assert taken.assumed[-1].words == "The ledger was neither rolled back nor rewritten."
    tested = box(assay.model_copy(update={"tested": [two]}), numbers)
    assert [point.assumption for point in tested.assumed] == [1, None]
    assert (tested.tested[0].words, tested.tested[0].assumption) == (two, 2)
    page = releasable(assay.model_copy(update={"tested": [two]}))
    assert standing(page, page.best_upper, numbers).tested[0].words == two


def test_a_ledger_that_was_compared_with_its_anchor_assumes_nothing_of_it(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    anchored = assay.model_copy(update={"ledger": assay.ledger.model_copy(update={"anchored": True})})
    assert not [point for point in box(anchored).assumed if "ledger" in point.words]


def test_each_audit_says_whether_it_could_have_refuted(assays: dict[str, Assay]) -> None:
    lines = [point.words for point in box(assays["approx_dp"]).tested]
    assert lines == [
        "Leave-one-out loss: no bound that can be compared with the claim.",
        "Canary reconstruction shows ε ≥ 0.214; it could not have refuted the claim.",
    ]
    failed = [dataclasses.replace(audit, controls_passed=False) for audit in assays["approx_dp"].audits]
    shown = box(assays["approx_dp"].model_copy(update={"audits": failed}))
    assert all("a control failed, so nothing follows" in point.words for point in shown.tested)
    none = assays["approx_dp"].model_copy(update={"audits": [], "history": []})
    assert [point.words for point in box(none).tested] == ["No audit was made."]
    assert "No audit was made." in box(none).said[1]


def test_what_is_proven_says_what_it_means(assays: dict[str, Assay]) -> None:
    (line,) = box(with_proof(assays["approx_dp"], 1.319)).proven
    assert "at most 3.74 times more or less likely had one record been added or removed" in line  # e^1.319 = 3.7397
    (line,) = box(with_proof(assays["approx_dp"], 12.0)).proven
    assert line.endswith("Such an ε is so large that it limits hardly anything.")
    this, _ = box(assays["ex_post"]).proven
    assert "for these only: the output would have been at most 2.84 times" in this  # e^1.04108 = 2.8323


def test_audits_of_an_ex_post_claim_are_of_it_alone(assays: dict[str, Assay]) -> None:
    """One whose bounds are about all outputs could not have refuted it; an estimate about this one differs."""
    assay = assays["ex_post"]
    assert "were made of the claim about this output only, not of this ε." in box(assay).said[1]
    (audit,) = [audit for audit in assays["approx_dp"].audits if "reconstruction" in audit.name]
    (tested,) = box(assay.model_copy(update={"audits": [audit], "history": []})).tested
    assert "could not have refuted the claim, which is about this output; it is about all outputs." in tested.words
    rows = tuple(dataclasses.replace(row, quantity="ex_post_epsilon", rigor=Rigor.ESTIMATE) for row in audit.bounds)
    rough = dataclasses.replace(audit, bounds=rows)
    (tested,) = box(assay.model_copy(update={"audits": [rough], "history": []})).tested
    assert "all outputs" not in tested.words


def test_a_page_says_that_nobody_is_named(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    claim = {key: value for key, value in assay.claim.items() if key != "contact"}
    assert ("Answers for it", "not stated") in box(assay.model_copy(update={"claim": claim})).facts
    named = assay.model_copy(update={"claim": claim | {"contact": "privacy@example.org"}})
    assert ("Answers for it", "privacy@example.org") in box(named).facts


def test_what_is_said_of_secrets_is_about_those_of_the_budget_that_is_proven(assays: dict[str, Assay]) -> None:
    """The bound of one group of secrets is none for the others."""
    assay = with_proof(assays["approx_dp"], 0.2, quantity="r", delta=None, at=0.01)
    claim = {**assay.claim, "guarantee": {"type": "secret_protection", "p": 0.01, "r": 0.3}}

    def said(*budgets: float) -> str:
        groups = [SecretGroup(secrets=3, records=9, p=0.01, claimed=r, certified=r) for r in budgets]
        places = Secrets(
            sources=[],
            groups=groups,
            public_records=1,
            private_records=9,
            releases=2,
            sigma=1.0,
            expected_sample=2.0,
        )
        return box(assay.model_copy(update={"claim": claim, "secrets": places})).said[0]

    assert "(p, r)-secret protection with p = 0.01 and r = 0.2" in said(0.2)
    assert "for every value of the secrets and every output" in said(0.2)
    assert "of one budget" not in said(0.2)
    assert "It is about the 3 secrets of one budget; other budgets have their own bounds." in said(0.2, 0.4)


def test_events_that_nobody_planned_are_not_called_proven_before_the_run(assays: dict[str, Assay]) -> None:
    assay = with_proof(assays["approx_dp"], 1.319)
    ledger = assay.ledger.model_copy(update={"planned": False})
    shown = box(assay.model_copy(update={"ledger": ledger}))
    assert "for the events that were charged, which nobody planned" in shown.proven[0]
    assert shown.said == ()


@pytest.mark.parametrize("passed", [True, None, False])
def test_earlier_audits_count_unless_a_control_failed(assays: dict[str, Assay], passed: bool | None) -> None:
    assay = assays["ex_post"]
    able = [dataclasses.replace(row, ceiling=9.0) for audit in assay.audits for row in audit.bounds]
    past = PastAudit(name="a", game="b", attack="c", statistics=(), bounds=tuple(able), controls_passed=passed)
    history = [assay.history[0].model_copy(update={"audits": [past]})]
    shown = box(assay.model_copy(update={"audits": [], "history": history}))
    assert shown.refutable == (passed is not False)


def test_of_a_claim_that_is_not_one_number_no_audit_is_known_to_refute_it(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    claim = {**assay.claim, "guarantee": {"type": "profile", "epsilons": [1.0], "deltas": [0.1]}}
    assert assay.audits
    assert standing(assay.model_copy(update={"claim": claim}), None, {}).refutable is False


def test_the_unit_is_named(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    user = Unit.parse("user")
    claim = {**assay.claim, "unit": "user"}
    bounds = [dataclasses.replace(row, unit=user) for row in assay.bounds if row.direction is Direction.UPPER]
    shown = box(assay.model_copy(update={"claim": claim, "bounds": bounds, "best_upper": bounds[0], "audits": []}))
    assert "for one user added or removed" in shown.said[0]
    assert "had one user been added or removed" in shown.said[1]
    assert not [line for line in shown.unsaid if "person" in line]


def test_documents_and_who_answers_for_them_are_in_the_box(assays: dict[str, Assay]) -> None:
    assay = assays["approx_dp"]
    claim = {**assay.claim, "contact": "privacy@example.org", "purpose": "teaching"}
    facts = dict(box(assay.model_copy(update={"claim": claim})).facts)
    assert facts["Documents"] == "1734"
    assert "mean 24.25" in facts["Length"]
    assert facts["Complete"] == "1734 of 1793 that were begun"
    assert (facts["Answers for it"], facts["Purpose"]) == ("privacy@example.org", "teaching")
