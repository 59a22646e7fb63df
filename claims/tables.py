"""Tables in claims: the private table, its public schema, and public tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from dpassay.base.errors import InputError
from dpassay.claims.data import BUILTIN_SEED, DataSource, WrittenFile
from dpassay.data.columns import Rules
from dpassay.data.proposed_schema import proposed_schema
from dpassay.data.records import Record, read_rows
from dpassay.data.table_schema import Row, Schema, read_schema
from dpassay.data.tables import RANDHIE, builtin_holdout, builtin_table, fair_rows, read_table


class WrittenTable(WrittenFile):
    """The same of a table, and what its cells mean: a schema's numbers and dates are read by these words and signs."""

    missing: tuple[str, ...] | None = Field(
        None, description="words that mean that a cell is missing, in any column; among numbers and dates NA etc. do"
    )
    decimal: Literal[".", ","] | None = Field(
        None, description="the sign before decimals; with it, numbers may be written as in 1,200.5 or 1.200,5"
    )

    @field_validator("missing", mode="before")
    @classmethod
    def _words(cls, missing: Any) -> Any:
        """YAML reads ``-9`` as a number and ``no`` as false, which would not be the words of the file."""
        if isinstance(missing, list | tuple) and all(isinstance(word, str) for word in missing):
            return missing
        raise ValueError('must be a list of words; put numbers and truth values between quotes, as in ["-9"]')

    @property
    def rules(self) -> Rules:
        """What is stated of cells."""
        return Rules(missing=self.missing or (), decimal=self.decimal)


class TableData(WrittenTable, DataSource):
    """A table: a CSV, TSV, JSON Lines or Parquet file, or one that ships with a library."""

    source: Literal["table"] = Field(description="a table")
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
        _check_written(self, self.path)
        return self

    def load(self, count: int | None, download: bool, labels: Sequence[str] = ()) -> Sequence[Record]:
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
        if self.path is not None:
            return self.read_as(self.path)
        return {"seed of the public choice of builtin rows": str(BUILTIN_SEED)}


class PublicTable(WrittenTable):
    """A public table, for the first stage."""

    name: Literal["fair"] | None = Field(None, description="Fair's survey of marriages")
    path: Path | None = Field(None, description="a .csv, .tsv, .jsonl or .parquet file, relative to the claim file")
    columns: Path | None = Field(None, description="its schema; by default that of its own rows")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.name is None) == (self.path is None):
            raise ValueError("give either name (fair) or path")
        _check_written(self, self.path)
        return self

    def load(self) -> tuple[Schema, list[Row]]:
        """The schema, and the rows in its words.

        Raises:
            ValueError: if they are invalid.
        """
        if self.path is None:
            rows = fair_rows()
        else:
            rows = [dict(cells) for _, cells in read_rows(self.path, stated=self.stated)]
        schema = self._own_schema(rows) if self.columns is None else read_schema(self.columns)[0]
        return schema, [schema.row(row, self.rules) for row in rows]

    def _own_schema(self, rows: Sequence[dict[str, Any]]) -> Schema:
        proposed = proposed_schema(rows, rules=self.rules)
        if proposed.left_out:
            name, why = next(iter(proposed.left_out.items()))
            raise ValueError(f"column {name!r} cannot be in a schema ({why}); state columns, a schema without it")
        return proposed.schema()

    def made_from(self) -> str | None:
        """What the domains of its schema were made from, if its file says so."""
        return None if self.columns is None else read_schema(self.columns)[1]


def _check_written(table: WrittenTable, path: Path | None) -> None:
    stated = [name for name in WrittenTable.model_fields if getattr(table, name) is not None]
    if path is None and stated:
        raise ValueError(f"{stated[0]}: is for files")


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
