"""How long a run takes on this machine: short runs on made-up data, by which the time of a longer run is estimated."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpassay.accounting.ledger.evidence import begin_run
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import LEDGER, open_ledger
from dpassay.data.table_schema import Schema
from dpassay.data.tables import Table
from dpassay.generators.ledger_run import NOTHING_MORE, PlannedMechanism
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel
    from dpassay.mechanisms.models.writers import Writer

_LARGE = 10**8  # weights
_MANY, _FEW = 64, 4
STEPS = 5
"""Steps, or tokens, of a short run."""


def sample_size(model: LanguageModel) -> int:
    """How many rows or texts are measured: few if a large model runs on a CPU."""
    weights = sum(weight.numel() for weight in model.network.parameters())
    return _FEW if weights > _LARGE and model.device.type == "cpu" else _MANY


class Stopwatch:
    """The seconds from one moment to the next: what a run reports as its progress, or what is marked."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.laps: list[float] = []

    def __call__(self, done: int, total: int) -> None:
        """Marks a moment, as the progress of a run."""
        self.lap()

    def lap(self) -> float:
        """Marks a moment; returns the seconds since the last one."""
        now = time.perf_counter()
        self.laps.append(now - self._last)
        self._last = now
        return self.laps[-1]


@contextmanager
def short_run(mechanism: PlannedMechanism) -> Iterator[tuple[Run, Path]]:
    """A run on made-up data in a ledger of its own, and the folder that holds it; both are removed afterwards."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_ledger(folder / LEDGER, folder / "anchor.json") as ledger:
            unit, about = mechanism.unit, {"noise": OS_ENTROPY.name}
            adjacency, plan = mechanism.adjacency, mechanism.plan()
            run = begin_run(
                ledger, "timing", plan=plan, adjacency=adjacency, unit=unit, about=about, basis=NOTHING_MORE
            )
            yield run, folder


def made_up_table(schema: Schema, rows: int) -> Table:
    """A table of so many rows, drawn uniformly from the public domains."""
    rng = np.random.default_rng(0)
    return Table(schema, [schema.uniform(rng) for _ in range(rows)], [str(index) for index in range(rows)])


def seconds_of_texts(writer: Writer, label: str | None, count: int) -> tuple[float, float]:
    """The seconds that a random text and a variation take, rejected ones included."""
    stopwatch = Stopwatch()
    texts = [text for text in writer.random(label, range(count)) if text]
    first = stopwatch.lap() / max(1, len(texts))
    if not texts:
        return first, first
    varied = [text for text in writer.vary(texts, label, range(len(texts))) if text]
    return first, stopwatch.lap() / max(1, len(varied))
