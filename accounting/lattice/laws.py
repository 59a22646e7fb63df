"""Laws of the privacy loss of one mechanism: P and Q of {L > b}, for the pair (P, Q) of neighbours' output laws.

L = log dP/dQ is the loss. The hockey-stick divergence H(t) = sup_A P(A) − tQ(A) at t = e^b is attained by {L > b}. Any
other set gives a lower bound, so thresholds need not be met exactly: {L > b̃} misses H(e^b) by at most
(e^{|b̃ − b|} − 1) times the P-mass between the two.

Proof: docs/proofs/lattice.md, Theorem 1.

Below the elementary laws are laws made from others: Poisson-sampled, blended, symmetrised, given by cdfs, or by a bound
on their curve.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dpassay.base.arrays import Bools, Floats

UNIT = 2.0**-53
_EXP = 4 * UNIT  # numpy's exp, expm1, log and log1p, relative

_LOG_HALF = -math.log(2)
_DISTANCES = np.concatenate([-np.geomspace(1e6, 1e-9, 41), np.geomspace(1e-9, 1e6, 41)])
_SIXTEENTHS = np.arange(17) / 16


@dataclass(frozen=True, slots=True, eq=False)
class Remainder:
    """R, if one law of a pair is a mixture with the other: P = wQ + R, or Q = wP + R.

    Then P(A) − tQ(A) = R(A) − (t − w)Q(A), which does not cancel if w is near 1 and the two laws are close.
    """

    above: Floats  # above and below: R on both sides of the thresholds
    below: Floats
    mass: float  # mass and weight: 1 − w and w, each with relative error at most 2u
    weight: float
    of_p: bool = True  # P = wQ + R; otherwise Q = wP + R
    known: tuple[Floats, Floats] | None = None  # `t_minus_w` of the thresholds themselves, if it was already computed

    def __getitem__(self, part: slice) -> Remainder:
        return Remainder(self.above[part], self.below[part], self.mass, self.weight, self.of_p)

    def swapped(self) -> Remainder:
        """The remainder of (Q, P) at the thresholds −b."""
        known = None if self.known is None else (self.known[0][::-1], self.known[1][::-1])
        return Remainder(self.below[::-1], self.above[::-1], self.mass, self.weight, not self.of_p, known)

    def t_minus_w(self, log_t: Floats) -> tuple[Floats, Floats]:
        """t − w (1/t − w if Q = wP + R), and its error divided by t (by 1/t)."""
        return exp_minus_weight(
            np.minimum(np.maximum(log_t if self.of_p else -log_t, -700.0), 700.0), self.mass, self.weight
        )


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Masses on both sides of thresholds b; all arrays have the same length."""

    p_above: Floats  # p_above and q_above: P and Q of {L > b̃}, for some b̃ near b
    p_below: Floats  # p_below and q_below: P and Q of {L ≤ b̃}
    q_above: Floats
    q_below: Floats
    error: Floats  # relative error of the four, one bound per threshold
    shift: Floats  # bound on |b̃ − b|, one per threshold
    # p_slack and q_slack: absolute: masses of P and of Q may be too small by this much, besides their relative error.
    p_slack: float = 0.0
    q_slack: float = 0.0
    # bounds on P and Q of the losses between b̃ and b, if they are better known than from the mass above the threshold
    # before.
    near: tuple[Floats, Floats] | None = None
    # R of P = wQ + R or of Q = wP + R, with the same relative error, if one law is such a mixture.
    remainder: Remainder | None = None

    def __getitem__(self, part: slice) -> Tails:
        """The masses at some of the thresholds."""
        masses = self.p_above[part], self.p_below[part], self.q_above[part], self.q_below[part]
        remainder = None if self.remainder is None else self.remainder[part]
        return Tails(*masses, self.error[part], self.shift[part], self.p_slack, self.q_slack, remainder=remainder)


