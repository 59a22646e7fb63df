"""Table evolution on RAND HIE beside real rows that no generator saw, independent columns, and AIM.

    python benchmarks/table_evolution.py [--seeds 5] [--quick] [--results FOLDER] [--only "AIM"]
    python benchmarks/fill_guides.py

A seed chooses half of the 20190 rows, which are private; the others are unused. Numbers are histogram intersections
with the private rows (`utility.tables`): the mean over columns and over pairs of columns, with numbers in 20 bins,
which are AIM's levels too, and over pairs in 50. AIM has its defaults of claims but for the levels, and needs the extra
``marginals``; it takes a minute or two a run. Finished runs are kept beside this file and not done again.

Independent columns are the private columns, each shuffled by itself, without any protection: what knows all single
columns and no pair.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "private_inference"))

from dpassay.accounting import Adjacency, ApproxDP, calibrate, gaussian
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, Table, randhie_rows
from dpassay.mechanisms.marginals.generator import Marginals
from dpassay.mechanisms.table_evolution.generator import TableEvolution
from dpassay.utility.tables import compare_tables

runs, tables = (importlib.import_module(name) for name in ("runs", "tables"))

DELTA = 1e-6
BINS = 20
EPSILONS = (1.0, 8.0)
Work: TypeAlias = Callable[[], Sequence[Row]]
UNUSED, INDEPENDENT = "real rows, unused", "independent columns, unprotected"


def released(mechanism: Any, rows: Sequence[Row]) -> Sequence[Row]:
    """Synthetic rows of a run in a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        result = mechanism.generate(Table(RANDHIE, rows, [str(index) for index in range(len(rows))]), run)
        run.finish()
    made: Sequence[Row] = result.rows
    return made


def evolved(rows: Sequence[Row], epsilon: float, seed: int) -> Sequence[Row]:
    """Rows of table evolution."""
    noise = gaussian.analytic_noise_multiplier(epsilon, DELTA)
    return released(TableEvolution(noise_multiplier=noise, records=len(rows), seed=seed), rows)


def aim(rows: Sequence[Row], epsilon: float, seed: int) -> Sequence[Row]:
    """Rows of AIM, with the defaults of claims but for the levels."""

    def mechanism(rho: float) -> Marginals:
        return Marginals(rho=rho, method="aim", bins=BINS, rows=len(rows), seed=seed)

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


def setting_of(generator: str, epsilon: float | None) -> str:
    return generator if epsilon is None else f"{generator}, ε = {epsilon:g}"


def works_of(
    rows: Sequence[Row], seed: int, count: int
) -> tuple[Sequence[Row], dict[str, Callable[[], Sequence[Row]]]]:
    """The private rows of a seed, at most `count`, and what makes the rows of each setting."""
    order = np.random.default_rng(seed).permutation(len(rows))
    private, unused = ([rows[index] for index in part[:count]] for part in np.array_split(order, 2))
    works: dict[str, Work] = {
        UNUSED: lambda: unused,
        INDEPENDENT: lambda: shuffled(private, seed),
    }
    for epsilon in EPSILONS:
        works[setting_of("table evolution", epsilon)] = lambda epsilon=epsilon: evolved(private, epsilon, seed)  # type: ignore[misc]
        works[setting_of("AIM", epsilon)] = lambda epsilon=epsilon: aim(private, epsilon, seed)  # type: ignore[misc]
    return private, works


def run_all(results: Any, seeds: Iterable[int], only: str) -> None:
    """The runs that are missing, of settings that have `only` in their name."""
    rows = [RANDHIE.row(cells) for cells in randhie_rows()]
    for seed in seeds:
        private, works = works_of(rows, seed, results.parameters["most_rows"])
        for setting, make in works.items():
            if only in setting and results.missing(setting, seed):
                results.add(setting, seed, **measured(make, private))


def measured(make: Work, private: Sequence[Row]) -> dict[str, Any]:
    """One run: how near its rows are to the private ones, and its seconds of processor time and of the clock."""
    began, cpu = time.monotonic(), time.process_time()
    made = make()
    times = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - began}
    found = compare_tables(RANDHIE, made, private)
    assert found.pairs is not None
    near = {"columns": found.histograms.bins_20, "pairs": found.pairs.bins_20, "pairs_50": found.pairs.bins_50}
    return {"rows": len(made)} | near | times


def tables_of(results: Any) -> dict[str, Any]:
    """How near each setting is, and table evolution as a share of AIM, seed by seed."""
    near = {"generator": "rows", "columns": "columns", "pairs": "pairs", "pairs_50": "pairs, 50 bins", "cpu": "CPU, s"}
    settings = dict.fromkeys(run["setting"] for run in results.runs)
    rows = []
    for setting in sorted(settings, key=lambda name: (not name.startswith(("real", "independent")), name)):
        of = {key: tables.interval(results.of(setting, key)) for key in near if key != "generator"}
        alone = setting in (UNUSED, INDEPENDENT)
        rows.append({"generator": setting, **of} | ({"cpu": None} if alone else {}))
    shares = {"epsilon": "ε", "columns": "columns", "pairs": "pairs", "pairs_50": "pairs, 50 bins", "cpu": "CPU time"}
    beside = [
        {"epsilon": f"{epsilon:g}"} | {key: shares_of(results, epsilon, key) for key in shares if key != "epsilon"}
        for epsilon in EPSILONS
    ]
    return {
        "near_private_rows": tables.table(near, rows, cpu=1),
        "beside_aim": tables.table(shares, beside),
    }


def shares_of(results: Any, epsilon: float, key: str) -> Any:
    """Table evolution over AIM, of the seeds that both have."""
    both = [
        {run["seed"]: run[key] for run in results.runs if run["setting"] == setting_of(generator, epsilon)}
        for generator in ("table evolution", "AIM")
    ]
    return tables.interval([both[0][seed] / both[1][seed] for seed in sorted(both[0].keys() & both[1].keys())])


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=5, results=Path(__file__).parent)
    parser.add_argument("--only", default="", metavar="NAME", help='settings that have NAME in them, such as "AIM"')
    given = parser.parse_args()
    name, most = ("table_evolution_quick", 300) if given.quick else ("table_evolution", 20_190)
    results = runs.Results(given.results / f"{name}.json", {"delta": DELTA, "bins": BINS, "most_rows": most})
    try:
        run_all(results, range(given.first, given.first + given.seeds), given.only)
    finally:
        tables.keep(results, tables_of(results))


if __name__ == "__main__":
    main()
