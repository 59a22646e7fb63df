"""Runs over noisy marginals through the front door: verdict, files, release, resume, audits, what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from command import run
from dp_accounting import dp_event
from marginal_tables import Pretended, pretend

from dpassay.accounting.conversions.formulas import epsilon_from_zcdp
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.generators.marginals import audits
from dpassay.generators.tables.run import records_of
from dpassay.reports.assay import load

SCHEMA: dict[str, Any] = {
    "columns": [
        {"name": "age", "type": "number", "low": 0, "high": 99, "missing": True},
        {"name": "sex", "type": "category", "values": ["f", "m"]},
        {"name": "seen", "type": "date", "low": "2020-01-01", "high": "2020-12-31"},
    ],
}


def write(folder: Path, schema: dict[str, Any] | None = None, **changes: Any) -> Path:
    """A claim about 40 rows in a CSV file, with a schema and a holdout beside it."""
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
    (folder / "schema.yaml").write_text(yaml.safe_dump({"made_from": "public"} | (schema or SCHEMA)))
    claim: dict[str, Any] = {
        "name": "table",
        "data": {"source": "table", "path": "people.csv", "id": "person", "holdout": "others.csv", "target": "sex"},
        "mechanism": "marginals",
        "parameters": {"method": "mst", "rho": 0.5, "bins": 4, "rows": 12},
        "public": {"records": 40, "columns": "schema.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 4.0, "delta": 1e-3},
    }
    for key, value in changes.items():
        claim[key] = claim[key] | value if isinstance(value, dict) and key in claim else value
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return folder / "claim.yaml"


def test_an_assay_its_release_and_a_second_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but OpenDP's part. ε is at most that of the closed form for zCDP."""
    pretend(monkeypatch)
    path = write(tmp_path)
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    assay = load(private / "assay.json")
    assert assay.best_upper is not None
    assert float(assay.best_upper.value) <= epsilon_from_zcdp(0.5, 1e-3) < 4
    assert any("OpenDP states" in item for item in assay.best_upper.assumptions)
    assert any("schema of the table is public" in item for item in assay.best_upper.assumptions)
    rows = [json.loads(line) for line in (private / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 12
    for row in rows:
        assert list(row) == ["age", "sex", "seen"]
        assert row["age"] is None or 0 <= row["age"] <= 99
        assert row["sex"] in ("f", "m")
        assert "2020-01-01" <= row["seen"] <= "2020-12-31"
    marginals = json.loads((private / "marginals.json").read_text())
    assert marginals["levels"]["age"] == ["0 to 24", "25 to 49", "50 to 74", "75 to 99", "missing"]
    assert marginals["levels"]["sex"] == ["f", "m"]
    assert [item["columns"] for item in marginals["marginals"]] == [["age"], ["sex"], ["seen"]]
    assert marginals["marginals"][0]["counts"][-1] == 5, "of 40 rows, those without an age"
    again = run("assay", path, "-o", tmp_path / "out", "-q", "--json")
    assert json.loads(again.stdout)["ledger"]["events"] == assay.ledger.events, "nothing is charged again"
    released = run("release", tmp_path / "out", "-o", tmp_path / "rel")
    assert released.returncode == 0, released.stderr
    for name in ("synthetic.jsonl", "marginals.json"):
        assert (tmp_path / "rel" / name).read_bytes() == (private / name).read_bytes()
    page = (tmp_path / "rel" / "report.html").read_text()
    assert "people-" not in page
    assert str(tmp_path) not in page
    assert "Language model" not in page
    assert "OpenDP measures noisy marginals" in page


def test_a_release_that_ends_with_an_error_is_one_line_and_stays_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(Pretended):
        def release(self) -> Any:
            raise ArithmeticError("people-7")

    pretend(monkeypatch, Failing)
    path = write(tmp_path)
    for _ in range(2):
        done = run("generate", path, "-o", tmp_path / "out", "-q")
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "ended with an error of OpenDP or mbi (ArithmeticError), and is charged" in done.stderr
        assert "people-7" not in done.stderr
        pretend(monkeypatch)
    with Ledger.open(tmp_path / "out" / "private" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event("table") == dp_event.ZCDpEvent(0.5)
    assert not (tmp_path / "out" / "private" / "synthetic.jsonl").exists()


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_canaries_are_found_without_noise_and_refute_a_release_of_exact_counts(
    adjacency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pretended release has no noise at all, but states σ = 1: the claim is false, and refuted with a probability
    near 1; the control separates its coins."""
    pretend(monkeypatch)
    monkeypatch.setattr(audits, "CANARIES", 300)
    wide = {"columns": [{"name": name, "type": "number", "low": 0, "high": 9999} for name in ("a", "b", "c")]}
    path = write(
        tmp_path,
        schema=wide,
        adjacency=adjacency,
        parameters={"bins": 1000, "rho": 0.01},
        guarantee={"type": "approx_dp", "epsilon": 0.8, "delta": 1e-5},
        audits=["canaries"],
    )
    rng = np.random.default_rng(0)
    for name in ("people", "others"):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            lines = [[f"{name}-{row}", *rng.integers(10_000, size=3).tolist()] for row in range(40)]
            csv.writer(file).writerows([["person", "a", "b", "c"], *lines])
    body = yaml.safe_load(path.read_text())
    body["data"]["target"] = "c"
    path.write_text(yaml.safe_dump(body))
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 1, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert assay.verdict == "REFUTED"
    (audit,) = assay.audits
    assert audit.controls_passed
    with Ledger.open(tmp_path / "out/private/audits/canaries/ledger.sqlite", read_only=True) as ledger:
        assert ledger.runs() == ["canaries", "positive control"]
        assert ledger.event("canaries") == dp_event.ZCDpEvent(0.01)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "adjacency"), [("mst", "replace_one"), ("aim", "add_remove")])
def test_both_audits_of_a_real_run(
    method: str, adjacency: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With OpenDP: the control separates members, the bound stays below what is proven, and no library prints."""
    pytest.importorskip("mbi", reason="needs the extra marginals")
    parameters = {"method": method, "rounds": 2, "rho": 0.2}
    path = write(tmp_path, adjacency=adjacency, parameters=parameters, audits=["canaries", "released"])
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert capfd.readouterr() == ("", "")
    assay = load(tmp_path / "out" / "private" / "assay.json")
    names = [audit.name for audit in assay.audits]
    assert names == [
        "membership",
        "exact_match",
        "closest_record",
        "linkability",
        "attribute_inference",
        "singling_out",
    ]
    assert assay.audits[0].controls_passed
    (bound,) = assay.audits[0].bounds
    assert assay.best_upper is not None
    assert float(bound.value) < float(assay.best_upper.value)


def test_equal_rows_are_several_records() -> None:
    """So that a table with copies is not said to have fewer rows than its claim states."""
    schema = Schema.model_validate(SCHEMA)
    row = schema.uniform(np.random.default_rng(0))
    records = records_of(Table(schema, [row, row], ["same", "same"]))
    assert len({record.id for record in records}) == 2
    assert {record.slotting_id for record in records} == {"same"}


def replaced(number: int, **column: Any) -> dict[str, Any]:
    columns = [dict(item) for item in SCHEMA["columns"]]
    columns[number] |= column
    return {"columns": columns}


@pytest.mark.parametrize(
    ("schema", "changes", "says"),
    [
        (replaced(0, high=9), {}, "column 'age': is outside the public domain of the schema (a number from 0 to 9)"),
        (replaced(0, missing=False), {}, "column 'age': is empty"),
        (None, {"data": {"path": "none.csv"}}, "none.csv: there is no such file"),
        (None, {"data": {"holdout": "people.csv"}}, "data.holdout: is the same file as data.path"),
        (None, {"parameters": {"rho": 0}}, "rho must be above 0"),
        (None, {"parameters": {"method": "round"}}, "parameters.method"),
        (None, {"parameters": {"bins": 1}}, "bins must be"),
        (None, {"parameters": {"bin": 4}}, "parameters.bin"),
        (replaced(0, high=4000), {"parameters": {"bins": 4000}}, "the largest marginal has"),
        (None, {"model": "gpt2"}, "model and variant: mechanism marginals has none"),
        (None, {"variant": "as_published"}, "model and variant: mechanism marginals has none"),
        (None, {"unit": "user"}, "unit must be record"),
        (None, {"public": {"labels": ["a"]}}, "a table has none"),
        (None, {"audits": ["membership"]}, "audits"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    schema: dict[str, Any] | None, changes: dict[str, Any], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch)
    verb = "assay" if "audits" in changes else "generate"
    done = run(verb, write(tmp_path / "claim", schema, **changes), "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


def test_an_option_for_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch)
    done = run("generate", write(tmp_path), "-o", tmp_path / "out", "-q", "--model", "builtin")
    assert done.returncode == 2
    assert "--model: mechanism marginals has no model" in done.stderr
