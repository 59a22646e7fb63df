"""Speed of one and two workers: of audits by many runs, and of private inference.

    python benchmarks/cluster_speed.py [--of audits generation] [--repetitions 3] [--results FILE]

audits: a generator that computes for some time is audited without stopping early: with one and with two runs at a time
on this machine, and on one and two workers of a dask scheduler that is started here.

generation: private inference by medians with the embedded model, in this process by one thread, and on one and two
processes of this machine, which have loaded the model and verified its rows. How long that takes is *begin*.

Ways take turns, and medians of their wall times are printed, with the speed-up from one worker to two, and what one
worker costs beside none. It needs two idle cores.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import one_thread  # noqa: F401

# isort: split
import torch
from whole_runs import KEY, begun

import dpassay
from dpassay.data.records import builtin_records
from dpassay.mechanisms.compute.executor import Executor
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_decoder import bits_of

GENERATOR = """
import sys, time
end = time.process_time() + float(sys.argv[3])
while time.process_time() < end:
    sum(range(1000))
rows = open(sys.argv[1]).read().splitlines()
open(sys.argv[2], "w").write("\\n".join(rows[: 1 + len(rows) // 2]) + "\\n")
"""
RUNS, EACH = 60, 0.5  # of an audit; seconds of processor time of a run
SIZES, ROWS = ((32, 96), (128, 48)), 63  # slots and tokens of generation; rows of a slot
NONE, ONE, TWO = "no worker", "1 worker", "2 workers"

Times = dict[str, list[float]]


def audits(repetitions: int) -> dict[str, Times]:
    """Wall seconds of audits, by where their runs are made."""
    from distributed import LocalCluster

    found: Times = {NONE: [], "two at a time": [], ONE: [], TWO: []}
    for _ in range(repetitions):
        for workers, here, there in ((1, NONE, ONE), (2, "two at a time", TWO)):
            with tempfile.TemporaryDirectory() as folder:
                found[here].append(_audit(Path(folder), workers=workers))
            with (
                tempfile.TemporaryDirectory() as folder,
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
            ):
                found[there].append(_audit(Path(folder), cluster=cluster.scheduler_address))
    return {f"audit of {RUNS} runs of {EACH:g} s, on a cluster": {way: found[way] for way in (NONE, ONE, TWO)}} | {
        f"audit of {RUNS} runs of {EACH:g} s, without one": {NONE: found[NONE], TWO: found["two at a time"]}
    }


def _audit(folder: Path, **options: Any) -> float:
    data, script = folder / "people.csv", folder / "busy.py"
    data.write_text("age,city\n" + "".join(f"{20 + i % 40},{'north' if i % 2 else 'south'}\n" for i in range(60)))
    script.write_text(GENERATOR)
    dpassay.audit.runs(folder / "audit", like=data, epsilon=1.0, runs=RUNS, neighbors=["ordinary"])
    command = f"{shlex.quote(sys.executable)} -S {shlex.quote(str(script))} {{input}} {{output}} {EACH}"
    start = time.perf_counter()
    dpassay.audit.make_runs(folder / "audit", command=command, stop=False, **options)
    return time.perf_counter() - start


def generation(repetitions: int) -> dict[str, Times]:
    """Wall seconds of private inference, by where slots are decoded, and of beginning."""
    torch.set_num_threads(1)
    found: dict[str, Times] = {}
    for slots, tokens in SIZES:
        found |= _at(slots, tokens, repetitions)
    return found


def _at(slots: int, tokens: int, repetitions: int) -> dict[str, Times]:
    model = LanguageModel.load("builtin", "cpu")
    mechanism = PrivateInference(
        aggregate="median",
        clip=10.0,
        temperature=1.2,
        batch_size=ROWS,
        records=slots * ROWS,
        tokens=tokens,
        context_tokens=32,
    )
    mechanism.row_plan(model)
    records = builtin_records("keys", slots * ROWS, 0)
    found: Times = {NONE: [], ONE: [], TWO: []}
    beginnings: Times = {ONE: [], TWO: []}
    for _ in range(repetitions):
        for way, workers in ((NONE, None), (ONE, 1), (TWO, 2)):
            start = time.perf_counter()
            with executor(workers, None) as where:
                if workers:
                    reference, plan = ModelReference.of(model), mechanism.row_plan(model)
                    begun_on = [where.submit(bits_of, reference, plan, near=str(number)) for number in range(workers)]
                    assert len({piece.result() for piece in begun_on}) == 1
                    beginnings[way].append(time.perf_counter() - start)
                found[way].append(_generate(mechanism, records, model, where))
    return {
        f"private inference, {slots} slots of {ROWS} rows, {tokens} tokens": found,
        f"beginning it, {slots} slots": beginnings,
    }


def _generate(mechanism: PrivateInference, records: Any, model: LanguageModel, where: Executor) -> float:
    with begun(mechanism) as run:
        start = time.perf_counter()
        generate(
            mechanism,
            records,
            model,
            run,
            key=KEY,
            executor=where,
            rows_at_once=mechanism.records + mechanism.total_slots,
        )
        return time.perf_counter() - start


OF: dict[str, Callable[[int], dict[str, Times]]] = {"audits": audits, "generation": generation}


def table(times: dict[str, Times]) -> dict[str, Any]:
    """Medians, the speed-up from one worker to two, or from none, and what one costs beside none."""
    columns = [{"title": "", "key": "what"}, *({"title": f"{way}, s", "key": way} for way in (NONE, ONE, TWO))]
    columns += [
        {"title": "from one worker, or none, to two", "key": "gain"},
        {"title": "one worker beside none", "key": "cost"},
    ]
    rows = []
    for what, ways in times.items():
        middle = {way: statistics.median(each) for way, each in ways.items()}
        row = {"what": what, **{way: f"{value:.1f}" for way, value in middle.items()}}
        if NONE in middle:
            row["gain"] = f"{middle.get(ONE, middle[NONE]) / middle[TWO]:.2f} times as fast"
        if NONE in middle and ONE in middle:
            row["cost"] = f"{100 * (middle[ONE] / middle[NONE] - 1):+.1f} %"
        rows.append(row)
    return {"columns": columns, "rows": rows}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", nargs="+", choices=OF, default=list(OF), help="what is measured; all by default")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--results", type=Path, metavar="FILE", help="where times are kept, as JSON")
    given = parser.parse_args()
    kept = given.results and given.results.is_file()
    times: dict[str, Times] = json.loads(given.results.read_text(encoding="utf-8"))["seconds"] if kept else {}
    for name in given.of:
        print(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores", flush=True)
        times |= OF[name](given.repetitions)
        if given.results:
            body = {"seconds": times, "tables": {"workers": table(times)}}
            given.results.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in table(times)["rows"]:
        print("; ".join(f"{key}: {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
