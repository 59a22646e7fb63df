"""What claims about noisy marginals leave to choose: the method, and ρ, which the guarantee determines."""

from __future__ import annotations

from typing import Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.generators.choices import ParameterChoices, grid
from dpassay.generators.marginals.claim import MarginalsClaim


class MarginalsChoices(ParameterChoices[MarginalsClaim]):
    """Whatever is measured costs one ρ, so no other parameter changes it."""

    def search(self, claim: MarginalsClaim) -> ParameterSearch:
        return ParameterSearch("rho", (1e-6, 1e6), claim.parameters.rho)

    def settings(self) -> list[dict[str, Any]]:
        return grid(method=["aim", "mst"])

    def notes(self) -> list[str]:
        return ["Nothing else changes ρ: which columns, levels and marginals a method measures costs time alone."]


choices = MarginalsChoices
