"""Private records in clusters: how many are in each, and the assignment to slots that follows from released counts.

Under add_remove, adding or removing a unit changes one count by 1; under replace_one, two counts or none. Given the
released counts, the cell of a record is a function of its own text and label: its nearest kept centre among those of
its label.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dpassay.accounting.adjacency import Unit
from dpassay.base.arrays import Integers
from dpassay.base.pieces import pieces
from dpassay.data.batching import Cells, label_indices, unit_records
from dpassay.data.records import Record, Texts
from dpassay.mechanisms.embedding.centres import Centres, most_counted, split_slots
from dpassay.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from dpassay.mechanisms.embedding.load import BUILTIN
from dpassay.mechanisms.primitives.nearest import nearest

PIECE = 50_000
"""Records whose vectors are held at once."""


@dataclass(frozen=True, eq=False)
class Clusters:
    """Public centres and their embedder, applied to private records.

    Vectors of the last piece of records are cached, because scoring embeds the same records repeatedly.
    """

    centres: Centres
    embedder: Embedder
    _known: dict[str, Vectors] = field(default_factory=dict, repr=False)

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

    def units(self, records: Sequence[Record], labels: Sequence[str], key: bytes, unit: Unit) -> Integers:
        """The number of units of each public label that are nearest to each centre, shape (labels, K), each unit
        counted once, by the record that the key of the batching chooses. Not differentially private."""
        used = np.zeros(len(records), dtype=np.bool_)
        used[unit_records(records, key, unit)] = True
        label, result = label_indices(records, labels), np.zeros((max(1, len(labels)), self.centres.count), np.int64)
        for start, texts in self._pieces(records):
            kept = np.flatnonzero(used[start : start + len(texts)])
            closest = nearest(self._vectors([texts[index] for index in kept]), self.centres.vectors)
            np.add.at(result, (label[start + kept], closest), 1)
        return result

    def check(self, records: Sequence[Record], kept: int) -> None:
        """Checks, before counts are charged, that all records can be embedded, and k′, the number of centres that each
        label keeps.

        Raises:
            ValueError: if k′ exceeds K, or the embedder fails.
        """
        most_counted(np.zeros((1, self.centres.count), dtype=np.int64), kept)
        for _, texts in self._pieces(records):
            self._vectors(texts)

    def cells(
        self,
        records: Sequence[Record],
        labels: Sequence[str],
        counts: Sequence[Sequence[int]] | None,
        *,
        kept: int,
        slots: int,
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
        for start, texts in self._pieces(records):
            vectors, labels_here = self._vectors(texts), of_label[start : start + len(texts)]
            for label in np.unique(labels_here).tolist():
                members = np.flatnonzero(labels_here == label)
                closest = nearest(vectors[members], self.centres.vectors[chosen[label]])
                cell[start + members] = label * kept + closest
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

    def _pieces(self, records: Sequence[Record]) -> Iterator[tuple[int, list[str]]]:
        """The texts of records, in pieces, each with the index of its first record."""
        start = 0
        for piece in pieces(Texts(records), PIECE):
            yield start, piece
            start += len(piece)

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        rows = dict(zip(new, all_embedded(self.embedder, new), strict=True))
        kept = {text: self._known[text] if text in self._known else rows[text] for text in texts}
        if new:
            self._known.clear()
            self._known.update(kept)
        empty = np.empty((0, self.centres.vectors.shape[1]), dtype=np.float32)
        return np.stack([kept[text] for text in texts]) if texts else empty


@functools.lru_cache(maxsize=2)
def _loaded(path: str, embedder: str, _: tuple[int, ...] | None) -> Clusters:
    centres = Centres.load(path)
    return Clusters(centres, centres.own_embedder(embedder))
