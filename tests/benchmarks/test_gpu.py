"""The benchmark of a GPU, on the CPU with a tiny model."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("transformers")

import gpu
from decode import SHARE, decode
from random_models import random_model, random_records

from dpassay.mechanisms.models.decoding import FixedRows, RowShape
from dpassay.mechanisms.models.row_shapes import contexts_of

SHAPE = RowShape(rows=4, context=6, positions=14, pinned=14)


def test_whole_runs_are_taken_apart() -> None:
    model = random_model("tiny")
    section = decode("tiny", "a tiny model", model, random_records(6, 6, model.vocabulary_size), 1, 4)
    ways = ["aggregated, median", "aggregated, mean"]
    assert [row[0] for row in section.rows][-2:] == ways
    for way in ways:
        share = section.data["shares"][way]
        assert all(value > 0 for value in share[0])
        (goal,) = (goal for goal in section.goals if f"tiny, {way}: aggregation" in goal.what)
        assert goal.measured == max(share[0])
        assert goal.most == SHARE


@pytest.mark.parametrize("kind", ["rows that agree", "independent rows"])
def test_what_runs_on_the_processor_is_a_part(kind: str) -> None:
    measured = gpu.aggregation_parts(gpu.logits_of(kind, 9, 500), 1)
    assert set(measured["median"]) == {"aggregate", "draw", "costs", "host"}
    assert set(measured["mean"]) == {"aggregate", "draw", "host"}


def test_a_step_that_reads_buffers_has_the_bits_of_the_product() -> None:
    model, prepared = random_model("tiny"), []

    def prepare(step: gpu.Step) -> gpu.Step:
        prepared.append(step)
        return step

    def run() -> torch.Tensor:
        contexts = contexts_of(model.vocabulary_size, SHAPE, seed=0)
        rows = FixedRows(model.network, contexts[:3], shape=SHAPE, vocabulary_size=model.vocabulary_size)
        seen = []
        for step in range(3):
            seen.append(rows.logits())
            rows.append([step + 1, 2, 3])
            rows.reset(torch.tensor([False, step == 1, False]))
        return torch.stack(seen)

    expected = run()
    with gpu.tiles(prepare):
        assert torch.equal(run(), expected)
    assert len(prepared) == 1, "made once for each tile, and then used again"


@pytest.mark.slow
def test_what_cannot_be_compiled_is_said() -> None:
    section = gpu.compiled(random_model("tiny"), SHAPE, 2, backend="no such backend")
    assert [row[0] for row in section.rows] == ["eager", "torch.compile"]
    assert section.rows[0][2:] == ("yes", "yes")
    assert section.rows[1][1] == "fails"


@pytest.mark.slow
def test_a_compiled_step_goes_through_the_check_of_rows() -> None:
    """With the backend that changes nothing, bits are those of the eager step."""
    section = gpu.compiled(random_model("tiny"), SHAPE, 2, backend="eager")
    assert section.rows[1][2:] == ("yes", "yes")
