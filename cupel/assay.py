"""The job: a claim goes in; bounds, audits, a verdict and the report come out."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from dp_accounting import dp_event

from cupel import evidence, generation, narrative
from cupel.accounting.adjacency import Adjacency
from cupel.accounting.bounds import Bound, Rigor
from cupel.accounting.events import to_json
from cupel.accounting.guarantees import ExPostDP, Guarantee, PureDP
from cupel.accounting.ledger import Ledger
from cupel.accounting.registry import account, upper_bounds
from cupel.audits.implications import describe
from cupel.audits.result import AuditResult
from cupel.audits.verdict import ALLOWED_ERROR, Verdict, decide
from cupel.claim import Claim
from cupel.errors import input_errors
from cupel.generation import GeneratorRun
from cupel.progress import Progress
from cupel.reports.assay import Assay
from cupel.reports.html import render


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the ledger of the claimed run proves."""

    bounds: list[Bound]
    a_priori: float
    ledger: dict[str, Any]


def run(
    claim: Claim,
    output: Path,
    *,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
) -> Assay:
    """Runs the claimed mechanism, accounts for it, attacks it, and writes both sides of the report.

    Args:
        claim: with a guarantee.
        output: folder for ``private/`` and ``release/``. A run that was interrupted there goes on.
        model: a local folder or a hub id in place of the claim's.
        device: ``auto``, ``cpu`` or ``cuda``.
        download: whether a hub id may be fetched.
        progress: where to show progress.

    Returns:
        The finished assay, as ``private/assay.json`` holds it.

    Raises:
        InputError: for bad data, a bad model, or a folder that holds another run.
    """
    progress = progress or Progress()
    guarantee = claim.claimed()
    language_model = generation.load_model(claim, model, device, download)
    canaries = None
    if evidence.plays_on_canaries(claim):
        with input_errors():  # before canaries are kept for a run that cannot start
            claim.generator().check((), language_model)
        private, _ = generation.make_folders(output)
        canaries = evidence.kept_canaries(private / "canaries.json", 2 * claim.public.records)
        records = evidence.canary_records(canaries, claim.public.labels, claim.unit)
    else:
        records = generation.load_records(claim, download)
    watching = "leave_one_out" in claim.audits
    observer = evidence.loss_observer(claim.generator(), len(records)) if watching else None
    done = generation.generate(
        claim, records, language_model, output, observers=[observer] if observer else [], progress=progress
    )
    proof = prove(done, guarantee)
    audits = []
    if watching:
        costs = slot_costs(done) if claim.adjacency is Adjacency.ADD_REMOVE else None
        audits.append(
            evidence.leave_one_out(
                done, observer, guarantee=guarantee, costs=costs, a_priori=proof.a_priori, progress=progress
            )
        )
    if "reconstruction" in claim.audits:
        folder = output / "private" / "audits"
        audits.append(
            evidence.reconstruction(
                done, canaries, folder, guarantee=guarantee, confidence=1 - ALLOWED_ERROR, progress=progress
            )
        )
    if "record_replay" in claim.audits:
        audits.append(evidence.record_replay(done, progress))
    found = [bound for audit in audits for bound in audit.bounds]
    verdict = decide(
        guarantee,
        adjacency=done.mechanism.adjacency,
        unit=done.mechanism.unit,
        bounds=[*weighed(proof.bounds, audits), *found],
    )
    assay = document(done, guarantee, proof, audits, verdict, device)
    write(assay, output)
    return assay


def weighed(bounds: list[Bound], audits: list[AuditResult]) -> list[Bound]:
    """Upper bounds as the verdict takes them: estimates, where the run was seen not to keep to its events.

    The document keeps them as they are: the releasable page says what is proven of the mechanism as described, and must
    not depend on what was found on private data.
    """
    broken = next((audit for audit in audits if audit.name == "record_replay" and audit.errors), None)
    if broken is None:
        return bounds
    said = f"the run keeps to its events, which record and replay contradicts: {broken.errors[0]}"
    return [
        dataclasses.replace(bound, rigor=Rigor.ESTIMATE, assumptions=(*bound.assumptions, said)) for bound in bounds
    ]


def prove(done: GeneratorRun, guarantee: Guarantee) -> Proof:
    """Upper bounds from the ledger: what was charged, whatever was planned.

    Raises:
        LedgerError: when the ledger's chain is broken.
    """
    mechanism = done.mechanism
    with Ledger.open(done.ledger_path, read_only=True) as ledger:
        head = ledger.verify()
        charged = ledger.run(done.claim.name)
        event = ledger.event(done.claim.name)
        bounds = upper_bounds(event, guarantee, adjacency=mechanism.adjacency, unit=mechanism.unit)
        if isinstance(guarantee, ExPostDP) and mechanism.aggregate == "median":
            bounds.append(account(charged, method="ex_post", adjacency=mechanism.adjacency, unit=mechanism.unit))
        summary = {
            "head": head,
            "events": sum(
                row.count
                for row in ledger.events()
                if row.run == done.claim.name and not isinstance(row.event, dp_event.NoOpDpEvent)
            ),
            "entries": ledger.entries,
            "composition": to_json(event),
            "planned": event == mechanism.plan(),
        }
    pure = upper_bounds(event, PureDP(0.0), adjacency=mechanism.adjacency, unit=mechanism.unit, methods=["basic"])
    tested = narrative.row_assumption(done.generation.row_difference)
    return Proof(
        [dataclasses.replace(bound, assumptions=(*bound.assumptions, tested)) for bound in bounds],
        min((bound.value for bound in pure), default=float("inf")),
        summary,
    )


