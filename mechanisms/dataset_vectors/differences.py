"""Differences of records' hidden states and those of public negatives, for one label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.data.records import Record
from dpassay.mechanisms.dataset_vectors.states import StateShape, states

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter


class Pairs(Protocol):
    """What decides which negative a record is compared with, and over which tokens and blocks."""

    @property
    def pairing(self) -> str: ...
    @property
    def pool(self) -> str: ...
    @property
    def clip(self) -> float | tuple[float, ...] | None: ...
    def blocks_of(self, network: Any) -> tuple[int, ...]: ...
    def negatives_of(self, slotting_ids: Iterable[str], count: int) -> Integers: ...


class Differences:
    """Differences from the negatives of a label, each a function of the record alone, unless pairs are by row."""

    def __init__(
        self,
        mechanism: Pairs,
        writer: ShotWriter,
        prompt: Sequence[int],
        negatives: Sequence[str],
        shape: StateShape,
    ) -> None:
        """Computes the states of the negatives, after the prompt of the label, at the shape of all forward passes."""
        self.mechanism, self._writer, self._prompt, self._shape = mechanism, writer, prompt, shape
        self._blocks = mechanism.blocks_of(writer.model.network)
        self._behind = np.stack(list(self._states(negatives)))

    @property
    def width(self) -> int:
        """d."""
        return int(self._behind.shape[-1])

    def norms(self) -> list[float]:
        """The mean length of a negative's states in each block; public."""
        return [float(length) for length in _lengths(self._behind).mean(axis=0)]

    def clips(self, candidates: Sequence[str]) -> list[float]:
        """C of each block: as given, or the median length of differences of public candidates and negatives; without
        candidates, of negatives among each other."""
        given = self.mechanism.clip
        if given is not None:
            return list(given) if isinstance(given, tuple) else [float(given)] * len(self._blocks)
        behind = self._behind
        before = np.stack(list(self._states(candidates))) if candidates else np.roll(behind, 1, axis=0)
        differences = before - behind[np.arange(len(before)) % len(behind)]
        return [float(length) or 1.0 for length in np.median(_lengths(differences), axis=0)]

    def of(self, records: Sequence[Record]) -> Iterator[Floats]:
        """The difference of each record, shape (blocks, d), in order; private."""
        behind, indices = self._behind, np.arange(len(records))
        match self.mechanism.pairing:
            case "hashed":
                pairs = self.mechanism.negatives_of((record.slotting_id for record in records), len(behind))
            case "rows":
                pairs = indices % len(behind)
            case _:
                behind, pairs = behind.mean(axis=0, keepdims=True), np.zeros(len(records), dtype=np.int64)
        texts = (record.text for record in records)
        for pair, result in zip(pairs, self._states(texts), strict=True):
            yield result - behind[pair]

    def _states(self, texts: Iterable[str]) -> Iterator[Floats]:
        whole = self.mechanism.pool == "prompt"
        given = (self._writer.tokens_of(self._prompt, text, whole=whole) for text in texts)
        return states(self._writer.model.network, given, self._blocks, self._shape)


def _lengths(vectors: Floats) -> Floats:
    """The lengths of vectors, shape (…, d)."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=-1)), dtype=np.float64)
