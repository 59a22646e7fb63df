"""Claims about private inference."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.base.number_format import format_number
from dpassay.claims.base import AT_LEAST_1, POSITIVE, key, parameters_model, public_numbers
from dpassay.claims.data import KEYS, BuiltinData
from dpassay.claims.lints import short_texts
from dpassay.generators.evolution.claim import EMBEDDED_ALONE, EmbeddingClaim
from dpassay.mechanisms.private_inference.generator import PrivateInference

ROWS_ALIKE = "The kernels compute each row of a batch alike, whatever the other rows hold."
"""The assumption on kernels. At which shapes it was verified is part of what a run begins with."""

PUBLIC_LOGITS = (
    "The predictions without a record, about which those of the records are clipped, are public: neither the model nor "
    "the prompt was made from the private records."
)
"""The assumption on the center of clipped rows."""

PrivateInferenceParameters: Any = parameters_model(
    "PrivateInferenceParameters",
    PrivateInference,
    {"records", "labels", "context_tokens", "adjacency", "unit", "variant"},
    {
        **dict.fromkeys(("clip", "temperature", "slot_count_epsilon", "cluster_count_epsilon"), POSITIVE),
        **dict.fromkeys(
            ("batch_size", "tokens", "records_per_context", "denominator", "top_k", "kept_centres", "document_tokens"),
            AT_LEAST_1,
        ),
    },
    centres=(
        Path | None,
        key("a file of public centres, by which records are clustered; without it they are not", None),
    ),
    center=(
        Literal["public", "none"] | None,
        Field(
            None,
            description="public, or none to clip logits as they are; left out, public if clip/temperature is at most 5 "
            "and other parameters allow it",
        ),
    ),
)


class PrivateInferenceClaim(EmbeddingClaim):
    """A claim about private inference, or the configuration of a run."""

    mechanism: Literal["private_inference"]
    parameters: PrivateInferenceParameters
    audits: Sequence[Literal["leave_one_out", "reconstruction", "record_replay"]] = []
    spread = True
    newer_parameters: ClassVar[Mapping[str, Any]] = {"center": "none", "top_k": None}

    def check(self) -> None:
        if self.data == BuiltinData(source="builtin", name="keys"):
            most = KEYS // 2 if "reconstruction" in self.audits else KEYS
            if self.public.records > most:
                raise ValueError(
                    f"public.records: there are {KEYS} keys of five digits, and reconstruction holds half of them out, "
                    f"so at most {most}, not {self.public.records}"
                )
        adding = [name for name in self.audits if name != "record_replay"]
        if adding and self.adjacency is not Adjacency.ADD_REMOVE:
            raise ValueError(
                f"audits: {' and '.join(adding)} play at adjacency add_remove and say nothing of a claim at "
                f"{self.adjacency}; leave them out"
            )
        if "record_replay" in self.audits and self.parameters.aggregate == "none":
            raise ValueError("audits: record_replay compares a run with its events, and aggregate none has no event")

    @property
    def center(self) -> Literal["public"] | None:
        """What rows are clipped about: as stated; where it is left out, public logits if the clip is small enough."""
        if self.parameters.center is not None:
            return None if self.parameters.center == "none" else "public"
        return "public" if self._described(center=None, top_k=None).centred_by_default else None

    def resolved(self, begun: Callable[[], Mapping[str, Any] | None]) -> Self:
        if self.parameters.center is not None:
            return self
        parameters = begun()
        of_earlier_version = parameters is not None and "center" not in parameters
        return self.with_parameters(center="none" if of_earlier_version else self.center or "none")

    def generator(self) -> PrivateInference:
        return self._described(center=self.center)

    def _described(self, **changes: Any) -> PrivateInference:
        lengths = self.public.context_tokens
        return PrivateInference(
            **self.parameters.model_dump() | changes,
            records=self.public.records,
            labels=tuple(self.public.labels),
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
            context_tokens=tuple(sorted(lengths.items())) if isinstance(lengths, dict) else lengths,
        )

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        if parameters.get("aggregate") == "none":
            return (
                "Private inference with its protection taken out, as a control: each synthetic document is written by "
                "the language model from one record of a batch"
            )
        public = parameters.get("center") == "public"
        centred = ", and counts by how it changes the prediction without a record" if public else ""
        if parameters.get("top_k"):
            centred += "; tokens that are unlikely without a record are never drawn"
        return (
            "Private inference: each token of a synthetic document is drawn from an aggregate over a batch of records, "
            f"each of which is shown to the language model on its own{centred}"
        )

    def parameter_warnings(self) -> list[str]:
        tokens, longest = self.parameters.tokens, self.parameters.document_tokens
        results = short_texts(min(tokens, longest or tokens), "parameters.tokens and document_tokens", kept=False)
        if not results and longest is not None and longest > tokens:
            results.append(
                f"parameters.document_tokens is {longest}, but a slot samples {tokens} tokens in all: a document that "
                "needs more is never complete, and is not kept."
            )
        return [*results, *self._idle_slots()]

    def described(self) -> dict[str, Any]:
        body = super().described()
        if self.parameters.centres is not None:
            body["parameters"]["centres"] = self.parameters.centres.resolve().name
        return body

    def _idle_slots(self) -> list[str]:
        """Warns of a threshold that the noisy count of a slot hardly reaches."""
        threshold, mechanism = self.parameters.slot_threshold, self.generator()
        parts = mechanism.total_slots if mechanism.centres is None else 1
        mean = self.public.records / parts
        if threshold is None or threshold <= mean + 6 * math.sqrt(mean) + 30 / mechanism.slot_count_epsilon:
            return []
        return [
            f"parameters.slot_threshold is {format_number(threshold)}, but a slot holds about {format_number(mean)} "
            f"{self.unit}s: it is unlikely that any slot runs, and then there is no document."
        ]

    def assumptions(self) -> list[str]:
        said = [public_numbers(f"units ({self.unit}s)", labels=bool(self.public.labels))]
        if self.parameters.rows == "fixed":
            said.append(ROWS_ALIKE)
        if self.public.context_tokens is not None:
            said.append("The public length of contexts was not set by the private records.")
        if self.center is not None:
            said.append(PUBLIC_LOGITS)
        if self.parameters.centres is not None:
            said += ["The centres of clusters were not made from the private records.", EMBEDDED_ALONE]
        return said

    def estimate_reasons(self) -> list[str]:
        packed = self.parameters.rows == "packed"
        return [f"claim {self.name!r} packs rows, whose shapes follow the data"] if packed else []
