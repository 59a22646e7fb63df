"""What runs of evolutionary generators share: the writer, the ledger, and the output files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpassay.base.errors import InputError, input_errors
from dpassay.claims.base import GeneratorParameters
from dpassay.generators.base import FinishedRun, RunSettings
from dpassay.generators.documents import Documents
from dpassay.generators.evolution.claim import EvolutionClaim
from dpassay.mechanisms.embedding.load import fetch_embedder
from dpassay.mechanisms.evolution.loop import SyntheticText
from dpassay.mechanisms.models.writers import Writer

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

JOURNAL = "candidates.jsonl"
"""The file of all candidates, beside the ledger."""


def load_writer(
    claim: EvolutionClaim, settings: RunSettings, examples: Mapping[str | None, Sequence[str]] | None = None
) -> Writer:
    """The writer of candidates: the claim's endpoint, else the model of the command line, else the claim's model.

    With `--download`, the claim's embedder is fetched, too.

    Raises:
        InputError: if the model is not on this machine, or a setting does not fit it.
    """
    with input_errors():
        if settings.download:
            fetch_embedder(claim.parameters.embedder)
        if claim.parameters.endpoint is not None:
            if settings.model is not None:
                raise InputError("--model: the claim names an endpoint, which writes in place of a model; drop one")
            writer = claim.writer_of_endpoint(examples or {})
            writer.check()
            return writer
        from dpassay.mechanisms.models.language_model import LanguageModel
        from dpassay.mechanisms.models.writers import ModelWriter

        model = LanguageModel.load(settings.model or claim.model, settings.device, allow_network=settings.download)
        given = claim.parameters.writing.model_dump(exclude_none=True)
        return ModelWriter(model=model, examples=examples or {}, **given)


def documents_of(texts: Iterable[SyntheticText]) -> Documents:
    """The documents of the last selection."""
    rows = [(text.label, text.rank, text.text) for text in texts]
    return Documents({"label": "string", "rank": "int64", "text": "string"}, rows)


@dataclass(frozen=True, kw_only=True)
class EvolutionRun(FinishedRun):
    """A finished run of an evolutionary generator.

    Attributes:
        mechanism: the generator.
        writer: of candidates.
        examples: number of public records of each label in prompts.
    """

    claim: EvolutionClaim
    mechanism: GeneratorParameters
    writer: Writer
    examples: int = 0

    def endings(self) -> tuple[bool, str]:
        whole = self.claim.parameters.writing.whole
        if whole is None and self.claim.parameters.endpoint is None:
            whole = self.writer.model.is_builtin  # type: ignore[attr-defined]
        if whole:
            discarded = "A text that reached its largest number of tokens was discarded"
            return True, f"{discarded}, so every text ended by itself."
        return False, CUT_TEXTS

    @property
    def embedded_model(self) -> LanguageModel | None:
        if self.claim.parameters.endpoint is not None:
            return None
        model: LanguageModel = self.writer.model  # type: ignore[attr-defined]
        return model if model.is_builtin else None

    def side_channels(self) -> list[str]:
        away = self.claim.parameters.endpoint is not None
        sent = "Whoever writes candidates is sent prompts and candidates, which released numbers have chosen"
        lines = [TIMING, sent + ("." if self.examples else ", and no record.")]
        if self.examples:
            each = " of each label" if self.claim.public.labels else ""
            lines.append(
                f"It is shown up to {self.examples} real records{each} in which no secret was found"
                + (": they leave this machine for the endpoint." if away else "; it runs on this machine.")
            )
        if away and not self.mechanism.releasable:
            lines.append(
                "The texts of this run are not protected as claimed, and the endpoint has seen its candidates."
            )
        return [*lines, FLOATING_POINT]

    def implementation(self) -> dict[str, str]:
        endpoint, writer = self.claim.parameters.endpoint, self.writer
        facts = {
            "language model": writer.name if endpoint is None else endpoint.model,
            "fingerprint of the writer (SHA-256)": writer.fingerprint,
            "source of noise": self.settings.noise_in_words,
        }
        if endpoint is None:
            facts["device"] = f"{writer.model.device} (asked for: {self.settings.device})"  # type: ignore[attr-defined]
        else:
            facts["endpoint"] = writer.name
        return facts | self.claim.data.facts()


CUT_TEXTS = "A text that reached its largest number of tokens is kept as it was cut. How many did is not recorded."


FLOATING_POINT = (
    "Embeddings are floating-point numbers, each computed from its own text alone. What is added up over records are "
    "whole numbers or points of a fixed grid, without rounding, before noise is added."
)
TIMING = "Timing and memory use of the run depend on the data; do not let an adversary measure them."
