"""The registry of generators. The folder of each holds `claim`, and `run` with a function `generate`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from cupel.claims.base import Claim
from cupel.generators.aug_pe.claim import AugPEClaim
from cupel.generators.dataset_vectors.claim import DatasetVectorsClaim
from cupel.generators.declared.claim import DeclaredClaim
from cupel.generators.private_inference.claim import PrivateInferenceClaim
from cupel.generators.secret_evolution.claim import SecretEvolutionClaim
from cupel.generators.two_stage.claim import TwoStageClaim

if TYPE_CHECKING:
    from cupel.generators.base import FinishedRun, RunSettings

CLAIMS: dict[str, type[Claim]] = {
    "private_inference": PrivateInferenceClaim,
    "secret_evolution": SecretEvolutionClaim,
    "aug_pe": AugPEClaim,
    "dataset_vectors": DatasetVectorsClaim,
    "two_stage": TwoStageClaim,
    "declared": DeclaredClaim,
}
"""Name of the mechanism, which is also the generator's folder → class of its claims."""


def generate(claim: Claim, output: Path, settings: RunSettings) -> FinishedRun:
    """Runs the generator of a claim into a folder, or resumes the run that the folder holds.

    Runners need torch, so they are imported here and not when a claim is read.
    """
    runner = import_module(f"cupel.generators.{claim.mechanism}.run")
    done: FinishedRun = runner.generate(claim, output, settings)
    return done
