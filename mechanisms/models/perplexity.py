"""How well a language model predicts texts: their perplexity, and whether it knows texts of their kind at all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpassay.base.arrays import Floats

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

SAMPLE = 64
"""The number of texts, spread evenly over all, of which `median_perplexity` is."""


@torch.inference_mode()
def perplexities(model: LanguageModel, prompt: Sequence[int], texts: Sequence[str], longest: int) -> Floats:
    """The perplexity of each text after a prompt, shape (texts,); infinite if it has no token.

    Args:
        model: the language model.
        prompt: token ids, at least one.
        texts: of each of which the first `longest` tokens count.
        longest: the largest number of tokens.
    """
    result = np.full(len(texts), np.inf)
    for index, text in enumerate(texts):
        own = model.encode(text)[:longest]
        if own:
            ids = torch.tensor([[*prompt, *own]], device=model.device)
            logits = model.network(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].double()
            chosen = torch.tensor(own, device=logits.device)[:, None]
            result[index] = float(torch.exp(-logits.log_softmax(dim=-1).gather(1, chosen).mean()))
    return result


def median_perplexity(model: LanguageModel, texts: Collection[str]) -> float | None:
    """The median of the perplexities of some texts after an end of text; None if all are blank.

    At most `SAMPLE` of those with text are read, evenly spread, and of each as much as the model has positions for.
    """
    every, longest = math.ceil(sum(1 for text in texts if text.strip()) / SAMPLE), model.context_length - 1
    kept = itertools.islice((text for text in texts if text.strip()), None, None, max(1, every))
    some = [text[: 64 * longest] for text in kept]  # 64 characters for each token bound the time of tokenisation
    if not some:
        return None
    return float(np.median(perplexities(model, list(model.end_of_text_ids[:1]), some, longest)))


def least_unfamiliar(model: LanguageModel) -> float:
    """√V for V tokens: a model of a larger perplexity misses more than half of what there is to know of a token, which
    costs log V where nothing is known."""
    return math.sqrt(model.vocabulary_size)
