"""The distinguishing game on dataset vectors: was it D or its neighbour D′, given all that is released?

The guarantee covers every record and every model, so the game takes the worst ones: the record in question differs from
its negative by twice the clip, in one direction on D and in the opposite one on D′ (or is not in D at all), and votes
for another candidate. Its differences and its vote go through `mechanisms.dataset_vectors.release`: the clip, the sums,
the sample, the noise from the operating system's entropy. The other records differ by nothing, so whether a record
changes another's difference is not tested. The score is the log-likelihood ratio of everything that is released, which
is optimal.

Many games share a release: each has a record, a coordinate of the hidden states and a pair of candidates of its own.
Noise is independent from coordinate to coordinate, so the games are independent.

With the noise of ``as_published`` the sample is known, and the record in question is one of it. Pairs by row are played
on D whose first record is missing on D′, or there has another label: all later records then differ in the other
direction.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dpassay.accounting.adjacency import Adjacency
from dpassay.base import validate
from dpassay.base.arrays import Bools, Floats
from dpassay.mechanisms.dataset_vectors import release
from dpassay.mechanisms.dataset_vectors.generator import DatasetVectors
from dpassay.mechanisms.primitives.randomness import OS_ENTROPY, Source

GAMES = 128
"""The number of games that share a release."""

_CERTAIN = 1e300  # the log-likelihood ratio of what only one side can release
_BEYOND = 2.0  # of the clip, so that a release without clipping is detected


@dataclass(frozen=True, slots=True)
class ReleaseGame:
    """One record, and the releases of the L blocks of its label, which has n records."""

    mechanism: DatasetVectors
    blocks: int
    records: int

    def __post_init__(self) -> None:
        validate.integer(minimum=1, blocks=self.blocks)
        validate.integer(minimum=1, records=self.records)

    @property
    def rate(self) -> float:
        """The probability that a record is in the sample, as far as the adversary knows."""
        sample = self.mechanism.sample
        return 1.0 if sample is None or self.mechanism.variant == "as_published" else sample / self.records

    @property
    def by_row(self) -> bool:
        """Whether a record that leaves its label changes the pair of all later ones."""
        return self.mechanism.rows_shift

    @property
    def votes_differ(self) -> bool:
        """Whether a record may move a vote: with one candidate, replacing it moves none."""
        replaced = self.mechanism.adjacency is Adjacency.REPLACE_ONE
        return self.mechanism.shots > 0 and (self.mechanism.candidates > 1 or not replaced)

    def scores(self, games: int, *, on_d_prime: bool, source: Source = OS_ENTROPY) -> Floats:
        """The log-likelihood ratios of independent games on one side, shape (games,); larger for D′."""
        pieces = [min(GAMES, games - start) for start in range(0, validate.integer(games=games), GAMES)]
        return np.concatenate([np.empty(0), *(self._scores(piece, on_d_prime, source) for piece in pieces)])

    def _scores(self, games: int, on_d_prime: bool, source: Source) -> Floats:
        scores = self.of_sums(self._sums(games, on_d_prime, source))
        return scores + self.of_votes(self._votes(games, on_d_prime, source)) if self.votes_differ else scores

    # What is released

    def _sums(self, games: int, on_d_prime: bool, source: Source) -> Floats:
        """The noisy sums, shape (blocks, games)."""
        count, sign = self._summed(on_d_prime)
        summed = self._drawn(games, source) if self.rate < 1 else np.ones(games, dtype=np.bool_)

        def differences() -> Iterator[Floats]:
            for game in np.flatnonzero(summed):
                difference = np.zeros((self.blocks, games))
                difference[:, game] = sign * _BEYOND
                for _ in range(count):
                    yield difference

        return release.noisy_sum(differences(), (1.0,) * self.blocks, games, self._scale, source)

    def _drawn(self, games: int, source: Source) -> Bools:
        """Whether the record in question is in the sample of each game."""
        size = self.mechanism.sample
        assert size is not None
        return np.array([0 in release.drawn_sample(self.records, size, source) for _ in range(games)])

    def _summed(self, on_d_prime: bool) -> tuple[int, int]:
        """How many records differ from their negatives, and in which direction."""
        if self.by_row:
            return self.records - on_d_prime, 1 if on_d_prime else -1
        if self.mechanism.adjacency is Adjacency.REPLACE_ONE:
            return 1, 1 if on_d_prime else -1
        return int(on_d_prime), 1

    def _votes(self, games: int, on_d_prime: bool, source: Source) -> Floats:
        """The noisy votes for the two candidates of each game, shape (games, 2)."""
        candidates = np.eye(2 * games, dtype=np.float32)
        present = on_d_prime or self.mechanism.adjacency is Adjacency.REPLACE_ONE
        voters = candidates[int(on_d_prime) :: 2] if present else candidates[:0]
        return release.noisy_votes([voters], candidates, self.mechanism.votes_scale, source).reshape(games, 2)

    # What it tells

    @property
    def _scale(self) -> float:
        return release.noise_scale(
            self.mechanism.noise_multiplier,
            self.blocks,
            self.mechanism.adjacency,
            as_published=self.mechanism.variant == "as_published",
        )

    def of_sums(self, noisy: Floats) -> Floats:
        """ln(P[sums | D′]/P[sums | D]) of each game."""
        totals, variance = noisy.sum(axis=0) / release.RADIUS, (self._scale / release.RADIUS) ** 2
        ends = [count * sign for count, sign in map(self._summed, (False, True))]
        if variance == 0:
            middle = self.blocks * sum(ends) / 2 if self.rate == 1 else 0.0
            return np.asarray(_CERTAIN * np.sign(totals - middle))
        likelier = [(end * totals - self.blocks * end**2 / 2) / variance for end in ends]
        if self.rate < 1:  # drawn or not
            with np.errstate(over="ignore"):
                likelier = [np.logaddexp(math.log1p(-self.rate), math.log(self.rate) + item) for item in likelier]
        return np.asarray(likelier[1] - likelier[0])

    def of_votes(self, noisy: Floats) -> Floats:
        before = noisy[:, 0] if self.mechanism.adjacency is Adjacency.REPLACE_ONE else 0.5
        moved, scale = noisy[:, 1] - before, self.mechanism.votes_scale
        return np.asarray(moved / scale**2 if scale else _CERTAIN * np.sign(moved))
