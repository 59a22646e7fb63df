"""Tables in claims: the private table, its public schema, and public tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from dpassay.base.errors import InputError
from dpassay.claims.data import BUILTIN_SEED, Strict, WrittenFile
from dpassay.data.records import Record, read_rows
from dpassay.data.table_schema import Schema, first_error, proposed_schema, read_schema
from dpassay.data.tables import RANDHIE, builtin_holdout, builtin_table, fair_rows, read_table


class TableData(WrittenFile):
    """A table: a CSV, TSV, JSON Lines or Parquet file, or one that ships with a library."""

    source: Literal["table"]
    name: Literal["randhie"] | None = Field(None, description="the RAND Health Insurance Experiment")
    path: Path | None = Field(None, description="a .csv, .tsv, .jsonl or .parquet file, relative to the claim file")
    id: str | None = Field(None, description="column with a stable id, which is no part of the table")
    holdout: Path | None = Field(
        None, description="a file of rows that the generator does not see, with the same columns, for audits"
    )
    target: str | None = Field(None, description="the column that audits guess from the others; the last by default")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name (randhie) or path")
        if self.path is None and (self.id, self.holdout) != (None, None):
            raise ValueError("id and holdout: are for files")
        return self

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> list[Record]:
        if self.path is not None:
            return read_table(self.path, id=self.id, stated=self.stated)
        if count is None:
            raise ValueError("public.records: is missing; it says how many builtin rows are drawn")
        return builtin_table(str(self.name), count, BUILTIN_SEED)

    def load_holdout(self, count: int) -> list[Record]:
        """Rows that `load` does not read.

        Args:
            count: public number of records in the claim.

        Raises:
            ValueError: if there are none, or they are invalid.
        """
        if self.holdout is not None:
            return read_table(self.holdout, id=self.id, stated=self.stated)
        if self.name is None:
            raise ValueError("data.holdout: is missing; it names a file of rows that the generator does not see")
        return builtin_holdout(self.name, count, BUILTIN_SEED)

    def facts(self) -> dict[str, str]:
        return {} if self.name is None else {"seed of the public choice of builtin rows": str(BUILTIN_SEED)}


class PublicTable(Strict):
    """A public table, for the first stage."""

    name: Literal["fair"] | None = Field(None, description="Fair's survey of marriages")
    path: Path | None = Field(None, description="a .jsonl, .csv or .parquet file, relative to the claim file")
    columns: Path | None = Field(None, description="its schema; by default that of its own rows")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name (fair) or path")
        return self

    def load(self) -> tuple[Schema, list[dict[str, Any]]]:
        """The schema and the rows.

        Raises:
            ValueError: if they are invalid.
        """
        rows = fair_rows() if self.path is None else [dict(cells) for _, cells in read_rows(self.path)]
        if self.columns is not None:
            return read_schema(self.columns)[0], rows
        try:
            return Schema.model_validate(proposed_schema(rows)), rows
        except ValidationError as error:
            raise ValueError(first_error(error)) from None

    def made_from(self) -> str | None:
        """What the domains of its schema were made from, if its file says so."""
        return None if self.columns is None else read_schema(self.columns)[1]


def schema_of(data: TableData, columns: Path | None) -> tuple[Schema, str | None]:
    """The public schema of a claim's table, and what its domains were made from, if its file says so.

    Raises:
        InputError: if there is none, or its file is invalid.
    """
    if columns is not None:
        return read_schema(columns)
    if data.name is None:
        raise InputError(
            "public.columns: is missing; it names the file of the table's public schema, of which `dpassay table "
            "schema` writes a template from a public sample"
        )
    return RANDHIE, None
