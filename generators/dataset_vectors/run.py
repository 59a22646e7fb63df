"""Runs claims about dataset vectors, bounds their privacy loss, and describes them for reports."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from dpassay.accounting.adjacency import Adjacency
from dpassay.accounting.ledger.run import Run
from dpassay.base.errors import input_errors
from dpassay.generators.base import BoundedGuarantee, FinishedRun, RunSettings
from dpassay.generators.dataset_vectors.claim import STATES_ALIKE, DatasetVectorsClaim
from dpassay.generators.dataset_vectors.texts import JOURNAL, judged, load_writer, write_all
from dpassay.generators.evolution.run import CUT_TEXTS
from dpassay.generators.ledger_run import make_in_ledger
from dpassay.generators.output_warnings import cut_records, is_longer
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors, DatasetVectorsResult
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors
from dpassay.mechanisms.embedding.load import fetch_embedder
from dpassay.mechanisms.evolution.journal import Journal
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY
from dpassay.reports.assay import Difference


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
    public_facts = "The number of records ({records}), that of each label and the set of labels"
    known = "the language model"
    seen = "the noisy votes, the noisy vectors and all texts"

    @property
    def tested(self) -> list[str]:
        return [STATES_ALIKE] if self.result.exact else []

    def _row_assumption(self) -> str:
        if self.result.exact:
            return STATES_ALIKE
        return (
            "On this device, a text's hidden states depend on the texts beside it, in their last digits, although "
            "every forward pass has the same public shape. So every bound on this run is an estimate."
        )

    def differences(self, claimed: BoundedGuarantee) -> list[Difference]:
        why = []
        if self.adjacency is Adjacency.REPLACE_ONE:
            why.append("A record that is replaced moves a mean of clipped vectors by twice the clip over n.")
        if self.mechanism.rows_shift:
            why.append("A record more or less in a label pairs all later ones with other negatives.")
        if self.mechanism.sample is not None:
            why.append("The sample is drawn with a public seed, and a sample that is known does not amplify.")
        return self.published_difference(
            self.mechanism.published_plan,
            claimed,
            "All vectors together, with the noise of the published code",
            why,
            "Both count the same: a record more or less moves a mean by the clip over n.",
        )

    def endings(self) -> tuple[bool, str]:
        return False, CUT_TEXTS

    @property
    def embedded_model(self) -> LanguageModel | None:
        return self.writer.model if self.writer.model.is_builtin else None

    def private_warnings(self) -> list[str]:
        longest, model = self.writer.longest_record, self.writer.model
        cut = sum(is_longer(model, record.text, longest) for record in self.records)
        return [*super().private_warnings(), *cut_records(cut, len(self.records), "writing.longest_record")]

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
        model = self.writer.model
        return {
            "language model": model.name,
            "model fingerprint (SHA-256)": model.fingerprint,
            "device": f"{model.device} (asked for: {self.settings.device})",
            "precision": model.dtype,
            "source of noise": self.settings.noise_in_words,
            "decoder blocks": ", ".join(map(str, self.result.blocks)),
            "fingerprint of the vectors (SHA-256)": self.vectors.fingerprint,
            **self.claim.data.facts(),
        }


def generate(claim: DatasetVectorsClaim, output: Path, settings: RunSettings) -> VectorsRun:
    """Releases vectors as claimed and writes texts under them (`dpassay.generators.registry.generate`)."""
    claim.check_allowed(settings.allow_endpoint)
    mechanism, records = claim.generator(), claim.load_records(settings.download)
    with input_errors():
        if settings.download:
            fetch_embedder(claim.parameters.embedder)
        writer = load_writer(claim, settings)
        mechanism.check(records, writer)
    of_journal = {"mechanism": repr(mechanism), "writer": repr(writer), "model": writer.model.fingerprint}

    def make(run: Run, ledger: Path) -> VectorsRun:
        with Journal(ledger.with_name(JOURNAL), of_journal) as journal:
            with settings.progress.stage("Releasing vectors") as step:
                result = mechanism.release(
                    records,
                    writer,
                    run,
                    journal=journal,
                    progress=step,
                    source=settings.source,
                    executor=settings.executor,
                )
            protected = mechanism.releasable and settings.source.name == OS_ENTROPY.name
            vectors = ReleasedVectors.of(mechanism, result, writer, protected=protected)
            documents = write_all(claim, vectors, writer, journal, settings)
        return VectorsRun(
            claim=claim,
            settings=settings,
            plan=mechanism.plan(),
            documents=dataclasses.replace(documents, files={"vectors.safetensors": vectors.to_bytes()}),
            ledger_path=ledger,
            records=records,
            mechanism=mechanism,
            writer=writer,
            result=result,
            vectors=vectors,
        )

    about = {"model": writer.model.fingerprint, **judged(claim)}
    return make_in_ledger(claim, output, mechanism.plan(), settings, make, about)
