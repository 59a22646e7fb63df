"""Neighbouring data sets and an attacker for each event: what an upper bound must never be below.

For each event there are explicit mechanisms that the event describes, on explicit neighbours. Their two output laws are
cut into cells whose masses come from the definition of the noise: quadrature of its density, or a sum of its
probabilities. A composition is the product of the cells, outcome by outcome. The attacker sees the cell, never more,
so `at least` answers hold for the mechanism itself; merging cells keeps that true. If the bounds of the density ratio
in each cell are known, `at most` answers hold, too.

Nothing here is shared with the accountants: no loss distribution, no lattice, no transform, no Rényi or Gaussian closed
form, no theorem on sampling, composition or groups. (`oracle.py` is not used: it adds the μ² of Gaussians and takes
samples without replacement from the theorem, as the code does.)

Float error is derived and carried: `error` bounds the relative error of each mass, and answers count it.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from dp_accounting import DpEvent, dp_event
from numpy.typing import NDArray

from dpassay.accounting.events import (
    BoundedRangeSelectionDpEvent,
    DiscreteGaussianDpEvent,
    EpsilonDeltaDpEvent,
    ExPostSelectionDpEvent,
    ParallelDpEvent,
    PermuteAndFlipDpEvent,
    RandomAllocationDpEvent,
    SecretGroupsReleaseDpEvent,
    SecretReleaseDpEvent,
    ShuffledBatchesDpEvent,
    TruncatedPoissonSampledDpEvent,
)

Array = NDArray[np.float64]
Mixture = tuple[Sequence[float], Sequence[float]]
"""Weights and means."""
REMOVE, ADD = "remove", "add"

_UNIT = 2.0**-53
_MAX_CELLS = 300
_REACH = 9.0  # standard deviations; beyond lies less than e^{−81/2} < 3e-18
_TAIL = math.exp(-(_REACH**2) / 2)
_STEP = 0.15  # of a standard deviation
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)
_QUADRATURE = 1e-12
"""Of a cell's mass under a normal law at most 36 deviations away: twelve nodes are exact to h²⁴·36²⁴·(12!)⁴/(25·(24!)³)
< 1e-20 relatively for h = 0.15, and exponents of at most 36²/2 have an absolute error below 648·4u < 3e-13."""
_MIN_MASS, _LARGEST = 1e-290, 600.0
"""Masses below the first may have lost digits by underflow; an ε above the second is asked of certain outcomes only."""


Losses = tuple[Array, Array]


@dataclass(frozen=True)
class Pair:
    """The laws P (with the unit) and Q (without it, or with another) of a cell.

    Attributes:
        p, q: masses of each cell; cells may be left out, which only weakens the attacker.
        low, high: bounds on log p/q inside each cell; infinite where one law never gives it.
        error: bounds the relative error of each mass.
        lost: at most so much mass of P, and of Q, lies outside the cells.
        known: `low`, `high` and `lost` are bounds, and the neighbours are the worst that there are.
        losses: of a composition, for each direction masses of the law to detect and upper bounds on their losses;
            otherwise `low` and `high` say the same.
    """

    p: Array
    q: Array
    low: Array
    high: Array
    error: float
    lost: float = 0.0
    known: bool = True
    losses: tuple[Losses, Losses] | None = None

    @staticmethod
    def of(p: Sequence[Any], q: Sequence[Any], *, error: float = 16 * _UNIT, known: bool = True) -> Pair:
        """Two probability vectors."""
        first, second = (np.array([float(value) for value in side]) for side in (p, q))
        ratio = _log_ratio(first, second)
        room = 1e-12 * (1 + np.abs(np.nan_to_num(ratio, posinf=0, neginf=0)))
        return Pair(first, second, ratio - room, ratio + room, error, known=known)

    @staticmethod
    def nothing() -> Pair:
        return Pair.of([1], [1])

    def reversed(self) -> Pair:
        losses = None if self.losses is None else (self.losses[1], self.losses[0])
        return replace(self, p=self.q, q=self.p, low=-self.high, high=-self.low, losses=losses)

    def only_at_least(self) -> Pair:
        return replace(self, known=False)

    # --- composition

    def times(self, other: Pair) -> Pair:
        """Both outcomes are seen."""
        p, q = (np.multiply.outer(*sides) for sides in ((self.p, other.p), (self.q, other.q)))
        possible = (p > 0) | (q > 0)
        with np.errstate(invalid="ignore"):  # inf − inf where neither law gives both outcomes
            bounds = (np.add.outer(*sides) for sides in ((self.low, other.low), (self.high, other.high)))
            p, q, low, high = (each[possible] for each in (p, q, *bounds))
        error = self.error + other.error + 4 * _UNIT
        known = self.known and other.known
        losses = None
        if known:
            losses = _added(self.bounds(REMOVE), other.bounds(REMOVE)), _added(self.bounds(ADD), other.bounds(ADD))
        return Pair(p, q, low, high, error, self.lost + other.lost, known, losses)._merged()

    def bounds(self, direction: str) -> Losses:
        """Masses and upper bounds on their losses."""
        if self.losses is not None:
            return self.losses[direction == ADD]
        return (self.p, self.high) if direction == REMOVE else (self.q, -self.low)

    def power(self, count: int) -> Pair:
        result, square = Pair.nothing(), self
        while count:
            result = result.times(square) if count & 1 else result
            count >>= 1
            square = square.times(square) if count else square
        return result

    def mixed(self, rate: float) -> Pair:
        """(1 − q)Q + qP over Q: the unit takes part with probability q, and whether it did is not seen."""
        p = (1 - rate) * self.q + rate * self.p
        low, high = (_log_mixed(rate, side) for side in (self.low, self.high))
        room = 1e-12 * (1 + np.abs(low))
        return replace(self, p=p, low=low - room, high=high + room, error=self.error + 8 * _UNIT, losses=None)

    def seen_with_chance(self, chance: float) -> Pair:
        """A release that takes place with a probability, and it is seen whether it did."""
        return Pair.of([1 - chance], [1 - chance])._beside(replace(self, p=chance * self.p, q=chance * self.q))

    def with_revealed(self, mass: float) -> Pair:
        """With probability `mass` P gives an outcome that Q never gives."""
        kept = replace(
            self, p=(1 - mass) * self.p, low=self.low + math.log1p(-mass), high=self.high + math.log1p(-mass)
        )
        return Pair.of([mass], [0.0])._beside(kept) if mass else self

    def _beside(self, other: Pair) -> Pair:
        p, q, low, high = (
            np.concatenate([getattr(self, name), getattr(other, name)]) for name in ("p", "q", "low", "high")
        )
        error = max(self.error, other.error) + 4 * _UNIT
        return Pair(p, q, low, high, error, self.lost + other.lost, self.known and other.known)  # no composition yet

    def _merged(self) -> Pair:
        """Cells of nearly equal ratio as one."""
        if self.p.size <= _MAX_CELLS:
            return self
        finite = ~(np.isposinf(self.low) | np.isneginf(self.high))
        inside = np.where(finite, np.clip(_log_ratio(self.p, self.q), -1e4, 1e4), 0.0)
        ends = []
        for mass, sign in ((self.q, -1), (self.p, 1)):
            total = mass[finite].sum()
            mean = (mass * inside)[finite].sum() / total
            ends.append(mean + sign * 9 * math.sqrt((mass * (inside - mean) ** 2)[finite].sum() / total))
        index = np.clip((inside - ends[0]) / max(ends[1] - ends[0], 1e-300) * _MAX_CELLS, 0, _MAX_CELLS - 1)
        index = np.where(finite, index.astype(int), np.where(self.low > 0, _MAX_CELLS, _MAX_CELLS + 1))
        used, index = np.unique(index, return_inverse=True)
        p, q = (np.bincount(index, weights=mass).astype(np.float64) for mass in (self.p, self.q))
        low, high = np.full(used.size, np.inf), np.full(used.size, -np.inf)
        np.minimum.at(low, index, self.low)
        np.maximum.at(high, index, self.high)
        return replace(self, p=p, q=q, low=low, high=high, error=self.error + self.p.size * _UNIT)

    # --- what an attacker who sees the cell attains

    def delta_at_least(self, epsilon: float, direction: str) -> float:
        """P(E) − e^ε Q(E) for the best union E of cells."""
        p, q, only_p = self._sides(direction)
        room = self.error + (p.size + 8) * _UNIT
        if epsilon > _LARGEST:
            return float(p[only_p].sum() * (1 - room))
        excess = p * (1 - room) - math.exp(epsilon) * q * (1 + room)
        return float(excess[excess > 0].sum())

    def power_at_least(self, level: float, direction: str) -> float:
        """P(E) for the best randomised test with Q(E) ≤ `level`."""
        p, q, _ = self._sides(direction)
        room = self.error + (p.size + 8) * _UNIT
        p, q = p * (1 - room), q * (1 + room)
        order = np.argsort(-_log_ratio(p, q))
        p, q = p[order], q[order]
        before = np.concatenate([[0.0], np.cumsum(q)[:-1]]) * (1 + room)
        share = np.where(q > 0, np.clip((level - before) / np.where(q > 0, q, 1), 0, 1), before <= level)
        return float((p * share).sum() * (1 - room))

    def renyi_at_least(self, order: float, direction: str) -> float:
        """log(Σ p^α q^{1 − α})/(α − 1) over the cells."""
        p, q, only_p = self._sides(direction)
        if (p[only_p] > 0).any():
            return math.inf
        p, q = p[p > _MIN_MASS], q[p > _MIN_MASS]
        logs = order * np.log(p) + (1 - order) * np.log(q)
        top = float(logs.max())
        total = top + math.log(float(np.exp(logs - top).sum()))
        room = 2 * order * (self.error + 800 * 2 * _UNIT) + p.size * _UNIT
        return (total - room) / (order - 1)

    def loss_at_least(self, direction: str) -> float:
        """log p/q of the worst cell."""
        p, q, _ = self._sides(direction)
        return float(_log_ratio(p, q)[p > _MIN_MASS].max()) - 2 * self.error - 1e-12

    # --- what no attacker exceeds

    def delta_at_most(self, epsilon: float, direction: str) -> float:
        assert self.known
        mass, loss = self.bounds(direction)
        kept = loss > epsilon
        part = float((mass[kept] * -np.expm1(epsilon - loss[kept])).sum())
        return part * (1 + self.error + (mass.size + 8) * _UNIT) + self.lost

    def power_at_most(self, level: float, direction: str) -> float:
        """Of the lines e^ε p + δ(ε), which all lie above the power, those near where the best test ends."""
        p, q, _ = self._sides(direction)
        order = np.argsort(-_log_ratio(p, q))
        last = min(int(np.searchsorted(np.cumsum(q[order]), level)), p.size - 1)
        ratio = float(np.clip(_log_ratio(p, q)[order][last], -700, 700))
        lines = [
            math.exp(epsilon) * level + self.delta_at_most(epsilon, direction)
            for epsilon in (ratio + shift for shift in (-0.2, -0.05, 0.0, 0.05, 0.2))
        ]
        return min(1.0, *lines) * (1 + 8 * _UNIT)

    def _sides(self, direction: str) -> tuple[Array, Array, NDArray[np.bool_]]:
        """The law to detect, the other, and where that is 0; elsewhere it is raised to a number with all digits."""
        p, q, only_p = (self.p, self.q, np.isposinf(self.low))
        if direction == ADD:
            p, q, only_p = self.q, self.p, np.isneginf(self.high)
        return p, np.where(only_p, 0.0, np.maximum(q, _MIN_MASS)), only_p


def _added(first: Losses, second: Losses) -> Losses:
    """All sums of two losses; where there are many, each is raised to the largest of its bin."""
    mass = np.multiply.outer(first[0], second[0]).ravel()
    possible = mass > 0
    with np.errstate(invalid="ignore"):
        mass, loss = mass[possible], np.add.outer(first[1], second[1]).ravel()[possible]
    if mass.size <= _MAX_CELLS:
        return mass, loss
    finite = np.isfinite(loss)
    mean = float((mass * np.where(finite, loss, 0.0)).sum() / mass.sum())
    inside = np.where(finite, loss, mean)
    spread = 9 * math.sqrt(float((mass * (inside - mean) ** 2).sum() / mass.sum())) + 1e-300
    index = np.clip((inside - mean + spread) / (2 * spread) * _MAX_CELLS, 0, _MAX_CELLS - 1).astype(int)
    index = np.where(loss == np.inf, _MAX_CELLS, index)
    most = np.full(_MAX_CELLS + 1, -np.inf)
    np.maximum.at(most, index, loss)
    total = np.bincount(index, weights=mass, minlength=_MAX_CELLS + 1).astype(np.float64)
    return total[total > 0], most[total > 0]


def _log_ratio(p: Array, q: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(np.log(p) - np.log(q), nan=0.0, posinf=np.inf, neginf=-np.inf))


def _log_mixed(rate: float, log_ratio: Array) -> Array:
    """log(1 − q + q e^x)."""
    if rate == 1:
        return log_ratio
    with np.errstate(divide="ignore"):
        return np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)


# --- laws on the line


def gaussians(first: Mixture, second: Mixture, deviation: float, *, known: bool = True) -> Pair:
    """Mixtures of normal laws, in cells of equal width."""
    means = [*first[1], *second[1]]
    start, end = min(means) - _REACH * deviation, max(means) + _REACH * deviation
    assert max(means) - min(means) <= 27 * deviation, "the quadrature is not meant for so little noise"
    edges = np.linspace(start, end, math.ceil((end - start) / (_STEP * deviation)) + 1)
    half = (edges[1] - edges[0]) / 2
    points = (edges[:-1] + half)[:, None] + half * _NODES

    def density(x: Array, mixture: Mixture) -> Array:
        scaled = [w / deviation * np.exp(-(((x - m) / deviation) ** 2) / 2) for w, m in zip(*mixture, strict=True)]
        return np.asarray(np.sum(scaled, axis=0) / math.sqrt(2 * math.pi))

    p, q = ((density(points, side) * _NODE_WEIGHTS).sum(axis=1) * half for side in (first, second))
    pair = _with_ends(p, q, first, second, lambda side: density(edges, side))
    return replace(pair, error=_QUADRATURE, lost=_TAIL, known=pair.known and known)


def laplaces(first: Mixture, second: Mixture, scale: float) -> Pair:
    """Mixtures of Laplace laws: between two neighbouring means in cells, outside of all means the ratio is constant."""
    means = sorted({*first[1], *second[1]})
    parts = [np.linspace(a, b, 81) for a, b in itertools.pairwise(means)]
    edges = np.unique(np.concatenate(parts)) if parts else np.array(means)

    def masses(mean: float) -> Array:
        left = np.where(edges <= mean, np.exp(-np.abs(edges - mean) / scale), 0.0)
        right = np.where(edges >= mean, np.exp(-np.abs(edges - mean) / scale), 0.0)
        # Each cell lies on one side of the mean: its mass is a difference of two exponentials.
        near = np.maximum(left[1:], right[:-1])
        inner = near / 2 * -np.expm1(-np.diff(edges) / scale)
        return np.array([left[0] / 2, *inner, right[-1] / 2])

    p, q = (sum(w * masses(m) for w, m in zip(*side, strict=True)) for side in (first, second))

    def density(mixture: Mixture) -> Array:
        at = np.array([edges[0] - scale, *edges, edges[-1] + scale])
        weighted = [w * np.exp(-np.abs(at - m) / scale) for w, m in zip(*mixture, strict=True)]
        return np.asarray(np.sum(weighted, axis=0))

    pair = _with_ends(np.asarray(p), np.asarray(q), first, second, density)
    return replace(pair, error=256 * _UNIT * (1 + (means[-1] - means[0]) / scale))


def _with_ends(p: Array, q: Array, first: Mixture, second: Mixture, density: Callable[[Mixture], Array]) -> Pair:
    """With the density ratio at the ends of each cell, which bounds it inside if every mean of the first law is at
    least every mean of the second: then it does not decrease. (Cells of Laplace laws end where it becomes constant.)"""
    monotone = min(first[1]) >= max(second[1])
    with np.errstate(divide="ignore"):
        ratio = np.log(density(first)) - np.log(density(second))
    room = 1e-11 * (1 + np.abs(ratio))
    return Pair(p, q, (ratio - room)[:-1], (ratio + room)[1:], 0.0, known=monotone)


# --- single mechanisms on explicit neighbours. `ends` are the sums of the two data sets: a unit contributes 1 or −1.


def _ends(adjacency: str, size: int) -> tuple[float, float]:
    return float(size), (-float(size) if adjacency == "replace_one" else 0.0)


def _gaussian(event: dp_event.GaussianDpEvent, adjacency: str, size: int) -> list[Pair]:
    high, low = _ends(adjacency, size)
    return [gaussians(([1.0], [high]), ([1.0], [low]), event.noise_multiplier)]


def _tree(event: dp_event.SingleEpochTreeAggregationDpEvent, adjacency: str, size: int) -> list[Pair]:
    """One step of one tree moves, and all nodes that hold it with it, counted one by one."""
    counts = event.step_counts if isinstance(event.step_counts, list) else [event.step_counts]
    high, low = _ends(adjacency, size)
    nodes = {
        sum(step in range(first, first + length) for first, length in complete_nodes(steps))
        for steps in counts
        for step in range(steps)
    }
    return [
        gaussians(([1.0], [high * math.sqrt(held)]), ([1.0], [low * math.sqrt(held)]), event.noise_multiplier)
        for held in sorted(nodes)
    ] or [Pair.nothing()]


def complete_nodes(steps: int) -> list[tuple[int, int]]:
    """First step and length of the nodes of a tree that are complete after `steps` steps: the leaves, then pairs of
    neighbours, level by level."""
    level = [(step, 1) for step in range(steps)]
    nodes = list(level)
    while level:
        level = [(first, 2 * length) for first, length in level[: len(level) // 2 * 2 : 2]]
        nodes += level
    return nodes


def _laplace(event: dp_event.LaplaceDpEvent, adjacency: str, size: int) -> list[Pair]:
    high, low = _ends(adjacency, size)
    return [laplaces(([1.0], [high]), ([1.0], [low]), event.noise_multiplier)]


def _discrete_laplace(event: dp_event.DiscreteLaplaceDpEvent, adjacency: str, size: int) -> list[Pair]:
    high, low = _ends(adjacency, size)
    return [shifted_geometric(event.noise_parameter, round((high - low) * event.sensitivity))]


def shifted_geometric(parameter: float, shift: int) -> Pair:
    """Integers with p(x) ∝ e^{−a|x|}, centred at `shift` and at 0; all below 0 are one cell, all above `shift` too."""
    norm = -math.expm1(-parameter) / (1 + math.exp(-parameter))

    def masses(centre: int) -> list[float]:
        ends = [math.exp(-parameter * abs(end - centre)) / -math.expm1(-parameter) for end in (0, shift)]
        return [
            norm * mass
            for mass in (ends[0], *(math.exp(-parameter * abs(x - centre)) for x in range(1, shift)), ends[1])
        ]

    if not shift:
        return Pair.nothing()
    return Pair.of(masses(shift), masses(0), error=64 * _UNIT * (1 + parameter * shift))


def _response(event: dp_event.RandomizedResponseDpEvent, adjacency: str, size: int) -> list[Pair]:
    """Two inputs, or an input and a uniform response; each member of a group responds."""
    buckets, uniform = event.num_buckets, Fraction(event.noise_parameter)
    law = [
        [uniform / buckets + (1 - uniform) * (x == truth) for x in range(buckets)] for truth in range(min(2, buckets))
    ]
    other = law[-1] if adjacency == "replace_one" else [Fraction(1, buckets)] * buckets
    return [Pair.of(law[0], other).power(size)]


def _concentrated(event: dp_event.ZCDpEvent, adjacency: str, size: int) -> list[Pair]:
    """A normal law of divergence ρα, beside integers of which a step has a loss of at most ξ."""
    pair = Pair.nothing()
    if event.rho:
        pair = gaussians(([1.0], [size * math.sqrt(2 * event.rho)]), ([1.0], [0.0]), 1.0)
    return [pair.times(shifted_geometric(event.xi, size)).only_at_least()] if event.xi else [pair.only_at_least()]


def _epsilon_delta(event: EpsilonDeltaDpEvent, adjacency: str, size: int) -> list[Pair]:
    """A secret, of one of the units, that is told with probability δ, beside integers of which a step has a loss of at
    most ε."""
    noisy = shifted_geometric(event.epsilon, size) if event.epsilon else Pair.nothing()
    if not event.delta:
        return [noisy.only_at_least()]
    told = Pair.of([event.delta, 0.0], [0.0, event.delta])
    return [told._beside(replace(noisy, p=(1 - event.delta) * noisy.p, q=(1 - event.delta) * noisy.q)).only_at_least()]


Selection = BoundedRangeSelectionDpEvent | ExPostSelectionDpEvent
BIASES = (-30.0, -15.0, -8.0, -4.0, -2.0, -0.7, 0.0)


def selection(moved: float, bias: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Softmax of two tokens' scores, whose difference is `bias`, and `bias − moved` for the neighbour."""
    return (_sigmoid(bias), _sigmoid(-bias)), (_sigmoid(bias - moved), _sigmoid(moved - bias))


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def moved_scores(event: Selection, size: int) -> float:
    """Each unit moves a difference of scores by η; a sampled law moves by the rounding once more, on both sides."""
    return size * event.eta + 2 * event.rounding


