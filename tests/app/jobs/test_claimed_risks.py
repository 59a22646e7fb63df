"""What a proof means for who is attacked, in documents of assays: for each kind of claim, by closed forms."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, cast

import pytest
from dp_accounting import DpEvent, dp_event
from scipy import stats

from dpassay.accounting import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee, PureDP, SecretProtection
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.run import Run
from dpassay.generators.base import BoundedGuarantee, FinishedRun
from dpassay.generators.registry import make_claim
from dpassay.jobs.assay import assay
from dpassay.reports.assay import Assay, load
from dpassay.reports.html import render
from dpassay.reports.release import releasable

GAUSSIAN = {"event": {"class_name": "GaussianDpEvent", "noise_multiplier": 4.0}}
APPROX = {"type": "approx_dp", "epsilon": 20.0, "delta": 1e-5}
TITLE = "What that means for who is attacked"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def assayed(folder: Path, part: dict[str, Any], guarantee: dict[str, Any] = APPROX, **more: Any) -> Assay:
    """The document of a claim about a procedure that ran elsewhere."""
    body = {"name": "elsewhere", "mechanism": "declared", "parameters": {"events": [part]}, "guarantee": guarantee}
    return assay(make_claim(body | more), folder / "out").document


def numbers(document: Assay) -> dict[tuple[str, float | None], float]:
    return {(risk.name, risk.at): risk.value for risk in document.risks}


@pytest.mark.parametrize(
    ("unit", "adjacency", "moved"),
    [("record", "add_remove", 1), ("record", "replace_one", 2), ("group(3)", "add_remove", 3), ("user", "zero_out", 1)],
)
def test_a_gaussian_in_closed_form(unit: str, adjacency: str, moved: int, tmp_path: Path) -> None:
    document = assayed(tmp_path, GAUSSIAN, unit=unit, adjacency=adjacency)
    mu, found = moved / 4, numbers(document)
    assert found["advantage", None] == pytest.approx(2 * stats.norm.cdf(mu / 2) - 1, rel=1e-9)
    for rate in (0.01, 0.001):
        power = stats.norm.cdf(stats.norm.ppf(rate) + mu)
        assert found["true_positive_rate", rate] == pytest.approx(power, rel=1e-9)
    assert found["bayes_error", 0.5] == pytest.approx(stats.norm.cdf(-mu / 2), rel=1e-9)
    assert found["mu", 1e-5] == pytest.approx(mu, rel=1e-9)
    assert 0 <= found.get(("regret", None), 0.0) < 1e-3
    bound = document.best_upper
    assert bound is not None
    for risk in document.risks:
        assert risk.rigor == "certified"
        assert risk.assumptions == bound.assumptions
    percent = 100 * stats.norm.cdf(stats.norm.ppf(0.01) + mu)
    for side in ("private", "release"):
        page = render(document, side=side)
        assert TITLE in page
        shown = float(page.split(TITLE)[1].split("at most ")[1].split("%")[0])
        assert percent <= shown <= percent * 1.01
    assert load(tmp_path / "out" / "private" / "assay.json").risks == document.risks
    assert releasable(document).risks == document.risks


def test_the_numbers_of_tuned_runs_have_one_side(tmp_path: Path) -> None:
    """No test is known that attains them, so there is no interval and no regret. Tuning makes attacks stronger."""
    once, tuned = (
        assayed(tmp_path / name, GAUSSIAN | more)
        for name, more in (("once", {}), ("tuned", {"tuning": {"mean": 10, "distribution": "geometric"}}))
    )
    assert [risk.name for risk in tuned.risks] == ["advantage", *["true_positive_rate"] * 2, "bayes_error", "mu"]
    assert all(risk.interval is None for risk in tuned.risks)
    assert any("only the best is released" in item for item in tuned.risks[0].assumptions)
    before = numbers(once)
    for key, value in numbers(tuned).items():
        assert value < before[key] if key[0] == "bayes_error" else value > before[key]


@pytest.mark.parametrize(
    "guarantee", [{"type": "zcdp", "rho": 1.0}, {"type": "gdp", "mu": 1.0}, {"type": "rdp", "alpha": 2, "epsilon": 1.0}]
)
def test_a_claim_without_a_delta_says_no_mu(guarantee: dict[str, Any], tmp_path: Path) -> None:
    document = assayed(tmp_path, GAUSSIAN, guarantee)
    assert document.verdict == "SUPPORTED"
    assert [risk.name for risk in document.risks] == ["advantage", *["true_positive_rate"] * 2, "bayes_error"]
    assert TITLE in render(document, side="release")


def test_nothing_is_said_without_a_certified_bound(tmp_path: Path) -> None:
    """Of a release without noise, and of a Gaussian whose pure ε is claimed."""
    for name, event, guarantee in (
        ("open", {"class_name": "NonPrivateDpEvent"}, APPROX),
        ("pure", GAUSSIAN["event"], {"type": "pure_dp", "epsilon": 3.0}),
    ):
        document = assayed(tmp_path / name, {"event": event}, guarantee)
        assert (document.verdict, document.risks) == ("UNPROVEN", [])
        assert TITLE not in render(document, side="private")


class AnyRun:
    """What `FinishedRun.risks` asks of a run."""

    adjacency, unit, basis = Adjacency.ADD_REMOVE, Unit(), Basis()
    name, about = "any", Basis().to_json()

    def outcome(self, key: str) -> None:
        return None

    def verdicts(self) -> list[dict[str, Any]]:
        return []


def said(guarantee: Guarantee, event: DpEvent, basis: Basis | None = None, unit: str = "record") -> list[str]:
    """The names of the numbers that are told of an event with a certified bound of 1."""
    run = AnyRun()
    run.basis, run.unit = basis or Basis(), Unit.parse(unit)
    part = BoundedGuarantee(guarantee, event, [Bound(Direction.UPPER, 1.0, "x", Rigor.CERTIFIED, Adjacency.ADD_REMOVE)])
    return [risk.name for risk in FinishedRun.risks(cast(FinishedRun, run), part, cast(Run, run))]


def test_where_it_does_not_apply_nothing_is_said_and_nothing_fails() -> None:
    """For one output, for secrets, and where `lattice` has no bound or cannot compute one."""
    noise = dp_event.GaussianDpEvent(2.0)
    assert len(said(ApproxDP(1.0, 1e-5), noise)) == 6
    assert said(ExPostDP(1.0), noise) == []
    assert said(SecretProtection(0.1, 0.2), noise, unit="secret") == []
    assert said(PureDP(1.0), noise, unit="secret") == []
    assert said(PureDP(1.0), dp_event.UnsupportedDpEvent()) == []
    assert said(PureDP(1.0), dp_event.GaussianDpEvent(math.nan)) == []
    assert len(said(PureDP(1.0), noise)) == 4
    assert "regret" not in said(ApproxDP(1.0, 1e-5), noise, Basis(exact=False))


def test_a_document_of_an_older_version_has_none(tmp_path: Path) -> None:
    document = assayed(tmp_path, GAUSSIAN)
    body = json.loads(document.model_dump_json())
    del body["risks"]
    older = Assay.model_validate(body)
    assert older.risks == []
    assert TITLE not in render(older, side="private") + render(older, side="release")


def test_the_charges_of_another_plan_are_not_released(tmp_path: Path) -> None:
    document = assayed(tmp_path, GAUSSIAN)
    other = document.model_copy(update={"ledger": document.ledger.model_copy(update={"planned": False})})
    assert releasable(other).risks == []
    assert TITLE not in render(other, side="release")


def test_evidence_against_the_proof_takes_its_words_back_on_the_private_page_alone(tmp_path: Path) -> None:
    document = assayed(tmp_path, GAUSSIAN)
    doubted = document.model_copy(update={"contradictions": ["an audit saw more than the events allow"]})
    assert TITLE not in render(doubted, side="private")
    assert render(doubted, side="release") == render(document, side="release")
