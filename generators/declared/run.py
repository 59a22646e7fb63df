"""Assays claims about procedures that ran elsewhere: their parts are charged to a ledger as declared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dp_accounting import dp_event

from dpassay.accounting import events
from dpassay.accounting.guarantees import ApproxDP
from dpassay.accounting.ledger.entries import Charge, Json
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.run_files import prepare
from dpassay.accounting.registry import upper_bounds
from dpassay.base.errors import InputError
from dpassay.base.number_format import format_number
from dpassay.base.private_files import PRIVATE
from dpassay.generators.base import CHANGES, BoundedGuarantee, FinishedRun, RunSettings, certified
from dpassay.generators.declared.claim import DeclaredClaim, ReadPart, basis_of_parts
from dpassay.generators.documents import Documents
from dpassay.generators.ledger_run import open_run
from dpassay.mechanisms.primitives.charged import commit
from dpassay.reports.assay import Difference

NOT_PRIVATE = "What it declares is not private, such as a release without noise."
"""Why a part without a hint has no bound."""


@dataclass(frozen=True, kw_only=True)
class DeclaredRun(FinishedRun):
    """A declared procedure in a ledger."""

    claim: DeclaredClaim
    parts_read: list[ReadPart]

    @property
    def has_documents(self) -> bool:
        return False

    @property
    def basis(self) -> Basis:
        return basis_of_parts(self.parts_read)

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        if not isinstance(claimed.guarantee, ApproxDP):
            return []
        results = []
        for part in self.parts_read:
            if part.stated is None:
                continue
            bounds = upper_bounds(part.event, claimed.guarantee, adjacency=self.adjacency, unit=self.unit)
            best = certified(bounds)
            results.append(
                Difference(
                    statement=f"{part.label}: the ε that its file states; recomputed at "
                    f"δ = {format_number(claimed.guarantee.delta)}",
                    published=part.stated,
                    recomputed=float("inf") if best is None else best,
                    why="The file may mean another δ or another neighbouring relation, or its accountant is looser, or "
                    "it was asked for and not computed, or it assumes a sampler that nobody stated.",
                    private=False,
                )
            )
        return results

    def warnings(self) -> list[str]:
        return [
            *(
                f"{part.label}: its bound rests on conditions that nobody states: "
                f"{', '.join(dict.fromkeys(item.name for item in part.basis.unstated))}. If they hold, list them under "
                "conditions of the part (normalizer: public is a key of its own)."
                for part in self.parts_read
                if part.basis.unstated
            ),
            *self._without_bound(),
        ]

    def _without_bound(self) -> list[str]:
        return [
            f"{part.label}: this part has no finite bound, so the whole has none. {' '.join(part.hints) or NOT_PRIVATE}"
            for part in self.parts_read
            if any(
                isinstance(event, dp_event.NonPrivateDpEvent) for event, _ in events.counted([(part.event, 1)]).values()
            )
        ]

    def not_protected(self) -> list[str]:
        return [
            "Whatever else was computed from these records, such as statistics in a paper or a model that was tuned on "
            "them, is not counted.",
            f"One {self.unit} is protected; what several have in common is protected less.",
        ]

    def threat_model(self) -> list[str]:
        return [
            "The adversary knows every record but those of the unit in question, and sees everything that the declared "
            "parts release.",
            f"Neighbouring data sets differ in one {self.unit}, which is "
            f"{CHANGES.get(self.adjacency, 'exchanged for a public null record')}.",
        ]

    def side_channels(self) -> list[str]:
        return [
            "The procedure ran elsewhere. How its noise was drawn, how numbers were rounded and how long it took are "
            "not known here.",
        ]

    def implementation(self) -> dict[str, str]:
        digests = [(part.label, part.sha256) for part in self.parts_read if part.sha256 is not None]
        return {f"{label} (SHA-256)": digest for label, digest in digests}


def generate(claim: DeclaredClaim, output: Path, settings: RunSettings) -> DeclaredRun:
    """Charges the parts of a declared procedure to a ledger, or finds them there."""
    if not settings.audited:
        raise InputError(f"{claim.name}: a declared procedure ran elsewhere and generates nothing; use dpassay assay")
    if settings.model is not None:
        raise InputError("--model: a declared procedure has no model; leave it out")
    parts = claim.read_parts(settings.anchor)
    plan = events.compose([(part.event, 1) for part in parts])
    claim.read_audits(plan)  # fails early
    ledger = prepare(output / PRIVATE, settings.anchor, claim.name)
    files: list[Json] = [part.sha256 for part in parts]
    with open_run(claim, ledger, plan, settings, basis_of_parts(parts), {"files": files}) as run:
        for number, part in enumerate(parts):
            charge = Charge(key=f"{part.label}/{number}", stage=part.label, event=part.event)
            commit(run, charge, {"declared": part.label})
    return DeclaredRun(
        claim=claim,
        settings=settings,
        plan=plan,
        documents=Documents({}, []),
        ledger_path=ledger,
        records=[],
        parts_read=parts,
    )
