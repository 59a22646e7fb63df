"""Dataset vectors: steered generation beside plain generation, and states of records beside bare forward passes.

    python benchmarks/steering.py [--quick] [--only generation,states] [--json out.json]

One thread; what is compared runs in turns. The vectors are of zeros: they change no bit of a text, so both sides write
the same tokens, and cost what other vectors do. A bare pass is what the states need at least: the same batches through
the same network, with nothing kept; it is their limit.
"""

from __future__ import annotations

import functools
import resource
import sys
from collections.abc import Sequence
from typing import Any

import one_thread  # noqa: F401

# isort: split
import numpy as np
import torch
from paired_times import Goal, Section, paired, run_script, times_faster
from random_models import random_model

from dpassay.mechanisms.dataset_vectors.states import StateShape, Tokens, states
from dpassay.mechanisms.dataset_vectors.steering import blocks
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.models.language_model import LanguageModel

SLOWER = 1.05
"""Steered generation may take that many times what plain generation takes."""

_ROWS, _LENGTH, _TEXTS = 16, 96, 64


def models() -> dict[str, LanguageModel]:
    return {"embedded": LanguageModel.load(device="cpu"), "GPT-2 small, random weights": random_model("GPT-2 small")}


def middle(network: Any) -> tuple[int, ...]:
    depth = len(blocks(network))
    return tuple(range(depth // 2, max(depth // 2 + 1, 2 * depth // 3)))


def generation(rounds: int) -> Section:
    """Times of the same texts, with and without vectors on the default blocks."""
    section = Section("generation", "steered and plain generation, 16 texts", ("model", "plain", "steered", "ratio"))
    for name, model in models().items():
        writer = ShotWriter(
            model=model, template="{examples}", temperature=1.0, longest=64, longest_record=32, stop="\0", rows=16
        )
        prompt = [1, 2, 3]
        vectors = {block: np.zeros(model.network.config.hidden_size) for block in middle(model.network)}

        def written(added: Any, writer: ShotWriter = writer, prompt: Sequence[int] = prompt) -> list[str]:
            return [text for text, _ in writer.texts(prompt, range(16), vectors=added)]

        works = {"plain": functools.partial(written, None), "steered": functools.partial(written, vectors)}
        times = paired(works, rounds)
        assert times["plain"].answer == times["steered"].answer
        ratio = times_faster(times["plain"], times["steered"])
        section.rows.append((name, *(f"{times[key].wall_ms:.0f} ms" for key in works), f"{ratio:.3f}"))
        section.goals.append(Goal(f"steered over plain, {name}", ratio, most=SLOWER))
    return section


def of_records(rounds: int) -> Section:
    """Milliseconds of the states of a batch, beside its bare forward pass; and memory as the data grow."""
    title = f"states of {_TEXTS} texts of {_LENGTH} tokens"
    section = Section("states", title, ("model", "bare pass", "states", "ratio"))
    shape = StateShape(_ROWS, _LENGTH, exact=True)
    for name, model in models().items():
        network, chosen = model.network, middle(model.network)
        rng = np.random.default_rng(0)
        texts = [(rng.integers(1, model.vocabulary_size, _LENGTH).tolist(), _LENGTH // 2) for _ in range(_TEXTS)]

        @torch.inference_mode()
        def bare(network: Any = network, texts: Sequence[Tokens] = texts) -> None:
            for start in range(0, len(texts), _ROWS):
                ids = torch.tensor([tokens for tokens, _ in texts[start : start + _ROWS]])
                network(input_ids=ids, use_cache=False, logits_to_keep=1)

        def summed(count: int, network: Any = network, texts: Any = texts, chosen: Any = chosen) -> Any:
            many = (texts[index % len(texts)] for index in range(count))
            return sum(states(network, many, chosen, shape))

        times = paired({"bare": bare, "states": functools.partial(summed, _TEXTS)}, rounds)
        ratio = times_faster(times["bare"], times["states"])
        section.rows.append((name, *(f"{times[key].wall_ms:.1f} ms" for key in ("bare", "states")), f"{ratio:.3f}"))
        section.goals.append(Goal(f"states over a bare pass, {name}", ratio, most=1.25))
        before = _peak()
        summed(4 * _TEXTS)
        section.goals.append(Goal(f"MiB more for 4 times the texts, {name}", _peak() - before, most=64))
    return section


def _peak() -> float:
    """The largest resident set so far, in MiB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


SECTIONS = {"generation": (generation, 7, 2), "states": (of_records, 5, 1)}


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(run_script(SECTIONS, __doc__))
