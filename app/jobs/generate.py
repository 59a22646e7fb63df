"""Runs the generator of a claim, or resumes an interrupted run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import PRIVATE, one_process
from dpassay.base.progress import Progress
from dpassay.claims.base import Claim
from dpassay.generators import registry
from dpassay.generators.base import FinishedRun, RunSettings
from dpassay.mechanisms.compute.executor import Executor
from dpassay.mechanisms.compute.workers import executor
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

if TYPE_CHECKING:
    from dpassay.generators.dataset_vectors.texts import WrittenTexts


def executor_of(claim: Claim, workers: int | None, cluster: str | None, progress: Progress) -> Executor:
    """The executor that was asked for, for a run of a claim.

    Raises:
        InputError: if its generator runs in one process, or there is no such executor.
    """
    if not claim.spread and (workers is not None or cluster is not None):
        option = "--cluster" if workers is None else "--workers"
        raise InputError(f"{option}: mechanism {claim.mechanism} runs in one process; leave it out")
    return executor(workers, cluster, progress)


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
    workers: int | None = None,
    cluster: str | None = None,
) -> FinishedRun:
    """Runs the generator of a claim on the claim's data, with the claim's model; resumes an interrupted run.

    Args:
        claim: its guarantee and audits are not needed.
        output: folder for ``private/``, with the ledger and the synthetic data.
        model, device, download, progress, anchor, allow_endpoint, workers, cluster: as for `dpassay.assay`.
        source: source of randomness for the noise. Only a run with the operating system's entropy can be released.

    Raises:
        InputError: for bad data, a bad model, or a folder that holds another run or in which another process works;
            nothing has been written then.
    """
    shown = progress or Progress()
    output, claim = Path(output), claim.with_model(model)
    with executor_of(claim, workers, cluster, shown) as places, one_process(output / PRIVATE):
        settings = RunSettings(
            model=model,
            device=device,
            download=download,
            progress=shown,
            source=source,
            anchor=anchor,
            allow_endpoint=allow_endpoint,
            executor=places,
        )
        done = registry.generate(claim, output, settings)
    for warning in done.warnings():
        shown.note(f"Warning: {warning}")
    return done


def generate_from_vectors(
    claim: Claim,
    vectors: str | Path,
    output: str | Path,
    *,
    texts: int | None = None,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
    allow_endpoint: str | None = None,
) -> WrittenTexts:
    """Writes texts under vectors that a run of dataset vectors released; resumes an interrupted call.

    Reads no records and charges nothing: texts are post-processing of the vectors.

    Args:
        claim: of dataset vectors; its settings of writing are used.
        vectors: the file ``vectors.safetensors`` of a released run.
        output: folder for ``synthetic.jsonl`` and ``synthetic.parquet``, which may be released, and for a journal.
        texts: number of texts of each label; None for the claim's.
        model, device, download, progress, allow_endpoint: as for `dpassay.assay`.

    Raises:
        InputError: if the claim is of another mechanism, the vectors are of another model, or the folder holds a run.
    """
    from dpassay.generators.dataset_vectors.claim import DatasetVectorsClaim
    from dpassay.generators.dataset_vectors.texts import WORKING, write_from_file

    if not isinstance(claim, DatasetVectorsClaim):
        raise InputError(f"--vectors: is for mechanism dataset_vectors only, not {claim.mechanism}; leave it out")
    settings = RunSettings(
        model=model,
        device=device,
        download=download,
        progress=progress or Progress(),
        allow_endpoint=allow_endpoint,
    )
    with input_errors():
        claim = claim.with_texts(texts)
    with one_process(Path(output) / WORKING):
        done = write_from_file(claim, Path(vectors), Path(output), settings)
    for warning in done.warnings:
        settings.progress.note(f"Warning: {warning}")
    return done
