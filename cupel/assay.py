"""The job: a claim goes in; bounds, audits, a verdict and the report come out."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from cupel import narrative
from cupel.accounting.events import to_json
from cupel.accounting.guarantees import Guarantee
from cupel.accounting.ledger import Ledger
from cupel.audits.implications import describe
from cupel.audits.result import AuditResult
from cupel.audits.verdict import Verdict, decide
from cupel.claim_base import Claim
from cupel.errors import input_errors
from cupel.generation import FinishedRun, Options, Part
from cupel.progress import Progress
from cupel.reports.assay import Assay
from cupel.reports.html import render
from cupel.run_files import write_atomically


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the ledger of the claimed run proves, part by part, the claimed guarantee itself first."""

    parts: list[Part]
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
    guarantee = claim.claimed()
    options = Options(model=model, device=device, download=download, progress=progress or Progress(), audited=True)
    done = claim.generate(output, options)
    proof = prove(done, guarantee)
    audits = done.audit(proof.parts[0])
    verdict = least_favourable(done, proof.parts, audits)
    assay = document(done, proof, audits, verdict)
    write(assay, output)
    return assay


def least_favourable(done: FinishedRun, parts: list[Part], audits: list[AuditResult]) -> Verdict:
    """The verdict on the part of the claim that fares worst, with the bounds on the claimed guarantee itself.

    What an audit saw against the run's events counts against the proof of every part. The document keeps the upper
    bounds as they are: the releasable page says what is proven of the mechanism as described, and must not depend on
    what was found on private data.
    """
    contradictions = [sentence for audit in audits for sentence in audit.contradictions]
    verdicts = []
    for place, part in enumerate(parts):
        found = [] if place else [bound for audit in audits for bound in audit.bounds]
        verdicts.append(
            decide(
                part.guarantee,
                adjacency=done.adjacency,
                unit=done.unit,
                bounds=[*part.bounds, *found],
                contradictions=contradictions,
            )
        )
    worst = min(verdicts, key=lambda verdict: ("REFUTED", "UNPROVEN", "SUPPORTED").index(verdict.name))
    first = verdicts[0]
    return dataclasses.replace(worst, best_upper=first.best_upper, best_lower=first.best_lower)


def prove(done: FinishedRun, guarantee: Guarantee) -> Proof:
    """Upper bounds from the ledger: what was charged, whatever was planned.

    Raises:
        LedgerError: when the ledger's chain is broken.
    """
    name = done.claim.name
    with Ledger.open(done.ledger_path, read_only=True) as ledger:
        head = ledger.verify()
        event, charged = ledger.event(name), ledger.run(name)
        parts = [dataclasses.replace(part, bounds=done.bounds(part, charged)) for part in done.parts(guarantee, event)]
        summary = {
            "head": head,
            "events": sum(
                row.count
                for row in ledger.events()
                if row.run == name and not isinstance(row.event, dp_event.NoOpDpEvent)
            ),
            "entries": ledger.entries,
            "composition": to_json(event),
            "planned": event == done.plan,
        }
    return Proof(parts, summary)


def document(done: FinishedRun, proof: Proof, audits: list[AuditResult], verdict: Verdict) -> Assay:
    """Everything that was found, as the one document that reports draw."""
    claimed = proof.parts[0]
    return Assay.model_validate(
        {
            "schema": 1,
            "name": done.claim.name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "claim": done.claim.described(),
            "guarantee": describe(claimed.guarantee),
            "verdict": verdict.name,
            "verdict_is_private": verdict.is_private,
            "sentence": verdict.sentence,
            "reasons": list(verdict.reasons),
            "contradictions": list(verdict.contradictions),
            "missing": verdict.missing.to_json() if verdict.missing else None,
            "bounds": [bound.to_json() for bound in [*claimed.bounds, *(b for a in audits for b in a.bounds)]],
            "best_upper": verdict.best_upper.to_json() if verdict.best_upper else None,
            "best_lower": verdict.best_lower.to_json() if verdict.best_lower else None,
            "audits": [audit.to_json() for audit in audits],
            **done.tables(proof.parts, audits),
            "differences": done.differences(claimed),
            "ledger": proof.ledger,
            "not_protected": done.not_protected(),
            "limitations": narrative.limitations(done.claim),
            "threat_model": done.threat_model(),
            "side_channels": done.side_channels(),
            "implementation": done.implementation(),
            "versions": narrative.versions(),
        }
    )


def write(assay: Assay, output: Path) -> None:
    """Writes ``private/assay.json``, ``private/report.html`` and ``release/report.html``, each whole or not at all."""
    pages = {
        output / "private" / "report.html": render(assay, side="private"),
        output / "release" / "report.html": render(assay, side="release"),
        output / "private" / "assay.json": assay.model_dump_json(by_alias=True, indent=2) + "\n",
    }
    with input_errors():
        for path, text in pages.items():
            write_atomically(path, text)
