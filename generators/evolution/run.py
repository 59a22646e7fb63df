"""What runs of evolutionary generators share: the writer, the ledger, and the output files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dpassay.base.errors import InputError, input_errors
from dpassay.generators.base import RunSettings
from dpassay.generators.documents import Documents
from dpassay.generators.evolution.claim import EvolutionClaim
from dpassay.mechanisms.embedding.load import fetch_embedder
from dpassay.mechanisms.evolution.loop import SyntheticText
from dpassay.mechanisms.models.writers import Writer

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


def endings(claim: EvolutionClaim, writer: Writer) -> tuple[bool, str]:
    """Whether every text ended by itself, else that is not recorded; and which are kept, in words."""
    whole = claim.parameters.writing.whole
    if whole is None and claim.parameters.endpoint is None:
        whole = writer.model.is_builtin  # type: ignore[attr-defined]
    if whole:
        return True, "A text that reached its largest number of tokens was discarded, so every text ended by itself."
    return False, CUT_TEXTS


CUT_TEXTS = "A text that reached its largest number of tokens is kept as it was cut. How many did is not recorded."


def facts(claim: EvolutionClaim, settings: RunSettings, writer: Writer) -> dict[str, str]:
    """The writer, the noise and the data, as rows of a report."""
    endpoint = claim.parameters.endpoint
    results = {
        "language model": writer.name if endpoint is None else endpoint.model,
        "fingerprint of the writer (SHA-256)": writer.fingerprint,
        "source of noise": settings.noise_in_words,
    }
    if endpoint is None:
        results["device"] = f"{writer.model.device} (asked for: {settings.device})"  # type: ignore[attr-defined]
    else:
        results["endpoint"] = writer.name
    results |= claim.data.facts()
    return results


def sent_to_writer(claim: EvolutionClaim, *, examples: int = 0, releasable: bool) -> list[str]:
    """What the writer of candidates receives, in sentences of a report.

    Args:
        claim: of the run.
        examples: number of public records of each label in prompts.
        releasable: whether the numbers that select candidates are protected.
    """
    away = claim.parameters.endpoint is not None
    sent = "Whoever writes candidates is sent prompts and candidates, which released numbers have chosen"
    lines = [sent + ("." if examples else ", and no record.")]
    if examples:
        each = " of each label" if claim.public.labels else ""
        lines.append(
            f"It is shown up to {examples} real records{each} in which no secret was found"
            + (": they leave this machine for the endpoint." if away else "; it runs on this machine.")
        )
    if away and not releasable:
        lines.append("The texts of this run are not protected as claimed, and the endpoint has seen its candidates.")
    return lines


FLOATING_POINT = (
    "Embeddings are floating-point numbers, each computed from its own text alone. What is added up over records are "
    "whole numbers or points of a fixed grid, without rounding, before noise is added."
)
TIMING = "Timing and memory use of the run depend on the data; do not let an adversary measure them."
