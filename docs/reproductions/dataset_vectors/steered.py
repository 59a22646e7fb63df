"""Runs of dataset vectors over notes, in memory, and the measures of what they write."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from shared import measures

from dpassay.accounting import gaussian
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.records import Record, builtin_records
from dpassay.mechanisms.dataset_vectors import rejection
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors, steered_texts
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.language_model import LanguageModel

DELTA = 1e-5
VOTES = 12.0
"""The noise multiplier of votes: μ = 1/12, which is ε = .26 by itself."""
RANDOM = 1e6
"""Likewise, where shots are to be as good as random."""

SIZE: dict[str, Any] = {
    "records": 1000,
    "texts": 400,
    "candidates": 24,
    "negatives": 64,
    "temperature": 1.0,
    "coefficient": 40.0,
    "longest": 48,
}


@dataclass(frozen=True)
class Released:
    """What one run released, and the writer of its texts."""

    vectors: ReleasedVectors
    writer: ShotWriter

    @property
    def prompt(self) -> list[int]:
        """With the shots of the run."""
        return self.writer.prompt(None, self.vectors.labels[0].shots, self.vectors.most_shots)

    def plain(self, count: int, seed: int) -> list[str]:
        """Texts without vectors."""
        return [text for text, _ in self.writer.texts(self.prompt, seeds(count, seed))]

    def steered(
        self, count: int, seed: int, coefficient: float, *, accepts: rejection.Accepts | None = None
    ) -> list[str]:
        """Texts under the vectors."""

        def ask(asked: Sequence[int]) -> Any:
            return steered_texts(self.vectors, self.writer, None, asked, coefficient=coefficient)

        played = ask if accepts is None else rejection.accepted(ask, accepts)
        return [text for text, _ in played(seeds(count, seed)) if text]


def seeds(count: int, seed: int) -> list[int]:
    """Of texts; those of two arms of one seed are the same."""
    return [10_000 * (seed + 1) + place for place in range(count)]


def notes(size: dict[str, Any], seed: int) -> tuple[list[Record], list[Record]]:
    """Private notes, and as many others as texts are written."""
    drawn = builtin_records("notes", size["records"] + size["texts"], seed)
    return drawn[: size["records"]], drawn[size["records"] :]


def multiplier(epsilon: float, votes: float) -> float:
    """Of the vectors, so that both releases together are (ε, 1e-5)-DP: their μ add up in squares."""
    if math.isinf(epsilon):
        return 0.0
    mu = 1 / gaussian.analytic_noise_multiplier(epsilon, DELTA)
    return 1 / math.sqrt(mu**2 - (1 / votes**2 if votes else 0.0))


def writer_of(model: LanguageModel, size: dict[str, Any]) -> ShotWriter:
    return ShotWriter(
        model=model, longest=size["longest"], longest_record=size["longest"], temperature=size["temperature"]
    )


def released(
    model: LanguageModel,
    records: Sequence[Record],
    size: dict[str, Any],
    seed: int,
    *,
    epsilon: float,
    shots: int = 2,
    votes: float = VOTES,
    blocks: tuple[int, ...] | None = None,
) -> Released:
    """One run, with the system's entropy and a ledger that is thrown away.

    Args:
        model: that writes and is steered.
        records: private.
        size: of the run.
        seed: of public choices.
        epsilon: of both releases together; inf for no noise on the vectors, nor on votes unless they are random.
        shots: number of shots; 0 for none, and no votes.
        votes: noise multiplier of the votes.
        blocks: that are steered; None for the default.
    """
    noisy = 0.0 if math.isinf(epsilon) and votes != RANDOM else votes
    mechanism = DatasetVectors(
        noise_multiplier=multiplier(epsilon, votes if shots else 0.0),
        shots_noise_multiplier=noisy if shots else 0.0,
        records=len(records),
        shots=shots,
        candidates=size["candidates"],
        negatives=size["negatives"],
        blocks=blocks,
        seed=seed,
    )
    writer = writer_of(model, size)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        with Journal(Path(folder) / "journal.jsonl", {}) as journal:
            result = mechanism.release(records, writer, run, journal=journal)
        run.finish()
    return Released(ReleasedVectors.of(mechanism, result, writer, protected=False), writer)


def measured(texts: Sequence[str], records: Sequence[Record], seed: int) -> dict[str, Any]:
    """Utility beside the private notes."""
    rows = [(text, None) for text in texts if text.strip()]
    found = measures.utility(rows, [(record.text, None) for record in records], [], seed)
    return {key: found[key] for key in ("documents", "frechet", "mauve", "in_grammar", "distinct_2")}


def difference(first: Sequence[float], second: Sequence[float]) -> dict[str, Any]:
    """The mean of paired differences with its 95% t-interval; None for the ends with fewer than two seeds."""
    values = np.array(first) - np.array(second)
    if len(values) < 2:
        return {"value": float(values.mean()), "interval": [float(values.mean())] * 2}
    half = float(stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    return {"value": float(values.mean()), "interval": [float(values.mean()) - half, float(values.mean()) + half]}
