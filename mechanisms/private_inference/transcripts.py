"""The results of a run of private inference: the transcript, slot by slot and token by token, and its documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpassay.accounting.ex_post.medians import Medians
from dpassay.base.arrays import Bools, Floats, Integers

if TYPE_CHECKING:
    from dpassay.mechanisms.models.row_shapes import RowPlan


@dataclass(frozen=True, slots=True)
class Document:
    """One synthetic document.

    Attributes:
        slot: the slot that generated it.
        label: the slot's public label.
        index: its index among the documents of the slot.
        text: with the forced prefix, without end of text or stop string.
        tokens: the sampled and charged tokens, end of text included.
        complete: whether it ended by itself, not because the budget or the largest length was reached.
        source: without protection, the index of the record from which it was generated; None otherwise.
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
    """All sampled tokens and what determines the assignment of records; everything released except slot counts.

    Attributes:
        tokens: for each slot, its sampled tokens in order; empty if the slot did not run.
        running: for each slot, whether it ran.
        cluster_counts: shape (labels, K), the released noisy counts, if records were clustered.
    """

    tokens: tuple[tuple[int, ...], ...]
    running: tuple[bool, ...]
    cluster_counts: tuple[tuple[int, ...], ...] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Generation:
    """A finished run. Only `documents`, `transcript` and `released_counts` may be released; the rest is private.

    Attributes:
        documents: of all slots, slot by slot.
        transcript: of all slots.
        assignment: shape (records,), the slot of each record, −1 for a record that is not used. Private.
        cut: shape (records,), whether a record was cut, because its context had no room for all of its tokens. Private.
        slot_sizes: shape (slots,), number of contexts in each slot. Private.
        released_counts: shape (slots,), the released noisy counts, or None.
        token_costs: shape (slots, tokens, 3): u⁻, u⁺ and the published γ of each token; None except for medians. NaN
            if a slot did not run. Private.
        positions: shape (slots, tokens): the index of each token in its document, −1 if a slot did not run.
        row_plan: the shapes in which rows were computed, and whether they are verified to be exact.
        row_difference: 0 if they are; else the largest difference between a row's logits in a batch and alone, in a
            public spot check when the model was loaded.
    """

    documents: tuple[Document, ...]
    transcript: Transcript
    assignment: Integers
    cut: Bools
    slot_sizes: Integers
    released_counts: Integers | None
    token_costs: Floats | None
    positions: Integers
    row_plan: RowPlan
    row_difference: float

    @property
    def spent(self) -> Floats | None:
        """Shape (slots, 3): Σ u⁻, Σ u⁺ and Σ γ of each slot, for reports; the ledger rounds them up. Private."""
        return None if self.token_costs is None else np.nansum(self.token_costs, axis=1)


class Observer(Protocol):
    """Receives what the strongest adversary sees, while a run generates or replays its tokens."""

    def step(
        self,
        *,
        slot: int,
        records: Sequence[int],
        clipped: NDArray[np.floating],
        public: NDArray[np.floating] | None,
        medians: Medians | None,
        log_probability: float,
        token: int,
        document: int,
        position: int,
    ) -> None:
        """Receives one token of one slot.

        Args:
            slot: that generated it.
            records: row → index of its record; of its first record if a context holds several.
            clipped: shape (B, V), the aggregated logits, of the tokens that are kept; raw if aggregate is ``none``.
            public: shape (V,), what is added to their median or sum if rows are centred.
            medians: of the batch, if aggregate is ``median``.
            log_probability: of the token, in its distribution before integer rounding.
            token: the column of the sampled token, which is the token itself where all tokens are kept.
            document: its index in the slot.
            position: of the token in the document.
        """


class PartObserver(Observer, Protocol):
    """An observer of slots that are decoded in several processes."""

    def part(self) -> Self:
        """A new observer of some slots, which can be sent to another process."""

    def merge(self, part: Self) -> None:
        """Adds what a part saw of slots that no other part saw."""
