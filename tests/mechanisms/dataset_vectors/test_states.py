"""States of a text are those of a plain forward pass, and no bit of them depends on other texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from small_models import config

from dpassay.mechanisms.dataset_vectors import states as module
from dpassay.mechanisms.dataset_vectors.states import StateShape, shape_of, states

ARCHITECTURES = ("gpt2", "llama", "gemma2", "gemma3", "qwen2", "olmo", "olmo2", "phi3")
BLOCKS, LENGTH = (0, 2), 24


def network_of(architecture: str, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config(architecture, 300), attn_implementation="eager")
    return made.to(dtype).eval()


def texts_of(count: int, seed: int = 1) -> list[tuple[list[int], int]]:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, LENGTH + 1, size=count)
    return [(rng.integers(300, size=size).tolist(), int(rng.integers(size))) for size in lengths]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_states_are_the_mean_of_the_texts_own_tokens(architecture: str) -> None:
    """`hidden_states` of transformers, text by text without padding; block 2 is the last, before the final norm."""
    network, texts = network_of(architecture), texts_of(11)
    result = list(states(network, texts, (0, 1), StateShape(4, LENGTH, exact=True)))
    assert len(result) == 11
    for (tokens, first), mean in zip(texts, result, strict=True):
        with torch.inference_mode():
            hidden = network(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states
        for index, number in enumerate((0, 1)):
            expected = hidden[number + 1][0, first:].double().mean(dim=0).numpy()
            np.testing.assert_allclose(mean[index], expected, rtol=0, atol=2e-5)


@pytest.mark.grid
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_bit_depends_on_another_text(architecture: str, dtype: torch.dtype) -> None:
    network, texts = network_of(architecture, dtype), texts_of(9)
    shape = shape_of(network, 300, BLOCKS, texts=9, length=LENGTH)
    assert shape.exact
    assert shape.rows == 8
    whole = np.stack(list(states(network, texts, BLOCKS, shape)))
    for change in (texts[1:], texts[::-1][:8], [*texts[:3], *texts_of(6, seed=5)[1:], texts[8]]):
        for (tokens, first), mean in zip(change, states(network, change, BLOCKS, shape), strict=True):
            for index, own in enumerate(texts):
                if own == (tokens, first):
                    np.testing.assert_array_equal(mean, whole[index])


def test_a_model_whose_rows_meet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pass moves every row by the mean of all: at one row that is harmless, at two it is not."""
    network, plain = network_of("llama"), module.forward_pass

    def coupled(*given: Any) -> Any:
        result = plain(*given)
        return result + 1e-6 * result.mean(axis=0)

    monkeypatch.setattr(module, "forward_pass", coupled)
    shape = shape_of(network, 300, BLOCKS, texts=9, length=LENGTH)
    assert shape == StateShape(1, LENGTH, exact=True)


def test_kernels_that_are_not_deterministic_are_not_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    network, plain, calls = network_of("llama"), module.forward_pass, []

    def drifting(*given: Any) -> Any:
        calls.append(1)
        return plain(*given) + 1e-9 * len(calls)

    monkeypatch.setattr(module, "forward_pass", drifting)
    assert not shape_of(network, 300, BLOCKS, texts=9, length=LENGTH).exact


@pytest.mark.parametrize(
    ("text", "says"), [(([1] * (LENGTH + 1), 0), "at most 24"), (([1, 2], 2), "of its own"), (([], 0), "of its own")]
)
def test_wrong_texts_are_refused(text: tuple[list[int], int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        list(states(network_of("llama"), [text], BLOCKS, StateShape(2, LENGTH, exact=True)))
