"""Small language models: random weights in the shapes of `transformers`, and one whose logits are a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_models import ARCHITECTURES, save_model

from cupel.accounting.ledger import Ledger, Run
from cupel.mechanisms.language_model import LanguageModel
from cupel.mechanisms.private_inference import PrivateInference

torch.set_num_threads(1)  # many tests, small tensors


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> LanguageModel:
    return LanguageModel.load(tiny_folder, device="cpu")


@pytest.fixture(scope="session", params=ARCHITECTURES)
def any_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    return LanguageModel.load(
        save_model(tmp_path_factory.mktemp("models") / request.param, request.param), device="cpu"
    )


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Path]:
    return save_model


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

    def forced(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = []
        for column in tokens.T:
            steps.append(self.logits())
            self.append(column)
        return torch.stack(steps, dim=1)


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

    def session(self, contexts: Sequence[Sequence[int]]) -> TableSession:
        return TableSession(self, contexts)


@pytest.fixture(scope="session")
def table_model() -> type[TableModel]:
    return TableModel


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


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