def _selection(event: Selection, adjacency: str, size: int) -> list[Pair]:
    moved = moved_scores(event, size)
    laws = [selection(moved, moved / 2 + bias) for bias in BIASES]
    return [Pair.of(*law, error=4 * (64 + moved) * _UNIT, known=False) for law in laws]


def _mixture(event: dp_event.MixtureOfGaussiansDpEvent, adjacency: str, size: int) -> list[Pair]:
    first = list(event.sampling_probs), list(event.sensitivities)
    return [gaussians(first, ([1.0], [0.0]), event.standard_deviation)]


def _poisson(event: dp_event.PoissonSampledDpEvent, adjacency: str, size: int) -> list[Pair]:
    """The data sets hold the units in question only. Each is drawn on its own."""
    rate, inner = event.sampling_probability, event.event
    if isinstance(inner, dp_event.GaussianDpEvent | dp_event.LaplaceDpEvent):
        drawn = [math.comb(size, k) * rate**k * (1 - rate) ** (size - k) for k in range(size + 1)]
        first = drawn, [float(k) for k in range(size + 1)]
        second = (drawn, [-k for k in first[1]]) if adjacency == "replace_one" else ([1.0], [0.0])
        law = gaussians if isinstance(inner, dp_event.GaussianDpEvent) else laplaces
        return [law(first, second, inner.noise_multiplier)]
    pairs = adversaries(inner, adjacency, 1)
    if adjacency == "replace_one" or _responds(inner):  # it is seen whether the unit was drawn
        return [pair.seen_with_chance(rate).only_at_least() for pair in pairs]
    return [pair.mixed(rate) for pair in pairs]


