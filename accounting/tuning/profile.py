"""δ(ε) of the best of a random number of runs, from δ(ε) of one run.

Proof: docs/proofs/tuning.md, Theorem 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpassay.accounting.tuning.runs import NumberOfRuns
from dpassay.base.arrays import Floats

_UNIT = 2.0**-53
_MASSES = 3000
_SKIPPED = 24
_BREAKS = 80
_LEAST_SHIFT, _LARGEST_SHIFT = 1e-7, 600.0


@dataclass(frozen=True)
class UpperCurve:
    """An upper bound on a hockey-stick curve δ(ε), which is convex in e^ε and decreases.

    Attributes:
        epsilons: increasing, within ±650, one dimension.
        deltas: upper bounds there, at most 1.
    """

    epsilons: Floats
    deltas: Floats

    def __call__(self, epsilons: Floats) -> Floats:
        """Chords in e^ε between the points; 1 before the first, and the last value after the last."""
        index = np.clip(np.searchsorted(self.epsilons, epsilons, side="right") - 1, 0, self.epsilons.size - 2)
        left, right = self.epsilons[index], self.epsilons[index + 1]
        at = np.clip(epsilons, left, right)
        part = np.expm1(at - left) / np.expm1(right - left) * (1 - 32 * _UNIT)  # the left value is the larger one
        chord = self.deltas[index] + part * np.minimum(self.deltas[index + 1] - self.deltas[index], 0.0)
        chord = np.where(epsilons >= right, self.deltas[index + 1], chord * (1 + 8 * _UNIT))
        return np.asarray(np.where(epsilons < self.epsilons[0], 1.0, np.minimum(chord, 1.0)))

    @staticmethod
    def both(epsilons: Floats, there: Floats, back: Floats) -> UpperCurve:
        """The curve at ε of either sign: δ_{P‖Q}(−ε) = 1 − e^{−ε} + e^{−ε} δ_{Q‖P}(ε).

        Only the corners of the greatest convex curve below the bounds are kept, as chords between any of the points are
        bounds.

        Args:
            epsilons: increasing from 0.
            there, back: upper bounds on δ_{P‖Q} and δ_{Q‖P} there.
        """
        mirrored = np.minimum((-np.expm1(-epsilons) + np.exp(-epsilons) * back) * (1 + 32 * _UNIT), 1.0)
        losses = np.concatenate([-epsilons[:0:-1], epsilons])
        deltas = np.minimum.accumulate(np.concatenate([mirrored[:0:-1], np.minimum(there, 1.0)]))
        t, corners = np.exp(losses), [0]
        for index in range(1, losses.size):
            while len(corners) > 1 and _rises(t, deltas, corners[-2], corners[-1], index):
                corners.pop()
            corners.append(index)
        return UpperCurve(losses[corners], deltas[corners])

    def blowups(self, masses: Floats) -> Floats:
        """sup{P(E): Q(E) ≤ v} at each v in [0, 1], rounded up: the least e^ε v + δ(ε) of some of the points.

        The best of few points first, then those around it; every point gives a bound.
        """
        count, slopes = self.epsilons.size, np.exp(self.epsilons)
        few = np.arange(0, count, _SKIPPED)
        best = few[(slopes[few, None] * masses[None, :] + self.deltas[few, None]).argmin(axis=0)]
        nearby = np.clip(best[None, :] + np.arange(-_SKIPPED, _SKIPPED + 1)[:, None], 0, count - 1)
        lines = slopes[nearby] * masses[None, :] + self.deltas[nearby]
        return np.asarray(np.minimum(lines.min(axis=0) * (1 + 32 * _UNIT), 1.0))


def _rises(t: Floats, deltas: Floats, first: int, middle: int, last: int) -> bool:
    """Whether the middle point lies above the chord of the others."""
    left = (deltas[middle] - deltas[first]) / (t[middle] - t[first])
    return bool(left >= (deltas[last] - deltas[middle]) / (t[last] - t[middle]))


@dataclass(frozen=True)
class Shifts:
    """δ(ε) of the best run is at most Σ weight·δ(ε − shift) of one run, for ε ≥ 0.

    Attributes:
        shifts: one dimension.
        weights: at least 0; they sum to the mean number of runs, or a little more.
    """

    shifts: Floats
    weights: Floats

    @property
    def largest(self) -> float:
        return float(self.shifts.max())

    def __call__(self, curve: UpperCurve, epsilons: Floats) -> Floats:
        """The bound at each ε, for the curve of one run."""
        total = np.zeros(epsilons.shape)
        for shift, weight in zip(self.shifts, self.weights, strict=True):
            # ε − shift is rounded down, as the curve decreases.
            total += weight * curve(epsilons - shift - 4 * _UNIT * (np.abs(epsilons) + abs(shift)))
        return np.asarray(np.minimum(total * (1 + 4 * (self.shifts.size + 4) * _UNIT), 1.0))


def shifts_of(runs: NumberOfRuns, other: UpperCurve) -> Shifts:
    """The shifts of a law of the number of runs.

    Args:
        runs: the law.
        other: δ(ε) of one run in the direction opposite to that of the bound.
    """
    scale = max(1.0, runs.mean if runs.is_poisson else runs.odds)
    masses = np.concatenate([[0.0], np.geomspace(1e-9 / scale, 1.0, _MASSES)])
    masses[-1] = 1.0
    ranked, moved = masses[:-1], other.blowups(masses[1:])
    kept, cut = runs.fall(ranked), runs.fall(moved)
    kept, cut = kept * (1 - 64 * _UNIT), cut * (1 + 64 * _UNIT)
    top = max(0.0, float((cut - kept).max())) * (1 + 8 * _UNIT) + 128 * _UNIT
    if not _LEAST_SHIFT < top < _LARGEST_SHIFT:  # for differences in float64, too little or too much
        return Shifts(np.array([top]), np.array([runs.mean]))
    # Over outcomes with z times the likelihood ratio: the largest of a − z·b, a and b relative to the mean.
    a, b = np.exp(-kept) * (1 + 16 * _UNIT), np.exp(-cut) * (1 - 16 * _UNIT)
    points = np.concatenate([[0.0], np.exp(np.linspace(0.0, top, _BREAKS))])
    values = np.maximum((a[None, :] - points[:, None] * b[None, :]).max(axis=1), 0.0) + 16 * _UNIT
    values[0], values[-1] = 1.0 + 16 * _UNIT, 0.0
    slopes = np.diff(values) / np.diff(points)
    bends = np.maximum(np.append(slopes[1:], 0.0) - slopes, 0.0)  # of the chords, which lie above a convex function
    weights = bends * points[1:] * (1 + 64 * _UNIT)
    positive = weights > 0
    return Shifts(np.log(points[1:][positive]), runs.mean * weights[positive])
