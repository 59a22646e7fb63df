"""Claims about two-stage fine-tuning on a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dpassay.accounting.adjacency import Unit
from dpassay.base.errors import input_errors
from dpassay.claims.base import (
    AT_LEAST_0,
    AT_LEAST_1,
    POSITIVE,
    PROBABILITY,
    Count,
    Number,
    key,
    parameters_model,
    public_numbers,
)
from dpassay.claims.data import Strict
from dpassay.claims.tables import PublicTable
from dpassay.data.tables import Table
from dpassay.generators.tables.claim import TableClaim
from dpassay.mechanisms.two_stage.generator import TwoStage

ROWS_ALIKE = (
    "The kernels compute each row's gradient alike, whatever the other rows of a pass are. Every pass has one public "
    "shape; the gradients of random rows were verified bit for bit at it, with other rows exchanged, moved and removed "
    "before the run."
)
"""The assumption on kernels. Whether the verification succeeded is noted in the ledger, before the first step."""


class RowSampling(Strict):
    """How rows are sampled."""

    rows: Count = Field(default=1000, ge=1, description="number of synthetic rows")
    temperature: Number = Field(default=1.0, gt=0, description="of the language model's sampling")
    rounds: Count = Field(
        default=15, ge=0, description="how often the model continues a row freely before its tokens are restricted"
    )


TwoStageParameters: Any = parameters_model(
    "TwoStageParameters",
    TwoStage,
    {"records", "adjacency", "unit", "variant"},
    {
        **dict.fromkeys(("noise_multiplier", "weight_decay", "first_steps", "lora_rank", "seed"), AT_LEAST_0),
        **dict.fromkeys(("batch_size", "steps"), AT_LEAST_1),
        **dict.fromkeys(("clip", "learning_rate"), POSITIVE),
        "value_weight": PROBABILITY,
    },
    generation=(RowSampling, key("how synthetic rows are sampled", RowSampling())),
    first_table=(PublicTable | None, Field(default=None, description="the public table of first_stage: table")),
)


class TwoStageClaim(TableClaim):
    """A claim about two-stage fine-tuning, or the configuration of a run."""

    mechanism: Literal["two_stage"]
    parameters: TwoStageParameters

    def check(self) -> None:
        super().check()
        if (self.parameters.first_stage == "table") != (self.parameters.first_table is not None):
            raise ValueError("parameters.first_table: goes with first_stage: table; give both or neither")

    def generator(self) -> TwoStage:
        return TwoStage(
            **self.parameters.model_dump(exclude={"generation", "first_table"}),
            records=self.public.records,
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    def tables(self, download: bool = False) -> tuple[Table, Table | None]:
        """The private table, and the public one of the first stage, if there is one.

        Raises:
            InputError: if one is invalid; one line without any value.
        """
        private = self.private_table(download)
        if self.parameters.first_table is None:
            return private, None
        with input_errors("parameters.first_table: "):
            columns, rows = self.parameters.first_table.load()
        return private, Table(columns, rows, [""] * len(rows))

    def not_private(self) -> Mapping[str, Path | None]:
        table = self.parameters.first_table
        return {**super().not_private(), "parameters.first_table.path": None if table is None else table.path}

    def made_from(self) -> dict[str, str | None]:
        table = self.parameters.first_table
        own = {} if table is None else {"parameters.first_table.columns": table.made_from()}
        return super().made_from() | own

    def assumptions(self) -> list[str]:
        mechanism = self.generator()
        said = [ROWS_ALIKE, public_numbers("rows", labels=False), *self.schema_assumptions()]
        if self.parameters.first_table is not None:
            said.append("The table of the first stage is public.")
        if mechanism.sampling == "poisson" and mechanism.rate < 1:
            said.append("Which rows are in the batch of a step is secret.")
        return said
