"""Steering: public vectors that are added to the hidden states of a language model while it writes.

``hidden ← hidden + β·v`` at the output of some blocks. Nothing here is private: the vectors were released before.

- ``last``: at every position whose logits are used, that is, the last token of the prompt and each token written. The
  prompt before it is computed as it is.
- ``all``: at every position, the prompt included.

Source: "EPSVec", equation 3, and its public code, which steers the last position of each forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from numpy.typing import ArrayLike

from dpassay.base import validate
from dpassay.mechanisms.models.decoding import PackedRows

Where = Literal["last", "all"]

_ROWS = 4096


def blocks(network: Any) -> Sequence[torch.nn.Module]:
    """The decoder blocks of a causal language model, first to last.

    Raises:
        ValueError: if the model is not a plain stack of blocks.
    """
    count = network.config.num_hidden_layers
    results = [
        module
        for module in network.modules()
        if isinstance(module, torch.nn.ModuleList)
        and len(module) == count
        and all(type(block).__name__.endswith(("DecoderLayer", "Block")) for block in module)
    ]
    if len(results) != 1:
        raise ValueError(f"a {type(network).__name__} is not a plain stack of {count} decoder blocks")
    return list(results[0])


def check_blocks(network: Any, chosen: Sequence[int]) -> None:
    """Checks that a model has these blocks, counted from 0.

    Raises:
        ValueError: if a number is repeated, or there is no such block.
    """
    count = len(blocks(network))
    for number in chosen:
        validate.integer(minimum=0, block=number)
        if number >= count:
            raise ValueError(f"the model has blocks 0 to {count - 1}, not {number}")
    if len(set(chosen)) < len(chosen) or not chosen:
        raise ValueError("name each block once, and at least one")


class Steering:
    """Vectors at the blocks of a network; `applied` adds them to the forward passes inside its block of code.

    Args:
        network: of a causal language model.
        vectors: for each block, counted from 0, what is added to its output, shape (d,). A vector of zeros changes no
            bit.
        where: ``last`` or ``all``.

    Raises:
        ValueError: if a block is missing, or a vector has another length or is not finite.
    """

    def __init__(self, network: Any, vectors: Mapping[int, ArrayLike], where: Where = "last") -> None:
        validate.one_of(("last", "all"), where=where)
        check_blocks(network, list(vectors))
        width, stack = network.config.hidden_size, blocks(network)
        self.where = where
        self._added: list[tuple[torch.nn.Module, torch.Tensor]] = []
        for number, vector in vectors.items():
            added = torch.as_tensor(vector, dtype=torch.float64)
            if added.shape != (width,) or not bool(added.isfinite().all()):
                raise ValueError(f"the vector of block {number} must have {width} finite numbers")
            if bool((added != 0).any()):
                self._added.append((stack[number], added.to(network.dtype).to(network.device)))

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Adds the vectors to every position of the forward passes inside; the network is as before at the end."""
        hooks = [block.register_forward_hook(_adding(vector)) for block, vector in self._added]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _adding(vector: torch.Tensor) -> Any:
    def hook(module: torch.nn.Module, inputs: Any, output: Any) -> Any:
        if isinstance(output, tuple):
            return (output[0] + vector, *output[1:])
        return output + vector

    return hook


class SteeredRows(PackedRows):
    """Rows of contexts that are continued token by token under a steering."""

    def __init__(
        self, network: Any, contexts: Sequence[Sequence[int]], *, vocabulary_size: int, steering: Steering
    ) -> None:
        self._steering = steering
        super().__init__(network, contexts, vocabulary_size=vocabulary_size, rows_per_forward=_ROWS)

    def logits(self) -> torch.Tensor:
        with self._steering.applied():
            return super().logits()

    def _prefill(self, contexts: Sequence[Sequence[int]]) -> None:
        if self._steering.where == "last":  # a context's last token is not written here, but by `logits`
            super()._prefill(contexts)
            return
        with self._steering.applied():
            super()._prefill(contexts)
