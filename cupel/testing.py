"""For tests: runs whose noise can be played again. What they write protects nobody, and nothing of it is released."""

from __future__ import annotations

from pathlib import Path

from cupel import generation
from cupel.claim import Claim
from cupel.generation import GeneratorRun
from cupel.mechanisms.randomness import Recorded
from cupel.progress import Progress


def recorded_run(claim: Claim, output: Path, *, seed: int, device: str = "cpu") -> GeneratorRun:
    """Runs a claim's generator with noise from a seed in place of the operating system's entropy.

    The ledger says ``noise: recorded``, and the documents go to ``private/``.

    Args:
        claim: as for `cupel.generation.run`.
        output: folder for ``private/``.
        seed: of the noise.
        device: where the model runs.
    """
    records = generation.load_records(claim)
    model = generation.load_model(claim, None, device, download=False)
    return generation.generate(claim, records, model, output, progress=Progress(), source=Recorded(seed))
