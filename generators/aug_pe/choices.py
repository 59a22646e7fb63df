"""What claims about Aug-PE leave to choose: for several numbers of rounds, the noise."""

from __future__ import annotations

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.evolution.choices import EvolutionChoices


class AugPEChoices(EvolutionChoices[AugPEClaim]):
    """More rounds come nearer to the records, and need more noise."""

    def search(self, claim: AugPEClaim) -> ParameterSearch:
        return ParameterSearch("noise_multiplier", (1e-3, 1e6), 5.0, decreasing=True)

    def facts(self, claim: AugPEClaim) -> dict[str, float]:
        mechanism = claim.generator()
        first = mechanism.synthetic * mechanism.variations * max(1, len(mechanism.labels))
        return {"records a candidate": claim.public.records / first, "texts": mechanism.settings.texts}

    def notes(self) -> list[str]:
        return [
            "The noise is added to the number of votes of each candidate. Those of the first round have as many votes "
            "on average as there are records a candidate."
        ]


choices = AugPEChoices
