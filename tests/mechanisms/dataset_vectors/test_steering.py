"""Steered decoding with a cache is a plain forward pass in which vectors are added at the right positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_models import config

from dpassay.mechanisms.dataset_vectors.steering import SteeredRows, Steering, Where, blocks
from dpassay.mechanisms.models.decoding import PackedRows

ARCHITECTURES = ("gpt2", "llama", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "mistral", "olmo", "olmo2", "phi3")
CONTEXTS = [[5, 17, 40, 3, 99, 120, 7], [8, 8], [1], list(range(30, 50))]
TAIL = [[11, 60, 2], [250, 4, 9], [7, 7, 7], [0, 1, 2]]


def network_of(architecture: str) -> Any:
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config(architecture, 300), attn_implementation="eager")
    return made.eval()


def vectors_of(network: Any, numbers: tuple[int, ...] = (0, 2)) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(4)
    return {number: rng.normal(size=network.config.hidden_size) for number in numbers}


def recomputed(network: Any, tokens: list[int], vectors: dict[int, np.ndarray], first: int) -> torch.Tensor:
    """Logits after the last token of a plain forward pass; vectors are added by hand from position `first` on.

    Blocks are called one after the other through the network's own code, whose block outputs are replaced.
    """
    handles = []
    for number, vector in vectors.items():
        added = torch.zeros(len(tokens), len(vector))
        added[first:] = torch.as_tensor(vector, dtype=torch.float32)

        def hook(module: Any, inputs: Any, output: Any, added: torch.Tensor = added) -> Any:
            return (output[0] + added, *output[1:]) if isinstance(output, tuple) else output + added

        handles.append(blocks(network)[number].register_forward_hook(hook))
    with torch.inference_mode():
        logits: torch.Tensor = network(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
    for handle in handles:
        handle.remove()
    return logits


@pytest.mark.grid
@pytest.mark.parametrize("where", ["last", "all"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_cache_gives_what_recomputing_gives(architecture: str, where: Where) -> None:
    network = network_of(architecture)
    vectors = vectors_of(network)
    rows = SteeredRows(network, CONTEXTS, vocabulary_size=300, steering=Steering(network, vectors, where))
    for step in range(4):
        logits = rows.logits()
        for row, context in enumerate(CONTEXTS):
            first = len(context) - 1 if where == "last" else 0
            expected = recomputed(network, [*context, *TAIL[row][:step]], vectors, first)
            torch.testing.assert_close(logits[row], expected, rtol=0, atol=2e-4)
        if step < 3:
            rows.append([tail[step] for tail in TAIL])
    assert not torch.allclose(rows.logits(), unsteered(network), atol=1e-2), "the vectors change something"


def unsteered(network: Any) -> torch.Tensor:
    rows = PackedRows(network, CONTEXTS, vocabulary_size=300, rows_per_forward=4096)
    for step in range(3):
        rows.append([tail[step] for tail in TAIL])
    return rows.logits()


@pytest.mark.grid
@pytest.mark.parametrize("where", ["last", "all"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_vector_of_zeros_changes_no_bit(architecture: str, where: Where) -> None:
    network = network_of(architecture)
    steering = Steering(network, {1: np.zeros(network.config.hidden_size)}, where)
    rows = SteeredRows(network, CONTEXTS, vocabulary_size=300, steering=steering)
    for step in range(3):
        rows.append([tail[step] for tail in TAIL])
    assert torch.equal(rows.logits(), unsteered(network))


@pytest.mark.grid
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_blocks_are_those_of_the_hidden_states(architecture: str) -> None:
    """Block ℓ gives `hidden_states[ℓ + 1]`, but for the last, where the final norm has been applied."""
    network = network_of(architecture)
    seen: list[torch.Tensor] = []
    handles = [
        block.register_forward_hook(lambda _, __, out: seen.append(out[0] if isinstance(out, tuple) else out))
        for block in blocks(network)
    ]
    with torch.inference_mode():
        states = network(input_ids=torch.tensor([CONTEXTS[0]]), output_hidden_states=True).hidden_states
    for handle in handles:
        handle.remove()
    assert len(seen) == len(states) - 1 == 3
    for number in (0, 1):
        assert torch.equal(seen[number], states[number + 1])


def test_hooks_are_gone_after_an_exception() -> None:
    network = network_of("llama")
    steering = Steering(network, vectors_of(network))
    with pytest.raises(RuntimeError), steering.applied():
        raise RuntimeError
    assert all(not block._forward_hooks for block in blocks(network))


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        ({3: np.ones(32)}, "the model has blocks 0 to 2, not 3"),
        ({-1: np.ones(32)}, "block must be"),
        ({}, "at least one"),
        ({0: np.ones(31)}, "must have 32 finite numbers"),
        ({0: np.full(32, np.nan)}, "must have 32 finite numbers"),
    ],
)
def test_wrong_vectors_are_refused(vectors: dict[int, np.ndarray], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Steering(network_of("llama"), vectors)
