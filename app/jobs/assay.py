"""Assays a claim: runs its mechanism, bounds its privacy loss, audits it, and gives a verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from dp_accounting import dp_event

from dpassay import __version__
from dpassay.accounting.bounds import Bound, Risk
from dpassay.accounting.events import to_json
from dpassay.accounting.guarantees import ExPostDP, Guarantee
from dpassay.accounting.ledger.run_files import open_ledger
from dpassay.audits.implications import describe
from dpassay.audits.result import AuditResult
from dpassay.audits.verdict import Verdict, decide
from dpassay.base.errors import InputError, input_errors
from dpassay.base.html_table import html_table
from dpassay.base.private_files import PRIVATE, one_process, write_atomically
from dpassay.base.progress import Progress
from dpassay.claims.base import Claim
from dpassay.claims.lints import private_warnings, public_warnings
from dpassay.generators import registry
from dpassay.generators.base import BoundedGuarantee, FinishedRun, RunSettings
from dpassay.jobs.generate import executor_of
from dpassay.jobs.verdict_history import bounds_of, confidence_of_next, distinct, record, recorded, refuted_runs
from dpassay.reports import text
from dpassay.reports.assay import Assay, Digests, LedgerSummary, PastAudit, PastVerdict
from dpassay.reports.html import render
from dpassay.reports.release import claim_digest, releasable
from dpassay.reports.standing import Standing, standing


@dataclasses.dataclass(frozen=True)
class Proof:
    """What the ledger of the claimed run proves: guarantees with upper bounds, the claimed guarantee first, and what
    that means for who is attacked."""

    parts: list[BoundedGuarantee]
    ledger: LedgerSummary
    warnings: list[str]
    risks: tuple[Risk, ...] = ()


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Audits of this assay at a joint confidence, earlier verdicts with theirs, and refuted runs with an equal plan."""

    audits: list[AuditResult]
    confidence: float
    earlier: list[PastVerdict]
    refuted_runs: list[str] = dataclasses.field(default_factory=list)

    @property
    def bounds(self) -> list[Bound]:
        """The bounds of all audits without duplicates, those of earlier audits last."""
        return distinct([*(bound for audit in self.audits for bound in audit.bounds), *bounds_of(self.earlier)])

    @property
    def contradictions(self) -> list[str]:
        """In sentences, where audits contradict the run's own events; without duplicates."""
        now = [sentence for audit in self.audits for sentence in audit.contradictions]
        before = [sentence for past in self.earlier for sentence in past.contradictions]
        return list(dict.fromkeys([*now, *before]))


ASSAY, REPORT = "assay.json", "report.html"


