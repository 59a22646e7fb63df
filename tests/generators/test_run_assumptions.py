"""What bounds on a run rest on is in its ledger before it charges, and whoever reads the ledger says it."""

from __future__ import annotations

import ast
import csv
import json
import shutil
import sqlite3
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from command import Result, run
from marginal_tables import pretend
from small_models import save_model

from dpassay.accounting.ledger.evidence import Basis, not_recorded
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.generators.registry import CLAIMS
from dpassay.jobs import assay as assay_job
from dpassay.reports.assay import Assay, load

WRITING = {"max_tokens": 8}
NOTES: dict[str, Any] = {"data": {"source": "file", "path": "notes.jsonl"}, "public": {"records": 12}}
LOOSE = {"guarantee": {"type": "approx_dp", "epsilon": 1000.0, "delta": 1e-3}}
SCHEMA: dict[str, Any] = {
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 9},
        {"name": "sex", "type": "category", "values": ["f", "m"]},
    ]
}
SMALL: dict[str, dict[str, Any]] = {
    "private_inference": NOTES
    | LOOSE
    | {
        "parameters": {"aggregate": "mean", "clip": 1.0, "temperature": 1.0, "batch_size": 4, "tokens": 4},
        "public": {"records": 12, "context_tokens": 40},
    },
    "secret_evolution": NOTES
    | {
        "parameters": {
            "secrets": [{"pattern": "zq[0-9]+"}],
            "p": 0.001,
            "r": 0.5,
            "rounds": 1,
            "synthetic": 4,
            "variations": 1,
            "clusters": 2,
            "writing": WRITING,
        },
        "unit": "secret",
        "adjacency": "secret",
        "guarantee": {"type": "secret_protection", "p": 0.001, "r": 0.5},
    },
    "aug_pe": NOTES
    | LOOSE
    | {"parameters": {"rounds": 1, "synthetic": 4, "variations": 1, "noise_multiplier": 3.0, "writing": WRITING}},
    "dataset_vectors": NOTES
    | LOOSE
    | {
        "parameters": {
            "noise_multiplier": 2.0,
            "shots_noise_multiplier": 2.0,
            "candidates": 4,
            "negatives": 4,
            "shots": 1,
            "writing": {"texts": 1, "longest": 8, "longest_record": 20},
        }
    },
    "two_stage": LOOSE
    | {
        "data": {"source": "table", "path": "people.csv"},
        "parameters": {
            "noise_multiplier": 2.0,
            "batch_size": 4,
            "steps": 1,
            "first_steps": 1,
            "generation": {"rows": 2, "rounds": 1},
        },
        "public": {"records": 12, "columns": "schema.yaml"},
    },
    "marginals": LOOSE
    | {
        "data": {"source": "table", "path": "people.csv"},
        "parameters": {"rho": 0.5, "method": "mst", "rows": 2},
        "public": {"records": 12, "columns": "schema.yaml"},
    },
    "table_evolution": LOOSE
    | {
        "data": {"source": "table", "path": "people.csv"},
        "parameters": {"noise_multiplier": 4.0, "rows": 2, "generations": 2},
        "public": {"records": 12, "columns": "schema.yaml"},
    },
    "declared": LOOSE
    | {
        "data": {"source": "none"},
        "parameters": {"events": [{"event": {"class_name": "GaussianDpEvent", "noise_multiplier": 2.0}}]},
        "public": {},
    },
}
"""A small claim of each mechanism, whose proof reaches the claim."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "small", "gpt2")


def write(folder: Path, mechanism: str, **changes: Any) -> Path:
    """A small claim with its data beside it."""
    folder.mkdir(exist_ok=True)
    texts = [f"zq{index} came to the ward for {index} days" if index % 2 else f"note {index}" for index in range(12)]
    (folder / "notes.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["age", "sex"], *([index % 10, "fm"[index % 2]] for index in range(12))])
    write_schema(folder, None)
    claim = {"name": "run", "mechanism": mechanism, **SMALL[mechanism], **changes}
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return folder / "claim.yaml"


def write_schema(folder: Path, made_from: str | None) -> None:
    (folder / "schema.yaml").write_text(yaml.safe_dump(SCHEMA | ({"made_from": made_from} if made_from else {})))


def uses_model(claim: Path) -> bool:
    return yaml.safe_load(claim.read_text())["mechanism"] not in ("declared", "marginals", "table_evolution")


def assayed(claim: Path, output: Path, model: Path) -> tuple[Result, Assay]:
    of_model = ["--model", model] if uses_model(claim) else []
    done = run("assay", claim, "-o", output, *of_model)
    assert done.returncode in (0, 1, 4), done.stderr
    return done, load(output / "private" / "assay.json")


def entries(ledger: Path) -> list[tuple[str, dict[str, Any]]]:
    """Kinds and bodies, read without the code under test."""
    with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as opened:
        return [
            (kind, json.loads(body)) for kind, body in opened.execute("select kind, body from entries order by seq")
        ]


@pytest.mark.parametrize("mechanism", CLAIMS)
def test_every_generator_writes_what_it_assumes_before_it_charges(
    mechanism: str, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A generator that is added to the registry needs a claim here, and a run that `begin_run` began."""
    pretend(monkeypatch)  # of OpenDP's tables
    claim, ledger = write(tmp_path / "in", mechanism), tmp_path / "out" / "private" / "ledger.sqlite"
    done, assay = assayed(claim, tmp_path / "out", model)
    assert done.returncode == 0, done.stdout
    first = [kind for kind, _ in entries(ledger)][:3]
    assert first == ["open", "begin", "charge"]
    about = entries(ledger)[1][1]["about"]
    assert about["estimates"] == []
    assert len(about["assumptions"]) >= 2
    delta = [] if mechanism == "secret_evolution" else ["--delta", "1e-3"]
    account = json.loads(run("account", ledger, *delta, "--json").stdout)
    proven = [bound for bound in account["bounds"] if bound["rigor"] == "certified"]
    assert proven
    for bound in proven:
        assert set(about["assumptions"]) <= set(bound["assumptions"])
    assert assay.best_upper is not None
    assert set(about["assumptions"]) <= set(assay.best_upper.assumptions)
    planned = json.loads(run("account", claim, *delta, "--json").stdout)
    known = set(planned["assumptions"])
    assert known, "the plan of a claim rests on them, too"
    assert known <= set(about["assumptions"])
    verified_at = {item for item in about["assumptions"] if "has a public shape (" in item}  # of the model
    assert set(about["assumptions"]) - known <= verified_at
    verified = run("ledger", "verify", ledger)
    assert all(f"assumed: {item}" in verified.stdout for item in about["assumptions"])


