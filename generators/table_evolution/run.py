"""Runs claims about private evolution over rows, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import InputError, input_errors
from dpassay.generators.base import RunSettings
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.table_evolution.claim import TableEvolutionClaim
from dpassay.generators.tables.run import TableRun, documents_of, records_of
from dpassay.mechanisms.table_evolution.generator import TableEvolution, TableEvolutionResult


@dataclass(frozen=True, kw_only=True)
class TableEvolutionRun(TableRun):
    """A finished run of private evolution over rows.

    Attributes:
        mechanism: the generator.
        result: synthetic rows, and the released votes.
    """

    claim: TableEvolutionClaim
    mechanism: TableEvolution
    result: TableEvolutionResult
    known = "the schema"
    seen = "the noisy votes of all rounds, and all synthetic rows"

    def side_channels(self) -> list[str]:
        return [
            "How long votes are counted follows the number of rows, and hardly their values; do not let an adversary "
            "measure the time.",
            "Votes are whole numbers, counted without rounding, and their noise is drawn from uniform bits without "
            "rounding errors. Floating-point numbers are computed from released votes alone.",
        ]

    def implementation(self) -> dict[str, str]:
        views = [len(released.votes) for released in self.result.rounds]
        return {
            "rounds of votes": str(len(views)),
            "views of all rounds": str(sum(views)),
            "seed of public choices": str(self.mechanism.seed),
            "source of noise": self.settings.noise_in_words,
            **self.claim.data.facts(),
        }


def generate(claim: TableEvolutionClaim, output: Path, settings: RunSettings) -> TableEvolutionRun:
    """Runs private evolution over the rows of the claimed table."""
    if settings.model is not None:
        raise InputError("--model: mechanism table_evolution has no model; leave it out")
    mechanism = claim.generator()
    schema, _ = claim.schema_of_table()
    with input_errors():
        mechanism.check(schema)
    table = claim.private_table(settings.download)
    claim.check_holdout(schema)

    def make(run: Run, ledger: Path) -> TableEvolutionRun:
        with settings.progress.stage("Evolving rows") as step:
            result = mechanism.generate(table, run, progress=step, source=settings.source)
        return TableEvolutionRun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=documents_of(schema, result.rows),
            ledger_path=ledger,
            records=records_of(table),
            mechanism=mechanism,
            table=table,
            result=result,
        )

    return make_in_ledger(claim, output, mechanism.plan(), settings, make, {})
