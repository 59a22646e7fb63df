"""What claims about generators of tables share: the private table, its public schema, and what follows from both."""

from __future__ import annotations

import filecmp
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import Claim, Public
from dpassay.claims.tables import TableData, schema_of
from dpassay.data.table_schema import MADE_FROM, Row, Schema
from dpassay.data.tables import Table, schema_rows

SCHEMA_IS_PUBLIC = "The schema of the table is public: its domains were not made from private rows."


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


class TableClaim(Claim):
    """A claim about a generator of tables, or the configuration of a run."""

    data: TableData  # type: ignore[assignment]
    public: TablePublic
    audits: Sequence[Literal["canaries", "released"]] = []

    def check(self) -> None:
        if self.public.context_tokens is not None:
            raise ValueError("public.context_tokens: is for mechanism private_inference only; leave it out")
        if self.public.labels:
            raise ValueError("public.labels: a table has none; its columns are in the schema, public.columns")
        if "released" in self.audits and self.data.path is not None and self.data.holdout is None:
            raise ValueError("audits: released needs data.holdout, a file of rows that the generator does not see")

    def schema_of_table(self) -> tuple[Schema, str | None]:
        """The public schema, and what its domains were made from, if its file says so."""
        return schema_of(self.data, self.public.columns)

    def private_table(self, download: bool = False) -> Table:
        """The private table.

        Raises:
            InputError: if it is invalid; one line without any value.
        """
        schema, _ = self.schema_of_table()
        self._check_files()
        records = self.load_records(download)
        with input_errors("data: "):
            rows = schema_rows(records, schema, self.data.rules)
            return Table(schema, rows, [record.slotting_id for record in records])

    def not_private(self) -> Mapping[str, Path | None]:
        """Key of the claim → file whose rows are public, or not seen by the generator."""
        return {"data.holdout": self.data.holdout}

    def _check_files(self) -> None:
        """Checks that no file is given as private and as public or unseen.

        Raises:
            InputError: one line.
        """
        private = self.data.path
        if private is None:
            return
        for key, other in self.not_private().items():
            if other is not None and _same(private, other):
                raise InputError(f"{key}: is the same file as data.path, whose rows are private; name another one")

    def made_from(self) -> dict[str, str | None]:
        """What the domains of each schema were made from, if its file says so."""
        return {"public.columns": self.schema_of_table()[1]}

    def schema_origin(self) -> str | None:
        """What the schema was made from, if its file says that it was not public rows."""
        return next((origin for origin in self.made_from().values() if origin not in (None, "public")), None)

    def schema_assumptions(self) -> list[str]:
        """The assumption that the schema is public, unless its file says otherwise."""
        return [SCHEMA_IS_PUBLIC] if self.schema_origin() is None else []

    def stated(self) -> dict[str, Any]:
        return {f"{MADE_FROM} of {key}": origin for key, origin in self.made_from().items()}

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

    def check_holdout(self, schema: Schema) -> None:
        """Fails early if the audit of released rows is named and its rows are invalid.

        Raises:
            InputError: one line without any value.
        """
        if "released" in self.audits:
            with input_errors("data.holdout: "):
                self.target_and_holdout(schema)
