"""A lower bound on ε from estimated log-likelihood ratios of outputs: bets on all thresholds, in both directions.

A test that counts outputs beyond one threshold loses most of what a shift of noise shows. Here each output is bet on by
how much likelier it seems on D′. For an ε and an estimated ratio r let π = 1/(1 + e^−r) and

    h = min(c, max(0, (1 + e^ε)·π − e^ε)),   g = min(c, max(0, (1 + e^ε)·(1 − π) − e^ε)),

with a cap c in [0, 1]. A run on D multiplies the wealth by (1 − h + e^−ε·g)/k, a run on D′ by (1 + e^−ε·h − g)/k, with
k = 1 + e^−ε·δ·(sup h + sup g)/2. If (ε, δ)-DP holds, a pair of runs gains nothing on average, whatever the estimates
are, so the wealth ever reaches 1/β with probability at most β (Ville). For symmetric noise, true estimates and δ = 0 no
other bet has a larger mean logarithm: the wealth is the likelihood ratio against the nearest pair of laws of an ε-DP
mechanism. docs/proofs/score-bets.md has the proofs.

Several estimates are bet on in parallel; the wealth is their mean. Estimates and caps may change with what was seen
before the bet.

Source: Waudby-Smith and Ramdas, "Estimating Means of Bounded Random Variables by Betting" (2024); Grünwald, de Heide
and Koolen, "Safe Testing" (2024), for the nearest pair.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from dpassay.accounting.adjacency import Adjacency, Unit
from dpassay.accounting.bounds import ANY_MECHANISM, Bound, Direction, Rigor
from dpassay.audits.statistics.counts import count
from dpassay.base import validate
from dpassay.base.arrays import Floats
from dpassay.base.number_format import format_lower, format_upper

LEVEL = 0.1
"""Ratios are rounded to multiples of it, which costs bets little and makes them functions of counts."""

_CAPS = (1 - 1e-9, 0.3, 0.1, 0.03)  # below 1, so that no factor is 0
_ROUNDING = 1e-12  # taken off the logarithm of every factor, more than rounding errors add to it
_STEP = 0.01  # of the grid of ε
_LARGEST = 16.0


@dataclass(frozen=True, slots=True)
class Counted:
    """Numbers of outputs on D and on D′ by their rounded ratio.

    Attributes:
        on_d, on_d_prime: shape (levels,), from the level `first` on.
        first: the first level, a multiple of `LEVEL`; it and the last one bound what the estimate can give.
    """

    first: int
    on_d: Floats
    on_d_prime: Floats

    @classmethod
    def of(
        cls,
        on_d: Floats,
        on_d_prime: Floats,
        least: float,
        most: float,
        weights: tuple[Floats | None, Floats | None] = (None, None),
    ) -> Counted:
        """Counts ratios that lie between `least` and `most`, each once unless weights are given."""
        low, high = (round(end / LEVEL) for end in (least, most))
        sides = [
            np.bincount(np.clip(np.rint(side / LEVEL), low, high).astype(np.int64) - low, each, high - low + 1)
            for side, each in zip((on_d, on_d_prime), weights, strict=True)
        ]
        return cls(low, *(side.astype(np.float64) for side in sides))

    @property
    def ratios(self) -> Floats:
        """The rounded ratios, ascending, shape (levels,)."""
        return np.asarray((self.first + np.arange(len(self.on_d))) * LEVEL)


def log_gains(seen: Counted, new: Counted, epsilons: Floats, delta: float, *, always: bool = False) -> Floats:
    """The logarithm of the factor by which new outputs change the wealth, for every ε, shape (G,).

    For every ε the cap is the one that would have gained most on the outputs seen before; there is no bet if all would
    have lost, unless it is always bet.

    Args:
        seen, new: counts by the same estimate.
        epsilons: shape (G,), at least 0.
        delta: δ in [0, 1).
        always: whether to bet where all caps would have lost.
    """
    ratios = seen.ratios
    grown, shrunk = np.exp(epsilons), np.exp(-epsilons)
    at, side = np.nonzero(seen.on_d + seen.on_d_prime + new.on_d + new.on_d_prime)[0], np.array([1.0, -1.0])
    stakes = (1 + grown) * special.expit(side[:, None, None] * ratios[at, None]) - grown  # h and g, not clipped
    ends = (1 + grown) * special.expit(side * ratios[[-1, 0]])[:, None] - grown  # the largest of either
    counts = [(counted.on_d[at], counted.on_d_prime[at]) for counted in (seen, new)]
    runs = new.on_d.sum() + new.on_d_prime.sum()
    most, gains = np.full(len(epsilons), -math.inf if always else 0.0), np.zeros(len(epsilons))
    for cap in _CAPS if delta else _CAPS[:1]:
        h, g = np.clip(stakes, 0.0, cap)
        paid = np.log1p(shrunk * delta * np.clip(ends, 0.0, cap).sum(axis=0) / 2)
        logs = np.log1p(shrunk * g - h) - paid, np.log1p(shrunk * h - g) - paid
        before, after = (sum(side @ log for side, log in zip(sides, logs, strict=True)) for sides in counts)
        better = before > most
        most, gains = np.where(better, before, most), np.where(better, after - _ROUNDING * runs, gains)
    return gains


class ScoreWealth:
    """The wealth against every ε of a grid.

    Args:
        epsilons: shape (G,), ascending from 0.
        delta: δ in [0, 1).
    """

    def __init__(self, epsilons: Floats, delta: float) -> None:
        self.epsilons, self.delta = epsilons, validate.probability_below_one(delta=delta)
        self.log, self.best = np.zeros(len(epsilons)), np.zeros(len(epsilons))
        """Logarithm of the wealth, and its running maximum."""
        self._each: dict[str, Floats] = {}

    def update(self, bets: Mapping[str, tuple[Counted, Counted]]) -> None:
        """Adds runs, as many on D as on D′.

        Args:
            bets: by estimate, the outputs on which bets are chosen, seen before, and the new ones.
        """
        before = np.stack([self._each.get(name, self.log) for name in bets])
        gained = np.stack([log_gains(*each, self.epsilons, self.delta) for each in bets.values()])
        after = before + gained
        self.log = self.log + special.logsumexp(after, axis=0) - special.logsumexp(before, axis=0)
        self.best = np.maximum(self.best, self.log)
        self._each = dict(zip(bets, after, strict=True))

    def leading(self, epsilon: float) -> str:
        """The estimate that has gained most against an ε."""
        place = int(np.searchsorted(self.epsilons, epsilon))
        return max(self._each, key=lambda name: float(self._each[name][min(place, len(self.epsilons) - 1)]))

    def epsilon(self, confidence: float) -> float:
        """The largest ε of the grid such that all up to it are rejected; 0 if none is."""
        kept = ~(self.best >= -math.log1p(-validate.open_probability(confidence=confidence)))
        rejected = int(kept.argmax()) if kept.any() else len(kept)
        return float(self.epsilons[max(0, rejected - 1)])

    def bound(self, confidence: float, runs: int, adjacency: Adjacency | str, unit: Unit | None = None) -> Bound:
        """The bound after so many runs on each data set, which was valid after every update."""
        return Bound(
            direction=Direction.LOWER,
            value=self.epsilon(confidence),
            method="score_bets",
            rigor=Rigor.FINITE_SAMPLE,
            adjacency=Adjacency(adjacency),
            unit=unit or Unit(),
            delta=self.delta or None,
            confidence=confidence,
            ceiling=most_shown(runs, delta=self.delta, confidence=confidence),
            null_family=ANY_MECHANISM,
            assumptions=("each run is independent of the others", "each bet was fixed before its runs"),
        )


@dataclass(frozen=True, slots=True)
class DetectableByBets:
    """The smallest leaks that bets find with about 50 % power; None if there is none.

    Attributes:
        claim: ε that the bound is to exceed.
        epsilon: ε of randomised response.
        noise: standard deviation of Gaussian noise, as a multiple of what the exchanged record moves the output by.
    """

    claim: float
    epsilon: float | None
    noise: float | None

    def sentence(self) -> str:
        """The leaks, as one sentence."""
        leaks = []
        if self.noise is not None:
            moved = (
                f"has a standard deviation of {format_lower(self.noise, 3)} times what the record moves the output by"
            )
            leaks.append(f"the noise is Gaussian and {moved}")
        if self.epsilon is not None:
            leaks.append(f"the mechanism is randomised response of ε = {format_upper(self.epsilon, 3)}")
        if not leaks:
            return "A test of this size has less than 50 % power to refute the claim, whatever leaks."
        return f"A test of this size has about 50 % power to refute the claim if {', or if '.join(leaks)}."

    def to_json(self) -> dict[str, Any]:
        """The numbers as plain JSON types."""
        return {**dataclasses.asdict(self), "chance": 0.5}


@functools.lru_cache(maxsize=256)
def detectable_by_bets(
    runs: int, claim: float, *, delta: float, confidence: float, learning: float = 0.0
) -> DetectableByBets:
    """The leaks against whose true likelihood ratio bets gain log 1/β and the cost of learning in the mean.

    The logarithm of the wealth is a sum of many small terms, so that it exceeds its mean with a probability of about
    one half.

    Args:
        runs: number of runs on each data set that are bet on.
        claim: ε ≥ 0 that the bound is to exceed.
        delta, confidence: of the bound.
        learning: what estimated ratios lose in the logarithm of the wealth.
    """
    needed = -math.log1p(-validate.open_probability(confidence=confidence)) + learning
    most = round(math.log(4 * runs + 1) / LEVEL)
    edges = (np.arange(-most, most) + 0.5) * LEVEL

    def found(on_d: Floats, on_d_prime: Floats) -> bool:
        law = Counted(-most, runs * on_d, runs * on_d_prime)
        return bool(log_gains(law, law, np.array([claim]), delta)[0] >= needed)

    def found_shift(size: float) -> bool:  # the ratio of N(μ, 1) to N(0, 1) is normal with means ∓μ²/2, variance μ²
        sides = (special.ndtr((edges - sign * size**2 / 2) / size) for sign in (-1.0, 1.0))
        return found(*(np.diff(side, prepend=0.0, append=1.0) for side in sides))

    def found_response(epsilon: float) -> bool:
        law = np.zeros(2 * most + 1)
        level = min(round(epsilon / LEVEL), most)
        law[most + level], law[most - level] = special.expit(epsilon), special.expit(-epsilon)
        return found(law[::-1], law)

    shift = _least(found_shift)
    return DetectableByBets(claim, _least(found_response), None if shift is None else 1 / shift)


def _least(found: Callable[[float], bool]) -> float | None:
    """The least positive number from which on something is found, to a relative 1e-6; None if it is above 1000."""
    high = 1.0
    while not found(high):
        high *= 2
        if high > 1000:
            return None
    low = 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def grid(*, delta: float, confidence: float, runs: int, claimed: float | None = None) -> Floats:
    """ε from 0 to above what so many runs on each data set can show, with a claimed ε and one just above it."""
    most = min(most_shown(runs, delta=delta, confidence=confidence), _LARGEST)
    points = np.round(np.arange(0.0, most + _STEP, _STEP), 2)
    if claimed is not None and claimed < most:
        points = np.union1d(points, [claimed, claimed * 1.001 + 1e-6])
    return points


def most_shown(runs: int, *, delta: float, confidence: float) -> float:
    """No outputs of so many runs on each data set show more than this ε.

    A pair of runs multiplies the wealth by at most ((1 + e^−ε)/(1 + δ·e^−ε))², which is 1/β^(1/runs) here.
    """
    validate.probability_below_one(delta=delta)
    size = count(1, runs=runs)
    grown = math.expm1(-math.log1p(-validate.open_probability(confidence=confidence)) / (2 * size))
    if not 0 < grown < 1 - delta * (1 + grown):
        return 0.0
    return -math.log(grown / (1 - delta * (1 + grown)))
