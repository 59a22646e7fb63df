"""Texts under vectors from a file: no records, no ledger, no charge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import run
from small_models import save_model
from vectors_claim import body, write

from dpassay.generators.dataset_vectors import texts as writing
from dpassay.generators.documents import Documents
from dpassay.jobs.generate import generate_from_vectors

FEW: dict[str, Any] = {"writing": {"texts": 2, "longest": 12, "longest_record": 40, "temperature": 1.0}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a claim and its run in `out`."""
    folder = tmp_path_factory.mktemp("vectors")
    done = run("generate", write(folder, body(**FEW)), "-o", folder / "out", "-q")
    assert done.returncode == 0, done.stderr
    return folder


def texts(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / "synthetic.jsonl").read_text().splitlines()]


def test_more_texts_cost_nothing_and_begin_with_those_of_the_run(finished: Path, tmp_path: Path) -> None:
    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    claim_without_data = write(tmp_path, body(**FEW) | {"data": {"source": "file", "path": "missing.jsonl"}})
    done = run("generate", claim_without_data, "--vectors", vectors, "-o", tmp_path / "more", "--texts", 5, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["documents"] == 5
    assert texts(tmp_path / "more")[:2] == texts(finished / "out/private")
    names = {path.name for path in (tmp_path / "more").iterdir()}
    assert names == {"synthetic.jsonl", "synthetic.parquet", "texts.jsonl"}, "no ledger"
    again = run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "--texts", 5, "--json")
    assert json.loads(again.stdout)["sha256"] == said["sha256"]


def test_an_interrupted_call_goes_on(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpassay.generators.documents import Documents

    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(Documents, "write", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more").returncode == 130
    kept = (tmp_path / "more" / "texts.jsonl").read_bytes()
    assert run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "-q").returncode == 0
    assert (tmp_path / "more" / "texts.jsonl").read_bytes() == kept
    assert len(texts(tmp_path / "more")) == 2


def test_a_call_that_was_killed_while_it_wrote_goes_on(finished: Path, tmp_path: Path) -> None:
    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    assert run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "-q").returncode == 0
    whole = (tmp_path / "more" / "synthetic.jsonl").read_bytes()
    (tmp_path / "more" / "synthetic.jsonl").rename(tmp_path / "more" / "synthetic.jsonl.123-0123abcd.partial")
    done = run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "-q")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "more" / "synthetic.jsonl").read_bytes() == whole
    assert not list((tmp_path / "more").glob("*.partial"))


def test_what_does_not_fit_is_one_line(finished: Path, tmp_path: Path) -> None:
    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    (tmp_path / "damaged").write_bytes(vectors.read_bytes()[:-9])
    other = save_model(tmp_path / "model", "llama")
    mean = tmp_path / "mean.yaml"
    mean.write_text(
        "name: n\ndata: {source: builtin, name: keys}\nmechanism: private_inference\n"
        "parameters: {aggregate: mean, clip: 10.0, temperature: 1.2, batch_size: 7, tokens: 6}\npublic: {records: 28}\n"
    )
    for given, says in (
        ((claim, "--vectors", tmp_path / "none"), "there is no such file"),
        ((claim, "--vectors", tmp_path / "damaged"), "or damaged"),
        ((claim, "--vectors", vectors, "--model", other), "made for the model"),
        ((mean, "--vectors", vectors), "dataset_vectors only"),
        ((claim, "--texts", 3), "goes with --vectors"),
    ):
        done = run("generate", *given, "-o", tmp_path / "more", "-q")
        assert done.returncode == 2, given
        assert says in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert not (tmp_path / "more").exists(), given
    done = run("generate", claim, "--vectors", vectors, "-o", finished / "out", "-q")
    assert (done.returncode, "holds other files" in done.stderr) == (2, True)


