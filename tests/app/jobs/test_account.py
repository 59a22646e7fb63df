"""What ledgers cost together: every accountant's row, the certified enclosure, and what is asked of one only."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import run as dpassay
from dp_accounting import DpEvent, dp_event
from ledger_forgery import rewrite_chain
from scipy import stats

from dpassay.accounting import Adjacency, Rigor, Unit, account, events
from dpassay.accounting.conversions import formulas
from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    ParallelDpEvent,
    SecretGroupsReleaseDpEvent,
    SecretReleaseDpEvent,
)
from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.ledger.entries import Charge, Commit, Json
from dpassay.accounting.ledger.evidence import not_recorded
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.registry import upper_bounds
from dpassay.base.errors import InputError
from dpassay.cli.account import print_account as print_table
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account as account_files


def ledger(path: Path, *charged: DpEvent) -> Path:
    """A ledger of one run that charged these events."""
    with Ledger.open(path) as kept:
        plan = events.compose([(event, 1) for event in charged])
        run = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        for index, event in enumerate(charged):
            run.step(charge=Charge(key=f"releases/{index}", event=event, stage="releases"))
            run.step(commit=Commit(key=f"releases/{index}", value=index))
        run.finish()
    return path


def test_the_lattice_is_listed_first_and_encloses_the_exact_value(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """σ = 2 twice and σ = 1 in another ledger are μ² = 1/4 + 1/4 + 1, whose ε(δ) is a closed form."""
    item = ledger(tmp_path / "one.sqlite", *[dp_event.GaussianDpEvent(2.0)] * 2)
    other = ledger(tmp_path / "other.sqlite", dp_event.GaussianDpEvent(1.0))
    result = account_files([item, other], delta=1e-5, method=None)
    exact = formulas.epsilon_from_gdp(1.5**0.5, 1e-5)
    lattice = next(bound for bound in result.bounds if bound.method == "lattice")
    assert lattice.rigor is Rigor.CERTIFIED
    assert lattice.interval is not None
    assert lattice.interval.lower <= exact * (1 + 1e-9)
    assert exact * (1 - 1e-9) <= lattice.interval.upper <= exact * (1 + 1e-3)
    assert {bound.method for bound in result.bounds} == {"lattice", "gdp", "zcdp", "rdp", "pld", "prv"}
    print_table(result)
    printed = capsys.readouterr().out
    assert "at least" in printed
    assert "at most" in printed


def test_the_total_is_said_in_other_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of μ = 3/4: a power of Φ(Φ⁻¹(0.01) + μ) at 1 % false alarms. Nothing without a δ, nor by another accountant."""
    spent = ledger(tmp_path / "one.sqlite", dp_event.GaussianDpEvent(2.0), dp_event.GaussianDpEvent(20**0.5 / 2.5))
    result = account_files(spent, delta=1e-5)
    found = {(risk.name, risk.at): risk.value for risk in result.risks}
    assert found["mu", 1e-5] == pytest.approx(0.75, rel=1e-9)
    assert found["advantage", None] == pytest.approx(2 * stats.norm.cdf(0.375) - 1, rel=1e-9)
    power = stats.norm.cdf(stats.norm.ppf(0.01) + 0.75)
    assert found["true_positive_rate", 0.01] == pytest.approx(power, rel=1e-9)
    assert [risk["name"] for risk in result.to_json()["risks"]] == [risk.name for risk in result.risks]
    print_table(result)
    words = " ".join(capsys.readouterr().out.split())
    assert "in other words: Somebody who sees all that is released" in words
    assert 100 * power <= float(words.split("right about at most ")[1].split()[0]) <= 101 * power
    for other in (account_files(spent), account_files(spent, delta=1e-5, method="zcdp")):
        assert other.risks == ()
        assert "risks" not in other.to_json()


