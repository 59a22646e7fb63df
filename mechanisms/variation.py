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

import jinja2
import numpy as np

from cupel.accounting import validate
from cupel.mechanisms.prompts import render

if TYPE_CHECKING:
    from cupel.mechanisms.language_model import LanguageModel
    from cupel.mechanisms.text_sampling import Request

RANDOM_PROMPT = (
    "Write one text{% if label %} of the kind: {{ label }}{% endif %}.{% if example %} It should look like this one, "
    "but say something else:\n\n{{ example }}\n\n{% endif %} Answer with the text alone."
)
VARIATION_PROMPT = (
    "Rewrite the following text{% if label %} of the kind: {{ label }}{% endif %}. Keep its form and about its length, "
    "change some of its wording and details, and answer with the new text alone.\n\n{{ text }}"
)
_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
_KEEP = 0.5  # of the embedded model
_UNWRITABLE = ("Cc", "Cs")  # control characters, halves of surrogate pairs


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


@dataclass(frozen=True, kw_only=True)
class ModelWriter:
    """Writes with a local language model, the embedded one included.

    The embedded model continues a series of documents of one kind: a public example, or nothing, before a random text,
    and the candidate before its variation. Any other model is asked with prompts, in its own chat template if `chat`.

    Attributes:
        model: any.
        examples: public texts by label; a random text is shown one of them, chosen by its seed.
        random_prompt: Jinja or `str.format`, with {label} and {example}; unused by the embedded model.
        variation_prompt: likewise, with {label} and {text}.
        chat: whether prompts are a user's turn; None where the tokenizer has a chat template.
        keep: the share of a candidate's words that stay in a variation. Which ones is chosen by its seed, and the
            others are drawn anew, from left to right; 0 lets the model write freely.
        temperature: of sampling; 0 takes the likeliest token.
        top_p: the share of probability that is drawn from, the likeliest tokens first, in (0, 1].
        max_tokens: the largest number of tokens of a text.
        whole: whether a text that did not end by itself is no good, so that another is asked for; otherwise it is
            used as it was cut. None is True for the embedded model and False for others.
        rows: how many texts are written side by side.
    """

    model: LanguageModel
    examples: Mapping[str | None, Sequence[str]] = field(default_factory=dict)
    random_prompt: str = RANDOM_PROMPT
    variation_prompt: str = VARIATION_PROMPT
    chat: bool | None = None
    keep: float | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 100
    whole: bool | None = None
    rows: int = 128

    def __post_init__(self) -> None:
        validate.non_negative(temperature=self.temperature)
        validate.integer(minimum=1, max_tokens=self.max_tokens)
        validate.integer(minimum=1, rows=self.rows)
        if self.keep is not None:
            validate.probability_below_one(keep=self.keep)
        if not validate.probability(top_p=self.top_p) > 0:
            raise ValueError("top_p must be above 0 and at most 1, not 0")
        if self.max_tokens > self.model.context_length - self.model.context_length // 4:
            raise ValueError(
                f"max_tokens must be at most {self.model.context_length - self.model.context_length // 4}, three "
                f"quarters of the model's positions, not {self.max_tokens}"
            )
        check_prompts(self.random_prompt, self.variation_prompt)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the model's files and all that decides a text."""
        settings = (
            self.model.fingerprint,
            self.model.dtype,
            sorted((str(label), tuple(texts)) for label, texts in self.examples.items()),
            (self.random_prompt, self.variation_prompt, self.chat),
            (self.keep, self.temperature, self.top_p, self.max_tokens, self.whole),
        )
        return hashlib.sha256(repr(settings).encode("utf-8", "surrogatepass")).hexdigest()

    def random(self, label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        from cupel.mechanisms.text_sampling import Request

        requests = []
        for seed in seeds:
            example = example_of(self.examples, label, seed)
            context = self._context(self.random_prompt, label, "example", example)
            requests.append(Request(context, seed))
        yield from self._texts(requests)

    def vary(self, texts: Sequence[str], label: str | None, seeds: Sequence[int]) -> Iterator[str]:
        from cupel.mechanisms.text_sampling import Request

        requests = []
        for text, seed in zip(texts, seeds, strict=True):
            context = self._context(self.variation_prompt, label, "text", text)
            requests.append(Request(context, seed, self._words(text, seed)))
        yield from self._texts(requests)

    def _texts(self, requests: Sequence[Request]) -> Iterator[str]:
        from cupel.mechanisms.text_sampling import sampled

        whole = self.model.is_builtin if self.whole is None else self.whole
        for tokens, ended in sampled(
            self.model,
            requests,
            temperature=self.temperature,
            top_p=self.top_p,
            longest=self.max_tokens,
            rows=self.rows,
        ):
            yield self.model.decode(tokens) if ended or not whole else ""

    def _words(self, text: str, seed: int) -> list[tuple[Sequence[int], bool]] | None:
        """The words of a candidate, each with whether it stays; None to write freely."""
        from cupel.mechanisms.text_sampling import words_of

        keep = (_KEEP if self.model.is_builtin else 0.0) if self.keep is None else self.keep
        if keep == 0:
            return None
        words = words_of(self.model, self.model.encode(text))
        stays = np.random.default_rng([seed, 1]).random(len(words)) < keep
        return [(word, bool(stay)) for word, stay in zip(words, stays, strict=True)]

    def _context(self, prompt: str, label: str | None, name: str, text: str | None) -> list[int]:
        """The tokens before a text that is to be written, whose own text is cut to what fits."""
        model, room = self.model, self.model.context_length - self.max_tokens
        if model.is_builtin:
            end = list(model.end_of_text_ids[:1])
            shown = [] if text is None else [*model.encode(text)[: room - 2], *end]
            return [*end, *shown]
        chat = bool(model.tokenizer.chat_template) if self.chat is None else self.chat
        while True:
            asked = render(prompt, {"label": label or "", name: text or ""})
            ids = model.encode(model.chat(asked)) if chat else [*model.beginning_ids, *model.encode(asked)]
            if len(ids) <= room:
                return ids or list(model.end_of_text_ids[:1]) or [0]
            if not text:
                raise ValueError(
                    f"a prompt of {len(ids)} tokens leaves no room for {self.max_tokens} more in the model's "
                    f"{model.context_length}; shorten it or lower max_tokens"
                )
            text = text[: min(len(text) - 1, len(text) * room // len(ids))]


def example_of(examples: Mapping[str | None, Sequence[str]], label: str | None, seed: int) -> str | None:
    """One public example of a label, chosen by a seed; None where there is none."""
    texts = examples.get(label, ())
    return texts[int(np.random.default_rng([seed, 2]).integers(len(texts)))] if texts else None


def check_prompts(random_prompt: str, variation_prompt: str) -> None:
    """That both prompts render, and that the one for variations shows the text.

    Raises:
        ValueError: where they do not.
    """
    shown = {"random_prompt": "", "variation_prompt": "probe"}
    for name, prompt in (("random_prompt", random_prompt), ("variation_prompt", variation_prompt)):
        try:
            text = render(prompt, {"label": "label", ("text" if shown[name] else "example"): shown[name]})
        except (jinja2.TemplateError, LookupError, ValueError, TypeError, AttributeError) as error:
            allowed = "label and text" if shown[name] else "label and example"
            raise ValueError(f"{name} does not render with {allowed}: {error}") from None
        if shown[name] not in text:
            raise ValueError(f"{name} does not show the text that is to be varied; use {{text}} in it")
