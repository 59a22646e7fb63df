"""`cupel gate`: certified bounds against a policy; exit codes, units, unfinished runs, files of other libraries."""

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

from cupel.accounting import Adjacency, Unit, events
from cupel.accounting.conversions import formulas
from cupel.accounting.ledger.entries import Charge, Commit
from cupel.accounting.ledger.ledger import Ledger

ROOT = Path(__file__).resolve().parents[3]


def ledger(path: Path, event: DpEvent, *, planned: int = 1, charged: int = 1, unit: str = "record") -> Path:
    with Ledger.open(path) as kept:
        plan = events.compose([(event, planned)])
        begun = kept.begin("run", plan=plan, adjacency=Adjacency.ADD_REMOVE, unit=Unit.parse(unit), about={})
        for place in range(charged):
            begun.step(charge=Charge(key=f"releases/{place}", event=event, stage="releases"))
            begun.step(commit=Commit(key=f"releases/{place}", value=place))
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
    assert run("gate", path, "--max-epsilon", four * 0.99, "--delta", 1e-6).returncode == 1
    assert run("gate", path, "--max-epsilon", four * 1.01, "--delta", 1e-6).returncode == 0


def test_an_unfinished_run_whose_plan_has_no_bound_is_not_within(tmp_path: Path) -> None:
    """Its charges so far have one: a Gaussian, before samples of a fixed size, which have none at add_remove."""
    path = tmp_path / "ledger.sqlite"
    plan = dp_event.ComposedDpEvent([GAUSSIAN, dp_event.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN)])
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
    assert done.returncode == 0
    assert sentence in done.stdout
    assert (tmp_path / "summary.md").read_text().count(f"- {sentence}") == 1


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
        assert run("gate", path, claim, *options).returncode == code
    done = run("gate", claim, "--max-epsilon", 9, "--delta", 1e-6, "--sampler", "poisson")
    assert done.returncode == 2
    assert "are for files of other libraries" in done.stderr


def test_what_does_not_compose_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    path = ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    asked = ("gate", path, tmp_path / "state.json", "--max-epsilon", 9, "--delta", 1e-5, "--sampler", "poisson")
    assert run(*asked).returncode == 0
    done = run(*asked, "--unit", "user")
    assert done.returncode == 2
    assert "do not compose" in done.stderr


@pytest.mark.parametrize(("unit", "says"), [("user", "The unit is user, as stated"), (None, "and nobody stated it")])
def test_a_unit_that_a_file_does_not_record_is_assumed(tmp_path: Path, unit: str | None, says: str) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    asked = ("gate", tmp_path / "state.json", "--max-epsilon", 2, "--delta", 1e-5, "--sampler", "poisson")
    done = run(*asked, *(() if unit is None else ("--unit", unit)))
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("assumed: The unit")]
    assert says in line
    assert "does not record it" in line


def test_what_has_no_bound_is_not_within(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"history": [[1.0, 0.01, 500]], "mechanism": "rdp"}))
    asked = ("gate", tmp_path / "state.json", "--max-epsilon", 2, "--delta", 1e-5)
    done = run(*asked)
    assert done.returncode == 1
    first, *rest = done.stdout.splitlines()
    assert "--sampler" in first
    assert "--adjacency" in first
    assert all(line.startswith("assumed: ") and "--" not in line for line in rest)
    assert run(*asked, "--sampler", "poisson", "--adjacency", "add_remove").returncode == 0
    assert run(*asked, "--sampler", "shuffled", "--adjacency", "replace_one").returncode == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--max-epsilon", -1, "--delta", 1e-6), "max_epsilon must be"),
        (("--max-epsilon", 1, "--delta", 1), "delta must be"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--sampler", "poisson"), "are for files of other libraries"),
        (("--max-epsilon", 1, "--delta", 1e-6, "--summary", "none/summary.md"), "none/summary.md: cannot be written"),
    ],
)
def test_wrong_input_is_one_line(tmp_path: Path, options: tuple[Any, ...], says: str) -> None:
    done = run("gate", ledger(tmp_path / "ledger.sqlite", GAUSSIAN), *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr


def test_the_step_of_the_example_workflow(tmp_path: Path) -> None:
    """Its command in a shell, with a ledger and a claim in the folder, within the policy and not."""
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "privacy-budget.yml").read_text())
    (command,) = [
        step["run"] for step in workflow["jobs"]["budget"]["steps"] if step.get("run", "").startswith("cupel ")
    ]
    ledger(tmp_path / "ledger.sqlite", GAUSSIAN)
    environment = os.environ | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "XDG_STATE_HOME": str(tmp_path)}
    command = command.replace("cupel ", f"{sys.executable} -m cupel ", 1)
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
