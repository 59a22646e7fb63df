"""Clusters of private records around public centres.

Centres are computed from public text by k-means, so they have no privacy cost. A run keeps those with the largest noisy
counts of private records, which are charged; everything after the counts is post-processing. The cluster of a record is
a function of its own text, the public centres and the released counts, and of no other record.

Source: "Clustering and Median Aggregation Improve Differentially Private Inference", section 4.1, "Public centers with
rebalancing".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base import validate
from dpassay.base.arrays import Integers
from dpassay.base.errors import naming
from dpassay.base.progress import Step
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.embedding.embedder import Embedder, HashedNgrams, Vectors
from dpassay.mechanisms.embedding.load import BUILTIN, load_embedder
from dpassay.mechanisms.embedding.stored_vectors import ManyVectors, StoredVectors, embedded_records

MINI_BATCH_ABOVE = 100_000
"""For more public documents than this, centres are computed by mini-batch k-means."""

_MAX_CENTRES = 2**20


@dataclass(frozen=True, eq=False)
class Centres:
    """Public centres of clusters, and the embedder of their vectors.

    Attributes:
        vectors: shape (K, d), float32, in the unit ball.
        embedder_name, embedder_fingerprint: of the embedder; records must be embedded by the same one.
        embedder: the embedder itself if it is the default one, which the file contains; None for a model.
    """

    vectors: Vectors
    embedder_name: str
    embedder_fingerprint: str
    embedder: HashedNgrams | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        vectors = np.asarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or not 1 <= len(vectors) <= _MAX_CENTRES or not np.isfinite(vectors).all():
            raise ValueError("centres must be a table of finite numbers with at least one row")
        if np.square(vectors.astype(np.float64)).sum(axis=1).max() > 1.0001:
            raise ValueError("centres must be in the unit ball, like means of vectors of length 1")
        if self.embedder is not None and self.embedder.fingerprint != self.embedder_fingerprint:
            raise ValueError("embedder must have the fingerprint embedder_fingerprint, but has another one")
        object.__setattr__(self, "vectors", vectors)

    @classmethod
    def fit(
        cls,
        public_texts: Sequence[str],
        count: int,
        *,
        embedder: Embedder | None = None,
        seed: int = 0,
        executor: Executor = THIS_PROCESS,
        progress: Step | None = None,
    ) -> Centres:
        """K-means on the embeddings of public texts.

        Args:
            public_texts: never private ones.
            count: K, at most the number of distinct vectors.
            embedder: None fits the default embedder on the same public texts.
            seed: public.
            executor: where the texts are embedded.
            progress: called with the number of embedded texts and that of all.

        Raises:
            ValueError: if there are fewer distinct texts than centres.
        """
        validate.integer(minimum=1, count=count)
        if len(public_texts) < count:
            raise ValueError(f"{count} centres need at least as many public texts, not {len(public_texts)}")
        embedder = HashedNgrams.fitted(public_texts, seed=seed) if embedder is None else embedder
        vectors = embedded_records(embedder, public_texts, len(public_texts), executor, progress)
        result = k_means(vectors, count, seed)
        kept = embedder if isinstance(embedder, HashedNgrams) else None
        return cls(result, embedder.name, embedder.fingerprint, kept)

    @property
    def count(self) -> int:
        """K."""
        return len(self.vectors)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the centres and the embedder's fingerprint; public."""
        digest = hashlib.sha256(f"{self.vectors.shape} {self.embedder_fingerprint}".encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        return digest.hexdigest()

    def save(self, path: Path | str) -> None:
        """Writes a safetensors file: numbers and names only, including those of the default embedder."""
        with naming(path):
            Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """The content that `save` writes."""
        from safetensors.numpy import save

        arrays = {"centres": np.ascontiguousarray(self.vectors)}
        about: dict[str, Any] = {"name": self.embedder_name, "fingerprint": self.embedder_fingerprint}
        if self.embedder is not None:
            about["settings"] = self.embedder.settings
            if self.embedder.projection is not None:
                arrays["projection"] = np.ascontiguousarray(self.embedder.projection, dtype=np.float32)
        # One key, because the library writes several in any order, and the same centres must give the same bytes.
        content: bytes = save(arrays, metadata={"embedder": json.dumps(about)})
        return content

    @classmethod
    def load(cls, path: Path | str) -> Centres:
        """Reads a file that `save` wrote.

        Raises:
            ValueError: one line, if the file is invalid.
        """
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise ValueError(f"centres {str(path)!r}: there is no such file; `Centres.fit(...).save(path)` creates one")
        try:
            with safe_open(str(path), framework="numpy") as file:
                about = dict(file.metadata() or {})
                present = set(file.keys()) & {"centres", "projection"}
                arrays = {name: file.get_tensor(name) for name in present}
            embedder = json.loads(about["embedder"])
            default = None
            if "settings" in embedder:
                default = HashedNgrams(**embedder["settings"], projection=arrays.get("projection"))
            return cls(arrays["centres"], str(embedder["name"]), str(embedder["fingerprint"]), default)
        except ValueError as error:
            raise ValueError(f"centres {str(path)!r}: {error}") from None
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"centres {str(path)!r}: not a file of centres; `Centres.save` writes them") from None

    def own_embedder(self, source: str = BUILTIN) -> Embedder:
        """The embedder with which the centres were computed.

        Args:
            source: ``builtin`` for the one in the file, else the folder or the hub id of the model.

        Raises:
            ValueError: if this is not the embedder of the centres.
        """
        chosen: Embedder | None = self.embedder if source == BUILTIN else load_embedder(source)
        if chosen is None:
            raise ValueError(
                f"embedder must be the model {self.embedder_name!r} (its folder or hub id) with which the centres were "
                "computed, not builtin"
            )
        if chosen.fingerprint != self.embedder_fingerprint:
            raise ValueError(
                f"the centres were computed with the embedder {self.embedder_name!r} "
                f"({self.embedder_fingerprint[:12]}…), not with {chosen.name!r} ({chosen.fingerprint[:12]}…)"
            )
        return chosen


