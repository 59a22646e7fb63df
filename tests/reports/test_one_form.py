"""A number has one form on a page: the same digits, the same rounding, the same notation wherever it stands."""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted_audit import document
from printed_numbers import other_forms, two_forms

from dpassay.accounting import Adjacency, ApproxDP, Bound, PureDP, SecretProtection, Unit
from dpassay.accounting.bounds import Direction, Rigor
from dpassay.accounting.guarantees import Guarantee
from dpassay.attacks.canaries.reconstruction import Reconstruction
from dpassay.attacks.released.holdout import Hits, Units
from dpassay.attacks.secrets.reconstruction import SecretGuesses
from dpassay.auditing.canaries import words
from dpassay.auditing.canaries.candidate import Canary
from dpassay.auditing.canaries.design import CanariesDesign
from dpassay.auditing.canaries.files import CanariesPlan, PlannedCanaries
from dpassay.auditing.canaries.game import Scoring, third_party_audit
from dpassay.auditing.files import Claimed
from dpassay.auditing.membership.design import MembershipSettings
from dpassay.auditing.membership.run import MembershipAudit
from dpassay.auditing.released.design import HoldoutSettings
from dpassay.auditing.released.run import HoldoutAudit
from dpassay.audits.games import leave_one_out_audit, reconstruction_audit
from dpassay.audits.games.distinguishing import distinguishing_audit
from dpassay.audits.games.membership import membership_audit
from dpassay.audits.games.membership_design import MembershipDesign, MembershipScores
from dpassay.audits.games.released_data import holdout_audit
from dpassay.audits.games.secret_reconstruction import secret_reconstruction_audit
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult
from dpassay.audits.verdict import decide
from dpassay.cli.audit import membership as audit_membership
from dpassay.cli.audit import released as audit_released
from dpassay.reports import audit_page, canaries
from dpassay.reports.assay import Assay
from dpassay.reports.html import render
from dpassay.testing.assertions import assert_never_exceeds, describe_bound

DELTA = 1.0629312e-5
CLAIM = ApproxDP(1.1471976, DELTA)
PURE = PureDP(CLAIM.epsilon)
SECRETS = SecretProtection(1 / 96, 0.0712345678)
FIELDS = {"PureDP": "pure_dp", "ApproxDP": "approx_dp", "SecretProtection": "secret_protection"}


@pytest.mark.parametrize("side", ["private", "release"])
def test_every_page_prints_a_number_in_one_form(assay: Assay, side: str) -> None:
    page = render(assay, side=side)  # type: ignore[arg-type]
    assert two_forms(page) == []
    assert other_forms(page) == []


def membership(right: float, **design: Any) -> AuditResult:
    """Scores of 600 candidates by two attacks, one of which is right with this probability."""
    rng = np.random.default_rng(5)
    included = rng.random(600) < 0.5
    signs = np.where(rng.random(600) < right, 1, -1) * np.where(included, 1, -1)
    scores = MembershipScores({"loss": signs + rng.normal(0, 0.1, 600), "noise": rng.normal(0, 1, 600)}, included)
    return membership_audit(
        scores, MembershipDesign(**{"fair_coins": True, "delta": DELTA, "confidence": 1 - 0.05 / 3, **design})
    )


def released(source: int, holdout: int, **options: Any) -> AuditResult:
    flags = [np.arange(300) < count for count in (source, holdout)]
    hits = Hits("verbatim_extraction", "a game", "an attack", "reproduced", flags[0], flags[1])
    return holdout_audit(hits, coins=True, confidence=1 - 0.05 / 3, **options)


def distinguished(claim: Guarantee, scale: float) -> AuditResult:
    rng = np.random.default_rng(1)
    sides = (rng.laplace(centre, scale, 2000).tolist() for centre in (0, 1))
    return distinguishing_audit(*sides, guarantee=claim, adjacency="add_remove", confidence=1 - 1e-6 / 3)


def keys(leaks: bool) -> AuditResult:
    """A control that prints keys of the source, or one that fails."""
    made = {"candidates": 2000, "source": 990, "never": 2000, "never_hits": 3, "documents": 900}
    result = Reconstruction(source_hits=60, holdout_hits=2, **made)
    control = Reconstruction(source_hits=700 if leaks else 60, holdout_hits=62, asked=900, reproduced=300, **made)
    return reconstruction_audit(result, guarantee=PURE, adjacency="add_remove", unit=Unit(), control=control)


def left_out() -> AuditResult:
    return leave_one_out_audit(
        {0: 0.31234567, 1: 0.51234567},
        [0.71234567],
        records=97,
        guarantee=PURE,
        adjacency="add_remove",
        unit=Unit(),
        ex_post_by_slot={0: (0.31234561, 0.912345678), 1: (0.5234567, 0.5345678)},
        a_priori=0.61234567,
    )


