"""`dpassay audit score`: scores the canaries of a plan by a synthetic file or a language model, and by nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpassay.auditing.canaries.files import Manifest, ScoredFile, read_manifest, read_scores
from dpassay.auditing.plan_files import BOUND, PLAN, SCORES, hashed, read_json, sealed
from dpassay.base.arrays import Floats
from dpassay.base.errors import InputError, input_errors
from dpassay.base.outputs import check_device
from dpassay.base.private_files import PRIVATE, make_private, write_private
from dpassay.base.progress import Progress, Step
from dpassay.data.records import read_rows, read_texts


@dataclass(slots=True)
class _CountedFile:
    """A synthetic file that counts its rows and shows progress while it is read."""

    path: Path
    column: str
    step: Step
    total: int
    count: int = 0
    columns: set[str] = field(default_factory=set)

    def texts(self) -> Iterator[str]:
        for text, _ in read_texts(self.path, text=self.column, empty=True):
            self._count_row()
            yield text

    def rows(self, names: set[str]) -> Iterator[Mapping[str, Any]]:
        for _, row in read_rows(self.path, names):
            self._count_row()
            self.columns.update(names & row.keys())
            yield row

    def _count_row(self) -> None:
        self.count += 1
        if self.count % 1000 == 0:
            self.step(self.count, max(self.count, self.total))


def score(
    folder: str | Path,
    synthetic: str | Path | None = None,
    *,
    model: str | Path | None = None,
    base: str | None = None,
    device: str = "cpu",
    text: str | None = None,
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
        synthetic: what the generator wrote: a .jsonl, .csv or .parquet file.
        model: in its place, the folder of the language model that was trained on the data.
        base: of a model, the public model that it was fine-tuned from; None for none.
        device: where a model runs: ``auto``, ``cpu`` or ``cuda``.
        text: column of the text in the file, for canaries of text; None for that of the plan.
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
    if synthetic is not None:
        return _score_file(
            Path(folder),
            Path(synthetic),
            text=text,
            expect=expect,
            unprotected=unprotected,
            progress=progress or Progress(),
        )
    return _score_model(
        Path(folder),
        str(model),
        base=base,
        device=check_device(device),
        expect=expect,
        unprotected=unprotected,
        progress=progress or Progress(),
    )


def _score_file(
    folder: Path, synthetic: Path, *, text: str | None, expect: str | None, unprotected: bool, progress: Progress
) -> ScoredFile:
    manifest, digest = _open_plan(folder, expect, unprotected)
    if text is not None and not manifest.canary_kind.of_text:
        raise InputError(f"canaries of kind {manifest.kind} are rows and have no column of text; leave --text out")
    if not synthetic.is_file():
        raise InputError(f"{synthetic}: there is no such file; name the file of the synthetic data")
    before = synthetic.stat()
    with progress.stage("Hashing") as step:
        result = hashed(synthetic, step)
    planted = read_json(folder / PLAN).get("canaries", {})
    if not isinstance(planted, dict):
        raise InputError(f"{folder / PLAN}: was changed: it does not say which file holds the canaries; restore it")
    if (known := _files_of(manifest, planted).get(result)) is not None:
        off = " with its protection off" if unprotected else ""
        raise InputError(f"{synthetic}: {known}; name the file that the generator wrote{off}")
    scorings, control = _other_scorings(folder, digest, result, manifest, synthetic, unprotected)
    with input_errors(), progress.stage("Reading") as step:
        counted = _CountedFile(synthetic, str(text or manifest.text), step, _line_count(synthetic))
        scores = _scores(manifest, counted)
        step(counted.count, counted.count)
    after = synthetic.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise InputError(f"{synthetic}: was changed while it was read; score it again")
    entry = ScoredFile(
        file=synthetic.name,
        path=str(synthetic.resolve()),
        sha256=result,
        bytes=before.st_size,
        rows=counted.count,
        **{name: values.tolist() for name, values in scores.items()},
    )
    _write(folder, digest, scorings, control, entry, unprotected)
    return entry


def _score_model(
    folder: Path,
    model: str,
    *,
    base: str | None,
    device: str,
    expect: str | None,
    unprotected: bool,
    progress: Progress,
) -> ScoredFile:
    """Its search is not checked on copies, which would take another training."""
    manifest, digest = _open_plan(folder, expect, unprotected)
    kind, every = manifest.canary_kind, [*manifest.candidates, *manifest.never]
    if not kind.model_attack:
        raise InputError(f"canaries of kind {kind.name} are rows, which a language model does not score; name a file")
    from dpassay.attacks.canaries.likelihood import ending_log_probabilities
    from dpassay.mechanisms.models import model_folder
    from dpassay.mechanisms.models.language_model import LanguageModel

    with input_errors(), progress.stage("Scoring") as step:
        destination = model_folder.locate(model, False)
        target = LanguageModel.load(destination, device, dtype="float32")
        public = None if base is None else LanguageModel.load(base, device, dtype="float32")
        scorings, control = _other_scorings(folder, digest, target.fingerprint, manifest, destination, unprotected)
        likely = ending_log_probabilities(target, [canary.echo for canary in every], public)
        scores = kind.likelihood_scores(every, likely, calibrated=public is not None)
        step(1, 1)
    entry = ScoredFile(
        file=target.name,
        path=str(destination.resolve()),
        sha256=target.fingerprint,
        bytes=sum(file.stat().st_size for file in model_folder.files(destination)),
        rows=0,
        candidates=scores[: len(manifest.candidates)].tolist(),
        never=scores[len(manifest.candidates) :].tolist(),
        copied=[],
        attack=kind.model_attack,
    )
    _write(folder, digest, scorings, control, entry, unprotected)
    return entry


def _open_plan(folder: Path, expect: str | None, unprotected: bool) -> tuple[Manifest, str]:
    """The manifest and its hash.

    Raises:
        InputError: if the result was computed and the run has protection.
    """
    manifest, digest = read_manifest(folder, expect)
    with input_errors():
        make_private(folder / PRIVATE)
    if (folder / BOUND).exists() and not unprotected:
        raise InputError(
            f"{folder}: its result was computed, so nothing more is scored; plan a new audit and run again"
        )
    return manifest, digest


def _files_of(manifest: Manifest, canaries: Mapping[str, Any]) -> dict[str, str]:
    """What the files are that the plan wrote, by their hash; a generator wrote none of them."""
    result, layout = {str(canaries.get("sha256")): "holds the canaries themselves"}, manifest.layout
    if layout is not None:
        result |= {
            layout.input_sha256: "is what the generator reads, with the planted canaries in it",
            layout.source_sha256: "is the source of the plan, which the generator reads",
            layout.holdout_sha256: "is the holdout of the plan, which the generator does not read",
        }
    return result


def _write(
    folder: Path,
    digest: str,
    scorings: list[dict[str, Any]],
    control: dict[str, Any] | None,
    entry: ScoredFile,
    unprotected: bool,
) -> None:
    """Writes the scores with those of one file more, in place of an earlier control if it has no protection."""
    document = {
        "schema": 1,
        "manifest_sha256": digest,
        "scorings": scorings if unprotected else [*scorings, entry.model_dump()],
        "unprotected": entry.model_dump() if unprotected else control,
    }
    write_private(folder / SCORES, json.dumps(sealed(document), allow_nan=False) + "\n")


def _other_scorings(
    folder: Path, digest: str, result: str, manifest: Manifest, given: Path, unprotected: bool
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The scores of planned files other than this one, and those of a run without protection.

    Args:
        folder: of the plan.
        digest: hash of the manifest.
        found: hash of this file.
        manifest: of the plan.
        given: this file.
        unprotected: whether this file is of a run without protection.

    Raises:
        InputError: if there are as many as were planned, or this file was scored as that of the other run.
    """
    document = read_scores(folder, digest) if (folder / SCORES).exists() else {}
    scorings, control = document.get("scorings", []), document.get("unprotected")
    if any(entry["sha256"] == result for entry in (scorings if unprotected else [control] if control else [])):
        raise InputError(
            f"{given}: was scored as the output of a run {'with' if unprotected else 'without'} protection, and cannot "
            "be both; name the other file"
        )
    if unprotected:
        return scorings, control
    scorings = [entry for entry in scorings if entry["sha256"] != result]
    if len(scorings) >= manifest.scorings:
        raise InputError(
            f"{given}: would be file {len(scorings) + 1} of {manifest.scorings} planned; the confidence is divided "
            "among planned files, so plan a new audit with --scorings and run again"
        )
    return scorings, control


def _line_count(path: Path) -> int:
    """About the number of rows of a file, for the progress bar; 0 if unknown."""
    if path.suffix.lower() == ".parquet":
        return 0
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def _scores(manifest: Manifest, file: _CountedFile) -> dict[str, Floats]:
    """Scores of candidates, of control candidates, and of candidates if the file also held all planted canaries."""
    every, here = [*manifest.candidates, *manifest.never], len(manifest.candidates)
    plain, copied = manifest.canary_kind.score(every, manifest.planted, manifest.table, file)
    return {"candidates": plain[:here], "never": plain[here:], "copied": copied[:here]}
