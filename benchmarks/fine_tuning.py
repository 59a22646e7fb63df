"""A step of DP-SGD on serialised rows: ours beside Opacus' own optimiser, and beside a step without privacy.

    python benchmarks/fine_tuning.py [--quick] [--only step] [--json out.json]

One thread; what is compared runs in turns, on the same rows of one public width. Opacus' step draws its noise from
torch's generator (``secure_mode=False``); ours is exact, from the operating system, and sums whole numbers. A step
without privacy has one gradient for the whole batch; it is the limit of both.
"""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

import one_thread  # noqa: F401

# isort: split
import numpy as np
import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from paired_times import Goal, Section, paired, run_script, times_faster
from random_models import random_model

from dpassay.accounting.adjacency import Adjacency
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.mechanisms.two_stage import network
from dpassay.mechanisms.two_stage.descent import Descent, GradientGrid, clipped_sum, noisy_mean
from dpassay.mechanisms.two_stage.gradients import RowGradients, WeightedRow

ROWS, WIDTH = 32, 60
"""Of a batch, and tokens of a row: those of RAND HIE."""

CLIP, NOISE, RATE = 1.0, 1.0, 1e-3
SLOWER = 2.0
"""Our step may take that many times what Opacus' takes."""


def models() -> dict[str, tuple[LanguageModel, int]]:
    """Models, and the rank of their LoRA matrices, 0 for none."""
    embedded = LanguageModel.load(device="cpu")
    return {
        "embedded, all weights": (embedded, 0),
        "embedded, LoRA of rank 8": (embedded, 8),
        "GPT-2 small with random weights, LoRA of rank 8": (random_model("GPT-2 small"), 8),
    }


def batch(model: LanguageModel) -> list[WeightedRow]:
    """Random rows of several lengths, the longest of the public width."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(WIDTH // 2, WIDTH + 1, ROWS)
    lengths[0] = WIDTH
    return [
        WeightedRow(rng.integers(model.vocabulary_size, size=length).tolist(), [0.5] * (int(length) - 1))
        for length in lengths
    ]


def trained(model: LanguageModel, rank: int) -> Any:
    """A network to train, and its trained weights."""
    copy = network.trainable(model, rank).network
    return copy, {name: weight for name, weight in sorted(copy.named_parameters()) if weight.requires_grad}


def ours(model: LanguageModel, rank: int, rows: list[WeightedRow]) -> tuple[Any, int]:
    """A step as a run makes it, and the number of rows of one pass."""
    copy, weights = trained(model, rank)
    gradients = RowGradients(copy, model.vocabulary_size, WIDTH)
    gradients.find(ROWS)
    descent, grid = Descent(weights, RATE, 0.01), GradientGrid.of(NOISE, Adjacency.ADD_REMOVE)

    def step() -> None:
        total = clipped_sum(gradients.of(rows), CLIP, gradients.size, grid)
        descent.step(noisy_mean(total, CLIP, ROWS, grid, OS_ENTROPY))

    return step, gradients.rows


def tensors(rows: list[WeightedRow]) -> tuple[torch.Tensor, torch.Tensor]:
    ids, weights = torch.zeros(len(rows), WIDTH, dtype=torch.long), torch.zeros(len(rows), WIDTH - 1)
    for index, row in enumerate(rows):
        ids[index, : len(row.tokens)] = torch.tensor(list(row.tokens))
        weights[index, : len(row.weights)] = torch.tensor(list(row.weights))
    return ids, weights


def loss(copy: Any, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    indices = torch.arange(WIDTH - 1).expand(len(ids), -1).contiguous()
    logits = copy(input_ids=ids[:, :-1], position_ids=indices, use_cache=False).logits
    result = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    return (result * weights).sum() / WIDTH


def of_opacus(model: LanguageModel, rank: int, rows: list[WeightedRow], at_once: int) -> Any:
    """A step of Opacus' optimiser, in passes of as many rows."""
    copy, weights = trained(model, rank)
    wrapped = GradSampleModule(copy, loss_reduction="sum", strict=False)
    optimizer = DPOptimizer(
        torch.optim.AdamW(list(weights.values()), lr=RATE, weight_decay=0.01, foreach=False),
        noise_multiplier=NOISE,
        max_grad_norm=CLIP,
        expected_batch_size=ROWS,
        loss_reduction="mean",
    )
    ids, shares = tensors(rows)

    def step() -> None:
        for start in range(0, ROWS, at_once):
            optimizer.signal_skip_step(start + at_once < ROWS)
            item = slice(start, start + at_once)
            loss(wrapped, ids[item], shares[item]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()

    return step


def without_privacy(model: LanguageModel, rank: int, rows: list[WeightedRow]) -> Any:
    """A step of AdamW on the mean loss."""
    copy, weights = trained(model, rank)
    optimizer = torch.optim.AdamW(list(weights.values()), lr=RATE, weight_decay=0.01, foreach=False)
    ids, shares = tensors(rows)

    def step() -> None:
        (loss(copy, ids, shares) / ROWS).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def steps(rounds: int) -> Section:
    """Milliseconds of a step on 32 rows."""
    columns = (
        "model",
        "trained weights",
        "rows a pass",
        "without privacy",
        "Opacus",
        "ours",
        "ours over Opacus",
        "noise",
    )
    section = Section("step", f"one step on {ROWS} rows of {WIDTH} tokens", columns)
    for name, (model, rank) in models().items():
        rows = batch(model)
        step, at_once = ours(model, rank, rows)
        works = {
            "without": without_privacy(model, rank, rows),
            "opacus": of_opacus(model, rank, rows, at_once),
            "ours": step,
        }
        size = sum(weight.numel() for weight in trained(model, rank)[1].values())
        bits = GradientGrid.of(NOISE, Adjacency.ADD_REMOVE).bits
        assert bits is not None
        works["noise"] = functools.partial(OS_ENTROPY.rounded_normals, size, bits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times = paired(works, rounds)
        ratio = times_faster(times["opacus"], times["ours"])
        shown = [f"{times[key].wall_ms:.0f} ms" for key in ("without", "opacus", "ours")]
        section.rows.append((name, f"{size}", f"{at_once}", *shown, f"{ratio:.2f}", f"{times['noise'].wall_ms:.0f} ms"))
        section.goals.append(Goal(f"ours over Opacus, {name}", ratio, most=SLOWER))
    return section


SECTIONS = {"step": (steps, 7, 2)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(run_script(SECTIONS, __doc__))
