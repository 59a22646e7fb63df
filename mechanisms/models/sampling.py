"""Samples many texts at once from a language model, each with its own public seed.

Nothing here is private: contexts are public text and candidates. Each row inverts its own distribution at uniform
numbers from its own seed. So a text does not depend on the other rows of its batch, up to the rounding of logits: the
fraction of tokens that change is of the order of `LanguageModel.row_difference`, 2·10⁻⁵ for the embedded model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpassay.mechanisms.models.end_rule import EndRule

if TYPE_CHECKING:
    from dpassay.mechanisms.models.decoding import PackedRows
    from dpassay.mechanisms.models.language_model import LanguageModel

_CACHE_BYTES = 2**30


def sampled(
    model: LanguageModel,
    contexts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    *,
    temperature: float,
    top_p: float,
    longest: int,
    stop: str | None,
    chat: bool = False,
    top_k: int = 0,
    rows: int,
    session: Callable[[Sequence[Sequence[int]]], PackedRows] | None = None,
) -> Iterator[tuple[str, bool]]:
    """Samples one text after each context, in order; yields the text and whether it ended by itself.

    Args:
        model: any.
        contexts: token ids, at least one in each.
        seeds: public, one for each context.
        temperature: divides the logits; 0 takes the most likely token.
        top_p: the probability mass to sample from, most likely tokens first.
        longest: the largest number of tokens of a text.
        stop: a string that ends a text, like an end-of-text token.
        chat: whether texts are answers in the chat template, which its end of turn ends too.
        top_k: the number of most likely tokens to sample from; 0 for all.
        rows: the largest number of texts in a batch; fewer if their keys and values would exceed 1 GiB.
        session: of the contexts of a batch; by default the model's own.
    """
    rule = EndRule(model, stop, longest, chat)
    width = model.bytes_per_position * (max(map(len, contexts), default=1) + longest)
    rows = max(1, min(rows, _CACHE_BYTES // width))
    for start in range(0, len(contexts), rows):
        batch = slice(start, start + rows)
        opened = (session or model.packed_rows)(contexts[batch])
        for tokens in _batch(opened, seeds[batch], temperature, top_p, top_k, rule):
            yield rule.text(tokens), rule.stopped(tokens)


@torch.inference_mode()
def _batch(
    session: PackedRows, seeds: Sequence[int], temperature: float, top_p: float, top_k: int, rule: EndRule
) -> list[list[int]]:
    """The tokens of each text, including the one that ended it."""
    uniform = torch.from_numpy(np.stack([np.random.default_rng(seed).random(rule.longest) for seed in seeds]))
    texts: list[list[int]] = [[] for _ in seeds]
    open_rows = set(range(len(seeds)))
    for step in range(rule.longest):
        drawn = drawn_tokens(session.logits(), uniform[:, step], temperature, top_p, top_k).cpu()
        for row in tuple(open_rows):
            texts[row].append(int(drawn[row]))
            if rule.ended(texts[row]):
                open_rows.remove(row)
        if not open_rows:
            break
        session.append(drawn)
    return texts


def drawn_tokens(
    logits: torch.Tensor, uniform: torch.Tensor, temperature: float, top_p: float, top_k: int = 0
) -> torch.Tensor:
    """One token for each row, shape (rows,): where the row's cumulative distribution exceeds its uniform number."""
    if temperature == 0:
        return logits.argmax(dim=1)
    probabilities = torch.softmax(logits.double() / temperature, dim=1)
    if top_p < 1 or top_k:
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        if top_k:
            ordered[:, top_k:] = 0
        if top_p < 1:
            ordered[ordered.cumsum(dim=1) - ordered >= top_p * ordered.sum(dim=1, keepdim=True)] = 0
        probabilities = torch.zeros_like(probabilities).scatter_(1, order, ordered)
    return inverted(probabilities, uniform)


def inverted(probabilities: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """The token of each row where the cumulative sum of its probabilities exceeds its uniform share of the total."""
    cumulative = probabilities.cumsum(dim=1)
    points = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    # The first token whose cumulative probability is above the point; never one of probability 0.
    drawn = torch.searchsorted(cumulative, points, right=True)[:, 0]
    return torch.minimum(drawn, (cumulative < cumulative[:, -1:]).sum(dim=1))