@dataclasses.dataclass(frozen=True)
class AssayResult:
    """A finished assay.

    Attributes:
        document: the content of ``private/assay.json``; private.
        folder: of the run. `dpassay.release` makes what may be released.
    """

    document: Assay = dataclasses.field(repr=False)
    folder: Path

    def __str__(self) -> str:
        return self.sentence

    @property
    def verdict(self) -> str:
        """``SUPPORTED``, ``REFUTED`` or ``UNPROVEN``."""
        return self.document.verdict

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return self.document.sentence

    @property
    def history(self) -> str:
        """Which earlier verdicts this one weighs, and which it does not know, in sentences."""
        return self.document.history_in_words

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All bounds: those of accountants first, then those of audits, including earlier ones."""
        return tuple(self.document.bounds)

    @property
    def best_upper(self) -> Bound | None:
        """The certified upper bound that is closest to the claim; None if there is none."""
        return self.document.best_upper

    @property
    def best_lower(self) -> Bound | None:
        """The lower bound that refutes the claim, else the largest of a kind that can; None if there is none."""
        return self.document.best_lower

    @property
    def report(self) -> Path:
        """The private page, ``private/report.html``."""
        return self.folder / PRIVATE / REPORT

    @property
    def box(self) -> Standing:
        """The box on top of the page: what is proven, tested and assumed, and which sentences may be said elsewhere."""
        return standing(self.document, self.best_upper, {})

    def to_json(self) -> dict[str, Any]:
        """The document in JSON types."""
        body: dict[str, Any] = self.document.model_dump(mode="json", by_alias=True)
        return body

    def _repr_html_(self) -> str:
        rows = [(text.bound(row), text.method(row.method), text.rigor(row)) for row in self.document.bounds]
        table = html_table(("bound", "by", "rigor"), rows)
        return f"<p><b>{escape(self.sentence)}</b> Private: do not release.</p>{table}"


def assay(
    claim: Claim,
    output: str | Path,
    *,
    model: str | None = None,
    device: str = "auto",
    download: bool = False,
    progress: Progress | None = None,
    anchor: Path | None = None,
    allow_endpoint: str | None = None,
    workers: int | None = None,
    cluster: str | None = None,
) -> AssayResult:
    """Runs the claimed mechanism, bounds its privacy loss, audits it, records the verdict and writes the report.

    Args:
        claim: with a guarantee.
        output: folder for ``private/``. A run that was interrupted there is resumed.
        model: a local folder or a hub id, used instead of the claim's model.
        device: ``auto``, ``cpu`` or ``cuda``.
        download: whether a hub id may be fetched.
        progress: where to show progress.
        anchor: file of the last known heads of ledgers; None for the one in the user's state folder.
        allow_endpoint: address of the endpoint that may receive prompts and its API key. Without it only an endpoint
            on this machine that needs no key is used.
        workers: number of processes of this machine that share the work; None for this process alone.
        cluster: in their place, the address of a scheduler of `dask.distributed`, such as ``tcp://10.0.0.1:8786``.

    Returns:
        The verdict, its bounds, and the path of the report.

    Raises:
        InputError: if the data or the model is invalid, or the folder holds another run or another process works there.
    """
    output, claim = Path(output), claim.with_model(model)
    guarantee = claim.claimed()
    shown = progress or Progress()
    with executor_of(claim, workers, cluster, shown) as executor, one_process(output / PRIVATE):
        settings = RunSettings(
            model=model,
            device=device,
            download=download,
            progress=shown,
            audited=True,
            anchor=anchor,
            allow_endpoint=allow_endpoint,
            executor=executor,
        )
        done = registry.generate(claim, output, settings)
        with open_ledger(done.ledger_path, anchor) as ledger, input_errors():
            earlier = [item.past for item in recorded(ledger.run(claim.name))]
            confidence = confidence_of_next(earlier, bool(claim.audits))
            refuted = refuted_runs(ledger, ledger.run(claim.name))
        proof = prove(done, guarantee)
        evidence = Evidence(registry.audit(done, proof.parts[0], confidence), confidence, earlier, refuted)
        verdict = worst_verdict(done, proof.parts, evidence)
        result = record_verdict(done, document(done, proof, evidence, verdict))
        write(result, done.ledger_path.parent)
    for warning in result.warnings:  # those that were not shown when the run began
        shown.note(f"Warning: {warning}")
    return AssayResult(result, output)


def worst_verdict(done: FinishedRun, parts: list[BoundedGuarantee], evidence: Evidence) -> Verdict:
    """The worst verdict on a part of the claim, with the best bounds on the claimed guarantee itself.

    A contradiction of the run's events invalidates the proof of every part. The upper bounds in the document do not
    change: the releasable page states what is proven of the mechanism as described, and must not depend on audits of
    private data.
    """
    verdicts = [
        decide(
            part.guarantee,
            adjacency=done.adjacency,
            unit=done.unit,
            bounds=[*part.bounds, *([] if index else evidence.bounds)],
            contradictions=evidence.contradictions,
        )
        for index, part in enumerate(parts)
    ]
    worst = min(verdicts, key=lambda verdict: ("REFUTED", "UNPROVEN", "SUPPORTED").index(verdict.name))
    seen = dict.fromkeys(sentence for verdict in verdicts for sentence in verdict.contradictions)
    first = verdicts[0]
    return dataclasses.replace(
        worst,
        best_upper=first.best_upper,
        best_lower=first.best_lower,
        reasons=tuple(dict.fromkeys(worst.reasons)),
        contradictions=tuple(seen),
    )


def prove(done: FinishedRun, guarantee: Guarantee) -> Proof:
    """Upper bounds on what the ledger was charged, which may differ from the plan."""
    name = done.claim.name
    with open_ledger(done.ledger_path, done.settings.anchor) as ledger:
        event, charged = ledger.event(name), ledger.run(name)
        parts = [dataclasses.replace(part, bounds=done.bounds(part, charged)) for part in done.parts(guarantee, event)]
        meaning = done.risks(parts[0], charged)
        own = (row for row in ledger.events() if row.run == name)
        summary = LedgerSummary(
            head=ledger.head,
            events=sum(row.count for row in own if not isinstance(row.event, dp_event.NoOpDpEvent)),
            entries=ledger.entries,
            composition=to_json(event),
            planned=event == done.plan,
        )
        runs = ledger.runs()
    warnings = [*private_warnings(done.claim, done.records, runs), *done.private_warnings()]
    return Proof(parts, summary, warnings, meaning)


def document(done: FinishedRun, proof: Proof, evidence: Evidence, verdict: Verdict) -> Assay:
    """The document of an assay, from which reports are rendered."""
    claimed, claim = proof.parts[0], done.claim
    described, tables = claim.described(), done.tables(proof.parts, evidence.audits)
    digests = Digests(documents=done.documents.sha256, claim=claim_digest(described))
    assay = Assay(
        name=claim.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        claim=described,
        guarantee=describe(claimed.guarantee),
        verdict=verdict.name,
        verdict_is_private=verdict.is_private,
        sentence=verdict.sentence,
        reasons=list(verdict.reasons),
        contradictions=list(verdict.contradictions),
        missing=verdict.missing,
        tested=done.tested,
        bounds=[*claimed.bounds, *evidence.bounds],
        best_upper=verdict.best_upper,
        best_lower=verdict.best_lower,
        risks=list(proof.risks),
        audits=evidence.audits,
        batches=tables.batches,
        tokens=tables.tokens,
        refuted_runs=evidence.refuted_runs,
        digests=digests if done.has_documents else None,
        output=done.output(),
        unfinished=done.unfinished,
        protected=claim.generator().releasable,
        secrets=tables.secrets,
        spent=tables.spent,
        differences=done.differences(claimed),
        ledger=proof.ledger,
        warnings=[*public_warnings(claim), *done.warnings()],
        private_warnings=proof.warnings,
        not_protected=done.not_protected(),
        limitations=limitations(claim),
        threat_model=done.threat_model(),
        side_channels=done.side_channels(),
        implementation=done.implementation(),
        versions=versions(),
    )
    return assay.model_copy(update={"history": [*evidence.earlier, verdict_record(assay, digests, evidence)]})


def limitations(claim: Claim) -> list[str]:
    """What an assay does not show, for every mechanism; independent of private data."""
    lines = [
        "An audit that finds no leak shows nothing above its ceiling.",
        "The assay covers one run. Several runs over one data set compose: account for their ledgers together.",
        "Parameters that were chosen by looking at private metrics are not accounted for.",
    ]
    if isinstance(claim.claimed(), ExPostDP):
        lines.append(
            "An ex-post epsilon holds for the data set and the output that occurred. It depends on the private data, "
            "so neither the number nor this verdict may be released, and it converts to no other guarantee."
        )
    if claim.variant == "as_published":
        lines.append(
            "This run follows the published steps to the letter; its documents are released for a stated reason only."
        )
    return lines


def versions() -> dict[str, str]:
    """Versions of dpassay, Python, and the installed packages that compute the numbers."""
    results = {"dpassay": __version__, "python": platform.python_version()}
    for package in ("numpy", "scipy", "torch", "transformers", "opacus", "dp-accounting", "prv-accountant", "opendp"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            results[package] = metadata.version(package)
    return results


def verdict_record(assay: Assay, digests: Digests, evidence: Evidence) -> PastVerdict:
    """The verdict of an assay, as the ledger records it."""
    asked = assay.claim.get("audits", [])
    return PastVerdict(
        created=assay.created,
        claim=digests.claim,
        guarantee=assay.claim["guarantee"],
        claimed=assay.guarantee,
        verdict=assay.verdict,
        asked=asked,
        confidence=evidence.confidence if asked else None,
        audits=[PastAudit(**{name: getattr(audit, name) for name in PastAudit.model_fields}) for audit in assay.audits],
        contradictions=assay.contradictions,
        documents=digests.documents,
        versions=assay.versions,
    )


def record_verdict(done: FinishedRun, assay: Assay) -> Assay:
    """Records the verdict in the ledger, before anything of it is shown; the assay with the ledger's new head."""
    with open_ledger(done.ledger_path, done.settings.anchor) as ledger, input_errors():
        run = ledger.run(done.claim.name)
        if len(recorded(run)) != len(assay.history) - 1:
            raise InputError(f"{ledger.path}: another assay of this run ended meanwhile; run the same command again")
        record(run, assay.history[-1], releasable(assay))
        ends = {"head": ledger.head, "entries": ledger.entries, "anchored": ledger.anchored}
    return assay.model_copy(update={"ledger": assay.ledger.model_copy(update=ends)})


def private_page(assay: Assay) -> str:
    """The private report of an assay."""
    return render(assay, side="private", mechanism=registry.mechanism_in_words(assay.claim))


def write(assay: Assay, private: Path) -> None:
    """Writes ``assay.json`` and ``report.html`` into the private folder, each atomically."""
    with input_errors():
        write_atomically(private / REPORT, private_page(assay))
        write_atomically(private / ASSAY, assay.model_dump_json(by_alias=True, indent=2) + "\n")
