"""Fixtures for tests that run whole jobs: models and figures are shared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from shared_figures import figures_drawn_once
from shared_models import models_loaded_once
from small_models import save_model

__all__ = ["figures_drawn_once", "make_model", "models_loaded_once"]


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Path]:
    return save_model
