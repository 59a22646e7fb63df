"""What claims about private evolution over rows leave to choose: the noise, which the guarantee determines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.base.errors import input_errors
from dpassay.generators.choices import ParameterChoices, around, grid
from dpassay.generators.table_evolution.claim import TableEvolutionClaim

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

_MANY = 10_000  # rows of a short run


class TableEvolutionChoices(ParameterChoices[TableEvolutionClaim]):
    """A run costs the noise multiplier of all its rounds together, so no other parameter changes it."""

    def search(self, claim: TableEvolutionClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-2, 1e6), 1.0, decreasing=True)

    def settings(self) -> list[dict[str, Any]]:
        return grid(rounds=around(self.claim.parameters.rounds, (0.5, 2.0), 100))

    def facts(self, claim: TableEvolutionClaim) -> dict[str, float]:
        mechanism, columns = claim.generator(), len(claim.schema_of_table()[0].columns)
        precision = sum(noise**-2 for noise in mechanism.noise_multipliers()[-2:])
        return {"noise of votes in a pair": math.sqrt(math.comb(columns, 2) / precision)}

    def timer(self, settings: RunSettings) -> Callable[[TableEvolutionClaim], float]:
        """By a few generations of as many rows."""
        from dpassay.generators.measuring import STEPS, Stopwatch, made_up_table, short_run

        own, (schema, _) = self.claim.generator(), self.claim.schema_of_table()
        small = dataclasses.replace(
            own, records=min(own.records, _MANY), rows=min(own.count, _MANY), generations=STEPS, noise_multiplier=1.0
        )
        table = made_up_table(schema, small.records)
        with short_run(small) as (run, _), input_errors():
            stopwatch = Stopwatch()
            small.generate(table, run, progress=stopwatch)
        votes, *laps = stopwatch.laps
        generation = sum(laps) / len(laps)

        def seconds(claim: TableEvolutionClaim) -> float:
            mechanism = claim.generator()
            share = mechanism.count / small.count
            return votes * mechanism.records / small.records + mechanism.generations * generation * share

        return seconds

    def notes(self) -> list[str]:
        return [
            "The noise of votes in a pair of columns is its standard deviation in rows if all pairs have the same; "
            "pairs that depend on each other have less. More rounds about single columns find finer values."
        ]


choices = TableEvolutionChoices