class Law(ABC):
    """One direction of a pair (P, Q). Laws are immutable."""

    atom: float | None = None
    """A loss of positive probability, which a lattice should contain."""
    spacing: float = 0.0
    """The distances of all atoms are multiples of it; 0 if there is no such number, or only one atom."""
    discrete: bool = False
    """Whether all mass is on atoms, so that a lattice that misses them errs by its step."""
    infinity_mass: float = 0.0
    """P(L = ∞): the P-mass of outcomes of Q-probability 0."""
    infinity_mass_error: float = 1e-13
    """Relative error of `infinity_mass`."""
    infinity_mass_bound: float = 1.0
    """An upper bound on `infinity_mass`, for laws with `upper_only`."""
    minus_infinity_mass: float = 0.0
    """Q(L = −∞): the Q-mass of outcomes of P-probability 0."""
    lowest: float = -math.inf
    """The least loss, or −inf."""
    highest: float = math.inf
    """The largest finite loss, or inf if there is none."""
    dominating_mu: float = math.inf
    """μ of a Gaussian pair, N(μ, 1) against N(0, 1), of which this pair is a post-processing; inf if none is known."""
    end_error: float = 0.0
    """Error of `lowest` and `highest`, besides a few roundings."""
    relative_cost: int = 1
    """The time to compute the masses at a threshold, relative to one Gaussian, roughly."""
    upper_only: bool = False
    """Whether only an upper bound on the hockey-stick curve is known, so that there are no lower bounds."""

    @abstractmethod
    def tails(self, thresholds: Floats) -> Tails:
        """The masses on both sides of increasing thresholds, float64 of any length."""

    def swapped(self) -> Law:
        """The law of (Q, P), the other direction."""
        return Swapped(self)

    def pruned(self, mass: float) -> Law:
        """A law that is cheaper to evaluate, with a slack of at most `mass`."""
        return self

    def hockey_stick(self, thresholds: Floats) -> tuple[Floats, Floats, Tails]:
        """Lower and upper bounds on H(e^b) at increasing thresholds, and the masses that they were computed from."""
        tails = self.tails(thresholds)
        middle, under, over = threshold_set_values(
            tails, thresholds, None if tails.remainder is None else tails.remainder.known
        )
        # {L > b̃} misses the P-mass between b̃ and b: it lies above an earlier threshold, whose b̃ is below both.
        above = _before(tails, thresholds) if tails.near is None else tails.near[0] * (1 + tails.error)
        before = above + tails.p_slack
        upper = middle + over + np.expm1(tails.shift) * before
        return np.maximum(middle - under, 0.0), np.minimum(upper, 1.0), tails

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        """An upper bound on H(e^b)."""
        return self.hockey_stick(thresholds)[1]

    def support(self, left: float, right: float) -> tuple[float, float]:
        """Finite losses (low, high) with P(L ≤ low) about `left` or less and P(high < L < ∞) about `right` or less.

        Both are within ±650, since e^b leaves float64 soon after.
        """
        high = min(self._end(right, 1), 650.0)
        return min(max(-self._end(left, -1), -650.0), high), high

    def support_under_q(self, left: float, right: float) -> tuple[float, float] | None:
        """As `support`, but with masses under Q; None if `support` of (Q, P) gives the same."""
        return None

    def _end(self, tail: float, side: int) -> float:
        """One end of the support, as a distance from 0 in the direction `side`; it may be negative."""

        def beyond(distances: Floats) -> Floats:
            if side > 0:
                return self.tails(distances).p_above - self.infinity_mass
            return self.tails(-distances[::-1]).p_below[::-1]

        grid = _DISTANCES
        for _ in range(3):
            index = min(int(np.count_nonzero(beyond(grid) > tail)), grid.size - 1)
            low, high = grid[max(index - 1, 0)], grid[index]
            grid = low + (high - low) * _SIXTEENTHS
        return min(float(grid[-1]), self.highest if side > 0 else -self.lowest)


def _before(tails: Tails, thresholds: Floats) -> Floats:
    """An upper bound on the P-mass above the lower end of each threshold's range [b − shift, b + shift]."""
    ends = np.maximum.accumulate(thresholds + tails.shift)
    starts = thresholds - tails.shift
    above = tails.p_above * (1 + tails.error)
    if (ends[:-1] <= starts[1:]).all():
        return np.concatenate([[1.0], above[:-1]])
    last = np.searchsorted(ends, starts, side="right")
    return np.concatenate([[1.0], above])[last]


