"""What slots write by how many records they have, in one of the runs of Tables 1 and 5.

python docs/reproductions/private_inference/grammar_by_size.py [--seeds 3] [--first 0] [--quick] [--results FOLDER]
"""

from __future__ import annotations

import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import runs
import table_1_5
from grammar import in_grammar

import data
from dpassay.mechanisms.embedding.centres import Centres
from dpassay.mechanisms.models.language_model import LanguageModel

SETTING = next(setting for setting in table_1_5.SETTINGS if setting.kept == 32)
EDGES = (0.0, 0.5, 0.75, 1.0, 1.5)
"""Lower ends of the ranges of slot sizes, over the batch size."""
NAMES = [f"{low:g} B to {high:g} B" for low, high in pairwise(EDGES)] + [f"{EDGES[-1]:g} B and more"]


def by_size(size: dict[str, int], seed: int, model: LanguageModel) -> dict[str, dict[str, Any]]:
    """For each range of sizes: how many slots and documents there are, and the share of documents in grammar."""
    rows = data.topical(size["records"], seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centres.safetensors"
        texts = data.centre_texts(SETTING.source, rows, size["public_texts"], seed)
        assert SETTING.kept is not None
        Centres.fit(texts, 2 * SETTING.kept, seed=seed).save(path)
        run = runs.write(table_1_5.mechanism(SETTING, size, path), data.records(rows), model, seed=seed)
    own = np.searchsorted(np.array(EDGES) * size["batch_size"], run.generation.slot_sizes, side="right") - 1
    of = own[[document.slot for document in run.documents]]
    good = np.array([in_grammar(document.text) for document in run.documents])
    return {
        name: {
            "slots": int((own == number).sum()),
            "documents": int((of == number).sum()),
            "in_grammar": float(good[of == number].mean()) if (of == number).any() else None,
        }
        for number, name in enumerate(NAMES)
    }


def main() -> int:
    options = runs.arguments("What slots write by how many records they have.").parse_args()
    size = table_1_5.FULL if not options.quick else {**table_1_5.QUICK, "records": 512}
    results = runs.Results(options.results / "grammar_by_size.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        if results.missing(NAMES[-1], seed):
            for name, found in by_size(size, seed, model).items():
                results.add(name, seed, **found)
    columns = [
        {"title": "records in the slot", "key": "name"},
        {"title": "slots", "key": "slots", "digits": 0},
        {"title": "documents", "key": "documents", "digits": 0},
        {"title": "in grammar", "key": "in_grammar"},
    ]
    rows: list[dict[str, Any]] = []
    for name in NAMES:
        row = {key: results.of(name, key) for key in ("slots", "documents", "in_grammar")}
        row["in_grammar"] = [share for share in row["in_grammar"] if share is not None]  # a seed may have no such slot
        rows.append(row | {"name": name})
    results.tables = {"grammar_by_size": {"columns": columns, "rows": rows}}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