def slot_costs(done: GeneratorRun) -> dict[int, tuple[float, float]] | None:
    """Slot → (ε*, Σ γ) of the slots that ran; None where tokens have no ex-post cost."""
    spent = done.generation.spent
    if spent is None:
        return None
    running = done.generation.transcript.running
    return {slot: (float(max(row[0], row[1])), float(row[2])) for slot, row in enumerate(spent) if running[slot]}


def document(
    done: GeneratorRun,
    guarantee: Guarantee,
    proof: Proof,
    audits: list[AuditResult],
    verdict: Verdict,
    device: str,
) -> Assay:
    """Everything that was found, as the one document that reports draw."""
    return Assay.model_validate(
        {
            "schema": 1,
            "name": done.claim.name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "claim": done.claim.described(),
            "guarantee": describe(guarantee),
            "verdict": verdict.name,
            "verdict_is_private": verdict.is_private,
            "sentence": verdict.sentence,
            "reasons": list(verdict.reasons),
            "missing": verdict.missing.to_json() if verdict.missing else None,
            "bounds": [bound.to_json() for bound in [*proof.bounds, *(b for a in audits for b in a.bounds)]],
            "best_upper": verdict.best_upper.to_json() if verdict.best_upper else None,
            "best_lower": verdict.best_lower.to_json() if verdict.best_lower else None,
            "audits": [audit.to_json() for audit in audits],
            "batches": batch_rows(done, audits),
            "tokens": token_rows(done),
            "spent": spending(done, guarantee),
            "differences": narrative.differences(done, guarantee, proof.bounds),
            "ledger": proof.ledger,
            "not_protected": narrative.not_protected(done),
            "limitations": narrative.limitations(done),
            "threat_model": narrative.threat_model(done),
            "side_channels": narrative.side_channels(done),
            "implementation": narrative.implementation(done, device),
            "versions": narrative.versions(),
        }
    )


def batch_rows(done: GeneratorRun, audits: list[AuditResult]) -> list[dict[str, Any]]:
    """A row for each slot that ran, with what it cost and what it was shown to leak; for medians only."""
    costs = slot_costs(done)
    if costs is None:
        return []
    losses: dict[int, float] = {}
    for audit in audits:
        if audit.name == "leave_one_out":
            losses = {row["slot"]: row["loss"] for row in audit.details["batches"]}
    documents = np.bincount([document.slot for document in done.generation.documents], minlength=len(costs))
    return [
        {
            "slot": slot,
            "label": done.mechanism.label_of(slot),
            "size": int(done.generation.slot_sizes[slot]),
            "documents": int(documents[slot]),
            "tokens": len(done.generation.transcript.tokens[slot]),
            "epsilon": exact,
            "epsilon_published": published,
            "leave_one_out": losses.get(slot, 0.0),
        }
        for slot, (exact, published) in costs.items()
    ]


def token_rows(done: GeneratorRun) -> list[dict[str, Any]]:
    """Mean and largest ex-post cost by position in the document; for medians only."""
    costs, positions = done.generation.token_costs, done.generation.positions
    if costs is None:
        return []
    exact = costs[..., :2].max(axis=-1)
    rows = []
    for position in range(int(positions.max(initial=-1)) + 1):
        at = positions == position
        rows.append(
            {
                "position": position,
                "count": int(at.sum()),
                "mean": float(exact[at].mean()),
                "largest": float(exact[at].max()),
                "mean_published": float(costs[..., 2][at].mean()),
            }
        )
    return rows


def spending(done: GeneratorRun, guarantee: Guarantee) -> dict[str, float]:
    """Where the budget went: stage → ε, in the currency of the claim."""
    mechanism = done.mechanism
    stages: dict[str, float] = {}
    if mechanism.centres is not None:
        stages["noisy counts of clusters"] = mechanism.cluster_count_epsilon
    if mechanism.slot_threshold is not None:
        stages["noisy slot counts"] = mechanism.slot_count_epsilon
    costs = slot_costs(done)
    if isinstance(guarantee, ExPostDP) and costs:
        stages["tokens of the costliest batch"] = max(exact for exact, _ in costs.values())
    return stages


def write(assay: Assay, output: Path) -> None:
    """Writes ``private/assay.json``, ``private/report.html`` and ``release/report.html``, each whole or not at all."""
    pages = {
        output / "private" / "report.html": render(assay, side="private"),
        output / "release" / "report.html": render(assay, side="release"),
        output / "private" / "assay.json": assay.model_dump_json(by_alias=True, indent=2) + "\n",
    }
    for path, text in pages.items():
        generation.write_atomically(path, text)
