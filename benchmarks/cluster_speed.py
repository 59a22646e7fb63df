"""Speed of audits by many runs with one and two workers, on this machine and on a cluster of its own.

    python benchmarks/cluster_speed.py [--runs 60] [--seconds 0.5] [--repetitions 3]

A generator that computes for some time is audited without stopping early: with one and with two runs at a time on this
machine, and on one and two workers of a dask scheduler that is started here. Printed is the median wall time of each,
the speed-up from one to two, and what one worker of the cluster costs beside none. It needs two idle cores.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

import dpassay

GENERATOR = """
import sys, time
end = time.process_time() + float(sys.argv[3])
while time.process_time() < end:
    sum(range(1000))
rows = open(sys.argv[1]).read().splitlines()
open(sys.argv[2], "w").write("\\n".join(rows[: 1 + len(rows) // 2]) + "\\n")
"""


def seconds(folder: Path, runs: int, each: float, **options: object) -> float:
    """The wall time of all runs of an audit."""
    data, script = folder / "people.csv", folder / "busy.py"
    data.write_text("age,city\n" + "".join(f"{20 + i % 40},{'north' if i % 2 else 'south'}\n" for i in range(60)))
    script.write_text(GENERATOR)
    dpassay.audit.runs(folder / "audit", like=data, epsilon=1.0, runs=runs, neighbors=["ordinary"])
    command = f"{shlex.quote(sys.executable)} -S {shlex.quote(str(script))} {{input}} {{output}} {each}"
    start = time.perf_counter()
    dpassay.audit.make_runs(folder / "audit", command=command, stop=False, **options)  # type: ignore[arg-type]
    return time.perf_counter() - start


def main() -> None:
    """Measures and prints."""
    from distributed import LocalCluster

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a run, of processor time (0.5)")
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    for _ in range(given.repetitions):
        for workers in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                took = seconds(Path(folder), given.runs, given.seconds, workers=workers)
                found.setdefault(f"this machine, {workers} at a time", []).append(took)
            with (
                tempfile.TemporaryDirectory() as folder,
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
            ):
                took = seconds(Path(folder), given.runs, given.seconds, cluster=cluster.scheduler_address)
                found.setdefault(f"cluster, {workers} workers", []).append(took)
    times = {name: statistics.median(each) for name, each in found.items()}
    for name, took in times.items():
        print(f"{name}: {took:.1f} s for {given.runs} runs of {given.seconds:g} s")
    here, there = "this machine, {} at a time", "cluster, {} workers"
    for name in (here, there):
        print(f"{name.format('1 → 2')}: {times[name.format(1)] / times[name.format(2)]:.2f} times as fast")
    print(f"one worker beside none: {times[there.format(1)] / times[here.format(1)]:.3f} times as long")


if __name__ == "__main__":
    main()
