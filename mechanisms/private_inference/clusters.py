"""Private records in clusters: how many are in each, and the assignment to slots that follows from released counts.

Under add_remove, adding or removing a unit changes one count by 1; under replace_one, two counts or none. Given the
released counts, the cell of a record is a function of its own text and label: its nearest kept centre among those of
its label.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.base.arrays import Bools, Integers
from dpassay.base.pieces import text_pieces
from dpassay.data.batching import Cells, label_indices, unit_records
from dpassay.data.records import Record, Texts
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor, ThisProcess
from dpassay.mechanisms.compute.needs import Need, as_it_is, map_with
from dpassay.mechanisms.embedding.centres import Centres, most_counted, split_slots
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded, checked_vectors, needed
from dpassay.mechanisms.embedding.load import BUILTIN
from dpassay.mechanisms.primitives.nearest import nearest

R = TypeVar("R")

PIECE = 50_000
"""Records whose vectors are held at once in this process."""

_SENT, _CHARACTERS = 2048, 2**22  # records that a worker is sent at once, and characters after which no more are


@dataclass(frozen=True, eq=False)
class Clusters:
    """Public centres and their embedder, applied to private records.

    Vectors of the last piece of records are cached in this process, because scoring embeds the same records repeatedly.
    """

    centres: Centres
    embedder: Embedder
    _cached: _CachedEmbedder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cached", _CachedEmbedder(self.embedder))

    @classmethod
    def load(cls, path: Path | str, embedder: str = BUILTIN) -> Clusters:
        """Reads centres from a file, with their embedder; the last files are cached.

        Raises:
            ValueError: if the file has no centres, or the embedder is not theirs.
        """
        file = Path(path)
        status = file.stat() if file.is_file() else None
        return _loaded(str(file), embedder, status and (status.st_mtime_ns, status.st_size, status.st_ino))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over centres and embedder."""
        return hashlib.sha256(f"{self.centres.fingerprint} {self.embedder.fingerprint}".encode()).hexdigest()

    def units(
        self,
        records: Sequence[Record],
        labels: Sequence[str],
        key: bytes,
        unit: Unit,
        executor: Executor = THIS_PROCESS,
    ) -> Integers:
        """The number of units of each public label that are nearest to each centre, shape (labels, K), each unit
        counted once, by the record that the key of the batching chooses. Not differentially private."""
        used = np.zeros(len(records), dtype=np.bool_)
        used[unit_records(records, key, unit)] = True
        label, result = label_indices(records, labels), np.zeros((max(1, len(labels)), self.centres.count), np.int64)
        need = Need("centres", self.centres.vectors, lambda: (self.fingerprint, as_it_is(self.centres.vectors)))
        pieces = self._pieces(records, label, executor, used)
        for places, closest in self._map(executor, _nearest_centres, pieces, need):
            np.add.at(result, (label[places], closest), 1)
        return result

    def check(self, records: Sequence[Record], kept: int, executor: Executor = THIS_PROCESS) -> None:
        """Checks, before counts are charged, that all records can be embedded, and k′, the number of centres that each
        label keeps.

        Raises:
            ValueError: if k′ exceeds K, or the embedder fails.
        """
        most_counted(np.zeros((1, self.centres.count), dtype=np.int64), kept)
        unused = np.zeros(len(records), dtype=np.int64)
        for _ in self._map(executor, _embeds, self._pieces(records, unused, executor)):
            pass

    def cells(
        self,
        records: Sequence[Record],
        labels: Sequence[str],
        counts: Sequence[Sequence[int]] | None,
        *,
        kept: int,
        slots: int,
        executor: Executor = THIS_PROCESS,
    ) -> Cells:
        """The cell (label, kept centre) of each private record, and the number of its label's public slots for each
        cell: they are divided among its k′ kept centres in proportion to folded released counts (`_folded`), shape
        (labels, K).

        Raises:
            ValueError: if counts are missing or have another shape, or k′ exceeds K.
        """
        released = np.array([] if counts is None else counts, dtype=np.int64)
        if released.shape != (max(1, len(labels)), self.centres.count):
            raise ValueError(
                "a run with centres is batched by its released cluster counts, which must have shape "
                f"({max(1, len(labels))}, {self.centres.count})"
            )
        chosen, of_label = most_counted(released, kept), label_indices(records, labels)
        cell = np.zeros(len(records), dtype=np.int64)
        table = (self.centres.vectors, chosen)
        digest = hashlib.sha256(f"{self.fingerprint} {chosen.tolist()}".encode()).hexdigest()
        need = Need("kept centres", table, lambda: (digest, as_it_is(table)))
        for places, cells in self._map(executor, _cells, self._pieces(records, of_label, executor), need):
            cell[places] = cells
        split = [split_slots(self._folded(released[label], centres), slots) for label, centres in enumerate(chosen)]
        return Cells(cell, tuple(count for row in split for count in row))

    def _folded(self, released: Integers, kept: Integers) -> list[int]:
        """The released counts of one label, shape (K,), each added to the kept centre nearest to its own centre.

        Most of its records are assigned there. This is post-processing of the counts, so it has no privacy cost.
        """
        vectors = self.centres.vectors
        sums = np.zeros(len(kept), dtype=np.int64)
        np.add.at(sums, nearest(vectors, vectors[kept]), released)
        return [int(count) for count in sums]

    def _pieces(
        self, records: Sequence[Record], labels: Integers, executor: Executor, used: Bools | None = None
    ) -> Iterator[_SomeRecords]:
        """The texts of records, or of the used ones, in pieces."""
        size, limit = (PIECE, sys.maxsize) if isinstance(executor, ThisProcess) else (_SENT, _CHARACTERS)
        start = 0
        for texts in text_pieces(Texts(records), size, limit):
            places = np.arange(start, start + len(texts))
            if used is not None:
                places = places[used[places]]
            yield _SomeRecords(places, [texts[place - start] for place in places.tolist()], labels[places])
            start += len(texts)

    def _map(
        self, executor: Executor, function: Callable[..., R], pieces: Iterable[_SomeRecords], *needs: Need[Any]
    ) -> Iterator[R]:
        """`function(piece, embedder, …)` for each piece; in this process by the embedder that has a cache."""
        embedder: Need[Embedder] = Need("embedder", self._cached, needed(self.embedder).sent)
        return map_with(executor, function, pieces, embedder, *needs)


