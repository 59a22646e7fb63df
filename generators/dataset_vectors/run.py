"""Runs claims about dataset vectors, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.run_files import check_ledger_is_there, prepare
from dpassay.accounting.registry import upper_bounds
from dpassay.base.errors import input_errors
from dpassay.base.private_files import PRIVATE
from dpassay.generators.base import CHANGES, NOT_SEEN, BoundedGuarantee, FinishedRun, RunSettings
from dpassay.generators.dataset_vectors.claim import STATES_ALIKE, DatasetVectorsClaim
from dpassay.generators.dataset_vectors.texts import JOURNAL, judged, load_writer, write_all
from dpassay.generators.evolution.run import CUT_TEXTS
from dpassay.generators.ledger_run import open_run
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors, DatasetVectorsResult
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors
from dpassay.mechanisms.embedding.load import fetch_embedder
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY


@dataclass(frozen=True, kw_only=True)
class VectorsRun(FinishedRun):
    """A finished run of dataset vectors.

    Attributes:
        mechanism: the generator.
        writer: of all texts.
        result: what was released.
        vectors: the same, as the file that may be released.
    """

    claim: DatasetVectorsClaim
    mechanism: DatasetVectors
    writer: ShotWriter
    result: DatasetVectorsResult
    vectors: ReleasedVectors

    def _row_assumption(self) -> str:
        if self.result.exact:
            return STATES_ALIKE
        return (
            "On this device, a text's hidden states depend on the texts beside it, in their last digits, although "
            "every forward pass has the same public shape. So every bound on this run is an estimate."
        )

    def differences(self, claimed: BoundedGuarantee) -> list[dict[str, Any]]:
        if self.claim.variant != "as_published":
            return []
        event = self.mechanism.published_plan()
        published = upper_bounds(event, claimed.guarantee, adjacency=self.adjacency, unit=self.unit)
        certified = [bound.value for bound in published if bound.rigor.may_support]
        if not certified:
            return []
        best = min((bound.value for bound in claimed.bounds if bound.rigor.may_support), default=float("inf"))
        why = []
        if self.adjacency is Adjacency.REPLACE_ONE:
            why.append("A record that is replaced moves a mean of clipped vectors by twice the clip over n.")
        if self.mechanism.rows_shift:
            why.append("A record more or less in a label pairs all later ones with other negatives.")
        if self.mechanism.sample is not None:
            why.append("The sample is drawn with a public seed, and a sample that is known does not amplify.")
        return [
            {
                "statement": "All vectors together, with the noise of the published code",
                "published": min(certified),
                "recomputed": best,
                "why": " ".join(why) or "Both count the same: a record more or less moves a mean by the clip over n.",
                "private": False,
            }
        ]

    def endings(self) -> tuple[bool, str]:
        return False, CUT_TEXTS

    def not_protected(self) -> list[str]:
        return [
            f"The number of records ({self.claim.public.records}), that of each label and the set of labels are public "
            "by assumption.",
            "What many records say together may appear in the output: that is what synthetic data are for.",
            "One record is protected; what several of them hold in common, such as copies of one record, is protected "
            "less. A person with several records is not protected as one unit.",
        ]

    def threat_model(self) -> list[str]:
        return [
            "The adversary knows the mechanism, its parameters, the language model, and every record but the one in "
            "question; it sees the noisy votes, the noisy vectors and all texts.",
            f"Neighbouring data sets differ in one record, which is {CHANGES[self.adjacency]}.",
            NOT_SEEN,
        ]

    def side_channels(self) -> list[str]:
        return [
            "All forward passes over records have one shape, but their number follows the number of records; do not "
            "let an adversary measure the time.",
            "Hidden states are floating-point numbers, each computed from its own text. What is added up over records "
            "are whole numbers, without rounding, before noise is added.",
            self._row_assumption(),
            *self._judged(),
        ]

    def _judged(self) -> list[str]:
        if self.claim.parameters.judge is None:
            return []
        line = "A judge at an endpoint receives synthetic texts, those that it rejects, too."
        return [line if self.mechanism.releasable else f"{line} They are not protected as claimed."]

    def implementation(self) -> dict[str, str]:
        model, drawn = self.writer.model, self.settings.source.name == OS_ENTROPY.name
        return {
            "language model": model.name,
            "model fingerprint (SHA-256)": model.fingerprint,
            "device": f"{model.device} (asked for: {self.settings.device})",
            "precision": model.dtype,
            "source of noise": "operating system entropy" if drawn else "recorded",
            "decoder blocks": ", ".join(map(str, self.result.blocks)),
            "fingerprint of the vectors (SHA-256)": self.vectors.fingerprint,
            **self.claim.data.facts(),
        }


def generate(claim: DatasetVectorsClaim, output: Path, settings: RunSettings) -> VectorsRun:
    """Releases vectors as claimed and writes texts under them, or resumes the run that `output` holds.

    Texts and vectors are committed to the ledger before the run is finished. They and the journal of all texts are
    written to ``private/``.

    Raises:
        InputError: if the data or the model is invalid, or the folder holds another run; nothing has been written then.
    """
    claim.check_allowed(settings.allow_endpoint)
    check_ledger_is_there(output / PRIVATE)
    mechanism, records = claim.generator(), claim.load_records(settings.download)
    with input_errors():
        if settings.download:
            fetch_embedder(claim.parameters.embedder)
        writer = load_writer(claim, settings)
        mechanism.check(records, writer)
    ledger = prepare(output / PRIVATE, settings.anchor, claim.name)
    about = {"mechanism": repr(mechanism), "writer": repr(writer), "model": writer.model.fingerprint}
    with (
        open_run(
            claim,
            ledger,
            mechanism.plan(),
            settings,
            claim.basis(),
            model=writer.model.fingerprint,
            **judged(claim),
        ) as run,
        Journal(ledger.parent / JOURNAL, about) as journal,
    ):
        with settings.progress.stage("Releasing vectors") as step:
            result = mechanism.release(records, writer, run, journal=journal, progress=step, source=settings.source)
        protected = mechanism.releasable and settings.source.name == OS_ENTROPY.name
        vectors = ReleasedVectors.of(mechanism, result, writer, protected=protected)
        documents = write_all(claim, vectors, writer, journal, settings)
        documents = dataclasses.replace(documents, files={"vectors.safetensors": vectors.to_bytes()})
        documents.commit(run)
    with input_errors():
        documents.write(ledger.parent)
    return VectorsRun(
        claim=claim,
        settings=settings,
        plan=mechanism.plan(),
        documents=documents,
        ledger_path=ledger,
        records=records,
        mechanism=mechanism,
        writer=writer,
        result=result,
        vectors=vectors,
    )
