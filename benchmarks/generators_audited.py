"""Audits generators of tables from outside, on real rows: bound, ceiling, leak detectable at 50 % power, runs, time.

    python benchmarks/generators_audited.py FOLDER -o FILE.json --python data_synthesizer=PATH …
    python benchmarks/generators_audited.py --table FILE.json

The generators are the scripts of ``examples/generators/``, each in a Python of its own; the head of each says what to
install. Each is audited twice: by many runs (`dpassay audit runs`, default neighbours and scores) and by canaries in
one run (`dpassay audit plan --kind table`). FOLDER keeps the audits; given again, what is finished is not run again.
`--audit canaries` makes those of one kind only.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.base.number_format import format_ceiling, format_lower, format_number, format_upper

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "generators"
PEOPLE, BINNED = EXAMPLES / "people.csv", EXAMPLES / "people-binned.csv"
DOMAINS = EXAMPLES / "people-binned.yaml"


@dataclass(frozen=True)
class Generator:
    """A generator to audit.

    Attributes:
        name: of its folder, and of its Python.
        script: in `examples/generators/`.
        title: as the table prints it.
        data: that it reads.
        claim: options of both plans.
        runs: options of the plan of many runs.
        command: options of its command.
        unprotected: the same with its protection off; None for a control, which has none.
        canaries: candidates, half of which are added to the data of a run.
    """

    name: str
    script: str
    title: str
    data: Path
    claim: tuple[str, ...]
    runs: tuple[str, ...]
    command: str
    unprotected: str | None = None
    canaries: int = 200


FEW = 40
"""Canaries of the binned data, whose columns allow few rows that are not in it."""

GENERATORS = (
    Generator(
        "data_synthesizer",
        "data_synthesizer",
        "DataSynthesizer 0.1.13, independent mode, ε = 1",
        PEOPLE,
        ("--epsilon", "1"),
        ("--adjacency", "replace_one"),
        "--mode independent --epsilon 1 --seed {seed}",
        "--mode independent --epsilon 0 --seed {seed}",
    ),
    Generator(
        "smartnoise_mwem",
        "smartnoise",
        "SmartNoise MWEM 1.0.8, ε = 1",
        BINNED,
        ("--epsilon", "1"),
        (),
        "--method mwem --epsilon 1",
        "--method mwem --epsilon 1e6",
        canaries=FEW,
    ),
    Generator(
        "dpmm_mst",
        "dpmm_tables",
        "dpmm MST 0.1.9, public domains, ε = 1, δ = 10⁻⁵",
        BINNED,
        ("--epsilon", "1", "--delta", "1e-5", "--schema", str(DOMAINS)),
        ("--runs", "50"),
        f"--method mst --domains {DOMAINS} --epsilon 1",
        f"--method mst --domains {DOMAINS} --epsilon 1e6",
        canaries=FEW,
    ),
    Generator("smote", "smote", "SMOTE, no protection", PEOPLE, ("--epsilon", "1"), ("--label", "limitation"), ""),
    Generator(
        "copula",
        "sdv_tables",
        "Gaussian copula, no protection",
        PEOPLE,
        ("--epsilon", "1"),
        ("--label", "limitation"),
        "--model copula",
    ),
)


def dpassay(*words: object, codes: tuple[int, ...] = (0,)) -> int:
    """Runs a command of dpassay.

    Raises:
        SystemExit: if its exit code is not one of these.
    """
    code = subprocess.run([sys.executable, "-m", "dpassay", *map(str, words), "--quiet"], check=False).returncode
    if code not in codes:
        raise SystemExit(f"dpassay {' '.join(map(str, words))}: exit code {code}")
    return code


def command(generator: Generator, python: str, options: str) -> str:
    """The command of a generator, for `dpassay audit runs run`."""
    return f"{python} {EXAMPLES / generator.script}.py {{input}} {{output}} {options}".strip()


def many_runs(generator: Generator, python: str, folder: Path, workers: int, *, every: bool) -> dict[str, Any]:
    """The audit by many runs."""
    if not folder.exists():
        dpassay("audit", "runs", "plan", "--like", generator.data, *generator.claim, *generator.runs, "-o", folder)
    start = time.monotonic()
    if not (folder / "bound.json").exists():
        words = ["audit", "runs", "run", folder, "--command", command(generator, python, generator.command)]
        if generator.unprotected is not None:
            words += ["--unprotected", command(generator, python, generator.unprotected)]
        dpassay(*words, "--workers", workers, *(["--all"] if every else []))
        dpassay("audit", "runs", "bound", folder, codes=(0, 1, 4))
    result = json.loads((folder / "bound.json").read_text(encoding="utf-8"))
    audit, bound = result["audit"], result["audit"]["bounds"][0]
    return {
        "audit": "many runs",
        "refuted": result["refuted"],
        "epsilon": bound["value"],
        "ceiling": bound["ceiling"],
        "half": result["detectable"],
        "pair": audit["details"]["tested"]["pair"],
        "feature": audit["details"]["tested"]["feature"],
        "on_neighbor": audit["rates"][0]["hits"],
        "on_data": audit["rates"][1]["hits"],
        "rounds": audit["details"]["rounds"],
        "runs": audit["details"]["runs"],
        "stopped": audit["details"]["stopped"],
        "failing": audit["details"]["failing"],
        "control": result["control"],
        "generator_seconds": result["generator_seconds"],
        "seconds": time.monotonic() - start,
    }


def canaries(generator: Generator, python: str, folder: Path) -> dict[str, Any]:
    """The audit by canaries in one run."""
    if not folder.exists():
        design = (
            "--kind",
            "table",
            "--canaries",
            generator.canaries,
            "--like",
            generator.data,
        )
        dpassay("audit", "plan", *design, *generator.claim, "-o", folder)
    start = time.monotonic()
    read, arms = folder / "input.csv", {"claimed": generator.command, "unprotected": generator.unprotected}
    header, planted = (folder / "canaries.csv").read_text(encoding="utf-8").split("\n", 1)
    held = generator.data.read_text(encoding="utf-8")
    if held.split("\n", 1)[0] != header:
        raise SystemExit(f"{folder}: its canaries have other columns than {generator.data}")
    read.write_text(held + planted, encoding="utf-8")
    for arm, options in arms.items():
        synthetic = folder / f"{arm}.csv"
        if options is not None and not synthetic.exists():
            words = [
                word.format(input=read.resolve(), output=synthetic.resolve())
                for word in shlex.split(command(generator, python, options.format(seed=1)))
            ]
            subprocess.run(words, check=True, cwd=folder)
            dpassay("audit", "score", folder, synthetic, *(["--unprotected"] if arm == "unprotected" else []))
    dpassay("audit", "bound", folder, codes=(0, 1, 4))
    result = json.loads((folder / "bound.json").read_text(encoding="utf-8"))
    audit = result["audit"]
    bounds, rates = audit["bounds"], audit["rates"]
    control = audit["details"]["unprotected"]
    return {
        "audit": "canaries",
        "refuted": result["refuted"],
        "epsilon": bounds[0]["value"] if bounds else None,
        "ceiling": bounds[0]["ceiling"] if bounds else None,
        "half": audit["details"]["detectable"],
        "failures": audit["details"]["failures"],
        "right": rates[0]["hits"],
        "guesses": rates[0]["hits"] + rates[1]["hits"],
        "unprotected": control,
        "seconds": time.monotonic() - start,
    }


def main() -> None:
    """Runs the audits, or prints the table of those that were run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="make all planned runs, also after the claim is refuted")
    parser.add_argument("--audit", choices=("many runs", "canaries"), help="make audits of this kind only")
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    if given.table is not None:
        print(table(json.loads(given.table.read_text(encoding="utf-8"))))
        return
    if given.folder is None or given.output is None:
        parser.error("name a folder, and a file with -o")
    pythons = dict(item.split("=", 1) for item in given.python)
    rows = []
    for generator in GENERATORS:
        if generator.name not in pythons:
            continue
        python, folder = pythons[generator.name], given.folder / generator.name
        for audit in ("many runs", "canaries") if given.audit is None else (given.audit,):
            if audit == "many runs":
                result = many_runs(generator, python, folder, given.workers, every=given.all)
            else:
                result = canaries(generator, python, folder.with_name(f"{folder.name}-canaries"))
            rows.append({"generator": generator.title, **result})
            given.output.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(table(rows), flush=True)


