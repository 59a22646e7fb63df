"""A fixture for tests that run whole jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
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
