"""Audits of dataset vectors: what they find of sound, unprotected and published noise, and that they resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import run
from vectors_claim import body, write

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.audits.result import AuditResult
from dpassay.generators.dataset_vectors import audits
from dpassay.reports.assay import Assay, load


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in {"PLAYED": 1000, "CONTROL_GAMES": 100, "CANARIES": 64, "TEXTS": 4}.items():
        monkeypatch.setattr(audits, name, count)


def assayed(folder: Path, claim: dict[str, Any], code: int = 0) -> Assay:
    done = run("assay", write(folder, claim), "-o", folder / "out", "-q")
    assert done.returncode == code, done.stderr
    return load(folder / "out" / "private" / "assay.json")


def named(assay: Assay, name: str) -> AuditResult:
    (result,) = [audit for audit in assay.audits if audit.name == name]
    return result


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_a_sound_claim_is_not_refuted_and_its_controls_find_the_leak(adjacency: str, tmp_path: Path) -> None:
    claim = body() | {"adjacency": adjacency, "audits": ["distinguishing", "membership"]}
    assay = assayed(tmp_path, claim)
    assert assay.verdict == "SUPPORTED"
    game, members = named(assay, "distinguishing"), named(assay, "membership")
    assert game.controls_passed
    assert members.controls_passed
    assert 0 < game.bounds[0].value < 4.97
    assert {bound.adjacency for bound in (*game.bounds, *members.bounds)} == {adjacency}
    areas = members.details["control_areas"]
    assert areas["regression on the vectors"]["value"] == 1, "without noise, every coin is found in the vectors"
    assert members.details["areas"]["regression on the vectors"]["interval"][0] < 0.75
    before = {path: path.read_bytes() for path in (tmp_path / "out/private/audits").rglob("*.jsonl")}
    again = assayed(tmp_path, claim)
    # The threshold of the game is chosen for the confidence that is left, which a second verdict has less of.
    hits = [[(rate.name, rate.hits) for rate in named(item, "membership").rates] for item in (assay, again)]
    assert hits[0] == hits[1]
    assert {path: path.read_bytes() for path in before} == before, "nothing is played again"
    with Ledger.open(tmp_path / "out/private/audits/membership/ledger.sqlite", read_only=True) as ledger:
        assert sorted(ledger.runs()) == ["membership", "positive control"]


@pytest.mark.slow
def test_the_published_noise_is_refuted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "PLAYED", 50_000)
    claim = body(noise_multiplier=1.4) | {
        "variant": "as_published",
        "guarantee": {"type": "approx_dp", "epsilon": 3.0, "delta": 1e-5},
        "audits": ["distinguishing"],
    }
    assay = assayed(tmp_path, claim, code=1)
    assert assay.verdict == "REFUTED"
    assert named(assay, "distinguishing").bounds[0].value > 3
    said = assay.differences[0]
    assert said.published is not None
    assert said.recomputed is not None
    assert float(said.published) < 3 < float(said.recomputed)


@pytest.mark.slow
def test_pairs_by_row_reveal_a_record(tmp_path: Path) -> None:
    claim = body(pairing="rows", negatives=24) | {
        "variant": "as_published",
        "adjacency": "add_remove",
        "guarantee": {"type": "approx_dp", "epsilon": 3.0, "delta": 1e-5},
        "audits": ["distinguishing", "membership"],
    }
    assay = assayed(tmp_path, claim, code=1)
    game = named(assay, "distinguishing")
    assert (assay.verdict, game.controls_passed) == ("REFUTED", True)
    assert game.rates[0].hits == game.rates[0].trials, "no noise hides that all pairs change"


def test_an_audit_whose_control_fails_concludes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpassay.attacks.dataset_vectors import games

    monkeypatch.setattr(games.ReleaseGame, "of_sums", lambda self, noisy: 0.0 * noisy[0])
    monkeypatch.setattr(games.ReleaseGame, "of_votes", lambda self, noisy: 0.0 * noisy[:, 0])
    game = named(assayed(tmp_path, body() | {"audits": ["distinguishing"]}), "distinguishing")
    assert game.controls_passed is False
    assert game.bounds == ()
    assert game.conclusion.startswith("No conclusion")


@pytest.mark.slow
def test_labels_and_samples_are_audited(tmp_path: Path) -> None:
    rows = [f'{{"topic": "{"ab"[i % 2]}", "text": "note {i} of {"ab"[i % 2]}"}}\n' for i in range(12)]
    (tmp_path / "notes.jsonl").write_text("".join(rows))
    claim = body(sample=4) | {
        "data": {"source": "file", "path": "notes.jsonl", "label": "topic"},
        "public": {"records": 12, "labels": ["a", "b"], "records_by_label": {"a": 6, "b": 6}},
        "audits": ["distinguishing", "membership"],
    }
    done = run("assay", write(tmp_path, claim), "-o", tmp_path / "out", "-q")
    assert done.returncode in (0, 4), done.stderr
    assay = load(tmp_path / "out" / "private" / "assay.json")
    assert named(assay, "distinguishing").controls_passed
    assert named(assay, "membership").controls_passed
