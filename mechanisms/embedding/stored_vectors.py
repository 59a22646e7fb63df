"""Vectors of very many texts: they are in a file without a name, in the folder for temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpassay.base.arrays import Integers
from dpassay.base.progress import Step
from dpassay.data.records import LARGE
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, embedded

ManyVectors: TypeAlias = "Vectors | StoredVectors"
"""Vectors in memory, or in a file."""


class StoredVectors:
    """Vectors in a file, float32, of which slices and rows are read when they are asked for.

    Args:
        pieces: tables of some of them, in order, which are read once.
        dimension: d.
        file: to whose end they are written; None for one of their own.
    """

    ndim = 2

    def __init__(self, pieces: Iterable[NDArray[np.floating]], dimension: int, file: IO[bytes] | None = None) -> None:
        self._file = file or tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the vectors)
        self._start, count = self._file.seek(0, os.SEEK_END), 0
        for vectors in pieces:
            self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
            count += len(vectors)
        self._file.flush()
        self.shape = count, dimension

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | Integers) -> Vectors:
        """The vectors of a slice of step 1, or of some places."""
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return self._read(first, max(first, last))
        if not len(index):
            return self._read(0, 0)
        breaks = np.flatnonzero(np.diff(index) != 1) + 1  # places that follow each other are read at once
        firsts, lasts = index[np.append(0, breaks)].tolist(), index[np.append(breaks, len(index)) - 1].tolist()
        return np.concatenate([self._read(first, last + 1) for first, last in zip(firsts, lasts, strict=True)])

    def mapped(self) -> Vectors:
        """All vectors as one read-only table, which is the file itself: what is read of it is memory that the operating
        system takes back when it needs some."""
        return np.memmap(self._file, dtype="<f4", mode="r", shape=self.shape, offset=self._start)

    def _read(self, first: int, last: int) -> Vectors:
        width = 4 * self.shape[1]
        content = os.pread(self._file.fileno(), (last - first) * width, self._start + first * width)
        return np.frombuffer(content, dtype="<f4").reshape(last - first, self.shape[1])


def embedded_records(
    embedder: Embedder,
    texts: Iterable[str],
    count: int,
    executor: Executor = THIS_PROCESS,
    progress: Step | None = None,
) -> ManyVectors:
    """The vectors of so many texts, in a file if they are too many for memory.

    Args:
        embedder: public.
        texts: in order, which are read once.
        count: of the texts.
        executor: where they are computed.
        progress: called with the number of embedded texts and `count`.

    Raises:
        ValueError: if the embedder does not return what `Embedder` requires.
    """
    pieces = _counted(embedded(embedder, texts, executor), count, progress or (lambda done, total: None))
    if count > LARGE:
        return StoredVectors(pieces, embedder.dimension)
    return np.concatenate([np.empty((0, embedder.dimension), dtype=np.float32), *pieces])


def _counted(pieces: Iterable[Vectors], count: int, progress: Step) -> Iterator[Vectors]:
    done = 0
    for vectors in pieces:
        yield vectors
        done += len(vectors)
        progress(done, count)
