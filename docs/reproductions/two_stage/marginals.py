"""Table 8: two marginal-based generators, AIM and MST of OpenDP; writes synthetic tables for `compare.py`.

    python docs/reproductions/two_stage/marginals.py [--seeds 3] [--first 0] [--quick] [--results F] [--tables F]

Needs an environment of its own with dpassay and ``opendp[mbi]==0.16.0``. Numbers have 20 public bins of equally many
values; a synthetic value is uniform in its bin.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import opendp.prelude as dp
import polars as pl
from households import DELTA, MARGINALS, QUICK, SIZE, path_of, setting, shown, split, write
from scipy.optimize import brentq
from shared import arguments, runs

from dpassay.accounting.conversions.formulas import epsilon_from_zcdp
from dpassay.data.table_schema import CategoryColumn, Row
from dpassay.data.tables import RANDHIE
from dpassay.utility.tables import Places

BINS = 20
AIM: dict[str, Any] = {"queries": 2, "max_size": 20.0, "rounds": 16}
"""Pairs of columns as queries, a model of at most 20 MB, 16 rounds. With the defaults it takes half an hour."""


def rho_of(epsilon: float) -> float:
    """The largest ρ that is within (ε, δ), up to a part in 10⁹ on the safe side."""
    return float(brentq(lambda rho: epsilon_from_zcdp(rho, DELTA) - epsilon, 1e-9, 100.0)) * (1 - 1e-9)


def synthetic(algorithm: str, rho: float, private: Sequence[Row], count: int, seed: int) -> list[Row]:
    """Rows of a ρ-zCDP generator, if a row is added or removed."""
    places = Places(RANDHIE, private)
    binned = [places.binned(index, BINS) for index in range(len(RANDHIE.columns))]
    context = dp.Context.compositor(
        data=pl.LazyFrame({name: codes for name, (codes, _) in zip(RANDHIE.names, binned, strict=True)}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
    )
    query = context.query(rho=rho).contingency_table(
        keys={name: range(bins) for name, (_, bins) in zip(RANDHIE.names, binned, strict=True)},
        algorithm=dp.mbi.AIM(**AIM) if algorithm == "AIM" else dp.mbi.MST(),
    )
    # "round", the default, makes associations that the model of mbi 1.1.0 does not have.
    made = query.release().synthesize(count, "sample")
    rng, columns = np.random.default_rng(seed), []
    for column, codes, (_, bins) in zip(RANDHIE.columns, made.get_columns(), binned, strict=True):
        found = np.array([rng.integers(bins) if code is None else code for code in codes.to_list()])
        low, high = (-(-(found + end) * column.size // bins) for end in (0, 1))  # the places of a bin
        columns.append([word_at(column, int(place)) for place in rng.integers(low, high)])
    return list(zip(*columns, strict=True))


def retried(
    algorithm: str, rho: float, private: Sequence[Row], count: int, seed: int
) -> tuple[list[Row], dict[str, Any]]:
    """Rows, and what was measured.

    OpenDP may end with an error, where the parts of a query add up to more than ρ by rounding. It is then tried with a
    little less; on data that are private each try would have to be paid.
    """
    for tries in range(1, 6):
        start = time.perf_counter()
        try:
            rows = synthetic(algorithm, rho, private, count, seed)
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
            rho *= 1 - 1e-6
        else:
            return rows, {"rho": rho, "seconds": time.perf_counter() - start, "tries": tries}
    raise RuntimeError(f"{algorithm} ended with errors in {tries} tries")


def word_at(column: Any, place: int) -> str:
    """The word at a place of a column's domain."""
    if isinstance(column, CategoryColumn):
        return column.values[place]
    word: str = column.word(column.low + place / 10**column.decimals)
    return word


def tables(results: runs.Results, size: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"algorithm": name, "epsilon": shown(epsilon)}
        | {key: results.of(setting(name, epsilon), key) for key in ("rho", "seconds", "tries")}
        for epsilon in size["epsilons"]
        for name in MARGINALS
    ]
    titles = {"algorithm": "algorithm", "epsilon": "ε", "rho": "ρ", "seconds": "seconds", "tries": "tries"}
    columns = [{"title": title, "key": key, "digits": 5 if key == "rho" else 0} for key, title in titles.items()]
    return {"marginals": {"columns": columns, "rows": rows}}


def main() -> int:
    options = arguments("Table 8: AIM and MST.").parse_args()
    dp.enable_features("contrib")
    size = QUICK if options.quick else SIZE
    results = runs.Results(options.results / "marginals.json", size | {"bins": BINS} | AIM)
    for seed in range(options.first, options.first + options.seeds):
        private, _ = split(size, seed)
        for epsilon in size["epsilons"]:
            for name in MARGINALS:
                if results.missing(setting(name, epsilon), seed):
                    rows, found = retried(name, rho_of(epsilon), private, size["rows"], seed)
                    write(path_of(options.tables, seed, name, epsilon), rows)
                    results.add(setting(name, epsilon), seed, **found)
    results.tables = tables(results, size)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
