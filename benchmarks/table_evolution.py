"""Table evolution on RAND HIE beside real rows that no generator saw, independent columns, and AIM.

    python benchmarks/table_evolution.py [--seeds 3] [--epsilons 1,8] [--aim] [--levels 40] …

A seed chooses half of the 20190 rows, which are private; the others are unused. Numbers are total variation distances
from the private rows: the mean over columns, and over pairs of columns, numbers in 20 and in 50 bins
(`utility.tables`), each with the half width of a 95 % interval (Student's t over seeds). `--aim` needs the extra
``marginals`` and takes minutes a run. Prints one line of JSON for each run, and a table in Markdown.

Independent columns are the private columns, each shuffled by itself, without any protection: what knows all single
columns and no pair.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

from dpassay.accounting import Adjacency, ApproxDP, calibrate, gaussian
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, Table, randhie_rows
from dpassay.mechanisms.table_evolution.generator import TableEvolution
from dpassay.utility.tables import compare_tables

DELTA = 1e-6


def released(mechanism: Any, rows: Sequence[Row]) -> Sequence[Row]:
    """Synthetic rows of a run in a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        result = mechanism.generate(Table(RANDHIE, rows, [str(index) for index in range(len(rows))]), run)
        run.finish()
    made: Sequence[Row] = result.rows
    return made


def evolved(rows: Sequence[Row], epsilon: float, seed: int, options: Mapping[str, Any]) -> Sequence[Row]:
    """Rows of table evolution."""
    noise = gaussian.analytic_noise_multiplier(epsilon, DELTA)
    return released(TableEvolution(noise_multiplier=noise, records=len(rows), seed=seed, **options), rows)


def aim(rows: Sequence[Row], epsilon: float, seed: int) -> Sequence[Row]:
    """Rows of AIM, with the defaults of claims."""
    from dpassay.mechanisms.marginals.generator import Marginals

    def mechanism(rho: float) -> Marginals:
        return Marginals(rho=rho, method="aim", rows=len(rows), seed=seed)

    found = calibrate(
        lambda rho: mechanism(rho).plan(),
        ApproxDP(epsilon, DELTA),
        adjacency=Adjacency.ADD_REMOVE,
        decreasing=False,
        bracket=(1e-5, 100.0),
    )
    return released(mechanism(float(found.value)), rows)


def shuffled(rows: Sequence[Row], seed: int) -> Sequence[Row]:
    """The columns of rows, each in another order."""
    rng = np.random.default_rng([seed, 1])
    return list(zip(*(rng.permutation(column).tolist() for column in zip(*rows, strict=True)), strict=True))


def measured(name: str, seed: int, make: Callable[[], Sequence[Row]], private: Sequence[Row]) -> dict[str, Any]:
    """One run: distances from the private rows, and seconds of CPU time and of the clock."""
    began, cpu = time.monotonic(), time.process_time()
    made = make()
    times = {"cpu": time.process_time() - cpu, "wall": time.monotonic() - began}
    found = compare_tables(RANDHIE, made, private)
    assert found.pairs is not None
    distances = {"columns": 1 - found.histograms.mean, "pairs": 1 - found.pairs.mean}
    return {"generator": name, "seed": seed, "rows": len(made)} | distances | times


def interval(values: Sequence[float]) -> str:
    """The mean and the half width of its 95 % interval."""
    mean, count = statistics.fmean(values), len(values)
    if count < 2:
        return f"{mean:.4f}"
    half = float(student.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count)
    return f"{mean:.4f} ± {half:.4f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--epsilons", default="1,8")
    parser.add_argument("--aim", action="store_true")
    for name in ("rounds", "levels", "generations"):
        parser.add_argument(f"--{name}", type=int, default=getattr(TableEvolution(noise_multiplier=1, records=1), name))
    given = parser.parse_args()
    options = {name: getattr(given, name) for name in ("rounds", "levels", "generations")}
    rows = [RANDHIE.row(cells) for cells in randhie_rows()]
    results: list[dict[str, Any]] = []
    for seed in range(given.first, given.first + given.seeds):
        order = np.random.default_rng(seed).permutation(len(rows))
        private, unused = ([rows[index] for index in part] for part in np.array_split(order, 2))
        works: dict[str, Callable[[], Sequence[Row]]] = {
            "real rows, unused": lambda unused=unused: unused,  # type: ignore[misc]
            "independent columns, unprotected": lambda private=private, seed=seed: shuffled(private, seed),  # type: ignore[misc]
        }
        for epsilon in map(float, given.epsilons.split(",")):
            works[f"table evolution, ε = {epsilon:g}"] = (
                lambda private=private, epsilon=epsilon, seed=seed: evolved(private, epsilon, seed, options)  # type: ignore[misc]
            )
            if given.aim:
                works[f"AIM, ε = {epsilon:g}"] = lambda private=private, epsilon=epsilon, seed=seed: aim(  # type: ignore[misc]
                    private, epsilon, seed
                )
        for name, make in works.items():
            results.append(measured(name, seed, make, private))
            print(json.dumps(results[-1], ensure_ascii=False), flush=True)
    print("| generator | columns | pairs | CPU seconds |\n| --- | --- | --- | --- |")
    for name in dict.fromkeys(item["generator"] for item in results):
        own = [item for item in results if item["generator"] == name]
        columns, pairs = (interval([item[key] for item in own]) for key in ("columns", "pairs"))
        print(f"| {name} | {columns} | {pairs} | {statistics.fmean(item['cpu'] for item in own):.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
