"""Prompts: records in a template, truncated to a public length, followed by a public beginning of the answer.

The embedded model continues a series: ``<end> record <end>`` and then the document. Any other model gets a template,
either the user's own or one of two by name:

- ``pretrained``, the default: each example is between fences, and the document ends at the next fence.
- ``instruction``, for instruction-tuned models: the examples are a user's turn in the tokenizer's own chat template,
  and the document is the answer, up to the model's end-of-turn token.

Each record is truncated independently: it keeps its first `Prompt.record_tokens` tokens, a number that depends only on
the public length of contexts, the template, the label and the forced prefix, and at most 64 characters of its text for
each of these tokens.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", Appendix E.4.1 for ``pretrained``
(the fences around each example are our reading of the printed template), Appendix D.6 for the request of
``instruction`` (its other words, and the position of the label, are ours).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from dpassay.base.errors import DpassayError
from dpassay.mechanisms.models.template_rendering import RenderingError, filled, rendered

FENCE = "```"
PRETRAINED, INSTRUCTION = "pretrained", "instruction"
TEMPLATES = {
    PRETRAINED: "{% for text in examples %}```\n{% if label %}{{ label }}\n{% endif %}{{ text }}\n```\n\n{% endfor %}"
    "```\n{% if label %}{{ label }}\n{% endif %}",
    INSTRUCTION: "Generate an example like this{% if label %}, with the label {{ label }}{% endif %}:"
    "{% for text in examples %}\n\n{{ text }}{% endfor %}",
}
"""The named templates."""
_MIN_RECORD_TOKENS = 4
_CHARACTERS_A_TOKEN = 64  # of a record, to bound the time of tokenisation


class Tokens(Protocol):
    """The interface of a language model that `Prompt` uses."""

    context_length: int
    end_of_text_ids: tuple[int, ...]
    beginning_ids: tuple[int, ...]
    is_builtin: bool

    def chat(self, text: str) -> str: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class PromptError(DpassayError):
    """A template cannot be rendered. The message is one line that quotes no record."""


def check_template(template: str) -> None:
    """Checks that a template is one of the named ones, or renders and shows the examples.

    Raises:
        ValueError: if it is not.
    """
    if template in TEMPLATES:
        return
    if "examples" not in template:
        raise ValueError(
            "template must use examples, for example '{% for text in examples %}{{ text }}\\n{% endfor %}', or be "
            + " or ".join(TEMPLATES)
        )
    try:
        shown = _render(template, ["probe"], "label")
    except RenderingError as error:  # the detail cannot show a record
        raise ValueError(f"template does not render with examples and label: {error.detail or error}") from None
    if "probe" not in shown:
        raise ValueError("template does not show its examples")


_OURS = set(TEMPLATES.values())


def ours(template: str) -> str:
    """Marks a template as part of this package, which `render` need not send to another process."""
    _OURS.add(template)
    return template


def render(template: str, values: Mapping[str, object]) -> str:
    """Renders a template: as sandboxed Jinja if it has Jinja's braces, else by `str.format`.

    Raises:
        RenderingError: one line, if the template fails, or exceeds the limits of time or size.
    """
    return filled(template, values) if template in _OURS else rendered("prompt", template, values)


def _render(template: str, examples: Sequence[str], label: str | None) -> str:
    """A template with its examples; for `str.format`, {examples} are separated by blank lines."""
    if "{%" in template or "{{" in template:
        return render(template, {"examples": list(examples), "label": label})
    return render(template, {"examples": "\n\n".join(examples), "label": label or ""})


class _Shown(NamedTuple):
    """What a context has of a record: its text, the tokens of that text if they are known, and whether it was cut."""

    text: str
    ids: list[int] | None = None
    cut: bool = False


@dataclass(frozen=True)
class Prompt:
    """Converts the records of one context to token ids.

    Attributes:
        model: encodes and decodes.
        template: a name or a text; None for the format of the embedded model.
        label: the public label of the slot, or None.
        prefix: the public beginning of every document, part of the context and never sampled.
        records_per_context: k, the number of records among which a context is divided.
        longest_context: the public number of tokens to which contexts are padded, prefix included.
    """

    model: Tokens
    template: str | None
    label: str | None
    prefix: str
    records_per_context: int
    longest_context: int

    @property
    def overhead(self) -> int:
        """The number of tokens of a context apart from its records: template, label and prefix."""
        return len(self._assemble([_Shown("")] * self.records_per_context))

    @property
    def record_tokens(self) -> int:
        """The number of tokens to which each record is truncated; public.

        Raises:
            ValueError: if template and prefix leave no room.
        """
        room = (self.longest_context - self.overhead) // self.records_per_context
        if room < _MIN_RECORD_TOKENS:
            raise ValueError(
                f"a context of {self.longest_context} tokens leaves {max(room, 0)} for each record after the template "
                f"and the prefix; shorten them, lower records_per_context or raise public.context_tokens (the model "
                f"has {self.model.context_length} positions)"
            )
        return room

    def context(self, texts: Sequence[str], record_tokens: int) -> list[int]:
        """The token ids of a context with the texts of records, in order; for none, the public fallback prompt. If a
        hashed context has more than k of them, each gets fewer tokens than `record_tokens` of this prompt."""
        return self.context_and_cut(texts, record_tokens)[0]

    def context_and_cut(self, texts: Sequence[str], record_tokens: int) -> tuple[list[int], list[bool]]:
        """`context`, and for each of the records whether it was too long, so that the context has its beginning only.

        Each text is tokenised once to be cut. The format of the embedded model takes these tokens; in a template, the
        context is tokenised as a whole. A text that was cut is tokenised again, since its end may merge differently.
        """
        share = (
            record_tokens
            if len(texts) <= self.records_per_context
            else max(1, record_tokens * self.records_per_context // len(texts))
        )
        shown = [self._cut(text, share) for text in texts]
        ids = self._assemble(shown)
        if len(ids) > self.longest_context:  # tokens may merge differently inside a template
            kept = min(_common_tail(ids, self._assemble([])), self.longest_context)  # everything after the last record
            ids = ids[: self.longest_context - kept] + ids[len(ids) - kept :]
        return ids or list(self.model.end_of_text_ids[:1]) or [0], [record.cut for record in shown]

    def _cut(self, text: str, tokens: int) -> _Shown:
        beginning = text[: tokens * _CHARACTERS_A_TOKEN]
        ids = self.model.encode(beginning)
        if len(ids) > tokens:
            return _Shown(self.model.decode(ids[:tokens]), cut=True)
        return _Shown(beginning, ids, cut=len(beginning) < len(text))

    @functools.cached_property
    def _prefix_ids(self) -> list[int]:
        return self.model.encode(self.prefix)

    def _assemble(self, shown: Sequence[_Shown]) -> list[int]:
        prefix = self._prefix_ids
        if self.template is None:
            end = list(self.model.end_of_text_ids[:1])
            own = [self.model.encode(record.text) if record.ids is None else record.ids for record in shown]
            return [*end, *(token for ids in own for token in (*ids, *end)), *prefix]
        try:
            texts = [record.text for record in shown]
            text = _render(TEMPLATES.get(self.template, self.template), texts, self.label)
        except RenderingError as error:
            raise PromptError(
                f"the template cannot be rendered with every record ({error}); use one that works for any text"
            ) from None
        if self.template == INSTRUCTION:  # a chat template contains its own special tokens
            return [*self.model.encode(self.model.chat(text)), *prefix]
        return [*self.model.beginning_ids, *self.model.encode(text), *prefix]


def _common_tail(item: Sequence[int], other: Sequence[int]) -> int:
    """The number of trailing tokens that two sequences share."""
    pairs = zip(reversed(item), reversed(other), strict=False)
    return next((count for count, (a, b) in enumerate(pairs) if a != b), min(len(item), len(other)))
