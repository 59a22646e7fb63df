"""Private records that vote for candidates: their vectors stay where they were computed.

With workers, records are divided into partitions. A worker is sent the texts of a partition once, keeps their vectors,
and returns how many records of the partition vote for each candidate. The counts are whole numbers, so their sum does
not depend on the partitions. If the worker is gone, another one is sent the texts.
"""

from __future__ import annotations

import hashlib
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np

from dpassay.base.arrays import Integers
from dpassay.base.pieces import text_pieces
from dpassay.base.progress import Step, of_part
from dpassay.data.records import LARGE
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, ThisProcess, find, forget, kept
from dpassay.mechanisms.compute.needs import Need, as_it_is, map_with
from dpassay.mechanisms.compute.workers import address_of_worker
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, embedded, needed
from dpassay.mechanisms.embedding.stored_vectors import ManyVectors, StoredVectors, embedded_records
from dpassay.mechanisms.evolution.voting import record_votes

_SMALLEST, _LARGEST = 256, 2**14  # records of a partition, but for the last one
_CHARACTERS = 2**22  # of the texts of a partition, after which it ends
_A_WORKER = 4  # partitions for each worker, if they are not too small or too large
_ASKED = 3  # times that a partition is asked for without its texts: a worker without work may take what is for another
_KEPT = "voters"


