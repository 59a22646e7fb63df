"""Plays the games of a claim about private inference: which attack watches which run, with which controls."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cupel.accounting.adjacency import Adjacency
from cupel.accounting.guarantees import Guarantee
from cupel.attacks.canaries.reconstruction import PREFIX, Canaries, Reconstruction, reconstruct
from cupel.attacks.private_inference.leave_one_out import LeaveOneOut, reruns
from cupel.audits.games import leave_one_out_audit, reconstruction_audit
from cupel.audits.games.replay.private_inference import inference_findings, inference_replay_audit
from cupel.audits.result import AuditResult
from cupel.audits.statistics.one_outcome import Profile
from cupel.claims.base import Claim
from cupel.claims.data import BuiltinData
from cupel.generators.private_inference.charged import charge_and_generate
from cupel.io.run_files import LEDGER, create_once, prepare
from cupel.mechanisms.data.records import Record, with_content_ids
from cupel.mechanisms.private_inference.generator import PrivateInference
from cupel.progress import Progress, Step

if TYPE_CHECKING:
    from cupel.generators.private_inference.run import InferenceRun

RERUNS = 4
"""How many records are taken out of the whole pipeline: those with the largest losses, and as many others."""

REPLAYED = 4
"""How many units record and replay takes out, and copies: the longest, the shortest, and others."""

CONTROL_CANDIDATES = 512
GAME_CANDIDATES = 512


def plays_on_canaries(claim: Claim) -> bool:
    """Whether the claim's own data are canaries, so that the audited run is the claimed run."""
    return "reconstruction" in claim.audits and claim.data == BuiltinData(source="builtin", name="keys")


def kept_canaries(path: Path, candidates: int) -> Canaries:
    """The canaries that a file holds, or new ones, kept there before they are used; the first of two writers wins."""
    if not path.exists():
        drawn = Canaries.draw(candidates)
        body = {"keys": drawn.keys, "included": drawn.included.tolist(), "never": drawn.never}
        create_once(path, json.dumps(body) + "\n")
    kept = json.loads(path.read_text())
    return Canaries(tuple(kept["keys"]), np.array(kept["included"], dtype=np.bool_), tuple(kept["never"]))


def canary_records(canaries: Canaries, labels: Sequence[str], unit: str) -> list[Record]:
    """A record for each canary that is in the data.

    A canary's label and user follow from its place among *all* candidates, so that its coin decides this one record and
    moves no other: the one-run bound needs a guarantee against each coin by itself.
    """
    rows = [
        (PREFIX + key, labels[place % len(labels)] if labels else None, f"canary {place}" if unit == "user" else None)
        for place, (key, included) in enumerate(zip(canaries.keys, canaries.included, strict=True))
        if included
    ]
    return with_content_ids(rows)


def loss_observer(mechanism: PrivateInference, records: int) -> LeaveOneOut | None:
    """What watches a run for the leave-one-out audit; None where a row is not one unit, or not all of a sum is seen."""
    if mechanism.records_per_context > 1 or mechanism.anchor:
        return None
    return LeaveOneOut.of(mechanism, records)


def leave_one_out(
    run: InferenceRun,
    *,
    guarantee: Guarantee,
    costs: Mapping[int, tuple[float, float]] | None,
    a_priori: float,
    realised: float | None,
    profile: Profile | None,
    progress: Progress,
) -> AuditResult:
    """The leave-one-out audit of a finished run: within batches, and, as an estimate, out of the whole pipeline.

    Args:
        run: the claimed run; without an observer only the second part is left.
        guarantee: what is claimed.
        costs: slot → (ε*, Σ γ), for medians.
        a_priori: the certified pure ε of the charged events.
        realised: the certified ex-post ε of the run, for medians.
        profile: the certified curve of the charged events.
        progress: shows the second part.
    """
    observer = run.observer
    losses = observer.losses if observer else np.zeros(len(run.records))
    chosen = _most_and_others(losses, RERUNS)
    with progress.stage("Leaving records out") as step:
        taken_out = reruns(run.mechanism, run.records, chosen, run.model, run.generation, run.key, step)
    return leave_one_out_audit(
        observer.by_slot() if observer else {},
        [loss.value for loss in taken_out],
        records=len(run.records),
        guarantee=guarantee,
        adjacency=run.mechanism.adjacency,
        unit=run.mechanism.unit,
        errors=observer.errors_by_slot() if observer else None,
        rerun_error=max(loss.error for loss in taken_out),
        ex_post_by_slot=costs,
        a_priori=a_priori,
        realised=realised,
        profile=profile,
        batches_are_kept=run.mechanism.variant == "sound",
        published_is_bound=not run.mechanism.replaces_rows,
    )


