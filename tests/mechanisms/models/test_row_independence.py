"""Packed rows: a row's logits stay where they are whatever other rows hold, to within rounding.

`test_exact_rows` has rows of fixed shapes, which stay the same bits.

Tolerances are relative to the largest logit (at least 1). float32: 1e-5, the rounding of sums of at most 64 terms in
another order. bfloat16: 4·2⁻⁸, four roundings to 8 bits; a row that saw another one moves by far more, which
`test_these_changes_would_show` holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from little_inference import KEY, Watcher, mechanism
from small_models import ARCHITECTURES, save_model
from watched_row import CHANGES, INSTRUCTION, OTHERS, ROW, STEPS

from dpassay.data.records import Record
from dpassay.mechanisms.models.decoding import DecodeSession, PackedRows, common_beginning
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs, SlotRows

TOLERANCE = {"float32": 1e-5, "bfloat16": 4 * 2.0**-8}


def relative(a: Any, b: Any) -> float:
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    return float((a - b).abs().max() / b.abs().max().clamp(min=1))


def trace(network: Any, before: list[list[int]], behind: list[list[int]], rows_per_forward: int = 64) -> torch.Tensor:
    """Logits of the watched row, shape (steps, V): a document, back to the context, another document. The other rows
    get other tokens and go back to their contexts at other times."""
    contexts = [*before, ROW, *behind]
    vocabulary = network.config.vocab_size
    session = PackedRows(network, contexts, vocabulary_size=vocabulary, rows_per_forward=rows_per_forward)
    mine, seen = len(before), []
    for step in range(2 * STEPS):
        seen.append(session.logits()[mine].clone())
        tokens = [(7 * step + 3 * row + len(contexts)) % vocabulary for row in range(len(contexts))]
        tokens[mine] = (11 * step + 1) % vocabulary
        session.append(tokens)
        again = [(step + row) % 3 == 0 for row in range(len(contexts))]
        again[mine] = step == STEPS - 1
        session.reset(torch.tensor(again))
    return torch.stack(seen)


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    architecture, dtype = request.param
    folder = save_model(tmp_path_factory.mktemp("models") / architecture, architecture)
    return LanguageModel.load(folder, device="cpu", dtype=dtype)


@pytest.fixture(scope="module")
def mine(model: LanguageModel) -> torch.Tensor:
    return trace(model.network, OTHERS[:1], OTHERS[1:])


every_model = pytest.mark.parametrize(
    "model",
    [
        pytest.param((name, dtype), marks=[pytest.mark.slow] if dtype == "bfloat16" else [])
        for name in ARCHITECTURES
        for dtype in TOLERANCE
    ],
    ids=lambda one: "-".join(one),
    indirect=True,
)


@pytest.mark.grid("change", "model")
@every_model
@pytest.mark.parametrize("change", CHANGES)
def test_logits_stay_when_other_rows_change(change: str, model: LanguageModel, mine: torch.Tensor) -> None:
    assert relative(trace(model.network, *CHANGES[change]), mine) < TOLERANCE[model.dtype]


@pytest.mark.grid
@every_model
def test_logits_stay_when_rows_are_computed_in_other_pieces(
    model: LanguageModel, mine: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rows in (1, 3):
        assert relative(trace(model.network, OTHERS[:1], OTHERS[1:], rows), mine) < TOLERANCE[model.dtype]
    for name, value in (("TOKENS_PER_FORWARD", 8), ("_MIN_SHARED", 10**6), ("_MIN_SHARED", 1)):
        monkeypatch.setattr(f"dpassay.mechanisms.models.decoding.{name}", value)
        assert relative(trace(model.network, OTHERS[:1], OTHERS[1:]), mine) < TOLERANCE[model.dtype]


@pytest.mark.grid
@every_model
def test_logits_are_those_of_the_row_alone_and_uncached(model: LanguageModel, mine: torch.Tensor) -> None:
    tail: list[int] = []
    for step, logits in enumerate(mine):
        assert relative(logits, model.plain_logits([*ROW, *tail])) < TOLERANCE[model.dtype]
        tail = [] if step == STEPS - 1 else [*tail, (11 * step + 1) % model.vocabulary_size]


@pytest.mark.grid
@every_model
def test_these_changes_would_show(model: LanguageModel) -> None:
    """A token of its own past, exchanged or left out, moves a row by more than ten tolerances."""
    own = model.plain_logits(ROW)
    for other in ([*ROW[:-2], 99, ROW[-1]], [*ROW[:-2], ROW[-1]]):
        assert relative(model.plain_logits(other), own) > 10 * TOLERANCE["float32"]
        if model.dtype == "bfloat16":
            assert relative(model.plain_logits(other), own) > TOLERANCE["bfloat16"]


def test_a_shared_beginning_is_computed_once(tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = [*OTHERS, ROW]
    assert common_beginning(contexts) == len(INSTRUCTION)
    assert common_beginning([[1, 2], [1, 2, 3]]) == 2
    assert common_beginning([[1], [2]]) == 0
    sizes: list[int] = []
    forward = DecodeSession.forward

    def counted(self: Any, rows: Any, view: Any, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        sizes.append(tokens.numel())
        return forward(self, rows, view, tokens, *args, **kwargs)

    monkeypatch.setattr(DecodeSession, "forward", counted)
    tiny.packed_rows(contexts)
    longest = max(len(context) for context in contexts) - len(INSTRUCTION) - 1
    assert sizes == [len(INSTRUCTION), len(contexts) * longest]
    sizes.clear()
    tiny.packed_rows([contexts[0], [1, *contexts[1]]])
    assert sizes == [2 * len(contexts[1])]


def test_padding_needs_no_token_and_a_token_for_it_is_one_like_others(tmp_path: Path, tiny: LanguageModel) -> None:
    """A context may hold the token that others pad with: nothing is masked by its value, whatever is at position 0."""
    padded = LanguageModel.load(save_model(tmp_path, pad_token="<|pad|>"), device="cpu")
    pad = padded.tokenizer.pad_token_id
    assert pad is not None
    assert tiny.tokenizer.pad_token is None
    for model, token in ((padded, pad), (tiny, 0)):
        contexts = [[token, token, 5, token], [token] * 9, [5, 6, 7, 8, 9, token], [token]]
        logits = model.packed_rows(contexts).logits()
        for row, context in enumerate(contexts):
            assert relative(logits[row], model.plain_logits(context)) < TOLERANCE["float32"]
        assert relative(logits[0], model.plain_logits([5, token])) > 10 * TOLERANCE["float32"]


RECORDS = [Record(f"id-{i}", f"key {i:03d} of the patient", "ab"[i % 2]) for i in range(12)]


@pytest.fixture
def first_rows(runs: Any) -> Callable[..., dict[int, np.ndarray]]:
    """What a run aggregates for each record in the first step of its slot, shape (V,) each."""

    def rows(model: LanguageModel, records: list[Record], rows_at_once: int | None = None) -> dict[int, np.ndarray]:
        chosen, watcher = (
            mechanism(tokens=1, prefix="k", template="Say it again: {examples}\n", rows="packed"),
            Watcher(),
        )
        run = runs.begin(chosen)
        generate(chosen, records, model, run, key=KEY, observers=[watcher], rows_at_once=rows_at_once)
        return {
            record: row for seen in watcher.steps for record, row in zip(seen["records"], seen["clipped"], strict=True)
        }

    return rows


def pairs(item: dict[int, np.ndarray], other: dict[int, np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The rows of records that are in both."""
    assert item.keys() & other.keys()
    return ((item[record], other[record]) for record in item.keys() & other.keys())


