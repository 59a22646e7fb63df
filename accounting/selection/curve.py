"""Upper and lower bounds on δ(ε) of n adaptively composed η-bounded-range selections, on a lattice of ε.

F_n(ε) is the largest δ(ε) of n η-bounded-range selections, each chosen after the outcomes of those before it, and
G_n(x) = F_n(log x). One selection maps F_{n−1} to

    F_n(ε) = max_t p_t F_{n−1}(ε − t) + (1 − p_t) F_{n−1}(ε − t + η),  p_t = (1 − e^{t−η})/(1 − e^{−η}).

The upper bound takes the highest chords of a piecewise linear interpolant. The lower bound is one adversary's strategy.

Proof: docs/proofs/selection.md, Theorems 1 to 4. A, B, r, ω, κ and the lattice x_i are named as there.

Source: Dong, Durfee and Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms" (2020).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpassay.accounting.bounds import Interval
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_WIDER = 1 / 32
TRUSTED = 2.0**-12


@dataclass(frozen=True, slots=True, eq=False)
class SelectionCurve:
    """Bounds on F_n at ε = 0, step, 2·step, …

    Beyond the last node the upper bound is `floor` and the lower bound is 0.
    """

    step: float
    upper: Floats
    lower: Floats
    floor: float

    def epsilon(self, delta: float) -> Interval:
        """An enclosure of the least ε ≥ 0 with F_n(ε) ≤ δ, for δ above the floor.

        The upper end inverts the interpolant. The lower end uses that the convex G_n lies above a secant extended to
        the right: the secant through a node with its lower bound and the node before it with its upper bound.
        """
        h, upper = self.step, np.append(self.upper, self.floor)
        first = int(np.argmax(upper <= delta))
        last = int(np.flatnonzero(self.lower > delta).max(initial=0))
        high = low = 0.0
        if first:
            share = (upper[first - 1] - delta) / (upper[first - 1] - upper[first])
            high = ((first - 1) * h + math.log1p(share * math.expm1(h))) * (1 + 32 * _UNIT)
        if last:
            share = (self.lower[last] - delta) / (upper[last - 1] - self.lower[last])
            low = (last * h + math.log1p(-share * math.expm1(-h))) * (1 - 32 * _UNIT)
        return Interval(min(low, high), high)

    def delta(self, epsilon: float) -> Interval:
        """An enclosure of F_n(ε) for ε ≥ 0; the lower end is the secant of the next two nodes, extended to the left."""
        high = float(self.upper_at(np.array([epsilon]))[0])
        position = epsilon / self.step
        after = math.ceil(min(position * (1 + 8 * _UNIT), float(len(self.lower))))  # never a node before ε
        if after >= len(self.lower):
            return Interval(0.0, high)
        beyond = self.upper[after + 1] if after + 1 < len(self.upper) else self.floor
        share = -math.expm1(min(epsilon - after * self.step, 0.0)) / math.expm1(self.step)
        share = max(share - 32 * _UNIT * (1 + position), 0.0)
        low = float(self.lower[after] + max(self.lower[after] - beyond, 0.0) * share) * (1 - 8 * _UNIT)
        return Interval(min(low, high), high)

    def upper_at(self, epsilons: Floats) -> Floats:
        """Upper bounds on F_n at ε ≥ 0 of any shape: linear in e^ε between nodes, rounding of ε/step included."""
        upper = np.append(self.upper, (self.floor, self.floor))
        position = np.minimum(epsilons / self.step, len(upper) - 1.5)
        index = (position * (1 - 8 * _UNIT)).astype(np.intp)  # never a node after ε
        share = np.clip(np.expm1(np.minimum(epsilons - index * self.step, self.step)) / math.expm1(self.step), 0.0, 1.0)
        left, right = upper[index], upper[index + 1]
        error = (left - right) * (32 * _UNIT) * (1 + position)
        return np.asarray(np.minimum((left * (1 - share) + right * share + error) * (1 + 8 * _UNIT), 1.0))


@functools.lru_cache(maxsize=32)
def selection_curve(eta: float, count: int, cells: int, floor: float) -> SelectionCurve:
    """Certified bounds on F_n.

    Args:
        eta: η in (0, 100], in nats.
        count: n ≥ 0.
        cells: m, lattice steps per η; a power of 2, so that η = m·h exactly.
        floor: τ in (0, 1), the δ below which the curve is not computed.
    """
    step = eta / cells
    if not count:
        return SelectionCurve(step, np.zeros(1), np.zeros(1), 0.0)
    # F_1(ε) = (1 − e^{(ε − η)/2})²/(1 − e^{−η}) on [0, η], at t = (η + ε)/2.
    first = np.expm1(np.arange(-cells, 1) * (step / 2)) ** 2 / -math.expm1(-eta)
    lattice = StepTables.of(eta, cells)
    upper, lower = np.maximum(first * (1 + lattice.error), floor / count), first * (1 - lattice.error)
    for k in range(2, count + 1):
        raised, strategy = upper_step(lattice, upper, floor * ((k - 1) / count), floor * (k / count))
        lower = _lower_step(lattice, lower, strategy)
        kept = 1 + int(np.flatnonzero(raised > floor * (k / count)).max(initial=0))
        upper, lower = raised[:kept], lower[:kept]
    return SelectionCurve(step, np.minimum(upper, 1.0), lower, floor)


@dataclass(frozen=True, slots=True, eq=False)
class StepTables:
    """Tables over d = 0…m for one step, and the reflection at ε = 0."""

    cells: int
    step: float
    kappa: float
    contraction: float  # e^{−η}
    reach: Floats  # e^{(d−m)h}
    left: Floats  # 1 − e^{(d−m)h}
    right: Floats  # e^{(d−m)h} − e^{(1−m)h}, used for d ≥ 1
    chances: tuple[Floats, Floats]  # p_t and 1 − p_t at t = dh
    reflection: tuple[Floats, Floats]  # 1 − e^{−ih} and e^{−ih}, i = m…1
    error: float

    @classmethod
    def of(cls, eta: float, cells: int) -> StepTables:
        step, d = eta / cells, np.arange(cells + 1.0)
        contraction, whole = math.exp(-eta), -math.expm1(-eta)
        reach, left = np.exp((d - cells) * step), -np.expm1((d - cells) * step)
        right = math.exp(step - eta) * np.expm1(np.maximum(d - 1, 0) * step)
        chances = left / whole, contraction * np.expm1(d * step) / whole
        reflection = -np.expm1(-d[:0:-1] * step), np.exp(-d[:0:-1] * step)
        error = (64 + 4 * eta) * _UNIT
        return cls(cells, step, math.expm1(step), contraction, reach, left, right, chances, reflection, error)

    def extended(self, values: Floats, beyond: float, error: float) -> Floats:
        """Extends values at the nodes 0…N to −m … N + m + 1: reflected on the left, constant on the right."""
        mirror = np.full(self.cells, beyond)
        there = min(self.cells, len(values) - 1)
        if there:
            mirror[self.cells - there :] = values[there:0:-1]
        ghosts = (self.reflection[0] + self.reflection[1] * mirror) * (1 + error)
        return np.concatenate([ghosts, values, np.full(self.cells + 1, beyond)])


def upper_step(lattice: StepTables, upper: Floats, floor: float, next_floor: float) -> tuple[Floats, NDArray[np.intp]]:
    """Upper bounds at the nodes 0 … N + m after one more selection, and a near-optimal t at each, in lattice steps."""
    m, h, kappa = lattice.cells, lattice.step, lattice.kappa
    nodes = lattice.extended(upper, floor, lattice.error)
    nodes = np.minimum(np.maximum.accumulate(nodes[::-1])[::-1], 1.0)  # no larger than 1 and decreasing, as G is
    slopes, size = np.diff(nodes), len(upper) + m  # of the cells −m … N; number c starts at node c − m
    near, far, near_slope, far_slope = nodes[:size], nodes[m : m + size], slopes[:size], slopes[m : m + size]

    a = (lattice.contraction * far_slope - near_slope) / kappa
    b = near - far - (near_slope - far_slope) / kappa
    rough = (np.abs(near_slope) + np.abs(far_slope)) * (24 * _UNIT / kappa) + np.abs(near - far) * (24 * _UNIT)
    trusted = (rough <= TRUSTED * h * np.minimum(a, b)) & (a > 0)
    omega = m - np.log(np.divide(b, a, out=np.ones(size), where=trusted)) / h
    lowest = np.where(trusted, np.maximum(np.ceil(omega - _WIDER), np.maximum(1, m - np.arange(size))), 0)
    highest = np.minimum(np.floor(omega + 2 + _WIDER), m)
    np.maximum(highest[:-1], np.minimum(lowest[1:], m), out=highest[:-1])  # the node between two cells

    raised, strategy = np.full(size, next_floor), np.zeros(size, dtype=np.intp)
    np.maximum(raised[: len(upper)], upper, out=raised[: len(upper)])  # t = 0
    cell, lost, inflation = np.flatnonzero(trusted), 2.0**-21 * h * h, (1 + lattice.error) / -math.expm1(-h * m)
    while (cell := cell[lowest[cell] <= highest[cell]]).size:
        d, a_, b_ = lowest[cell].astype(np.intp), a[cell], b[cell]
        reach = lattice.reach[d] * b_
        index = np.clip((np.sqrt(reach / a_) - 1) / kappa, 0.0, 1.0)  # (r − 1)/κ
        rest, moved = 1 - index, kappa * index
        value = (near[cell] * rest + nodes[cell + 1] * index) * (lattice.left[d] + moved)
        value += (far[cell] * rest + nodes[cell + m + 1] * index) * (
            lattice.right[d] + kappa * lattice.contraction * rest
        )
        value = (value / (1 + moved) + lost * reach) * inflation
        target = cell - m + d
        np.maximum.at(raised, target, value)
        best = value == raised[target]
        strategy[target[best]] = d[best] - (index[best] > 0.5)
        lowest[cell] += 1
    flat = (near == far) & (near_slope == 0) & (far_slope == 0)  # constant in between: no chord is higher
    others = np.flatnonzero(~trusted & ~flat)
    if others.size:
        _raise_without_signs(lattice, nodes, others, (a, b, rough), raised)
    return raised, strategy


def _raise_without_signs(
    lattice: StepTables,
    nodes: Floats,
    cells: NDArray[np.intp],
    curvature: tuple[Floats, Floats, Floats],
    raised: Floats,
) -> None:
    """Raises every node that a chord from one of `cells` reaches, without relying on the signs of A and B."""
    m, d = lattice.cells, np.arange(1, lattice.cells + 1)
    a, b, error = (values[cells, None] for values in curvature)
    values = []
    for end, sign in ((0, -1.0), (1, 1.0)):
        value = nodes[cells + end, None] * lattice.chances[0][d - end]
        value = value + nodes[cells + m + end, None] * lattice.chances[1][d - end]
        slack = np.maximum(sign * a + error, 0) + lattice.reach[d] * np.maximum(error - sign * b, 0)
        values.append((value + lattice.kappa * slack / (1 - lattice.contraction)) * (1 + 2 * lattice.error))
    target = cells[:, None] - m + d
    inside = target >= 0
    np.maximum.at(raised, target[inside], np.minimum(*values)[inside])


def _lower_step(lattice: StepTables, lower: Floats, strategy: NDArray[np.intp]) -> Floats:
    """Lower bounds at the nodes after one more selection, with t = `strategy` steps at each node."""
    m = lattice.cells
    nodes = lattice.extended(lower, 0.0, -lattice.error)
    nodes = np.append(nodes, np.zeros(max(len(strategy) + 2 * m - len(nodes), 0)))
    start = np.arange(len(strategy)) + m - strategy
    value = lattice.chances[0][strategy] * nodes[start] + lattice.chances[1][strategy] * nodes[start + m]
    return np.asarray(value * (1 - lattice.error))
