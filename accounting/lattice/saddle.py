"""Where to put a lattice: cumulants of a composition on coarse cells, and the saddle point of a question.

Nothing here is a bound. A poor guess costs time or width, never correctness.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx

from dpassay.accounting.lattice.laws import Law
from dpassay.base.arrays import Floats

_TILTS = np.concatenate([[0.0], np.geomspace(1e-3, 300.0, 60)])
_NEAR = np.geomspace(1e-5, 1.0, 50)
_SLOPES = np.geomspace(0.003, 1.5, 19)


@dataclass(frozen=True, slots=True)
class Saddle:
    """The exponent λ at which a tilted composition has its mean at the loss of interest."""

    tilt: float  # λ ≥ 0
    epsilon: float  # the loss
    log_delta: float  # log δ(ε) by the normal approximation of the tilted sum
    spread: float  # its standard deviation


class Cumulants:
    """K(λ) = Σ n log E_P e^{λL} of a composition and its first two derivatives, on a grid of λ.

    Each law comes with its count, and with the losses, low and high, between which it matters.
    """

    def __init__(self, laws: Sequence[tuple[Law, int]], supports: Sequence[tuple[float, float]]) -> None:
        parts = zip(laws, supports, strict=True)
        self._parts = [(count, *_coarse(law, *support)) for (law, count), support in parts]
        variance = widest = top = 0.0
        for count, p, loss in self._parts:
            top += count * float(loss.max())
            mean = float(p @ loss)
            variance += count * float(p @ (loss - mean) ** 2)
            widest = max(widest, float(np.ptp(loss)))
        deviation = max(math.sqrt(variance), 1e-12)
        grid = _TILTS / deviation
        tilts = grid[grid * widest < 600]
        values, means, variances = self._at(tilts)
        # Once all tilted mass is at a finite upper end, a larger tilt changes nothing.
        at_end = (variances < 1e-2 * variances[0]) & (top - means < 3 * np.sqrt(variances))
        some = max(1, int(np.argmax(at_end)) or tilts.size)
        self.tilts, self.values, self.means, self.variances = (x[:some] for x in (tilts, values, means, variances))

    def _at(self, tilts: Floats) -> tuple[Floats, Floats, Floats]:
        value, mean, variance = np.zeros(tilts.size), np.zeros(tilts.size), np.zeros(tilts.size)
        for count, p, loss in self._parts:
            heights = np.outer(tilts, loss)
            top = heights.max(axis=1, keepdims=True)
            weights = np.exp(heights - top) * p
            total = weights.sum(axis=1)
            first = weights @ loss / total
            second = weights @ (loss * loss) / total
            value += count * (np.log(total) + top[:, 0])
            mean += count * first
            variance += count * np.maximum(second - first * first, 0.0)
        return value, mean, variance

    def at_delta(self, delta: float) -> Saddle:
        """The saddle of ε(δ)."""
        return self._where(self._log_deltas, math.log(delta))

    def at_epsilon(self, epsilon: float) -> Saddle:
        """The saddle of δ(ε)."""
        return self._where(-self.means, -epsilon)

    def at_level(self, p: float) -> Saddle:
        """The saddle of the ε at which Q(L > ε) = p, where the blow-up of p is attained."""
        deviation = np.sqrt(np.maximum(self.variances, 1e-24))
        log_mass = self.values - (self.tilts + 1) * self.means + np.log(_mills((self.tilts + 1) * deviation))
        return self._where(log_mass, math.log(p))

    def values_at(self, tilts: Floats) -> Floats:
        """K(λ) of each λ."""
        return self._at(tilts)[0]

    def slopes(self, tilt: float, tail: float) -> tuple[tuple[float, float], tuple[float, float]]:
        """Good exponents of Chernoff's bound for the composition tilted by λ, to the left and to the right, and their
        windows.

        The windows are the losses between which all but `tail` of the mass lies.
        """
        base, _, variance = self._at(np.array([tilt]))
        room = math.log(2 / tail)
        slopes = _SLOPES * math.sqrt(2 * room / max(float(variance[0]), 1e-24))
        values, _, _ = self._at(np.concatenate([tilt - slopes, tilt + slopes]))
        ends = (values - base + room).reshape(2, -1) / slopes
        left, right = (int(np.argmin(each)) for each in ends)
        return (float(slopes[left]), float(slopes[right])), (-float(ends[0, left]), float(ends[1, right]))

    @functools.cached_property
    def _log_deltas(self) -> Floats:
        deviation = np.sqrt(np.maximum(self.variances, 1e-24))
        share = _mills(self.tilts * deviation) - _mills((self.tilts + 1) * deviation)
        # The exponent is at most 0, but at large λ it is the difference of two numbers as large as λ times the loss.
        exponent = np.minimum(self.values - self.tilts * self.means, 0.0)
        return np.asarray(exponent + np.log(np.maximum(share, 1e-300)))

    def _where(self, falling: Floats, wanted: float) -> Saddle:
        """The λ at which a decreasing function has a value, by interpolation; an end of the grid if there is none."""
        falling = np.minimum.accumulate(falling)
        tilt = float(np.interp(-wanted, -falling, self.tilts))
        pick = [float(np.interp(tilt, self.tilts, column)) for column in (self.means, self._log_deltas)]
        return Saddle(tilt, pick[0], pick[1], math.sqrt(float(np.interp(tilt, self.tilts, self.variances))))


def _mills(x: Floats) -> Floats:
    """e^{x²/2} Φ̄(x)."""
    return np.asarray(erfcx(x / math.sqrt(2)) / 2)


def _coarse(law: Law, low: float, high: float) -> tuple[Floats, Floats]:
    """Masses and losses log(P/Q) of some 200 cells, finer near zero."""
    near = _NEAR * max(abs(low), abs(high), 1e-12)
    thresholds = np.sort(np.concatenate([np.linspace(low, high, 129), -near, near]))
    thresholds = thresholds[(thresholds >= low) & (thresholds <= high) & (np.diff(thresholds, prepend=-math.inf) > 0)]
    tails = law.tails(thresholds)
    p = np.concatenate(
        [[tails.p_below[0]], _masses(tails.p_above, tails.p_below), [tails.p_above[-1] - law.infinity_mass]]
    )
    q = np.concatenate([[tails.q_below[0]], _masses(tails.q_above, tails.q_below), [tails.q_above[-1]]])
    known = (p > 0) & (q > 0)
    if not known.any():
        return np.ones(1), np.full(1, high)
    p, q = p[known], q[known]
    return p / max(p.sum(), 1e-300), np.clip(np.log(p) - np.log(q), low, high)


def _masses(above: Floats, below: Floats) -> Floats:
    return np.where(above[:-1] <= 0.5, above[:-1] - above[1:], below[1:] - below[:-1])
