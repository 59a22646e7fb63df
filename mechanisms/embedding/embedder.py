"""Sentence embeddings: texts become vectors of unit length.

An embedder is public: no part of it was fitted on private text. Each vector is a function of its own text alone, so
adding or removing a record does not change another record's vector. The default, `HashedNgrams`, needs no model: hashed
counts of character n-grams under a fixed public projection, or under one fitted on public text (latent semantic
analysis). `embedding.sentence` has the models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dpassay.base import validate
from dpassay.base.pieces import text_pieces
from dpassay.mechanisms.compute.executor import THIS_PROCESS, Executor
from dpassay.mechanisms.compute.needs import Need, as_it_is, map_with

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Vectors = NDArray[np.float32]

_LARGEST = 2**28
_TEXTS, _CHARACTERS = 1024, 2**22  # limits of a piece whose vectors are computed at once
FIT_TEXTS = 20_000
"""Largest number of public texts on which a projection is fitted."""


class Embedder(Protocol):
    """Maps texts to vectors; public, and each vector is a function of its own text alone."""

    @property
    def name(self) -> str:
        """The display name."""

    @property
    def fingerprint(self) -> str:
        """Differs between embedders that give different vectors."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of shape (N, d), rows of length 1, or 0 for a text in which nothing is recognised."""


@runtime_checkable
class FromFiles(Protocol):
    """An embedder that another process loads from its own files; any other is sent as it is."""

    def loader(self) -> Callable[[], Embedder]:
        """How another process gets the same one; it can be pickled."""


def embedded(embedder: Embedder, texts: Iterable[str], executor: Executor = THIS_PROCESS) -> Iterator[Vectors]:
    """The vectors of many texts, in order, some texts at a time, to limit the memory.

    Raises:
        ValueError: if the embedder does not return what `Embedder` requires.
    """
    yield from map_with(executor, checked_vectors, text_pieces(texts, _TEXTS, _CHARACTERS), needed(embedder))


def all_embedded(embedder: Embedder, texts: Iterable[str], executor: Executor = THIS_PROCESS) -> Vectors:
    """The vectors of texts, shape (N, d).

    Raises:
        ValueError: if the embedder does not return what `Embedder` requires.
    """
    return np.concatenate([np.empty((0, embedder.dimension), dtype=np.float32), *embedded(embedder, texts, executor)])


def checked_vectors(texts: Sequence[str], embedder: Embedder) -> Vectors:
    """The vectors of texts.

    Raises:
        ValueError: if the embedder does not return what `Embedder` requires.
    """
    vectors = embedder.embed(texts)
    right = vectors.shape == (len(texts), embedder.dimension)
    if not right or not (np.square(vectors, dtype=np.float64).sum(axis=1) < 1.0001).all():
        raise ValueError(f"embedder {embedder.name!r} must give one row of length 1 or 0 for each text")
    return vectors


def needed(embedder: Embedder) -> Need[Embedder]:
    """The embedder as pieces of work need it. A worker has the same one only if public texts have the same vectors
    there, bit for bit: otherwise a record's vector would depend on which worker computes it, and so on other records.
    """

    @cache
    def sent() -> tuple[str, Callable[[], Embedder]]:
        load = embedder.loader() if isinstance(embedder, FromFiles) else as_it_is(embedder)
        expected = (embedder.fingerprint, _trial(embedder))
        return " ".join(expected), partial(_loaded_there, load, *expected)

    return Need("embedder", embedder, sent)


def _loaded_there(load: Callable[[], Embedder], fingerprint: str, trial: str) -> Embedder:
    """The embedder on a worker.

    Raises:
        ValueError: if it is another one than the coordinator's.
    """
    embedder = load()
    if embedder.fingerprint != fingerprint:
        raise ValueError(f"{embedder.name} has other files than on the machine that began the run; copy them")
    if _trial(embedder) != trial:
        raise ValueError(
            f"{embedder.name} gives other vectors than on the machine that began the run; use machines of one kind, "
            "with the same packages and number of threads"
        )
    return embedder


def _trial(embedder: Embedder) -> str:
    """SHA-256 of the vectors of public texts of several lengths."""
    digest = hashlib.sha256()
    for times in (0, 1, 2, 3, 5, 8, 13, 40):
        vectors = embedder.embed(["The quick brown fox jumps over the lazy dog. " * times])
        digest.update(np.ascontiguousarray(vectors, dtype="<f4").tobytes())
    return digest.hexdigest()


