"""Guesses a secret in texts as an embedder places them: each value is written into the records that hold the secret.

`secret_games` puts records where they tell most of a value. Here they lie where their text puts them: most of a text
stays the same whatever the value is, so values share clusters, their offsets hardly differ, and fewer guesses are
right. Both games bound r from below; this one says what is at stake for these texts, and it refutes less.

With u_{v,i} the count and offset that record i adds under value v, and each record drawn with probability ρ_i,

    P[y | v] ∝ Σ_S Π_{i∈S} ρ_i Π_{i∉S} (1 − ρ_i) exp((⟨y, u_S⟩ − ‖u_S‖²/2)/σ²),  u_S = Σ_{i∈S} u_{v,i},

over all sets S of the records that are likeliest to be drawn and may be missing, up to ten; of the others the mean is
taken. The bound holds for any guess; with more than ten records the guess is good and not the best.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from cupel.accounting import validate
from cupel.attacks.secrets.reconstruction import SecretGuesses, Step
from cupel.mechanisms.embedding.embedder import Embedder, all_embedded
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from cupel.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters, release

Floats = NDArray[np.float64]

_SUMMED = 10  # records whose sets are all gone through


@dataclass(frozen=True, slots=True, eq=False)
class TextGame:
    """A secret in its own records.

    Attributes:
        clusters: public, of the claim.
        vectors: shape (V, m, d): of each value in each record.
        probabilities: shape (m,), that each record is drawn.
        sigma: σ₁ > 0 of the release.
        rounds: releases.
    """

    clusters: PublicClusters
    vectors: NDArray[np.float32]
    probabilities: Floats
    sigma: float
    rounds: int = 1
    _sums: _Sums = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        validate.positive(sigma=self.sigma)
        validate.integer(minimum=1, rounds=self.rounds)
        if self.vectors.ndim != 3 or len(self.vectors) < 2 or self.vectors.shape[1:2] != self.probabilities.shape:
            raise ValueError("vectors must be of at least two values, and of each in as many records as are drawn")
        object.__setattr__(self, "_sums", _Sums.of(self.clusters, self.vectors, self.probabilities))

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
    ) -> TextGame:
        """Each value in place of the secret, wherever it occurs.

        Args:
            embedder: of the claim.
            clusters: of the claim.
            texts: m records that hold the secret; private.
            secret: as it stands in them.
            values: V different texts that it could be.
            probabilities: shape (m,), that each record is drawn.
            sigma: σ₁.
            rounds: releases.

        Raises:
            ValueError: where a record does not hold the secret, or values are fewer than two or not different.
        """
        if len(set(values)) != len(values) or len(values) < 2:
            raise ValueError("values must be at least two, and different")
        if not secret or not texts or not all(secret in text for text in texts):
            raise ValueError("every record of the game must hold the secret")
        written = [text.replace(secret, value) for value in values for text in texts]
        vectors = all_embedded(embedder, written).reshape(len(values), len(texts), -1)
        return cls(clusters, vectors, np.asarray(probabilities, dtype=np.float64), sigma, rounds)

    def play(
        self, games: int, *, seed: int, source: Source | None = None, progress: Step | None = None
    ) -> SecretGuesses:
        """Independent games, each with a value drawn uniformly and runs of its own.

        Args:
            games: how many, fixed before.
            seed: of values, and of noise unless there is a source.
            source: of draws and noise; None for a recorded one.
            progress: called with games done and `games`.
        """
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
            else ("the recorded source, which is fast, has the law of the operating system's",),
        )

    def log_likelihood(self, noisy: NoisyClusters) -> Floats:
        """log P[what was released | value], up to what all values have in common; shape (V,)."""
        sizes = self.clusters.sizes.astype(np.float64)
        moved = noisy.centres - self.clusters.vectors.astype(np.float64)
        offsets = moved * (np.maximum(sizes, noisy.sizes) / (2 * self.clusters.radius))[:, None]
        seen = np.concatenate([(noisy.sizes - sizes)[:, None], offsets], axis=1)
        inner = (seen[self._sums.cluster] * self._sums.added).sum(axis=2)
        exponent = inner @ self._sums.drawn - self._sums.lengths
        return np.asarray(logsumexp(exponent / (2 * self.sigma**2) + self._sums.prior, axis=1))

    def _released(self, value: int, source: Source) -> NoisyClusters:
        return release(self.clusters, self.vectors[value], self.probabilities, self.sigma, source)


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """What sets of records add, computed once: everything in the likelihood that no release changes.

    Attributes:
        cluster: shape (V, m), where each value puts each record.
        added: shape (V, m, 1 + d), the count and offset that it adds there.
        drawn: shape (m, sets), whether a record is in a set; the mean for records that are not summed over.
        lengths: shape (V, sets), half the squared length of what a set adds in all.
        prior: shape (sets,), the log-probability of each set.
    """

    cluster: NDArray[np.int64]
    added: Floats
    drawn: Floats
    lengths: Floats
    prior: Floats

    @classmethod
    def of(cls, clusters: PublicClusters, vectors: NDArray[np.float32], chances: Floats) -> _Sums:
        rows = vectors.astype(np.float64)
        cluster = clusters.assign(rows.reshape(-1, rows.shape[2])).reshape(rows.shape[:2])
        norms = np.linalg.norm(rows, axis=2, keepdims=True)
        clipped = rows * np.minimum(1, clusters.radius / np.maximum(norms, 1e-300))
        offsets = (clipped - clusters.vectors[cluster]) / (2 * clusters.radius)
        added = np.concatenate([np.ones_like(norms), offsets], axis=2)
        summed = np.argsort(-chances * (chances < 1), kind="stable")[:_SUMMED]
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
