"""Texts written under released vectors: those of a run, and more of them later, which cost nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpassay.base.errors import InputError, input_errors
from dpassay.base.private_files import is_partial
from dpassay.base.private_results import DOCUMENTS
from dpassay.generators.base import RunSettings
from dpassay.generators.dataset_vectors.claim import DatasetVectorsClaim
from dpassay.generators.documents import Documents
from dpassay.generators.evolution.run import CUT_TEXTS
from dpassay.generators.output_warnings import unknown_texts
from dpassay.mechanisms.dataset_vectors import rejection
from dpassay.mechanisms.dataset_vectors.journalled import journalled
from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
from dpassay.mechanisms.dataset_vectors.vectors import ReleasedVectors, written
from dpassay.mechanisms.evolution.journal import Journal, JournalError
from dpassay.mechanisms.models.endpoint import EndpointWriter
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.writers import WriterError
from dpassay.reports.assay import Output

JOURNAL = "texts.jsonl"
"""The file of all texts that the model wrote, beside the output."""


OUTPUT = (JOURNAL, DOCUMENTS, "synthetic.parquet")
"""All that a folder of texts under vectors from a file holds."""

WORKING = ".writing"
"""The folder of the lock, beside them."""


def judged(claim: DatasetVectorsClaim) -> dict[str, str]:
    """The judge's model, which a resumed run must have in common; its address describes a network."""
    judge = claim.parameters.judge
    return {} if judge is None else {"judge": judge.model}


def load_writer(claim: DatasetVectorsClaim, settings: RunSettings) -> ShotWriter:
    """The model of the command line, else of the claim, with the claim's settings of writing.

    Raises:
        ValueError: if the model is not on this machine, or a setting does not fit it.
    """
    model = LanguageModel.load(settings.model or claim.model, settings.device, allow_network=settings.download)
    return ShotWriter(model=model, **claim.parameters.writing.writer())


def accepting(
    claim: DatasetVectorsClaim, vectors: ReleasedVectors, writer: ShotWriter, label: str | None, journal: Journal
) -> rejection.Accepts | None:
    """Which texts of a label the claim accepts; None for all."""
    writing, threshold = claim.parameters.writing, claim.parameters.writing.threshold
    if writing.reject == "none":
        return None
    if writing.reject == "judge":
        judge = EndpointWriter(
            **claim.parameters.judge.model_dump(), variation_prompt=rejection.JUDGE, temperature=0.0, max_tokens=8
        )
        judge.check()
        return rejection.by_judge(judge, label, rejection.MIN_RATING if threshold is None else threshold)
    prompt = writer.prompt(label, vectors.of_label(label).shots, vectors.most_shots)
    if threshold is None:
        references = journalled(
            lambda seeds: writer.texts(prompt, seeds),
            journal,
            label,
            "reference",
            rejection.REFERENCES,
            seed=claim.parameters.seed,
            finished=lambda _: None,
        )
        threshold = rejection.default_threshold(writer, prompt, references)
    return rejection.by_perplexity(writer, prompt, threshold)


def write_all(
    claim: DatasetVectorsClaim, vectors: ReleasedVectors, writer: ShotWriter, journal: Journal, settings: RunSettings
) -> Documents:
    """As many texts of each label as the claim says, from the journal if they are there."""
    writing, rows = claim.parameters.writing, []
    labels = [item.label for item in vectors.labels]
    with settings.progress.stage("Generating") as step:
        for position, label in enumerate(labels):

            def counted(done: int, total: int, position: int = position) -> None:
                step(position * total + done, len(labels) * total)

            texts = written(
                vectors,
                writer,
                label,
                writing.texts,
                seed=claim.parameters.seed,
                journal=journal,
                where=writing.inject,
                accepts=accepting(claim, vectors, writer, label, journal),
                waste=writing.waste,
                progress=counted,
                **writing.steering(),
            )
            rows += [(label, index, text) for index, text in enumerate(texts)]
    return Documents({"label": "string", "index": "int64", "text": "string"}, rows)


