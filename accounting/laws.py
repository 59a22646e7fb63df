"""Laws of the privacy loss of one mechanism: how likely is a loss above b, with the data set and with its neighbour.

A law is a pair (P, Q) seen through its loss L = log dP/dQ. All that the certified accountant needs of it are the masses
of {L > b} under P and under Q at thresholds b: for any set A, P(A) − tQ(A) is a lower bound on the hockey-stick
divergence H(t) = sup_A P(A) − tQ(A), and at t = e^b the set {L > b} attains it. So thresholds need not be hit exactly:
a set {L > b̃} with |b̃ − b| small still gives a lower bound, and misses H(e^b) by at most (e^{|b̃ − b|} − 1) times the
P-mass between the two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

UNIT = 2.0**-53
_EXP = 4 * UNIT  # numpy's exp, expm1, log and log1p, relative
_NDTR = 8 * UNIT  # scipy's ndtr, relative, times 1 + z²; tests hold it against mpmath

_DISTANCES = np.concatenate([-np.geomspace(1e6, 1e-9, 41), np.geomspace(1e-9, 1e6, 41)])
_SIXTEENTHS = np.arange(17) / 16


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Masses on both sides of thresholds b, each array of the same length.

    Attributes:
        p_above, q_above: P and Q of {L > b̃}, for some b̃ near b.
        p_below, q_below: P and Q of {L ≤ b̃}.
        error: relative error of the four, one bound a threshold.
        shift: bound on |b̃ − b|, one a threshold.
        near: bounds on P and Q of what lies between b̃ and b, where they are known better than by the mass above the
            threshold before.
        p_slack, q_slack: absolute: masses of P and of Q may be up to this much too small, besides their relative error.
    """

    p_above: Floats
    p_below: Floats
    q_above: Floats
    q_below: Floats
    error: Floats
    shift: Floats
    p_slack: float = 0.0
    q_slack: float = 0.0
    near: tuple[Floats, Floats] | None = None

    def __getitem__(self, part: slice) -> Tails:
        """The masses at some of the thresholds."""
        masses = self.p_above[part], self.p_below[part], self.q_above[part], self.q_below[part]
        return Tails(*masses, self.error[part], self.shift[part], self.p_slack, self.q_slack)


class Law(ABC):
    """One direction of a pair (P, Q). Laws do not change and compare by their parameters."""

    atom: float | None = None
    """A loss of positive probability, that a lattice should contain."""
    spacing: float = 0.0
    """Of which the distances of all atoms are multiples; 0 if there is no such number, or one atom only."""
    discrete: bool = False
    """Whether all of the mass sits on atoms, so that a lattice that misses them is off by its step."""
    certain: float = 0.0
    """P(L = ∞): the mass of outcomes that Q never gives."""
    certain_error: float = 1e-13
    """The relative error of that."""
    impossible: float = 0.0
    """Q(L = −∞): the mass of outcomes that P never gives."""
    lowest: float = -math.inf
    """The least loss, where it is finite."""
    highest: float = math.inf
    """The largest finite loss, where there is one."""
    end_error: float = 0.0
    """How far the least and the largest loss may be off, besides a few roundings."""
    upper_only: bool = False
    """Whether only {L > b} bounds from above are known, not attained ones, so that the law gives no lower bound."""

    @abstractmethod
    def tails(self, thresholds: Floats) -> Tails:
        """The masses on both sides of increasing thresholds, float64 of any length."""

    def swapped(self) -> Law:
        """(Q, P): the other direction."""
        return Swapped(self)

    def pruned(self, mass: float) -> Law:
        """A law that is cheaper to evaluate, with a slack of at most `mass`."""
        return self

    def hockey_stick(self, thresholds: Floats) -> tuple[Floats, Floats, Tails]:
        """Lower and upper bounds on H(e^b) at increasing thresholds, and the masses they were made from."""
        tails = self.tails(thresholds)
        middle, under, over = attained(tails, thresholds)
        # {L > b̃} misses the P-mass between b̃ and b, which lies above a threshold whose own b̃ is below both.
        above = _before(tails, thresholds) if tails.near is None else tails.near[0] * (1 + tails.error)
        before = above + tails.p_slack
        upper = middle + over + np.expm1(tails.shift) * before
        return np.maximum(middle - under, 0.0), np.minimum(upper, 1.0), tails

    def above(self, thresholds: Floats) -> Floats:
        """An upper bound on H(e^b)."""
        return self.hockey_stick(thresholds)[1]

    def support(self, left: float, right: float) -> tuple[float, float]:
        """Finite losses (low, high) with P(L ≤ low) about `left` or less and P(high < L < ∞) about `right` or less, but
        none beyond 650, where e^b is near the end of float64."""
        high = min(self._end(right, 1), 650.0)
        return min(max(-self._end(left, -1), -650.0), high), high

    def _end(self, tail: float, side: int) -> float:
        """The end on one side of zero, as a distance that is negative on the other side."""

        def beyond(distances: Floats) -> Floats:
            if side > 0:
                return self.tails(distances).p_above - self.certain
            return self.tails(-distances[::-1]).p_below[::-1]

        grid = _DISTANCES
        for _ in range(3):
            index = min(int(np.count_nonzero(beyond(grid) > tail)), grid.size - 1)
            low, high = grid[max(index - 1, 0)], grid[index]
            grid = low + (high - low) * _SIXTEENTHS
        return min(float(grid[-1]), self.highest if side > 0 else -self.lowest)


