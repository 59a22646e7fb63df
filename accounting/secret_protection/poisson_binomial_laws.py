"""Poisson-binomial laws, the counts of successes among independent trials, with a proven relative error.

Every number is a sum of products of non-negative numbers, so each rounding moves a weight by a relative 2⁻⁵³ and
nothing cancels. Convolutions are direct sums, never Fourier transforms. So even the smallest weights keep their
relative accuracy, which tail probabilities need.

Proof: docs/proofs/secret-protection-numerics.md, Theorem 1.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_NEGLIGIBLE = 1e-290
_BLOCK = 64
_ENOUGH_FOR_A_BINOMIAL = 32


class Occurrences(NamedTuple):
    """The law of a count."""

    first: int  # the count of the first weight
    weights: Floats  # float64 of shape (n,), the probabilities of first, first + 1, …
    error: float  # bound on the relative error of each weight
    lost_mass: float  # bound on the probability of all other counts together

    @property
    def counts(self) -> Floats:
        """The counts that have a weight, float64 of shape (n,)."""
        return np.arange(self.first, self.first + self.weights.size, dtype=np.float64)


def poisson_binomial(probabilities: ArrayLike) -> Floats:
    """The law of the number of successes among independent trials.

    Args:
        probabilities: of success, one per trial, each in [0, 1], shape (m,).

    Returns:
        float64 of shape (m + 1,): the probability of k successes, for k = 0, …, m. Each is within a relative
        `weight_error(m)` and an absolute 1e-290 of the exact one.

    Raises:
        ValueError: if `probabilities` is not a vector of probabilities.
    """
    trials = _trials(probabilities)
    law = _law(trials, _NEGLIGIBLE)
    weights = np.zeros(trials.size + 1)
    weights[law.first : law.first + law.weights.size] = law.weights
    return weights


def weight_error(count: int) -> float:
    """A bound on the relative error of the weights that `poisson_binomial` gives for `count` trials.

    Proof: docs/proofs/secret-protection-numerics.md, Theorem 1.
    """
    return (count + 1) * (16 + math.log2(count + 1)) * _UNIT


def occurrences(probabilities: ArrayLike, tail: float) -> Occurrences:
    """The law of the number of successes, without counts of negligible probability: at most `tail`, in (0, 1e-3].

    Probabilities of success as for `poisson_binomial`.
    """
    return _law(_trials(probabilities), tail)


def trimmed(weights: Floats, error: float, tail: float) -> Occurrences:
    """The law with the given weights of 0, 1, … and their relative error, without ends that hold at most `tail`."""
    first, kept = _trim(0, weights, tail / 4)
    return Occurrences(first, kept, error, tail if kept.size < weights.size else 0.0)


def repeated(law: Occurrences, times: int) -> Occurrences:
    """The law of the sum of `times` independent counts, by repeated squaring.

    Proof of its error and lost mass: docs/proofs/secret-protection-numerics.md, Theorem 1.
    """
    first, weights = 0, np.ones(1)
    square_first, square = law.first, law.weights
    left = times
    while left:
        if left & 1:
            first, weights = _trim(first + square_first, np.convolve(weights, square), law.lost_mass)
        left >>= 1
        if left:
            square_first, square = _trim(2 * square_first, np.convolve(square, square), law.lost_mass)
    error = times * (law.error + 2.2 * law.weights.size * (1 + math.log2(times)) * _UNIT)
    return Occurrences(first, weights, error, 8 * times * law.lost_mass)


def envelope(laws: Sequence[Occurrences]) -> Occurrences:
    """A law on 0, …, K that is stochastically larger than each of `laws`; its lost mass counts as infinitely many
    occurrences.

    The law is the weights and `lost_mass` over their sum, exactly.

    Proof: docs/proofs/secret-protection-numerics.md, Theorem 1.
    """
    last = max(law.first + law.weights.size for law in laws)
    lost_mass = max(law.lost_mass for law in laws)
    tails = np.full(last + 1, lost_mass)
    for law in laws:
        above = np.cumsum(law.weights[::-1])[::-1]
        above = above * ((1 + law.error) * (1 + 2 * (law.weights.size + 8) * _UNIT)) + lost_mass
        tails[: law.first] = 1.0
        here = slice(law.first, law.first + law.weights.size)
        tails[here] = np.maximum(tails[here], np.minimum(above, 1.0))
    tails[0] = 1.0
    return Occurrences(0, np.maximum(-np.diff(tails), 0.0), 0.0, lost_mass)


def _trials(probabilities: ArrayLike) -> Floats:
    trials = np.asarray(probabilities, dtype=np.float64)
    if trials.ndim != 1:
        raise ValueError(f"probabilities must be a vector, not an array of shape {trials.shape}")
    wrong = ~((trials >= 0) & (trials <= 1))
    if wrong.any():
        raise ValueError(f"probabilities must be between 0 and 1, not {float(trials[wrong][0])!r}")
    return trials


def _law(trials: Floats, tail: float) -> Occurrences:
    """Binomials of equal probabilities and blocks of 64 trials, convolved two at a time, the shortest first."""
    certain_successes = int(np.count_nonzero(trials == 1))
    values, times = np.unique(trials[(trials > 0) & (trials < 1)], return_counts=True)
    many = times >= _ENOUGH_FOR_A_BINOMIAL
    initial_laws = [_binomial(int(count), float(value)) for value, count in zip(values[many], times[many], strict=True)]
    initial_laws += list(_blocks(np.repeat(values[~many], times[~many])))
    room = tail / (8 * max(len(initial_laws), 1))
    queue: list[tuple[int, int, int, Floats]] = []
    for index, initial in enumerate(initial_laws):
        first, weights = _trim(0, initial, room)
        queue.append((weights.size, index, first, weights))
    heapq.heapify(queue)
    for index in range(len(initial_laws), 2 * len(initial_laws) - 1):
        _, _, first, weights = heapq.heappop(queue)
        _, _, other_first, others = heapq.heappop(queue)
        first, weights = _trim(first + other_first, np.convolve(weights, others), room)
        heapq.heappush(queue, (weights.size, index, first, weights))
    first, weights = (queue[0][2], queue[0][3]) if queue else (0, np.ones(1))
    return Occurrences(certain_successes + first, weights, weight_error(trials.size), tail if queue else 0.0)


def _trim(first: int, weights: Floats, room: float) -> tuple[int, Floats]:
    """The law without the weights at either end that sum to at most `room`."""
    start = int(weights.cumsum().searchsorted(room, side="right"))
    stop = weights.size - int(weights[::-1].cumsum().searchsorted(room, side="right"))
    return first + start, weights[start:stop]


def _binomial(count: int, probability: float) -> Floats:
    """Ratios of neighbouring weights, multiplied away from the mode and normalised: no overflow, no cancellation."""
    mode = min(int((count + 1) * probability), count)
    up, down = np.arange(mode, count), np.arange(mode, 0, -1)
    with np.errstate(under="ignore"):
        above = np.cumprod((count - up) / (up + 1) * (probability / (1 - probability)))
        below = np.cumprod(down / (count - down + 1) * ((1 - probability) / probability)) if mode else np.zeros(0)
        weights = np.concatenate([below[::-1], [1.0], above])
        return np.asarray(weights / weights.sum())


def _blocks(trials: Floats) -> Floats:
    """Laws of 64 trials each, one per row; the last is filled up with probabilities of 0, which cost no rounding."""
    rows = -(-trials.size // _BLOCK)
    table = np.zeros((_BLOCK, rows))
    table.T.flat[: trials.size] = trials
    weights = np.zeros((_BLOCK + 1, rows))
    weights[0] = 1.0
    with np.errstate(under="ignore"):
        for done, hit in enumerate(table):
            weights[1 : done + 2] = weights[1 : done + 2] * (1 - hit) + weights[: done + 1] * hit
            weights[0] *= 1 - hit
    return np.ascontiguousarray(weights.T)
