"""Differences of records' hidden states and those of public negatives, for one label.

Sums of clipped differences are added up from pieces of a fixed number of records, which workers compute. They are whole
numbers, so that the order does not matter. A worker's sum is private: it has no noise yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from dpassay.base.arrays import Floats, Integers
from dpassay.base.pieces import pieces
from dpassay.data.records import Record
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, exclusive, kept
from dpassay.mechanisms.compute.workers import WorkerError, name_of_worker
from dpassay.mechanisms.dataset_vectors.release import clipped
from dpassay.mechanisms.dataset_vectors.states import StateShape, Tokens, bits, states, verified
from dpassay.mechanisms.models.model_reference import ModelReference

if TYPE_CHECKING:
    from dpassay.mechanisms.dataset_vectors.texts import ShotWriter
    from dpassay.mechanisms.models.language_model import LanguageModel

PASSES = 16
"""The number of forward passes of a piece."""


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
        behind, pairs = self._pairs(records)
        for pair, result in zip(pairs, self._states(record.text for record in records), strict=True):
            yield result - behind[pair]

    def clipped_sum(
        self, records: Sequence[Record], clips: Sequence[float], executor: Executor, counted: Callable[[int], None]
    ) -> Integers:
        """The sum of records' differences, clipped to C of each block, shape (blocks, d), in integer units; private.

        Args:
            records: in any order.
            clips: C of each block.
            executor: where states are computed.
            counted: called with the number of further records that are done.
        """
        behind, pairs = self._pairs(records)
        model = self._writer.model if executor is THIS_PROCESS else ModelReference.of(self._writer.model)
        job = StateJob(model, self._blocks, self._shape, behind, tuple(clips))
        job = replace(job, bits=executor.submit(StateJob.bits_here, job).result())
        paired = zip(pairs.tolist(), self._tokens(record.text for record in records), strict=True)
        total, left, size = np.zeros(behind.shape[1:], dtype=np.int64), len(records), PASSES * self._shape.rows
        for part in executor.map(clipped_sum, pieces(paired, size), job):
            total += part
            counted(min(size, left))
            left -= size
        return total

    def _pairs(self, records: Sequence[Record]) -> tuple[Floats, Integers]:
        """What records differ from, shape (negatives, blocks, d), and which of it each one does."""
        match self.mechanism.pairing:
            case "hashed":
                count = len(self._behind)
                return self._behind, self.mechanism.negatives_of((record.slotting_id for record in records), count)
            case "rows":
                return self._behind, np.arange(len(records)) % len(self._behind)
            case _:
                return self._behind.mean(axis=0, keepdims=True), np.zeros(len(records), dtype=np.int64)

    def _states(self, texts: Iterable[str]) -> Iterator[Floats]:
        return states(self._writer.model.network, self._tokens(texts), self._blocks, self._shape)

    def _tokens(self, texts: Iterable[str]) -> Iterator[Tokens]:
        whole = self.mechanism.pool == "prompt"
        return (self._writer.tokens_of(self._prompt, text, whole=whole) for text in texts)


@dataclass(frozen=True, slots=True, eq=False)
class StateJob:
    """What all pieces of a sum share; public.

    Attributes:
        model: in this process, or where it is found.
        blocks: counted from 0.
        shape: of forward passes.
        behind: what records differ from, shape (negatives, blocks, d).
        clips: C of each block.
        bits: of public rows, by `bits_here` of one worker; empty before they are known, or in one process. Who computes
            a record's states follows from how many records there are before it. So all must compute the same bits:
            otherwise one record more would change what others contribute.
    """

    model: LanguageModel | ModelReference
    blocks: tuple[int, ...]
    shape: StateShape
    behind: Floats
    clips: tuple[float, ...]
    bits: str = ""

    def bits_here(self) -> str:
        """SHA-256 of the states of public rows by a worker; empty in the process that has the model, or if rows are not
        exact.

        Raises:
            WorkerError: as for `network`.
        """
        if not isinstance(self.model, ModelReference) or not self.shape.exact:
            return ""
        with exclusive:
            network, model = self.network(), self.model.load()

            def computed() -> str:
                return bits(network, model.vocabulary_size, self.blocks, self.shape.rows, self.shape.length)

            return kept(("bits", self.model, self.blocks, self.shape), computed)

    def network(self) -> Any:
        """The network of the model in this process.

        Raises:
            WorkerError: if there is another model here, or its rows depend on each other.
        """
        if not isinstance(self.model, ModelReference):
            return self.model.network
        model, shape = self.model.load(), self.shape

        def exact() -> bool:
            return verified(model.network, model.vocabulary_size, self.blocks, shape.rows, shape.length)

        if shape.exact and not kept((self.model, self.blocks, shape), exact):
            raise WorkerError(
                f"worker on {name_of_worker()}: a text's hidden states depend there on the texts beside it, and on "
                "this machine they do not; use machines of one kind"
            )
        return model.network


def clipped_sum(piece: Sequence[tuple[int, Tokens]], job: StateJob) -> Integers:
    """The sum of the clipped differences of some records, given by what they differ from and their tokens; private."""
    total = np.zeros(job.behind.shape[1:], dtype=np.int64)
    with exclusive:  # passes set up the model
        if job.bits != job.bits_here():
            raise WorkerError(
                f"worker on {name_of_worker()}: computes other hidden states, in some bits, than another worker; use "
                "machines of one kind, with the same packages and number of threads"
            )
        found = states(job.network(), (tokens for _, tokens in piece), job.blocks, job.shape)
        for (pair, _), result in zip(piece, found, strict=True):
            total += clipped(result - job.behind[pair], job.clips)
    return total


def _lengths(vectors: Floats) -> Floats:
    """The lengths of vectors, shape (…, d)."""
    return np.asarray(np.sqrt(np.square(vectors).sum(axis=-1)), dtype=np.float64)