def _responds(event: DpEvent) -> bool:
    return isinstance(event, dp_event.RandomizedResponseDpEvent)


def _without_replacement(event: dp_event.SampledWithoutReplacementDpEvent, adjacency: str, size: int) -> list[Pair]:
    """A unit of 1 is exchanged for −1 or 0, or is absent; all others are equal, at an end or between.

    The sum of m of n is released.
    """
    sample, rate = event.sample_size, event.sample_size / event.source_dataset_size
    results = []
    for other in (-1.0, -0.5, 0.0, 0.2, 0.5, 1.0):  # those between have more power at some levels
        laws: list[Mixture] = [
            ([rate, 1 - rate], [unit + (sample - 1) * other, sample * other])
            for unit in (1.0, -1.0 if adjacency == "replace_one" else 0.0)
        ]
        if adjacency == "add_remove":
            laws[1] = [1.0], [sample * other]
        if isinstance(event.event, dp_event.LaplaceDpEvent):
            results.append(replace(laplaces(laws[0], laws[1], event.event.noise_multiplier), known=abs(other) == 1))
        else:
            results.append(gaussians(laws[0], laws[1], event.event.noise_multiplier, known=abs(other) == 1))
    return results


def _with_replacement(event: dp_event.SampledWithReplacementDpEvent, adjacency: str, size: int) -> list[Pair]:
    """Likewise, where the unit is drawn several times."""
    draws, rate, results = event.sample_size, 1 / event.source_dataset_size, []
    chances = [math.comb(draws, k) * rate**k * (1 - rate) ** (draws - k) for k in range(draws + 1)]
    for other in (-1.0, 0.0, 1.0):
        first, second = (
            (chances, [k * unit + (draws - k) * other for k in range(draws + 1)])
            for unit in (1.0, -1.0 if adjacency == "replace_one" else 0.0)
        )
        if adjacency == "add_remove":
            second = [1.0], [draws * other]
        results.append(gaussians(first, second, event.event.noise_multiplier, known=False))
    return results


