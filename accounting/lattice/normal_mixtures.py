"""Mixtures of normal laws: Gaussian noise, alone, with sampling, or with several shifts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from dpassay.accounting.lattice.laws import _EXP, UNIT, Law, Remainder, Tails, exp_minus_weight
from dpassay.base.arrays import Floats

_NDTR_ERROR = 8 * UNIT  # relative error of scipy's ndtr, divided by 1 + z²; tests compare it with mpmath


class NormalMixtures(Law):
    """P = Σ w_k N(s_k, 1) against Q = Σ v_k N(r_k, 1) on the line, with a loss that increases with x.

    The loss increases with x if all s_k ≥ 0 = r_k, and if r_k = −s_k with equal weights.

    Args:
        weights: w_k, positive, sum 1.
        shifts: s_k ≥ 0, in standard deviations of the noise, with relative error at most 4u.
        mirrored: Q has the shifts −s_k and the same weights; otherwise Q = N(0, 1).
        slack: mass of P that was left out; `weights` then sum to 1 − slack.
    """

    def __init__(
        self,
        weights: Sequence[float] | Floats,
        shifts: Sequence[float] | Floats,
        *,
        mirrored: bool = False,
        slack: float = 0.0,
    ) -> None:
        order = np.argsort(np.asarray(shifts, dtype=np.float64), kind="stable")
        self.weights: Floats = np.asarray(weights, dtype=np.float64)[order]
        self.shifts: Floats = np.asarray(shifts, dtype=np.float64)[order]
        self.mirrored, self.slack = mirrored, slack
        zero_weight = float(self.weights[self.shifts == 0].sum())
        if not mirrored and zero_weight > 0:
            self.lowest = math.log(zero_weight)
        if self.weights.size > 2 or (mirrored and self.weights.size > 1):
            self.relative_cost = 4 * self.weights.size  # the inverse of the loss is found by iteration
        self._log_weights = np.log(self.weights)
        # A smaller shift is a post-processing of N(s, 1) by scaling and noise, and so is a mixture by a random choice.
        self.dominating_mu = (2 if mirrored else 1) * float(self.shifts[-1]) if not slack else math.inf
        self._shifted_mass = math.fsum(self.weights[self.shifts > 0]) + slack

    def pruned(self, mass: float) -> Law:
        if self.mirrored or self.weights.size < 3:
            return self
        order = np.argsort(self.weights)
        gone = order[np.cumsum(self.weights[order]) <= mass]
        gone = gone[self.shifts[gone] > 0]
        if not gone.size:
            return self
        kept = np.setdiff1d(np.arange(self.weights.size), gone)
        left_out = float(self.weights[gone].sum()) * (1 + 2 * gone.size * UNIT) + self.slack
        return NormalMixtures(self.weights[kept], self.shifts[kept], slack=left_out)

    def support(self, left: float, right: float) -> tuple[float, float]:
        return self._losses_of(self.weights, self.shifts, left, right)

    def support_under_q(self, left: float, right: float) -> tuple[float, float]:
        if self.mirrored:
            return self._losses_of(self.weights, -self.shifts, left, right)
        return self._losses_of(np.ones(1), np.zeros(1), left, right)

    def _losses_of(self, weights: Floats, shifts: Floats, left: float, right: float) -> tuple[float, float]:
        """The losses at points beyond which Σ w_k N(s_k, 1) has a mass of about `left` and `right` or less."""
        ends = []
        for mass, side in ((left, -1), (right, 1)):
            heavy = weights * weights.size > mass
            share = np.minimum(mass / (weights.size * weights[heavy]), 0.5)
            ends.append(side * float((side * shifts[heavy] - ndtri(share)).max(initial=0.0)))
        low, high = (min(max(float(loss), -650.0, self.lowest), 650.0) for loss in self.loss(np.array(ends))[0])
        return min(low, high), high

    def tails(self, thresholds: Floats) -> Tails:
        t_minus_w = self._exp_minus_weight(thresholds)
        x, shift = self._inverse(thresholds) if t_minus_w is None else self._inverse_of_two(thresholds, *t_minus_w)
        far = np.abs(x) > 40 + self.shifts[-1]  # both laws have less than 1e-315 there
        x = np.where(far, np.copysign(np.inf, x), x)
        remainder = None
        if self.mirrored:
            p_above, p_below, reach = self._sides(x, self.weights, self.shifts)
            q_above, q_below, other = self._sides(x, self.weights, -self.shifts)
            reach = np.maximum(reach, other)
        else:
            q_above, q_below = _normal_sides(x)
            zeros = int(np.count_nonzero(self.shifts == 0))
            zero_weight = float(self.weights[:zeros].sum())
            p_above, p_below, reach = self._sides(x, self.weights[zeros:], self.shifts[zeros:])
            if zero_weight and self.slack <= 1e-6 * self._shifted_mass:
                known = t_minus_w if self._shifted_mass == self._shift_probability else None
                remainder = Remainder(p_above, p_below, self._shifted_mass, zero_weight, known=known)
            if zero_weight:
                p_above, p_below = p_above + zero_weight * q_above, p_below + zero_weight * q_below
        # An argument z errs by at most 8u(|x| + s), which moves log Φ(z) by at most |z| + 1 times that (its hazard).
        finite = np.isfinite(x)
        reach = np.maximum(reach, np.abs(x))
        reach, size = np.where(finite, reach, 0.0), np.where(finite, np.abs(x), 0.0) + self.shifts[-1]
        error = _NDTR_ERROR * (1 + reach * reach) + 8 * UNIT * size * (reach + 1) + 2 * self.weights.size * UNIT
        return Tails(p_above, p_below, q_above, q_below, error, shift, self.slack, remainder=remainder)

    def _sides(self, x: Floats, weights: Floats, shifts: Floats) -> tuple[Floats, Floats, Floats]:
        """Mixture mass above and below x, and the largest |argument| of a Φ."""
        above, below = np.zeros(x.shape), np.zeros(x.shape)
        for weight, point in zip(weights, shifts, strict=True):
            up, down = _normal_sides(x - point)
            above += weight * up
            below += weight * down
        return above, below, np.maximum(np.abs(x - shifts[0]), np.abs(x - shifts[-1]))

    def loss(self, x: Floats) -> tuple[Floats, Floats]:
        """L(x), and a bound on its rounding error."""
        up = self._log_ratio(x)
        value = up - self._log_ratio(-x) if self.mirrored else up
        size = self.shifts[-1] * (np.abs(x) + self.shifts[-1]) + 2 + float(np.abs(self._log_weights).max())
        return value, (32 + self.weights.size) * UNIT * size

    def _log_ratio(self, x: Floats) -> Floats:
        """log Σ w_k e^{s_k x − s_k²/2}."""
        return self._ratio_and_slope(x)[0]

    def _inverse(self, b: Floats) -> tuple[Floats, Floats]:
        """x with L(x) near b, and a bound on |L(x) − b|; −∞ with 0 if every loss is above b."""
        if self.weights.size == 1 and not self.mirrored:
            point = self.shifts[0]
            x = b / point + point / 2
            return x, 16 * UNIT * (np.abs(b) + point * point)
        if self.mirrored and self.weights.size == 1:
            x = b / (2 * self.shifts[0])
            return x, 16 * UNIT * np.abs(b)
        return self._inverse_by_newton(b)

    def _exp_minus_weight(self, b: Floats) -> tuple[Floats, Floats] | None:
        """e^b − 1 + q and its error divided by e^b, for one shift with probability q; None for any other law."""
        if self.weights.size != 2 or self.mirrored or self.shifts[0]:
            return None
        return exp_minus_weight(
            np.minimum(np.maximum(b, -700.0), 700.0), self._shift_probability, float(self.weights[0])
        )

    @property
    def _shift_probability(self) -> float:
        """q of a single shift. With slack, 1 − q is the weight that is known."""
        return float(self.weights[-1]) if not self.slack else 1 - float(self.weights[0])

    def _inverse_of_two(self, b: Floats, t_minus_w: Floats, rounding: Floats) -> tuple[Floats, Floats]:
        """x with L(x) = log(1 − q + q e^y), y = s(x − s/2), so y = log((e^b − 1 + q)/q); and a bound on |L(x) − b|.

        The rounding of e^b − 1 + q moves L by its own size divided by e^b; that of y moves it by (e^b − 1 + q)/e^b
        times 16u(|y| + s|x| + s²).
        """
        point = float(self.shifts[1])
        b = np.minimum(np.maximum(b, -700.0), 700.0)
        if self.slack:  # 1 − w₀ is not a known weight
            rounding = rounding + 4 * UNIT * np.exp(-np.maximum(b, -1.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_excess, log_weight = np.log(t_minus_w), math.log(float(self.weights[1]))
            y = log_excess - log_weight  # their quotient may leave float64
            x = y / point + point / 2
            share = t_minus_w * np.exp(-b)
            shift = 2 * rounding + share * 2 * _EXP * (np.abs(log_excess) + abs(log_weight))
            shift += share * (4 * _EXP + 16 * UNIT * (np.abs(y) + point * np.abs(x) + point * point))
        none = t_minus_w <= 0
        edge = np.where(t_minus_w < -16 * UNIT, 0.0, 16 * UNIT)
        shift = np.where(none, edge, np.where(np.isfinite(shift), shift, math.inf))
        return np.where(none, -math.inf, x), shift

    def _inverse_by_newton(self, b: Floats) -> tuple[Floats, Floats]:
        """The inverse by a table and then Newton steps inside their bracket; the residual is part of the error.

        Beyond the table, at |x| 38 past the last shift, both laws have less than 1e-315, which every bound on the curve
        covers.
        """
        widest = 38.0 + float(self.shifts[-1])
        nodes = np.linspace(-widest if self.mirrored else -38.0, widest, 513)
        table, slopes = self._loss_and_slope(nodes)
        point = np.clip(np.searchsorted(table, b) - 1, 0, nodes.size - 2)
        low, high = nodes[point], nodes[point + 1]
        gap = table[point + 1] - table[point]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            part = (b - table[point]) / gap
            left, right = gap / slopes[point], gap / slopes[point + 1]  # cubic through values and slopes
            cubic = (1 - part) ** 2 * part * left - (1 - part) * part**2 * right
            x = low + (high - low) * part**2 * (3 - 2 * part) + cubic
            for _ in range(3):
                x = np.where((x >= low) & (x <= high), x, (low + high) / 2)
                value, slope = self._loss_and_slope(x)
                low, high = np.where(value < b, x, low), np.where(value > b, x, high)
                x = x - (value - b) / slope
        x = np.where(np.isfinite(x), x, low)
        value, rounding = self.loss(x)
        x = np.where(b < table[0], -math.inf, np.where(b > table[-1], math.inf, x))
        return x, np.where(np.isfinite(x), np.abs(value - b) + rounding, 0.0)

    def _loss_and_slope(self, x: Floats) -> tuple[Floats, Floats]:
        value, slope = self._ratio_and_slope(x)
        if self.mirrored:
            other, its_slope = self._ratio_and_slope(-x)
            return value - other, slope + its_slope
        return value, slope

    def _ratio_and_slope(self, x: Floats) -> tuple[Floats, Floats]:
        """log Σ w_k e^{s_k x − s_k²/2} and its derivative."""
        heights = self._log_weights[:, None] + self.shifts[:, None] * (x - self.shifts[:, None] / 2)
        largest = heights.max(axis=0)
        parts = np.exp(heights - largest)
        mass = parts.sum(axis=0)
        return np.log(mass) + largest, self.shifts @ parts / mass


def _normal_sides(x: Floats) -> tuple[Floats, Floats]:
    """Φ̄(x) and Φ(x), the smaller one by Φ itself."""
    small = ndtr(-np.abs(x))
    large = 1 - small
    right = x > 0
    return np.where(right, small, large), np.where(right, large, small)