class Voters:
    """Private records by public label, embedded once.

    Args:
        embedder: public; each vector is a function of its own text.
        texts: of the records of each label; private. They are read when they are embedded, some at a time.
        executor: where they are embedded and counted.
    """

    def __init__(
        self, embedder: Embedder, texts: Mapping[str | None, Sequence[str]], executor: Executor = THIS_PROCESS
    ) -> None:
        self._embedder, self._texts, self._executor = embedder, texts, executor
        self._needed = needed(embedder)
        self._run = secrets.token_hex(16)
        self._vectors: dict[str | None, ManyVectors] = {}  # if they are in this process
        self._partitions: dict[str | None, list[_Partition]] = {}  # otherwise

    @property
    def embedded(self) -> bool:
        """Whether the vectors of all records were computed."""
        return len(self._vectors) + len(self._partitions) == len(self._texts)

    def embed(self, progress: Step | None = None) -> None:
        """Computes the vectors of all records, unless that was done.

        Args:
            progress: called with the number of embedded records and that of all.

        Raises:
            ValueError: if the embedder does not return what `Embedder` requires.
        """
        before, total = 0, sum(map(len, self._texts.values()))
        for label, texts in self._texts.items():
            step = of_part(progress, before, total) or (lambda done, of: None)
            before += len(texts)
            if isinstance(self._executor, ThisProcess):
                if label not in self._vectors:
                    self._vectors[label] = embedded_records(self._embedder, texts, len(texts), progress=step)
            elif label not in self._partitions:
                self._partitions[label] = self._embedded_on_workers(texts, step)

    def _embedded_on_workers(self, texts: Sequence[str], step: Step) -> list[_Partition]:
        """Embeds the records of a label; their partitions, without texts."""
        made = list[_Partition]()
        first = sum(map(len, self._partitions.values()))
        size = min(_LARGEST, max(_SMALLEST, -(-len(texts) // (_A_WORKER * self._executor.workers))))

        def read() -> Iterator[_Partition]:
            begin = 0
            for number, piece in enumerate(text_pieces(texts, size, _CHARACTERS), first):
                made.append(_Partition(self._run, number, begin, begin + len(piece)))
                begin += len(piece)
                yield replace(made[-1], texts=piece)

        workers = map_with(self._executor, _embed, read(), self._needed, near=_Partition.place)
        for index, worker in enumerate(workers):
            made[index] = replace(made[index], worker=worker)
            step(made[index].last, len(texts))
        return made

    def votes(self, label: str | None, candidates: Vectors) -> Integers:
        """The number of records of a label whose nearest candidate is each one, shape (M,). Not differentially private.

        Args:
            label: public.
            candidates: shape (M, d).
        """
        self.embed()
        if label in self._vectors:
            return record_votes(self._vectors[label], candidates)
        total, partitions = np.zeros(len(candidates), dtype=np.int64), self._partitions[label]
        left = list(range(len(partitions)))
        for attempt in range(_ASKED + 1):
            asked = (partitions[index] for index in left)
            if attempt == _ASKED:
                texts = self._texts[label]
                asked = (replace(part, texts=list(texts[part.first : part.last])) for part in asked)
            counted = zip(left, self._counted(asked, candidates), strict=True)
            left = []
            for index, (worker, votes) in counted:
                if votes is None:
                    left.append(index)
                else:
                    total += votes
                    partitions[index] = replace(partitions[index], worker=worker)
            if not left:
                break
        return total

    def _counted(self, parts: Iterable[_Partition], candidates: Vectors) -> Iterator[tuple[str, Integers | None]]:
        def sent() -> tuple[str, Callable[[], Vectors]]:
            digest = hashlib.sha256(f"{candidates.shape} {candidates.dtype}".encode() + candidates.tobytes())
            return digest.hexdigest(), as_it_is(candidates)

        needs = (self._needed, Need("candidates", candidates, sent))
        return map_with(self._executor, _votes, parts, *needs, near=_Partition.place)

    def close(self) -> None:
        """Forgets the vectors, on workers as well."""
        parts = [part for some in self._partitions.values() for part in some]
        for _ in map_with(self._executor, _forget, parts, near=_Partition.place):
            pass
        self._partitions, self._vectors = {}, {}


@dataclass(frozen=True, slots=True)
class _Partition:
    """Some records of a label.

    Attributes:
        run: a random name of the run.
        number: among the partitions of the run.
        first, last: the places among the records of the label, without the last.
        worker: the address of the worker that keeps their vectors; empty if none does.
        texts: if they are sent.
    """

    run: str
    number: int
    first: int
    last: int
    worker: str = ""
    texts: list[str] | None = field(default=None, repr=False)

    def place(self) -> str:
        """The worker that keeps the vectors, or will."""
        return self.worker or f"{self.run} {self.number}"


@dataclass(slots=True)
class _Kept:
    """The vectors of some partitions of a run, in memory or, if they are many, in a file; of one process."""

    run: str
    vectors: dict[int, ManyVectors] = field(default_factory=dict)
    count: int = 0
    file: IO[bytes] | None = None

    def add(self, part: _Partition, embedder: Embedder) -> ManyVectors:
        """The vectors of a partition with texts."""
        assert part.texts is not None
        vectors: ManyVectors
        self.count += len(part.texts)
        if self.count <= LARGE:
            vectors = np.concatenate(list(embedded(embedder, part.texts)))
        else:
            self.file = self.file or tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the vectors)
            vectors = StoredVectors(embedded(embedder, part.texts), embedder.dimension, self.file)
        self.vectors[part.number] = vectors
        return vectors


def _of_run(run: str) -> _Kept:
    """What this process keeps of a run; nothing of any other run is kept."""
    known: _Kept | None = find(_KEPT)
    if known is None or known.run != run:
        forget(_KEPT)
        known = kept(_KEPT, lambda: _Kept(run))
    return known


def _embed(part: _Partition, embedder: Embedder) -> str:
    """Embeds a partition; the address of the worker that did."""
    _of_run(part.run).add(part, embedder)
    return address_of_worker()


def _votes(part: _Partition, embedder: Embedder, candidates: Vectors) -> tuple[str, Integers | None]:
    """The address of the worker, and the votes of a partition; None if its vectors are not here and its texts were not
    sent."""
    known = _of_run(part.run)
    vectors = known.vectors.get(part.number)
    if vectors is None and part.texts is not None:
        vectors = known.add(part, embedder)
    return address_of_worker(), None if vectors is None else record_votes(vectors, candidates)


def _forget(part: _Partition) -> None:
    """Keeps nothing of a run."""
    known: _Kept | None = find(_KEPT)
    if known is not None and known.run == part.run:
        forget(_KEPT)
