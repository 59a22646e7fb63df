"""Embedders: each vector is a function of its own text alone, public state only, and one-line refusals."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from property_settings import examples
from sentence_models import save_growing_model, save_sentence_model
from transformers.utils import logging

from dpassay.data.records import builtin_records
from dpassay.mechanisms.embedding.embedder import HashedNgrams, all_embedded, embedded, unit_rows
from dpassay.mechanisms.embedding.sentence import SentenceEmbedder
from dpassay.mechanisms.primitives.nearest import nearest

SMALL = HashedNgrams(dimension=24, buckets=512)
PUBLIC = [record.text for record in builtin_records("notes", 60, 5)]
FITTED = HashedNgrams.fitted(PUBLIC, dimension=24)


@examples(14, 40)
@example(texts=["", "\x00"], at=0)  # numpy's strings lose a NUL at their end
@given(texts=st.lists(st.text(max_size=30), min_size=1, max_size=9), at=st.integers(0, 8))
def test_a_vector_depends_on_its_own_text_alone(texts: list[str], at: int) -> None:
    """Bit by bit: among others, in another order, alone."""
    for embedder in (SMALL, FITTED):
        together = embedder.embed(texts)
        alone = np.concatenate([embedder.embed([text]) for text in texts])
        assert together.tobytes() == alone.tobytes()
        index = at % len(texts)
        assert (
            np.delete(together, index, axis=0).tobytes() == embedder.embed(texts[:index] + texts[index + 1 :]).tobytes()
        )
        lengths = np.sqrt(np.square(together, dtype=np.float64).sum(axis=1))
        assert all(length == 0 or abs(length - 1) < 1e-6 for length in lengths)


def test_many_texts_are_embedded_in_pieces_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = SMALL.embed(PUBLIC).tobytes()
    monkeypatch.setattr("dpassay.mechanisms.embedding.embedder._TEXTS", 25)
    pieces = list(embedded(SMALL, PUBLIC))
    assert [len(piece) for piece in pieces] == [25, 25, 10]
    assert np.concatenate(pieces).tobytes() == all_embedded(SMALL, PUBLIC).tobytes() == expected
    monkeypatch.setattr("dpassay.mechanisms.embedding.embedder._CHARACTERS", 2 * max(map(len, PUBLIC)))
    pieces = list(embedded(SMALL, PUBLIC))
    assert 2 <= max(map(len, pieces)) < 25
    assert np.concatenate(pieces).tobytes() == expected
    assert all_embedded(SMALL, []).shape == (0, 24)


def test_similar_texts_are_near() -> None:
    item, near, far = HashedNgrams().embed(["the doctor saw the patient", "the doctors saw a patient", "revenue fell"])
    assert item @ near > 0.6 > item @ far + 0.2


def test_fingerprints_tell_embedders_apart_and_only_those() -> None:
    assert HashedNgrams(dimension=24, buckets=512).fingerprint == SMALL.fingerprint
    changes: list[dict[str, Any]] = [{name: 2 * SMALL.settings[name] or 1} for name in ("buckets", "seed")]
    others = [dataclasses.replace(SMALL, **change) for change in changes]
    others += [HashedNgrams.fitted(PUBLIC, dimension=24), HashedNgrams.fitted(PUBLIC[:30], dimension=24)]
    assert others[2].fingerprint == FITTED.fingerprint
    assert len({embedder.fingerprint for embedder in (SMALL, *others)}) == 5


def test_the_default_projection_is_pinned() -> None:
    """Centres are used on other machines, and years later: the same text must give the same vector."""
    small = HashedNgrams(dimension=4, buckets=8)
    assert small.fingerprint.startswith("7094001907f04443")
    # float32: sums of a few numbers below 2
    assert small.embed(["hello world"])[0] == pytest.approx([0.7637488, 0.3637513, -0.0362462, 0.5320328], abs=1e-6)


def test_a_projection_is_fitted_on_what_is_given_and_says_so_where_it_is_too_little() -> None:
    assert FITTED.dimension == 24
    assert HashedNgrams.fitted(PUBLIC[:5]).dimension == 4
    with pytest.raises(ValueError, match="at least 2 public texts, not 1"):
        HashedNgrams.fitted(PUBLIC[:1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"longest": 2}, "longest must be at least shortest"),
        ({"projection": np.zeros((3, 3))}, "projection must be finite and of shape"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"buckets": 2**40}, "at most 268435456 numbers"),
    ],
)
def test_impossible_settings_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HashedNgrams(**changes)  # type: ignore[arg-type]


def test_an_embedder_that_breaks_its_word_is_refused() -> None:
    class Long:
        name, fingerprint, dimension = "long", "f", 2

        def embed(self, texts: object) -> object:
            return np.full((len(texts), 2), 3.0, dtype=np.float32)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="'long' must give one row of length 1 or 0"):
        all_embedded(Long(), ["a", "b"])  # type: ignore[arg-type]
    rows = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]]))
    assert rows == pytest.approx(np.array([[0.6, 0.8], [0, 0], [0, 1]]), abs=1e-7)  # float32


def test_no_model_library_is_imported_unless_asked() -> None:
    code = (
        "import sys; from dpassay.mechanisms.embedding.embedder import HashedNgrams; "
        "import dpassay.mechanisms.private_inference.clusters; "
        "HashedNgrams(dimension=2, buckets=8).embed(['a b c']); "
        "print([m for m in ('torch', 'transformers', 'sentence_transformers') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_sentence_model(tmp_path_factory.mktemp("sentences") / "model")


def test_a_model_embeds_each_text_alone(model_folder: Path) -> None:
    embedder = SentenceEmbedder.load(model_folder, "cpu")
    texts = ["A dog runs.", "A puppy is running through the park with its owner.", "Interest rates rose.", "", "\ud800"]
    together = embedder.embed(texts)
    assert together.shape == (5, embedder.dimension) == (5, 16)
    assert together.tobytes() == np.concatenate([embedder.embed([text]) for text in texts]).tobytes()
    assert len({row.tobytes() for row in together[:3]}) == 3
    assert embedder.name == "model"
    assert embedder.fingerprint == SentenceEmbedder.load(model_folder, "cpu", texts_at_once=4).fingerprint


@pytest.mark.parametrize("kind", ["hashed", "fitted", "model"])
def test_a_neighbour_moves_no_bit_of_any_other_record(kind: str, model_folder: Path) -> None:
    """One record removed, added, longer and shorter than all others: the vectors and centres of the rest stay."""
    embedder = {"hashed": SMALL, "fitted": FITTED}.get(kind) or SentenceEmbedder.load(model_folder, "cpu")
    texts = [record.text.lower() for record in builtin_records("notes", 12, 1)]
    own = all_embedded(embedder, texts)
    centres = own[:5]
    nearest_of = nearest(own, centres)
    neighbours = {
        "removed": (texts[1:], slice(1, None), slice(None)),
        "added": (["another note", *texts], slice(None), slice(1, None)),
        "longer than all": (["very long " * 500, *texts[1:]], slice(1, None), slice(1, None)),
        "shorter than all": (["x", *texts[1:]], slice(1, None), slice(1, None)),
    }
    for name, (other, kept, there) in neighbours.items():
        vectors = all_embedded(embedder, other)
        assert vectors[there].tobytes() == own[kept].tobytes(), name
        assert nearest(vectors, centres)[there].tolist() == nearest_of[kept].tolist(), name


def test_a_model_is_loaded_without_a_word(model_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    logging.enable_progress_bar()
    SentenceEmbedder.load(model_folder)
    assert capfd.readouterr() == ("", "")


def test_a_model_that_remembers_the_longest_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rope type 'dynamic', whose frequencies depend on previously") as error:
        SentenceEmbedder.load(save_growing_model(tmp_path / "growing"), "cpu")
    assert "\n" not in str(error.value)


def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    (pickled / "modules.json").write_text(json.dumps([]))
    (pickled / "pytorch_model.bin").write_bytes(b"")
    broken = tmp_path / "broken"
    shutil.copytree(pickled, broken)
    (broken / "pytorch_model.bin").unlink()
    (broken / "modules.json").write_text("{")
    cases: list[tuple[Path | str, str]] = [
        (tmp_path / "nothing", "neither builtin, nor a folder, nor a hub id"),
        (tmp_path / "empty", "no modules.json"),
        (pickled, "only safetensors"),
        (broken, "cannot be loaded"),
        ("no-such/model", "not in the local cache"),
    ]
    for source, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            SentenceEmbedder.load(source, "cpu")
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(("at_once", "one_thread", "threads"), [(1, False, 1), (2, True, 1), (2, False, 3)])
def test_the_number_of_threads_moves_no_bit(at_once: int, one_thread: bool, threads: int) -> None:
    import torch

    class Network:
        def encode(self, texts: Sequence[str], **settings: Any) -> np.ndarray:
            return np.full((len(texts), 2), torch.get_num_threads(), dtype=np.float32) * [[1, 0]] + [[0, 1]]

    embedder = SentenceEmbedder("counts", "counts", 2, at_once, Network(), one_thread=one_thread)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        row = embedder.embed(["a"])[0]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert row[0] / row[1] == pytest.approx(threads, rel=1e-6)  # a ratio of two float32 numbers
