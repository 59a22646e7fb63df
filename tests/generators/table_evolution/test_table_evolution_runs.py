"""Runs of table evolution through the front door: verdict, files, release, resume, audits, what is refused."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from command import run
from little_tables import PEOPLE, people
from scipy.optimize import brentq
from scipy.stats import norm
from seeded_entropy import seed_entropy

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import MISSING
from dpassay.generators.registry import read_claim
from dpassay.generators.table_evolution import audits
from dpassay.reports.assay import load

SCHEMA: dict[str, Any] = {"made_from": "public", **PEOPLE.model_dump(mode="json")}
DELTA = 1e-4


def write(folder: Path, schema: dict[str, Any] | None = None, count: int = 60, **changes: Any) -> Path:
    """A claim about rows in a CSV file, with schema and holdout beside it."""
    folder.mkdir(exist_ok=True)
    for name, seed in (("people", 0), ("others", 1)):
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["person", *PEOPLE.names])
            for number, row in enumerate(people(count, seed)):
                writer.writerow([f"{name}-{number}", *("" if word == MISSING else word for word in row)])
    (folder / "schema.yaml").write_text(yaml.safe_dump(schema or SCHEMA))
    claim: dict[str, Any] = {
        "name": "table",
        "data": {"source": "table", "path": "people.csv", "id": "person", "holdout": "others.csv", "target": "sex"},
        "mechanism": "table_evolution",
        "parameters": {"noise_multiplier": 2.0, "generations": 20},
        "public": {"records": count, "columns": "schema.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 2.0, "delta": DELTA},
    }
    for key, value in changes.items():
        claim[key] = claim[key] | value if isinstance(value, dict) and key in claim else value
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return folder / "claim.yaml"


def epsilon_of(mu: float) -> float:
    """ε of μ-GDP at δ, by the closed form."""

    def excess(epsilon: float) -> float:
        return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - DELTA)

    return float(brentq(excess, 0.01, 50))


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_an_assay_its_release_and_a_second_run(adjacency: str, tmp_path: Path) -> None:
    """ε against the closed form of one Gaussian."""
    path = write(tmp_path, adjacency=adjacency, guarantee={"epsilon": 3.0})
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    assay = load(private / "assay.json")
    assert assay.best_upper is not None
    exact = epsilon_of((math.sqrt(2) if adjacency == "replace_one" else 1) / 2.0)
    assert exact <= float(assay.best_upper.value) <= exact * 1.001
    assert any("schema of the table is public" in item for item in assay.best_upper.assumptions)
    rows = [json.loads(line) for line in (private / "synthetic.jsonl").read_text().splitlines()]
    assert len(rows) == 60
    for row in rows:
        assert list(row) == list(PEOPLE.names)
        assert row["sex"] in ("f", "m")
        assert row["age"] is None or 0 <= row["age"] <= 400
        assert row["city"] in (None, "a", "b", "c", "d")
        assert "2020-01-01" <= row["seen"] <= "2021-12-31"
    table = pyarrow.parquet.read_table(private / "synthetic.parquet")
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", "double", "string", "string"]
    again = run("assay", path, "-o", tmp_path / "out", "-q", "--json")
    assert json.loads(again.stdout)["ledger"]["events"] == assay.ledger.events, "nothing is charged again"
    released = run("release", tmp_path / "out", "-o", tmp_path / "rel")
    assert released.returncode == 0, released.stderr
    assert (tmp_path / "rel" / "synthetic.jsonl").read_bytes() == (private / "synthetic.jsonl").read_bytes()
    page = (tmp_path / "rel" / "report.html").read_text()
    assert "people-" not in page
    assert str(tmp_path) not in page


def test_repeated_rows_without_ids_all_count(tmp_path: Path) -> None:
    """Their ids are hashes of their content, and 40 of 60 rows are copies of one."""
    path = write(tmp_path, data={"id": None, "holdout": None})
    header, *lines = (tmp_path / "people.csv").read_text().splitlines()
    body = [line.partition(",")[2] for line in (header, *lines)]
    (tmp_path / "people.csv").write_text("\n".join([body[0], *body[1:21], *[body[1]] * 40]) + "\n")
    done = run("assay", path, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "were read" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_both_audits_find_what_is_there(adjacency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the control separates members, and with it the bound stays below what is proven.

    Everything that is drawn follows from a seed.
    """
    seed_entropy(monkeypatch, 0 if adjacency == "add_remove" else 1)
    monkeypatch.setattr(audits, "CANARIES", 300)
    path = write(tmp_path, audits=["canaries", "released"], adjacency=adjacency, guarantee={"epsilon": 3.0})
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
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
    members = assay.audits[0]
    assert members.controls_passed
    (bound,) = members.bounds
    assert bound.ceiling is not None
    assert assay.best_upper is not None
    proven = float(assay.best_upper.value)
    assert float(bound.value) < proven < float(bound.ceiling), "the guesses could have shown more than was proven"
    private = tmp_path / "out" / "private" / "audits" / "canaries"
    with Ledger.open(private / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.runs() == ["canaries", "positive control"]
        assert all(ledger.run(name).finished for name in ledger.runs())


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_noise_that_is_less_than_stated_is_found(
    adjacency: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A twentieth of the noise, and the events of the whole: canaries refute the claim.

    Everything that is drawn follows from a seed.
    """
    from dpassay.mechanisms.primitives.randomness import OsEntropy

    seed_entropy(monkeypatch, 2 if adjacency == "add_remove" else 3)
    original = OsEntropy.rounded_normals
    monkeypatch.setattr(OsEntropy, "rounded_normals", lambda self, size, bits: original(self, size, bits) // 20)
    guarantee = {"type": "approx_dp", "epsilon": 1.5, "delta": 1e-6}
    path = write(
        tmp_path,
        count=3000,
        parameters={"noise_multiplier": 4.5, "rows": 10},
        guarantee=guarantee,
        audits=["canaries"],
        adjacency=adjacency,
    )
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 1, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert assay.verdict == "REFUTED"
    assert float(assay.bounds[0].value) <= 1.5


def test_a_schema_of_private_rows_is_warned_of(tmp_path: Path) -> None:
    path = write(tmp_path, schema=SCHEMA | {"made_from": "private"})
    done = run("assay", path, "-o", tmp_path / "out")
    assert done.returncode == 4, done.stderr
    assert "made from private rows" in done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert assay.best_upper is None or assay.best_upper.rigor == "estimate"


def replaced(number: int, **column: Any) -> dict[str, Any]:
    columns = [dict(item) for item in SCHEMA["columns"]]
    columns[number] |= column
    return {"columns": columns}


WIDE = {"columns": [{"name": f"c{number}", "type": "number", "low": 0, "high": 1} for number in range(101)]}


@pytest.mark.grid
@pytest.mark.parametrize(
    ("schema", "changes", "says"),
    [
        ({"columns": SCHEMA["columns"][:4]}, {}, "has a column 'seen', which the schema lacks"),
        (replaced(1, high=9), {}, "column 'age': is outside the public domain of the schema (a number from 0 to 9)"),
        (replaced(1, missing=False), {}, "column 'age': is empty"),
        (WIDE, {}, "all pairs of columns, of which there may be at most 100, not 101"),
        (None, {"public": {"columns": "none.yaml"}}, "none.yaml: cannot be read"),
        (None, {"data": {"path": "none.csv"}}, "none.csv: there is no such file"),
        (None, {"data": {"id": "sex"}}, "two rows have the same id"),
        (None, {"data": {"holdout": "people.csv"}}, "data.holdout: is the same file as data.path"),
        (None, {"parameters": {"noise_multiplier": 1e-9}}, "noise_multiplier must be 0, or from"),
        (None, {"parameters": {"noise_multiplier": -1}}, "noise_multiplier must be"),
        (None, {"parameters": {"rounds": 0}}, "rounds must be at least 1"),
        (None, {"parameters": {"rows": 0}}, "rows must be at least 1"),
        (None, {"parameters": {"level": 5}}, "parameters.level"),
        (None, {"data": {"target": "size"}, "audits": ["released"]}, "the schema has no column 'size'"),
        (None, {"variant": "as_published"}, "model and variant: mechanism table_evolution has none; leave them out"),
        (None, {"model": "gpt2"}, "model and variant: mechanism table_evolution has none; leave them out"),
        (None, {"unit": "user"}, "unit must be record"),
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


def test_neighbours_are_told_apart_by_nothing_that_is_shown(tmp_path: Path) -> None:
    """A table, one with a row less, and one with a row more: stages, notes and exit codes are the same."""
    shown = {}
    for name, change in (("all", 0), ("fewer", -1), ("more", 1)):
        path = write(tmp_path / name, audits=["canaries"])
        lines = (path.parent / "people.csv").read_text().splitlines()
        lines = lines[:change] if change < 0 else [*lines, *["people-new,m,400,120.0,,2021-12-31"] * change]
        (path.parent / "people.csv").write_text("\n".join(lines) + "\n")
        seen: list[Any] = []
        for arguments in (["assay", path, "-o", path.parent / "out"], ["release", path.parent / "out"]):
            where = [] if arguments[0] == "assay" else ["-o", path.parent / "released"]
            done = run(*arguments, *where, "--json")
            assert "people-" not in done.stdout + done.stderr
            stages = [json.loads(line) for line in done.stderr.splitlines()]
            seen.append((done.returncode, list(dict.fromkeys(item.get("stage") or item["note"] for item in stages))))
        shown[name] = seen
    assert shown["all"][0][0] == 0
    assert shown["all"] == shown["fewer"] == shown["more"]


def test_a_model_is_refused(tmp_path: Path) -> None:
    done = run("generate", write(tmp_path), "-o", tmp_path / "out", "-q", "--model", "gpt2")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].endswith("--model: mechanism table_evolution has no model; leave it out")


def test_the_plan_is_known_before_the_run_and_charged_by_it(tmp_path: Path) -> None:
    path = write(tmp_path)
    assert run("generate", path, "-o", tmp_path / "out", "-q").returncode == 0
    with Ledger.open(tmp_path / "out" / "private" / "ledger.sqlite", read_only=True) as ledger:
        assert ledger.event("table") == read_claim(path).plan().event
    done = run("generate", write(tmp_path, parameters={"rounds": 4}), "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
