"""Claims about procedures that ran elsewhere: their numbers beside other accountants, their verdicts, and bad input."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import Result, run
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from opacus import PrivacyEngine
from opacus.accountants import PRVAccountant
from opacus_run import trained
from scipy import optimize, stats

from dpassay.accounting import events
from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.interop.conditions import Condition, Normalizer
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.auditing.canaries.files import read_plan
from dpassay.auditing.files import sealed
from dpassay.audits.result import AuditResult
from dpassay.base.errors import InputError
from dpassay.generators.base import RunSettings
from dpassay.generators.declared.claim import DeclaredPart
from dpassay.generators.ledger_run import open_run
from dpassay.generators.registry import make_claim

DELTA = 1e-5
SGD = {"noise_multiplier": 1.0, "sample_rate": 0.01, "steps": 500}
GAUSSIAN = {"class_name": "GaussianDpEvent", "noise_multiplier": 5.0}


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def claim(folder: Path, *parts: dict[str, Any], epsilon: float = 3.0, **changes: Any) -> Path:
    body = {
        "name": "elsewhere",
        "mechanism": "declared",
        "parameters": {"events": list(parts)},
        "guarantee": {"type": "approx_dp", "epsilon": epsilon, "delta": DELTA},
    }
    (folder / "claim.yaml").write_text(yaml.safe_dump(body | changes))
    return folder / "claim.yaml"


def assay(path: Path) -> tuple[Result, dict[str, Any]]:
    done = run("assay", path, "-o", path.parent / "out", "-q")
    file = path.parent / "out" / "private" / "assay.json"
    return done, json.loads(file.read_text()) if file.exists() else {}


def refused(path: Path) -> str:
    """The one line; nothing is written."""
    done, result = assay(path)
    assert (done.returncode, done.stdout, result) == (2, "", {})
    assert not (path.parent / "out").exists()
    (line,) = done.stderr.strip().splitlines()
    return line


def ledger(path: Path, *, finished: bool = True, adjacency: str = "add_remove") -> Path:
    """A ledger of two Gaussian releases with σ = 4, of which the last is not charged if it is unfinished."""
    event = dp_event.GaussianDpEvent(4.0)
    with Ledger.open(path) as kept:
        plan = events.compose([(event, 2)])
        begun = kept.begin("run", plan=plan, adjacency=Adjacency(adjacency), unit=Unit(), about={"noise": "os"})
        for index in range(2 if finished else 1):
            begun.step(charge=Charge(key=f"sums/{index}", event=event, stage="sums"))
            begun.step(commit=Commit(key=f"sums/{index}", value=index))
        if finished:
            begun.finish()
    return path


def gaussian_epsilon(mu: float) -> float:
    """ε at δ of N(μ, 1) against N(0, 1): Balle and Wang (2018), theorem 8."""

    def excess(epsilon: float) -> float:
        tail = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
        return float(tail - DELTA)

    return float(optimize.brentq(excess, 1e-6, 50.0, xtol=1e-13))


@pytest.mark.grid
@pytest.mark.parametrize(("epsilon", "verdict", "code"), [(1.6, "SUPPORTED", 0), (1.4, "UNPROVEN", 4)])
def test_parts_are_composed_and_the_verdict_names_what_is_assumed(
    tmp_path: Path, epsilon: float, verdict: str, code: int
) -> None:
    """DP-SGD and one Gaussian, beside dp_accounting's accountant of privacy loss distributions."""
    step = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    peer = PLDAccountant().compose(step, 500).compose(dp_event.GaussianDpEvent(5.0))
    parts = {"dp_sgd": SGD, "sampler": "poisson", "name": "training"}, {"event": GAUSSIAN}
    done, result = assay(claim(tmp_path, *parts, epsilon=epsilon))
    assert (result["verdict"], done.returncode) == (verdict, code)
    assert result["best_upper"]["value"] == pytest.approx(peer.get_epsilon(DELTA), rel=1e-3)
    assumed = result["best_upper"]["assumptions"]
    assert "The declared parts are everything that was computed from these records." in assumed
    assert any(
        sentence.startswith("training: Every record was in each step's batch independently") for sentence in assumed
    )
    assert any("ran elsewhere" in warning for warning in result["warnings"])
    assert "digests" in result
    assert "synthetic.jsonl" not in (tmp_path / "out" / "private" / "report.html").read_text()