def guessed(right: int) -> AuditResult:
    result = SecretGuesses(1000, right, 1 / 96, 96, 3)
    return secret_reconstruction_audit(result, guarantee=SECRETS, confidence=1 - 0.05 / 3)


PAGES: dict[str, tuple[Callable[[], AuditResult], Guarantee]] = {
    "membership, refuted": (lambda: membership(0.9, claimed_epsilon=CLAIM.epsilon), CLAIM),
    "membership, not refuted": (lambda: membership(0.7, claimed_epsilon=CLAIM.epsilon), CLAIM),
    "membership, all right": (lambda: membership(1.0, claimed_epsilon=7.1234567), ApproxDP(7.1234567, DELTA)),
    "membership, nothing": (lambda: membership(0.5), CLAIM),
    "membership, no coins": (lambda: membership(0.9, fair_coins=False), CLAIM),
    "released data, a leak": (lambda: released(45, 15, delta=DELTA), CLAIM),
    "released data, all right": (lambda: released(45, 0), PURE),
    "released data, nothing": (lambda: released(15, 15), PURE),
    "released data, reversed": (lambda: released(15, 75), PURE),
    "distinguishing, refuted": (lambda: distinguished(PureDP(math.log(1.5)), 1.0), PureDP(math.log(1.5))),
    "distinguishing at a δ": (lambda: distinguished(CLAIM, 1.0), CLAIM),
    "distinguishing, too few": (lambda: distinguished(PureDP(7.1234567), 1.0), PureDP(7.1234567)),
    "reconstruction, a leak": (lambda: keys(True), PURE),
    "reconstruction, failed": (lambda: keys(False), PURE),
    "leave one out": (left_out, PURE),
    "secrets, refuted": (lambda: guessed(200), SECRETS),
    "secrets, not refuted": (lambda: guessed(60), SECRETS),
    "secrets, all right": (lambda: guessed(1000), SECRETS),
}


def assayed(assay: Assay, result: AuditResult, claim: Guarantee) -> Assay:
    """An assay of this claim with this audit only, and with a bound that supports it."""
    secret = isinstance(claim, SecretProtection)
    relation, unit = (Adjacency.SECRET, Unit("secret")) if secret else (Adjacency.ADD_REMOVE, Unit())
    fields = {name: getattr(claim, name) for name in ("epsilon", "delta", "p", "r") if hasattr(claim, name)}
    upper = Bound(
        direction=Direction.UPPER,
        value=fields["r" if secret else "epsilon"] * 0.9876543,
        method="secret_protection" if secret else "lattice",
        rigor=Rigor.CERTIFIED,
        adjacency=relation,
        quantity="r" if secret else "epsilon",
        unit=unit,
        delta=fields.get("delta"),
        at=fields.get("p"),
    )
    outcome = decide(claim, adjacency=relation, unit=unit, bounds=[upper, *result.bounds])
    guarantee = {"type": FIELDS[type(claim).__name__], **fields}
    return assay.model_copy(
        update={
            "claim": assay.claim | {"guarantee": guarantee, "adjacency": str(relation), "unit": str(unit)},
            "guarantee": describe(claim),
            "verdict": outcome.name,
            "sentence": outcome.sentence,
            "reasons": list(outcome.reasons),
            "bounds": [upper, *result.bounds],
            "audits": [result],
            "missing": None,
            "contradictions": list(outcome.contradictions),
            "history": [],
            "best_upper": None,
            "best_lower": None,
        }
    )


