"""What claims about private evolution over rows leave to choose: the noise, which the guarantee determines."""

from __future__ import annotations

import math
from typing import Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.generators.choices import ParameterChoices, around, grid
from dpassay.generators.table_evolution.claim import TableEvolutionClaim
from dpassay.mechanisms.table_evolution.evolution import round_shares


class TableEvolutionChoices(ParameterChoices[TableEvolutionClaim]):
    """A run costs the noise multiplier of all its rounds together, so no other parameter changes it."""

    def search(self, claim: TableEvolutionClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-2, 1e6), 1.0, decreasing=True)

    def settings(self) -> list[dict[str, Any]]:
        return grid(rounds=around(self.claim.parameters.rounds, (0.5, 2.0), 100))

    def facts(self, claim: TableEvolutionClaim) -> dict[str, float]:
        mechanism, columns = claim.generator(), len(claim.schema_of_table()[0].columns)
        share = sum(round_shares(mechanism.rounds)[-2:])
        return {"noise of votes in a pair": mechanism.noise_multiplier * math.sqrt(math.comb(columns, 2) / share)}

    def notes(self) -> list[str]:
        return [
            "The noise of votes in a pair of columns is its standard deviation in rows if all pairs have the same; "
            "pairs that depend on each other have less. More rounds about single columns find finer values."
        ]


choices = TableEvolutionChoices
