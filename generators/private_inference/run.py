"""Runs claims about private inference, bounds their privacy loss, audits them, and describes them for reports."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dpassay.accounting.bounds import Bound
from dpassay.accounting.guarantees import ApproxDP, ExPostDP, Guarantee
from dpassay.accounting.ledger.entries import Json
from dpassay.accounting.ledger.evidence import Basis
from dpassay.accounting.ledger.run import Run
from dpassay.accounting.ledger.run_files import LEDGER, open_ledger
from dpassay.accounting.registry import account
from dpassay.attacks.canaries.reconstruction import Canaries
from dpassay.attacks.private_inference.leave_one_out import LeaveOneOut
from dpassay.audits.result import AuditResult
from dpassay.base.errors import input_errors
from dpassay.base.private_files import PRIVATE
from dpassay.generators.base import CHANGES, BoundedGuarantee, FinishedRun, RunSettings
from dpassay.generators.documents import Documents
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.output_warnings import cut_records
from dpassay.generators.private_inference import words
from dpassay.generators.private_inference.canaries import canary_records, kept_canaries, plays_on_canaries
from dpassay.generators.private_inference.claim import PrivateInferenceClaim
from dpassay.mechanisms.embedding.load import fetch_embedder
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.private_inference.generator import PrivateInference
from dpassay.mechanisms.private_inference.loop import generate as generate_documents
from dpassay.mechanisms.private_inference.transcripts import Generation
from dpassay.reports.assay import BatchCost, Difference, MechanismTables, TokenCost


@dataclass(frozen=True, kw_only=True)
class InferenceRun(FinishedRun):
    """A finished run of private inference.

    Attributes:
        mechanism: the generator.
        model: the language model.
        key: batching key.
        generation: transcript, documents and costs.
        canaries: the canaries that the records are; None if they are not canaries.
        observer: observer of the run for the leave-one-out audit, or None.
    """

    claim: PrivateInferenceClaim
    mechanism: PrivateInference
    model: LanguageModel
    key: bytes
    generation: Generation
    canaries: Canaries | None = None
    observer: LeaveOneOut | None = None
    known = "the batching key, the language model"
    seen = "all released tokens"

    @property
    def neighbours(self) -> str:
        return f"Neighbouring data sets differ by one {self.unit}, {CHANGES[self.adjacency]}."

    @property
    def basis(self) -> Basis:
        return super().basis.joined(words.rows_basis(self.generation.row_plan))

    @property
    def tested(self) -> list[str]:
        return list(words.rows_basis(self.generation.row_plan).assumptions)

    def bounds_on_events(self, part: BoundedGuarantee, charged: Run) -> list[Bound]:
        bounds = super().bounds_on_events(part, charged)
        if isinstance(part.guarantee, ExPostDP) and self.mechanism.aggregate == "median":
            bounds.append(self._realised(charged))
        return bounds

    def _realised(self, charged: Run) -> Bound:
        """The certified ex-post ε of the run."""
        return account(charged, method="ex_post", adjacency=self.adjacency, unit=self.unit)

    def realised_epsilon(self) -> float | None:
        """The certified ex-post ε of the run, for medians; None for a mean."""
        if self.mechanism.aggregate != "median":
            return None
        with open_ledger(self.ledger_path, self.settings.anchor) as ledger:
            return self._realised(ledger.run(self.claim.name)).value

    def endings(self) -> tuple[bool, str]:
        return True, (
            "A document is complete, and is kept, if it ended by itself: with the end of text or the stop string. One "
            "that was cut because its tokens ran out is not kept."
        )

    @property
    def unfinished(self) -> int:
        return sum(not document.complete for document in self.generation.documents)

    @property
    def embedded_model(self) -> LanguageModel | None:
        return self.model if self.model.is_builtin else None

    def private_warnings(self) -> list[str]:
        cut, used = self._cut_records()
        return [*super().private_warnings(), *cut_records(cut, used, "public.context_tokens")]

    def slot_costs(self) -> dict[int, tuple[float, float]] | None:
        """Slot → (ε*, Σ γ) of the slots that ran; None if tokens have no ex-post cost."""
        spent = self.generation.spent
        if spent is None:
            return None
        running = self.generation.transcript.running
        return {slot: (float(max(row[0], row[1])), float(row[2])) for slot, row in enumerate(spent) if running[slot]}

    def tables(self, parts: Sequence[BoundedGuarantee], audits: Sequence[AuditResult]) -> MechanismTables:
        spent = self._spending(parts[0].guarantee)
        return MechanismTables(batches=self._batch_rows(audits), tokens=self._token_rows(), spent=spent)

    def _batch_rows(self, audits: Sequence[AuditResult]) -> list[BatchCost]:
        """A row for each slot that ran, with its cost and its leave-one-out loss; for medians only."""
        costs = self.slot_costs()
        if costs is None:
            return []
        losses: dict[int, float] = {}
        for audit in audits:
            if audit.name == "leave_one_out":
                losses = {row["slot"]: row["loss"] for row in audit.details["batches"]}
        documents = np.bincount([document.slot for document in self.generation.documents], minlength=len(costs))
        return [
            BatchCost(
                slot=slot,
                label=self.mechanism.label_of(slot),
                size=int(self.generation.slot_sizes[slot]),
                documents=int(documents[slot]),
                tokens=len(self.generation.transcript.tokens[slot]),
                epsilon=exact,
                epsilon_published=published,
                leave_one_out=losses.get(slot, 0.0),
            )
            for slot, (exact, published) in costs.items()
        ]

    def _token_rows(self) -> list[TokenCost]:
        """Mean and largest ex-post cost by position in the document; for medians only."""
        costs, positions = self.generation.token_costs, self.generation.positions
        if costs is None:
            return []
        exact = costs[..., :2].max(axis=-1)
        masks = [(position, positions == position) for position in range(int(positions.max(initial=-1)) + 1)]
        return [
            TokenCost(
                position=position,
                count=int(at.sum()),
                mean=float(exact[at].mean()),
                largest=float(exact[at].max()),
                mean_published=float(costs[..., 2][at].mean()),
            )
            for position, at in masks
        ]

    def _spending(self, guarantee: Guarantee) -> dict[str, float]:
        """The ε of each stage of the run."""
        stages: dict[str, float] = {}
        if self.mechanism.centres is not None:
            stages["noisy counts of clusters"] = self.mechanism.cluster_count_epsilon
        if self.mechanism.slot_threshold is not None:
            stages["noisy slot counts"] = self.mechanism.slot_count_epsilon
        costs = self.slot_costs()
        if isinstance(guarantee, ExPostDP) and costs:
            stages["tokens of the costliest batch"] = max(exact for exact, _ in costs.values())
        return stages

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        rows = []
        spent = self.generation.spent
        ours = next((bound.value for bound in claimed.bounds if bound.method == "ex_post"), None)
        if spent is not None and ours is not None and len(spent):
            rows.append(
                Difference(
                    statement="Ex-post cost of the costliest batch, median aggregation",
                    published=float(spent[:, 2].max()),
                    recomputed=ours,
                    why="The published cost per token bounds numerator and normaliser apart and takes the whole gap "
                    "beside the median; the exact cost takes both at once over the medians a neighbour can reach.",
                    private=True,
                )
            )
        if isinstance(claimed.guarantee, ApproxDP) and claimed.certified is not None:
            why = (
                "One record more shifts every later batch: batches compose instead of running in parallel, and each "
                "shifted batch has a row replaced, which doubles the range of a mean."
            )
            statement = "Clusters cut into batches of a fixed size"
            rows += self.published_difference(self.mechanism.published_plan, claimed, statement, [why], method="zcdp")
        return rows

    def not_protected(self) -> list[str]:
        return words.not_protected(self.claim)

    def side_channels(self) -> list[str]:
        return words.side_channels(self.generation)

    def implementation(self) -> dict[str, str]:
        facts = {
            "language model": self.model.name,
            "model fingerprint (SHA-256)": self.model.fingerprint,
            "device": f"{self.model.device} (asked for: {self.settings.device})",
            "source of noise": self.settings.noise_in_words,
            "batching key": self.key.hex(),
            "precision": self.model.dtype,
            "rows": "packed" if self.generation.row_plan.shapes is None else words.shapes_of(self.generation.row_plan),
            "records that were cut to the public length": self._cut_in_words(),
        }
        if self.mechanism.centres is not None:
            facts["fingerprint of centres and embedder (SHA-256)"] = self.mechanism.clusters().fingerprint
        facts |= self.claim.data.facts()
        return facts

    def _cut_in_words(self) -> str:
        cut, used = self._cut_records()
        unused = len(self.records) - used
        return f"{cut} of {used}" + (f"; {unused} more were not used" if unused else "")

    def _cut_records(self) -> tuple[int, int]:
        """How many of the records that were used had more tokens than their context had room for, and how many were
        used; private.

        Not used are records of a user of whom another record was, records beyond the last full piece (as published),
        and those of slots that did not run.
        """
        slots, running = self.generation.assignment, np.array(self.generation.transcript.running)
        used = (slots >= 0) & running[slots]
        return int(np.count_nonzero(self.generation.cut & used)), int(np.count_nonzero(used))


def load_model(claim: PrivateInferenceClaim, model: str | None, device: str, download: bool) -> LanguageModel:
    """The language model of the command line, else of the claim. With `download`, the claim's embedder is fetched, too.

    Raises:
        InputError: if it is not a model, or not on this machine.
    """
    with input_errors():
        if download:
            fetch_embedder(claim.parameters.embedder)
        return LanguageModel.load(model or claim.model, device, allow_network=download)


def kept_key(ledger: Path, name: str, anchor: Path | None) -> bytes:
    """The batching key of a run in a ledger; a new one, of 32 bytes, if the run has not begun."""
    known: Mapping[str, Json] = {}
    if ledger.exists():
        with open_ledger(ledger, anchor) as opened:
            known = opened.run(name).about if name in opened.runs() else {}
    return bytes.fromhex(str(known.get("key") or secrets.token_hex(32)))


def generate(claim: PrivateInferenceClaim, output: Path, settings: RunSettings) -> InferenceRun:
    """Runs private inference as claimed; the batching key is drawn once (`dpassay.generators.registry.generate`)."""
    mechanism, on_canaries = claim.generator(), settings.audited and plays_on_canaries(claim)
    given = () if on_canaries else claim.load_records(settings.download)
    model = load_model(claim, settings.model, settings.device, settings.download)
    with input_errors():
        mechanism.check(given, model, settings.executor)
        rows = mechanism.row_plan(model)
    key = kept_key(output / PRIVATE / LEDGER, claim.name, settings.anchor)

    def make(run: Run, ledger: Path) -> InferenceRun:
        canaries = kept_canaries(ledger.with_name("canaries.json"), 2 * claim.public.records) if on_canaries else None
        records = given if canaries is None else canary_records(canaries, claim.public.labels, mechanism.unit)
        watched = settings.audited and "leave_one_out" in claim.audits
        observer = loss_observer(mechanism, len(records)) if watched else None
        with settings.progress.stage("Generating") as step:
            generation = generate_documents(
                mechanism,
                records,
                model,
                run,
                key=key,
                observers=() if observer is None else (observer,),
                progress=step,
                source=settings.source,
                executor=settings.executor,
            )
        return InferenceRun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=documents_of(generation, key),
            ledger_path=ledger,
            mechanism=mechanism,
            model=model,
            records=records,
            key=key,
            generation=generation,
            canaries=canaries,
            observer=observer,
        )

    about: dict[str, Json] = {"model": model.fingerprint, "rows": rows.to_json(), "key": key.hex()}
    return make_in_ledger(claim, output, mechanism.plan(), settings, make, about, words.rows_basis(rows))


def documents_of(generation: Generation, key: bytes) -> Documents:
    """The complete documents, with the batching key and the noisy counts of clusters."""
    complete = [document for document in generation.documents if document.complete]
    files = {"batching-key.txt": key.hex() + "\n"}
    if (counts := generation.transcript.cluster_counts) is not None:
        files["cluster-counts.json"] = json.dumps(counts) + "\n"
    columns = {"slot": "int64", "label": "string", "text": "string"}
    return Documents(columns, [(item.slot, item.label, item.text) for item in complete], files)


def loss_observer(mechanism: PrivateInference, records: int) -> LeaveOneOut | None:
    """The observer for the leave-one-out audit; None if a row is not one unit, or the mechanism has an anchor."""
    if mechanism.records_per_context > 1 or mechanism.anchor:
        return None
    return LeaveOneOut.of(mechanism, records)
