"""Audits the generators of the gallery by many runs.

    python docs/gallery/study.py FOLDER --only pac_synth

Run it by the Python of an environment in which dpassay and the generator are installed; the head of each script of
`examples/generators/` says what to install. If they ask for different versions of a package, `--python` names the
interpreter of the generator's own environment, and each run is a process. FOLDER keeps the audits, which are private by
their nature and resume when they are interrupted. What is finished is not run again. The results are in `results/`, a
file a generator; `fill_page.py` writes them into the page.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import as_functions  # noqa: E402
from entries import BY_NAME, DOMAINS, ENTRIES, EPSILON, Entry  # noqa: E402

import dpassay  # noqa: E402
from dpassay.attacks.black_box.worst_cases import STRATEGIES  # noqa: E402

RESULTS = HERE / "results"
SHOWN = {"numpy", "pandas", "torch", "mbi", "opacus", "scikit-learn", "ctgan", "copulas"}
"""Packages whose versions a result names, if the generator asks for them."""
OWN = {"numpy", "opendp"}
"""The same for dpassay's own."""


def audited(entry: Entry, folder: Path, python: str) -> dict[str, Any]:
    """The result of an audit, which is planned, run and bounded in a folder."""
    if not (folder / "private" / "plan.json").exists():
        dpassay.audit.runs(
            folder,
            like=entry.data,
            epsilon=EPSILON,
            delta=entry.delta,
            adjacency=entry.adjacency,
            runs=entry.runs,
            neighbors=() if entry.probes else tuple(STRATEGIES),
            schema=DOMAINS if entry.schema else None,
            label=entry.label or None,
            title=entry.title,
        )
    os.environ[as_functions.CPU_FILE] = str((folder / "private" / "cpu.txt").resolve())
    os.environ[as_functions.PYTHON] = python
    if not (folder / "bound.json").exists():
        function = f"as_functions:{entry.name}"
        control = None if entry.unprotected is None else f"{function}_unprotected"
        dpassay.audit.make_runs(folder, function=function, unprotected=control, explain=True)
        dpassay.audit.bound_runs(folder)
    found = json.loads((folder / "bound.json").read_text(encoding="utf-8"))
    times = [float(line) for line in (folder / "private" / "cpu.txt").read_text(encoding="utf-8").split()]
    return result_of(entry, found, times, python)


def result_of(entry: Entry, found: dict[str, Any], times: list[float], python: str) -> dict[str, Any]:
    """What the page needs of a result, without anything private."""
    audit, control = found["audit"], found["unprotected"]
    details, made = audit["details"], found["audited"]
    bound = audit["bounds"][0] if audit["bounds"] else None
    tested = details.get("tested")
    version, path = interpreter(python)
    return {
        "entry": entry.name,
        "versions": versions(entry, path),
        "machine": f"{platform.system()}, Python {version}",
        "audit": f"dpassay {found['dpassay']}",
        "date": made["ended"][:10],
        "epsilon": EPSILON,
        "delta": entry.delta,
        "adjacency": entry.adjacency,
        "refuted": found["refuted"],
        "conclusion": audit["conclusion"],
        "lower": None if bound is None else bound["value"],
        "ceiling": None if bound is None else bound["ceiling"],
        "confidence": None if bound is None else bound["confidence"],
        "planned_runs": entry.runs,
        "runs": details["runs"],
        "rounds": details["rounds"],
        "most_rounds": details.get("most_rounds"),
        "stopped": details["stopped"],
        "pair": tested["pair"] if tested else None,
        "differs": tested["differs"] if tested else None,
        "cause": details.get("cause"),
        "counted": [[rate["hits"], rate["trials"]] for rate in audit["rates"]],
        "tried": {item["pair"]: item["runs_on_neighbor"] for item in details.get("search", [])},
        "untried": details["untried"],
        "failing": details["failing"],
        "failures": made["arms"]["claimed"]["failures"],
        "detectable": found["detectable"],
        "explanation": explanation(found["explanation"]),
        "control": {
            "says": found["control"],
            "lower": control["bounds"][0]["value"] if control and control["bounds"] else None,
            "runs": control["details"]["runs"] if control else None,
            "cause": control["details"].get("cause") if control else None,
        },
        "processor_seconds": round(sum(times), 1),
        "calls": len(times),
    }


def explanation(found: dict[str, Any] | None) -> dict[str, Any] | None:
    """In how many further runs an ordinary record with the target's value in one column alone gave itself away."""
    if found is None:
        return None
    columns = {item["column"]: item["hits"] for item in found["columns"]}
    return {"runs_each": found["runs_each"], "ordinary": found["ordinary"]["hits"], "columns": columns}


def interpreter(python: str) -> tuple[str, list[str]]:
    """The version of the interpreter of a generator, and where it finds packages."""
    if not python:
        return platform.python_version(), sys.path
    asked = "import json, platform, sys; print(json.dumps([platform.python_version(), sys.path[1:]]))"
    version, path = json.loads(subprocess.run([python, "-c", asked], capture_output=True, check=True).stdout)
    return version, path


def versions(entry: Entry, path: list[str]) -> dict[str, str]:
    """The version of the generator, and of what it asks for that is installed."""

    def installed(name: str) -> importlib.metadata.Distribution | None:
        return next(iter(importlib.metadata.distributions(name=name, path=path)), None)

    package = entry.package or "dpassay"
    generator = installed(package)
    if generator is None:
        raise SystemExit(f"{entry.name}: {package} is not installed")
    asked = {re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in generator.requires or ()}
    found = {package: generator.version}
    for name in sorted(asked & (SHOWN if entry.package else OWN)):
        if (other := installed(name)) is not None:
            found[name] = other.version
    return found


def main() -> None:
    """Makes the audits that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", action="append", choices=[entry.name for entry in ENTRIES], required=True)
    parser.add_argument("--python", default="", help="interpreter of the generator, if dpassay does not run in it")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    for name in given.only:
        path = RESULTS / f"{name}.json"
        if path.exists():
            print(f"{name}: finished")
            continue
        result = audited(BY_NAME[name], given.folder / name, given.python)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {result['conclusion']}", flush=True)


if __name__ == "__main__":
    main()
