"""Fine-tunes the embedded model in memory and samples rows from it, with a ledger that is thrown away."""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from households import DELTA

from dpassay.accounting import ApproxDP, calibrate
from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.data.proposed_schema import proposed_schema
from dpassay.data.table_schema import Row
from dpassay.data.tables import RANDHIE, Table, fair_rows
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.row_tokens import RowTokens
from dpassay.mechanisms.two_stage.sampling import RowSampler, Statistics, sampled_rows
from dpassay.mechanisms.two_stage.training import TwoStageTraining

FIRST_STAGES = {"DP-Standard": "none", "DP-2Stage-U": "uniform", "DP-2Stage-O": "table"}

TRAINING: dict[str, Any] = {"batch_size": 128, "steps": 60, "first_steps": 100, "learning_rate": 1e-3}
QUICK_TRAINING = TRAINING | {"batch_size": 8, "steps": 2, "first_steps": 2}


@dataclass(frozen=True)
class FineTuned:
    """A fine-tuned model and the time that its second stage took, the first being shared by several runs.

    Attributes:
        mechanism: what was run.
        model: with the trained weights.
        tokens: of its rows.
        seconds: wall time of training.
    """

    mechanism: TwoStage
    model: LanguageModel
    tokens: RowTokens
    seconds: float

    def rows(self, count: int, *, rounds: int = 15) -> tuple[list[Row], Statistics, float]:
        """Synthetic rows, how they came about, and the seconds that took."""
        statistics, start = Statistics(), time.perf_counter()
        sampler = RowSampler(seed=self.mechanism.seed, rounds=rounds)
        rows = list(sampled_rows(self.model, self.tokens, sampler, range(count), statistics))
        return rows, statistics, time.perf_counter() - start


def described(size: dict[str, Any], arm: str, epsilon: float | None, seed: int, *, shuffle: bool = True) -> TwoStage:
    """The generator of an arm; ε of None is training without noise."""
    given: Any = {
        "records": size["records"],
        "first_stage": FIRST_STAGES[arm],
        "shuffle": shuffle,
        "seed": seed,
        **size["training"],
    }
    noise = 0.0 if epsilon is None else _noise(size["records"], given["batch_size"], given["steps"], epsilon)
    return TwoStage(noise_multiplier=noise, **given)


@functools.cache
def _noise(records: int, batch_size: int, steps: int, epsilon: float) -> float:
    """The least noise multiplier whose plan is within (ε, δ)."""
    given: Any = {"records": records, "batch_size": batch_size, "steps": steps}
    found = calibrate(
        lambda noise: TwoStage(noise_multiplier=noise, **given).plan(),
        ApproxDP(epsilon, DELTA),
        adjacency=Adjacency.ADD_REMOVE,
        decreasing=True,
        bracket=(0.1, 100.0),
    )
    return float(found.value)


def fair_table() -> Table:
    """The unrelated, public table."""
    cells = fair_rows()
    schema = proposed_schema(cells).schema()
    rows = [schema.row(one) for one in cells]
    return Table(schema, rows, [""] * len(rows))


def fine_tuned(mechanism: TwoStage, model: LanguageModel, private: Sequence[Row], first: Path) -> FineTuned:
    """Trains both stages.

    Args:
        mechanism: what is run.
        model: before training.
        private: rows of the second stage.
        first: folder of the first stage's weights, which runs of one seed share.
    """
    table = Table(RANDHIE, private, [str(number) for number in range(len(private))])
    public = fair_table() if mechanism.first_stage == "table" else None
    first.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Ledger.open(Path(folder) / "ledger.sqlite") as ledger:
        run = ledger.begin("run", plan=mechanism.plan(), adjacency=mechanism.adjacency, unit=mechanism.unit, about={})
        training = TwoStageTraining(mechanism, model, table, Path(folder), public=public, first=first)
        start = time.perf_counter()
        trained = training.run(run)
        seconds = time.perf_counter() - start
        run.finish()
    return FineTuned(mechanism, trained.model, training.tokens, seconds)
