"""Small claims about all generators, with their data, for lives of runs (`killed_life`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from small_models import save_model
from visible import Visible

from dpassay.mechanisms.embedding.centres import Centres

GENERATORS = (
    "median",
    "mean",
    "secret_evolution",
    "aug_pe",
    "dataset_vectors",
    "two_stage",
    "marginals",
    "table_evolution",
)
PREFIX = "My 5-digit key is "


def inference(**changes: Any) -> dict[str, Any]:
    """A claim about private inference on made-up keys."""
    parameters = {
        "clip": 10.0,
        "temperature": 0.8,
        "batch_size": 6,
        "tokens": 12,
        "prefix": PREFIX,
        "slot_threshold": 1.0,
        "slot_count_epsilon": 2.0,
    }
    return {
        "name": "keys",
        "data": {"source": "builtin", "name": "keys"},
        "mechanism": "private_inference",
        "parameters": parameters | changes,
        "public": {"records": 24, "context_tokens": 26},
        "guarantee": {"type": "ex_post" if changes["aggregate"] == "median" else "pure_dp", "epsilon": 1e6},
    }


def evolution(mechanism: str, url: str) -> dict[str, Any]:
    """A claim about an evolution, whose candidates an endpoint writes, one after the other."""
    endpoint = {"url": url, "model": "words", "tries": 1, "at_once": 1}
    parameters: dict[str, Any] = {"rounds": 2, "synthetic": 3, "variations": 2, "endpoint": endpoint}
    guarantee: dict[str, Any] = {"type": "approx_dp", "epsilon": 2.0, "delta": 1e-5}
    if mechanism == "secret_evolution":
        guarantee = {"type": "secret_protection", "p": 0.001, "r": 0.05}
        parameters |= {"secrets": [{"pattern": r"\b\d{5}\b"}], "p": 0.001, "r": 0.05, "clusters": 4}
    else:
        parameters["noise_multiplier"] = 4.0
    return {
        "name": "trees",
        "data": {"source": "file", "path": "trees.jsonl", "text": "text", "id": "id"},
        "mechanism": mechanism,
        "parameters": parameters,
        "public": {"records": 60},
        "guarantee": guarantee,
        "audits": ["secret_reconstruction"] if mechanism == "secret_evolution" else [],
    }


def vectors() -> dict[str, Any]:
    """A claim about dataset vectors on made-up keys."""
    parameters = {
        "noise_multiplier": 3.0,
        "shots_noise_multiplier": 3.0,
        "candidates": 3,
        "negatives": 2,
        "shots": 1,
        "writing": {"texts": 2, "longest": 10, "longest_record": 12, "temperature": 1.0},
    }
    return {
        "name": "keys",
        "data": {"source": "builtin", "name": "keys"},
        "mechanism": "dataset_vectors",
        "parameters": parameters,
        "public": {"records": 6},
        "guarantee": {"type": "approx_dp", "epsilon": 100.0, "delta": 1e-5},
    }


def table() -> dict[str, Any]:
    """A claim about two-stage fine-tuning of a small model on a table of two columns."""
    return {
        "name": "people",
        "data": {"source": "table", "path": "people.csv"},
        "mechanism": "two_stage",
        "model": "model",
        "parameters": {
            "noise_multiplier": 1.0,
            "batch_size": 4,
            "steps": 2,
            "first_steps": 1,
            "generation": {"rows": 2, "rounds": 1},
        },
        "public": {"records": 12, "columns": "columns.yaml"},
        "guarantee": {"type": "approx_dp", "epsilon": 100.0, "delta": 1e-5},
    }


def marginals() -> dict[str, Any]:
    """A claim about noisy marginals of a table of two columns."""
    return table() | {
        "mechanism": "marginals",
        "model": "builtin",
        "parameters": {"method": "mst", "rho": 0.5, "bins": 4, "rows": 3},
    }


def rows_evolution() -> dict[str, Any]:
    """A claim about private evolution over the rows of a table of two columns."""
    return table() | {
        "mechanism": "table_evolution",
        "model": "builtin",
        "parameters": {"noise_multiplier": 1.0, "rows": 3, "rounds": 2, "generations": 2},
    }


COLUMNS = """
columns:
  - {name: age, type: number, low: 0, high: 99}
  - {name: sex, type: category, values: [f, m]}
"""


def written(folder: Path, generator: str, url: str) -> Visible:
    """A new folder with the claim about a generator and its data."""
    folder.mkdir(parents=True)
    if generator == "median":
        claim = inference(aggregate="median")
    elif generator == "mean":
        claim = inference(aggregate="mean", centres="centres.safetensors", kept_centres=2)
        Centres.fit([f"{PREFIX}{key}" for key in range(10000, 10300)], 4).save(folder / "centres.safetensors")
    elif generator == "dataset_vectors":
        claim = vectors()
    elif generator in ("two_stage", "marginals", "table_evolution"):
        claim = {"two_stage": table, "marginals": marginals, "table_evolution": rows_evolution}[generator]()
        if generator == "two_stage":
            save_model(folder / "model", "gpt2")
        (folder / "columns.yaml").write_text(COLUMNS)
        (folder / "people.csv").write_text("age,sex\n" + "".join(f"{20 + row},{'fm'[row % 2]}\n" for row in range(12)))
    else:
        claim = evolution(generator, url)
        trees = ("ash", "birch", "cedar", "elm", "fir", "hazel")
        texts = [f"{trees[i % 6]} number {i}" + f" SECRET 1000{i // 3}" * (i < 9) for i in range(60)]
        rows = [json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts)]
        (folder / "trees.jsonl").write_text("".join(rows))
    (folder / "claim.yaml").write_text(yaml.safe_dump(claim))
    return Visible(folder)
