"""Claims about Aug-PE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dpassay.accounting.adjacency import Unit
from dpassay.claims.base import AT_LEAST_0, parameters_model, public_numbers
from dpassay.generators.evolution.claim import (
    EMBEDDED_ALONE,
    EVOLUTION_LIMITS,
    NOT_OF_THE_MECHANISM,
    WRITER_FIELDS,
    EvolutionClaim,
)
from dpassay.mechanisms.aug_pe.generator import AugPE

AugPEParameters: Any = parameters_model(
    "AugPEParameters",
    AugPE,
    {"records", "labels", "adjacency", "unit", "variant"},
    {**EVOLUTION_LIMITS, "noise_multiplier": AT_LEAST_0, "threshold": AT_LEAST_0},
    **WRITER_FIELDS,
)


class AugPEClaim(EvolutionClaim):
    """A claim about Aug-PE, or the configuration of a run."""

    mechanism: Literal["aug_pe"]
    parameters: AugPEParameters
    audits: Sequence[str] = []

    def check(self) -> None:
        super().check()
        if self.audits:
            raise ValueError("audits: dpassay has no audit of aug_pe; leave them out")

    def generator(self) -> AugPE:
        return AugPE(
            **self.parameters.model_dump(exclude=NOT_OF_THE_MECHANISM),
            records=self.public.records,
            labels=tuple(self.public.labels),
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        return "Private evolution of synthetic documents by noisy votes"

    def assumptions(self) -> list[str]:
        return [public_numbers("records", labels=bool(self.public.labels)), EMBEDDED_ALONE]