def test_other_vectors_do_not_go_on_in_a_folder(finished: Path, tmp_path: Path) -> None:
    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    assert run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "-q").returncode == 0
    changed = write(tmp_path, body(writing=FEW["writing"] | {"coefficient": 2.0}))
    done = run("generate", changed, "--vectors", vectors, "-o", tmp_path / "more", "-q")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_other_files_are_left_alone(finished: Path, tmp_path: Path) -> None:
    claim, vectors = finished / "claim.yaml", finished / "out/private/vectors.safetensors"
    for name in ("synthetic.jsonl", "vectors.safetensors", "lock", "sub/synthetic.jsonl.123-0123abcd.partial"):
        folder = tmp_path / name.replace("/", "-")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        done = run("generate", claim, "--vectors", vectors, "-o", folder, "-q")
        assert (done.returncode, "holds other files" in done.stderr) == (2, True), name
        assert (folder / name).read_text() == "mine"
        assert len(list(folder.iterdir())) == 1


def test_vectors_that_are_not_protected_are_refused(tmp_path: Path) -> None:
    claim = write(tmp_path, body(**FEW | {"noise_multiplier": 0.0}))
    assert run("generate", claim, "-o", tmp_path / "out", "-q").returncode == 0
    vectors = tmp_path / "out/private/vectors.safetensors"
    done = run("generate", claim, "--vectors", vectors, "-o", tmp_path / "more", "-q")
    assert (done.returncode, "not protected" in done.stderr) == (2, True)
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("writing", "says"), [({"longest": 5000}, "positions"), ({"coefficient": [1.0, 2.0]}, "coefficient")]
)
def test_settings_that_do_not_fit_the_vectors(writing: Any, says: str, finished: Path, tmp_path: Path) -> None:
    changed = body(writing=FEW["writing"] | writing)
    if "coefficient" in writing:
        changed["parameters"]["blocks"] = [1, 2]
        item = write(tmp_path, body(**FEW | {"blocks": [1]}))
        assert run("generate", item, "-o", tmp_path / "out", "-q").returncode == 0
        vectors = tmp_path / "out/private/vectors.safetensors"
    else:
        vectors = finished / "out/private/vectors.safetensors"
    done = run("generate", write(tmp_path, changed), "--vectors", vectors, "-o", tmp_path / "more", "-q")
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "more").exists()


def test_in_python(finished: Path, tmp_path: Path) -> None:
    from dpassay import read_claim

    claim = read_claim(finished / "claim.yaml")
    said = generate_from_vectors(claim, finished / "out/private/vectors.safetensors", tmp_path / "more", texts=1)
    assert len(said.documents.rows) == 1
    assert said.output.documents == 1


def test_texts_that_the_embedded_model_does_not_know_are_warned_of(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpassay import read_claim

    claim, vectors = read_claim(finished / "claim.yaml"), finished / "out/private/vectors.safetensors"
    for rows, says in (
        ([("Fold the egg whites in.",)], "does not know texts like"),
        ([(" ",)], "No text has a character"),
    ):
        monkeypatch.setattr(writing, "write_all", lambda *_, rows=rows: Documents({"text": "string"}, rows))
        said = generate_from_vectors(claim, vectors, tmp_path / says[:2])
        assert len(said.warnings) == 1
        assert says in said.warnings[0]
        assert says in said.to_json()["warnings"][0]


@pytest.mark.parametrize(
    ("writing", "judge", "says"),
    [
        ({"reject": "judge"}, None, "goes with writing.reject: judge"),
        ({}, {"url": "http://127.0.0.1:1/v1", "model": "m"}, "goes with writing.reject: judge"),
        ({"reject": "none", "threshold": 3.0}, None, "needs writing.reject"),
        (
            {"reject": "judge"},
            {"url": "https://example.com/v1", "model": "m"},
            "--allow-endpoint https://example.com/v1",
        ),
    ],
)
def test_judges_that_do_not_fit(writing: dict[str, Any], judge: Any, says: str, tmp_path: Path) -> None:
    claim = write(tmp_path, body(writing=FEW["writing"] | writing, **({"judge": judge} if judge else {})))
    done = run("generate", claim, "-o", tmp_path / "out", "-q")
    assert done.returncode == 2
    assert says in done.stderr
    assert not (tmp_path / "out").exists()
