"""Noisy marginals beside OpenDP called directly, with equal ρ, levels and rows: how near both are to the table.

    python benchmarks/marginals_beside_opendp.py [--method mst] [--seeds 5] [--records 4096] [--rho 0.1] [--rounds 16]

Prints one line of JSON for each run and a summary. The seed chooses the private rows; noise is the operating system's.
OpenDP's own call is repeated with a little less ρ where it ends with an error because its shares exceed the budget; on
private data each such try would have to be paid. What both leave to the reader is the same: rows are drawn with
``method="sample"``, and values uniformly within their level.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, Table, builtin_table, schema_rows
from dpassay.mechanisms.marginals.generator import Marginals
from dpassay.mechanisms.marginals.levels import Levels
from dpassay.utility.tables import compare_tables

TRIES = 20


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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", choices=("mst", "aim"), default="mst")
    for name, default in (("seeds", 5), ("records", 4096), ("rows", 4096), ("bins", 20), ("rounds", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rho", type=float, default=0.1)
    given = parser.parse_args()
    mechanism = Marginals(
        rho=given.rho, method=given.method, bins=given.bins, rounds=given.rounds, rows=given.rows, model_megabytes=20.0
    )
    found: dict[str, list[list[float]]] = {"ours": [], "directly": []}
    for seed in range(given.seeds):
        rows = schema_rows(builtin_table("randhie", given.records, seed), RANDHIE)
        for name, make in (("ours", ours), ("directly", directly)):
            began, cpu = time.monotonic(), time.process_time()
            made, facts = make(dataclasses.replace(mechanism, seed=seed), rows)
            times = {"seconds": round(time.monotonic() - began, 1), "of processor": round(time.process_time() - cpu, 1)}
            near = compare_tables(RANDHIE, made, rows)
            assert near.pairs is not None
            found[name].append([near.histograms.bins_20, near.pairs.bins_20])
            print(
                json.dumps({"seed": seed, "by": name, "columns and pairs": found[name][-1], **facts, **times}),
                flush=True,
            )
    for name, numbers in found.items():
        array = np.array(numbers)
        spread = array.std(axis=0, ddof=1) if len(array) > 1 else np.full(2, np.nan)
        print(
            f"{name}: columns {array.mean(0)[0]:.4f} ± {spread[0]:.4f}, pairs {array.mean(0)[1]:.4f} ± {spread[1]:.4f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