def test_selections_have_a_bound_without_a_lower_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst case of selections need not be reached by a mechanism, so nothing is enclosed and no column says so."""
    selections = ParallelDpEvent([dp_event.SelfComposedDpEvent(BoundedRangeSelectionDpEvent(0.125), 16)] * 3)
    path = ledger(tmp_path / "one.sqlite", selections)
    result = account_files([path], delta=1e-5, method=None)
    at_delta = [bound for bound in result.bounds if bound.delta is not None and bound.rigor is Rigor.CERTIFIED]
    assert min(at_delta, key=lambda bound: bound.value).method == "lattice"
    assert all(bound.interval is None for bound in result.bounds)
    print_table(result)
    assert "at least" not in capsys.readouterr().out


def test_one_method_is_asked_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ledger(tmp_path / "one.sqlite", dp_event.LaplaceDpEvent(4.0))
    asked: list[list[str] | None] = []
    from dpassay.jobs import account

    def watched(*arguments: Any, **options: Any) -> Any:
        asked.append(options["methods"])
        return upper_bounds(*arguments, **options)

    monkeypatch.setattr(account, "upper_bounds", watched)
    result = account_files([path], delta=1e-5, method="basic")
    assert [(bound.method, bound.value) for bound in result.bounds] == [("basic", 0.25)] * 2
    assert asked == [["basic"]] * 2
    with pytest.raises(InputError, match="zcdp has no bound here: give --delta"):
        account_files([path], delta=None, method="zcdp")
    with pytest.raises(InputError, match="secret_protection has no bound here: secret_protection has no bound for"):
        account_files([path], delta=1e-5, method="secret_protection")


CLAIMS = Path(__file__).parents[3] / "examples" / "claims"


def test_a_claim_is_charged_as_planned_before_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The known ε of the example, at the δ that it claims; the table does not say that it was charged."""
    path = CLAIMS / "keys-mean.yaml"
    result = account_files([path], delta=None, method="zcdp")
    (bound,) = result.bounds
    assert bound.value == pytest.approx(1.33168, abs=5e-6)
    assert bound.delta == pytest.approx(4096**-1.1)
    print_table(result)
    assert "would be charged" in capsys.readouterr().out
    assert result.to_json()["planned"] is True


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("keys-mean", "its plan keeps to that: ε ≤ 1.19921 (lattice)."),
        ("keys-mean-understated", "its plan is not proven to keep to that: the least bound is ε ≤ 1.19921 (lattice)."),
        ("keys-unprotected", "its plan has no certified bound."),
        ("keys-median", "which depends on the outputs of a run and on no plan."),
    ],
)
def test_a_claim_is_told_whether_its_plan_keeps_to_it(name: str, says: str) -> None:
    (sentence,) = account_files(CLAIMS / f"{name}.yaml").against_claims
    assert sentence.startswith(f"{name} claims ")
    assert sentence.endswith(says)


def test_a_plan_that_costs_more_than_its_claim(tmp_path: Path) -> None:
    """The interval of a certified bound lies above what is claimed."""
    text = (CLAIMS / "declared-training.yaml").read_text().replace("epsilon: 1.5", "epsilon: 0.5")
    path = tmp_path / "claim.yaml"
    path.write_text(text)
    (sentence,) = account_files(path).against_claims
    assert re.search(r"and its plan costs more: ε ≥ 1\.36\d* \(lattice\)\.$", sentence)


def test_one_row_an_accountant_and_the_best_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(account_files(CLAIMS / "declared-training.yaml"))
    printed = capsys.readouterr().out
    rows = [line.split("│")[1].strip() for line in printed.splitlines() if line.startswith("│")]
    assert len(rows) == len(set(rows))
    (best,) = (line for line in printed.splitlines() if ", best" in line)
    assert best.startswith("│ lattice")


def test_a_large_delta_is_told(tmp_path: Path) -> None:
    path = ledger(tmp_path / "one.sqlite", dp_event.GaussianDpEvent(2.0))
    assert account_files(path, delta=0.02).warnings == (
        "δ = 0.02 is large: a mechanism that reveals all data with this probability meets it.",
    )
    assert account_files(path, delta=0.001).warnings == ()


def test_a_claim_composes_with_what_was_spent(tmp_path: Path) -> None:
    claim = CLAIMS / "keys-mean.yaml"
    spent = ledger(tmp_path / "one.sqlite", dp_event.GaussianDpEvent(2.0))
    alone, together = (account_files(files, delta=1e-5, method="zcdp") for files in ([claim], [spent, claim]))
    from_claim = read_claim(claim).plan().event
    expected = account(
        events.compose([(from_claim, 1), (dp_event.GaussianDpEvent(2.0), 1)]),
        method="zcdp",
        adjacency=Adjacency.ADD_REMOVE,
        delta=1e-5,
    )
    assert together.bounds[0].value == expected.value > alone.bounds[0].value


def test_files_that_do_not_compose_are_refused(tmp_path: Path) -> None:
    spent = ledger(tmp_path / "one.sqlite", dp_event.GaussianDpEvent(2.0))
    other = tmp_path / "other.yaml"
    text = (CLAIMS / "keys-mean.yaml").read_text().replace("adjacency: add_remove", "adjacency: replace_one")
    other.write_text(text.replace("audits: [leave_one_out, reconstruction]", "audits: []"))
    with pytest.raises(InputError, match="different adjacencies or units do not compose"):
        account_files([spent, other], delta=1e-5, method=None)
    with pytest.raises(InputError, match="cannot be read"):
        account_files([tmp_path / "none.yaml"], delta=1e-5, method=None)


