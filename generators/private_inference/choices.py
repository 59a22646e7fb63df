"""What claims about private inference leave to choose: for batches of several sizes, the number of tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dpassay.accounting.calibration.parameter_search import ParameterSearch
from dpassay.base.errors import input_errors
from dpassay.generators.choices import ParameterChoices, around, grid
from dpassay.generators.private_inference.claim import PrivateInferenceClaim
from dpassay.mechanisms.private_inference.generator import MAX_TOKENS, PrivateInference

if TYPE_CHECKING:
    from dpassay.generators.base import RunSettings

_FACTORS = (0.25, 0.5, 2.0, 4.0)

REALISED = (
    "Before a run, a median costs what its clip allows in the worst case. The ex-post ε of the documents that are "
    "drawn is often much lower: `dpassay assay` computes it after the run."
)


class InferenceChoices(ParameterChoices[PrivateInferenceClaim]):
    """Larger batches make a token cheaper, for a mean, and leave fewer slots, each with its own documents."""

    def search(self, claim: PrivateInferenceClaim) -> ParameterSearch:
        slots = claim.generator().total_slots
        return ParameterSearch("tokens", (1, MAX_TOKENS // slots), claim.parameters.tokens, integer=True)

    def settings(self) -> list[dict[str, Any]]:
        return grid(batch_size=around(self.claim.parameters.batch_size, _FACTORS, self.claim.public.records))

    def follows(self, claim: PrivateInferenceClaim) -> dict[str, Any]:
        """A denominator that the claim states, and the setting does not, stays in proportion to the batch size."""
        own, new = self.claim.parameters, claim.parameters
        if own.denominator is None or own.batch_size == new.batch_size or own.denominator != new.denominator:
            return {}
        return {"denominator": max(1, round(own.denominator * new.batch_size / own.batch_size))}

    def facts(self, claim: PrivateInferenceClaim) -> dict[str, float]:
        mechanism = claim.generator()
        slots = mechanism.total_slots
        facts: dict[str, float] = {"slots": slots, "tokens in all": slots * mechanism.tokens}
        if mechanism.document_tokens is not None:
            facts["documents"] = slots * (mechanism.tokens // mechanism.document_tokens)
        return facts

    def notes(self) -> list[str]:
        longest = self.claim.parameters.document_tokens
        lengths = [] if longest is None else [f"Documents are counted as if each had document_tokens, {longest}."]
        return [*lengths, *([REALISED] if self.claim.parameters.aggregate == "median" else [])]

    def timer(self, settings: RunSettings) -> Callable[[PrivateInferenceClaim], float]:
        from dpassay.data.records import Record
        from dpassay.generators.measuring import STEPS, Stopwatch, sample_size, short_run
        from dpassay.generators.private_inference.run import load_model
        from dpassay.mechanisms.private_inference.loop import generate

        model = load_model(self.claim, settings.model, settings.device, settings.download)
        own = self.claim.generator()
        small = _small(own, min(sample_size(model), own.records), STEPS)
        label = small.labels[0] if small.labels else None
        records = [Record(str(index), f"record {index}", label, str(index)) for index in range(small.records)]
        stopwatch = Stopwatch()
        with input_errors():
            small.row_plan(model)
        verified = stopwatch.lap()
        with short_run(small) as (run, _):
            stopwatch = Stopwatch()
            generate(small, records, model, run, key=bytes(32), progress=stopwatch)
        context, *tokens = stopwatch.laps
        rows = _rows(small)

        def seconds(claim: PrivateInferenceClaim) -> float:
            mechanism = claim.generator()
            return verified + _rows(mechanism) / rows * (context + mechanism.tokens * sum(tokens) / len(tokens))

        return seconds

    def hint(self) -> str:
        if self.claim.parameters.aggregate == "none":
            return "; aggregate none protects nothing, so use mean or median"
        less = "raise the target, or lower clip, of which 2 to 4 are enough with center: public"
        if self.claim.parameters.aggregate == "median":
            return f"; {less}. {REALISED}"
        return f"; {less}, or try larger batches with --vary batch_size=VALUES"


def _rows(mechanism: PrivateInference) -> int:
    """The number of contexts of a run, with those of the prompts without a record."""
    contexts = -(-mechanism.records // mechanism.records_per_context)
    return contexts + (mechanism.total_slots if mechanism.center is not None or mechanism.anchor else 0)


def _small(mechanism: PrivateInference, records: int, tokens: int) -> PrivateInference:
    """The mechanism with a single slot of so many records, which samples so many tokens."""
    lengths = mechanism.context_tokens
    return dataclasses.replace(
        mechanism,
        records=records,
        labels=mechanism.labels[:1],
        batch_size=records,
        denominator=None,
        tokens=tokens,
        slot_threshold=None,
        centres=None,
        kept_centres=None,
        embedder="builtin",
        context_tokens=max(length for _, length in lengths) if isinstance(lengths, tuple) else lengths,
    )


choices = InferenceChoices
