"""Private records in clusters: how many there are of each, and the cells that released counts make of them.

Under add_remove one unit more or less changes one count by 1; under replace_one two of them, or none. Given the
released counts, the cell of a record is a function of its own text and label: its nearest kept centre among those of
its label.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cupel.mechanisms.data.batching import Cells, label_indices, unit_records
from cupel.mechanisms.data.records import Record
from cupel.mechanisms.embedding.centres import Centres, most_counted, split_slots
from cupel.mechanisms.embedding.embedder import Embedder, Vectors, all_embedded
from cupel.mechanisms.embedding.load import BUILTIN
from cupel.mechanisms.primitives.nearest import nearest


@dataclass(frozen=True, eq=False)
class Clusters:
    """Public centres and their embedder, applied to private records.

    Vectors of the last records are kept, because scoring embeds the same records again and again.
    """

    centres: Centres
    embedder: Embedder
    _known: dict[str, Vectors] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, path: Path | str, embedder: str = BUILTIN) -> Clusters:
        """The centres of a file with their embedder; the file last used is kept in memory.

        Raises:
            ValueError: where the file is none of centres, or the embedder is not theirs.
        """
        file = Path(path)
        status = file.stat() if file.is_file() else None
        return _loaded(str(file), embedder, status and (status.st_mtime_ns, status.st_size, status.st_ino))

    @property
    def fingerprint(self) -> str:
        """SHA-256 over centres and embedder."""
        return hashlib.sha256(f"{self.centres.fingerprint} {self.embedder.fingerprint}".encode()).hexdigest()

    def units(
        self, records: Sequence[Record], labels: Sequence[str], key: bytes, *, per_user: bool
    ) -> NDArray[np.int64]:
        """How many units of each label are nearest to each centre; private.

        Args:
            records: private.
            labels: the public list; empty puts all records together.
            key: of the batching, which decides what record of a user counts.
            per_user: whether the unit is a user.

        Returns:
            Shape (labels, K); each unit is counted once.
        """
        label = label_indices(records, labels)
        used = np.array(unit_records(records, key, per_user=per_user), dtype=np.int64)
        found = nearest(self._vectors([records[index].text for index in used]), self.centres.vectors)
        shape = (max(1, len(labels)), self.centres.count)
        flat = np.bincount(label[used] * shape[1] + found, minlength=shape[0] * shape[1])
        return flat.reshape(shape).astype(np.int64)

    def no_counts(self, labels: Sequence[str]) -> list[list[int]]:
        """Counts that say nothing, to check records with before any are released; shape (labels, K)."""
        return [[0] * self.centres.count] * max(1, len(labels))

    def cells(
        self,
        records: Sequence[Record],
        labels: Sequence[str],
        counts: Sequence[Sequence[int]] | None,
        *,
        kept: int,
        slots: int,
    ) -> Cells:
        """The cell (label, kept centre) of each record, and how many of its label's slots each cell has.

        Args:
            records: private.
            labels: the public list.
            counts: shape (labels, K), released.
            kept: k′, how many centres of each label are kept.
            slots: of each label, public; split over its kept centres in proportion to folded counts (`_folded`).

        Raises:
            ValueError: where counts are missing or of another shape, or k′ is above K.
        """
        released = np.array([] if counts is None else counts, dtype=np.int64)
        if released.shape != (max(1, len(labels)), self.centres.count):
            raise ValueError(
                "a run with centres is batched by the cluster counts that it released: "
                f"{max(1, len(labels))} × {self.centres.count} of them are needed"
            )
        chosen, of_label = most_counted(released, kept), label_indices(records, labels)
        vectors, cell = self._vectors([record.text for record in records]), np.zeros(len(records), dtype=np.int64)
        for label, centres in enumerate(chosen):
            members = np.flatnonzero(of_label == label)
            cell[members] = label * kept + nearest(vectors[members], self.centres.vectors[centres])
        split = [split_slots(self._folded(released[label], centres), slots) for label, centres in enumerate(chosen)]
        return Cells(cell, tuple(count for row in split for count in row))

    def _folded(self, released: NDArray[np.int64], kept: NDArray[np.int64]) -> list[int]:
        """The released counts of one label, shape (K,), each added to the kept centre that is nearest to its own.

        That is where its records go, or most of them. It is a function of what is released, so it costs nothing.
        """
        vectors = self.centres.vectors
        sums = np.zeros(len(kept), dtype=np.int64)
        np.add.at(sums, nearest(vectors, vectors[kept]), released)
        return [int(count) for count in sums]

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
