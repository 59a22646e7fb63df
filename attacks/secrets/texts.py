"""Guesses a secret from texts in their own embeddings: each value is written into the records that hold the secret.

`attacks.secrets.games` places records where they reveal most about a value. Here their text determines where they are:
most of a text does not depend on the value, so values share clusters, their offsets hardly differ, and fewer guesses
are right. Both games bound r from below; this one measures the risk for these texts, and it refutes less.

With u_{v,i} the count and offset that record i adds under value v, and each record included with probability ρ_i,

    P[y | v] ∝ Σ_S Π_{i∈S} ρ_i Π_{i∉S} (1 − ρ_i) exp((⟨y, u_S⟩ − ‖u_S‖²/2)/σ²),  u_S = Σ_{i∈S} u_{v,i},

over all sets S of the records that are most likely to be included but not certain to be, up to ten; for the others the
mean is used. The bound holds for any guess; with more than ten records the guess is good but not optimal. Where records
have fixed weights, nothing is drawn: u_S is the sum of w_i u_{v,i}, and the guess is optimal.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from dpassay.attacks.secrets.reconstruction import SecretGuesses, Step
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.embedding.embedder import Embedder, all_embedded
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from dpassay.mechanisms.secret_evolution.clustering import Inclusion, NoisyClusters, PublicClusters, release

_SUMMED = 10  # number of records over whose subsets the likelihood is summed


@dataclass(frozen=True, slots=True, eq=False)
class TextGame:
    """A secret in its own records.

    Attributes:
        clusters: public, of the claim.
        vectors: shape (V, m, d), the embedding of each record with each value.
        probabilities: shape (m,), the probability that each record is included; with inclusion ``weights`` its weight.
        sigma: σ₁ > 0 of the release.
        rounds: number of releases.
        inclusion: ``coins`` or ``weights``.
    """

    clusters: PublicClusters
    vectors: NDArray[np.float32]
    probabilities: Floats
    sigma: float
    rounds: int = 1
    inclusion: Inclusion = "coins"
    _sums: _LikelihoodTerms = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        validate.positive(sigma=self.sigma)
        validate.integer(minimum=1, rounds=self.rounds)
        if self.vectors.ndim != 3 or len(self.vectors) < 2 or self.vectors.shape[1:2] != self.probabilities.shape:
            raise ValueError(
                "vectors must have shape (V, m, d) with V at least 2 and one probability for each of m records"
            )
        validate.one_of(("coins", "weights"), inclusion=self.inclusion)
        summed = _SUMMED if self.inclusion == "coins" else 0
        terms = _LikelihoodTerms.of(self.clusters, self.vectors, self.probabilities, summed)
        object.__setattr__(self, "_sums", terms)

    @classmethod
    def of_texts(
        cls,
        embedder: Embedder,
        clusters: PublicClusters,
        texts: Sequence[str],
        secret: str,
        values: Sequence[str],
        probabilities: ArrayLike,
        sigma: float,
        *,
        rounds: int = 1,
        inclusion: Inclusion = "coins",
    ) -> TextGame:
        """The game in which each value replaces the secret wherever it occurs.

        Args:
            embedder: of the claim.
            clusters: of the claim.
            texts: m records that hold the secret; private.
            secret: as spelled in the texts.
            values: V distinct values that it could have.
            probabilities, inclusion: of the records.
            sigma: σ₁.
            rounds: number of releases.

        Raises:
            ValueError: if a record does not hold the secret, or there are fewer than two distinct values.
        """
        if len(set(values)) != len(values) or len(values) < 2:
            raise ValueError("values must be at least two distinct texts")
        if not secret or not texts or not all(secret in text for text in texts):
            raise ValueError("texts must have at least one record, and every record must hold the secret")
        written = [text.replace(secret, value) for value in values for text in texts]
        vectors = all_embedded(embedder, written).reshape(len(values), len(texts), -1)
        return cls(clusters, vectors, np.asarray(probabilities, dtype=np.float64), sigma, rounds, inclusion)

    def play(
        self, games: int, *, seed: int, source: Source | None = None, progress: Step | None = None
    ) -> SecretGuesses:
        """Plays independent games, as `SecretGame.play`; without a source, noise is recorded."""
        validate.integer(minimum=1, games=games)
        rng = np.random.default_rng(validate.integer(seed=seed))
        noise = source or Recorded(int(rng.integers(1 << 62)))
        right = 0
        for done in range(games):
            value = int(rng.integers(len(self.vectors)))
            likelihood = sum(self.log_likelihood(self._released(value, noise)) for _ in range(self.rounds))
            right += int(np.argmax(likelihood)) == value
            if progress is not None:
                progress(done + 1, games)
        return SecretGuesses(
            games,
            right,
            1 / len(self.vectors),
            len(self.vectors),
            self.rounds,
            setting="in its own texts",
            assumed=()
            if noise.name == OS_ENTROPY.name
            else ("the recorded source, which is fast, has the same distribution as the operating system's",),
        )

    def log_likelihood(self, noisy: NoisyClusters) -> Floats:
        """log P[release | value], up to a constant that is common to all values; shape (V,)."""
        sizes = self.clusters.sizes.astype(np.float64)
        moved = noisy.centres - self.clusters.vectors.astype(np.float64)
        offsets = moved * (np.maximum(sizes, noisy.sizes) / (2 * self.clusters.radius))[:, None]
        seen = np.concatenate([(noisy.sizes - sizes)[:, None], offsets], axis=1)
        inner = (seen[self._sums.cluster] * self._sums.added).sum(axis=2)
        exponent = inner @ self._sums.drawn - self._sums.lengths
        return np.asarray(logsumexp(exponent / (2 * self.sigma**2) + self._sums.prior, axis=1))

    def _released(self, value: int, source: Source) -> NoisyClusters:
        chosen = (self.clusters, self.vectors[value], self.probabilities, self.sigma, source)
        return release(*chosen, inclusion=self.inclusion)


@dataclass(frozen=True, slots=True, eq=False)
class _LikelihoodTerms:
    """The terms of the likelihood that do not depend on the release, computed once.

    Attributes:
        cluster: shape (V, m), the cluster of each record under each value.
        added: shape (V, m, 1 + d), the count and offset that the record adds there.
        drawn: shape (m, sets), whether a record is in a set; the probability or weight of records that are not summed
            over.
        lengths: shape (V, sets), half the squared length of the total that a set adds.
        prior: shape (sets,), the log-probability of each set.
    """

    cluster: Integers
    added: Floats
    drawn: Floats
    lengths: Floats
    prior: Floats

    @classmethod
    def of(cls, clusters: PublicClusters, vectors: NDArray[np.float32], chances: Floats, most: int) -> _LikelihoodTerms:
        """The terms for sums over the sets of at most `most` records."""
        rows = vectors.astype(np.float64)
        cluster = clusters.assign(rows.reshape(-1, rows.shape[2])).reshape(rows.shape[:2])
        norms = np.linalg.norm(rows, axis=2, keepdims=True)
        clipped = rows * np.minimum(1, clusters.radius / np.maximum(norms, 1e-300))
        offsets = (clipped - clusters.vectors[cluster]) / (2 * clusters.radius)
        added = np.concatenate([np.ones_like(norms), offsets], axis=2)
        summed = np.argsort(-chances * (chances < 1), kind="stable")[:most]
        sets = (np.arange(1 << len(summed)) >> np.arange(len(summed))[:, None] & 1).astype(np.float64)
        drawn = np.repeat(chances[:, None], sets.shape[1], axis=1)
        drawn[summed] = sets
        lengths = np.empty((len(rows), sets.shape[1]))
        for value, (own, where) in enumerate(zip(added, cluster, strict=True)):
            gram = (own @ own.T) * (where[:, None] == where)
            lengths[value] = (drawn * (gram @ drawn)).sum(axis=0) / 2
        with np.errstate(divide="ignore"):
            there, missing = np.log(chances[summed])[:, None], np.log1p(-chances[summed])[:, None]
        return cls(cluster, added, drawn, lengths, np.where(sets > 0, there, missing).sum(axis=0))