def test_runs_are_begun_by_one_function() -> None:
    """Whoever calls `Ledger.begin` elsewhere begins a run that says nothing of what it assumes."""
    root = Path(__file__).parents[2]
    begun = []
    for folder in tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"].values():
        for file in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "begin":
                    begun.append((file.relative_to(root).as_posix(), {keyword.arg for keyword in node.keywords}))
    assert [file for file, keywords in begun if "plan" in keywords] == ["accounting/ledger/evidence.py"]


@pytest.fixture(scope="module")
def private_schema(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run whose schema says that it was made from private rows, and its claim in `in`."""
    folder = tmp_path_factory.mktemp("private")
    claim = write(folder / "in", "two_stage")
    write_schema(folder / "in", "private")
    done, assay = assayed(claim, folder / "out", model)
    assert done.returncode == 4, done.stdout
    assert assay.best_upper is None
    return folder


@pytest.mark.slow
def test_a_private_schema_makes_estimates_of_the_ledger_alone(private_schema: Path, tmp_path: Path) -> None:
    ledger = private_schema / "out" / "private" / "ledger.sqlite"
    account = json.loads(run("account", ledger, "--delta", "1e-3", "--json").stdout)
    assert {bound["rigor"] for bound in account["bounds"]} == {"estimate"}
    compared = run("compare", ledger, "--delta", "1e-3", "--method", "rdp", "--json").stdout
    assert {row["rigor"] for row in json.loads(compared)["rows"]} == {"estimate"}
    assert "made from private rows" in compared
    gate = run("gate", ledger, "--max-epsilon", "1000", "--delta", "1e-3")
    assert gate.returncode in (1, 2)
    assert "made from private rows" in gate.stdout + gate.stderr
    claim = write(tmp_path / "in", "declared", parameters={"events": [{"ledger": str(ledger)}]})
    done = run("assay", claim, "-o", tmp_path / "out", "-q")
    assert done.returncode == 4, done.stdout
    assert "made from private rows" in run("ledger", "verify", ledger).stdout
    export = tmp_path / "export.jsonl"
    with Ledger.open(ledger, read_only=True) as opened:
        opened.export(export)
    assert "made from private rows" in run("ledger", "verify", export).stdout


def test_another_origin_of_the_schema_is_another_run(private_schema: Path, tmp_path: Path, model: Path) -> None:
    shutil.copytree(private_schema, tmp_path / "run")
    claim, output = tmp_path / "run" / "in" / "claim.yaml", tmp_path / "run" / "out"
    for origin in ("public", None):
        write_schema(claim.parent, origin)
        changed = run("assay", claim, "-o", output, "-q", "--model", model)
        assert changed.returncode == 2
        assert len(changed.stderr.splitlines()) == 1
        assert "began with made_from of public.columns private" in changed.stderr
    refused = run("release", output, "-o", tmp_path / "release")
    assert refused.returncode == 2
    assert "No finite certified bound" in refused.stderr
    write_schema(claim.parent, "private")
    assert run("assay", claim, "-o", output, "-q", "--model", model).returncode == 4


@pytest.fixture
def older_version(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Ledgers as versions wrote them that recorded no assumptions; undo it for the version of today."""
    monkeypatch.setattr(Basis, "to_json", lambda self: {})
    return monkeypatch


def test_a_ledger_that_records_no_assumptions_is_not_read_as_one_without(
    older_version: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    """It is resumed, and its bounds rest on the sentence that they are not recorded, and on what the claim says now."""
    claim = write(tmp_path / "in", "aug_pe")
    assert run("assay", claim, "-o", tmp_path / "out", "-q", "--model", model).returncode == 0
    older_version.undo()
    ledger = tmp_path / "out" / "private" / "ledger.sqlite"
    assert "assumptions" not in entries(ledger)[1][1]["about"]
    gate = ("gate", ledger, "--max-epsilon", "1000", "--delta", "1e-3")
    assert run(*gate).returncode == 2
    assert "--condition recorded" in run(*gate).stderr
    assert f"assumed: {not_recorded('run')}" in run(*gate, "--condition", "recorded").stdout
    assert f"assumed: {not_recorded('run')}" in run("account", ledger, "--delta", "1e-3").stdout
    done, assay = assayed(claim, tmp_path / "out", model)
    assert done.returncode == 0
    assert assay.best_upper is not None
    assert not_recorded("run") in assay.best_upper.assumptions
    assert "The number of records is public." in assay.best_upper.assumptions


def test_a_recorded_estimate_stays_one_where_the_ledger_does_not_say_why(
    older_version: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    """The schema's origin was in no ledger of an older version; its verdicts are."""
    claim = write(tmp_path / "in", "two_stage")
    write_schema(claim.parent, "private")
    assert run("assay", claim, "-o", tmp_path / "out", "-q", "--model", model).returncode == 4
    older_version.undo()
    write_schema(claim.parent, "public")
    done, assay = assayed(claim, tmp_path / "out", model)
    assert done.returncode == 4, done.stdout
    assert assay.best_upper is None
    assert run("release", tmp_path / "out", "-o", tmp_path / "release").returncode == 2


@pytest.mark.slow
def test_release_weighs_reports_that_certified_nothing(
    older_version: pytest.MonkeyPatch, tmp_path: Path, model: Path
) -> None:
    """An older version recorded SUPPORTED after UNPROVEN, once the word in the schema was changed."""
    claim = write(tmp_path / "in", "two_stage")
    write_schema(claim.parent, "private")
    assert run("assay", claim, "-o", tmp_path / "out", "-q", "--model", model).returncode == 4
    write_schema(claim.parent, "public")
    older_version.setattr("dpassay.accounting.ledger.evidence.without_proof", lambda reports: False)
    assert run("assay", claim, "-o", tmp_path / "out", "-q", "--model", model).returncode == 0
    older_version.undo()
    refused = run("release", tmp_path / "out", "-o", tmp_path / "release")
    assert refused.returncode == 2
    assert "an earlier report certifies no bound" in refused.stderr
    assert not (tmp_path / "release").exists()


def test_where_the_verdict_stands_it_says_what_it_does_not_weigh(tmp_path: Path, model: Path) -> None:
    claim, output = write(tmp_path / "in", "declared"), tmp_path / "out"
    done, _ = assayed(claim, output, model)
    assert "the first verdict on this run" in done.stdout
    assert "other folders" in done.stdout
    again, _ = assayed(claim, output, model)
    assert "weighs the earlier verdict" in again.stdout
    assert "Verdicts in other folders or ledgers" in (output / "private" / "report.html").read_text()
    assert "Verdicts in other folders or ledgers" in run("report", output).stdout


def test_a_refuted_run_with_an_equal_plan_in_the_same_ledger_is_named(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name, and another folder that shares the ledger, starts a history of its own."""
    first = write(tmp_path / "in", "declared", guarantee={"type": "approx_dp", "epsilon": 1.0, "delta": 1e-3})
    monkeypatch.setattr(assay_job, "worst_verdict", _refuted(assay_job.worst_verdict))
    assert run("assay", first, "-o", tmp_path / "out", "-q").returncode == 1
    monkeypatch.undo()
    other = tmp_path / "other" / "private"
    other.mkdir(parents=True, mode=0o700)
    (other / "ledger.sqlite").symlink_to(tmp_path / "out" / "private" / "ledger.sqlite")
    second = write(tmp_path / "in", "declared", name="again")
    done, assay = assayed(second, tmp_path / "other", model)
    assert assay.refuted_runs == ["run"]
    assert "refuted or contradicted 'run' in this ledger" in done.stdout
    assert "refuted or contradicted" in (other / "report.html").read_text()
    third = write(
        tmp_path / "in",
        "declared",
        name="third",
        parameters={"events": [{"event": {"class_name": "GaussianDpEvent", "noise_multiplier": 3.0}}]},
    )
    folder = tmp_path / "third" / "private"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "ledger.sqlite").symlink_to(tmp_path / "out" / "private" / "ledger.sqlite")
    _, assay = assayed(third, tmp_path / "third", model)
    assert assay.refuted_runs == [], "its plan is another one"


def test_parts_that_run_in_parallel_are_assumed_to_be_disjoint(tmp_path: Path) -> None:
    """ε of one part where the parts are disjoint, and of both where one record may be in both."""
    part = {"class_name": "LaplaceDpEvent", "noise_multiplier": 1.0}
    guarantee = {"type": "pure_dp", "epsilon": 1.0}
    for public in (False, True):
        event = {"class_name": "ParallelDpEvent", "events": [part, dict(part)], "partition_is_public": public}
        claim = write(tmp_path / "in", "declared", parameters={"events": [{"event": event}]}, guarantee=guarantee)
        assert run("assay", claim, "-o", tmp_path / f"{public}", "-q").returncode == 0
        assay = load(tmp_path / f"{public}" / "private" / "assay.json")
        assert assay.best_upper is not None
        said = [item for item in assay.best_upper.assumptions if "each record is in one part only" in item]
        assert len(said) == 1
        assert any("partition is said to be public" in item for item in assay.best_upper.assumptions) == public
    gate = run("gate", claim, "--max-epsilon", "1", "--delta", "1e-6", "--assume")
    assert "each record is in one part only" in gate.stdout
    assert "--condition disjoint" in run("gate", claim, "--max-epsilon", "1", "--delta", "1e-6").stderr
    (tmp_path / "event.txt").write_text(
        f"ParallelDpEvent(events=({', '.join(['LaplaceDpEvent(noise_multiplier=1.0)'] * 2)}))"
    )
    assert "assumed: The parts of a parallel composition are disjoint" in run("account", tmp_path / "event.txt").stdout
    claim = write(tmp_path / "in", "declared", parameters={"events": [{"event": part}]}, guarantee=guarantee)
    assert run("assay", claim, "-o", tmp_path / "single", "-q").returncode == 0
    assert "one part only" not in (tmp_path / "single" / "private" / "assay.json").read_text()


def _refuted(decide: Any) -> Any:
    """Verdicts that refute, whatever they rest on."""
    import dataclasses

    return lambda *given: dataclasses.replace(decide(*given), name="REFUTED")
