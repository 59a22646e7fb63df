"""Echoes whose endings a public language model writes, at a temperature.

The model continues a beginning like those of the data, so that beginning and ending fit together, and fit the domain as
far as the model knows it. The higher the temperature, the less likely an ending is unless it was seen; the lower, the
more alike are the endings of a domain that the model knows well.

Source: Meeus, Wutschitz, Zanella-Béguelin, Tople and Shokri, "The Canary's Echo: Auditing Privacy Risks of
    LLM-Generated Synthetic Text" (2025), section 3.4, for canaries that a language model writes at a temperature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from dpassay.attacks.canaries.texts import Echo, draw_beginnings
from dpassay.base import validate
from dpassay.mechanisms.models.language_model import LanguageModel
from dpassay.mechanisms.models.sampling import drawn_tokens
from dpassay.mechanisms.models.writers import clean

ENDING = 24
"""Tokens of an ending."""
_ROWS = 256  # canaries that are continued at once
_ROUNDS = 10  # in each, as many canaries are drawn as are missing


def draw_continued(
    model: LanguageModel,
    count: int,
    texts: Sequence[str],
    temperature: float,
    rng: np.random.Generator,
    progress: Callable[[int, int], None] | None = None,
) -> list[Echo]:
    """Echoes that begin like the texts and end as the model continues them, no two with one ending, in random order.

    All are exchangeable: those with an ending that was drawn before are left out, and the rest are shuffled.

    Args:
        model: a public one, which read none of the texts.
        count: how many.
        texts: at least one.
        temperature: above 0; divides the logits.
        rng: source of the draw.
        progress: called with the canaries drawn and their number.

    Raises:
        ValueError: if the temperature is not positive, a canary does not fit into the model's context, or too many
            endings are equal.
    """
    validate.positive(canary_temperature=temperature)
    found: dict[str, str] = {}
    for _ in range(_ROUNDS):
        beginnings = draw_beginnings(count - len(found), texts, rng)
        for start in range(0, len(beginnings), _ROWS):
            batch = beginnings[start : start + _ROWS]
            for beginning, ending in zip(batch, _continued(model, batch, temperature, rng), strict=True):
                if ending.strip():
                    found.setdefault(ending, beginning)
            if progress is not None:
                progress(len(found), count)
        if len(found) == count:
            echoes = [Echo(beginning + ending, len(beginning)) for ending, beginning in found.items()]
            return [echoes[index] for index in rng.permutation(count)]
    raise ValueError(
        f"model {model.name} writes only {len(found)} different endings at canary_temperature {temperature:g}, but "
        f"{count} are needed, including those of the negative control; raise it, or plan fewer canaries"
    )


@torch.inference_mode()
def _continued(
    model: LanguageModel, beginnings: Sequence[str], temperature: float, rng: np.random.Generator
) -> list[str]:
    """What the model writes after each beginning: `ENDING` tokens, none of which ends a document."""
    ends = list(model.end_of_text_ids)
    start = list(model.beginning_ids) or ends[:1]
    contexts = [[*start, *model.encode(beginning)] for beginning in beginnings]
    longest = max(map(len, contexts)) + ENDING + 1
    if longest > model.context_length:
        raise ValueError(
            f"model {model.name}: a canary may have {longest} tokens, but its context has {model.context_length}; name "
            "another model with --scorer"
        )
    uniform = torch.from_numpy(rng.random((len(contexts), ENDING)))
    session, drawn = model.packed_rows(contexts), []
    for position in range(ENDING):
        logits = session.logits().clone()
        logits[:, ends] = -torch.inf
        tokens = drawn_tokens(logits, uniform[:, position], temperature, 1.0).cpu()
        drawn.append(tokens)
        if position + 1 < ENDING:
            session.append(tokens)
    return [_ending(model.decode(tokens)) for tokens in torch.stack(drawn, dim=1).tolist()]


def _ending(written: str) -> str:
    """An ending in one line of characters that any file holds, with the space that it begins with, if it does."""
    words = " ".join(clean(written.replace("�", " ")).split())
    return f" {words}" if written[:1].isspace() else words
