"""Sampling of many texts at once from a language model, each with its own public seed.

Nothing here is private: contexts are public text and candidates. A row draws by inverting its own distribution at
uniform numbers of its own seed. So a text does not depend on the rows beside it, up to the rounding of logits: the
share of tokens that come out differently is of the order of `LanguageModel.row_difference`, for the embedded model
2·10⁻⁵.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from cupel.mechanisms.private_inference.transcripts import EndRule

if TYPE_CHECKING:
    from cupel.mechanisms.models.language_model import LanguageModel

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
    rows: int,
) -> Iterator[tuple[str, bool]]:
    """One text after each context, in order, and whether it ended by itself.

    Args:
        model: any.
        contexts: token ids, at least one in each.
        seeds: public, one for each context.
        temperature: that logits are divided by; 0 takes the likeliest token.
        top_p: the share of probability that is drawn from, the likeliest tokens first.
        longest: the largest number of tokens of a text.
        stop: a string that ends a text, as an end-of-text token does.
        chat: whether texts are answers in the chat template, whose end of turn ends them, too.
        rows: how many texts are written side by side, at most; fewer if their keys and values would take over 1 GiB.
    """
    rule = EndRule(model, stop, longest, chat)
    width = model.bytes_per_position * (max(map(len, contexts), default=1) + longest)
    rows = max(1, min(rows, _CACHE_BYTES // width))
    for start in range(0, len(contexts), rows):
        batch = slice(start, start + rows)
        for tokens in _batch(model, contexts[batch], seeds[batch], temperature, top_p, rule):
            yield rule.text(tokens), rule.stopped(tokens)


@torch.inference_mode()
def _batch(
    model: LanguageModel,
    contexts: Sequence[Sequence[int]],
    seeds: Sequence[int],
    temperature: float,
    top_p: float,
    rule: EndRule,
) -> list[list[int]]:
    """The tokens of each text, with the one that ended it."""
    session = model.packed_rows(contexts)
    uniform = torch.from_numpy(np.stack([np.random.default_rng(seed).random(rule.longest) for seed in seeds]))
    texts: list[list[int]] = [[] for _ in contexts]
    open_rows = set(range(len(contexts)))
    for step in range(rule.longest):
        drawn = _drawn(session.logits(), uniform[:, step], temperature, top_p).cpu()
        for row in tuple(open_rows):
            texts[row].append(int(drawn[row]))
            if rule.ended(texts[row]):
                open_rows.remove(row)
        if not open_rows:
            break
        session.append(drawn)
    return texts


def _drawn(logits: torch.Tensor, uniform: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """One token for each row, shape (rows,): where the row's cumulative distribution passes its uniform number."""
    if temperature == 0:
        return logits.argmax(dim=1)
    probabilities = torch.softmax(logits.double() / temperature, dim=1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        ordered[ordered.cumsum(dim=1) - ordered >= top_p] = 0
        probabilities = torch.zeros_like(probabilities).scatter_(1, order, ordered)
    cumulative = probabilities.cumsum(dim=1)
    points = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    # The first token whose cumulative probability is above the point; never one of probability 0.
    drawn = torch.searchsorted(cumulative, points, right=True)[:, 0]
    return torch.minimum(drawn, (cumulative < cumulative[:, -1:]).sum(dim=1))
