"""Runs claims about Aug-PE, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.guarantees import GDP, RDP, ZCDP, ApproxDP, Guarantee
from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import input_errors
from dpassay.base.number_format import format_number
from dpassay.generators.aug_pe.claim import AugPEClaim
from dpassay.generators.base import BoundedGuarantee, RunSettings
from dpassay.generators.evolution.run import JOURNAL, EvolutionRun, documents_of, load_writer
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.mechanisms.aug_pe.generator import AugPE, AugPEResult
from dpassay.reports.assay import Difference


@dataclass(frozen=True, kw_only=True)
class AugPERun(EvolutionRun):
    """A finished run of Aug-PE."""

    claim: AugPEClaim
    mechanism: AugPE
    result: AugPEResult
    public_facts = "The number of records ({records}) and the set of labels"
    known = "the writer, the embedder"
    seen = "the noisy votes of all rounds and all candidates"

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
    """Runs Aug-PE as claimed; the journal of all candidates is kept, too (`dpassay.generators.registry.generate`)."""
    claim.check_allowed(settings.allow_endpoint)
    mechanism, records = claim.generator(), claim.load_records(settings.download)
    writer = load_writer(claim, settings)
    with input_errors():
        mechanism.check(records, writer)

    def make(run: Run, ledger: Path) -> AugPERun:
        journal = ledger.with_name(JOURNAL)
        with settings.progress.stage("Generating") as step:
            result = mechanism.generate(
                records,
                writer,
                run,
                journal=journal,
                progress=step,
                source=settings.source,
                executor=settings.executor,
            )
        return AugPERun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=documents_of(result.texts),
            ledger_path=ledger,
            records=records,
            mechanism=mechanism,
            writer=writer,
            result=result,
        )

    return make_in_ledger(claim, output, mechanism.plan(), settings, make, {"writer": writer.fingerprint})
