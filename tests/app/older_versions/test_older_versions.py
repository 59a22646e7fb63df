"""Runs, ledgers, audits and anchors that version 0.2 wrote are read, resumed, released and reported.

`files/` was written by version 0.2.0: a finished and released run, a run that was killed (its ledger is in
SQLite's write-ahead log), dataset vectors, an audit by canaries, one by many runs, and the user's state folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command import run
from scipy.sparse import csr_array

from dpassay.accounting.guarantees import SecretProtection
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors
from dpassay.mechanisms.embedding.embedder import HashedNgrams
from dpassay.mechanisms.secret_evolution.incidence import Incidence, texts_digest

FILES = Path(__file__).parent / "files"
ANCHORS = sorted((FILES / "state" / "cupel" / "anchors").glob("*.json"))


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in a working folder whose state folder is theirs."""
    folder = tmp_path / "older"
    shutil.copytree(FILES, folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return folder


def done(*arguments: object, code: int = 0) -> str:
    result = run(*arguments)
    assert result.returncode == code, result.stderr
    return result.stdout


def head(ledger: Path) -> str:
    with Ledger.open(ledger) as opened:
        return opened.head


def test_a_finished_run_has_the_head_that_its_version_anchored(older: Path) -> None:
    results = {head(older / name / "run" / "private" / "ledger.sqlite") for name in ("finished", "vectors")}
    anchored = [anchor for file in ANCHORS for anchor in json.loads(file.read_text()).values()]
    assert len(anchored) == 2
    assert results == {anchor["head"] for anchor in anchored}


def test_an_anchor_that_its_version_wrote_detects_rollback(older: Path) -> None:
    for file in (older / "state" / "cupel" / "anchors").iterdir():
        body = {
            identity: {**anchor, "entries": anchor["entries"] + 1}
            for identity, anchor in json.loads(file.read_text()).items()
        }
        file.write_text(json.dumps(body))
    result = run("ledger", "verify", older / "finished" / "run" / "private" / "ledger.sqlite")
    assert result.returncode == 2
    assert f"entries were anchored in {older / 'state' / 'cupel'}" in result.stderr


def test_a_newer_anchor_wins(older: Path) -> None:
    """What is appended now is anchored under the new name; the older anchor does not hide that it is gone."""
    ledger = older / "finished" / "run" / "private" / "ledger.sqlite"
    before = ledger.read_bytes()
    done("assay", older / "finished" / "claim.yaml", "-o", older / "finished" / "run", "-q")
    assert len(list((older / "state" / "dpassay" / "anchors").iterdir())) == 1
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    ledger.write_bytes(before)
    assert run("ledger", "verify", ledger).returncode == 2


def test_an_older_anchor_that_cannot_be_read_hides_no_newer_one(older: Path) -> None:
    ledger = older / "finished" / "run" / "private" / "ledger.sqlite"
    before = ledger.read_bytes()
    done("assay", older / "finished" / "claim.yaml", "-o", older / "finished" / "run", "-q")
    for file in (older / "state" / "cupel" / "anchors").iterdir():
        file.unlink()
        file.mkdir()
    for suffix in ("-wal", "-shm"):
        ledger.with_name(ledger.name + suffix).unlink(missing_ok=True)
    ledger.write_bytes(before)
    assert run("ledger", "verify", ledger).returncode == 2


def test_a_finished_run_is_assayed_again_and_released(older: Path) -> None:
    folder = older / "finished"
    assert "SUPPORTED" in done("report", folder / "run")
    said = json.loads(done("assay", folder / "claim.yaml", "-o", folder / "run", "--json", "-q"))
    assert said["verdict"] == "SUPPORTED"
    assert [past["versions"].get("cupel") for past in said["history"]] == ["0.2.0", None]
    done("release", folder / "run", "-o", folder / "again", "-q")
    for name in ("synthetic.jsonl", "batching-key.txt"):
        assert (folder / "again" / name).read_bytes() == (folder / "out" / name).read_bytes()


def test_a_killed_run_is_resumed_with_the_charges_of_its_plan(older: Path) -> None:
    folder = older / "interrupted"
    ledger = folder / "run" / "private" / "ledger.sqlite"
    with Ledger.open(ledger) as opened:
        (only,) = opened.runs()
        begun = opened.run(only)
        assert not begun.finished
        planned, entries = begun.plan, opened.entries
    done("generate", folder / "claim.yaml", "-o", folder / "run", "-q")
    with Ledger.open(ledger) as opened:
        assert opened.entries > entries
        assert opened.run(only).finished
        assert opened.event(only) == planned
    done("assay", folder / "claim.yaml", "-o", folder / "run", "-q")
    done("release", folder / "run", "-o", folder / "out", "-q")


def test_vectors_are_read_and_written_as_the_same_bytes() -> None:
    """Their ledger holds these bytes, and a resumed run must make them again."""
    path = FILES / "vectors" / "run" / "private" / "vectors.safetensors"
    assert ReleasedVectors.load(path).to_bytes() == path.read_bytes()


def test_digests_of_a_run_s_inputs_are_those_of_its_version() -> None:
    """As version 0.2.0 printed them; with others no run of it could be resumed."""
    ngrams = HashedNgrams(dimension=24, buckets=512, seed=3).fingerprint
    indices = csr_array(np.array([[False, True, False, True, False], [True, False, False, False, False]]))
    incidence = Incidence(indices, (SecretProtection(0.1, 0.3),), np.zeros(2, dtype=np.int64)).fingerprint
    assert [ngrams, incidence, texts_digest(["one", "two"])] == [
        "500f73ae8ed1140be945a546fd68f0c39f0fc238635c5d2ca15d1af3900bbc12",
        "2e6e0612e55c1c9f87d0628bb9ea1ea02e3b9c00366ed24a0ae1917d2173fa71",
        "ad636fdc72102bf4ea4b6d223d5614a66ddaf647b4b7ea5dbb8e678c3eafeed2",
    ]


@pytest.mark.parametrize(("words", "folder"), [((), "canaries/audit"), (("runs",), "runs/runs")])
def test_a_planned_audit_is_bounded_and_reported(older: Path, words: tuple[str, ...], folder: str) -> None:
    """Canaries and runs are too few to refute their claims, so that there is no conclusion."""
    before = json.loads((older / folder / "bound.json").read_text())
    done("audit", *words, "report", older / folder, "-q")
    again = json.loads(done("audit", *words, "bound", older / folder, "--json", "-q", code=4))
    assert again["audit"]["bounds"] == before["audit"]["bounds"]
    assert (again["refuted"], before["refuted"]) == (None, False), "false was written where there is no conclusion"