def threshold_set_values(
    tails: Tails, log_t: Floats, t_minus_w: tuple[Floats, Floats] | None = None
) -> tuple[Floats, Floats, Floats]:
    """P(A) − tQ(A) for A = {L > b̃} at each threshold, and how far the exact value may be below and above it.

    For t ≤ 1 and P(A) > 1/2 it is computed as (1 − t) − (P(Aᶜ) − tQ(Aᶜ)), which does not cancel for small t. Masses may
    have underflowed by up to 1e-305. Beyond e^700, t is too large for float64, and e^700 gives an upper bound only.
    `log_t` increases; `t_minus_w` are the values of `tails.remainder.t_minus_w` at `log_t`, if known.
    """
    if tails.remainder is not None:
        return _threshold_set_values_by_remainder(
            tails, tails.remainder, log_t, t_minus_w or tails.remainder.t_minus_w(log_t)
        )
    turn = int(np.count_nonzero((tails.p_above > 0.5) & (log_t <= 0)))  # a prefix, since masses decrease
    scale = np.exp(np.minimum(log_t, 700.0))
    middle, size = np.empty(scale.shape), np.empty(scale.shape)
    p, q = tails.p_below[:turn], tails.q_below[:turn] * scale[:turn]
    item = -np.expm1(log_t[:turn])
    middle[:turn], size[:turn] = item - (p - q), p + q + np.abs(item)
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


