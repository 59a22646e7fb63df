"""A language model whose logits are a table, so that every neighbour and every output of a run can be listed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.mechanisms.models.decoding import RowShape
from dpassay.mechanisms.primitives.randomness import Recorded
from dpassay.mechanisms.private_inference.generator import PrivateInference


class TableSession:
    """Rows whose logits are looked up by context and continuation."""

    def __init__(self, model: TableModel, contexts: Sequence[Sequence[int]]) -> None:
        self._model = model
        self._contexts = [tuple(context) for context in contexts]
        self._tails: list[tuple[int, ...]] = [()] * len(contexts)

    def logits(self) -> torch.Tensor:
        rows = [self._model.row(c, t) for c, t in zip(self._contexts, self._tails, strict=True)]
        return torch.from_numpy(np.array(rows, dtype=np.float32))

    def append(self, tokens: torch.Tensor) -> None:
        self._tails = [(*tail, int(token)) for tail, token in zip(self._tails, tokens, strict=True)]

    def reset(self, rows: torch.Tensor) -> None:
        self._tails = [() if gone else tail for tail, gone in zip(self._tails, rows.tolist(), strict=True)]


class TableModel:
    """A language model of V tokens, 0 the end of text, with random logits for every context and continuation.

    A text is a string of digits 1 to V − 1, one token each. `longest` is the largest length of a document.
    """

    name = "table"
    fingerprint = "table"
    dtype = "float32"
    end_of_text_ids = (0,)
    beginning_ids = ()
    is_builtin = True
    row_difference = 0.0
    bytes_per_position = 1024

    def __init__(self, vocabulary: int = 4, longest: int = 16, spread: float = 6.0, seed: int = 0) -> None:
        self.vocabulary_size = vocabulary
        self.context_length = 2 * longest
        self._spread = spread
        self._seed = seed
        self._rows: dict[tuple[int, ...], NDArray[np.float64]] = {}

    def row(self, context: tuple[int, ...], tail: tuple[int, ...]) -> NDArray[np.float64]:
        key = (self._seed, len(context), *context, *tail)
        if key not in self._rows:
            self._rows[key] = np.random.default_rng(key).normal(size=self.vocabulary_size) * self._spread
        return self._rows[key]

    def encode(self, text: str) -> list[int]:
        return [int(digit) for digit in text]

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(str, tokens))

    def check_modules(self) -> None:
        """A table has no modules."""

    def row_shape(self, wanted: RowShape) -> tuple[RowShape, bool]:
        """A row is looked up by itself."""
        return wanted, True

    def row_bits(self, shape: RowShape) -> str:
        return "table"

    def packed_rows(self, contexts: Sequence[Sequence[int]]) -> TableSession:
        return TableSession(self, contexts)

    def fixed_rows(self, contexts: Sequence[Sequence[int]], shape: RowShape) -> TableSession:
        assert max(map(len, contexts)) <= shape.context
        return TableSession(self, contexts)


def showing(logits: dict[str, Sequence[float]]) -> Any:
    """A table of two tokens that gives a context the logits of its letters, in any order, whatever was written."""
    model = TableModel(vocabulary=2)
    rows = {tuple(sorted(map(ord, text))): np.array(row) for text, row in logits.items()}
    model.encode = lambda text: [ord(letter) for letter in text]  # type: ignore[method-assign]
    model.row = lambda context, tail: rows.get(tuple(sorted(filter(None, context))), np.zeros(2))  # type: ignore[method-assign]
    return model


class FirstToken(Recorded):
    """Draws the first outcome of all."""

    def at(self, place: str) -> Any:
        return self

    def below(self, bound: int) -> int:
        return 0


class Runs:
    """Ledgers in a folder, one a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    def begin(self, mechanism: PrivateInference, *, noise: str = "os", name: str | None = None) -> Run:
        self._count += 1
        ledger = Ledger.open(self._folder / f"{name or self._count}.sqlite")
        return ledger.begin(
            "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={"noise": noise}
        )
