"""The release of secret-protected evolution: public clusters, shifted by private records that hold secrets, plus noise.

Each private record that takes part is assigned to its nearest *public* centre, and adds its weight w to that cluster's
count and w times an offset of length at most 1 to its sum: together a vector of length at most √2·w, whatever the other
records are. By ``coins`` a record takes part with its own probability, with weight 1; by ``weights`` it takes part in
every release, with its own weight. Counts and sums jointly get Gaussian noise of √2·σ₁, where σ₁ is the noise for
vectors of length 1, so a release is `SecretReleaseDpEvent(σ₁, …)`, or with σ₁ over the weight of a secret's records if
weights are fixed. The released centres and sizes are functions of the noisy numbers and of public ones.

Proof for weights: docs/proofs/secret-weights.md, Theorems 1 and 2.

`release_as_published` is the published algorithm, for comparison. There a record is assigned to the nearest of sums
that grow, so adding one record can change the assignment of all later ones. Nothing bounds what it reveals.

Source: "Secret-Protected Evolution for Differentially Private Synthetic Text Generation", Algorithm 2 and Theorem 1.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats, Integers
from dpassay.mechanisms.embedding.centres import k_means
from dpassay.mechanisms.embedding.embedder import Vectors
from dpassay.mechanisms.embedding.stored_vectors import ManyVectors, StoredVectors
from dpassay.mechanisms.primitives.nearest import nearest
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

Inclusion = Literal["coins", "weights"]
"""How private records take part in a release: each with its probability and weight 1, or always with its own weight."""

MAX_RECORDS = 2**22
"""The largest number of private records for which sums of weights and of offsets are exact in float64."""

WEIGHT_BITS = 30
"""Weights are multiples of 2⁻³⁰, and so are the numbers that get noise."""

_UNITS = 2**29  # per radius: positions are integer multiples of R/2²⁹, offsets of 2R/2³⁰
_WITHIN = 1 - 2.0**-30
BLOCK = 2**22  # coordinates of vectors in memory at once


@dataclass(frozen=True, eq=False)
class PublicClusters:
    """Clusters of public records, which do not change during a run.

    Attributes:
        vectors: shape (K, d), float32, the centres e_k, of length at most R.
        sizes: shape (K,), int64, the numbers n_k ≥ 1 of public records.
        radius: R, to which every vector is clipped; from 2⁻¹⁰⁰ to 2¹⁰⁰.
    """

    vectors: Vectors
    sizes: Integers
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
    def fit(cls, vectors: ArrayLike | StoredVectors, count: int, *, radius: float = 1.0, seed: int = 0) -> Self:
        """K-means with a public seed on the clipped vectors of records without a secret, shape (N, d), N at least K. A
        centre that is nearest to no record has size 1.

        Raises:
            ValueError: if there are fewer distinct vectors than centres, or a number is not finite.
        """
        rows = vectors if isinstance(vectors, StoredVectors) else np.asarray(vectors)
        if rows.ndim != 2 or not all(np.isfinite(block).all() for block in _blocks(rows)):
            raise ValueError("vectors of public records must be a table of finite numbers")
        centres = k_means(_clipped(rows, radius), count, seed)
        result = cls(centres, np.ones(count, dtype=np.int64), radius)
        sizes = np.maximum(np.bincount(result.assign(rows), minlength=count), 1)
        return cls(centres, sizes, radius)

    @property
    def count(self) -> int:
        """K."""
        return len(self.vectors)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over centres, sizes and radius; public."""
        digest = hashlib.sha256(f"{self.vectors.shape} {self.radius!r}".encode())
        digest.update(np.ascontiguousarray(self.vectors, dtype="<f4").tobytes())
        digest.update(np.ascontiguousarray(self.sizes, dtype="<i8").tobytes())
        return digest.hexdigest()

    def assign(self, vectors: NDArray[np.floating] | StoredVectors) -> Integers:
        """The nearest public centre of each clipped vector, shape (n,), the first one in case of ties; depends on that
        vector only, so it can be saved and reused in every round. Rows that are not finite count as 0."""
        centres = in_ball(self.vectors, self.radius)
        pieces = [nearest(in_ball(rows, self.radius), centres) for rows in _blocks(vectors)]
        return np.concatenate([np.empty(0, dtype=np.int64), *pieces])