def table(rows: list[dict[str, Any]]) -> str:
    """The results in Markdown: one table for each kind of audit."""
    kinds = (("many runs", _many_runs_table), ("canaries", _canaries_table))
    results = [(make, [row for row in rows if row["audit"] == kind]) for kind, make in kinds]
    return "\n\n".join(make(some) for make, some in results if some)


def _canaries_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| generator | refuted | ε ≥ | ceiling | detectable at 50 % power | right guesses | without protection |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        half, control = row["half"], row["unprotected"]
        shown = "–"
        if control is not None:
            shown = f"{control['right']} of {control['guesses']} right"
            if control["epsilon"] is not None:
                shown += f", ε ≥ {format_lower(control['epsilon'], 3)}"
        cells = [
            row["generator"],
            "yes" if row["refuted"] else "no" if row["epsilon"] is not None else "no conclusion",
            "–" if row["epsilon"] is None else format_lower(row["epsilon"], 3),
            "–" if row["epsilon"] is None else format_ceiling(row["ceiling"], row["epsilon"]),
            "–" if half["epsilon"] is None else f"ε = {format_upper(half['epsilon'], 3)}",
            f"{row['right']} of {row['guesses']}",
            shown,
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _many_runs_table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| generator | refuted | ε ≥ | ceiling | detectable at 50 % power | neighbours, event | D′, D, rounds | runs | "
        "seconds of the generator |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        half = row["half"]
        result = "–" if half["epsilon"] is None else f"ε = {format_upper(half['epsilon'], 3)}"
        cells = [
            row["generator"],
            "yes" if row["refuted"] else "no",
            format_lower(row["epsilon"]),
            format_ceiling(row["ceiling"], row["epsilon"]),
            result,
            f"{row['pair']}, {row['feature']}",
            f"{row['on_neighbor']}, {row['on_data']}, {row['rounds']}",
            str(row["runs"]),
            format_number(round(row["generator_seconds"])),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