def on_the_command_line(result: AuditResult, claim: Guarantee, capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints of an audit besides; empty where it prints the conclusion only."""
    match result.name:
        case "membership":
            audit_membership.print_audit(MembershipAudit(MembershipSettings(), {}, result))
        case "verbatim_extraction":
            settings = HoldoutSettings(source=Path(), holdout=Path(), confidence=1 - 0.05 / 3)
            units = Units.of(["one"], ["another"])
            audit_released.print_audits(
                HoldoutAudit(synthetic=Path(), settings=settings, unit="record", units=units, audits=(result,))
            )
        case "distinguishing":
            return describe_bound(distinguished, claim, result.bounds[0])  # type: ignore[arg-type]  # only its name is used
    return capsys.readouterr().out


@pytest.mark.grid
@pytest.mark.parametrize("name", PAGES)
def test_page_and_command_print_what_an_audit_found_in_one_form(
    name: str, assays: dict[str, Assay], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    make, claim = PAGES[name]
    result = make()
    page = render(assayed(assays["approx_dp"], result, claim), side="private")
    printed = on_the_command_line(result, claim, capsys)
    both = page.replace("</body>", f"<pre>{html.escape(printed)}</pre></body>")
    assert result.conclusion.split()[-1].strip(".") in both
    assert two_forms(both) == []
    assert other_forms(both) == []


PLANTED_CLAIM = ApproxDP(1.2345678, DELTA)
PLANTED = CanariesDesign(
    candidates=240, guesses=60, scorings=3, confidence=0.95, unit=Unit(), claim=PLANTED_CLAIM, delta=PLANTED_CLAIM.delta
)


def planted_page(right: int, copied: float = 3.0) -> str:
    """The page of an audit of which so many of 60 guesses are right; without copies its positive control fails."""
    included = np.arange(240) < 120
    rng = np.random.default_rng(0)
    scores = np.where(np.arange(240) < right, 2.0, np.where(included, 0.0, 1.0)) + rng.random(240) / 2
    never = 1 + rng.random(240) / 2
    scoring = Scoring(name="a.jsonl", candidates=scores, never=never, copied=scores + copied * included)
    result = third_party_audit(PLANTED, included, [scoring], attack="an attack", kind="echo")
    assert bool(result.bounds) is (copied > 0)
    base = document()
    changed = {
        "audit": result,
        "claim": audit_page.ClaimedEpsilon(epsilon=PLANTED_CLAIM.epsilon, delta=PLANTED_CLAIM.delta),
        "guarantee": describe(PLANTED_CLAIM),
        "plan": base.plan.model_copy(update={"guesses": 60, "scorings": 3, "candidates": 240}),
    }
    return canaries.render(base.model_copy(update=changed))


def planted_reach() -> str:
    """What the plan of that audit says of its reach."""
    plan = CanariesPlan(
        dpassay="", nonce="", kind="echo", text="text", unit="record", copies=1, guesses=PLANTED.guesses,
        files=PLANTED.scorings, confidence=PLANTED.confidence, delta=PLANTED.delta,
        claim=Claimed(epsilon=PLANTED_CLAIM.epsilon, delta=PLANTED_CLAIM.delta), statistic="",
        candidates=[Canary()] * PLANTED.candidates, included="", never=[],
    )  # fmt: skip
    assert plan.design == PLANTED
    return f"<pre>{html.escape(' '.join(words.reach(PlannedCanaries(Path(), plan, ''))))}</pre>"


@pytest.mark.parametrize(
    "page",
    [
        planted_page(20).replace("</body>", planted_reach() + "</body>"),
        planted_page(50).replace("</body>", planted_reach() + "</body>"),
        planted_page(60),
        planted_page(20, copied=0),
    ],
    ids=["nothing", "a leak", "all right", "failed"],
)
def test_plan_and_page_of_an_audit_by_planted_canaries_print_a_number_in_one_form(page: str) -> None:
    assert two_forms(page) == []
    assert other_forms(page) == []


@pytest.mark.parametrize("claim", [PureDP(math.log(1.5)), ApproxDP(math.log(1.5), DELTA)])
def test_the_message_of_a_failed_assertion_prints_a_number_in_one_form(claim: Guarantee) -> None:
    with pytest.raises(AssertionError) as failed:
        assert_never_exceeds(
            lambda data, source: float(source.generator.laplace(len(data), 0.7)),
            claim,
            data=[0],
            neighbor=[0, 1],
            score=float,
            runs=1000,
            confidence=1 - 1e-6 / 3,
        )
    page = f"<body><pre>{html.escape(str(failed.value))}</pre></body>"
    assert "confidence 0.9999996; the claim allows 0.405465" in page
    assert two_forms(page) == []
    assert other_forms(page) == []


@pytest.mark.parametrize(
    "words", ["fewer than 90%", "1e-05", "confidence 95 %", "95 % interval", "confidence 1", "confidence 1, or"]
)
def test_other_forms_of_a_number_are_found(words: str) -> None:
    assert len(other_forms(f"<body><p>{words}</p></body>")) == 1


@pytest.mark.parametrize("words", ["fewer than 90 %", "p = 0.01", "p-value 0.5", "confidence 0.95", "1 − 0.05/3"])
def test_the_forms_of_a_page_are_not(words: str) -> None:
    assert other_forms(f"<body><p>{words}</p></body>") == []


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ε ≤ 0.644365, and again 0.6444", [("0.644365", "0.6444")]),
        ("a loss of 0.19822, at least 0.1982", [("0.1982", "0.19822")]),
        ("1e-05 and 1 × 10⁻⁵", [("1 × 10⁻⁵", "1e-05")]),
        ("1.06294e-4 and 1.06 × 10⁻⁴", [("1.06 × 10⁻⁴", "1.06294e-4")]),
        ("4096 and 4\u202f096 records", [("4096", "4\u202f096")]),
        ("at most 3.16251, at most 3.16252", [("3.16251", "3.16252")]),
        ("3.16251 in [3.16251, 3.16252]", []),
        ("2.02 % of 2.0215, version 2.02.1, 0.5 of 0.512", []),
        ("<code>0.644365</code> 0.6444", []),
    ],
)
def test_two_forms_of_a_number_are_found(words: str, found: list[tuple[str, str]]) -> None:
    assert [tuple(sorted(pair)) for pair in two_forms(f"<body><p>{words}</p></body>")] == [
        tuple(sorted(pair)) for pair in found
    ]
