"""Which generator? Runs all of them on equal data at equal (ε, δ), and keeps what they cost and how good they are.

    export OMP_NUM_THREADS=1
    python docs/choosing/study.py [--seeds 3] [--first 0] [--quick] [--only NAME] [--results FOLDER]
    python docs/choosing/fill_page.py

Each generator runs by `dpassay generate` in a process of its own. A finished run is kept and not done again, so the
script can be interrupted at any time, and goes on when it is called again. --only runs what has NAME in its name; the
data sets (topics, notes, randhie, star98) have their own results files, so that they can run side by side.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import inputs
import numpy as np
import yaml
from arms import (
    ADJACENCY,
    GUESSED,
    SECRETS,
    TABLE_ARMS,
    TEXT_ARMS,
    TOKENS_OF,
    UNIFORM,
    UNUSED_ROWS,
    UNUSED_TEXTS,
    ZERO_SHOT,
    Arm,
    Asked,
    labels_of,
)
from paths import HERE, RESULTS, measures, runs, table_measures

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.registry import account

TEXTS: dict[str, Any] = {
    "records": 1024,
    "documents": 36,
    "reference": 1024,
    "epsilons": [1.0],
    "delta_exponent": -1.1,
    "batch_size": 127,
    "clip": 3.5,
    "temperature": 1.0,
    "context_tokens": 64,
    "document_tokens": 64,
    "rounds": 5,
    "variations": 3,
    "clusters": 50,
    "examples": 100,
    "p": 0.001,
    "coefficient": 40.0,
}
"""Of all text generators: δ = records^delta_exponent; the coefficient of dataset vectors is of their reproduction."""
TABLES: dict[str, Any] = {
    "epsilons": [1.0, 8.0],
    "delta": 1e-5,
    "batch_size": 64,
    "steps": 60,
    "first_steps": 100,
    "randhie": {"records": 16_000, "rows": 1000},
    "star98": {"records": 203, "rows": 50, "batch_size": 32},
}
QUICK_TEXTS = TEXTS | {
    **{"records": 96, "documents": 4, "reference": 48, "batch_size": 15, "epsilons": [8.0]},
    **{"rounds": 1, "variations": 1, "clusters": 4, "examples": 4},
}
QUICK_TABLES = TABLES | {
    **{"batch_size": 8, "steps": 2, "first_steps": 2, "epsilons": [8.0]},
    **{"randhie": {"records": 1000, "rows": 50}, "star98": {"records": 203, "rows": 50}},
}

ALONE_TEXTS = (ZERO_SHOT, UNUSED_TEXTS)
ALONE_ROWS = (UNIFORM, GUESSED, UNUSED_ROWS)
"""What stands beside the generators, and needs none of them."""

Found = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run: of an arm, or of a name alone, which needs no private record."""

    kind: str
    arm: Arm | str
    epsilon: float | None

    @property
    def name(self) -> str:
        return setting_of(self.kind, self.arm if isinstance(self.arm, str) else self.arm.name, self.epsilon)

    @property
    def minutes(self) -> float:
        return 0.2 if isinstance(self.arm, str) else self.arm.minutes


class CannotRunError(Exception):
    """A generator refuses a claim, with a line that says why."""


def setting_of(kind: str, arm: str, epsilon: float | None) -> str:
    """The name of a run in the results."""
    return f"{kind}, {arm}" + ("" if epsilon is None else f", ε = {epsilon:g}")


def tasks_of(kind: str, scale: Mapping[str, Any]) -> list[Task]:
    """All runs of a kind of texts, or of a table, for each seed: what needs no record first."""
    arms, alone = (TEXT_ARMS, ALONE_TEXTS) if kind in inputs.KINDS else (TABLE_ARMS, ALONE_ROWS)
    return [
        *(Task(kind, name, None) for name in alone),
        *(Task(kind, arm, epsilon) for epsilon in scale["epsilons"] for arm in arms),
    ]