@dataclass(frozen=True, slots=True)
class _SomeRecords:
    """Some records: their places, texts and labels."""

    places: Integers
    texts: list[str] = field(repr=False)
    labels: Integers


def _embeds(piece: _SomeRecords, embedder: Embedder) -> None:
    """Checks that records can be embedded."""
    checked_vectors(piece.texts, embedder)


def _nearest_centres(piece: _SomeRecords, embedder: Embedder, centres: Vectors) -> tuple[Integers, Integers]:
    """The places of records, and the nearest centre of each."""
    return piece.places, nearest(checked_vectors(piece.texts, embedder), centres)


def _cells(piece: _SomeRecords, embedder: Embedder, kept: tuple[Vectors, Integers]) -> tuple[Integers, Integers]:
    """The places of records, and the cell of each: its label and the nearest centre that the label keeps."""
    vectors, (centres, chosen) = checked_vectors(piece.texts, embedder), kept
    cells = np.zeros(len(piece.texts), dtype=np.int64)
    for label in np.unique(piece.labels).tolist():
        members = np.flatnonzero(piece.labels == label)
        cells[members] = label * chosen.shape[1] + nearest(vectors[members], centres[chosen[label]])
    return piece.places, cells


class _CachedEmbedder:
    """An embedder that knows the vectors of the texts that it embedded last."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[str, Vectors] = {}

    name = property(lambda self: self._embedder.name)
    fingerprint = property(lambda self: self._embedder.fingerprint)
    dimension = property(lambda self: self._embedder.dimension)

    def embed(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        rows = dict(zip(new, all_embedded(self._embedder, new), strict=True))
        kept = {text: self._known[text] if text in self._known else rows[text] for text in texts}
        if new:
            self._known.clear()
            self._known.update(kept)
        return np.stack([kept[text] for text in texts]) if texts else np.empty((0, self.dimension), dtype=np.float32)


@functools.lru_cache(maxsize=2)
def _loaded(path: str, embedder: str, _: tuple[int, ...] | None) -> Clusters:
    centres = Centres.load(path)
    return Clusters(centres, centres.own_embedder(embedder))
