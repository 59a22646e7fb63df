"""Public clusters, moved by private records that hold secrets, with noise: the release of secret-protected evolution.

Each private record is drawn with a probability of its own, is given to its nearest *public* centre, and adds 1 to that
cluster's count and an offset of length at most 1 to its sum: together a vector of length at most √2, whatever other
records do. Counts and sums get Gaussian noise of √2·σ₁ together, where σ₁ is the noise that occurrences of length 1
need, so that a release is `SecretReleaseDpEvent(σ₁, …)`. What follows, the centres and sizes, is a function of the
noisy numbers and of public ones.

`release_as_published` is the algorithm as it was printed, for comparison: there a record is given to the nearest of
sums that grow, so that one record more can move all that come after it. Nothing bounds what it reveals.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 2 and Theorem 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from cupel.accounting import validate
from cupel.mechanisms.embedding.centres import k_means
from cupel.mechanisms.embedding.embedder import Vectors
from cupel.mechanisms.primitives.nearest import nearest
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Source

MOST_RECORDS = 2**22
"""Up to so many private records, sums of offsets are exact in float64."""

_UNITS = 2**29  # of the radius: positions are whole numbers of R/2²⁹, offsets whole numbers of 2R/2³⁰
_WITHIN = 1 - 2.0**-30
_BLOCK = 2**22  # coordinates of vectors that are held at once


@dataclass(frozen=True, eq=False)
class PublicClusters:
    """Clusters of public records, frozen for a run.

    Attributes:
        vectors: shape (K, d), float32, the centres e_k, of length at most R.
        sizes: shape (K,), int64, the numbers n_k ≥ 1 of public records.
        radius: R, to which every vector is clipped; from 2⁻¹⁰⁰ to 2¹⁰⁰.
    """

    vectors: Vectors
    sizes: NDArray[np.int64]
    radius: float

    def __post_init__(self) -> None:
        vectors, sizes = np.asarray(self.vectors, dtype=np.float32), np.asarray(self.sizes, dtype=np.int64)
        if not 2.0**-100 <= self.radius <= 2.0**100:
            raise ValueError(f"radius must be from 2^-100 to 2^100, not {self.radius!r}; embeddings have length 1")
        if vectors.ndim != 2 or not len(vectors) or not vectors.shape[1] or not np.isfinite(vectors).all():
            raise ValueError("public centres must be a table of finite numbers with at least one row and one column")
        if np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1)).max() > self.radius * 1.0001:
            raise ValueError(f"public centres must not be longer than the radius, {self.radius!r}")
        if sizes.shape != (len(vectors),) or sizes.min() < 1:
            raise ValueError("each public centre needs a size of at least 1")
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "sizes", sizes)

    @classmethod
    def fit(cls, vectors: ArrayLike, count: int, *, radius: float = 1.0, seed: int = 0) -> Self:
        """K-means on the clipped vectors of public records. A centre that is nearest to none of them has size 1.

        Args:
            vectors: shape (N, d), of records without a secret.
            count: K, at most the number of different vectors.
            radius: R.
            seed: public.

        Raises:
            ValueError: for fewer different vectors than centres, or numbers that are not finite.
        """
        rows = np.asarray(vectors)
        if rows.ndim != 2 or not all(np.isfinite(block).all() for block in _blocks(rows)):
            raise ValueError("vectors of public records must be a table of finite numbers")
        clipped = np.empty(rows.shape, dtype=np.float32)
        for block, kept in zip(_blocks(rows), _blocks(clipped), strict=True):
            kept[:] = _in_ball(block, radius) * radius
        centres = k_means(clipped, count, seed)
        found = cls(centres, np.ones(count, dtype=np.int64), radius)
        sizes = np.maximum(np.bincount(found.assign(rows), minlength=count), 1)
        return cls(centres, sizes, radius)

    @property
    def count(self) -> int:
        """K."""
        return len(self.vectors)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over centres, sizes and radius; may be published."""
        digest = hashlib.sha256(f"{self.vectors.shape} {self.radius!r}".encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        digest.update(np.ascontiguousarray(self.sizes, dtype="<i8").tobytes())
        return digest.hexdigest()

    def assign(self, vectors: NDArray[np.floating]) -> NDArray[np.int64]:
        """The nearest public centre of each vector, clipped; the first of several. A function of each vector alone.

        Args:
            vectors: shape (n, d); what is not finite counts as 0.

        Returns:
            Shape (n,). It may be kept and used in every round.
        """
        centres = _in_ball(self.vectors, self.radius)
        pieces = [nearest(_in_ball(rows, self.radius), centres) for rows in _blocks(vectors)]
        return np.concatenate([np.empty(0, dtype=np.int64), *pieces])


@dataclass(frozen=True, eq=False)
class NoisyClusters:
    """What a release makes of public clusters; may be published.

    Attributes:
        centres: shape (K, d), float64.
        sizes: shape (K,), float64; may be negative.
    """

    centres: NDArray[np.float64]
    sizes: NDArray[np.float64]

    def __post_init__(self) -> None:
        centres, sizes = np.asarray(self.centres, dtype=np.float64), np.asarray(self.sizes, dtype=np.float64)
        if centres.ndim != 2 or sizes.shape != (len(centres),):
            raise ValueError("noisy clusters are a table of centres and as many sizes")
        if not (np.isfinite(centres).all() and np.isfinite(sizes).all()):
            raise ValueError("noisy clusters must be finite numbers")
        object.__setattr__(self, "centres", centres)
        object.__setattr__(self, "sizes", sizes)

    def to_json(self) -> dict[str, Any]:
        """Lists of numbers, from which `from_json` makes the same clusters, bit by bit."""
        return {"centres": self.centres.tolist(), "sizes": self.sizes.tolist()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            ValueError: one line, for anything else.
        """
        try:
            return cls(np.array(value["centres"], dtype=np.float64), np.array(value["sizes"], dtype=np.float64))
        except (TypeError, KeyError, ValueError):
            raise ValueError("noisy clusters must be centres and sizes, as `NoisyClusters.to_json` writes") from None


def release(
    clusters: PublicClusters,
    vectors: NDArray[np.floating],
    probabilities: ArrayLike,
    sigma: float,
    source: Source = OS_ENTROPY,
    *,
    assigned: NDArray[np.int64] | None = None,
) -> NoisyClusters:
    """One release: private records are drawn, counted and added up by cluster, and all numbers get noise together.

    Args:
        clusters: public and frozen.
        vectors: shape (n, d), of the private records; what is not finite counts as 0, longer ones are clipped.
        probabilities: shape (n,), ρ_i, with which each takes part.
        sigma: σ₁, for occurrences of length 1; the noise is √2·σ₁ on each of the K(1 + d) numbers.
        source: of draws and noise.
        assigned: `clusters.assign(vectors)`, if it is known already.

    Returns:
        Sizes ñ_k = n_k + m̃_k, and centres e_k + 2R·S̃_k/max(n_k, ñ_k), of the noisy counts m̃ and sums S̃.

    Raises:
        ValueError: for more than `MOST_RECORDS` records, or shapes that do not fit.
    """
    chances = _fitting(clusters, vectors, probabilities)
    if assigned is not None and assigned.shape != chances.shape:
        raise ValueError(f"assigned must have one cluster for each of {len(vectors)} private records")
    counts, sums = drawn_sums(clusters, vectors, source.bernoulli(chances), assigned)
    exact = np.concatenate([counts.astype(np.float64), np.ldexp(sums.astype(np.float64), -30).ravel()])
    return _moved(clusters, source.add_gaussian(exact, joint_scale(sigma)))


def steadied(noisy: NoisyClusters, clusters: PublicClusters, sigma: float) -> NoisyClusters:
    """Noisy clusters, drawn back to the public ones by so much as noise is likely to have moved them too far.

    A vector of d numbers, |x| long, with noise of standard deviation τ each is multiplied by the positive part of
    1 − (d − 2)τ²/|x|² (James and Stein 1961), which lowers its mean squared error whatever the truth is, if d ≥ 3.
    Each centre's shift is such a vector, and so are the K changes of sizes. Where noise is all there is to see, that
    leaves the public clusters. It is a function of what was released, so it is free.

    Args:
        noisy: what `release` gave.
        clusters, sigma: that it was given.
    """
    scale, counts = joint_scale(sigma), noisy.sizes - clusters.sizes
    noise = 2 * clusters.radius * scale / np.maximum(clusters.sizes, noisy.sizes)
    shifts = _drawn_back(noisy.centres - clusters.vectors, noise)
    counts = _drawn_back(counts[None], np.array([scale]))[0]
    return NoisyClusters(clusters.vectors + shifts, clusters.sizes + counts)


def _drawn_back(rows: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows, each with noise of its own standard deviation, by this rule; rows of one or two numbers as they are."""
    squares, excess = np.square(rows).sum(axis=1), max(0, rows.shape[1] - 2) * np.square(noise)
    share = np.divide(excess, squares, out=np.zeros_like(excess), where=squares > 0)
    return np.asarray(rows * np.maximum(0.0, 1 - share)[:, None], dtype=np.float64)


def drawn_sums(
    clusters: PublicClusters,
    vectors: NDArray[np.floating],
    drawn: NDArray[np.bool_],
    assigned: NDArray[np.int64] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What is released, before noise: private.

    A vector x, clipped to R, is put at whole numbers X of R/2²⁹, rounded toward 0, and so is each centre. In floating
    point x is scaled by (1 − 2⁻³⁰)/max(R, |x|), whose relative error is below (d + 8)·2⁻⁵³ < 2⁻³¹, so |X| ≤ 2²⁹ for
    d ≤ 2²¹. The offset X − C of its centre is a vector of whole numbers of length at most 2³⁰, which counts as 1.

    Args:
        clusters, vectors, assigned: as for `release`.
        drawn: shape (n,), which of them take part.

    Returns:
        Counts, shape (K,), and sums of offsets in units of 2⁻³⁰, shape (K, d).
    """
    dimension = clusters.vectors.shape[1]
    counts, sums = np.zeros(clusters.count, dtype=np.int64), np.zeros((clusters.count, dimension), dtype=np.int64)
    index = np.flatnonzero(drawn)
    for start in range(0, len(index), max(1, _BLOCK // dimension)):
        part = index[start : start + max(1, _BLOCK // dimension)]
        rows = vectors[part]
        cluster = clusters.assign(rows) if assigned is None else assigned[part]
        counts += np.bincount(cluster, minlength=clusters.count)
        ones = np.ones(len(part), dtype=np.int64)
        members = csr_array((ones, (cluster, np.arange(len(part)))), shape=(clusters.count, len(part)))
        sums += np.asarray(members @ _positions(rows, clusters.radius), dtype=np.int64)
    return counts, sums - counts[:, None] * _positions(clusters.vectors, clusters.radius)


def joint_scale(sigma: float) -> float:
    """The noise of counts and sums together, at least √2·σ₁: √2 as a float is above √2, and the product goes up."""
    product = math.sqrt(2) * validate.non_negative(sigma=sigma)
    return math.nextafter(product, math.inf) if product else 0.0


def release_as_published(
    clusters: PublicClusters,
    vectors: NDArray[np.floating],
    probabilities: ArrayLike,
    sigma: float,
    source: Source = OS_ENTROPY,
) -> NoisyClusters:
    """Algorithm 2 to the letter: records go to the nearest of sums that grow, and one σ serves counts and centres.

    Args:
        clusters, vectors, probabilities, source: as for `release`; the order of records matters.
        sigma: σ of the published procedure.

    Returns:
        Sizes n_k + m_k + N(0, σ²) and centres e_k/(n_k + m_k) + (2R/n_k)·N(0, σ²I), of the sums e_k.
    """
    drawn = source.bernoulli(_fitting(clusters, vectors, probabilities))
    counts, sums = running_sums(clusters, vectors, drawn)
    sizes = (clusters.sizes + counts).astype(np.float64)
    noise = source.add_gaussian(np.zeros(sums.size + counts.size), sigma)
    spread = 2 * clusters.radius / clusters.sizes[:, None] * noise[counts.size :].reshape(sums.shape)
    return NoisyClusters(sums / sizes[:, None] + spread, sizes + noise[: counts.size])


def running_sums(
    clusters: PublicClusters, vectors: NDArray[np.floating], drawn: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts m_k, shape (K,), and sums e_k, shape (K, d), as Algorithm 2 adds them: record by record, from n_k·e_k."""
    sums = clusters.vectors.astype(np.float64) * clusters.sizes[:, None]
    counts, squares = np.zeros(clusters.count, dtype=np.int64), np.square(sums).sum(axis=1)
    for index in np.flatnonzero(drawn):
        row = np.nan_to_num(np.asarray(vectors[index], dtype=np.float64), posinf=0.0, neginf=0.0)
        row *= clusters.radius / max(float(np.linalg.norm(row)), clusters.radius)
        near = int(np.argmin(squares - 2 * (sums @ row)))
        sums[near] += row
        counts[near] += 1
        squares[near] = np.square(sums[near]).sum()
    return counts, sums


def _moved(clusters: PublicClusters, noisy: NDArray[np.float64]) -> NoisyClusters:
    """Sizes and centres from the noisy counts and sums, and from what is public."""
    counts, sums = noisy[: clusters.count], noisy[clusters.count :].reshape(clusters.vectors.shape)
    sizes = clusters.sizes + counts
    shifts = 2 * clusters.radius * sums / np.maximum(clusters.sizes, sizes)[:, None]
    return NoisyClusters(clusters.vectors + shifts, sizes)


def _fitting(clusters: PublicClusters, vectors: NDArray[np.floating], probabilities: ArrayLike) -> NDArray[np.float64]:
    """The probabilities, if there is one for each vector and not too many."""
    chances = np.asarray(probabilities, dtype=np.float64)
    if vectors.ndim != 2 or vectors.shape[1] != clusters.vectors.shape[1]:
        raise ValueError(f"vectors must have {clusters.vectors.shape[1]} columns, as the public centres do")
    if chances.shape != (len(vectors),):
        raise ValueError(f"each of {len(vectors)} private records needs one probability, not {chances.shape}")
    if len(vectors) > MOST_RECORDS:
        raise ValueError(f"one release takes at most {MOST_RECORDS} private records, not {len(vectors)}")
    return chances


def _in_ball(vectors: NDArray[np.floating], radius: float) -> NDArray[np.float64]:
    """Rows over the radius, clipped to a length below 1, each by itself; one whose square overflows becomes 0."""
    rows = np.nan_to_num(np.asarray(vectors, dtype=np.float64), posinf=0.0, neginf=0.0)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(rows * (_WITHIN / np.maximum(lengths, radius)), dtype=np.float64)


def _positions(vectors: NDArray[np.floating], radius: float) -> NDArray[np.int64]:
    return np.trunc(_in_ball(vectors, radius) * _UNITS).astype(np.int64)


def _blocks(vectors: NDArray[np.floating]) -> Iterator[NDArray[np.floating]]:
    size = max(1, _BLOCK // max(1, vectors.shape[1]))
    return (vectors[start : start + size] for start in range(0, len(vectors), size))
