"""A claim whose generator clusters records around public centres."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import command
import pytest
from whole_documents import every_document_ends

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.errors import InputError
from dpassay.base.progress import Progress
from dpassay.data.corpora import notes
from dpassay.generators.registry import read_claim
from dpassay.jobs import assay, generate
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.private_inference.generator import PrivateInference

CLAIM = """
name: clustered
data: {source: builtin, name: notes}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 20, tokens: 6, PARAMETERS}
public: {records: 120}
guarantee: {type: ex_post, epsilon: 1000.0}
audits: [leave_one_out]
"""


def claim_file(folder: Path, parameters: str = "centres: public/centres.safetensors, kept_centres: 3") -> Path:
    (folder / "public").mkdir(exist_ok=True)
    path = folder / "claim.yaml"
    path.write_text(CLAIM.replace("PARAMETERS", parameters))
    return path


@pytest.fixture(scope="module", autouse=True)
def whole_documents() -> Iterator[None]:
    with every_document_ends():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("claim")
    path = claim_file(folder)
    assert path.exists()
    Centres.fit([text for text, _ in notes(300, 7)], 8).save(folder / "public" / "centres.safetensors")
    return folder


@pytest.mark.slow
def test_an_assay_over_clusters(folder: Path, tmp_path: Path) -> None:
    answer = assay.assay(read_claim(folder / "claim.yaml"), tmp_path, device="cpu", progress=Progress("quiet")).document
    assert answer.verdict == "SUPPORTED"
    assert answer.ledger.planned
    body = json.loads((tmp_path / "private" / "assay.json").read_text())
    assert body["spent"]["noisy counts of clusters"] == 0.1
    assert body["claim"]["parameters"]["centres"] == "centres.safetensors"
    result = command.run("release", tmp_path, "-o", tmp_path / "out", "-q")
    assert result.returncode == 0, result.stderr
    released = json.loads((tmp_path / "out" / "cluster-counts.json").read_text())
    with Ledger.open(tmp_path / "private" / "ledger.sqlite", read_only=True) as ledger:
        run = ledger.run("clustered")
        outcome = run.outcome("clusters")
        assert outcome is not None
        assert outcome.value == released[0]
        assert str(folder) not in json.dumps(run.about)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.parent.name == "out":
            assert str(folder).encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ("centres: public/none.safetensors, kept_centres: 3", "there is no such file"),
        ("centres: claim.yaml, kept_centres: 3", "not a file of centres"),
        ("centres: public/centres.safetensors, kept_centres: 7", "kept_centres must be at most 6"),
        ("centres: public/centres.safetensors", "needs kept_centres"),
        ("centres: public/centres.safetensors, kept_centres: 3, embedder: no/such-model", "no/such-model"),
    ],
)
def test_bad_centres_are_one_line_before_anything_is_written(
    folder: Path, tmp_path: Path, parameters: str, says: str
) -> None:
    with pytest.raises(InputError, match=says) as error:
        generate.generate(read_claim(claim_file(folder, parameters)), tmp_path / "out", device="cpu")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_paths_of_centres_are_relative_to_the_claim_file(folder: Path) -> None:
    claim = read_claim(claim_file(folder))
    mechanism = claim.generator()
    assert isinstance(mechanism, PrivateInference)
    assert mechanism.centres == folder / "public" / "centres.safetensors"
