"""`dpassay gate`: certified bounds against a policy; exit codes, units, unfinished runs, files of other libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import run
from dp_accounting import DpEvent, dp_event

from dpassay.accounting import Adjacency, Unit, events
from dpassay.accounting.conversions import formulas
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]


RECORDED: dict[str, Any] = {"assumptions": []}
"""Of a run that records what it assumes, which is nothing; without it, nobody states it."""


def ledger(path: Path, event: DpEvent, *, planned: int = 1, charged: int = 1, unit: str = "record") -> Path:
    with Ledger.open(path) as kept:
        plan = events.compose([(event, planned)])
        begun = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit.parse(unit), about=RECORDED)
        for index in range(charged):
            begun.step(charge=Charge(key=f"releases/{index}", event=event, stage="releases"))
            begun.step(commit=Commit(key=f"releases/{index}", value=index))
        if charged == planned:
            begun.finish()
    return path


GAUSSIAN = dp_event.GaussianDpEvent(2.0)
EXACT = formulas.epsilon_from_gdp(0.5, 1e-6)


@pytest.mark.parametrize(("limit", "code"), [(EXACT * 1.01, 0), (EXACT * 0.99, 1)])
def test_the_exit_code_is_by_the_best_certified_bound(tmp_path: Path, limit: float, code: int) -> None:
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    done = run("gate", path, "--max-epsilon", limit, "--delta", 1e-6)
    assert done.returncode == code
    assert done.stdout.startswith("within ε" if code == 0 else "NOT within ε")
    body = json.loads(run("gate", path, "--max-epsilon", limit, "--delta", 1e-6, "--json").stdout)
    assert body["passed"] is (code == 0)
    assert body["bound"]["rigor"] == "certified"
    assert body["bound"]["value"] == pytest.approx(EXACT, rel=1e-3)


def test_an_unfinished_run_counts_with_its_whole_plan(tmp_path: Path) -> None:
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN, planned=4, charged=1)
    four = formulas.epsilon_from_gdp(1.0, 1e-6)
    asked = ("gate", path, "--delta", 1e-6, "--condition", "newest")  # an anchor is written at a run's end
    assert run(*asked, "--max-epsilon", four * 0.99).returncode == 1
    assert run(*asked, "--max-epsilon", four * 1.01).returncode == 0


def test_an_unfinished_run_whose_plan_has_no_bound_is_not_within(tmp_path: Path) -> None:
    """Its charges so far have one: a Gaussian, before responses of each unit, which have none at add_remove."""
    path = tmp_path / "ledger.sqlite"
    plan = dp_event.ComposedDpEvent([GAUSSIAN, dp_event.RandomizedResponseDpEvent(0.5, 3)])
    with Ledger.open(path) as kept:
        begun = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={})
        begun.step(charge=Charge(key="releases/0", event=GAUSSIAN, stage="releases"))
        begun.step(commit=Commit(key="releases/0", value=0))
    done = run("gate", path, "--max-epsilon", EXACT * 1.01, "--delta", 1e-6)
    assert (done.returncode, "no certified bound" in done.stdout) == (1, True)


def test_the_reason_why_bounds_are_estimates_is_said(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with Ledger.open(path) as kept:
        begun = kept.begin(
            "run", plan=GAUSSIAN, adjacency=Adjacency.ADD_REMOVE, unit=Unit(), about={"noise": "recorded"}
        )
        begun.step(charge=Charge(key="releases/0", event=GAUSSIAN, stage="releases"))
        begun.step(commit=Commit(key="releases/0", value=0))
    done = run("gate", path, "--max-epsilon", EXACT * 1.01, "--delta", 1e-6)
    assert done.returncode == 1
    assert "no certified bound on ε: ledger.sqlite: the noise of run 'run' was recorded" in " ".join(
        done.stdout.split()
    )


def test_a_ledger_without_an_anchor_is_taken_as_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    asked = ("gate", path, "--max-epsilon", 9, "--delta", 1e-6, "--summary", tmp_path / "summary.md")
    sentence = f"assumed: {path}: The ledger is the newest one of its runs"
    assert sentence not in run(*asked).stdout
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # as in continuous integration
    done = run(*asked)
    assert (done.returncode, done.stdout) == (2, "")
    assert "give --condition newest, or --assume" in done.stderr
    for states in (("--condition", "newest"), ("--assume",)):
        done = run(*asked, *states)
        assert done.returncode == 0
        assert sentence in done.stdout
    assert (tmp_path / "summary.md").read_text().count(f"- {sentence}") == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--unit", "user"), "the cost is of unit record, and the policy is for user"),
        (("--adjacency", "replace_one"), "the cost is at add_remove, and the policy is for replace_one"),
    ],
)
def test_another_unit_or_relation_is_not_within(tmp_path: Path, options: tuple[str, str], says: str) -> None:
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    done = run("gate", path, "--max-epsilon", 99, "--delta", 1e-6, *options)
    assert done.returncode == 1
    assert says in " ".join(done.stdout.split())
    named = ledger(tmp_path / "users.sqlite", GAUSSIAN, unit="user")
    assert run("gate", named, "--max-epsilon", 99, "--delta", 1e-6, "--unit", "user").returncode == 0


def written_claim(path: Path, **changes: Any) -> Path:
    """A claim of one Gaussian release with σ = 4 that ran elsewhere."""
    event = {"class_name": "GaussianDpEvent", "noise_multiplier": 4.0}
    body = {
        "name": "next",
        "mechanism": "declared",
        "parameters": {"events": [{"event": event}]},
        "guarantee": {"type": "approx_dp", "epsilon": 3.0, "delta": 1e-6},
    }
    path.write_text(yaml.safe_dump(body | changes))
    return path


@pytest.mark.parametrize("unit", ["record", "user"])
def test_the_unit_and_the_relation_of_the_policy_stand_beside_claims(tmp_path: Path, unit: str) -> None:
    """σ = 2 and σ = 4 are μ² = 1/4 + 1/16."""
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN, unit=unit)
    claim = written_claim(tmp_path / "next.yaml", unit=unit)
    both = formulas.epsilon_from_gdp((1 / 4 + 1 / 16) ** 0.5, 1e-6)
    for limit, asked, code in ((1.01, unit, 0), (0.99, unit, 1), (1.01, "group(7)", 1)):
        options = ("--max-epsilon", both * limit, "--delta", 1e-6, "--unit", asked, "--adjacency", "add_remove")
        assert run("gate", path, claim, *options, "--condition", "event").returncode == code
        assert run("gate", path, claim, *options).returncode == (code or 2)
    done = run("gate", claim, "--max-epsilon", 9, "--delta", 1e-6, "--sampler", "poisson")
    assert done.returncode == 2
    assert "are for files of other libraries" in done.stderr


def test_what_does_not_compose_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    asked = ("gate", path, tmp_path / "state.json", "--max-epsilon", 9, "--delta", 1e-5, "--sampler", "poisson")
    assert run(*asked, "--normalizer", "public", "--assume").returncode == 0
    done = run(*asked, "--assume")  # the ledger is at add_remove
    assert done.returncode == 1
    assert "the normalizer public" in done.stdout
    done = run(*asked, "--unit", "user")
    assert done.returncode == 2
    assert "do not compose" in done.stderr


@pytest.mark.parametrize(("unit", "says"), [("user", "The unit is user, as stated"), (None, "and nobody stated it")])
def test_a_unit_that_a_file_does_not_record_is_assumed(tmp_path: Path, unit: str | None, says: str) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    asked = ("gate", tmp_path / "state.json", "--max-epsilon", 2, "--delta", 1e-5, "--sampler", "poisson", "--assume")
    done = run(*asked, *(() if unit is None else ("--unit", unit)))
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("assumed: The unit")]
    assert says in line
    assert "does not record it" in line


def test_what_has_no_bound_is_not_within(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    asked = ("gate", tmp_path / "state.json", "--max-epsilon", 2, "--delta", 1e-5, "--assume")
    done = run(*asked, "--adjacency", "add_remove")
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    for option in ("--sampler", "--adjacency", "--normalizer"):
        assert option in first
    assert all(line.startswith("assumed: ") and "--" not in line for line in rest)
    assert run(*asked, "--sampler", "poisson").returncode == 0
    assert run(*asked, "--sampler", "poisson", "--adjacency", "add_remove").returncode == 1
    public = ("--adjacency", "add_remove", "--normalizer", "public")
    assert run(*asked, "--sampler", "poisson", *public).returncode == 0
    assert run(*asked, "--sampler", "shuffled", "--adjacency", "replace_one").returncode == 1


EACH = ("clipping", "noise", "once", "unit", "adjacency", "normalizer")


@pytest.mark.parametrize("without", [None, *EACH])
def test_what_nobody_states_is_no_answer(tmp_path: Path, without: str | None) -> None:
    """A cost within the policy passes if every condition is stated, and is refused if one is not, with its option."""
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    says = {
        **{name: ("--condition", name) for name in ("clipping", "noise", "once")},
        "unit": ("--unit", "record"),
        "adjacency": ("--adjacency", "zero_out"),
    }
    asked = ["gate", tmp_path / "state.json", "--max-epsilon", 2, "--delta", 1e-5, "--sampler", "poisson"]
    if without == "normalizer":  # at add_remove it is no assumption: without it there is no bound
        says["adjacency"] = ("--adjacency", "add_remove")
    stated = [word for name, words in says.items() if name != without for word in words]
    summary = ("--summary", tmp_path / "summary.md")
    done = run(*asked, *stated, *summary)
    if without in (None, "normalizer"):
        assert done.returncode == (0 if without is None else 1)
        return
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    named = {"unit": "--unit 'record|user|group(k)'", "adjacency": "--adjacency add_remove|replace_one|zero_out"}
    option = named.get(without or "", f"--condition {without}")
    assert f"give {option}, or --assume" in line
    assert not (tmp_path / "summary.md").exists()
    done = run(*asked, *stated, "--assume", *summary)
    assert done.returncode == 0
    assert "assumed: " in (tmp_path / "summary.md").read_text()


def test_epochs_that_were_cut_short_count_every_step(tmp_path: Path) -> None:
    """100 steps of batches of a tenth: ten epochs if each ran to its end. With a limit on batches, a record of the
    first batches is in more of them: in 20 of 100 here, ε = 66.9."""
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.1, 0.1, 100]], "mechanism": "rdp"}))
    twenty = formulas.epsilon_from_gdp(2 * 20**0.5 / 1.1, 1e-5)
    assert twenty == pytest.approx(66.934, abs=1e-3)
    ten = formulas.epsilon_from_gdp(2 * 10**0.5 / 1.1, 1e-5)
    state, policy = tmp_path / "state.json", ("--max-epsilon", 41, "--delta", 1e-5, "--adjacency", "replace_one")
    asked = ("gate", state, *policy, "--sampler", "shuffled", "--assume")
    done = run(*asked)
    assert done.returncode == 1
    assert "each record counts in all 100 steps" in done.stdout
    done = run(*asked, "--condition", "epochs", "--condition", "once")
    assert done.returncode == 0
    assert ten == pytest.approx(40.3045, abs=1e-3)
    assert "each record was in at most 10 of the 100 steps" in done.stdout


def test_a_sampler_that_contradicts_an_event_is_refused(tmp_path: Path) -> None:
    """One shuffled epoch of 100 steps has ε ≥ 5.39 where Poisson samples have 1.33 for five."""
    (tmp_path / "event.txt").write_text(
        repr(dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 500))
    )
    asked = ("gate", tmp_path / "event.txt", "--max-epsilon", 1.5, "--delta", 1e-5, "--assume")
    for sampler in ("shuffled", "fixed", "unknown"):
        done = run(*asked, "--sampler", sampler)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"the file says sampler poisson, not {sampler}" in done.stderr
    for options in ((), ("--sampler", "poisson")):
        done = run(*asked, *options)
        assert done.returncode == 0
        assert "assumed: Every record was in each step's batch independently" in done.stdout


def test_what_a_ledger_of_a_declared_run_leaves_open_is_left_open(tmp_path: Path) -> None:
    """A condition that nobody states does not get stated by assaying the claim and gating its ledger."""
    claim = written_claim(tmp_path / "next.yaml")
    assert run("assay", claim, "-o", tmp_path / "out", "-q").returncode == 0
    ledger_of_it = tmp_path / "out" / "private" / "ledger.sqlite"
    asked = ("gate", ledger_of_it, "--max-epsilon", 3, "--delta", 1e-6)
    done = run(*asked)
    assert done.returncode == 2
    assert "give --condition event, or --assume" in done.stderr
    assert run(*asked, "--condition", "event").returncode == 0
    body = json.loads(run(*asked, "--condition", "event", "--json").stdout)
    assert "unstated" not in body["account"]
    stated = written_claim(tmp_path / "stated.yaml", name="stated")
    content = yaml.safe_load(stated.read_text())
    content["parameters"]["events"][0]["conditions"] = ["event"]
    stated.write_text(yaml.safe_dump(content))
    assert run("gate", stated, "--max-epsilon", 3, "--delta", 1e-6).returncode == 0


@pytest.mark.grid
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-epsilon", -1, "--delta", 1e-6), "max_epsilon must be"),
        (("--max-epsilon", 1, "--delta", 1), "delta must be"),
        (("--max-epsilon", 1, "--delta", 0.01), "delta must be below 0.01 for a policy, not 0.01"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--condition", "epochs"), "condition epochs does not apply"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--condition", "all"), "condition must be one of"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--normalizer", "public"), "are for files of other libraries"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--sampler", "poisson"), "are for files of other libraries"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--summary", "none/summary.md"), "none/summary.md: cannot be written"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, options: tuple[Any, ...], says: str) -> None:
    done = run("gate", ledger(tmp_path / "ledger.sqlite", GAUSSIAN), *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


@pytest.mark.slow
def test_the_step_of_the_example_workflow(tmp_path: Path) -> None:
    """Its command in a shell, with a ledger and a claim in the folder, within the policy and not."""
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "privacy-budget.yml").read_text())
    (command,) = [
        step["run"] for step in workflow["jobs"]["budget"]["steps"] if step.get("run", "").startswith("dpassay ")
    ]
    ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    environment = os.environ | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "XDG_STATE_HOME": str(tmp_path)}
    command = command.replace("dpassay ", f"{sys.executable} -m dpassay ", 1)
    claim = {
        "name": "next",
        "data": {"source": "table", "name": "randhie"},
        "mechanism": "two_stage",
        "parameters": {"noise_multiplier": 4.0, "batch_size": 64, "steps": 60},
        "public": {"records": 2048},
    }
    for noise, code, heading in ((4.0, 0, "kept"), (0.6, 1, "NOT kept")):
        claim["parameters"]["noise_multiplier"] = noise  # type: ignore[index]
        (tmp_path / "next-run.yaml").write_text(yaml.safe_dump(claim))
        done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        assert (tmp_path / "summary.md").read_text().splitlines()[-20:].count(f"### Privacy budget: {heading}") >= 1
