"""Runs claims about tables from noisy marginals, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import InputError, input_errors
from dpassay.generators.base import RunSettings
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.marginals.claim import OPENDP_AS_STATED, MarginalsClaim
from dpassay.generators.tables.run import TableRun, documents_of, records_of
from dpassay.mechanisms.marginals.generator import MarginalRelease, Marginals, ReleaseError
from dpassay.mechanisms.marginals.levels import Levels

MARGINALS = "marginals.json"
"""The file of the noisy marginals."""


@dataclass(frozen=True, kw_only=True)
class MarginalsRun(TableRun):
    """A finished run over noisy marginals.

    Attributes:
        mechanism: the generator.
        released: what was released.
    """

    claim: MarginalsClaim
    mechanism: Marginals
    released: MarginalRelease
    known = "the schema"
    seen = "the noisy marginals, their scales, and all synthetic rows"

    def side_channels(self) -> list[str]:
        return [
            "How long OpenDP counts depends on the private rows; do not let an adversary measure the time.",
            "Counts and their noise are whole numbers. Scores of marginals are floating-point numbers, and 1/256 of ρ "
            "is kept for their rounding.",
            OPENDP_AS_STATED,
        ]

    def implementation(self) -> dict[str, str]:
        return {
            **{f"version of {name}": version for name, version in sorted(self.released.libraries.items())},
            "noisy marginals": str(len(self.released.marginals)),
            "seed of rows that are drawn from the model": str(self.mechanism.seed),
            "source of noise": self.settings.noise_in_words,
            **self.claim.data.facts(),
        }


def generate(claim: MarginalsClaim, output: Path, settings: RunSettings) -> MarginalsRun:
    """Releases marginals of the claimed table, and rows."""
    if settings.model is not None:
        raise InputError("--model: mechanism marginals has no model; leave it out")
    mechanism = claim.generator()
    schema, _ = claim.schema_of_table()
    with input_errors():
        mechanism.check(schema)
    table = claim.private_table(settings.download)
    claim.check_holdout(table.schema)

    def make(run: Run, ledger: Path) -> MarginalsRun:
        with settings.progress.stage("Measuring marginals"):
            try:
                released = mechanism.generate(table, run)
            except ReleaseError as error:
                raise InputError(f"{ledger}: {error}") from None
        documents = documents_of(table.schema, released.rows)
        files = {MARGINALS: marginals_json(released, Levels(table.schema, mechanism.bins))}
        return MarginalsRun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=dataclasses.replace(documents, files=files),
            ledger_path=ledger,
            records=records_of(table),
            mechanism=mechanism,
            table=table,
            released=released,
        )

    return make_in_ledger(claim, output, mechanism.plan(), settings, make, {})


def marginals_json(released: MarginalRelease, levels: Levels) -> str:
    """The noisy marginals as JSON: for each its columns, the σ of its noise, and noisy counts in row-major order; and
    the levels of each column in words."""
    schema = levels.schema
    marginals = [
        {"columns": [schema.names[column] for column in item.columns], "sigma": item.sigma, "counts": [*item.counts]}
        for item in released.marginals
    ]
    named = dict(zip(schema.names, levels.described(), strict=True))
    return json.dumps({"levels": named, "marginals": marginals}, ensure_ascii=False) + "\n"