def _threshold_set_values_by_remainder(
    tails: Tails, remainder: Remainder, log_t: Floats, known: tuple[Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """`threshold_set_values` as R(A) − (t − w)Q(A) if P = wQ + R, and as t((1/t − w)P(A) − R(A)) if Q = wP + R."""
    largest = float(np.abs(log_t[[0, -1]]).max(initial=0.0))  # thresholds rise, so it is at an end
    scale = np.exp(log_t if largest <= 700 else np.clip(log_t, -700.0, 700.0))
    t_minus_w, rounding = known
    if remainder.of_p:
        rest, other = remainder.above, tails.q_above * t_minus_w
        middle, room = rest - other, rounding * (scale * tails.q_above)
    else:
        rest, other = scale * remainder.above, tails.p_above * (scale * t_minus_w)
        middle, room = other - rest, rounding * tails.p_above
    room = room + (tails.error + 6 * _EXP) * (rest + np.abs(other)) + 1e-305
    under, over = room + 1e-305 * scale, room + 1e-320 * scale
    if largest > 700:
        under = np.where(np.abs(log_t) > 700, math.inf, under)
        over = np.where(log_t < -700, math.inf, over)
    if tails.p_slack or tails.q_slack:
        under, over = under + tails.q_slack * scale, over + tails.p_slack
    return middle, under, over


def exp_minus_weight(b: Floats, mass: float, weight: float) -> tuple[Floats, Floats]:
    """e^b − weight at |b| ≤ 700, and its error divided by e^b.

    For e^b < 1/2 it is e^b − weight, otherwise (e^b − 1) + mass, so that a small weight or a small mass keeps its
    digits. If the result is ≤ 0, b is below log(weight), or above it by at most 16u. The mass is 1 − w and the weight
    w, each with relative error at most 2u.
    """
    grown = np.expm1(b)
    t_minus_w = grown + mass
    rounding = (_EXP * np.abs(grown) + 4 * UNIT * np.abs(t_minus_w) + 4 * UNIT * mass) * np.exp(-b)
    low = b < _LOG_HALF
    if low.any():
        t_minus_w = np.where(low, np.exp(b) - weight, t_minus_w)
        rounding = np.where(low, _EXP + 4 * UNIT, rounding)
    return t_minus_w, rounding


class Laplace(Law):
    """Laplace noise of scale 1 around 0 (Q) and around ε (P): the loss is clipped to [−ε, ε], with an atom at each end.

    P(L > b) = 1 − e^{−(ε − b)/2}/2 for −ε ≤ b < ε, and Q(L > b) = e^{−(ε + b)/2}/2. ε has a relative error of u, unless
    it is exact.
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
    """Finitely many outcomes, with probabilities p_i under P and q_i under Q. If p_i > 0 = q_i the loss is infinite.

    Args:
        p, q: probabilities of the same length, each summing to 1 up to rounding and `slack`.
        error: relative error of each p_i and q_i.
        slack: mass that may be missing from p and from q.
        losses: log(p_i/q_i) of outcomes with p_i, q_i > 0, if they are more accurate than those from p and q.
    """

    discrete = True

    def __init__(
        self, p: Floats, q: Floats, *, error: float = 0.0, slack: float = 0.0, losses: Floats | None = None
    ) -> None:
        p, q = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
        self.outcomes, self._slack = (p, q, error, slack), slack
        self.infinity_mass, self.minus_infinity_mass = float(p[q == 0].sum()), float(q[p == 0].sum())
        both = (p > 0) & (q > 0)
        if not both.any() and not slack:  # whatever their sums are rounded to
            self.infinity_mass = self.minus_infinity_mass = 1.0
        if losses is None:
            losses = np.log(p[both]) - np.log(q[both])
        order = np.argsort(losses, kind="stable")
        self.losses: Floats = losses[order]
        p, q = p[both][order], q[both][order]
        self._sums = tuple(np.concatenate([[0.0], np.cumsum(side)]) for side in (p, q, p[::-1], q[::-1]))
        self._error = error + 2 * (p.size + 4) * UNIT
        # A loss is the difference of two logarithms: it has their rounding and the relative errors of p and q.
        self._shift = 2 * error + 2 * _EXP * float(np.abs(np.log(np.concatenate([p, q, [0.5]]))).max())
        self.end_error, self.infinity_mass_error = self._shift, max(1e-13, self._error)
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
            p_down[above] + self.infinity_mass,
            p_up[below],
            q_down[above],
            q_up[below] + self.minus_infinity_mass,
            error,
            np.full(thresholds.shape, self._shift),
            self._slack,
            self._slack,
            self._near(thresholds),
        )

    def _near(self, thresholds: Floats) -> tuple[Floats, Floats]:
        """P and Q of the atoms that may be on the wrong side of a threshold because their losses are rounded."""
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
    """A number of which all distances of sorted losses are multiples, to a relative 1e-9; 0 if there is none."""
    gaps = np.diff(losses)
    gaps = gaps[gaps > 1e-9 * max(1e-300, float(np.abs(losses).max()))]
    if not gaps.size:
        return 0.0
    multiples = gaps / gaps.min()
    return float(gaps.min()) if np.abs(multiples - np.rint(multiples)).max() < 1e-9 else 0.0


class Swapped(Law):
    """The law of (Q, P), given the law of (P, Q): the loss changes its sign."""

    def __init__(self, law: Law) -> None:
        self.law = law
        # If both ends are finite, the lattice starts at the lower one.
        self.atom = None if law.atom is None else (-law.highest if math.isfinite(law.highest) else -law.atom)
        self.spacing = law.spacing
        self.discrete, self.upper_only, self.relative_cost = law.discrete, law.upper_only, law.relative_cost
        self.lowest, self.highest = -law.highest, -law.lowest
        self.infinity_mass, self.minus_infinity_mass = law.minus_infinity_mass, law.infinity_mass
        self.infinity_mass_error, self.end_error = law.infinity_mass_error, law.end_error
        self.dominating_mu = law.dominating_mu

    def swapped(self) -> Law:
        return self.law

    def support(self, left: float, right: float) -> tuple[float, float]:
        result = self.law.support_under_q(right, left)
        return super().support(left, right) if result is None else (-result[1], -result[0])

    def pruned(self, mass: float) -> Law:
        # A slack of P becomes one of Q here, and P(A) − tQ(A) multiplies it by t.
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
            None if tails.remainder is None else tails.remainder.swapped(),
        )


class Sampled(Law):
    """((1 − q)Q + qP, Q): a Poisson sample in which a unit takes part with probability q.

    At t = (1 − q) + qs the hockey-stick divergence is q times that of (P, Q) at s, so the loss is log(1 − q + q e^L).

    Source: Zhu, Dong and Wang, "Optimal Accounting of Differential Privacy via Characteristic Function" (2022), Theorem
        11.
    """

    def __init__(self, law: Law, rate: float) -> None:
        self.law, self.rate = law, rate
        self.infinity_mass = rate * law.infinity_mass
        self.infinity_mass_error, self.end_error = law.infinity_mass_error + 4 * UNIT, law.end_error
        if math.isfinite(law.highest):
            self.end_error += 64 * UNIT * (1 + abs(law.highest))
        self.discrete = law.discrete
        self.dominating_mu = law.dominating_mu
        self.lowest = self._grown(-math.inf if law.minus_infinity_mass else law.lowest)
        self.highest = self._grown(law.highest)
        if law.minus_infinity_mass:
            self.atom = self.lowest
        elif law.atom is not None:
            self.atom = self._grown(law.atom)
            if math.isfinite(law.spacing) and law.spacing and law.spacing >= 0.999 * (law.highest - law.lowest):
                self.spacing = self.highest - self.lowest  # two atoms, one at each end
        self.upper_only, self.relative_cost = law.upper_only, law.relative_cost

    def _grown(self, loss: float) -> float:
        """The loss of the sample at a loss of the inner law: log(1 − q + q e^L)."""
        if loss > 700:
            return float(np.logaddexp(math.log1p(-self.rate), loss + math.log(self.rate)))
        if loss < -math.log(2):  # accurate for a small 1 − q too
            return math.log((1 - self.rate) + self.rate * math.exp(loss))
        return math.log1p(self.rate * math.expm1(loss))

    def pruned(self, mass: float) -> Law:
        return Sampled(self.law.pruned(mass), self.rate)

    def _inner(self, thresholds: Floats) -> tuple[Floats, Bools, Floats, Floats]:
        """The inner loss log((t − 1 + q)/q); where there is none; rounding of the outer loss; its derivative in the
        inner.
        """
        thresholds = np.clip(thresholds, -700.0, 700.0)
        t_minus_w, rounding = exp_minus_weight(thresholds, self.rate, 1 - self.rate)
        none = t_minus_w <= 0
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = t_minus_w / self.rate
            inner = np.where(np.isinf(ratio), np.log(t_minus_w) - math.log(self.rate), np.log(ratio))
        share = np.where(none, 0.0, t_minus_w * np.exp(-thresholds))
        finite = np.where(none, 0.0, inner)
        shift = 2 * rounding + share * (2 * _EXP + 16 * UNIT * np.abs(finite))
        edge = np.where(t_minus_w < -16 * UNIT, 0.0, 16 * UNIT)
        return finite, none, np.where(none, edge, shift), share

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        if not self.upper_only:
            return super().hockey_stick_upper(thresholds)
        inner, none, shift, share = self._inner(thresholds)
        curve = self.rate * self.law.hockey_stick_upper(inner - 2 * shift / np.maximum(share, 1e-300)) * (1 + 4 * UNIT)
        return np.where(none, -np.expm1(thresholds) * (1 + 2 * _EXP) + 32 * UNIT, np.minimum(curve, 1.0))

    def tails(self, thresholds: Floats) -> Tails:
        inner, none, shift, share = self._inner(thresholds)
        order = np.maximum.accumulate(np.where(none, inner[~none].min() if (~none).any() else 0.0, inner))
        tails = self.law.tails(order)
        q_above, q_below = np.where(none, 1.0, tails.q_above), np.where(none, 0.0, tails.q_below)
        p_above, p_below = np.where(none, 1.0, tails.p_above), np.where(none, 0.0, tails.p_below)
        complement = 1 - self.rate
        return Tails(
            complement * q_above + self.rate * p_above,
            complement * q_below + self.rate * p_below,
            q_above,
            q_below,
            np.where(none, 0.0, tails.error) + 4 * UNIT,
            np.where(none, 0.0, share * np.expm1(tails.shift)) + shift,
            complement * tails.q_slack + self.rate * tails.p_slack,
            tails.q_slack,
            remainder=Remainder(self.rate * p_above, self.rate * p_below, self.rate, complement),
        )


class Blend(Law):
    """Σ w_i H_i: one of several pairs is chosen with probability w_i, and the choice is released.

    Args:
        laws: the pairs.
        weights: w_i, positive, with sum 1 up to one rounding each.
        rounded_up: the weights are upper bounds, so their sum may be larger; the blend then has upper bounds only.
    """

    def __init__(self, laws: Sequence[Law], weights: Sequence[float], *, rounded_up: bool = False) -> None:
        self.laws, self.weights, self._rounded_up = tuple(laws), tuple(weights), rounded_up
        self.infinity_mass = sum(w * law.infinity_mass for w, law in zip(weights, laws, strict=True))
        chances = [
            law.infinity_mass_bound if law.upper_only else law.infinity_mass * (1 + law.infinity_mass_error)
            for law in laws
        ]
        self.infinity_mass_bound = sum(w * chance for w, chance in zip(weights, chances, strict=True)) * (1 + 1e-14)
        self.minus_infinity_mass = sum(w * law.minus_infinity_mass for w, law in zip(weights, laws, strict=True))
        self.discrete = all(law.discrete for law in laws)
        self.atom = next((law.atom for law in laws if law.atom is not None), None)
        self.lowest = min(law.lowest for law in laws)
        self.highest = max(law.highest for law in laws)
        self.dominating_mu = max(law.dominating_mu for law in laws)
        self.end_error = max(law.end_error for law in laws)
        self.infinity_mass_error = max(law.infinity_mass_error for law in laws)
        self.upper_only = rounded_up or any(law.upper_only for law in laws)
        self.relative_cost = sum(law.relative_cost for law in laws)

    def pruned(self, mass: float) -> Law:
        return Blend([law.pruned(mass) for law in self.laws], self.weights, rounded_up=self._rounded_up)

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        curves = [w * law.hockey_stick_upper(thresholds) for w, law in zip(self.weights, self.laws, strict=True)]
        return np.asarray(np.minimum(np.sum(curves, axis=0) * (1 + 2 * (len(curves) + 2) * UNIT), 1.0))

    def tails(self, thresholds: Floats) -> Tails:
        parts = [law.tails(thresholds) for law in self.laws]

        def total(side: str) -> Floats:
            return np.asarray(sum(w * getattr(part, side) for w, part in zip(self.weights, parts, strict=True)))

        return Tails(
            total("p_above"),
            total("p_below"),
            total("q_above"),
            total("q_below"),
            np.max([part.error for part in parts], axis=0) + 2 * (len(parts) + 2) * UNIT,
            np.max([part.shift for part in parts], axis=0),
            float(total("p_slack")),
            float(total("q_slack")),
        )


class Symmetrized(Law):
    """The curve of a law for t ≥ 1, and its mirror image H(t) = 1 − t + t·H(1/t) for t < 1.

    It has an atom at loss 0 with the remaining mass. For b ≥ 0 the masses above b are the law's; below 0, P and Q
    change places.

    Proof: docs/proofs/lattice.md, Theorem 8.
    """

    atom = 0.0

    def __init__(self, law: Law) -> None:
        self.law = law
        self.infinity_mass = self.minus_infinity_mass = law.infinity_mass
        self.highest, self.lowest = law.highest, -law.highest
        self.dominating_mu = law.dominating_mu

    def swapped(self) -> Law:
        return self

    def tails(self, thresholds: Floats) -> Tails:
        negative = thresholds < 0
        order = np.argsort(np.abs(thresholds), kind="stable")
        sorted_tails = self.law.tails(np.abs(thresholds)[order])
        back = np.empty(order.size, dtype=np.intp)
        back[order] = np.arange(order.size)
        p, q, error, shift = (getattr(sorted_tails, name)[back] for name in ("p_above", "q_above", "error", "shift"))
        p_above, p_below = np.where(negative, 1 - q, p), np.where(negative, q, 1 - p)
        q_above, q_below = np.where(negative, 1 - p, q), np.where(negative, p, 1 - q)
        # 1 − p has the absolute error of p.
        left = np.minimum(1 - p, 1 - q)
        grown = error * np.maximum(1.0, p / np.maximum(left, 1e-300)) + 2 * UNIT
        return Tails(p_above, p_below, q_above, q_below, grown, shift)


class Profile(Law):
    """A law of which only an upper bound on the hockey-stick curve is known.

    Args:
        hockey_stick: vectorised, increasing losses b of either sign ↦ an upper bound on H(e^b). It need not be convex:
            the lattice takes the least convex curve through its values, which is still an upper bound on the convex H.
        low, high: the losses between which the lattice evaluates the curve.
    """

    upper_only = True

    def __init__(self, hockey_stick: Callable[[Floats], Floats], low: float, high: float) -> None:
        self._curve, self._low, self._high = hockey_stick, low, high

    def swapped(self) -> Law:
        raise ValueError("an upper bound on a curve does not determine the other direction; give both directions")

    def support(self, left: float, right: float) -> tuple[float, float]:
        return self._low, self._high

    def tails(self, thresholds: Floats) -> Tails:
        """Masses from the slopes of the curve, to choose a lattice; not bounds."""
        curve = self.hockey_stick_upper(thresholds)
        t = np.exp(np.minimum(thresholds, 700.0))
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            slopes = np.nan_to_num(np.maximum(-np.gradient(curve, t), 0.0)) if t.size > 1 else np.zeros(t.shape)
        q_above = np.minimum(np.minimum.accumulate(slopes), 1.0)
        p_above = np.clip(curve + t * q_above, 0.0, 1.0)
        none = np.zeros(t.shape)
        return Tails(p_above, 1 - p_above, q_above, 1 - q_above, none, none)

    def hockey_stick_upper(self, thresholds: Floats) -> Floats:
        """The upper bound, at most 1."""
        return np.minimum(np.asarray(self._curve(thresholds), dtype=np.float64), 1.0)