def record_replay(run: InferenceRun, progress: Progress) -> AuditResult:
    """Every token of a finished run against what was charged for it, on some neighbours of the data."""
    others = replay_neighbors(run.records, run.mechanism.unit.kind, run.mechanism.adjacency)
    with progress.stage("Replaying neighbours") as step:
        findings = inference_findings(
            run.mechanism,
            run.records,
            _told(others, step),
            run.model,
            run.generation,
            key=run.key,
        )
    return inference_replay_audit(findings, neighbors=len(others), adjacency=run.mechanism.adjacency)


def _told(others: Sequence[list[Record]], step: Step) -> Iterator[list[Record]]:
    for done, other in enumerate(others):
        step(done, len(others))
        yield other
    step(len(others), len(others))


def replay_neighbors(records: Sequence[Record], unit: str, adjacency: Adjacency) -> list[list[Record]]:
    """Neighbours of the data: some units are removed, and copies of their records are added.

    The units with the longest and with the shortest record come first, because lengths decide the shapes of forward
    passes; the others are spread evenly over the data.

    Under add_remove one of the two happens, under replace_one a unit goes and a copy of the next one's comes. A copy
    has an id of its own, so that it may fall into any slot.
    """
    units: dict[str, list[Record]] = {}
    for record in records:
        units.setdefault((record.user or record.id) if unit == "user" else record.id, []).append(record)
    names = list(units)
    by_length = sorted(names, key=lambda name: max(len(record.text) for record in units[name]))
    spread = [names[place] for place in np.linspace(0, len(names) - 1, REPLAYED).astype(int)]
    chosen = list(dict.fromkeys([by_length[-1], by_length[0], *spread]))[:REPLAYED]
    found = []
    for name, following in zip(chosen, [*chosen[1:], *chosen[:1]], strict=True):
        ids = {record.id for record in units[name]}
        rest = [record for record in records if record.id not in ids]
        copies = [
            dataclasses.replace(record, id=f"copy of {record.id}", hashed=None, user=record.user and f"copy of {name}")
            for record in units[following]
        ]
        found += [rest, [*records, *copies]] if adjacency is Adjacency.ADD_REMOVE else [[*rest, *copies]]
    return found


def _most_and_others(losses: np.ndarray, count: int) -> list[int]:
    """Half of the records by largest |loss|, the other half spread evenly over the rest."""
    order = np.argsort(-np.abs(losses), kind="stable")
    half = min(count // 2, len(order))
    rest = order[half:]
    spread = rest[np.linspace(0, len(rest) - 1, min(count - half, len(rest))).astype(int)] if len(rest) else rest
    return [int(index) for index in [*order[:half], *spread]]


def reconstruction(
    run: InferenceRun,
    folder: Path,
    *,
    guarantee: Guarantee,
    confidence: float,
    progress: Progress,
) -> AuditResult:
    """The reconstruction audit with its positive and negative controls.

    Args:
        run: the claimed run. If its data are no canaries, the game is played on a run of its own, over the claim's data
            with canaries among them.
        folder: where the runs of the audit keep their ledgers; private.
        guarantee: what is claimed.
        confidence: of the audit's bound and intervals.
        progress: shows the runs of the audit.
    """
    prepare(folder, run.settings.anchor)  # before the canaries: kept without their ledger, they are refused
    found = _disclosed(run, run.canaries) if run.canaries is not None else _game(run, folder, progress)
    return reconstruction_audit(
        found,
        guarantee=guarantee,
        adjacency=run.mechanism.adjacency,
        unit=run.mechanism.unit,
        control=_positive_control(run, folder, progress),
        confidence=confidence,
    )


def _disclosed(run: InferenceRun, canaries: Canaries) -> Reconstruction:
    return reconstruct(run.generation.documents, canaries, [record.text for record in run.records])


def _game(run: InferenceRun, folder: Path, progress: Progress) -> Reconstruction:
    """The claimed mechanism over the claimed data with canaries among them; it begins documents as canaries begin."""
    canaries = kept_canaries(folder / "canaries.json", GAME_CANDIDATES)
    mechanism = dataclasses.replace(run.mechanism, prefix=PREFIX)
    added = canary_records(canaries, mechanism.labels, mechanism.unit.kind)
    return _play(run, mechanism, [*run.records, *added], canaries, folder, "reconstruction", progress)


def _positive_control(run: InferenceRun, folder: Path, progress: Progress) -> Reconstruction:
    """The same attack where there is no protection: each document is written from one record, at temperature 1."""
    canaries = kept_canaries(folder / "control-canaries.json", CONTROL_CANDIDATES)
    mechanism = run.mechanism
    # Canaries are of one length, which is public: the claim's own lengths are enough where its data are canaries.
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
    records = canary_records(canaries, control.labels, control.unit.kind)
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
    generation, _ = charge_and_generate(
        mechanism,
        records,
        run.model,
        folder / LEDGER,
        name=name,
        about={},
        progress=progress,
        title=f"Attacking: {name}",
        anchor=run.settings.anchor,
    )
    return reconstruct(generation.documents, canaries, [record.text for record in records])
