"""Whole runs: their audits, the beginnings that contexts share, and the memory that they take."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from paired_times import Goal, Section
from random_models import random_model, random_records

from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut, reruns
from dpassay.data.records import Record, builtin_records
from dpassay.mechanisms.models import decoding
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

KEY = bytes(range(32))
MEMORY_BYTES = 1024.0  # a record more, beside the records themselves


@contextmanager
def begun(mechanism: PrivateInference) -> Iterator[Run]:
    """A run in a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        plan = mechanism.plan()
        yield ledger.begin("run", plan=plan, adjacency=mechanism.adjacency, unit=mechanism.unit, about={})


def audit(rounds: int) -> Section:
    """The leave-one-out losses of all records of a run, watched, and recomputed record by record."""
    count, batch, tokens = 630, 63, 32
    model, records = LanguageModel.load(device="cpu"), builtin_records("keys", count, 0)
    mechanism = PrivateInference(
        aggregate="median", clip=10.0, temperature=1.2, batch_size=batch, tokens=tokens, records=count
    )
    alone: list[float] = []
    watched: list[float] = []
    each: list[float] = []
    for turn in range(rounds):
        watchers: list[list[LeaveOneOut]] = [[], [LeaveOneOut.of(mechanism, count)]]
        for observers, times in zip(watchers, (alone, watched), strict=True):
            with begun(mechanism) as run:
                start = time.perf_counter()
                generation = generate(mechanism, records, model, run, key=KEY, observers=observers)
                times.append(time.perf_counter() - start)
        start = time.perf_counter()
        for index in range(turn, turn + 4):
            reruns(mechanism, records, [index], model, generation, KEY)
        each.append((time.perf_counter() - start) / 4)
    run_s, audited, again = statistics.median(alone), statistics.median(watched), statistics.median(each) * count
    section = Section(
        "audit", f"the embedded model, {count} records, B = {batch}, {tokens} tokens", ("what", "seconds")
    )
    section.rows = [
        ("the run", f"{run_s:.2f}"),
        ("the run, with the losses of all records", f"{audited:.2f}"),
        (f"{count} reruns of a slot without a record (from 4 a round)", f"{again:.2f}"),
    ]
    section.notes = [
        f"limit: nothing is faster than the run itself; the audited run takes {audited / run_s:.2f} times as long"
    ]
    section.goals = [Goal("audit: reruns over the whole audited run", again / audited, least=batch / 4)]
    section.data = {"run": alone, "audited": watched, "rerun": each}
    return section


def beginning(rounds: int) -> Section:
    """Writing the contexts to the cache with and without the beginning that all share."""
    rows, shared, own = 16, 128, 16
    model = random_model("GPT-2 small")
    records = random_records(rows, shared + own, model.vocabulary_size, shared)
    contexts = [model.encode(record.text) for record in records]
    results: dict[int, list[float]] = {4: [], sys.maxsize: []}
    for _ in range(rounds):
        for least, times in results.items():
            with mock.patch.object(decoding, "_MIN_SHARED", least):
                start = time.perf_counter()
                model.packed_rows(contexts)
                times.append(time.perf_counter() - start)
    once, every = (statistics.median(times) for times in results.values())
    title = f"GPT-2 small, {rows} contexts of {own} tokens behind a common instruction of {shared}"
    section = Section("beginning", title, ("the instruction is computed", "ms"))
    section.rows = [("once", f"{1e3 * once:.0f}"), ("in every row", f"{1e3 * every:.0f}")]
    limit = rows * (shared + own) / (shared + rows * own)
    section.notes = [f"limit: {limit:.1f} times fewer tokens are computed; it is {every / once:.1f} times as fast"]
    section.goals = [Goal("beginning: times as fast", every / once, least=limit / 2)]
    section.data = {"once": results[4], "every": results[sys.maxsize]}
    return section


def measure_memory(count: int) -> dict[str, int]:
    """Bytes of the process before and with many short records, and at the peak of a run over them."""
    model = random_model("tiny")

    def run(records: list[Record]) -> None:
        mechanism = PrivateInference(
            aggregate="median", clip=6.0, temperature=1.5, batch_size=63, tokens=2, records=len(records)
        )
        with begun(mechanism) as entry:
            generate(mechanism, records, model, entry, key=KEY, rows_at_once=1024)

    run(random_records(4096, 16, model.vocabulary_size))  # libraries, buffers and groups of full size
    before = status("VmRSS")
    records = random_records(count, 16, model.vocabulary_size)
    held = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    run(records)
    return {"before": before, "records": held, "peak": status("VmHWM")}


def status(name: str) -> int:
    """A number of bytes that Linux keeps of this process."""
    result = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(result.split()[1])


def memory(rounds: int) -> Section:
    """Peak memory of slots decoded in groups, each number of records in a process of its own."""
    counts = (20_000, 100_000)
    results = {}
    for count in counts:
        command = [sys.executable, str(Path(__file__).with_name("decode.py")), "--measure-memory", str(count)]
        results[count] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    title = "a tiny model, records of 16 tokens, groups of 1024 rows, 2 tokens a slot"
    section = Section("memory", title, ("records", "MiB before", "with the records", "at the peak of the run"))
    for count, item in results.items():
        section.rows.append((str(count), *(f"{value / 2**20:.0f}" for value in item.values())))
    few, many = (results[count] for count in counts)
    more = counts[1] - counts[0]
    beside = (many["peak"] - many["records"] - few["peak"] + few["records"]) / more
    section.notes = [
        f"held: the records ({(many['records'] - few['records']) / more:.0f} bytes each), their slots, what the slots "
        f"wrote; keys, values, logits and tokens of one group. Beside the records, one more takes {beside:.0f} bytes"
    ]
    section.goals = [Goal("memory: bytes a record more, beside the records", beside, most=MEMORY_BYTES)]
    section.data = {str(count): item for count, item in results.items()}
    return section
