"""A tokenizer's own chat template: how an instruction-tuned model is asked, and the token that ends its answer.

A chat template is a Jinja text from the model's folder. It is rendered by `transformers` in its sandbox and reaches
nothing but the messages; it is no code of the folder that would be run as Python. Templates may print today's date,
which would make an interrupted run go on with other prompts; they are given a fixed one.
"""

from __future__ import annotations

from typing import Any

import jinja2

_FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
_MARK = "an answer"


def chat(tokenizer: Any, text: str) -> str:
    """A user's turn with this text and the beginning of the model's turn, special tokens written out.

    Raises:
        ValueError: for a tokenizer without a chat template, or with one that cannot be rendered; never with the text.
    """
    return _render(tokenizer, [{"role": "user", "content": text}], add_generation_prompt=True)


def end_of_turn_ids(tokenizer: Any) -> list[int]:
    """The special token that follows an answer in the chat template; empty where there is none."""
    turns = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": _MARK}]
    try:
        rest = _render(tokenizer, turns, add_generation_prompt=False).rpartition(_MARK)[2]
    except ValueError:
        return []
    ids = tokenizer.encode(rest.lstrip(), add_special_tokens=False)[:1]
    return [i for i in ids if i in tokenizer.added_tokens_decoder and tokenizer.added_tokens_decoder[i].special]


def _render(tokenizer: Any, turns: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    if not tokenizer.chat_template:
        raise ValueError(
            "template instruction needs a tokenizer with a chat template, and this model's has none; take an "
            "instruction-tuned model or template pretrained"
        )
    try:
        text: str = tokenizer.apply_chat_template(
            turns,
            chat_template=_FIXED_DATE + tokenizer.get_chat_template(),
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=False,  # where a template knows it, the answer is the document and nothing else
        )
    except (jinja2.TemplateError, ValueError, TypeError, LookupError, AttributeError, RuntimeError) as error:
        kind = type(error).__name__
        raise ValueError(f"the tokenizer's chat template cannot be rendered for a user's turn ({kind})") from None
    return text