@pytest.mark.grid
def test_a_record_sees_neither_its_group_nor_other_records(any_model: LanguageModel, first_rows: Any) -> None:
    own = first_rows(any_model, RECORDS)
    assert len(own) == len(RECORDS)
    longer_than_the_context = " ".join(f"{i} patients" for i in range(1000))
    others = [
        (RECORDS, 1),
        (RECORDS, 5),
        ([RECORDS[0], *(dataclasses.replace(record, text="0") for record in RECORDS[1:])], None),
        ([*RECORDS[:-1], dataclasses.replace(RECORDS[-1], text=longer_than_the_context)], None),
        (RECORDS[:1], None),  # all other slots are empty
    ]
    for records, rows_at_once in others:
        results = first_rows(any_model, records, rows_at_once)
        same = {i: row for i, row in results.items() if records[i] == RECORDS[i]}
        assert 0 in same
        assert max(relative(a, b) for a, b in pairs(same, own)) < TOLERANCE["float32"]


def test_an_empty_slot_neither_sees_rows_nor_moves_them(tiny: LanguageModel) -> None:
    chosen = mechanism(aggregate="mean", prefix="k", template="{examples}\n")
    inputs = SlotInputs(chosen, RECORDS, tiny, KEY)
    full = inputs.slot(0)
    empty = dataclasses.replace(inputs.slot(1), contexts=(), records=())
    assert full.rows
    alone, among = SlotRows(inputs, [full]), SlotRows(inputs, [empty, full, empty])
    for step in range(4):
        before, rows, behind = among.logits()
        assert before.shape == behind.shape == (0, tiny.vocabulary_size)
        assert torch.equal(rows, alone.logits()[0])
        alone.advance([step], [step == 2])
        among.advance([50, step, 60], [True, step == 2, False])
    nobody = SlotRows(inputs, [empty, empty])
    nobody.advance([1, 2], [True, False])
    assert [rows.shape for rows in nobody.logits()] == [(0, tiny.vocabulary_size)] * 2
