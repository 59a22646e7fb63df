"""Sampling of many texts at once from a language model, each with its own public seed.

Nothing here is private: contexts are public text and candidates. A row draws by inverting its own distribution at
uniform numbers of its own seed. So a text does not depend on the rows beside it, up to the rounding of logits: where
those differ by 10⁻⁶ between batches, about one token in a million comes out differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from cupel.mechanisms.language_model import LanguageModel

_WORD_TOKENS = 16  # the most that stand for one word that is drawn anew
_CACHE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Request:
    """One text to write.

    Attributes:
        context: token ids, at least one.
        seed: public.
        words: a text to keep some words of, as tokens word by word, each with whether it stays as it is; the others
            are drawn anew in their places. None draws freely.
    """

    context: Sequence[int]
    seed: int
    words: Sequence[tuple[Sequence[int], bool]] | None = None


def sampled(
    model: LanguageModel, requests: Sequence[Request], *, temperature: float, top_p: float, longest: int, rows: int
) -> Iterator[tuple[list[int], bool]]:
    """The tokens of each text, in order, and whether it ended by itself.

    Args:
        model: any.
        requests: what to write.
        temperature: that logits are divided by; 0 takes the likeliest token.
        top_p: the share of probability that is drawn from, the likeliest tokens first.
        longest: the largest number of tokens of a text.
        rows: how many texts are written side by side, at most; fewer if their keys and values would take over 1 GiB.
    """
    width = model.bytes_per_position * (max((len(r.context) for r in requests), default=1) + longest)
    rows = max(1, min(rows, _CACHE_BYTES // width))
    for start in range(0, len(requests), rows):
        yield from _batch(model, requests[start : start + rows], temperature, top_p, longest)


@torch.inference_mode()
def _batch(
    model: LanguageModel, requests: Sequence[Request], temperature: float, top_p: float, longest: int
) -> list[tuple[list[int], bool]]:
    session = model.session([request.context for request in requests])
    rows = [_Row(model, request) for request in requests]
    uniform = torch.from_numpy(np.stack([np.random.default_rng(request.seed).random(longest) for request in requests]))
    for step in range(longest):
        drawn = _drawn(session.logits(), uniform[:, step], temperature, top_p)
        taken = [row.take(token) for row, token in zip(rows, drawn.tolist(), strict=True)]
        if all(row.ended for row in rows):
            break
        session.append(taken)
    return [(row.tokens, row.ended) for row in rows]


def _drawn(logits: torch.Tensor, uniform: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """One token for each row, shape (rows,): where the cumulative distribution passes the row's uniform number."""
    if temperature == 0:
        return logits.argmax(dim=1)
    probabilities = torch.softmax(logits.double() / temperature, dim=1)
    if top_p < 1:
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)
        ordered[ordered.cumsum(dim=1) - ordered >= top_p] = 0
        probabilities = torch.zeros_like(probabilities).scatter_(1, order, ordered)
    cumulative = probabilities.cumsum(dim=1)
    points = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    drawn = torch.searchsorted(cumulative, points, right=True)[:, 0]
    return drawn.clamp_max(logits.shape[1] - 1)


@dataclass(slots=True)
class _Row:
    """A text while it is written."""

    model: LanguageModel
    request: Request
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    _word: int = -1  # the place of the word that is being written
    _forced: list[int] = field(default_factory=list)  # what is left of it, where it stays
    _open: int = 0  # how many tokens of it were drawn, where it does not

    def take(self, drawn: int) -> int:
        """The token that the row goes on with, given the one that was drawn for it."""
        if self.ended:
            return self.tokens[-1] if self.tokens else self.request.context[-1]
        if self.request.words is not None:
            return self._fill(self.request.words, drawn)
        return self._append(drawn)

    def _append(self, token: int) -> int:
        if token in self.model.end_of_text_ids:
            self.ended = True
        else:
            self.tokens.append(token)
        return token

    def _fill(self, words: Sequence[tuple[Sequence[int], bool]], drawn: int) -> int:
        if self._forced:
            return self._append(self._forced.pop(0))
        ends = drawn in self.model.end_of_text_ids
        if self._open and not ends and self._open < _WORD_TOKENS and not begins_word(self.model, drawn):
            self._open += 1
            return self._append(drawn)
        self._word, self._open = self._word + 1, 0
        if self._word >= len(words):
            self.ended = True
            return drawn
        tokens, stays = words[self._word]
        if not stays and not ends:
            self._open = 1
            return self._append(drawn)
        first, *self._forced = tokens
        return self._append(first)


def begins_word(model: LanguageModel, token: int) -> bool:
    """Whether a token begins with white space, as its tokenizer writes it."""
    piece = model.tokenizer.convert_ids_to_tokens(token)
    return isinstance(piece, str) and piece.startswith(("Ġ", "▁", "Ċ", "ĉ", " ", "\n", "\t"))


def words_of(model: LanguageModel, tokens: Sequence[int]) -> list[list[int]]:
    """Tokens word by word: a word begins with the token that begins with white space."""
    words: list[list[int]] = []
    for token in tokens:
        if not words or (begins_word(model, token) and not all(begins_word(model, other) for other in words[-1])):
            words.append([])
        words[-1].append(token)
    return words
