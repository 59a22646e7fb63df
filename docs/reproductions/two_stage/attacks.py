"""What synthetic tables repeat of private rows: dpassay's audit of a release, and Anonymeter's three risks.

    python docs/reproductions/two_stage/attacks.py --anonymeter PYTHON [--seeds 3] [--quick] [--results FOLDER]

PYTHON is the interpreter of an environment that has ``anonymeter``, whose numpy is older; only files cross. Runs after
`train.py` and `marginals.py`, whose tables it reads.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from households import QUICK, SIZE, TARGET, path_of, read, setting, shown, split
from shared import HERE, arguments, runs

from dpassay.auditing.released.design import TableAuditSettings
from dpassay.auditing.released.run import audit_rows
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE

COPIES = "private rows, copied"
ARMS: list[tuple[str, float | None]] = [
    (COPIES, None),
    ("DP-Standard", None),
    ("DP-2Stage-U", 8.0),
    ("DP-2Stage-U", 1.0),
    ("AIM", 8.0),
    ("AIM", 1.0),
]
NAMES = {
    "exact_match": "equal rows",
    "closest_record": "nearest rows",
    "attribute_inference": "target guessed",
    "singling_out": "singled out",
}
LEVEL = 0.05
"""Of all attacks of a tool on a table together; Anonymeter has it for each."""


def rows_of(arm: str, epsilon: float | None, size: dict[str, Any], seed: int, tables: Path) -> Sequence[Row]:
    """The rows of a synthetic table, or as many private ones."""
    if arm == COPIES:
        return split(size, seed)[0][: size["rows"]]
    return read(path_of(tables, seed, arm, epsilon))


def cells(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(RANDHIE.names, RANDHIE.cells(row), strict=True)) for row in rows]


def ours(made: Sequence[Row], private: Sequence[Row], unseen: Sequence[Row], seed: int) -> dict[str, Any]:
    """For each attack of the audit: rates on private and on unseen rows, and the p-value that they are equal."""
    settings = TableAuditSettings(source=Path("private"), holdout=Path("unseen"), secrets=(TARGET,), seed=seed)
    audits = audit_rows(Path("synthetic"), [cells(made), cells(private), cells(unseen)], settings).audits
    found = {}
    for audit in audits:
        body = audit.to_json()
        of_private, of_unseen = body["rates"][:2]
        p_value = body["p_value"]
        found[NAMES[body["name"]]] = {
            "private": of_private["rate"],
            "unseen": of_unseen["rate"],
            "p_value": p_value,
            "found": p_value < LEVEL / len(audits),
        }
    return found


def anonymeter(
    python: Path, made: Sequence[Row], private: Sequence[Row], unseen: Sequence[Row], attacks: int
) -> dict[str, Any]:
    """Anonymeter's rates and risks, computed in its own environment; found if the interval of the risk is above 0."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, rows in {"synthetic": made, "private": private, "unseen": unseen}.items():
            paths.append(Path(folder) / f"{name}.csv")
            with paths[-1].open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, RANDHIE.names)
                writer.writeheader()
                writer.writerows(cells(rows))
        command = [python, HERE / "anonymeter_risks.py", *paths, TARGET, str(attacks)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return {name: of | {"found": of["interval"][0] > 0} for name, of in found.items()}


def tables(results: runs.Results) -> dict[str, Any]:
    """A row for each table and attack, of each tool."""
    found = {}
    for tool, titles in (("dpassay", {}), ("anonymeter", {"risk": "risk"})):
        rows = []
        for arm, epsilon in ARMS:
            of = [known for known in results.of(setting(arm, epsilon), tool) if known is not None]
            for attack in of[0] if of else ():
                shares = {key: [one[attack][key] for one in of] for key in ("private", "unseen", *titles)}
                hits = sum(one[attack]["found"] for one in of)
                named = {"rows": arm, "epsilon": shown(epsilon), "attack": attack}
                rows.append({**named, **shares, "found": f"{hits} of {len(of)}"})
        shown_as = {
            "rows": "rows",
            "epsilon": "ε",
            "attack": "attack",
            "private": "private rows",
            "unseen": "unseen rows",
        }
        shown_as |= titles | {"found": "found"}
        found[tool] = {"columns": [{"title": title, "key": key} for key, title in shown_as.items()], "rows": rows}
    return found


def main() -> int:
    parser = arguments("Attacks on synthetic tables.")
    parser.add_argument("--anonymeter", type=Path, required=True, help="interpreter of an environment with anonymeter")
    options = parser.parse_args()
    size = QUICK if options.quick else SIZE
    given = size | {"sides": 200 if options.quick else 4000, "attacks": 20 if options.quick else 500}
    results = runs.Results(options.results / "attacks.json", given)
    for seed in range(options.first, options.first + options.seeds):
        private, unseen = (rows[: given["sides"]] for rows in split(size, seed))
        for arm, epsilon in ARMS:
            if results.missing(setting(arm, epsilon), seed):
                made = rows_of(arm, epsilon, size, seed, options.tables)
                risks = anonymeter(options.anonymeter, made, private, unseen, given["attacks"])
                results.add(setting(arm, epsilon), seed, dpassay=ours(made, private, unseen, seed), anonymeter=risks)
    results.tables = tables(results)
    results.save()
    return 0


if __name__ == "__main__":
    sys.exit(main())
