"""Runs of dataset vectors through the front door: verdict, files, release, resume, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import run
from scipy import optimize, stats
from vectors_claim import body, write

from dpassay.accounting.gaussian import sampled_epsilon
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.generators.registry import read_claim
from dpassay.jobs.account import account
from dpassay.mechanisms.dataset_vectors import ReleasedVectors, states
from dpassay.reports.assay import load
from dpassay.testing import assertions


def test_an_assay_its_release_and_a_second_run(tmp_path: Path) -> None:
    """The ε of one Gaussian of μ² = 1/.9² + 1/12², by the formula of Balle and Wang (2018), Theorem 8."""
    mu = math.hypot(1 / 0.9, 1 / 12)
    exact = optimize.brentq(
        lambda e: stats.norm.cdf(mu / 2 - e / mu) - math.exp(e) * stats.norm.cdf(-mu / 2 - e / mu) - 1e-5, 1, 10
    )
    path = write(tmp_path, body())
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    private = tmp_path / "out" / "private"
    assay = load(private / "assay.json")
    assert assay.verdict == "SUPPORTED"
    assert assay.best_upper is not None
    assert float(assay.best_upper.value) == pytest.approx(exact, abs=1e-5)
    assert assay.ledger.planned
    assert any("bit for bit" in item for item in assay.best_upper.assumptions)
    texts = [json.loads(line) for line in (private / "synthetic.jsonl").read_text().splitlines()]
    assert [text["index"] for text in texts] == [0, 1, 2, 3]
    again = run("assay", path, "-o", tmp_path / "out", "-q", "--json")
    assert json.loads(again.stdout)["ledger"]["events"] == assay.ledger.events, "nothing is charged again"
    released = run("release", tmp_path / "out", "-o", tmp_path / "rel")
    assert released.returncode == 0, released.stderr
    vectors = ReleasedVectors.load(tmp_path / "rel" / "vectors.safetensors")
    assert (tmp_path / "rel" / "vectors.safetensors").read_bytes() == (private / "vectors.safetensors").read_bytes()
    assert vectors.blocks == (1, 2)
    assert len(vectors.of_label(None).shots) == 2
    for length in np.linalg.norm(vectors.of_label(None).directions(), axis=1):
        assert length == pytest.approx(1, rel=1e-12)


def test_a_sample_is_amplified_and_named(tmp_path: Path) -> None:
    claim = body(shots=0, shots_noise_multiplier=0.0, sample=6, noise_multiplier=0.5)
    path = write(tmp_path, claim | {"public": {"records": 24}})
    (bound,) = account([path], delta=1e-5, method="lattice").bounds
    assert bound.value == pytest.approx(sampled_epsilon(2.0, 1e-5, sample_size=6, records=24), rel=1e-3)
    done = run("assay", path, "-o", tmp_path / "out", "-q")
    assert done.returncode in (0, 4), done.stderr
    best = load(tmp_path / "out" / "private" / "assay.json").bounds[0]
    assert any("keeps its label" in item for item in best.assumptions)


def test_states_that_depend_on_other_texts_support_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "shape_of", lambda *_, texts, length, **__: states.StateShape(4, length, exact=False))
    done = run("assay", write(tmp_path, body()), "-o", tmp_path / "out", "-q")
    assert done.returncode == 4, done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert {bound.rigor for bound in assay.bounds} == {"estimate"}
    result = account([tmp_path / "out" / "private" / "ledger.sqlite"], delta=1e-5, method=None)
    assert {bound.rigor for bound in result.bounds} == {"estimate"}


def test_labels_have_their_own_texts(tmp_path: Path) -> None:
    rows = [{"id": i, "topic": "ab"[i % 2], "note": f"note {i} of {'ab'[i % 2]}"} for i in range(12)]
    (tmp_path / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    claim = body(shots=1) | {
        "data": {"source": "file", "path": "notes.jsonl", "text": "note", "label": "topic", "id": "id"},
        "public": {"records": 12, "labels": ["a", "b"], "records_by_label": {"a": 6, "b": 6}},
    }
    done = run("generate", write(tmp_path, claim), "-o", tmp_path / "out", "-q")
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "private" / "synthetic.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["a"] * 4 + ["b"] * 4
    with Ledger.open(tmp_path / "out" / "private" / "ledger.sqlite", read_only=True) as ledger:
        assert [event.stage for event in ledger.events()] == ["inputs", "votes", "rows", "vectors", "documents"]


@pytest.mark.slow
def test_recorded_noise_is_told(tmp_path: Path) -> None:
    claim = read_claim(write(tmp_path, body()))
    recorded = assertions.recorded_run(claim, tmp_path / "out", seed=3)
    with Ledger.open(recorded.ledger_path, read_only=True) as ledger:
        assert ledger.run("vectors").about["noise"] == "recorded"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"clip": 0.0}, "clip must be"),
        ({"clip": [1.0, 2.0, 3.0]}, "one for each of the blocks"),
        ({"blocks": [4]}, "the model has blocks 0 to 3, not 4"),
        ({"shots": 9}, "shots must be at most candidates"),
        ({"shots": 25, "candidates": 30}, "shots must be at most the number of records"),
        ({"sample": 25}, "at most the number of records"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
        ({"pairing": "rows"}, "variant as_published"),
        ({"writing": {"longest": 250}}, "positions, but the model has 256"),
        ({"writing": {"coefficient": [1.0]}}, "one for each of parameters.blocks"),
        ({"writing": {"texts": 0}}, "writing.texts"),
    ],
)
def test_wrong_claims_are_one_line_and_leave_nothing(change: dict[str, Any], says: str, tmp_path: Path) -> None:
    done = run("generate", write(tmp_path, body(**change)), "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("public", "says"),
    [
        ({"records": 24, "context_tokens": 30}, "private_inference only"),
        ({"records": 24, "records_by_label": {"x": 24}}, "must name public labels only"),
        ({"records": 24, "labels": ["x"]}, "a public number of records for each label"),
        ({"records": 24, "labels": ["x"], "records_by_label": {"x": 23}}, "add up to records"),
    ],
)
def test_wrong_public_numbers_are_one_line(public: dict[str, Any], says: str, tmp_path: Path) -> None:
    done = run("generate", write(tmp_path, body() | {"public": public}), "-o", tmp_path / "out", "-q")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert says in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("pairing", ["hashed", "mean"])
def test_a_label_without_records_runs_and_releases_noise(pairing: str, tmp_path: Path) -> None:
    """With one record of the label or without it, the same is charged and the same files are released."""
    charged = []
    for labelled in (0, 1):
        (folder := tmp_path / str(labelled)).mkdir()
        rows = [{"topic": "b" if i < labelled else "a", "text": f"SECRET {i}"} for i in range(12)]
        (folder / "notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        claim = body(shots=1, pairing=pairing) | {
            "data": {"source": "file", "path": "notes.jsonl", "label": "topic"},
            "public": {"records": 12, "labels": ["a", "b"], "records_by_label": {"a": 6, "b": 6}},
        }
        done = run("assay", write(folder, claim), "-o", folder / "out", "-q")
        assert done.returncode == 0, done.stderr
        vectors = ReleasedVectors.load(folder / "out" / "private" / "vectors.safetensors")
        assert [item.label for item in vectors.labels] == ["a", "b"]
        assert all(np.isfinite(item.means).all() and np.any(item.means) for item in vectors.labels)
        with Ledger.open(folder / "out" / "private" / "ledger.sqlite", read_only=True) as ledger:
            charged.append(ledger.events())
        assert run("release", folder / "out", "-o", folder / "released", "-q").returncode == 0
    assert charged[0] == charged[1]
