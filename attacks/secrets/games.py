"""Games against the release that protects secrets: a secret's value is drawn, released by the real code, and guessed.

The guarantee covers every embedding of the records, so the worst ones are fair. Each of V values has a public cluster
e_v of its own. All e_v lie in a small cap around a direction u, and a record with value v lies near −u, leaning to e_v:
e_v is nearest to it and, once it is clipped to R, almost 2R away. So an occurrence adds 1 to the count of cluster v and
a vector of length almost 1 to its offset, √2 in all, and no two values share a coordinate. The records go through
`secret_clustering.release`, inclusion, clipping and noise included. There are no other records, so that whether one
record moves another is not seen. What the attacker takes from the published centres and sizes is one number a value,
y_v = ⟨noisy count and offset of cluster v, what an occurrence adds⟩ over its squared length: a sufficient statistic,
because the rest is noise that no value moves.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cupel.accounting import validate
from cupel.accounting.secret_protection.poisson_binomial_laws import poisson_binomial
from cupel.attacks.black_box.repetitions import repeat
from cupel.attacks.secrets.reconstruction import Release, SecretGuesses, SecretModel, Step, guess_secrets
from cupel.mechanisms.primitives.randomness import OS_ENTROPY, Recorded, Source
from cupel.mechanisms.secret_evolution.clustering import NoisyClusters, PublicClusters, release, release_as_published

Floats = NDArray[np.float64]
Noise = Literal["recorded", "os"]
Variant = Literal["sound", "as_published"]

_ANGLE = 0.1  # between u and an e_v, and between −u and a record
_BEYOND = 4  # radii from the centre to a record, so that a release that does not clip is seen to leak
_BASE = 10  # values are told apart by digits, each a place on a circle of its own: so few dimensions, so wide gaps
_SIZE = 1000  # of public clusters: the published centre then moves by ê − e_v over n, to a relative 1e-3 an occurrence
_LEAST_NOISE = 1e-6  # what the attacker takes for no noise
_CONTROL_NOISE = 0.01  # a guess is then wrong with a probability far below 1e-100
_AT_A_TIME = {"recorded": 50, "os": 5}  # games of up to 20 rounds between two points to resume from
_SETTINGS = {"recorded": "noise from a recorded source", "os": "noise from the operating system's entropy"}
_ANY = "the claim is for any public records and embeddings, so that each value may have a cluster of its own"
_ASSUMED: dict[str, tuple[str, ...]] = {
    "recorded": (_ANY, "the recorded source, which is fast, has the law of the operating system's"),
    "os": (_ANY,),
}


@dataclass(frozen=True, slots=True, eq=False)
class SecretGame:
    """One secret, its values and the release that it takes part in.

    Attributes:
        clusters: public, the cluster of value v at place v.
        vectors: shape (V, d), the record with each value; clusters.assign gives 0, …, V − 1.
        probabilities: shape (m,), the probability that each record with the secret is drawn, public.
        sigma: σ₁, as the release takes it.
        rounds: releases with fresh noise.
        variant: ``sound`` or ``as_published``.
    """

    clusters: PublicClusters
    vectors: NDArray[np.float32]
    probabilities: Floats
    sigma: float
    rounds: int
    variant: Variant = "sound"

    def __post_init__(self) -> None:
        validate.non_negative(sigma=self.sigma)
        validate.integer(minimum=1, rounds=self.rounds)
        validate.one_of(("sound", "as_published"), variant=self.variant)
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
    ) -> SecretGame:
        """The embeddings that tell most of a value.

        Args:
            values: V, how many values are equally likely; at least 2.
            probabilities: shape (m,), that each record with the secret is drawn.
            sigma: σ₁ ≥ 0.
            rounds: releases.
            variant: which release.
        """
        lean = _directions(validate.integer(minimum=2, values=values))
        near, far = math.cos(_ANGLE), math.sin(_ANGLE)
        centres = np.column_stack([np.full(values, near), far * lean]).astype(np.float32)
        records = np.column_stack([np.full(values, -near), far * lean]).astype(np.float32)
        longest = float(np.linalg.norm(np.concatenate([centres, records]).astype(np.float64), axis=1).max())
        clusters = PublicClusters(centres, np.full(values, _SIZE, dtype=np.int64), longest * (1 + 1e-6))
        drawn = np.asarray(probabilities, dtype=np.float64)
        return cls(clusters, _BEYOND * records, drawn, sigma, rounds, variant)

    @property
    def model(self) -> SecretModel:
        """What the attacker knows of the y_v: the noise of each is the release's over the length of an occurrence."""
        noise = self.sigma * math.sqrt(2) if self.variant == "sound" else self.sigma
        return SecretModel.uniform(
            len(self.vectors),
            max(noise, _LEAST_NOISE) / math.sqrt(self._squared_length),
            weights=poisson_binomial(self.probabilities),
            rounds=self.rounds,
        )

    def against(self, noise: Noise) -> Release:
        """The real release, as `guess_secrets` plays against it.

        Args:
            noise: ``os`` for the source that protects records; ``recorded`` for a fast source of the same law that
                follows from the game's seed.

        Returns:
            Called with values of shape (n,) it gives the y_v, shape (n, T, V).
        """

        def play(values: NDArray[np.int64], rng: np.random.Generator) -> Floats:
            source: Source = OS_ENTROPY if noise == "os" else Recorded(int(rng.integers(1 << 62)))
            return np.array(
                [[self._seen(self._release(int(value), source)) for _ in range(self.rounds)] for value in values]
            )

        return play

    def play(
        self, noise: Noise, games: int, *, seed: int, folder: Path | str | None = None, progress: Step | None = None
    ) -> SecretGuesses:
        """Independent games, each with a value and a run of its own; resumed where they were interrupted.

        Args:
            noise: as for `against`.
            games: how many, fixed before.
            seed: of values, and of recorded noise.
            folder: where games that were played are kept; None keeps none.
            progress: called with games done and `games`.
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
        """The same with every record drawn and hardly any noise: what a control plays."""
        return dataclasses.replace(self, probabilities=np.ones_like(self.probabilities), sigma=_CONTROL_NOISE)

    def _release(self, value: int, source: Source) -> NoisyClusters:
        records = np.repeat(self.vectors[value][None], len(self.probabilities), axis=0)
        if self.variant == "as_published":
            return release_as_published(self.clusters, records, self.probabilities, self.sigma, source)
        assigned = np.full(len(records), value, dtype=np.int64)  # known before, as in a run
        return release(self.clusters, records, self.probabilities, self.sigma, source, assigned=assigned)

    def _seen(self, noisy: NoisyClusters) -> Floats:
        """The y_v of one release, shape (V,): a centre's shift tells the offset, once the released size is known."""
        sizes = self.clusters.sizes.astype(np.float64)
        divisor = np.maximum(sizes, noisy.sizes) if self.variant == "sound" else sizes
        offsets = (noisy.centres - self._centres) * (divisor / (2 * self.clusters.radius))[:, None]
        inner = noisy.sizes - sizes + (offsets * self._occurrences).sum(axis=1)
        return np.asarray(inner / self._squared_length)

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
        """Of what an occurrence adds, count included; all values alike, to float32."""
        return 1 + float((self._occurrences**2).sum(axis=1).mean())


def _directions(values: int) -> Floats:
    """Unit vectors for 0, …, V − 1: each digit is a place on a circle of its own; shape (V, 2·digits)."""
    digits = max(1, math.ceil(math.log(values, _BASE) - 1e-9))
    place = np.arange(values)[:, None] // _BASE ** np.arange(digits) % _BASE
    angle = place * (2 * math.pi / _BASE)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1) / math.sqrt(digits)
