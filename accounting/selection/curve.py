"""The worst case of adaptively composed bounded-range selections, enclosed on a lattice.

Write F_n(ε) for the largest δ(ε) of n η-bounded-range selections, each chosen after the outcomes of those before it,
and G_n(x) = F_n(log x). One selection takes away a loss L with E_P e^{−L} = 1, so

    F_n(ε) = sup E_P F_{n−1}(ε − L),  F_0(ε) = (1 − e^ε)₊.

G_n is a supremum of convex decreasing functions of x, hence convex, and E_P G_{n−1}(x e^{−L}) is largest where e^{−L}
sits on the two ends of its range. Their mean is 1, so the supremum is over t ∈ [0, η] alone:

    F_n(ε) = max_t p_t F_{n−1}(ε − t) + (1 − p_t) F_{n−1}(ε − t + η),  p_t = (1 − e^{t−η})/(1 − e^{−η})

(Dong, Durfee and Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms", 2020). In words: G_n(x)
is the largest value at x of a chord of G_{n−1} from y to e^η y, y ≤ x ≤ e^η y. Swapping P and Q exchanges t and η − t,
so F_n(−ε) = 1 − e^{−ε} + e^{−ε} F_n(ε), and only ε ≥ 0 is kept.

**Upper bound.** Keep numbers u_i ≥ G(x_i) at x_i = e^{ih}, h = η/m. Their piecewise linear interpolant lies above the
convex G, and its highest chords lie above those of G. With y in cell j, y = x_j r and 1 ≤ r ≤ e^h, both ends of the
chord move on one linear piece each, and at x_i, i = j + d, the chord's value is

    c − (A (r − 1) + e^{(d−m)h} B/r)/(1 − e^{−η}),  κ = e^h − 1,
    A = (e^{−η} s_{j+m} − s_j)/κ,  B = u_j − u_{j+m} − (s_j − s_{j+m})/κ,  s_j = u_{j+1} − u_j.

For A, B > 0 it is concave in r, and largest where r² = e^{(d−m)h} B/A; this is inside the cell for ω ≤ d ≤ ω + 2,
ω = m + log(A/B)/h, while the value rises throughout the cell for larger d and falls for smaller. So each cell matters
to two or three i only: a step costs O(1) a lattice point, and t is not on a grid. Where a rising cell might be followed
by a falling one with neither a candidate, the node between them is made one. The interpolant errs by O(h²) a step; that
works like noise whose variance is larger by a share of about 1/m².

**Rounding.** The u_i are floats and taken as they are; only what is computed from them errs. A and B are trusted where
their rounding is below 2^−12 h of them: then ω moves by less than 1/32, by which its range is widened, and log r by
less than ρ = 2^−11 h, which costs at most 2ρ² e^{(d−m)h} B/(1 − e^{−η}), the value being stationary; this is added.
Any other cell is bounded, for every d, by its value at an end and κ times the parts of A and B that could raise it
further on. The value itself is a sum of positive products; its relative error, at most (64 + 4η)2^−53, is added in each
step.

**Floor.** Beyond the last node u is a constant, τk/n in step k. Raising G to a constant raises no later G by more than
that, so this adds at most τ, and what lies under it need not be kept.

**Lower bound.** t restricted to multiples of h, taken near the maximiser of the upper bound, is one adversary's
strategy: its δ at the nodes, rounded down, is at most F_n.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cupel.accounting.bounds import Interval
from cupel.accounting.conversions.formulas import Floats

_UNIT = 2.0**-53
_WIDER = 1 / 32
_TRUSTED = 2.0**-12


@dataclass(frozen=True, slots=True, eq=False)
class SelectionCurve:
    """Bounds on F_n at ε = 0, step, 2·step, …; beyond the last node the upper bound is `floor`, the lower one 0."""

    step: float
    upper: Floats
    lower: Floats
    floor: float

    def epsilon(self, delta: float) -> Interval:
        """An enclosure of the least ε ≥ 0 with F_n(ε) ≤ δ, for δ above the floor.

        From above the interpolant is inverted. From below the convex G_n lies above a secant prolonged to the right:
        the one through a node with its lower bound and the node before with its upper bound.
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
        """An enclosure of F_n(ε), ε ≥ 0; from below by the secant of the next two nodes, prolonged to the left."""
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
        """Upper bounds on F_n, ε ≥ 0, any shape: linear in e^ε between nodes; the rounding of the place is charged."""
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
        cells: m, lattice steps an η; a power of 2, so that η = m·h exactly.
        floor: τ in (0, 1).
    """
    step = eta / cells
    if not count:
        return SelectionCurve(step, np.zeros(1), np.zeros(1), 0.0)
    # F_1(ε) = (1 − e^{(ε − η)/2})²/(1 − e^{−η}) on [0, η], at t = (η + ε)/2.
    first = np.expm1(np.arange(-cells, 1) * (step / 2)) ** 2 / -math.expm1(-eta)
    lattice = _Lattice.of(eta, cells)
    upper, lower = np.maximum(first * (1 + lattice.error), floor / count), first * (1 - lattice.error)
    for k in range(2, count + 1):
        raised, strategy = _upper_step(lattice, upper, floor * ((k - 1) / count), floor * (k / count))
        lower = _lower_step(lattice, lower, strategy)
        kept = 1 + int(np.flatnonzero(raised > floor * (k / count)).max(initial=0))
        upper, lower = raised[:kept], lower[:kept]
    return SelectionCurve(step, np.minimum(upper, 1.0), lower, floor)


@dataclass(frozen=True, slots=True, eq=False)
class _Lattice:
    """What a step needs besides the curve: tables over d = 0…m, and the reflection at ε = 0."""

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
    def of(cls, eta: float, cells: int) -> _Lattice:
        step, d = eta / cells, np.arange(cells + 1.0)
        contraction, whole = math.exp(-eta), -math.expm1(-eta)
        reach, left = np.exp((d - cells) * step), -np.expm1((d - cells) * step)
        right = math.exp(step - eta) * np.expm1(np.maximum(d - 1, 0) * step)
        chances = left / whole, contraction * np.expm1(d * step) / whole
        reflection = -np.expm1(-d[:0:-1] * step), np.exp(-d[:0:-1] * step)
        error = (64 + 4 * eta) * _UNIT
        return cls(cells, step, math.expm1(step), contraction, reach, left, right, chances, reflection, error)

    def extended(self, values: Floats, beyond: float, error: float) -> Floats:
        """A curve given at the nodes 0…N at the nodes −m … N + m + 1: reflected on the left, constant on the right."""
        mirror = np.full(self.cells, beyond)
        there = min(self.cells, len(values) - 1)
        if there:
            mirror[self.cells - there :] = values[there:0:-1]
        ghosts = (self.reflection[0] + self.reflection[1] * mirror) * (1 + error)
        return np.concatenate([ghosts, values, np.full(self.cells + 1, beyond)])


def _upper_step(lattice: _Lattice, upper: Floats, floor: float, next_floor: float) -> tuple[Floats, NDArray[np.intp]]:
    """Upper bounds at the nodes 0 … N + m after one more selection, and a good t at each, in lattice steps."""
    m, h, kappa = lattice.cells, lattice.step, lattice.kappa
    nodes = lattice.extended(upper, floor, lattice.error)
    nodes = np.minimum(np.maximum.accumulate(nodes[::-1])[::-1], 1.0)  # no larger than 1 and decreasing, as G is
    slopes, size = np.diff(nodes), len(upper) + m  # of the cells −m … N; number c starts at node c − m
    near, far, near_slope, far_slope = nodes[:size], nodes[m : m + size], slopes[:size], slopes[m : m + size]

    a = (lattice.contraction * far_slope - near_slope) / kappa
    b = near - far - (near_slope - far_slope) / kappa
    rough = (np.abs(near_slope) + np.abs(far_slope)) * (24 * _UNIT / kappa) + np.abs(near - far) * (24 * _UNIT)
    trusted = (rough <= _TRUSTED * h * np.minimum(a, b)) & (a > 0)
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
        place = np.clip((np.sqrt(reach / a_) - 1) / kappa, 0.0, 1.0)  # (r − 1)/κ
        rest, moved = 1 - place, kappa * place
        value = (near[cell] * rest + nodes[cell + 1] * place) * (lattice.left[d] + moved)
        value += (far[cell] * rest + nodes[cell + m + 1] * place) * (
            lattice.right[d] + kappa * lattice.contraction * rest
        )
        value = (value / (1 + moved) + lost * reach) * inflation
        target = cell - m + d
        np.maximum.at(raised, target, value)
        best = value == raised[target]
        strategy[target[best]] = d[best] - (place[best] > 0.5)
        lowest[cell] += 1
    flat = (near == far) & (near_slope == 0) & (far_slope == 0)  # and so constant in between: no chord is higher
    others = np.flatnonzero(~trusted & ~flat)
    if others.size:
        _raise_without_signs(lattice, nodes, others, (a, b, rough), raised)
    return raised, strategy


def _raise_without_signs(
    lattice: _Lattice, nodes: Floats, cells: NDArray[np.intp], curvature: tuple[Floats, Floats, Floats], raised: Floats
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


def _lower_step(lattice: _Lattice, lower: Floats, strategy: NDArray[np.intp]) -> Floats:
    """Lower bounds at the nodes after one more selection, with t = `strategy` steps at each of them."""
    m = lattice.cells
    nodes = lattice.extended(lower, 0.0, -lattice.error)
    nodes = np.append(nodes, np.zeros(max(len(strategy) + 2 * m - len(nodes), 0)))
    start = np.arange(len(strategy)) + m - strategy
    value = lattice.chances[0][strategy] * nodes[start] + lattice.chances[1][strategy] * nodes[start + m]
    return np.asarray(value * (1 - lattice.error))
