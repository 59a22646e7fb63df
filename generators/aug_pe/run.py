"""Runs claims about Aug-PE, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee
from dpassay.accounting.ledger.run_files import check_ledger_is_there, prepare
from dpassay.accounting.registry import upper_bounds
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.base.private_files import PRIVATE
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.base import CHANGES, NOT_SEEN, BoundedGuarantee, FinishedRun, RunSettings
from dpassay.generators.evolution.run import (
    FLOATING_POINT,
    JOURNAL,
    TIMING,
    documents_of,
    endings,
    facts,
    load_writer,
    sent_to_writer,
)
from dpassay.generators.ledger_run import open_run
from dpassay.mechanisms.aug_pe.generator import AugPE, AugPEResult
from dpassay.mechanisms.models.writers import Writer


@dataclass(frozen=True, kw_only=True)
class AugPERun(FinishedRun):
    """A finished run of Aug-PE."""

    claim: AugPEClaim
    mechanism: AugPE
    writer: Writer
    result: AugPEResult

    def differences(self, claimed: BoundedGuarantee) -> list[dict[str, Any]]:
        if self.claim.variant != "as_published":
            return []
        event = self.mechanism.published_plan()
        published = upper_bounds(event, claimed.guarantee, adjacency=self.adjacency, unit=self.unit)
        best = min((bound.value for bound in claimed.bounds if bound.rigor.may_support), default=float("inf"))
        certified = [bound.value for bound in published if bound.rigor.may_support]
        if not certified:
            return []
        why = []
        if self.adjacency is Adjacency.REPLACE_ONE:
            why.append(
                "An exchanged record takes its vote from one candidate and gives it to another: √2 apart, not 1."
            )
        if self.mechanism.counts_labels:
            why.append("How many texts each label gets is taken from the private labels without noise.")
        row = {
            "statement": f"{_claimed_quantity(claimed.guarantee)} after all rounds, with votes of sensitivity 1",
            "published": min(certified),
            "recomputed": best,
            "why": " ".join(why) or "Both count the same: one record more or less moves one vote.",
            "private": False,
        }
        return [row]

    def endings(self) -> tuple[bool, str]:
        return endings(self.claim, self.writer)

    def not_protected(self) -> list[str]:
        return [
            f"The number of records ({self.claim.public.records}) and the set of labels are public by assumption.",
            "What many records say together may appear in the output: that is what synthetic data are for.",
            "One record is protected; what several of them hold in common, such as copies of one record, is protected "
            "less. A person with several records is not protected as one unit.",
        ]

    def threat_model(self) -> list[str]:
        return [
            "The adversary knows the mechanism, its parameters, the writer, the embedder, and every record but the one "
            "in question; it sees the noisy votes of all rounds and all candidates.",
            f"Neighbouring data sets differ in one record, which is {CHANGES[self.adjacency]}.",
            NOT_SEEN,
        ]

    def side_channels(self) -> list[str]:
        sent = sent_to_writer(self.claim, releasable=self.mechanism.releasable)
        return [TIMING, *sent, FLOATING_POINT]

    def implementation(self) -> dict[str, str]:
        return facts(self.claim, self.settings, self.writer)


def _claimed_quantity(guarantee: Guarantee) -> str:
    """The quantity that a claim bounds, in words."""
    match guarantee:
        case ApproxDP(delta=delta):
            return f"ε at δ = {format_number(delta)}"
        case RDP(alpha=alpha):
            return f"Rényi ε of order {format_number(alpha)}"
        case GDP():
            return "μ of Gaussian differential privacy"
        case ZCDP():
            return "ρ of zero-concentrated differential privacy"
        case _:
            return "pure ε"


def generate(claim: AugPEClaim, output: Path, settings: RunSettings) -> AugPERun:
    """Runs Aug-PE as claimed, or resumes the run that `output` holds.

    Texts are committed to the ledger before the run is finished. They and the journal of all candidates are written to
    ``private/``.

    Raises:
        InputError: if the data or the writer is invalid, or the folder holds another run; nothing has been written
            then. Also if an endpoint fails during the run; the same command resumes it.
    """
    claim.check_allowed(settings.allow_endpoint)
    check_ledger_is_there(output / PRIVATE)
    mechanism, records = claim.generator(), claim.load_records(settings.download)
    writer = load_writer(claim, settings)
    with input_errors():
        mechanism.check(records, writer)
    ledger = prepare(output / PRIVATE, settings.anchor, claim.name)
    with (
        open_run(claim, ledger, mechanism.plan(), settings, claim.basis(), writer=writer.fingerprint) as run,
        settings.progress.stage("Generating") as step,
    ):
        result = mechanism.generate(
            records, writer, run, journal=ledger.parent / JOURNAL, progress=step, source=settings.source
        )
        documents = documents_of(result.texts)
        documents.commit(run)
    with input_errors():
        documents.write(ledger.parent)
    return AugPERun(
        claim=claim,
        settings=settings,
        plan=mechanism.plan(),
        documents=documents,
        ledger_path=ledger,
        records=records,
        mechanism=mechanism,
        writer=writer,
        result=result,
    )
