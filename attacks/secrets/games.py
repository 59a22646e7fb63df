"""Games against the release that protects secrets: a value is drawn, released by the real code, and guessed.

The guarantee covers every embedding of the records, so the game may use the worst ones. Each of V values has its own
public cluster e_v. All e_v lie in a small cap around a direction u, and a record with value v lies near −u, tilted
towards e_v: e_v is its nearest centre and, after clipping to R, almost 2R away. So an occurrence adds 1 to the count of
cluster v and a vector of length almost 1 to its offset, √2 in total, and no two values share a coordinate. The records
go through `clustering.release`, including inclusion, clipping and noise. There are no other records, so whether one
record changes the contribution of another is not tested. From the published centres and sizes the attacker computes
one number per value, y_v = ⟨noisy count and offset of cluster v, what an occurrence adds⟩ over the squared length of
what an occurrence adds. This is a sufficient statistic, because the rest is noise that does not depend on the value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpassay.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from dpassay.attacks.black_box.repetitions import repeat
from dpassay.attacks.secrets.reconstruction import ReleaseFunction, SecretGuesses, SecretModel, Step, guess_secrets
from dpassay.base import validate
from dpassay.base.arrays import Floats, Integers
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from dpassay.mechanisms.secret_evolution.clustering import (
    Inclusion,
    NoisyClusters,
    PublicClusters,
    release,
    release_as_published,
)

Noise = Literal["recorded", "os"]
Variant = Literal["sound", "as_published"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)

_ANGLE = 0.1  # between u and an e_v, and between −u and a record
_BEYOND = 4  # distance of a record from the origin in radii, so that a release without clipping is detected
_BASE = 10  # values are encoded by digits, each a point on its own circle: few dimensions with large gaps
_SIZE = 1000  # of public clusters: an occurrence moves the published centre by (ê − e_v)/n, to a relative 1e-3
_MIN_NOISE = 1e-6  # the attacker's σ if there is no noise
_CONTROL_NOISE = 0.01  # a guess is then wrong with a probability far below 1e-100
_AT_A_TIME = {"recorded": 50, "os": 5}  # games of up to 20 rounds between two checkpoints
_SETTINGS = {"recorded": "noise from a recorded source", "os": "noise from the operating system's entropy"}
_ANY = "the claim is for any public records and embeddings, so that each value may have a cluster of its own"
_ASSUMED: dict[str, tuple[str, ...]] = {
    "recorded": (_ANY, "the recorded source, which is fast, has the same distribution as the operating system's"),
    "os": (_ANY,),
}


@dataclass(frozen=True, slots=True, eq=False)
class SecretGame:
    """One secret, its possible values, and the release that it takes part in.

    Attributes:
        clusters: public; cluster v is that of value v.
        vectors: shape (V, d), the record with each value; clusters.assign gives 0, …, V − 1.
        probabilities: shape (m,), the public probability that each record with the secret is included; with inclusion
            ``weights`` its weight.
        sigma: σ₁ of the release.
        rounds: number of releases with fresh noise.
        variant: ``sound`` or ``as_published``.
        inclusion: of a sound release, ``coins`` or ``weights``.
    """

    clusters: PublicClusters
    vectors: NDArray[np.float32]
    probabilities: Floats
    sigma: float
    rounds: int
    variant: Variant = "sound"
    inclusion: Inclusion = "coins"

    def __post_init__(self) -> None:
        validate.non_negative(sigma=self.sigma)
        validate.integer(minimum=1, rounds=self.rounds)
        validate.one_of(("sound", "as_published"), variant=self.variant)
        validate.one_of(("coins", "weights"), inclusion=self.inclusion)
        if self.inclusion == "weights" and (self.variant == "as_published" or not self.probabilities.sum() > 0):
            raise ValueError("weights need a sound release and at least one record with a weight above 0")
        if not np.array_equal(self.clusters.assign(self.vectors), np.arange(len(self.vectors))):
            raise ValueError("the record with value v must be nearest to cluster v")

    @classmethod
    def worst_case(
        cls,
        values: int,
        probabilities: ArrayLike,
        sigma: float,
        *,
        rounds: int = 1,
        variant: Variant = "sound",
        inclusion: Inclusion = "coins",
    ) -> SecretGame:
        """The embeddings that reveal most about a value: V ≥ 2 equally likely ones, and σ₁ ≥ 0."""
        lean = _directions(validate.integer(minimum=2, values=values))
        near, far = math.cos(_ANGLE), math.sin(_ANGLE)
        centres = np.column_stack([np.full(values, near), far * lean]).astype(np.float32)
        records = np.column_stack([np.full(values, -near), far * lean]).astype(np.float32)
        longest = float(np.linalg.norm(np.concatenate([centres, records]).astype(np.float64), axis=1).max())
        clusters = PublicClusters(centres, np.full(values, _SIZE, dtype=np.int64), longest * (1 + 1e-6))
        drawn = np.asarray(probabilities, dtype=np.float64)
        return cls(clusters, _BEYOND * records, drawn, sigma, rounds, variant, inclusion)

    @property
    def model(self) -> SecretModel:
        """The attacker's model of the y_v: their noise is that of the release over the length of an occurrence.

        Records with fixed weights are one occurrence, as long as the sum of their weights.
        """
        noise = self.sigma * math.sqrt(2) if self.variant == "sound" else self.sigma
        return SecretModel.uniform(
            len(self.vectors),
            max(noise, _MIN_NOISE) / math.sqrt(self._squared_length) / self._occurrence_weight,
            weights=poisson_binomial(self.probabilities) if self.inclusion == "coins" else (0.0, 1.0),
            rounds=self.rounds,
        )

    def against(self, noise: Noise) -> ReleaseFunction:
        """The real release, in the form that `guess_secrets` attacks.

        Args:
            noise: ``os`` for the source that protects records; ``recorded`` for a fast source with the same
                distribution that is determined by the game's seed.

        Returns:
            A function from values of shape (n,) to the y_v, shape (n, T, V).
        """

        def play(values: Integers, rng: np.random.Generator) -> Floats:
            source: Source = OS_ENTROPY if noise == "os" else Recorded(int(rng.integers(1 << 62)))
            return np.array(
                [[self._seen(self._release(int(value), source)) for _ in range(self.rounds)] for value in values]
            )

        return play

    def play(
        self, noise: Noise, games: int, *, seed: int, folder: Path | str | None = None, progress: Step | None = None
    ) -> SecretGuesses:
        """Plays independent games, each with its own value and run; resumes interrupted ones.

        Args:
            noise: as for `against`.
            games: number of games, fixed in advance.
            seed: of values, and of recorded noise.
            folder: where finished games are saved; None saves none.
            progress: called with the number of games done and `games`.
        """
        validate.integer(minimum=1, games=games)
        a_time = max(1, _AT_A_TIME[noise] // max(1, self.rounds // 10))
        model, release = self.model, self.against(noise)

        def some(index: int, seeds: np.random.SeedSequence) -> int:
            count = min(a_time, games - index * a_time)
            return guess_secrets(release, model, count, seed=int(seeds.generate_state(1, np.uint64)[0])).right

        def step(done: int, _: int) -> None:
            if progress is not None:
                progress(min(done * a_time, games), games)

        settings = {
            "clusters": self.clusters.fingerprint,
            "vectors": hashlib.sha256(self.vectors.tobytes()).hexdigest(),
            "values": len(self.vectors),
            "probabilities": self.probabilities.tolist(),
            "sigma": self.sigma,
            "rounds": self.rounds,
            "variant": self.variant,
            "noise": noise,
            "games": games,
            "at a time": a_time,
            **({} if self.inclusion == "coins" else {"inclusion": self.inclusion}),
        }
        right = repeat(some, -(-games // a_time), seed=seed, folder=folder, progress=step, settings=settings)
        return SecretGuesses(
            games,
            sum(right),
            model.p,
            len(self.vectors),
            self.rounds,
            setting=_SETTINGS[noise],
            assumed=_ASSUMED[noise],
            best=model.success(),
        )

    def without_noise(self) -> SecretGame:
        """The same game with every record included, with weight 1, and almost no noise, for the control."""
        return dataclasses.replace(self, probabilities=np.ones_like(self.probabilities), sigma=_CONTROL_NOISE)

    def _release(self, value: int, source: Source) -> NoisyClusters:
        records = np.repeat(self.vectors[value][None], len(self.probabilities), axis=0)
        if self.variant == "as_published":
            return release_as_published(self.clusters, records, self.probabilities, self.sigma, source)
        assigned = np.full(len(records), value, dtype=np.int64)  # precomputed, as in a run
        chosen = (self.clusters, records, self.probabilities, self.sigma, source)
        return release(*chosen, inclusion=self.inclusion, assigned=assigned)

    def _seen(self, noisy: NoisyClusters) -> Floats:
        """The y_v of one release, shape (V,); the shift of a centre and the released size determine the offset."""
        sizes = self.clusters.sizes.astype(np.float64)
        divisor = np.maximum(sizes, noisy.sizes) if self.variant == "sound" else sizes
        offsets = (noisy.centres - self._centres) * (divisor / (2 * self.clusters.radius))[:, None]
        inner = noisy.sizes - sizes + (offsets * self._occurrences).sum(axis=1)
        return np.asarray(inner / (self._squared_length * self._occurrence_weight))

    @property
    def _occurrence_weight(self) -> float:
        """The weight of an occurrence in the attacker's model."""
        return 1.0 if self.inclusion == "coins" else float(self.probabilities.sum())

    @property
    def _centres(self) -> Floats:
        return self.clusters.vectors.astype(np.float64)

    @property
    def _occurrences(self) -> Floats:
        rows, radius = self.vectors.astype(np.float64), self.clusters.radius
        clipped = rows * (radius / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), radius))
        return np.asarray((clipped - self._centres) / (2 * radius))

    @property
    def _squared_length(self) -> float:
        """The squared length of what an occurrence adds, count included; equal for all values up to float32."""
        return 1 + float((self._occurrences**2).sum(axis=1).mean())


def _directions(values: int) -> Floats:
    """Unit vectors for 0, …, V − 1, shape (V, 2·digits): each digit is a point on its own circle."""
    digits = max(1, math.ceil(math.log(values, _BASE) - 1e-9))
    index = np.arange(values)[:, None] // _BASE ** np.arange(digits) % _BASE
    angle = index * (2 * math.pi / _BASE)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(digits)
