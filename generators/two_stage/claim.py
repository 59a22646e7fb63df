"""Claims about two-stage fine-tuning on a table."""

from __future__ import annotations

import filecmp
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dpassay.accounting.adjacency import Unit
from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import Claim, Count, Number, Public, parameters_model, public_numbers
from dpassay.claims.data import Strict
from dpassay.claims.tables import PublicTable, TableData, schema_of
from dpassay.data.table_schema import MADE_FROM, Row, Schema
from dpassay.data.tables import schema_rows
from dpassay.mechanisms.two_stage.generator import Table, TwoStage

ROWS_ALIKE = (
    "The kernels compute each row's gradient alike, whatever the other rows of a pass are. Every pass has one public "
    "shape; the gradients of random rows were verified bit for bit at it, with other rows exchanged, moved and removed "
    "before the run."
)
"""The assumption on kernels. Whether the verification succeeded is noted in the ledger, before the first step."""


def _same(item: Path, other: Path) -> bool:
    """Whether two files are one, or have the same bytes."""
    try:
        return item.samefile(other) or (
            item.stat().st_size == other.stat().st_size and filecmp.cmp(item, other, shallow=False)
        )
    except OSError:
        return False  # what is missing is said when it is read


class TablePublic(Public):
    """What is public by assumption, with the schema of the table."""

    columns: Path | None = Field(
        default=None, description="YAML file of the names, types and domains of all columns; builtin tables have one"
    )


class RowSampling(Strict):
    """How rows are sampled."""

    rows: Count = Field(default=1000, ge=1, description="number of synthetic rows")
    temperature: Number = Field(default=1.0, gt=0)
    rounds: Count = Field(
        default=15, ge=0, description="how often the model continues a row freely before its tokens are restricted"
    )


TwoStageParameters: Any = parameters_model(
    "TwoStageParameters",
    TwoStage,
    {"records", "adjacency", "unit", "variant"},
    generation=(RowSampling, RowSampling()),
    first_table=(PublicTable | None, Field(default=None, description="the public table of first_stage: table")),
)


class TwoStageClaim(Claim):
    """A claim about two-stage fine-tuning, or the configuration of a run."""

    mechanism: Literal["two_stage"]
    data: TableData  # type: ignore[assignment]
    parameters: TwoStageParameters
    public: TablePublic
    audits: Sequence[Literal["canaries", "released"]] = []

    def check(self) -> None:
        if self.public.context_tokens is not None:
            raise ValueError("public.context_tokens: is for mechanism private_inference only; leave it out")
        if self.public.labels:
            raise ValueError("public.labels: a table has none; its columns are in the schema, public.columns")
        if (self.parameters.first_stage == "table") != (self.parameters.first_table is not None):
            raise ValueError("parameters.first_table: goes with first_stage: table; give both or neither")
        if "released" in self.audits and self.data.path is not None and self.data.holdout is None:
            raise ValueError("audits: released needs data.holdout, a file of rows that the generator does not see")

    def generator(self) -> TwoStage:
        return TwoStage(
            **self.parameters.model_dump(exclude={"generation", "first_table"}),
            records=self.public.records,
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    def schema_of_table(self) -> tuple[Schema, str | None]:
        """The public schema, and what its domains were made from, if its file says so."""
        return schema_of(self.data, self.public.columns)

    def tables(self, download: bool = False) -> tuple[Table, Table | None]:
        """The private table, and the public one of the first stage, if there is one.

        Raises:
            InputError: if one is invalid; one line without any value.
        """
        schema, _ = self.schema_of_table()
        self._check_files()
        records = self.load_records(download)
        with input_errors("data: "):
            rows = schema_rows(records, schema, self.data.rules)
            private = Table(schema, rows, [record.slotting_id for record in records])
        if self.parameters.first_table is None:
            return private, None
        with input_errors("parameters.first_table: "):
            columns, rows = self.parameters.first_table.load()
        return private, Table(columns, rows, [""] * len(rows))

    def _check_files(self) -> None:
        """Checks that no file is given as private and as public or unseen.

        Raises:
            InputError: one line.
        """
        private, table = self.data.path, self.parameters.first_table
        if private is None:
            return
        for key, other in (("data.holdout", self.data.holdout), ("parameters.first_table.path", table and table.path)):
            if other is not None and _same(private, other):
                raise InputError(f"{key}: is the same file as data.path, whose rows are private; name another one")

    def _made_from(self) -> dict[str, str | None]:
        """What the domains of each schema were made from, if its file says so."""
        table = self.parameters.first_table
        results = {"public.columns": self.schema_of_table()[1]}
        return results if table is None else results | {"parameters.first_table.columns": table.made_from()}

    def schema_origin(self) -> str | None:
        """What the schema was made from, if its file says that it was not public rows."""
        return next((origin for origin in self._made_from().values() if origin not in (None, "public")), None)

    def assumptions(self) -> list[str]:
        mechanism, said = self.generator(), [ROWS_ALIKE, public_numbers("rows", labels=False)]
        if self.schema_origin() is None:
            said.append("The schema of the table is public: its domains were not made from private rows.")
        if self.parameters.first_table is not None:
            said.append("The table of the first stage is public.")
        if mechanism.sampling == "poisson" and mechanism.rate < 1:
            said.append("Which rows are in the batch of a step is secret.")
        return said

    def stated(self) -> dict[str, Any]:
        return {f"{MADE_FROM} of {key}": origin for key, origin in self._made_from().items()}

    def estimate_reasons(self) -> list[str]:
        made = f"a schema of claim {self.name!r} was made from {self.schema_origin()} rows"
        return [f"{made}, and nothing accounts for what its domains reveal"] if self.schema_origin() else []

    def parameter_warnings(self) -> list[str]:
        warning = (
            f"A schema of this claim was made from {self.schema_origin()} rows. Its domains are then not public, and "
            "nothing here accounts for what they reveal, so every bound is an estimate."
        )
        return [warning] if self.schema_origin() else []

    def target_and_holdout(self, schema: Schema) -> tuple[str, list[Row]]:
        """The column that audits guess, and the rows that the generator does not see.

        Raises:
            ValueError: one line, if there is no such column, or the file is invalid.
        """
        data = self.data
        target = schema.names[-1] if data.target is None else schema.names[schema.index(data.target)]
        return target, schema_rows(data.load_holdout(self.public.records), schema, data.rules)
