"""Writers of synthetic candidates: RANDOM texts and VARIATIONs of candidates.

A writer never sees a private record. What goes in is public text (examples that the user declared public, labels) and
candidates, which are themselves a writer's texts, chosen by a released selection. So whatever a writer does, and
whoever runs the model behind it, is post-processing.

`ModelWriter` asks a local language model, `text_endpoint.EndpointWriter` a server.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from cupel.accounting import validate
from cupel.accounting.errors import CupelError
from cupel.mechanisms.models.prompts import FENCE, ours, render
from cupel.mechanisms.models.template_rendering import RenderingError

if TYPE_CHECKING:
    from cupel.mechanisms.models.language_model import LanguageModel

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_CHARACTERS_A_TOKEN = 64  # of what a prompt shows, so that no text takes long to become tokens
_UNWRITABLE = ("Cc", "Cs")  # control characters, halves of surrogate pairs


class WriterError(CupelError):
    """A writer that cannot be used, in one line; what it had written until then is not lost."""


class Writer(Protocol):
    """Writes candidates. It is given public text and candidates only, never a private record."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def fingerprint(self) -> str:
        """Differs between writers that write different texts for equal seeds."""

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        """New texts of a label, one for each seed, in order.

        An empty string stands for a text that was no good, and is asked for again with another seed. None stands for
        one that could not be had; a writer that gives it raises once it has given all that were finished.
        """

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str | None]:
        """One variation of each candidate, in order; as above."""


def clean(text: str) -> str:
    """A text that JSON Lines and a page can hold: one kind of line end, no control characters, no half surrogates."""
    text = _LINE_ENDS.sub("\n", text)
    kept = (char for char in text if char in "\n\t" or unicodedata.category(char) not in _UNWRITABLE)
    return "".join(kept).strip()


@dataclass(frozen=True, slots=True)
class Prompts:
    """How a language model is asked for texts; Jinja or `str.format`.

    Attributes:
        random: with {label} and {example}, a public text, empty where there is none.
        variation: with {label} and {text}, the candidate.
        stop: a string that ends a text, or None.
    """

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
    """Prompts with the defaults in the place of None.

    By default a model that takes a user's turn (`chat`) is asked for a text; any other is shown a series of texts
    between fences, which it continues up to the next fence.
    """
    default = _ASKED if chat else _CONTINUED
    if stop is None and random is None and variation is None:
        return default
    return Prompts(random or default.random, variation or default.variation, stop)


@dataclass(frozen=True, kw_only=True)
class ModelWriter:
    """Writes with a local language model, the embedded one included.

    The embedded model continues a series of documents of one kind: a public example, or nothing, before a random text,
    and the candidate before its variation. Any other model is given prompts.

    Attributes:
        model: any.
        examples: public texts by label; a random text is shown one of them, chosen by its seed.
        random_prompt: Jinja or `str.format`, with {label} and {example}; None for one of ours (`prompts_of`). The
            embedded model needs none.
        variation_prompt: likewise, with {label} and {text}, the candidate.
        stop: a string that ends a text; None for none, or for that of our prompts.
        chat: whether a prompt is a user's turn of the tokenizer's chat template; None for yes where it has one.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: the share of probability that is drawn from, the likeliest tokens first, in (0, 1].
        max_tokens: the largest number of tokens of a text.
        whole: whether a text that did not end by itself is no good, so that another is asked for; otherwise it is
            used as it was cut. None is True for the embedded model and False for others.
        rows: how many texts are written side by side; it decides no text.
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
            raise ValueError(f"model {self.model.name} has no chat template, which chat needs; leave chat out")
        _ = self._asked  # which checks the prompts

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the model's files and all that decides a text."""
        settings = (
            (self.model.fingerprint, self.model.dtype, self._asked, self._chat),
            sorted((str(label), tuple(texts)) for label, texts in self.examples.items()),
            (self.temperature, self.top_p, self.max_tokens, self._whole),
        )
        return hashlib.sha256(repr(settings).encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def _chat(self) -> bool:
        return bool(self.model.tokenizer.chat_template) if self.chat is None else self.chat

    @property
    def _asked(self) -> Prompts:
        return prompts_of(self.random_prompt, self.variation_prompt, self.stop, chat=self._chat)

    @property
    def _whole(self) -> bool:
        return self.model.is_builtin if self.whole is None else self.whole

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        """As `Writer`.

        Raises:
            ValueError: if a prompt, that for variations too, leaves no room in the model's context.
        """
        self._context(self._asked.variation, label, "text", "")
        examples = [example_of(self.examples, label, seed) for seed in seeds]
        return self._texts([self._context(self._asked.random, label, "example", text) for text in examples], seeds)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        return self._texts([self._context(self._asked.variation, label, "text", text) for text in texts], seeds)

    def _texts(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int]) -> Iterator[str]:
        from cupel.mechanisms.models.sampling import sampled

        texts = sampled(
            self.model,
            contexts,
            seeds,
            temperature=self.temperature,
            top_p=self.top_p,
            longest=self.max_tokens,
            stop=None if self.model.is_builtin else self._asked.stop,
            chat=self._chat,
            rows=self.rows,
        )
        return (text if ended or not self._whole else "" for text, ended in texts)

    def _context(self, prompt: str, label: str | None, name: str, text: str) -> list[int]:
        """The tokens before a text that is to be written; what they show is cut to what fits."""
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


def example_of(examples: Mapping[str | None, Sequence[str]], label: str | None, seed: int) -> str:
    """One public example of a label, chosen by a seed; empty where there is none."""
    texts = examples.get(label, ())
    return texts[int(np.random.default_rng([seed, 1]).integers(len(texts)))] if texts else ""
