"""Audits of private inference: leave-one-out, record and replay, and reconstruction of canaries."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.guarantees import PureDP
from dpassay.accounting.ledger.entries import Json
from dpassay.accounting.ledger.run_files import LEDGER, prepare
from dpassay.accounting.registry import upper_bounds
from dpassay.attacks.canaries.reconstruction import PREFIX, Canaries, Reconstruction, reconstruct
from dpassay.attacks.private_inference.leave_one_out import reruns
from dpassay.audits.games import leave_one_out_audit, reconstruction_audit
from dpassay.audits.games.replay.private_inference import inference_findings, inference_replay_audit
from dpassay.audits.result import AuditResult
from dpassay.audits.statistics.one_outcome import certified_profile
from dpassay.base.errors import InputError
from dpassay.base.progress import Progress, with_progress
from dpassay.data.batching import unit_records
from dpassay.data.records import Record
from dpassay.generators.audits import named_audits
from dpassay.generators.base import BoundedGuarantee
from dpassay.generators.ledger_run import open_audit_run, run_errors
from dpassay.generators.private_inference.canaries import canary_records, kept_canaries
from dpassay.generators.private_inference.run import InferenceRun, kept_key
from dpassay.generators.private_inference.words import rows_basis
from dpassay.mechanisms.primitives.charged import RunMismatchError
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate

RERUNS = 4
"""The number of units removed for a rerun of the whole pipeline: half with the largest losses, half others."""

REPLAYED = 4
"""The number of units that record and replay removes or copies: the longest, the shortest, and others."""

CONTROL_CANDIDATES = 512
GAME_CANDIDATES = 512


def audit(run: InferenceRun, claimed: BoundedGuarantee, confidence: float) -> list[AuditResult]:
    """The audits of a finished run that its claim names.

    Raises:
        InputError: if the run was made where other logits are computed, and that shows.
    """
    audits = {"leave_one_out": leave_one_out, "reconstruction": reconstruction, "record_replay": record_replay}
    try:
        return named_audits(run, claimed, confidence, audits, exact=("leave_one_out", "record_replay"))
    except RunMismatchError as error:
        raise InputError(f"{run.ledger_path}: {error}") from None


def leave_one_out(run: InferenceRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The leave-one-out audit of a finished run: within batches, and, as an estimate, of the whole pipeline.

    Args:
        run: the claimed run; without an observer, batches are not audited.
        claimed: the guarantee and the events of the run.
        folder, confidence: not used.
    """
    observer, event = run.observer, claimed.event
    losses = observer.losses if observer else np.zeros(len(run.records))
    units = unit_records(run.records, run.key, run.mechanism.unit)  # of each user, the record that a run may use
    chosen = [int(units[index]) for index in _most_and_others(losses[units], RERUNS)]
    with run.settings.progress.stage("Leaving records out") as step:
        given = (run.model, run.generation, run.key, step, run.settings.executor)
        taken_out = reruns(run.mechanism, run.records, chosen, *given)
    pure = upper_bounds(event, PureDP(0.0), adjacency=run.adjacency, unit=run.unit, methods=["basic"])
    result = leave_one_out_audit(
        observer.by_slot() if observer else {},
        [loss.value for loss in taken_out],
        records=len(units),
        guarantee=claimed.guarantee,
        adjacency=run.mechanism.adjacency,
        unit=run.mechanism.unit,
        errors=observer.errors_by_slot() if observer else None,
        rerun_error=max(loss.error for loss in taken_out),
        ex_post_by_slot=run.slot_costs() if run.adjacency is Adjacency.ADD_REMOVE else None,
        a_priori=min((bound.value for bound in pure), default=float("inf")),
        realised=run.realised_epsilon(),
        profile=certified_profile(event, adjacency=run.adjacency, unit=run.unit),
        batches_are_kept=run.mechanism.variant == "sound",
        published_is_bound=not run.mechanism.replaces_rows,
    )
    return [result]


