"""Runs claims about Aug-PE, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import check_ledger_is_there
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.base.private_files import PRIVATE
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.base import CHANGES, BoundedGuarantee, FinishedRun, RunSettings, not_protected, threat_model
from dpassay.generators.documents import Documents
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
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.mechanisms.aug_pe.generator import AugPE, AugPEResult
from dpassay.mechanisms.models.writers import Writer
from dpassay.reports.assay import Difference


@dataclass(frozen=True, kw_only=True)
class AugPERun(FinishedRun):
    """A finished run of Aug-PE."""

    claim: AugPEClaim
    mechanism: AugPE
    writer: Writer
    result: AugPEResult

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        why = []
        if self.adjacency is Adjacency.REPLACE_ONE:
            why.append(
                "An exchanged record takes its vote from one candidate and gives it to another: √2 apart, not 1."
            )
        if self.mechanism.counts_labels:
            why.append("How many texts each label gets is taken from the private labels without noise.")
        return self.published_difference(
            self.mechanism.published_plan,
            claimed,
            f"{_claimed_quantity(claimed.guarantee)} after all rounds, with votes of sensitivity 1",
            why,
            "Both count the same: one record more or less moves one vote.",
        )

    def endings(self) -> tuple[bool, str]:
        return endings(self.claim, self.writer)

    def not_protected(self) -> list[str]:
        return not_protected(f"The number of records ({self.claim.public.records}) and the set of labels", "record")

    def threat_model(self) -> list[str]:
        return threat_model(
            "the writer, the embedder",
            "record",
            "the noisy votes of all rounds and all candidates",
            f"Neighbouring data sets differ in one record, which is {CHANGES[self.adjacency]}.",
        )

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

    def make(run: Run, folder: Path) -> tuple[AugPEResult, Documents]:
        with settings.progress.stage("Generating") as step:
            result = mechanism.generate(
                records, writer, run, journal=folder / JOURNAL, progress=step, source=settings.source
            )
        return result, documents_of(result.texts)

    about = {"writer": writer.fingerprint}
    result, documents, ledger = make_in_ledger(claim, output, mechanism.plan(), settings, make, about)
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
