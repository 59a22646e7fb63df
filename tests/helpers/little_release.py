"""A release of a run that no model made: its ledger has one charge, two documents, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import Bound, Direction, Rigor
from dpassay.accounting.events import EpsilonDeltaDpEvent, to_json
from dpassay.accounting.ledger.entries import Charge, Commit
from dpassay.accounting.ledger.evidence import Basis, begin_run
from dpassay.accounting.ledger.ledger import Ledger
from dpassay.generators.documents import Documents
from dpassay.jobs import release as job
from dpassay.jobs.verdict_history import record
from dpassay.reports.assay import Assay, Digests, LedgerSummary, PastVerdict
from dpassay.reports.release import claim_digest, releasable

EPSILON = 1.25
TEXTS = ("a first document", "a second document")


def claim(**more: Any) -> dict[str, Any]:
    """A claim that the proof of the run reaches."""
    return {
        "name": "little",
        "data": {"source": "file"},
        "unit": "record",
        "adjacency": "add_remove",
        "mechanism": "private_inference",
        "variant": "sound",
        "parameters": {"clip": 2.5, "tokens": 6},
        "model": "builtin",
        "public": {"records": 28},
        "guarantee": {"type": "pure_dp", "epsilon": 1.5},
        "audits": [],
        **more,
    }


def finished_run(folder: Path, *, texts: tuple[str, ...] = TEXTS, **of_claim: Any) -> Path:
    """Makes ``private/ledger.sqlite`` of a finished run with a verdict in a folder."""
    path = folder / "private" / "ledger.sqlite"
    path.parent.mkdir(parents=True, mode=0o700)
    event = EpsilonDeltaDpEvent(epsilon=EPSILON)
    documents = Documents({"text": "string"}, [[text] for text in texts])
    with Ledger.open(path) as ledger:
        run = begin_run(
            ledger,
            "little",
            plan=event,
            adjacency=Adjacency.ADD_REMOVE,
            unit=Unit(),
            about={"noise": "os"},
            basis=Basis(("The number of records is public.",)),
        )
        run.step(charge=Charge(key="draw", event=event, stage="draw"))
        run.step(commit=Commit(key="draw", value=0.5))
        documents.commit(run)
        run.finish()
        assay = _assay(claim(**of_claim), run.event(), documents.sha256, ledger.head)
        record(run, _verdict(assay), releasable(assay))
    return path


def released(folder: Path, *, key: Path | None = None, **more: Any) -> Path:
    """A release in ``out/`` of a run in ``run/`` of a folder."""
    finished_run(folder / "run", **more)
    return job.release(folder / "run", folder / "out", key=key).folder


def _assay(claim: dict[str, Any], event: dp_event.DpEvent, documents: str, head: str) -> Assay:
    bound = Bound(
        Direction.UPPER,
        EPSILON,
        "basic",
        Rigor.CERTIFIED,
        Adjacency.ADD_REMOVE,
        assumptions=("The number of records is public.",),
    )
    return Assay(
        name="little",
        created="2026-01-02T03:04:05+00:00",
        claim=claim,
        guarantee="pure differential privacy with ε = 1.5",
        verdict="SUPPORTED",
        verdict_is_private=False,
        sentence="SUPPORTED: zqprivate",
        bounds=[bound],
        best_upper=bound,
        digests=Digests(documents=documents, claim=claim_digest(claim)),
        ledger=LedgerSummary(head=head, events=1, entries=9, composition=to_json(event), planned=True),
        not_protected=["The number of records (28) is public by assumption."],
        threat_model=["The adversary knows every record but one."],
        side_channels=["How long the run takes."],
        implementation={"source of noise": "operating system entropy"},
        versions={"dpassay": "0"},
    )


def _verdict(assay: Assay) -> PastVerdict:
    assert assay.digests is not None
    return PastVerdict(
        created=assay.created,
        claim=assay.digests.claim,
        guarantee=assay.claim["guarantee"],
        claimed=assay.guarantee,
        verdict=assay.verdict,
        asked=[],
        confidence=None,
        audits=[],
        contradictions=[],
        documents=assay.digests.documents,
        versions=assay.versions,
    )
