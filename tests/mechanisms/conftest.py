"""Small language models: random weights in the shapes of `transformers`, and one whose logits are a table."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_models import ARCHITECTURES, save_model
from table_model import Runs, TableModel

from dpassay.mechanisms.models.language_model import LanguageModel

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
def table_model() -> type[TableModel]:
    return TableModel


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)
