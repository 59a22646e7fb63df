"""What claims about evolutionary text generators share: the writer of candidates and its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from pydantic import Field

from dpassay.base.errors import InputError
from dpassay.claims.base import AT_LEAST_0, AT_LEAST_1, Claim, Count, Limits, Number, key
from dpassay.claims.data import Strict, is_local
from dpassay.claims.lints import short_texts

if TYPE_CHECKING:
    from dpassay.mechanisms.models.endpoint import EndpointWriter

LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}
"""Requests to these hosts stay on this machine."""


class Endpoint(Strict):
    """An OpenAI-compatible endpoint that writes candidates, or judges texts."""

    url: str = Field(description="such as https://api.example.com/v1 or http://127.0.0.1:8000/v1/completions")
    model: str = Field(description="name of the model at the endpoint")
    api_key_env: str | None = Field(default=None, description="the environment variable that holds the API key")
    at_once: Count = Field(default=4, ge=1, description="number of concurrent requests")
    timeout: Number = Field(default=60.0, gt=0, description="seconds to wait for a response")
    tries: Count = Field(
        default=6, ge=1, description="number of attempts if a request fails in a way that may be temporary"
    )


def check_allowed(endpoint: Endpoint | None, allowed: str | None, sent: str) -> None:
    """Checks that the user who runs a claim allows its endpoint.

    The author of a claim may be somebody else, and could name any address and any environment variable. An endpoint on
    this machine that receives no key needs no consent.

    Args:
        endpoint: of the claim; None for none.
        allowed: address that the command line allows; None for none.
        sent: the parameter, and what would be sent, in words.

    Raises:
        InputError: if the endpoint has another address.
    """
    if endpoint is None or (allowed is not None and allowed.rstrip("/") == endpoint.url.rstrip("/")):
        return
    if endpoint.api_key_env is None and urlsplit(endpoint.url).hostname in LOCAL_HOSTS:
        return
    key = "" if endpoint.api_key_env is None else f" and the environment variable {endpoint.api_key_env}"
    raise InputError(f"{sent}{key} would be sent to {endpoint.url}; to allow it, give --allow-endpoint {endpoint.url}")


class Writing(Strict):
    """How candidates are written. What is not given has the writer's default."""

    random_prompt: str | None = Field(default=None, description="of a new text; with {label} and {example}")
    variation_prompt: str | None = Field(default=None, description="of a variation; with {label} and {text}")
    temperature: Number | None = Field(default=None, ge=0, description="of the language model's sampling")
    top_p: Number | None = Field(
        default=None, gt=0, le=1, description="tokens are sampled from the most likely ones, of this total probability"
    )
    max_tokens: Count | None = Field(default=None, ge=1, description="the largest number of tokens of a text")
    stop: str | None = Field(default=None, description="a string that ends a text")
    chat: bool | None = Field(
        default=None, description="whether prompts are a user's turn in a chat; local models only"
    )
    whole: bool | None = Field(default=None, description="whether texts that reached max_tokens are discarded")


WRITER_FIELDS: dict[str, Any] = {
    "writing": (Writing, key("how candidates are written", Writing())),
    "endpoint": (Endpoint | None, Field(default=None, description="writes candidates instead of `model`")),
}
"""The parameters of a claim about the writer, for `parameters_model`."""

EVOLUTION_LIMITS: dict[str, Limits] = {
    **dict.fromkeys(("rounds", "synthetic", "variations"), AT_LEAST_1),
    **dict.fromkeys(("lookahead", "seed"), AT_LEAST_0),
}
"""The ranges of the parameters that evolutions share."""

EMBEDDED_ALONE = "The vector of a text depends on that text alone, whatever other texts are embedded with it."
"""The assumption on embedders, whose vectors decide which votes and sums one record changes."""

NOT_OF_THE_MECHANISM = set(WRITER_FIELDS)


class EmbeddingClaim(Claim):
    """A claim about a generator that embeds texts: its parameter `embedder` may be a folder."""

    def described(self) -> dict[str, Any]:
        body = super().described()
        if is_local(self.parameters.embedder):
            body["parameters"]["embedder"] = Path(self.parameters.embedder).resolve().name
        return body

    def located(self, folder: Path) -> Self:
        located, embedder = super().located(folder), folder / self.parameters.embedder
        return located.with_parameters(embedder=str(embedder)) if embedder.is_dir() else located


class EvolutionClaim(EmbeddingClaim):
    """A claim about an evolutionary text generator, or the configuration of a run."""

    spread = True

    def check(self) -> None:
        if self.public.context_tokens is not None:
            raise ValueError("public.context_tokens: is for mechanism private_inference only; leave it out")
        if self.parameters.endpoint is not None:
            if self.model != "builtin":
                raise ValueError("parameters.endpoint: writes in place of model; give one of the two")
            if self.parameters.writing.chat is not None:
                raise ValueError("parameters.writing.chat: is for local models; an endpoint does not know it")
            self.writer_of_endpoint({})

    def writer_of_endpoint(self, examples: Mapping[str | None, Sequence[str]]) -> EndpointWriter:
        """The writer at the claim's endpoint; nothing is sent yet.

        Raises:
            ValueError: if the URL is invalid, or a prompt does not render.
        """
        from dpassay.mechanisms.models.endpoint import EndpointWriter

        return EndpointWriter(
            **self.parameters.endpoint.model_dump(),
            **self.parameters.writing.model_dump(exclude_none=True),
            examples=examples,
        )

    def check_allowed(self, allowed: str | None) -> None:
        """As the function of that name, for what the claim sends to its endpoint."""
        check_allowed(self.parameters.endpoint, allowed, "parameters.endpoint: prompts and candidates")

    def parameter_warnings(self) -> list[str]:
        most, whole = self.parameters.writing.max_tokens, self.parameters.writing.whole
        if whole is None:  # the default of the writers
            whole = self.model == "builtin" and self.parameters.endpoint is None
        return [] if most is None else short_texts(most, "parameters.writing.max_tokens", kept=not whole)

    def described(self) -> dict[str, Any]:
        body = super().described()
        parameters = body["parameters"]
        if not parameters["writing"]:
            del parameters["writing"]
        if self.parameters.endpoint is not None:  # its address describes a network
            parameters["endpoint"] = {"model": self.parameters.endpoint.model}
            del body["model"]
        return body