@dataclass(frozen=True, eq=False)
class NoisyClusters:
    """Public clusters shifted by a noisy release, which may be released: float64 centres, shape (K, d), and sizes,
    shape (K,), which may be negative."""

    centres: Floats
    sizes: Floats

    def __post_init__(self) -> None:
        centres, sizes = np.asarray(self.centres, dtype=np.float64), np.asarray(self.sizes, dtype=np.float64)
        if centres.ndim != 2 or sizes.shape != (len(centres),):
            raise ValueError("noisy clusters need a table of centres and one size for each")
        if not (np.isfinite(centres).all() and np.isfinite(sizes).all()):
            raise ValueError("noisy clusters must be finite numbers")
        object.__setattr__(self, "centres", centres)
        object.__setattr__(self, "sizes", sizes)


def release(
    clusters: PublicClusters,
    vectors: NDArray[np.floating] | StoredVectors,
    probabilities: ArrayLike,
    sigma: float,
    source: Source = OS_ENTROPY,
    *,
    inclusion: Inclusion = "coins",
    assigned: Integers | None = None,
) -> NoisyClusters:
    """One release: private records are sampled, counted and summed by cluster, and all numbers jointly get noise.

    Args:
        clusters: public.
        vectors: shape (n, d), of the private records; values that are not finite count as 0, longer ones are clipped.
        probabilities: shape (n,), ρ_i in [0, 1], the probability that each record is included; with inclusion
            ``weights`` its weight.
        sigma: σ₁, for vectors of length 1; each of the K(1 + d) numbers gets noise of √2·σ₁.
        source: of sampling and noise.
        inclusion: ``coins``, or ``weights``: nothing is drawn, and each record counts with ρ_i, rounded down to a
            multiple of 2⁻³⁰.
        assigned: `clusters.assign(vectors)`, if it is already computed.

    Returns:
        Sizes ñ_k = n_k + m̃_k, and centres e_k + 2R·S̃_k/max(n_k, ñ_k), of the noisy counts m̃ and sums S̃.

    Raises:
        ValueError: if there are more than `MAX_RECORDS` records, or shapes do not fit.
    """
    chances = _checked_probabilities(clusters, vectors, probabilities)
    if assigned is not None and assigned.shape != chances.shape:
        raise ValueError(f"assigned must have one cluster for each of {len(vectors)} private records")
    validate.one_of(("coins", "weights"), inclusion=inclusion)
    taken = rounded_weights(chances) if inclusion == "weights" else source.bernoulli(chances)
    counts, sums = exact_sums(clusters, vectors, taken, assigned)
    exact = np.ldexp(np.concatenate([counts, sums.ravel()]).astype(np.float64), -WEIGHT_BITS)
    return _noisy_clusters(clusters, source.add_gaussian(exact, joint_scale(sigma)))


def rounded_weights(weights: Floats) -> Floats:
    """Weights from 0 to 1, rounded down to multiples of 2⁻³⁰.

    Raises:
        ValueError: if a weight is not from 0 to 1.
    """
    if not ((weights >= 0) & (weights <= 1)).all():
        raise ValueError("weights must be numbers from 0 to 1")
    return np.asarray(np.ldexp(np.floor(np.ldexp(weights, WEIGHT_BITS)), -WEIGHT_BITS), dtype=np.float64)


def shrink_to_public(noisy: NoisyClusters, clusters: PublicClusters, sigma: float) -> NoisyClusters:
    """Clusters of a `release`, shrunk towards the public ones, to reduce the effect of the noise (James–Stein
    shrinkage).

    A vector x of d numbers, each with noise of standard deviation τ, is multiplied by the positive part of 1 − (d −
    2)τ²/|x|² (James and Stein 1961), which reduces its mean squared error for every true value, if d ≥ 3. Each centre's
    shift is such a vector, and so are the K changes of sizes. If noise dominates, the result is close to the public
    clusters. This is post-processing of the release, so it has no privacy cost.
    """
    scale, counts = joint_scale(sigma), noisy.sizes - clusters.sizes
    noise = 2 * clusters.radius * scale / np.maximum(clusters.sizes, noisy.sizes)
    shifts = _james_stein(noisy.centres - clusters.vectors, noise)
    counts = _james_stein(counts[None], np.array([scale]))[0]
    return NoisyClusters(clusters.vectors + shifts, clusters.sizes + counts)


