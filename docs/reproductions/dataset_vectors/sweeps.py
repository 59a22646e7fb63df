"""Figures 5, 6, 8 and 9: records, ε, temperature, and β with blocks. Without shots, so that nothing else varies.

python docs/reproductions/dataset_vectors/sweeps.py [--seeds 3] [--first 0] [--quick] [--results FOLDER]
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shared import arguments, runs
from steered import SIZE, Released, difference, measured, notes, released

from dpassay.mechanisms.dataset_vectors.release import directions
from dpassay.mechanisms.models.language_model import LanguageModel

FULL = SIZE | {
    "epsilon": 5.0,
    "epsilons": [0.5, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, None],
    "of_records": [50, 200, 500, 1000, 4000],
    "temperatures": [0.7, 1.0, 1.3, 1.6],
    "coefficients": [5.0, 20.0, 40.0, 80.0],
    "blocks": [[0], [1], [2], [3]],
}
QUICK = FULL | {
    "records": 60,
    "texts": 6,
    "candidates": 4,
    "negatives": 6,
    "longest": 16,
    "epsilons": [5.0, None],
    "of_records": [50],
    "temperatures": [1.0],
    "coefficients": [20.0],
    "blocks": [[1]],
}


@dataclass(frozen=True)
class Setting:
    """A point of a sweep."""

    sweep: str
    value: str
    size: dict[str, Any]
    epsilon: float | None
    coefficient: float
    blocks: tuple[int, ...] | None = None

    @property
    def name(self) -> str:
        return f"{self.sweep}: {self.value}"


def settings(size: dict[str, Any]) -> Iterator[Setting]:
    """All points."""
    beta, epsilon = size["coefficient"], size["epsilon"]
    for one in size["epsilons"]:
        yield Setting("epsilon", "∞" if one is None else f"{one:g}", size, one, beta)
    for records in size["of_records"]:
        yield Setting("records", str(records), size | {"records": records}, epsilon, beta)
    for temperature in size["temperatures"]:
        yield Setting("temperature", f"{temperature:g}", size | {"temperature": temperature}, epsilon, beta)
    for blocks in size["blocks"]:
        for coefficient in size["coefficients"]:
            value = f"block {blocks[0]}, β = {coefficient:g}"
            yield Setting("steering", value, size, epsilon, coefficient, tuple(blocks))


def one(setting: Setting, seed: int, model: LanguageModel) -> dict[str, Any]:
    """A run with vectors, the same texts without, and how near the noisy direction is to the clean one."""
    size = setting.size
    records, _ = notes(size, seed)
    noisy, clean = (_run(model, setting, epsilon, seed) for epsilon in (setting.epsilon, None))
    found = measured(noisy.steered(size["texts"], seed, setting.coefficient), records, seed)
    plain = measured(noisy.plain(size["texts"], seed), records, seed)
    pair = [directions(each.vectors.labels[0].means) for each in (noisy, clean)]
    cosine = float((pair[0] * pair[1]).sum(axis=1).mean())
    return found | {"plain": plain["frechet"], "cosine": cosine}


_RUNS: dict[str, Released] = {}


def _run(model: LanguageModel, setting: Setting, epsilon: float | None, seed: int) -> Released:
    """A run, which points of a sweep share that have it in common."""
    key = repr((setting.size, epsilon, setting.blocks, seed))
    if key not in _RUNS:
        records, _ = notes(setting.size, seed)
        given = math.inf if epsilon is None else epsilon
        _RUNS[key] = released(model, records, setting.size, seed, epsilon=given, shots=0, blocks=setting.blocks)
    return _RUNS[key]


TITLES = {"epsilon": "ε", "records": "records", "temperature": "temperature", "steering": "steering"}


def table(results: runs.Results, size: dict[str, Any], sweep: str) -> dict[str, Any]:
    """A row a point."""
    rows = []
    for setting in settings(size):
        if setting.sweep == sweep:
            found = {key: results.of(setting.name, key) for key in ("frechet", "plain", "cosine", "in_grammar")}
            less = difference(found["frechet"], found["plain"])
            rows.append({"value": setting.value, "less": less} | found)
    columns = [
        {"title": TITLES[sweep], "key": "value"},
        {"title": "cosine to the clean direction", "key": "cosine"},
        {"title": "Fréchet", "key": "frechet"},
        {"title": "without vectors", "key": "plain"},
        {"title": "difference (95%)", "key": "less"},
        {"title": "in grammar", "key": "in_grammar", "digits": 2},
    ]
    return {"columns": columns, "rows": rows}


def main() -> int:
    options = arguments("Figures 5, 6, 8 and 9.").parse_args()
    size = QUICK if options.quick else FULL
    results = runs.Results(options.results / "sweeps.json", size)
    model = LanguageModel.load(device="cpu")
    for seed in range(options.first, options.first + options.seeds):
        for setting in settings(size):
            if results.missing(setting.name, seed):
                results.add(setting.name, seed, **one(setting, seed, model))
        results.tables = {sweep: table(results, size, sweep) for sweep in TITLES}
        results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
