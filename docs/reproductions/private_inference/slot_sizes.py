"""How evenly clusters fill their slots, for each source of centres; nothing is generated.

    python docs/reproductions/private_inference/slot_sizes.py [--seeds 5] [--first 0] [--quick] [--results FOLDER]

A label's slots are split by noisy counts, of which those of centres that are not kept are added to the nearest kept
one. The rows "kept counts alone" show the split without that addition.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import runs
from numpy.typing import NDArray

import data
from dpassay.accounting.adjacency import Adjacency
from dpassay.mechanisms.embedding.centres import Centres, most_counted
from dpassay.mechanisms.primitives.counts import noisy_counts
from dpassay.mechanisms.private_inference.generator import PrivateInference

FULL = {"records": 1984, "batch_size": 31, "public_texts": 3000}
QUICK = {"records": 400, "batch_size": 10, "public_texts": 400}
LARGE = 10.0  # an ε at which counts are all but exact


@dataclass(frozen=True)
class Case:
    """Centres of what text, how many, how many each label keeps, and the ε of their counts."""

    source: data.CentreSource
    centres: int
    kept: int
    epsilon: float
    alone: bool = False

    @property
    def name(self) -> str:
        return data.CENTRE_NAMES[self.source] + (", kept counts alone" if self.alone else "")


CASES = (
    Case("private", 32, 16, LARGE),
    Case("private", 64, 32, LARGE),
    *(
        Case("same", *shape, alone)
        for shape in ((200, 16, LARGE), (200, 16, 0.1), (32, 8, 0.1))
        for alone in (False, True)
    ),
    *(Case("other", 200, 16, LARGE, alone) for alone in (False, True)),
)


def kept_alone(counts: NDArray[np.int64], kept: int) -> NDArray[np.int64]:
    """Counts with 0 for centres that are not kept; shape (labels, K)."""
    out = np.zeros_like(counts)
    for label, chosen in enumerate(most_counted(counts, kept)):
        out[label, chosen] = np.maximum(counts[label, chosen], 1)  # so that the same ones are kept
    return out


def sizes(case: Case, size: dict[str, int], seed: int) -> NDArray[np.int64]:
    """Records in each slot."""
    rows = data.topical(size["records"], seed)
    records, key = data.records(rows), runs.public_key(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "centres.safetensors"
        texts = data.centre_texts(case.source, rows, size["public_texts"], seed)
        Centres.fit(texts, case.centres, seed=seed).save(path)
        mechanism = PrivateInference(
            aggregate="mean",
            clip=runs.CLIP,
            temperature=runs.TEMPERATURE,
            batch_size=size["batch_size"],
            tokens=1,
            records=size["records"],
            labels=data.LABELS,
            centres=path,
            kept_centres=case.kept,
        )
        exact = mechanism.cluster_units(records, key)
        noisy = noisy_counts(exact.ravel(), epsilon=case.epsilon, adjacency=Adjacency.ADD_REMOVE).reshape(exact.shape)
        if case.alone:
            noisy = kept_alone(noisy, case.kept)
        batches = mechanism.batches(records, key, [list(map(int, row)) for row in noisy])
    found: NDArray[np.int64] = np.bincount(batches.assignment, minlength=mechanism.total_slots)
    return found


def row(case: Case, results: runs.Results) -> dict[str, Any]:
    """The numbers of all seeds in the table's row."""
    keys = ("low", "middle", "high", "starved", "crowded")
    numbers = {key: results.of(setting_of(case), key) for key in keys}
    return numbers | {"name": case.name, "centres": case.centres, "kept": 2 * case.kept, "epsilon": case.epsilon}


def setting_of(case: Case) -> str:
    """The name of a case in the results."""
    return f"{case.name}, {case.centres}, {case.kept}, {case.epsilon:g}"


def main() -> int:
    options = runs.arguments("How evenly clusters fill their slots, for each source of centres.").parse_args()
    size, cases = (QUICK, (Case("same", 8, 2, 1.0), Case("same", 8, 2, 1.0, True))) if options.quick else (FULL, CASES)
    results = runs.Results(options.results / "slot_sizes.json", size)
    for seed in range(options.first, options.first + options.seeds):
        for case in cases:
            if results.missing(setting_of(case), seed):
                found = sizes(case, size, seed)
                low, middle, high = map(float, np.quantile(found, (0.05, 0.5, 0.95)))
                starved = 100 * float((found < size["batch_size"] / 2).mean())
                crowded = 100 * float(found[found > 2 * size["batch_size"]].sum() / found.sum())
                results.add(setting_of(case), seed, low=low, middle=middle, high=high, starved=starved, crowded=crowded)
    columns = [
        {"title": "centres", "key": "name"},
        {"title": "of", "key": "centres"},
        {"title": "K", "key": "kept"},
        {"title": "ε of the counts", "key": "epsilon", "digits": 1},
        {"title": "records in a slot: 5%", "key": "low", "digits": 0},
        {"title": "50%", "key": "middle", "digits": 0},
        {"title": "95%", "key": "high", "digits": 0},
        {"title": "slots below B/2, %", "key": "starved", "digits": 0},
        {"title": "records in slots above 2B, %", "key": "crowded", "digits": 0},
    ]
    results.tables = {"slot_sizes": {"columns": columns, "rows": [row(case, results) for case in cases]}}
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