def test_every_bound_on_r_says_whose_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two budgets at one p: their rows would otherwise look alike."""
    budgets = (SecretProtection(0.01, 0.1), SecretProtection(0.01, 0.2))
    release = SecretGroupsReleaseDpEvent([SecretReleaseDpEvent(2.0, (0.5, 0.5)), SecretReleaseDpEvent(2.0, (1.0,))])
    path = tmp_path / "groups.sqlite"
    with Ledger.open(path) as kept:
        about: dict[str, Json] = {"secrets": "places", "budgets": [[budget.p, budget.r] for budget in budgets]}
        run = kept.begin("run", plan=release, adjacency=Adjacency.SECRET, unit=Unit("secret"), about=about)
        run.step(charge=Charge(key="release/0", event=release, stage="release"))
        run.step(commit=Commit(key="release/0", value=0))
        run.finish()
    result = account_files([path], delta=None, method=None)
    assert result.budgets == budgets
    assert [bound.value > 0.01 + 1e-9 for bound in result.bounds] == [True, False]  # the others occur nowhere
    assert result.to_json()["budgets"] == [{"p": 0.01, "r": 0.1}, {"p": 0.01, "r": 0.2}]
    monkeypatch.setenv("COLUMNS", "120")
    print_table(result)
    printed = capsys.readouterr().out
    rows = [line.split("│")[1:] for line in printed.splitlines() if "secret_protection" in line and "│" in line]
    assert [(row[2].strip(), row[5].strip()) for row in rows] == [("0.1", "0.01"), ("0.2", "0.01")]
    at_p = account_files([path], delta=None, method=None, p=0.01)
    assert (at_p.budgets, [bound.value for bound in at_p.bounds]) == ((), [result.bounds[0].value])
    assert "budgets" not in at_p.to_json()
    with pytest.raises(InputError, match="--delta does not apply to unit secret; give --p, or neither"):
        account_files([path], delta=1e-5, method=None)
    with pytest.raises(InputError, match="--p does not apply to unit record; give --delta, or neither"):
        account_files([ledger(tmp_path / "one.sqlite", dp_event.GaussianDpEvent(2.0))], delta=None, method=None, p=0.01)


def test_an_account_says_which_ledgers_are_anchored_and_which_runs_unfinished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of four Laplace releases of ε = 1/4 was charged: 1/4 so far, 1 when the run has charged its whole plan."""
    monkeypatch.setenv("COLUMNS", "120")
    step = dp_event.LaplaceDpEvent(4.0)
    path, done = tmp_path / "part.sqlite", ledger(tmp_path / "done.sqlite", step)
    with Ledger.open(path) as kept:
        plan = dp_event.SelfComposedDpEvent(step, 4)
        run = kept.begin("the run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        run.step(charge=Charge(key="releases/0", event=step, stage="releases"))
        head = kept.head
    result = account_files([path, done], delta=None, method="basic")
    assert [bound.value for bound in result.bounds] == [0.5]
    assert [bound.value for bound in result.whole_plan] == [1.25]
    part, finished = result.ledgers
    assert (part.head, part.entries, part.anchored, part.unfinished) == (head, 3, False, ("the run",))
    assert (finished.anchored, finished.unfinished) == (True, ())
    print_table(result)
    printed = capsys.readouterr().out
    assert "If each unfinished run charges its whole plan" in printed
    assert f"{path}: verified, 3 entries, head {head}; no anchor of this ledger was found, so a restored" in printed
    assert f"{path}: run 'the run' is unfinished: its charges so far are counted" in printed
    assert f"{done}: verified, 5 entries, head {finished.head}; agrees with its anchor" in printed
    written = result.to_json()
    assert written["ledgers"][0] == {
        "path": str(path),
        "head": head,
        "entries": 3,
        "anchored": False,
        "unfinished": ["the run"],
        "assumptions": [not_recorded("the run")],
        "estimates": [],
    }
    assert f"assumed: {not_recorded('the run')}" in printed
    assert [bound["value"] for bound in written["whole_plan"]] == [1.25]
    alone = account_files([done], delta=None, method="basic")
    assert alone.whole_plan == ()
    assert "whole_plan" not in alone.to_json()


def test_an_edited_ledger_has_no_account(tmp_path: Path) -> None:
    """A smaller η in plan and charges, with every hash made anew, was certified before anything verified it."""
    selection = BoundedRangeSelectionDpEvent(0.5)
    path, file = tmp_path / "one.sqlite", tmp_path / "anchors.json"
    with Ledger.open(path, anchor=file) as kept:
        run = kept.begin("run", plan=selection, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        run.step(charge=Charge(key="pick", event=selection, stage="pick"))
        run.finish()
    (bound,) = account_files([path], delta=None, method="basic", anchor=file).bounds
    assert bound.value == 0.5
    for place in (2, 3):  # the plan alone, and the charge alone

        def change(seq: int, run: str, kind: str, body: str, place: int = place) -> tuple[str, str, str]:
            return run, kind, body.replace("0.5", "0.1") if seq == place else body

        edited = Path(shutil.copy(path, tmp_path / f"{place}.sqlite"))
        rewrite_chain(edited, change)
        result = dpassay("account", edited, "--anchor", file)
        assert (result.returncode, result.stdout) == (2, "")
        assert "entry 3: 'pick' charges more than was planned" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    rewrite_chain(path, lambda seq, run, kind, body: (run, kind, body.replace("0.5", "0.1")))
    for command in (("account", path), ("compare", path, "--delta", 1e-5)):
        result = dpassay(*command, "--anchor", file)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
        assert "this ledger was rewritten: 4 entries were anchored" in result.stderr
        result = dpassay(*command, "--anchor", tmp_path / "none.json")
        assert result.returncode == 2
        assert "there is no anchor file here" in result.stderr
        assert "no anchor of this ledger was found" in dpassay(*command).stdout
