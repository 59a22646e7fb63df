"""What the coordinator of private inference does while workers decode: time, messages and the first bottleneck.

    python benchmarks/coordinator.py [--slots 100 1000 10000] [--workers 1000] [--steps 20] [--results FILE]

Workers are pretended: each answers at once with tokens drawn at random and costs, so that the time of a run is that of
the coordinator, with its real loop and its real ledger on this disk. Messages are pickled, and their bytes counted.
What dask takes for a message is measured with two real processes that do nothing. The seconds of a step are fitted to
the number of slots and of messages.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.accounting.ex_post.medians import Cost
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.accounting.ledger.run import Run
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import Executor, Pending
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate
from dpassay.mechanisms.private_inference.slot_decoder import Decoded, Order, bits_of

SHARE = 0.05
"""The coordinator's share of a decode step that is called small."""


class Answer:
    """A message that was answered."""

    def __init__(self, reply: Any) -> None:
        self._reply = reply

    def result(self) -> Any:
        """The reply."""
        return self._reply


class Pretended(Executor):
    """Workers that decode nothing.

    Attributes:
        begun, sent, returned: bytes of messages that begin a decoder, of later ones, and of replies.
        waited: seconds that were spent here, not in the coordinator.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._slots: dict[str, int] = {}
        self._rng = np.random.default_rng(0)
        self.begun: list[int] = []
        self.sent: list[int] = []
        self.returned: list[int] = []
        self.waited = 0.0

    @property
    def workers(self) -> int:
        return self._workers

    def submit(self, function: Callable[..., Any], *arguments: Any, near: str = "") -> Pending[Any]:
        if function is bits_of:
            return Answer(function(*arguments))
        start = time.perf_counter()
        (order,) = arguments
        assert isinstance(order, Order)
        size = len(pickle.dumps((function, arguments)))
        (self.begun if order.begin else self.sent).append(size)
        if order.begin:
            self._slots[order.name] = len(order.begin[1])
        tokens = self._rng.integers(1, 60, size=self._slots[order.name]).tolist() if order.draw else []
        reply = Decoded(tokens=tuple(tokens), costs=tuple(Cost(1e-3, 2e-3, 3e-3) for _ in tokens))
        self.returned.append(len(pickle.dumps(reply)))
        self.waited += time.perf_counter() - start
        return Answer(reply)

    def first(self, pieces: Collection[Pending[Any]]) -> Pending[Any]:
        return next(iter(pieces))


def measured(slots: int, workers: int, steps: int, model: LanguageModel) -> dict[str, Any]:
    """The coordinator's seconds of a step, and its messages."""
    mechanism = PrivateInference(
        aggregate="median",
        clip=10.0,
        temperature=1.2,
        batch_size=1,
        records=slots,
        tokens=steps,
        context_tokens=24,
        document_tokens=16,
        rows="packed",
    )
    records = [Record(f"{number}", f"{number:05d}") for number in range(slots)]
    marks: list[float] = []
    original = Run.step
    where = Pretended(workers)

    def step(self: Run, **parts: Any) -> None:
        original(self, **parts)
        marks.append(time.perf_counter() - where.waited)

    Run.step = step  # type: ignore[method-assign]
    try:
        with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder, "ledger.sqlite")) as ledger:
            run = ledger.begin(
                "run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={}
            )
            generate(mechanism, records, model, run, key=bytes(32), executor=where, rows_at_once=4 * slots)
            size = sum(file.stat().st_size for file in Path(folder).iterdir())
    finally:
        Run.step = original  # type: ignore[method-assign]
    gaps = np.diff(marks)[2:]
    return {
        "slots": mechanism.total_slots,
        "workers": min(workers, mechanism.total_slots),
        "seconds": statistics.median(gaps.tolist()),
        "begin bytes": statistics.mean(where.begun),
        "order bytes": statistics.mean(where.sent),
        "reply bytes": statistics.mean(where.returned),
        "ledger bytes": size / steps,
    }


def message_seconds(messages: int = 2000) -> float:
    """Seconds of dask for a message and its reply, where many are under way."""
    with executor(2, None) as workers:
        list(workers.map(abs, range(100)))
        start = time.perf_counter()
        pending = [workers.submit(abs, number, near=f"{number % 2}") for number in range(messages)]
        for piece in pending:
            piece.result()
        return (time.perf_counter() - start) / messages


def model_of(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of a step = fixed + by slot · slots + by message · workers, by least squares of relative errors."""
    seconds = np.array([row["seconds"] for row in rows])
    columns = np.array([[1.0, row["slots"], row["workers"]] for row in rows])
    found = np.maximum(np.linalg.lstsq(columns / seconds[:, None], np.ones(len(rows)), rcond=None)[0], 0.0)
    return dict(zip(("fixed", "slot", "message"), found.tolist(), strict=True))


def tables(rows: list[dict[str, Any]], dask: float, model: dict[str, float]) -> dict[str, Any]:
    """The tables of the guide: what was measured, and the seconds of the cost model."""
    titles = {
        "slots": "slots",
        "workers": "workers",
        "took": "coordinator, ms a step",
        "fitted": "by the model, ms",
        "dask": "dask, ms a step",
        "rate": "tokens/s at most",
        "commits": "commits/s at most",
        "begin": "a worker gets first, kB",
        "order": "order, kB",
        "reply": "reply, kB",
        "ledger": "ledger, kB a step",
        "pays": f"decode step of which that is {SHARE:.0%}, s",
    }
    shown = []
    for row in rows:
        took, messages = row["seconds"], dask * row["workers"]
        fitted = model["fixed"] + model["slot"] * row["slots"] + model["message"] * row["workers"]
        sizes = {name: f"{row[f'{name} bytes'] / 1000:.2f}" for name in ("begin", "order", "reply", "ledger")}
        times = {"took": f"{1000 * took:.1f}", "fitted": f"{1000 * fitted:.1f}", "dask": f"{1000 * messages:.1f}"}
        counts = {"slots": f"{row['slots']:,}", "workers": f"{row['workers']:,}"}
        rates = {"rate": f"{row['slots'] / (took + messages):,.0f}", "commits": f"{1 / took:,.0f}"}
        shown.append({**counts, **times, **rates, **sizes, "pays": f"{(took + messages) / SHARE:.2g}"})
    parts = {
        "a step": model["fixed"],
        "and for each slot": model["slot"],
        "and for each worker": model["message"],
        "and for each worker, in dask": dask,
    }
    return {
        "coordinator": {"columns": [{"title": title, "key": key} for key, title in titles.items()], "rows": shown},
        "model": {
            "columns": [{"title": "", "key": "part"}, {"title": "µs", "key": "micro"}],
            "rows": [{"part": name, "micro": f"{1e6 * value:,.3g}"} for name, value in parts.items()],
        },
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", nargs="+", type=int, default=[100, 1000, 10_000])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 10, 100, 1000])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--results", type=Path, metavar="FILE", help="where rows are kept, as JSON")
    given = parser.parse_args()
    model = LanguageModel.load("builtin", "cpu")
    rows = []
    for slots in given.slots:
        for workers in given.workers:
            if workers <= slots:
                rows.append(measured(slots, workers, given.steps, model))
                print(json.dumps(rows[-1]), flush=True)
    dask = message_seconds()
    fitted = model_of(rows)
    print(f"dask: {1000 * dask:.2f} ms a message")
    print(f"a step of the coordinator: {', '.join(f'{name} {1e6 * value:.1f} µs' for name, value in fitted.items())}")
    if given.results:
        kept = {"rows": rows, "dask": dask, "model": fitted, "tables": tables(rows, dask, fitted)}
        given.results.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
