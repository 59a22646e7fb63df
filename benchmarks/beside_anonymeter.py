"""The attacks of `dpassay audit table` beside those of Anonymeter, on the same tables with the same settings.

    python benchmarks/beside_anonymeter.py --anonymeter PYTHON [--seeds 3] [--quick] [--results FOLDER]
    python benchmarks/fill_guides.py

PYTHON is the interpreter of an environment that has ``anonymeter`` (1.1.0), whose numpy is older; only files cross.
Rows of RAND HIE, all different: one sample is the source, one the holdout, and a third one is of neither. Three
synthetic tables: half of it copied from the source, every row of the source with two cells of another row, and new
rows. Every row is attacked, with the same columns. The intervals of dpassay hold jointly for all attacks on a table,
those of Anonymeter each by itself, so its formulas are also applied to dpassay's counts. Finished runs are kept beside
this file.
"""

from __future__ import annotations

import one_thread  # noqa: F401  # isort: skip

import csv
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs" / "reproductions" / "private_inference"))

from dpassay.attacks.released.singling_out import ATTEMPTS, COLUMNS
from dpassay.auditing.released.run import audit_table
from dpassay.data.tables import randhie_rows

runs, tables = (importlib.import_module(name) for name in ("runs", "tables"))

WORKER = Path(__file__).with_name("beside_anonymeter_worker.py")
SECRETS = ("health", "expenditure")
LINK = ("visits", "coinsurance", "deductible", "incentive")
FULL = {"rows": 500, "secrets": list(SECRETS), "link": list(LINK), "predicates": ATTEMPTS, "columns": COLUMNS}
QUICK = FULL | {"rows": 60}
SYNTHETIC = ("half copied", "two cells changed", "new rows")
ATTACKS = {
    "linkability": "linkability",
    "attribute_inference (health)": "inference of health",
    "attribute_inference (expenditure)": "inference of expenditure",
    "one column": "singling out, one column",
    "several columns": "singling out, several",
}
"""Attacks of dpassay, and what they are called here."""

Rows = Sequence[Mapping[str, Any]]


def samples(count: int, seed: int) -> tuple[Rows, Rows, Rows]:
    """Source, holdout and other rows, all different."""
    different = list({tuple(row.items()): row for row in randhie_rows()}.values())
    picked = np.random.default_rng(seed).choice(len(different), size=3 * count, replace=False)
    source, holdout, others = ([different[index] for index in part] for part in np.split(picked, 3))
    return source, holdout, others


