"""What a run of private inference released, slot by slot and token by token, and the documents that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from cupel.accounting.ex_post.medians import Medians

if TYPE_CHECKING:
    from cupel.mechanisms.models.row_shapes import RowPlan


@dataclass(frozen=True, slots=True)
class Document:
    """One synthetic document.

    Attributes:
        slot: the slot that wrote it.
        label: the slot's public label.
        index: its place among the documents of the slot.
        text: with the forced prefix, without end of text or stop string.
        tokens: that were sampled and charged, end of text included.
        complete: it ended by itself, not because the budget or the public largest length was reached.
        source: without protection, the index of the record that it was written from; None otherwise.
    """

    slot: int
    label: str | None
    index: int
    text: str
    tokens: tuple[int, ...]
    complete: bool
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """All sampled tokens and what decides which records they come from; all that was released apart from slot counts.

    Attributes:
        tokens: for each slot, its sampled tokens in order; empty where the slot did not run.
        running: for each slot, whether it ran.
        cluster_counts: shape (labels, K), the noisy counts that were paid for, where records were clustered.
    """

    tokens: tuple[tuple[int, ...], ...]
    running: tuple[bool, ...]
    cluster_counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """A finished run. Only `documents`, `transcript` and `released_counts` may leave; the rest is private.

    Attributes:
        documents: of all slots, slot by slot.
        transcript: of all slots.
        assignment: shape (records,), the slot of each record, −1 for a record that is not used. Private.
        slot_sizes: shape (slots,), contexts in each slot. Private.
        released_counts: shape (slots,), the noisy counts that were paid for, or None.
        token_costs: shape (slots, tokens, 3): u⁻, u⁺ and the published γ of each token; None but for medians. NaN
            where a slot did not run. Private.
        positions: shape (slots, tokens): the place of each token in its document, −1 where a slot did not run.
        row_plan: the shapes that rows were computed in, and whether they are verified to be exact there.
        row_difference: 0 where they are; else how far a row's logits among other rows were from those of the row by
            itself, in a public spot check when the model was loaded.
    """

    documents: tuple[Document, ...]
    transcript: Transcript
    assignment: NDArray[np.int64]
    slot_sizes: NDArray[np.int64]
    released_counts: NDArray[np.int64] | None
    token_costs: NDArray[np.float64] | None
    positions: NDArray[np.int64]
    row_plan: RowPlan
    row_difference: float

    @property
    def spent(self) -> NDArray[np.float64] | None:
        """Shape (slots, 3): Σ u⁻, Σ u⁺ and Σ γ of each slot, for a report; the ledger has them rounded up. Private."""
        return None if self.token_costs is None else np.nansum(self.token_costs, axis=1)


class Observer(Protocol):
    """Sees what the strongest adversary sees, while a run writes or replays its tokens."""

    def step(
        self,
        *,
        slot: int,
        records: Sequence[int],
        clipped: NDArray[np.floating],
        medians: Medians | None,
        log_probability: float,
        token: int,
        document: int,
        position: int,
    ) -> None:
        """One token of one slot.

        Args:
            slot: that wrote it.
            records: row → index of its record; of its first record where a context holds several.
            clipped: shape (B, V), what was aggregated; raw logits where aggregate is ``none``.
            medians: of the batch, where aggregate is ``median``.
            log_probability: of the token, in the law that it was sampled from (before integer rounding).
            token: that was sampled.
            document: its index in the slot.
            position: of the token in the document.
        """


class Decoder(Protocol):
    """What a rule for the end of a document needs of a language model."""

    end_of_text_ids: tuple[int, ...]

    @property
    def end_of_turn_ids(self) -> tuple[int, ...]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class EndRule:
    """When a document ends: a function of its released tokens and public numbers only.

    Attributes:
        model: decodes, and names the tokens that end a text.
        stop: a string that ends a document, or None.
        longest: the largest number of sampled tokens of a document.
        chat: whether documents are answers in the model's chat template, whose end of turn ends them, too.
    """

    model: Decoder
    stop: str | None
    longest: int
    chat: bool = False

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a document."""
        return self.model.end_of_text_ids + (self.model.end_of_turn_ids if self.chat else ())

    def stopped(self, tokens: Sequence[int]) -> bool:
        """Whether the document ended by itself with its last token."""
        if tokens[-1] in self.ends:
            return True
        if self.stop is None:
            return False
        # A token is at least a byte, so the tail holds any stop string that ends with the last token.
        return self.stop in self.model.decode(tokens[-len(self.stop.encode()) - 4 :])

    def ended(self, tokens: Sequence[int]) -> bool:
        """Whether the next token begins another document."""
        return len(tokens) >= self.longest or self.stopped(tokens)

    def split(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """The documents of a slot; the last may be unfinished."""
        documents: list[tuple[int, ...]] = []
        current: list[int] = []
        for token in tokens:
            current.append(token)
            if self.ended(current):
                documents.append(tuple(current))
                current = []
        return [*documents, tuple(current)] if current else documents

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a document, without what ended it."""
        ends = self.ends
        kept = [token for token in tokens if token not in ends]
        text = self.model.decode(kept)
        return text if self.stop is None else text.partition(self.stop)[0]
