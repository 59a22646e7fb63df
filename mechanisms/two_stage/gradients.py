"""Per-example gradients of serialised rows, by Opacus, each computed by itself.

A row's clipped gradient may depend on no other row. All forward and backward passes have one public shape, `rows` rows
of `width` tokens, padded on the right, where causal attention does not see the padding; the last pass of a batch is
filled with padding rows, whose gradients are dropped. `RowGradients.find` verifies bit for bit, on the device and at
the shape of the run, that a row's gradient is the same whatever stands in the other rows, and wherever it stands
(`mechanisms.models.row_shapes`).

Opacus is not trusted: every trained parameter must get a gradient of each row, and the gradients of public random rows
are compared with those of each row alone, by automatic differentiation. It finds none for embeddings under LoRA, and
for most layers under some kinds of activation checkpointing, without a word.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpassay.base.arrays import Floats
from dpassay.mechanisms.models import row_modules, row_shapes
from dpassay.mechanisms.models.decoding import RowShape

if TYPE_CHECKING:
    from opacus.grad_sample import GradSampleHooks

_WEIGHTS = 2**25  # per-example gradients of one pass, in numbers
_ENTRIES = 2**25  # logits of one pass
_MOVED = 0.05  # standard deviation of what zeros are replaced by in checks
_TOLERANCE = 1e-3  # of a row's gradient, relative to its length: rounding in float32 is below 1e-5


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """The tokens of a serialised row, at most `width`, and the weights of the loss of each but the first."""

    tokens: Sequence[int]
    weights: Sequence[float]


class RowGradients:
    """Per-example gradients of the trained parameters of a network, in passes of one public shape.

    Args:
        network: a causal language model in training mode, without dropout (`quiet`).
        vocabulary_size: V.
        width: the public number of tokens to which rows are padded.
        precision: ``float32``, or ``bfloat16`` for mixed precision.

    Raises:
        ValueError: one line, if Opacus does not compute every row's gradient of every trained parameter.
    """

    def __init__(self, network: Any, vocabulary_size: int, width: int, precision: str = "float32") -> None:
        from opacus.grad_sample import GradSampleHooks

        self.network, self.vocabulary_size, self.width, self.precision = network, vocabulary_size, width, precision
        self.parameters = [weight for _, weight in sorted(network.named_parameters()) if weight.requires_grad]
        self.size = sum(weight.numel() for weight in self.parameters)
        try:
            self._hooks: GradSampleHooks = GradSampleHooks(network, loss_reduction="sum", strict=False)
        except NotImplementedError:
            raise ValueError(
                "Opacus computes no gradients of single rows for a layer of this model that has buffers; train it with "
                "lora_rank, which leaves that layer as it is"
            ) from None
        self.rows = 1
        self._found: NDArray[np.float32] | None = None
        with self._moved():
            self._check()

    def close(self) -> None:
        """Removes Opacus' hooks from the network, and unfixes its position frequencies."""
        self._hooks.cleanup()
        row_modules.pin(self.network, None)

    def find(self, batch: int) -> bool:
        """Fixes the number of rows of a pass, at most the public, expected batch: the largest at which rows are
        verified not to depend on each other. Returns whether they are; with a single row, only kernels that are not
        deterministic fail."""
        most = min(batch, _WEIGHTS // self.size, _ENTRIES // (self.width * self.vocabulary_size))
        wanted = row_shapes.preferred(max(1, most), self.width, self.width, self.width)

        def holds(shape: RowShape) -> bool:
            self.rows = shape.rows
            return row_shapes.holds_in_all_arrangements(self.vocabulary_size, shape, self._trace)

        with self._moved():
            return row_shapes.most_rows(wanted, holds)[1]

    @contextmanager
    def _moved(self) -> Iterator[None]:
        """Weights that are all 0 have public random values meanwhile.

        The second matrix of each LoRA pair begins at 0. All gradients of the first are 0 then, right or wrong.
        """
        zeros = [weight for weight in self.parameters if not weight.any()]
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in zeros:
                weight.copy_(torch.randn(weight.shape, generator=generator) * _MOVED)
        try:
            yield
        finally:
            with torch.no_grad():
                for weight in zeros:
                    weight.zero_()

    def of(self, rows: Sequence[WeightedRow]) -> Iterator[NDArray[np.float32]]:
        """The gradients of rows, in order, in pieces of shape (n, `size`), n at most `self.rows`.

        A piece is overwritten by the next one.
        """
        for start in range(0, len(rows), self.rows):
            yield self._pass(rows[start : start + self.rows])

    def mean(self, rows: Sequence[WeightedRow]) -> Floats:
        """The mean gradient of public rows, shape (`size`,); without gradients of single rows, which take longer."""
        total = np.zeros(self.size)
        for start in range(0, len(rows), self.rows):
            total += self._together(rows[start : start + self.rows])
        return total / len(rows)

    def _pass(self, rows: Sequence[WeightedRow]) -> NDArray[np.float32]:
        """The gradients of at most `self.rows` rows, shape (n, `size`)."""
        for weight in self.parameters:
            weight.grad_sample = None
        self._backward(rows, self.rows)
        if self._found is None or len(self._found) < self.rows:
            self._found = np.empty((self.rows, self.size), dtype=np.float32)
        pieces, start = self._found[: len(rows)], 0
        for weight in self.parameters:
            result = getattr(weight, "grad_sample", None)
            if not isinstance(result, torch.Tensor) or result.shape != (self.rows, *weight.shape):
                raise ValueError(self._missing(weight))
            part = result[: len(rows)].detach().reshape(len(rows), -1).float().cpu().numpy()
            pieces[:, start : start + weight.numel()] = part
            start += weight.numel()
            weight.grad = weight.grad_sample = None
        return pieces

    def _backward(self, rows: Sequence[WeightedRow], count: int) -> None:
        with warnings.catch_warnings():  # tokens need no gradients, of which torch warns in every pass
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            self.losses(rows, count).sum().backward()  # type: ignore[no-untyped-call]

    def losses(self, rows: Sequence[WeightedRow], count: int) -> torch.Tensor:
        """Each row's weighted sum of −log p over its tokens, divided by the public width; shape (count,).

        Rows beyond those given are padding. A row's loss depends on the row alone: nothing is divided by a number of
        tokens of the batch.
        """
        ids = torch.zeros(count, self.width, dtype=torch.long)
        weights = torch.zeros(count, self.width - 1)
        for index, row in enumerate(rows):
            ids[index, : len(row.tokens)] = torch.tensor(list(row.tokens), dtype=torch.long)
            weights[index, : len(row.tokens) - 1] = torch.tensor(list(row.weights))
        device = next(iter(self.parameters)).device
        ids, weights = ids.to(device), weights.to(device)
        indices = torch.arange(self.width - 1, device=device).expand(count, -1).contiguous()
        mixed = self.precision == "bfloat16"
        row_modules.pin(self.network, self.width)
        with torch.autocast(device.type, torch.bfloat16) if mixed else nullcontext():
            logits = self.network(input_ids=ids[:, :-1], position_ids=indices, use_cache=False).logits
        logits = logits[..., : self.vocabulary_size].float()
        result = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        return (result * weights).sum(dim=1) / self.width

    def _trace(self, contexts: row_shapes.Contexts, origin: Sequence[int]) -> row_shapes.Trace:
        """A hash of each row's gradient, shape (1, rows, 8)."""
        result = self._pass([self._public(tokens) for tokens in contexts])
        digests = [np.frombuffer(hashlib.sha256(row.tobytes()).digest(), dtype=np.int32) for row in result]
        return np.array(digests)[None]

    def _public(self, tokens: Sequence[int]) -> WeightedRow:
        """A row of public tokens; its weights depend on its own tokens."""
        tokens = [*tokens, 0] if len(tokens) < 2 else tokens
        return WeightedRow(tokens, [0.25 + 0.5 * (token % 2) for token in tokens[1:]])

    def _check(self) -> None:
        """Compares the gradients of three public rows in one pass with those of each row alone."""
        if not self.parameters:
            raise ValueError("no parameter of the model is trained")
        rng = np.random.default_rng(0)
        lengths = (self.width, max(2, self.width // 2), 2)
        rows = [self._public(rng.integers(self.vocabulary_size, size=length).tolist()) for length in lengths]
        self.rows = len(rows)
        together = self._pass(rows).astype(np.float64)
        self.rows = 1
        for row, result in zip(rows, together, strict=True):
            alone = self._together([row])
            if not np.linalg.norm(result - alone) <= self._tolerance * np.linalg.norm(alone):
                raise ValueError(
                    "per-example gradients of this model are wrong: they are not those of each row alone; use another "
                    "architecture or other LoRA layers"
                )

    @property
    def _tolerance(self) -> float:
        return _TOLERANCE if self.precision == "float32" else 0.1

    def _together(self, rows: Sequence[WeightedRow]) -> Floats:
        """The gradient of the sum of the losses of rows, by automatic differentiation alone, shape (`size`,)."""
        self.network.zero_grad(set_to_none=True)
        self._hooks.disable_hooks()
        try:
            self._backward(rows, len(rows))
        finally:
            self._hooks.enable_hooks()
        pieces = [weight.grad for weight in self.parameters]
        if any(piece is None for piece in pieces):
            raise ValueError("a trained parameter of the model has no gradient; it is not used by the model")
        result = torch.cat([piece.reshape(-1).double().cpu() for piece in pieces]).numpy()
        self.network.zero_grad(set_to_none=True)
        return np.asarray(result, dtype=np.float64)

    def _missing(self, weight: torch.Tensor) -> str:
        name = next(name for name, item in self.network.named_parameters() if item is weight)
        return f"Opacus computes no gradient of single rows for parameter {name}; use another architecture"


def quiet(network: torch.nn.Module) -> None:
    """Training mode, which Opacus' hooks need, without dropout: gradients are a function of weights and rows."""
    network.train()
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]
