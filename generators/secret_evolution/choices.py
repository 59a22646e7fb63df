"""What claims about secret-protected evolution leave to choose: the number of rounds, from which the noise follows."""

from __future__ import annotations

from typing import Any

from dp_accounting import DpEvent

from dpassay.accounting.guarantees import Guarantee, SecretProtection
from dpassay.base.errors import input_errors
from dpassay.generators.evolution.choices import EvolutionChoices
from dpassay.generators.secret_evolution.claim import SecretEvolutionClaim, guarantees_of_groups
from dpassay.mechanisms.secret_evolution.clustering import joint_scale
from dpassay.mechanisms.secret_evolution.incidence import Incidence


class SecretChoices(EvolutionChoices[SecretEvolutionClaim]):
    """The noise follows from p, r, the number of rounds and where secrets occur, so nothing is left to find."""

    def __init__(self, claim: SecretEvolutionClaim) -> None:
        super().__init__(claim)
        self._known: dict[tuple[float, float], Incidence] = {}

    def search(self, claim: SecretEvolutionClaim) -> None:
        return None

    def follows(self, claim: SecretEvolutionClaim) -> dict[str, Any]:
        """The p and r of the parameters are those of the guarantee."""
        guarantee = self.claim.claimed()
        return {"p": guarantee.p, "r": guarantee.r} if isinstance(guarantee, SecretProtection) else {}

    def parts(self, claim: SecretEvolutionClaim) -> list[tuple[Guarantee, DpEvent]]:
        with input_errors():
            incidence = self._incidence(claim)
            event = claim.generator().plan(incidence)
        default = SecretProtection(claim.parameters.p, claim.parameters.r)
        return guarantees_of_groups(claim.claimed(), event, incidence.budgets, default)

    def _incidence(self, claim: SecretEvolutionClaim) -> Incidence:
        """Where secrets occur, which is public, with their budgets."""
        budget = (claim.parameters.p, claim.parameters.r)
        if budget not in self._known:
            records = claim.load_records()
            claim.check_records(len(records))
            self._known[budget] = claim.generator().incidence(records)
        return self._known[budget]

    def facts(self, claim: SecretEvolutionClaim) -> dict[str, float]:
        mechanism = claim.generator()
        noise = mechanism.noise(self._incidence(claim))
        return {
            "noise of counts": joint_scale(noise.sigma),
            "private records a release": noise.expected_sample,
            "texts": mechanism.settings.texts,
        }

    def notes(self) -> list[str]:
        return [
            "Where secrets occur was read from the data: it is public by the claim, and the noise follows from it.",
            "The noise of counts is added to the number of private records in each cluster.",
        ]


choices = SecretChoices
