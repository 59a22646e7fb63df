"""Rows sampled from a fine-tuned model: post-processing, which sees neither records nor their number.

A row is completed in rounds. In each, the model continues the pairs that are valid so far; of what it writes, valid
pairs are kept and all else is dropped ("imputation"). What is still missing after the last round is sampled column by
column, with every token restricted to those that can still lead to a word of the public domain. So every row has a
valid value in every column, and no row is dropped.

Source: "DP-2Stage", section B.1, where rows that are not complete after 15 rounds are given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from dpassay.base import validate
from dpassay.data.table_schema import Row
from dpassay.mechanisms.evolution.loop import text_seed
from dpassay.mechanisms.models.sampling import inverted
from dpassay.mechanisms.two_stage.row_tokens import RowTokens, Tokens

if TYPE_CHECKING:
    from dpassay.mechanisms.models.language_model import LanguageModel

_CACHE_BYTES = 2**30
MAX_ROWS = 256
"""The largest number of rows in one batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSampler:
    """How rows are sampled: the logits are divided by a temperature; a model continues a row freely in so many rounds
    (0 restricts all tokens from the start); the seed is public."""

    temperature: float = 1.0
    rounds: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        validate.positive(temperature=self.temperature)
        validate.integer(minimum=0, rounds=self.rounds)
        validate.integer(minimum=0, seed=self.seed)


@dataclass(slots=True)
class Statistics:
    """How rows came about; public, since it is computed from released weights.

    Attributes:
        rows: number of rows.
        valid: number of cells that were valid after each round, of all rows.
        complete: number of rows that were complete after each round.
        restricted: number of cells that were sampled from restricted tokens.
    """

    rows: int = 0
    valid: list[int] = field(default_factory=list)
    complete: list[int] = field(default_factory=list)
    restricted: int = 0

    def add_round(self, number: int, pairs: Sequence[Mapping[int, str]], columns: int) -> None:
        """Adds the valid pairs that rows of `columns` columns have after a round, counted from 0."""
        for counts in (self.valid, self.complete):
            counts.extend([0] * (number + 1 - len(counts)))
        self.valid[number] += sum(map(len, pairs))
        self.complete[number] += sum(len(of) == columns for of in pairs)