def _before(tails: Tails, thresholds: Floats) -> Floats:
    """A bound on the mass of P above the lower end of each threshold's range [b − shift, b + shift]."""
    ends = np.maximum.accumulate(thresholds + tails.shift)
    starts = thresholds - tails.shift
    above = tails.p_above * (1 + tails.error)
    if (ends[:-1] <= starts[1:]).all():
        return np.concatenate([[1.0], above[:-1]])
    last = np.searchsorted(ends, starts, side="right")
    return np.concatenate([[1.0], above])[last]


def attained(tails: Tails, log_t: Floats) -> tuple[Floats, Floats, Floats]:
    """P(A) − tQ(A) of each A = {L > b̃}, one t a threshold, and how far below and above it the exact value may be.

    Where t ≤ 1 and P(A) is above 1/2 it is (1 − t) − (P(Aᶜ) − tQ(Aᶜ)), which does not cancel for small t. Masses may
    have underflowed by up to 1e-305. Beyond e^700, t is too large for float64: e^700 bounds it from above only.
    """
    turn = int(np.count_nonzero((tails.p_above > 0.5) & (log_t <= 0)))  # masses fall, so it is all up to here
    scale = np.exp(np.minimum(log_t, 700.0))
    middle, size = np.empty(scale.shape), np.empty(scale.shape)
    p, q = tails.p_below[:turn], tails.q_below[:turn] * scale[:turn]
    one = -np.expm1(log_t[:turn])
    middle[:turn], size[:turn] = one - (p - q), p + q + np.abs(one)
    p, q = tails.p_above[turn:], tails.q_above[turn:] * scale[turn:]
    middle[turn:], size[turn:] = p - q, p + q
    room = (tails.error + 4 * _EXP) * size + 1e-305
    under = np.where(log_t > 700, math.inf, room + 1e-305 * scale)
    over = np.where(np.arange(scale.size) < turn, room + 1e-305 * scale, room + 1e-320 * scale)  # Q among subnormals
    if not (tails.p_slack or tails.q_slack):
        return middle, under, over
    slack_p, slack_q = np.full(scale.shape, tails.p_slack), tails.q_slack * scale
    near = np.arange(scale.size) < turn
    return middle, under + np.where(near, slack_p, slack_q), over + np.where(near, slack_q, slack_p)