def k_means(vectors: ManyVectors, count: int, seed: int) -> Vectors:
    """Centres of public vectors, shape (N, d), never private ones, by k-means with a public seed, and with mini-batches
    for more than `MINI_BATCH_ABOVE` of them; shape (K, d), float32.

    Raises:
        ValueError: if there are fewer distinct vectors than centres.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    validate.integer(minimum=1, count=count)
    validate.integer(seed=seed)
    different = _different(vectors, count)
    if different < count:
        raise ValueError(f"{count} centres need at least as many distinct public texts, not {different}")
    if len(vectors) > MINI_BATCH_ABOVE:
        search = MiniBatchKMeans(n_clusters=count, n_init=5, random_state=seed, compute_labels=False)
    else:
        search = KMeans(n_clusters=count, n_init=1, random_state=seed)
    table = vectors.mapped() if isinstance(vectors, StoredVectors) else vectors
    return np.asarray(search.fit(table).cluster_centers_, dtype=np.float32)


def _different(vectors: ManyVectors, enough: int) -> int:
    """The number of distinct rows, or a number of at least `enough`; reads no more blocks than necessary."""
    kept = vectors[:0]
    for start in range(0, len(vectors), 4 * enough):
        kept = np.unique(np.concatenate([kept, vectors[start : start + 4 * enough]]), axis=0)
        if len(kept) >= enough:
            break
    return len(kept)


def most_counted(counts: ArrayLike, kept: int) -> Integers:
    """The k′ centres of each label with the largest released counts, of shape (labels, K), the first ones in case of
    ties; their indices, in increasing order, shape (labels, k′).

    Raises:
        ValueError: if k′ exceeds K.
    """
    released = np.asarray(counts, dtype=np.int64)
    if kept > released.shape[1]:
        raise ValueError(
            f"kept_centres must be at most the number of centres in the file, {released.shape[1]}, not {kept}"
        )
    order = np.argsort(-released, axis=1, kind="stable")[:, : validate.integer(minimum=1, kept=kept)]
    return np.sort(order, axis=1)


def split_slots(counts: Sequence[int], slots: int) -> list[int]:
    """Divides a public number of slots in proportion to released counts: largest remainders, at least one slot each.

    A cell whose share is below one slot gets one; the others share the rest. Negative counts are treated as 0, and if
    none is positive all are equal. Computed exactly in integers; ties of remainders go to the first cell.

    Raises:
        ValueError: if there are fewer slots than cells.
    """
    if slots < len(counts):
        raise ValueError(f"{len(counts)} kept centres need at least one slot each, but there are {slots}")
    weights = [max(0, int(count)) for count in counts]
    if not any(weights):
        weights = [1] * len(weights)
    open_cells = list(range(len(weights)))
    while True:
        rest, total = slots - (len(weights) - len(open_cells)), sum(weights[cell] for cell in open_cells)
        small = [cell for cell in open_cells if rest * weights[cell] < total]
        if not small:
            break
        open_cells = [cell for cell in open_cells if rest * weights[cell] >= total]
    split = [1] * len(weights)
    for cell in open_cells:
        split[cell] = rest * weights[cell] // total
    by_remainder = sorted(open_cells, key=lambda cell: (-(rest * weights[cell] % total), cell))
    for cell in by_remainder[: slots - sum(split)]:
        split[cell] += 1
    return split
