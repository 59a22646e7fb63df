"""What claims about two-stage fine-tuning leave to choose: for batches and numbers of steps, the noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.accounting.gaussian import sum_sensitivity
from dpassay.base.errors import input_errors
from dpassay.generators.choices import ParameterChoices, around, grid
from dpassay.generators.two_stage.claim import TwoStageClaim
from dpassay.mechanisms.two_stage.generator import TwoStage

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

_MOST_STEPS = 10**7


class TwoStageChoices(ParameterChoices[TwoStageClaim]):
    """Larger batches and more steps need more noise; the noise of a mean gradient is what counts for the model."""

    def search(self, claim: TwoStageClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-2, 1e6), 1.0, decreasing=True)

    def settings(self) -> list[dict[str, Any]]:
        own = self.claim.parameters
        sizes = around(own.batch_size, (0.5, 2.0), self.claim.public.records)
        return grid(batch_size=sizes, steps=around(own.steps, (0.5, 2.0), _MOST_STEPS))

    def facts(self, claim: TwoStageClaim) -> dict[str, float]:
        mechanism, sensitivity = claim.generator(), sum_sensitivity(claim.adjacency)
        return {
            "epochs": mechanism.rate * mechanism.steps,
            "noise of a mean gradient": sensitivity * mechanism.noise_multiplier / mechanism.batch_size,
        }

    def timer(self, settings: RunSettings) -> Callable[[TwoStageClaim], float]:
        from dpassay.generators.measuring import STEPS, Stopwatch, made_up_table, sample_size, short_run
        from dpassay.mechanisms.models.language_model import LanguageModel
        from dpassay.mechanisms.two_stage.sampling import RowSampler, sampled_rows
        from dpassay.mechanisms.two_stage.training import TwoStageTraining

        own, (schema, _) = self.claim.generator(), self.claim.schema_of_table()
        with input_errors():
            model = LanguageModel.load(
                settings.model or self.claim.model, settings.device, allow_network=settings.download
            )
        count = min(sample_size(model), own.batch_size)
        small, table = _small(own, count, STEPS), made_up_table(schema, count)
        with short_run(small) as (run, folder), input_errors():
            training = TwoStageTraining(small, model, table, folder)
            stopwatch = Stopwatch()
            trained = training.run(run, stopwatch)
            begun, laps = stopwatch.laps[0], stopwatch.laps[1:]
            first, second = sum(laps[: STEPS - 1]) / (STEPS - 1) / count, sum(laps[STEPS - 1 :]) / STEPS / count
            generation = self.claim.parameters.generation
            sampler = RowSampler(seed=own.seed, **generation.model_dump(exclude={"rows"}))
            list(sampled_rows(trained.model, training.tokens, sampler, range(count)))
            one_row = stopwatch.lap() / count

        def seconds(claim: TwoStageClaim) -> float:
            mechanism = claim.generator()
            first_steps = mechanism.first_steps if mechanism.first_stage != "none" else 0
            steps = mechanism.batch_size * (first_steps * first + mechanism.steps * second)
            rows: int = claim.parameters.generation.rows
            return begun + steps + rows * one_row

        return seconds

    def notes(self) -> list[str]:
        return [
            "The noise of a mean gradient is its standard deviation in each coordinate, in units of the clip: what "
            "matters for the model besides the number of steps."
        ]


def _small(mechanism: TwoStage, rows: int, steps: int) -> TwoStage:
    """The mechanism on a table of so many rows, with so many steps of each stage, of which each has all rows."""
    return dataclasses.replace(
        mechanism,
        records=rows,
        batch_size=rows,
        steps=steps,
        first_stage="uniform",
        first_steps=steps,
        variant="sound",
        sampling="poisson",
        loss="row",
    )


choices = TwoStageChoices