def sampled_rows(
    model: LanguageModel,
    tokens: RowTokens,
    sampler: RowSampler,
    numbers: Sequence[int],
    statistics: Statistics | None = None,
) -> Iterator[Row]:
    """One row of a fine-tuned model for each number, in order. A number is the seed of its row, so that a row does not
    depend on the others of its batch, up to the rounding of logits. This call adds to `statistics`."""
    width = model.bytes_per_position * tokens.width
    most = max(1, min(MAX_ROWS, _CACHE_BYTES // width))
    for start in range(0, len(numbers), most):
        yield from _Batch(model, tokens, sampler, numbers[start : start + most], statistics or Statistics()).rows()


class _Batch:
    def __init__(
        self,
        model: LanguageModel,
        tokens: RowTokens,
        sampler: RowSampler,
        numbers: Sequence[int],
        statistics: Statistics,
    ) -> None:
        self.model, self.tokens, self.sampler, self.numbers = model, tokens, sampler, numbers
        self.statistics = statistics
        self.pairs: list[dict[int, str]] = [{} for _ in numbers]

    def rows(self) -> list[Row]:
        columns = len(self.tokens.keys)
        self.statistics.rows += len(self.pairs)
        for attempt in range(self.sampler.rounds):
            left = [index for index, pairs in enumerate(self.pairs) if len(pairs) < columns]
            for index, written in zip(left, self._written(left, attempt) if left else (), strict=True):
                self.pairs[index] = self.tokens.parsed(written, self.pairs[index])
            self.statistics.add_round(attempt, self.pairs, columns)
        left = [index for index, pairs in enumerate(self.pairs) if len(pairs) < columns]
        self.statistics.restricted += sum(columns - len(self.pairs[index]) for index in left)
        if left:
            self._complete(left)
        return [self.tokens.row(pairs) for pairs in self.pairs]

    def _uniform(self, indices: Sequence[int], attempt: int, count: int) -> torch.Tensor:
        """Uniform numbers of each row's own seed, shape (rows, count)."""
        seeds = [text_seed(self.sampler.seed, None, f"row/{self.numbers[index]}", attempt) for index in indices]
        return torch.from_numpy(np.stack([np.random.default_rng(seed).random(count) for seed in seeds]))

    @torch.inference_mode()
    def _written(self, indices: Sequence[int], attempt: int) -> list[list[int]]:
        """What the model writes after the valid pairs of rows, up to the end of a row."""
        contexts = [self.tokens.prompt(self.pairs[index]) for index in indices]
        room = self.tokens.width - min(map(len, contexts))
        uniform = self._uniform(indices, attempt, room)
        rows = _UnfinishedRows(self.model, contexts)
        written: list[list[int]] = [[] for _ in indices]
        unfinished = set(range(len(indices)))
        for step in range(room):
            drawn = _drawn(rows.logits(), uniform[rows.present, step], self.sampler.temperature)
            for row, token in zip(rows.present, drawn.tolist(), strict=True):
                if row in unfinished:
                    written[row].append(token)
                    if token == self.tokens.end or len(contexts[row]) + len(written[row]) >= self.tokens.width:
                        unfinished.remove(row)
            if not unfinished:
                break
            rows.append(drawn, unfinished)
        return written

    @torch.inference_mode()
    def _complete(self, indices: Sequence[int]) -> None:
        """Samples the columns that rows lack, in the order of the schema, from restricted tokens."""
        cursors = [_Cursor(self.tokens, self.pairs[index]) for index in indices]
        room = self.tokens.width
        uniform = self._uniform(indices, self.sampler.rounds, room)
        rows = _UnfinishedRows(self.model, [cursor.context for cursor in cursors])
        for step in range(room):
            allowed = [cursors[row].allowed() for row in rows.present]
            if not any(allowed):
                return
            drawn = _drawn(rows.logits(), uniform[rows.present, step], self.sampler.temperature, allowed)
            for row, token in zip(rows.present, drawn.tolist(), strict=True):
                cursors[row].take(token)
            rows.append(drawn, {row for row, cursor in enumerate(cursors) if cursor.allowed()})
        raise AssertionError("a row is longer than its public width")


class _UnfinishedRows:
    """Rows that are continued together, each by one token at a time.

    Finished rows are continued, too, until one would be longer than the model's context; then they leave. Unfinished
    ones are always shorter, since their width is at most the context.

    Attributes:
        present: the rows that have not left, in order.
    """

    def __init__(self, model: LanguageModel, contexts: Sequence[Sequence[int]]) -> None:
        self._model, self._tokens = model, [list(context) for context in contexts]
        self.present = list(range(len(contexts)))
        self._session = model.packed_rows(contexts)

    def logits(self) -> torch.Tensor:
        """Logits of the next token of each row that is present, shape (rows, vocabulary)."""
        return self._session.logits()

    def append(self, drawn: torch.Tensor, unfinished: Collection[int]) -> None:
        """Continues each row that is present by a token; `unfinished` rows stay."""
        for row, token in zip(self.present, drawn.tolist(), strict=True):
            self._tokens[row].append(token)
        if max(len(self._tokens[row]) for row in self.present) <= self._model.context_length:
            self._session.append(drawn)
        elif unfinished:
            self.present = sorted(unfinished)
            self._session = self._model.packed_rows([self._tokens[row] for row in self.present])
        else:
            self.present = []


class _Cursor:
    """Where a row is in its missing columns.

    Args:
        tokens: of rows.
        pairs: of the row, to which columns are added.
    """

    def __init__(self, tokens: RowTokens, pairs: dict[int, str]) -> None:
        self._tokens, self._pairs = tokens, pairs
        self._missing = [index for index in range(len(tokens.keys)) if index not in pairs]
        self._state: Tokens = ()
        self._forced: list[int] = []  # the rest of a separator and the next key
        self.context = [*tokens.prompt(pairs), *tokens.keys[self._missing[0]]]

    def allowed(self) -> Sequence[int]:
        """The tokens that may follow; none if the row is complete."""
        if not self._missing:
            return ()
        if self._forced:
            return self._forced[:1]
        column = self._tokens.values[self._missing[0]]
        ends = () if column.word(self._state) is None else (self._end,)
        return (*column.follow(self._state), *ends)

    @property
    def _end(self) -> int:
        """The token that ends the word: of a separator, or of the end of the row after the last column."""
        return self._tokens.separator[0] if len(self._missing) > 1 else self._tokens.end

    def take(self, token: int) -> None:
        """Moves on by an allowed token."""
        if not self._missing:
            return
        if self._forced:
            self._forced.pop(0)
            return
        column = self._tokens.values[self._missing[0]]
        reached = column.follow(self._state).get(token)
        if reached is not None:
            self._state = reached
            return
        word = column.word(self._state)
        assert word is not None
        self._pairs[self._missing.pop(0)] = word
        self._state = ()
        if self._missing:
            self._forced = [*self._tokens.separator[1:], *self._tokens.keys[self._missing[0]]]


def _drawn(
    logits: torch.Tensor, uniform: torch.Tensor, temperature: float, allowed: Sequence[Sequence[int]] | None = None
) -> torch.Tensor:
    """One token for each row by inversion, shape (rows,), on the CPU; only among the allowed ones, if any are."""
    scores = logits.double().cpu()
    if not torch.isfinite(scores).all():
        raise ValueError("the fine-tuned model predicts no finite numbers; lower learning_rate or weight_decay")
    if allowed is not None:
        mask = torch.ones(scores.shape, dtype=torch.bool)
        for row, tokens in enumerate(allowed):
            mask[row, list(tokens) or [0]] = False
        scores = scores.masked_fill(mask, -torch.inf)
    scores = (scores - scores.amax(dim=1, keepdim=True)) / temperature
    return inverted(torch.softmax(scores, dim=1), uniform)
