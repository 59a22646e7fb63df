"""The decode loop's model side: rows are independent, equal to plain forwards, and loading refuses what is no model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dpassay.mechanisms.models.decoding import RowShape
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_folder import fingerprint

CONTEXTS = [[5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], [20, 21], [30, 31, 32, 33, 34, 35, 36], [40]]

TOLERANCE = 1e-5
"""Absolute, on logits of size 1 to 50: float32 rounding of sums of at most 64 terms, in another order."""


def tokens_at(step: int, rows: int, vocabulary: int) -> list[int]:
    return [(7 * step + 3 * row + 1) % vocabulary for row in range(rows)]


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max().clamp(min=1))


SHAPE = RowShape(rows=3, context=11, positions=26, pinned=26)
"""Two forward passes for the four contexts, the second one filled up with padding."""

either_way = pytest.mark.parametrize(
    "rows",
    [
        lambda model: model.packed_rows(CONTEXTS, rows_per_forward=3),
        lambda model: model.fixed_rows(CONTEXTS, SHAPE),
    ],
    ids=["packed", "fixed"],
)


@pytest.mark.grid
@either_way
def test_rows_equal_plain_forwards_through_resets(rows: Any, any_model: LanguageModel) -> None:
    model = any_model
    session = rows(model)
    tails: list[list[int]] = [[] for _ in CONTEXTS]
    for step in range(14):
        logits = session.logits()
        assert logits.dtype == torch.float32
        assert logits.shape == (len(CONTEXTS), model.vocabulary_size)
        for row, context in enumerate(CONTEXTS):
            assert relative(logits[row], model.plain_logits(context + tails[row])) < TOLERANCE
        tokens = tokens_at(step, len(CONTEXTS), model.vocabulary_size)
        session.append(tokens)
        tails = [[*tail, token] for tail, token in zip(tails, tokens, strict=True)]
        ended = [(step + row) % 5 == 4 for row in range(len(CONTEXTS))]
        session.reset(torch.tensor(ended))
        tails = [[] if end else tail for tail, end in zip(tails, ended, strict=True)]


def test_sliding_windows_are_shorter_than_the_tests_sequences(tmp_path: Path, make_model: Callable[..., Path]) -> None:
    """So that the test above would notice a window over the cache's entries in place of a row's own positions."""
    model = LanguageModel.load(make_model(tmp_path, "mistral"), device="cpu")

    def influence() -> float:
        return relative(model.plain_logits([1, *range(50, 80)]), model.plain_logits([2, *range(50, 80)]))

    assert influence() < TOLERANCE
    model.network.config.sliding_window = None
    assert influence() > 10 * TOLERANCE


@pytest.mark.grid
def test_a_row_does_not_move_when_others_change(any_model: LanguageModel) -> None:
    item = any_model.packed_rows(CONTEXTS)
    other = any_model.packed_rows([CONTEXTS[0], [99] * 17, [98], [97] * 5])
    for step in range(6):
        assert relative(other.logits()[0], item.logits()[0]) < TOLERANCE
        item.append([step] * 4)
        other.append([step, 60, 61, 62])
        other.reset(torch.tensor([False, step == 2, True, False]))


def test_long_prefills_are_cut_into_pieces(tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpassay.mechanisms.models.decoding.TOKENS_PER_FORWARD", 8)
    logits = tiny.packed_rows(CONTEXTS).logits()
    for row, context in enumerate(CONTEXTS):
        assert relative(logits[row], tiny.plain_logits(context)) < TOLERANCE


def test_a_session_needs_tokens(tiny: LanguageModel) -> None:
    for contexts in ([], [[1], []]):
        with pytest.raises(ValueError, match="at least one"):
            tiny.packed_rows(contexts)
        with pytest.raises(ValueError, match="at least one"):
            tiny.fixed_rows(contexts, SHAPE)
    with pytest.raises(ValueError, match="at most 11 tokens"):
        tiny.fixed_rows([[1] * 12], SHAPE)


def test_loading(tiny: LanguageModel, tiny_folder: Path) -> None:
    assert tiny.name == tiny_folder.name
    assert tiny.vocabulary_size == 300
    assert tiny.end_of_text_id == 0
    assert tiny.context_length == 128
    assert tiny.tokenizer.pad_token is None
    assert 0 < tiny.row_difference < 1e-3
    assert tiny.decode(tiny.encode("My 5-digit key is 04821 ")) == "My 5-digit key is 04821 "


def test_a_model_may_compute_in_bfloat16_but_its_logits_are_float32(tiny: LanguageModel, tiny_folder: Path) -> None:
    """bfloat16 keeps 8 bits; the bound is 4 roundings of the largest logit, far below what another model would give."""
    half = LanguageModel.load(tiny_folder, device="cpu", dtype="bfloat16")
    assert (tiny.dtype, half.dtype) == ("float32", "bfloat16")
    assert half.bytes_per_position == tiny.bytes_per_position // 2
    logits = half.packed_rows(CONTEXTS).logits()
    assert logits.dtype == torch.float32
    assert TOLERANCE < relative(logits, tiny.packed_rows(CONTEXTS).logits()) < 4 * 2.0**-8
    with pytest.raises(ValueError, match="dtype must be one of"):
        LanguageModel.load(tiny_folder, device="cpu", dtype="float16")


def test_the_fingerprint_depends_on_every_file(tiny_folder: Path, tmp_path: Path) -> None:
    for file in tiny_folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    before = fingerprint(tmp_path)
    assert before == fingerprint(tiny_folder)
    seen = {before}
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        with (tmp_path / name).open("ab") as opened:
            opened.write(b" ")
        seen.add(fingerprint(tmp_path))
    assert len(seen) == 4


def test_what_is_no_model_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text('{"model_type": "gpt2"}')
    (broken / "model.safetensors").write_bytes(b"no tensors")
    (tmp_path / "file").write_text("x")
    sources: list[Path | str] = [
        tmp_path / "empty",
        broken,
        tmp_path / "file",
        tmp_path / "missing",
        "no-such-owner/no-such-model",
        "a b",
    ]
    for source in sources:
        with pytest.raises(ValueError, match="model") as error:
            LanguageModel.load(source, device="cpu")
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="device must be one of"):
        LanguageModel.load("builtin", device="tpu")


def test_layers_without_keys_and_values_are_refused() -> None:
    import transformers

    from dpassay.mechanisms.models.decoding import layer_kinds

    with pytest.raises(ValueError, match="linear_attention"):
        layer_kinds(transformers.LlamaConfig(num_hidden_layers=2, layer_types=["linear_attention", "full_attention"]))
