"""Hidden states of texts: the mean output of some blocks over a text's tokens, each text computed by itself.

A record's states may depend on no other record. All forward passes have one public shape, `rows` texts of `length`
tokens, padded on the right, where causal attention does not see the padding; `shape_of` verifies bit for bit, on the
device and at the blocks and the shape of the run, that a row's states are the same whatever stands in the other rows,
and wherever it stands (`mechanisms.models.row_shapes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpassay.base.arrays import Floats
from dpassay.base.pieces import pieces
from dpassay.mechanisms.dataset_vectors.steering import blocks
from dpassay.mechanisms.models import row_modules, row_shapes
from dpassay.mechanisms.models.decoding import RowShape

_PADDING = ([0], 0)


@dataclass(frozen=True, slots=True)
class StateShape:
    """The public shape of every forward pass that computes states: its rows, of which the last pass has padding, and
    the tokens to which texts are padded; `exact` if rows were verified, bit for bit, not to depend on each other."""

    rows: int
    length: int
    exact: bool


Tokens = tuple[Sequence[int], int]
"""A text with what precedes it: all tokens, and the index of the first token of the text."""


def shape_of(network: Any, vocabulary_size: int, chosen: Sequence[int], *, texts: int, length: int) -> StateShape:
    """The shape with the most rows at which rows are verified not to depend on each other, for a causal language model
    whose modules `row_modules.check` accepts, the chosen blocks, counted from 0, and the public numbers of texts and of
    tokens of a text with what precedes it."""

    def holds(shape: RowShape) -> bool:
        return verified(network, vocabulary_size, chosen, shape.rows, length)

    shape, exact = row_shapes.most_rows(row_shapes.preferred(texts, length, length, length), holds)
    return StateShape(shape.rows, length, exact)


def verified(network: Any, vocabulary_size: int, chosen: Sequence[int], rows: int, length: int) -> bool:
    """Whether rows do not depend on each other, bit for bit, on this machine, in passes of so many rows and tokens."""

    def trace(contexts: row_shapes.Contexts, origin: Sequence[int]) -> row_shapes.Trace:
        result = forward_pass(network, [(tokens, len(tokens) // 2) for tokens in contexts], chosen, rows, length)
        return np.ascontiguousarray(result.transpose(1, 0, 2)).view(np.int32)

    return row_shapes.holds_in_all_arrangements(vocabulary_size, RowShape(rows, length, length, length), trace)


def bits(network: Any, vocabulary_size: int, chosen: Sequence[int], rows: int, length: int) -> str:
    """SHA-256 of the states of public rows, equal on two machines only if they compute the same bits of them."""
    contexts = row_shapes.contexts_of(vocabulary_size, RowShape(rows, length, length, length), seed=0)
    result = forward_pass(network, [(tokens, len(tokens) // 2) for tokens in contexts], chosen, rows, length)
    return hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest()


def states(network: Any, texts: Iterable[Tokens], chosen: Sequence[int], shape: StateShape) -> Iterator[Floats]:
    """The mean states of each text at the chosen blocks, counted from 0, shape (blocks, d) each, in order, float64.

    Texts have at most `shape.length` tokens, at least one of the text itself. Memory is that of one forward pass.

    Raises:
        ValueError: if a text is too long or empty.
    """
    for batch in pieces(texts, shape.rows):
        for tokens, first in batch:
            if len(tokens) > shape.length:
                raise ValueError(f"a text may have at most {shape.length} tokens, prompt included, not {len(tokens)}")
            if not 0 <= first < len(tokens):
                raise ValueError("a text must have at least one token of its own")
        yield from forward_pass(network, batch, chosen, shape.rows, shape.length)


@torch.inference_mode()
def forward_pass(
    network: Any, texts: Sequence[Tokens], chosen: Sequence[int], rows: int, length: int
) -> NDArray[np.float64]:
    """The mean states of at most `rows` texts, shape (texts, blocks, d)."""
    filled = [*texts, *[_PADDING] * (rows - len(texts))]
    ids, own = torch.zeros(rows, length, dtype=torch.long), torch.zeros(rows, length, dtype=torch.bool)
    for row, (tokens, first) in enumerate(filled):
        ids[row, : len(tokens)] = torch.tensor(list(tokens), dtype=torch.long)
        own[row, first : len(tokens)] = True
    device, stack = network.device, blocks(network)
    mask, counts = own.to(device)[:, :, None], own.sum(dim=1).to(device)[:, None]
    means: dict[int, torch.Tensor] = {}

    def keep(number: int) -> Any:
        def hook(module: torch.nn.Module, inputs: Any, output: Any) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            means[number] = torch.where(mask, hidden.double(), 0.0).sum(dim=1) / counts

        return hook

    hooks = [stack[number].register_forward_hook(keep(number)) for number in chosen]
    try:
        row_modules.pin(network, length)
        network(input_ids=ids.to(device), use_cache=False, logits_to_keep=1)
    finally:
        for hook in hooks:
            hook.remove()
    result: NDArray[np.float64] = torch.stack([means[number] for number in chosen], dim=1).cpu().numpy()
    return result[: len(texts)]
