"""Runs of two-stage fine-tuning through the front door: verdict, files, release, resume, audits, what is refused."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import yaml
from command import run
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from seeded_entropy import seed_entropy
from small_models import save_model

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.generators.registry import read_claim
from dpassay.generators.two_stage import audits
from dpassay.reports.assay import load

SCHEMA: dict[str, Any] = {
    "made_from": "public",
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 99, "missing": True},
        {"name": "sex", "type": "category", "values": ["f", "m"]},
        {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2020-12-31"},
    ],
}


def write(folder: Path, schema: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A claim about 40 rows in a CSV file, with a small model, schema and holdout beside it."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    for name, count in (("people", 40), ("others", 40)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["person", "age", "sex", "seen"])
            for row in range(count):
                age = "" if row % 9 == 0 else int(rng.integers(100))
                day = f"2020-{rng.integers(1, 13):02d}-{rng.integers(1, 28):02d}"
                writer.writerow([f"{name}-{row}", age, "fm"[rng.integers(2)], day])
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema or SCHEMA))
    if not (folder / "model").exists():
        (folder / "model").mkdir()
        save_model(folder / "model", "gpt2", scale=1.0)  # easily trained
    claim: dict[str, Any] = {
        "name": "table",
        "data": {"source": "table", "path": "people.csv", "id": "person", "holdout": "others.csv", "target": "sex"},
        "mechanism": "two_stage",
        "model": "model",
        "parameters": {
            "noise_multiplier": 1.0,
            "batch_size": 10,
            "steps": 6,
            "first_steps": 4,
            "generation": {"rows": 12, "rounds": 2},
        },
        "public": {"records": 40, "columns": "schema.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 9.0, "delta": 1e-3},
    }
    for key, value in changes.items():
        claim[key] = claim[key] | value if isinstance(value, dict) and key in claim else value
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return folder / "claim.yaml"


@pytest.fixture(autouse=True)
def small_audits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "CANARIES", 60)
    monkeypatch.setattr(audits, "SPIKE_COINS", 200)
    monkeypatch.setattr(audits, "ROWS", 20)
    monkeypatch.setattr(audits, "CONTROL_STEPS", 100)


def test_an_assay_its_release_and_a_second_run(tmp_path: Path) -> None:
    """ε against the PLD accountant of dp_accounting."""
    path = write(tmp_path)
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    assay = load(private / "assay.json")
    step = dp_event.PoissonSampledDpEvent(0.25, dp_event.GaussianDpEvent(1.0))
    other = PLDAccountant().compose(dp_event.SelfComposedDpEvent(step, 6)).get_epsilon(1e-3)
    assert assay.best_upper is not None
    assert float(assay.best_upper.value) == pytest.approx(other, rel=1e-3)
    assert any("bit for bit" in item for item in assay.best_upper.assumptions)
    assert any("schema of the table is public" in item for item in assay.best_upper.assumptions)
    rows = [json.loads(line) for line in (private / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for row in rows:
        assert list(row) == ["age", "sex", "seen"]
        assert row["age"] is None or 0 <= row["age"] <= 99
        assert row["sex"] in ("f", "m")
        assert "2020-01-01" <= row["seen"] <= "2020-12-31"
    table = pyarrow.parquet.read_table(private / "synthetic.parquet")
    assert [str(kind) for kind in table.schema.types] == ["int64", "string", "string"]
    again = run("assay", path, "-o", tmp_path / "out", "-q", "--json")
    assert json.loads(again.stdout)["ledger"]["events"] == assay.ledger.events, "nothing is charged again"
    released = run("release", tmp_path / "out", "-o", tmp_path / "rel")
    assert released.returncode == 0, released.stderr
    assert (tmp_path / "rel" / "synthetic.jsonl").read_bytes() == (private / "synthetic.jsonl").read_bytes()
    page = (tmp_path / "rel" / "report.html").read_text()
    assert "people-" not in page
    assert str(tmp_path) not in page


@pytest.mark.slow
def test_both_audits_find_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the controls separate members, and with it the bounds stay below what is proven.

    The rows of the control, its coins and its batches follow from a seed; with others it may miss so few members.
    """
    seed_entropy(monkeypatch, 0)
    monkeypatch.setattr(audits, "CONTROL_STEPS", 400)
    path = write(tmp_path, parameters={"learning_rate": 0.01}, audits=["canaries", "released"])
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    names = [audit.name for audit in assay.audits]
    assert names == [
        "membership",
        "membership",
        "exact_match",
        "closest_record",
        "linkability",
        "attribute_inference",
        "singling_out",
    ]
    spikes, rows = assay.audits[:2]
    assert spikes.controls_passed
    assert rows.controls_passed
    (bound,) = spikes.bounds
    assert bound.ceiling is not None
    assert assay.best_upper is not None
    proven = float(assay.best_upper.value)
    assert float(bound.value) < proven < float(bound.ceiling), "the guesses could have shown more than was proven"
    private = tmp_path / "out" / "private" / "audits" / "canaries"
    with Ledger.open(private / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.runs() == ["canaries", "positive control"]
        assert all(ledger.run(name).finished for name in ledger.runs())


@pytest.mark.slow
def test_noise_that_is_less_than_stated_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A twentieth of the noise, and the events of the whole: spikes refute the claim."""
    from dpassay.mechanisms.primitives.randomness import OsEntropy

    original = OsEntropy.rounded_normals
    monkeypatch.setattr(OsEntropy, "rounded_normals", lambda self, size, bits: original(self, size, bits) // 20)
    monkeypatch.setattr(audits, "SPIKE_COINS", 1000)
    monkeypatch.setattr(audits, "CONTROL_STEPS", 2)
    changes = {"noise_multiplier": 3.0, "steps": 20}
    guarantee = {"type": "approx_dp", "epsilon": 1.9, "delta": 1e-6}
    path = write(tmp_path, parameters=changes, guarantee=guarantee, audits=["canaries"])
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 1, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert assay.verdict == "REFUTED"
    assert float(assay.bounds[0].value) <= 2.0


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
@pytest.mark.parametrize("change", [{"sampling": "shuffled"}, {"loss": "batch"}])
def test_as_published_is_unproven_and_the_published_number_stands_beside(
    tmp_path: Path, change: dict[str, Any], adjacency: str
) -> None:
    path = write(tmp_path, variant="as_published", parameters=change, adjacency=adjacency)
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 4, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert assay.verdict == "UNPROVEN"
    (difference,) = assay.differences
    assert float(difference.published or "nan") < 9.0 < float(difference.recomputed or "nan")
    if "sampling" in change:
        assert "at least 6.5" in difference.why


def test_a_schema_of_private_rows_is_warned_of(tmp_path: Path) -> None:
    """The assumption that it is public is known to be false, so nothing is certified."""
    path = write(tmp_path, schema=SCHEMA | {"made_from": "private"})
    done = run("assay", path, "-o", tmp_path / "out")
    assert done.returncode == 4, done.stderr
    assert "made from private rows" in done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert any("made from private rows" in item for item in assay.warnings)
    assert assay.best_upper is None or assay.best_upper.rigor == "estimate"
    planned = json.loads(run("account", path, "--delta", 1e-3, "--json").stdout)
    assert {bound["rigor"] for bound in planned["bounds"]} == {"estimate"}


def replaced(number: int, **column: Any) -> dict[str, Any]:
    columns = [dict(item) for item in SCHEMA["columns"]]
    columns[number] |= column
    return {"columns": columns}


@pytest.mark.grid
@pytest.mark.parametrize(
    ("schema", "changes", "says"),
    [
        ({"columns": SCHEMA["columns"][:2]}, {}, "has a column 'seen', which the schema lacks"),
        ({"columns": [*SCHEMA["columns"], {"name": "x", "type": "category", "values": ["a"]}]}, {}, "no column 'x'"),
        (replaced(0, high=9), {}, "column 'age': is outside the public domain of the schema (a number from 0 to 9)"),
        (replaced(0, missing=False), {}, "column 'age': is empty"),
        (replaced(1, values=["f"]), {}, "column 'sex': is outside the public domain"),
        (replaced(1, values=[]), {}, "schema.yaml: column 'sex': values: must not be empty"),
        (replaced(0, type="text"), {}, "schema.yaml: column 'age': type: must be category, number or date"),
        (replaced(1, values=["f", "m", "q7" * 200]), {}, "a row may have"),
        ({"rows": []}, {}, "schema.yaml: columns: is missing"),
        (None, {"public": {"columns": "none.yaml"}}, "none.yaml: cannot be read"),
        (None, {"data": {"path": "none.csv"}}, "none.csv: there is no such file"),
        (None, {"data": {"id": "sex"}}, "two rows have the same id"),
        (None, {"data": {"holdout": "people.csv"}}, "data.holdout: is the same file as data.path"),
        (
            None,
            {"parameters": {"first_stage": "table", "first_table": {"path": "people.csv", "columns": "schema.yaml"}}},
            "parameters.first_table.path: is the same file as data.path",
        ),
        (None, {"parameters": {"noise_multiplier": 1e-9}}, "noise_multiplier must be 0, or from"),
        (None, {"data": {"target": "size"}, "audits": ["released"]}, "the schema has no column 'size'"),
        (None, {"parameters": {"batch_size": 41}}, "batch_size must be at most records"),
        (None, {"parameters": {"clip": 0}}, "clip must be"),
        (None, {"parameters": {"noise_multiplier": -1}}, "noise_multiplier must be"),
        (None, {"parameters": {"first_stage": "table"}}, "goes with first_stage: table"),
        (None, {"parameters": {"generation": {"rows": 0}}}, "generation.rows"),
        (None, {"parameters": {"serializer": "json"}}, "serializer"),
        (None, {"data": {"source": "builtin", "name": "notes"}}, "data.source"),
        (None, {"public": {"labels": ["a"]}}, "a table has none"),
        (None, {"audits": ["membership"]}, "audits"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    schema: dict[str, Any] | None, changes: dict[str, Any], says: str, tmp_path: Path
) -> None:
    verb = "assay" if "audits" in changes else "generate"
    done = run(verb, write(tmp_path / "claim", schema, **changes), "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_run_with_another_batch_size_is_not_resumed(tmp_path: Path) -> None:
    assert run("generate", write(tmp_path), "-o", tmp_path / "out", "-q").returncode == 0
    done = run("generate", write(tmp_path, parameters={"batch_size": 11}), "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_lost_ledger_is_missed(tmp_path: Path) -> None:
    assert run("generate", write(tmp_path), "-o", tmp_path / "out", "-q").returncode == 0
    (tmp_path / "out" / "private" / "ledger.sqlite").unlink()
    done = run("generate", tmp_path / "claim.yaml", "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert "exists without its ledger" in done.stderr


@pytest.mark.slow
def test_public_tables_and_lora(tmp_path: Path) -> None:
    """The first stage on a survey that ships with a library; LoRA leaves a model of the same architecture."""
    path = write(tmp_path, parameters={"first_stage": "table", "first_table": {"name": "fair"}, "lora_rank": 2})
    done = run("generate", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert "a row may have" in done.stderr  # nine columns do not fit into 128 tokens
    (tmp_path / "public.csv").write_text("height,city\n180,Oslo\n175,Bergen\n")
    first = {"first_stage": "table", "first_table": {"path": "public.csv"}, "lora_rank": 2}
    done = run("generate", write(tmp_path, parameters=first), "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    claim = read_claim(tmp_path / "claim.yaml")
    assert claim.described()["parameters"]["first_table"]["path"] == "public.csv"


@pytest.mark.slow
def test_a_run_that_is_killed_at_random_times_is_resumed(tmp_path: Path) -> None:
    """SIGKILL of a process, in training and in sampling; the plan is charged once, and rows are whole."""
    path = write(tmp_path, parameters={"steps": 40, "generation": {"rows": 600, "rounds": 3}})
    command = [sys.executable, "-m", "dpassay", "generate", str(path), "-o", str(tmp_path / "out"), "-q"]
    kills, rng = 0, np.random.default_rng(0)
    for _ in range(12):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                _, errors = process.communicate(timeout=float(rng.uniform(3, 15)))
                assert process.returncode == 0, errors
            except subprocess.TimeoutExpired:
                process.kill()
                kills += 1
                time.sleep(0.1)
    assert kills >= 3
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    with Ledger.open(private / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event("table") == read_claim(path).plan().event
    assert len((private / "synthetic.jsonl").read_text().splitlines()) == 600