def record_replay(run: InferenceRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """Replays every token of a finished run on some neighbours, and compares its loss with its charge."""
    others = replay_neighbors(run.records, run.mechanism.unit, run.mechanism.adjacency)
    with run.settings.progress.stage("Replaying neighbours") as step:
        findings = inference_findings(
            run.mechanism,
            run.records,
            with_progress(others, step, len(others)),
            run.model,
            run.generation,
            key=run.key,
            executor=run.settings.executor,
        )
    return [inference_replay_audit(findings, neighbors=len(others), adjacency=run.mechanism.adjacency)]


def replay_neighbors(records: Sequence[Record], unit: Unit, adjacency: Adjacency) -> list[list[Record]]:
    """Neighbours of the data, in which a unit is removed or a copy of one is added.

    The units with the longest and with the shortest record come first, because lengths decide the shapes of forward
    passes; the others are spread evenly over the data.

    Under add_remove, one unit is removed or a copy is added; under replace_one, a unit is replaced by a copy of the
    next. A copy has a new id, so that it may fall into any slot.
    """
    units: dict[str, list[Record]] = {}
    for record in records:
        units.setdefault(unit.of(record), []).append(record)
    names = list(units)
    by_length = sorted(names, key=lambda name: max(len(record.text) for record in units[name]))
    spread = [names[index] for index in np.linspace(0, len(names) - 1, REPLAYED).astype(int)]
    chosen = list(dict.fromkeys([by_length[-1], by_length[0], *spread]))[:REPLAYED]
    results = []
    for name, following in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        ids = {record.id for record in units[name]}
        rest = [record for record in records if record.id not in ids]
        copies = [
            dataclasses.replace(record, id=f"copy of {record.id}", hashed=None, user=record.user and f"copy of {name}")
            for record in units[following]
        ]
        results += [rest, [*records, *copies]] if adjacency is Adjacency.ADD_REMOVE else [[*rest, *copies]]
    return results


def _most_and_others(losses: np.ndarray, count: int) -> list[int]:
    """Half of the units by largest |loss|, the other half spread evenly over the rest."""
    order = np.argsort(-np.abs(losses), kind="stable")
    half = min(count // 2, len(order))
    rest = order[half:]
    spread = rest[np.linspace(0, len(rest) - 1, min(count - half, len(rest))).astype(int)] if len(rest) else rest
    return [int(index) for index in [*order[:half], *spread]]


def reconstruction(run: InferenceRun, claimed: BoundedGuarantee, folder: Path, confidence: float) -> list[AuditResult]:
    """The reconstruction audit with its positive and negative controls.

    Args:
        run: the claimed run. If its data are not canaries, the game is played on another run, over the claim's data
            with canaries added.
        claimed: the claim.
        folder: beside that of the audit's runs and their ledgers; private.
        confidence: of the audit's bound and intervals.
    """
    folder, progress = folder.parent, run.settings.progress
    prepare(folder, run.settings.anchor)  # before the canaries, which are refused without their ledger
    if run.canaries is None:
        result = _game(run, folder, progress)
    else:
        result = reconstruct(run.generation.documents, run.canaries, [record.text for record in run.records])
    audited = reconstruction_audit(
        result,
        guarantee=claimed.guarantee,
        adjacency=run.mechanism.adjacency,
        unit=run.mechanism.unit,
        control=_positive_control(run, folder, progress),
        confidence=confidence,
    )
    return [audited]


def _game(run: InferenceRun, folder: Path, progress: Progress) -> Reconstruction:
    """The attack on the claimed mechanism over the claim's data and canaries; documents begin as canaries do."""
    canaries = kept_canaries(folder / "canaries.json", GAME_CANDIDATES)
    mechanism = dataclasses.replace(run.mechanism, prefix=PREFIX)
    added = canary_records(canaries, mechanism.labels, mechanism.unit)
    return _play(run, mechanism, [*run.records, *added], canaries, folder, "reconstruction", progress)


def _positive_control(run: InferenceRun, folder: Path, progress: Progress) -> Reconstruction:
    """The same attack without protection: each document is generated from one record, at temperature 1."""
    canaries = kept_canaries(folder / "control-canaries.json", CONTROL_CANDIDATES)
    mechanism = run.mechanism
    # All canaries have one public length, so the claim's lengths suffice if its data are canaries.
    lengths: dict[str, Any] = {"context_tokens": mechanism.context_tokens, "document_tokens": mechanism.document_tokens}
    control = PrivateInference(
        aggregate="none",
        clip=mechanism.clip,
        temperature=1.0,
        batch_size=1,
        tokens=2 * (len(run.model.encode("00000")) + 1),
        records=CONTROL_CANDIDATES // 2,
        labels=mechanism.labels,
        prefix=PREFIX,
        template=mechanism.template,
        stop=mechanism.stop,
        unit=mechanism.unit,
        **(lengths if run.canaries is not None else {}),
    )
    records = canary_records(canaries, control.labels, control.unit)
    return _play(run, control, records, canaries, folder, "positive control", progress)


def _play(
    run: InferenceRun,
    mechanism: PrivateInference,
    records: list[Record],
    canaries: Canaries,
    folder: Path,
    name: str,
    progress: Progress,
) -> Reconstruction:
    rows, key = mechanism.row_plan(run.model), kept_key(folder / LEDGER, name, run.settings.anchor)
    about: dict[str, Json] = {"model": run.model.fingerprint, "rows": rows.to_json(), "key": key.hex()}
    basis = run.claim.basis().joined(rows_basis(rows))
    with (
        run_errors(folder / LEDGER),
        open_audit_run(run, folder, name, mechanism, about, basis) as charged,
        progress.stage(f"Attacking: {name}") as step,
    ):
        generation = generate(
            mechanism, records, run.model, charged, key=key, progress=step, executor=run.settings.executor
        )
    return reconstruct(generation.documents, canaries, [record.text for record in records])
