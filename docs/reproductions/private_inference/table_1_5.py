"""Tables 1 and 5: batches of one cluster beside uniform ones, without a limit on the budget.

    python docs/reproductions/private_inference/table_1_5.py [--seeds 5] [--first 0] [--quick] [--results FOLDER]

Clusters of private k-means are not private; they show what clustering can give. An interrupted call is gone on with.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import measures
import runs

import data
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference


@dataclass(frozen=True)
class Setting:
    """How records are batched.

    Attributes:
        name: in the table.
        labels: whether a slot has one label only.
        kept: clusters of each label, or None.
        source: what text the centres are found in.
        centres: how many there are, or None for as many as are kept in all.
    """

    name: str
    labels: bool = True
    kept: int | None = None
    source: data.CentreSource = "private"
    centres: int | None = None


SETTINGS = (
    Setting("uniform", labels=False),
    Setting("labels"),
    Setting("8 clusters, private k-means", kept=4),
    Setting("32 clusters, private k-means", kept=16),
    Setting("64 clusters, private k-means", kept=32),
    Setting("32 clusters, public centres", kept=16, source="same", centres=200),
    Setting("32 clusters, centres of other text", kept=16, source="other", centres=200),
)
CLUSTERS = {setting.name: 2 * setting.kept if setting.kept else 1 + setting.labels for setting in SETTINGS}
FULL = {"records": 1984, "batch_size": 31, "tokens": 128, "public_texts": 3000, "held_out": 300, "test": 1000}
QUICK = {"records": 64, "batch_size": 8, "tokens": 80, "public_texts": 400, "held_out": 60, "test": 50}


def mechanism(setting: Setting, size: dict[str, int], centres: Path) -> PrivateInference:
    """A mean without a limit on its budget; counts of clusters are all but exact."""
    return PrivateInference(
        aggregate="mean",
        clip=runs.CLIP,
        temperature=runs.TEMPERATURE,
        batch_size=size["batch_size"],
        tokens=size["tokens"],
        records=size["records"],
        labels=data.LABELS if setting.labels else (),
        centres=None if setting.kept is None else centres,
        kept_centres=setting.kept,
        cluster_count_epsilon=10.0,
    )


def one(setting: Setting, size: dict[str, int], seed: int, model: LanguageModel) -> dict[str, Any]:
    """The numbers of one run."""
    rows = data.topical(size["records"], seed)
    test = data.topical(size["held_out"] + size["test"], seed, "held out")[size["held_out"] :]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centres.safetensors"
        if setting.kept is not None:
            texts = data.centre_texts(setting.source, rows, size["public_texts"], seed)
            Centres.fit(texts, setting.centres or 2 * setting.kept, seed=seed).save(path)
        run = runs.write(mechanism(setting, size, path), data.records(rows), model, seed=seed)
        epsilon = runs.planned_epsilon(run.mechanism)
    written = [(document.text, document.label) for document in run.documents]
    return measures.utility(written, rows, test, seed) | {"epsilon": epsilon, "seconds": run.seconds}


def table(results: runs.Results) -> dict[str, Any]:
    """The rows of real texts and of all settings."""
    rows = []
    for name in ("real texts", *CLUSTERS):
        row: dict[str, Any] = {"name": name, "clusters": CLUSTERS.get(name)}
        rows.append(row | {key: results.of(name, key) for key in (*measures.NAMES, "epsilon")})
    rows[0]["epsilon"] = None
    columns = [{"title": "batches from", "key": "name"}, {"title": "K", "key": "clusters"}, *measures.COLUMNS]
    return {"columns": [*columns, {"title": "ε of the plan", "key": "epsilon", "digits": 0}], "rows": rows}


def main() -> int:
    options = runs.arguments(
        "Tables 1 and 5: clustered and uniform batches without a limit on the budget."
    ).parse_args()
    size = QUICK if options.quick else FULL
    settings = SETTINGS if not options.quick else (SETTINGS[1], Setting(SETTINGS[2].name, kept=2))
    results = runs.Results(options.results / "table_1_5.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        if results.missing("real texts", seed):
            held_out = data.topical(size["held_out"] + size["test"], seed, "held out")
            texts, test = held_out[: size["held_out"]], held_out[size["held_out"] :]
            results.add("real texts", seed, **measures.utility(texts, data.topical(size["records"], seed), test, seed))
        for setting in settings:
            if results.missing(setting.name, seed):
                results.add(setting.name, seed, **one(setting, size, seed, model))
        results.tables = {"table_1_5": table(results)}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
