"""Noisy marginals beside OpenDP called directly, with equal ρ, levels and rows: how near both are to the table.

    python benchmarks/marginals_beside_opendp.py [--seeds 5] [--quick] [--results FOLDER] [--only MST]
    python benchmarks/fill_guides.py

The seed chooses the private rows, and of dpassay's run how rows are drawn from the model; noise is the operating
system's. OpenDP's own call is repeated with a little less ρ where it ends with an error because its shares exceed the
budget; on private data each such try would have to be paid. What both leave to the reader is the same: rows are drawn
with ``method="sample"``, and values uniformly within their level. Finished runs are kept beside this file.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import importlib
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "private_inference"))

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, Table, builtin_table, schema_rows
from dpassay.mechanisms.marginals.generator import Marginals
from dpassay.mechanisms.marginals.levels import Levels
from dpassay.utility.tables import compare_tables

runs, tables = (importlib.import_module(name) for name in ("runs", "tables"))

TRIES = 20
FULL = {"records": 4096, "rows": 4096, "bins": 20, "rho": 0.1}
QUICK = FULL | {"records": 200, "rows": 200, "bins": 4}


def ours(mechanism: Marginals, rows: Sequence[Row]) -> tuple[Sequence[Row], dict[str, Any]]:
    """Synthetic rows of a run in a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        table = Table(RANDHIE, rows, [str(index) for index in range(len(rows))])
        result = mechanism.generate(table, run)
        run.finish()
    return result.rows, {"tries": 1, "marginals": len(result.marginals)}


def directly(mechanism: Marginals, rows: Sequence[Row]) -> tuple[Sequence[Row], dict[str, Any]]:
    """Synthetic rows of OpenDP, called as its guide says."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    levels = Levels(RANDHIE, mechanism.bins)
    frame = {name: own.astype(np.uint32) for name, own in zip(RANDHIE.names, levels.of(rows), strict=True)}
    cuts = {name: list(range(size - 1)) for name, size in zip(RANDHIE.names, levels.sizes, strict=True)}
    aim = {"queries": mechanism.degree, "rounds": mechanism.rounds, "max_size": mechanism.model_megabytes}
    rho, tries = mechanism.rho, 0
    while True:
        tries += 1
        context = dp.Context.compositor(
            data=pl.LazyFrame(frame),
            privacy_unit=dp.unit_of(contributions=mechanism.contributions),
            privacy_loss=(dp.zero_concentrated_divergence(), rho),
        )
        algorithm = dp.mbi.MST() if mechanism.method == "mst" else dp.mbi.AIM(**aim)
        try:
            table = context.query(rho=rho).contingency_table(cuts=cuts, algorithm=algorithm).release()
            break
        except dp.OpenDPException:
            if tries == TRIES:
                raise
            rho *= 1 - 1e-6
    drawn = table.model.synthetic_data(mechanism.rows, "sample").to_dict()
    made = levels.rows([np.asarray(drawn[name], dtype=np.int64) for name in RANDHIE.names], np.random.default_rng())
    return made, {"tries": tries, "marginals": len(table.marginals.flatten())}


WAYS = {"dpassay": ours, "OpenDP": directly}


def run_all(results: Any, seeds: Iterable[int], only: str) -> None:
    """The runs that are missing, of settings that have `only` in their name."""
    size = results.parameters
    for seed in seeds:
        rows = schema_rows(builtin_table("randhie", size["records"], seed), RANDHIE)
        for method in ("mst", "aim"):
            for by, make in WAYS.items():
                setting = f"{method.upper()}, {by}"
                if only in setting and results.missing(setting, seed):
                    own = {key: size[key] for key in ("rows", "bins", "rho")}
                    mechanism = Marginals(method=method, model_megabytes=20.0, seed=seed, **own)
                    began, cpu = time.monotonic(), time.process_time()
                    made, facts = make(mechanism, rows)
                    times = {"cpu": time.process_time() - cpu, "seconds": time.monotonic() - began}
                    near = compare_tables(RANDHIE, made, rows)
                    assert near.pairs is not None
                    found = {"columns": near.histograms.bins_20, "pairs": near.pairs.bins_20}
                    results.add(setting, seed, **found, **facts, **times)


def tables_of(results: Any) -> dict[str, Any]:
    """Means over seeds with their intervals, and the difference of both, seed by seed."""
    keys = ("columns", "pairs", "tries", "cpu")
    titles = {"run": "run", "columns": "columns", "pairs": "pairs", "tries": "tries", "cpu": "CPU, s"}
    rows = []
    for method in ("MST", "AIM"):
        found = [{key: results.of(f"{method}, {by}", key) for key in keys} for by in WAYS]
        for by, of in zip(WAYS, found, strict=True):
            rows.append({"run": f"{method}, {by}", **{key: tables.interval(of[key]) for key in keys}})
        apart = {key: [one - other for one, other in zip(*(of[key] for of in found), strict=False)] for key in keys[:2]}
        rows.append({"run": f"{method}, difference", **{key: tables.interval(values) for key, values in apart.items()}})
    return {"marginals_beside_opendp": tables.table(titles, rows, columns=4, pairs=4, tries=1, cpu=0)}


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=5, results=Path(__file__).parent)
    parser.add_argument("--only", default="", metavar="NAME", help="settings that have NAME in them, such as MST")
    given = parser.parse_args()
    name, size = ("marginals_beside_opendp_quick", QUICK) if given.quick else ("marginals_beside_opendp", FULL)
    results = runs.Results(given.results / f"{name}.json", size)
    try:
        run_all(results, range(given.first, given.first + given.seeds), given.only)
    finally:
        tables.keep(results, tables_of(results))


if __name__ == "__main__":
    main()
