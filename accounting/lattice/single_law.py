"""Certified answers about a single law, from its own masses, without a lattice."""

from __future__ import annotations

import math

import numpy as np

from dpassay.accounting.bounds import Interval
from dpassay.accounting.lattice.laws import UNIT, Law
from dpassay.base.arrays import Floats

_FIRST = np.concatenate([-np.geomspace(650, 1e-12, 181), [0.0], np.geomspace(1e-12, 650, 181)])
_NEAR = np.append(np.geomspace(1.0, 1e-16, 97), 0.0)
_PARTS = np.arange(1, 256) / 256
_ROUNDS = 12
_POINTS = 33


class SingleLaw:
    """δ(ε), ε(δ) and the blow-up of one law in one direction; the same interface as `Enclosure`."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self._wide = True

    def infinity_mass(self, side: int) -> float:
        """P(loss = ∞), rounded up (side 1) or down (side −1)."""
        if self.law.upper_only and side < 0:
            return 0.0
        if self.law.upper_only:
            return min(self.law.infinity_mass_bound, float(self.law.hockey_stick_upper(np.array([650.0]))[0]))
        return min(1.0, self.law.infinity_mass * (1 + side * self.law.infinity_mass_error))

    def profile(self, epsilons: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ at each ε of either sign."""
        order = np.argsort(epsilons, kind="stable")
        low, high = np.empty(epsilons.size), np.empty(epsilons.size)
        low[order], high[order] = self._curve(epsilons[order])
        return low, high

    def _curve(self, losses: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on δ at losses in increasing order."""
        if losses[-1] > 650:  # e^b is near the end of float64: δ there is at most what it is here
            low, high = self._curve(np.minimum(losses, 650.0))
            return np.where(losses > 650, 0.0, low), high
        if self.law.upper_only:
            high = self.law.hockey_stick_upper(losses)
            return np.maximum(-np.expm1(losses), 0.0) * (1 - 8 * UNIT), high
        # A point a little below each one, since a bound uses the mass above the threshold before.
        gaps = 1e-7 * (1e-3 + np.abs(losses))
        doubled = np.stack([losses - gaps, losses], axis=1).ravel()
        index = np.argsort(doubled, kind="stable")
        low, high = np.empty(doubled.size), np.empty(doubled.size)
        low[index], high[index], _ = self.law.hockey_stick(doubled[index])
        trivial = np.maximum(-np.expm1(losses), 0.0) * (1 - 8 * UNIT)
        margin = 64 * UNIT * (1 + abs(self.law.highest)) + 2 * self.law.end_error
        beyond = losses > self.law.highest + margin  # only infinite losses are larger
        high = np.where(beyond, self.infinity_mass(1), high[1::2])
        return np.maximum(np.where(beyond, self.infinity_mass(-1), low[1::2]), trivial), high

    def delta(self, epsilon: float, width: float) -> tuple[Interval, bool]:
        """δ(ε), and whether upper − lower ≤ width·upper."""
        low, high = self._curve(np.array([epsilon]))
        result = Interval(min(float(low[0]), float(high[0])), float(high[0]))
        return result, result.width <= width * result.upper

    def epsilon(self, delta: float, width: float) -> tuple[Interval, bool]:
        """The least ε ≥ 0 with δ(ε) ≤ δ, and whether upper − lower ≤ width·upper."""
        if self.infinity_mass(1) > delta:
            return Interval(math.inf if self.infinity_mass(-1) > delta else 0.0, math.inf), self.infinity_mass(
                -1
            ) > delta
        crossing = self._crossing(delta, 1, _FIRST[_FIRST >= 0])
        high = min(crossing, self.largest())
        low = 0.0
        if not self.law.upper_only:
            near = crossing * (1 - _NEAR) if math.isfinite(crossing) else _FIRST[_FIRST >= 0]
            low = min(self._crossing(delta, 0, near), high)
        self._wide = not (math.isfinite(high) and high - low <= 1e-3 * high)
        return Interval(low, high), math.isfinite(high) and high - low <= width * high

    @property
    def wide(self) -> bool:
        """Whether the last answer is wide; it does not depend on the requested width."""
        return self._wide

    def largest(self) -> float:
        """An upper bound on the largest finite loss, at least 0."""
        margin = 64 * UNIT * (1 + abs(self.law.highest)) + 2 * self.law.end_error
        return max(self.law.highest + margin, 0.0) if math.isfinite(self.law.highest) else math.inf

    def _crossing(self, delta: float, side: int, grid: Floats) -> float:
        """Side 1: the least ε ≥ 0 whose upper bound is at most δ. Side 0: the largest whose lower bound exceeds δ.

        The first search is among the losses of `grid`.
        """
        low, high = 0.0, math.inf  # the best so far, since the bound at a loss depends on the grid
        for _ in range(_ROUNDS):
            above = self._curve(grid)[side] > delta
            index = int(np.count_nonzero(np.logical_and.accumulate(above)))
            if index < grid.size:
                high = min(high, float(grid[index]))
            if index:
                low = max(low, float(grid[index - 1]))
            if not math.isfinite(high) or high - low <= 4 * UNIT * high:
                break
            grid = np.concatenate([[low], low + (high - low) * _PARTS, [high]])
        return high if side else low

    def blowup(self, p: float, width: float) -> tuple[Interval, bool]:
        """sup{P(E): Q(E) ≤ p} for p in (0, 1), and whether upper − lower ≤ width·upper."""
        grid, before = _FIRST, math.inf
        for _ in range(6):
            known = self.law.tails(grid)
            index = int(np.clip(np.count_nonzero(known.q_above > p), 1, grid.size - 1))
            low, high = self._blowups(grid, np.array([p]))
            result = Interval(min(float(low[0]), float(high[0])), float(high[0]))
            if result.width <= min(width, 1e-9) * result.upper or grid[index] - grid[index - 1] < 1e-14:
                break
            if self.law.upper_only and not result.upper < before * (1 - 1e-9):
                break  # a finer grid does not help
            before = result.upper
            near = np.linspace(grid[max(index - 2, 0)], grid[min(index + 1, grid.size - 1)], 4 * _POINTS)
            grid = np.unique(np.concatenate([near, grid[:: max(1, grid.size // 64)]]))
        return result, result.width <= width * result.upper

    def blowups(self, ps: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds on the blow-up of each p in (0, 1), from one grid of losses."""
        mass = min(float(ps.min()), 1e-3) * 1e-9
        low, high = self.law.support(1e-12, mass)
        other, _ = self.law.swapped().support(mass, 1e-12) if not self.law.upper_only else (-high, 0.0)
        grid = np.unique(np.concatenate([np.linspace(min(low, -abs(other)), high, 8001), _FIRST]))
        return self._blowups(grid, ps)

    def _blowups(self, grid: Floats, ps: Floats) -> tuple[Floats, Floats]:
        """Upper: the least e^b p + δ(b) of a grid. Lower: chords of (Q(L > b), P(L > b)), as the blow-up is concave."""
        grid = grid[np.abs(grid) <= 650]
        _, curve = self._curve(grid)
        t = np.exp(grid)
        high = np.array([float((t * p + curve).min()) for p in ps]) * (1 + 16 * UNIT)
        high = np.minimum(high, 1.0)
        if self.law.upper_only:
            return ps.copy(), np.maximum(high, ps)
        tails = self.law.tails(grid)
        q = np.minimum(tails.q_above * (1 + tails.error) + tails.q_slack, 1.0)
        attained = np.maximum(tails.p_above * (1 - tails.error), 0.0)
        # Both rise to the left. The first point is the event of infinite losses, the last one is the whole space.
        q = np.concatenate([[0.0], np.maximum.accumulate(q[::-1]), [1.0]])
        attained = np.concatenate([[self.infinity_mass(-1)], np.maximum.accumulate(attained[::-1]), [1.0]])
        low = np.interp(ps, q, attained) * (1 - 16 * UNIT)
        return np.minimum(np.maximum(low, ps), high), np.maximum(high, ps)