def _discrete_gaussian(event: DiscreteGaussianDpEvent, adjacency: str, size: int) -> list[Pair]:
    """A whole number that moves by the sensitivity, which a vector may do in one coordinate."""
    ends = _ends(adjacency, size)
    shift, reach = round((ends[0] - ends[1]) * math.floor(event.sensitivity)), math.floor(36 * event.sigma)
    points = np.arange(shift - reach, reach + 1)  # where no mass underflows
    masses = [np.exp(-((points - centre) ** 2) / (2 * event.sigma**2)) for centre in (shift, 0)]
    total = float(np.exp(-(np.arange(-3 * reach, 3 * reach + 1) ** 2) / (2 * event.sigma**2)).sum())
    first, second = ((side / total).tolist() for side in masses)  # beyond, less than 1e-280 is left out
    return [Pair.of(first, second, error=1e-12, known=event.dimension == 1)] if shift else [Pair.nothing()]


def _permute_and_flip(event: PermuteAndFlipDpEvent, adjacency: str, size: int) -> list[Pair]:
    """The best of scores plus exponential noise of rate ε/2: some scores rise by 1, the others fall by 1.

    Exactly, by inclusion and exclusion of who is above the best score.
    """
    rate = event.epsilon / 2
    scores = [(0.0, 1.0), (2.0, 0.0), (0.0, 0.0, 3.0), (1.0, 4.0, 0.0, 2.0)]
    results = []
    for before in scores:
        for risen in range(1, len(before)):
            after = [score + (size if index < risen else -size) for index, score in enumerate(before)]
            results.append(Pair.of(_best(after, rate), _best(before, rate), error=1e-9, known=False))
    return results


