"""Clusters of private records around public centres.

Centres come from public text by k-means, so they cost nothing. Which of them a run keeps is decided by noisy counts of
private records, which are paid for; everything after the counts is a function of what was released. The cluster of a
record is a function of its own text, the public centres and the released counts, and of no other record.

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
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.accounting.errors import naming
from cupel.mechanisms.embedding.embedder import Embedder, HashedNgrams, Vectors, all_embedded
from cupel.mechanisms.embedding.load import BUILTIN, load_embedder

MINI_BATCH_ABOVE = 100_000
"""From more public documents than this, centres are found by mini-batch k-means."""

_MOST_CENTRES = 2**20


@dataclass(frozen=True, eq=False)
class Centres:
    """Public centres of clusters, with what made the vectors they lie among.

    Attributes:
        vectors: shape (K, d), float32, in the unit ball.
        embedder_name, embedder_fingerprint: of the embedder; records are embedded by the same one.
        embedder: the embedder itself where it is the default one, which the file holds; None for a model.
    """

    vectors: Vectors
    embedder_name: str
    embedder_fingerprint: str
    embedder: HashedNgrams | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        vectors = np.asarray(self.vectors, dtype=np.float32)
        if vectors.ndim != 2 or not 1 <= len(vectors) <= _MOST_CENTRES or not np.isfinite(vectors).all():
            raise ValueError("centres must be a table of finite numbers with at least one row")
        if np.square(vectors.astype(np.float64)).sum(axis=1).max() > 1.0001:
            raise ValueError("centres must lie in the unit ball, as means of vectors of length 1 do")
        if self.embedder is not None and self.embedder.fingerprint != self.embedder_fingerprint:
            raise ValueError("the embedder's fingerprint is not the one that the centres name")
        object.__setattr__(self, "vectors", vectors)

    @classmethod
    def fit(
        cls, public_texts: Sequence[str], count: int, *, embedder: Embedder | None = None, seed: int = 0
    ) -> Centres:
        """K-means on the embeddings of public text.

        Args:
            public_texts: never private ones.
            count: K, at most the number of different vectors.
            embedder: None fits the default embedder on the same public text.
            seed: public.

        Raises:
            ValueError: where there are fewer different texts than centres.
        """
        validate.integer(minimum=1, count=count)
        if len(public_texts) < count:
            raise ValueError(f"{count} centres need at least as many public texts, not {len(public_texts)}")
        embedder = HashedNgrams.fitted(public_texts, seed=seed) if embedder is None else embedder
        vectors = all_embedded(embedder, public_texts)
        found = k_means(vectors, count, seed)
        kept = embedder if isinstance(embedder, HashedNgrams) else None
        return cls(found, embedder.name, embedder.fingerprint, kept)

    @property
    def count(self) -> int:
        """K."""
        return len(self.vectors)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the centres and the embedder's fingerprint; may be published."""
        digest = hashlib.sha256(f"{self.vectors.shape} {self.embedder_fingerprint}".encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        return digest.hexdigest()

    def save(self, path: Path | str) -> None:
        """Writes a safetensors file: numbers and names only, and the default embedder's own numbers."""
        with naming(path):
            Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """What `save` writes."""
        from safetensors.numpy import save

        arrays = {"centres": np.ascontiguousarray(self.vectors)}
        about: dict[str, Any] = {"name": self.embedder_name, "fingerprint": self.embedder_fingerprint}
        if self.embedder is not None:
            about["settings"] = self.embedder.settings
            if self.embedder.projection is not None:
                arrays["projection"] = np.ascontiguousarray(self.embedder.projection, dtype=np.float32)
        content: bytes = save(arrays, metadata={"cupel": "centres 1", "embedder": json.dumps(about)})
        return content

    @classmethod
    def load(cls, path: Path | str) -> Centres:
        """Reads what `save` wrote.

        Raises:
            ValueError: one line, for anything else.
        """
        from safetensors import SafetensorError, safe_open

        if not Path(path).is_file():
            raise ValueError(f"centres {str(path)!r}: there is no such file; `Centres.fit(...).save(path)` makes one")
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
            raise ValueError(f"centres {str(path)!r}: is no file of centres; `Centres.save` writes them") from None

    def own_embedder(self, source: str = BUILTIN) -> Embedder:
        """The embedder that the centres were made with.

        Args:
            source: ``builtin`` for the one in the file, else the folder or the hub id of the model.

        Raises:
            ValueError: for another embedder than that of the centres.
        """
        chosen: Embedder | None = self.embedder if source == BUILTIN else load_embedder(source)
        if chosen is None:
            raise ValueError(
                f"embedder must be the model {self.embedder_name!r} (its folder or hub id) that the centres were made "
                "with, not builtin"
            )
        if chosen.fingerprint != self.embedder_fingerprint:
            raise ValueError(
                f"the centres were made with the embedder {self.embedder_name!r} "
                f"({self.embedder_fingerprint[:12]}…), not with {chosen.name!r} ({chosen.fingerprint[:12]}…)"
            )
        return chosen


def k_means(vectors: Vectors, count: int, seed: int) -> Vectors:
    """Centres of public vectors by k-means, by mini-batches for more than `MINI_BATCH_ABOVE` of them.

    Args:
        vectors: shape (N, d), of public texts, never private ones.
        count: K, at most the number of different vectors.
        seed: public.

    Returns:
        Shape (K, d), float32.

    Raises:
        ValueError: where there are fewer different vectors than centres.
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans

    validate.integer(minimum=1, count=count)
    validate.integer(seed=seed)
    different = _different(vectors, count)
    if different < count:
        raise ValueError(f"{count} centres need at least as many different public texts, not {different}")
    if len(vectors) > MINI_BATCH_ABOVE:
        search = MiniBatchKMeans(n_clusters=count, n_init=5, random_state=seed)
    else:
        search = KMeans(n_clusters=count, n_init=1, random_state=seed)
    return np.asarray(search.fit(vectors).cluster_centers_, dtype=np.float32)


def _different(vectors: Vectors, enough: int) -> int:
    """How many different rows there are, or at least `enough`; looks at no more blocks than it needs."""
    kept = vectors[:0]
    for start in range(0, len(vectors), 4 * enough):
        kept = np.unique(np.concatenate([kept, vectors[start : start + 4 * enough]]), axis=0)
        if len(kept) >= enough:
            break
    return len(kept)


def most_counted(counts: ArrayLike, kept: int) -> NDArray[np.int64]:
    """The centres of each label with the largest released counts; of equal ones the first.

    Args:
        counts: shape (labels, K), released.
        kept: k′.

    Returns:
        Shape (labels, k′), the numbers of the centres, in increasing order.

    Raises:
        ValueError: for k′ above K.
    """
    released = np.asarray(counts, dtype=np.int64)
    if kept > released.shape[1]:
        raise ValueError(f"kept_centres must be at most the number of centres in the file, {released.shape[1]}: {kept}")
    order = np.argsort(-released, axis=1, kind="stable")[:, : validate.integer(minimum=1, kept=kept)]
    return np.sort(order, axis=1)


def split_slots(counts: Sequence[int], slots: int) -> list[int]:
    """A public number of slots, split in proportion to released counts: largest remainders, at least one each.

    A cell whose share is below one slot gets one; the rest is split over the others. Negative counts are taken as 0,
    and if none is positive all are equal. Exact, in whole numbers; of equal remainders the first is served.

    Raises:
        ValueError: for fewer slots than cells.
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
