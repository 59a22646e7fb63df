"""Claims about Aug-PE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cupel.accounting.adjacency import Unit
from cupel.claim_base import Plan, parameters_model
from cupel.claim_evolution import NOT_OF_THE_MECHANISM, WRITER_FIELDS, EvolutionClaim
from cupel.mechanisms.aug_pe import AugPE

if TYPE_CHECKING:
    from cupel.generation import Options
    from cupel.run_aug_pe import AugPERun

AugPEParameters: Any = parameters_model(
    "AugPEParameters", AugPE, {"records", "labels", "adjacency", "unit", "variant"}, **WRITER_FIELDS
)


class AugPEClaim(EvolutionClaim):
    """A claim about Aug-PE, or the configuration of a run."""

    mechanism: Literal["aug_pe"]
    parameters: AugPEParameters
    audits: Sequence[str] = []

    def check(self) -> None:
        super().check()
        if self.audits:
            raise ValueError("audits: there is none of aug_pe yet; leave them out")

    def generator(self) -> AugPE:
        return AugPE(
            **self.parameters.model_dump(exclude=NOT_OF_THE_MECHANISM),
            records=self.public.records,
            labels=tuple(self.public.labels),
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    def plan(self) -> Plan:
        return Plan(self.generator().plan())

    def generate(self, output: Path, options: Options) -> AugPERun:
        from cupel import run_aug_pe

        return run_aug_pe.generate(self, output, options)