def synthetic(kind: str, source: Rows, others: Rows, seed: int) -> Rows:
    """A synthetic table of as many rows as the source."""
    rng = np.random.default_rng(seed)
    if kind == "new rows":
        return others
    if kind == "half copied":
        return [*source[: len(source) // 2], *others[len(source) // 2 :]]
    names = list(source[0])
    changed = []
    for row in source:
        other = source[int(rng.integers(len(source)))]
        changed.append({**row, **{name: other[name] for name in rng.choice(names, size=2, replace=False)}})
    return changed


def write(path: Path, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(rows[0]))
        out.writeheader()
        out.writerows(rows)


def ours(folder: Path, settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Counts, risk and its interval of each attack of dpassay."""
    result = audit_table(
        folder / "synthetic.csv",
        source=folder / "source.csv",
        holdout=folder / "holdout.csv",
        secret=settings["secrets"],
        link=settings["link"],
        categorical=["coinsurance"],
    )
    found: dict[str, dict[str, Any]] = {}
    for audit in result.audits:
        if audit.name in ATTACKS:
            risk = audit.details["risk"]
            first, other = audit.rates[:2]
            found[ATTACKS[audit.name]] = {"risk": risk["value"], "interval": risk["interval"], **_counted(first, other)}
        if audit.name == "singling_out":
            named = {rate.name: rate for rate in audit.rates}
            for kind in ("one column", "several columns"):
                first, other = (
                    next(rate for name, rate in named.items() if name.startswith(f"{kind}:") and f" {side} " in name)
                    for side in ("source", "holdout")
                )
                found[ATTACKS[kind]] = {"risk": None, "interval": None, **_counted(first, other)}
    return found


def _counted(first: Any, other: Any) -> dict[str, Any]:
    """The rates of both sides, and the counts in the order of the worker."""
    return {
        "source": first.hits / first.trials,
        "holdout": other.hits / other.trials,
        "counts": [first.hits, first.trials, other.hits, other.trials],
    }


def run_all(results: Any, python: Path, seeds: Iterable[int]) -> None:
    """The runs that are missing."""
    settings = results.parameters
    for seed in seeds:
        source, holdout, others = samples(settings["rows"], seed)
        for kind in SYNTHETIC:
            if not results.missing(kind, seed):
                continue
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                for file, rows in (
                    ("synthetic", synthetic(kind, source, others, seed)),
                    ("source", source),
                    ("holdout", holdout),
                ):
                    write(folder / f"{file}.csv", rows)
                found = ours(folder, settings)
                counts = {attack: of["counts"] for attack, of in found.items()}
                (folder / "settings.json").write_text(json.dumps({**settings, "counts": counts}), encoding="utf-8")
                command = [str(python), str(WORKER), str(folder)]
                printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                theirs = json.loads(printed.splitlines()[-1])
                results.add(kind, seed, dpassay=found, anonymeter=theirs)


def tables_of(results: Any) -> dict[str, Any]:
    """A row for each table and attack: rates and risks of both, of the first seed, and the largest differences."""
    titles = {
        "table": "synthetic table",
        "attack": "attack",
        "ours": "dpassay: source, holdout",
        "theirs": "Anonymeter: source, holdout",
        "risk": "risk, dpassay",
        "other": "risk, Anonymeter",
        "formula": "Anonymeter's risk of dpassay's counts",
    }
    rows = []
    for kind in SYNTHETIC:
        ours_, theirs = (results.of(kind, name) for name in ("dpassay", "anonymeter"))
        if not ours_:
            continue
        for attack in ATTACKS.values():
            pairs = [(mine[attack], other[attack]) for mine, other in zip(ours_, theirs, strict=True)]
            rows.append(
                {
                    "table": kind,
                    "attack": attack,
                    "ours": _rates([mine for mine, _ in pairs]),
                    "theirs": _rates([other for _, other in pairs]),
                    "risk": _risk(pairs[0][0]),
                    "other": _risk(pairs[0][1]),
                    "formula": _risk(pairs[0][1]["of_counts"]),
                }
            )
    return {"beside_anonymeter": tables.table(titles, rows)}


def _rates(found: Sequence[Mapping[str, Any]]) -> str:
    """Mean rates of source and holdout over seeds."""
    return ", ".join(f"{np.mean([of[side] for of in found]):.3f}" for side in ("source", "holdout"))


def _risk(found: Mapping[str, Any]) -> str:
    """A risk and its interval; a dash where there is none."""
    if found["risk"] is None:
        return "–"
    ends = ("" if end is None else tables.number(end, 2) for end in found["interval"])
    return f"{tables.number(found['risk'], 2)} ({' to '.join(ends)})"


def main() -> None:
    parser = runs.arguments(__doc__.splitlines()[0])
    parser.set_defaults(seeds=3, results=Path(__file__).parent)
    parser.add_argument("--anonymeter", type=Path, required=True, help="interpreter of an environment with anonymeter")
    given = parser.parse_args()
    name, size = ("beside_anonymeter_quick", QUICK) if given.quick else ("beside_anonymeter", FULL)
    results = runs.Results(given.results / f"{name}.json", size)
    try:
        run_all(results, given.anonymeter, range(given.first, given.first + given.seeds))
    finally:
        tables.keep(results, tables_of(results))


if __name__ == "__main__":
    main()
