"""Vectors of very many texts: they are in a file without a name, in the folder for temporary files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from dpassay.base.arrays import Integers
from dpassay.data.records import LARGE
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded, embedded

ManyVectors: TypeAlias = "Vectors | StoredVectors"
"""Vectors in memory, or in a file."""


class StoredVectors:
    """Vectors in a file, float32, of which slices and rows are read when they are asked for.

    Args:
        embedder: that made them.
        texts: in order, which are read once.
    """

    ndim = 2

    def __init__(self, embedder: Embedder, texts: Iterable[str]) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the vectors)
        count = 0
        for vectors in embedded(embedder, texts):
            self._file.write(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
            count += len(vectors)
        self._file.flush()
        self.shape = count, embedder.dimension

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | Integers) -> Vectors:
        """The vectors of a slice of step 1, or of some places."""
        if isinstance(index, slice):
            first, last, _ = index.indices(len(self))
            return self._read(first, max(first, last))
        if not len(index):
            return self._read(0, 0)
        return np.concatenate([self._read(int(place), int(place) + 1) for place in index])

    def _read(self, first: int, last: int) -> Vectors:
        width = 4 * self.shape[1]
        content = os.pread(self._file.fileno(), (last - first) * width, first * width)
        return np.frombuffer(content, dtype="<f4").reshape(last - first, self.shape[1])


def embedded_records(embedder: Embedder, texts: Iterable[str], count: int) -> ManyVectors:
    """The vectors of so many texts, in a file if they are too many for memory.

    Raises:
        ValueError: if the embedder does not return what `Embedder` requires.
    """
    return all_embedded(embedder, texts) if count <= LARGE else StoredVectors(embedder, texts)