def unit_rows(vectors: NDArray[np.floating | np.integer]) -> Vectors:
    """Rows scaled to length 1 independently. Rows of zeros stay unchanged; values that are not finite become 0."""
    rows = np.nan_to_num(np.asarray(vectors, dtype=np.float64), posinf=0.0, neginf=0.0)
    lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class HashedNgrams:
    """Log-damped counts of hashed character n-grams under a public projection; the default embedder.

    Without `projection`, the projection is a matrix of random signs from the public seed (Achlioptas 2003), the same on
    every machine. `fitted` computes one from public text.

    Attributes:
        dimension: d.
        buckets: number of values of the hash (MurmurHash3).
        shortest, longest: lengths of the n-grams, in characters, within words.
        seed: public, of the random signs.
        projection: shape (buckets, d), or None for the random signs.
    """

    dimension: int = 128
    buckets: int = 2**14
    shortest: int = 3
    longest: int = 5
    seed: int = 0
    projection: Vectors | None = field(default=None, repr=False)
    _matrix: Vectors = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for name in ("dimension", "buckets", "shortest", "longest"):
            validate.integer(minimum=1, **{name: getattr(self, name)})
        validate.integer(seed=self.seed)
        if self.buckets * self.dimension > _LARGEST:
            raise ValueError(f"buckets · dimension must be at most {_LARGEST} numbers; lower one of them")
        if self.longest < self.shortest:
            raise ValueError(f"longest must be at least shortest ({self.shortest}), not {self.longest}")
        matrix = self._signs() if self.projection is None else np.asarray(self.projection, dtype=np.float32)
        if matrix.shape != (self.buckets, self.dimension) or not np.isfinite(matrix).all():
            raise ValueError(f"projection must be finite and of shape {(self.buckets, self.dimension)}")
        object.__setattr__(self, "_matrix", matrix)

    @classmethod
    def fitted(cls, public_texts: Sequence[str], *, dimension: int = 128, seed: int = 0) -> HashedNgrams:
        """An embedder with a projection from public text: inverse document frequencies and leading singular vectors.

        Args:
            public_texts: never private ones; a seeded choice of at most `FIT_TEXTS` of them is used.
            dimension: the largest d; it is lower if the texts span fewer dimensions.
            seed: of the choice and of the randomised decomposition.

        Raises:
            ValueError: if there are fewer than two texts.

        Source: Deerwester et al., "Indexing by latent semantic analysis" (1990).
        """
        from sklearn.decomposition import TruncatedSVD

        if len(public_texts) < 2:
            raise ValueError(f"fitting a projection needs at least 2 public texts, not {len(public_texts)}")
        generator = np.random.default_rng(seed)
        chosen = generator.choice(len(public_texts), size=min(len(public_texts), FIT_TEXTS), replace=False)
        base = cls(dimension=1, seed=seed)
        counts = base._counts([public_texts[index] for index in np.sort(chosen)])
        frequency = np.bincount(counts.indices, minlength=base.buckets)
        inverse = np.log((1 + counts.shape[0]) / (1 + frequency)) + 1
        width = min(dimension, counts.shape[0] - 1)
        weighted = counts.multiply(inverse).tocsr()
        lengths = np.sqrt(np.asarray(weighted.multiply(weighted).sum(axis=1)).ravel())
        weighted = weighted.multiply(1 / np.maximum(lengths, 1e-300)[:, None]).tocsr()
        with np.errstate(invalid="ignore", divide="ignore"):  # explained variance ratios of 0/0, which are not used
            leading = TruncatedSVD(width, random_state=seed).fit(weighted).components_
        projection = np.asarray(inverse[:, None] * leading.T, dtype=np.float32)
        return cls(dimension=width, seed=seed, projection=projection)

    @property
    def name(self) -> str:
        return "hashed-ngrams"

    @property
    def settings(self) -> dict[str, int]:
        """The parameters that, with the projection, determine this embedder."""
        return {name: getattr(self, name) for name in ("dimension", "buckets", "shortest", "longest", "seed")}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over settings and projection."""
        digest = hashlib.sha256(repr((self.name, sorted(self.settings.items()))).encode())
        digest.update(np.ascontiguousarray(self._matrix, dtype="<f4").tobytes())
        return digest.hexdigest()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Each row is summed in an order that depends on its own n-grams only, so no row depends on another."""
        if not len(texts):
            return np.empty((0, self.dimension), dtype=np.float32)
        return unit_rows(self._counts(texts) @ self._matrix)

    def _counts(self, texts: Sequence[str]) -> csr_matrix:
        """1 + log(count) of each n-gram's bucket, shape (N, buckets)."""
        from sklearn.feature_extraction.text import HashingVectorizer

        hashing = HashingVectorizer(
            analyzer="char_wb",
            ngram_range=(self.shortest, self.longest),
            n_features=self.buckets,
            alternate_sign=False,
            norm=None,
        )
        # Lone surrogates have no UTF-8 encoding, and the resulting error would show the text.
        counts: csr_matrix = hashing.transform([text.encode("utf-8", "replace").decode("utf-8") for text in texts])
        counts.sort_indices()
        counts.data = (1 + np.log(counts.data)).astype(np.float32)
        return counts

    def _signs(self) -> Vectors:
        """±1/√d from SHAKE-256 of the seed."""
        size = self.buckets * self.dimension
        stream = hashlib.shake_256(f"cupel.hashed-ngrams {self.seed}".encode()).digest(-(-size // 8))
        bits = np.unpackbits(np.frombuffer(stream, dtype=np.uint8), count=size)
        signs = (2.0 * bits - 1.0) / np.sqrt(self.dimension)
        return np.asarray(signs.reshape(self.buckets, self.dimension), dtype=np.float32)