def _best(scores: Sequence[float], rate: float) -> list[float]:
    top, results = max(scores), []
    for index, score in enumerate(scores):
        others = [other - top for place, other in enumerate(scores) if place != index]
        chance = 0.0
        for count in range(len(others) + 1):
            for chosen in itertools.combinations(others, count):
                chance += (-1) ** count * math.exp(rate * (score - top + sum(chosen))) / (1 + count)
        results.append(chance)
    return results


def _truncated(event: TruncatedPoissonSampledDpEvent, adjacency: str, size: int) -> list[Pair]:
    """n − 1 units of 0, or all of −1, beside one of 1 that is absent, 0 or −1 in the other data set.

    The number k of others that are drawn is binomial. If the unit is drawn, it is kept with probability min(1, B/(k +
    1)), and takes the place of another if that is below 1.
    """
    rate, limit, others = Fraction(event.sampling_probability), event.max_batch_size, event.source_dataset_size - 1
    results = []
    for other in (0, -1):

        def law(unit: int | None, other: int = other) -> Mixture:
            weights: dict[float, Fraction] = {}
            for k in range(others + 1):
                chance = math.comb(others, k) * rate**k * (1 - rate) ** (others - k)
                kept = rate * min(Fraction(1), Fraction(limit, k + 1)) if unit is not None else Fraction(0)
                if kept:
                    mean = float((unit or 0) + other * min(k, limit - 1))
                    weights[mean] = weights.get(mean, Fraction(0)) + chance * kept
                mean = float(other * min(k, limit))
                weights[mean] = weights.get(mean, Fraction(0)) + chance * (1 - kept)
            return [float(w) for w in weights.values()], list(weights)

        second = law({"add_remove": None, "zero_out": 0, "replace_one": -1}[adjacency])
        results.append(gaussians(law(1), second, event.event.noise_multiplier))
    return results


