"""A file of vectors is what was released; texts under it are steered, and only by the model it was made for."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting import dp_event
from safetensors.numpy import save_file
from small_models import save_model

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.mechanisms.dataset_vectors.steering import Where
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.dataset_vectors.vectors import OfLabel, ReleasedVectors, steered_texts
from dpassay.mechanisms.models.language_model import LanguageModel


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> ShotWriter:
    model = LanguageModel.load(save_model(tmp_path_factory.mktemp("model"), "qwen2"), "cpu")
    return ShotWriter(model=model, template="{examples} {label} ", longest=10, longest_record=20, temperature=1.0)


def vectors_of(writer: ShotWriter, **changes: Any) -> ReleasedVectors:
    rng = np.random.default_rng(2)
    labels = tuple(
        OfLabel(label, ("one shot", "another"), rng.normal(size=(2, 32)), (3.0, 4.0)) for label in ("a", "b")
    )
    given: dict[str, Any] = {
        "model": writer.model.fingerprint,
        "blocks": (0, 2),
        "most_shots": 2,
        "template": writer.template,
        "longest_record": 20,
        "event": dp_event.GaussianDpEvent(2.0),
        "adjacency": Adjacency.REPLACE_ONE,
        "unit": Unit(),
        "labels": labels,
        "protected": True,
    }
    return ReleasedVectors(**given | changes)


def test_a_file_holds_what_was_released(writer: ShotWriter, tmp_path: Path) -> None:
    vectors, path = vectors_of(writer), tmp_path / "v.safetensors"
    vectors.save(path)
    read = ReleasedVectors.load(path)
    assert {read.to_bytes() for _ in range(20)} == {path.read_bytes()}, "the same bytes every time"
    assert read.fingerprint == vectors.fingerprint
    for first, second in zip(read.labels, vectors.labels, strict=True):
        assert (first.label, first.shots, first.norms) == (second.label, second.shots, second.norms)
        np.testing.assert_array_equal(first.means, second.means)
    assert dataclasses.replace(read, labels=()) == dataclasses.replace(vectors, labels=())


def test_directions_have_length_one_and_coefficients_scale_them(writer: ShotWriter) -> None:
    vectors = vectors_of(writer)
    lengths = {block: float(np.linalg.norm(row)) for block, row in vectors.steering("a", 1.5).items()}
    assert lengths == pytest.approx({0: 1.5, 2: 1.5})
    relative = vectors.steering("a", (1.0, -0.5), relative=True)
    assert {block: float(np.linalg.norm(row)) for block, row in relative.items()} == pytest.approx({0: 3.0, 2: 2.0})
    refused: list[tuple[tuple[Any, ...], str]] = [
        (("c", 1.0), "labels a, b, not of c"),
        (("a", (1.0,)), "2 blocks"),
        (("a", np.nan), "coefficient must be a number"),
    ]
    for words, message in refused:
        with pytest.raises(ValueError, match=message):
            vectors.steering(*words)


@pytest.mark.parametrize("where", ["last", "all"])
def test_texts_are_steered_and_zero_is_plain(where: Where, writer: ShotWriter) -> None:
    vectors, seeds = vectors_of(writer), list(range(6))
    prompt = writer.prompt("a", ("one shot", "another"), 2)
    plain = list(writer.texts(prompt, seeds))
    assert list(steered_texts(vectors, writer, "a", seeds, coefficient=0.0, where=where)) == plain
    steered = list(steered_texts(vectors, writer, "a", seeds, coefficient=40.0, where=where))
    assert steered != plain
    assert list(steered_texts(vectors, writer, "a", seeds, coefficient=40.0, where=where)) == steered
    assert list(steered_texts(vectors, writer, "a", seeds[3:], coefficient=40.0, where=where)) == steered[3:]


def test_another_model_or_prompt_is_refused(writer: ShotWriter) -> None:
    for changes, says in (({"model": "0" * 64}, "made for the model"), ({"longest_record": 30}, "longest_record 30")):
        with pytest.raises(ValueError, match=says):
            steered_texts(vectors_of(writer, **changes), writer, "a", [1], coefficient=1.0)


def test_damaged_files_are_one_line(writer: ShotWriter, tmp_path: Path) -> None:
    vectors_of(writer).save(tmp_path / "good")
    content = (tmp_path / "good").read_bytes()
    save_file({"means/0": np.zeros((2, 32))}, tmp_path / "other", metadata={"dpassay": "centres 1"})
    save_file({"x": np.zeros(2)}, tmp_path / "bare")
    (tmp_path / "cut").write_bytes(content[:-100])
    (tmp_path / "text").write_text("not a file of vectors")
    (tmp_path / "infinite").write_bytes(
        vectors_of(writer, labels=(OfLabel(None, (), np.full((2, 32), np.inf), (1.0, 1.0)),)).to_bytes()
    )
    (tmp_path / "deep").write_bytes(content.replace(b"one shot", b"[[[[[[[["))
    for name in ("other", "bare", "cut", "text", "infinite"):
        with pytest.raises(ValueError, match="not a file of dataset vectors, or damaged") as refusal:
            ReleasedVectors.load(tmp_path / name)
        assert "\n" not in str(refusal.value)
    with pytest.raises(ValueError, match="no such file"):
        ReleasedVectors.load(tmp_path / "missing")
    assert ReleasedVectors.load(tmp_path / "deep").labels[0].shots[0] == "[[[[[[[["