class Calibrated:
    """The calibrated numbers of this call, which do not depend on the seed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], float | None] = {}

    def of(self, arm: Arm, asked: Asked, columns: str | None = None) -> float | None:
        key = (arm.name, asked.kind, asked.epsilon, asked.scale["records"])
        if key not in self._known:
            self._known[key] = arm.calibrated(asked, columns)
        return self._known[key]


def process(command: Sequence[str], folder: Path) -> Found:
    """Runs a command in a process of its own.

    Returns:
        Wall seconds, CPU seconds and peak memory of the process, and the load of the machine before.

    Raises:
        CannotRunError: if it refuses its input.
        RuntimeError: if it fails in another way.
    """
    used, load = folder / "used.json", os.getloadavg()[0]
    done = subprocess.run(
        [sys.executable, str(HERE / "fresh_process.py"), str(used), *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    said = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == 2:
        raise CannotRunError(said)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return json.loads(used.read_text(encoding="utf-8")) | {"load": load}


def generated(arm: Arm, asked: Asked, content: Mapping[str, Any], folder: Path) -> tuple[Path, Found]:
    """Runs a claim by `dpassay generate`: the folder of the run, and what it cost."""
    claim, output, name = folder / "claim.yaml", folder / "run", str(content["name"])
    claim.write_text(yaml.safe_dump(dict(content), allow_unicode=True), encoding="utf-8")
    anchor = ["--anchor", str(folder / "heads")]
    command = ["-m", "dpassay", "generate", str(claim), "-o", str(output), "--device", "cpu", "--quiet", *anchor]
    found = process([sys.executable, *command], folder)
    with Ledger.open(output / "private" / "ledger.sqlite") as ledger:
        charged = ledger.run(name)
        if arm.guarantee == "approx_dp":
            bound = account(charged, adjacency=ADJACENCY, delta=asked.delta)
            if bound.value > asked.epsilon:
                raise RuntimeError(f"{arm.name} was charged an ε of {bound.value}, above {asked.epsilon}")
            found["epsilon"] = bound.value
        elif arm.guarantee == "ex_post":
            found["epsilon"] = account(charged, adjacency=ADJACENCY, method="ex_post").value
    return output, found | {"documents_made": sum(1 for _ in (output / "private" / "synthetic.jsonl").open("rb"))}


def about_machine() -> Found:
    """Cores and versions."""
    packages = ("dpassay", "torch", "opendp", "mbi", "dp-accounting")
    installed = {package.metadata["Name"].lower() for package in metadata.distributions()}
    versions = {name: metadata.version(name) for name in packages if name in installed}
    return {"cores": os.cpu_count(), "python": sys.version.split()[0], **versions}


def run_text(task: Task, scale: Mapping[str, Any], seed: int, known: Calibrated, folder: Path) -> Found:
    """One run of texts, and its measures beside real texts that no run saw."""
    texts = inputs.texts(task.kind, scale, seed)
    labels = labels_of(task.kind, texts.records)
    found: Found = {}
    if isinstance(task.arm, str):
        rows: list[tuple[str, str | None]] = list(texts.unused)
        if task.arm == ZERO_SHOT:
            given = [str(scale["documents"]), str(10_000 * (seed + 1)), str(folder / "run")]
            found = process([sys.executable, str(HERE / "zero_shot.py"), *given, *labels], folder)
            rows = inputs.read_texts(folder / "run")
    else:
        epsilon = float(task.epsilon or 0.0)
        asked = Asked(scale, task.kind, labels, seed, epsilon, scale["records"] ** scale["delta_exponent"])
        value = known.of(TOKENS_OF if task.arm.mechanism == TOKENS_OF.mechanism else task.arm, asked)
        private = inputs.with_codes(texts.records, seed) if task.arm.name == SECRETS else texts.records
        inputs.write_texts(folder / "records.jsonl", private)
        source: Found = {"source": "file", "path": str(folder / "records.jsonl"), "text": "text"}
        if labels:
            source["label"] = "label"
        content = task.arm.content(asked, value, source)
        if task.arm.mechanism == TOKENS_OF.mechanism:
            content["parameters"]["tokens"] = value
        output, found = generated(task.arm, asked, content, folder)
        found["calibrated"] = value
        rows = inputs.read_texts(output)
    rows = some(rows, list(labels), scale["documents"], seed)
    reference = texts.reference if labels else [(text, "") for text, _ in texts.reference]
    if not labels:
        rows = [(text, None) for text, _ in rows]
    if len(rows) < 2:
        return found | {"documents": len(rows)}
    measured = measures.utility(rows, reference, reference, seed)
    return found | {key: value for key, value in measured.items() if key not in ("topics", "mauve")}


def some(
    rows: Sequence[tuple[str, str | None]], labels: Sequence[str], count: int, seed: int
) -> list[tuple[str, str | None]]:
    """At most `count` texts, in equal parts of all labels, drawn by a public seed: some generators write more."""
    rng = np.random.default_rng([seed, 3])
    shuffled = [rows[place] for place in rng.permutation(len(rows))]
    if not labels:
        return shuffled[:count]
    return [row for label in labels for row in [row for row in shuffled if row[1] == label][: count // len(labels)]]


def run_table(task: Task, scale: Mapping[str, Any], seed: int, known: Calibrated, folder: Path) -> Found:
    """One run of a table, and its measures beside real rows that no run saw."""
    size = scale[task.kind]
    table = inputs.table_rows(task.kind, size, seed)
    found: Found = {}
    if isinstance(task.arm, str):
        made = {
            UNIFORM: lambda: inputs.uniform_rows(table.schema, size["rows"], seed),
            GUESSED: lambda: inputs.guessed_rows(task.kind, size["rows"], seed),
            UNUSED_ROWS: lambda: table.unused,
        }[task.arm]()
    else:
        schema, rows = folder / "schema.yaml", folder / "rows.jsonl"
        body = {"made_from": "public", **table.schema.model_dump(mode="json")}
        schema.write_text(yaml.safe_dump(body, allow_unicode=True), encoding="utf-8")
        inputs.write_rows(rows, table.schema, table.records)
        asked = Asked({**scale, **size}, task.kind, {}, seed, float(task.epsilon or 0.0), scale["delta"])
        value = known.of(task.arm, asked, str(schema))
        content = task.arm.content(asked, value, {"source": "table", "path": str(rows)}, str(schema))
        output, found = generated(task.arm, asked, content, folder)
        found["calibrated"] = value
        made = inputs.read_rows(output, table.schema)
    target = inputs.TARGETS[task.kind]
    measured = table_measures.measured(table.schema, target, made, table.records, table.reference, seed)
    return found | {"rows": len(made), **measured}


def all_runs(options: Any) -> int:
    """Every run that is missing. Each kind of texts and each table has its own results file.

    Returns:
        How many failed. They are not kept, so that the next call tries them again.
    """
    of_texts, of_tables = (QUICK_TEXTS, QUICK_TABLES) if options.quick else (TEXTS, TABLES)
    scales = dict.fromkeys(inputs.KINDS, of_texts) | dict.fromkeys(inputs.TARGETS, of_tables)
    scales = {kind: scale for kind, scale in scales.items() if any(wanted(kind, scale, options.only))}
    results = {kind: runs.Results(options.results / f"{kind}.json", scale) for kind, scale in scales.items()}
    known, seeds = Calibrated(), range(options.first, options.first + options.seeds)
    left = [
        (task, seed)
        for seed in seeds
        for kind, scale in scales.items()
        for task in wanted(kind, scale, options.only)
        if not any(of_seed(run, task.name, seed) for run in results[kind].runs)
    ]
    missing = [name for name in ("mbi", "jax", "polars") if importlib.util.find_spec(name) is None]
    if missing and any(not isinstance(task.arm, str) and task.arm.mechanism == "marginals" for task, _ in left):
        raise SystemExit(f"AIM and MST need the extra marginals, and {', '.join(missing)} is missing: install it")
    failed = 0
    for number, (task, seed) in enumerate(left):
        minutes = sum(expected(results[other.kind], other) for other, _ in left[number:])
        print(f"{number} of {len(left)} runs done; about {minutes:.0f} min left", file=sys.stderr)
        results[task.kind].missing(task.name, seed)  # says what runs
        run = run_text if task.kind in inputs.KINDS else run_table
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(task, scales[task.kind], seed, known, Path(folder))
            except CannotRunError as error:
                found = {"refused": str(error).replace(folder + "/", "")}
            except RuntimeError as error:
                print(f"{task.name}, seed {seed}: {error}", file=sys.stderr)
                failed += 1
                continue
        spent = {"all_seconds": time.perf_counter() - start}
        results[task.kind].add(task.name, seed, **found, **spent, machine=about_machine())
    return failed


def wanted(kind: str, scale: Mapping[str, Any], only: str) -> list[Task]:
    """The runs of a kind that have `only` in their name."""
    return [task for task in tasks_of(kind, scale) if only in task.name]


def expected(results: runs.Results, task: Task) -> float:
    """Minutes of a run: those of the same setting before, else a guess for an idle core."""
    before = [seconds / 60 for seconds in results.of(task.name, "all_seconds")]
    return sum(before) / len(before) if before else task.minutes


def of_seed(run: Mapping[str, Any], name: str, seed: int) -> bool:
    """Whether a run is that of a setting and a seed."""
    return bool(run["setting"] == name and run["seed"] == seed)


def main() -> int:
    parser = runs.arguments("Runs all generators on equal data, each in a process of its own.")
    parser.set_defaults(results=RESULTS)
    parser.add_argument("--only", default="", help="run only what has this in its name, such as 'topics, Aug-PE'")
    try:
        return min(1, all_runs(parser.parse_args()))
    except KeyboardInterrupt:
        print("interrupted; the same command goes on", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