def _allocated(event: RandomAllocationDpEvent, adjacency: str, size: int) -> list[Pair]:
    """Each unit is in some of at most three steps, all of which are seen; a unit adds 1 to a step, another one −1.

    All choices of steps are tried.
    """
    if event.num_selected in (0, event.num_steps):
        steps = [adversaries(event.event, adjacency, size)[0]] * event.num_selected
        return [functools.reduce(Pair.times, steps, Pair.nothing())]
    other = -1 if adjacency == "replace_one" else 0
    choices = list(itertools.combinations(range(event.num_steps), event.num_selected))
    counts = [
        [sum(i in each for each in picked) for i in range(event.num_steps)]
        for picked in itertools.product(choices, repeat=size)
    ]
    second = [[other * number for number in each] for each in counts]
    pair = _seen_steps(counts, second, event.event)
    return [pair if other == 0 else pair.only_at_least()]


def _shuffled(event: ShuffledBatchesDpEvent, adjacency: str, size: int) -> list[Pair]:
    """At most three batches of up to two records, which all are seen, for all ways to cut them.

    The unit's records add 1 each with it, and 0 or −1 without it; all others add −1, of which intervals say that it is
    attained, or 0.
    """
    batches = event.num_batches
    if batches == 1 or isinstance(event.event, dp_event.LaplaceDpEvent):  # the one batch with the units, if it is known
        pairs = adversaries(event.event, adjacency, size)
        return pairs if batches == 1 else [pair.only_at_least() for pair in pairs]
    length = 2 if batches == 2 else 1
    records = batches * length
    places = set(itertools.permutations([batch for batch in range(batches) for _ in range(length)]))
    results = []
    for others in (-1, 0):

        def sums(unit: int, others: int = others) -> list[list[int]]:
            values = [unit] * size + [others] * (records - size)
            return [
                [sum(v for v, place in zip(values, each, strict=True) if place == batch) for batch in range(batches)]
                for each in places
            ]

        without = -1 if adjacency == "replace_one" else 0
        pair = _seen_steps(sums(1), sums(without), event.event)
        results.append(pair if others == -1 else pair.only_at_least())
    return results


def _seen_steps(first: list[list[int]], second: list[list[int]], noise: DpEvent) -> Pair:
    """Sums of steps with normal or Laplace noise, whose means are any of some vectors, equally likely. A step is one of
    some thirty cells."""
    cells = gaussians if isinstance(noise, dp_event.GaussianDpEvent) else laplaces
    shifts = sorted({0, *itertools.chain(*first, *second)})
    zeros = [0.0] * len(shifts)
    # The same cells for all means, since cells follow from means; weights of 0 leave the law.
    laws = {
        shift: cells(([1.0, *zeros], [float(shift), *map(float, shifts)]), ([1.0], [0.0]), noise.noise_multiplier)
        for shift in shifts
    }
    error, lost = max(law.error for law in laws.values()), max(law.lost for law in laws.values())
    starts = np.arange(0, laws[0].p.size, 5)
    masses = {shift: np.add.reduceat(law.p, starts) for shift, law in laws.items()}
    low = {shift: np.minimum.reduceat(law.low, starts) for shift, law in laws.items()}
    high = {shift: np.maximum.reduceat(law.high, starts) for shift, law in laws.items()}
    steps = len(first[0])

    def for_each(vectors: list[list[int]], values: dict[int, Array], join: np.ufunc) -> list[Array]:
        """Of all cells, once for each vector."""
        return [
            functools.reduce(lambda a, b: join.outer(a, b).ravel(), [values[each] for each in vector])
            for vector in vectors
        ]

    p, q = (np.mean(for_each(vectors, masses, np.multiply), axis=0) for vectors in (first, second))

    def ratio(vectors: list[list[int]], side: dict[int, Array]) -> Array:
        """Bounds on the logarithm of a law over that without means, in each cell."""
        return np.asarray(np.logaddexp.reduce(for_each(vectors, side, np.add)) - math.log(len(vectors)))

    least = ratio(first, low) - ratio(second, high)
    most = ratio(first, high) - ratio(second, low)
    pair = Pair(p, q, least, most, steps * (error + 8 * _UNIT) + 64 * _UNIT)
    return replace(pair, lost=steps * lost)._merged()


def _secret(event: SecretReleaseDpEvent, adjacency: str, size: int) -> list[Pair]:
    """The secret occurs k times with probability w_k, each time adding 1; or it is revealed."""
    total = math.fsum((*event.weights, event.remainder))
    inside = math.fsum(event.weights)
    weights = [weight / inside for weight in event.weights]
    first = weights, [float(k) for k in range(len(weights))]
    return [gaussians(first, ([1.0], [0.0]), event.noise_multiplier).with_revealed(event.remainder / total)]


