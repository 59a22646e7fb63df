"""Claims about dataset vectors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import Field

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.base import validate
from dpassay.claims.base import (
    AT_LEAST_0,
    AT_LEAST_1,
    POSITIVE,
    Count,
    Number,
    Public,
    key,
    parameters_model,
    public_numbers,
)
from dpassay.claims.data import Strict
from dpassay.claims.lints import short_texts
from dpassay.generators.evolution.claim import EMBEDDED_ALONE, EmbeddingClaim, Endpoint, check_allowed
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors

STATES_ALIKE = (
    "The kernels compute each text's hidden states alike, whatever the other texts of a forward pass are. Every pass "
    "has one public shape; the states of random tokens were verified bit for bit at it, with other texts exchanged, "
    "moved and removed, before the vectors were summed."
)
"""The assumption on kernels. Whether the verification succeeded is noted in the ledger, before sums are charged."""


class VectorsPublic(Public):
    """What is public by assumption, with the number of records of each label."""

    records_by_label: dict[str, Count] | None = Field(
        default=None, description="the number of records of each label; they add up to `records`"
    )


class ShotWriting(Strict):
    """How candidates, negatives and synthetic texts are written."""

    texts: Count = Field(default=100, ge=1, description="number of synthetic texts of each label")
    coefficient: Number | list[Number] = Field(
        default=1.4, description="β, by which directions of length 1 are multiplied; one number, or one for each block"
    )
    relative: bool = Field(
        default=False, description="whether β is in units of the mean length of negatives' states in the block"
    )
    inject: Literal["last", "all"] = Field(default="last", description="at which positions vectors are added")
    template: str | None = Field(default=None, description="of prompts; by default that of the model")
    stop: str | None = Field(default=None, description="a string that ends a text")
    temperature: Number = Field(default=1.6, ge=0, description="of the language model's sampling")
    top_p: Number = Field(
        default=1.0, gt=0, le=1, description="tokens are sampled from the most likely ones, of this total probability"
    )
    top_k: Count = Field(default=0, ge=0, description="the number of most likely tokens to sample from; 0 for all")
    longest: Count = Field(default=512, ge=1, description="the largest number of tokens of a text")
    longest_record: Count = Field(
        default=800, ge=1, description="the largest number of tokens of a record; longer ones are cut"
    )
    reject: Literal["none", "perplexity", "judge"] = Field(
        default="perplexity", description="by what texts are rejected and written again; all read synthetic texts only"
    )
    threshold: Number | None = Field(
        default=None,
        description="the largest perplexity, by default what 95% of texts without vectors have; or the least rating",
    )
    waste: Count = Field(default=3, ge=1, description="how often a text is written at most")

    def writer(self) -> dict[str, Any]:
        """The settings of the writer, a `ShotWriter` without its model."""
        return self.model_dump(exclude={"texts", "coefficient", "relative", "inject", "reject", "threshold", "waste"})

    def steering(self) -> dict[str, Any]:
        """The settings of the steering, for `ReleasedVectors.steering`."""
        return self.model_dump(include={"coefficient", "relative"})


DatasetVectorsParameters: Any = parameters_model(
    "DatasetVectorsParameters",
    DatasetVectors,
    {"records", "records_by_label", "labels", "adjacency", "unit", "variant"},
    {
        **dict.fromkeys(("noise_multiplier", "shots_noise_multiplier", "shots", "seed"), AT_LEAST_0),
        **dict.fromkeys(("candidates", "negatives", "sample"), AT_LEAST_1),
    },
    clip=(
        Number | list[Number] | None,
        key(
            "C, to which the difference of each record is clipped; by default the median length for public texts",
            None,
            POSITIVE,
        ),
    ),
    blocks=(
        list[Count] | None,
        key("decoder blocks, counted from 0; by default those from half to two thirds of the depth", None),
    ),
    writing=(ShotWriting, key("how texts are written", ShotWriting())),
    judge=(Endpoint | None, Field(default=None, description="rates synthetic texts, for `writing.reject: judge`")),
)


class DatasetVectorsClaim(EmbeddingClaim):
    """A claim about dataset vectors, or the configuration of a run."""

    mechanism: Literal["dataset_vectors"]
    adjacency: Adjacency = Adjacency.REPLACE_ONE
    parameters: DatasetVectorsParameters
    public: VectorsPublic
    audits: Sequence[Literal["distinguishing", "membership"]] = []
    spread = True

    def check(self) -> None:
        if self.public.context_tokens is not None:
            raise ValueError("public.context_tokens: is for mechanism private_inference only; leave it out")
        writing = self.parameters.writing
        given = writing.coefficient if isinstance(writing.coefficient, list) else [writing.coefficient]
        if not all(math.isfinite(item) for item in given):
            raise ValueError("parameters.writing.coefficient: must be finite")
        if isinstance(writing.coefficient, list) and len(given) != len(self.parameters.blocks or ()):
            raise ValueError("parameters.writing.coefficient: must be one number, or one for each of parameters.blocks")
        if (writing.reject == "judge") != (self.parameters.judge is not None):
            raise ValueError("parameters.judge: goes with writing.reject: judge; give both or neither")
        if writing.threshold is not None and writing.reject == "none":
            raise ValueError("parameters.writing.threshold: needs writing.reject: perplexity or judge")

    def generator(self) -> DatasetVectors:
        given = self.parameters.model_dump(exclude={"writing", "judge"})
        for name in ("clip", "blocks"):
            if isinstance(given[name], list):
                given[name] = tuple(given[name])
        return DatasetVectors(
            **given,
            records=self.public.records,
            records_by_label=self._records_by_label(),
            labels=tuple(self.public.labels),
            adjacency=self.adjacency,
            unit=Unit.parse(self.unit),
            variant=self.variant,
        )

    def _records_by_label(self) -> tuple[int, ...]:
        given: Mapping[str, int] = self.public.records_by_label or {}
        if set(given) - set(self.public.labels):
            raise ValueError("records_by_label must name public labels only")
        return tuple(given[label] for label in self.public.labels if label in given)

    def check_allowed(self, allowed: str | None) -> None:
        """As the function of that name, for what the claim sends to its judge."""
        check_allowed(self.parameters.judge, allowed, "parameters.judge: synthetic texts")

    def with_texts(self, texts: int | None) -> Self:
        """The claim with another number of texts of each label; None for its own."""
        if texts is None:
            return self
        validate.integer(minimum=1, texts=texts)
        return self.with_parameters(writing=self.parameters.writing.model_copy(update={"texts": texts}))

    @classmethod
    def mechanism_in_words(cls, parameters: Mapping[str, Any]) -> str:
        return (
            "Dataset vectors: a language model is steered by one noisy release, the direction from its own texts to "
            "the records"
        )

    def parameter_warnings(self) -> list[str]:
        return short_texts(self.parameters.writing.longest, "parameters.writing.longest", kept=True)

    def assumptions(self) -> list[str]:
        mechanism, labels = self.generator(), self.public.labels
        said = [STATES_ALIKE, public_numbers("records of each label" if labels else "records", labels=bool(labels))]
        if mechanism.shots:
            said.append(EMBEDDED_ALONE)
        if mechanism.sample is not None:
            said.append(
                "Each label has exactly its public number of records, and the record that is replaced keeps its label."
            )
            if mechanism.variant == "sound":
                said.append("Which records are in the sample is secret.")
        if mechanism.pairing == "rows" and not mechanism.rows_shift:
            said.append("The record that is replaced keeps its row.")
        return said

    def described(self) -> dict[str, Any]:
        body = super().described()
        if self.parameters.judge is not None:  # its address describes a network
            body["parameters"]["judge"] = {"model": self.parameters.judge.model}
        return body
