"""What claims about dataset vectors leave to choose: for several noises of the votes for shots, that of the vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.base.errors import input_errors
from dpassay.generators.choices import ParameterChoices, grid
from dpassay.generators.dataset_vectors.claim import DatasetVectorsClaim

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

_FACTORS = (0.5, 1.0, 2.0, 4.0)


class VectorsChoices(ParameterChoices[DatasetVectorsClaim]):
    """Two releases share the guarantee: the votes, which can be left out, and the vectors."""

    def search(self, claim: DatasetVectorsClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-3, 1e6), 1.0, decreasing=True)

    def settings(self) -> list[dict[str, Any]]:
        own = self.claim.parameters
        votes = [factor * own.shots_noise_multiplier for factor in _FACTORS] if own.shots else []
        return [*grid(shots=[own.shots], shots_noise_multiplier=votes), {"shots": 0, "shots_noise_multiplier": 0.0}]

    def facts(self, claim: DatasetVectorsClaim) -> dict[str, float]:
        mechanism = claim.generator()
        return {"noise of votes": mechanism.votes_scale if mechanism.shots else 0.0}

    def timer(self, settings: RunSettings) -> Callable[[DatasetVectorsClaim], float]:
        from dpassay.generators.dataset_vectors.texts import load_writer
        from dpassay.generators.measuring import Stopwatch, sample_size
        from dpassay.mechanisms.dataset_vectors.states import forward_pass

        mechanism = self.claim.generator()
        with input_errors():
            writer = load_writer(self.claim, settings)
            prompt = writer.prompt(next(iter(mechanism.sizes)), [], mechanism.shots)
            stopwatch, network = Stopwatch(), writer.model.network
            shape = mechanism.shape(writer, [prompt])
            verified, chosen = stopwatch.lap(), mechanism.blocks_of(network)
        forward_pass(network, [([0], 0)], chosen, shape.rows, shape.length)
        one_pass = stopwatch.lap()
        count = sample_size(writer.model)
        list(writer.texts(prompt, range(count)))
        one_text = stopwatch.lap() / count

        def seconds(claim: DatasetVectorsClaim) -> float:
            own, writing = claim.generator(), claim.parameters.writing
            texts: int = len(own.sizes) * (own.candidates * (own.shots > 0) + own.negatives + writing.texts)
            passes = sum(-(-size // shape.rows) - (-own.negatives // shape.rows) for size in own.sizes.values())
            return verified + passes * one_pass + texts * one_text

        return seconds

    def notes(self) -> list[str]:
        return [
            "Without shots there are no votes, and the whole guarantee is spent on the vectors. The noise of votes is "
            "added to the number of votes of each candidate."
        ]


choices = VectorsChoices
