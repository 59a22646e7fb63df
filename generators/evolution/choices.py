"""What claims about evolutionary generators leave to choose: the number of rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from dpassay.generators.choices import ParameterChoices, grid
from dpassay.generators.evolution.claim import EvolutionClaim
from dpassay.mechanisms.evolution.loop import EvolutionSettings

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

EvolutionClaimT = TypeVar("EvolutionClaimT", bound=EvolutionClaim)

_ROUNDS = (1, 2, 3, 5, 10, 20)


class EvolutionChoices(ParameterChoices[EvolutionClaimT]):
    """More rounds come nearer to the records, and need more noise and more texts."""

    def settings(self) -> list[dict[str, Any]]:
        return grid(rounds=sorted({*_ROUNDS, self.claim.parameters.rounds}))

    def timer(self, settings: RunSettings) -> Callable[[EvolutionClaimT], float] | None:
        """By the texts that are written; what an endpoint takes is not asked."""
        if self.claim.parameters.endpoint is not None:
            return None
        from dpassay.generators.evolution.run import load_writer
        from dpassay.generators.measuring import sample_size, seconds_of_texts

        writer: Any = load_writer(self.claim, settings)
        label = next(iter(self.claim.public.labels), None)
        first, later = seconds_of_texts(writer, label, sample_size(writer.model))

        def seconds(claim: EvolutionClaimT) -> float:
            mechanism: Any = claim.generator()
            evolution: EvolutionSettings = mechanism.settings
            random = evolution.synthetic * evolution.variations * len(evolution.groups)
            return random * first + (evolution.texts - random) * later

        return seconds
