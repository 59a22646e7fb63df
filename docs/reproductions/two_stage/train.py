"""Fine-tunes the three ways at ε = 1 and 8, and without noise; writes synthetic tables.

python docs/reproductions/two_stage/train.py [--seeds 3] [--first 0] [--quick] [--results F] [--tables F]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from fine_tuned import FIRST_STAGES, QUICK_TRAINING, TRAINING, FineTuned, described, fine_tuned
from households import QUICK, SIZE, path_of, setting, shown, split, write
from shared import arguments, runs

from dpassay.data.table_schema import Row
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.utility.row_perplexity import row_perplexities

FULL_SIZE = SIZE | {"training": TRAINING}
QUICK_SIZE = QUICK | {"training": QUICK_TRAINING}
_PERPLEXITY_ROWS = 500


def arms(size: dict[str, Any]) -> list[tuple[str, float | None]]:
    """(arm, ε) in the order of the table; None is without noise, for which one stage is enough."""
    return [*((arm, epsilon) for epsilon in size["epsilons"] for arm in FIRST_STAGES), ("DP-Standard", None)]


def run(tuned: FineTuned, size: dict[str, Any], seed: int, made: Path) -> dict[str, Any]:
    """Everything that is measured of a fine-tuned model."""
    _, unseen = split(size, seed)
    rows, statistics, seconds = tuned.rows(size["rows"])
    write(made, rows)
    said = row_perplexities(tuned.model, tuned.tokens, unseen[:_PERPLEXITY_ROWS], shuffle=True, seed=seed)
    cells = statistics.rows * len(tuned.tokens.keys)
    return {
        "noise_multiplier": tuned.mechanism.noise_multiplier,
        "perplexity_key": said.key,
        "perplexity_value": said.value,
        "perplexity_other": said.other,
        "valid_cells": statistics.valid[0] / cells,
        "complete_rows": statistics.complete[0] / statistics.rows,
        "restricted_cells": statistics.restricted / cells,
        "training_seconds": tuned.seconds,
        "sampling_seconds": seconds,
    }


def tables(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    """Of training: a row an arm."""
    rows = []
    keys = [
        *("noise_multiplier", "perplexity_key", "perplexity_value", "perplexity_other"),
        *("complete_rows", "valid_cells", "restricted_cells", "training_seconds", "sampling_seconds"),
    ]
    for arm, epsilon in arms(size):
        rows.append(
            {"arm": arm, "epsilon": shown(epsilon)} | {key: results.of(setting(arm, epsilon), key) for key in keys}
        )
    columns = [
        *({"title": title, "key": key} for title, key in (("arm", "arm"), ("ε", "epsilon"))),
        {"title": "noise", "key": "noise_multiplier"},
        {"title": "perplexity of keys", "key": "perplexity_key", "digits": 2},
        {"title": "of values", "key": "perplexity_value", "digits": 2},
        {"title": "of others", "key": "perplexity_other", "digits": 2},
        {"title": "rows complete at once", "key": "complete_rows"},
        {"title": "cells valid at once", "key": "valid_cells"},
        {"title": "cells restricted", "key": "restricted_cells"},
        {"title": "training, s", "key": "training_seconds", "digits": 0},
        {"title": "sampling, s", "key": "sampling_seconds", "digits": 0},
    ]
    return {"models": {"columns": columns, "rows": rows}}


def main() -> int:
    parser = arguments("Fine-tuned models and their tables.")
    options = parser.parse_args()
    size = QUICK_SIZE if options.quick else FULL_SIZE
    results = runs.Results(options.results / "training.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        private: list[Row] = split(size, seed)[0]
        with tempfile.TemporaryDirectory() as first:
            for arm, epsilon in arms(size):
                name = setting(arm, epsilon)
                if results.missing(name, seed):
                    mechanism = described(size, arm, epsilon, seed)
                    tuned = fine_tuned(mechanism, model, private, Path(first) / arm)
                    made = path_of(options.tables, seed, arm, epsilon)
                    results.add(name, seed, **run(tuned, size, seed, made))
        results.tables = tables(results, size)
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