class NormalMixtures(Law):
    """P = Σ w_k N(s_k, 1) against Q = Σ v_k N(r_k, 1) on the line, with a loss that grows with x.

    The loss grows with x where all s_k ≥ 0 = r_k, and where r_k = −s_k with equal weights.

    Args:
        weights: w_k, positive, sum 1.
        shifts: s_k ≥ 0, in standard deviations of the noise; off by at most a relative 4u from what they stand for.
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
        still = float(self.weights[self.shifts == 0].sum())
        if not mirrored and still > 0:
            self.lowest = math.log(still)
        self._log_weights = np.log(self.weights)

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
        """As `support`, but between losses that are rare under Q."""
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
        x, shift = self._inverse(thresholds)
        far = np.abs(x) > 40 + self.shifts[-1]  # less than 1e-315 of either law is left there
        x = np.where(far, np.copysign(np.inf, x), x)
        p_above, p_below, reach = self._sides(x, self.shifts)
        if self.mirrored:
            q_above, q_below, other = self._sides(x, -self.shifts)
            reach = np.maximum(reach, other)
        else:
            q_above, q_below = _normal_sides(x)
        # An argument z is off by at most 8u(|x| + s), which moves Φ(z) by its hazard, at most |z| + 1, times that.
        finite = np.isfinite(x)
        reach = np.maximum(reach, np.abs(x))
        reach, size = np.where(finite, reach, 0.0), np.where(finite, np.abs(x), 0.0) + self.shifts[-1]
        error = _NDTR * (1 + reach * reach) + 8 * UNIT * size * (reach + 1) + 2 * self.weights.size * UNIT
        return Tails(p_above, p_below, q_above, q_below, error, shift, self.slack)

    def _sides(self, x: Floats, shifts: Floats) -> tuple[Floats, Floats, Floats]:
        """Mixture mass above and below x, and the largest |argument| of a Φ."""
        above, below = np.zeros(x.shape), np.zeros(x.shape)
        for weight, place in zip(self.weights, shifts, strict=True):
            up, down = _normal_sides(x - place)
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
        """x with L(x) near b, and a bound on |L(x) − b|; −∞ with 0 where every loss is above b."""
        if self.weights.size == 1 and not self.mirrored:
            place = self.shifts[0]
            x = b / place + place / 2
            return x, 16 * UNIT * (np.abs(b) + place * place)
        if self.mirrored and self.weights.size == 1:
            x = b / (2 * self.shifts[0])
            return x, 16 * UNIT * np.abs(b)
        if self.weights.size == 2 and not self.mirrored and self.shifts[0] == 0:
            return self._inverse_of_two(b)
        return self._inverse_by_newton(b)

    def _inverse_of_two(self, b: Floats) -> tuple[Floats, Floats]:
        """L(x) = log(1 − q + q e^y), y = s(x − s/2): y = log((e^b − 1 + q)/q).

        The rounding of e^b − 1 + q moves L by its own size over e^b, that of y by (e^b − 1 + q)/e^b times
        16u(|y| + s|x| + s²).
        """
        place = float(self.shifts[1])
        rate = float(self.weights[1]) if not self.slack else 1 - float(self.weights[0])
        b = np.clip(b, -700.0, 700.0)
        odds, rounding = odds_of(b, rate, float(self.weights[0]))
        if self.slack:  # 1 − w₀ is not the weight that is known
            rounding = rounding + 4 * UNIT * np.exp(-np.maximum(b, -1.0))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            y = np.log(odds) - math.log(float(self.weights[1]))  # their quotient may leave float64
            x = y / place + place / 2
            share = odds * np.exp(-b)
            shift = 2 * rounding + share * (4 * _EXP + 16 * UNIT * (np.abs(y) + place * np.abs(x) + place * place))
        none = odds <= 0
        edge = np.where(odds < -16 * UNIT, 0.0, 16 * UNIT)
        shift = np.where(none, edge, np.where(np.isfinite(shift), shift, math.inf))
        return np.where(none, -math.inf, x), shift

    def _inverse_by_newton(self, b: Floats) -> tuple[Floats, Floats]:
        """By a table of the inverse, then Newton steps that stay inside their bracket; the residual is what is left.

        Beyond the table, at |x| 38 past the last shift, less than 1e-315 of either law is left, and every bound on the
        curve has more room than that.
        """
        widest = 38.0 + float(self.shifts[-1])
        nodes = np.linspace(-widest if self.mirrored else -38.0, widest, 513)
        table, slopes = self._loss_and_slope(nodes)
        place = np.clip(np.searchsorted(table, b) - 1, 0, nodes.size - 2)
        low, high = nodes[place], nodes[place + 1]
        gap = table[place + 1] - table[place]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            part = (b - table[place]) / gap
            left, right = gap / slopes[place], gap / slopes[place + 1]  # cubic through values and slopes
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


def odds_of(b: Floats, rate: float, stay: float) -> tuple[Floats, Floats]:
    """e^b − 1 + q at |b| ≤ 700, and its error over e^b.

    Where e^b < 1/2 it is e^b − (1 − q), both with a relative error: e^b − 1 would lose all digits of a small 1 − q.
    `stay` and `rate` are 1 − q and q, off by a relative 2u. So where the result is ≤ 0, b lies below log(1 − q) or
    above it by no more than 16u.
    """
    grown, low = np.expm1(b), b < -math.log(2)
    with np.errstate(over="ignore"):
        rounding = (_EXP * np.abs(grown) + 4 * UNIT * rate + 4 * UNIT * np.abs(grown + rate)) * np.exp(-b)
    odds = np.where(low, np.exp(b) - stay, grown + rate)
    return odds, np.where(low, _EXP + 4 * UNIT, rounding)


def _normal_sides(x: Floats) -> tuple[Floats, Floats]:
    """Φ̄(x) and Φ(x), the smaller one by Φ itself."""
    small = ndtr(-np.abs(x))
    large = 1 - small
    right = x > 0
    return np.where(right, small, large), np.where(right, large, small)


class Laplace(Law):
    """Laplace noise of scale 1 around 0 (Q) and around ε (P): the loss is clipped to [−ε, ε], with an atom at each end.

    P(L > b) = 1 − e^{−(ε − b)/2}/2 for −ε ≤ b < ε, and Q(L > b) = e^{−(ε + b)/2}/2.

    Args:
        epsilon: ε, off by a relative u from what it stands for.
        exact: ε is what it stands for.
    """

    def __init__(self, epsilon: float, *, exact: bool = False) -> None:
        self.epsilon, self._shift = epsilon, 0.0 if exact else 4 * UNIT * epsilon
        self.atom, self.spacing = -epsilon, 2 * epsilon
        self.lowest, self.highest = -epsilon, epsilon

    def tails(self, thresholds: Floats) -> Tails:
        inside = np.clip(thresholds, -self.epsilon, self.epsilon)
        near, far = np.exp(-(self.epsilon - inside) / 2) / 2, np.exp(-(self.epsilon + inside) / 2) / 2
        under, over = thresholds < -self.epsilon, thresholds >= self.epsilon
        p_below = np.where(under, 0.0, np.where(over, 1.0, near))
        q_above = np.where(under, 1.0, np.where(over, 0.0, far))
        p_above, q_below = np.where(over, 0.0, 1 - p_below), np.where(under, 0.0, 1 - q_above)
        error = np.full(thresholds.shape, 2 * _EXP + 4 * UNIT * (1 + self.epsilon))
        return Tails(p_above, p_below, q_above, q_below, error, np.full(thresholds.shape, self._shift))


class Atoms(Law):
    """Finitely many outcomes with probabilities p_i under P and q_i under Q; p_i > 0 = q_i is a certain outcome.

    Args:
        p, q: probabilities, the same length, each summing to 1 up to rounding and `slack`.
        error: relative error of each p_i and q_i.
        slack: mass that may be missing from p and from q.
        losses: log(p_i/q_i), where it is known better than from p and q; not for certain outcomes.
    """

    discrete = True

    def __init__(
        self, p: Floats, q: Floats, *, error: float = 0.0, slack: float = 0.0, losses: Floats | None = None
    ) -> None:
        p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        self.outcomes, self._slack = (p, q, error, slack), slack
        self.certain, self.impossible = float(p[q == 0].sum()), float(q[p == 0].sum())
        both = (p > 0) & (q > 0)
        if not both.any() and not slack:  # whatever their sums are rounded to
            self.certain = self.impossible = 1.0
        if losses is None:
            losses = np.log(p[both]) - np.log(q[both])
        order = np.argsort(losses, kind="stable")
        self.losses: Floats = losses[order]
        p, q = p[both][order], q[both][order]
        self._sums = tuple(np.concatenate([[0.0], np.cumsum(side)]) for side in (p, q, p[::-1], q[::-1]))
        self._error = error + 2 * (p.size + 4) * UNIT
        # A loss is the difference of two logarithms: off by their rounding and by the relative error of p and q.
        self._shift = 2 * error + 2 * _EXP * float(np.abs(np.log(np.concatenate([p, q, [0.5]]))).max())
        self.end_error, self.certain_error = self._shift, max(1e-13, self._error)
        if losses.size:
            self.atom, self.spacing = float(self.losses[0]), _spacing(self.losses)
            if not slack:  # what is missing may lie beyond
                self.lowest, self.highest = float(self.losses[0]), float(self.losses[-1])
        else:
            self.highest = -math.inf

    def tails(self, thresholds: Floats) -> Tails:
        below = np.searchsorted(self.losses, thresholds, side="right")
        above = self.losses.size - below
        p_up, q_up, p_down, q_down = self._sums
        error = np.full(thresholds.shape, self._error)
        return Tails(
            p_down[above] + self.certain,
            p_up[below],
            q_down[above],
            q_up[below] + self.impossible,
            error,
            np.full(thresholds.shape, self._shift),
            self._slack,
            self._slack,
            self._near(thresholds),
        )

    def _near(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """P and Q of the atoms that may lie on the other side of a threshold than their rounded losses say."""
        reach = 2 * self._shift
        low = np.searchsorted(self.losses, thresholds - reach, side="left")
        high = np.searchsorted(self.losses, thresholds + reach, side="right")
        count, out = self.losses.size, []
        for up, down in (self._sums[::2], self._sums[1::2]):  # the difference of sums from the side that is smaller
            first = up[high] - up[low] + 2 * count * UNIT * up[high]
            second = down[count - low] - down[count - high] + 2 * count * UNIT * down[count - low]
            out.append(np.where(high > low, np.minimum(first, second), 0.0))
        return out[0], out[1]


def _spacing(losses: Floats) -> float:
    """What all distances of sorted losses are multiples of, to a relative 1e-9 of it; 0 if nothing is."""
    gaps = np.diff(losses)
    gaps = gaps[gaps > 1e-9 * max(1e-300, float(np.abs(losses).max()))]
    if not gaps.size:
        return 0.0
    multiples = gaps / gaps.min()
    return float(gaps.min()) if np.abs(multiples - np.rint(multiples)).max() < 1e-9 else 0.0


class Swapped(Law):
    """(Q, P) of a law of (P, Q): the loss changes its sign."""

    def __init__(self, law: Law) -> None:
        self.law = law
        # Where two ends are sharp the lattice starts from the lower one.
        self.atom = None if law.atom is None else (-law.highest if math.isfinite(law.highest) else -law.atom)
        self.spacing = law.spacing
        self.discrete, self.upper_only = law.discrete, law.upper_only
        self.lowest, self.highest = -law.highest, -law.lowest
        self.certain, self.impossible = law.impossible, law.certain
        self.certain_error, self.end_error = law.certain_error, law.end_error

    def swapped(self) -> Law:
        return self.law

    def support(self, left: float, right: float) -> tuple[float, float]:
        if not isinstance(self.law, NormalMixtures):
            return super().support(left, right)
        low, high = self.law.support_under_q(right, left)
        return -high, -low

    def pruned(self, mass: float) -> Law:
        # A slack of P is one of Q here, which counts t-fold.
        return Swapped(self.law.pruned(mass * math.exp(-max(self.highest, 0.0)))) if self.highest < 600 else self

    def tails(self, thresholds: Floats) -> Tails:
        tails = self.law.tails(-thresholds[::-1])
        return Tails(
            tails.q_below[::-1],
            tails.q_above[::-1],
            tails.p_below[::-1],
            tails.p_above[::-1],
            tails.error[::-1],
            tails.shift[::-1],
            tails.q_slack,
            tails.p_slack,
            None if tails.near is None else (tails.near[1][::-1], tails.near[0][::-1]),
        )
