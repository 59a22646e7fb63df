"""Fixtures of tests that run whole jobs: what takes longest, models and figures, is done once a process.

`conftest` says which folders of tests they are for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DRAWN: dict[str, Any] = {}
"""The figures that were drawn in this process, by what they show. Clear it to have them drawn again."""


@pytest.fixture(scope="session")
def figures_drawn_once() -> Iterator[None]:
    """A figure is drawn once a process for the same numbers and words."""
    from dpassay.reports import figures

    def once(draw: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(draw)
        def shown(*given: Any) -> Any:
            key = repr((draw.__name__, given))
            if key not in DRAWN:
                DRAWN[key] = draw(*given)
            return DRAWN[key]

        return shown

    with pytest.MonkeyPatch.context() as patch:
        for name in ("claim_and_bounds", "rates", "rounds", "tokens", "batches"):
            patch.setattr(figures, name, once(getattr(figures, name)))
        yield


@pytest.fixture(scope="session")
def models_loaded_once() -> Iterator[None]:
    """A model is loaded once a process, and its rows are verified once for a shape: that takes longer than most runs of
    the tests. Commands in processes of their own, and tests that replace the check, load their own.
    """
    import torch

    from dpassay.generators.private_inference import run
    from dpassay.mechanisms.models import row_shapes

    load, models = run.load_model, dict[Any, Any]()

    def shared(claim: Any, model: str | None, device: str, download: bool) -> Any:
        source = model or claim.model
        files = [(path, path.stat()) for path in sorted(Path(source).glob("*"))]
        if (source != "builtin" and not files) or device not in ("auto", "cpu") or download:
            return load(claim, model, device, download)
        seen = [(str(path.absolute()), stat.st_mtime_ns, stat.st_ino, stat.st_size) for path, stat in files]
        key = (source, *seen, row_shapes.verify, row_shapes.find, torch.get_num_threads())
        if key not in models:
            models[key] = load(claim, model, device, download)
        return models[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "load_model", shared)
        yield


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Path]:
    """Writes a small language model with random weights into a folder."""
    from small_models import save_model

    return save_model