def _groups(event: SecretGroupsReleaseDpEvent, adjacency: str, size: int) -> list[Pair]:
    return [pair for group in event.groups for pair in adversaries(group, adjacency, size)]


def _non_private(event: dp_event.NonPrivateDpEvent, adjacency: str, size: int) -> list[Pair]:
    return [Pair.of([1, 0], [0, 1])]


def _nothing(event: dp_event.NoOpDpEvent, adjacency: str, size: int) -> list[Pair]:
    return [Pair.nothing()]


def _repeated(event: dp_event.SelfComposedDpEvent, adjacency: str, size: int) -> list[Pair]:
    return [pair.power(event.count) for pair in adversaries(event.event, adjacency, size)]


def _composed(event: dp_event.ComposedDpEvent, adjacency: str, size: int) -> list[Pair]:
    """Some of the choices: the first of each part together, the second of each, and so on."""
    parts = [adversaries(part, adjacency, size) for part in event.events]
    choices = ([pairs[i % len(pairs)] for pairs in parts] for i in range(max(map(len, parts), default=1)))
    return [functools.reduce(Pair.times, pairs, Pair.nothing()) for pairs in choices]


def _parallel(event: ParallelDpEvent, adjacency: str, size: int) -> list[Pair]:
    """The units in question are in one part; under replace_one they may also leave one part for another."""
    pairs = [pair for part in _distinct(event.events) for pair in adversaries(part, adjacency, size)]
    if adjacency != "replace_one" or event.partition_is_public:
        return pairs
    for a, b in itertools.islice(itertools.permutations(event.events, 2), 6):
        leaves, enters = (adversaries(part, "add_remove", size) for part in (a, b))
        pairs += [first.times(second.reversed()) for first, second in zip(leaves, enters, strict=False)]
    return [pair.only_at_least() for pair in pairs] if len(event.events) > 1 else pairs


def _best_of_runs(event: dp_event.RepeatAndSelectDpEvent, adjacency: str, size: int) -> list[Pair]:
    """The cell that is best of K runs, where cells are ranked by the ratio of their masses, or in some other order.

    f is the generating function of K. A cell of mass x below which lies a, and above which lies v, is the best with
    probability f(a + x) − f(a), computed from v.
    """
    if event.mean == 1 and not math.isinf(event.shape):  # one run
        return adversaries(event.event, adjacency, size)
    runs = _NumberOfRuns.of(event.mean, event.shape)
    results = []
    for pair in adversaries(event.event, adjacency, size):
        if pair.known and pair.p.size == 1:  # a run says nothing, so the best of them does not either
            results.append(Pair.nothing())
            continue
        ratio = _log_ratio(pair.p, pair.q)
        ratio = np.nan_to_num(ratio, nan=0.0, posinf=1e300, neginf=-1e300)
        orders = [np.argsort(ratio, kind="stable"), np.argsort(-ratio, kind="stable"), np.argsort(np.abs(ratio))]
        for order in orders:  # the best one first
            p, q = (runs.chances(masses[order]) for masses in (pair.p, pair.q))
            error = pair.error * (3 + runs.steepness) + 64 * _UNIT * (order.size + runs.steepness)
            results.append(Pair.of(p.tolist(), q.tolist(), error=error, known=False))
    return results


@dataclass(frozen=True)
class _NumberOfRuns:
    """Poisson, or negative binomial: P(K = k) ∝ (1 − γ)^k Π_{i<k} (i + shape)/(i + 1), and (1 − γ)^k/k for shape 0."""

    mean: float
    shape: float
    gamma: float

    @staticmethod
    def of(mean: float, shape: float) -> _NumberOfRuns:
        from mpmath import mp

        if math.isinf(shape) or mean == 1:
            return _NumberOfRuns(mean, shape, 1.0)
        with mp.workdps(40):
            low, high = mp.mpf(10) ** -30, mp.mpf(1) - mp.mpf(10) ** -30
            for _ in range(200):
                middle = mp.sqrt(low * high)
                power = shape * (1 / middle - 1) / (1 - middle**shape) if shape else (1 / middle - 1) / -mp.log(middle)
                low, high = (middle, high) if power > mean else (low, middle)
            return _NumberOfRuns(mean, shape, float(low))

    @property
    def steepness(self) -> float:
        """How many times a relative error of the masses above a cell counts."""
        return 1 + (self.mean if math.isinf(self.shape) else self.shape)

    def chances(self, masses: Array) -> Array:
        """That each cell is the best, for cells from the best to the worst; for Poisson, that there is none at last."""
        above = np.concatenate([[0.0], np.cumsum(masses)[:-1]])
        if math.isinf(self.shape):
            some = np.exp(-self.mean * above) * -np.expm1(-self.mean * masses)
            return np.append(some, math.exp(-self.mean))
        if self.gamma == 1:
            return masses
        rest = self.gamma + (1 - self.gamma) * above
        step = np.log1p((1 - self.gamma) * masses / rest)
        if self.shape == 0:
            return np.asarray(step / -math.log(self.gamma))
        part = rest**-self.shape * -np.expm1(-self.shape * step)
        return np.asarray(part / np.expm1(-self.shape * math.log(self.gamma)))


def _distinct(parts: Sequence[DpEvent]) -> list[DpEvent]:
    return list({repr(part): part for part in parts}.values())


