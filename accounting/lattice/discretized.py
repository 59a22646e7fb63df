"""The law of several mechanisms together, as atoms on a lattice that bound it from above."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpassay.accounting.lattice.laws import UNIT, Atoms, Law
from dpassay.accounting.lattice.measure import enclosing_measures, rounded_step
from dpassay.base.arrays import Floats

_POINTS = 1 << 13
_TAIL = 1e-40  # the mass, of P or of Q, beyond the ends


class Discretized(Atoms):
    """Atoms so close to each other that a lattice need not meet them."""

    discrete = False

    def __init__(self, p: Floats, q: Floats, *, error: float, losses: Floats) -> None:
        super().__init__(p, q, error=error, losses=losses)
        self.atom, self.spacing = None, 0.0


def upper_product(laws: Sequence[tuple[Law, int]]) -> Law:
    """A pair whose curve is at least that of the product of some laws, each as often as its count.

    Each part is bounded from above on one lattice (`enclosing_measures`), and the masses are convolved. What P's masses
    leave of Q is where P has none.

    Proof: docs/proofs/lattice.md, Theorems 2 and 3.
    """
    ends = [_ends(law) for law, _ in laws]
    spread = math.sqrt(sum(count * (high - low) ** 2 for (low, high), (_, count) in zip(ends, laws, strict=True)))
    step = rounded_step(max(spread, 1e-12) / _POINTS)
    product = _Masses(0.0, step, np.ones(1), 0.0, 0.0)
    for (law, count), (low, high) in zip(laws, ends, strict=True):
        measure, _ = enclosing_measures(law, step, step, _TAIL, low, high, upper_only=True)
        part = _Masses(measure.start, step, measure.masses, measure.infinity_mass, measure.excess + 4 * UNIT)
        while count:  # by squaring
            product = product.times(part) if count & 1 else product
            count >>= 1
            part = part.times(part) if count else part
    return product.law()


def _ends(law: Law) -> tuple[float, float]:
    """The losses beyond which neither P nor Q has much mass."""
    low, high = law.support(_TAIL, _TAIL)
    if law.upper_only:
        return low, high
    other = law.swapped().support(_TAIL, _TAIL)
    return min(low, -other[1]), max(high, -other[0])


class _Masses:
    """Masses of P at start + i·step and at infinity; (1 + excess) times it bounds a pair from above."""

    def __init__(self, start: float, step: float, masses: Floats, infinity_mass: float, excess: float) -> None:
        self.start, self.step, self.masses, self.infinity_mass, self.excess = start, step, masses, infinity_mass, excess

    def losses(self) -> Floats:
        return np.asarray(self.start + self.step * np.arange(self.masses.size))

    def times(self, other: _Masses) -> _Masses:
        masses = np.convolve(self.masses, other.masses)
        first, second = float(self.masses.sum()), float(other.masses.sum())
        infinite = self.infinity_mass * (second + other.infinity_mass) + first * other.infinity_mass
        error = (2 * min(self.masses.size, other.masses.size) + 16) * UNIT
        excess = (1 + self.excess) * (1 + other.excess) * (1 + error) - 1
        return _Masses(self.start + other.start, self.step, masses, infinite, excess)._trimmed()

    def _trimmed(self) -> _Masses:
        """Without the ends: mass above goes to infinity, and mass below to the lowest loss that stays."""
        of_q = self.masses * np.exp(-np.clip(self.losses(), -700.0, 700.0))
        left = int(np.count_nonzero(np.cumsum(np.maximum(of_q, self.masses)) <= _TAIL))
        right = int(np.count_nonzero(np.cumsum(np.maximum(of_q, self.masses)[::-1]) <= _TAIL))
        if left + right >= self.masses.size:
            return self
        masses = self.masses[left : self.masses.size - right].copy()
        masses[0] += float(self.masses[:left].sum()) * (1 + left * UNIT)
        beyond = float(self.masses[self.masses.size - right :].sum()) * (1 + (right + 2) * UNIT)
        return _Masses(self.start + left * self.step, self.step, masses, self.infinity_mass + beyond, self.excess)

    def law(self) -> Law:
        kept = self.masses > 0
        masses, losses = self.masses[kept], self.losses()[kept]
        q = np.maximum(masses * np.exp(-losses), 1e-300)  # far to the right it may underflow
        absent = max(0.0, 1 - math.fsum(q))
        sums = math.fsum(masses) + self.infinity_mass, math.fsum(q) + absent
        error = self.excess + max(abs(total - 1) for total in sums)
        error += (64 + 4 * float(np.abs(losses).max(initial=0.0))) * UNIT
        p, q = np.append(masses, [self.infinity_mass, 0.0]), np.append(q, [0.0, absent])
        some = (p > 0) | (q > 0)
        return Discretized(p[some], q[some], error=error, losses=losses)
