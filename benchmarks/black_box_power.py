"""How often black-box audits refute ε = 1, on five generators with a seeded bug and on two that are right.

    python benchmarks/black_box_power.py -o FILE.json [--runs 50 200 1000] [--repetitions 200] [--auditors dpassay …]
                                         [--peer-python NAME=PATH …] [--quick]
    python benchmarks/black_box_power.py --tables FILE.json … [-o FILE.json]
                                         [--page docs/measurements/black-box-audits.md]

The generators are those of `seeded_bugs.py`; RUNS are all runs of a generator that an audit makes, search, training and
test, both neighbours together. β is 5%: on the generators that are right, with ε = 1 exactly, a valid audit refutes in
at most 5% of the repetitions. "No noise" is no bug but the control: whoever does not refute it cannot refute at all.

Each other auditor is asked in the Python where it is installed: --peer-python statdp=/path/to/venv/bin/python. Names,
and what to install: statdp and dp_sniper, their repositories; dp_auditorium, python/dp_auditorium of
google/differential-privacy with pip install --no-deps, then tensorflow-cpu, google-vizier, etils, jax, scipy and
absl-py; privacyguard, privacyguard-platform.

Neighbours are `own` if the audit looks for them, and `ours` if it is given those where a bug shows the most.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from black_box_peers import AUDITORS, BETA
from seeded_bugs import BUGS, CASES, CONTROL, EPSILON, OLD, RIGHT, USUAL, Case, counts

from dpassay.accounting import PureDP
from dpassay.auditing.many_runs.run import audit_function
from dpassay.audits.statistics.binomial import clopper_pearson
from dpassay.testing import assert_never_exceeds

ROWS = [*USUAL, OLD]
"""The records that an audit with neighbours of its own is given."""

Row = dict[str, Any]


def own_neighbours_refute(case: Case, runs: int, seed: int) -> tuple[bool, int]:
    """Whether `dpassay audit runs` refutes with its default neighbours, and after how many runs."""
    result = audit_function(
        case.generate,
        ROWS,
        claim=PureDP(EPSILON),
        runs=runs,
        seed=seed,
        adjacency=case.adjacency,
        confidence=1 - BETA,
    )
    return bool(result.details["refuted"]), int(result.details["runs"])


def our_neighbours_refute(
    case: Case, runs: int, seed: int, *, score: Callable[[Case], Any] = lambda case: None
) -> tuple[bool, int]:
    """Whether `assert_never_exceeds` refutes on the neighbours of the case, and after how many runs."""

    def mechanism(rows: Any, source: Any) -> list[int]:
        return list(counts(case.generate(rows, source.below(2**62))))

    try:
        assert_never_exceeds(
            mechanism,
            PureDP(EPSILON),
            data=case.data,
            neighbor=case.neighbor,
            adjacency=case.adjacency,
            runs=runs // 2,
            confidence=1 - BETA,
            score=score(case),
            seed=seed,
        )
    except AssertionError:
        return True, 2 * (runs // 2)
    return False, 2 * (runs // 2)


OURS: dict[str, tuple[str, str, Callable[[Case, int, int], tuple[bool, int]]]] = {
    "audit runs": ("own", "tables", own_neighbours_refute),
    "assert_never_exceeds": ("ours", "counts", our_neighbours_refute),
    "assert_never_exceeds with a score": (
        "ours",
        "score",
        functools.partial(our_neighbours_refute, score=lambda case: case.score),
    ),
}
"""By method: whose neighbours, what it takes, and one audit."""


def our_rows(cases: list[str], runs: list[int], repetitions: int, seed: int) -> Iterator[Row]:
    """A row for each of our methods, cases and numbers of runs."""
    for method, (neighbours, takes, audit) in OURS.items():
        for number in runs:
            for name in cases:
                seeds = np.random.SeedSequence([seed, number]).generate_state(repetitions, np.uint64) >> np.uint64(1)
                start = time.perf_counter()
                results = [audit(CASES[name], number, int(item)) for item in seeds]
                yield {
                    "auditor": "dpassay",
                    "version": version("dpassay"),
                    "method": method,
                    "neighbours": neighbours,
                    "takes": takes,
                    "case": name,
                    "runs": number,
                    "ran": float(np.mean([ran for _, ran in results])),
                    "refuted": sum(refuted for refuted, _ in results),
                    "repetitions": repetitions,
                    "seconds": (time.perf_counter() - start) / repetitions,
                }


def their_rows(auditor: str, python: str, cases: list[str], runs: list[int], repetitions: int) -> Iterator[Row]:
    """The rows of another auditor, as it prints them; one that says what is missing if it fails."""
    script = Path(__file__).with_name("black_box_peers.py")
    options = ["--cases", *cases, "--runs", *map(str, runs), "--repetitions", str(repetitions)]
    process = subprocess.Popen([python, str(script), auditor, *options], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            yield {"auditor": auditor, **json.loads(line)}
    if process.wait():
        yield {"auditor": auditor, "missing": f"it failed with exit code {process.returncode}"}


def with_interval(row: Row) -> Row:
    """The row with the share of refutations and its exact 95% interval."""
    if not row.get("repetitions"):
        return row
    result = clopper_pearson(row["refuted"], row["repetitions"], confidence=0.95)
    return {**row, "share": row["refuted"] / row["repetitions"], "interval": [result.lower, result.upper]}


def tables(rows: list[Row]) -> str:
    """A table in Markdown for each number of runs: audits × generators."""
    results, columns = (
        [],
        [case.name for case in (*BUGS, *RIGHT, CONTROL) if any(r.get("case") == case.name for r in rows)],
    )
    for runs in sorted({row["runs"] for row in rows if "runs" in row}):
        head = ["audit", "neighbours, input", *(name.replace("_", " ") for name in columns), "seconds"]
        lines = [f"{runs} runs:", "", "| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
        audits: dict[tuple[str, ...], dict[str, Row]] = {}
        for row in rows:
            if row.get("runs") == runs:
                key = (f"{row['auditor']} {row['version']}", row["method"], row["neighbours"], row["takes"])
                audits.setdefault(key, {})[row["case"]] = row
        for (auditor, method, neighbours, takes), cells in audits.items():
            seconds = [row["seconds"] for row in cells.values() if row["repetitions"]]
            parts = [f"{auditor}, {method}", f"{neighbours}, {takes}", *(cell(cells.get(name)) for name in columns)]
            lines.append("| " + " | ".join([*parts, f"{np.median(seconds):.2g}" if seconds else "–"]) + " |")
        results.append("\n".join(lines))
    missing = sorted({f"{row['auditor']}: {row['missing']}" for row in rows if "missing" in row})
    return "\n\n".join([*results, *missing])


def cell(row: Row | None) -> str:
    """A rate in percent with its interval."""
    if row is None or not row["repetitions"]:
        return "–"
    low, high = (100 * end for end in row["interval"])
    return f"{100 * row['share']:.0f} ({low:.0f}–{high:.0f})"


BEGIN, END = "<!-- black-box audits -->\n", "<!-- end -->\n"


def filled(page: str, rows: list[Row]) -> str:
    """A page with the tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has no {BEGIN.strip()} with an {END.strip()} after it")
    return f"{before}{BEGIN}\n{tables(rows)}\n\n{END}{after}"


