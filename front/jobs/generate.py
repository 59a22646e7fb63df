"""Runs the generator of a claim: data in, synthetic data and a ledger out; an interrupted run is resumed."""

from __future__ import annotations

from pathlib import Path

from cupel.claims.base import Claim
from cupel.generators import registry
from cupel.generators.base import FinishedRun, Options
from cupel.io.run_files import PRIVATE, one_process
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Source
from cupel.progress import Progress


def generate(
    claim: Claim,
    output: str | Path,
    *,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
    source: Source = OS_ENTROPY,
    anchor: Path | None = None,
    allow_endpoint: str | None = None,
) -> FinishedRun:
    """Loads data and model as the claim says and runs its generator into `output`; see `Options`.

    Raises:
        InputError: for bad data, a bad model, or a folder that holds another run or in which another process works;
            nothing has been written then.
    """
    shown = progress or Progress()
    options = Options(
        model=model,
        device=device,
        download=download,
        progress=shown,
        source=source,
        anchor=anchor,
        allow_endpoint=allow_endpoint,
    )
    output, claim = Path(output), claim.written_by(model)
    with one_process(output / PRIVATE):
        return registry.generate(claim, output, options)
