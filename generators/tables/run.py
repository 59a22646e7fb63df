"""What runs of generators of tables share: the private rows, and the words of their reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from dpassay.claims.base import GeneratorParameters
from dpassay.data.records import Record
from dpassay.data.table_schema import Row, Schema
from dpassay.data.tables import Table
from dpassay.generators.base import CHANGES, FinishedRun
from dpassay.generators.documents import Documents
from dpassay.generators.tables.claim import TableClaim


def documents_of(schema: Schema, rows: Iterable[Row]) -> Documents:
    """Synthetic rows as documents, with the types of their schema."""
    columns = {column.name: column.kind for column in schema.columns}
    return Documents(columns, [schema.cells(row) for row in rows])


def records_of(table: Table) -> list[Record]:
    """The records of a run without their content, which is in the table; equal rows are several records."""
    return [Record(str(number), "", hashed=name) for number, name in enumerate(table.ids)]


class SeededParameters(GeneratorParameters, Protocol):
    """The parameters of a generator with a seed of public choices."""

    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class TableRun(FinishedRun):
    """A finished run of a generator of tables.

    Attributes:
        table: the private rows.
        mechanism: the generator.
    """

    claim: TableClaim
    table: Table
    mechanism: SeededParameters
    public_facts = "The number of rows ({records}) and the schema of the table, with all its domains,"
    item = "row"

    @property
    def neighbours(self) -> str:
        return f"Neighbouring tables differ in one row, which is {CHANGES[self.adjacency]}."

    def endings(self) -> tuple[bool, str]:
        return True, "Every row is whole: each of its columns has a value of the schema, or is empty where it may be."