def write(path: Path, rows: list[Row]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> list[Row]:
    return list(json.loads(path.read_text(encoding="utf-8"))["rows"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    parser.add_argument(
        "--runs", nargs="+", type=int, default=[50, 200, 1000], help="of a generator, an audit (50 200 1000)"
    )
    parser.add_argument(
        "--repetitions", type=int, default=200, help="audits of each kind; slow ones are asked less (200)"
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="generators (all)")
    parser.add_argument(
        "--auditors", nargs="+", choices=["dpassay", *AUDITORS], default=["dpassay", *AUDITORS], help="(all)"
    )
    parser.add_argument(
        "--peer-python", action="append", default=[], metavar="NAME=PATH", help="where one is installed"
    )
    parser.add_argument("--seed", type=int, default=0, help="of our audits (0)")
    parser.add_argument("--quick", action="store_true", help="4 repetitions, of 50 and 200 runs")
    parser.add_argument("--tables", nargs="+", type=Path, metavar="FILE", help="only print the tables of such files")
    parser.add_argument("--page", type=Path, metavar="FILE", help="with --tables: a page that they are written into")
    options = parser.parse_args()
    if options.tables:
        rows = [row for path in options.tables for row in read(path)]
        if options.output:
            write(options.output, rows)
        if options.page:
            options.page.write_text(filled(options.page.read_text(encoding="utf-8"), rows), encoding="utf-8")
        print(tables(rows))
        return
    pythons = dict(pair.partition("=")[::2] for pair in options.peer_python)
    if unknown := sorted(set(pythons) - set(AUDITORS)):
        parser.error(f"--peer-python knows {', '.join(AUDITORS)}, not {', '.join(unknown)}")
    if options.quick:
        options.repetitions, options.runs = 4, [50, 200]
    rows = []
    grid = (options.cases, options.runs, options.repetitions)
    for auditor in options.auditors:
        python = pythons.get(auditor, sys.executable)
        asked = our_rows(*grid, options.seed) if auditor == "dpassay" else their_rows(auditor, python, *grid)
        for row in asked:
            rows.append(with_interval(row))
            print(json.dumps(row), file=sys.stderr)
            if options.output:
                write(options.output, rows)
    print(tables(rows))


if __name__ == "__main__":
    main()
