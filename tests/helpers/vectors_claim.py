"""A small claim about dataset vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def body(**changes: Any) -> dict[str, Any]:
    """A claim about notes; `changes` are made to its parameters."""
    parameters: dict[str, Any] = {
        "noise_multiplier": 0.9,
        "shots_noise_multiplier": 12.0,
        "candidates": 6,
        "negatives": 8,
        "blocks": [1, 2],
        "writing": {"texts": 4, "longest": 40, "longest_record": 40, "temperature": 1.0},
    }
    return {
        "name": "vectors",
        "data": {"source": "builtin", "name": "notes"},
        "mechanism": "dataset_vectors",
        "parameters": parameters | changes,
        "public": {"records": 24},
        "guarantee": {"type": "approx_dp", "epsilon": 6.0, "delta": 1e-5},
    }


def write(folder: Path, claim: dict[str, Any]) -> Path:
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return folder / "claim.yaml"
