"""Writers of synthetic candidates: RANDOM texts and VARIATIONs of candidates.

A writer never receives a private record. Its inputs are public text (examples that the user declared public, labels)
and candidates, which are themselves a writer's texts, chosen by a released selection. So everything a writer does,
whoever operates its model, is post-processing.

`ModelWriter` uses a local language model, `endpoint.EndpointWriter` a server.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from dpassay.base import validate
from dpassay.base.errors import DpassayError
from dpassay.mechanisms.compute.executor import Executor
from dpassay.mechanisms.compute.needs import Need, map_with
from dpassay.mechanisms.models.model_reference import ModelReference
from dpassay.mechanisms.models.prompts import FENCE, ours, render
from dpassay.mechanisms.models.template_rendering import RenderingError

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CHARACTERS_A_TOKEN = 64  # of a prompt's text, to bound the time of tokenisation
_UNWRITABLE = ("Cc", "Cs")  # control characters, surrogates


class WriterError(DpassayError):
    """A writer that cannot be used; one line. Texts that were finished before are not lost."""


class Writer(Protocol):
    """Generates candidates. It receives public text and candidates only, never a private record."""

    @property
    def name(self) -> str:
        """The display name."""

    @property
    def fingerprint(self) -> str:
        """Differs between writers that generate different texts for equal seeds."""

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        """New texts of a label, one for each seed, in order.

        An empty string is a rejected text, which is requested again with another seed. None is a text that could not be
        generated; a writer that yields None raises an error after yielding all finished texts.
        """

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        """One variation of each candidate, in order; as for `random`."""


@runtime_checkable
class LocalWriter(Writer, Protocol):
    """A writer that workers load and use: each text is a function of its seed and of what it varies."""

    @property
    def rows(self) -> int:
        """How many texts are written at a time."""

    def loader(self) -> Callable[[], Writer]:
        """How another process gets the same writer; it can be pickled."""


@dataclass(frozen=True, slots=True)
class TextRequest:
    """Texts of a label that a writer is asked for: one for each seed, random ones or, if there are texts, a variation
    of each."""

    label: str | None
    texts: tuple[str, ...]
    seeds: tuple[int, ...]

    def parts(self, size: int) -> Iterator[TextRequest]:
        """The request in parts of so many texts."""
        for start in range(0, len(self.seeds), size):
            part = slice(start, start + size)
            yield TextRequest(self.label, self.texts[part], self.seeds[part])


def written(request: TextRequest, writer: Writer) -> Iterator[str | None]:
    """The texts of a request, as `Writer` yields them."""
    if request.texts:
        return writer.vary(request.texts, request.label, request.seeds)
    return writer.random(request.label, request.seeds)


def written_on_workers(
    executor: Executor, requests: Iterable[TextRequest], writer: LocalWriter
) -> Iterator[str | None]:
    """The texts of requests, in order; workers write `writer.rows` of them at a time. Which texts these are does not
    depend on the number of workers, so neither do the texts."""
    parts = (part for request in requests for part in request.parts(writer.rows))
    need: Need[Writer] = Need("writer", writer, lambda: (writer.fingerprint, writer.loader()))
    for texts in map_with(executor, _all_written, parts, need):
        yield from texts


def _all_written(request: TextRequest, writer: Writer) -> list[str | None]:
    return list(written(request, writer))


def clean(text: str) -> str:
    """A text for JSON Lines and HTML: uniform line ends, no control characters, no unpaired surrogates."""
    text = _LINE_ENDS.sub("\n", text)
    kept = (char for char in text if char in "\n\t" or unicodedata.category(char) not in _UNWRITABLE)
    return "".join(kept).strip()


@dataclass(frozen=True, slots=True)
class Prompts:
    """The prompts of a language model, Jinja or `str.format`: for a random text with {label} and {example}, a public
    text or empty; for a variation with {label} and {text}, the candidate; and a string that ends a text, or None."""

    random: str
    variation: str
    stop: str | None = None

    def __post_init__(self) -> None:
        try:
            render(self.random, {"label": "label", "example": ""})
        except RenderingError as error:
            why = error.detail or error
            raise ValueError(f"the prompt for random texts does not render with label and example: {why}") from None
        try:
            shown = render(self.variation, {"label": "label", "text": "probe"})
        except RenderingError as error:
            why = error.detail or error
            raise ValueError(f"the prompt for variations does not render with label and text: {why}") from None
        if "probe" not in shown:
            raise ValueError("the prompt for variations does not show the candidate; use {text} in it")


_ASKED = Prompts(
    ours(
        "Write one text{% if label %} of the kind {{ label }}{% endif %}."
        "{% if example %} It should look like this one, but say something else:\n\n{{ example }}\n\n"
        "{% else %} {% endif %}Answer with the text alone."
    ),
    ours(
        "Rewrite the following text{% if label %} of the kind {{ label }}{% endif %}. Keep its form and about its "
        "length, change some of its wording and details, and answer with the new text alone.\n\n{{ text }}"
    ),
)
_SERIES = "{%% if %(text)s %%}```\n{%% if label %%}{{ label }}\n{%% endif %%}{{ %(text)s }}\n```\n\n{%% endif %%}"
_NEXT = "```\n{% if label %}{{ label }}\n{% endif %}"
_CONTINUED = Prompts(ours(_SERIES % {"text": "example"} + _NEXT), ours(_SERIES % {"text": "text"} + _NEXT), FENCE)


def prompts_of(random: str | None, variation: str | None, stop: str | None, *, chat: bool) -> Prompts:
    """The given prompts, with defaults for None.

    By default a chat model (`chat`) is asked for a text; any other model is shown a series of texts between fences,
    which it continues up to the next fence.
    """
    default = _ASKED if chat else _CONTINUED
    if stop is None and random is None and variation is None:
        return default
    return Prompts(random or default.random, variation or default.variation, stop)


@dataclass(frozen=True, kw_only=True)
class ModelWriter:
    """Generates texts with a local language model, such as the embedded one.

    The embedded model continues a series of documents of one kind: a public example, or nothing, before a random text,
    and the candidate before its variation. Other models get prompts.

    Attributes:
        model: any.
        examples: public texts by label; the prompt for a random text shows one of them, chosen by its seed.
        random_prompt: Jinja or `str.format`, with {label} and {example}; None for a default (`prompts_of`). The
            embedded model needs none.
        variation_prompt: likewise, with {label} and {text}, the candidate.
        stop: a string that ends a text; None for none, or for that of the default prompts.
        chat: whether a prompt is a user's turn of the tokenizer's chat template; None for yes if it has one.
        temperature: of sampling; 0 takes the most likely token.
        top_p: the probability mass to sample from, most likely tokens first, in (0, 1].
        max_tokens: the largest number of tokens of a text.
        whole: whether a text that did not end by itself is rejected and requested again; otherwise it is used as
            truncated. None is True for the embedded model and False for others.
        rows: number of texts in a batch; it does not affect the texts.
    """

    model: LanguageModel
    examples: Mapping[str | None, Sequence[str]] = field(default_factory=dict)
    random_prompt: str | None = None
    variation_prompt: str | None = None
    stop: str | None = None
    chat: bool | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 100
    whole: bool | None = None
    rows: int = 128

    def __post_init__(self) -> None:
        validate.non_negative(temperature=self.temperature)
        validate.integer(minimum=1, rows=self.rows)
        if validate.probability(top_p=self.top_p) == 0:
            raise ValueError("top_p must be above 0 and at most 1, not 0")
        longest = 3 * self.model.context_length // 4
        if validate.integer(minimum=1, max_tokens=self.max_tokens) > longest:
            raise ValueError(
                f"max_tokens must be at most {longest}, three quarters of the model's positions, not {self.max_tokens}"
            )
        if self.chat and not self.model.tokenizer.chat_template:
            raise ValueError(f"model {self.model.name} has no chat template, but chat needs one; leave chat out")
        _ = self.asked  # checks the prompts

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the model's files and everything else that determines a text."""
        settings = (
            (self.model.fingerprint, self.model.dtype, self.asked, self._chat),
            sorted((str(label), tuple(texts)) for label, texts in self.examples.items()),
            (self.temperature, self.top_p, self.max_tokens, self._whole),
        )
        return hashlib.sha256(repr(settings).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def _chat(self) -> bool:
        return bool(self.model.tokenizer.chat_template) if self.chat is None else self.chat

    @property
    def asked(self) -> Prompts:
        return prompts_of(self.random_prompt, self.variation_prompt, self.stop, chat=self._chat)

    @property
    def _whole(self) -> bool:
        return self.model.is_builtin if self.whole is None else self.whole

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        """As for `Writer`.

        Raises:
            ValueError: if a prompt, including that for variations, does not fit into the model's context.
        """
        self.context(self.asked.variation, label, "text", "")
        examples = [example_of(self.examples, label, seed) for seed in seeds]
        return self._texts([self.context(self.asked.random, label, "example", text) for text in examples], seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        return self._texts([self.context(self.asked.variation, label, "text", text) for text in texts], seeds)

    def _texts(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int]) -> Iterator[str]:
        from dpassay.mechanisms.models.sampling import sampled

        texts = sampled(
            self.model,
            contexts,
            seeds,
            temperature=self.temperature,
            top_p=self.top_p,
            longest=self.max_tokens,
            stop=None if self.model.is_builtin else self.asked.stop,
            chat=self._chat,
            rows=self.rows,
        )
        return (text if ended or not self._whole else "" for text, ended in texts)

    def loader(self) -> Callable[[], ModelWriter]:
        """How another process loads the same writer, with the model from its own files."""
        settings = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "model"}
        return partial(_loaded, ModelReference.of(self.model), settings)

    def context(self, prompt: str, label: str | None, name: str, text: str) -> list[int]:
        """The tokens before a text to be generated; the text they show is truncated to fit."""
        model, room = self.model, self.model.context_length - self.max_tokens
        text = text[: _CHARACTERS_A_TOKEN * room]
        if model.is_builtin:
            end = list(model.end_of_text_ids[:1])
            return [*end, *model.encode(text)[: room - 2], *end] if text else end
        while True:
            asked = render(prompt, {"label": label or "", name: text})
            ids = model.encode(model.chat(asked)) if self._chat else [*model.beginning_ids, *model.encode(asked)]
            if len(ids) <= room:
                return ids or list(model.end_of_text_ids[:1]) or [0]
            if not text:
                raise ValueError(
                    f"a prompt of {len(ids)} tokens and {self.max_tokens} of a text do not fit into the model's "
                    f"{model.context_length} positions; shorten it or lower max_tokens"
                )
            text = text[: min(len(text) - 1, len(text) * room // len(ids))]


def _loaded(reference: ModelReference, settings: Mapping[str, Any]) -> ModelWriter:
    return ModelWriter(model=reference.load(), **settings)


def example_of(examples: Mapping[str | None, Sequence[str]], label: str | None, seed: int) -> str:
    """One public example of a label, chosen by a seed; empty if there is none."""
    texts = examples.get(label, ())
    return texts[int(np.random.default_rng([seed, 1]).integers(len(texts)))] if texts else ""
