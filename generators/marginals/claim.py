"""Claims about synthetic tables from noisy marginals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from dpassay.accounting.adjacency import Unit
from dpassay.claims.base import AT_LEAST_0, AT_LEAST_1, POSITIVE, parameters_model, public_numbers
from dpassay.generators.tables.claim import TableClaim
from dpassay.mechanisms.marginals.generator import Marginals

OPENDP_AS_STATED = (
    "OpenDP's contingency tables (AIM, MST) cost what OpenDP states for the number of rows in which neighbours differ, "
    "its noise has the law that it states, and whether a call ends with an error follows from public numbers and what "
    "was released."
)
"""The assumption on OpenDP, whose code is not proven here."""

MarginalsParameters: Any = parameters_model(
    "MarginalsParameters",
    Marginals,
    {"adjacency", "unit"},
    {
        "rho": {"minimum": 1e-6, "maximum": 1e6},
        "bins": {"minimum": 2},
        "degree": AT_LEAST_1,
        "rounds": {"minimum": 1, "maximum": 1000},
        "model_megabytes": POSITIVE,
        "rows": AT_LEAST_1,
        "seed": AT_LEAST_0,
    },
)


class MarginalsClaim(TableClaim):
    """A claim about a table from noisy marginals, or the configuration of a run."""

    mechanism: Literal["marginals"]
    parameters: MarginalsParameters

    def check(self) -> None:
        super().check()
        if self.model != "builtin" or self.variant != "sound":
            raise ValueError("model and variant: mechanism marginals has none; leave them out")

    def generator(self) -> Marginals:
        return Marginals(**self.parameters.model_dump(), adjacency=self.adjacency, unit=Unit.parse(self.unit))

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        method = str(parameters.get("method", "aim")).upper()
        return (
            f"Marginals: {method} of OpenDP measures noisy marginals of the table, and synthetic rows are drawn from a "
            "model of them"
        )

    def described(self) -> dict[str, Any]:
        body = super().described()
        del body["model"]
        return body

    def assumptions(self) -> list[str]:
        return [OPENDP_AS_STATED, public_numbers("rows", labels=False), *self.schema_assumptions()]
