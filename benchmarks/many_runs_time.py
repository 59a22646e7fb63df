"""What `dpassay audit runs` itself takes: plan, 300 runs, bound and report, by a command that only copies a file.

    python benchmarks/many_runs_time.py [--runs 300] [--rows 1000] [--columns 10]

Data and outputs have ROWS rows; half of the COLUMNS hold numbers, half categories, and all default strategies apply
that need no text. No claim is made, so that all runs are made. Seconds of processor time, without those of the command.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from dpassay.auditing.many_runs.files import read_plan


def write_table(path: Path, rows: int, columns: int, seed: int) -> None:
    """A table of numbers and categories."""
    rng = np.random.default_rng(seed)
    names = [f"number {index}" for index in range((columns + 1) // 2)]
    cells = [rng.normal(50, 20, rows).round(index % 3).tolist() for index in range(len(names))]
    for index in range(columns // 2):
        names.append(f"category {index}")
        cells.append([f"word {word}" for word in rng.integers(3 + 4 * index, size=rows).tolist()])
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(names)
        out.writerows(zip(*cells, strict=True))


def timed(*words: str) -> tuple[float, float]:
    """Seconds by the clock and of the processor, of the process itself and not of what it starts."""
    code = (
        "import resource, sys; from dpassay.cli.app import run_command; code = run_command(sys.argv[1:]); "
        "used = resource.getrusage(resource.RUSAGE_SELF); print(used.ru_utime + used.ru_stime); sys.exit(int(code))"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *words, "-q"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{words} ended with exit code {done.returncode}")
    return time.perf_counter() - start, float(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="of the generator (300)")
    parser.add_argument("--rows", type=int, default=1000, help="of the data and of each output (1000)")
    parser.add_argument("--columns", type=int, default=10, help="(10)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "data.csv", options.rows, options.columns, 0)
        write_table(folder / "output.csv", options.rows, options.columns, 1)
        audit = str(folder / "audit")
        given = f"cp {shlex.quote(str(folder / 'output.csv'))} {{output}}"
        copies = f"sh -c {shlex.quote(given + ' # {input}')}"
        size = ("--records", str(options.rows), "--runs", str(options.runs))
        steps = {
            "plan": ("--like", str(folder / "data.csv"), *size, "-o", audit),
            "run": (audit, "--command", copies),
            "bound": (audit,),
            "report": (audit,),
        }
        results = {step: timed("audit", "runs", step, *words) for step, words in steps.items()}
        plan = read_plan(Path(audit)).plan
    print(
        f"{options.runs} runs, {options.rows} rows × {options.columns} columns, {len(plan.pairs)} pairs of neighbours:"
    )
    for step, (clock, own) in results.items():
        print(f"  {step:7s} {own:6.2f} s of its own, {clock:6.2f} s by the clock")
    print(f"  all     {sum(own for _, own in results.values()):6.2f} s of its own")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  with the commands: {used.ru_utime + used.ru_stime:.2f} s; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
