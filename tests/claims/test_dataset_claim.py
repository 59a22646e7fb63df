"""A claim whose records come through the library `datasets`, and what `--download` fetches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import jsonschema
import pytest

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.base.errors import InputError
from dpassay.base.progress import Progress
from dpassay.claims.data import DatasetData
from dpassay.generators.private_inference.claim import PrivateInferenceClaim
from dpassay.generators.private_inference.run import InferenceRun, load_model
from dpassay.generators.registry import json_schema, read_claim
from dpassay.jobs import generate

CLAIM = """
name: from-a-dataset
data: {source: dataset, name: data, text: note, label: topic, DATA}
mechanism: private_inference
parameters: {aggregate: median, clip: 10.0, temperature: 1.2, batch_size: 5, tokens: 4}
public: {records: 20, labels: [good, "fair/poor"]}
guarantee: {type: ex_post, epsilon: 1000.0}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    features = datasets.Features(
        {"note": datasets.Value("string"), "topic": datasets.ClassLabel(names=["good", "fair/poor"])}
    )
    rows = {"note": [f"Visits in the year: {i}" for i in range(20)], "topic": [i % 2 for i in range(20)]}
    train = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": train, "test": train.select([0])}).save_to_disk(tmp_path / "data")
    return tmp_path


def claim_file(folder: Path, data: str = "") -> Path:
    path = folder / "claim.yaml"
    path.write_text(CLAIM.replace(", DATA", data and ", " + data))
    return path


def test_a_saved_data_set_is_generated_from(folder: Path, tmp_path: Path) -> None:
    claim = read_claim(claim_file(folder))
    assert isinstance(claim.data, DatasetData)
    assert claim.data.name == str(folder / "data")  # relative to the claim file
    assert claim.described()["data"]["name"] == "data"  # a report tells no path
    done = generate.generate(claim, tmp_path / "out", device="cpu", progress=Progress("quiet"))
    assert isinstance(done, InferenceRun)
    assert {record.label for record in done.records} == {"good", "fair/poor"}
    with Ledger.open(done.ledger_path, read_only=True) as ledger:
        assert str(folder) not in json.dumps(ledger.run(claim.name).about)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("split: dev", "data: .*there is no split 'dev'; it has train, test"),
        ("id: key", "there is no column 'key'; the columns are 'note', 'topic'"),
        ("user: [a]", r"data\.user: input should be a valid string"),
        ("path: x", "data.path: unknown key; known are source, name, split, subset, text, label, id, user, join"),
    ],
)
def test_mistakes_are_one_line(folder: Path, data: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        read_claim(claim_file(folder, data)).load_records()
    assert "\n" not in str(error.value)


def test_a_hub_id_is_fetched_only_where_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def unreachable(name: str, subset: str | None) -> None:
        asked.append((name, datasets.config.HF_HUB_OFFLINE))
        raise ConnectionError

    monkeypatch.setattr(datasets, "load_dataset_builder", unreachable)
    path = claim_file(folder)
    path.write_text(path.read_text().replace("name: data", "name: some/data"))
    for download, says in ((False, "--download fetches it"), (True, "could not be downloaded")):
        with pytest.raises(InputError, match=says):
            generate.generate(read_claim(path), folder / "out", device="cpu", download=download)
    assert asked == [("some/data", True), ("some/data", False)]
    assert not (folder / "out").exists()


def test_download_also_fetches_the_embedder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot(source: str, *, local_files_only: bool, **_: Any) -> str:
        asked.append((source, local_files_only))
        return str(folder / "data")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    path = claim_file(folder)
    path.write_text(
        path.read_text().replace("tokens: 4", "tokens: 4, centres: c, kept_centres: 1, embedder: some/embedder")
    )
    claim = read_claim(path)
    assert isinstance(claim, PrivateInferenceClaim)
    load_model(claim, None, "cpu", download=False)
    assert asked == []
    with pytest.raises(InputError, match="embedder 'some/embedder' is not a sentence-transformers model"):
        load_model(claim, None, "cpu", download=True)
    assert asked == [("some/embedder", False)]


def test_the_schema_knows_data_sets(folder: Path) -> None:
    import yaml

    body = yaml.safe_load(claim_file(folder, "split: train, subset: a").read_text())
    jsonschema.validate(body, json_schema())
    body["data"]["subset"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, json_schema())