@dataclass(frozen=True)
class WrittenTexts:
    """Texts that were written under released vectors.

    Attributes:
        name: of the claim.
        documents: the texts.
        folder: that holds them, and may be released.
        vectors: fingerprint of the vectors.
        warnings: what keeps the texts from being of use, a sentence each; as public as they are.
    """

    name: str
    documents: Documents
    folder: Path
    vectors: str
    warnings: tuple[str, ...]

    @property
    def output(self) -> Output:
        """How many texts there are, and how long."""
        return self.documents.output(whole=False, ends=CUT_TEXTS)

    @property
    def path(self) -> Path:
        """The file of the texts."""
        return self.folder / DOCUMENTS

    def to_json(self) -> dict[str, Any]:
        """Name, number of documents, path and hash of the texts, the vectors' fingerprint, and warnings."""
        return {
            "name": self.name,
            "documents": len(self.documents.rows),
            "output": self.output.model_dump(mode="json"),
            "warnings": list(self.warnings),
            "path": str(self.path),
            "sha256": self.documents.sha256,
            "vectors": self.vectors,
        }


def _check_folder(output: Path) -> None:
    """Removes what a killed call was writing.

    Raises:
        InputError: if the folder holds anything but texts under vectors from a file.
    """
    results = [path for path in output.glob("*") if path.name != WORKING]
    partial = [path for path in results if is_partial(path)]
    others = [path for path in results if path.name not in OUTPUT and path not in partial]
    if others or (results and not (output / JOURNAL).exists()):
        raise InputError(f"{output}: holds other files; name another folder with -o")
    for path in partial:
        path.unlink(missing_ok=True)


def write_from_file(claim: DatasetVectorsClaim, path: Path, output: Path, settings: RunSettings) -> WrittenTexts:
    """Writes texts under vectors from a file; reads no records and charges nothing.

    Args:
        claim: whose settings of writing are used.
        path: of the vectors.
        output: folder of the texts, which holds what may be released; texts of an interrupted call are kept.
        settings: of the run.

    Raises:
        InputError: one line, if the file is invalid or for another model, or the folder holds a run or other texts.
    """
    claim.check_allowed(settings.allow_endpoint)
    writing = claim.parameters.writing
    with input_errors():
        vectors = ReleasedVectors.load(path)
        if not vectors.protected:
            raise InputError(f"{path}: these vectors are not protected, so texts under them must stay private")
        writer = load_writer(claim, settings)
        vectors.check(writer)
        for item in vectors.labels:
            writer.prompt(item.label, item.shots, vectors.most_shots)
            vectors.steering(item.label, **writing.steering())
        _check_folder(output)
    about = {
        "vectors": vectors.fingerprint,
        "writer": repr(writer),
        "model": writer.model.fingerprint,
        "steering": {**writing.steering(), "inject": writing.inject},
        "rejection": writing.model_dump(include={"reject", "threshold", "waste"}),
        "seed": claim.parameters.seed,
        **judged(claim),
    }
    try:
        with input_errors(), Journal(output / JOURNAL, about) as journal:
            documents = write_all(claim, vectors, writer, journal, settings)
    except (JournalError, WriterError) as error:
        raise InputError(str(error)) from None
    with input_errors():
        documents.write(output, mode=0o644)
    return WrittenTexts(claim.name, documents, output, vectors.fingerprint, _warnings(documents, writer.model))


def _warnings(documents: Documents, model: LanguageModel) -> tuple[str, ...]:
    """Warns of texts without a character, and of texts that the embedded model does not know."""
    texts = documents.texts or []
    empty = [] if any(text.strip() for text in texts) else ["No text has a character: lower the coefficient."]
    return (*empty, *unknown_texts(model if model.is_builtin else None, texts, "texts that it wrote"))
