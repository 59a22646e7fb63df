"""Claims about private evolution over the rows of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dpassay.accounting.adjacency import Unit
from dpassay.claims.base import AT_LEAST_0, AT_LEAST_1, parameters_model, public_numbers
from dpassay.generators.tables.claim import TableClaim
from dpassay.mechanisms.table_evolution.generator import TableEvolution

TableEvolutionParameters: Any = parameters_model(
    "TableEvolutionParameters",
    TableEvolution,
    {"records", "adjacency", "unit"},
    {
        "noise_multiplier": AT_LEAST_0,
        "rows": AT_LEAST_1,
        "rounds": {"minimum": 1, "maximum": 100},
        "levels": {"minimum": 2},
        "generations": AT_LEAST_1,
        "seed": AT_LEAST_0,
    },
)


class TableEvolutionClaim(TableClaim):
    """A claim about private evolution over rows, or the configuration of a run."""

    mechanism: Literal["table_evolution"]
    parameters: TableEvolutionParameters

    def check(self) -> None:
        super().check()
        if self.model != "builtin" or self.variant != "sound":
            raise ValueError("model and variant: mechanism table_evolution has none; leave them out")

    def generator(self) -> TableEvolution:
        return TableEvolution(
            **self.parameters.model_dump(),
            records=self.public.records,
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
        )

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        return "Private evolution of synthetic rows by noisy votes in columns and in pairs of columns"

    def assumptions(self) -> list[str]:
        return [public_numbers("rows", labels=False), *self.schema_assumptions()]
