"""A tokenizer's own chat template: the prompt format of instruction-tuned models, and the token that ends an answer.

A chat template is a Jinja template from the model's folder. It is rendered only if a claim requests it, in a process
with limits (`template_rendering`), and has access to the messages only. Templates may print today's date, which would
give a resumed run other prompts, so they receive a fixed date.
"""

from __future__ import annotations

from typing import Any

from dpassay.mechanisms.models.template_rendering import RenderingError, rendered

_FIXED_DATE = "{% macro strftime_now(format) %}26 Jul 2024{% endmacro %}"
_MARK = "an answer"


def chat(tokenizer: Any, text: str) -> str:
    """A user's turn with this text and the beginning of the model's turn, with special tokens as text.

    Raises:
        ValueError: if the tokenizer has no chat template, or it cannot be rendered; the message never has the text.
    """
    return _render(tokenizer, [{"role": "user", "content": text}], add_generation_prompt=True)


def end_of_turn_ids(tokenizer: Any) -> list[int]:
    """The special token that follows an answer in the chat template; empty if there is none."""
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
            "template instruction needs a tokenizer with a chat template, but this model's has none; use an "
            "instruction-tuned model or template pretrained"
        )
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    values = {
        **special,
        "messages": turns,
        "add_generation_prompt": add_generation_prompt,
        "enable_thinking": False,  # if a template supports it, the answer is then the document only
    }
    try:
        return rendered("chat", _FIXED_DATE + tokenizer.get_chat_template(), values)
    except (RenderingError, ValueError) as error:
        kind = error if isinstance(error, RenderingError) else type(error).__name__
        raise ValueError(f"the tokenizer's chat template cannot be rendered for a user's turn ({kind})") from None
