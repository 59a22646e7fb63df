"""Runs claims about two-stage fine-tuning, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import input_errors
from dpassay.base.private_files import PRIVATE
from dpassay.data.table_schema import Row
from dpassay.data.tables import Table
from dpassay.generators.base import BoundedGuarantee, RunSettings
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.tables.run import TableRun, documents_of, records_of
from dpassay.generators.two_stage.claim import ROWS_ALIKE, TwoStageClaim
from dpassay.mechanisms.evolution.journal import Entry, Journal
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.two_stage.generator import TwoStage
from dpassay.mechanisms.two_stage.row_tokens import RowTokens
from dpassay.mechanisms.two_stage.sampling import MAX_ROWS, RowSampler, sampled_rows
from dpassay.mechanisms.two_stage.training import Trained, TwoStageTraining
from dpassay.reports.assay import Difference

CHECKPOINTS, JOURNAL = "checkpoints", "rows.jsonl"


@dataclass(frozen=True, kw_only=True)
class TwoStageRun(TableRun):
    """A finished run of two-stage fine-tuning.

    Attributes:
        mechanism: the generator.
        public: the table of the first stage, or None.
        model: before training.
        tokens: of rows.
        trained: the fine-tuned model.
    """

    claim: TwoStageClaim
    mechanism: TwoStage
    public: Table | None
    model: LanguageModel
    tokens: RowTokens
    trained: Trained
    known = "the language model, the public table"
    seen = "the weights after every step, and all synthetic rows"

    @property
    def checkpoints(self) -> Path:
        """The folder of checkpoints."""
        return self.ledger_path.with_name(CHECKPOINTS)

    @property
    def tested(self) -> list[str]:
        return [ROWS_ALIKE] if self.trained.exact else []

    def _row_assumption(self) -> str:
        if self.trained.exact:
            return ROWS_ALIKE
        return (
            "On this device, a row's gradient depends on the rows beside it, in its last digits, although every pass "
            "has the same public shape. So every bound on this run is an estimate."
        )

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        why = []
        if self.mechanism.sampling == "shuffled":
            why.append(
                "Batches of a shuffled epoch are no Poisson samples: with 30000 records, batches of 32 and 10 epochs, "
                "noise for an ε of 1 gives one of at least 6.5 in the worst case, at zero_out."
            )
        if self.mechanism.loss == "batch":
            why.append("The loss is divided by numbers of tokens of the whole batch, so one row moves all gradients.")
        return self.published_difference(
            self.mechanism.published_plan, claimed, "All steps together, accounted as Poisson samples", why
        )

    def side_channels(self) -> list[str]:
        return [
            "All passes over rows have one shape, but the number of passes of a step follows the size of its batch; do "
            "not let an adversary measure the time.",
            "Gradients are floating-point numbers, each computed from its own row. What is added up over rows are "
            "whole numbers, without rounding, before noise is added.",
            self._row_assumption(),
        ]

    def implementation(self) -> dict[str, str]:
        return {
            "fine-tuned model": self.trained.model.name,
            "fingerprint of its weights (SHA-256)": self.trained.model.fingerprint,
            "device": f"{self.trained.model.device} (asked for: {self.settings.device})",
            "precision": self.mechanism.precision,
            "rows in one pass": str(self.trained.rows_at_once),
            "tokens to which rows are padded": str(self.tokens.width),
            "source of noise": self.settings.noise_in_words,
            **self.claim.data.facts(),
        }


def generate(claim: TwoStageClaim, output: Path, settings: RunSettings) -> TwoStageRun:
    """Fine-tunes a model as claimed and samples rows from it; checkpoints are kept in ``private/``, too."""
    mechanism = claim.generator()
    table, public = claim.tables(settings.download)
    claim.check_holdout(table.schema)
    folder = output / PRIVATE / CHECKPOINTS
    with input_errors():
        model = LanguageModel.load(settings.model or claim.model, settings.device, allow_network=settings.download)
        training = TwoStageTraining(mechanism, model, table, folder, public=public, source=settings.source)
    sampler = RowSampler(seed=mechanism.seed, **claim.parameters.generation.model_dump(exclude={"rows"}))

    def make(run: Run, ledger: Path) -> TwoStageRun:
        folder.mkdir(mode=0o700, exist_ok=True)
        with settings.progress.stage("Training") as step:
            trained = training.run(run, step)
        of_journal = {"sampler": repr(sampler), "weights": trained.model.fingerprint}
        with Journal(ledger.with_name(JOURNAL), of_journal) as journal, input_errors():
            rows = write_rows(
                trained.model, training.tokens, sampler, claim.parameters.generation.rows, journal, settings
            )
        return TwoStageRun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=documents_of(table.schema, rows),
            ledger_path=ledger,
            records=records_of(table),
            mechanism=mechanism,
            table=table,
            public=public,
            model=model,
            tokens=training.tokens,
            trained=trained,
        )

    return make_in_ledger(claim, output, mechanism.plan(), settings, make, {"model": model.fingerprint})


def write_rows(
    model: LanguageModel,
    tokens: RowTokens,
    sampler: RowSampler,
    count: int,
    journal: Journal,
    settings: RunSettings,
) -> list[Row]:
    """Synthetic rows in the words of their schema, from the journal if they are there."""
    left = [number for number in range(count) if journal.get(None, f"row/{number}") is None]
    with settings.progress.stage("Sampling rows") as step:
        for start in range(0, len(left), MAX_ROWS):
            some = left[start : start + MAX_ROWS]
            for number, row in zip(some, sampled_rows(model, tokens, sampler, some), strict=True):
                journal.add(Entry(None, f"row/{number}", 0, None, number, json.dumps(row, ensure_ascii=False)))
            journal.flush()
            step(count - len(left) + min(len(left), start + MAX_ROWS), count)
    return [tuple(json.loads(journal.get(None, f"row/{number}") or "")) for number in range(count)]