MECHANISMS: dict[type[DpEvent], Callable[[Any, str, int], list[Pair]]] = {
    dp_event.NoOpDpEvent: _nothing,
    dp_event.NonPrivateDpEvent: _non_private,
    dp_event.GaussianDpEvent: _gaussian,
    dp_event.SingleEpochTreeAggregationDpEvent: _tree,
    dp_event.LaplaceDpEvent: _laplace,
    dp_event.DiscreteLaplaceDpEvent: _discrete_laplace,
    dp_event.RandomizedResponseDpEvent: _response,
    dp_event.ZCDpEvent: _concentrated,
    dp_event.MixtureOfGaussiansDpEvent: _mixture,
    dp_event.PoissonSampledDpEvent: _poisson,
    dp_event.SampledWithoutReplacementDpEvent: _without_replacement,
    dp_event.SampledWithReplacementDpEvent: _with_replacement,
    DiscreteGaussianDpEvent: _discrete_gaussian,
    PermuteAndFlipDpEvent: _permute_and_flip,
    dp_event.SelfComposedDpEvent: _repeated,
    dp_event.ComposedDpEvent: _composed,
    EpsilonDeltaDpEvent: _epsilon_delta,
    BoundedRangeSelectionDpEvent: _selection,
    ExPostSelectionDpEvent: _selection,
    TruncatedPoissonSampledDpEvent: _truncated,
    RandomAllocationDpEvent: _allocated,
    ShuffledBatchesDpEvent: _shuffled,
    SecretReleaseDpEvent: _secret,
    SecretGroupsReleaseDpEvent: _groups,
    ParallelDpEvent: _parallel,
    dp_event.RepeatAndSelectDpEvent: _best_of_runs,
}
"""The mechanisms of each event on neighbours, by type."""


def adversaries(event: DpEvent, adjacency: str, size: int = 1) -> list[Pair]:
    """The pairs of laws of mechanisms that `event` describes, on neighbours that differ in `size` units.

    Raises:
        KeyError: if an event has none here.
    """
    return MECHANISMS[type(event)](event, adjacency, size)


def best_tree(moved: Sequence[float], epsilon: float, biases: Sequence[float]) -> float:
    """P(E) − e^ε Q(E) for selections one after another, of which each may depend on the tokens before it.

    Every node of the tree of tokens chooses the bias that gives most in the end; all choices are tried.
    """
    factor = math.exp(epsilon)

    def value(p: Array, q: Array, left: Sequence[float]) -> Array:
        if not left:
            return np.maximum(p - factor * q, 0.0)
        best = np.zeros(p.shape)
        for bias in biases:
            (p0, p1), (q0, q1) = selection(left[0], left[0] / 2 + bias)
            best = np.maximum(best, value(p * p0, q * q0, left[1:]) + value(p * p1, q * q1, left[1:]))
        return best

    return float(value(np.ones(1), np.ones(1), list(moved))[0]) - 64 * _UNIT * (1 + factor)


# --- one finished run that aggregates by medians


@dataclass(frozen=True)
class MedianRun:
    """Parts with rows of logits, and the tokens that each part released.

    Attributes:
        parts: one array per part, of shape (tokens, rows, vocabulary); rows may be 0.
        tokens: for each part, one token a step.
        clip, temperature: of the law.
    """

    parts: Sequence[Array]
    tokens: Sequence[Sequence[int]]
    clip: float
    temperature: float

    def largest_loss(self, *, exchanged: bool, partition_is_public: bool) -> float:
        """The largest |log P(tokens)/P′(tokens)| over neighbours P′ of this run's data."""
        inside = [self._losses(part, leaves=True, enters=True) for part in range(len(self.parts))]
        leaving, entering = (
            [self._losses(part, leaves=which, enters=not which) for part in range(len(self.parts))]
            for which in (True, False)
        )
        if not exchanged:
            return max(
                [0.0, *(sign * loss for sign in (1, -1) for each in (*leaving, *entering) for loss in each[sign])]
            )
        results = [sign * loss for sign in (1, -1) for each in inside for loss in each[sign]]
        if not partition_is_public:
            for a, b in itertools.permutations(range(len(self.parts)), 2):
                results += [
                    sign * (item + other)
                    for sign in (1, -1)
                    for item in leaving[a][sign]
                    for other in entering[b][sign]
                ]
        return max([0.0, *results])

    def _losses(self, part: int, *, leaves: bool, enters: bool) -> dict[int, list[float]]:
        """For each row that leaves, log P/P′ of the part's tokens, at the rows of ±c that make it largest (1) or least
        (−1); a row that enters may differ from token to token."""
        logits = np.maximum(-self.clip, self.parts[part] - self.parts[part].max(axis=-1, keepdims=True) + self.clip)
        steps, rows, vocabulary = logits.shape
        corners = [np.array(c) for c in itertools.product((-self.clip, self.clip), repeat=vocabulary)]
        results: dict[int, list[float]] = {1: [], -1: []}
        for row in range(rows) if leaves else [None]:
            totals = {1: 0.0, -1: 0.0}
            for step, token in zip(range(steps), self.tokens[part], strict=True):
                rest = logits[step] if row is None else np.delete(logits[step], row, axis=0)
                others = [np.vstack([rest, corner]) for corner in corners] if enters else [rest]
                own = self._log_probability(logits[step], token)
                losses = [own - self._log_probability(other, token) for other in others]
                totals[1] += max(losses)
                totals[-1] += min(losses)
            for sign in (1, -1):
                results[sign].append(totals[sign])
        return results

    def _log_probability(self, rows: Array, token: int) -> float:
        """Softmax of the medians; without rows all tokens are equally likely."""
        scores = (np.median(rows, axis=0) if len(rows) else np.zeros(rows.shape[1])) / self.temperature
        top = float(scores.max())
        return float(scores[token]) - top - math.log(math.fsum(np.exp(scores - top)))
