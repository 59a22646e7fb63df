"""Private inference written a second time, from its description and without the package's aggregation or batching.

Plain Python over one data set, for models whose logits are a table (`TableModel`). It answers one question: how likely
is a transcript? Slots, contexts, documents, clipping, medians, means and the softmax are all its own; only the table is
shared.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dpassay.data.records import Record
from dpassay.mechanisms.private_inference.generator import PrivateInference

Row = list[float]
_GRID = 2.0**-24


def hashed(key: bytes, purpose: str, value: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(value.encode(), key=key, person=purpose.encode(), digest_size=16).digest(), "big"
    )


def clipped(logits: Sequence[float], clip: float) -> Row:
    """max(−c, z − max z + c), in whole multiples of 2⁻²⁴."""
    top, steps = max(logits), math.floor(clip / _GRID)
    return [max(-steps, round((z - top) / _GRID) + steps) * _GRID for z in logits]


def centred(logits: Sequence[float], public: Sequence[float], clip: float, tail: float) -> Row:
    """Both clipped with the tail, their difference put evenly about 0 where either is likely, and clipped with c."""
    row, other = ([round(z / _GRID) for z in clipped(item, tail)] for item in (logits, public))
    pairs, steps = list(zip(row, other, strict=True)), math.floor(clip / _GRID)
    shift = (max(2 * z - f for z, f in pairs) + min(z - 2 * f for z, f in pairs)) // 2
    return [min(max(z - f - shift, -steps), steps) * _GRID for z, f in pairs]


def log_softmax(scores: Sequence[float], temperature: float) -> Row:
    top = max(scores)
    total = math.log(math.fsum(math.exp((s - top) / temperature) for s in scores))
    return [(score - top) / temperature - total for score in scores]


def median(rows: Sequence[Row], fallback: Row) -> Row:
    columns, half = [sorted(column) for column in zip(*rows, strict=True)], len(rows) // 2
    return [(column[half] + column[-half - 1]) / 2 for column in columns] if rows else fallback


def mean(rows: Sequence[Row], vocabulary: int, divisor: int) -> Row:
    return [math.fsum(row[x] for row in rows) / divisor for x in range(vocabulary)]


class Pipeline:
    """What a mechanism would do to a data set, given the public cell of every record."""

    def __init__(
        self,
        chosen: PrivateInference,
        model: Any,
        key: bytes,
        cell: Callable[[Record], int] = lambda _: 0,
        slots_of_cell: Sequence[int] | None = None,
    ) -> None:
        """By default all records are in one cell that has all slots."""
        self.chosen, self.model, self.key, self.cell = chosen, model, key, cell
        self.slots_of_cell = slots_of_cell or [chosen.total_slots]
        self._slots: dict[Record, int] = {}
        self._rows: dict[tuple[tuple[int, ...], tuple[int, ...]], Row] = {}
        self.tail = math.floor(min(10 * chosen.temperature, 32.0) / _GRID) * _GRID if chosen.center else 0.0
        self.contexts_of_slot = math.ceil(chosen.records / (sum(self.slots_of_cell) * chosen.records_per_context))

    def slot(self, record: Record) -> int:
        """The slot of a record; for unit user, of its user."""
        if record not in self._slots:
            cell, name = self.cell(record), self._name(record)
            index = hashed(self.key, "slot", name) % self.slots_of_cell[cell]
            self._slots[record] = sum(self.slots_of_cell[:cell]) + index
        return self._slots[record]

    def _name(self, record: Record) -> str:
        return str(record.user) if self.chosen.unit.kind == "user" else record.id

    def rows(self, records: Sequence[Record], slot: int) -> list[tuple[int, ...]]:
        """The contexts of one slot, as tokens: an end of text, then each record and an end of text."""
        if self.chosen.unit.kind == "user":
            users: dict[str, list[Record]] = {}
            for record in records:
                users.setdefault(str(record.user), []).append(record)
            records = [min(own, key=lambda r: hashed(self.key, "record-of-user", r.id)) for own in users.values()]
        members = [record for record in records if self.slot(record) == slot]
        if self.chosen.records_per_context == 1:
            return [self._shown([record]) for record in members]
        contexts: dict[int, list[Record]] = {}
        for record in sorted(members, key=lambda r: hashed(self.key, "context", self._name(r))):
            index = hashed(self.key, "context", self._name(record)) % self.contexts_of_slot
            contexts.setdefault(index, []).append(record)
        return [self._shown(own) for own in contexts.values()]

    def _shown(self, records: Sequence[Record]) -> tuple[int, ...]:
        """Each record keeps its first tokens: a k-th of the room for k records or less, else a smaller share."""
        count, longest = self.chosen.records_per_context, self.model.context_length // 2
        share = (longest - 1 - count) // count
        if len(records) > count:
            share = max(1, share * count // len(records))
        return (0, *itertools.chain.from_iterable((*map(int, record.text[:share]), 0) for record in records))[:longest]

    def tails(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Before each token, what of its document is written: a document ends with token 0 or at its largest length."""
        tail: tuple[int, ...] = ()
        for token in tokens:
            yield tail
            tail = (*tail, token)
            if token == 0 or len(tail) == self.model.context_length // 2:
                tail = ()

    def clipped_rows(self, contexts: Sequence[tuple[int, ...]], tail: tuple[int, ...]) -> list[Row]:
        """What the model says after each context and tail (the table's numbers as float32, as a model gives them)."""
        return [self._row(context, tail) for context in contexts]

    def _row(self, context: tuple[int, ...], tail: tuple[int, ...]) -> Row:
        """A row of the batch; 0 at tokens that are not kept, where no law looks at it."""
        if (context, tail) not in self._rows:
            logits, clip = self._logits(context, tail), self.chosen.clip
            center, kept = self._logits((0,), tail), self.kept(tail)
            if self.chosen.center:
                own = iter(centred([logits[x] for x in kept], [center[x] for x in kept], clip, self.tail))
                row = [next(own) if x in kept else 0.0 for x in range(len(logits))]
            else:
                row = clipped(logits, clip)
            self._rows[context, tail] = row
        return self._rows[context, tail]

    def kept(self, tail: tuple[int, ...]) -> list[int]:
        """The tokens that may be drawn: all whose public logit is at most 2c below the k-th largest."""
        if self.chosen.top_k is None:
            return list(range(self.model.vocabulary_size))
        public = clipped(self._logits((0,), tail), self.tail)
        least = sorted(public, reverse=True)[: self.chosen.top_k][-1] - 2 * math.floor(self.chosen.clip / _GRID) * _GRID
        return [x for x, logit in enumerate(public) if logit >= least]

    def _logits(self, context: tuple[int, ...], tail: tuple[int, ...]) -> Row:
        row: Row = self.model.row(context, tail).astype("float32").tolist()
        return row

    def log_law(self, rows: Sequence[Row], tail: tuple[int, ...]) -> Row:
        """log p of every next token, from a batch of clipped rows; −∞ for those that are not kept."""
        law = [-math.inf] * self.model.vocabulary_size
        kept = self.kept(tail)
        own = self._log_law([[row[x] for x in kept] for row in rows], tail, kept)
        for x, value in zip(kept, own, strict=True):
            law[x] = value
        return law

    def _log_law(self, rows: Sequence[Row], tail: tuple[int, ...], kept: Sequence[int]) -> Row:
        clip, temperature, vocabulary = self.chosen.clip, self.chosen.temperature, len(kept)
        public, fallback = [0.0] * vocabulary, self._row((0,), tail)
        if self.chosen.center:
            public, fallback = [clipped(self._logits((0,), tail), self.tail)[x] for x in kept], public
        if self.chosen.aggregate == "median":
            scores = [f + z for f, z in zip(public, median(rows, fallback), strict=True)]
            return log_softmax(scores, temperature)
        law = mean(rows, vocabulary, self.chosen.denominator or self.chosen.batch_size)
        scores = [f + z for f, z in zip(public, law, strict=True)]
        return log_softmax([max(score, max(scores) - 2 * (clip + self.tail)) for score in scores], temperature)

    def token_log_probabilities(self, contexts: Sequence[tuple[int, ...]], tokens: Sequence[int]) -> list[float]:
        """Of each token of a slot with these contexts."""
        return [
            self.log_law(self.clipped_rows(contexts, tail), tail)[token]
            for token, tail in zip(tokens, self.tails(tokens), strict=True)
        ]

    def log_probability(self, contexts: Sequence[tuple[int, ...]], tokens: Sequence[int]) -> float:
        """Of all tokens of a slot with these contexts."""
        return math.fsum(self.token_log_probabilities(contexts, tokens))

    def worst_losses(
        self, contexts: Sequence[tuple[int, ...]], other: Sequence[tuple[int, ...]], written: tuple[int, ...] = ()
    ) -> tuple[float, float]:
        """The largest log P/P′ and log P′/P of one slot, over all that can be written after `written`."""
        if len(written) == self.chosen.tokens:
            return 0.0, 0.0
        *_, tail = self.tails((*written, 0))
        laws = [self.log_law(self.clipped_rows(rows, tail), tail) for rows in (contexts, other)]
        there, back = [], []
        for token, (own, theirs) in enumerate(zip(*laws, strict=True)):
            if own == theirs == -math.inf:  # never written
                continue
            rest = self.worst_losses(contexts, other, (*written, token))
            there.append(own - theirs + rest[0])
            back.append(theirs - own + rest[1])
        return max(there), max(back)

    def changed_slots(self, records: Sequence[Record], other: Sequence[Record]) -> set[int]:
        """The slots that two data sets may fill differently."""
        return {self.slot(record) for record in set(records) ^ set(other)}

    def loss(self, records: Sequence[Record], other: Sequence[Record], tokens: Sequence[Sequence[int]]) -> float:
        """log P_D/P_D′ of the tokens of all slots."""
        terms = [
            sign * self.log_probability(self.rows(data, slot), tokens[slot])
            for slot in self.changed_slots(records, other)
            for sign, data in ((1, records), (-1, other))
        ]
        return math.fsum(terms)

    def worst_losses_of(self, records: Sequence[Record], other: Sequence[Record]) -> tuple[float, float]:
        """The largest log P_D/P_D′ and log P_D′/P_D over all outputs of all slots, which are independent."""
        results = [
            self.worst_losses(self.rows(records, slot), self.rows(other, slot))
            for slot in self.changed_slots(records, other)
        ]
        return math.fsum(there for there, _ in results), math.fsum(back for _, back in results)
