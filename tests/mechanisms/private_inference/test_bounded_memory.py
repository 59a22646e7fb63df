"""Slots are decoded in groups: what is held at once does not grow with the number of records."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from dpassay.data.records import Record
from dpassay.mechanisms.models.decoding import RowShape
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_inputs import SlotInputs

LENGTH = 400
"""Tokens of a record: as a list, 8 bytes each, so that contexts outweigh everything else that a run keeps."""


class FlatSession:
    """Rows that predict every token alike."""

    def __init__(self, rows: int, vocabulary: int) -> None:
        self._shape = (rows, vocabulary)

    def logits(self) -> torch.Tensor:
        return torch.zeros(self._shape)

    def append(self, tokens: torch.Tensor) -> None:
        assert len(tokens) == self._shape[0]

    def reset(self, rows: torch.Tensor) -> None:
        assert len(rows) == self._shape[0]


def flat_model(base: type) -> Any:
    class FlatModel(base):  # type: ignore[misc]
        rows: Sequence[int] = ()

        def fixed_rows(self, contexts: Sequence[Sequence[int]], shape: RowShape) -> FlatSession:
            assert max(map(len, contexts)) == shape.context
            self.rows = (*self.rows, len(contexts))
            return FlatSession(len(contexts), self.vocabulary_size)

    return FlatModel(longest=LENGTH)


def run_of(count: int) -> tuple[PrivateInference, list[Record]]:
    chosen = PrivateInference(
        aggregate="mean",
        clip=6.0,
        temperature=1.5,
        batch_size=25,
        tokens=1,
        records=count,
        labels=("a",),
        context_tokens=LENGTH,
    )
    text = "1" * LENGTH
    return chosen, [Record(f"id-{i}", text, "a") for i in range(count)]


@pytest.mark.slow
@pytest.mark.parametrize("rows_at_once", [100, None])
def test_peak_memory_is_that_of_a_group(
    rows_at_once: int | None, table_model: Any, runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every record more costs less than a quarter of its context: its place in a slot, and its share of what is
    written. (All contexts together would cost 8 bytes a token at least.)"""
    memory = 60 * 2**20  # 153 rows of 401 positions of 1024 bytes
    monkeypatch.setattr("dpassay.mechanisms.private_inference.slot_inputs.MEMORY", memory)
    peaks = []
    sizes = (250, 1000)
    for count in sizes:
        chosen, records = run_of(count)
        model, run = flat_model(table_model), runs.begin(chosen)
        tracemalloc.start()
        try:
            generate(chosen, records, model, run, key=bytes(32), rows_at_once=rows_at_once)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        assert sum(model.rows) == count
        assert max(model.rows) <= 153
    assert (peaks[1] - peaks[0]) / (sizes[1] - sizes[0]) < 8 * LENGTH / 4


def test_groups_hold_what_fits_or_one_slot(table_model: Any) -> None:
    chosen, records = run_of(400)
    inputs = SlotInputs(chosen, records, table_model(longest=LENGTH), bytes(32))
    sizes = inputs.batches.sizes
    for rows in (1, 40, 10**6):
        groups = inputs.groups(range(chosen.total_slots), rows)
        assert [slot for group in groups for slot in group] == list(range(chosen.total_slots))
        held = [int(sizes[group].sum()) for group in groups]
        assert all(total <= rows or len(group) == 1 for total, group in zip(held, groups, strict=True))
        firsts = [int(sizes[group[0]]) for group in groups[1:]]
        assert all(total + first > rows for total, first in zip(held, firsts, strict=False))