def test_a_count_repeats_a_part(tmp_path: Path) -> None:
    """25 times σ = 5 is one Gaussian with μ = 1."""
    _, result = assay(claim(tmp_path, {"event": GAUSSIAN, "count": 25}, epsilon=9.0))
    assert result["best_upper"]["value"] == pytest.approx(gaussian_epsilon(1.0), rel=1e-3)


@pytest.mark.parametrize(("unit", "mu"), [("user", 0.2), ("group(3)", 0.6)])
def test_events_count_for_users_as_stated_and_for_groups_of_records(tmp_path: Path, unit: str, mu: float) -> None:
    """A group of k records moves a sum by k times as much."""
    _, result = assay(claim(tmp_path, {"event": GAUSSIAN}, unit=unit))
    assert result["best_upper"]["value"] == pytest.approx(gaussian_epsilon(mu), rel=1e-3)
    whose = "all records of a user together" if unit == "user" else "one record"
    declared = f"GaussianDpEvent: Its events are charged for {whose}, as the claim declares."
    assert result["best_upper"]["assumptions"].count(declared) == 1


def test_the_unit_of_a_file_is_stated_by_the_claim(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    part = {"file": "state.json", "sampler": "poisson", "normalizer": "public"}
    _, result = assay(claim(tmp_path, part, unit="user"))
    assumed = [item for item in result["best_upper"]["assumptions"] if item.startswith("state.json: The unit is user")]
    assert len(assumed) == 1
    assert "does not record it" in assumed[0]


def test_a_part_without_a_bound_is_named(tmp_path: Path) -> None:
    """Shuffled batches have none at add_remove, and a release without noise has none anywhere."""
    parts = (
        {"dp_sgd": SGD, "sampler": "poisson", "name": "training"},
        {"dp_sgd": {**SGD}, "sampler": "shuffled", "name": "warm-up"},
        {"dp_sgd": SGD | {"noise_multiplier": 0.0}, "sampler": "poisson", "name": "means"},
    )
    done, result = assay(claim(tmp_path, *parts))
    assert (result.get("verdict"), done.returncode) == ("UNPROVEN", 4), done.stderr
    named = {item.split(":")[0]: item for item in result["warnings"] if "no finite bound" in item}
    assert named.keys() == {"warm-up", "means"}
    assert "the sampler is shuffled" in named["warm-up"]
    assert "without noise" in named["means"]


def test_no_part_is_named_if_all_have_a_bound(tmp_path: Path) -> None:
    part = {"dp_sgd": SGD, "sampler": "shuffled", "conditions": ["epochs", "once"]}
    _, result = assay(claim(tmp_path, part, adjacency="replace_one", epsilon=40.0))
    assert result["verdict"] == "SUPPORTED"
    assert not any("no finite bound" in item for item in result["warnings"])


@pytest.mark.parametrize(("unit", "who"), [("user", "user"), ("record", "record")])
def test_assumptions_are_about_what_the_events_are_about(tmp_path: Path, unit: str, who: str) -> None:
    _, result = assay(claim(tmp_path, {"dp_sgd": SGD, "sampler": "poisson"}, unit=unit))
    assumed = result["best_upper"]["assumptions"]
    assert f"DP-SGD: Every {who} was in each step's batch independently, with the recorded rate, in secret." in assumed
    assert any(f"clipped each {who}'s contribution" in sentence for sentence in assumed)


@pytest.mark.parametrize("finished", [True, False])
def test_a_ledger_is_a_part_and_an_unfinished_one_counts_with_its_plan(tmp_path: Path, finished: bool) -> None:
    """μ² = 1/25 + 2/16."""
    ledger(tmp_path / "ledger.sqlite", finished=finished)
    _, result = assay(claim(tmp_path, {"event": GAUSSIAN}, {"ledger": "ledger.sqlite"}))
    assert result["best_upper"]["value"] == pytest.approx(gaussian_epsilon(math.sqrt(1 / 25 + 2 / 16)), rel=1e-3)
    assert result["claim"]["parameters"]["events"][1]["ledger"] == "ledger.sqlite"
    assert result["implementation"].keys() == {"ledger.sqlite (SHA-256)"}


def test_a_ledger_that_an_audit_contradicted_supports_nothing(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger.sqlite")
    with Ledger.open(path) as kept:
        kept.run("run").record_verdict({"verdict": {"contradictions": ["It leaked."]}, "public": {}})
    done, result = assay(claim(tmp_path, {"ledger": "ledger.sqlite"}))
    assert (result["verdict"], done.returncode) == ("UNPROVEN", 4)
    assert {bound["rigor"] for bound in result["bounds"]} == {"estimate"}
    asked = run("account", path, "--delta", DELTA, "--json")
    assert {bound["rigor"] for bound in json.loads(asked.stdout)["bounds"]} == {"estimate"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_checkpoint_of_a_run_of_opacus_on_real_rows(tmp_path: Path) -> None:
    """Opacus trains here. If it is said to use Poisson samples, and that its divisor int(n · rate) is public, its claim
    holds; if it is said to shuffle, or if nobody says one of the two, nothing is proven at add_remove. At zero_out the
    divisor is that of both neighbours. Opacus' accountant answers the same for all."""
    engine = PrivacyEngine(accountant="prv")
    model = trained(engine)
    engine.save_checkpoint(path=tmp_path / "checkpoint.pt", module=model)
    peer = PRVAccountant()
    peer.history = engine.accountant.history
    epsilon = float(peer.get_epsilon(DELTA))
    poisson, public = {"sampler": "poisson"}, {"normalizer": "public"}
    cases: list[tuple[dict[str, str], str, str]] = [
        (poisson | public, "add_remove", "SUPPORTED"),
        (poisson, "zero_out", "SUPPORTED"),
        (poisson, "add_remove", "UNPROVEN"),
        (poisson | {"normalizer": "batch"}, "add_remove", "UNPROVEN"),
        ({"sampler": "shuffled"} | public, "add_remove", "UNPROVEN"),
        (public, "add_remove", "UNPROVEN"),
    ]
    for index, (said, adjacency, verdict) in enumerate(cases):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / "checkpoint.pt").write_bytes((tmp_path / "checkpoint.pt").read_bytes())
        part = {"file": "checkpoint.pt", **said}
        done, result = assay(claim(folder, part, epsilon=epsilon * 1.01, adjacency=adjacency))
        assert (result["verdict"], done.returncode) == (verdict, 0 if verdict == "SUPPORTED" else 4)
        named = [item for item in result["warnings"] if item.startswith("checkpoint.pt: this part has no finite bound")]
        assert ["No bound is known at add_remove" in item for item in named] == [True] * (verdict == "UNPROVEN")


def test_what_a_file_states_itself_is_set_beside_ours(tmp_path: Path) -> None:
    """A log of private evolution, whose ε is near the exact one; and a configuration, which proves nothing."""
    (tmp_path / "pe.log").write_text("DP epsilon=1.0, delta=1e-05, noise_multiplier=11.0, num_iterations=9\n")
    _, result = assay(claim(tmp_path, {"file": "pe.log"}))
    (row,) = result["differences"]
    assert row["published"] == 1.0
    assert row["recomputed"] == pytest.approx(gaussian_epsilon(3 / 11), rel=1e-3)
    (tmp_path / "other").mkdir()
    privacy = {"dp_enabled": True, "epsilon": 1.0, "delta": DELTA}
    (tmp_path / "other" / "config.json").write_text(json.dumps({"privacy": privacy}))
    done, result = assay(claim(tmp_path / "other", {"file": "config.json"}))
    assert (result["verdict"], done.returncode) == ("UNPROVEN", 4)
    assert [(row["published"], row["recomputed"]) for row in result["differences"]] == [(1.0, "inf")]


def audited(folder: Path) -> Path:
    """A canary audit, of a generator that copies its data, at δ = 1e-5; 60 canaries."""
    audit = folder / "audit"
    made = run("audit", "plan", "--canaries", 60, "--epsilon", 1, "--delta", DELTA, "-o", audit, "-q")
    assert made.returncode == 0, made.stderr
    texts = [canary.text for canary in read_plan(audit).plan.planted]
    (folder / "synthetic.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in [*texts, "x"]))
    assert run("audit", "score", audit, folder / "synthetic.jsonl", "-q").returncode == 0
    assert run("audit", "bound", audit, "-q").returncode == 1
    return audit


def test_an_audit_of_what_is_declared_refutes_it(tmp_path: Path) -> None:
    """A generator that copies its data, declared to be a Gaussian with ε < 1; 60 canaries, all guessed."""
    audited(tmp_path)
    path = claim(tmp_path, {"event": GAUSSIAN}, epsilon=1.0, audits=["audit"])
    done, result = assay(path)
    assert (result["verdict"], done.returncode) == ("REFUTED", 1)
    assert result["best_lower"]["value"] > 1
    assert any("That the audit is of the declared procedure is stated" in reason for reason in result["reasons"])
    assert result["contradictions"]
    assert result["claim"]["audits"] == ["audit"]
    path.write_text(path.read_text().replace("audits:\n- audit\n", ""))
    done, result = assay(path)  # leaving the audit out does not make it forgotten
    assert (result["verdict"], done.returncode) == ("REFUTED", 1)


@pytest.mark.parametrize("name", ["scores.json", "bound.json"])
def test_an_audit_whose_files_were_changed_is_refused(tmp_path: Path, name: str) -> None:
    audit = audited(tmp_path)
    (file,) = audit.rglob(name)
    body = json.loads(file.read_text())
    body["dpassay"] = "another"
    file.write_text(json.dumps(body))
    assert name in refused(claim(tmp_path, {"event": GAUSSIAN}, audits=["audit"]))


def test_a_forged_bound_is_compared_with_the_scores(tmp_path: Path) -> None:
    """A bound of 0 and a hash that fits it: the scores beside it say that all canaries were guessed."""
    audit = audited(tmp_path)
    body = json.loads((audit / "bound.json").read_text())
    body["audit"]["bounds"][0]["value"] = 0.0
    del body["sha256"]
    (audit / "bound.json").write_text(json.dumps(sealed(body | {"refuted": False})))
    path = claim(tmp_path, {"event": GAUSSIAN}, audits=["audit"])
    assert "bound.json: is not what the scores in" in refused(path)
    path = claim(tmp_path, {"event": GAUSSIAN}, audits=["audit/bound.json"])
    assert "name that folder" in refused(path)


def test_an_audit_by_many_runs_refutes_it(tmp_path: Path) -> None:
    """A generator whose labels are those of its data shows a new label in nearly every run on D′ and in none on D."""
    like, audit = tmp_path / "like.csv", tmp_path / "runs"
    like.write_text("city,income\n" + "".join(f"{'ABCDE'[i % 5]},{30011 + 977 * i}\n" for i in range(40)))
    about = ("--like", like, "--epsilon", 0.5, "--delta", DELTA, "--runs", 60, "--neighbors", "new_category")
    assert run("audit", "runs", "plan", *about, "-o", audit, "-q").returncode == 0
    assert run("audit", "runs", "run", audit, "--function", "audited_functions:own_labels", "-q").returncode == 0
    path = claim(tmp_path, {"event": GAUSSIAN}, epsilon=0.5, audits=["runs"])
    assert "holds no bound" in refused(path)
    assert run("audit", "runs", "bound", audit, "-q").returncode == 1
    bound, content = audit / "bound.json", (audit / "bound.json").read_text()
    bound.write_text(json.dumps(json.loads(content) | {"refuted": False}))
    assert "bound.json" in refused(path)
    bound.write_text(content)
    done, result = assay(path)
    assert (result["verdict"], done.returncode) == ("REFUTED", 1)
    assert result["best_lower"]["value"] > 0.5


def test_an_audit_at_another_relation_is_refused(tmp_path: Path) -> None:
    audited(tmp_path)
    path = claim(tmp_path, {"event": GAUSSIAN}, adjacency="replace_one", audits=["audit"])
    assert "its bound is at add_remove and unit record, the claim at replace_one" in refused(path)


def test_a_file_that_changed_is_another_run(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    path = claim(tmp_path, {"file": "state.json", "sampler": "poisson", "normalizer": "public"})
    assert assay(path)[0].returncode == 0
    (tmp_path / "state.json").write_text(json.dumps({"history": [[2.0, 0.01, 500]], "mechanism": "rdp"}))
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_account_and_gate_take_it_with_its_assumptions(tmp_path: Path) -> None:
    path = claim(tmp_path, {"dp_sgd": SGD, "sampler": "poisson"})
    result = json.loads(run("account", path, "--json").stdout)
    assert len(result["assumptions"]) == 7
    assert {item["name"] for item in result["unstated"]} == {"clipping", "noise", "once", "normalizer"}
    assert all(set(result["assumptions"]) <= set(bound["assumptions"]) for bound in result["bounds"])
    assert "assumed: The declared parts are everything" in run("account", path).stdout
    assay(path)
    of_ledger = json.loads(run("account", tmp_path / "out/private/ledger.sqlite", "--delta", DELTA, "--json").stdout)
    assert of_ledger["assumptions"] == result["assumptions"]
    for limit, code in ((2.0, 2), (1.0, 1)):
        assert run("gate", path, "--max-epsilon", limit, "--delta", DELTA).returncode == code
    assert run("gate", path, "--max-epsilon", 2.0, "--delta", DELTA, "--assume").returncode == 0


def test_conditions_that_nobody_states_are_named_at_the_verdict(tmp_path: Path) -> None:
    part: dict[str, Any] = {"dp_sgd": SGD, "sampler": "poisson"}
    _, result = assay(claim(tmp_path, part))
    assert result["verdict"] == "SUPPORTED"
    (named,) = [item for item in result["warnings"] if "conditions that nobody states" in item]
    for name in ("clipping", "noise", "once", "normalizer"):
        assert name in named
    (tmp_path / "stated").mkdir()
    part |= {"normalizer": "public", "conditions": ["clipping", "noise", "once"]}
    path = claim(tmp_path / "stated", part)
    _, result = assay(path)
    assert result["verdict"] == "SUPPORTED"
    assert not any("conditions that nobody states" in item for item in result["warnings"])
    for item in (path, path.parent / "out/private/ledger.sqlite"):
        assert run("gate", item, "--max-epsilon", 2.0, "--delta", DELTA).returncode == 0


def test_epochs_of_several_parts_are_named(tmp_path: Path) -> None:
    """50 and 100 steps at a rate of .01 are an epoch each, if each part begins one; in one file they may be three."""
    parts = [
        {
            "dp_sgd": {"noise_multiplier": n, "sample_rate": 0.01, "steps": s},
            "sampler": "shuffled",
            "conditions": ["epochs", "once"],
        }
        for n, s in ((50.0, 50), (2.0, 100))
    ]
    _, result = assay(claim(tmp_path, *parts, adjacency="zero_out"))
    assert result["best_upper"]["value"] == pytest.approx(gaussian_epsilon(math.hypot(1 / 50, 1 / 2)), rel=1e-3)
    assert any("the first step began an epoch" in sentence for sentence in result["best_upper"]["assumptions"])


def result_of_audit(path: Path, value: float, *, confidence: float = 0.95, passed: bool = True) -> str:
    """A file as `dpassay audit` writes one; its name."""
    shown = Bound(
        Direction.LOWER,
        value,
        "clopper_pearson",
        Rigor.FINITE_SAMPLE,
        Adjacency.ADD_REMOVE,
        delta=DELTA,
        confidence=confidence,
    )
    audit = AuditResult(
        name="third_party", game="g", attack="a", statistics=("clopper_pearson",), conclusion="c", trials=9,
        bounds=(shown,), controls_passed=passed,
    )  # fmt: skip
    path.write_text(json.dumps({"audits": [audit.to_json()]}))
    return path.name


@pytest.mark.parametrize(("confidence", "verdict", "code"), [(0.95, "UNPROVEN", 4), (0.975, "REFUTED", 1)])
def test_a_second_audit_does_not_silence_the_first(tmp_path: Path, confidence: float, verdict: str, code: int) -> None:
    names = [result_of_audit(tmp_path / f"{value}.json", value, confidence=confidence) for value in (20.0, 20.5)]
    path = claim(tmp_path, {"event": GAUSSIAN}, audits=names)
    done, result = assay(path)
    assert (result["verdict"], done.returncode) == (verdict, code)
    assert run("gate", path, "--max-epsilon", 3, "--delta", DELTA).returncode == 1
    for asked in (path, tmp_path / "out" / "private" / "ledger.sqlite"):
        bounds = json.loads(run("account", asked, "--delta", DELTA, "--json").stdout)["bounds"]
        assert {bound["rigor"] for bound in bounds} == {"estimate"}


def test_an_upper_bound_in_the_file_of_an_audit_supports_nothing(tmp_path: Path) -> None:
    """A Gaussian with μ = 5, declared to have ε = 3, and a file that says that ε is at most .01."""
    stated = Bound(Direction.UPPER, 0.01, "lattice", Rigor.CERTIFIED, Adjacency.ADD_REMOVE, delta=DELTA)
    audit = AuditResult(name="x", game="g", attack="a", statistics=("s",), conclusion="c", trials=9, bounds=(stated,))
    (tmp_path / "upper.json").write_text(json.dumps({"audits": [audit.to_json()]}))
    path = claim(tmp_path, {"event": GAUSSIAN | {"noise_multiplier": 0.2}}, audits=["upper.json"])
    assert "upper.json: holds an upper bound, which no audit shows" in refused(path)


@pytest.mark.grid
@pytest.mark.parametrize(
    "guarantee",
    [None, {"type": "pure_dp", "epsilon": 1000.0}, {"type": "approx_dp", "epsilon": 3.0, "delta": 1e-4}],
)
def test_an_audit_contradicts_the_parts_at_its_own_delta(tmp_path: Path, guarantee: dict[str, Any] | None) -> None:
    """ε ≥ 20 at δ = 1e-5, where one Gaussian has .73: whatever is claimed, or if nothing is, nothing is certified."""
    name = result_of_audit(tmp_path / "audit.json", 20.0)
    path = claim(tmp_path, {"event": GAUSSIAN}, audits=[name], guarantee=guarantee)
    asked = [path]
    if guarantee is not None:
        done, result = assay(path)
        assert (result["verdict"], done.returncode) == ("UNPROVEN", 4)
        assert len(result["contradictions"]) == 1
        asked.append(tmp_path / "out" / "private" / "ledger.sqlite")
    for item in asked:
        assert run("gate", item, "--max-epsilon", 3, "--delta", DELTA).returncode == 1


def test_what_an_audit_observed_against_the_events_counts_for_gate(tmp_path: Path) -> None:
    audit = AuditResult(
        name="x", game="g", attack="a", statistics=("s",), conclusion="c", trials=9, contradictions=("It leaked.",)
    )
    (tmp_path / "audit.json").write_text(json.dumps({"audits": [audit.to_json()]}))
    path = claim(tmp_path, {"event": GAUSSIAN}, audits=["audit.json"])
    assert run("gate", path, "--max-epsilon", 3, "--delta", DELTA).returncode == 1
    assert assay(path)[0].returncode == 4


def test_an_audit_between_claim_and_proof_does_not_touch_the_proof(tmp_path: Path) -> None:
    """ε ≥ .5, claimed .1, proven .73."""
    name = result_of_audit(tmp_path / "audit.json", 0.5)
    path = claim(tmp_path, {"event": GAUSSIAN}, epsilon=0.1, audits=[name])
    assert assay(path)[0].returncode == 1
    for item in (path, tmp_path / "out" / "private" / "ledger.sqlite"):
        assert run("gate", item, "--max-epsilon", 0.8, "--delta", DELTA, "--condition", "event").returncode == 0


def test_an_audit_whose_controls_failed_shows_nothing(tmp_path: Path) -> None:
    name = result_of_audit(tmp_path / "failed.json", 20.0, passed=False)
    done, result = assay(claim(tmp_path, {"event": GAUSSIAN}, audits=[name]))
    assert (result["verdict"], done.returncode) == ("SUPPORTED", 0)
    assert result["audits"][0]["bounds"] == []


def test_a_ledger_with_recorded_noise_supports_nothing(tmp_path: Path) -> None:
    event = dp_event.GaussianDpEvent(4.0)
    with Ledger.open(tmp_path / "ledger.sqlite") as kept:
        about = {"noise": "recorded"}
        begun = kept.begin("run", plan=event, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about=about)
        begun.step(charge=Charge(key="sums/0", event=event, stage="sums"))
        begun.step(commit=Commit(key="sums/0", value=0))
        begun.finish()
    done, result = assay(claim(tmp_path, {"ledger": "ledger.sqlite"}))
    assert (result["verdict"], done.returncode) == ("UNPROVEN", 4)
    assert str(tmp_path) not in json.dumps(result)


def test_an_event_that_is_worse_than_what_ran_has_no_lower_end(tmp_path: Path) -> None:
    """In the claim, in its report, and in the ledger of its assay."""
    part = {"dp_sgd": SGD, "sampler": "shuffled"}
    path = claim(tmp_path, part, adjacency="replace_one", epsilon=99.0)
    _, result = assay(path)
    ledger_of_it = tmp_path / "out" / "private" / "ledger.sqlite"
    for bounds in (
        result["bounds"],
        json.loads(run("account", path, "--json").stdout)["bounds"],
        json.loads(run("account", ledger_of_it, "--delta", DELTA, "--json").stdout)["bounds"],
    ):
        assert bounds
        assert all(bound.get("interval") is None for bound in bounds)


def test_gate_prints_what_it_assumes(tmp_path: Path) -> None:
    done = run("gate", claim(tmp_path, {"event": GAUSSIAN}), "--max-epsilon", 3, "--delta", DELTA, "--assume")
    assert done.returncode == 0
    assert "assumed: The declared parts are everything" in done.stdout
    assert "assumed: GaussianDpEvent: What was released is what its event says" in done.stdout


def test_it_generates_and_releases_nothing(tmp_path: Path) -> None:
    path = claim(tmp_path, {"event": GAUSSIAN})
    done = run("generate", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert "ran elsewhere and generates nothing; use dpassay assay" in done.stderr
    assert assay(path)[0].returncode == 0
    done = run("release", tmp_path / "out", "-o", tmp_path / "released", "-q")
    assert done.returncode == 2
    assert "has no documents to release" in done.stderr
    assert not (tmp_path / "released").exists()


@pytest.mark.parametrize(
    ("parts", "changes", "says"),
    [
        ([], {}, "parameters.events"),
        ([{}], {}, "give one of event, dp_sgd, file and ledger, not none"),
        ([{"event": GAUSSIAN, "dp_sgd": SGD}], {}, "not event and dp_sgd"),
        ([{"event": GAUSSIAN, "sampler": "poisson"}], {}, "sampler, records and normalizer"),
        ([{"event": GAUSSIAN, "normalizer": "public"}], {}, "sampler, records and normalizer"),
        ([{"event": GAUSSIAN, "conditions": ["clipping"]}], {}, "condition clipping does not apply"),
        ([{"event": GAUSSIAN, "conditions": ["all"]}], {}, "conditions"),
        ([{"dp_sgd": SGD, "sampler": "poisson", "records": 5}], {}, "records 5 does not apply"),
        ([{"dp_sgd": SGD | {"sample_rate": 1.0}, "sampler": "poisson"}], {}, "sampler poisson does not apply"),
        ([{"dp_sgd": SGD, "sampler": "poisson", "conditions": ["epochs"]}], {}, "condition epochs does not apply"),
        ([{"event": {"class_name": "os.system"}}], {}, "an event is a mapping with the class_name"),
        ([{"event": {"class_name": "EvilDpEvent"}}], {}, "'EvilDpEvent'"),
        ([{"event": {"class_name": "GaussianDpEvent", "noise_multiplier": "x"}}], {}, "must be a number, not 'x'"),
        ([{"dp_sgd": SGD | {"sample_rate": 2}}], {}, "sample_rate"),
        ([{"dp_sgd": SGD, "sampler": "sorted"}], {}, "sampler"),
        ([{"dp_sgd": SGD, "sampler": "fixed"}], {"adjacency": "replace_one"}, "records"),
        ([{"dp_sgd": SGD | {"steps": 10**30}}], {}, "steps must be at most 10000000"),
        (
            [{"event": {"class_name": "SelfComposedDpEvent", "event": GAUSSIAN, "count": 10**30}}],
            {},
            "at most 10000000",
        ),
        ([{"event": {"class_name": "SelfComposedDpEvent", "event": GAUSSIAN, "count": None}}], {}, "count"),
        ([{"file": "missing.pt"}], {}, "missing.pt"),
        ([{"file": "claim.yaml"}], {}, "claim.yaml"),
        ([{"ledger": "missing.sqlite"}], {}, "missing.sqlite"),
        ([{"event": GAUSSIAN}], {"audits": ["nowhere"]}, "nowhere"),
        ([{"event": GAUSSIAN}], {"audits": ["claim.yaml"]}, "is not JSON"),
        ([{"event": GAUSSIAN}], {"unit": "secret"}, "unit"),
        ([{"event": GAUSSIAN, "count": 10**30}], {}, "at most 10000000"),
        ([{"dp_sgd": SGD | {"steps": 10**7}, "sampler": "poisson", "count": 10**9}], {}, "at most 10000000"),
        ([{"event": {"class_name": "NoOpDpEvent"}}], {}, "records no step and no release"),
        (
            [{"event": {"class_name": "SelfComposedDpEvent", "event": GAUSSIAN, "count": 0}}],
            {},
            "records no step and no release",
        ),
        ([{"event": GAUSSIAN}], {"model": "gpt2"}, "model and variant"),
        ([{"event": GAUSSIAN}], {"guarantee": {"type": "ex_post", "epsilon": 1.0}}, "guarantee"),
        (
            [{"event": GAUSSIAN}],
            {"guarantee": {"type": "approx_dp", "epsilon": 1.0, "delta": "n^-1.1"}},
            "public.records",
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    tmp_path: Path, parts: list[dict[str, Any]], changes: dict[str, Any], says: str
) -> None:
    assert says in refused(claim(tmp_path, *parts, **changes))


def test_a_file_that_records_no_step_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [], "mechanism": "rdp"}))
    assert "records no step and no release" in refused(claim(tmp_path, {"file": "state.json"}))


@pytest.mark.parametrize("rate", [1e-310, 1e-300])
def test_a_tiny_rate(tmp_path: Path, rate: float) -> None:
    """Five shuffled steps are in one epoch: one exchange in one Gaussian, μ = 2."""
    part = {
        "dp_sgd": {"noise_multiplier": 1.0, "sample_rate": rate, "steps": 5},
        "sampler": "shuffled",
        "conditions": ["epochs", "once"],
    }
    _, result = assay(claim(tmp_path, part, adjacency="replace_one"))
    assert result["best_upper"]["value"] == pytest.approx(gaussian_epsilon(2.0), rel=1e-3)


def test_a_part_that_states_no_condition_is_described_as_before() -> None:
    """So that a run whose ledger began before there were conditions is resumed."""
    said: dict[str, Any] = {"dp_sgd": SGD, "sampler": "poisson"}
    part = DeclaredPart(**said)
    before = {"name", "event", "dp_sgd", "file", "ledger", "count", "sampler", "records"}
    assert set(part.model_dump(mode="json")) == before
    stated = DeclaredPart(**said, normalizer=Normalizer.PUBLIC, conditions=[Condition.NOISE])
    assert set(stated.model_dump(mode="json")) == {*before, "normalizer", "conditions"}


def test_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    ledger(tmp_path / "ledger.sqlite", adjacency="replace_one")
    assert "run 'run' is at replace_one" in refused(claim(tmp_path, {"ledger": "ledger.sqlite"}))
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    twice = claim(tmp_path, {"file": "a.json"}, {"file": "b.json"})
    assert "two parts name files with the same content" in refused(twice)


@pytest.mark.grid
@pytest.mark.parametrize("name", ["a\tb", "\u200e", " ", "x" * 101])
def test_a_part_with_a_bad_name_leaves_nothing_and_its_correction_runs(name: str, tmp_path: Path) -> None:
    event = {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}
    named: dict[str, Any] = {
        "name": "named",
        "mechanism": "declared",
        "adjacency": "add_remove",
        "parameters": {"events": [{"name": name, "event": event}]},
        "guarantee": {"type": "approx_dp", "epsilon": 9.0, "delta": 1e-5},
    }
    path = tmp_path / "claim.yaml"
    path.write_text(yaml.safe_dump(named))
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "name" in done.stderr
    assert not (tmp_path / "out").exists()
    named["parameters"] = {"events": [{"name": "a b", "event": event}]}
    path.write_text(yaml.safe_dump(named))
    assert run("assay", path, "-o", tmp_path / "out", "-q").returncode == 0


def test_a_file_whose_name_is_no_label_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a\nb.txt").write_text("GaussianDpEvent(noise_multiplier=1.0)")
    named: dict[str, Any] = {
        "name": "named",
        "mechanism": "declared",
        "adjacency": "add_remove",
        "parameters": {"events": [{"file": "a\nb.txt"}]},
        "guarantee": {"type": "approx_dp", "epsilon": 9.0, "delta": 1e-5},
    }
    (tmp_path / "claim.yaml").write_text(yaml.safe_dump(named))
    done = run("assay", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert not (tmp_path / "out").exists()


def test_a_ledger_in_which_nothing_was_charged_does_not_outlive_bad_input(tmp_path: Path) -> None:
    """Whatever fails between the beginning of a run and its first charge."""
    named = make_claim(
        {
            "name": "named",
            "mechanism": "declared",
            "adjacency": "add_remove",
            "parameters": {"events": [{"event": {"class_name": "GaussianDpEvent", "noise_multiplier": 1.0}}]},
        }
    )
    plan = dp_event.GaussianDpEvent(1.0)
    (tmp_path / "private").mkdir()
    ledger = tmp_path / "private" / "ledger.sqlite"
    with pytest.raises(InputError), open_run(named, ledger, plan, RunSettings(), Basis(), {}) as begun:
        begun.step(charge=Charge(key="a\n", stage="part", event=plan))
    assert not list(ledger.parent.iterdir())
    journal = ledger.with_name("texts.jsonl")
    journal.touch()  # it is refused without its ledger
    with pytest.raises(InputError), open_run(named, ledger, plan, RunSettings(), Basis(), {}) as begun:
        begun.step(charge=Charge(key="a\n", stage="part", event=plan))
    assert ledger.exists()
    ledger.unlink()
    journal.unlink()
    with open_run(named, ledger, plan, RunSettings(), Basis(), {}) as begun:
        begun.step(charge=Charge(key="part/0", stage="part", event=plan))
    with (
        pytest.raises(InputError, match="another plan"),
        open_run(named, ledger, events.compose([(plan, 2)]), RunSettings(), Basis(), {}),
    ):
        pass
    with Ledger.open(ledger, read_only=True) as opened:
        assert len(opened.events()) == 1