def _james_stein(rows: Floats, noise: Floats) -> Floats:
    """Rows, each shrunk for its own noise standard deviation; rows of one or two numbers are unchanged."""
    squares, excess = np.square(rows).sum(axis=1), max(0, rows.shape[1] - 2) * np.square(noise)
    share = np.divide(excess, squares, out=np.zeros_like(excess), where=squares > 0)
    return np.asarray(rows * np.maximum(0.0, 1 - share)[:, None], dtype=np.float64)


def exact_sums(
    clusters: PublicClusters,
    vectors: NDArray[np.floating] | StoredVectors,
    weights: Floats | Bools,
    assigned: Integers | None = None,
) -> tuple[Integers, Integers]:
    """The counts, shape (K,), and sums of offsets, shape (K, d), of a `release`, before noise, in units of 2⁻³⁰. Not
    differentially private; do not release.

    A vector x, clipped to R, is rounded toward 0 to integer multiples X of R/2²⁹, and so is each centre C. In
    floating-point arithmetic x is scaled by (1 − 2⁻³⁰)/max(R, |x|), whose relative error is below (d + 8)·2⁻⁵³ < 2⁻³¹,
    so |X| ≤ 2²⁹ for d ≤ 2²¹. So X − C is an integer vector of length at most 2³⁰. A record of weight W/2³⁰ adds W to
    its count, and to its sum W·(X − C)/2³⁰ with every coordinate rounded toward 0, which is no longer than W.

    Args:
        weights: shape (n,), of the records, multiples of 2⁻³⁰ from 0 to 1; or whether each is drawn, with weight 1.
        clusters, vectors, assigned: as for `release`.
    """
    dimension = clusters.vectors.shape[1]
    counts, sums = np.zeros(clusters.count, dtype=np.int64), np.zeros((clusters.count, dimension), dtype=np.int64)
    units = np.ldexp(np.asarray(weights, dtype=np.float64), WEIGHT_BITS).astype(np.int64)
    centres, index = positions_of(clusters.vectors, clusters.radius), np.flatnonzero(units)
    for start in range(0, len(index), max(1, BLOCK // dimension)):
        part = index[start : start + max(1, BLOCK // dimension)]
        rows, weight = vectors[part], units[part]
        cluster = clusters.assign(rows) if assigned is None else assigned[part]
        members = csr_array((np.ones_like(part), (cluster, np.arange(len(part)))), shape=(clusters.count, len(part)))
        counts += np.asarray(members @ weight, dtype=np.int64)
        offsets = positions_of(rows, clusters.radius) - centres[cluster]
        sums += np.asarray(members @ _weighted(offsets, weight), dtype=np.int64)
    return counts, sums


def _weighted(offsets: Integers, weights: Integers) -> Integers:
    """Integer vectors times W/2³⁰, each coordinate rounded toward 0; products stay below 2⁶⁰."""
    products = offsets * weights[:, None]
    return np.asarray(np.where(products < 0, -(-products >> WEIGHT_BITS), products >> WEIGHT_BITS), dtype=np.int64)


def joint_scale(sigma: float) -> float:
    """The joint noise of counts and sums, at least √2·σ₁: the float √2 exceeds √2, and the product is rounded up."""
    product = math.sqrt(2) * validate.non_negative(sigma=sigma)
    return math.nextafter(product, math.inf) if product else 0.0


def release_as_published(
    clusters: PublicClusters,
    vectors: NDArray[np.floating] | StoredVectors,
    probabilities: ArrayLike,
    sigma: float,
    source: Source = OS_ENTROPY,
) -> NoisyClusters:
    """Algorithm 2 as published, with the arguments of `release`: records are assigned, in order, to the nearest of
    growing sums e_k; one σ serves counts and centres. Sizes are n_k + m_k + N(0, σ²), and centres e_k/(n_k + m_k) +
    (2R/n_k)·N(0, σ²I)."""
    drawn = source.bernoulli(_checked_probabilities(clusters, vectors, probabilities))
    counts, sums = running_sums(clusters, vectors, drawn)
    sizes = (clusters.sizes + counts).astype(np.float64)
    noise = source.add_gaussian(np.zeros(sums.size + counts.size), sigma)
    spread = 2 * clusters.radius / clusters.sizes[:, None] * noise[counts.size :].reshape(sums.shape)
    return NoisyClusters(sums / sizes[:, None] + spread, sizes + noise[: counts.size])


def running_sums(
    clusters: PublicClusters, vectors: NDArray[np.floating] | StoredVectors, drawn: Bools
) -> tuple[Integers, Floats]:
    """Counts m_k, shape (K,), and sums e_k, shape (K, d), by Algorithm 2: record by record, starting from n_k·e_k."""
    sums = clusters.vectors.astype(np.float64) * clusters.sizes[:, None]
    counts, squares = np.zeros(clusters.count, dtype=np.int64), np.square(sums).sum(axis=1)
    for index in np.flatnonzero(drawn).tolist():
        row = np.nan_to_num(np.asarray(vectors[index : index + 1][0], dtype=np.float64), posinf=0.0, neginf=0.0)
        row *= clusters.radius / max(float(np.linalg.norm(row)), clusters.radius)
        near = int(np.argmin(squares - 2 * (sums @ row)))
        sums[near] += row
        counts[near] += 1
        squares[near] = np.square(sums[near]).sum()
    return counts, sums


def _noisy_clusters(clusters: PublicClusters, noisy: Floats) -> NoisyClusters:
    """Sizes and centres from the noisy counts and sums and from public numbers."""
    counts, sums = noisy[: clusters.count], noisy[clusters.count :].reshape(clusters.vectors.shape)
    sizes = clusters.sizes + counts
    shifts = 2 * clusters.radius * sums / np.maximum(clusters.sizes, sizes)[:, None]
    return NoisyClusters(clusters.vectors + shifts, sizes)


def _checked_probabilities(
    clusters: PublicClusters, vectors: NDArray[np.floating] | StoredVectors, probabilities: ArrayLike
) -> Floats:
    """The probabilities, after checking that there is one for each vector and not too many vectors."""
    chances = np.asarray(probabilities, dtype=np.float64)
    if vectors.ndim != 2 or vectors.shape[1] != clusters.vectors.shape[1]:
        raise ValueError(f"vectors must have {clusters.vectors.shape[1]} columns, as the public centres do")
    if chances.shape != (len(vectors),):
        raise ValueError(f"each of {len(vectors)} private records needs one probability, not {chances.shape}")
    if len(vectors) > MAX_RECORDS:
        raise ValueError(f"one release takes at most {MAX_RECORDS} private records, not {len(vectors)}")
    return chances


def in_ball(vectors: NDArray[np.floating], radius: float) -> Floats:
    """Rows divided by the radius and clipped to a length below 1; depends on each row only. Overflow gives 0."""
    rows = np.nan_to_num(np.asarray(vectors, dtype=np.float64), posinf=0.0, neginf=0.0)
    with np.errstate(over="ignore"):
        lengths = np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return np.asarray(rows * (_WITHIN / np.maximum(lengths, radius)), dtype=np.float64)


def positions_of(vectors: NDArray[np.floating], radius: float) -> Integers:
    return np.trunc(in_ball(vectors, radius) * _UNITS).astype(np.int64)


def _clipped(vectors: NDArray[np.floating] | StoredVectors, radius: float) -> ManyVectors:
    """Vectors clipped to the radius; in a file if they come from one."""
    pieces = (in_ball(block, radius) * radius for block in _blocks(vectors))
    if isinstance(vectors, StoredVectors):
        return StoredVectors(pieces, vectors.shape[1])
    clipped = np.empty(vectors.shape, dtype=np.float32)
    for piece, kept in zip(pieces, _blocks(clipped), strict=True):
        kept[:] = piece
    return clipped


def _blocks(vectors: NDArray[np.floating] | StoredVectors) -> Iterator[NDArray[np.floating]]:
    size = max(1, BLOCK // max(1, vectors.shape[1]))
    return (vectors[start : start + size] for start in range(0, len(vectors), size))
