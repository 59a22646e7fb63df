"""`dpassay audit score`: scores the canaries of a plan by a synthetic file or a language model, and by nothing else."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from dpassay.auditing.canaries.files import (
    CanariesPlan,
    CanaryScores,
    PlannedCanaries,
    ScoredFile,
    read_plan,
    read_scores,
)
from dpassay.auditing.canaries.synthetic import SyntheticData
from dpassay.auditing.files import BOUND, SCORES, hashed, sealed
from dpassay.base.errors import InputError, input_errors
from dpassay.base.outputs import check_device
from dpassay.base.private_files import make_private, write_private
from dpassay.base.progress import Progress
from dpassay.data.reader import COMPRESSED, FOUND, FileOptions
from dpassay.data.records import written_as


def score(
    folder: str | Path,
    synthetic: str | Path | None = None,
    *,
    model: str | Path | None = None,
    base: str | None = None,
    device: str = "cpu",
    text: str | None = None,
    ignore: Collection[str] = (),
    reading: FileOptions = FOUND,
    unprotected: bool = False,
    expect: str | None = None,
    progress: Progress | None = None,
) -> ScoredFile:
    """Scores the canaries of a plan by a synthetic file or a language model, and writes ``scores.json``.

    The same file may be scored again until the result is computed. Each other file or model is a separate audit, and at
    most the planned number can be scored. A run without protection is the positive control: it is none of these,
    bounds nothing, and may be scored at any time, in place of an earlier one.

    Args:
        folder: of the plan.
        synthetic: what the generator wrote: a .jsonl, .csv, .tsv or .parquet file.
        model: in its place, the folder of the language model that was trained on the data.
        base: of a model, the public model that it was fine-tuned from; None for none.
        device: where a model runs, that which scores included: ``auto``, ``cpu`` or ``cuda``.
        text: column of the text in the file, for canaries of text; None for that of the plan.
        ignore: columns to leave out, for kinds table and edge, by which no copy can be recognised.
        reading: how the file is written; what is not stated is found out from it.
        unprotected: whether the generator ran with its protection off: the positive control, which is no planned
            scoring.
        expect: the hash of the manifest that was kept outside.
        progress: where to show progress.

    Returns:
        The scores of this file or model.

    Raises:
        InputError: if the file or the model is invalid, the result was computed, or no more scorings were planned.
    """
    if (synthetic is None) == (model is None):
        raise InputError("name the generator's file, or its model with --model; score both one after the other")
    if base is not None and model is None:
        raise InputError("--base belongs to --model; leave it out")
    if text is not None and model is not None:
        raise InputError("--text names a column of a file, and a model has none; leave it out")
    if model is not None and (ignore or reading != FOUND):
        raise InputError("how a file is read, and its columns, are no matter of a model; leave these options out")
    planned = read_plan(Path(folder), expect)
    with input_errors():
        make_private(planned.private)
    if (planned.folder / BOUND).exists() and not unprotected:
        raise InputError(
            f"{planned.folder}: its result was computed, so nothing more is scored; plan a new audit and run again"
        )
    shown = progress or Progress()
    if synthetic is not None:
        entry, others = _score_file(
            planned, Path(synthetic), text, tuple(ignore), reading, check_device(device), unprotected, shown
        )
    else:
        entry, others = _score_model(planned, str(model), base, check_device(device), unprotected, shown)
    update = {"unprotected": entry} if unprotected else {"scorings": (*others.scorings, entry)}
    document = others.model_copy(update=update).model_dump(by_alias=True, exclude={"sha256"})
    write_private(planned.folder / SCORES, json.dumps(sealed(document), allow_nan=False) + "\n")
    return entry


def _score_file(
    planned: PlannedCanaries,
    synthetic: Path,
    text: str | None,
    ignore: Collection[str],
    reading: FileOptions,
    device: str,
    unprotected: bool,
    progress: Progress,
) -> tuple[ScoredFile, CanaryScores]:
    """The scores by a synthetic file, and those by others."""
    plan = planned.plan
    if text is not None and not plan.canary_kind.of_text:
        raise InputError(f"canaries of kind {plan.kind} are rows and have no column of text; leave --text out")
    if ignore and (plan.canary_kind.of_text or not plan.canary_kind.scores):
        raise InputError(f"canaries of kind {plan.kind} are found by one column, which is needed; leave --ignore out")
    if not synthetic.is_file():
        raise InputError(f"{synthetic}: there is no such file; name the file of the synthetic data")
    before = synthetic.stat()
    with progress.stage("Hashing") as step:
        result = hashed(synthetic, step)
    if (known := _files_of(plan).get(result)) is not None:
        off = " with its protection off" if unprotected else ""
        raise InputError(f"{synthetic}: {known}; name the file that the generator wrote{off}")
    others = _other_scores(planned, result, synthetic, unprotected)
    kind = plan.canary_kind.working(device, progress)
    with input_errors(), progress.stage(kind.work) as step:
        file = SyntheticData(
            synthetic,
            str(text or plan.text),
            step,
            _line_count(synthetic),
            reading,
            _names_by_order(plan, reading),
            ignore,
            (*(plan.reading.missing or ()), *(reading.missing or ())),
        )
        written = written_as(synthetic, reading)
        plain, copied = kind.score(plan.every, plan.planted, plan.table, file)
        step(file.count, file.count)
    after, here = synthetic.stat(), len(plan.candidates)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InputError(f"{synthetic}: was changed while it was read; score it again")
    entry = ScoredFile(
        file=synthetic.name,
        path=str(synthetic.resolve()),
        sha256=result,
        bytes=before.st_size,
        rows=file.count,
        candidates=plain[:here].tolist(),
        never=plain[here:].tolist(),
        copied=copied[:here].tolist(),
        written=written,
        understood=tuple(file.columns),
    )
    return entry, others


def _names_by_order(plan: CanariesPlan, reading: FileOptions) -> list[str] | None:
    """The names of the columns of the data if only one of data and synthetic file has names, else None."""
    if plan.canary_kind.of_text or (reading.header is False) == (plan.reading.header is False):
        return None
    return [column.name for column in plan.table]


def _score_model(
    planned: PlannedCanaries, model: str, base: str | None, device: str, unprotected: bool, progress: Progress
) -> tuple[ScoredFile, CanaryScores]:
    """The scores by a model, and those by others. Its search is not checked on copies: it would be trained again."""
    kind, every, here = planned.plan.canary_kind, planned.plan.every, len(planned.plan.candidates)
    if not kind.model_attack:
        raise InputError(f"canaries of kind {kind.name} are rows, which a language model does not score; name a file")
    from dpassay.attacks.canaries.likelihood import ending_log_probabilities
    from dpassay.mechanisms.models import model_folder
    from dpassay.mechanisms.models.language_model import LanguageModel

    with input_errors(), progress.stage("Scoring") as step:
        destination = model_folder.locate(model, False)
        target = LanguageModel.load(destination, device, dtype="float32")
        public = None if base is None else LanguageModel.load(base, device, dtype="float32")
        others = _other_scores(planned, target.fingerprint, destination, unprotected)
        likely = ending_log_probabilities(target, [canary.echo for canary in every], public)
        scores = kind.likelihood_scores(every, likely, calibrated=public is not None)
        step(1, 1)
    entry = ScoredFile(
        file=target.name,
        path=str(destination.resolve()),
        sha256=target.fingerprint,
        bytes=sum(file.stat().st_size for file in model_folder.files(destination)),
        rows=0,
        candidates=scores[:here].tolist(),
        never=scores[here:].tolist(),
        copied=[],
        attack=kind.model_attack,
    )
    return entry, others


def _files_of(plan: CanariesPlan) -> dict[str, str]:
    """What the files are that the plan wrote, by their hash; a generator wrote none of them."""
    result, layout = {plan.canaries_sha256: "holds the canaries themselves"}, plan.layout
    if layout is not None:
        result |= {
            layout.input_sha256: "is what the generator reads, with the planted canaries in it",
            layout.source_sha256: "is the source of the plan, which the generator reads",
            layout.holdout_sha256: "is the holdout of the plan, which the generator does not read",
        }
    return result


def _other_scores(planned: PlannedCanaries, result: str, given: Path, unprotected: bool) -> CanaryScores:
    """The scores of planned files other than this one, which has this hash, and those of a run without protection.

    Raises:
        InputError: if there are as many as were planned, or this file was scored as that of the other run.
    """
    scores = CanaryScores(schema=1, manifest_sha256=planned.manifest_sha256)
    if (planned.folder / SCORES).exists():
        scores = read_scores(planned)
    control = [] if scores.unprotected is None else [scores.unprotected]
    if any(entry.sha256 == result for entry in (scores.scorings if unprotected else control)):
        raise InputError(
            f"{given}: was scored as the output of a run {'with' if unprotected else 'without'} protection, and cannot "
            "be both; name the other file"
        )
    if unprotected:
        return scores
    scorings, most = tuple(entry for entry in scores.scorings if entry.sha256 != result), planned.plan.scorings
    if len(scorings) >= most:
        raise InputError(
            f"{given}: would be file {len(scorings) + 1} of {most} planned; the confidence is divided "
            "among planned files, so plan a new audit with --scorings and run again"
        )
    return scores.model_copy(update={"scorings": scorings})


def _line_count(path: Path) -> int:
    """About the number of rows of a file, for the progress bar; 0 if unknown."""
    if path.suffix.lower() in (".parquet", *COMPRESSED):
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
